"""What FedAsync's figures and claims measure on the runs: curves, areas under them, oscillation."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fl_core.algorithms import FedAsync
from fl_core.experiments.run import Result
from fl_core.experiments.study import Entry, Study

METRICS = ("test_accuracy", "train_loss")
AXES = {"gradients": "gradients", "epochs": "version", "communications": "communications"}
"""Abscissa of a figure and the column that counts it."""
COUNTERS = ("version", "gradients", "communications")
TUNED = ("SGD", "FedAvg")
"""Methods whose learning rate is chosen from a grid."""


def chosen_lr(study: Study, method: str) -> float | None:
    """Return the learning rate with the best final test accuracy, averaged over seeds; None without runs.

    This selects on test data, as the paper does, and so favours the tuned methods slightly.
    """
    runs = study.select(method=method, part="whole")
    final: dict[float, list[float]] = {}
    for entry, result in runs:
        final.setdefault(entry.labels["lr"], []).append(result.history.evaluations["test_accuracy"][-1])
    return max(sorted(final), key=lambda lr: np.nan_to_num(np.mean(final[lr]), nan=-1.0)) if final else None


def runs_by_seed(study: Study, method: str, **labels: object) -> dict[int, list[tuple[Entry, Result]]]:
    """Return the runs of one curve by seed; a tuned method's, unless `lr` is given, with the chosen learning rate."""
    if method in TUNED and "lr" not in labels:
        labels["lr"] = chosen_lr(study, method)
    runs: dict[int, list[tuple[Entry, Result]]] = {}
    for entry, result in study.select(method=method, **labels):
        if entry.labels["role"] in ("curve", "claim"):
            runs.setdefault(entry.labels["seed"], []).append((entry, result))
    return runs


def seed_curve(runs: list[tuple[Entry, Result]]) -> pd.DataFrame:
    """Return the evaluations of the runs of one seed as one curve: equal versions are equal models."""
    frames = [result.history.evaluation_frame() for _, result in runs]
    joined = pd.concat(frames, ignore_index=True)
    return joined.drop_duplicates("version").sort_values("version", ignore_index=True)


def budget(study: Study, axis: str) -> float:
    """Return where FedAsync ends on `axis`: all curves are compared up to there."""
    found = [r for entry, r in study.select(role="curve") if entry.labels["method"].startswith("FedAsync")]
    longest = max(found, key=lambda result: result.history.evaluations["version"][-1], default=None)
    return float(longest.history.evaluation_frame()[AXES[axis]].iloc[-1]) if longest else 0.0


def curves(study: Study, axis: str, staleness: int, methods: tuple[str, ...]) -> pd.DataFrame:
    """Return mean, standard deviation and number over seeds of every curve of one figure.

    Parameters
    ----------
    study : Study
    axis : str
        A key of :data:`AXES`.
    staleness : int
        Maximum staleness of the FedAsync curves.
    methods : tuple of str

    Returns
    -------
    DataFrame
        ``method``, ``alpha``, ``max_staleness``, ``lr``, ``x``, ``n``, and for each metric its mean under its own
        name and ``…_std``.
    """
    column, end = AXES[axis], budget(study, axis)
    found = []
    for method in methods:
        labels = [{}] if method in TUNED else [{"alpha": a, "max_staleness": staleness} for a in alphas(study)]
        for label in labels:
            runs = runs_by_seed(study, method, **label)
            if not runs:
                continue
            points = pd.concat([seed_curve(group) for group in runs.values()])
            points = points[points[column] <= end]
            grouped = points.groupby(column)[list(METRICS)]
            table = grouped.mean().join(grouped.std().add_suffix("_std")).join(grouped.size().rename("n"))
            lr = next(iter(runs.values()))[0][0].labels["lr"]
            fixed = {"alpha": label.get("alpha"), "max_staleness": label.get("max_staleness"), "lr": lr}
            found.append(table.reset_index(names="x").assign(method=method, **fixed))
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame()


