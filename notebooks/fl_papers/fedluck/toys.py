"""FedLuck's periodic aggregation without a simulator: its timeline, its iterates, and problems with known constants.

`timeline` and `periodic_models` are the server of Algorithm 1 (2.3), written from its arrival times and not from
ceil(d / T~); `LogCosh` has an exact smoothness, gradient bound and heterogeneity, so that the bounds of
`fedluck_theory` can be held against numbers (E15). Derived in this book.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fl_core.algorithms.base import mean_step
from fl_core.formulas.checks import require
from fl_core.formulas.fedluck import TIE
from fl_papers.fedluck.extra_formulas import momentum_step, round_staleness

Array = NDArray[np.float64]


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

    Parameters
    ----------
    job_seconds : sequence of float
        d_i > 0 of each device.
    period_seconds : float
        T~ > 0.
    num_rounds : int
        T >= 0.

    Raises
    ------
    ValueError
        An argument is out of range.
    """
    require(all(d > 0 for d in job_seconds), "job_seconds", job_seconds, "> 0")
    require(period_seconds > 0, "period_seconds", period_seconds, "> 0")
    require(num_rounds >= 0, "num_rounds", num_rounds, ">= 0")
    started, last = [0] * len(job_seconds), [-1] * len(job_seconds)
    rounds = []
    for t in range(num_rounds):
        participants = []
        for device, d in enumerate(job_seconds):
            if started[device] * period_seconds + d <= (t + 1 + TIE) * period_seconds:
                participants.append(Upload(device, started[device], round_staleness(t, last[device])))
                started[device], last[device] = t + 1, t
        rounds.append(participants)
    return rounds


def periodic_models(
    start: Array,
    rounds: Sequence[Sequence[Upload]],
    upload: Callable[[int, Array], Array],
    global_lr: float,
    sample_counts: Sequence[float] | None = None,
) -> list[Array]:
    """Return the global models w^0 .. w^T, each w^(t+1) by `fedluck.server_step` from round t's uploads.

    Parameters
    ----------
    start : ndarray
        w^0, ``[d]``.
    rounds : sequence
        What `timeline` returns.
    upload : callable
        The compressed start minus trained model that a device makes of the model it received; called once for each
        job, in the order of the device's jobs.
    global_lr : float
        eta_g > 0.
    sample_counts : sequence of float, optional
        Weight of each device; uniform by default.

    Raises
    ------
    ValueError
        A learning rate or a weight is out of range.
    """
    models = [start]
    for participants in rounds:
        deltas = [upload(one.device, models[one.start_round]) for one in participants]
        counts = None if sample_counts is None else [sample_counts[one.device] for one in participants]
        models.append(mean_step(models[-1], np.array(deltas), global_lr, counts))
    return models


@dataclass(frozen=True, eq=False)
class LogCosh:
    """F_i(w) = L sum_j log cosh(w_j - b_ij) and F their mean: smooth, with bounded gradients, without noise.

    Attributes
    ----------
    centres : ndarray
        b, ``[n, d]``.
    smoothness : float
        L > 0, of each F_i and of F.
    """

    centres: Array
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

    def local_delta(self, device: int, w: Array, steps: int, lr: float) -> Array:
        """Return w minus the model after `steps` gradient steps on F_device: Eqs. 3 and 4 without momentum."""
        return np.asarray(w - self.local_path(device, w, steps, lr)[-1])

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
