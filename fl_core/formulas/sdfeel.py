"""Asynchronous SD-FEEL as an algorithm: normalised updates and staleness-aware mixing (Eqs. 2 to 5).

Source: Sun, Shao, Mao & Zhang, "Asynchronous Semi-Decentralized Federated Edge Learning for Heterogeneous Clients"
(IEEE ICC 2022); (n) are its equations, E-n, D-n and section numbers those of this project's specification. Graphs,
constant matrices and the consensus phase are in `sdfeel_graphs`, clocks and latency in `sdfeel_system`, Lemma 2 in
`sdfeel_lemmas`, the theorem in `sdfeel_theory`, test problems in `sdfeel_toys`.

Symbols: m-hat_i `weights` (share of a client in its cluster), m-tilde_d `cluster_weight` (share of a cluster in all
data), tau_i `steps`, y^(d) `server_model`, delta^(j) `staleness`, psi `discount`. A mixing matrix P has a row for
each source and a column for each destination. Models may be numbers, arrays or tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fl_core.formulas.checks import require

Mixing = Literal["derived", "printed", "data_weighted"]
"""How the trigger's weights become a matrix; see :func:`mixing_weights`."""
SelfStaleness = Literal["gap", "fresh"]
"""Whether the trigger counts its own staleness, k - k'(d), or takes itself as fresh (A-02)."""
Discount = Callable[[int], Any]


def normalized_update(end: Any, start: Any, steps: Any) -> Any:
    """Return Delta_i = (w_end - w_start) / tau_i, Eq. 2: what one local step has changed on average.

    Parameters
    ----------
    end, start : float, ndarray or Tensor
        ``[p]``, the client's model after and before local training.
    steps : int
        tau_i >= 1.

    Raises
    ------
    ValueError
        tau_i < 1.
    """
    require(steps >= 1, "steps", steps, ">= 1")
    return (end - start) / steps


def effective_steps(weights: Sequence[Any], steps: Sequence[Any]) -> Any:
    """Return tau-bar_d = sum_i m-hat_i tau_i, of Eq. 3.

    Parameters
    ----------
    weights : sequence of float
        m-hat_i >= 0, with sum 1.
    steps : sequence of int
        tau_i >= 1 of the same clients.

    Raises
    ------
    ValueError
        The weights do not add up to 1, or there are not as many as step counts.
    """
    require(len(weights) == len(steps), "weights", list(weights), f"as many as there are step counts, {len(steps)}")
    require(abs(sum(weights) - 1) < 1e-9, "weights", list(weights), "shares with sum 1")
    return sum(weight * step for weight, step in zip(weights, steps, strict=True))


def intra_cluster_aggregate(
    server_model: Any, updates: Sequence[Any], weights: Sequence[Any], steps: Sequence[Any]
) -> Any:
    """Return y-hat^(d) = y^(d) + tau-bar_d sum_i m-hat_i Delta_i, Eq. 3.

    The updates were measured from the model that the clients started from, and are applied to the server's present
    one, which neighbours may have changed since.

    Parameters
    ----------
    server_model : float, ndarray or Tensor
        ``[p]``, y^(d).
    updates : sequence
        Delta_i ``[p]``.
    weights, steps : sequence
        As in :func:`effective_steps`.

    Raises
    ------
    ValueError
        As in :func:`effective_steps`.
    """
    scale = effective_steps(weights, steps)
    return server_model + scale * sum(weight * update for weight, update in zip(weights, updates, strict=True))


def staleness_discount(staleness: Any) -> Any:
    """Return psi(delta) = 1 / (2 (delta + 1)), as in the experiments; the factor 1/2 has no effect (E-04).

    Raises
    ------
    ValueError
        delta < 0.
    """
    require(staleness >= 0, "staleness", staleness, ">= 0")
    return 1 / (2 * (staleness + 1))


class MixingWeights(NamedTuple):
    """The entries of P_k that one event makes."""

    column: dict[int, Any]
    """p^{i,d} of the trigger d and its neighbours i: what the trigger's new model is made of."""
    given: dict[int, Any]
    """p^{d,j}: how much of the trigger's model each neighbour j takes; it keeps the rest of its own."""


