"""What is read off runs before it is shown or judged: quantities by seed, first passages, mean curves, and print."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd

from fl_core.experiments.run import Result
from fl_core.experiments.study import Entry


class BySeed(dict[int, float]):
    """A quantity by seed; arithmetic pairs the seeds that both sides have, a number stands for every seed."""

    @classmethod
    def of(cls, runs: Iterable[tuple[Entry, Result]], measure: Callable[[Entry, Result], float]) -> Self:
        """Return `measure` of each run, by its seed."""
        return cls({entry.labels["seed"]: measure(entry, result) for entry, result in runs})

    @classmethod
    def over(cls, quantities: Iterable[Mapping[int, float]], reduce: Callable[[list[float]], Any] = np.mean) -> Self:
        """Return `reduce` of several quantities, by seed, over those that have the seed."""
        found: dict[int, list[float]] = {}
        for quantity in quantities:
            for seed, value in quantity.items():
                found.setdefault(seed, []).append(value)
        return cls({seed: float(reduce(values)) for seed, values in sorted(found.items())})

    def _paired(self, other: Mapping[int, float] | float, combine: Callable[[float, float], float]) -> BySeed:
        if isinstance(other, Mapping):
            return BySeed({seed: combine(self[seed], other[seed]) for seed in sorted(self.keys() & other.keys())})
        return BySeed({seed: combine(value, other) for seed, value in self.items()})

    def __add__(self, other: Mapping[int, float] | float) -> BySeed:
        return self._paired(other, operator.add)

    def __sub__(self, other: Mapping[int, float] | float) -> BySeed:
        return self._paired(other, operator.sub)

    def __mul__(self, other: Mapping[int, float] | float) -> BySeed:
        return self._paired(other, operator.mul)

    def __truediv__(self, other: Mapping[int, float] | float) -> BySeed:
        return self._paired(other, operator.truediv)

    @property
    def mean(self) -> float:
        """The mean over seeds; NaN without any."""
        return float(np.mean(list(self.values()))) if self else float("nan")


class Passage(NamedTuple):
    """When a series first has a target; if it never has, `at` is its end and a lower bound."""

    at: float
    reached: bool
    row: int
    """Of the measurement; the last one if the target is not reached."""


def first_passage(
    at: Sequence[float] | np.ndarray, values: Sequence[float] | np.ndarray, target: float, *, falling: bool = False
) -> Passage:
    """Return the first measurement that is at least `target`, or with `falling` at most; nothing is interpolated."""
    series = np.asarray(values, dtype=float)
    rows = np.flatnonzero(series <= target if falling else series >= target)
    row = int(rows[0]) if len(rows) else len(series) - 1
    return Passage(float(at[row]), bool(len(rows)), row)


def mean_curve(points: pd.DataFrame, x: str, metrics: Sequence[str]) -> pd.DataFrame:
    """Return mean (under its own name), standard deviation (``…_std``) and number ``n`` of the runs at each `x`."""
    grouped = points.groupby(x)[list(metrics)]
    return grouped.mean().join(grouped.std().add_suffix("_std")).join(grouped.size().rename("n")).reset_index()


def mean_text(values: Sequence[float], digits: int = 3) -> str:
    """Return ``"0.712 ± 0.004"``: mean and standard deviation, the latter for two values and more."""
    mean = f"{np.mean(values):.{digits}f}"
    return f"{mean} ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else mean


class Printed:
    """The numbers that a paper prints: a CSV file with a column ``value`` and columns that say what it is.

    Parameters
    ----------
    folder_of : str
        ``__file__`` of the paper's module; the file lies beside it.
    """

    def __init__(self, folder_of: str, name: str = "printed.csv") -> None:
        self.file = Path(folder_of).with_name(name)

    @cached_property
    def frame(self) -> pd.DataFrame:
        """All of them; text columns are empty where they do not apply."""
        frame = pd.read_csv(self.file)
        text = frame.select_dtypes(exclude="number").columns
        return frame.assign(**frame[text].fillna(""))

    def rows(self, **labels: Any) -> pd.DataFrame:
        """Return the rows with these labels; None or an empty text stands for an empty field."""
        frame = self.frame
        for column, wanted in labels.items():
            own = frame[column]
            if wanted is None or wanted == "":
                frame = frame[own.isna() | (own == "")]
            elif isinstance(wanted, float):
                frame = frame[own.sub(wanted).abs() < 1e-9]
            else:
                frame = frame[own == wanted]
        return frame

    def number(self, **labels: Any) -> float | None:
        """Return the first number with these labels, or None: it is not printed."""
        found = self.rows(**labels)["value"]
        return float(found.iloc[0]) if len(found) else None
