"""WKAFL's two theorems as numbers: Theorem 5.1 (Eq. 13), Theorem 5.3 (Eq. 14), their conditions and their rates.

Source: Zhou et al., "Towards Efficient and Stable K-Asynchronous Federated Learning ..." (IEEE TPDS, 2022), Section
5; indices and conditions corrected (E12 to E14, E16), the derivations are this book's (D10 to D13). E-n, D-n, (C1)
and (C2) are those of the project's specification.

Symbols: eta_j `lrs` ``[J]``; alpha `momentum_alpha` in [0, 1); L `smoothness`; sigma_c^2 / m `noise`; M_c / m
`noise_slope`; G^2 `dissimilarity_sq`; sigma_g^2 `est_error_sq`; sigma_e^2 and M_e `spread_var` and `spread_slope`; B
`stage2_clip_factor`; `gap` = F(w_1) - F*. Arrays with an entry for each update begin with j = 1.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq

from fl_core.formulas.checks import require

Floats = NDArray[np.float64]


def momentum_mass(num_iterations: int, momentum_alpha: float) -> Floats:
    """Return s_j = sum_{k <= j} alpha^(j - k) for j = 1 .. J; it tends to 1 / (1 - alpha).

    Raises
    ------
    ValueError
        An argument is out of range.
    """
    _require_momentum(num_iterations, momentum_alpha)
    return np.cumsum(float(momentum_alpha) ** np.arange(num_iterations))


def weighted_gradient_mean(lrs: ArrayLike, momentum_alpha: float, gradient_norms_sq: ArrayLike) -> float:
    """Return the left side of (13), 1/J sum_j eta_j s_j / 2 E ‖grad F(w_j)‖²; both arrays are ``[J]``."""
    eta = np.asarray(lrs, float)
    return float((eta * momentum_mass(len(eta), momentum_alpha) / 2 * np.asarray(gradient_norms_sq)).mean())


def noise_constants(
    momentum_alpha: float, smoothness: float, noise: float, sum_sq_weights: ArrayLike
) -> tuple[Floats, Floats]:
    """Return A_j and B_j of (13), ``[J]`` each.

    A_j = L / 2 (sigma_c^2 / m) s_j sum_{l <= j} alpha^(j-l) E sum_i p_{l,i}^2, and B_j = 2 L A_j.

    Parameters
    ----------
    momentum_alpha, smoothness, noise : float
        alpha, L > 0 and sigma_c^2 / m >= 0.
    sum_sq_weights : array_like
        E sum_i p_{j,i}^2 for each update, ``[J]``; 1 / K for equal weights.

    Raises
    ------
    ValueError
        An argument is out of range.
    """
    p2 = np.asarray(sum_sq_weights, float)
    s = momentum_mass(len(p2), momentum_alpha)
    require(smoothness > 0, "smoothness", smoothness, "> 0")
    require(noise >= 0, "noise", noise, ">= 0")
    a = smoothness / 2 * noise * s * (_decays(len(p2), momentum_alpha) @ p2)
    return a, 2 * smoothness * a


def theorem51_bound(
    lrs: ArrayLike,
    sum_sq_weights: ArrayLike,
    *,
    momentum_alpha: float,
    smoothness: float,
    noise: float,
    dissimilarity_sq: float,
    max_staleness: int,
    gap: float,
) -> float:
    """Return the right side of (13), with the sums over l ending at j (E14).

    It bounds `weighted_gradient_mean` under (C1), (C2), and weights that do not depend on the noise (E15).

    Raises
    ------
    ValueError
        An argument is out of range.
    """
    eta = np.asarray(lrs, float)
    require(max_staleness >= 0, "max_staleness", max_staleness, ">= 0")
    require(dissimilarity_sq >= 0, "dissimilarity_sq", dissimilarity_sq, ">= 0")
    require(gap >= 0, "gap", gap, ">= 0")
    a, b = noise_constants(momentum_alpha, smoothness, noise, sum_sq_weights)
    s, count = momentum_mass(len(eta), momentum_alpha), len(eta)
    j, first = np.arange(1, count + 1), np.maximum(1, np.arange(1, count + 1) - max_staleness)
    moved = np.concatenate([[0.0], np.cumsum(eta**2 * b)])  # of the updates before the index
    drift = (moved[j - 1][:, None] - moved[first - 1]) * (j[:, None] - first) * _decays(count, momentum_alpha)
    return float((a * eta**2 + eta * s * dissimilarity_sq + eta * drift.sum(1)).mean() + gap / count)


def lr_limit_noise(num_iterations: int, momentum_alpha: float, smoothness: float, noise_slope: float = 0.0) -> float:
    """Return the largest constant learning rate with (C1), eta_j <= 1 / (2 L s_j (1 + M_c / m)); print lacks s_j.

    Raises
    ------
    ValueError
        An argument is out of range.
    """
    _require_condition(smoothness, noise_slope)
    mass = float(momentum_mass(num_iterations, momentum_alpha)[-1])
    return 1 / (2 * smoothness * mass * (1 + noise_slope))


def lr_limit_staleness(
    num_iterations: int, momentum_alpha: float, max_staleness: int, smoothness: float = 1.0, noise_slope: float = 0.0
) -> float:
    """Return the largest constant learning rate with (C2); it hardly depends on J once J is above tau_max.

    For all k: L^2 (1 + M_c / m) sum_{j > k} eta_j sum_{l <= j} alpha^(j-l) (j - tau_l)
    sum_{t = max(tau_l, k)}^{j-1} eta_t^2 s_t alpha^(t-k) <= 1/4 sum_{j >= k} eta_j alpha^(j-k).

    Raises
    ------
    ValueError
        An argument is out of range.
    """
    _require_condition(smoothness, noise_slope)
    require(max_staleness >= 0, "max_staleness", max_staleness, ">= 0")
    s, count = momentum_mass(num_iterations, momentum_alpha), num_iterations
    j = np.arange(1, count + 1)
    first = np.maximum(1, j - max_staleness)
    spread = np.where(j[:, None] >= j, j[:, None] - first, 0) * _decays(count, momentum_alpha)
    limits = []
    for k in range(1, count):
        pulled = np.where(j >= k, s * float(momentum_alpha) ** np.maximum(j - k, 0), 0.0)
        sums = np.concatenate([[0.0], np.cumsum(pulled)])
        inner = np.maximum(sums[j - 1][:, None] - sums[np.maximum(first, k) - 1], 0.0)
        left = (spread * inner)[k:].sum()
        right = (float(momentum_alpha) ** np.arange(count - k + 1)).sum() / 4
        limits.append(np.sqrt(right / left) if left else np.inf)
    return float(min(limits, default=np.inf) / (smoothness * np.sqrt(1 + noise_slope)))


def printed_condition(
    num_iterations: int, momentum_alpha: float, max_staleness: int, lr: float, smoothness: float = 1.0
) -> float:
    """Return the left side of Theorem 5.1's second condition as printed, for M_c = 0, which should be below 1/4.

    L^2 sum_{t >= l} (J - tau_t) alpha^(-t) sum_{k = l}^t eta_k^2 s_k alpha^k, at the worst l = 1. It grows like
    alpha^(-J): the longer a run, the smaller the learning rate that it allows, and Remark 5.2 is empty (E13).

    Raises
    ------
    ValueError
        An argument is out of range, or alpha is 0.
    """
    _require_condition(smoothness, 0.0)
    require(momentum_alpha > 0, "momentum_alpha", momentum_alpha, "in (0, 1)")
    t = np.arange(1, num_iterations + 1)
    s = momentum_mass(num_iterations, momentum_alpha)
    pulled = np.cumsum(lr**2 * s * momentum_alpha**t)
    return float(
        smoothness**2 * ((num_iterations - np.maximum(1, t - max_staleness)) * momentum_alpha**-t * pulled).sum()
    )


def squared_delay_sum(momentum_alpha: Any, max_staleness: Any) -> Any:
    """Return sum_{r >= 0} alpha^r (r + tau)^2: staleness and momentum in Remark 5.2 (D11); also symbolic."""
    a, tau = momentum_alpha, max_staleness
    return tau**2 / (1 - a) + 2 * tau * a / (1 - a) ** 2 + a * (1 + a) / (1 - a) ** 3


class RateTerms(NamedTuple):
    """Bound on the mean of E ‖grad F(w_j)‖² for a constant learning rate and equal weights 1 / K (D11)."""

    progress: Any
    """2 gap / (eta J)."""
    noise: Any
    """Falls with K."""
    drift: Any
    """Of stale models, quadratic in eta; falls with K."""
    floor: Any
    """Of non-IID data; no learning rate and no K removes it."""

    @property
    def total(self) -> Any:
        """The bound."""
        return self.progress + self.noise + self.drift + self.floor


def remark52_terms(
    lr: Any,
    num_aggregated: Any,
    num_iterations: Any,
    *,
    momentum_alpha: Any,
    smoothness: Any,
    noise: Any,
    dissimilarity_sq: Any,
    max_staleness: Any,
    gap: Any,
) -> RateTerms:
    """Return Theorem 5.1 divided by eta / 2; with eta = sqrt(K / J) it is O(1/sqrt(K J) + 1/J + G^2).

    Remark 5.2, with the sums bounded by `squared_delay_sum` and s_j by 1 / (1 - alpha); takes numbers or symbols.
    """
    share = 1 - momentum_alpha
    each = noise / (num_aggregated * share**2)
    return RateTerms(
        2 * gap / (lr * num_iterations),
        lr * smoothness * each,
        2 * lr**2 * smoothness**2 * each * squared_delay_sum(momentum_alpha, max_staleness),
        2 * dissimilarity_sq / share,
    )


def estimate_constant(est_error_sq: Any, spread_var: Any, spread_slope: Any) -> Any:
    """Return C = sigma_g^2 + 2 M_e sigma_g^2 + sigma_e^2 of (14); sigma_g, not the clients' variance (E16)."""
    return est_error_sq + 2 * spread_slope * est_error_sq + spread_var


