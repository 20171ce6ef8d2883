"""Data sets of one's own: arrays, tensors or any indexable collection of pairs, by a name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor

from fl_core.datasets.base import Dataset, Split
from fl_core.datasets.prepared import channel_statistics, digest, tensors_of
from fl_core.errors import DataError, SpecError

Pairs = Any
"""A tuple ``(inputs [n, ...], labels [n])``, with the number of each sample's person ``[n]`` as a third; or what has
a length and gives ``(input, label)`` by number, as torchvision's data sets do."""
Load = Callable[[], tuple[Pairs, Pairs]]
MOST_CHANNELS = 4
"""Of images: what is longer in an array is height or width."""
LARGEST = 2**31 - 1
"""Of labels, owners and tokens."""


@dataclass(frozen=True)
class OwnData:
    """A data set that a function gives when it is needed for the first time."""

    name: str
    load: Load
    """Returns training and test samples."""
    classes: tuple[str, ...] = ()
    """Names of the classes; empty: their numbers."""

    @cached_property
    def dataset(self) -> Dataset:
        """Its samples, checked; a DataError says what is wrong."""
        part = "its function"
        try:
            both: Any = self.load()
            if not isinstance(both, tuple | list) or len(both) != 2:
                what = f"{len(both)} things" if isinstance(both, tuple | list) else type(both).__name__
                raise TypeError(f"it returned {what}, not two: training and test samples, each (inputs, labels)")
            part = "training samples"
            train = _split(both[0])
            part = "test samples"
            splits = train, _split(both[1])
        except Exception as error:  # whatever somebody's function does
            kind = "" if isinstance(error, TypeError | ValueError | OSError) else f"{type(error).__name__}: "
            raise DataError(f"data set {self.name!r}: {part}: {kind}{error}") from error
        most = max(int(split.labels.max()) for split in splits)
        classes = self.classes or tuple(map(str, range(most + 1)))
        if most >= len(classes):
            raise DataError(f"data set {self.name!r}: a label is {most}, but there are {len(classes)} classes")
        if (
            splits[0].inputs.shape[1:] != splits[1].inputs.shape[1:]
            or splits[0].inputs.dtype != splits[1].inputs.dtype
        ):
            shapes = " and ".join(f"{split.inputs.dtype} {tuple(split.inputs.shape[1:])}" for split in splits)
            raise DataError(f"data set {self.name!r}: training and test inputs differ: {shapes}")
        mean, std = channel_statistics(splits[0].inputs)
        return Dataset(self.name, "own", classes, *splits, tuple(mean), tuple(std), digest(tensors_of(*splits)))


OWN: dict[str, OwnData] = {}
"""The data sets that have been registered here, by name."""


def register_dataset(name: str, classes: Sequence[str] = ()) -> Callable[[Load], Load]:
    """Make the data set that the decorated function returns known as `name`; a second one replaces the first.

    The function takes nothing and returns training and test samples, each as arrays or tensors ``(inputs, labels)``,
    ``(inputs, labels, owners)``, or as a collection of pairs. Bytes are images, with at most four channels, first,
    last or none, other integers are tokens, and floats are features. It is called once in a process, when a run needs
    it. A result belongs to the samples: it counts as missing once the function returns others.
    """
    from fl_core.datasets.registry import all_sources, all_surrogates

    if not isinstance(name, str):
        raise SpecError('a data set needs a name: @register_dataset("blobs")')
    if name in {**all_sources(), **all_surrogates()}:
        raise SpecError(f"the data set {name!r} is there already; choose another name")

    def known(load: Load) -> Load:
        OWN[name] = OwnData(name, load, tuple(classes))
        return load

    return known


def _split(samples: Pairs) -> Split:
    if isinstance(samples, dict | set):
        raise TypeError(f"samples are a {type(samples).__name__}; give (inputs, labels) or a list of pairs")
    if isinstance(samples, list) and all(isinstance(part, np.ndarray | Tensor) for part in samples):
        samples = tuple(samples)
    if not isinstance(samples, tuple):
        pairs = [samples[number] for number in range(len(samples))]
        samples = np.stack([np.asarray(pair[0]) for pair in pairs]), np.stack([np.asarray(pair[1]) for pair in pairs])
    if len(samples) not in (2, 3):
        raise ValueError(f"samples are a tuple of {len(samples)}; give (inputs, labels) or (inputs, labels, owners)")
    inputs, labels, *owned = map(np.asarray, samples)
    owners = owned[0] if owned else None
    for name, numbers in (("labels", labels), ("owners", owners)):
        if numbers is None:
            continue
        if numbers.ndim != 1 or numbers.dtype.kind not in "iu" or len(numbers) != len(inputs):
            kind = f"{numbers.dtype} {list(numbers.shape)}"
            raise ValueError(f"{name} are {kind}; they should be one integer for each of {len(inputs)} inputs")
        if len(numbers) == 0 or numbers.min() < 0 or numbers.max() > LARGEST:
            found = f"they are from {numbers.min()} to {numbers.max()}" if len(numbers) else "there is none"
            raise ValueError(f"{name} must be numbers from 0 to {LARGEST:,}, at least one; {found}")
    return Split.of(np.ascontiguousarray(_stored(inputs)), labels, owners)


def _stored(inputs: np.ndarray) -> np.ndarray:
    """Return inputs as a split stores them."""
    if inputs.dtype == np.uint8:
        if inputs.ndim == 3:
            return inputs[:, None]
        few = [axis for axis in (1, 3) if inputs.ndim == 4 and inputs.shape[axis] <= MOST_CHANNELS]
        if few:
            return inputs if few == [1] or inputs.shape[1] in (1, 3) else inputs.transpose(0, 3, 1, 2)
    elif inputs.dtype.kind in "iu" and inputs.ndim == 2:
        if inputs.size and inputs.max() > LARGEST:
            raise ValueError(f"token {inputs.max()} is too large: at most {LARGEST:,}")
        return inputs.astype(np.int32)
    elif inputs.dtype.kind == "f" and inputs.ndim >= 2:
        with np.errstate(over="ignore"):
            stored = inputs.astype(np.float32)
        if not np.isfinite(stored).all():
            where = int(np.argwhere(~np.isfinite(stored))[0][0])
            raise ValueError(f"input {where} is not finite, or too large for 32 bits")
        return stored
    raise ValueError(
        f"inputs are {inputs.dtype} {list(inputs.shape)}; images are bytes [n, h, w], [n, c, h, w] or [n, h, w, c], "
        f"c at most {MOST_CHANNELS}, features floats [n, ...], texts integers [n, length]"
    )
