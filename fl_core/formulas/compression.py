"""Compressors of updates: what they lose, and exactly how many bytes they send; BL-4.1 to BL-4.9, FedLuck (L-a).

Each one is a frozen, validated object, built by name wherever a field is a `Compressor`: ``TopK(delta=0.1)``,
``{"kind": "topk", "delta": 0.1}`` or ``"topk(delta=0.1)"``. ``COMPRESSORS`` holds all by their kind. What a message
is, and how its bytes are counted, is in `messages`. Symbols: x `vector` ``[d]``, finite; δ `delta`, the fraction
kept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from fl_core.formulas.checks import add_up, require
from fl_core.formulas.messages import NO_CODES, Codes, Compressor, Layout, PerTensor, Random, checked, uniform

CHUNK = 2**16
"""Entries looked at together: small enough for the processor's cache."""

SAMPLE = 2**16
"""Entries from which the threshold is guessed."""

SEED_BITS = 64


class Identity(Compressor):
    """C(x) = x in 32 d bits: the contraction with δ = 1, unbiased with ω = 0 (BL-4.1)."""

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


def kept_count(n: int, delta: float) -> int:
    """Return the number of entries that rate δ keeps of n: max(1, ⌈nδ⌉), and 0 of 0 (BL-4.2).

    Rounding errors of the product do not count: 25 · 0.28 is 7, not 8.
    """
    require(n >= 0, "n", n, ">= 0")
    require(0 < delta <= 1, "delta", delta, "in (0, 1]")
    return min(n, max(1, math.ceil(n * delta - 1e-9)))


def top_k_indices(vector: Tensor, k: int) -> Tensor:
    """Return the positions ``[k]``, ascending, of the k entries of `vector` ``[d]`` of largest magnitude.

    Exactly k; among equal magnitudes the lowest positions win. Entries must be finite.

    The exact threshold is found in one pass: a regular sample gives two values that very probably lie on either side
    of it, and only the entries above the lower one are looked at again. If the guess was wrong, all of them are.
    """
    require(0 <= k <= len(vector), "k", k, f"in 0..{len(vector)}")
    if k == 0 or k == len(vector):
        return torch.arange(k)
    x = vector.detach().numpy()
    low, high = _bracket(x, k)
    positions, sizes = _at_least(x, low, k)
    if len(positions) < k:
        positions, sizes = np.arange(len(x)), np.abs(x)
    above = np.count_nonzero(sizes > high)
    middle, wanted = (sizes[sizes <= high], k - above) if above < k else (sizes, k)
    threshold = np.partition(middle, len(middle) - wanted)[len(middle) - wanted]
    keep = sizes > threshold
    keep[np.flatnonzero(sizes == threshold)[: k - np.count_nonzero(keep)]] = True
    return torch.from_numpy(positions[keep])


def random_k_indices(d: int, k: int, seed: int) -> Tensor:
    """Return k of the positions 0..d-1, ascending: every subset of k is as likely as any other over `seed`."""
    require(0 <= k <= d, "k", k, f"in 0..{d}")
    chosen = np.random.Generator(np.random.Philox(seed)).choice(d, k, replace=False, shuffle=False)
    return torch.from_numpy(np.sort(chosen))


