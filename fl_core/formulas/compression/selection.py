"""Which entries of a vector are kept: the largest, or random ones."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fl_core.formulas.checks import require

CHUNK = 2**16
"""Entries looked at together: small enough for the processor's cache."""

SAMPLE = 2**16
"""Entries from which the threshold is guessed."""


def kept_count(n: int, delta: float) -> int:
    """Return the number of entries that rate δ keeps of n: max(1, ⌈nδ⌉), and 0 of 0 (BL-4.2).

    Rounding errors of the product do not count: 25 · 0.28 is 7, not 8.

    Raises
    ------
    ValueError
        `n` is negative, or `delta` not in (0, 1].
    """
    require(n >= 0, "n", n, ">= 0")
    require(0 < delta <= 1, "delta", delta, "in (0, 1]")
    return min(n, max(1, math.ceil(n * delta - 1e-9)))


def top_k_indices(vector: Tensor, k: int) -> Tensor:
    """Return the positions ``[k]``, ascending, of the k entries of `vector` ``[d]`` of largest magnitude.

    Exactly k; among equal magnitudes the lowest positions win. Entries must be finite.

    The exact threshold is found in one pass: a regular sample gives two values that very probably lie on either side
    of it, and only the entries above the lower one are looked at again. If the guess was wrong, all of them are.

    Raises
    ------
    ValueError
        `k` is not in 0..d.
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
    """Return k of the positions 0..d-1, ascending: every subset of k is as likely as any other over `seed`.

    Raises
    ------
    ValueError
        `k` is not in 0..d.
    """
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
