"""ASO-Fed: a local direction with a decayed memory, longer steps for slow devices, attention to features (BL-3.6 ff).

Source: Chen, Ning, Slawski & Rangwala, "Asynchronous Online Federated Learning for Edge Devices with Non-IID Data"
(IEEE Big Data 2020). BL-n are the equations of this project's specification of the baselines, which restate the
paper's from memory; their order agrees with the comments in two public codes. The server's step (BL-3.9),
w + p_k Delta_k, is `fl_core.formulas.fedluck.server_step` with eta_g = p_k.
"""

from __future__ import annotations

import math
from typing import Any, TypeVar

import torch
from numpy.typing import NDArray
from torch import Tensor

from fl_core.formulas.checks import require

M = TypeVar("M", float, NDArray[Any], torch.Tensor)


def direction(gradient: M, previous: M, memory: M) -> M:
    """Return zeta = grad s - v + h, BL-3.6: the way of a local step.

    Parameters
    ----------
    gradient : float, ndarray or Tensor
        grad s ``[p]``, that of F_k plus lambda (x - w_b).
    previous : float, ndarray or Tensor
        v ``[p]``, the grad s of the device's step before, which may belong to an earlier task.
    memory : float, ndarray or Tensor
        h ``[p]``.
    """
    return gradient - previous + memory


def next_memory(memory: M, previous: M, beta: float) -> M:
    """Return beta h + (1 - beta) v, BL-3.7, with the v that `direction` was given; after that v becomes grad s.

    Raises
    ------
    ValueError
        `beta` is not in [0, 1].
    """
    require(0 <= beta <= 1, "beta", beta, "in [0, 1]")
    return beta * memory + (1 - beta) * previous


def step_factor(mean_seconds: float | None) -> float:
    """Return r_k = max(1, log(mean duration)), BL-3.8, by which a device multiplies its step size.

    It depends on the unit of time, here seconds.

    Parameters
    ----------
    mean_seconds : float or None
        Mean duration of the device's past tasks, >= 0; None: it has none yet, and the factor is 1.

    Raises
    ------
    ValueError
        `mean_seconds` is negative.
    """
    if mean_seconds is None:
        return 1.0
    require(mean_seconds >= 0, "mean_seconds", mean_seconds, ">= 0")
    return max(1.0, math.log(mean_seconds)) if mean_seconds else 1.0


def attend(layer: Tensor, rescaled: bool = False) -> Tensor:
    """Return a_ij W_ij with a the softmax of the |W_ij| of a row, BL-3.10.

    The a_ij of a row add up to 1, so that a layer with many inputs shrinks to nothing if this is done after every
    update; `rescaled` multiplies by the length of the row, which leaves a row of equal weights alone.

    Parameters
    ----------
    layer : Tensor
        W ``[rows, columns]``.
    rescaled : bool
    """
    attended = torch.softmax(layer.abs(), 1) * layer
    return attended * layer.shape[1] if rescaled else attended
