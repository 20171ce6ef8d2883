"""Asynchronous SD-FEEL's clock: deadlines, step counts, latencies, the order of events, bounds of staleness.

Source: Sun et al. (IEEE ICC 2022), section II and Lemma 1; E-n, D-n, A-n and section numbers are those of this
project's specification. Times are in virtual seconds. Symbols: h_i the speed of a client; `step_seconds` =
N_MAC / h_i, the time of one local step; T_iter `iteration_seconds`; T_comp `deadline_seconds`; H the largest ratio
of two speeds.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from math import ceil
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fl_core.formulas.checks import require

DeadlineRule = Literal["slowest_min_batches", "mean_min_batches", "fixed"]
"""How a cluster's deadline is set; see :func:`plan_cluster`."""
FLOOR_GUARD = 1e-9
"""Added before rounding down, so that the slowest client's 100 steps are not 99.999..."""
BITS_PER_PARAMETER = 32


def model_bits(num_params: int) -> int:
    """Return M_bit = 32 M, the size of a model on the wire; not 32 Mbit (E-18)."""
    return BITS_PER_PARAMETER * num_params


def transfer_seconds(bits: Any, bits_per_second: Any) -> Any:
    """Return T_comm = M_bit / R.

    Raises
    ------
    ValueError
        R is not positive.
    """
    require(bits_per_second > 0, "bits_per_second", bits_per_second, "> 0")
    return bits / bits_per_second


class ClusterPlan(NamedTuple):
    """What a cluster does in each of its iterations."""

    deadline_seconds: float
    """T_comp, for which its clients train."""
    local_steps: tuple[int, ...]
    """tau_i of each client: the whole steps that fit."""
    iteration_seconds: float
    """T_iter: training, upload, exchange."""


def plan_cluster(
    step_seconds: Sequence[float],
    upload_seconds: float = 0.0,
    exchange_seconds: float = 0.0,
    *,
    min_batches: int = 100,
    rule: DeadlineRule = "slowest_min_batches",
    deadline_seconds: float | None = None,
) -> ClusterPlan:
    """Return the deadline, the step counts and the iteration time of one cluster (2.4).

    Parameters
    ----------
    step_seconds : sequence of float
        Time of a local step of each client, > 0.
    upload_seconds, exchange_seconds : float, optional
        From client to server, and from server to server, >= 0.
    min_batches : int, optional
        n_min >= 1.
    rule : {"slowest_min_batches", "mean_min_batches", "fixed"}, optional
        The slowest client does exactly n_min steps (A-05); a client of mean speed does; or the deadline is given.
    deadline_seconds : float, optional
        For "fixed".

    Raises
    ------
    ValueError
        An argument is out of range, or no client could do a single step.
    """
    seconds = np.asarray(step_seconds, dtype=float)
    require(len(seconds) and bool((seconds > 0).all()), "step_seconds", step_seconds, "> 0 for each client")
    require(min_batches >= 1, "min_batches", min_batches, ">= 1")
    require(upload_seconds >= 0, "upload_seconds", upload_seconds, ">= 0")
    require(exchange_seconds >= 0, "exchange_seconds", exchange_seconds, ">= 0")
    if rule == "fixed":
        require(deadline_seconds is not None, "deadline_seconds", deadline_seconds, "given for the rule 'fixed'")
        assert deadline_seconds is not None
        deadline = float(deadline_seconds)
    elif rule == "mean_min_batches":
        deadline = float(min_batches / np.mean(1 / seconds))
    else:
        require(rule == "slowest_min_batches", "rule", rule, "slowest_min_batches, mean_min_batches or fixed")
        deadline = float(min_batches * seconds.max())
    steps = np.floor(deadline / seconds + FLOOR_GUARD).astype(int)
    require(bool((steps > 0).any()), "deadline_seconds", deadline, f">= {seconds.min()}, the time of a single step")
    return ClusterPlan(deadline, tuple(steps.tolist()), deadline + upload_seconds + exchange_seconds)


