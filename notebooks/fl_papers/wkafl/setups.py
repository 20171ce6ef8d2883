"""What WKAFL's experiments are set to: by data set as in the authors' programs, and by profile.

The paper prints few settings; those here stand in the authors' programs (specification, section 6).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fl_core.errors import unknown

Level = tuple[int, int]
"""P and K; the paper calls P / K the level of staleness."""
Snapshot = Literal["copy", "aliased"]
"""True staleness, and as in the authors' programs (E30)."""
METHODS = ("WKAFL", "TWAFL", "SASGD", "GSGM")
GSGM_FACTORS = (1.0, 0.1, 0.01)
ABLATIONS = {"No Grad-Sel": "selection", "No Staleness": "staleness", "No Non-IIDness": "non_iidness"}


@dataclass(frozen=True)
class Setup:
    """What the authors' programs do on a data set.

    Attributes
    ----------
    model, reduced : str
        The network at profile ``paper``, and at the smaller ones.
    batch_size : int
        m.
    wkafl : dict
        WKAFL's parameters.
    lrs : dict
        Learning rates of the other methods.
    gsgm_alpha : float
        GSGM's momentum.
    updates : int
        J of the paper.
    stage2_share : float
        Part of J after which the second stage begins (A3).
    levels : tuple
        By rising staleness; more than one where Algorithm 4 divides the data.
    skew_level : (int, int)
        The level at which label skew is varied.
    min_samples : int or None
        Devices are owners with so many samples (None: Algorithm 4).
    test_samples : int
        Test samples of a measurement at the smaller profiles, spread evenly (0: all).
    """

    model: str
    reduced: str
    batch_size: int
    wkafl: dict[str, float]
    lrs: dict[str, float]
    gsgm_alpha: float
    updates: int
    stage2_share: float
    levels: tuple[Level, ...]
    skew_level: Level
    min_samples: int | None = None
    test_samples: int = 0


def _parameters(lr: float, factor: float, bound: float, stage2: float, beta: float) -> dict[str, float]:
    return {
        "lr": lr,
        "lr_staleness_factor": factor,
        "clip_bound": bound,
        "stage2_clip_factor": stage2,
        "sim_beta": beta,
        "sim_min": 0.3,
        "momentum_alpha": 0.1,
    }


_DIGITS = Setup(
    "wkafl_cnn", "wkafl_cnn(width=0.25)", 4, _parameters(0.005, 0.1, 100, 10, 10),
    {"TWAFL": 0.0005, "SASGD": 0.005, "GSGM": 0.005}, 0.1, 5000, 0.2,
    ((1000, 10), (3000, 20), (3000, 10)), (3000, 10),
)  # fmt: skip
SETUPS = {
    "fashion-mnist": _DIGITS,
    "emnist-mnist": _DIGITS,
    "cifar10": Setup(
        "lenet5", "lenet5", 8, _parameters(0.0005, 0.01, 70, 5, 50),
        {"TWAFL": 0.0005, "SASGD": 0.0005, "GSGM": 0.0005}, 0.1, 10_000, 0.35,
        ((1000, 20), (3000, 20), (3000, 10)), (3000, 20),
    ),
    "emnist-byclass": Setup(
        "wkafl_cnn", "wkafl_cnn(width=0.25)", 16, _parameters(0.005, 0.1, 100, 10, 10),
        {"TWAFL": 0.001, "SASGD": 0.001, "GSGM": 0.001}, 0.9, 10_000, 0.5, ((3000, 20),), (3000, 20), 16,
        10_000,
    ),
    "celeba": Setup(
        "celeba_cnn", "celeba_cnn", 4, _parameters(0.0001, 0.05, 500, 5, 20),
        {"TWAFL": 0.0001, "SASGD": 0.00001, "GSGM": 1e-7}, 0.9, 5000, 0.2, ((2000, 15),), (2000, 15), 1,
        2_000,  # with a quarter of its ten filters no method left guessing in 1,000 updates
    ),
}  # fmt: skip
"""By data set, real or surrogate; Fashion-MNIST takes the place of EMNIST MNIST (E30)."""


@dataclass(frozen=True)
class Scale:
    """What a profile decides.

    Attributes
    ----------
    updates : int or None
        J; None: the paper's.
    shrink : int
        P is divided by this.
    evaluations : int
        Measurements of a run, evenly spaced.
    seeds : tuple of int
    zeno_updates : int
        Accepted gradients of Appendix A.
    snapshots : tuple of str
        Modes of staleness.
    """

    updates: int | None
    shrink: int
    evaluations: int
    seeds: tuple[int, ...]
    zeno_updates: int
    snapshots: tuple[Snapshot, ...] = ("copy", "aliased")


SCALES = {
    "smoke": Scale(30, 10, 10, (0,), 30),
    "laptop": Scale(1500, 1, 60, (0, 1, 2), 1500),
    "paper": Scale(None, 1, 100, (0, 1, 2), 1500),
}
SHORTER = {"laptop": Scale(1000, 1, 50, (0, 1, 2), 1500, ("copy",))}
"""Scales of the data sets beside the main one, which take hours: fewer updates, true staleness alone."""
MAIN = "fashion-mnist"


def scale_of(profile: str, dataset: str) -> Scale:
    """Return what `profile` decides on a data set."""
    return SCALES[profile] if dataset == MAIN else SHORTER.get(profile, SCALES[profile])


def setup_of(dataset: str) -> Setup:
    """Return the setup of a data set or of its surrogate.

    Raises
    ------
    SpecError
        If the experiment is not laid out for that data set.
    """
    name = dataset.removesuffix("-surrogate")
    if name not in SETUPS:
        raise unknown("data set of this experiment", dataset, SETUPS)
    return SETUPS[name]


def network(profile: str, dataset: str) -> str:
    """Return the network of a profile: the authors', a narrower one, or a linear model, which takes no time."""
    setup = setup_of(dataset)
    return {"paper": setup.model, "laptop": setup.reduced, "smoke": "linear"}[profile]
