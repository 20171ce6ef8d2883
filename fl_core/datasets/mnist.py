"""MNIST (LeCun, Cortes & Burges, 1998), and who wrote each digit (QMNIST, Yadav & Bottou, 2019).

The first 60,000 rows of QMNIST's labels for training and the first 10,000 of those for testing belong to the images
of MNIST, in its order. Nobody wrote both training and test digits.
"""

from __future__ import annotations

import gzip
import string
from functools import partial
from pathlib import Path

import numpy as np
import torch

from fl_core.datasets.archives import decoding, read_arrays
from fl_core.datasets.base import Archive, Form, Source, Split, Splits
from fl_core.datasets.fashion_mnist import read_idx

MNIST, QMNIST = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://raw.githubusercontent.com/facebookresearch/",
)
SIZES = (60_000, 10_000)
LIMIT = 1 << 26  # bytes of a decompressed file
ROW = 8  # numbers about a digit in QMNIST: class, series of forms, writer, ...
WRITER = 2


def _archives(url: str, *rows: tuple[str, int, str]) -> tuple[Archive, ...]:
    return tuple(Archive(file, size, f"md5:{md5}", url + file) for file, size, md5 in rows)


DIGITS = _archives(
    MNIST,
    ("train-images-idx3-ubyte.gz", 9_912_422, "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
    ("train-labels-idx1-ubyte.gz", 28_881, "d53e105ee54ea40749a09fcbcd1e9432"),
    ("t10k-images-idx3-ubyte.gz", 1_648_877, "9fb629c4189551a2d022fa330f9573f3"),
    ("t10k-labels-idx1-ubyte.gz", 4_542, "ec29112dd5afa0611ce80d1b7f02629c"),
)
WRITERS = _archives(
    f"{QMNIST}qmnist/master/",
    ("qmnist-train-labels-idx2-int.gz", 0, "0058f8dd561b90ffdd0f734c6a30e5e4"),
    ("qmnist-test-labels-idx2-int.gz", 0, "5b5b05890a5e13444e108efe57b788aa"),
)
ARRAYS = Archive("mnist-writers.npz")


def read(folder: Path, files: tuple[Archive, ...]) -> Splits:
    """Read IDX files: training images and labels, those for testing, and QMNIST's labels where `files` has them."""
    contents = []
    for archive in files:
        with decoding(path := folder / archive.file, "mnist"), gzip.open(path) as stream:
            contents.append(read_idx(stream.read(LIMIT)))
    with decoding(folder / files[0].file, "mnist"):
        parts = [contents[0:2], contents[2:4]]
        for (images, labels), rows in zip(parts, contents[4:], strict=False):
            if rows.shape[1:] != (ROW,) or not np.array_equal(rows[: len(images), 0], labels):
                raise ValueError("the writers are not those of these digits")
        writers = [rows[: len(images), WRITER] for (images, _), rows in zip(parts, contents[4:], strict=False)]
        return splits(*(array for part in parts for array in part), *writers)


def read_npz(folder: Path, writers: bool) -> Splits:
    """Read the six arrays of one file; without `writers` four of them."""
    with decoding(path := folder / ARRAYS.file, "mnist"):
        names = {
            f"{p}_{n}": f
            for p in ("train", "test")
            for n, f in (("x", ("u1", (None, 28, 28))), ("y", ("u1", (None,))))
        }
        owners = {f"{part}_writer": ("i4", (None,)) for part in ("train", "test")} if writers else {}
        return splits(*read_arrays(path, **names, **owners))


def splits(x: np.ndarray, y: np.ndarray, x_test: np.ndarray, y_test: np.ndarray, *writers: np.ndarray) -> Splits:
    """Return both splits; writers are numbered from 0 in the order of their numbers."""
    lengths = {len(x) - len(y), len(x_test) - len(y_test), sum(map(len, writers)) - len(writers and (*y, *y_test))}
    if lengths != {0} or max(y.max(), y_test.max()) > 9:
        raise ValueError(f"{len(x)} + {len(x_test)} images, {len(y)} + {len(y_test)} labels up to {y.max()}")
    owners = np.unique(np.concatenate(writers), return_inverse=True)[1].astype(np.int64) if writers else None
    first, second = (
        Split(
            torch.from_numpy(images.copy()).unsqueeze_(1),
            torch.from_numpy(labels.astype(np.int64)),
            None if owners is None else torch.from_numpy(owners[part]),
        )
        for images, labels, part in ((x, y, slice(len(y))), (x_test, y_test, slice(len(y), None)))
    )
    return first, second


def _source(name: str, title: str, archives: tuple[Archive, ...], licence: str, sha256: str) -> Source:
    elsewhere = tuple(
        Archive(f"{'Q' * a.file.startswith('q')}MNIST/raw/{a.file}", a.bytes, a.checksum) for a in archives
    )
    return Source(
        name=name,
        title=title,
        homepage="https://github.com/facebookresearch/qmnist",
        shape=(1, 28, 28),
        classes=tuple(string.digits),
        sizes=SIZES,
        archives=archives,
        read=partial(read, files=archives),
        copies=(
            Form((ARRAYS,), partial(read_npz, writers=len(archives) > 4)),
            Form(elsewhere, partial(read, files=elsewhere)),  # torchvision's folders
        ),
        licence=licence,
        sha256=sha256,
    )


SOURCES = (
    _source(
        "mnist",
        "MNIST (LeCun, Cortes & Burges, 1998)",
        DIGITS,
        "CC BY-SA 3.0, as usually stated",
        "c82be5142a299c20cce0ba8ebc6b7f464ab4cccbd779c7faedc5d8179c522743",
    ),
    _source(
        "mnist-writers",
        "MNIST by writer (labels of QMNIST, Yadav & Bottou, 2019)",
        DIGITS + WRITERS,
        "CC BY-SA 3.0, as usually stated; writers BSD 3-clause",
        "c654640c340968d7809a9597c921c04eb65ed28f4a2813dd1c9b10eb4eee2f3a",
    ),
)
