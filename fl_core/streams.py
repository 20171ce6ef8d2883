"""Random streams that depend on what they are for, never on when they are drawn.

A stream is named by (run seed, purpose, and any integers such as device and trigger count). Two streams with
different names are independent; the same name always gives the same numbers, whatever ran before, on
whichever thread.
"""

from __future__ import annotations

import hashlib

import numpy as np
import torch
from numpy.random import Generator, Philox
from numpy.random.bit_generator import ISeedSequence


class _Key(ISeedSequence):
    """Gives Philox its 128-bit key; the argument ``key`` would do the same after a slow, unused draw of entropy."""

    def __init__(self, key: bytes) -> None:
        self.words = np.frombuffer(key, "<u8")

    def generate_state(self, n_words: int, dtype: object = np.uint64) -> np.ndarray:
        """Return the key as two 64-bit words, the only request that Philox makes."""
        return self.words


def _key(seed: int, purpose: str, *index: int) -> bytes:
    name = "/".join([str(seed), purpose, *map(str, index)])
    return hashlib.blake2b(name.encode(), digest_size=16).digest()


def stream(seed: int, purpose: str, *index: int) -> Generator:
    """Return the NumPy generator (Philox, counter-based) of the stream ``seed/purpose/index...``."""
    return Generator(Philox(_Key(_key(seed, purpose, *index))))  # type: ignore[arg-type] # NumPy's stub is too narrow


def torch_stream(seed: int, purpose: str, *index: int) -> torch.Generator:
    """Return the PyTorch CPU generator of the stream ``seed/purpose/index...``."""
    key = int.from_bytes(_key(seed, purpose, *index)[:8], "little")
    return torch.Generator().manual_seed(key & 0x7FFF_FFFF_FFFF_FFFF)
