"""Where FedASMU's server keeps directions of past aggregations: exactly, on disk, in half precision, or sketched."""

from __future__ import annotations

import os
import tempfile
from typing import Any, Literal

import torch
from torch import Tensor

from fl_core.formulas.fedasmu_directions import Half, half_product, sketch, to_half

Backend = Literal["ram", "memmap", "float16", "sketch"]


def keep(direction: Tensor, backend: Backend, size: int, seed: int) -> Any:
    """Return `direction` ``[p]`` as plain data in the form of `backend`; `size` and `seed` are those of sketches."""
    match backend:
        case "ram":
            return direction
        case "memmap":
            return on_disk(direction)
        case "float16":
            return list(to_half(direction))
        case "sketch":
            return sketch(direction, size, seed)


def product(vector: Tensor, kept: Any, backend: Backend, size: int, seed: int) -> float:
    """Return the inner product of `vector` ``[p]`` with what :func:`keep` has returned."""
    match backend:
        case "ram" | "memmap":
            return float(vector @ kept)
        case "float16":
            return half_product(vector, Half(*kept))
        case "sketch":
            return float(sketch(vector, size, seed) @ kept)


def on_disk(vector: Tensor) -> Tensor:
    """Return an equal tensor in a file that has no name and goes with it (in the folder of ``TMPDIR``).

    The system writes it out and forgets it in main memory when that gets short.
    """
    handle, path = tempfile.mkstemp(prefix="fl_core-", suffix=".direction")
    try:
        os.truncate(handle, vector.nbytes)
        mapped = torch.from_file(path, shared=True, size=vector.numel(), dtype=vector.dtype)
    finally:
        os.close(handle)
        os.unlink(path)
    return mapped.copy_(vector)
