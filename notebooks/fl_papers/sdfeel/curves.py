"""What SD-FEEL's figures and claims read off the runs: loss and accuracy over virtual time, and times to a loss.

What is measured is the data-weighted mean of the servers' models (A-12). Between two measurements a run is at the
earlier one: nothing is interpolated.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fl_core.experiments.run import Result
from fl_core.experiments.study import Entry, Study
from fl_papers.sdfeel.clock import run_clock
from fl_papers.sdfeel.grid import ASYNC, CLOUD, SYNC, VARIANTS

METRICS = ("train_loss", "test_accuracy")
SLACK = 1e-9
"""Part of the horizon by which rounding may move a time."""
PARTS = (0.1, 0.25, 0.5, 1.0)
"""Of the horizon, at which the table of numbers reads the curves."""
LAST = 5
"""Measurements at the end of a run that show how steady it is."""
KILO = 1000.0

Run = tuple[Entry, Result]


def runs(study: Study, method: str, gap: float, role: str = "curve") -> dict[int, Run]:
    """Return the runs of a curve by seed."""
    found = study.select(method=method, gap=gap, role=role)
    return {entry.labels["seed"]: (entry, result) for entry, result in found}


def gaps(study: Study, method: str = ASYNC, role: str = "curve") -> list[float]:
    """Return the gaps H that `study` has finished runs of, ascending."""
    return sorted({entry.labels["gap"] for entry, _ in study.select(method=method, role=role)})


def horizon(entry: Entry) -> float:
    """Return the virtual seconds of a run."""
    seconds = entry.spec.budget.seconds
    assert seconds is not None
    return seconds


def value_at(run: Run, metric: str, part: float) -> float:
    """Return the last measurement up to a part of the horizon."""
    entry, result = run
    times = np.array(result.history.evaluations["seconds"])
    last = np.flatnonzero(times <= horizon(entry) * (part + SLACK))[-1]
    return float(result.history.evaluations[metric][last])


def value_near(run: Run, metric: str, seconds: float) -> float:
    """Return the measurement nearest to a virtual time."""
    times = np.array(run[1].history.evaluations["seconds"])
    return float(run[1].history.evaluations[metric][int(np.argmin(abs(times - seconds)))])


def time_to(run: Run, loss: float) -> float:
    """Return the virtual time of the first measurement with at most that training loss; infinity if there is none."""
    table = run[1].history.evaluations
    pairs = zip(table["seconds"], table["train_loss"], strict=True)
    return next((seconds for seconds, found in pairs if found <= loss), float("inf"))


def curves(
    study: Study, choice: Iterable[dict[str, Any]], parameter: str = "gap", last: float | None = None
) -> pd.DataFrame:
    """Return mean, standard deviation and number over seeds of the curves with the labels of `choice`.

    Parameters
    ----------
    study : Study
    choice : iterable of dict
        Labels that select a curve's runs; ``name``, if there, is what the curve is called instead of its method.
    parameter : str, optional
        Label that tells the curves of one method apart.
    last : float, optional
        Part of the horizon that is shown.

    Returns
    -------
    DataFrame
        ``method``, the parameter, ``x`` (thousands of virtual seconds), ``n``, and for both metrics the mean under
        its own name and ``..._std``.
    """
    found = []
    for labels in choice:
        name = labels.get("name", labels["method"])
        chosen = study.select(**{key: value for key, value in labels.items() if key != "name"})
        if not chosen:
            continue
        points = pd.concat([result.history.evaluation_frame() for _, result in chosen])
        if last is not None:
            points = points[points["seconds"] <= horizon(chosen[0][0]) * (last + SLACK)]
        grouped = points.groupby("seconds")[list(METRICS)]
        table = grouped.mean().join(grouped.std().add_suffix("_std")).join(grouped.size().rename("n"))
        table = table.rename_axis("x").reset_index()
        found.append(table.assign(x=table["x"] / KILO, method=name, **{parameter: chosen[0][0].labels[parameter]}))
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame()


def figure2(study: Study) -> pd.DataFrame:
    """Return the six curves of Figure 2."""
    return curves(study, _pairs(study, (ASYNC, SYNC)))


def reference(study: Study) -> pd.DataFrame:
    """Return synchronous SD-FEEL beside hierarchical FedAvg."""
    beside = ({"method": CLOUD, "gap": gap, "role": "reference"} for gap in gaps(study, CLOUD, "reference"))
    return curves(study, [*_pairs(study, (SYNC,)), *beside])


def variants(study: Study) -> pd.DataFrame:
    """Return asynchronous SD-FEEL and its variants at the gap that they have been run at."""
    names = [f"{ASYNC}, {name}" for name in VARIANTS]
    found = {gap for name in names for gap in gaps(study, name, "variant")}
    main = [{"method": ASYNC, "gap": gap, "role": "curve"} for gap in sorted(found)]
    beside = ({"method": name, "role": "variant", "name": name.replace("_", "-")} for name in names)
    return curves(study, [*main, *beside])


def non_iid(study: Study) -> pd.DataFrame:
    """Return both methods with more and with fewer classes on each device, at one gap."""
    middle = gaps(study, role="non-IID")[:1]
    both = [(method, gap, role) for gap in middle for method in (ASYNC, SYNC) for role in ("curve", "non-IID")]
    return curves(study, [{"method": m, "gap": gap, "role": role} for m, gap, role in both], parameter="alpha")


def long_runs(study: Study) -> pd.DataFrame:
    """Return both methods with the linear model, on the long horizon."""
    return curves(study, [{"method": method, "role": "long"} for method in (ASYNC, SYNC)])


def numbers(study: Study) -> pd.DataFrame:
    """Return loss and accuracy of the curves of Figure 2 at parts of the horizon, mean and deviation as text."""
    rows = []
    for method in (ASYNC, SYNC):
        for gap in gaps(study, method):
            found = list(runs(study, method, gap).values())
            row: dict[str, Any] = {"method": method, "H": f"{gap:g}"}
            for metric, words in (("train_loss", "loss"), ("test_accuracy", "accuracy")):
                for part in PARTS:
                    row[f"{words} at {100 * part:.0f} %"] = _spread([value_at(run, metric, part) for run in found])
            rows.append({**row, "seeds": len(found)})
    return pd.DataFrame(rows)


def by_seed(study: Study) -> pd.DataFrame:
    """Return what each draw of speeds makes of an asynchronous run, and how steady its accuracy is in the end."""
    rows = []
    for gap in gaps(study):
        for seed, (entry, result) in runs(study, ASYNC, gap).items():
            clock, updates = run_clock(entry.spec), result.history.updates
            last = result.history.evaluations["test_accuracy"][-LAST:]
            mean = np.mean(updates["steps"]) if updates["steps"] else 0.0
            rows.append(
                {
                    "H": f"{gap:g}",
                    "seed": seed,
                    "iterations of all clusters": updates["version"][-1] if updates["version"] else 0,
                    "an iteration (s)": f"{min(clock.periods):,.0f} to {max(clock.periods):,.0f}",
                    "steps of an upload": f"{mean:.0f}, at most {clock.local_steps.max()}",
                    "largest staleness": max(updates["staleness"], default=0),
                    f"accuracy, last {LAST}": f"{min(last):.3f} to {max(last):.3f}",
                }
            )
    return pd.DataFrame(rows)


def _pairs(study: Study, methods: Sequence[str]) -> list[dict[str, Any]]:
    return [{"method": m, "gap": gap, "role": "curve"} for m in methods for gap in gaps(study, m)]


def _spread(values: list[float]) -> str:
    mean = f"{np.mean(values):.3f}"
    return f"{mean} ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else mean
