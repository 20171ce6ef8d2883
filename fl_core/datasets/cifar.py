"""CIFAR-10 and CIFAR-100 (Krizhevsky, 2009), from the archives in binary format.

The publisher offers the same images, in the same order, as Python pickles and as binary records. Loading a pickle can
run any code that somebody put into it; a record is a label and 3,072 pixels and can do nothing, so these are read.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import torch

from fl_core.datasets.archives import decoding, tar_members
from fl_core.datasets.base import Archive, Source, Split, Splits

CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR100 = (
    "apple", "aquarium_fish", "baby", "bear", "beaver", "bed", "bee", "beetle", "bicycle", "bottle", "bowl", "boy",
    "bridge", "bus", "butterfly", "camel", "can", "castle", "caterpillar", "cattle", "chair", "chimpanzee", "clock",
    "cloud", "cockroach", "couch", "crab", "crocodile", "cup", "dinosaur", "dolphin", "elephant", "flatfish",
    "forest", "fox", "girl", "hamster", "house", "kangaroo", "keyboard", "lamp", "lawn_mower", "leopard", "lion",
    "lizard", "lobster", "man", "maple_tree", "motorcycle", "mountain", "mouse", "mushroom", "oak_tree", "orange",
    "orchid", "otter", "palm_tree", "pear", "pickup_truck", "pine_tree", "plain", "plate", "poppy", "porcupine",
    "possum", "rabbit", "raccoon", "ray", "road", "rocket", "rose", "sea", "seal", "shark", "shrew", "skunk",
    "skyscraper", "snail", "snake", "spider", "squirrel", "streetcar", "sunflower", "sweet_pepper", "table", "tank",
    "telephone", "television", "tiger", "tractor", "train", "trout", "tulip", "turtle", "wardrobe", "whale",
    "willow_tree", "wolf", "woman", "worm",
)  # fmt: skip
PIXELS = 3 * 32 * 32
LIMIT = 50_000 * (2 + PIXELS)  # bytes of the largest file


def read(folder: Path, archive: Archive, train: tuple[str, ...], test: str, labels: int, classes: int) -> Splits:
    """Read both splits in the order of the archive, whose records have so many `labels` each."""
    path, wanted = folder / archive.file, (*train, test)
    with decoding(path, f"cifar{classes}"):
        found = dict(tar_members(path, lambda name: name in wanted, LIMIT))
        records = {name: _records(found.pop(name), labels, classes) for name in wanted}
        return _split([records[name] for name in train]), _split([records[test]])


def _records(content: bytes, labels: int, classes: int) -> np.ndarray:
    """Return the records ``[n, labels + 3072]`` of a file; of several labels the last is the finest."""
    records = np.frombuffer(content, np.uint8).reshape(-1, labels + PIXELS)
    if not len(records) or records[:, labels - 1].max() >= classes:
        raise ValueError(f"labels are not from 0 to {classes - 1}")
    return records


def _split(parts: list[np.ndarray]) -> Split:
    images = np.empty((sum(len(part) for part in parts), PIXELS), np.uint8)
    np.concatenate([part[:, -PIXELS:] for part in parts], out=images)
    labels = np.concatenate([part[:, -PIXELS - 1] for part in parts]).astype(np.int64)
    return Split(torch.from_numpy(images).view(-1, 3, 32, 32), torch.from_numpy(labels))


def _source(title: str, names: tuple[str, ...], archive: Archive, train: tuple[str, ...], test: str) -> Source:
    classes = len(names)
    return Source(
        name=f"cifar{classes}",
        title=title,
        homepage="https://www.cs.toronto.edu/~kriz/cifar.html",
        shape=(3, 32, 32),
        classes=names,
        sizes=(50_000, 10_000),
        archives=(archive,),
        read=partial(
            read, archive=archive, train=train, test=test, labels=1 if classes == 10 else 2, classes=classes
        ),
    )


SOURCES = (
    _source(
        "CIFAR-10 (Krizhevsky, 2009)",
        CIFAR10,
        Archive(
            "cifar-10-binary.tar.gz",
            170_052_171,
            "sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
        ),
        tuple(f"cifar-10-batches-bin/data_batch_{i}.bin" for i in range(1, 6)),
        "cifar-10-batches-bin/test_batch.bin",
    ),
    _source(
        "CIFAR-100, fine labels (Krizhevsky, 2009)",
        CIFAR100,
        Archive(
            "cifar-100-binary.tar.gz",
            168_513_733,
            "sha256:58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
            "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
        ),
        ("cifar-100-binary/train.bin",),
        "cifar-100-binary/test.bin",
    ),
)
