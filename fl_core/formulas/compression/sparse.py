"""Compressors that send some entries as they are and drop the others: top-k and random-k."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fl_core.formulas.checks import require
from fl_core.formulas.compression.base import (
    NO_CODES,
    Codes,
    CompressorBase,
    Layout,
    PerTensor,
    Random,
    checked,
    uniform,
)
from fl_core.formulas.compression.selection import kept_count, random_k_indices, top_k_indices

SEED_BITS = 64


def top_k(vector: Tensor, delta: float, segments: Sequence[int] | None = None) -> Tensor:
    """Return `vector` ``[d]`` with all but its ⌈δd⌉ largest entries set to zero, FedLuck (L-a), BL-4.2.

    Parameters
    ----------
    vector : Tensor
    delta : float
        Fraction kept, in (0, 1].
    segments : sequence of int, optional
        Sizes of the parameter tensors: ⌈δn⌉ entries of each are kept, instead of ⌈δd⌉ of the whole.

    Raises
    ------
    ValueError
        `vector` is not finite, or an argument is out of range.
    """
    require(0 < delta <= 1, "delta", delta, "in (0, 1]")
    return TopK(delta=delta, per_tensor=segments is not None).compress(vector, segments=segments)


class TopK(PerTensor):
    """Keep the k = max(1, ⌈δd⌉) entries of largest magnitude, lowest position first among equals (BL-4.2).

    A biased, deterministic contraction: ‖C(x) - x‖² <= (1 - k/d)‖x‖², with equality when all |x_j| are equal; C(x) is
    orthogonal to x - C(x), so ‖C(x)‖ <= ‖x‖. Per tensor, the smallest k/n over the tensors takes the place of k/d.

    A message has k floats and one of

    * ``"values+indices"``: ⌈log2 d⌉ bits for each position, ascending: k (32 + ⌈log2 d⌉) bits in all;
    * ``"bitmask"``: one bit for each entry of x: 32 k + d bits; shorter when more than 1/⌈log2 d⌉ is kept;
    * ``"ideal_fraction"``: counts 4 δ d bytes, a fraction of a byte included, as if positions were free. FedLuck's
      published gigabytes are counted like this (section 6.4 of its specification). No message can be that short, so
      :meth:`encode` writes the first form.

    Where C(x) in full, 32 d bits, is no longer than that, it is sent instead.

    Aji & Heafield (2017); Stich, Cordonnier & Jaggi (2018); FedLuck's Eq. (L-a).

    Attributes
    ----------
    delta : float
        Fraction of the entries that is kept, in (0, 1].
    wire : str
        How positions are sent and counted: ``"values+indices"``, ``"bitmask"`` or ``"ideal_fraction"``.
    """

    kind: Literal["topk"] = "topk"
    delta: float = Field(gt=0, le=1, allow_inf_nan=False)
    wire: Literal["values+indices", "bitmask", "ideal_fraction"] = "values+indices"

    def counted_bytes(
        self, d: int, dtype: torch.dtype = torch.float32, segments: Sequence[int] | None = None
    ) -> float:
        """Return the bytes of a message; with ``wire="ideal_fraction"`` 4 δ d (FedLuck's accounting, its A9)."""
        if self.wire == "ideal_fraction":
            return self.delta * dtype.itemsize * d
        return super().counted_bytes(d, dtype, segments)

    def ideal_bits(self, d: int, dtype: torch.dtype = torch.float32, segments: Sequence[int] | None = None) -> float:
        """Return 32 k + log2 (d choose k)."""
        kept = [(n, kept_count(n, self.delta)) for n in self._parts(d, segments)]
        return sum(8 * dtype.itemsize * k + log2_choose(n, k) for n, k in kept)

    def contraction(self, d: int, segments: Sequence[int] | None = None) -> float:
        """Return k/d, or its smallest value over the tensors."""
        return min((kept_count(n, self.delta) / n for n in self._parts(d, segments) if n), default=1.0)

    def _layout(self, parts: list[int], dtype: torch.dtype) -> Layout:
        k, d = sum(kept_count(n, self.delta) for n in parts), sum(parts)
        return _shortest(_mask(k, d) if self.wire == "bitmask" else _positions(k, d), d, dtype)

    def _send(self, vector: Tensor, parts: list[int], generator: Random | None) -> tuple[Tensor, Codes]:
        starts = np.cumsum([0, *parts])
        kept = torch.cat(
            [
                top_k_indices(vector[start : start + n], kept_count(n, self.delta)) + start
                for start, n in zip(starts.tolist(), parts, strict=False)
            ]
            or [torch.arange(0)]
        )
        in_full = not self._layout(parts, vector.dtype).codes
        return _message(vector, kept, in_full, mask=self.wire == "bitmask")

    def _receive(self, values: Tensor, codes: Codes, parts: list[int]) -> Tensor:
        return _placed(values, codes, sum(parts), mask=self.wire == "bitmask")


class RandomK(CompressorBase):
    """Keep a random subset of k = max(1, ⌈δd⌉) entries, every subset as likely as any other (BL-4.3, BL-4.4).

    As they are: a contraction that is exact in expectation, E‖C(x) - x‖² = (1 - k/d)‖x‖² for every x, biased with
    E C(x) = (k/d) x. Scaled by d/k: unbiased, E‖C(x) - x‖² = (d/k - 1)‖x‖² for every x, hence no contraction
    when 2k <= d: no error feedback with it.

    A message has k floats and one of

    * ``"seed"``: a 64-bit seed from which the receiver draws the subset again: 32 k + 64 bits;
    * ``"values+indices"`` or ``"bitmask"``: as for top-k.

    Where C(x) in full, 32 d bits, is no longer than that, it is sent instead.

    Stich, Cordonnier & Jaggi (2018).

    Attributes
    ----------
    delta : float
        Fraction of the entries that is kept, in (0, 1].
    scaled : bool
        Whether kept entries are multiplied by d/k, which makes C unbiased.
    wire : str
        How positions are sent: ``"seed"``, ``"values+indices"`` or ``"bitmask"``.
    """

    kind: Literal["randomk"] = "randomk"
    delta: float = Field(gt=0, le=1, allow_inf_nan=False)
    scaled: bool = False
    wire: Literal["seed", "values+indices", "bitmask"] = "seed"

    def ideal_bits(self, d: int, dtype: torch.dtype = torch.float32, segments: Sequence[int] | None = None) -> float:
        """Return 32 k + log2 (d choose k), or 32 k + 64 with a seed if that is less."""
        k = kept_count(d, self.delta)
        subset = log2_choose(d, k)
        return 8 * dtype.itemsize * k + (min(SEED_BITS, subset) if self.wire == "seed" else subset)

    def contraction(self, d: int, segments: Sequence[int] | None = None) -> float | None:
        """Return k/d; scaled: 2 - d/k, where that is positive."""
        if self.scaled:
            return super().contraction(d, segments)
        return kept_count(d, self.delta) / d if d else 1.0

    def variance(self, d: int, segments: Sequence[int] | None = None) -> float | None:
        """Return d/k - 1 for the scaled form."""
        return (d / kept_count(d, self.delta) - 1 if d else 0.0) if self.scaled else None

    def expected_error(self, vector: Tensor, segments: Sequence[int] | None = None) -> float:
        """Return (1 - k/d)‖x‖²; scaled: (d/k - 1)‖x‖²."""
        kept = kept_count(len(vector), self.delta) / len(vector) if len(vector) else 1.0
        factor = 1 / kept - 1 if self.scaled else 1 - kept
        return factor * float(checked(vector).double().square().sum())

    def _layout(self, parts: list[int], dtype: torch.dtype) -> Layout:
        [d] = parts
        k = kept_count(d, self.delta)
        forms = {"seed": Layout(k, 1, SEED_BITS), "values+indices": _positions(k, d), "bitmask": _mask(k, d)}
        return _shortest(forms[self.wire], d, dtype)

    def _send(self, vector: Tensor, parts: list[int], generator: Random | None) -> tuple[Tensor, Codes]:
        d = len(vector)
        seed = int(uniform(1, generator) * 2**53)
        kept = random_k_indices(d, kept_count(d, self.delta), seed)
        in_full = not self._layout(parts, vector.dtype).codes
        values, codes = _message(vector, kept, in_full, mask=self.wire == "bitmask")
        if self.scaled and d:
            values = values * (d / len(kept))
        return values, np.array([seed], np.uint64) if len(codes) and self.wire == "seed" else codes

    def _receive(self, values: Tensor, codes: Codes, parts: list[int]) -> Tensor:
        [d] = parts
        if len(codes) and self.wire == "seed":
            codes = random_k_indices(d, len(values), int(codes[0])).numpy().astype(np.uint64)
        return _placed(values, codes, d, mask=self.wire == "bitmask")


def log2_choose(n: int, k: int) -> float:
    """Return the binary logarithm of the number of subsets of k out of n: the bits that a set of positions needs."""
    return (math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)) / math.log(2)


