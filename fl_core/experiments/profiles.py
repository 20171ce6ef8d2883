"""The three sizes of every experiment. A profile scales budgets, never the method."""

from __future__ import annotations

from dataclasses import dataclass

from fl_core.errors import unknown


@dataclass(frozen=True)
class Profile:
    """A size.

    Attributes
    ----------
    name : str
    meaning : str
        What it is for, in one line.
    """

    name: str
    meaning: str


PROFILES = {
    profile.name: profile
    for profile in (
        Profile("smoke", "seconds per run: shows that everything works, proves nothing about accuracy"),
        Profile("laptop", "two processor cores and about an hour: the published results"),
        Profile("paper", "the paper's own budget and repetitions: days on two cores"),
    )
}


def profile(name: str) -> Profile:
    """Return the profile called `name`.

    Raises
    ------
    SpecError
        If there is none.
    """
    if name not in PROFILES:
        raise unknown("profile", name, PROFILES)
    return PROFILES[name]