def mixing_weights(
    trigger: int,
    staleness: Mapping[int, int],
    discount: Discount = staleness_discount,
    *,
    rule: Mixing = "derived",
    self_staleness: SelfStaleness = "gap",
    cluster_weight: Sequence[Any] | None = None,
) -> MixingWeights:
    """Return the weights of Eq. 5 for an event of cluster `trigger`.

    Parameters
    ----------
    trigger : int
        d.
    staleness : mapping of int to int
        delta^(j) >= 0 of the trigger and all of its neighbours.
    discount : callable, optional
        psi > 0.
    rule : {"derived", "printed", "data_weighted"}, optional
        "derived" is Eq. 5 with psi(delta^(i)) above the fraction bar; "printed" has the trigger's own there, so that
        columns do not add up to 1 (E-01); "data_weighted" keeps the data-weighted mean of all models instead of the
        uniform one (E-05).
    self_staleness : {"gap", "fresh"}, optional
        Whether the trigger's own delta counts, or is taken as 0 (A-02).
    cluster_weight : sequence of float, optional
        m-tilde_d > 0 of all clusters, for "data_weighted".

    Raises
    ------
    ValueError
        An argument is out of range, or `staleness` lacks the trigger.
    """
    require(trigger in staleness, "staleness", dict(staleness), f"given for the trigger {trigger} too")
    require(rule in ("derived", "printed", "data_weighted"), "rule", rule, "derived, printed or data_weighted")
    require(self_staleness in ("gap", "fresh"), "self_staleness", self_staleness, "'gap' or 'fresh'")
    own = 0 if self_staleness == "fresh" else staleness[trigger]
    psi = {j: discount(own if j == trigger else late) for j, late in sorted(staleness.items())}
    total = sum(psi.values())
    if rule == "printed":
        share = psi[trigger] / total
        return MixingWeights(dict.fromkeys(psi, share), {j: share for j in psi if j != trigger})
    share_of = {j: value / total for j, value in psi.items()}
    if rule == "derived":
        return MixingWeights(share_of, {j: share for j, share in share_of.items() if j != trigger})
    del share_of[trigger]
    return _data_weighted(trigger, share_of, _positive(cluster_weight))


def joint_weights(
    server: int,
    discounts: Mapping[int, Any],
    sums: Mapping[int, Any],
    cluster_weight: Sequence[Any] | None = None,
) -> dict[int, Any]:
    """Return the column of `server` when all clusters end an iteration at once and mix together. Derived.

    Two neighbours i and j give each other min(psi_i / Psi_j, psi_j / Psi_i), the smaller of what Eq. 5 would give if
    either of them were the trigger; so the matrix is symmetric and doubly stochastic again. If nobody is staler than
    others these are the Metropolis weights 1 / (1 + max degree), which on a regular graph are all equal.

    Parameters
    ----------
    server : int
        j.
    discounts, sums : mapping of int to float
        psi_i, and Psi_i, its sum over the closed neighbourhood of i; both for `server` and its neighbours.
    cluster_weight : sequence of float, optional
        m-tilde_d of all clusters, to keep the data-weighted mean instead of the uniform one.

    Raises
    ------
    ValueError
        A share is not positive.
    """
    share_of = {
        i: min(discounts[i] / sums[server], discounts[server] / sums[i]) for i in sorted(discounts) if i != server
    }
    if cluster_weight is not None:
        return _data_weighted(server, share_of, _positive(cluster_weight)).column
    return dict(sorted({**share_of, server: 1 - sum(share_of.values())}.items()))


def mix(models: Mapping[int, Any], weights: Mapping[int, Any]) -> Any:
    """Return sum_i p^{i,j} y^(i), Eq. 4 for one destination; sources with weight 0 need no model.

    Raises
    ------
    ValueError
        All weights are 0.
    """
    terms = [weight * models[i] for i, weight in weights.items() if weight]
    require(terms, "weights", dict(weights), "not all 0")
    return sum(terms[1:], terms[0])


def take(model: Any, other: Any, weight: Any) -> Any:
    """Return (1 - p) y + p y-hat: what a neighbour of the trigger holds after the exchange (Eqs. 4 and 5)."""
    return model + weight * (other - model)


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
    column, given = mixing_weights(trigger, closed, discount, **variant)
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
        column = joint_weights(j, {i: psi[i] for i in closed}, {i: sums[i] for i in closed}, cluster_weight)
        for i, weight in column.items():
            matrix[i, j] = weight
    return matrix


def _data_weighted(server: int, share_of: Mapping[int, Any], m: Sequence[Any]) -> MixingWeights:
    """Return weights with p^{i,d} m_d = p^{d,i} m_i, so that P m = m (E-05)."""
    column = {i: share * min(1, m[i] / m[server]) for i, share in share_of.items()}
    given = {i: share * min(1, m[server] / m[i]) for i, share in share_of.items()}
    return MixingWeights(dict(sorted({**column, server: 1 - sum(column.values())}.items())), given)


def _positive(cluster_weight: Sequence[Any] | None) -> Sequence[Any]:
    given = cluster_weight is not None and all(share > 0 for share in cluster_weight)
    require(given, "cluster_weight", cluster_weight, "a share > 0 for each cluster")
    assert cluster_weight is not None
    return cluster_weight
