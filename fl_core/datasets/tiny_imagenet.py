"""Tiny ImageNet (Stanford CS231n, 2015): 200 classes of ImageNet in 64x64 pixels; its validation set is the test set.

The labels of the test images in the archive were never published.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from fl_core.datasets.archives import decoding, open_zip, read_member
from fl_core.datasets.base import Archive, Source, Split

CLASSES = (
    "goldfish", "European fire salamander", "bullfrog", "tailed frog", "American alligator", "boa constrictor",
    "trilobite", "scorpion", "black widow", "tarantula", "centipede", "goose", "koala", "jellyfish",
    "brain coral", "snail", "slug", "sea slug", "American lobster", "spiny lobster", "black stork",
    "king penguin", "albatross", "dugong", "Chihuahua", "Yorkshire terrier", "golden retriever",
    "Labrador retriever", "German shepherd", "standard poodle", "tabby", "Persian cat", "Egyptian cat", "cougar",
    "lion", "brown bear", "ladybug", "fly", "bee", "grasshopper", "walking stick", "cockroach", "mantis",
    "dragonfly", "monarch", "sulphur butterfly", "sea cucumber", "guinea pig", "hog", "ox", "bison", "bighorn",
    "gazelle", "Arabian camel", "orangutan", "chimpanzee", "baboon", "African elephant", "lesser panda", "abacus",
    "academic gown", "altar", "apron", "backpack", "bannister", "barbershop", "barn", "barrel", "basketball",
    "bathtub", "beach wagon", "beacon", "beaker", "beer bottle", "bikini", "binoculars", "birdhouse", "bow tie",
    "brass", "broom", "bucket", "bullet train", "butcher shop", "candle", "cannon", "cardigan", "cash machine",
    "CD player", "chain", "chest", "Christmas stocking", "cliff dwelling", "computer keyboard", "confectionery",
    "convertible", "crane", "dam", "desk", "dining table", "drumstick", "dumbbell", "flagpole", "fountain",
    "freight car", "frying pan", "fur coat", "gasmask", "go-kart", "gondola", "hourglass", "iPod", "jinrikisha",
    "kimono", "lampshade", "lawn mower", "lifeboat", "limousine", "magnetic compass", "maypole",
    "military uniform", "miniskirt", "moving van", "nail", "neck brace", "obelisk", "oboe", "organ",
    "parking meter", "pay-phone", "picket fence", "pill bottle", "plunger", "pole", "police van", "poncho",
    "pop bottle", "potter's wheel", "projectile", "punching bag", "reel", "refrigerator", "remote control",
    "rocking chair", "rugby ball", "sandal", "school bus", "scoreboard", "sewing machine", "snorkel", "sock",
    "sombrero", "space heater", "spider web", "sports car", "steel arch bridge", "stopwatch", "sunglasses",
    "suspension bridge", "swimming trunks", "syringe", "teapot", "teddy", "thatch", "torch", "tractor",
    "triumphal arch", "trolleybus", "turnstile", "umbrella", "vestment", "viaduct", "volleyball", "water jug",
    "water tower", "wok", "wooden spoon", "comic book", "plate", "guacamole", "ice cream", "ice lolly", "pretzel",
    "mashed potato", "cauliflower", "bell pepper", "mushroom", "orange", "lemon", "banana", "pomegranate",
    "meat loaf", "pizza", "potpie", "espresso", "alp", "cliff", "coral reef", "lakeside", "seashore", "acorn",
)  # fmt: skip
"""In the order of their WordNet numbers (wnids), as the folders of the archive sort."""

ROOT = "tiny-imagenet-200"
SIDE = 64
LIMIT = 1 << 20  # bytes of a file; images have a few thousand


def read(folder: Path) -> tuple[Split, Split]:
    """Read training images by class and number, validation images in the order of their list of annotations.

    Grey images get three equal channels.

    Raises
    ------
    DataError
        If the archive is damaged.
    """
    path = folder / ARCHIVE.file
    with decoding(path, SOURCE.name), open_zip(path) as archive:
        wnids = sorted(read_member(archive, f"{ROOT}/wnids.txt", LIMIT).decode().split())
        numbers = {wnid: number for number, wnid in enumerate(wnids)}
        pattern = re.compile(rf"{ROOT}/train/(n\d+)/images/\1_(\d+)\.JPEG")
        found = [match for match in map(pattern.fullmatch, archive.namelist()) if match]
        train = sorted((numbers[match[1]], int(match[2]), match[0]) for match in found)
        if not train or len(set(Counter(label for label, _, _ in train).values())) != 1:
            raise ValueError("not as many training images of each class")
        lines = read_member(archive, f"{ROOT}/val/val_annotations.txt", LIMIT).decode().splitlines()
        test = [line.split("\t")[:2] for line in lines]
        return (
            _split(archive, [name for _, _, name in train], [label for label, _, _ in train]),
            _split(archive, [f"{ROOT}/val/images/{name}" for name, _ in test], [numbers[wnid] for _, wnid in test]),
        )


def _split(archive: zipfile.ZipFile, names: list[str], labels: list[int]) -> Split:
    images = np.empty((len(names), 3, SIDE, SIDE), np.uint8)
    for name, place in zip(names, images, strict=True):
        with Image.open(io.BytesIO(read_member(archive, name, LIMIT)), formats=["JPEG"]) as image:
            place[:] = np.asarray(image.convert("RGB")).transpose(2, 0, 1)
    return Split(torch.from_numpy(images), torch.tensor(labels))


ARCHIVE = Archive(
    "tiny-imagenet-200.zip",
    248_100_043,
    "md5:90528d7ca1a48142e341f4ef8d21d0de",
    "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
)
SOURCE = Source(
    name="tiny-imagenet",
    title="Tiny ImageNet (Stanford CS231n, 2015; images from ImageNet)",
    licence="not stated; ImageNet: for non-commercial research and education",
    homepage="http://cs231n.stanford.edu",
    shape=(3, SIDE, SIDE),
    classes=CLASSES,
    sizes=(100_000, 10_000),
    archives=(ARCHIVE,),
    read=read,
)