def sweep_values(study: Study, role: str, metric: str, method: str, column: str, **labels: object) -> pd.DataFrame:
    """Return the last value of `metric` of every swept run of `method`: a row per seed, a column per swept value."""
    found: dict[float, dict[int, float]] = {}
    for entry, result in study.select(role=role, method=method, **labels):
        values = found.setdefault(entry.labels[column], {})
        values[entry.labels["seed"]] = result.history.evaluations[metric][-1]
    return pd.DataFrame(found).sort_index().sort_index(axis=1)


def sweep(study: Study, role: str, column: str, **labels: object) -> pd.DataFrame:
    """Return mean, standard deviation and number over seeds of every point of a figure of final values.

    Parameters
    ----------
    study : Study
    role : str
        Label of the runs: ``"staleness sweep"`` or ``"alpha sweep"``.
    column : str
        Label that the abscissa shows.
    **labels
        Further labels that the runs must have.

    Returns
    -------
    DataFrame
        As :func:`curves` returns it, with the method as the only thing that tells curves apart.
    """
    found = []
    for method in dict.fromkeys(entry.labels["method"] for entry, _ in study.select(role=role, **labels)):
        values = {metric: sweep_values(study, role, metric, method, column, **labels) for metric in METRICS}
        table = pd.DataFrame({metric: frame.mean() for metric, frame in values.items()})
        table = table.join(pd.DataFrame({f"{metric}_std": frame.std() for metric, frame in values.items()}))
        table["n"] = values[METRICS[0]].count()
        found.append(table.reset_index(names="x").assign(method=method, alpha=np.nan))
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame()


def final_metrics(study: Study) -> pd.DataFrame:
    """Return the last evaluation of every curve of the study, with mean and standard deviation over seeds."""
    rows = []
    for entry, result in study.select(part="whole"):
        if entry.labels["role"] != "curve":
            continue
        if entry.labels["method"] in TUNED and entry.labels["lr"] != chosen_lr(study, entry.labels["method"]):
            continue
        last = result.history.evaluation_frame().iloc[-1]
        rows.append({**entry.labels, **last[[*METRICS, *COUNTERS]]})
    frame = pd.DataFrame(rows).drop(columns=["role", "part"])
    frame = frame.astype(dict.fromkeys((*COUNTERS, "max_staleness"), "Int64"))
    frame.loc[frame["method"] == "SGD", ["version", "communications"]] = pd.NA  # a single machine has neither
    keys = ["method", "alpha", "max_staleness", "lr"]
    grouped = frame.groupby(keys, dropna=False, sort=False)
    table = grouped[list(COUNTERS)].first().join(grouped[list(METRICS)].mean())
    table = table.join(grouped[list(METRICS)].std().add_suffix("_std")).join(grouped.size().rename("n"))
    return table.reset_index()


def alphas(study: Study) -> list[float]:
    """Mixing weights of the study's curves, ascending."""
    return sorted({e.labels["alpha"] for e in study.entries if e.labels["role"] == "curve" and e.labels["alpha"]})


def area(study: Study, axis: str, method: str, **labels: object) -> dict[int, float]:
    """Return by seed the mean training loss over FedAsync's budget on `axis`; lower is faster.

    The mean is over an equally spaced grid with as many points as FedAsync has evaluations; between evaluations the
    loss is interpolated.
    """
    end, areas = budget(study, axis), {}
    for seed, runs in runs_by_seed(study, method, **labels).items():
        curve = seed_curve(runs)
        grid = np.linspace(0, end, _points(study))
        areas[seed] = float(np.interp(grid, curve[AXES[axis]], curve["train_loss"]).mean())
    return areas


def oscillation(study: Study, method: str, **labels: object) -> dict[int, float]:
    """Return by seed the mean absolute change of test accuracy between evaluations, before alpha decays."""
    found = {}
    for seed, runs in runs_by_seed(study, method, **labels).items():
        algorithm = runs[0][0].spec.algorithm
        assert isinstance(algorithm, FedAsync)
        curve = seed_curve(runs)
        accuracy = curve.loc[curve["version"] <= algorithm.step_epoch, "test_accuracy"]
        found[seed] = float(accuracy.diff().abs().mean())
    return found


def _points(study: Study) -> int:
    for entry, result in study.select(role="curve"):
        if entry.labels["method"].startswith("FedAsync"):
            return len(result.history.evaluations["version"])
    return 2
