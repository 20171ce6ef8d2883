"""FedLuck's theory: accounting, the optimum of the factor, Theorem 1 and Corollary 1, their proofs on toys.

Source: FedLuck (Song et al., Euro-Par 2024), Eqs. 12 and 13, Table 1, the authors' proof supplement and public code;
functions marked "derived" are this book's. (L-x), E-n and section numbers are those of the project's specification.

Symbols: eta_l `local_lr`, eta_g `global_lr`, k `local_steps`, T `num_rounds`, delta `compression_rate`, tau_max
`max_staleness` (by Eq. 7), L `smoothness`, M = sigma^2 + zeta^2 + G^2, B_1 = 18 M, B_2 = 6 (sigma^2 + zeta^2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from fl_core.algorithms.base import mean_step
from fl_core.formulas import fedluck
from fl_core.formulas.checks import Chains, inequalities, require, require_range, violations
from fl_core.formulas.compression import top_k
from fl_core.formulas.fedluck import PRINTED, Variant, job_seconds, key_convergence_factor, staleness_factor

# Seconds and gigabytes: how Table 1 counts, and what its numbers follow from (2.8, 6.4). Counted are uploads alone,
# at delta times the model's float32 size: no indices, headers, downloads; time starts at the first aggregation

BYTES_PER_PARAMETER = 4
BYTES_PER_GB = 2**30  # What the paper calls GB.


class Totals(NamedTuple):
    """A point of a published curve."""

    elapsed_seconds: Any  # Since the first aggregation.
    gigabytes: Any  # 2^30 bytes uploaded, the first aggregation's included.


def upload_bytes(compression_rate: Any, num_parameters: Any) -> Any:
    """Return 4 delta d, the bytes that one upload counts; need not be whole."""
    require_range("in (0, 1]", compression_rate=compression_rate)
    require_range(">= 1", num_parameters=num_parameters)
    return compression_rate * BYTES_PER_PARAMETER * num_parameters


def synchronous_round_seconds(
    local_steps: Any, compression_rate: Any, seconds_per_step: Any, full_upload_seconds: Any
) -> float:
    """Return max_i d_i, how long a round of FedAvg+Topk lasts, for the arguments of `fedluck.job_seconds`."""
    times = (np.asarray(t, dtype=np.float64) for t in (seconds_per_step, full_upload_seconds))
    return float(np.max(job_seconds(local_steps, compression_rate, *times)))


def synchronous_totals(
    num_rounds: Any, round_seconds: float, compression_rate: float, num_parameters: int, num_devices: int
) -> Totals:
    """Return time and traffic of FedAvg+Topk after n rounds: (n - 1) `round_seconds`, n `num_devices` uploads."""
    require_range(">= 1", num_rounds=num_rounds, num_devices=num_devices)
    require_range("> 0", round_seconds=round_seconds)
    sent = num_rounds * num_devices * upload_bytes(compression_rate, num_parameters)
    return Totals((num_rounds - 1) * round_seconds, sent / BYTES_PER_GB)


def rounds_at(elapsed_seconds: Any, round_seconds: float) -> Any:
    """Return n for which (n - 1) `round_seconds` is nearest to a published time."""
    require_range(">= 0", elapsed_seconds=elapsed_seconds)
    require_range("> 0", round_seconds=round_seconds)
    n = 1 + np.rint(np.asarray(elapsed_seconds) / round_seconds).astype(np.int64)
    return n if n.ndim else int(n)


def uploads_until(seconds: float, rounds_per_job: Any, period_seconds: float) -> NDArray[np.int64]:
    """Return floor(H / (c_i T~)), how often each device takes part in the aggregations up to H, ``[n]``."""
    require_range(">= 0", seconds=seconds)
    require_range("> 0", period_seconds=period_seconds)
    require_range(">= 1", rounds_per_job=rounds_per_job)
    return np.floor(seconds / period_seconds + fedluck.TIE).astype(np.int64) // np.asarray(rounds_per_job)


def periodic_totals(
    elapsed_seconds: float, rounds_per_job: Any, compression_rates: Any, period_seconds: float, num_parameters: int
) -> Totals:
    """Return traffic of a periodic method at a time since its first aggregation with an upload, at min_i c_i T~."""
    require_range(">= 0", elapsed_seconds=elapsed_seconds)
    start = float(np.min(rounds_per_job)) * period_seconds
    uploads = uploads_until(elapsed_seconds + start, rounds_per_job, period_seconds)
    sent = np.sum(uploads * upload_bytes(np.asarray(compression_rates), num_parameters))
    return Totals(elapsed_seconds, float(sent) / BYTES_PER_GB)


# The optimum of the factor, and other formulas that no algorithm needs

V = TypeVar("V", NDArray[Any], torch.Tensor)


def ceil_factor(
    local_steps: Any, compression_rate: Any, seconds_per_step: Any, full_upload_seconds: Any, period_seconds: Any
) -> Any:
    """Return phi_ceil: `staleness_factor` with tau = ceil(d / T~), the staleness that occurs. An extension (3.8)."""
    plan = local_steps, compression_rate
    d = job_seconds(*plan, seconds_per_step, full_upload_seconds)
    return staleness_factor(*plan, fedluck.rounds_per_job(d, period_seconds))


class FactorGradient(NamedTuple):
    """Partial derivatives of phi by k and delta."""

    local_steps: Any
    compression_rate: Any


def factor_gradient(
    local_steps: Any, compression_rate: Any, seconds_per_step: Any, full_upload_seconds: Any, period_seconds: Any, *,
    latency_seconds: Any = 0.0, variant: Variant = PRINTED,
) -> FactorGradient:  # fmt: skip
    """Return the partial derivatives of `key_convergence_factor`, (L-c) and (L-d)."""
    require_range("> 0", period_seconds=period_seconds)
    k, delta, c, p = local_steps, compression_rate, variant.staleness_coefficient, variant.delta_power
    d = job_seconds(k, delta, seconds_per_step, full_upload_seconds, latency_seconds=latency_seconds)
    tau = d / period_seconds
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
    """
    times = (seconds_per_step, full_upload_seconds)
    return key_convergence_factor(local_steps, compression_rate, *times, 1, variant=Variant(delta_power=1))


