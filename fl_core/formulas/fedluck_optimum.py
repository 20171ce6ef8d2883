"""The continuous minimum of FedLuck's key convergence factor in closed form (L-e to L-h, E10).

Source: FedLuck (Song et al., Euro-Par 2024), Eqs. 14 and 15; everything here is derived in this book. Up to the unit
of k only r = beta / T~, `comm_ratio`, matters: with kappa = k alpha / T~, phi T~ / alpha is
[(kappa + r delta)^2 (2 - delta) + 1] / (kappa sqrt(delta)). Symbols as in `fedluck`; c and p are `Variant`'s.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fl_core.formulas.checks import require
from fl_core.formulas.fedluck import PRINTED, Variant

Array = NDArray[np.float64]

MIN_INTERIOR_RATIO = 1 / np.sqrt(768 / 3125)
"""r_min = 2.0172: phi has stationary points iff r is at least this (printed constants)."""

COMPRESSION_THRESHOLD = 3.1134694450445247
"""r_0: below it the minimum of phi is at delta = 1, above it at delta <= 0.165 (printed constants)."""


class Optimum(NamedTuple):
    """A stationary point or a minimum of phi in units of the period, each an array like r."""

    kappa: Array
    """k alpha / T~."""
    compression_rate: Array
    """delta."""
    rounds: Array
    """d / T~ = kappa + r delta."""
    factor: Array
    """phi T~ / alpha."""


def joint_optimum(comm_ratio: Any, variant: Variant = PRINTED) -> Optimum:
    """Return the global minimum of phi over k > 0 and 0 < delta <= 1.

    Printed form (p = 1/2): the better of `interior_minimum` and `uncompressed_minimum`. Tight form: the one
    stationary point delta r = p kappa, kappa = 1 / sqrt(c (1 - p^2)), or delta = 1 where that exceeds 1.

    Parameters
    ----------
    comm_ratio : float or ndarray
        r > 0.
    variant : Variant, optional
        c and p; p must be 1/2 in the printed form and below 1 in the tight form (p = 1 has no stationary point).

    Raises
    ------
    ValueError
        An argument is out of range.
    """
    r, end = np.asarray(comm_ratio, dtype=np.float64), uncompressed_minimum(comm_ratio, variant)
    if variant.contraction == "tight":
        c, p = variant.staleness_coefficient, variant.delta_power
        require(p < 1, "delta_power", p, "< 1: with 1 there is no stationary point")
        kappa = np.full_like(r, 1 / np.sqrt(c * (1 - p**2)))
        delta = np.minimum(p * kappa / r, 1.0)
        inside = _optimum(r, kappa, delta, variant)
        better = delta < 1
    else:
        inside = interior_minimum(r, variant)
        better = inside.factor < end.factor  # false where there is no interior minimum (NaN)
    return Optimum(*(np.where(better, x, y) for x, y in zip(inside, end, strict=True)))


def uncompressed_minimum(comm_ratio: Any, variant: Variant = PRINTED) -> Optimum:
    """Return the minimum of phi on the edge delta = 1: kappa = sqrt(r^2 + 1/c), printed and tight alike.

    Raises
    ------
    ValueError
        r <= 0.
    """
    require(np.greater(comm_ratio, 0), "comm_ratio", comm_ratio, "> 0")
    r = np.asarray(comm_ratio, dtype=np.float64)
    return _optimum(r, best_steps(1.0, 1.0, r, 1.0, variant=variant), np.ones_like(r), variant)


def interior_minimum(comm_ratio: Any, variant: Variant = PRINTED) -> Optimum:
    """Return the one local minimum of the printed phi inside 0 < delta < 1: delta_1 <= 2/5 of (L-h), NaN if none.

    Raises
    ------
    ValueError
        r <= 0, or the variant is tight or has p other than 1/2.
    """
    return _stationary(comm_ratio, variant, low=0.0, high=0.4)


def saddle_point(comm_ratio: Any, variant: Variant = PRINTED) -> Optimum:
    """Return the other stationary point of the printed phi, a saddle: delta_2 in [2/5, 2/3) of (L-h), NaN if none.

    Raises
    ------
    ValueError
        As `interior_minimum`.
    """
    return _stationary(comm_ratio, variant, low=2 / 3, high=0.4)


def stationary_kappa(compression_rate: Any, comm_ratio: Any, delta_power: Any = 0.5) -> Any:
    """Return kappa of a stationary point: r delta (4 - 3 delta) / [4 p + delta (1 - 2 p)]; (L-g) for p = 1/2.

    Parameters
    ----------
    compression_rate : float or ndarray
        delta in (0, 1].
    comm_ratio : float or ndarray
        r >= 0.
    delta_power : float, optional
        p in (0, 1].
    """
    delta, p = compression_rate, delta_power
    return comm_ratio * delta * (4 - 3 * delta) / (4 * p + delta * (1 - 2 * p))


def stationary_inverse_ratio(compression_rate: Any, variant: Variant = PRINTED) -> Any:
    """Return 1/r^2 of the printed factor's stationary point at delta, (L-h); none exists where it is not positive.

    4 c (1 + p) delta^2 (2 - delta)^2 [2 (1 - p) - delta (2 - p)] / [4 p + delta (1 - 2 p)]^2; for p = 1/2 this is
    3/4 c delta^2 (2 - delta)^2 (2 - 3 delta), for p = 1 it is negative: nothing between no and full compression (E9).

    Raises
    ------
    ValueError
        The variant is tight.
    """
    require(variant.contraction == "printed", "contraction", variant.contraction, "'printed'")
    delta, c, p = compression_rate, variant.staleness_coefficient, variant.delta_power
    bracket = 2 * (1 - p) - delta * (2 - p)
    return 4 * c * (1 + p) * delta**2 * (2 - delta) ** 2 * bracket / (4 * p + delta * (1 - 2 * p)) ** 2


def hessian_determinant(compression_rate: Any) -> Any:
    """Return the Hessian's determinant in (kappa, delta) at a stationary point of the printed factor, c = 1.

    18 (2 - delta)^2 (2 - 5 delta) / [delta^3 (4 - 3 delta)^2]: a minimum below delta = 2/5, a saddle above.
    """
    delta = compression_rate
    return 18 * (2 - delta) ** 2 * (2 - 5 * delta) / (delta**3 * (4 - 3 * delta) ** 2)


def best_steps(
    compression_rate: Any,
    seconds_per_step: Any,
    full_upload_seconds: Any,
    period_seconds: Any,
    *,
    latency_seconds: Any = 0.0,
    variant: Variant = PRINTED,
) -> Any:
    """Return k*(delta) = sqrt((delta beta + l)^2 + T~^2 / [c (2 - delta)]) / alpha, (L-f); independent of p.

    phi(., delta) is strictly convex, so the best whole k is next to it. Takes the arguments of
    `fedluck.key_convergence_factor` after k (numbers, arrays or SymPy symbols).

    Raises
    ------
    ValueError
        delta outside (0, 1], alpha <= 0 or T~ <= 0.
    """
    delta = compression_rate
    require(delta > 0, "compression_rate", delta, "in (0, 1]")
    require(delta <= 1, "compression_rate", delta, "in (0, 1]")
    require(seconds_per_step > 0, "seconds_per_step", seconds_per_step, "> 0")
    require(period_seconds > 0, "period_seconds", period_seconds, "> 0")
    excess = 2 - delta if variant.contraction == "printed" else 1
    squared = (delta * full_upload_seconds + latency_seconds) ** 2
    return (squared + period_seconds**2 / (variant.staleness_coefficient * excess)) ** 0.5 / seconds_per_step


class RatePolynomial(NamedTuple):
    """a_3 delta^3 + a_2 delta^2 + a_1 delta + a_0, positive where phi falls in delta."""

    cubic: Any
    quadratic: Any
    linear: Any
    constant: Any


def rate_polynomial(kappa: Any, comm_ratio: Any, variant: Variant = PRINTED) -> RatePolynomial:
    """Return the polynomial of (L-e) over T~^2: -d phi / d delta times something positive.

    It is positive at 0 and has no or two positive roots (one in the tight form), so that its smallest positive root
    is the only local minimum of phi(k, .) in delta > 0. For p = 1/2 it is half of (L-e), [5 r^2, 6 r (kappa - r),
    kappa (kappa - 4 r), 2 kappa^2 + 1] / 2.

    Parameters
    ----------
    kappa : float or ndarray
        (k alpha + l) / T~ >= 0.
    comm_ratio : float or ndarray
        r >= 0.
    variant : Variant, optional
        c, p and the form.

    Raises
    ------
    ValueError
        An argument is out of range.
    """
    require(kappa >= 0, "kappa", kappa, ">= 0")
    require(comm_ratio >= 0, "comm_ratio", comm_ratio, ">= 0")
    r, c, p = comm_ratio, variant.staleness_coefficient, variant.delta_power
    if variant.contraction == "tight":
        return RatePolynomial(0 * r, (p - 2) * r**2, 2 * (p - 1) * kappa * r, p * (kappa**2 + 1 / c))
    return RatePolynomial(
        (3 - p) * r**2,
        (4 - 2 * p) * r * (kappa - r),
        (1 - p) * kappa * (kappa - 4 * r),
        p * (2 * kappa**2 + 1 / c),
    )


def _stationary(comm_ratio: Any, variant: Variant, low: float, high: float) -> Optimum:
    """Return the root of (L-h) between `low`, where its left side is 0, and `high`, where it is largest."""
    require(np.greater(comm_ratio, 0), "comm_ratio", comm_ratio, "> 0")
    require(variant.delta_power == 0.5, "delta_power", variant.delta_power, "1/2 for the closed form")
    r = np.asarray(comm_ratio, dtype=np.float64)
    below, above = np.full_like(r, low), np.full_like(r, high)
    for _ in range(120):  # bisection down to neighbouring floats, also near 0
        middle = (below + above) / 2
        small = stationary_inverse_ratio(middle, variant) < 1 / r**2
        below, above = np.where(small, middle, below), np.where(small, above, middle)
    delta = np.where(stationary_inverse_ratio(high, variant) >= 1 / r**2, above, np.nan)
    return _optimum(r, stationary_kappa(delta, r), delta, variant)


def _optimum(r: Array, kappa: Array, delta: Array, variant: Variant) -> Optimum:
    rounds = kappa + r * delta
    stale = variant.staleness_coefficient * rounds**2
    if variant.contraction == "printed":
        stale = stale * (2 - delta)
    return Optimum(kappa, delta, rounds, (stale + 1) / (kappa * delta**variant.delta_power))
