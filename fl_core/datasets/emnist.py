"""EMNIST (Cohen, Afshar, Tapson & van Schaik, 2017): digits, the split called MNIST, and all 62 characters by writer.

The publisher offers everything twice, as IDX files in ``gzip.zip`` and as MATLAB files in ``matlab.zip``, and only
the latter says who wrote each character. So ``emnist-byclass`` is read from ``matlab.zip``, with writers as owners,
and the two sets of digits from ``gzip.zip``, whose checksum torchvision knows too. Both store an image column by
column; here it is turned, so that a digit stands upright.
"""

from __future__ import annotations

import gzip
import io
import string
from functools import partial
from pathlib import Path

import numpy as np
import scipy.io
import torch

from fl_core.datasets.archives import decoding, open_zip, read_member
from fl_core.datasets.base import Archive, Source, Split
from fl_core.datasets.fashion_mnist import read_idx

DIGITS = tuple(string.digits)
CHARACTERS = tuple(string.digits + string.ascii_uppercase + string.ascii_lowercase)
LIMIT = 1 << 30  # bytes of a file; all 697,932 training images have 0.55 billion

GZIP = Archive(
    "gzip.zip",
    561_753_746,
    "md5:58c8d27c78d21e728a6bc7b3cc06412e",
    "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",
)
MATLAB = Archive(
    "matlab.zip",
    0,
    "sha256:e1fa805cdeae699a52da0b77c2db17f6feb77eed125f9b45c022e7990444df95",
    "https://biometrics.nist.gov/cs_links/EMNIST/matlab.zip",
)


def read_digits(folder: Path, split: str) -> tuple[Split, Split]:
    """Read the split ``"digits"`` or ``"mnist"`` from the IDX files; writers are not known.

    Raises
    ------
    DataError
        If the archive is damaged.
    """
    path, splits = folder / GZIP.file, []
    with decoding(path, f"emnist-{split}"), open_zip(path) as archive:
        for part in ("train", "test"):
            images, labels = (
                read_idx(_decompressed(read_member(archive, f"gzip/emnist-{split}-{part}-{file}-ubyte.gz", LIMIT)))
                for file in ("images-idx3", "labels-idx1")
            )
            splits.append(_split(images, labels, len(DIGITS)))
    return splits[0], splits[1]


def read_byclass(folder: Path) -> tuple[Split, Split]:
    """Read all characters with their writers from the MATLAB file; needs about 2.5 GB of memory for a moment.

    Writers are numbered from 0 in the order of their numbers in the archive.

    Raises
    ------
    DataError
        If the archive is damaged.
    """
    path = folder / MATLAB.file
    with decoding(path, "emnist-byclass"):
        with open_zip(path) as archive:
            content = io.BytesIO(read_member(archive, "matlab/emnist-byclass.mat", LIMIT))
        parts = scipy.io.loadmat(content, variable_names=["dataset"])["dataset"][0, 0]
        del content
        train, test = (parts[part][0, 0] for part in ("train", "test"))
        writers = np.concatenate([train["writers"].ravel(), test["writers"].ravel()])
        owners = np.unique(writers, return_inverse=True)[1]
        if len(owners) != len(train["images"]) + len(test["images"]):
            raise ValueError(f"{len(owners)} writers of {len(train['images'])} + {len(test['images'])} images")
        count = len(train["images"])
        return (
            _split(train["images"], train["labels"].ravel(), len(CHARACTERS), owners[:count]),
            _split(test["images"], test["labels"].ravel(), len(CHARACTERS), owners[count:]),
        )


def _split(images: np.ndarray, labels: np.ndarray, classes: int, owners: np.ndarray | None = None) -> Split:
    """Return a split of images stored column by column, ``[n, 28, 28]`` or ``[n, 784]``."""
    if images.dtype != np.uint8 or len(images) != len(labels) or labels.max() >= classes:
        raise ValueError(f"{len(images)} images ({images.dtype}), {len(labels)} labels up to {labels.max()}")
    upright = np.ascontiguousarray(images.reshape(-1, 28, 28).transpose(0, 2, 1))
    return Split(
        torch.from_numpy(upright).unsqueeze_(1),
        torch.from_numpy(labels.astype(np.int64)),
        None if owners is None else torch.from_numpy(owners.astype(np.int64)),
    )


def _decompressed(content: bytes) -> bytes:
    with gzip.open(io.BytesIO(content)) as stream:
        decompressed = stream.read(LIMIT)
        if stream.read(1):
            raise ValueError(f"a file has more than {LIMIT} bytes")
    return decompressed


TITLE = "Cohen, Afshar, Tapson & van Schaik, 2017"
HOMEPAGE = "https://www.nist.gov/itl/products-and-services/emnist-dataset"
LICENCE = "not stated"
SOURCES = (
    Source(
        name="emnist-digits",
        title=f"EMNIST Digits ({TITLE})",
        licence=LICENCE,
        homepage=HOMEPAGE,
        shape=(1, 28, 28),
        classes=DIGITS,
        sizes=(240_000, 40_000),
        archives=(GZIP,),
        read=partial(read_digits, split="digits"),
        folder="emnist",
    ),
    Source(
        name="emnist-mnist",
        title=f"EMNIST MNIST ({TITLE})",
        licence=LICENCE,
        homepage=HOMEPAGE,
        shape=(1, 28, 28),
        classes=DIGITS,
        sizes=(60_000, 10_000),
        archives=(GZIP,),
        read=partial(read_digits, split="mnist"),
        folder="emnist",
    ),
    Source(
        name="emnist-byclass",
        title=f"EMNIST ByClass ({TITLE})",
        licence=LICENCE,
        homepage=HOMEPAGE,
        shape=(1, 28, 28),
        classes=CHARACTERS,
        sizes=(697_932, 116_323),
        archives=(MATLAB,),
        read=read_byclass,
        folder="emnist",
    ),
)
