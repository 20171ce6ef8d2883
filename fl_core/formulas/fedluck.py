"""FedLuck: job time, staleness, the key convergence factor (Eqs. 5, 7, 14), its planners (15), and what is measured.

Source: Song et al., "A Joint Approach to Local Updating and Gradient Compression for Efficient Asynchronous
Federated Learning" (Euro-Par 2024); (n) are its equations, (L-x), E-n and section numbers those of this project's
specification.

Symbols: k > 0 `local_steps`, delta in (0, 1] `compression_rate` (the fraction kept: 1 is no compression), alpha
`seconds_per_step`, beta `full_upload_seconds`, T~ `period_seconds`, d_i `job_seconds`, l `latency_seconds` (0 in the
paper). Arguments may be numbers, arrays, tensors or SymPy symbols; arrays broadcast. The factor has several valleys
in delta, so no planner descends: `solve_exact` compares all local minima, `solve_official_grid` all points of the
authors' grid, `solve_exact_ceil` all useful staleness values (2.5, 3.7, 3.8).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fl_core.formulas.checks import require

TIE = 1e-9
"""An upload that arrives within this part of a period after a tick still belongs to the round that ends there."""

Array = NDArray[np.float64]
CELLS = 20_000
"""Size of the arrays worked on at a time: they stay in a processor's cache."""

LAGUERRE_STEPS = 10
"""Full precision is reached after 8 for every alpha / T~ in 1e-5..1e3 and beta / T~ in 1e-5..1e6 that was drawn."""

WARM_UP_STEPS, TIMED_STEPS = 3, 10
PROBE_RATES, PROBE_REPEATS = (0.05, 0.1, 0.25, 0.5, 1.0), 3
"""The measuring protocol: local steps discarded and timed; compression rates sent, and how often each."""


@dataclass(frozen=True)
class Variant:
    """The constants of the key convergence factor (c tau^2 (2 - delta) + 1) / (k delta^p) that are choices."""

    staleness_coefficient: Any = 1.0
    """c > 0: 1 in (13) and (14), 2 in the theorem (12) from which they are said to follow (E8)."""
    delta_power: Any = 0.5
    """p in (0, 1]: 1/2 in (14), 1 in the authors' supplement (E9)."""
    contraction: Literal["printed", "tight"] = "printed"
    """``"tight"`` replaces 2 - delta by 1, which top-k's ‖C(x)‖ <= ‖x‖ gives (E10)."""

    def __post_init__(self) -> None:
        require(self.staleness_coefficient > 0, "staleness_coefficient", self.staleness_coefficient, "> 0")
        require(self.delta_power > 0, "delta_power", self.delta_power, "in (0, 1]")
        require(self.delta_power <= 1, "delta_power", self.delta_power, "in (0, 1]")
        known = self.contraction in ("printed", "tight")
        require(known, "contraction", self.contraction, "'printed' or 'tight'")


PRINTED = Variant()
"""Eq. 14 as printed."""


def key_convergence_factor(
    local_steps: Any,
    compression_rate: Any,
    seconds_per_step: Any,
    full_upload_seconds: Any,
    period_seconds: Any,
    *,
    latency_seconds: Any = 0.0,
    variant: Variant = PRINTED,
) -> Any:
    """Return phi(k, delta), Eq. 14: `staleness_factor` with tau = d / T~, without the ceiling."""
    require(period_seconds > 0, "period_seconds", period_seconds, "> 0")
    d = job_seconds(
        local_steps, compression_rate, seconds_per_step, full_upload_seconds, latency_seconds=latency_seconds
    )
    return staleness_factor(local_steps, compression_rate, d / period_seconds, variant)


def staleness_factor(
    local_steps: Any, compression_rate: Any, round_staleness: Any, variant: Variant = PRINTED
) -> Any:
    """Return (c tau^2 (2 - delta) + 1) / (k delta^p): the third term of (13) without B_1 and T."""
    _require_plan(local_steps, compression_rate)
    require(round_staleness >= 0, "round_staleness", round_staleness, ">= 0")
    stale = variant.staleness_coefficient * round_staleness**2
    if variant.contraction == "printed":
        stale = stale * (2 - compression_rate)
    return (stale + 1) / (local_steps * compression_rate**variant.delta_power)


