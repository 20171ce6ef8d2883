"""Splits whose samples come in blocks, each generated from its own stream, several at a time."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fl_core.datasets.base import Split
from fl_core.errors import SpecError

WORKERS = 2


@dataclass(frozen=True)
class Blocks:
    """How one split is generated.

    Attributes
    ----------
    shape : tuple of int
        Of one image.
    counts : ndarray
        ``[b]``: samples in each block.
    draw : callable
        Maps the number of a block and its count to images ``[count, ...]`` (uint8) and labels ``[count]`` (int64).
    owned : bool
        Whether a block is what one person has; then its number is the owner of its samples.
    """

    shape: tuple[int, ...]
    counts: np.ndarray
    draw: Callable[[int, int], tuple[Tensor, Tensor]]
    owned: bool


def fill(blocks: Blocks, wanted: int | None) -> Split:
    """Return the first `wanted` samples (None: all).

    Raises
    ------
    SpecError
        If there are not that many.
    """
    ends = np.cumsum(blocks.counts)
    wanted = int(ends[-1]) if wanted is None else wanted
    if not 0 <= wanted <= ends[-1]:
        raise SpecError(f"cannot generate {wanted} samples; valid are 0 to {ends[-1]}")
    needed = int(np.searchsorted(ends, wanted)) + 1 if wanted else 0
    inputs = torch.empty((wanted, *blocks.shape), dtype=torch.uint8)
    labels = torch.empty(wanted, dtype=torch.int64)

    def generate(block: int) -> None:
        start = int(ends[block] - blocks.counts[block])
        stop = min(int(ends[block]), wanted)
        images, classes = blocks.draw(block, int(blocks.counts[block]))
        inputs[start:stop], labels[start:stop] = images[: stop - start], classes[: stop - start]

    # From now on glibc keeps what the blocks free, up to twice this size (mallopt(3): its thresholds follow the
    # largest array freed so far). Otherwise every temporary is new memory from the kernel, zeroed page by page.
    np.empty(1 << 24, np.uint8)
    within = torch.get_num_threads()
    torch.set_num_threads(1)  # the blocks are the parallel work
    try:
        with ThreadPoolExecutor(WORKERS) as pool:
            for _ in pool.map(generate, range(needed)):
                pass
    finally:
        torch.set_num_threads(within)
    owners = np.repeat(np.arange(needed), blocks.counts[:needed])[:wanted] if blocks.owned else None
    return Split(inputs, labels, None if owners is None else torch.from_numpy(owners))


def shares(weights: np.ndarray, total: int) -> np.ndarray:
    """Split `total` into whole numbers as nearly proportional to `weights` as running totals allow."""
    return np.diff(np.round(np.cumsum(weights) / weights.sum() * total).astype(np.int64), prepend=0)