def round_staleness(round_index: int, last_round: int = -1) -> int:
    """Return tau = t - t', Eq. 7: rounds since the device last took part; one more than the versions missed (E1)."""
    require(-1 <= last_round < round_index, "last_round", last_round, f"in -1..{round_index - 1}")
    return round_index - last_round


def momentum_step(weights: V, grad: V, velocity: V, local_lr: float, momentum: float = 0.9) -> tuple[V, V]:
    """Return the model and the velocity after one local step: v <- m v + grad, x <- x - eta_l v.

    Eq. 3 with the momentum of the experiments (A1); ``momentum=0`` is Eq. 3 as printed.
    """
    require_range("> 0", local_lr=local_lr)
    require_range("in [0, 1)", momentum=momentum)
    velocity = momentum * velocity + grad
    return weights - local_lr * velocity, velocity


Array = NDArray[np.float64]

MIN_INTERIOR_RATIO = 1 / np.sqrt(768 / 3125)
"""r_min = 2.0172: phi has stationary points iff r is at least this (printed constants)."""

COMPRESSION_THRESHOLD = 3.1134694450445247
"""r_0: below it the minimum of phi is at delta = 1, above it at delta <= 0.165 (printed constants)."""


class Optimum(NamedTuple):
    """A stationary point or a minimum of phi in units of the period, each an array like r."""

    kappa: Array  # k alpha / T~.
    compression_rate: Array  # delta.
    rounds: Array  # d / T~ = kappa + r delta.
    factor: Array  # phi T~ / alpha.


def joint_optimum(comm_ratio: Any, variant: Variant = PRINTED) -> Optimum:
    """Return the global minimum of phi over k > 0 and 0 < delta <= 1.

    Printed form (p = 1/2): the better of `interior_minimum` and `uncompressed_minimum`. Tight form: the one
    stationary point delta r = p kappa, kappa = 1 / sqrt(c (1 - p^2)), or delta = 1 where that exceeds 1.
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
    """Return the minimum of phi on the edge delta = 1: kappa = sqrt(r^2 + 1/c), printed and tight alike."""
    require_range("> 0", comm_ratio=comm_ratio)
    r = np.asarray(comm_ratio, dtype=np.float64)
    return _optimum(r, best_steps(1.0, 1.0, r, 1.0, variant=variant), np.ones_like(r), variant)


def interior_minimum(comm_ratio: Any, variant: Variant = PRINTED) -> Optimum:
    """Return the one local minimum of the printed phi inside 0 < delta < 1: delta_1 <= 2/5 of (L-h), NaN if none."""
    return _stationary(comm_ratio, variant, low=0.0, high=0.4)


def saddle_point(comm_ratio: Any, variant: Variant = PRINTED) -> Optimum:
    """Return the other stationary point of the printed phi, a saddle: delta_2 in [2/5, 2/3) of (L-h), NaN if none."""
    return _stationary(comm_ratio, variant, low=2 / 3, high=0.4)


def stationary_kappa(compression_rate: Any, comm_ratio: Any, delta_power: Any = 0.5) -> Any:
    """Return kappa of a stationary point: r delta (4 - 3 delta) / [4 p + delta (1 - 2 p)]; (L-g) for p = 1/2."""
    delta, p = compression_rate, delta_power
    return comm_ratio * delta * (4 - 3 * delta) / (4 * p + delta * (1 - 2 * p))


def stationary_inverse_ratio(compression_rate: Any, variant: Variant = PRINTED) -> Any:
    """Return 1/r^2 of the printed factor's stationary point at delta, (L-h); none exists where it is not positive.

    4 c (1 + p) delta^2 (2 - delta)^2 [2 (1 - p) - delta (2 - p)] / [4 p + delta (1 - 2 p)]^2; for p = 1/2 this is
    3/4 c delta^2 (2 - delta)^2 (2 - 3 delta), for p = 1 it is negative: nothing between no and full compression (E9).
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
    compression_rate: Any, seconds_per_step: Any, full_upload_seconds: Any, period_seconds: Any, *,
    latency_seconds: Any = 0.0, variant: Variant = PRINTED,
) -> Any:  # fmt: skip
    """Return k*(delta) = sqrt((delta beta + l)^2 + T~^2 / [c (2 - delta)]) / alpha, (L-f); independent of p.

    phi(., delta) is strictly convex, so the best whole k is next to it. Takes the arguments of
    `fedluck.key_convergence_factor` after k (numbers, arrays or SymPy symbols).
    """
    delta = compression_rate
    require_range("in (0, 1]", compression_rate=delta)
    require_range("> 0", seconds_per_step=seconds_per_step, period_seconds=period_seconds)
    excess = 2 - delta if variant.contraction == "printed" else 1
    squared = (delta * full_upload_seconds + latency_seconds) ** 2
    return (squared + period_seconds**2 / (variant.staleness_coefficient * excess)) ** 0.5 / seconds_per_step


