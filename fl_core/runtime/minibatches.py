"""Which samples make up each mini-batch of a local training."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np


def batches(samples: int, size: int, steps: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Yield `steps` mini-batches of positions ``0..samples-1``: without replacement within an epoch."""
    done = 0
    while done < steps:
        order = rng.permutation(samples)
        for first in range(0, samples, size):
            if done == steps:
                return
            yield order[first : first + size]
            done += 1


def cyclic_batches(samples: int, size: int, steps: int, first: int) -> Iterator[np.ndarray]:
    """Yield `steps` mini-batches of positions in their own order, from number `first` on, round and round."""
    per_epoch = -(-samples // size)
    for step in range(first, first + steps):
        start = step % per_epoch * size
        yield np.arange(start, min(start + size, samples))
