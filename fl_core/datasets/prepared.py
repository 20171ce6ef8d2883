"""Data sets on disk in the form that training reads: one safetensors file each, checksummed, written once.

Decoding an archive or generating a surrogate takes seconds to minutes; reading the result back takes less than two.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from filelock import FileLock
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from fl_core.datasets.base import Dataset, Split, Splits
from fl_core.errors import DataError

FORMAT = "1"
BLOCK = 1 << 24  # bytes hashed at a time, several blocks at once: SHA-256 of a gigabyte on one core takes a second
COUNTED = 1 << 20  # bytes counted at a time: NumPy widens them eightfold first, which should stay in the cache


def load_or_build(path: Path, name: str, kind: str, classes: tuple[str, ...], build: Callable[[], Splits]) -> Dataset:
    """Return the data set in `path`, first building it if there is no such file or a damaged one.

    Of several processes that need it at the same time one builds and the others wait.
    """
    try:
        # Reading takes no lock: the file is whole whenever it exists, and its folder may not be writable.
        if path.exists() and (found := _read_or_warn(path, name, kind, classes)):
            return found
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{path}.lock"):
            if path.exists() and (found := _read_or_warn(path, name, kind, classes)):
                return found
            write(path, *build())
            return read(path, name, kind, classes)
    except OSError as error:
        raise DataError(f"data set {name!r} cannot be kept in {path.parent} ({error.strerror or error})") from None


def _read_or_warn(path: Path, name: str, kind: str, classes: tuple[str, ...]) -> Dataset | None:
    try:
        return read(path, name, kind, classes)
    except DataError as error:
        warnings.warn(f"{error}; it is made again", stacklevel=3)
        return None


def write(path: Path, train: Split, test: Split) -> None:
    """Write both splits; the file appears whole or not at all."""
    tensors = tensors_of(train, test)
    mean, std = channel_statistics(train.inputs)
    metadata = {"format": FORMAT, "sha256": digest(tensors), "mean": json.dumps(mean), "std": json.dumps(std)}
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        save_file(tensors, temporary, metadata)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def tensors_of(train: Split, test: Split) -> dict[str, Tensor]:
    """Return the tensors of both splits by the names that they have in a file."""
    tensors = {}
    for part, split in (("train", train), ("test", test)):
        tensors[f"{part}.inputs"] = split.inputs.contiguous()
        tensors[f"{part}.labels"] = split.labels
        if split.owners is not None:
            tensors[f"{part}.owners"] = split.owners
    return tensors


def read(path: Path, name: str, kind: str, classes: tuple[str, ...]) -> Dataset:
    """Read what :func:`write` wrote; a damaged file, or one of another format, is a DataError."""
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        if metadata["format"] != FORMAT:
            raise DataError(f"data file {path} has format {metadata['format']!r}, this version reads {FORMAT!r}")
        if digest(tensors) != metadata["sha256"]:
            raise DataError(f"data file {path} is damaged (its content does not match its SHA-256)")
        mean, std = (tuple(json.loads(metadata[key])) for key in ("mean", "std"))
        train, test = (
            Split(tensors[f"{part}.inputs"], tensors[f"{part}.labels"], tensors.get(f"{part}.owners"))
            for part in ("train", "test")
        )
    except (OSError, SafetensorError, KeyError, ValueError, struct.error) as error:
        raise DataError(f"data file {path} is damaged ({type(error).__name__}: {error})") from None
    return Dataset(name, kind, classes, train, test, mean, std, metadata["sha256"])


def digest(tensors: dict[str, Tensor]) -> str:
    """Return a SHA-256 over names, types, shapes and bytes; the bytes enter as the SHA-256 sums of their blocks."""
    total = hashlib.sha256()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for name in sorted(tensors):
            tensor = tensors[name]
            total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            content = tensor.numpy().reshape(-1).view(np.uint8).data
            blocks = (content[start : start + BLOCK] for start in range(0, len(content), BLOCK))
            for part in pool.map(lambda block: hashlib.sha256(block).digest(), blocks):
                total.update(part)
    return total.hexdigest()


def channel_statistics(inputs: Tensor) -> tuple[list[float], list[float]]:
    """Return mean and standard deviation of each channel, of pixels from 0 to 1, to four digits; empty: no images.

    They come from exact counts of the 256 values, so they depend neither on the order of the sum nor on threads.
    """
    if inputs.dtype != torch.uint8 or inputs.dim() != 4:
        return [], []
    counts = np.zeros((inputs.shape[1], 256), np.int64)
    for block in inputs.split(max(1, COUNTED // max(1, inputs.shape[2] * inputs.shape[3]))):
        for channel in range(len(counts)):
            counts[channel] += np.bincount(block[:, channel].reshape(-1).numpy(), minlength=256)
    values = np.arange(256) / 255
    mean = counts @ values / counts.sum(1)
    std = np.sqrt((counts * (values - mean[:, None]) ** 2).sum(1) / counts.sum(1))
    return [round(float(m), 4) for m in mean], [round(float(s), 4) for s in std]
