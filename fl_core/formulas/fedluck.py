"""FedLuck as an algorithm: job time, staleness, the two update steps, the key convergence factor (Eqs. 3 to 7, 14).

Source: Song et al., "A Joint Approach to Local Updating and Gradient Compression for Efficient Asynchronous
Federated Learning" (Euro-Par 2024); (n) are its equations, (L-x), E-n and section numbers those of this project's
specification. The theorem is in `fedluck_theory`, the continuous minimum in `fedluck_optimum`, the planners in
`fedluck_planner`, bytes and published totals in `fedluck_accounting`, test problems in `fedluck_toys`.

Symbols: k `local_steps`, delta `compression_rate` (the fraction kept: 1 is no compression), alpha
`seconds_per_step`, beta `full_upload_seconds`, T~ `period_seconds`, d_i `job_seconds`, l `latency_seconds` (0 in the
paper), u = k alpha + l, D = u + delta beta. Apart from the update steps, arguments may be numbers, arrays, tensors
or SymPy symbols; arrays broadcast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from fl_core.formulas.checks import require

V = TypeVar("V", NDArray[Any], torch.Tensor)

TIE = 1e-9
"""An upload that arrives within this part of a period after a tick still belongs to the round that ends there."""


@dataclass(frozen=True)
class Variant:
    """The constants of the key convergence factor (c tau^2 (2 - delta) + 1) / (k delta^p) that are choices.

    Attributes
    ----------
    staleness_coefficient : float
        c > 0: 1 in (13) and (14), 2 in the theorem (12) from which they are said to follow (E8).
    delta_power : float
        p in (0, 1]: 1/2 in (14), 1 in the authors' supplement (E9).
    contraction : {"printed", "tight"}
        "tight" replaces 2 - delta by 1, which top-k's ‖C(x)‖ <= ‖x‖ gives (E10).
    """

    staleness_coefficient: Any = 1.0
    delta_power: Any = 0.5
    contraction: Literal["printed", "tight"] = "printed"

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
    """Return phi(k, delta), Eq. 14: `staleness_factor` with tau = d / T~, without the ceiling.

    Parameters
    ----------
    local_steps : float or ndarray
        k > 0; need not be whole.
    compression_rate : float or ndarray
        delta in (0, 1].
    seconds_per_step, full_upload_seconds : float or ndarray
        alpha >= 0, beta >= 0.
    period_seconds : float or ndarray
        T~ > 0.
    latency_seconds : float or ndarray, optional
        l >= 0.
    variant : Variant, optional
        The constants; printed by default.

    Raises
    ------
    ValueError
        An argument is out of range.
    """
    require(period_seconds > 0, "period_seconds", period_seconds, "> 0")
    d = job_seconds(
        local_steps, compression_rate, seconds_per_step, full_upload_seconds, latency_seconds=latency_seconds
    )
    return staleness_factor(local_steps, compression_rate, d / period_seconds, variant)


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


def staleness_factor(
    local_steps: Any, compression_rate: Any, round_staleness: Any, variant: Variant = PRINTED
) -> Any:
    """Return (c tau^2 (2 - delta) + 1) / (k delta^p): the third term of (13) without B_1 and T.

    Parameters
    ----------
    local_steps : float or ndarray
        k > 0.
    compression_rate : float or ndarray
        delta in (0, 1].
    round_staleness : float or ndarray
        tau >= 0.
    variant : Variant, optional
        c, p and whether 2 - delta is there.

    Raises
    ------
    ValueError
        An argument is out of range.
    """
    _require_plan(local_steps, compression_rate)
    require(round_staleness >= 0, "round_staleness", round_staleness, ">= 0")
    stale = variant.staleness_coefficient * round_staleness**2
    if variant.contraction == "printed":
        stale = stale * (2 - compression_rate)
    return (stale + 1) / (local_steps * compression_rate**variant.delta_power)


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


def job_seconds(
    local_steps: Any,
    compression_rate: Any,
    seconds_per_step: Any,
    full_upload_seconds: Any,
    *,
    latency_seconds: Any = 0.0,
) -> Any:
    """Return d_i = k_i alpha_i + delta_i beta_i (+ l_i), Eq. 5: from receiving a model to the upload's arrival.

    Raises
    ------
    ValueError
        k <= 0, delta outside (0, 1] or a negative time.
    """
    _require_plan(local_steps, compression_rate)
    require(seconds_per_step >= 0, "seconds_per_step", seconds_per_step, ">= 0")
    require(full_upload_seconds >= 0, "full_upload_seconds", full_upload_seconds, ">= 0")
    require(latency_seconds >= 0, "latency_seconds", latency_seconds, ">= 0")
    return local_steps * seconds_per_step + compression_rate * full_upload_seconds + latency_seconds


def rounds_per_job(job_seconds: Any, period_seconds: Any) -> Any:
    """Return c_i = ceil(d_i / T~), at least 1: a job's length in rounds, and its staleness by Eq. 7.

    A job that ends at a tick belongs to the round that ends there, whatever rounding says (`TIE`). A device starts
    its next job c_i ticks after the last one and idles c_i T~ - d_i; its upload missed c_i - 1 versions (E1).

    Raises
    ------
    ValueError
        d_i < 0 or T~ <= 0.
    """
    require(job_seconds >= 0, "job_seconds", job_seconds, ">= 0")
    require(period_seconds > 0, "period_seconds", period_seconds, "> 0")
    rounds = np.maximum(1, np.ceil(job_seconds / period_seconds - TIE)).astype(np.int64)
    return rounds if rounds.ndim else int(rounds)


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


def local_step(weights: V, grad: V, velocity: V, local_lr: float, momentum: float = 0.9) -> tuple[V, V]:
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


def server_step(
    weights: V, compressed_deltas: V, global_lr: float = 1.0, sample_counts: Sequence[float] | None = None
) -> V:
    """Return w - eta_g mean of the uploads, Eq. 6; w itself where none arrived (E2).

    Also the step of FedPer, of FedBuff (its K uploads) and of FedAvg+Topk (eta_g = 1, weighted by samples).

    Parameters
    ----------
    weights : ndarray or Tensor
        w, ``[d]``.
    compressed_deltas : ndarray or Tensor
        Uploaded start model minus trained model of each participant, ``[n, d]``.
    global_lr : float, optional
        eta_g > 0.
    sample_counts : sequence of float, optional
        Weights, one > 0 for each upload; uniform by default, as printed (A5).

    Raises
    ------
    ValueError
        `global_lr` is not positive or `sample_counts` does not fit.
    """
    require(global_lr > 0, "global_lr", global_lr, "> 0")
    n = len(compressed_deltas)
    if sample_counts is None:
        return weights - global_lr * compressed_deltas.mean(0) if n else weights
    require(len(sample_counts) == n, "len(sample_counts)", len(sample_counts), f"{n}, one per upload")
    require(all(count > 0 for count in sample_counts), "sample_counts", sample_counts, "> 0")
    for count, delta in zip(sample_counts, compressed_deltas, strict=True):
        weights = weights - global_lr * (count / sum(sample_counts)) * delta
    return weights


def _require_plan(local_steps: Any, compression_rate: Any) -> None:
    require(local_steps > 0, "local_steps", local_steps, "> 0")
    require(compression_rate > 0, "compression_rate", compression_rate, "in (0, 1]")
    require(compression_rate <= 1, "compression_rate", compression_rate, "in (0, 1]")
