"""EMNIST (Cohen, Afshar, Tapson & van Schaik, 2017), by digit and by writer, and LEAF's FEMNIST.

The publisher of EMNIST offers everything twice, as IDX files in ``gzip.zip`` and as MATLAB files in ``matlab.zip``,
and only the latter says who wrote each character. So ``emnist-byclass`` is read from ``matlab.zip``, with writers as
owners, and the two sets of digits from ``gzip.zip``, whose checksum torchvision knows too. Both store an image column
by column; here it is turned, so that a digit stands upright. FEMNIST (Caldas et al., 2018) is read from the JSON
that LEAF's scripts make.
"""

from __future__ import annotations

import gzip
import io
import json
import string
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from fl_core.datasets.archives import decoding, open_zip, read_member
from fl_core.datasets.base import Archive, Source, Split, Splits
from fl_core.datasets.mnist import read_idx
from fl_core.errors import DataError

DIGITS = tuple(string.digits)
CHARACTERS = tuple(string.digits + string.ascii_uppercase + string.ascii_lowercase)
LIMIT = 1 << 30  # bytes of a file; all 697,932 training images have 0.55 billion

GZIP = Archive(
    "gzip.zip", 561_753_746, "md5:58c8d27c78d21e728a6bc7b3cc06412e",
    "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",
)  # fmt: skip
MATLAB = Archive(
    "matlab.zip", 0, "sha256:e1fa805cdeae699a52da0b77c2db17f6feb77eed125f9b45c022e7990444df95",
    "https://biometrics.nist.gov/cs_links/EMNIST/matlab.zip",
)  # fmt: skip


def read_digits(folder: Path, split: str) -> Splits:
    """Read the split ``"digits"`` or ``"mnist"`` from the IDX files; writers are not known."""
    path, splits = folder / GZIP.file, []
    with decoding(path, f"emnist-{split}"), open_zip(path) as archive:
        for part in ("train", "test"):
            names = (f"gzip/emnist-{split}-{part}-{file}-ubyte.gz" for file in ("images-idx3", "labels-idx1"))
            images, labels = (read_idx(_decompressed(read_member(archive, name, LIMIT))) for name in names)
            splits.append(_split(images, labels, len(DIGITS)))
    return splits[0], splits[1]


def read_byclass(folder: Path) -> Splits:
    """Read all characters with their writers from the MATLAB file; needs about 2.5 GB of memory for a moment.

    Writers are numbered from 0 in the order of their numbers in the archive.
    """
    path = folder / MATLAB.file
    with decoding(path, "emnist-byclass"):
        with open_zip(path) as archive:
            content = io.BytesIO(read_member(archive, "matlab/emnist-byclass.mat", LIMIT))
        from scipy.io import loadmat  # slow to import, and nothing else needs it

        parts = loadmat(content, variable_names=["dataset"])["dataset"][0, 0]
        del content
        found = [parts[part][0, 0] for part in ("train", "test")]
        owners = np.unique(np.concatenate([part["writers"].ravel() for part in found]), return_inverse=True)[1]
        count, others = (len(part["images"]) for part in found)
        if len(owners) != count + others:
            raise ValueError(f"{len(owners)} writers of {count} + {others} images")
        whose = owners[:count], owners[count:]
        train, test = (
            _split(part["images"], part["labels"].ravel(), len(CHARACTERS), of)
            for part, of in zip(found, whose, strict=True)
        )
        return train, test


def _split(images: np.ndarray, labels: np.ndarray, classes: int, owners: np.ndarray | None = None) -> Split:
    """Return a split of images stored column by column, ``[n, 28, 28]`` or ``[n, 784]``."""
    if images.dtype != np.uint8 or len(images) != len(labels) or labels.max() >= classes:
        raise ValueError(f"{len(images)} images ({images.dtype}), {len(labels)} labels up to {labels.max()}")
    upright = np.ascontiguousarray(images.reshape(-1, 28, 28).transpose(0, 2, 1))
    return Split.of(upright.reshape(-1, 1, 28, 28), labels, owners)


