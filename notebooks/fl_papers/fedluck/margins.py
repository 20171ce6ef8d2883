"""FedLuck against the other methods, paired by seed, with a 95 % bootstrap interval over seeds.

A target that a baseline does not reach counts with the length of its run, which can only favour the baseline; a pair
of which too little is known is left out.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fl_core.experiments.claims import CONFIDENCE, Comparison
from fl_core.experiments.study import Study
from fl_papers.fedluck.curves import Reached, compared, final_accuracy, reach
from fl_papers.fedluck.grid import BASELINES
from fl_papers.fedluck.scales import Target, targets

EXACT_UP_TO = 5
"""Seeds up to which all resamples are enumerated; of more, 20,000 are drawn."""


@dataclass(frozen=True)
class Bootstrapped(Comparison):
    """A comparison whose interval is the bootstrap's, over the seeds' paired margins."""

    @property
    def interval(self) -> tuple[float, float]:
        """The percentile interval of the mean margin, shifted and scaled to the ratio as in the base class."""
        left, right = self._pairs()
        if len(left) < 2 or not right.mean():
            return float("nan"), float("nan")
        low, high = bootstrap(left - self.bound * right)
        return self.bound + low / float(right.mean()), self.bound + high / float(right.mean())


def bootstrap(values: np.ndarray) -> tuple[float, float]:
    """Return the 95 % percentile interval of the mean of `values` ``[n]`` under resampling with replacement."""
    n = len(values)
    if n <= EXACT_UP_TO:
        rows = np.array(list(itertools.product(range(n), repeat=n)))
    else:
        rows = np.random.default_rng(0).integers(n, size=(20_000, n))
    means, tail = values[rows].mean(axis=1), (1 - CONFIDENCE) / 2
    return float(np.quantile(means, tail, method="lower")), float(np.quantile(means, 1 - tail, method="higher"))


def interval_text(values: np.ndarray) -> str | None:
    """Return the mean of `values` ``[n]`` with its interval, as text; None without values."""
    if not len(values):
        return None
    if len(values) == 1:
        return f"{values[0]:z.2f}"
    low, high = bootstrap(values)
    return f"{values.mean():z.2f} [{low:z.2f}, {high:z.2f}]"


def reached(study: Study, method: str, partition: str, target: float) -> dict[int, Reached]:
    """Return by seed when a method first has an accuracy."""
    return {seed: reach(*run, target) for seed, run in compared(study, method, partition).items()}


def pairs(
    study: Study, left: str, right: str, partition: str, target: float, what: str
) -> tuple[dict[int, float], dict[int, float]]:
    """Return `what` ("seconds" or "gigabytes") that two methods need to a target, by seed, where it can be compared.

    A method that does not reach it counts with the end of its run, unless the other one may have needed more.
    """
    ours, theirs = (reached(study, method, partition, target) for method in (left, right))
    found: tuple[dict[int, float], dict[int, float]] = ({}, {})
    for seed in ours.keys() & theirs.keys():
        a, b = ours[seed], theirs[seed]
        known = (a.reached or b.reached) and (a.reached or getattr(b, what) <= getattr(a, what))
        known &= b.reached or getattr(a, what) <= getattr(b, what)
        if known:
            found[0][seed], found[1][seed] = getattr(a, what), getattr(b, what)
    return found


def reductions(study: Study, partition: str, what: str) -> pd.DataFrame:
    """Return 1 - FedLuck / baseline by target, baseline and seed: the part that FedLuck saves of `what`."""
    rows = []
    for target in sought(study, partition):
        for method in BASELINES:
            ours, theirs = pairs(study, "FedLuck", method, partition, target.here, what)
            rows += [(target, method, seed, 1 - ours[seed] / theirs[seed]) for seed in ours if theirs[seed]]
    return pd.DataFrame(rows, columns=["target", "method", "seed", "saved"])


def sought(study: Study, partition: str) -> list[Target]:
    """Return the targets of a study, as the paper has them and as they are looked for in its runs."""
    return targets(study.profile, study.dataset, partition)


def final(study: Study, method: str, partition: str = "iid") -> dict[int, float]:
    """Return a method's accuracy at the horizon by seed."""
    return {seed: final_accuracy(study, *run) for seed, run in compared(study, method, partition).items()}


def mean(values: Mapping[int, float]) -> float:
    """Return the mean over seeds."""
    return float(np.mean(list(values.values())))
