"""FedDyn: a linear correction for each device, so that all agree on one stationary point (BL-2.8 to BL-2.10).

Source: Acar, Zhao, Matas Navarro, Mattina, Whatmough & Saligrama, "Federated Learning Based on Dynamic
Regularization" (ICLR 2021). BL-n are the equations of this project's specification of the baselines.

Symbols: w_t the round's global model, x_k what device k has made of it, g_k `correction` of device k, h `state` of
the server, N `num_devices`. Arguments are parameters only, no running statistics: numbers, arrays ``[p]`` or tensors
``[p]``.
"""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from numpy.typing import NDArray

from fl_core.formulas.checks import require

M = TypeVar("M", float, NDArray[Any], torch.Tensor)


def added_gradient(x: M, anchor: M, correction: M | float, alpha: float) -> M:
    """Return -g_k + alpha (x - w_t): what a local step adds to the gradient of F_k, BL-2.8.

    Parameters
    ----------
    x, anchor : float, ndarray or Tensor
        The local model and w_t, ``[p]``.
    correction : float, ndarray or Tensor
        g_k ``[p]``; 0 before the device's first round.
    alpha : float
        Regularisation, > 0.

    Raises
    ------
    ValueError
        `alpha` is not positive.
    """
    require(alpha > 0, "alpha", alpha, "> 0")
    return alpha * (x - anchor) - correction


def next_correction(correction: M | float, moved: M, alpha: float) -> M:
    """Return g_k - alpha (x_k - w_t), BL-2.9: the gradient of F_k at x_k if x_k minimises the local problem.

    Parameters
    ----------
    correction : float, ndarray or Tensor
        g_k before the round; 0 before the first.
    moved : float, ndarray or Tensor
        x_k - w_t, ``[p]``.
    alpha : float
        As in `added_gradient`.

    Raises
    ------
    ValueError
        `alpha` is not positive.
    """
    require(alpha > 0, "alpha", alpha, "> 0")
    return correction - alpha * moved


def next_state(state: M | float, moved: M, alpha: float, num_devices: int) -> M:
    """Return h - (alpha / N) sum_k (x_k - w_t), BL-2.10: the mean of the g_k over all devices, at all times.

    Parameters
    ----------
    state : float, ndarray or Tensor
        h before the round; 0 before the first.
    moved : float, ndarray or Tensor
        The sum of x_k - w_t over the devices of the round, ``[p]``.
    alpha : float
        > 0.
    num_devices : int
        N, all devices and not those of the round.

    Raises
    ------
    ValueError
        An argument is out of range.
    """
    require(alpha > 0, "alpha", alpha, "> 0")
    require(num_devices >= 1, "num_devices", num_devices, ">= 1")
    return state - alpha / num_devices * moved


def next_model(mean: M, state: M, alpha: float) -> M:
    """Return the mean of the x_k minus h / alpha, BL-2.10, with the h of after the round.

    Raises
    ------
    ValueError
        `alpha` is not positive.
    """
    require(alpha > 0, "alpha", alpha, "> 0")
    return mean - state / alpha


def alpha_of_share(alpha: float, share: float, num_devices: int) -> float:
    """Return alpha / (N p_k), with which the authors' code regularises a device that holds the part p_k of the data.

    The g_k then balance where sum_k p_k F_k is stationary, not where the unweighted mean of the F_k is.

    Raises
    ------
    ValueError
        An argument is out of range.
    """
    require(alpha > 0, "alpha", alpha, "> 0")
    require(0 < share <= 1, "share", share, "in (0, 1]")
    require(num_devices >= 1, "num_devices", num_devices, ">= 1")
    return alpha / (num_devices * share)