def _positions(k: int, d: int) -> Layout:
    return Layout(k, k, max(0, d - 1).bit_length())


def _mask(k: int, d: int) -> Layout:
    return Layout(k, d, 1)


def _shortest(form: Layout, d: int, dtype: torch.dtype) -> Layout:
    return min(Layout(d), form, key=lambda layout: layout.bits(dtype))


def _message(vector: Tensor, kept: Tensor, in_full: bool, mask: bool) -> tuple[Tensor, Codes]:
    """Return the kept values with their positions or a mask; `in_full`: the vector without the others, no codes."""
    if in_full:
        return torch.zeros_like(vector).index_copy(0, kept, vector[kept]), NO_CODES
    positions = kept.numpy().astype(np.uint64)
    if not mask:
        return vector[kept], positions
    bits = np.zeros(len(vector), np.uint64)
    bits[positions] = 1
    return vector[kept], bits


def _placed(values: Tensor, codes: Codes, d: int, mask: bool) -> Tensor:
    """Return the vector ``[d]`` with `values` at the positions that `codes` tell; without codes `values` is all."""
    if not len(codes):
        return values.clone()
    positions = np.flatnonzero(codes) if mask else codes.astype(np.int64)
    if len(positions) != len(values) or positions[-1] >= d or (np.diff(positions) <= 0).any():
        raise ValueError(f"its positions are not {len(values)} ascending numbers below {d}")
    return torch.zeros(d, dtype=values.dtype).index_copy(0, torch.from_numpy(positions), values)
