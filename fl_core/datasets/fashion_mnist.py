"""Fashion-MNIST (Xiao, Rasul & Vollgraf, 2017): 60,000 + 10,000 real images, embedded in ``data/``."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import torch

from fl_core.datasets.archives import decoding
from fl_core.datasets.base import Archive, Source, Split, Splits
from fl_core.errors import DataError

CLASSES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip

URL = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
ARCHIVES = {
    name: Archive(name, size, f"sha256:{sha256}", URL + name)
    for name, size, sha256 in (
        ("train-images-idx3-ubyte.gz", 26421880, "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"),
        ("train-labels-idx1-ubyte.gz", 29515, "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
        ("t10k-images-idx3-ubyte.gz", 4422102, "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
        ("t10k-labels-idx1-ubyte.gz", 5148, "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"),
    )
}


def read(folder: Path) -> Splits:
    """Read both splits from the four ``idx.gz`` files in `folder`."""
    first, second = (_split(folder, stem) for stem in ("train", "t10k"))
    return first, second


def _split(folder: Path, stem: str) -> Split:
    contents = []
    for what in ("images-idx3", "labels-idx1"):
        path = folder / f"{stem}-{what}-ubyte.gz"
        with decoding(path, "fashion-mnist"):
            contents.append(read_idx(gzip.decompress(path.read_bytes())))
    images, labels = contents
    return Split(torch.from_numpy(images.copy()).unsqueeze_(1), torch.from_numpy(labels.astype(np.int64)))


def read_idx(content: bytes) -> np.ndarray:
    """Decode an IDX array: magic ``00 00 08 n`` (bytes) or ``00 00 0c n`` (int32), n big-endian sizes, the data."""
    kind = {b"\0\0\x08": "u1", b"\0\0\x0c": ">i4"}.get(content[:3], "u1")
    rank = content[3] if content[:3] in (b"\0\0\x08", b"\0\0\x0c") else 0
    shape = tuple(int(s) for s in np.frombuffer(content, ">u4", rank, 4)) if rank else ()
    body = np.frombuffer(content, np.uint8, offset=4 + 4 * rank)
    if not rank or body.size != int(np.prod(shape)) * np.dtype(kind).itemsize:
        raise DataError(f"not an IDX array of bytes: magic {content[:4].hex()}, {body.size} bytes of data")
    return body.view(kind).reshape(shape)


SOURCES = (
    Source(
        name="fashion-mnist",
        title="Fashion-MNIST (Xiao, Rasul & Vollgraf, 2017)",
        licence="MIT",
        homepage="https://github.com/zalandoresearch/fashion-mnist",
        shape=(1, 28, 28),
        classes=CLASSES,
        sizes=(60_000, 10_000),
        archives=tuple(ARCHIVES.values()),
        read=read,
        embedded=True,
    ),
)
