"""CelebA as LEAF uses it (Liu et al., 2015; Caldas et al., 2018): does a celebrity smile, by celebrity.

LEAF's rules: celebrities with at least five images, the attribute *Smiling* as label, images of 178x218 pixels
resized to 84x84 regardless of their proportions, 9 of 10 images of each celebrity for training.
"""

from __future__ import annotations

import io
import random
import zipfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from fl_core.datasets.archives import decoding, open_zip, read_member
from fl_core.datasets.base import Archive, Source, Split

SIDE = 84
FEWEST = 5  # images per celebrity
CELEBRITIES = 2_000  # WKAFL's; all 9,343 would need 4.2 GB
LIMIT = 1 << 20  # bytes of an image; they have about 7,000


def read(folder: Path, celebrities: int | None = CELEBRITIES) -> tuple[Split, Split]:
    """Read the images of the first `celebrities` (None: of all), in the order of the list of identities.

    LEAF draws the training images of each celebrity at random with a seed that it does not fix; here the draw is
    LEAF's (``random.sample`` on one stream for all celebrities) with seed 0. Resizing is bicubic.

    Raises
    ------
    DataError
        If a file is damaged, or the lists name different images.
    """
    chosen = _celebrities(folder / IDENTITIES.file, celebrities)
    smiling = _smiling(folder / ATTRIBUTES.file)
    rng = random.Random(0)
    parts: tuple[list[tuple[int, str]], list[tuple[int, str]]] = ([], [])
    for owner, images in enumerate(chosen):
        train = set(rng.sample(range(len(images)), int(0.9 * len(images))))
        for place, image in enumerate(images):
            parts[place not in train].append((owner, image))
    path = folder / IMAGES.file
    with decoding(path, SOURCE.name), open_zip(path) as archive:
        return _split(archive, parts[0], smiling), _split(archive, parts[1], smiling)


def _celebrities(path: Path, most: int | None) -> list[list[str]]:
    """Return the images of each celebrity who has enough of them, in order of first appearance."""
    images: dict[str, list[str]] = {}
    with decoding(path, SOURCE.name):
        for line in path.read_text().splitlines():
            image, celebrity = line.split()
            images.setdefault(celebrity, []).append(image)
    return [found for found in images.values() if len(found) >= FEWEST][:most]


def _smiling(path: Path) -> dict[str, int]:
    """Return the label of each image; the file has a count, the names of the attributes, then 1 or -1 for each."""
    with decoding(path, SOURCE.name):
        _, names, *lines = path.read_text().splitlines()
        column = names.split().index("Smiling") + 1
        return {words[0]: (int(words[column]) + 1) // 2 for words in map(str.split, lines)}


def _split(archive: zipfile.ZipFile, samples: list[tuple[int, str]], smiling: dict[str, int]) -> Split:
    images = np.empty((len(samples), 3, SIDE, SIDE), np.uint8)
    for (_, name), place in zip(samples, images, strict=True):
        content = read_member(archive, f"img_align_celeba/{name}", LIMIT)
        with Image.open(io.BytesIO(content), formats=["JPEG"]) as image:
            small = image.resize((SIDE, SIDE), Image.Resampling.BICUBIC).convert("RGB")
        place[:] = np.asarray(small).transpose(2, 0, 1)
    return Split(
        torch.from_numpy(images),
        torch.tensor([smiling[name] for _, name in samples]),
        torch.tensor([owner for owner, _ in samples]),
    )


IMAGES = Archive("img_align_celeba.zip", 1_443_490_838, "md5:00d2c5bc6d35e252742224ab0c1e8fcb")
IDENTITIES = Archive("identity_CelebA.txt", 3_424_458, "md5:32bd1bd63d3c78cd57e08160ec5ed1e2")
ATTRIBUTES = Archive("list_attr_celeba.txt", 26_721_026, "md5:75e246fa4810816ffd6ee81facbd244c")
SOURCE = Source(
    name="celeba",
    title="CelebA (Liu, Luo, Wang & Tang, 2015), 2,000 celebrities by the rules of LEAF (Caldas et al., 2018)",
    licence="for non-commercial research only",
    homepage="https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html",
    shape=(3, SIDE, SIDE),
    classes=("not smiling", "smiling"),
    sizes=(0, 0),  # they follow from the lists, which are not published with this code
    archives=(IMAGES, IDENTITIES, ATTRIBUTES),
    read=read,
    by_hand=(
        "its terms allow non-commercial research only and must be read first: from the homepage, get "
        "img_align_celeba.zip, list_attr_celeba.txt and identity_CelebA.txt, and copy the three files here"
    ),
)
