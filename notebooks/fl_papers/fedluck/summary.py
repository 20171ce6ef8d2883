"""FedLuck's headline numbers, which the paper states over three tasks, beside those of the tasks that were run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from fl_core.experiments.study import Study
from fl_papers.fedluck.grid import BASELINES, LABELS
from fl_papers.fedluck.margins import interval_text, reached, reductions, sought
from fl_papers.fedluck.printed import number, quoted
from fl_papers.fedluck.theory import TASKS

_KINDS = {"seconds": "time", "gigabytes": "communication"}
PLAIN = "FedPer"
"""The baseline that differs from FedLuck in its plan alone: one (k, delta) for all devices."""


def over_tasks(studies: Mapping[str, Study]) -> pd.DataFrame:
    """Return mean savings with intervals, and in how many cells FedLuck is best, by task and over all, as text.

    Parameters
    ----------
    studies : mapping
        The comparison of each task, by data set.

    Returns
    -------
    DataFrame
        ``labels``, ``quantity``, ``paper``, a column for each data set, and ``all`` of them.
    """
    rows: list[dict[str, str | None]] = []
    row: dict[str, str | None]
    for partition, words in LABELS.items():
        for what, kind in _KINDS.items():
            saved = {name: reductions(study, partition, what) for name, study in studies.items()}
            row = {"labels": words, "quantity": f"{kind} saved, mean over targets and baselines"}
            row["paper"] = f"{printed_mean(partition, what):.2f}"
            row |= {name: _mean_saved({name: frame}) for name, frame in saved.items()}
            rows.append(row | {"all": _mean_saved(saved)})
            alone = {name: frame[frame["method"] == PLAIN] for name, frame in saved.items()}
            row = {"labels": words, "quantity": f"{kind} saved against {PLAIN} alone"}
            row["paper"] = None if partition == "iid" else f"{printed_mean(partition, what, (PLAIN,)):.2f}"
            row |= {name: _mean_saved({name: frame}) for name, frame in alone.items()}
            rows.append(row | {"all": _mean_saved(alone)})
            won = {name: _won(study, partition, what) for name, study in studies.items()}
            row = {
                "labels": words,
                "quantity": f"targets with the least {kind}",
                "paper": printed_wins(partition, what),
            }
            row |= {name: _count(cells) for name, cells in won.items()}
            rows.append(row | {"all": _count([cell for cells in won.values() for cell in cells])})
    return pd.DataFrame(rows)


def printed_mean(partition: str, what: str, against: Sequence[str] = BASELINES) -> float:
    """Return the mean saving over all tasks: of Table 1's 36 cells (E14), of fewer against fewer baselines.

    With independent labels it is what the paper quotes, against all baselines.
    """
    if partition == "iid":
        return quoted({"seconds": "time reduction", "gigabytes": "communication reduction"}[what])
    cells = _printed_cells(what, against)
    return float(np.mean([1 - ours / other for ours, theirs in cells for other in theirs]))


def printed_wins(partition: str, what: str) -> str | None:
    """Return at how many of the nine targets FedLuck needs least, ties included; None: the paper does not say."""
    if partition == "iid":
        return f"{quoted('lowest of 9'):.0f} of 9" if what == "gigabytes" else None
    return _count([ours <= min(theirs) for ours, theirs in _printed_cells(what)])


def _printed_cells(what: str, against: Sequence[str] = BASELINES) -> list[tuple[float, list[float]]]:
    """Return FedLuck's number and those of `against` for each target of Table 1."""
    cells = []
    for cell, (_, setup) in TASKS.items():
        for target in setup.targets["dirichlet"]:
            found = [number(cell, m, what, target, "dirichlet") for m in ("FedLuck", *against)]
            ours, *theirs = [value for value in found if value is not None]
            cells.append((ours, theirs))
    return cells


def _mean_saved(saved: Mapping[str, pd.DataFrame]) -> str | None:
    """Return mean and interval over the seeds that all tasks have."""
    if any(frame.empty for frame in saved.values()):
        return None
    seeds = set.intersection(*({int(seed) for seed in frame["seed"]} for frame in saved.values()))
    together = pd.concat([frame[frame["seed"].isin(seeds)] for frame in saved.values()])
    return interval_text(together.groupby("seed")["saved"].mean().to_numpy())


def _won(study: Study, partition: str, what: str) -> list[bool]:
    """Return for each target whether FedLuck's mean over seeds is the least; not reached is endless."""
    won = []
    for target in sought(study, partition):
        means = {}
        for method in ("FedLuck", *BASELINES):
            found = reached(study, method, partition, target.here).values()
            means[method] = float(np.mean([getattr(o, what) if o.reached else np.inf for o in found] or [np.inf]))
        if np.isfinite(min(means.values())):
            won.append(means["FedLuck"] <= min(means[m] for m in BASELINES))
    return won


def _count(cells: list[bool]) -> str:
    return f"{sum(cells)} of {len(cells)}"