def drift_factor(
    later: int, earlier: int, between: int, *, momentum_alpha: float, smoothness: float, stage2_clip_factor: float
) -> float:
    """Return I_{l,k,t} = 3 L^2 B^2 s_t alpha^(l-k) (l - k) of (14), for l = `later`, k = `earlier`, t = `between`."""
    s = float(momentum_mass(between, momentum_alpha)[-1])
    return 3 * smoothness**2 * stage2_clip_factor**2 * s * momentum_alpha ** (later - earlier) * (later - earlier)


class Theorem53(NamedTuple):
    """(14): 1/J sum_j V_j ‖grad F(w_j)‖² is at most `bound` if all V_j >= 0 and eta_j <= 1 / (L s_j)."""

    coefficients: Floats
    """V_j, ``[J]``; none is below 0 only if M_e is at most about (1 - alpha) / 6 (E17)."""
    bound: float


def theorem53(
    lrs: ArrayLike,
    *,
    momentum_alpha: float,
    smoothness: float,
    stage2_clip_factor: float,
    est_error_sq: float,
    spread_var: float,
    spread_slope: float,
    gap: float,
) -> Theorem53:
    """Return V_j and the right side of (14). No staleness appears: (12) assumes it away (E19).

    Raises
    ------
    ValueError
        An argument is out of range.
    """
    eta = np.asarray(lrs, float)
    count = len(eta)
    s = momentum_mass(count, momentum_alpha)
    require(smoothness > 0, "smoothness", smoothness, "> 0")
    require(stage2_clip_factor > 0, "stage2_clip_factor", stage2_clip_factor, "> 0")
    for name, value in (("est_error_sq", est_error_sq), ("spread_var", spread_var), ("gap", gap)):
        require(value >= 0, name, value, ">= 0")
    require(spread_slope >= 0, "spread_slope", spread_slope, ">= 0")
    factor = 3 * smoothness**2 * stage2_clip_factor**2
    j = np.arange(1, count + 1)
    delays = np.concatenate([[0.0], np.cumsum(j * float(momentum_alpha) ** j)])  # sum of d alpha^d below the index
    # reach[l, t] = sum_{k <= t} alpha^(l-k) (l - k) for t < l: what moved in update t is felt in update l.
    reach = np.where(j[:, None] > j, delays[j - 1][:, None] - delays[np.maximum(j[:, None] - j - 1, 0)], 0.0)
    backward = _decays(count, momentum_alpha).T
    felt = eta**2 * s * (eta @ reach)
    v = eta * s / 2 - 3 * spread_slope * (backward @ eta) - factor * (backward @ felt)
    c = estimate_constant(est_error_sq, spread_var, spread_slope)
    drift = factor * est_error_sq * eta * (reach @ (eta**2 * s**2))
    return Theorem53(v, float((1.5 * eta * s * c + drift).mean() + gap / count))


