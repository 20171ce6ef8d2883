"""What WKAFL's figures show: accuracy over updates in panels, and the drawings of Figures 1, 2 and 4."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd
import torch

from fl_core.experiments.study import Study
from fl_core.formulas.wkafl import clip, estimate, estimation_weights
from fl_papers.wkafl.measures import Cell, levels, measurements, name_of, skews
from fl_papers.wkafl.setups import ABLATIONS, METHODS
from fl_papers.wkafl.theory import (
    k_asynchronous,
    predominated,
    stale_cloud,
)

MODES = {"copy": "true staleness", "aliased": "aliased"}
DURATIONS = (1.0, 1.5, 2.5, 4.2)
"""Seconds per gradient of the four clients of Figure 1 (O11)."""
CLIP_BOUND = 1.2
"""CB in Figure 4, where the true gradient has length 1."""


def by_level(study: Study, snapshots: Sequence[str] = ("copy",)) -> pd.DataFrame:
    """Return the curves of Figures 7 and 8, a panel for each level of staleness."""
    cells = levels(study, snapshots[0])
    return panels(study, cells, ("WKAFL", "TWAFL", "SASGD"), snapshots)


def by_skew(study: Study) -> pd.DataFrame:
    """Return the curves of Figures 9 and 10, a panel for each number of labels; of Figure 6 where there is none."""
    return panels(study, skews(study, "copy"), METHODS, ("copy",))


def by_component(study: Study, snapshots: Sequence[str] = ("copy", "aliased")) -> pd.DataFrame:
    """Return the curves of Figure 5, a panel for each mode of staleness."""
    found = []
    for snapshot in snapshots:
        cells = [cell for cell in levels(study, snapshot) if study.select(method="No Staleness", **cell)]
        frame = panels(study, cells, ("WKAFL", *ABLATIONS), (snapshot,))
        found.append(frame.assign(panel=MODES[snapshot], mode=""))
    return pd.concat([frame for frame in found if len(frame)] or found[:1], ignore_index=True)


def byzantine(study: Study) -> pd.DataFrame:
    """Return the curves of Appendix A, a panel for each share of Byzantine uploads."""
    shares = sorted({e.labels["byzantine"] for e, _ in study.select(role="byzantine")})
    cells = [{"role": "byzantine", "byzantine": share} for share in shares]
    frame = panels(study, cells, ("WKAFL", "Zeno++"), ("copy",))
    return frame


def panels(study: Study, cells: Iterable[Cell], methods: Iterable[str], snapshots: Sequence[str]) -> pd.DataFrame:
    """Return mean, standard deviation and number over seeds of the accuracy of each method in each cell.

    Returns
    -------
    DataFrame
        ``panel`` (the cell in words), ``method``, ``mode`` (empty for one mode), ``x`` (updates), ``test_accuracy``,
        ``test_accuracy_std`` (NaN with one seed), ``n``; only measurements that all seeds have.
    """
    found = [pd.DataFrame(columns=["panel", "method", "mode", "x", "test_accuracy", "test_accuracy_std", "n"])]
    for cell in cells:
        for method in methods:
            for snapshot in snapshots:
                runs = study.select(method=method, lr_factor=1.0, **{**cell, "snapshot": snapshot})
                if not runs:
                    continue
                rows = pd.concat([measurements(result) for _, result in runs])
                table = rows.groupby("version")["test_accuracy"].agg(
                    test_accuracy="mean", test_accuracy_std="std", n="size"
                )
                table = table[table["n"] == table["n"].max()].rename_axis("x").reset_index()
                mode = MODES[snapshot] if len(snapshots) > 1 else ""
                found.append(table.assign(panel=name_of(cell), method=method, mode=mode))
    filled = [frame for frame in found if len(frame)]
    return pd.concat(filled, ignore_index=True) if filled else found[0]


def predominating(study: Study) -> pd.DataFrame:
    """Return Figure 2 a: how often so many gradients of an update weigh more than 0.1.

    Returns
    -------
    DataFrame
        ``count`` from 0 to the largest found, ``share`` of the updates, ``share_std`` over seeds, ``n``.
    """
    shares = []
    for entry, result in study.select(role="motivation"):
        weights = np.array(result.history.updates["weight"]).reshape(-1, entry.labels["aggregated"])
        shares.append(np.bincount(predominated(weights), minlength=weights.shape[1] + 1) / len(weights))
    if not shares:
        return pd.DataFrame()
    table = np.array(shares)
    used = slice(0, int(np.flatnonzero(table.any(axis=0)).max()) + 1)
    spread = table.std(axis=0, ddof=1) if len(table) > 1 else np.full(table.shape[1], np.nan)
    return pd.DataFrame(
        {"count": np.arange(table.shape[1]), "share": table.mean(axis=0), "share_std": spread, "n": len(table)}
    )[used]


def four_clients() -> pd.DataFrame:
    """Return Figure 1: every gradient of four clients up to the sixth update, K = 2.

    Returns
    -------
    DataFrame
        ``client``, ``start``, ``finished`` (seconds), ``used`` (seconds; NaN: still on its way at the end) and
        ``staleness``.
    """
    made = k_asynchronous(lambda client, job: DURATIONS[client], len(DURATIONS), 2, 6)
    start, rows = [0.0] * len(DURATIONS), []
    for clients, staleness, seconds in zip(made.clients, made.staleness, made.seconds, strict=True):
        for client, missed in zip(clients, staleness, strict=True):
            rows.append((int(client), start[client], start[client] + DURATIONS[client], seconds, float(missed)))
            start[client] = float(seconds)
    end = float(made.seconds[-1])
    rows += [(i, s, min(end, s + DURATIONS[i]), np.nan, np.nan) for i, s in enumerate(start) if s < end]
    return pd.DataFrame(rows, columns=["client", "start", "finished", "used", "staleness"])


def clipped_vectors() -> pd.DataFrame:
    """Return Figure 4 in the plane: five gradients, the estimate, and both after clipping.

    Returns
    -------
    DataFrame
        ``what`` ("true gradient", "gradient", "estimate"), ``clipped``, ``staleness`` (NaN if it has none), ``x``,
        ``y``.
    """
    truth = torch.tensor([1.0, 0.0], dtype=torch.float64)
    spread = 0.3 / 2**0.5, 0.5 / 2**0.5  # of each of the two entries
    cloud = stale_cloud(truth, 5, CLIP_BOUND, np.random.default_rng(45), spread)
    weights = estimation_weights(torch.arange(5, dtype=torch.float64))
    rows: list[tuple[str, bool, float, float, float]] = [("true gradient", False, np.nan, 1.0, 0.0)]
    for clipped, vectors in ((False, cloud.gradients), (True, clip(cloud.gradients, CLIP_BOUND))):
        rows += [("gradient", clipped, float(age), *vector.tolist()) for age, vector in enumerate(vectors)]
        rows.append(("estimate", clipped, np.nan, *estimate(vectors, weights).tolist()))
    return pd.DataFrame(rows, columns=["what", "clipped", "staleness", "x", "y"])
