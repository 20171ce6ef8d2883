"""The two theorems of FedAsync: contraction factors, printed bounds and the repaired one (FA-8 to FA-12).

Source: Xie, Koyejo & Gupta, "Asynchronous Federated Optimization" (2019), Theorems 1 and 2; functions marked
"derived" are this book's. FA-n are this book's equation numbers.

Symbols: gamma `lr`, L smoothness, mu strong or weak convexity, rho `prox_rho`, H_min `min_local_steps`,
V1 `grad_deviation_bound`, V2 `grad_second_moment_bound`, T `num_updates`, Delta_0 = F(x_0) - F_*
`initial_gap`, q contraction of one local task, K `max_staleness` = largest t - tau (staleness <= K - 1).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from fl_core.formulas.checks import require
from fl_core.formulas.staleness import constant

Number = TypeVar("Number", float, NDArray[Any])
"""A number or an array; where the first argument is an array, the others may be arrays that broadcast with it."""


def q_option1(lr: Number, strong_convexity: Number | float, min_local_steps: Number | int) -> Number:
    """Return q = (1 - gamma mu)^H_min, what one plain local task leaves of the error (in FA-8).

    Parameters
    ----------
    lr : float
        gamma > 0 with gamma mu < 1 (Theorem 1 asks gamma < 1/L <= 1/mu).
    strong_convexity : float
        mu > 0.
    min_local_steps : int
        H_min >= 1.

    Raises
    ------
    ValueError
        An argument is out of range.
    """
    require(lr > 0, "lr", lr, "> 0")
    require(strong_convexity > 0, "strong_convexity", strong_convexity, "> 0")
    require(lr * strong_convexity < 1, "lr * strong_convexity", lr * strong_convexity, "< 1")
    require(min_local_steps >= 1, "min_local_steps", min_local_steps, ">= 1")
    return (1 - lr * strong_convexity) ** min_local_steps


def q_option2(
    lr: Number, prox_rho: Number | float, weak_convexity: Number | float, min_local_steps: Number | int
) -> Number:
    """Return q = [1 - gamma (rho - mu) / 2]^H_min, Theorem 2's factor (in FA-11).

    Not a rate at which anything converges: it falls with rho where the true factor rises (erratum E7).

    Parameters
    ----------
    lr : float
        gamma > 0 with gamma (rho - mu) < 2.
    prox_rho : float
        rho > mu.
    weak_convexity : float
        mu >= 0.
    min_local_steps : int
        H_min >= 1.

    Raises
    ------
    ValueError
        An argument is out of range.
    """
    r = _prox_modulus(lr, prox_rho, weak_convexity)
    require(min_local_steps >= 1, "min_local_steps", min_local_steps, ">= 1")
    return (1 - lr * r / 2) ** min_local_steps


def beta(alpha: Number, q: Number | float) -> Number:
    """Return beta = 1 - alpha + alpha q: FA-8 with `q_option1`, FA-11 with `q_option2`.

    Parameters
    ----------
    alpha : float
        Mixing weight in (0, 1].
    q : float
        Contraction of one local task, 0 <= q < 1.

    Raises
    ------
    ValueError
        An argument is out of range.
    """
    _require_alpha_q(alpha, q)
    return 1 - alpha + alpha * q


def residual(
    lr: Number,
    strong_convexity: Number | float,
    grad_deviation_bound: Number | float,
    grad_second_moment_bound: Number | float,
) -> Number:
    """Return R = (V1 + V2) / (2 gamma mu^2), the constant that Theorem 1 hides in O(V1 + V2) (FA-9).

    Parameters
    ----------
    lr : float
        gamma > 0.
    strong_convexity : float
        mu > 0.
    grad_deviation_bound : float
        V1 >= 0.
    grad_second_moment_bound : float
        V2 >= 0.

    Raises
    ------
    ValueError
        An argument is out of range.
    """
    require(lr > 0, "lr", lr, "> 0")
    _require_mu_v(strong_convexity, grad_deviation_bound, grad_second_moment_bound)
    return (grad_deviation_bound + grad_second_moment_bound) / (2 * lr * strong_convexity**2)


def residual_tight(
    q: float, strong_convexity: float, grad_deviation_bound: float, grad_second_moment_bound: float
) -> float:
    """Return ((1 - q) V1 + q V2) / (2 mu (1 - q)): the same chain without its last two estimates.

    Valid when every task makes H_min steps, q = (1 - gamma mu)^H_min. Derived.

    Parameters
    ----------
    q : float
        Contraction of one local task, 0 <= q < 1.
    strong_convexity : float
        mu > 0.
    grad_deviation_bound : float
        V1 >= 0.
    grad_second_moment_bound : float
        V2 >= 0.

    Raises
    ------
    ValueError
        An argument is out of range.
    """
    _require_q(q)
    _require_mu_v(strong_convexity, grad_deviation_bound, grad_second_moment_bound)
    noise = (1 - q) * grad_deviation_bound + q * grad_second_moment_bound
    return noise / (2 * strong_convexity * (1 - q))


def printed_bound(
    num_updates: Number, initial_gap: Number | float, beta: Number | float, residual: Number | float
) -> Number:
    """Return beta^T Delta_0 + (1 - beta^T) R: both theorems' bound on E[F(x_T) - F_*], FA-9 and FA-12.

    It never falls below Delta_0 when R >= Delta_0, which the theorems' own assumptions force (erratum E4).

    Parameters
    ----------
    num_updates : float or ndarray
        T >= 0, a whole number.
    initial_gap : float
        Delta_0 >= 0.
    beta : float
        Contraction of one update, `beta`.
    residual : float
        `residual`, `residual_tight` or `Theorem2.residual`.

    Raises
    ------
    ValueError
        `num_updates` or `initial_gap` is negative.
    """
    _require_gap(num_updates, initial_gap)
    return beta**num_updates * initial_gap + (1 - beta**num_updates) * residual


def contraction_root(alpha: float, q: float, age: int) -> float:
    """Return lambda(alpha, q, kappa): the root in (0, 1) of lambda^k = (1 - alpha) lambda^(k-1) + alpha q.

    How much of the error one update leaves when every arrival is kappa versions old. It lies between
    beta and beta^(1/kappa), with equality at kappa = 1. Part of FA-10, derived.

    Parameters
    ----------
    alpha : float
        Mixing weight in (0, 1].
    q : float
        Contraction of one local task, 0 <= q < 1.
    age : int
        kappa = staleness + 1 = t - tau >= 1.

    Raises
    ------
    ValueError
        An argument is out of range.
    """
    low = beta(alpha, q)
    require(age >= 1, "age", age, ">= 1 (staleness + 1)")
    high = low ** (1 / age)
    if age == 1 or low == high:
        return low

    def excess(x: float) -> float:
        return x ** (age - 1) * (x - (1 - alpha)) - alpha * q

    if excess(high) <= 0 or excess(low) >= 0:  # the root is an end of the interval up to rounding
        return low if abs(excess(low)) <= abs(excess(high)) else high
    return float(brentq(excess, low, high, xtol=1e-15, rtol=4 * np.finfo(float).eps))


def adaptive_rate(alpha: float, q: float, max_staleness: int, weight: Callable[[float], float] = constant) -> float:
    """Return lambda_* = max over staleness d < K of lambda(alpha s(d), q, d + 1), the rate in FA-10. Derived.

    Parameters
    ----------
    alpha : float
        Mixing hyperparameter in (0, 1]; its smallest value if it also decays in time.
    q : float
        Contraction of one local task, 0 <= q < 1.
    max_staleness : int
        K >= 1, the largest t - tau (missed updates go from 0 to K - 1).
    weight : callable, optional
        Staleness function s, given missed updates.

    Raises
    ------
    ValueError
        An argument is out of range.
    """
    require(max_staleness >= 1, "max_staleness", max_staleness, ">= 1")
    return max(contraction_root(alpha * weight(d), q, d + 1) for d in range(max_staleness))


def derived_bound(
    num_updates: Number, initial_gap: float, rate: float, strong_convexity: float, grad_deviation_bound: float
) -> Number:
    """Return V1/(2 mu) + rate^T max(0, Delta_0 - V1/(2 mu)): the repaired Theorem 1, FA-10. Derived.

    Needs no V2 and no constant alpha; staleness enters through the rate.

    Parameters
    ----------
    num_updates : float or ndarray
        T >= 0, a whole number.
    initial_gap : float
        Delta_0 >= 0.
    rate : float
        Contraction per update in [0, 1), from `contraction_root` or `adaptive_rate`.
    strong_convexity : float
        mu > 0.
    grad_deviation_bound : float
        V1 >= 0.

    Raises
    ------
    ValueError
        An argument is out of range.
    """
    _require_gap(num_updates, initial_gap)
    require(0 <= rate < 1, "rate", rate, "in [0, 1)")
    _require_mu_v(strong_convexity, grad_deviation_bound, 0.0)
    floor = grad_deviation_bound / (2 * strong_convexity)
    return floor + rate**num_updates * max(0.0, initial_gap - floor)


class Theorem2(NamedTuple, Generic[Number]):
    """Constants of Theorem 2 (FA-12)."""

    c1: Number
    """C1 = gamma V1 + 6 gamma rho^2 V2 / r^2, what one local step adds; r = rho - mu."""
    c2: Number
    """C2 = 2 C1 / (gamma r) + 2 rho V2 / r^2 + V2 / (2 r), what one update adds."""
    residual: Number
    """2 C2 / (gamma r), where the bound ends."""


def theorem2_constants(
    lr: Number,
    prox_rho: Number | float,
    weak_convexity: Number | float,
    grad_deviation_bound: Number | float,
    grad_second_moment_bound: Number | float,
) -> Theorem2[Number]:
    """Return C1, C2 and the residual 2 C2 / (gamma (rho - mu)) of Theorem 2, FA-12.

    Parameters
    ----------
    lr : float
        gamma > 0 with gamma (rho - mu) < 2.
    prox_rho : float
        rho > mu.
    weak_convexity : float
        mu >= 0.
    grad_deviation_bound : float
        V1 >= 0.
    grad_second_moment_bound : float
        V2 >= 0, of the regularised gradient.

    Raises
    ------
    ValueError
        An argument is out of range.
    """
    r = _prox_modulus(lr, prox_rho, weak_convexity)
    _require_mu_v(r, grad_deviation_bound, grad_second_moment_bound)
    v1, v2 = grad_deviation_bound, grad_second_moment_bound
    c1 = lr * v1 + 6 * lr * prox_rho**2 * v2 / r**2
    c2 = 2 * c1 / (lr * r) + 2 * prox_rho * v2 / r**2 + v2 / (2 * r)
    return Theorem2(c1, c2, 2 * c2 / (lr * r))


def _prox_modulus(lr: Any, prox_rho: Any, weak_convexity: Any) -> Any:
    """Return r = rho - mu, the strong convexity of the regularised loss."""
    require(lr > 0, "lr", lr, "> 0")
    require(weak_convexity >= 0, "weak_convexity", weak_convexity, ">= 0")
    r = prox_rho - weak_convexity
    require(r > 0, "prox_rho", prox_rho, f"> weak_convexity = {weak_convexity}")
    require(lr * r < 2, "lr", lr, "< 2 / (prox_rho - weak_convexity)")
    return r


def _require_q(q: Any) -> None:
    require(q >= 0, "q", q, "in [0, 1)")
    require(q < 1, "q", q, "in [0, 1)")


def _require_alpha_q(alpha: Any, q: Any) -> None:
    require(alpha > 0, "alpha", alpha, "in (0, 1]")
    require(alpha <= 1, "alpha", alpha, "in (0, 1]")
    _require_q(q)


def _require_mu_v(mu: Any, v1: Any, v2: Any) -> None:
    require(mu > 0, "strong_convexity", mu, "> 0")
    require(v1 >= 0, "grad_deviation_bound", v1, ">= 0")
    require(v2 >= 0, "grad_second_moment_bound", v2, ">= 0")


def _require_gap(num_updates: Any, initial_gap: Any) -> None:
    require(np.greater_equal(num_updates, 0), "num_updates", num_updates, ">= 0")
    require(initial_gap >= 0, "initial_gap", initial_gap, ">= 0")