def _stationary(comm_ratio: Any, variant: Variant, low: float, high: float) -> Optimum:
    """Return the root of (L-h) between `low`, where its left side is 0, and `high`, where it is largest."""
    require_range("> 0", comm_ratio=comm_ratio)
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


# Theorem 1 and Corollary 1 as numbers, the bound that repairs them, the steps that went wrong in print

Q_WINDOW = (1 - 6**-0.5, 1 + 6**-0.5)
"""Q_l > 0 iff eta_l k lies strictly between: 0.5918 and 1.4082. Small steps are excluded (E4)."""


@dataclass(frozen=True)
class Moments:
    """What Eqs. 8, 9 and 11 bound."""

    noise: Any
    """sigma^2, bound of E ‖stochastic gradient - gradient‖²; Eq. 8 prints the first moment (E3)."""
    heterogeneity: Any
    """zeta^2, bound of ‖grad F_i - grad F‖²: the largest zeta_i^2 is safe, the mean assumes a uniform sample."""
    gradient: Any
    """G^2, bound of ‖grad F_i‖²."""

    def __post_init__(self) -> None:
        require_range(">= 0", **vars(self))

    @property
    def second_moment(self) -> Any:
        """M; a stochastic gradient has mean square at most 3 M (Lemma 2)."""
        return self.noise + self.heterogeneity + self.gradient

    @property
    def bias_1(self) -> Any:
        """B_1 = 18 M."""
        return 18 * self.second_moment

    @property
    def bias_2(self) -> Any:
        """B_2 = 6 (sigma^2 + zeta^2)."""
        return 6 * (self.noise + self.heterogeneity)


class BoundTerms(NamedTuple):
    """The three terms of (12), or of (13)."""

    progress: Any  # Falls with the number of rounds.
    compression: Any  # Grows as delta falls.
    staleness: Any  # Grows with tau_max.

    @property
    def total(self) -> Any:
        """The bound on the mean squared gradient."""
        return self.progress + self.compression + self.staleness


def theorem1_bound(
    initial_gap: Any, moments: Moments, *, local_lr: Any, global_lr: Any, local_steps: Any, num_rounds: Any,
    compression_rate: Any, max_staleness: Any, contraction: Literal["printed", "tight"] = "printed",
) -> BoundTerms:  # fmt: skip
    """Return the three terms of Theorem 1, Eq. 12, for eta_l and eta_g up to 1 / L."""
    require_range(">= 0", initial_gap=initial_gap)
    _require_plan(local_steps, num_rounds, compression_rate)
    require_range("> 0", global_lr=global_lr)
    require_range(">= 0", max_staleness=max_staleness)
    require(contraction in ("printed", "tight"), "contraction", contraction, "'printed' or 'tight'")
    q, k, delta, b1 = q_local(local_lr, local_steps), local_steps, compression_rate, moments.bias_1
    require(q > 0, "q_local", q, f"> 0: local_lr * local_steps between {Q_WINDOW[0]:.4f} and {Q_WINDOW[1]:.4f}")
    stale = max_staleness**2 * (2 * (2 - delta) if contraction == "printed" else 1)
    return BoundTerms(
        2 * initial_gap / (global_lr * q * num_rounds),
        local_lr**2 * k**2 * ((1 - delta) * b1 + moments.bias_2) / q,
        local_lr**2 * k**4 * (stale + 1) * b1 / q,
    )


