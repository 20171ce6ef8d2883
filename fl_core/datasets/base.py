"""What a data set is: samples in memory, where the real ones come from, and what stands in for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor


@dataclass(frozen=True)
class Split:
    """Samples as they are stored.

    Attributes
    ----------
    inputs : Tensor
        Images ``[n, c, h, w]`` (uint8, 0 to 255), features ``[n, ...]`` (float32), or token ids ``[n, length]``
        (int32, 0 is padding).
    labels : Tensor
        ``[n]`` (int64).
    owners : Tensor or None
        ``[n]`` (int64), the number of the person each sample comes from (writer, celebrity, speaker), from 0 on and
        the same in both splits; None where nobody is known.
    """

    inputs: Tensor = field(repr=False)
    labels: Tensor = field(repr=False)
    owners: Tensor | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, index: Tensor) -> Split:
        """Return the samples `index` ``[m]``."""
        owners = None if self.owners is None else self.owners[index]
        return Split(self.inputs[index], self.labels[index], owners)


@dataclass(frozen=True)
class Dataset:
    """A classification data set in memory.

    Attributes
    ----------
    name : str
        Name of what it really is, e.g. ``"cifar10"`` or ``"cifar10-surrogate"``.
    kind : str
        ``"real"`` or ``"surrogate"``; shown wherever a number that comes from it is shown.
    classes : tuple of str
        Class names; a label is an index into it.
    train, test : Split
    mean, std : tuple of float
        Of each channel of the training images, in pixels from 0 to 1; empty if these are no images.
    sha256 : str
        Checksum of the samples as they were decoded or generated; empty if only their archives have one.
    """

    name: str
    kind: str
    classes: tuple[str, ...]
    train: Split
    test: Split
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    sha256: str = ""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one stored input, ``(channels, height, width)`` for images."""
        return tuple(self.train.inputs.shape[1:])


@dataclass(frozen=True)
class Archive:
    """A file that a data set is published as.

    Attributes
    ----------
    file : str
        Its name, in the folder of the data set.
    bytes : int
        Its exact size; 0 if not known.
    checksum : str
        ``"sha256:..."`` or ``"md5:..."`` in hexadecimal: what the publisher (or torchvision) states.
    url : str
        Where it can be downloaded; empty if only by hand.
    """

    file: str
    bytes: int
    checksum: str
    url: str = ""


@dataclass(frozen=True)
class Source:
    """A real data set.

    Attributes
    ----------
    name, title, licence, homepage : str
        `name` is the name in specifications, e.g. ``"cifar10"``; `title` names authors and year.
    shape : tuple of int
        Of one stored input, e.g. ``(3, 32, 32)``.
    classes : tuple of str
    sizes : (int, int)
        Training and test samples; (0, 0) where that is known only once the data is read.
    archives : tuple of Archive
    read : callable
        Maps the folder with the archives, already verified, to the training and the test split.
    by_hand : str
        How to obtain what cannot be downloaded, in a sentence or two; empty if everything can.
    version : int
        Raised whenever `read` returns other samples for the same archives.
    folder : str
        Where the archives lie, for sets that share them; empty: a folder with the name of the set.
    embedded : bool
        Whether the archives are part of this repository.
    present : callable or None
        Says whether a folder holds the data, where that is not a matter of `archives`.
    """

    name: str
    title: str
    licence: str
    homepage: str
    shape: tuple[int, ...]
    classes: tuple[str, ...] = field(repr=False)
    sizes: tuple[int, int]
    archives: tuple[Archive, ...] = field(repr=False)
    read: Callable[[Path], tuple[Split, Split]] = field(repr=False)
    by_hand: str = ""
    version: int = 1
    folder: str = ""
    embedded: bool = False
    present: Callable[[Path], bool] | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Surrogate:
    """A generated stand-in for a data set that may not be at hand: same shapes and classes, similar difficulty.

    Attributes
    ----------
    of : str
        Name of the real data set.
    version : int
        Raised whenever the generated samples change.
    shape, classes, sizes
        As in :class:`Source`.
    generate : callable
        Maps numbers of training and test samples (None: all of `sizes`) to the two splits. The same numbers give
        the same samples, and a smaller number gives the first ones of the full set, whatever the number of threads.
    about : str
        What the samples are, in a sentence.
    """

    of: str
    version: int
    shape: tuple[int, ...]
    classes: tuple[str, ...] = field(repr=False)
    sizes: tuple[int, int]
    generate: Callable[[int | None, int | None], tuple[Split, Split]] = field(repr=False)
    about: str = ""

    @property
    def name(self) -> str:
        """Name in specifications; never that of the real data set."""
        return f"{self.of}-surrogate"


def channels_last(images: Tensor) -> Tensor:
    """Return `images` ``[n, c, h, w]`` laid out channels-last.

    With one channel both layouts hold the same bytes, but PyTorch picks its faster kernels only when the
    strides say so.
    """
    _, c, h, w = images.shape
    if c == 1 and images.is_contiguous():
        return images.as_strided(images.shape, (h * w, 1, w, 1), images.storage_offset())
    return images.contiguous(memory_format=torch.channels_last)
