"""Compressors that send one bit per entry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from fl_core.formulas.checks import require
from fl_core.formulas.compression.base import Codes, CompressorBase, Layout, PerTensor, Random


def majority_vote(signs: Tensor) -> Tensor:
    """Return sign(Σ_i sign(x_i)) of the rows of `signs` ``[n, d]``, with 0 for a tie (BL-4.7).

    Raises
    ------
    ValueError
        `signs` is not a matrix.
    """
    require(signs.dim() == 2, "signs", list(signs.shape), "a matrix [n, d]")
    return signs.sign().sum(0).sign()


class SignSGD(CompressorBase):
    """Send the signs only; the step size carries the scale (BL-4.7).

    Neither a contraction nor unbiased: C(x) has the same length √d for every x. A bit cannot say 0, so sign(0) = 1
    here, and the zero vector becomes ones; :func:`majority_vote` is the step of a server.

    A message has d bits.

    Bernstein, Wang, Azizzadenesheli & Anandkumar (2018).
    """

    kind: Literal["signsgd"] = "signsgd"

    def ideal_bits(self, d: int, dtype: torch.dtype = torch.float32, segments: Sequence[int] | None = None) -> float:
        """Return d."""
        return d

    def _layout(self, parts: list[int], dtype: torch.dtype) -> Layout:
        return Layout(0, sum(parts), 1)

    def _send(self, vector: Tensor, parts: list[int], generator: Random | None) -> tuple[Tensor, Codes]:
        return vector[:0], _negative(vector)

    def _receive(self, values: Tensor, codes: Codes, parts: list[int]) -> Tensor:
        return _signs(codes, values.dtype)


class ScaledSign(PerTensor):
    """Send the signs and the mean of |x_j|, which multiplies them (BL-4.8).

    A deterministic contraction with equality: ‖C(x) - x‖² = (1 - δ)‖x‖², δ = ‖x‖₁² / (d‖x‖²) >= 1/d. The worst x has
    one entry that is not 0. As sign(0) = 1, this is exact for x with zeros too; the zero vector stays zero.

    A message has the scale and d bits: 32 + d bits.

    Karimireddy, Rebjock, Stich & Jaggi (2019).
    """

    kind: Literal["scaledsign"] = "scaledsign"

    def ideal_bits(self, d: int, dtype: torch.dtype = torch.float32, segments: Sequence[int] | None = None) -> float:
        """Return the bits of a message, of which none can be spared."""
        return self.encoded_bits(d, dtype, segments)

    def contraction(self, d: int, segments: Sequence[int] | None = None) -> float:
        """Return 1/d, or with one scale per tensor 1/n of the largest."""
        return 1 / max([1, *self._parts(d, segments)])

    def _layout(self, parts: list[int], dtype: torch.dtype) -> Layout:
        return Layout(len(parts), sum(parts), 1)

    def _send(self, vector: Tensor, parts: list[int], generator: Random | None) -> tuple[Tensor, Codes]:
        scales = [part.double().abs().sum() / max(1, len(part)) for part in vector.split(parts)]
        return torch.stack(scales).to(vector.dtype) if scales else vector[:0], _negative(vector)

    def _receive(self, values: Tensor, codes: Codes, parts: list[int]) -> Tensor:
        if (values < 0).any():
            raise ValueError("its scale is negative")
        return _signs(codes, values.dtype) * values.repeat_interleave(torch.tensor(parts, dtype=torch.int64))


def _negative(vector: Tensor) -> Codes:
    return (vector < 0).numpy().astype(np.uint64)


def _signs(codes: Codes, dtype: torch.dtype) -> Tensor:
    return 1 - 2 * torch.from_numpy(codes.astype(np.int8)).to(dtype)
