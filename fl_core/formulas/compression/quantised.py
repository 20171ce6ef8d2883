"""Compressors that round every entry at random to a few levels, without bias: QSGD and TernGrad."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fl_core.formulas.checks import require
from fl_core.formulas.compression.base import Codes, Layout, PerTensor, Random, checked, uniform


def qsgd(vector: Tensor, levels: int, u: Tensor) -> Tensor:
    """Return ‖x‖ sign(x_j) ξ_j, with ξ_j one of the two multiples of 1/s next to |x_j|/‖x‖ (BL-4.5).

    Parameters
    ----------
    vector : Tensor
        x, ``[d]``.
    levels : int
        s >= 1.
    u : Tensor
        Numbers in [0, 1), ``[d]``: entry j is rounded up where u_j is below the fraction that is lost.

    Raises
    ------
    ValueError
        `levels` < 1, or `vector` is not finite or has another shape than `u`.
    """
    norm = euclidean_norm(checked(vector))
    return _rebuilt(norm, stochastic_levels(vector, norm, levels, u), levels)


def terngrad(vector: Tensor, u: Tensor, clip: float | None = None) -> Tensor:
    """Return σ sign(x_j) 1[u_j < |x_j|/σ], with σ = max |x_j| (BL-4.6); this is QSGD's rounding with s = 1 and σ.

    Parameters
    ----------
    vector : Tensor
        x, ``[d]``.
    u : Tensor
        Numbers in [0, 1), ``[d]``.
    clip : float, optional
        Entries are first limited to `clip` times the standard deviation of `vector`.

    Raises
    ------
    ValueError
        `clip` <= 0, or `vector` is not finite or has another shape than `u`.
    """
    vector = clipped(checked(vector), clip)
    largest = _largest(vector)
    return _rebuilt(largest, stochastic_levels(vector, largest, 1, u), 1)


def stochastic_levels(vector: Tensor, scale: Tensor, levels: int, u: Tensor) -> Tensor:
    """Return whole numbers ``[d]`` in -s..s whose mean over u is s x / scale; all 0 if the scale is.

    Raises
    ------
    ValueError
        `levels` < 1, or `u` has another shape than `vector`.
    """
    require(levels >= 1, "levels", levels, ">= 1")
    require(u.shape == vector.shape, "u.shape", list(u.shape), f"{list(vector.shape)}, the shape of the vector")
    if not scale:
        return torch.zeros(vector.shape, dtype=torch.int64)
    ratio = levels * (vector.double().abs() / scale.double())
    low = ratio.floor()
    return ((low + (u < ratio - low)) * vector.sign()).long()


def rounding_variance(vector: Tensor, scale: Tensor, levels: int) -> float:
    """Return the expected squared error of the rounding, (scale/s)² Σ f_j (1 - f_j), f_j the fraction lost."""
    if not scale:
        return 0.0
    fraction = (levels * (vector.double().abs() / scale.double())).frac()
    return float((scale.double() / levels).square() * (fraction * (1 - fraction)).sum())


def euclidean_norm(vector: Tensor) -> Tensor:
    """Return ‖x‖ as a number of the vector's type, never below max |x_j|."""
    largest = _largest(vector).double()
    norm = largest * (vector.double() / largest).norm() if largest else largest  # no square can overflow
    return norm.to(vector.dtype)


def clipped(vector: Tensor, clip: float | None) -> Tensor:
    """Return `vector` with its entries limited to `clip` standard deviations of them; unchanged if `clip` is None.

    Raises
    ------
    ValueError
        `clip` <= 0.
    """
    if clip is None or not len(vector):
        return vector
    require(clip > 0, "clip", clip, "> 0")
    bound = clip * float(vector.double().std(correction=0))
    return vector.clamp(-bound, bound)


