"""The file of a checkpoint: a safetensors file whose last bytes are a checksum of all others."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any, BinaryIO

import torch
from safetensors import safe_open
from torch import Tensor

from fl_core.runtime.plain import DTYPES

CHECKSUM_BYTES = 16


def write(file: BinaryIO, metadata: dict[str, str], text: str, tensors: list[Tensor]) -> None:
    """Write `text` and `tensors`, and flush; nothing is held in memory twice.

    Numbers that take more bytes come first, as the format wants it.
    """
    tensors = [torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8), *tensors]
    order = sorted(range(len(tensors)), key=lambda place: -tensors[place].element_size())
    header: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for place in order:
        tensor = tensors[place]
        start, end = end, end + tensor.nbytes
        entry = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
        header[str(place)] = entry
    offsets = [end, end + CHECKSUM_BYTES]
    header["checksum"] = {"dtype": "U8", "shape": [CHECKSUM_BYTES], "data_offsets": offsets}
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    digest = hashlib.blake2b(digest_size=CHECKSUM_BYTES)
    for piece in (len(head).to_bytes(8, "little"), head, *(buffer(tensors[place]) for place in order)):
        digest.update(piece)
        file.write(piece)
    file.write(digest.digest())
    file.flush()
    os.fsync(file.fileno())


def read_metadata(path: Path) -> dict[str, str]:
    """Return the metadata of a file whose checksum is right.

    Raises
    ------
    ValueError
        If it is not.
    """
    digest = hashlib.blake2b(digest_size=CHECKSUM_BYTES)
    with path.open("rb") as file:
        left = os.fstat(file.fileno()).st_size - CHECKSUM_BYTES
        while left > 0 and (piece := file.read(min(left, 2**20))):
            digest.update(piece)
            left -= len(piece)
        if left or file.read() != digest.digest():
            raise ValueError("its checksum is wrong")
    with safe_open(path, "pt") as file:
        found: dict[str, str] = file.metadata()
        return found


def read(path: Path) -> tuple[str, list[Tensor]]:
    """Return text and tensors of a file."""
    with safe_open(path, "pt") as file:
        # Copies start where PyTorch lets tensors start: the last bits of a dot product depend on the address.
        text, *tensors = (file.get_tensor(str(place)).clone() for place in range(len(file.keys()) - 1))
    return text.numpy().tobytes().decode(), tensors


def buffer(tensor: Tensor) -> Any:
    """Return the bytes of a contiguous tensor."""
    return tensor.reshape(-1).view(torch.uint8).numpy().data
