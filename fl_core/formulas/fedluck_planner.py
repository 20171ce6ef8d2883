"""FedLuck's planners: local steps and compression rate of every device, Eq. 15, exactly and for many devices at once.

Source: FedLuck (Song et al., Euro-Par 2024), Eq. 15; the solvers are those of 2.5, 3.7 and 3.8. The key convergence
factor has several valleys in delta, so none of them descends: `exact` compares all local minima, `official_grid` all
points of the authors' grid, `exact_ceil` all useful staleness values.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fl_core.formulas.checks import require
from fl_core.formulas.fedluck import PRINTED, TIE, Variant, key_convergence_factor, staleness_factor
from fl_core.formulas.fedluck_optimum import rate_polynomial

Array = NDArray[np.float64]

CELLS = 20_000
"""Size of the arrays worked on at a time: they stay in a processor's cache."""

LAGUERRE_STEPS = 10
"""Full precision is reached after 8 for every alpha / T~ in 1e-5..1e3 and beta / T~ in 1e-5..1e6 that was drawn."""


@dataclass(frozen=True)
class Box:
    """Where k and delta may lie.

    Attributes
    ----------
    k_min, k_max : int
        1 <= k_min <= k_max; whole numbers.
    delta_min, delta_max : float
        0 < delta_min <= delta_max <= 1.
    """

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


class Plan(NamedTuple):
    """What every device does, arrays ``[n]``."""

    local_steps: NDArray[np.int64]
    """k_i."""
    compression_rate: Array
    """delta_i."""
    factor: Array
    """The minimised phi (phi_ceil for `exact_ceil`)."""


def plan(
    seconds_per_step: Any,
    full_upload_seconds: Any,
    period_seconds: float,
    *,
    solver: str = "official_grid",
    box: Box = Box(),
    latency_seconds: Any = 0.0,
    variant: Variant = PRINTED,
) -> Plan:
    """Return the minimiser of the key convergence factor over the box for every device, Eq. 15.

    Parameters
    ----------
    seconds_per_step, full_upload_seconds : float or array_like
        alpha >= 0 and beta >= 0 of each device, ``[n]``, finite.
    period_seconds : float
        T~ > 0.
    solver : str, optional
        One of `SOLVERS`: "official_grid" (the authors'), "exact" or "exact_ceil".
    box : Box, optional
        The authors' by default.
    latency_seconds : float or array_like, optional
        l >= 0 of each device, finite.
    variant : Variant, optional
        The constants of the factor; printed by default.

    Raises
    ------
    ValueError
        The solver is unknown or an argument is out of range.
    """
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
    return Plan(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def exact(alpha: Array, beta: Array, latency: Array, period: float, box: Box, variant: Variant) -> Plan:
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


def exact_ceil(alpha: Array, beta: Array, latency: Array, period: float, box: Box, variant: Variant) -> Plan:
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


def official_grid(alpha: Array, beta: Array, latency: Array, period: float, box: Box, variant: Variant) -> Plan:
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
    return Plan(steps[index].astype(np.int64), delta[index], factor.min(axis=1))


Solver = Callable[[Array, Array, Array, float, Box, Variant], Plan]

SOLVERS: dict[str, tuple[Solver, int]] = {
    "official_grid": (official_grid, 100),
    "exact": (exact, 1),
    "exact_ceil": (exact_ceil, 1),
}
"""Solvers by name, each with the values of delta that it holds in memory for one device and one k."""


def _all_steps(box: Box) -> Array:
    return np.arange(box.k_min, box.k_max + 1, dtype=np.float64)


def _best_steps(k: Array, rate: Array, factor: Array) -> Plan:
    """Choose the best k, ``[K]``, given the best rate and its factor for each, ``[n, K]``."""
    index = factor.argmin(axis=1)
    rows = np.arange(len(index))
    return Plan(k[index].astype(np.int64), rate[rows, index], factor[rows, index])


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