def q_local(local_lr: Any, local_steps: Any) -> Any:
    """Return Q_l = 1 - 6 (1 - eta_l k)^2, by which Eq. 12 divides; positive inside `Q_WINDOW` only."""
    require_range("> 0", local_lr=local_lr)
    require_range(">= 1", local_steps=local_steps)
    return 1 - 6 * (1 - local_lr * local_steps) ** 2


def printed_supplement_q_local(local_lr: Any, local_steps: Any) -> Any:
    """Return 6 (1 - eta_l k)^2 - 1: Q_l with the sign of the supplement, which is wrong (E4)."""
    return -q_local(local_lr, local_steps)


class LearningRates(NamedTuple):
    """eta_g and eta_l of Corollary 1."""

    global_lr: Any
    local_lr: Any


def corollary1_rates(
    local_steps: Any, num_rounds: Any, compression_rate: Any, *, delta_power: Any = 0.5
) -> LearningRates:
    """Return eta_g = sqrt(k / T) and eta_l = T^(-1/4) k^(-5/2) delta^(-p/2), with constants 1, of Corollary 1.

    p = 1/2 is printed, p = 1 the supplement's. Then eta_l k -> 0 for T -> infinity and Q_l -> -5: Theorem 1 does
    not apply to the rates that the corollary gives it (E5).
    """
    _require_plan(local_steps, num_rounds, compression_rate)
    require_range("> 0", delta_power=delta_power)
    k, T, delta = local_steps, num_rounds, compression_rate
    return LearningRates((k / T) ** 0.5, T**-0.25 * k**-2.5 * delta ** (-delta_power / 2))


def printed_corollary1_terms(
    initial_gap: Any, moments: Moments, *, local_steps: Any, num_rounds: Any, compression_rate: Any,
    max_staleness: Any, variant: Variant = PRINTED,
) -> BoundTerms:  # fmt: skip
    """Return the three terms of Eq. 13, with constants 1: Eq. 12 at `corollary1_rates` with Q_l called a constant.

    Not a bound: Q_l is negative there (E5). The last term is B_1 / sqrt(T) times `fedluck.staleness_factor`, so
    that minimising phi minimises this term alone. The variant c = 2 does not lose the theorem's factor 2 (E8).
    """
    require_range(">= 0", initial_gap=initial_gap)
    _require_plan(local_steps, num_rounds, compression_rate)
    k, T, delta = local_steps, num_rounds, compression_rate
    return BoundTerms(
        initial_gap / (k * T) ** 0.5,
        ((1 - delta) * moments.bias_1 + moments.bias_2) / (k**3 * T**0.5 * delta**variant.delta_power),
        moments.bias_1 / T**0.5 * staleness_factor(k, delta, max_staleness, variant),
    )


class RescaledTerms(NamedTuple):
    """The five terms of (L-b)."""

    progress: Any
    floor: Any  # Noise and heterogeneity.
    compression: Any  # Bias of compression without error feedback.
    drift: Any  # Of the local models from the received one.
    staleness: Any

    @property
    def total(self) -> Any:
        """The bound on the mean squared gradient."""
        return self.progress + self.floor + self.compression + self.drift + self.staleness


def rescaled_bound(
    initial_gap: Any, moments: Moments, *, local_lr: Any, global_lr: Any, local_steps: Any, num_rounds: Any,
    compression_rate: Any, max_staleness: Any, smoothness: Any,
) -> RescaledTerms:  # fmt: skip
    """Return the terms of (L-b), a bound that holds for small steps. Derived.

    Compares grad F with the upload over eta_l k instead of the upload, which removes Q_l. Takes the arguments of
    `theorem1_bound` and L > 0, with eta_g eta_l k <= 1 / L. It bounds the mean over rounds with uploads; counting
    empty rounds in T makes it false.
    """
    require_range(">= 0", initial_gap=initial_gap)
    require_range("> 0", local_lr=local_lr, global_lr=global_lr, smoothness=smoothness)
    _require_plan(local_steps, num_rounds, compression_rate)
    require_range(">= 0", max_staleness=max_staleness)
    a, L, M = local_lr * local_steps, smoothness, moments.second_moment
    require(global_lr * a * L <= 1, "global_lr", global_lr, "<= 1 / (local_lr * local_steps * smoothness)")
    return RescaledTerms(
        2 * initial_gap / (global_lr * a * num_rounds),
        5 * (moments.noise + moments.heterogeneity),
        15 * (1 - compression_rate) * M,
        5 * L**2 * a**2 * M,
        15 * L**2 * global_lr**2 * a**2 * max_staleness**2 * M,
    )


