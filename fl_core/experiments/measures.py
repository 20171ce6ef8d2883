"""What is read off runs before it is shown or judged: quantities by seed, first passages, mean curves, and print."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partialmethod, wraps
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
import pandas as pd
import scipy

from fl_core.datasets import num_classes, sizes
from fl_core.errors import SpecError
from fl_core.experiments.evidence import Censored, Effect, untrained
from fl_core.experiments.run import Result
from fl_core.experiments.study import Entry, Study

Measure = TypeVar("Measure", bound=Callable[..., Any])


def remembered(measure: Measure) -> Measure:
    """Return `measure` with a memory: of one result, and what else it is given, it is taken once.

    Finished results do not change, and many claims and figures read the same ones. The memory ends with the result.
    """

    @wraps(measure)
    def recall(*given: Any, **how: Any) -> Any:
        result = next((each for each in given if isinstance(each, Result)), None)
        if result is None:
            return measure(*given, **how)
        others = tuple(each.key if isinstance(each, Entry) else each for each in given if each is not result)
        kept = vars(result).setdefault("_measured", {})
        key = measure, others, tuple(how.items())
        if key not in kept:
            kept[key] = measure(*given, **how)
        return kept[key]

    return recall  # type: ignore[return-value]


class BySeed(dict[int, float]):
    """A quantity by seed; arithmetic pairs the seeds that both sides have, a number stands for every seed.

    `runs` are the hashes of those that it rests on, as far as it knows them.
    """

    def __init__(self, values: Mapping[int, float] | None = None, runs: Iterable[str] = ()) -> None:
        super().__init__(values or {})
        self.runs = frozenset(runs) | getattr(values, "runs", frozenset())

    @classmethod
    def of(cls, runs: Iterable[tuple[Entry, Result]], measure: Callable[[Entry, Result], float]) -> Self:
        """Return `measure` of each run, by its seed."""
        runs = list(runs)
        keys = [entry.key for entry, _ in runs]
        return cls({entry.labels["seed"]: measure(entry, result) for entry, result in runs}, keys)

    @classmethod
    def over(cls, quantities: Iterable[Mapping[int, float]], reduce: Callable[[list[float]], Any] = np.mean) -> Self:
        """Return `reduce` of several quantities, by seed, over those that have the seed."""
        found: dict[int, list[float]] = {}
        runs: set[str] = set()
        for quantity in quantities:
            runs |= getattr(quantity, "runs", set())
            for seed, value in quantity.items():
                found.setdefault(seed, []).append(value)
        return cls({seed: float(reduce(values)) for seed, values in sorted(found.items())}, runs)

    def _paired(self, combine: Callable[[float, float], float], other: Mapping[int, float] | float) -> BySeed:
        if isinstance(other, Mapping):
            shared = sorted(self.keys() & other.keys())
            runs = self.runs | getattr(other, "runs", frozenset())
            return BySeed({seed: combine(self[seed], other[seed]) for seed in shared}, runs)
        return BySeed({seed: combine(value, other) for seed, value in self.items()}, self.runs)

    __add__, __sub__ = partialmethod(_paired, operator.add), partialmethod(_paired, operator.sub)
    __mul__, __truediv__ = partialmethod(_paired, operator.mul), partialmethod(_paired, operator.truediv)

    @property
    def mean(self) -> float:
        """The mean over seeds; NaN without any."""
        return float(np.mean(list(self.values()))) if self else float("nan")


def best_elsewhere(found: Mapping[Any, BySeed], best: Callable[..., Any] = min) -> BySeed:
    """Return for each seed that all settings have its value under the one whose mean is the `best` on the others."""
    chosen, shared = dict[int, float](), sorted(set.intersection(*map(set, found.values()))) if found else []
    for seed in shared:
        means = {key: np.mean([each[s] for s in shared if s != seed] or each[seed]) for key, each in found.items()}
        chosen[seed] = found[best(means, key=means.__getitem__)][seed]
    return BySeed(chosen, BySeed.over(found.values()).runs)


class Passage(NamedTuple):
    """When a series first has a target; if it never has, `at` is its last window and a lower bound."""

    at: float
    reached: bool


Series = Sequence[float] | np.ndarray


def passage(
    at: Series, values: Series, target: float, *, falling: bool = False, width: int = 1, log: bool = False
) -> Passage:
    """Return when the running mean over `width` measurements crosses `target`, interpolated between measurements.

    With `log` times are averaged and interpolated as logarithms, as on a logarithmic grid. Windows are centred, and
    shrink towards the start (an initial model has no noise) but not towards the end, so that no single measurement
    decides: a run in which no full window has the target has not reached it.
    """
    if width < 1 or width % 2 == 0:
        raise SpecError(f"width = {width} must be odd and at least 1: a running mean is centred")
    times, series = np.asarray(at, dtype=float), np.asarray(values, dtype=float)
    half = np.minimum(np.arange(len(series) - width // 2), width // 2)
    windows = [slice(row - some, row + some + 1) for row, some in enumerate(half)]
    level = np.array([np.add.reduce(series[each]) / (each.stop - each.start) for each in windows])  # fast means
    beyond = np.flatnonzero(level <= target if falling else level >= target)
    if not len(beyond):
        return Passage(float(times[max(len(level) - 1, 0)]), False)
    row = int(beyond[0])
    if not row or np.isnan(level[row - 1]):
        return Passage(float(times[row]), True)
    share = (target - level[row - 1]) / (level[row] - level[row - 1])
    before, after = times[windows[row - 1]], times[windows[row]]
    if log and before.min() > 0:
        logs = np.log(before).mean(), np.log(after).mean()
        return Passage(float(np.exp(logs[0] + share * (logs[1] - logs[0]))), True)
    return Passage(float(before.mean() + share * (after.mean() - before.mean())), True)


def passages(
    runs: Iterable[tuple[Entry, Result]], read: Callable[[Result], tuple[Series, Series]], target: float, **how: Any
) -> Censored:
    """Return the :func:`passage` of each run by seed, "at least" the run's end where it does not reach the target."""
    runs = list(runs)
    found = {entry.labels["seed"]: _passage(result, read, target, **how) for entry, result in runs}
    late = [seed for seed, each in found.items() if not each.reached]
    return Censored({seed: each.at for seed, each in found.items()}, late, [entry.key for entry, _ in runs])