class Quantiser(PerTensor):
    """What QSGD and TernGrad share: one scale per piece, one sign and level per entry."""

    def ideal_bits(self, d: int, dtype: torch.dtype = torch.float32, segments: Sequence[int] | None = None) -> float:
        """Return 32 per scale and log2(2 s + 1) per entry."""
        return 8 * dtype.itemsize * len(self._parts(d, segments)) + d * math.log2(2 * self._levels() + 1)

    def expected_error(self, vector: Tensor, segments: Sequence[int] | None = None) -> float:
        """Return the variance of the rounding, and what clipping takes away."""
        total = 0.0
        for part in checked(vector).split(self._parts(len(vector), segments)):
            kept = self._prepared(part)
            total += rounding_variance(kept, self._scale(kept), self._levels())
            total += float((part.double() - kept.double()).square().sum())
        return total

    def _levels(self) -> int:
        """Return s."""
        raise NotImplementedError

    def _scale(self, part: Tensor) -> Tensor:
        """Return what level s stands for."""
        raise NotImplementedError

    def _prepared(self, part: Tensor) -> Tensor:
        return part

    def _layout(self, parts: list[int], dtype: torch.dtype) -> Layout:
        return Layout(len(parts), sum(parts), 1 + self._levels().bit_length())

    def _send(self, vector: Tensor, parts: list[int], generator: Random | None) -> tuple[Tensor, Codes]:
        pieces = [self._prepared(part) for part in vector.split(parts)]
        scales = [self._scale(piece) for piece in pieces]
        signed = [
            stochastic_levels(piece, scale, self._levels(), u)
            for piece, scale, u in zip(pieces, scales, uniform(len(vector), generator).split(parts), strict=True)
        ]
        levels = torch.cat([*signed, torch.zeros(0, dtype=torch.int64)])
        codes = (2 * levels.abs() + (levels < 0)).numpy().astype(np.uint64)
        return torch.stack(scales) if scales else vector[:0], codes

    def _receive(self, values: Tensor, codes: Codes, parts: list[int]) -> Tensor:
        if (codes == 1).any() or (codes > 2 * self._levels() + 1).any() or (values < 0).any():
            raise ValueError(f"it has a negative scale, or a level outside 0..{self._levels()}")
        signed = torch.from_numpy(codes.astype(np.int64))
        levels = torch.where(signed % 2 == 1, -(signed // 2), signed // 2)
        pieces = zip(values, levels.split(parts), strict=True)
        return torch.cat([*(_rebuilt(scale, part, self._levels()) for scale, part in pieces), values[:0]])


class QSGD(Quantiser):
    """Round |x_j|/‖x‖ at random to one of the two nearest multiples of 1/s (BL-4.5).

    Unbiased: E C(x) = x and E‖C(x) - x‖² <= ω‖x‖² with ω = min(d/s², √d/s); for a given x the error is exactly
    (‖x‖²/s²) Σ f_j (1 - f_j), where f_j is the fractional part of s|x_j|/‖x‖.

    A message has the norm, and per entry a sign and ⌈log2(s + 1)⌉ bits of level: 32 + d (1 + ⌈log2(s + 1)⌉) bits. The
    authors' Elias code is shorter for few levels, but its length depends on x; it is not offered.

    Alistarh, Grubic, Li, Tomioka & Vojnovic (2017).

    Attributes
    ----------
    levels : int
        Levels s above zero; fewer than 2^30, so that an entry is shorter than a float32.
    """

    kind: Literal["qsgd"] = "qsgd"
    levels: int = Field(4, ge=1, lt=2**30)

    def variance(self, d: int, segments: Sequence[int] | None = None) -> float:
        """Return min(d/s², √d/s), for the largest tensor if each has its own norm."""
        n = max(self._parts(d, segments), default=0)
        return min(n / self.levels**2, math.sqrt(n) / self.levels)

    def _levels(self) -> int:
        return self.levels

    def _scale(self, part: Tensor) -> Tensor:
        return euclidean_norm(part)


class TernGrad(Quantiser):
    """Send every entry as -σ, 0 or σ = max |x_j|, at random with the right mean (BL-4.6).

    Unbiased: E C(x) = x, and E‖C(x) - x‖² = Σ |x_j| (σ - |x_j|) <= ω‖x‖² with ω = (√d - 1)/2. That bound is ours and
    cannot be improved: among vectors with a given sum of |x_j|/σ the ratio is largest when one entry is σ and the
    others are equal, and then over their size at σ/(√d + 1), where equality holds. With clipping C is unbiased for
    the clipped vector, not for x; a tensor of one entry has no spread and is clipped to 0.

    A message has σ and two bits per entry: 32 + 2 d bits.

    Wen, Xu, Yan, Wu, Wang, Chen & Li (2017), who clip at 2.5.

    Attributes
    ----------
    clip : float or None
        Entries are first limited to this many standard deviations; None: they are not.
    """

    kind: Literal["terngrad"] = "terngrad"
    clip: float | None = Field(None, gt=0, allow_inf_nan=False)

    def variance(self, d: int, segments: Sequence[int] | None = None) -> float | None:
        """Return (√d - 1)/2, for the largest tensor if each has its own σ; None with clipping."""
        n = max(self._parts(d, segments), default=0)
        return max(0.0, (math.sqrt(n) - 1) / 2) if self.clip is None else None

    def _levels(self) -> int:
        return 1

    def _scale(self, part: Tensor) -> Tensor:
        return _largest(part)

    def _prepared(self, part: Tensor) -> Tensor:
        return clipped(part, self.clip)


def _largest(vector: Tensor) -> Tensor:
    return vector.abs().max() if len(vector) else vector.new_zeros(())


def _rebuilt(scale: Tensor, levels: Tensor, count: int) -> Tensor:
    return (scale.double() * levels / count).to(scale.dtype)
