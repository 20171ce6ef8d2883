"""What WKAFL's runs are measured by (specification, section 2.8), and the cells of its tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from fl_core.experiments.run import Result
from fl_core.experiments.study import Study
from fl_papers.wkafl.theory import (
    stability,
)

LAST = 10
"""Evaluations at the end that a final accuracy is the mean of (A19), and whose spread is the stability (A9)."""
EARLY = 0.2
"""Part of the evaluations that training speed is measured on."""

Values = dict[int, float]
Cell = dict[str, Any]


def measurements(result: Result) -> pd.DataFrame:
    """Return the evaluations, one for each version; of two of the last one, that on the usual test samples."""
    return pd.DataFrame(result.history.evaluations).drop_duplicates("version")


def accuracies(result: Result) -> list[float]:
    """Return the measured accuracies, without that of the initial model."""
    return measurements(result)["test_accuracy"].tolist()[1:]


def final(result: Result) -> float:
    """Return the final accuracy: the mean of the last ten (A19)."""
    return float(np.mean(accuracies(result)[-LAST:]))


def early(result: Result) -> float:
    """Return the mean accuracy over the first fifth of the evaluations: the speed of training (2.8)."""
    values = accuracies(result)
    return float(np.mean(values[: max(1, round(EARLY * len(values)))]))


def unrest(result: Result) -> float:
    """Return the stability, which is large where training is not stable (2.8); NaN for fewer than ten evaluations."""
    values = accuracies(result)[-LAST:]
    if len(set(values)) == 1 and len(values) == LAST:
        return 0.0  # not the rounding error of a mean
    return stability(values, LAST) if len(values) == LAST and min(values) > 0 else float("nan")


def reached(result: Result, target: float) -> float:
    """Return the first measured version with at least accuracy `target`; the last one if there is none."""
    table = result.history.evaluations
    pairs = zip(table["version"], table["test_accuracy"], strict=True)
    return float(next((version for version, accuracy in pairs if accuracy >= target), table["version"][-1]))


def measured(study: Study, measure: Callable[[Result], float], method: str, cell: Cell) -> Values:
    """Return `measure` by seed of the runs of `method` in `cell`, at the authors' learning rates."""
    found = study.select(method=method, lr_factor=1.0, **cell)
    return {entry.labels["seed"]: measure(result) for entry, result in found}


def levels(study: Study, snapshot: str) -> list[Cell]:
    """Return the cells of Table 2 that `study` has, by rising staleness: those with the fewest labels per device."""
    found = _cells(study, snapshot)
    fewest = min((cell["labels"] or 0 for cell in found), default=0)
    return sorted((c for c in found if (c["labels"] or 0) == fewest), key=lambda c: c["clients"] / c["aggregated"])


def skews(study: Study, snapshot: str) -> list[Cell]:
    """Return the cells of Table 3, where GSGM is run, by rising number of labels per device."""
    return sorted(_cells(study, snapshot, "GSGM"), key=lambda cell: cell["labels"] or 0)


def _cells(study: Study, snapshot: str, method: str = "WKAFL") -> list[Cell]:
    runs = study.select(method=method, role="curve", snapshot=snapshot)
    cells = {tuple(e.labels[n] for n in ("clients", "aggregated", "labels")) for e, _ in runs}
    return [
        {"clients": c, "aggregated": k, "labels": n, "snapshot": snapshot, "role": "curve"}
        for c, k, n in sorted(cells, key=str)
    ]


def gap_of(study: Study, cell: Cell, method: str, other: str, measure: Callable[[Result], float] = final) -> Values:
    """Return by seed how much larger `measure` is for `method` than for `other`."""
    left, right = (measured(study, measure, each, cell) for each in (method, other))
    return {seed: left[seed] - right[seed] for seed in left.keys() & right.keys()}


def name_of(cell: Cell) -> str:
    """Return a cell in words."""
    if cell["role"] == "byzantine":
        return f"{cell['byzantine']:.0%} Byzantine uploads" if cell["byzantine"] else "no Byzantine uploads"
    level = f"P/K = {cell['clients'] / cell['aggregated']:g}"
    return level if cell["labels"] is None else f"{level}, {cell['labels']} label{'s' if cell['labels'] > 1 else ''}"
