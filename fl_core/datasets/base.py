"""A data set in memory, ready to train on."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True)
class Split:
    """Images ``[n, c, h, w]`` (float32) and labels ``[n]`` (int64)."""

    images: Tensor = field(repr=False)
    labels: Tensor = field(repr=False)

    def __len__(self) -> int:
        return len(self.labels)

    def select(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mini-batch of `index` ``[b]`` in the memory layout that convolutions run fastest in."""
        return channels_last(self.images.index_select(0, index)), self.labels.index_select(0, index)

    def slice(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Return the samples `start`..`stop` as a mini-batch, without a copy where the layout allows it."""
        return channels_last(self.images[start:stop]), self.labels[start:stop]


@dataclass(frozen=True)
class Dataset:
    """A classification data set.

    Attributes
    ----------
    name : str
        Registered name, e.g. ``"fashion-mnist"``.
    kind : str
        ``"real"`` or ``"surrogate"``; shown wherever a number that comes from it is shown.
    classes : tuple of str
        Class names; a label is an index into it.
    train, test : Split
    """

    name: str
    kind: str
    classes: tuple[str, ...]
    train: Split
    test: Split

    @property
    def shape(self) -> tuple[int, int, int]:
        """``(channels, height, width)`` of one image."""
        c, h, w = self.train.images.shape[1:]
        return c, h, w


def channels_last(images: Tensor) -> Tensor:
    """Return `images` ``[n, c, h, w]`` laid out channels-last.

    With one channel both layouts hold the same bytes, but PyTorch picks its faster kernels only when the
    strides say so.
    """
    _, c, h, w = images.shape
    if c == 1 and images.is_contiguous():
        return images.as_strided(images.shape, (h * w, 1, w, 1), images.storage_offset())
    return images.contiguous(memory_format=torch.channels_last)
