"""MNIST (LeCun, Cortes & Burges, 1998), who wrote each digit (QMNIST, Yadav & Bottou, 2019), and Fashion-MNIST.

Fashion-MNIST (Xiao, Rasul & Vollgraf, 2017) has MNIST's form; it is embedded in ``data/``. The first 60,000 rows of
QMNIST's labels for training and the first 10,000 of those for testing belong to the images of MNIST, in its order.
Nobody wrote both training and test digits.
"""

from __future__ import annotations

import gzip
import string
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from fl_core.datasets.archives import decoding, read_arrays
from fl_core.datasets.base import Archive, Form, Source, Split, Splits
from fl_core.errors import DataError

SIZES = (60_000, 10_000)
LIMIT = 1 << 26  # bytes of a decompressed file
ROW = 8  # numbers about a digit in QMNIST: class, series of forms, writer, ...
WRITER = 2


def _archives(url: str, kind: str, *rows: tuple[str, int, str]) -> tuple[Archive, ...]:
    return tuple(Archive(file, size, f"{kind}:{digest}", url + file) for file, size, digest in rows)


CLOTHES = _archives(
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/", "sha256",
    ("train-images-idx3-ubyte.gz", 26_421_880, "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"),
    ("train-labels-idx1-ubyte.gz", 29_515, "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
    ("t10k-images-idx3-ubyte.gz", 4_422_102, "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
    ("t10k-labels-idx1-ubyte.gz", 5_148, "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"),
)  # fmt: skip
DIGITS = _archives(
    "https://ossci-datasets.s3.amazonaws.com/mnist/", "md5",
    ("train-images-idx3-ubyte.gz", 9_912_422, "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
    ("train-labels-idx1-ubyte.gz", 28_881, "d53e105ee54ea40749a09fcbcd1e9432"),
    ("t10k-images-idx3-ubyte.gz", 1_648_877, "9fb629c4189551a2d022fa330f9573f3"),
    ("t10k-labels-idx1-ubyte.gz", 4_542, "ec29112dd5afa0611ce80d1b7f02629c"),
)  # fmt: skip
WRITERS = _archives(
    "https://raw.githubusercontent.com/facebookresearch/qmnist/master/", "md5",
    ("qmnist-train-labels-idx2-int.gz", 0, "0058f8dd561b90ffdd0f734c6a30e5e4"),
    ("qmnist-test-labels-idx2-int.gz", 0, "5b5b05890a5e13444e108efe57b788aa"),
)  # fmt: skip
ARRAYS = Archive("mnist-writers.npz")


def read(folder: Path, files: tuple[Archive, ...], name: str) -> Splits:
    """Read IDX files: training images and labels, those for testing, and QMNIST's labels where `files` has them."""
    contents = []
    for archive in files:
        with decoding(path := folder / archive.file, name), gzip.open(path) as stream:
            contents.append(read_idx(stream.read(LIMIT)))
    with decoding(folder / files[0].file, name):
        parts = [contents[0:2], contents[2:4]]
        for (images, labels), rows in zip(parts, contents[4:], strict=False):
            if rows.shape[1:] != (ROW,) or not np.array_equal(rows[: len(images), 0], labels):
                raise ValueError("the writers are not those of these digits")
        writers = [rows[: len(images), WRITER] for (images, _), rows in zip(parts, contents[4:], strict=False)]
        return splits(*(array for part in parts for array in part), *writers)


def read_idx(content: bytes) -> np.ndarray:
    """Decode an IDX array: magic ``00 00 08 n`` (bytes) or ``00 00 0c n`` (int32), n big-endian sizes, the data."""
    kind = {b"\0\0\x08": "u1", b"\0\0\x0c": ">i4"}.get(content[:3], "")
    rank = content[3] if kind else 0
    shape = tuple(int(s) for s in np.frombuffer(content, ">u4", rank, 4)) if rank else ()
    body = np.frombuffer(content, np.uint8, offset=4 + 4 * rank)
    if not rank or body.size != int(np.prod(shape)) * np.dtype(kind).itemsize:
        raise DataError(f"not an IDX array of bytes: magic {content[:4].hex()}, {body.size} bytes of data")
    return body.view(kind).reshape(shape)


def read_npz(folder: Path, name: str, writers: bool) -> Splits:
    """Read the six arrays of one file; without `writers` four of them."""
    with decoding(path := folder / ARRAYS.file, name):
        images, labels, owners = ("u1", (None, 28, 28)), ("u1", (None,)), ("i4", (None,))
        names = {"train_x": images, "train_y": labels, "test_x": images, "test_y": labels}
        names |= {"train_writer": owners, "test_writer": owners} if writers else {}
        return splits(*read_arrays(path, **names))


def splits(x: np.ndarray, y: np.ndarray, x_test: np.ndarray, y_test: np.ndarray, *writers: np.ndarray) -> Splits:
    """Return both splits; writers are numbered from 0 in the order of their numbers."""
    lengths = {len(x) - len(y), len(x_test) - len(y_test), sum(map(len, writers)) - len(writers and (*y, *y_test))}
    if lengths != {0} or max(y.max(), y_test.max()) > 9:
        raise ValueError(f"{len(x)} + {len(x_test)} images, {len(y)} + {len(y_test)} labels up to {y.max()}")
    owners = np.unique(np.concatenate(writers), return_inverse=True)[1] if writers else None
    owns, owns_test = (None, None) if owners is None else (owners[: len(y)], owners[len(y) :])
    first, second = (images.copy().reshape(-1, 1, 28, 28) for images in (x, x_test))
    return Split.of(first, y, owns), Split.of(second, y_test, owns_test)


def _source(name: str, title: str, archives: tuple[Archive, ...], licence: str, sha256: str) -> Source:
    folders = ("QMNIST" if a.file.startswith("q") else "MNIST" for a in archives)  # torchvision's
    elsewhere = tuple(replace(a, file=f"{f}/raw/{a.file}", url="") for a, f in zip(archives, folders, strict=True))
    return Source(
        name=name, title=title, homepage="https://github.com/facebookresearch/qmnist", shape=(1, 28, 28),
        classes=tuple(string.digits), sizes=SIZES, archives=archives, read=partial(read, files=archives, name=name),
        copies=(
            Form((ARRAYS,), partial(read_npz, name=name, writers=len(archives) > 4)),
            Form(elsewhere, partial(read, files=elsewhere, name=name)),  # torchvision's folders
        ),
        licence=licence, sha256=sha256,
    )  # fmt: skip


SOURCES = (
    Source(
        name="fashion-mnist", title="Fashion-MNIST (Xiao, Rasul & Vollgraf, 2017)", licence="MIT",
        homepage="https://github.com/zalandoresearch/fashion-mnist", shape=(1, 28, 28),
        classes=(
            "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
        ),
        sizes=SIZES, archives=CLOTHES, read=partial(read, files=CLOTHES, name="fashion-mnist"), embedded=True,
    ),
    _source(
        "mnist", "MNIST (LeCun, Cortes & Burges, 1998)", DIGITS, "CC BY-SA 3.0, as usually stated",
        "c82be5142a299c20cce0ba8ebc6b7f464ab4cccbd779c7faedc5d8179c522743",
    ),
    _source(
        "mnist-writers", "MNIST by writer (labels of QMNIST, Yadav & Bottou, 2019)", DIGITS + WRITERS,
        "CC BY-SA 3.0, as usually stated; writers BSD 3-clause",
        "c654640c340968d7809a9597c921c04eb65ed28f4a2813dd1c9b10eb4eee2f3a",
    ),
)  # fmt: skip
