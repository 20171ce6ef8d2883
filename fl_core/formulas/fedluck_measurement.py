"""What FedLuck plans with: seconds per local step and seconds per full upload, estimated from timings (2.2).

In a simulated world both are known; the estimates serve a cluster, and worlds whose speeds vary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fl_core.formulas.checks import require

WARM_UP_STEPS, TIMED_STEPS = 3, 10
PROBE_RATES, PROBE_REPEATS = (0.05, 0.1, 0.25, 0.5, 1.0), 3
"""The measuring protocol: local steps discarded and timed; compression rates sent, and how often each."""


def mean_step_seconds(step_seconds: Sequence[float], warm_up: int = WARM_UP_STEPS) -> float:
    """Return the estimate of alpha_i: the mean time of the local steps after the first `warm_up`.

    Raises
    ------
    ValueError
        A time is negative, or none is left after the warm-up.
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
    """Return the least-squares fit of t = beta delta: beta = sum delta_s t_s / sum delta_s^2.

    Parameters
    ----------
    compression_rates : sequence of float
        delta_s in (0, 1] of each payload sent.
    upload_seconds : sequence of float
        t_s >= 0, how long it took.

    Raises
    ------
    ValueError
        There is no measurement, the lengths differ or a value is out of range.
    """
    delta, t = _measurements(compression_rates, upload_seconds)
    return UploadFit(float(delta @ t / (delta @ delta)), 0.0)


def fit_upload_with_latency(compression_rates: Sequence[float], upload_seconds: Sequence[float]) -> UploadFit:
    """Return the least-squares fit of t = beta delta + l with both constants >= 0, as `fit_upload` otherwise.

    Raises
    ------
    ValueError
        As `fit_upload`; also where all rates are equal, which leaves the line undetermined.
    """
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
