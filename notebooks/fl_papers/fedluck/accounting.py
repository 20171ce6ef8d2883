"""FedLuck's seconds and gigabytes: how its tables count, and what its published numbers follow from (2.8, 6.4).

Source: FedLuck (Song et al., Euro-Par 2024), Table 1, and the public code. Counted are uploads alone, at delta times
the model's float32 size: no indices, no headers, no downloads; time starts at the first aggregation.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fl_core.formulas.checks import require
from fl_core.formulas.fedluck import TIE, job_seconds

BYTES_PER_PARAMETER = 4
BYTES_PER_GB = 2**30
"""What the paper calls GB."""


class Totals(NamedTuple):
    """A point of a published curve."""

    elapsed_seconds: Any
    """Since the first aggregation."""
    gigabytes: Any
    """2^30 bytes uploaded, the first aggregation's included."""


def upload_bytes(compression_rate: Any, num_parameters: Any) -> Any:
    """Return 4 delta d, the bytes that one upload counts; need not be whole.

    Raises
    ------
    ValueError
        delta outside (0, 1] or d < 1.
    """
    require(compression_rate > 0, "compression_rate", compression_rate, "in (0, 1]")
    require(compression_rate <= 1, "compression_rate", compression_rate, "in (0, 1]")
    require(num_parameters >= 1, "num_parameters", num_parameters, ">= 1")
    return compression_rate * BYTES_PER_PARAMETER * num_parameters


def synchronous_round_seconds(
    local_steps: Any, compression_rate: Any, seconds_per_step: Any, full_upload_seconds: Any
) -> float:
    """Return max_i d_i, how long a round of FedAvg+Topk lasts: it waits for the slowest device.

    Takes the arguments of `fedluck.job_seconds`, numbers or arrays ``[n]``, and refuses the same values.
    """
    times = (np.asarray(t, dtype=np.float64) for t in (seconds_per_step, full_upload_seconds))
    return float(np.max(job_seconds(local_steps, compression_rate, *times)))


def synchronous_totals(
    num_rounds: Any, round_seconds: float, compression_rate: float, num_parameters: int, num_devices: int
) -> Totals:
    """Return time and traffic of FedAvg+Topk after n rounds: (n - 1) `round_seconds`, n `num_devices` uploads.

    Raises
    ------
    ValueError
        n < 1, a round without length, no devices, or `upload_bytes` refuses.
    """
    require(np.greater_equal(num_rounds, 1), "num_rounds", num_rounds, ">= 1")
    require(round_seconds > 0, "round_seconds", round_seconds, "> 0")
    require(num_devices >= 1, "num_devices", num_devices, ">= 1")
    sent = num_rounds * num_devices * upload_bytes(compression_rate, num_parameters)
    return Totals((num_rounds - 1) * round_seconds, sent / BYTES_PER_GB)


def rounds_at(elapsed_seconds: Any, round_seconds: float) -> Any:
    """Return n for which (n - 1) `round_seconds` is nearest to a published time.

    Raises
    ------
    ValueError
        A negative time or a round without length.
    """
    require(np.greater_equal(elapsed_seconds, 0), "elapsed_seconds", elapsed_seconds, ">= 0")
    require(round_seconds > 0, "round_seconds", round_seconds, "> 0")
    n = 1 + np.rint(np.asarray(elapsed_seconds) / round_seconds).astype(np.int64)
    return n if n.ndim else int(n)


def uploads_until(seconds: float, rounds_per_job: Any, period_seconds: float) -> NDArray[np.int64]:
    """Return floor(H / (c_i T~)), how often each device takes part in the aggregations up to H, ``[n]``.

    Parameters
    ----------
    seconds : float
        H >= 0 since the start; an aggregation at H counts.
    rounds_per_job : array_like of int
        c_i >= 1, ``[n]``.
    period_seconds : float
        T~ > 0.

    Raises
    ------
    ValueError
        An argument is out of range.
    """
    require(seconds >= 0, "seconds", seconds, ">= 0")
    require(period_seconds > 0, "period_seconds", period_seconds, "> 0")
    c = np.asarray(rounds_per_job)
    require(c >= 1, "rounds_per_job", rounds_per_job, ">= 1")
    return np.floor(seconds / period_seconds + TIE).astype(np.int64) // c


def periodic_totals(
    elapsed_seconds: float, rounds_per_job: Any, compression_rates: Any, period_seconds: float, num_parameters: int
) -> Totals:
    """Return traffic of a periodic method (FedLuck, FedPer) at a time since its first aggregation.

    The first aggregation with an upload is at min_i c_i T~.

    Parameters
    ----------
    elapsed_seconds : float
        Time since then, >= 0.
    rounds_per_job : array_like of int
        c_i >= 1, ``[n]``.
    compression_rates : array_like of float
        delta_i in (0, 1], ``[n]``.
    period_seconds : float
        T~ > 0.
    num_parameters : int
        d >= 1.

    Raises
    ------
    ValueError
        An argument is out of range.
    """
    require(elapsed_seconds >= 0, "elapsed_seconds", elapsed_seconds, ">= 0")
    start = float(np.min(rounds_per_job)) * period_seconds
    uploads = uploads_until(elapsed_seconds + start, rounds_per_job, period_seconds)
    sent = np.sum(uploads * upload_bytes(np.asarray(compression_rates), num_parameters))
    return Totals(elapsed_seconds, float(sent) / BYTES_PER_GB)
