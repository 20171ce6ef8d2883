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
from fl_core.datasets.base import Archive, Source, Split

CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR100 = (
    "apple", "aquarium_fish", "baby", "bear", "beaver", "bed", "bee", "beetle", "bicycle", "bottle", "bowl",
    "boy", "bridge", "bus", "butterfly", "camel", "can", "castle", "caterpillar", "cattle", "chair", "chimpanzee",
    "clock", "cloud", "cockroach", "couch", "crab", "crocodile", "cup", "dinosaur", "dolphin", "elephant",
    "flatfish", "forest", "fox", "girl", "hamster", "house", "kangaroo", "keyboard", "lamp", "lawn_mower",
    "leopard", "lion", "lizard", "lobster", "man", "maple_tree", "motorcycle", "mountain", "mouse", "mushroom",
    "oak_tree", "orange", "orchid", "otter", "palm_tree", "pear", "pickup_truck", "pine_tree", "plain", "plate",
    "poppy", "porcupine", "possum", "rabbit", "raccoon", "ray", "road", "rocket", "rose", "sea", "seal", "shark",
    "shrew", "skunk", "skyscraper", "snail", "snake", "spider", "squirrel", "streetcar", "sunflower",
    "sweet_pepper", "table", "tank", "telephone", "television", "tiger", "tractor", "train", "trout", "tulip",
    "turtle", "wardrobe", "whale", "willow_tree", "wolf", "woman", "worm",
)  # fmt: skip
PIXELS = 3 * 32 * 32
LIMIT = 50_000 * (2 + PIXELS)  # bytes of the largest file


def read(folder: Path, source: str) -> tuple[Split, Split]:
    """Read both splits of `source`, ``"cifar10"`` or ``"cifar100"``, in the order of the archive.

    Raises
    ------
    DataError
        If the archive is damaged.
    """
    archive, train, test, labels, classes = FILES[source]
    path, wanted = folder / archive, (*train, test)
    with decoding(path, source):
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


FILES = {
    "cifar10": (
        "cifar-10-binary.tar.gz",
        tuple(f"cifar-10-batches-bin/data_batch_{i}.bin" for i in range(1, 6)),
        "cifar-10-batches-bin/test_batch.bin",
        1,
        10,
    ),
    "cifar100": ("cifar-100-binary.tar.gz", ("cifar-100-binary/train.bin",), "cifar-100-binary/test.bin", 2, 100),
}
"""Archive, its training files, its test file, labels per record, classes."""

HOMEPAGE = "https://www.cs.toronto.edu/~kriz/cifar.html"
SOURCES = (
    Source(
        name="cifar10",
        title="CIFAR-10 (Krizhevsky, 2009)",
        licence="not stated",
        homepage=HOMEPAGE,
        shape=(3, 32, 32),
        classes=CIFAR10,
        sizes=(50_000, 10_000),
        archives=(
            Archive(
                "cifar-10-binary.tar.gz",
                170_052_171,
                "sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
                "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
            ),
        ),
        read=partial(read, source="cifar10"),
    ),
    Source(
        name="cifar100",
        title="CIFAR-100, fine labels (Krizhevsky, 2009)",
        licence="not stated",
        homepage=HOMEPAGE,
        shape=(3, 32, 32),
        classes=CIFAR100,
        sizes=(50_000, 10_000),
        archives=(
            Archive(
                "cifar-100-binary.tar.gz",
                168_513_733,
                "sha256:58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
                "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
            ),
        ),
        read=partial(read, source="cifar100"),
    ),
)