def lemma1_bound(global_lr: Any, mean_squared_uploads: Any) -> Any:
    """Return eta_g^2 tau sum_h mean ‖upload‖², a bound of ‖w^t - w^(t - tau)‖², corrected Lemma 1."""
    require_range("> 0", global_lr=global_lr)
    return global_lr**2 * printed_lemma1_bound(mean_squared_uploads)


def printed_lemma1_bound(mean_squared_uploads: Any) -> Any:
    """Return Lemma 1 as the supplement prints it: without eta_g^2, hence wrong for eta_g > 1 (E6)."""
    return len(mean_squared_uploads) * sum(mean_squared_uploads)


def printed_negative_term(
    global_lr: Any, smoothness: Any, local_lr: Any, local_steps: Any, compression_rate: Any, moments: Moments
) -> Any:
    """Return what the supplement puts above eta_g / 2 (L eta_g - 1) E‖C(g)‖², which may be 0 (E7).

    It multiplies the coefficient, which is negative, by the upper bound 2 (2 - delta) 3 (eta_l k)^2 M. The right
    bound is 0.
    """
    upper = 2 * (2 - compression_rate) * 3 * (local_lr * local_steps) ** 2 * moments.second_moment
    return global_lr / 2 * (smoothness * global_lr - 1) * upper


def printed_supplement_stationarity(
    local_steps: Any, compression_rate: Any, seconds_per_step: Any, full_upload_seconds: Any
) -> Any:
    """Return 2 beta delta^2 (beta - 2 u - beta delta) - 1 - 2 u^2, u = k alpha, zero where the supplement stops.

    The derivative in delta of `fedluck.printed_supplement_factor` has u in place of 2 u (E13).
    """
    delta, u, b = compression_rate, local_steps * seconds_per_step, full_upload_seconds
    return 2 * b * delta**2 * (b - 2 * u - b * delta) - 1 - 2 * u**2


def _require_plan(k: Any, T: Any, delta: Any) -> None:
    require_range(">= 1", local_steps=k, num_rounds=T)
    require_range("in (0, 1]", compression_rate=delta)


# Periodic aggregation without a simulator (Algorithm 1, 2.3), written from arrival times and not from ceil(d / T~),
# and problems with exact constants, so that the bounds can be held against numbers (E15)


class Upload(NamedTuple):
    """An upload that was aggregated."""

    device: int
    start_round: int
    """Rounds aggregated when the device received its model: it started from w^start_round."""
    round_staleness: int
    """tau by Eq. 7."""


def timeline(job_seconds: Sequence[float], period_seconds: float, num_rounds: int) -> list[list[Upload]]:
    """Return the participants S^t of the rounds t = 0..T-1, in the order of the devices.

    The server aggregates at the ticks (t + 1) T~ what has arrived, ticks included, and hands the new model to those
    devices alone; they start at once. An upload of round t missed t - start_round versions.
    """
    require_range("> 0", job_seconds=job_seconds, period_seconds=period_seconds)
    require_range(">= 0", num_rounds=num_rounds)
    started, last = [0] * len(job_seconds), [-1] * len(job_seconds)
    rounds: list[list[Upload]] = [[] for _ in range(num_rounds)]
    for t, participants in enumerate(rounds):
        for device, d in enumerate(job_seconds):
            if started[device] * period_seconds + d <= (t + 1 + fedluck.TIE) * period_seconds:
                participants.append(Upload(device, started[device], round_staleness(t, last[device])))
                started[device], last[device] = t + 1, t
    return rounds


def periodic_models(
    start: Array,
    rounds: Sequence[Sequence[Upload]],
    upload: Callable[[int, Array], Array],
    global_lr: float,
    sample_counts: Sequence[float] | None = None,
) -> list[Array]:
    """Return the global models w^0 .. w^T, each w^(t+1) by `fedluck.server_step` from round t's uploads."""
    models = [start]
    for participants in rounds:
        deltas = [upload(one.device, models[one.start_round]) for one in participants]
        counts = None if sample_counts is None else [sample_counts[one.device] for one in participants]
        models.append(mean_step(models[-1], np.array(deltas), global_lr, counts))
    return models


