"""Random streams that depend on what they are for, never on when they are drawn.

A stream is named by (run seed, purpose, and any integers such as device and trigger count). Two streams with
different names are independent; the same name always gives the same numbers, whatever ran before, on
whichever thread.
"""

from __future__ import annotations

import hashlib

import numpy as np
import torch


def _key(seed: int, purpose: str, *index: int) -> bytes:
    name = "/".join([str(seed), purpose, *map(str, index)])
    return hashlib.blake2b(name.encode(), digest_size=16).digest()


def stream(seed: int, purpose: str, *index: int) -> np.random.Generator:
    """Return the NumPy generator (Philox, counter-based) of the stream ``seed/purpose/index...``."""
    return np.random.Generator(np.random.Philox(key=int.from_bytes(_key(seed, purpose, *index), "little")))


def torch_stream(seed: int, purpose: str, *index: int) -> torch.Generator:
    """Return the PyTorch CPU generator of the stream ``seed/purpose/index...``."""
    key = int.from_bytes(_key(seed, purpose, *index)[:8], "little")
    return torch.Generator().manual_seed(key & 0x7FFF_FFFF_FFFF_FFFF)
