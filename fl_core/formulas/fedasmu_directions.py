"""What FedASMU has to remember of a past aggregation: a direction d_i, of which only <g_i, d_i> is ever used (2.7).

Source: section 2.7 of this project's specification of FedASMU (Liu et al., AAAI 2024); the paper does not say how the
products are formed. An exact direction takes a whole model per device. Two forms take less: half precision, with half
of the memory, and a sketch of fixed length. `half_error` bounds the error of the one, `sketch_error` is the standard
deviation of the other.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from fl_core.formulas.checks import require

HALF_BITS = 11
"""Significant bits of a float16, with the hidden one."""

HALF_EXPONENT = 15
"""Directions are scaled to below 2^15, so that a part of 2^-29 of the largest entry is still a normal float16."""

HALF_SMALLEST = 2.0**-24
"""The smallest float16 above 0."""


class Half(NamedTuple):
    """A vector in half precision."""

    values: Tensor
    """``[p]``, float16."""
    unit: float
    """What they are multiplied by: a power of two, so that scaling costs no precision."""


def to_half(vector: Tensor) -> Half:
    """Return `vector` ``[p]`` in half precision."""
    largest = float(vector.abs().max()) if len(vector) else 0.0
    unit = max(2.0 ** (math.frexp(largest)[1] - HALF_EXPONENT), torch.finfo(vector.dtype).tiny)
    return Half((vector / unit).half(), unit)


def half_product(vector: Tensor, kept: Half) -> float:
    """Return the inner product of `vector` ``[p]`` with a kept one."""
    return float(vector @ kept.values.to(vector.dtype)) * kept.unit


def half_error(vector: Tensor, direction: Tensor) -> float:
    """Return a bound on the error of `half_product`: 2^-11 sum |g_j d_j|, and half a step for tiny entries."""
    unit = to_half(direction).unit
    rounding = float((vector * direction).abs().sum()) * 2.0**-HALF_BITS
    return rounding + float(vector.abs().sum()) * HALF_SMALLEST / 2 * unit


def sketch(vector: Tensor, size: int, seed: int) -> Tensor:
    """Return the sums ``[size]`` of the entries that fall into each place, each with a random sign (a count sketch).

    A linear map, the same for the same `seed`; products of sketches are unbiased estimates of products of vectors.

    Parameters
    ----------
    vector : Tensor
        ``[p]``.
    size : int
        Places k >= 1.
    seed : int
        Of the places and the signs.

    Raises
    ------
    ValueError
        `size` is not positive.
    """
    require(size >= 1, "size", size, ">= 1")
    sums = torch.bincount(_places(len(vector), size, seed), vector.double(), minlength=2 * size)
    return sums[:size] - sums[size:]


def sketch_error(vector: Tensor, direction: Tensor, size: int) -> float:
    """Return the standard deviation of the product of two sketches, over all seeds.

    Its square is (|g|^2 |d|^2 + <g, d>^2 - 2 sum g_j^2 d_j^2) / k.
    """
    vector, direction = vector.double(), direction.double()
    squares = float(vector @ vector) * float(direction @ direction)
    products = vector * direction
    variance = (squares + float(products.sum()) ** 2 - 2 * float(products @ products)) / size
    return math.sqrt(max(0.0, variance))


@lru_cache(maxsize=2)
def _places(length: int, size: int, seed: int) -> Tensor:
    """Return for each entry a place, below `size` for the sign +, above it for the sign -."""
    return torch.randint(2 * size, (length,), generator=torch.Generator().manual_seed(seed))
