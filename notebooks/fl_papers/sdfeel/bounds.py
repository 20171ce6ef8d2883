"""Lemma 3 and Theorem 1 of asynchronous SD-FEEL as numbers, as printed and as they follow, and what replaces them.

Source: Sun et al. (IEEE ICC 2022), Eqs. 13 to 16; E-n and D-n are those of this project's specification. "derived"
constants follow the steps of the paper's own sketch; Lemma 2 and Theorem 1 hold only for the objective that the
algorithm really minimises (E-10, E-11, D11), with :func:`~fl_papers.sdfeel.lemmas.lemma2_bound` and
:func:`surrogate_bound`.

Symbols: eta `lr`, L `smoothness`, tau_max and tau_min `tau_max`, `tau_min` (their ratio `gap` stands for H, E-09),
x = eta^2 L^2 U_2, sigma^2 `noise`, kappa^2 `dissimilarity`, sum_i m_i^2 `square_weights`, rho_{s,k-1} the distance
of P_s ... P_{k-1} from exact averaging.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fl_core.formulas.checks import require
from fl_papers.sdfeel.lemmas import step_ratio

Variant = Literal["derived", "printed"]


class MixingSums(NamedTuple):
    """The sums over mixing errors in Lemma 3."""

    squares: Any
    """1/K sum_k sum_s rho_{s,k-1}^2."""
    squared_sums: Any
    """1/K sum_k (sum_s rho_{s,k-1})^2."""
    products: Any
    """max_s sum_{k>s} rho_{s,k-1} sum_l rho_{l,k-1}."""


def mixing_errors(matrices: ArrayLike, limit: ArrayLike | None = None) -> NDArray[np.float64]:
    """Return rho ``[K, K]`` with rho_{s,k-1} at ``[s, k]`` for s < k and 0 elsewhere.

    Parameters
    ----------
    matrices : array_like
        P_0 to P_{K-2} ``[K - 1, D, D]``.
    limit : array_like, optional
        ``[D]``, the vector v of exact averaging v 1^T (E-15); uniform by default.
    """
    matrices = np.asarray(matrices, dtype=float)
    count, servers = len(matrices) + 1, matrices.shape[-1]
    v = np.full(servers, 1 / servers) if limit is None else np.asarray(limit, dtype=float)
    average, rho = np.outer(v, np.ones(servers)), np.zeros((count, count))
    products = np.tile(np.eye(servers), (count, 1, 1))
    for k in range(1, count):
        products[:k] = products[:k] @ matrices[k - 1]
        rho[:k, k] = np.linalg.norm(products[:k] - average, 2, axis=(1, 2))
    return rho


def constant_mixing_errors(zeta: float, count: int) -> NDArray[np.float64]:
    """Return rho ``[K, K]`` of a constant symmetric matrix: zeta^(k - s)."""
    lag = np.arange(count)[None, :] - np.arange(count)[:, None]
    return np.where(lag > 0, float(zeta) ** np.maximum(lag, 0), 0.0)


def mixing_error_sums(rho: ArrayLike) -> MixingSums:
    """Return the sums of Lemma 3 for rho ``[K, K]`` as :func:`mixing_errors` makes it."""
    rho = np.asarray(rho, dtype=float)
    sums = rho.sum(0)
    return MixingSums(
        float((rho**2).sum() / len(rho)), float((sums**2).sum() / len(rho)), float((rho * sums).sum(1).max())
    )


def window_contraction(matrices: ArrayLike, window: int) -> float:
    """Return rho_W, the largest distance from uniform averaging of a product of `window` successive matrices (D5).

    Parameters
    ----------
    matrices : array_like
        ``[K, D, D]``, K >= `window`.
    window : int
        W = delta_max + 1: in so many events every cluster is the trigger at least once.
    """
    matrices = np.asarray(matrices, dtype=float)
    average = np.full(matrices.shape[1:], 1 / matrices.shape[-1])
    products = (reduce(np.matmul, matrices[s : s + window]) for s in range(len(matrices) - window + 1))
    return max(float(np.linalg.norm(product - average, 2)) for product in products)


def window_sum_bound(window: int, contraction: float) -> float:
    """Return W / (1 - rho_W), a bound on sum_s rho_{s,k-1} for matrices of asynchronous events (D5).

    Raises
    ------
    ValueError
        rho_W is not in [0, 1).
    """
    require(0 <= contraction < 1, "contraction", contraction, "in [0, 1)")
    return window / (1 - contraction)


def printed_sum_bound(second_eigenvalue: float) -> float:
    """Return 1 / (1 - rho_max); infinite for every asynchronous event that leaves a server out (E-14)."""
    return float("inf") if second_eigenvalue >= 1 - 1e-12 else 1 / (1 - second_eigenvalue)


class Constants(NamedTuple):
    """What Lemma 3 and Theorem 1 are made of."""

    A: Any
    """Factor of sigma^2."""
    B: Any
    """Factor of kappa^2."""
    C: Any
    """Factor of J."""
    U1: Any
    U2: Any
    U3: Any
    U4: Any
    x: Any
    """eta^2 L^2 U_2."""


def constants(
    lr: Any,
    smoothness: Any,
    tau_max: Any,
    gap: Any,
    delta_max: Any,
    sums: MixingSums,
    num_iterations: Any = None,
    *,
    variant: Variant = "derived",
) -> Constants:
    """Return the constants of Lemma 3 and U_1 of Theorem 1.

    Parameters
    ----------
    lr, smoothness : float
        eta > 0 and L > 0.
    tau_max : int
        >= 1.
    gap : float
        H = tau_max / tau_min >= 1.
    delta_max : int
        >= 0.
    sums : MixingSums
    num_iterations : int, optional
        K, by which the printed C divides (E-13).
    variant : {"derived", "printed"}, optional
        "printed" has other powers of tau_max in B and C (E-13), and a smaller factor in U_1 (E-12).

    Raises
    ------
    ValueError
        An argument is out of range.
    """
    require(lr > 0, "lr", lr, "> 0")
    require(smoothness > 0, "smoothness", smoothness, "> 0")
    require(tau_max >= 1, "tau_max", tau_max, ">= 1")
    require(gap >= 1, "gap", gap, ">= 1")
    require(delta_max >= 0, "delta_max", delta_max, ">= 0")
    require(variant in ("derived", "printed"), "variant", variant, "'derived' or 'printed'")
    e, t, U2 = lr**2 * smoothness**2, tau_max, tau_max * (tau_max - 1)
    x = e * U2
    U3, U4 = (1 + 4 * x) / (1 - 2 * x), (1 + 22 * x) / (1 - 2 * x)
    A = 4 * e * delta_max**2 * t * gap * U4 + 4 * e * (t - 1) / (1 - 2 * x) + 8 * e * t * gap * U3 * sums.squares
    drift = 24 * x / (1 - 2 * x)
    if variant == "derived":
        B = 8 * e * delta_max**2 * t**2 * U4 + drift + 16 * e * t**2 * U3 * sums.squared_sums
        C = 8 * e * delta_max**2 * t**2 * U4 + 16 * e * t**2 * U3 * sums.products
        return Constants(A, B, C, (1 - 50 * x) / (1 - 2 * x), U2, U3, U4, x)
    require(num_iterations is not None, "num_iterations", num_iterations, "given for the printed constants")
    B = 8 * e * delta_max**2 * t * gap * U4 + drift + 16 * e * t * gap * U3 * sums.squared_sums
    C = 8 * e * delta_max**2 * t * U4 + 16 * e * t**2 * U3 * sums.products / num_iterations
    return Constants(A, B, C, (1 - 14 * x) / (1 - 2 * x), U2, U3, U4, x)


class Conditions(NamedTuple):
    """What has to be >= 0, > 0 and > 0 for Theorem 1."""

    step: Any
    """1 - eta L H tau_max - C, Eq. 15."""
    drift: Any
    """1 - 2 x, Eq. 15."""
    leading: Any
    """U_1, by which Eq. 16 divides (E-16)."""

    @property
    def hold(self) -> bool:
        """Whether the theorem applies."""
        return bool(self.step >= 0 and self.drift > 0 and self.leading > 0)


def conditions(lr: Any, smoothness: Any, tau_max: Any, gap: Any, found: Constants) -> Conditions:
    """Return the left sides of the conditions of Theorem 1, Eq. 15 and E-16."""
    return Conditions(1 - lr * smoothness * gap * tau_max - found.C, 1 - 2 * found.x, found.U1)


class BoundTerms(NamedTuple):
    """The terms of Eq. 16."""

    progress: Any
    """Falls with K."""
    noise: Any
    """Of the aggregated updates."""
    drift_noise: Any
    """A sigma^2 / U_1."""
    dissimilarity: Any
    """B kappa^2 / U_1."""

    @property
    def total(self) -> Any:
        """The right side of Eq. 16."""
        return self.progress + self.noise + self.drift_noise + self.dissimilarity


def theorem1_bound(
    found: Constants,
    *,
    lr: Any,
    smoothness: Any,
    tau_max: Any,
    tau_min: Any,
    num_iterations: Any,
    decrease: Any,
    noise: Any,
    dissimilarity: Any,
    square_weights: Any,
) -> BoundTerms:
    """Return the terms of Theorem 1, Eq. 16.

    It does not hold for grad F if clusters make different effective numbers of steps (E-11).

    Parameters
    ----------
    found : Constants
        Of the same setting.
    lr, smoothness, tau_max, tau_min : float
        tau_min >= 1 may be below the integers, as tau_max / H.
    num_iterations : int
        K >= 1.
    decrease : float
        E F(y_0) - E F(y_K).
    noise, dissimilarity : float
        sigma^2 and kappa^2.
    square_weights : float
        sum_i m_i^2.

    Raises
    ------
    ValueError
        tau_min or K is out of range.
    """
    gap = step_ratio(tau_max, tau_min)
    return surrogate_bound(
        found,
        lr=lr,
        smoothness=smoothness,
        tau_max=tau_max,
        tau_min=tau_max / gap,
        effective_steps=tau_min,
        num_iterations=num_iterations,
        decrease=decrease,
        noise=noise,
        dissimilarity=dissimilarity,
        square_weights=square_weights,
    )


def surrogate_bound(
    found: Constants,
    *,
    lr: Any,
    smoothness: Any,
    tau_max: Any,
    tau_min: Any,
    effective_steps: Any,
    num_iterations: Any,
    decrease: Any,
    noise: Any,
    dissimilarity: Any,
    square_weights: Any,
) -> BoundTerms:
    """Return the terms of what replaces Theorem 1, for the gradient of the surrogate objective (D11).

    As :func:`theorem1_bound`, with tau_eff = sum_d m-tilde_d tau-bar_d in place of tau_min in the first term and
    eta L tau_max H / tau_eff in the second. `decrease` is that of the surrogate objective.

    Raises
    ------
    ValueError
        As there.
    """
    gap = step_ratio(tau_max, tau_min)
    require(num_iterations >= 1, "num_iterations", num_iterations, ">= 1")
    require(effective_steps > 0, "effective_steps", effective_steps, "> 0")
    return BoundTerms(
        2 * decrease / (lr * effective_steps * found.U1 * num_iterations),
        lr * smoothness * tau_max * gap / effective_steps * square_weights * noise / found.U1,
        found.A * noise / found.U1,
        found.B * dissimilarity / found.U1,
    )


def surrogate_weights(
    effective_steps: ArrayLike, iteration_seconds: ArrayLike, cluster_weight: Sequence[float] | None = None
) -> NDArray[np.float64]:
    """Return omega ``[D]``, the weights of the clusters' objectives in what is really minimised (D10).

    Parameters
    ----------
    effective_steps, iteration_seconds : array_like
        tau-bar_d and T_iter of each cluster: in equal times a faster one moves the mean more.
    cluster_weight : sequence of float, optional
        m-tilde_d, with mixing that keeps the data-weighted mean; with Eq. 5 data sizes play no part.
    """
    pace = np.asarray(effective_steps, dtype=float) / np.asarray(iteration_seconds, dtype=float)
    if cluster_weight is not None:
        pace = pace * np.asarray(cluster_weight, dtype=float)
    return pace / pace.sum()
