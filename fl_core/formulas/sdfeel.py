"""SD-FEEL: normalised updates, staleness-aware mixing (Eqs. 2 to 5), constant matrices, consensus, deadlines.

Source: Sun, Shao, Mao & Zhang, "Asynchronous Semi-Decentralized Federated Edge Learning for Heterogeneous Clients"
(IEEE ICC 2022); (n) are its equations, E-n, D-n and section numbers those of this project's specification, where the
matrix of synchronous SD-FEEL (arXiv 2104.12678) is reconstructed (2.5).

Symbols: m-hat_i `weights` (share of a client in its cluster, with sum 1), m-tilde_d `cluster_weight` > 0 (share of a
cluster in all data), tau_i `steps` >= 1, y^(d) `server_model` ``[p]``, delta^(j) `staleness` >= 0, psi `discount`. A
mixing matrix P ``[D, D]`` has a row for each source and a column for each destination, so that Y <- Y P; a graph is
given as the neighbours of each server. Models may be numbers, arrays or tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fl_core.formulas.checks import add_up, require

Mixing = Literal["derived", "printed", "data_weighted"]
"""How the trigger's weights become a matrix; see :func:`gossip_weights`."""

SelfStaleness = Literal["gap", "fresh"]
"""Whether the trigger counts its own staleness, k - k'(d), or takes itself as fresh (A-02)."""

Discount = Callable[[int], Any]
Matrix = NDArray[np.float64]
Neighbors = Sequence[Sequence[int]]
MOST_ROUNDS = 1_000_000
"""After so many rounds :func:`consensus_phase` gives up."""

DeadlineRule = Literal["slowest_min_batches", "mean_min_batches", "fixed"]
"""How a cluster's deadline is set; see :func:`plan_cluster`."""

FLOOR_GUARD = 1e-9
"""Added before rounding down, so that the slowest client's 100 steps are not 99.999..."""


def normalized_update(end: Any, start: Any, steps: Any) -> Any:
    """Return Delta_i = (w_end - w_start) / tau_i, Eq. 2: what one local step has changed on average."""
    require(steps >= 1, "steps", steps, ">= 1")
    return (end - start) / steps


def effective_steps(weights: Sequence[Any], steps: Sequence[Any]) -> Any:
    """Return tau-bar_d = sum_i m-hat_i tau_i, of Eq. 3."""
    require(len(weights) == len(steps), "weights", list(weights), f"as many as there are step counts, {len(steps)}")
    require(abs(add_up(weights) - 1) < 1e-9, "weights", list(weights), "shares with sum 1")
    return add_up(weight * step for weight, step in zip(weights, steps, strict=True))


def intra_cluster_aggregate(
    server_model: Any, updates: Sequence[Any], weights: Sequence[Any], steps: Sequence[Any]
) -> Any:
    """Return y-hat^(d) = y^(d) + tau-bar_d sum_i m-hat_i Delta_i, Eq. 3.

    The updates were measured from the model that the clients started from, and are applied to the server's present
    one, which neighbours may have changed since. With equal steps from that model this is BL-2.12.
    """
    scale = effective_steps(weights, steps)
    return server_model + scale * sum(weight * update for weight, update in zip(weights, updates, strict=True))


def staleness_discount(staleness: Any) -> Any:
    """Return psi(delta) = 1 / (2 (delta + 1)), as in the experiments; the factor 1/2 has no effect (E-04)."""
    require(staleness >= 0, "staleness", staleness, ">= 0")
    return 1 / (2 * (staleness + 1))


class GossipWeights(NamedTuple):
    """The entries of P_k that one event makes."""

    column: dict[int, Any]
    """p^{i,d} of the trigger d and its neighbours i: what the trigger's new model is made of."""
    given: dict[int, Any]
    """p^{d,j}: how much of the trigger's model each neighbour j takes; it keeps the rest of its own."""


