"""Graphs of edge servers: constant mixing matrices, how fast they average, and the consensus phase.

Source: section 2.5 of this project's specification, where the matrix of synchronous SD-FEEL (arXiv 2104.12678) is
reconstructed, and section 2.3; E-n and D-n are its numbers. A graph is given as the neighbours of each server; a
mixing matrix has a row for each source and a column for each destination, so that Y <- Y P.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fl_core.formulas.checks import require

Matrix = NDArray[np.float64]
Neighbors = Sequence[Sequence[int]]
ConstantMixing = Literal["laplacian_safe", "laplacian", "uniform", "metropolis"]
"""Constant mixing matrices; see :func:`synchronous_mixing_matrix`."""
MOST_ROUNDS = 1_000_000
"""After so many rounds :func:`consensus_phase` gives up."""


def synchronous_mixing_matrix(
    neighbors: Neighbors, cluster_weight: ArrayLike | None = None, kind: ConstantMixing = "laplacian_safe"
) -> Matrix:
    """Return the constant mixing matrix P ``[D, D]`` of synchronous SD-FEEL (2.5).

    Parameters
    ----------
    neighbors : sequence of sequence of int
        Of each server; the graph must be connected.
    cluster_weight : array_like, optional
        ``[D]`` shares m-tilde_d > 0 of the data; equal by default.
    kind : str, optional
        "laplacian": I - 2 / (lambda_2 + lambda_max) L-tilde, the fastest step, which may make entries negative;
        "laplacian_safe": the same with the step cut where an entry would be negative; both keep the data-weighted
        mean. "uniform": I - L / (1 + largest degree), "metropolis": weights 1 / (1 + the larger degree); both are
        symmetric and keep the plain mean.

    Raises
    ------
    ValueError
        The graph is not connected, a share is not positive, or there is no such kind.
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
    """Return the graph Laplacian L ``[D, D]``: degrees on the diagonal, -1 for each edge.

    Raises
    ------
    ValueError
        The neighbours are not mutual, or the graph is not connected.
    """
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
    """Return the eigenvalues ``[D]`` of L-tilde = L diag(m-tilde)^-1, ascending; they are real.

    Raises
    ------
    ValueError
        As in :func:`synchronous_mixing_matrix`.
    """
    laplace = laplacian(neighbors)
    root = np.sqrt(_shares(cluster_weight, len(laplace)))
    return np.linalg.eigvalsh(laplace / np.outer(root, root))


def zeta(matrix: ArrayLike) -> float:
    """Return the second-largest modulus of an eigenvalue of P: by this factor each round averages better."""
    moduli = np.sort(np.abs(np.linalg.eigvals(np.asarray(matrix, dtype=float))))
    return float(moduli[-2]) if len(moduli) > 1 else 0.0


def perron_vector(matrix: ArrayLike) -> NDArray[np.float64]:
    """Return v ``[D]`` with P v = v and sum 1: gossip ends at sum_d v_d y^(d) (E-06)."""
    values, vectors = np.linalg.eig(np.asarray(matrix, dtype=float))
    vector = np.real(vectors[:, np.argmin(np.abs(values - 1))])
    return vector / vector.sum()


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
    """Repeat Y <- Y P until no two models are further apart than `tolerance` (2.3).

    Parameters
    ----------
    models : array_like
        ``[D, d]``, or ``[D]`` numbers.
    matrix : array_like
        P ``[D, D]``.
    tolerance : float
        Largest distance, > 0.
    relative : bool, optional
        Whether `tolerance` is a part of the distance at the beginning.

    Raises
    ------
    ValueError
        `tolerance` is not positive, or the models do not come together.
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


def _rows(models: Any) -> Matrix:
    array = np.asarray(models, dtype=float)
    return array.reshape(len(array), -1)


def _shares(cluster_weight: ArrayLike | None, count: int) -> NDArray[np.float64]:
    m = np.full(count, 1 / count) if cluster_weight is None else np.asarray(cluster_weight, dtype=float)
    require(m.shape == (count,) and bool((m > 0).all()), "cluster_weight", cluster_weight, "a share > 0 per cluster")
    return m
