"""Formulas that the chapters and claims use, and no algorithm."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from fl_core.formulas.checks import require
from fl_core.formulas.fedasmu import to_half


def grad_estimate(start: Any, uploaded: Any, lr: float, divisor: float, jump: Any = 0.0) -> Any:
    """Return g_i = (w_o - w_o^i + jump) / (eta_i K), the mean gradient along the local path (D3).

    The paper prints the opposite sign, which turns the descent of (3) into an ascent (E01).

    Parameters
    ----------
    start, uploaded : ndarray or Tensor
        w_o and w_o^i, ``[p]``.
    lr : float
        eta_i > 0.
    divisor : float
        Local steps K > 0; local epochs as printed (E08).
    jump : ndarray or Tensor, optional
        w^a - w^b, what the merge with a fresh model added to the upload (E09).

    Raises
    ------
    ValueError
        `lr` or `divisor` is not positive.
    """
    require(lr > 0, "lr", lr, "> 0")
    require(divisor > 0, "divisor", divisor, "> 0")
    return (start - uploaded + jump) / (lr * divisor)


HALF_BITS = 11
"""Significant bits of a float16, with the hidden one."""


HALF_SMALLEST = 2.0**-24
"""The smallest float16 above 0."""


def half_error(vector: Tensor, direction: Tensor) -> float:
    """Return a bound on the error of `half_product`: 2^-11 sum |g_j d_j|, and half a step for tiny entries."""
    unit = to_half(direction).unit
    rounding = float((vector * direction).abs().sum()) * 2.0**-HALF_BITS
    return rounding + float(vector.abs().sum()) * HALF_SMALLEST / 2 * unit


def sketch_error(vector: Tensor, direction: Tensor, size: int) -> float:
    """Return the standard deviation of the product of two sketches, over all seeds.

    Its square is (|g|^2 |d|^2 + <g, d>^2 - 2 sum g_j^2 d_j^2) / k.
    """
    vector, direction = vector.double(), direction.double()
    squares = float(vector @ vector) * float(direction @ direction)
    products = vector * direction
    variance = (squares + float(products.sum()) ** 2 - 2 * float(products @ products)) / size
    return math.sqrt(max(0.0, variance))
