"""Formulas that the chapters and claims use, and no algorithm."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from math import ceil
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fl_core.formulas.checks import require
from fl_core.formulas.sdfeel import Discount, gossip_weights, joint_gossip_weights, staleness_discount


def staleness_aware_mixing_matrix(
    neighbors: Sequence[Sequence[int]],
    trigger: int,
    staleness: Sequence[int],
    discount: Discount = staleness_discount,
    **variant: Any,
) -> NDArray[np.float64]:
    """Return P_k ``[D, D]`` of an event of cluster `trigger`, Eq. 5.

    Parameters
    ----------
    neighbors : sequence of sequence of int
        N_d for each cluster.
    trigger : int
        d.
    staleness : sequence of int
        delta^(j) of all clusters.
    discount, **variant
        As in :func:`mixing_weights`.

    Raises
    ------
    ValueError
        As in :func:`mixing_weights`.
    """
    closed = {j: staleness[j] for j in (trigger, *neighbors[trigger])}
    column, given = gossip_weights(trigger, closed, discount, **variant)
    matrix = np.eye(len(neighbors))
    for i, weight in column.items():
        matrix[i, trigger] = weight
    for j, weight in given.items():
        matrix[trigger, j], matrix[j, j] = weight, 1 - weight
    return matrix


def joint_mixing_matrix(
    neighbors: Sequence[Sequence[int]],
    staleness: Sequence[int],
    discount: Discount = staleness_discount,
    cluster_weight: Sequence[Any] | None = None,
) -> NDArray[np.float64]:
    """Return P_k ``[D, D]`` when all clusters mix at once; see :func:`joint_weights`."""
    psi = [discount(late) for late in staleness]
    sums = [psi[j] + sum(psi[i] for i in others) for j, others in enumerate(neighbors)]
    matrix = np.zeros((len(neighbors), len(neighbors)))
    for j, others in enumerate(neighbors):
        closed = (j, *others)
        column = joint_gossip_weights(j, {i: psi[i] for i in closed}, {i: sums[i] for i in closed}, cluster_weight)
        for i, weight in column.items():
            matrix[i, j] = weight
    return matrix


def zeta(matrix: ArrayLike) -> float:
    """Return the second-largest modulus of an eigenvalue of P: by this factor each round averages better."""
    moduli = np.sort(np.abs(np.linalg.eigvals(np.asarray(matrix, dtype=float))))
    return float(moduli[-2]) if len(moduli) > 1 else 0.0


def perron_vector(matrix: ArrayLike) -> NDArray[np.float64]:
    """Return v ``[D]`` with P v = v and sum 1: gossip ends at sum_d v_d y^(d) (E-06)."""
    values, vectors = np.linalg.eig(np.asarray(matrix, dtype=float))
    vector = np.real(vectors[:, np.argmin(np.abs(values - 1))])
    return vector / vector.sum()


def consensus_rounds(second_eigenvalue: float, factor: float) -> int:
    """Return q, the least number of rounds with zeta^q <= `factor`: 28 for 0.6 and 1e-6.

    Raises
    ------
    ValueError
        An argument is not in (0, 1).
    """
    for name, value in (("second_eigenvalue", second_eigenvalue), ("factor", factor)):
        require(0 < value < 1, name, value, "in (0, 1)")
    return int(np.ceil(np.log(factor) / np.log(second_eigenvalue)))


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