def gossip_weights(
    trigger: int,
    staleness: Mapping[int, int],
    discount: Discount = staleness_discount,
    *,
    rule: Mixing = "derived",
    self_staleness: SelfStaleness = "gap",
    cluster_weight: Sequence[Any] | None = None,
) -> GossipWeights:
    """Return the weights of Eq. 5 for an event of cluster `trigger`.

    `staleness` is that of the trigger and all of its neighbours. Rule "derived" is Eq. 5 with psi(delta^(i)) above
    the fraction bar; "printed" has the trigger's own there, so that columns do not add up to 1 (E-01);
    "data_weighted" keeps the data-weighted mean of all models instead of the uniform one (E-05), by the
    `cluster_weight` of all clusters.
    """
    require(trigger in staleness, "staleness", dict(staleness), f"given for the trigger {trigger} too")
    require(rule in ("derived", "printed", "data_weighted"), "rule", rule, "derived, printed or data_weighted")
    require(self_staleness in ("gap", "fresh"), "self_staleness", self_staleness, "'gap' or 'fresh'")
    own = 0 if self_staleness == "fresh" else staleness[trigger]
    psi = {j: discount(own if j == trigger else late) for j, late in sorted(staleness.items())}
    total = add_up(psi.values())
    if rule == "printed":
        share = psi[trigger] / total
        return GossipWeights(dict.fromkeys(psi, share), {j: share for j in psi if j != trigger})
    share_of = {j: value / total for j, value in psi.items()}
    if rule == "derived":
        return GossipWeights(share_of, {j: share for j, share in share_of.items() if j != trigger})
    del share_of[trigger]
    return _data_weighted(trigger, share_of, _positive(cluster_weight))


def joint_gossip_weights(
    server: int, discounts: Mapping[int, Any], sums: Mapping[int, Any], cluster_weight: Sequence[Any] | None = None
) -> dict[int, Any]:
    """Return the column of `server` when all clusters end an iteration at once and mix together. Derived.

    Two neighbours i and j give each other min(psi_i / Psi_j, psi_j / Psi_i), the smaller of what Eq. 5 would give if
    either of them were the trigger; so the matrix is symmetric and doubly stochastic again. If nobody is staler than
    others these are the Metropolis weights 1 / (1 + max degree), which on a regular graph are all equal. `discounts`
    are the psi_i, `sums` the Psi_i over the closed neighbourhoods, both of `server` and its neighbours; with
    `cluster_weight` the data-weighted mean is kept instead of the uniform one.
    """
    share_of = {
        i: min(discounts[i] / sums[server], discounts[server] / sums[i]) for i in sorted(discounts) if i != server
    }
    if cluster_weight is not None:
        return _data_weighted(server, share_of, _positive(cluster_weight)).column
    return dict(sorted({**share_of, server: 1 - add_up(share_of.values())}.items()))


def gossip_average(models: Mapping[int, Any], weights: Mapping[int, Any]) -> Any:
    """Return sum_i p^{i,j} y^(i), Eq. 4 for one destination; sources with weight 0 need no model."""
    terms = [weight * models[i] for i, weight in weights.items() if weight]
    require(terms, "weights", dict(weights), "not all 0")
    return sum(terms[1:], terms[0])


def gossip_towards(model: Any, other: Any, weight: Any) -> Any:
    """Return (1 - p) y + p y-hat: what a neighbour of the trigger holds after the exchange (Eqs. 4 and 5)."""
    return model + weight * (other - model)


def _data_weighted(server: int, share_of: Mapping[int, Any], m: Sequence[Any]) -> GossipWeights:
    """Return weights with p^{i,d} m_d = p^{d,i} m_i, so that P m = m (E-05)."""
    column = {i: share * min(1, m[i] / m[server]) for i, share in share_of.items()}
    given = {i: share * min(1, m[server] / m[i]) for i, share in share_of.items()}
    return GossipWeights(dict(sorted({**column, server: 1 - add_up(column.values())}.items())), given)


def _positive(cluster_weight: Sequence[Any] | None) -> Sequence[Any]:
    given = cluster_weight is not None and all(share > 0 for share in cluster_weight)
    require(given, "cluster_weight", cluster_weight, "a share > 0 for each cluster")
    assert cluster_weight is not None
    return cluster_weight


ConstantMixing = Literal["laplacian_safe", "laplacian", "uniform", "metropolis"]
"""Constant mixing matrices; see :func:`synchronous_mixing_matrix`."""


