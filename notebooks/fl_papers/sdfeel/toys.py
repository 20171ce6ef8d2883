"""Problems on which asynchronous SD-FEEL can be checked by hand: quadratics, each client with one minimiser.

F_i(w) = (w - c_i)^2 / 2 with full gradients, so that every local step shrinks the distance to c_i by 1 - eta.
Source: D1, D10, E-10, E-11 and O13 of this project's specification.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fl_core.formulas.sdfeel import (
    effective_steps,
    gossip_average,
    gossip_towards,
    gossip_weights,
    intra_cluster_aggregate,
    normalized_update,
)
from fl_papers.sdfeel.extra_formulas import cluster_event_clock


def local_model(start: Any, centre: Any, lr: float, steps: int) -> Any:
    """Return the model after `steps` local steps: c + (1 - eta)^tau (w - c)."""
    return centre + (1 - lr) ** steps * (start - centre)


def fixed_point(
    centres: Sequence[float], weights: Sequence[float], steps: Sequence[int], lr: float, *, normalized: bool = True
) -> float:
    """Return where repeated aggregation of one cluster ends (D1): only normalisation comes near the optimum.

    Parameters
    ----------
    centres, weights, steps : sequence
        c_i, m-hat_i, tau_i.
    lr : float
        eta in (0, 1].
    normalized : bool, optional
        Whether updates are divided by tau_i (Eq. 3) or added as they are.
    """
    pull = [
        weight * (1 - (1 - lr) ** step) / (step if normalized else 1)
        for weight, step in zip(weights, steps, strict=True)
    ]
    return sum(p * c for p, c in zip(pull, centres, strict=True)) / sum(pull)


class QuadraticRun(NamedTuple):
    """Asynchronous SD-FEEL on scalar quadratics."""

    models: NDArray[np.float64]
    """``[K + 1, D]``, the servers' models before the first event and after each."""
    triggers: list[int]
    seconds: list[float]
    staleness: list[tuple[int, ...]]


def quadratic_run(
    centres: ArrayLike,
    clusters: Sequence[Sequence[int]],
    neighbors: Sequence[Sequence[int]],
    steps: Sequence[int],
    sizes: ArrayLike,
    iteration_seconds: Sequence[float],
    lr: float,
    events: int,
    start: float = 0.0,
    **variant: Any,
) -> QuadraticRun:
    """Run the procedure of section 2.2 in plain Python, the shortest way.

    Parameters
    ----------
    centres : array_like
        ``[C]``, c_i.
    clusters : sequence of sequence of int
        The clients of each cluster.
    neighbors : sequence of sequence of int
        Of each server.
    steps, sizes : sequence
        ``[C]``, tau_i and the data size of each client.
    iteration_seconds : sequence of float
        T_iter of each cluster.
    lr : float
        eta.
    events : int
        Iterations of all clusters together.
    start : float, optional
        Everybody's first model.
    **variant
        As :func:`fl_core.formulas.sdfeel.mixing_weights` takes it.
    """
    centres, sizes = np.asarray(centres, dtype=float), np.asarray(sizes, dtype=float)
    server, started = [float(start)] * len(clusters), [float(start)] * len(clusters)
    models, triggers, seconds, staleness = [list(server)], [], [], []
    for event in islice(cluster_event_clock(iteration_seconds), events):
        d = event.cluster
        members = list(clusters[d])
        shares, counts = sizes[members] / sizes[members].sum(), [steps[i] for i in members]
        updates = [
            normalized_update(local_model(started[d], centres[i], lr, steps[i]), started[d], steps[i])
            for i in members
        ]
        own = intra_cluster_aggregate(server[d], updates, list(shares), counts)
        late = {j: event.staleness[j] for j in (d, *neighbors[d])}
        weights = gossip_weights(d, late, **variant)
        before = dict(enumerate(server)) | {d: own}
        server[d] = gossip_average(before, weights.column)
        for j, weight in weights.given.items():
            server[j] = gossip_towards(before[j], own, weight)
        started[d] = server[d]
        models.append(list(server))
        triggers.append(d)
        seconds.append(event.seconds)
        staleness.append(event.staleness)
    return QuadraticRun(np.array(models), triggers, seconds, staleness)


def surrogate_minimiser(
    centres: ArrayLike, clusters: Sequence[Sequence[int]], sizes: ArrayLike, omega: ArrayLike
) -> float:
    """Return the minimiser of sum_d omega_d F^(d), F^(d) the data-weighted mean of the cluster's objectives (D10)."""
    centres, sizes = np.asarray(centres, dtype=float), np.asarray(sizes, dtype=float)
    means = [np.average(centres[list(members)], weights=sizes[list(members)]) for members in clusters]
    return float(np.dot(np.asarray(omega, dtype=float), means))


def cluster_steps(clusters: Sequence[Sequence[int]], sizes: ArrayLike, steps: Sequence[int]) -> list[float]:
    """Return tau-bar_d of each cluster."""
    sizes = np.asarray(sizes, dtype=float)
    return [
        float(effective_steps(list(sizes[list(m)] / sizes[list(m)].sum()), [steps[i] for i in m])) for m in clusters
    ]
