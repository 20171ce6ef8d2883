"""Formulas that the chapters and claims use, and no algorithm."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from fl_core.formulas.checks import require
from fl_core.formulas.fedluck import (
    PRINTED,
    Variant,
    job_seconds,
    key_convergence_factor,
    rounds_per_job,
    staleness_factor,
)

V = TypeVar("V", NDArray[Any], torch.Tensor)


def ceil_factor(
    local_steps: Any,
    compression_rate: Any,
    seconds_per_step: Any,
    full_upload_seconds: Any,
    period_seconds: Any,
    *,
    latency_seconds: Any = 0.0,
    variant: Variant = PRINTED,
) -> Any:
    """Return phi_ceil: `staleness_factor` with tau = ceil(d / T~), the staleness that occurs. An extension (3.8).

    Takes the arguments of `key_convergence_factor` (numbers and arrays only) and refuses the same values.
    """
    d = job_seconds(
        local_steps, compression_rate, seconds_per_step, full_upload_seconds, latency_seconds=latency_seconds
    )
    return staleness_factor(local_steps, compression_rate, rounds_per_job(d, period_seconds), variant)


class FactorGradient(NamedTuple):
    """Partial derivatives of phi."""

    local_steps: Any
    """d phi / d k."""
    compression_rate: Any
    """d phi / d delta."""


def factor_gradient(
    local_steps: Any,
    compression_rate: Any,
    seconds_per_step: Any,
    full_upload_seconds: Any,
    period_seconds: Any,
    *,
    latency_seconds: Any = 0.0,
    variant: Variant = PRINTED,
) -> FactorGradient:
    """Return the partial derivatives of `key_convergence_factor`, (L-c) and (L-d).

    Takes the same arguments and refuses the same values.
    """
    require(period_seconds > 0, "period_seconds", period_seconds, "> 0")
    k, delta, c, p = local_steps, compression_rate, variant.staleness_coefficient, variant.delta_power
    tau = (
        job_seconds(k, delta, seconds_per_step, full_upload_seconds, latency_seconds=latency_seconds) / period_seconds
    )
    phi = staleness_factor(k, delta, tau, variant)
    excess, slope = (2 - delta, -1) if variant.contraction == "printed" else (1, 0)
    by_steps = 2 * c * tau * excess * seconds_per_step / period_seconds
    by_rate = 2 * c * tau * excess * full_upload_seconds / period_seconds + slope * c * tau**2
    scale = k * delta**p
    return FactorGradient(by_steps / scale - phi / k, by_rate / scale - p * phi / delta)


def printed_supplement_factor(
    local_steps: Any, compression_rate: Any, seconds_per_step: Any, full_upload_seconds: Any
) -> Any:
    """Return [(k alpha + delta beta)^2 (2 - delta) + 1] / (k delta), the factor of the authors' supplement.

    It adds seconds² to 1: T~ is missing, so it is right for T~ = 1 s only; and p = 1 has no interior minimum (E9).
    Takes the first four arguments of `key_convergence_factor` and refuses the same values.
    """
    times = (seconds_per_step, full_upload_seconds)
    return key_convergence_factor(local_steps, compression_rate, *times, 1, variant=Variant(delta_power=1))


def round_staleness(round_index: int, last_round: int = -1) -> int:
    """Return tau = t - t', Eq. 7: rounds since the device last took part; one more than the versions missed (E1).

    Parameters
    ----------
    round_index : int
        t >= 0.
    last_round : int, optional
        t' < t, the last round with an upload of this device; -1 for its first upload.

    Raises
    ------
    ValueError
        `last_round` is not in -1 .. t - 1.
    """
    require(-1 <= last_round < round_index, "last_round", last_round, f"in -1..{round_index - 1}")
    return round_index - last_round


def momentum_step(weights: V, grad: V, velocity: V, local_lr: float, momentum: float = 0.9) -> tuple[V, V]:
    """Return the model and the velocity after one local step: v <- m v + grad, x <- x - eta_l v.

    Eq. 3 with the momentum of the experiments (A1); ``momentum=0`` is Eq. 3 as printed.

    Raises
    ------
    ValueError
        eta_l <= 0 or a momentum outside [0, 1).
    """
    require(local_lr > 0, "local_lr", local_lr, "> 0")
    require(0 <= momentum < 1, "momentum", momentum, "in [0, 1)")
    velocity = momentum * velocity + grad
    return weights - local_lr * velocity, velocity


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