def synchronous_round_seconds(
    step_seconds: ArrayLike,
    upload_seconds: float,
    exchange_seconds: float,
    *,
    local_steps: int = 100,
    intra_rounds: int = 1,
    gossip_rounds: int = 1,
) -> float:
    """Return T_round = tau_2 (tau_1 max_i s_i + T_ct-sr) + alpha T_sr-sr, which everybody waits for (2.5).

    Parameters
    ----------
    step_seconds : array_like
        s_i of all clients of all clusters.
    upload_seconds, exchange_seconds : float
        T_ct-sr and T_sr-sr.
    local_steps, intra_rounds, gossip_rounds : int, optional
        tau_1, tau_2, alpha >= 1.

    Raises
    ------
    ValueError
        A count is below 1.
    """
    counts = {"local_steps": local_steps, "intra_rounds": intra_rounds, "gossip_rounds": gossip_rounds}
    for name, count in counts.items():
        require(count >= 1, name, count, ">= 1")
    slowest = float(np.max(np.asarray(step_seconds, dtype=float)))
    return intra_rounds * (local_steps * slowest + upload_seconds) + gossip_rounds * exchange_seconds


def utilisation(step_seconds: ArrayLike, local_steps: ArrayLike, iteration_seconds: ArrayLike) -> float:
    """Return the mean over clients of tau_i s_i / T_iter: the part of the time in which they compute (C07).

    Parameters
    ----------
    step_seconds, local_steps, iteration_seconds : array_like
        Of each client, with the iteration time of its cluster (or of the synchronous round); they broadcast.
    """
    busy = np.asarray(step_seconds) * np.asarray(local_steps) / np.asarray(iteration_seconds)
    return float(np.mean(busy))


class ClusterEvent(NamedTuple):
    """A cluster has completed an iteration."""

    iteration: int
    """k, which counts the events of all clusters."""
    seconds: float
    cluster: int
    staleness: tuple[int, ...]
    """delta^(j)_k of every cluster, in global iterations."""


def cluster_event_clock(iteration_seconds: Sequence[float]) -> Iterator[ClusterEvent]:
    """Yield the events of independent clusters, for ever; those of equal time in the order of their numbers (2.2).

    Times are n T, never sums: equal periods must tie exactly.

    Parameters
    ----------
    iteration_seconds : sequence of float
        T_d > 0 of each cluster.

    Raises
    ------
    ValueError
        A period is not positive.
    """
    periods = [float(period) for period in iteration_seconds]
    require(periods and min(periods) > 0, "iteration_seconds", periods, "> 0 for each cluster")
    queue = [(period, cluster) for cluster, period in enumerate(periods)]
    heapq.heapify(queue)
    pulled, completed = [0] * len(periods), [0] * len(periods)
    k = 0
    while True:
        seconds, d = queue[0]
        yield ClusterEvent(k, seconds, d, tuple(k - since for since in pulled))
        k += 1
        pulled[d] = k
        completed[d] += 1
        heapq.heapreplace(queue, ((completed[d] + 1) * periods[d], d))


def staleness_bound(iteration_seconds: Sequence[float]) -> NDArray[np.int64]:
    """Return sum_{j != d} ceil(T_d / T_j) ``[D]``, which the staleness of cluster d never exceeds (Lemma 1, D4).

    Raises
    ------
    ValueError
        A period is not positive.
    """
    periods = [float(period) for period in iteration_seconds]
    require(periods and min(periods) > 0, "iteration_seconds", periods, "> 0 for each cluster")
    bounds = [sum(ceil(own / other) for j, other in enumerate(periods) if j != d) for d, own in enumerate(periods)]
    return np.array(bounds)


def printed_staleness_bound(num_clusters: int, heterogeneity_gap: float) -> float:
    """Return (D - 1) H, the bound that the sketch of Lemma 1 suggests; wrong, as T_d / T_j is not whole (E-08)."""
    return (num_clusters - 1) * heterogeneity_gap