def synchronous_mixing_matrix(
    neighbors: Neighbors, cluster_weight: ArrayLike | None = None, kind: ConstantMixing = "laplacian_safe"
) -> Matrix:
    """Return the constant mixing matrix P ``[D, D]`` of synchronous SD-FEEL (2.5, BL-2.13) on a connected graph.

    "laplacian": I - 2 / (lambda_2 + lambda_max) L-tilde, the fastest step, which may make entries negative;
    "laplacian_safe": the same with the step cut where an entry would be negative; both keep the data-weighted mean.
    "uniform": I - L / (1 + largest degree), "metropolis": weights 1 / (1 + the larger degree); both are symmetric and
    keep the plain mean.
    """
    laplace, degrees = laplacian(neighbors), np.array([len(others) for others in neighbors])
    count = len(degrees)
    require(kind in ("laplacian_safe", "laplacian", "uniform", "metropolis"), "kind", kind, "a constant mixing")
    if count == 1:
        return np.eye(1)
    if kind == "uniform":
        return np.eye(count) - laplace / (degrees.max() + 1)
    if kind == "metropolis":
        weights = np.where(laplace < 0, 1 / (1 + np.maximum.outer(degrees, degrees)), 0.0)
        return weights + np.diag(1 - weights.sum(0))
    m = _shares(cluster_weight, count)
    values = laplacian_eigenvalues(neighbors, m)
    step = 2 / (values[1] + values[-1])
    if kind == "laplacian_safe":
        step = min(step, float((m / degrees).min()))
    return np.eye(count) - step * laplace / m


def laplacian(neighbors: Neighbors) -> Matrix:
    """Return the graph Laplacian L ``[D, D]``: degrees on the diagonal, -1 for each edge."""
    count = len(neighbors)
    matrix = np.zeros((count, count))
    for j, others in enumerate(neighbors):
        matrix[j, list(others)] = -1
    require(np.array_equal(matrix, matrix.T), "neighbors", neighbors, "mutual")
    reached, front = {0}, [0]
    while front:
        new = set(neighbors[front.pop()]) - reached
        reached |= new
        front += new
    require(len(reached) == count, "neighbors", neighbors, "those of a connected graph")
    return matrix - np.diag(matrix.sum(0))


def laplacian_eigenvalues(neighbors: Neighbors, cluster_weight: ArrayLike | None = None) -> NDArray[np.float64]:
    """Return the eigenvalues ``[D]`` of L-tilde = L diag(m-tilde)^-1, ascending; they are real."""
    laplace = laplacian(neighbors)
    root = np.sqrt(_shares(cluster_weight, len(laplace)))
    return np.linalg.eigvalsh(laplace / np.outer(root, root))


def spread(models: ArrayLike) -> float:
    """Return the largest distance between two of the `models` ``[D, d]`` (or ``[D]`` numbers)."""
    rows = _rows(models)
    return float(max(np.linalg.norm(a - b) for a in rows for b in rows))


class Consensus(NamedTuple):
    """What the consensus phase gives."""

    models: Matrix
    """``[D, d]``, the servers' models at the end."""
    rounds: int
    """Exchanges with the neighbours; each takes the server-to-server time."""
    spreads: list[float]
    """Largest distance between two models before the first round and after each."""


def consensus_phase(models: ArrayLike, matrix: ArrayLike, tolerance: float, *, relative: bool = False) -> Consensus:
    """Repeat Y <- Y P until no two of the `models` ``[D, d]`` are further apart than `tolerance` (2.3).

    With `relative`, the tolerance is a part of the distance at the beginning.
    """
    require(tolerance > 0, "tolerance", tolerance, "> 0")
    rows, transposed = _rows(models), np.asarray(matrix, dtype=float).T
    spreads = [spread(rows)]
    goal = tolerance * spreads[0] if relative else tolerance
    while spreads[-1] > goal:
        rows = transposed @ rows
        spreads.append(spread(rows))
        require(len(spreads) <= MOST_ROUNDS and np.isfinite(spreads[-1]), "matrix", matrix, "one that averages")
    return Consensus(rows.reshape(np.shape(models)), len(spreads) - 1, spreads)


def _rows(models: Any) -> Matrix:
    array = np.asarray(models, dtype=float)
    return array.reshape(len(array), -1)


def _shares(cluster_weight: ArrayLike | None, count: int) -> NDArray[np.float64]:
    m = np.full(count, 1 / count) if cluster_weight is None else np.asarray(cluster_weight, dtype=float)
    require(m.shape == (count,) and bool((m > 0).all()), "cluster_weight", cluster_weight, "a share > 0 per cluster")
    return m


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

    Rule "slowest_min_batches": the slowest client does exactly `min_batches` steps (A-05); "mean_min_batches": a
    client of mean speed does; "fixed": `deadline_seconds` is given.
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
