"""Formulas that the chapters and claims use, and no algorithm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from fl_core.formulas.checks import require

R = TypeVar("R", float, NDArray[Any])
M = TypeVar("M", float, NDArray[Any], torch.Tensor)


def unrolled_weights(alphas: Sequence[float]) -> list[float]:
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


def proximal_step(x: M, grad: M, anchor: M, lr: float, rho: float = 0.0) -> M:
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
