"""Film reviews written by a small grammar, in place of IMDb: token ids in, liked or not out.

A review is a sequence of clauses of a few words. Most words are filler: Zipf-distributed, partly of the review's
topic. A clause may hold an opinion, whose word is turned round by a negation in front of it ("not good") and
counts double after an intensifier ("very good"). Opinions agree with the reviewer's verdict only mostly, and in
mixed reviews just more often than not. So a linear model on word counts gets far, but a network that sees words
in their order gets farther.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.random import Generator

from fl_core.datasets.base import Split, Surrogate
from fl_core.datasets.surrogates.blocks import fill
from fl_core.streams import stream

LENGTH = 256  # tokens of a review: longer ones lose their end, shorter ones are padded with 0
CLAUSE = 8  # tokens of a clause, which holds one opinion at most
MEDIAN_LENGTH, LENGTH_SPREAD, SHORTEST = 174, 0.75, 12
"""Log-normal review lengths as in IMDb, whose reviews have a median of 174 and a mean of 234 words."""

UNKNOWN = 1
NEGATIONS = range(2, 5)
INTENSIFIERS = range(5, 14)
OPINIONS = range(14, 1014)  # even numbers are words of praise, odd ones of blame
FILLERS = range(1014, 20_000)
TOPICS = 20

OPINION = 0.5  # share of clauses with an opinion
NEGATED, INTENSIFIED = 0.25, 0.3  # shares of clauses with a negation and with an intensifier
MIXED = 0.15  # share of reviews that see two sides
AGREEMENT = (0.9, 0.6)
"""Probability that an opinion without intensifier is the reviewer's verdict, in a clear and in a mixed review."""
TOPICAL = 0.3  # share of filler words that belong to the topic of the review
UNKNOWN_SHARE = 0.02

_BLOCK = 250


def words(tokens: torch.Tensor) -> list[str]:
    """Return a readable name of each of `tokens` ``[length]``, without the padding: ``not1 very3 good17 w512``."""
    names = []
    for token in tokens[tokens != 0].tolist():
        if token in NEGATIONS:
            names.append(f"not{token - NEGATIONS.start}")
        elif token in INTENSIFIERS:
            names.append(f"very{token - INTENSIFIERS.start}")
        elif token in OPINIONS:
            names.append(f"{'bad' if token % 2 else 'good'}{(token - OPINIONS.start) // 2}")
        else:
            names.append("?" if token == UNKNOWN else f"w{token - FILLERS.start}")
    return names


def _split(part: str, wanted: int | None) -> Split:
    split = int(part == "test")

    def draw(block: int, _: int) -> Split:
        tokens, labels = _block(stream(0, "imdb-surrogate", split, block))
        return Split(torch.from_numpy(tokens), torch.from_numpy(labels))

    return fill((LENGTH,), np.full(_SIZES[split] // _BLOCK, _BLOCK), draw, wanted, dtype=torch.int32)


def _block(rng: Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return the tokens ``[n, 256]`` and labels ``[n]`` (1: liked) of a block of reviews, half of them liked."""
    n, clauses = _BLOCK, LENGTH // CLAUSE
    labels = rng.permutation(np.arange(n) % 2)
    agreement = np.where(rng.random(n) < MIXED, AGREEMENT[1], AGREEMENT[0])[:, None]
    tokens = _filler(rng, n)

    shape = (n, clauses)
    opinion, negated = rng.random(shape) < OPINION, rng.random(shape) < NEGATED
    intensified = rng.random(shape) < INTENSIFIED
    # Twice the log-odds of being the verdict: such a phrase tells as much as two plain ones.
    doubled = agreement**2 / (agreement**2 + (1 - agreement) ** 2)
    praise = (rng.random(shape) < np.where(intensified, doubled, agreement)) == labels[:, None]
    word = OPINIONS.start + 2 * _zipf(rng.random(shape), len(OPINIONS) // 2) + (praise == negated)

    # The phrase ends anywhere in its clause: negation, intensifier or filler, word.
    end = CLAUSE * np.arange(clauses) + rng.integers(2, CLAUSE, shape)
    gap = 1 + (intensified | (rng.random(shape) < 0.5))
    row = np.broadcast_to(np.arange(n)[:, None], shape)
    for present, place, token in (
        (intensified, end - 1, rng.choice(INTENSIFIERS, shape)),
        (negated, end - gap, rng.choice(NEGATIONS, shape)),
        (opinion, end, word),
    ):
        tokens[row[present], place[present]] = token[present]

    lengths = rng.lognormal(np.log(MEDIAN_LENGTH), LENGTH_SPREAD, n).clip(SHORTEST, LENGTH)
    tokens[np.arange(LENGTH) >= lengths.astype(int)[:, None]] = 0
    return tokens, labels


def _filler(rng: Generator, n: int) -> np.ndarray:
    """Return neutral words ``[n, 256]``: Zipf over all, or over every 20th word for those of the review's topic."""
    u = rng.random((n, LENGTH))
    topic = rng.integers(TOPICS, size=(n, 1))
    topical = rng.random((n, LENGTH)) < TOPICAL
    ranks = np.where(topical, topic + TOPICS * _zipf(u, len(FILLERS) // TOPICS), _zipf(u, len(FILLERS)))
    unknown = rng.random((n, LENGTH)) < UNKNOWN_SHARE
    return np.where(unknown, UNKNOWN, FILLERS.start + ranks).astype(np.int32)


def _zipf(u: np.ndarray, count: int) -> np.ndarray:
    """Map uniform numbers to ranks below `count` with probabilities about proportional to 1 / (rank + 3)."""
    return np.minimum(2.5 * ((count + 2.5) / 2.5) ** u - 2.5, count - 1).astype(np.int64)


_SIZES = (25_000, 25_000)
ABOUT = "Token sequences of a small grammar with topics, opinions, negations, intensifiers and mixed reviews."
SURROGATES = (Surrogate("imdb", 1, (LENGTH,), ("negative", "positive"), _SIZES, _split, ABOUT),)