def lr_limit_estimate(num_iterations: int, momentum_alpha: float, smoothness: float) -> float:
    """Return 1 / (L s_J), the largest constant learning rate of Theorem 5.3's first condition.

    Raises
    ------
    ValueError
        An argument is out of range.
    """
    _require_condition(smoothness, 0.0)
    return 1 / (smoothness * float(momentum_mass(num_iterations, momentum_alpha)[-1]))


def lr_limit_positive(num_iterations: int, **constants: Any) -> float:
    """Return the largest constant learning rate with min_j V_j >= 0, for the keyword arguments of `theorem53`.

    0 if even the smallest has a negative V_j: M_e is too large (E17).
    """

    def lowest(lr: float) -> float:
        return float(theorem53(np.full(num_iterations, lr), **constants).coefficients.min() / lr)

    high = lr_limit_estimate(num_iterations, constants["momentum_alpha"], constants["smoothness"])
    if lowest(high) >= 0:
        return high
    low = 1e-9 * high
    return float(brentq(lowest, low, high)) if lowest(low) > 0 else 0.0


def _decays(count: int, momentum_alpha: float) -> Floats:
    """Return alpha^(j - l) for l <= j and 0 above, ``[J, J]``."""
    power = np.subtract.outer(np.arange(count), np.arange(count))
    return np.where(power >= 0, float(momentum_alpha) ** np.maximum(power, 0), 0.0)


def _require_momentum(num_iterations: int, momentum_alpha: float) -> None:
    require(num_iterations >= 1, "num_iterations", num_iterations, ">= 1")
    require(0 <= momentum_alpha < 1, "momentum_alpha", momentum_alpha, "in [0, 1)")


def _require_condition(smoothness: float, noise_slope: float) -> None:
    require(smoothness > 0, "smoothness", smoothness, "> 0")
    require(noise_slope >= 0, "noise_slope", noise_slope, ">= 0")
