"""FedAsync's mixing and its adaptive weight (FA-2, FA-6).

Source: Xie, Koyejo & Gupta, "Asynchronous Federated Optimization" (2019), Algorithm 1. The paper numbers no
equation; FA-n are this book's numbers.

Symbols: x_t global model after t updates (a number, an array or a flat tensor ``[d]``), tau version a device started
from, `staleness` = t - 1 - tau updates missed (fresh = 0; the paper's t - tau counts from 1), t >= 1 number of the
update being made, s `weight` (see `staleness`), d(t) `schedule_factor`.
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
    """Return (1 - alpha_t) w + alpha_t w_new, the server's update, FA-2; integers (counters) are refused."""
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
    """
    require(0 < alpha <= 1, "alpha", alpha, "in (0, 1]")
    d = schedule_factor(t, schedule, step_epoch=step_epoch, step_factor=step_factor)
    return alpha * d * weight(staleness_argument(staleness, convention))


def schedule_factor(
    t: int, schedule: Schedule = "constant", *, step_epoch: int = 800, step_factor: float = 0.5
) -> float:
    """Return d(t) of FA-6: 1 ("constant"), `step_factor` after update `step_epoch` ("step"), 1/sqrt(t) ("inv_sqrt").

    "step" is what the paper's experiments do, "inv_sqrt" is its Remark 3.
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
    """
    if convention == "missed_updates":
        return staleness
    require(convention == "paper", "convention", convention, "'missed_updates' or 'paper'")
    return staleness + 1