def _decompressed(content: bytes) -> bytes:
    with gzip.open(io.BytesIO(content)) as stream:
        decompressed = stream.read(LIMIT)
        if stream.read(1):
            raise ValueError(f"a file has more than {LIMIT} bytes")
    return decompressed


def read_femnist(folder: Path) -> Splits:
    """Read ``train/*.json`` and ``test/*.json`` in `folder`, in the order of their names.

    LEAF writes pixels from 0 (ink) to 1 (paper), bytes divided by 255; here they are bytes again. Writers are
    numbered from 0 in the order in which they first occur, those of the training files first. One file at a time is
    in memory as Python numbers: about 0.6 GB where it holds 100 writers.
    """
    writers: dict[str, int] = {}
    return _leaf_split(folder / "train", writers), _leaf_split(folder / "test", writers)


def _leaf_split(folder: Path, writers: dict[str, int]) -> Split:
    images, labels, owners = [], [], []
    for path in sorted(folder.glob("*.json")):
        with decoding(path, "femnist"):
            users = json.loads(path.read_bytes())["user_data"]
            for user, samples in users.items():
                pixels = np.asarray(samples["x"], np.float64).reshape(-1, 28 * 28)
                classes = np.asarray(samples["y"], np.int64)
                if len(pixels) != len(classes) or not (pixels.min(initial=0) >= 0 and pixels.max(initial=1) <= 1):
                    raise ValueError(f"writer {user!r}: not as many labels as images, or pixels not from 0 to 1")
                if classes.min(initial=0) < 0 or classes.max(initial=0) >= len(CHARACTERS):
                    raise ValueError(f"writer {user!r} has labels that are not from 0 to {len(CHARACTERS) - 1}")
                images.append(np.rint(pixels * 255).astype(np.uint8))
                labels.append(classes)
                owners.append(np.full(len(classes), writers.setdefault(user, len(writers))))
    if not images:
        raise DataError(f"no data in {folder}; {LEAF}")
    return Split.of(np.concatenate(images).reshape(-1, 1, 28, 28), np.concatenate(labels), np.concatenate(owners))


def _leaf_present(folder: Path) -> bool:
    return all(any((folder / part).glob("*.json")) for part in ("train", "test"))


LEAF = (
    "clone https://github.com/TalwalkarLab/leaf, run './preprocess.sh -s niid --sf 1.0 -k 0 -t sample' in its "
    "folder data/femnist, and copy the folders data/femnist/data/train and data/femnist/data/test here"
)


def _emnist(
    name: str, classes: tuple[str, ...], sizes: tuple[int, int], archive: Archive, read: Callable[[Path], Splits]
) -> Source:
    return Source(
        name=f"emnist-{name.lower()}", title=f"EMNIST {name} (Cohen, Afshar, Tapson & van Schaik, 2017)",
        homepage="https://www.nist.gov/itl/products-and-services/emnist-dataset", shape=(1, 28, 28), classes=classes,
        sizes=sizes, archives=(archive,), read=read, folder="emnist",
    )  # fmt: skip


SOURCES = (
    _emnist("Digits", DIGITS, (240_000, 40_000), GZIP, partial(read_digits, split="digits")),
    _emnist("MNIST", DIGITS, (60_000, 10_000), GZIP, partial(read_digits, split="mnist")),
    _emnist("ByClass", CHARACTERS, (697_932, 116_323), MATLAB, read_byclass),
    Source(
        name="femnist", title="FEMNIST of LEAF (Caldas et al., 2018; images from NIST Special Database 19)",
        licence="not stated; LEAF: BSD-2-Clause", homepage="https://leaf.cmu.edu", shape=(1, 28, 28),
        classes=CHARACTERS,
        sizes=(0, 0),  # they depend on the options of LEAF's script
        archives=(), read=read_femnist, by_hand=LEAF, present=_leaf_present,
    ),
)  # fmt: skip
