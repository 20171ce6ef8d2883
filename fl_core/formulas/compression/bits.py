"""Unsigned integers of any width as bytes: what a message holds besides floats."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

CHUNK = 2**16
"""Integers handled at a time; a multiple of 8, so that each chunk ends at a byte."""


def pack(codes: NDArray[np.uint64], width: int) -> bytes:
    """Return `codes` ``[n]``, each below 2^width, in ceil(n width / 8) bytes; the last one is filled with zeros.

    The most significant bit of an integer comes first, and integers follow each other without gaps.
    """
    shifts = np.arange(width - 1, -1, -1, dtype=np.uint64)
    chunks = (codes[start : start + CHUNK, None] for start in range(0, len(codes), CHUNK))
    return b"".join(np.packbits((chunk >> shifts & np.uint64(1)).astype(np.uint8)).tobytes() for chunk in chunks)


def unpack(data: bytes, count: int, width: int) -> NDArray[np.uint64]:
    """Return the `count` integers that :func:`pack` wrote.

    Raises
    ------
    ValueError
        The bits that fill the last byte are not zero.
    """
    if count * width % 8 and data[-1] << (count * width % 8) & 0xFF:
        raise ValueError("the bits after its end are not zero")
    if width == 1:
        return np.unpackbits(np.frombuffer(data, np.uint8), count=count).astype(np.uint64)
    weights = np.uint64(1) << np.arange(width - 1, -1, -1, dtype=np.uint64)
    codes = np.empty(count, np.uint64)
    for start in range(0, count, CHUNK):
        size = min(CHUNK, count - start)
        piece = np.frombuffer(data, np.uint8, offset=start * width // 8, count=-(-size * width // 8))
        codes[start : start + size] = np.unpackbits(piece, count=size * width).reshape(size, width) @ weights
    return codes
