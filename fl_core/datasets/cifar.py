"""CIFAR-10 and CIFAR-100 (Krizhevsky, 2009), in any form that keeps the publisher's order, and CIFAR-100 as JPEG.

The publisher offers the same images, in the same order, as binary records and as Python pickles, which torchvision
keeps. Loading a pickle can run any code that somebody put into it; a record is a label and 3,072 pixels and can do
nothing. Of a pickle only the numbers are taken out, instruction by instruction, and none is executed. The third form
is a tar with 500 images to a picture (lossless WebP, or JPEG) and the labels as NumPy arrays. Folders of single
pictures, one for each class, say nothing of the publisher's order: they have a name and an order of their own.
"""

from __future__ import annotations

import hashlib
import io
import pickletools
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from fl_core.datasets.archives import decoding, tar_members
from fl_core.datasets.base import Archive, Form, Source, Split, Splits, class_names
from fl_core.errors import DataError

CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR100 = class_names("cifar100")
PIXELS = 3 * 32 * 32
LIMIT = 50_000 * (2 + PIXELS)  # bytes of the largest file


Chunks = Iterator[tuple[str, np.ndarray, np.ndarray]]
"""Name, labels ``[n]`` and pixels ``[n, 3072]`` of the files of a data set."""


def read(
    folder: Path, file: str, chunks: Callable[[Path, Sequence[str]], Chunks], names: Sequence[str], classes: int
) -> Splits:
    """Read both splits in chunks of these names, the last of them the test images, from `file` or beside it."""
    with decoding(folder / file, f"cifar{classes}"):
        found = {name: (labels, pixels) for name, labels, pixels in chunks(folder, names)}
        for name, (labels, pixels) in found.items():
            if not len(labels) or len(labels) != len(pixels) or labels.max() >= classes:
                raise ValueError(f"{name}: {len(pixels)} images; labels are not from 0 to {classes - 1}, or too few")
        return _split([found[name] for name in names[:-1]]), _split([found[names[-1]]])


def _split(parts: list[tuple[np.ndarray, np.ndarray]]) -> Split:
    labels, images = map(np.concatenate, zip(*parts, strict=True))
    return Split.of(images.reshape(-1, 3, 32, 32), labels)


def _files(folder: Path, names: Sequence[str], archive: str) -> Iterator[tuple[str, bytes]]:
    """Yield the files in the archive, or those unpacked from it."""
    if archive:
        yield from tar_members(folder / archive, lambda name: name in names, LIMIT)
    for name in names if not archive else ():
        if (size := (folder / name).stat().st_size) > LIMIT:
            raise ValueError(f"{name} has {size} bytes, at most {LIMIT} make sense")
        yield name, (folder / name).read_bytes()


def _binary(folder: Path, names: Sequence[str], archive: str, labels: int) -> Chunks:
    """Yield the binary records; of several labels the last is the finest."""
    for name, content in _files(folder, names, archive):
        records = np.frombuffer(content, np.uint8).reshape(-1, labels + PIXELS)
        yield name, records[:, labels - 1], records[:, labels:]


def _pickled(folder: Path, names: Sequence[str], archive: str, key: str) -> Chunks:
    """Yield the numbers in pickles of the publisher, whose labels are below `key`."""
    for name, content in _files(folder, names, archive):
        yield name, *pickled_numbers(content, key)


