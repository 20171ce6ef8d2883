"""FedAsync as an algorithm: mixing, the adaptive mixing weight, the regularised local step (FA-2 to FA-6).

Source: Xie, Koyejo & Gupta, "Asynchronous Federated Optimization" (2019), Algorithm 1. The paper numbers no
equation; FA-n are this book's numbers. The theorems are in `fedasync_theory`, exact results in
`fedasync_stability`, test problems in `fedasync_toys`.

Symbols: x_t global model after t updates, tau version a device started from, staleness = t - 1 - tau updates
missed (fresh = 0; the paper's t - tau counts from 1), gamma local learning rate `lr`, rho proximal weight.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

import numpy as np
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
    d = decay(t, schedule, step_epoch=step_epoch, step_factor=step_factor)
    return alpha * d * weight(staleness_argument(staleness, convention))


def decay(t: int, schedule: Schedule = "constant", *, step_epoch: int = 800, step_factor: float = 0.5) -> float:
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


def mixing_weights(alphas: Sequence[float]) -> list[float]:
    """Return how much x_0 and each of the T arriving models count in x_T: FA-2 unrolled.

    Entry 0 is prod_t (1 - alpha_t), entry t is alpha_t prod_{r > t} (1 - alpha_r); they add up to 1.

    Parameters
    ----------
    alphas : sequence of float
        alpha_1 .. alpha_T, each in [0, 1] (numbers or SymPy symbols).

    Raises
    ------
    ValueError
        An alpha is out of range.
    """
    weights: list[float] = [1]
    for alpha in alphas:
        require(alpha >= 0, "alpha", alpha, "in [0, 1]")
        require(alpha <= 1, "alpha", alpha, "in [0, 1]")
        weights = [(1 - alpha) * w for w in weights] + [alpha]
    return weights


def prox_gradient(grad: M, x: M, anchor: M, rho: float) -> M:
    """Return grad f(x; z) + rho (x - x_tau): the gradient of the regularised local loss, FA-5.

    Parameters
    ----------
    grad : float, ndarray or Tensor
        Stochastic gradient of the plain loss at x.
    x : float, ndarray or Tensor
        Current local model.
    anchor : float, ndarray or Tensor
        The model the device received, x_tau; it stays fixed for the whole task.
    rho : float
        Proximal weight, rho >= 0; 0 is Option I (FA-4).

    Raises
    ------
    ValueError
        `rho` is negative.
    """
    require(rho >= 0, "rho", rho, ">= 0")
    return grad + rho * (x - anchor)


def local_step(x: M, grad: M, anchor: M, lr: float, rho: float = 0.0) -> M:
    """Return x - gamma [grad f(x; z) + rho (x - x_tau)]: one step of a device, FA-4 and FA-5.

    Parameters
    ----------
    x : float, ndarray or Tensor
        Current local model x_{tau,h-1}.
    grad : float, ndarray or Tensor
        Stochastic gradient of the plain loss at x.
    anchor : float, ndarray or Tensor
        The model the device received, x_tau.
    lr : float
        gamma > 0.
    rho : float, optional
        rho >= 0; 0 is Option I.

    Raises
    ------
    ValueError
        `lr` or `rho` is out of range.
    """
    require(lr > 0, "lr", lr, "> 0")
    return x - lr * prox_gradient(grad, x, anchor, rho)


def local_factor(curvature: R, lr: float, steps: int, rho: float = 0.0) -> R:
    """Return (x_{tau,H} - c) / (x_tau - c) for the local loss a/2 (x - c)^2 and exact gradients.

    The closed form of H steps FA-5, [rho + a (1 - gamma (a + rho))^H] / (a + rho), derived in this book. For
    gamma < 2 / (a + rho) it tends to the proximal point's rho / (a + rho); otherwise it does not settle.

    Parameters
    ----------
    curvature : float or ndarray
        a > 0; a number, or an array with one curvature per coordinate.
    lr : float
        gamma > 0.
    steps : int
        H >= 0.
    rho : float, optional
        rho >= 0; 0 is Option I and gives (1 - gamma a)^H.

    Raises
    ------
    ValueError
        An argument is out of range.
    """
    require(np.greater(curvature, 0), "curvature", curvature, "> 0")
    require(lr > 0, "lr", lr, "> 0")
    require(steps >= 0, "steps", steps, ">= 0")
    require(rho >= 0, "rho", rho, ">= 0")
    return (rho + curvature * (1 - lr * (curvature + rho)) ** steps) / (curvature + rho)


def local_solution(x_base: R, centre: R, curvature: R, lr: float, steps: int, rho: float = 0.0) -> R:
    """Return x_{tau,H} for the local loss a/2 (x - c)^2: c + (x_tau - c) `local_factor`.

    Parameters
    ----------
    x_base : float or ndarray
        Received model x_tau.
    centre : float or ndarray
        Minimiser c of the local loss.
    curvature : float or ndarray
        a > 0.
    lr : float
        gamma > 0.
    steps : int
        H >= 0.
    rho : float, optional
        rho >= 0.

    Raises
    ------
    ValueError
        An argument is out of range.
    """
    return centre + (x_base - centre) * local_factor(curvature, lr, steps, rho)


def max_stable_lr(smoothness: float, rho: float = 0.0) -> float:
    """Return 2 / (L + rho): local steps FA-5 converge on every L-smooth quadratic iff gamma is smaller.

    The paper's Theorem 2 allows larger ones (erratum E8).

    Parameters
    ----------
    smoothness : float
        L > 0.
    rho : float, optional
        rho >= 0.

    Raises
    ------
    ValueError
        An argument is out of range.
    """
    require(smoothness > 0, "smoothness", smoothness, "> 0")
    require(rho >= 0, "rho", rho, ">= 0")
    return 2 / (smoothness + rho)