@dataclass(frozen=True, eq=False)
class LogCosh:
    """F_i(w) = L sum_j log cosh(w_j - b_ij) and F their mean: smooth, with bounded gradients, without noise."""

    centres: Array  # b, ``[n, d]``; L, of each F_i and of F, is `smoothness`.
    smoothness: float = 1.0

    def loss(self, w: Array) -> float:
        """Return F(w)."""
        shifted = np.abs(w - self.centres)
        log_cosh = shifted + np.log1p(np.exp(-2 * shifted)) - np.log(2)
        return float(self.smoothness * log_cosh.sum(axis=1).mean())

    def gradient(self, w: Array) -> Array:
        """Return grad F(w), ``[d]``."""
        return self.smoothness * np.tanh(w - self.centres).mean(axis=0)

    def local_path(self, device: int, w: Array, steps: int, lr: float) -> Array:
        """Return w and the models after each of `steps` gradient steps on F_device, Eq. 3, ``[steps + 1, d]``."""
        path, velocity = [w], np.zeros_like(w)
        for _ in range(steps):
            grad = self.smoothness * np.tanh(path[-1] - self.centres[device])
            x, velocity = momentum_step(path[-1], grad, velocity, lr, momentum=0.0)
            path.append(x)
        return np.stack(path)

    @property
    def gradient_bound(self) -> float:
        """G^2 = L^2 d."""
        return self.smoothness**2 * self.centres.shape[1]

    @cached_property
    def heterogeneity(self) -> float:
        """zeta^2, above ‖grad F_i - grad F‖² for every device and w; each coordinate's supremum on a fine grid."""
        w = np.linspace(self.centres.min() - 6, self.centres.max() + 6, 1201)[:, None, None]
        slopes = np.tanh(w - self.centres)
        spread = np.abs(slopes - slopes.mean(axis=1, keepdims=True)).max(axis=0)
        return float(((self.smoothness * (spread + (w[1, 0, 0] - w[0, 0, 0]))) ** 2).sum(axis=1).max())

    @cached_property
    def minimum(self) -> float:
        """F* = min F, by bisection of the increasing derivative of each coordinate."""
        low, high = self.centres.min(axis=0), self.centres.max(axis=0)
        for _ in range(60):
            middle = (low + high) / 2
            rising = self.gradient(middle) > 0
            low, high = np.where(rising, low, middle), np.where(rising, middle, high)
        return self.loss((low + high) / 2)


# The proofs of Theorem 1, corrected (E6, E7), and of its repair (L-b), step by step on problems without noise; rounds
# without uploads change nothing and are left out of all means (E2)


class Job(NamedTuple):
    """An upload, and how it came about."""

    device: int
    path: Array  # The received model and the k models after it, ``[k + 1, d]``.
    sent: Array  # C(g), ``[d]``.


@dataclass(frozen=True, eq=False)
class Trial:
    """A run of Algorithm 1 with exact gradients, no momentum, and the same k and delta on every device."""

    problem: LogCosh
    start: Array  # w^0, ``[d]``.
    rounds: Sequence[Sequence[Upload]]  # As :func:`timeline` returns them.
    local_lr: float
    global_lr: float  # Both in (0, 1 / L].
    local_steps: int
    compression_rate: float

    @property
    def models(self) -> list[Array]:
        """w^0 .. w^T."""
        return self._run[0]

    @property
    def jobs(self) -> list[Job]:
        """What became every upload, in the order of rounds and devices."""
        return self._run[1]

    @property
    def measured(self) -> float:
        """Mean of ‖grad F(w^t)‖² over the rounds with uploads."""
        gradients = [self.problem.gradient(w) for w, found in zip(self.models, self.rounds, strict=False) if found]
        return float(np.mean([g @ g for g in gradients]))

    @property
    def max_staleness(self) -> int:
        """tau_max by Eq. 7."""
        return max(one.round_staleness for found in self.rounds for one in found)

    @property
    def moments(self) -> Moments:
        """sigma^2 = 0, zeta^2 and G^2."""
        return Moments(0.0, self.problem.heterogeneity, self.problem.gradient_bound)

    @property
    def theorem1(self) -> float:
        """The bound of Theorem 1, Eq. 12; eta_l k must lie in its window."""
        return float(theorem1_bound(self._gap, self.moments, **self._settings).total)

    @property
    def rescaled(self) -> float:
        """The bound (L-b)."""
        settings = {**self._settings, "smoothness": self.problem.smoothness}
        return float(rescaled_bound(self._gap, self.moments, **settings).total)

    @property
    def _gap(self) -> float:
        return self.problem.loss(self.start) - self.problem.minimum

    @property
    def _settings(self) -> dict[str, Any]:
        names = ("local_lr", "global_lr", "local_steps", "compression_rate")
        counted = {"num_rounds": sum(map(bool, self.rounds)), "max_staleness": self.max_staleness}
        return {name: getattr(self, name) for name in names} | counted

    @cached_property
    def _run(self) -> tuple[list[Array], list[Job]]:
        jobs = []

        def upload(device: int, w: Array) -> Array:
            path = self.problem.local_path(device, w, self.local_steps, self.local_lr)
            sent = top_k(torch.from_numpy(path[0] - path[-1]), self.compression_rate).numpy()
            jobs.append(Job(device, path, sent))
            return np.asarray(sent)

        return periodic_models(self.start, self.rounds, upload, self.global_lr), jobs


