"""What all compressors share: a vector becomes a message of floats and small integers, and a vector again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fl_core.config import Family
from fl_core.formulas.checks import require

Random: TypeAlias = torch.Generator | np.random.Generator
Codes: TypeAlias = NDArray[np.uint64]
NO_CODES: Codes = np.empty(0, np.uint64)
CHUNK = 2**16
"""Integers handled at a time; a multiple of 8, so that each chunk ends at a byte."""


class Layout(NamedTuple):
    """A message: `values` floats, then `codes` unsigned integers of `width` bits each, then zeros to a whole byte."""

    values: int
    codes: int = 0
    width: int = 0

    def bits(self, dtype: torch.dtype) -> int:
        """Return the bits of the message with floats of `dtype`."""
        return 8 * dtype.itemsize * self.values + self.codes * self.width


class Compressor(Family):
    """A lossy code C for vectors of d floats.

    Sender and receiver know the compressor with its parameters, d, the number format, and the sizes of the parameter
    tensors; none of this is in a message, which has no header. Its length depends on nothing else, so
    :meth:`encoded_bytes` is exact for every vector. The d entries are parameters; what a model has besides, such as
    batch-norm statistics, is sent as it is, and counted by whoever sends it.

    A subclass says how long a message is (``_layout``), what goes into it (``_send``) and what it means
    (``_receive``); the vector that :meth:`compress` returns is by construction the one that :meth:`decode` reads.

    In all methods `segments` are the sizes of the parameter tensors, which matter only to a compressor that is set to
    work per tensor; `generator` alone decides what a random compressor draws.
    """

    def compress(
        self, vector: Tensor, generator: Random | None = None, segments: Sequence[int] | None = None
    ) -> Tensor:
        """Return C(x), what the receiver will read, for `vector` ``[d]``; rows of ``[n, d]`` one after the other."""
        if vector.dim() == 2 and len(vector):
            return torch.stack([self.compress(row, generator, segments) for row in vector])
        if vector.dim() == 2:
            return vector.clone()
        vector = checked(vector)
        parts = self._parts(len(vector), segments)
        return self._read(*self._send(vector, parts, generator), parts)

    def encode(self, vector: Tensor, generator: Random | None = None, segments: Sequence[int] | None = None) -> bytes:
        """Return the message for `vector` ``[d]``: floats in little-endian order, then integers, high bit first."""
        vector = checked(vector)
        parts = self._parts(len(vector), segments)
        values, codes = self._send(vector, parts, generator)
        floats = checked(values).numpy().astype(_wire(vector.dtype)).tobytes()
        return floats + pack(codes, self._layout(parts, vector.dtype).width)

    def decode(
        self, message: bytes, d: int, dtype: torch.dtype = torch.float32, segments: Sequence[int] | None = None
    ) -> Tensor:
        """Return the vector ``[d]`` of a message: bit for bit what :meth:`compress` gave for the same draws."""
        parts = self._parts(d, segments)
        layout = self._layout(parts, dtype)
        expected = -(-layout.bits(dtype) // 8)
        if len(message) != expected:
            raise ValueError(
                f"a message of {self} for {d} numbers of {dtype} has {expected} bytes; this one has {len(message)}"
            )
        split = layout.values * dtype.itemsize
        values = np.frombuffer(message, _wire(dtype), layout.values).astype(_wire(dtype).newbyteorder("="))
        try:
            codes = unpack(message[split:], layout.codes, layout.width)
            return self._read(torch.from_numpy(values), codes, parts)
        except ValueError as error:
            raise ValueError(f"damaged message of {self}: {error}") from None

    def encoded_bits(self, d: int, dtype: torch.dtype = torch.float32, segments: Sequence[int] | None = None) -> int:
        """Return the length of a message in bits, before it is filled up to a whole byte."""
        return self._layout(self._parts(d, segments), dtype).bits(dtype)

    def encoded_bytes(self, d: int, dtype: torch.dtype = torch.float32, segments: Sequence[int] | None = None) -> int:
        """Return the length of every message for a vector of d numbers: ``len(encode(x))``, without encoding."""
        return -(-self.encoded_bits(d, dtype, segments) // 8)

    def counted_bytes(
        self, d: int, dtype: torch.dtype = torch.float32, segments: Sequence[int] | None = None
    ) -> float:
        """Return what an upload is charged: :meth:`encoded_bytes`, unless an option says to count as a paper does."""
        return self.encoded_bytes(d, dtype, segments)

    def ideal_bits(self, d: int, dtype: torch.dtype = torch.float32, segments: Sequence[int] | None = None) -> float:
        """Return log2 of the number of different messages: no code of fixed length can be shorter."""
        raise NotImplementedError

    def contraction(self, d: int, segments: Sequence[int] | None = None) -> float | None:
        """Return δ > 0 with E‖C(x) - x‖² <= (1 - δ)‖x‖² for all x (BL-4.1); None: C is not known to be a contraction.

        An unbiased compressor with ω < 1 is one with δ = 1 - ω.
        """
        omega = self.variance(d, segments)
        return 1 - omega if omega is not None and omega < 1 else None

    def variance(self, d: int, segments: Sequence[int] | None = None) -> float | None:
        """Return ω with E C(x) = x and E‖C(x) - x‖² <= ω‖x‖² for all x (BL-4.1); None: C is biased."""
        return None

    def expected_error(self, vector: Tensor, segments: Sequence[int] | None = None) -> float:
        """Return E‖C(x) - x‖², exactly, over the draws of the compressor."""
        return float((self.compress(vector, None, segments).double() - vector.double()).square().sum())

    def __str__(self) -> str:
        given = self.model_dump(exclude={"kind"}, exclude_defaults=True)
        inner = ", ".join(f"{name}={json.dumps(value)}" for name, value in given.items())
        kind = type(self).model_fields["kind"].default
        return f"{kind}({inner})" if inner else str(kind)

    def _parts(self, d: int, segments: Sequence[int] | None) -> list[int]:
        """Return the sizes of the pieces that are compressed on their own."""
        require(d >= 0, "d", d, ">= 0")
        return [d]

    def _layout(self, parts: list[int], dtype: torch.dtype) -> Layout:
        """Return what a message holds."""
        raise NotImplementedError

    def _send(self, vector: Tensor, parts: list[int], generator: Random | None) -> tuple[Tensor, Codes]:
        """Return floats and integers for `vector`, on the CPU."""
        raise NotImplementedError

    def _receive(self, values: Tensor, codes: Codes, parts: list[int]) -> Tensor:
        """Return the vector that floats and integers mean; ValueError: they mean none."""
        raise NotImplementedError

    def _read(self, values: Tensor, codes: Codes, parts: list[int]) -> Tensor:
        return self._receive(checked(values), codes, parts)


class PerTensor(Compressor):
    """A compressor that can treat each parameter tensor on its own."""

    per_tensor: bool = False
    """Whether each parameter tensor is compressed on its own, instead of the whole vector at once."""

    def _parts(self, d: int, segments: Sequence[int] | None) -> list[int]:
        if not self.per_tensor:
            return super()._parts(d, segments)
        require(segments is not None, "segments", segments, f"the sizes of the parameter tensors, for {self}")
        sizes = [int(size) for size in segments or ()]
        require(sum(sizes) == d and min(sizes, default=0) >= 0, "segments", sizes, f">= 0, with the sum {d}")
        return sizes


def uniform(n: int, generator: Random | None) -> Tensor:
    """Return n float64 numbers in [0, 1), each a multiple of 2^-53."""
    require(isinstance(generator, Random), "generator", generator, "a PyTorch or NumPy generator, as C is random")
    if isinstance(generator, np.random.Generator):
        return torch.from_numpy(generator.random(n))
    return torch.rand(n, generator=generator, dtype=torch.float64)


def checked(vector: Tensor) -> Tensor:
    """Return `vector` without its gradient; ValueError unless it is ``[d]``, float32 or float64, finite, and here."""
    ok = vector.dim() == 1 and vector.dtype in (torch.float32, torch.float64) and vector.device.type == "cpu"
    valid = "a vector [d] of float32 or float64 on the CPU"
    require(ok, "vector", f"{list(vector.shape)} {vector.dtype} {vector.device}", valid)
    vector = vector.detach()
    if len(vector) and not torch.isfinite(torch.stack(torch.aminmax(vector))).all():
        first = int(torch.isfinite(vector).logical_not().nonzero()[0])
        require(False, f"vector[{first}]", float(vector[first]), "finite")
    return vector


def _wire(dtype: torch.dtype) -> np.dtype[np.floating]:
    require(dtype in (torch.float32, torch.float64), "dtype", dtype, "torch.float32 or torch.float64")
    return np.dtype("<f4" if dtype == torch.float32 else "<f8")


def pack(codes: NDArray[np.uint64], width: int) -> bytes:
    """Return `codes` ``[n]``, each below 2^width, in ceil(n width / 8) bytes; the last one is filled with zeros.

    The most significant bit of an integer comes first, and integers follow each other without gaps.
    """
    shifts = np.arange(width - 1, -1, -1, dtype=np.uint64)
    chunks = (codes[start : start + CHUNK, None] for start in range(0, len(codes), CHUNK))
    return b"".join(np.packbits((chunk >> shifts & np.uint64(1)).astype(np.uint8)).tobytes() for chunk in chunks)


def unpack(data: bytes, count: int, width: int) -> NDArray[np.uint64]:
    """Return the `count` integers that :func:`pack` wrote."""
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
