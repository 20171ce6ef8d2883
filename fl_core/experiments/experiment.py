"""What the experiments of all papers have in common: a reader's options, profiles, set-ups, and labelled runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from fl_core.datasets import stands_for
from fl_core.errors import SpecError, nearest, unknown
from fl_core.experiments.explain import explain
from fl_core.experiments.study import Entry

PROFILES = {
    "smoke": "seconds per run: shows that everything works, proves nothing about accuracy",
    "laptop": "two processor cores and about an hour: the published results",
    "paper": "the paper's own budget and repetitions: days on two cores",
}
"""The three sizes of every experiment, and what they are for. A profile scales budgets, never the method."""


def known_profile(name: str) -> str:
    """Return `name` if there is such a profile; otherwise a SpecError names those that there are."""
    if name not in PROFILES:
        raise unknown("profile", name, PROFILES)
    return name


def in_order(value: tuple[float, ...] | None) -> tuple[float, ...] | None:
    """Refuse an option that does not ascend."""
    if value is not None and list(value) != sorted(set(value)):
        raise ValueError(f"{list(value)} must ascend, without repetitions")
    return value


class Options(BaseModel):
    """What a reader may change besides profile, data set and seeds; a subclass has the fields and their defaults."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def of(cls, **overrides: Any) -> Self:
        """Return validated options; an unknown name or a wrong value is a SpecError that names what is valid."""
        for name in overrides:
            if name not in cls.model_fields:
                valid = ", ".join(cls.model_fields)
                raise SpecError(f"unknown override {name!r}{nearest(name, cls.model_fields)} (valid: {valid})")
        try:
            return cls(**overrides)
        except ValidationError as error:
            raise SpecError(explain(error, cls)) from None

    @classmethod
    def changed(cls, **overrides: Any) -> dict[str, Any]:
        """Return those of `overrides` that differ from the defaults, so that a study names only what was changed."""
        return {name: value for name, value in overrides.items() if cls.of(**{name: value}) != cls()}


class Experiment:
    """One paper's experiment at one profile, on one data set, with one reader's options.

    A subclass is three tables and the methods that yield runs from them; ``Subclass.made(Subclass.method)`` is what
    an artifact takes as its grid.
    """

    OPTIONS: ClassVar[type[Options]] = Options
    PROFILES: ClassVar[Mapping[str, Any]]
    """What each profile decides; every value has `seeds`."""
    SETUPS: ClassVar[Mapping[str, Any]]
    """What is trained on each data set that the experiment is laid out for."""

    def __init__(self, profile: str, dataset: str, seeds: Sequence[int] | None = None, **overrides: Any) -> None:
        self.options: Any = self.OPTIONS.of(**overrides)
        known_profile(profile)
        self.profile, self.dataset = profile, dataset
        self.setup, self.scale = self.setup_of(dataset), self.PROFILES[profile]
        self.seeds = tuple(self.default_seeds() if seeds is None else seeds)

    @classmethod
    def setup_of(cls, dataset: str) -> Any:
        """Return what is trained on `dataset`; a surrogate or copy without its own entry has its real data set's."""
        for name in (dataset, stands_for(dataset)):
            if name in cls.SETUPS:
                return cls.SETUPS[name]
        raise unknown("data set of this experiment", dataset, cls.SETUPS)

    def default_seeds(self) -> Sequence[int]:
        """Return the profile's seeds."""
        seeds: Sequence[int] = self.scale.seeds
        return seeds

    @classmethod
    def made(cls, *parts: Callable[[Self], Iterable[Entry]]) -> Callable[..., list[Entry]]:
        """Return a grid, ``(profile, dataset, seeds, **overrides) -> entries``: what the `parts` yield, in order."""

        def grid(profile: str, dataset: str, seeds: Sequence[int] | None = None, **overrides: Any) -> list[Entry]:
            if not parts:  # made from formulas, on whatever data: only the options are checked
                cls.OPTIONS.of(**overrides)
                return []
            experiment = cls(profile, dataset, seeds, **overrides)
            return [entry for part in parts for entry in part(experiment)]

        return grid

    @classmethod
    def shown(cls, table: Callable[[Self], Any]) -> Callable[..., Any]:
        """Return ``(profile, dataset, seeds, **overrides) -> table(experiment)``: an artifact's `paper_setting`."""

        def make(
            profile: str, dataset: str = "fashion-mnist", seeds: Sequence[int] | None = None, **overrides: Any
        ) -> Any:
            return table(cls(profile, dataset, seeds, **overrides))

        return make