def theorem1_chains(trial: Trial) -> Chains:
    """Return, for every step of the proof of Theorem 1, the quantities that it orders from small to large.

    One number per round with uploads, of which those of a round's uploads are means; the last step has one number.
    """
    f, L, eta, a = trial.problem, trial.problem.smoothness, trial.global_lr, trial.local_lr * trial.local_steps
    k, delta, tau, moments = trial.local_steps, trial.compression_rate, trial.max_staleness, trial.moments
    M, zeta, q = moments.second_moment, moments.heterogeneity, q_local(trial.local_lr, k)
    floor = a**2 * ((1 - delta) * moments.bias_1 + moments.bias_2)
    last = (a**2 * k**2) * (2 * tau**2 * (2 - delta) + 1) * moments.bias_1  # with L eta_l <= 1
    columns: list[dict[str, tuple[float, ...]]] = []
    for t, jobs, lemma1 in _rounds(trial):
        w, after = trial.models[t], trial.models[t + 1]
        grad, mean = f.gradient(w), np.mean([job.sent for job in jobs], axis=0)
        square, sent = float(grad @ grad), float(np.mean([job.sent @ job.sent for job in jobs]))
        x3 = float(np.mean([np.sum((grad - job.sent) ** 2) for job in jobs]))
        pieces = np.mean([_pieces(trial, w, job, scaled=False) for job in jobs], axis=0)
        moved, drift, own = np.mean([_distances(w, job) for job in jobs], axis=0)
        bounded = (
            (1 - a) ** 2 * square, L**2 * a**2 * moved, a**2 * zeta,
            L**2 * trial.local_lr**2 * k * drift, (1 - delta) * own,
        )  # fmt: skip
        columns.append({
            "1-3 descent": (
                f.loss(after),
                f.loss(w) - eta * grad @ mean + L * eta**2 / 2 * mean @ mean,
                f.loss(w) - eta / 2 * square + eta / 2 * (L * eta - 1) * sent + eta / 2 * x3,
                f.loss(w) - eta / 2 * square + eta / 2 * x3,
            ),
            "4 six pieces": (x3, 6 * float(pieces.sum()), 6 * sum(bounded)),
            "5 Lemma 2": (own, 3 * a**2 * M),
            "6 drift": (L**2 * trial.local_lr**2 * k * drift, 3 * L**2 * trial.local_lr**4 * k**4 * M),
            "7 Lemma 1": (moved, lemma1, eta**2 * tau**2 * 2 * (2 - delta) * 3 * a**2 * M),
            "8 collected": (x3, 6 * (1 - a) ** 2 * square + floor + L**2 * trial.local_lr**2 * last),
            "9 one round": (f.loss(after), f.loss(w) - eta / 2 * q * square + eta / 2 * (floor + last)),
        })  # fmt: skip
    return {**_stack(columns), "9 whole run": [np.asarray(trial.measured), np.asarray(trial.theorem1)]}


def rescaled_chains(trial: Trial) -> Chains:
    """Return, for every step of the proof of (L-b), the quantities that it orders, as `theorem1_chains` does."""
    f, L, eta, a = trial.problem, trial.problem.smoothness, trial.global_lr, trial.local_lr * trial.local_steps
    delta, tau, M, zeta = trial.compression_rate, trial.max_staleness, trial.moments.second_moment, f.heterogeneity
    total = 5 * (zeta + 3 * (1 - delta) * M + L**2 * a**2 * M + 3 * L**2 * eta**2 * a**2 * tau**2 * M)
    columns: list[dict[str, tuple[float, ...]]] = []
    for t, jobs, lemma1 in _rounds(trial):
        w, after = trial.models[t], trial.models[t + 1]
        grad = f.gradient(w)
        square = float(grad @ grad)
        apart = float(np.mean([np.sum((grad - job.sent / a) ** 2) for job in jobs]))
        pieces = np.mean([_pieces(trial, w, job, scaled=True) for job in jobs], axis=0)
        moved, drift, own = np.mean([_distances(w, job) for job in jobs], axis=0)
        columns.append({
            "1 descent": (f.loss(after), f.loss(w) - eta * a / 2 * square + eta * a / 2 * apart),
            "2 five pieces": (
                apart, 5 * float(pieces.sum()),
                5 * (L**2 * moved + zeta + L**2 / trial.local_steps * drift + (1 - delta) * own / a**2), total,
            ),
            "3 drift": (drift / trial.local_steps, a**2 * M),
            "4 staleness": (moved, lemma1, 3 * eta**2 * a**2 * tau**2 * M),
            "5 one round": (f.loss(after), f.loss(w) - eta * a / 2 * square + eta * a / 2 * total),
        })  # fmt: skip
    return {**_stack(columns), "5 whole run": [np.asarray(trial.measured), np.asarray(trial.rescaled)]}