@remembered
def _passage(result: Result, read: Callable[[Result], tuple[Series, Series]], target: float, **how: Any) -> Passage:
    return passage(*read(result), target, **how)


@remembered
def final_accuracy(result: Result) -> float:
    """Return the mean test accuracy of the last tenth of the evaluations."""
    values = result.history.evaluations["test_accuracy"]
    return float(np.mean(values[-ceil(len(values) / 10) :]))


def guessing(study: Study, part: Effect) -> list[str]:
    """Return the methods that are not trained, with the seeds that judge a part, in a setting that its runs have."""
    seeds = part.seeds[: part.look or None]
    entries = {entry.key: entry for entry in reversed(study.entries) if entry.labels.get("seed") in seeds}
    cells: dict[str, tuple[str, dict[int, float], Result]] = {}
    for key in sorted(entries.keys() & study.results.keys() & part.runs):
        rest, result = dict(entries[key].labels), study.results[key]
        seed = rest.pop("seed")
        cells.setdefault(repr(rest), (str(rest.get("method", "it")), {}, result))[1][seed] = final_accuracy(result)
    return sorted({method for method, ends, result in cells.values()
                   if untrained(ends, num_classes(result.spec.dataset),
                                result.spec.evaluation.test_samples or sizes(result.spec.dataset)[1])})  # fmt: skip


def unevenness(values: Series, *, falling: bool = False) -> float:
    """Return the standard deviation of a series about its best monotone fit, so without its trend."""
    series = np.asarray(values, dtype=float)
    return float(np.std(series - scipy.optimize.isotonic_regression(series, increasing=not falling).x))


def mean_curve(points: pd.DataFrame, x: str, metrics: Sequence[str]) -> pd.DataFrame:
    """Return mean, standard deviation (``…_std``) and number ``n`` of the runs at each `x`, which is column ``x``."""
    grouped = points.groupby(x)[list(metrics)]
    table = grouped.mean().join(grouped.std().add_suffix("_std")).join(grouped.size().rename("n"))
    return table.rename_axis("x").reset_index()


def exact_curve(method: str, x: Any, column: str, values: Any, **parameter: float) -> pd.DataFrame:
    """Return a curve without deviation, as :func:`fl_core.report.figures.plot_curves` reads it."""
    return pd.DataFrame({"method": method, **parameter, "x": x, column: values, f"{column}_std": np.nan, "n": 1})


def t_interval(values: Sequence[float] | np.ndarray) -> tuple[float, float, float]:
    """Return mean and ends of the 95 % t interval of `values` ``[n]``; NaN as ends for one value."""
    found = np.asarray(values, dtype=float)
    if len(found) < 2:
        return float(found.mean()), float("nan"), float("nan")
    low, high = scipy.stats.t.interval(0.95, len(found) - 1, found.mean(), scipy.stats.sem(found))
    return float(found.mean()), float(low), float(high)


def mean_text(values: Sequence[float], digits: int = 3) -> str:
    """Return ``"0.712 ± 0.004"``: mean and standard deviation, the latter for two values and more."""
    mean = f"{np.mean(values):.{digits}f}"
    return f"{mean} ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else mean


class Printed:
    """The numbers that a paper prints: ``printed.csv`` beside the module with this ``__file__``.

    Its column ``value`` has them, the others say what a number is.
    """

    def __init__(self, module: str) -> None:
        self.file = Path(module).with_name("printed.csv")
        self._numbers: dict[frozenset[tuple[str, Any]], float | None] = {}

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
        key = frozenset(labels.items())
        if key not in self._numbers:
            found = self.rows(**labels)["value"]
            self._numbers[key] = float(found.iloc[0]) if len(found) else None
        return self._numbers[key]
