"""No compression."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from fl_core.formulas.compression.base import NO_CODES, Codes, CompressorBase, Layout, Random


class Identity(CompressorBase):
    """C(x) = x in 32 d bits: the contraction with δ = 1, unbiased with ω = 0."""

    kind: Literal["identity"] = "identity"

    def ideal_bits(self, d: int, dtype: torch.dtype = torch.float32, segments: Sequence[int] | None = None) -> float:
        """Return the bits of d floats."""
        return 8 * dtype.itemsize * d

    def variance(self, d: int, segments: Sequence[int] | None = None) -> float:
        """Return 0."""
        return 0.0

    def _layout(self, parts: list[int], dtype: torch.dtype) -> Layout:
        return Layout(sum(parts))

    def _send(self, vector: Tensor, parts: list[int], generator: Random | None) -> tuple[Tensor, Codes]:
        return vector, NO_CODES

    def _receive(self, values: Tensor, codes: Codes, parts: list[int]) -> Tensor:
        return values.clone()