def pickled_numbers(content: bytes, key: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the list of small numbers below `key` and the pixels ``[n, 3072]`` of a pickled dictionary.

    The instructions are looked at one by one; the names that follow ``filenames`` are passed over.
    """
    labels: list[int] = []
    pixels, latest = b"", ""
    for instruction, value, _ in pickletools.genops(content):
        if instruction.name not in HARMLESS or (instruction.name == "GLOBAL" and value not in ARRAYS):
            raise ValueError(f"a pickle with the instruction {instruction.name} {value or ''} is not read")
        if isinstance(value, str) and value in KEYS:
            latest = value
        elif instruction.name == "BININT1" and latest == key:
            labels.append(int(value or 0))
        elif isinstance(value, str) and latest == "data" and len(value) >= PIXELS:
            pixels = value.encode("latin-1")
    return np.array(labels, np.uint8), np.frombuffer(pixels, np.uint8).reshape(-1, PIXELS)


KEYS = ("batch_label", "labels", "data", "filenames", "fine_labels", "coarse_labels")
ARRAYS = ("numpy.core.multiarray _reconstruct", "numpy ndarray", "numpy dtype")
HARMLESS = {
    "PROTO", "EMPTY_DICT", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET", "MARK", "SHORT_BINSTRING", "BINSTRING",
    "EMPTY_LIST", "BININT1", "BININT2", "BININT", "APPENDS", "APPEND", "GLOBAL", "TUPLE", "TUPLE1", "TUPLE2",
    "TUPLE3", "REDUCE", "BUILD", "NONE", "NEWFALSE", "SETITEM", "SETITEMS", "STOP",
}  # fmt: skip
"""Instructions that a pickle of numbers, strings and plain arrays consists of."""


def _pictures(folder: Path, names: Sequence[str], archive: str, form: str) -> Chunks:
    """Yield both splits of a tar with columns of images and arrays of labels, in the order of their names."""
    wanted = re.compile(rf"(train|test)(-\d{{3}}{PICTURES[form]}|_y\.npy)")
    found = dict(tar_members(folder / archive, lambda name: wanted.fullmatch(name) is not None, COLUMN))
    for part in names:
        labels = np.lib.format.read_array(io.BytesIO(found.pop(f"{part}_y.npy")), allow_pickle=False)
        if labels.dtype != np.uint8 or labels.ndim != 1:
            raise ValueError(f"labels are {labels.dtype} {list(labels.shape)}, not a row of bytes")
        yield part, labels, np.concatenate([_column(found[n], form) for n in sorted(found) if n.startswith(part)])


def read_folders(folder: Path) -> Splits:
    """Read pictures in folders ``train`` and ``test`` with one for each class, by class and SHA-256 of the pixels."""
    parts = []
    for part in ("train", "test"):
        found = []
        for path in (folder / part).glob("*/*.png"):
            with decoding(path, BY_CLASS):
                pixels = _column(path.read_bytes(), "PNG", highest=32)
                found.append((CIFAR100.index(path.parent.name), hashlib.sha256(pixels.tobytes()).digest(), pixels))
        found.sort(key=lambda image: image[:2])
        if not found:
            raise DataError(f"no pictures in {folder / part}; 'fl-core data' says how to obtain {BY_CLASS}")
        parts.append(_split([(np.array([label for label, *_ in found]), np.concatenate([p for *_, p in found]))]))
    return parts[0], parts[1]


def _folders_present(folder: Path) -> bool:
    return all((folder / part / name).is_dir() for part in ("train", "test") for name in CIFAR100)


BY_CLASS = "cifar100-by-class"
PICTURES = {"WEBP": ".webp", "JPEG": ".jpg"}
COLUMN = 1 << 22  # bytes of a picture in its archive
HIGHEST = 500 * 32  # pixels of a column of images


def _column(content: bytes, form: str, highest: int = HIGHEST) -> np.ndarray:
    """Return the images ``[n, 3072]`` of a picture 32 pixels wide."""
    with Image.open(io.BytesIO(content), formats=[form]) as picture:
        if picture.width != 32 or picture.height % 32 or picture.height > highest:
            raise ValueError(f"a picture has {picture.width} x {picture.height} pixels")
        images = np.asarray(picture.convert("RGB")).reshape(-1, 32, 32, 3)
    return images.transpose(0, 3, 1, 2).reshape(-1, PIXELS)


def _form(files: Sequence[Archive], names: Sequence[str], classes: int, chunks: Callable[..., Chunks]) -> Form:
    return Form(tuple(files), partial(read, file=files[0].file, chunks=chunks, names=names, classes=classes))


def _source(
    title: str, names: tuple[str, ...], archive: Archive, files: Sequence[str], packed: Archive,
    pickles: Sequence[Archive], key: str, copies: Sequence[Form] = (), **more: Any,
) -> Source:  # fmt: skip
    classes = len(names)
    labels = 1 if classes == 10 else 2
    own = _form([archive], files, classes, partial(_binary, archive=archive.file, labels=labels))
    paths = [each.file for each in pickles]
    return Source(
        name=f"cifar{classes}", title=title, homepage="https://www.cs.toronto.edu/~kriz/cifar.html",
        shape=(3, 32, 32), classes=names, sizes=(50_000, 10_000), archives=own.archives, read=own.read,
        copies=(
            *copies,
            _form(pickles, paths, classes, partial(_pickled, archive="", key=key)),
            _form([packed], paths, classes, partial(_pickled, archive=packed.file, key=key)),
            _form(list(map(Archive, files)), files, classes, partial(_binary, archive="", labels=labels)),
        ),
        **more,
    )  # fmt: skip


def _copy(name: str, title: str, **more: Any) -> Source:
    """Return a copy of CIFAR-100 that differs from the original."""
    return Source(
        name=name, title=title, homepage="https://www.cs.toronto.edu/~kriz/cifar.html", shape=(3, 32, 32),
        classes=CIFAR100, sizes=(50_000, 10_000), archives=(), kind="re-encoded", of="cifar100", **more,
    )  # fmt: skip


BATCHES = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f", "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751", "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb", "test_batch": "40351d587109b95175f43aff81a1287e",
}  # fmt: skip
"""The files of CIFAR-10 and the MD5 sums of their pickles, as torchvision lists them."""
JPEG = Archive(
    "cifar100-jpeg90.tar", 37_068_800, "sha256:7658c944ee7a2540609fa3236ddb74c62260f1ba6df97683506132561abbd285"
)
COLUMNS, JPEG_COLUMNS = (
    _form([archive], ("train", "test"), classes, partial(_pictures, archive=archive.file, form=form))
    for archive, classes, form in ((Archive("cifar10.tar"), 10, "WEBP"), (JPEG, 100, "JPEG"))
)

SOURCES = (
    _source(
        "CIFAR-10 (Krizhevsky, 2009)",
        CIFAR10,
        Archive(
            "cifar-10-binary.tar.gz", 170_052_171,
            "sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
        ),
        [f"cifar-10-batches-bin/{name}.bin" for name in BATCHES],
        Archive("cifar-10-python.tar.gz", 0, "md5:c58f30108f718f92721af3b95e74349a"),
        [Archive(f"cifar-10-batches-py/{name}", 0, f"md5:{md5}") for name, md5 in BATCHES.items()],
        "labels",
        [COLUMNS],
        sha256="01911c049bad9562ec6fd88eba046d152a3d6e19895bf63e207f99eb42c9e9f7",
    ),
    _source(
        "CIFAR-100, fine labels (Krizhevsky, 2009)",
        CIFAR100,
        Archive(
            "cifar-100-binary.tar.gz", 168_513_733,
            "sha256:58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
            "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
        ),
        ["cifar-100-binary/train.bin", "cifar-100-binary/test.bin"],
        Archive("cifar-100-python.tar.gz", 0, "md5:eb9058c3a382ffc7106e4002c42a8d85"),
        [Archive("cifar-100-python/train", 0, "md5:16019d7e3df5f24257cddd939b257f8d"),
         Archive("cifar-100-python/test", 0, "md5:f0ef6b0ae62326f3e7ffdfab6717acfc")],
        "fine_labels",
    ),
    _copy(
        "cifar100-jpeg90", "CIFAR-100 (Krizhevsky, 2009), fine labels, as JPEG of quality 90", read=JPEG_COLUMNS.read,
        copies=(JPEG_COLUMNS,),
        differs="CIFAR-100 as quality-90 JPEG (35.9 dB), in the order of class and file name",
    ),
    _copy(
        BY_CLASS, "CIFAR-100 (Krizhevsky, 2009), fine labels, from a folder of pictures for each class",
        read=read_folders, present=_folders_present,
        by_hand="copy folders train and test, each with a folder of PNG pictures for each class, here",
        differs="CIFAR-100 from single pictures, not verified, in the order of class and SHA-256 of the pixels",
    ),
)  # fmt: skip
