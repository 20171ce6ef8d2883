"""What FedASMU's tables and claims compare: final accuracies, and times to an accuracy, of two methods by seed.

A run is found by its labels: method, column of the tables, and what is varied, if it is not the standard setting. A
method that does not get to a target counts with the end of its run, which can only favour it; a pair of which too
little is known is left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from fl_core.experiments.study import Study
from fl_papers.fedasmu.columns import COLUMNS
from fl_papers.fedasmu.curves import final_accuracy, readings, target_of, time_to

Values = dict[int, float]


class Setting(NamedTuple):
    """Where runs stand: a column of Tables 1 and 2, and the quantity that is varied, with its value."""

    column: str
    varied: str | None = None
    value: Any = None

    def __str__(self) -> str:
        own = COLUMNS[self.column]
        name = f"{own.model}, {own.data}"
        return name if self.varied is None else f"{name}, {self.varied} {self.value:g}"


class Time(NamedTuple):
    """When a run reaches a target; if it does not, `seconds` is the time of its last reading."""

    seconds: float
    reached: bool


def settings(study: Study, method: str = "FedASMU", varied: str | None = None) -> list[Setting]:
    """Return the settings in which the grid of `study` has `method`, in its order."""
    labels = [entry.labels for entry in study.entries]
    found = [x for x in labels if x["method"] == method and x["varied"] == varied]
    return list(dict.fromkeys(Setting(x["column"], varied, x["value"]) for x in found))


def final(study: Study, method: str, at: Setting) -> Values:
    """Return the final accuracies (A18) by seed."""
    runs = study.select(method=method, **at._asdict())
    return {entry.labels["seed"]: final_accuracy(result) for entry, result in runs}


def reached(study: Study, method: str, at: Setting, target: float | None = None) -> dict[int, Time]:
    """Return when `method` gets to a target accuracy (A19), by seed; without one given, to the column's."""
    found = {}
    for entry, result in study.select(method=method, **at._asdict()):
        seconds = time_to(result, target_of(study.profile, at.column) if target is None else target)
        end = float(readings(result)[0][-1])
        found[entry.labels["seed"]] = Time(min(seconds, end), bool(np.isfinite(seconds)))
    return found


def gaps(study: Study, method: str, other: str, at: Setting) -> Values:
    """Return by how much `method` is more accurate than `other`, by seed."""
    return difference(final(study, method, at), final(study, other, at))


def times(study: Study, method: str, other: str, at: Setting, target: float | None = None) -> tuple[Values, Values]:
    """Return the times of two methods by seed, where at least one is known and the other cannot be shorter."""
    ours, theirs = (reached(study, one, at, target) for one in (method, other))
    found: tuple[Values, Values] = ({}, {})
    for seed in ours.keys() & theirs.keys():
        a, b = ours[seed], theirs[seed]
        known = (a.reached and b.reached) or (a.reached and a.seconds <= b.seconds)
        known |= b.reached and b.seconds <= a.seconds
        if known:
            found[0][seed], found[1][seed] = a.seconds, b.seconds
    return found


def savings(study: Study, method: str, other: str, at: Setting, target: float | None = None) -> Values:
    """Return the part of `other`'s time that `method` saves, by seed; negative where it needs more."""
    ours, theirs = times(study, method, other, at, target)
    return {seed: 1 - ours[seed] / theirs[seed] for seed in ours if theirs[seed]}


def traffic(study: Study, method: str, at: Setting) -> tuple[Values, Values]:
    """Return the bytes that are sent up and down per upload received, by seed."""
    found: tuple[Values, Values] = ({}, {})
    for entry, result in study.select(method=method, **at._asdict()):
        table = result.history.evaluations
        if uploads := table["models_received"][-1]:
            for side, direction in zip(found, ("bytes_up", "bytes_down"), strict=True):
                side[entry.labels["seed"]] = table[direction][-1] / uploads
    return found


def difference(left: Values, right: Values) -> Values:
    """Return left - right of the seeds that both have."""
    return {seed: left[seed] - right[seed] for seed in sorted(left.keys() & right.keys())}


def over_seeds(values: Iterable[Values], reduce: Any = np.mean) -> Values:
    """Return `reduce` of several quantities, by seed, over those that have the seed."""
    by_seed: dict[int, list[float]] = {}
    for one in values:
        for seed, value in one.items():
            by_seed.setdefault(seed, []).append(value)
    return {seed: float(reduce(found)) for seed, found in sorted(by_seed.items())}


def mean(values: Values) -> float:
    """Return the mean over seeds; NaN without any."""
    return float(np.mean(list(values.values()))) if values else float("nan")
