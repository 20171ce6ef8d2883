"""FedAsync as an algorithm: mixing, the adaptive mixing weight, the regularised local step (FA-2 to FA-6).

Source: Xie, Koyejo & Gupta, "Asynchronous Federated Optimization" (2019), Algorithm 1. The paper numbers no
equation; FA-n are this book's numbers. The theorems are in `fedasync_theory`, exact results in
`fedasync_stability`, test problems in `fedasync_toys`.

Symbols: x_t global model after t updates, tau version a device started from, staleness = t - 1 - tau updates
missed (fresh = 0; the paper's t - tau counts from 1), gamma local learning rate `lr`, rho proximal weight.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, TypeVar

import torch
from numpy.typing import NDArray

from fl_core.formulas.checks import require
from fl_core.formulas.staleness import constant

R = TypeVar("R", float, NDArray[Any])
M = TypeVar("M", float, NDArray[Any], torch.Tensor)
Schedule = Literal["constant", "step", "inv_sqrt"]
Convention = Literal["missed_updates", "paper"]


def mix(w: M, w_new: M, alpha_t: float) -> M:
    """Return (1 - alpha_t) w + alpha_t w_new: the server's update, FA-2.

    Parameters
    ----------
    w : float, ndarray or Tensor
        Current global model x_{t-1}; a flat float tensor ``[d]``, an array or a number.
    w_new : float, ndarray or Tensor
        Arriving local model x_new, same kind and shape.
    alpha_t : float
        Mixing weight in [0, 1]; 0 drops the arrival, 1 replaces the global model.

    Raises
    ------
    ValueError
        `alpha_t` is out of range, the shapes differ, or a tensor holds integers (a counter such as batch norm's
        ``num_batches_tracked`` must not be averaged).
    """
    require(0 <= alpha_t <= 1, "alpha_t", alpha_t, "in [0, 1]")
    if isinstance(w, torch.Tensor):
        require(w.shape == w_new.shape, "w_new.shape", tuple(w_new.shape), f"{tuple(w.shape)}, the shape of w")
        require(w.is_floating_point(), "w.dtype", w.dtype, "a floating-point type: counters are not mixed")
        return torch.lerp(w, w_new, alpha_t)
    return (1 - alpha_t) * w + alpha_t * w_new


def alpha_t(
    alpha: float,
    t: int,
    staleness: float,
    weight: Callable[[float], float] = constant,
    *,
    schedule: Schedule = "constant",
    step_epoch: int = 800,
    step_factor: float = 0.5,
    convention: Convention = "missed_updates",
) -> float:
    """Return alpha d(t) s(u), the mixing weight of update t, FA-6.

    Always computed from `alpha` itself: multiplying the previous weight by s again would let it die out.

    Parameters
    ----------
    alpha : float
        Mixing hyperparameter in (0, 1].
    t : int
        Number of the update being made, t >= 1.
    staleness : float
        Updates the arriving model missed, t - 1 - tau >= 0.
    weight : callable, optional
        Staleness function s; `constant` gives plain FedAsync.
    schedule : {"constant", "step", "inv_sqrt"}, optional
        Decay d(t), see `decay`.
    step_epoch : int, optional
        Last update before the step (``schedule="step"`` only).
    step_factor : float, optional
        Factor after the step, in (0, 1] (``schedule="step"`` only).
    convention : {"missed_updates", "paper"}, optional
        What s is given, see `staleness_argument`.

    Raises
    ------
    ValueError
        An argument is out of range or not one of the named choices.
    """
    require(0 < alpha <= 1, "alpha", alpha, "in (0, 1]")
    d = schedule_factor(t, schedule, step_epoch=step_epoch, step_factor=step_factor)
    return alpha * d * weight(staleness_argument(staleness, convention))


def schedule_factor(
    t: int, schedule: Schedule = "constant", *, step_epoch: int = 800, step_factor: float = 0.5
) -> float:
    """Return d(t): 1 ("constant"), one step down after `step_epoch` ("step"), 1/sqrt(t) ("inv_sqrt").

    "step" is what the paper's experiments do, "inv_sqrt" is its Remark 3. Factor of FA-6.

    Parameters
    ----------
    t : int
        Number of the update being made, t >= 1.
    schedule : {"constant", "step", "inv_sqrt"}, optional
        One of the three names above.
    step_epoch : int, optional
        Last update with the full weight, >= 0.
    step_factor : float, optional
        Factor from update ``step_epoch + 1`` on, in (0, 1].

    Raises
    ------
    ValueError
        An argument is out of range or the `schedule` is unknown.
    """
    require(t >= 1, "t", t, ">= 1 (updates are counted from 1)")
    if schedule == "constant":
        return 1.0
    if schedule == "inv_sqrt":
        return 1 / math.sqrt(t)
    require(schedule == "step", "schedule", schedule, "'constant', 'step' or 'inv_sqrt'")
    require(step_epoch >= 0, "step_epoch", step_epoch, ">= 0")
    require(0 < step_factor <= 1, "step_factor", step_factor, "in (0, 1]")
    return 1.0 if t <= step_epoch else step_factor


def staleness_argument(staleness: float, convention: Convention = "missed_updates") -> float:
    """Return what the staleness function is given: missed updates (fresh = 0), or one more ("paper").

    Algorithm 1 prints s(t - tau), which is 1 for a model that missed nothing; the authors' released code
    counts missed updates, so that a fresh model has s = 1.

    Raises
    ------
    ValueError
        The `convention` is unknown. (The staleness function itself refuses negative values.)
    """
    if convention == "missed_updates":
        return staleness
    require(convention == "paper", "convention", convention, "'missed_updates' or 'paper'")
    return staleness + 1
