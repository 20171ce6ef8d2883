"""IMDb reviews (Maas et al., 2011): 25,000 + 25,000 texts, liked or not, as word numbers.

A word is a run of letters and digits, with apostrophes inside, of the lower-case text without its ``<br />`` marks.
The vocabulary has 20,000 entries: 0 for padding, 1 for any other word, and from 2 on the 19,998 most frequent words
of the training reviews, the most frequent first and equally frequent ones by alphabet. A review is its first 256
words, filled up with 0 at the end.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import numpy as np
import torch

from fl_core.datasets.archives import decoding, tar_members
from fl_core.datasets.base import Archive, Source, Split, Splits

VOCABULARY, LENGTH = 20_000, 256
PADDING, UNKNOWN = 0, 1
WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
REVIEW = re.compile(r"aclImdb/(train|test)/(neg|pos)/(\d+)_\d+\.txt")
LIMIT = 1 << 20  # bytes of a review


def read(folder: Path) -> Splits:
    """Read both splits, first the negative, then the positive reviews, each by number."""
    path = folder / ARCHIVE.file
    reviews: dict[str, list[tuple[int, int, np.ndarray]]] = {"train": [], "test": []}
    counts: Counter[str] = Counter()
    seen: dict[str, int] = {}  # the place of each word in order of appearance, until its number is known
    with decoding(path, "imdb"):
        for name, content in tar_members(path, lambda name: REVIEW.fullmatch(name) is not None, LIMIT):
            _, split, opinion, file = name.split("/")
            number = file.partition("_")[0]
            found = words(content.decode())
            if split == "train":
                counts.update(found)
            kept = np.array([seen.setdefault(word, len(seen)) for word in found[:LENGTH]], np.int64)
            reviews[split].append((int(opinion == "pos"), int(number), kept))
        if not all(reviews.values()):
            raise ValueError("there are no reviews in it")
    known = vocabulary(counts)
    numbers = np.array([known.get(word, UNKNOWN) for word in seen], np.int32)
    return _split(reviews["train"], numbers), _split(reviews["test"], numbers)


def words(text: str) -> list[str]:
    """Return the words of a review."""
    return WORD.findall(text.lower().replace("<br />", " "))


def vocabulary(counts: Counter[str]) -> dict[str, int]:
    """Return the number of each word that has one."""
    chosen = sorted(counts, key=lambda word: (-counts[word], word))[: VOCABULARY - 2]
    return {word: number for number, word in enumerate(chosen, start=2)}


def _split(reviews: list[tuple[int, int, np.ndarray]], numbers: np.ndarray) -> Split:
    reviews = sorted(reviews, key=lambda review: review[:2])
    tokens = np.full((len(reviews), LENGTH), PADDING, np.int32)
    for row, (_, _, places) in zip(tokens, reviews, strict=True):
        row[: len(places)] = numbers[places]
    return Split(torch.from_numpy(tokens), torch.tensor([label for label, _, _ in reviews]))


ARCHIVE = Archive(
    "aclImdb_v1.tar.gz",
    84_125_825,
    "sha256:c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe",
    "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
)
SOURCES = (
    Source(
        name="imdb",
        title="Large Movie Review Dataset (Maas, Daly, Pham, Huang, Ng & Potts, 2011)",
        homepage="https://ai.stanford.edu/~amaas/data/sentiment/",
        shape=(LENGTH,),
        classes=("negative", "positive"),
        sizes=(25_000, 25_000),
        archives=(ARCHIVE,),
        read=read,
    ),
)
