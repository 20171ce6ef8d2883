"""IMDb reviews (Maas et al., 2011): 25,000 + 25,000 texts, liked or not, as word numbers.

A word is a run of letters and digits, with apostrophes inside, of the lower-case text without its ``<br />`` marks.
The vocabulary has 20,000 entries: 0 for padding, 1 for any other word, and from 2 on the 19,998 most frequent words
of the training reviews, the most frequent first and equally frequent ones by alphabet. A review is its first 256
words, filled up with 0 at the end.
"""

from __future__ import annotations

import json
import lzma
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fl_core.datasets.archives import decoding, tar_members
from fl_core.datasets.base import Archive, Form, Source, Split, Splits

VOCABULARY, LENGTH = 20_000, 256
PADDING, UNKNOWN = 0, 1
WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
REVIEW = re.compile(r"aclImdb/(train|test)/(neg|pos)/(\d+)_\d+\.txt")
LIMIT = 1 << 20  # bytes of a review
MOST = 50_000  # reviews


Texts = Iterator[tuple[str, bool, int, str]]
"""Split, whether liked, number and text of each review."""


def read(folder: Path, texts: Callable[[Path], Texts], file: str) -> Splits:
    """Read both splits, first the negative, then the positive reviews, each by number."""
    path = folder / file
    reviews: dict[str, list[tuple[int, int, np.ndarray]]] = {"train": [], "test": []}
    counts: Counter[str] = Counter()
    seen: dict[str, int] = {}  # the place of each word in order of appearance, until its number is known
    with decoding(path, "imdb"):
        for place, (split, liked, number, text) in enumerate(texts(path)):
            if place == MOST:
                raise ValueError(f"it has more than {MOST:,} reviews")
            found = words(text)
            if split == "train":
                counts.update(found)
            kept = np.array([seen.setdefault(word, len(seen)) for word in found[:LENGTH]], np.int64)
            reviews[split].append((int(liked), number, kept))
        if not all(reviews.values()):
            raise ValueError("there are no reviews in it")
    known = vocabulary(counts)
    numbers = np.array([known.get(word, UNKNOWN) for word in seen], np.int32)
    return _split(reviews["train"], numbers), _split(reviews["test"], numbers)


def _archived(path: Path) -> Texts:
    for name, content in tar_members(path, lambda name: REVIEW.fullmatch(name) is not None, LIMIT):
        yield *_named(name), content.decode()


def _unpacked(path: Path) -> Texts:
    """Yield the reviews of the folder that the archive unpacks to, in which `path` lies."""
    for file in path.parent.glob("*/*/*.txt"):
        if REVIEW.fullmatch(name := file.relative_to(path.parents[1]).as_posix()):
            yield *_named(name), file.read_bytes()[:LIMIT].decode()


def _listed(path: Path) -> Texts:
    """Yield the reviews of a list, a JSON array a line: split, opinion, name of the file, text."""
    with lzma.open(path, "rb") as file:
        while line := file.readline(LIMIT):
            split, opinion, name, text = json.loads(line)
            yield *_named(f"aclImdb/{split}/{opinion}/{name}"), text


def _named(name: str) -> tuple[str, bool, int]:
    match = REVIEW.fullmatch(name)
    if match is None:
        raise ValueError(f"{name!r} is not the name of a review")
    return match[1], match[2] == "pos", int(match[3])


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
    "aclImdb_v1.tar.gz", 84_125_825, "sha256:c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe",
    "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
)  # fmt: skip
LISTED = Archive(
    "imdb.jsonl.xz", 18_234_704, "sha256:660cb2872d3a869f3f23b1906104acf25971f042b00dc3226d412209f7a57427"
)
UNPACKED = Archive("aclImdb/imdb.vocab")


def _source(
    name: str, sizes: tuple[int, int], archives: tuple[Archive, ...], copies: tuple[Form, ...], **more: Any
) -> Source:
    return Source(
        name=name, title="Large Movie Review Dataset (Maas, Daly, Pham, Huang, Ng & Potts, 2011)",
        homepage="https://ai.stanford.edu/~amaas/data/sentiment/", shape=(LENGTH,), classes=("negative", "positive"),
        sizes=sizes, archives=archives, read=partial(read, texts=_archived, file=ARCHIVE.file), copies=copies,
        licence="research use with citation", **more,
    )  # fmt: skip


SOURCES = (
    _source(
        "imdb", (25_000, 25_000), (ARCHIVE,), (Form((UNPACKED,), partial(read, texts=_unpacked, file=UNPACKED.file)),)
    ),
    _source(
        "imdb-49996", (24_998, 24_998), (), (Form((LISTED,), partial(read, texts=_listed, file=LISTED.file)),),
        sha256="ced0f130a0cc48d9762c999347eab76a632efbc1db3afd0df419839855882eb8", kind="partial", of="imdb",
        differs="49,996 of IMDb's 50,000 reviews",
    ),
)  # fmt: skip
