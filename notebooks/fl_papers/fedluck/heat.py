"""What FedLuck's Figure 1 measures: rounds to an accuracy over local steps k and kept fraction delta."""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd
from scipy import stats

from fl_core.algorithms import FedPer
from fl_core.experiments.study import Study
from fl_papers.fedluck.setups import setup_of
from fl_papers.fedluck.theory import mean_factor

_factor = cache(mean_factor)


def rounds(study: Study) -> pd.DataFrame:
    """Return one row per run of Figure 1.

    Returns
    -------
    DataFrame
        ``seed``, ``steps``, ``delta``, ``target``, ``rounds`` (ticks, empty ones included, to the first evaluation
        with the target; NaN: not reached), ``factor`` (phi, averaged over the five devices).
    """
    rows = []
    for entry, result in study.select(role="heat map"):
        labels, table = entry.labels, result.history.evaluations
        at = np.flatnonzero(np.array(table["test_accuracy"]) >= labels["target"])
        method = entry.spec.algorithm
        assert isinstance(method, FedPer)
        factor = _factor(setup_of(study.dataset).cell, labels["steps"], labels["delta"], method.period_seconds)
        found = {name: labels[name] for name in ("seed", "steps", "delta", "target")}
        rows.append(found | {"rounds": float(table["version"][at[0]]) if len(at) else np.nan, "factor": factor})
    return pd.DataFrame(rows)


def heat_map(study: Study) -> pd.DataFrame:
    """Return the cells of Figure 1: mean rounds of the seeds that get there, how many do and how many there are."""
    frame = rounds(study)
    if frame.empty:
        return frame
    grouped = frame.groupby(["steps", "delta"])
    return grouped.agg(
        rounds=("rounds", "mean"), rounds_std=("rounds", "std"), reached=("rounds", "count"), n=("seed", "size"),
        factor=("factor", "first"), target=("target", "first"),
    ).reset_index()  # fmt: skip


def edge_share(study: Study, axis: str) -> dict[int, float]:
    """Return by seed in which share of the lines along `axis` ("steps", "delta") fewest rounds are not at an end.

    Lines on which nothing gets there are left out.
    """
    found = {}
    for seed, table in _by_seed(study).items():
        cells = table if axis == "steps" else table.T
        lines = [line for line in cells.to_numpy().T if np.isfinite(line).any()]
        if lines and len(lines[0]) > 2:
            found[seed] = float(np.mean([line[1:-1].min() < min(line[0], line[-1]) for line in lines]))
    return found


def spread_of_rounds(study: Study) -> tuple[dict[int, float], dict[int, float]]:
    """Return most and fewest rounds by seed, over the cells that get there."""
    reached = {seed: t.to_numpy()[np.isfinite(t.to_numpy())] for seed, t in _by_seed(study).items()}
    most, fewest = ({s: float(end(v)) for s, v in reached.items() if len(v)} for end in (np.max, np.min))
    return most, fewest


def factor_correlation(study: Study) -> dict[int, float]:
    """Return by seed the rank correlation of phi with the rounds; cells that do not get there come last, tied."""
    frame, found = rounds(study), {}
    for seed in sorted(set(frame["seed"])) if len(frame) else ():
        own = frame[frame["seed"] == seed]
        steps = own["rounds"].fillna(own["rounds"].max() + 1 if own["rounds"].notna().any() else 1.0)
        if steps.nunique() > 1 and own["factor"].nunique() > 1:
            found[seed] = float(stats.spearmanr(own["factor"], steps).statistic)
    return found


def _by_seed(study: Study) -> dict[int, pd.DataFrame]:
    """Return by seed the rounds of all cells, k by delta; infinite where the target is not reached."""
    frame = rounds(study)
    if frame.empty:
        return {}
    return {
        seed: frame[frame["seed"] == seed].pivot(index="steps", columns="delta", values="rounds").fillna(np.inf)
        for seed in sorted(set(frame["seed"]))
    }
