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


@dataclass(frozen=True)
class ConvergenceScale:
    """What a profile decides about FedAsync's Figures 2 to 10.

    Attributes
    ----------
    updates : int
        Global epochs T of FedAsync and of FedAvg; SGD gets FedAsync's gradients.
    decay_epoch : int
        Global epoch after which alpha is halved: 0.4 T.
    eval_every : int
        Global epochs between two measurements of the global model.
    train_samples : int
        Training images that the training loss is averaged over.
    seeds : tuple of int
    alphas : tuple of float
        Mixing weights of the plotted curves.
    claim_alphas : tuple of float
        Mixing weights that only a claim needs, run without adaptivity at the larger staleness.
    lrs : tuple of float
        Learning rates among which FedAvg's and SGD's are chosen.
    sweep_staleness : tuple of int
        Maximum staleness of each point of Figure 8.
    sweep_alphas : tuple of float
        Mixing weight of each point of Figures 9 and 10.
    """

    updates: int
    decay_epoch: int
    eval_every: int
    train_samples: int
    seeds: tuple[int, ...]
    alphas: tuple[float, ...]
    claim_alphas: tuple[float, ...]
    lrs: tuple[float, ...]
    sweep_staleness: tuple[int, ...]
    sweep_alphas: tuple[float, ...]


# smoke has one alpha and one learning rate, so that the whole grid takes well under a minute on two cores;
# claims that compare values of alpha, and all that need a confidence interval, stay inconclusive there.
_ALPHAS = (0.2, 0.4, 0.6, 0.8, 0.9)
CONVERGENCE = {
    "smoke": ConvergenceScale(20, 8, 5, 1_000, (0,), (0.6,), (), (0.1,), (4, 16), (0.2, 0.9)),
    "laptop": ConvergenceScale(
        400, 160, 20, 10_000, (0, 1, 2), (0.6, 0.9), (0.2,), (0.05, 0.1, 0.2), (1, 4, 8, 12, 16), _ALPHAS
    ),
    "paper": ConvergenceScale(
        2000, 800, 10, 50_000, tuple(range(10)), (0.6, 0.9), (0.2,), (0.01, 0.02, 0.05, 0.1, 0.2),
        (1, 4, 8, 12, 16), _ALPHAS,
    ),
}  # fmt: skip