def _rounds(trial: Trial) -> Iterator[tuple[int, list[Job], float]]:
    """Yield number and jobs of each round with uploads, and what Lemma 1 says of them on average."""
    squares, jobs = [0.0] * len(trial.rounds), iter(trial.jobs)
    for t, uploads in enumerate(trial.rounds):
        if uploads:
            own = [next(jobs) for _ in uploads]
            bounds = [lemma1_bound(trial.global_lr, squares[one.start_round : t]) for one in uploads]
            squares[t] = float(np.mean([job.sent @ job.sent for job in own]))
            yield t, own, float(np.mean(bounds))


def _pieces(trial: Trial, w: Array, job: Job, *, scaled: bool) -> list[float]:
    """Return the squared lengths of the pieces whose sum is grad F(w) - C(g), or grad F(w) - C(g) / (eta_l k)."""
    f, lr, a = trial.problem, trial.local_lr, trial.local_lr * trial.local_steps
    now, base, g = f.gradient(w), f.gradient(job.path[0]), job.path[0] - job.path[-1]
    own = f.smoothness * np.tanh(job.path - f.centres[job.device])
    five = [a * (now - base), a * (base - own[0]), lr * np.sum(own[0] - own[:-1], axis=0), g - job.sent]
    whole = [piece / a for piece in five] if scaled else [(1 - a) * now, *five]
    target = now - job.sent / a if scaled else now - job.sent
    if not np.allclose(sum(whole), target, atol=1e-10):
        raise ArithmeticError("the pieces do not add up")
    return [np.sum(piece**2) for piece in whole]


def _distances(w: Array, job: Job) -> list[float]:
    """Return ‖w - w^s‖², sum_j ‖w^s - w_i^j‖² over the steps, and ‖g‖²."""
    start, end = job.path[0], job.path[-1]
    return [float(np.sum(apart**2)) for apart in (w - start, job.path[:-1] - start, start - end)]


def _stack(columns: list[dict[str, tuple[float, ...]]]) -> dict[str, list[Array]]:
    return {name: list(map(np.array, zip(*(row[name] for row in columns), strict=True))) for name in columns[0]}


# Theorem 1 and its repair on random log-cosh problems (E15)

INSIDE, SMALL = (0.6, 1.4), (0.005, 0.3)
"""Ranges of eta_l k: inside the window of Theorem 1, and small steps, for (L-b)."""


def theorem1_trials(count: int = 40, rounds: int = 60) -> pd.DataFrame:
    """Return, for random problems with eta_l k (``a``) inside Theorem 1's window, both sides, tau_max and G^2."""
    return _trials(count, rounds, INSIDE, rescaled=False)


def rescaled_trials(count: int = 40, rounds: int = 60) -> pd.DataFrame:
    """Return the same for the bound (L-b), with small steps."""
    return _trials(count, rounds, SMALL, rescaled=True)


def random_trial(rng: np.random.Generator, steps: tuple[float, float], rounds: int) -> Trial:
    """Return Algorithm 1 on a random log-cosh problem with six devices; eta_l k is in `steps`, eta_l L <= 1."""
    k, rate, a = int(rng.integers(1, 8)), float(rng.choice([0.1, 0.25, 0.5, 1])), float(rng.uniform(*steps))
    spread = 10 ** rng.uniform(-1.5, 0.5)  # of the devices' minima
    return Trial(
        LogCosh(rng.normal(scale=spread, size=(6, 12)), smoothness=float(rng.uniform(0.3, 1)) * min(1, k / a)),
        start=rng.normal(scale=3, size=12), rounds=timeline(rng.uniform(0.1, 5, size=6).tolist(), 1.0, rounds),
        local_lr=a / k, global_lr=float(rng.uniform(0.3, 1)), local_steps=k, compression_rate=rate,
    )  # fmt: skip


def _trials(count: int, rounds: int, steps: tuple[float, float], rescaled: bool) -> pd.DataFrame:
    rng, rows = np.random.default_rng(int(rescaled)), []
    for _ in range(count):
        trial = random_trial(rng, steps, rounds)
        chains = rescaled_chains(trial) if rescaled else theorem1_chains(trial)
        rows.append(
            {"a": trial.local_lr * trial.local_steps, "k": trial.local_steps, "delta": trial.compression_rate,
             "tau": trial.max_staleness, "measured": trial.measured,
             "bound": trial.rescaled if rescaled else trial.theorem1, "limit": trial.problem.gradient_bound,
             "inequalities": inequalities(chains), "violated": violations(chains)}
        )  # fmt: skip
    return pd.DataFrame(rows)