def _bracket(x: NDArray[np.floating], k: int) -> tuple[float, float]:
    """Return magnitudes of which the lower is probably exceeded by k entries or more, the higher by fewer."""
    sample = np.sort(np.abs(x[:: max(1, len(x) // SAMPLE)]))[::-1]
    rank = k * len(sample) / len(x)
    margin = 4 * math.sqrt(rank) + 1  # four standard deviations of the rank in a sample
    return sample[min(len(sample) - 1, int(rank + margin))], sample[max(0, int(rank - margin))]


def _at_least(x: NDArray[np.floating], low: float, k: int) -> tuple[NDArray[np.int64], NDArray[np.floating]]:
    """Return positions and magnitudes of all entries above `low`, and of the first k or more that equal it."""
    positions, sizes = [], []
    for start in range(0, len(x), CHUNK):
        chunk = np.abs(x[start : start + CHUNK])
        found = np.flatnonzero(chunk >= low if k > 0 else chunk > low)
        positions.append(found + start)
        sizes.append(chunk[found])
        k -= int(np.count_nonzero(sizes[-1] == low))
    return np.concatenate(positions), np.concatenate(sizes)


def top_k(vector: Tensor, delta: float, segments: Sequence[int] | None = None) -> Tensor:
    """Return `vector` with all but its ⌈δd⌉ largest entries set to zero, FedLuck (L-a), BL-4.2.

    With `segments`, the sizes of the parameter tensors, ⌈δn⌉ entries of each are kept.
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
    """

    kind: Literal["topk"] = "topk"
    delta: float = Field(gt=0, le=1, allow_inf_nan=False)
    """Fraction of the entries that is kept, in (0, 1]."""
    wire: Literal["values+indices", "bitmask", "ideal_fraction"] = "values+indices"
    """How positions are sent and counted: "values+indices", "bitmask" or "ideal_fraction"."""

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
        return add_up(8 * dtype.itemsize * k + log2_choose(n, k) for n, k in kept)

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


class RandomK(Compressor):
    """Keep a random subset of k = max(1, ⌈δd⌉) entries, every subset as likely as any other (BL-4.3, BL-4.4).

    As they are: a contraction that is exact in expectation, E‖C(x) - x‖² = (1 - k/d)‖x‖² for every x, biased with
    E C(x) = (k/d) x. Scaled by d/k: unbiased, E‖C(x) - x‖² = (d/k - 1)‖x‖² for every x, hence no contraction
    when 2k <= d: no error feedback with it.

    A message has k floats and one of

    * ``"seed"``: a 64-bit seed from which the receiver draws the subset again: 32 k + 64 bits;
    * ``"values+indices"`` or ``"bitmask"``: as for top-k.

    Where C(x) in full, 32 d bits, is no longer than that, it is sent instead.

    Stich, Cordonnier & Jaggi (2018).
    """

    kind: Literal["randomk"] = "randomk"
    delta: float = Field(gt=0, le=1, allow_inf_nan=False)
    """Fraction of the entries that is kept, in (0, 1]."""
    scaled: bool = False
    """Whether kept entries are multiplied by d/k, which makes C unbiased."""
    wire: Literal["seed", "values+indices", "bitmask"] = "seed"
    """How positions are sent: "seed", "values+indices" or "bitmask"."""

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


def qsgd(vector: Tensor, levels: int, u: Tensor) -> Tensor:
    """Return ‖x‖ sign(x_j) ξ_j, with ξ_j one of the two multiples of 1/s next to |x_j|/‖x‖ (BL-4.5).

    Entry j is rounded up where u_j in [0, 1) is below the fraction that is lost.
    """
    norm = euclidean_norm(checked(vector))
    return _rebuilt(norm, stochastic_levels(vector, norm, levels, u), levels)


def terngrad(vector: Tensor, u: Tensor, clip: float | None = None) -> Tensor:
    """Return σ sign(x_j) 1[u_j < |x_j|/σ], with σ = max |x_j| (BL-4.6); this is QSGD's rounding with s = 1 and σ.

    Entries are first limited to `clip` times the standard deviation of x.
    """
    vector = clipped(checked(vector), clip)
    largest = _largest(vector)
    return _rebuilt(largest, stochastic_levels(vector, largest, 1, u), 1)


def stochastic_levels(vector: Tensor, scale: Tensor, levels: int, u: Tensor) -> Tensor:
    """Return whole numbers ``[d]`` in -s..s whose mean over u is s x / scale; all 0 if the scale is."""
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
    """Return `vector` with its entries limited to `clip` standard deviations of them; unchanged if `clip` is None."""
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
    """

    kind: Literal["qsgd"] = "qsgd"
    levels: int = Field(4, ge=1, lt=2**30)
    """Levels s above zero; fewer than 2^30, so that an entry is shorter than a float32."""

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
    """

    kind: Literal["terngrad"] = "terngrad"
    clip: float | None = Field(None, gt=0, allow_inf_nan=False)
    """Entries are first limited to this many standard deviations; None: they are not."""

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


def majority_vote(signs: Tensor) -> Tensor:
    """Return sign(Σ_i sign(x_i)) of the rows of `signs` ``[n, d]``, with 0 for a tie (BL-4.7)."""
    require(signs.dim() == 2, "signs", list(signs.shape), "a matrix [n, d]")
    return signs.sign().sum(0).sign()


class SignSGD(Compressor):
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


def error_feedback(
    compressor: Compressor,
    vector: Tensor,
    residual: Tensor | None = None,
    generator: Random | None = None,
    segments: Sequence[int] | None = None,
) -> tuple[Tensor, Tensor]:
    """Return what is sent, c = C(x + e), and the residual that is kept, x + e - c (BL-4.9); e is at first 0.

    Nothing is lost for good: after any number of steps what was sent plus the residual is the sum of all x. It is
    meant for contractions (top-k, random-k unscaled, scaled sign): there the residual stays below
    :func:`residual_bound`. An unbiased compressor does not need it, and with scaled random-k the residual can grow
    without limit. The message of a step is ``compressor.encode(vector + residual)``.
    """
    if residual is not None:
        shape = list(residual.shape)
        require(residual.shape == vector.shape, "residual.shape", shape, f"{list(vector.shape)}, as the vector's")
        vector = vector + residual
    sent = compressor.compress(vector, generator, segments)
    return sent, vector - sent


def residual_bound(delta: float, largest: float) -> float:
    """Return 4 (1 - δ)/δ² max‖x_t‖², which ‖e‖² never exceeds with a deterministic contraction (section 4).

    δ is ``compressor.contraction(d)``. For a random contraction it bounds the mean of ‖e‖².
    """
    require(0 < delta <= 1, "delta", delta, "in (0, 1]")
    require(largest >= 0, "largest", largest, ">= 0")
    return 4 * (1 - delta) / delta**2 * largest


COMPRESSORS: dict[str, type[Compressor]] = Compressor.kinds


def compressor(value: object) -> Compressor:
    """Return the compressor that `value` describes: an object, a dictionary, or text like "topk(delta=0.1)"."""
    return Compressor.model_validate(value)
