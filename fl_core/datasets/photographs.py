"""Photographs that come as JPEG in a zip: Tiny ImageNet, and CelebA as LEAF uses it.

Tiny ImageNet (Stanford CS231n, 2015): 200 classes of ImageNet in 64x64 pixels; its validation set is the test set,
as the labels of the test images in the archive were never published.

CelebA (Liu et al., 2015) by the rules of LEAF (Caldas et al., 2018): does a celebrity smile, by celebrity.
Celebrities with at least five images, the attribute *Smiling* as label, images of 178x218 pixels resized to 84x84
regardless of their proportions, 9 of 10 images of each celebrity for training.
"""

from __future__ import annotations

import io
import random
import re
import zipfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from fl_core.datasets.archives import decoding, open_zip, read_member
from fl_core.datasets.base import Archive, Source, Split, Splits, class_names

TINY_IMAGENET = class_names("tiny-imagenet")
"""In the order of their WordNet numbers (wnids), as the folders of the archive sort."""

ROOT = "tiny-imagenet-200"
TINY_SIDE, CELEBA_SIDE = 64, 84
TINY_SIZE, CELEBA_SIZE = (64, 64), (178, 218)  # width and height in the archive
FEWEST = 5  # images per celebrity
CELEBRITIES = 2_000  # WKAFL's; all 9,343 would need 4.2 GB
LIMIT = 1 << 20  # bytes of a file; images have a few thousand


def read_tiny_imagenet(folder: Path) -> Splits:
    """Read training images by class and number, validation images in the order of their list of annotations.

    Grey images get three equal channels.
    """
    path = folder / TINY.file
    with decoding(path, "tiny-imagenet"), open_zip(path) as archive:
        wnids = sorted(read_member(archive, f"{ROOT}/wnids.txt", LIMIT).decode().split())
        numbers = {wnid: number for number, wnid in enumerate(wnids)}
        pattern = re.compile(rf"{ROOT}/train/(n\d+)/images/\1_(\d+)\.JPEG")
        found = [match for match in map(pattern.fullmatch, archive.namelist()) if match]
        train = sorted((numbers[match[1]], int(match[2]), match[0]) for match in found)
        if not train or len(set(Counter(label for label, _, _ in train).values())) != 1:
            raise ValueError("not as many training images of each class")
        lines = read_member(archive, f"{ROOT}/val/val_annotations.txt", LIMIT).decode().splitlines()
        test = [
            (f"{ROOT}/val/images/{name}", numbers[wnid]) for name, wnid, *_ in (line.split("\t") for line in lines)
        ]
        parts = [(name, label) for label, _, name in train], test
        first, second = (_split(archive, part, TINY_SIZE, TINY_SIDE) for part in parts)
        return first, second


def read_celeba(folder: Path, celebrities: int | None = CELEBRITIES) -> Splits:
    """Read the images of the first `celebrities` (None: of all), in the order of the list of identities.

    LEAF draws the training images of each celebrity at random with a seed that it does not fix; here the draw is
    LEAF's (``random.sample`` on one stream for all celebrities) with seed 0. Resizing is bicubic.
    """
    chosen = _celebrities(folder / IDENTITIES.file, celebrities)
    smiling = _smiling(folder / ATTRIBUTES.file)
    rng = random.Random(0)
    parts: tuple[list[tuple[str, int, int]], list[tuple[str, int, int]]] = ([], [])
    path = folder / FACES.file
    with decoding(path, "celeba"), open_zip(path) as archive:
        for owner, images in enumerate(chosen):
            train = set(rng.sample(range(len(images)), int(0.9 * len(images))))
            for place, image in enumerate(images):
                parts[place not in train].append((f"img_align_celeba/{image}", smiling[image], owner))
        first, second = (_split(archive, part, CELEBA_SIZE, CELEBA_SIDE) for part in parts)
        return first, second


def _celebrities(path: Path, most: int | None) -> list[list[str]]:
    """Return the images of each celebrity who has enough of them, in order of first appearance."""
    images: dict[str, list[str]] = {}
    with decoding(path, "celeba"):
        for line in path.read_text().splitlines():
            image, celebrity = line.split()
            images.setdefault(celebrity, []).append(image)
    return [found for found in images.values() if len(found) >= FEWEST][:most]


def _smiling(path: Path) -> dict[str, int]:
    """Return the label of each image; the file has a count, the names of the attributes, then 1 or -1 for each."""
    with decoding(path, "celeba"):
        _, names, *lines = path.read_text().splitlines()
        column = names.split().index("Smiling") + 1
        return {words[0]: (int(words[column]) + 1) // 2 for words in map(str.split, lines)}


def _split(archive: zipfile.ZipFile, samples: Sequence[tuple[Any, ...]], stored: tuple[int, int], side: int) -> Split:
    """Return images of the `stored` size, given by name, label and owner, as ``[n, 3, side, side]``."""
    names, *of = zip(*samples, strict=True)
    images = np.empty((len(names), 3, side, side), np.uint8)
    for name, place in zip(names, images, strict=True):
        with Image.open(io.BytesIO(read_member(archive, name, LIMIT)), formats=["JPEG"]) as image:
            if image.size != stored:
                raise ValueError(f"{name} has {image.width} x {image.height} pixels")
            colours = np.asarray(image.resize((side, side), Image.Resampling.BICUBIC).convert("RGB"))
            place[:] = colours.transpose(2, 0, 1)
    return Split.of(images, *map(np.array, of))


TINY = Archive(
    "tiny-imagenet-200.zip", 248_100_043, "md5:90528d7ca1a48142e341f4ef8d21d0de",
    "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
)  # fmt: skip
FACES = Archive("img_align_celeba.zip", 1_443_490_838, "md5:00d2c5bc6d35e252742224ab0c1e8fcb")
IDENTITIES = Archive("identity_CelebA.txt", 3_424_458, "md5:32bd1bd63d3c78cd57e08160ec5ed1e2")
ATTRIBUTES = Archive("list_attr_celeba.txt", 26_721_026, "md5:75e246fa4810816ffd6ee81facbd244c")
SOURCES = (
    Source(
        name="tiny-imagenet", title="Tiny ImageNet (Stanford CS231n, 2015; images from ImageNet)",
        licence="not stated; ImageNet: for non-commercial research and education",
        homepage="http://cs231n.stanford.edu", shape=(3, TINY_SIDE, TINY_SIDE), classes=TINY_IMAGENET,
        sizes=(100_000, 10_000), archives=(TINY,), read=read_tiny_imagenet,
    ),
    Source(
        name="celeba",
        title="CelebA (Liu, Luo, Wang & Tang, 2015), 2,000 celebrities by the rules of LEAF (Caldas et al., 2018)",
        licence="for non-commercial research only", homepage="https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html",
        shape=(3, CELEBA_SIDE, CELEBA_SIDE), classes=("not smiling", "smiling"),
        sizes=(0, 0),  # they follow from the lists, which are not published with this code
        archives=(FACES, IDENTITIES, ATTRIBUTES), read=read_celeba,
        by_hand=(
            "its terms allow non-commercial research only and must be read first: from the homepage, get "
            "img_align_celeba.zip, list_attr_celeba.txt and identity_CelebA.txt, and copy the three files here"
        ),
    ),
)  # fmt: skip
