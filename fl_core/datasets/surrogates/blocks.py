"""Splits whose samples come in blocks, each generated from its own stream, several at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import torch

from fl_core.datasets.base import Split, one_thread
from fl_core.errors import SpecError

WORKERS = 2


def fill(
    shape: tuple[int, ...], counts: np.ndarray, draw: Callable[[int, int], Split], wanted: int | None, *,
    owned: bool = False, dtype: torch.dtype = torch.uint8,
) -> Split:  # fmt: skip
    """Return the first `wanted` samples (None: all), each an input of `shape`; `owned`: with owners.

    `draw` maps the number of a block and its count, one of `counts` ``[b]``, to its samples.
    """
    ends = np.cumsum(counts)
    wanted = int(ends[-1]) if wanted is None else wanted
    if not 0 <= wanted <= ends[-1]:
        raise SpecError(f"cannot generate {wanted} samples; valid are 0 to {ends[-1]}")
    inputs = torch.empty((wanted, *shape), dtype=dtype)
    labels, owners = torch.empty(2, wanted, dtype=torch.int64)

    def generate(block: int) -> None:
        start = int(ends[block] - counts[block])
        stop = min(int(ends[block]), wanted)
        drawn = draw(block, int(counts[block]))
        inputs[start:stop], labels[start:stop] = drawn.inputs[: stop - start], drawn.labels[: stop - start]
        if drawn.owners is not None:
            owners[start:stop] = drawn.owners[: stop - start]

    with one_thread_each() as pool:
        for _ in pool.map(generate, range(int(np.searchsorted(ends, wanted)) + 1 if wanted else 0)):
            pass
    return Split(inputs, labels, owners if owned else None)


@contextmanager
def one_thread_each() -> Iterator[ThreadPoolExecutor]:
    """Threads that each compute with one of PyTorch's, as the blocks are the parallel work."""
    # From now on glibc keeps what the blocks free, up to twice this size (mallopt(3): its thresholds follow the
    # largest array freed so far). Otherwise every temporary is new memory from the kernel, zeroed page by page.
    np.empty(1 << 24, np.uint8)
    workers = max(WORKERS, torch.get_num_threads())
    with one_thread(), ThreadPoolExecutor(workers) as pool:
        yield pool


def shares(weights: np.ndarray, total: int) -> np.ndarray:
    """Split `total` into whole numbers as nearly proportional to `weights` as running totals allow."""
    return np.diff(np.round(np.cumsum(weights) / weights.sum() * total).astype(np.int64), prepend=0)
