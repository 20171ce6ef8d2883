"""What a data set is: samples in memory, where the real ones come from, and what stands in for them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Split:
    """Samples as they are stored."""

    inputs: Tensor = field(repr=False)
    """Images ``[n, c, h, w]`` (uint8, 0 to 255), features ``[n, ...]`` (float32), or token ids ``[n, length]``
    (int32, 0 is padding)."""
    labels: Tensor = field(repr=False)  # [n] (int64)
    owners: Tensor | None = field(default=None, repr=False)
    """``[n]`` (int64), the number of the person each sample comes from (writer, celebrity, speaker), from 0 on and
    the same in both splits; None where nobody is known."""

    def __len__(self) -> int:
        return len(self.labels)

    @staticmethod
    def of(inputs: np.ndarray, labels: np.ndarray, owners: np.ndarray | None = None) -> Split:
        """Return a split of arrays; labels and owners may be of any integer type."""
        whose = None if owners is None else torch.from_numpy(owners.astype(np.int64))
        return Split(torch.from_numpy(inputs), torch.from_numpy(labels.astype(np.int64)), whose)

    def take(self, index: Tensor) -> Split:
        """Return the samples `index` ``[m]``."""
        owners = None if self.owners is None else self.owners[index]
        return Split(self.inputs[index], self.labels[index], owners)


KINDS = ("real", "re-encoded", "partial", "surrogate", "own")
"""What a data set can be; the last is one that a user registered."""

Splits = tuple[Split, Split]
"""Training and test."""


@dataclass(frozen=True)
class Dataset:
    """A classification data set in memory."""

    name: str  # of what it really is, e.g. "cifar10" or "cifar10-surrogate"
    kind: str  # one of :data:`KINDS`; shown wherever a number that comes from it is shown
    classes: tuple[str, ...]  # class names; a label is an index into it
    train: Split
    test: Split
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    """Of each channel of the training images, in pixels from 0 to 1; empty if these are no images."""
    sha256: str = ""
    """Checksum of the samples as they were decoded or generated; empty if only their archives have one."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one stored input, ``(channels, height, width)`` for images."""
        return tuple(self.train.inputs.shape[1:])


@dataclass(frozen=True)
class Archive:
    """A file that a data set is published as, in the folder of the data set."""

    file: str
    bytes: int = 0  # its exact size; 0 if not known
    checksum: str = ""  # "sha256:..." or "md5:..." in hexadecimal: what the publisher (or torchvision) states
    url: str = ""  # where it can be downloaded; empty if only by hand


@dataclass(frozen=True)
class Form:
    """Another form in which a data set is handed on: files below a folder that may hold several data sets."""

    archives: tuple[Archive, ...]
    read: Callable[[Path], Splits] = field(repr=False)
    """Maps that folder to the splits; a damaged file is a DataError."""


@dataclass(frozen=True)
class Source:
    """A real data set, or a copy of one that differs from it and so has a name of its own."""

    name: str  # in specifications, e.g. "cifar10"
    title: str  # with authors and year
    homepage: str
    shape: tuple[int, ...]  # of one stored input, e.g. (3, 32, 32)
    classes: tuple[str, ...] = field(repr=False)
    sizes: tuple[int, int]  # training and test samples; (0, 0) where that is known only once the data is read
    archives: tuple[Archive, ...] = field(repr=False)
    read: Callable[[Path], Splits] = field(repr=False)
    """Maps the folder with the archives, already verified, to the splits; a damaged file is a DataError."""
    licence: str = "not stated"
    by_hand: str = ""  # how to obtain what cannot be downloaded, in a sentence or two; empty if everything can
    version: int = 1  # raised whenever `read` returns other samples for the same archives
    folder: str = ""  # where the archives lie, for sets that share them; empty: a folder with the name of the set
    embedded: bool = False  # whether the archives are part of this repository
    present: Callable[[Path], bool] | None = field(default=None, repr=False)
    """Says whether a folder holds the data, where that is not a matter of `archives`."""
    copies: tuple[Form, ...] = field(default=(), repr=False)
    sha256: str = ""
    """Checksum of the samples, whatever form they come in; empty if only the archives have one."""
    kind: str = "real"  # or "re-encoded" or "partial"
    of: str = ""  # the data set that it is a re-encoded or partial copy of
    differs: str = ""  # from that one, in words that stand beside every number made on it


@dataclass(frozen=True)
class Surrogate:
    """A generated stand-in for a data set that may not be at hand: same shapes and classes, similar difficulty."""

    of: str  # name of the real data set
    version: int  # raised whenever the generated samples change
    shape: tuple[int, ...]
    classes: tuple[str, ...] = field(repr=False)
    sizes: tuple[int, int]
    split: Callable[[str, int | None], Split] = field(repr=False)
    """Maps ``"train"`` or ``"test"`` and a number (None: all) to the first samples of that split, which are the same
    for every number, whatever the number of threads; too large a number is a SpecError."""
    about: str = ""  # what the samples are, in a sentence

    @property
    def name(self) -> str:
        """Name in specifications; never that of the real data set."""
        return f"{self.of}-surrogate"

    def generate(self, train: int | None = None, test: int | None = None) -> Splits:
        """Return the first `train` and `test` samples (None: all)."""
        return self.split("train", train), self.split("test", test)


def class_names(of: str) -> tuple[str, ...]:
    """Return the names of the classes of a data set that has many, in the order of the labels."""
    names = json.loads(Path(__file__).with_name("classes.json").read_text(encoding="utf-8"))
    return tuple(names[of])


@contextmanager
def one_thread() -> Iterator[None]:
    """Let PyTorch compute with one thread: with several, matrix products may round otherwise."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def channels_last(images: Tensor) -> Tensor:
    """Return `images` ``[n, c, h, w]`` laid out channels-last."""
    _, c, h, w = images.shape
    if c == 1 and images.is_contiguous():  # the same bytes, but PyTorch picks its faster kernels only by the strides
        return images.as_strided(images.shape, (h * w, 1, w, 1), images.storage_offset())
    return images.contiguous(memory_format=torch.channels_last)