def job_seconds(
    local_steps: Any,
    compression_rate: Any,
    seconds_per_step: Any,
    full_upload_seconds: Any,
    *,
    latency_seconds: Any = 0.0,
) -> Any:
    """Return d_i = k_i alpha_i + delta_i beta_i (+ l_i), Eq. 5: from receiving a model to the upload's arrival."""
    _require_plan(local_steps, compression_rate)
    require(seconds_per_step >= 0, "seconds_per_step", seconds_per_step, ">= 0")
    require(full_upload_seconds >= 0, "full_upload_seconds", full_upload_seconds, ">= 0")
    require(latency_seconds >= 0, "latency_seconds", latency_seconds, ">= 0")
    return local_steps * seconds_per_step + compression_rate * full_upload_seconds + latency_seconds


def rounds_per_job(job_seconds: Any, period_seconds: Any) -> Any:
    """Return c_i = ceil(d_i / T~), at least 1: a job's length in rounds, and its staleness by Eq. 7.

    A job that ends at a tick belongs to the round that ends there, whatever rounding says (`TIE`). A device starts
    its next job c_i ticks after the last one and idles c_i T~ - d_i; its upload missed c_i - 1 versions (E1).
    """
    require(job_seconds >= 0, "job_seconds", job_seconds, ">= 0")
    require(period_seconds > 0, "period_seconds", period_seconds, "> 0")
    rounds = np.maximum(1, np.ceil(job_seconds / period_seconds - TIE)).astype(np.int64)
    return rounds if rounds.ndim else int(rounds)


def _require_plan(local_steps: Any, compression_rate: Any) -> None:
    require(local_steps > 0, "local_steps", local_steps, "> 0")
    require(compression_rate > 0, "compression_rate", compression_rate, "in (0, 1]")
    require(compression_rate <= 1, "compression_rate", compression_rate, "in (0, 1]")


class RatePolynomial(NamedTuple):
    """a_3 delta^3 + a_2 delta^2 + a_1 delta + a_0, positive where phi falls in delta."""

    cubic: Any
    quadratic: Any
    linear: Any
    constant: Any


def rate_polynomial(kappa: Any, comm_ratio: Any, variant: Variant = PRINTED) -> RatePolynomial:
    """Return the polynomial of (L-e) over T~^2: -d phi / d delta times something positive.

    `kappa` is (k alpha + l) / T~, `comm_ratio` r = beta / T~. It is positive at 0 and has no or two positive roots
    (one in the tight form), so that its smallest positive root is the only local minimum of phi(k, .) in delta > 0.
    For p = 1/2 it is half of (L-e), [5 r^2, 6 r (kappa - r), kappa (kappa - 4 r), 2 kappa^2 + 1] / 2.
    """
    require(kappa >= 0, "kappa", kappa, ">= 0")
    require(comm_ratio >= 0, "comm_ratio", comm_ratio, ">= 0")
    r, c, p = comm_ratio, variant.staleness_coefficient, variant.delta_power
    if variant.contraction == "tight":
        return RatePolynomial(0 * r, (p - 2) * r**2, 2 * (p - 1) * kappa * r, p * (kappa**2 + 1 / c))
    return RatePolynomial(
        (3 - p) * r**2, (4 - 2 * p) * r * (kappa - r), (1 - p) * kappa * (kappa - 4 * r), p * (2 * kappa**2 + 1 / c)
    )


@dataclass(frozen=True)
class Box:
    """Where k (whole numbers) and delta may lie; the authors' box by default."""

    k_min: int = 2
    k_max: int = 60
    delta_min: float = 0.01
    delta_max: float = 1.0

    def __post_init__(self) -> None:
        for name in ("k_min", "k_max"):
            require(getattr(self, name) == int(getattr(self, name)), name, getattr(self, name), "a whole number")
        require(1 <= self.k_min <= self.k_max, "k_min", self.k_min, f"in 1..k_max = {self.k_max}")
        require(
            0 < self.delta_min <= self.delta_max, "delta_min", self.delta_min, f"in (0, delta_max = {self.delta_max}]"
        )
        require(self.delta_max <= 1, "delta_max", self.delta_max, "<= 1")

    def fixed_compression(self, compression_rate: float) -> Box:
        """Return the box in which only k is free: frequency-only, "Opt. CR" of Table 2 by the paper's text (E12)."""
        return dataclasses.replace(self, delta_min=compression_rate, delta_max=compression_rate)

    def fixed_steps(self, local_steps: int) -> Box:
        """Return the box in which only delta is free: compression-only, "Opt. LF" by the paper's text (E12)."""
        return dataclasses.replace(self, k_min=local_steps, k_max=local_steps)


class DevicePlan(NamedTuple):
    """What every device does, arrays ``[n]``."""

    local_steps: NDArray[np.int64]
    """k_i."""
    compression_rate: Array
    """delta_i."""
    factor: Array
    """The minimised phi (phi_ceil for `solve_exact_ceil`)."""


