"""What staleness and alpha really do in FedAsync: exact results on quadratics, and a conservation law.

Nothing here is printed in the paper (Xie, Koyejo & Gupta, 2019); each result is derived in this book.

Symbols: alpha mixing weight, q or p what one local task leaves of the distance to the minimiser,
K `age` = t - tau = staleness + 1 of every arrival.
"""

from __future__ import annotations

import math

import numpy as np

from fl_core.formulas.checks import require


def mixing_characteristic(alpha: float, q: float, age: int) -> list[float]:
    """Return the coefficients of lambda^K - (1 - alpha) lambda^(K-1) - alpha q, highest power first. Derived.

    Its roots govern x_t = (1 - alpha) x_{t-1} + alpha q x_{t-K}: model mixing of arrivals K versions old.

    Parameters
    ----------
    alpha : float
        Mixing weight in (0, 1].
    q : float
        Local contraction, in [-1, 1].
    age : int
        K = staleness + 1 >= 1.

    Raises
    ------
    ValueError
        An argument is out of range.
    """
    return _characteristic(alpha, q, age, previous=1 - alpha, stale=alpha * q)


def delta_characteristic(alpha: float, q: float, age: int) -> list[float]:
    """Return the coefficients of lambda^K - lambda^(K-1) + alpha (1 - q), highest power first. Derived.

    Its roots govern x_t = x_{t-1} + alpha (q - 1) x_{t-K}: adding the stale device's difference instead.

    Parameters
    ----------
    alpha : float
        Server step, > 0.
    q : float
        Local contraction, in [-1, 1].
    age : int
        K = staleness + 1 >= 1.

    Raises
    ------
    ValueError
        An argument is out of range.
    """
    return _characteristic(alpha, q, age, previous=1.0, stale=-alpha * (1 - q))


def spectral_radius(coefficients: list[float]) -> float:
    """Return the largest modulus of a polynomial's roots: below 1 means that the recursion is stable."""
    return float(np.abs(np.roots(coefficients)).max())


def delta_stability_threshold(age: int) -> float:
    """Return 2 sin(pi / (2 (2 K - 1))): the delta form is stable iff 0 < alpha (1 - q) is below it. Derived.

    Parameters
    ----------
    age : int
        K = staleness + 1 >= 1.

    Raises
    ------
    ValueError
        `age` < 1.
    """
    require(age >= 1, "age", age, ">= 1 (staleness + 1)")
    return 2 * math.sin(math.pi / (2 * (2 * age - 1)))


def stationary_error(alpha: float, curvature: float, p: float, variance: float, max_staleness: int = 1) -> float:
    """Return lim E[F(x_t) - F_*] on a scalar quadratic with scattered minimisers and ages uniform on 1..K. Derived.

    For fresh models (K = 1) this is a/2 alpha^2 (1 - p)^2 Var(c) / (1 - (1 - alpha (1 - p))^2), for small alpha about
    a/4 alpha (1 - p) Var(c): it falls with alpha, which is what a decaying alpha is good for.

    Parameters
    ----------
    alpha : float
        Mixing weight in (0, 1].
    curvature : float
        a > 0.
    p : float
        What one local task leaves of the distance, (1 - gamma a)^H, in (-1, 1).
    variance : float
        Var(c) >= 0 of the clients' minimisers.
    max_staleness : int, optional
        K >= 1; each arrival has an age drawn from 1..K.

    Raises
    ------
    ValueError
        An argument is out of range.
    """
    require(0 < alpha <= 1, "alpha", alpha, "in (0, 1]")
    require(curvature > 0, "curvature", curvature, "> 0")
    require(-1 < p < 1, "p", p, "in (-1, 1)")
    require(variance >= 0, "variance", variance, ">= 0")
    require(max_staleness >= 1, "max_staleness", max_staleness, ">= 1")
    pull = alpha * (1 - p)
    if max_staleness == 1:
        return curvature / 2 * pull**2 * variance / (1 - (1 - pull) ** 2)
    return curvature / 2 * _stationary_covariance(alpha, p, pull**2 * variance, max_staleness)


def total_staleness(concurrency: int, num_updates: int) -> int:
    """Return (M - 1) N: staleness of all completed tasks plus that of the ones in flight. Derived.

    Holds after N updates whatever the devices' speeds when M tasks are always in flight, because every
    update makes each of the other M - 1 tasks older by one. So the mean staleness tends to M - 1.

    Parameters
    ----------
    concurrency : int
        M >= 1.
    num_updates : int
        N >= 0.

    Raises
    ------
    ValueError
        An argument is out of range.
    """
    require(concurrency >= 1, "concurrency", concurrency, ">= 1")
    require(num_updates >= 0, "num_updates", num_updates, ">= 0")
    return (concurrency - 1) * num_updates


def _characteristic(alpha: float, q: float, age: int, *, previous: float, stale: float) -> list[float]:
    require(alpha > 0, "alpha", alpha, "> 0")
    require(abs(q) <= 1, "q", q, "in [-1, 1]")
    require(age >= 1, "age", age, ">= 1 (staleness + 1)")
    coefficients = [1.0] + [0.0] * age
    coefficients[1] -= previous
    coefficients[age] -= stale
    return coefficients


def _stationary_covariance(alpha: float, p: float, noise: float, ages: int) -> float:
    """Return C_0 of x_t = (1 - alpha) x_{t-1} + alpha p x_{t-age} + noise, age uniform on 1..K.

    C_k = E x_t x_{t-k} solves C_k = (1 - alpha) C_{k-1} + alpha p mean_age C_{|k - age|} for k >= 1, and
    C_0 = [(1 - alpha)^2 + (alpha p)^2] C_0 + 2 alpha (1 - alpha) p mean_age C_{age - 1} + noise.
    """
    system, right = np.eye(ages), np.zeros(ages)
    right[0] = noise
    system[0, 0] -= (1 - alpha) ** 2 + (alpha * p) ** 2
    for age in range(1, ages + 1):
        system[0, age - 1] -= 2 * alpha * (1 - alpha) * p / ages
        for k in range(1, ages):
            system[k, abs(k - age)] -= alpha * p / ages
    for k in range(1, ages):
        system[k, k - 1] -= 1 - alpha
    return float(np.linalg.solve(system, right)[0])
