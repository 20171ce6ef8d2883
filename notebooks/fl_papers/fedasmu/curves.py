"""What FedASMU's figures and claims measure on a run: accuracy, time to a target, and curves over virtual time.

A run is read at its periodic evaluations. Where these use a part of the test images, the evaluation of the end, which
uses all, is left out: the two differ by more than methods do.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, inf

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fl_core.experiments.run import Result
from fl_core.experiments.study import Study
from fl_papers.fedasmu.columns import COLUMNS
from fl_papers.fedasmu.grid import CONDITION_TARGET, CONDITIONS
from fl_papers.fedasmu.scales import SCALES

Array = NDArray[np.float64]

POINTS = 60
"""Of a curve."""
STANDARD = {"bandwidth": 1.0, "heterogeneity": 5.0, "devices": 100.0}
"""What Figure 7 varies, in the standard runs."""


def readings(result: Result) -> tuple[Array, Array]:
    """Return seconds and test accuracy ``[n]`` of the periodic evaluations, first the initial model."""
    table = result.history.evaluations
    seconds, accuracy = (np.array(table[name], dtype=float) for name in ("seconds", "test_accuracy"))
    count = len(seconds)
    if count > 2 and (result.spec.evaluation.test_samples or table["version"][-1] == table["version"][-2]):
        count -= 1
    return seconds[:count], accuracy[:count]


def final_accuracy(result: Result, until: float = inf) -> float:
    """Return the mean test accuracy of the last tenth of the evaluations (A18), or of those up to a virtual time."""
    seconds, accuracy = readings(result)
    accuracy = accuracy[seconds <= until]
    return float(accuracy[-ceil(len(accuracy) / 10) :].mean())


def time_to(result: Result, target: float) -> float:
    """Return the virtual seconds of the first evaluation with at least the accuracy `target` (A19); else infinity."""
    seconds, accuracy = readings(result)
    at = np.flatnonzero(accuracy >= target)
    return float(seconds[at[0]]) if len(at) else inf


def target_of(profile: str, column: str) -> float:
    """Return the accuracy whose time a column gives in a profile; Figure 7 has one of its own."""
    own = COLUMNS[column]
    return own.target if SCALES[profile].whole or own.small_target is None else own.small_target


def accuracy_curves(study: Study, methods: Sequence[str]) -> pd.DataFrame:
    """Return mean and standard deviation over seeds of each method's accuracy, up to the end of its shortest run.

    Returns
    -------
    DataFrame
        ``column``, ``title``, ``target``, ``missing`` (methods without a run, in words), ``method``, ``x`` (virtual
        seconds), ``test_accuracy``, ``test_accuracy_std``, ``n``. A column without a single run has one row, which
        has no method.
    """
    rows = []
    for column in dict.fromkeys(entry.labels["column"] for entry in study.entries):
        found = {m: study.select(method=m, column=column, varied=None) for m in methods}
        runs = [result for pairs in found.values() for _, result in pairs]
        kind = runs[0].provenance["data"] if runs else "no runs"
        chosen = COLUMNS[column]
        told = {
            "column": column,
            "title": f"{chosen.model}, {chosen.data} ({kind})",
            "target": target_of(study.profile, column),
            "missing": ", ".join(method for method, pairs in found.items() if not pairs),
        }
        rows += [pd.DataFrame([told | {"method": None}])] * (not runs)
        rows += [_curve([r for _, r in pairs]).assign(method=m, **told) for m, pairs in found.items() if pairs]
    frame = pd.concat(rows, ignore_index=True) if rows else pd.DataFrame()
    return frame if len(frame) and frame["method"].notna().any() else pd.DataFrame()


def condition_points(study: Study) -> pd.DataFrame:
    """Return accuracy and time to 60 % over what Figure 7 varies.

    Returns
    -------
    DataFrame
        ``varied``, ``value``, ``method``, ``accuracy``, ``seconds`` (infinite if a seed does not get there), ``n``;
        a missing run has none of the last three.
    """
    rows = []
    for varied in CONDITIONS:
        labels = [entry.labels for entry in study.entries if entry.labels["varied"] == varied]
        for method in dict.fromkeys(entry.labels["method"] for entry in study.entries) if labels else ():
            for value in sorted({STANDARD[varied], *(label["value"] for label in labels)}):
                chosen = {"varied": varied, "value": value} if value != STANDARD[varied] else {"varied": None}
                found = [result for _, result in study.select(method=method, **chosen)]
                row = {"varied": varied, "value": value, "method": method}
                if found:
                    row["accuracy"] = float(np.mean([final_accuracy(result) for result in found]))
                    row["seconds"] = float(np.mean([time_to(result, CONDITION_TARGET) for result in found]))
                    row["n"] = len(found)
                rows.append(row)
    frame = pd.DataFrame(rows)
    return frame if "accuracy" in frame else pd.DataFrame()


def _curve(results: Sequence[Result]) -> pd.DataFrame:
    """Return the mean curve of a method's runs; between two evaluations a run has the accuracy of the earlier one."""
    read = [readings(result) for result in results]
    x = np.linspace(0.0, min(seconds[-1] for seconds, _ in read), POINTS)
    values = np.array([accuracy[np.searchsorted(seconds, x, side="right") - 1] for seconds, accuracy in read])
    spread = values.std(axis=0, ddof=1) if len(values) > 1 else np.full(len(x), np.nan)
    return pd.DataFrame({"x": x, "test_accuracy": values.mean(0), "test_accuracy_std": spread, "n": len(values)})