def plan_devices(
    seconds_per_step: Any,
    full_upload_seconds: Any,
    period_seconds: float,
    *,
    solver: str = "official_grid",
    box: Box = Box(),
    latency_seconds: Any = 0.0,
    variant: Variant = PRINTED,
) -> DevicePlan:
    """Return the minimiser of the key convergence factor over the box for every device, Eq. 15."""
    require(solver in SOLVERS, "solver", solver, f"one of {', '.join(SOLVERS)}")
    require(0 < period_seconds < np.inf, "period_seconds", period_seconds, "> 0 and finite")
    times = []
    for name, value in (
        ("seconds_per_step", seconds_per_step),
        ("full_upload_seconds", full_upload_seconds),
        ("latency_seconds", latency_seconds),
    ):
        times.append(np.asarray(value, dtype=np.float64))
        require(np.isfinite(times[-1]) & (times[-1] >= 0), name, value, ">= 0 and finite")
    alpha, beta, latency = (np.atleast_1d(t)[:, None] for t in np.broadcast_arrays(*times))
    solve, width = SOLVERS[solver]
    size = max(1, CELLS // (width * (box.k_max - box.k_min + 1)))
    chunks = [slice(start, start + size) for start in range(0, len(alpha), size)]
    parts = [solve(alpha[s], beta[s], latency[s], period_seconds, box, variant) for s in chunks]
    return DevicePlan(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def solve_exact(alpha: Array, beta: Array, latency: Array, period: float, box: Box, variant: Variant) -> DevicePlan:
    """Return the global minimum of phi over delta in the box and whole k in the box (3.7), for columns ``[n, 1]``.

    For given k phi falls in delta, or falls, rises and falls: over the box it is smallest at its only local minimum,
    moved into the box, or at delta_max; every k is tried. Equal values: the smallest k, then the smallest delta.
    """
    k = _all_steps(box)
    valley = _valley(k, alpha, beta, latency, period, box, variant)
    best, rate = np.full(valley.shape, np.inf), np.empty(valley.shape)
    for delta in (valley, box.delta_max):
        factor = key_convergence_factor(k, delta, alpha, beta, period, latency_seconds=latency, variant=variant)
        better = factor < best
        best, rate = np.where(better, factor, best), np.where(better, delta, rate)
    return _best_steps(k, rate, best)


def solve_exact_ceil(
    alpha: Array, beta: Array, latency: Array, period: float, box: Box, variant: Variant
) -> DevicePlan:
    """Return the global minimum of phi_ceil, the factor with the staleness that occurs (3.8), for columns ``[n, 1]``.

    For given k and staleness m phi_ceil falls in delta, so delta fills the m periods. Along these points phi_ceil is
    phi, which falls, rises and falls again: the best m is beside the valley, the last or the last but one.
    """
    k = _all_steps(box)
    kappa, r = (k * alpha + latency) / period, beta / period
    first, last = (np.maximum(1, np.ceil(kappa + r * delta - TIE)) for delta in (box.delta_min, box.delta_max))
    at_valley = kappa + r * _valley(k, alpha, beta, latency, period, box, variant)
    best, rate = np.full(kappa.shape, np.inf), np.empty(kappa.shape)
    for rounds in (np.floor(at_valley), np.ceil(at_valley), last - 1, last):
        m = np.clip(rounds, first, last)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            filling = np.clip((m - kappa) / r, box.delta_min, box.delta_max)
        delta = np.where(m < last, filling, box.delta_max)
        factor = staleness_factor(k, delta, m, variant)
        better = factor < best
        best, rate = np.where(better, factor, best), np.where(better, delta, rate)
    return _best_steps(k, rate, best)


def solve_official_grid(
    alpha: Array, beta: Array, latency: Array, period: float, box: Box, variant: Variant
) -> DevicePlan:
    """Return the best point of the authors' grid, every k and delta = j / 100 in the box, for columns ``[n, 1]``.

    k ascends outside, delta inside, and the first of equal values wins. A box with one delta keeps it.
    """
    k, rates = _all_steps(box), np.arange(1, 101) / 100
    rates = rates[(rates >= box.delta_min) & (rates <= box.delta_max)]
    if box.delta_min == box.delta_max:
        rates = np.array([box.delta_min])
    require(len(rates) > 0, "box", box, "one with a multiple of 0.01 between delta_min and delta_max")
    steps, delta = (grid.ravel() for grid in np.meshgrid(k, rates, indexing="ij"))
    factor = key_convergence_factor(steps, delta, alpha, beta, period, latency_seconds=latency, variant=variant)
    index = factor.argmin(axis=1)
    return DevicePlan(steps[index].astype(np.int64), delta[index], factor.min(axis=1))


Solver = Callable[[Array, Array, Array, float, Box, Variant], DevicePlan]


SOLVERS: dict[str, tuple[Solver, int]] = {
    "official_grid": (solve_official_grid, 100),
    "exact": (solve_exact, 1),
    "exact_ceil": (solve_exact_ceil, 1),
}
"""Solvers by name, each with the values of delta that it holds in memory for one device and one k."""


def _all_steps(box: Box) -> Array:
    return np.arange(box.k_min, box.k_max + 1, dtype=np.float64)


def _best_steps(k: Array, rate: Array, factor: Array) -> DevicePlan:
    """Choose the best k, ``[K]``, given the best rate and its factor for each, ``[n, K]``."""
    index = factor.argmin(axis=1)
    rows = np.arange(len(index))
    return DevicePlan(k[index].astype(np.int64), rate[rows, index], factor[rows, index])


def _valley(k: Array, alpha: Array, beta: Array, latency: Array, period: float, box: Box, variant: Variant) -> Array:
    """Return the local minimum of phi(k, .), moved into the box; anything in the box where there is none, ``[n, K]``.

    It is the smallest positive root of `rate_polynomial`, found by Laguerre's iteration from 0: where all roots are
    real it climbs to that root without passing it, at third order. Where they are not its result is one candidate
    more, which does no harm.
    """
    a3, a2, a1, a0 = rate_polynomial((k * alpha + latency) / period, beta / period, variant)
    x = np.zeros_like(a0)
    for _ in range(LAGUERRE_STEPS):
        value = ((a3 * x + a2) * x + a1) * x + a0
        slope = (3 * a3 * x + 2 * a2) * x + a1
        bend = 6 * a3 * x + 2 * a2
        root = np.sqrt(np.maximum(4 * slope**2 - 6 * value * bend, 0))
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            x = np.fmin(x + 3 * value / (root - slope), box.delta_max)  # fmin drops NaN
    return np.maximum(x, box.delta_min)


def mean_step_seconds(step_seconds: Sequence[float], warm_up: int = WARM_UP_STEPS) -> float:
    """Return the estimate of alpha_i: the mean time of the local steps after the first `warm_up` (2.2).

    In a simulated world alpha_i and beta_i are known; the estimates serve worlds whose speeds vary.
    """
    require(warm_up >= 0, "warm_up", warm_up, ">= 0")
    require(len(step_seconds) > warm_up, "len(step_seconds)", len(step_seconds), f"> warm_up = {warm_up}")
    times = np.asarray(step_seconds, dtype=np.float64)
    require(times >= 0, "step_seconds", step_seconds, ">= 0")
    return float(times[warm_up:].mean())


class UploadFit(NamedTuple):
    """t = delta full_upload_seconds + latency_seconds, fitted."""

    full_upload_seconds: float
    """beta_i."""
    latency_seconds: float
    """l_i; 0 in the proportional model of Eq. 5."""


def fit_upload(compression_rates: Sequence[float], upload_seconds: Sequence[float]) -> UploadFit:
    """Return the least-squares fit of t = beta delta to payloads sent: beta = sum delta_s t_s / sum delta_s^2."""
    delta, t = _measurements(compression_rates, upload_seconds)
    return UploadFit(float(delta @ t / (delta @ delta)), 0.0)


def fit_upload_with_latency(compression_rates: Sequence[float], upload_seconds: Sequence[float]) -> UploadFit:
    """Return the least-squares fit of t = beta delta + l with both constants >= 0; it needs different rates."""
    delta, t = _measurements(compression_rates, upload_seconds)
    require(np.ptp(delta) > 0, "compression_rates", compression_rates, "at least two different rates")
    slope = float((delta - delta.mean()) @ (t - t.mean()) / np.sum((delta - delta.mean()) ** 2))
    latency = float(t.mean() - slope * delta.mean())
    if slope < 0:  # the constrained minimum of a convex function lies on the violated bound
        return UploadFit(0.0, float(t.mean()))
    return UploadFit(slope, latency) if latency >= 0 else fit_upload(compression_rates, upload_seconds)


def _measurements(rates: Sequence[float], seconds: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    require(len(rates) > 0, "len(compression_rates)", len(rates), ">= 1")
    require(len(seconds) == len(rates), "len(upload_seconds)", len(seconds), f"{len(rates)}, one per rate")
    delta, t = np.asarray(rates, dtype=np.float64), np.asarray(seconds, dtype=np.float64)
    require((delta > 0) & (delta <= 1), "compression_rates", rates, "in (0, 1]")
    require(t >= 0, "upload_seconds", seconds, ">= 0")
    return delta, t
