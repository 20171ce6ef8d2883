"""Stand-ins for EMNIST and LEAF FEMNIST: characters written with a simulated pen by simulated writers.

A character is a way of writing it (:mod:`~fl_core.datasets.surrogates.glyphs`), bent by its writer's habits and by
the accidents of the moment, and drawn as a row of soft dots. What makes the classes hard to tell apart is what makes
the real ones so: as in EMNIST (Cohen et al. 2017, section II-B) each character is cut out and enlarged to the same
extent, after which C and c, O, o and 0, or 1, l and I differ only by habit. The writers are the same in all four
sets, and the numbers of images per writer are distributed as in LEAF (Caldas et al. 2018, table 1), whose images are
dark on white and neither cut out nor enlarged.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cache, partial

import numpy as np
import torch
from torch import Tensor

from fl_core.datasets.base import Split, Surrogate
from fl_core.datasets.surrogates.blocks import Blocks, fill, shares
from fl_core.datasets.surrogates.glyphs import CHARACTERS, CONTROLS, shapes
from fl_core.streams import stream

SEED = 0
SIDE = 28
CAPITAL, FITTED = 15, 20  # pixels between the outermost strokes of a capital in LEAF, of any character in EMNIST
BLOCK = 250
DIGIT_WRITERS = 500

# How writers differ from each other (standard deviations, lengths in heights of a capital).
SLANT, BEND, HABIT, HEIGHT = 0.22, 0.20, 0.045, 0.20
# How one writer's characters differ from each other.
TILT, STRETCH, WOBBLE, SIZE = 0.10, 0.10, 0.035, 0.12
RARER = 0.45  # each further way to write a character is chosen so much more rarely than the one before
FAITHFUL = 0.85  # how often a writer writes a character in his usual way
LETTERS = np.array([8.2, 1.5, 2.8, 4.3, 12.7, 2.2, 2.0, 6.1, 7.0, 0.2, 0.8, 4.0, 2.4,
                    6.7, 7.5, 1.9, 0.1, 6.0, 6.3, 9.1, 2.8, 1.0, 2.4, 0.2, 2.0, 0.1])  # fmt: skip # % in English text


@dataclass(frozen=True)
class Hands:
    """Habits of several writers; each array has one row a writer.

    Attributes
    ----------
    slant, aspect, height, pen, ink, care : ndarray
        ``[w]``: shear, width against height, size, radius of the pen in pixels, darkness, and the factor of the
        accidental variation.
    bend : ndarray
        ``[w, 2, 3]``: what x and y gain with x², xy and y².
    habit : ndarray
        ``[w, 62, CONTROLS, 2]``: displacement of the control points of each character.
    way : ndarray
        ``[w, 62]``: usual way to write each character.
    taste : ndarray
        ``[w, 62]``: factors of how often each character is written.
    """

    slant: np.ndarray
    aspect: np.ndarray
    height: np.ndarray
    pen: np.ndarray
    ink: np.ndarray
    care: np.ndarray
    bend: np.ndarray
    habit: np.ndarray
    way: np.ndarray
    taste: np.ndarray


def hands(writers: Iterable[int]) -> Hands:
    """Return the habits of these writers."""
    each = [_hand(writer) for writer in writers]
    return Hands(**{f.name: np.stack([getattr(hand, f.name) for hand in each]) for f in fields(Hands)})


def _hand(writer: int) -> Hands:
    draw = stream(SEED, "characters/writer", writer)
    n = len(CHARACTERS)
    slant, aspect, height, pen, ink, care = draw.standard_normal(6, dtype=np.float32)
    return Hands(
        slant=0.08 + SLANT * slant,
        aspect=np.exp(0.15 * aspect),
        height=np.exp(HEIGHT * height),
        pen=1.15 * np.exp(0.18 * pen),
        ink=1.5 * np.exp(0.12 * ink),
        care=np.exp(0.25 * care),
        bend=BEND * draw.standard_normal((2, 3), dtype=np.float32),
        habit=HABIT * draw.standard_normal((n, CONTROLS, 2), dtype=np.float32),
        way=_ways(np.arange(n), draw.random(n)),
        taste=np.exp(0.3 * draw.standard_normal(n)),
    )


def _ways(labels: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """Turn uniform numbers into ways to write the characters `labels`, usual ones more often."""
    chances = 1 - RARER ** shapes().ways[labels]  # of a geometric distribution, cut off
    return (np.log1p(-uniform * chances) / np.log(RARER)).astype(np.int64)


def write(hand: Hands, row: np.ndarray, labels: np.ndarray, draw: np.random.Generator, fitted: bool) -> Tensor:
    """Return images of characters, white on black.

    Parameters
    ----------
    hand : Hands
    row, labels : ndarray
        ``[n]``: who (a row of `hand`) writes what.
    draw : Generator
        Of the accidents.
    fitted : bool
        Whether each character is cut out and enlarged as in EMNIST, or keeps its size as in LEAF.

    Returns
    -------
    Tensor
        ``[n, 1, 28, 28]`` (uint8).
    """
    n = len(labels)
    care = hand.care[row]

    seldom = draw.random(n) > FAITHFUL
    way = np.where(seldom, _ways(labels, draw.random(n)), hand.way[row, labels])
    number = shapes().first[labels] + way
    wobble = care[:, None, None] * WOBBLE * draw.standard_normal((n, CONTROLS, 2), dtype=np.float32)
    controls = torch.from_numpy(shapes().controls[number] + hand.habit[row, labels] + wobble)
    path = torch.from_numpy(shapes().curve)[number] @ controls

    tilt, shear, stretch, size, across, down, ink = draw.standard_normal((7, n), dtype=np.float32)
    bend = hand.bend[row] + care[:, None, None] * BEND / 2 * draw.standard_normal((n, 2, 3), dtype=np.float32)
    path = path - _middle(path)
    x, y = path.unbind(2)
    path = path + torch.stack([x * x, x * y, y * y], 2) @ torch.from_numpy(bend).mT
    angle = care * TILT * tilt
    width = hand.aspect[row] * np.exp(care * STRETCH * stretch)
    slant = hand.slant[row] + care * TILT * shear
    cos, sin = np.cos(angle), np.sin(angle)
    turned = np.stack([width * cos, -slant * cos - sin, width * sin, cos - slant * sin], 1).reshape(n, 2, 2)
    path = path @ torch.from_numpy(turned.astype(np.float32)).mT

    fits = FITTED / (path.amax(1) - path.amin(1)).amax(1).clamp(min=0.3)
    natural = torch.from_numpy(CAPITAL * hand.height[row] * np.exp(SIZE * size))
    scale = fits if fitted else natural.minimum(fits)
    shift = torch.from_numpy(0.5 * np.stack([across, down], 1))[:, None]
    path = (path - _middle(path)) * scale[:, None, None] + shift + (SIDE - 1) / 2

    drawn = torch.from_numpy(shapes().drawn)[number]
    darkness = torch.from_numpy(hand.ink[row] * np.exp(0.08 * ink))
    pen = torch.from_numpy(hand.pen[row] if fitted else hand.pen[row] * CAPITAL / FITTED)
    return _ink(path, drawn, pen, darkness)


def _middle(path: Tensor) -> Tensor:
    return (path.amax(1, keepdim=True) + path.amin(1, keepdim=True)) / 2


def _ink(path: Tensor, drawn: Tensor, pen: Tensor, darkness: Tensor) -> Tensor:
    """Draw each path ``[n, DOTS + 1, 2]`` as a row of Gaussian dots, which sum to a line of even width.

    A Gaussian dot is a column times a row, so all dots of a character are one product of two matrices.
    """
    steps = path.diff(dim=1)
    weight = drawn * steps.norm(dim=2) / (pen[:, None] * (2 * torch.pi) ** 0.5)
    dots = (path[:, 1:] - steps / 2)[..., None] - torch.arange(SIDE)
    spread = torch.exp(-0.5 * (dots / pen[:, None, None, None]).square())
    ink = (spread[:, :, 1] * weight[..., None]).mT @ spread[:, :, 0]
    ink = (darkness[:, None, None] * ink - 0.08).clamp(0, 1)
    return (255 * ink).round().to(torch.uint8)[:, None]


@cache
def _frequencies() -> np.ndarray:
    """Return how often each of the 62 characters is written.

    A form of NIST Special Database 19 asks for digits, for both alphabets and for a passage of text; the totals of
    digits, capitals and small letters are those of EMNIST ByClass.
    """
    letters = (1 / 26 + LETTERS / LETTERS.sum()) / 2
    return np.concatenate([np.full(10, 0.495 / 10), 0.270 * letters, 0.235 * letters])


def _of_one_writer(purpose: str, fitted: bool, writer: int, count: int) -> tuple[Tensor, Tensor]:
    """Return what one writer has written."""
    draw = stream(SEED, purpose, writer)
    hand = hands(range(writer, writer + 1))
    chances = np.cumsum(_frequencies() * hand.taste[0])
    labels = np.searchsorted(chances / chances[-1], draw.random(count)).clip(max=len(CHARACTERS) - 1)
    return write(hand, np.zeros(count, int), labels, draw, fitted), torch.from_numpy(labels)


def _of_many_writers(purpose: str, block: int, count: int) -> tuple[Tensor, Tensor]:
    """Return equally many of each digit, in any order."""
    draw = stream(SEED, purpose, block)
    labels = draw.permutation(np.arange(count) % 10)
    row = draw.integers(DIGIT_WRITERS, size=count)
    return write(_digit_writers(), row, labels, draw, fitted=True), torch.from_numpy(labels)


@cache
def _digit_writers() -> Hands:
    return hands(range(DIGIT_WRITERS))


def _digits(of: str, sizes: tuple[int, int]) -> Surrogate:
    def split(part: str, size: int, wanted: int | None) -> Split:
        draw = partial(_of_many_writers, f"characters/{of}/{part}")
        counts = np.full(size // BLOCK, BLOCK)
        return fill(Blocks((1, SIDE, SIDE), counts, draw, owned=False), wanted)

    return Surrogate(
        of=of,
        version=1,
        shape=(1, SIDE, SIDE),
        classes=tuple(CHARACTERS[:10]),
        sizes=sizes,
        generate=lambda train, test: (split("train", sizes[0], train), split("test", sizes[1], test)),
        about=f"Digits that {DIGIT_WRITERS} simulated writers draw with a simulated pen, all ten equally often.",
    )


def _by_writer(of: str, writers: int, sizes: tuple[int, int], fitted: bool) -> Surrogate:
    def split(part: str, size: int, wanted: int | None) -> Split:
        def draw(writer: int, count: int) -> tuple[Tensor, Tensor]:
            images, labels = _of_one_writer(f"characters/{of}/{part}", fitted, writer, count)
            return (images if fitted else 255 - images), labels

        # Mean and standard deviation of table 1 of the LEAF paper.
        weights = stream(SEED, f"characters/{of}/sizes").normal(226.83, 88.94, writers).clip(min=20)
        return fill(Blocks((1, SIDE, SIDE), shares(weights, size), draw, owned=True), wanted)

    return Surrogate(
        of=of,
        version=1,
        shape=(1, SIDE, SIDE),
        classes=tuple(CHARACTERS),
        sizes=sizes,
        generate=lambda train, test: (split("train", sizes[0], train), split("test", sizes[1], test)),
        about=f"Characters that {writers} simulated writers draw with a simulated pen, in the order of the writers.",
    )


SURROGATES = (
    _digits("emnist-mnist", (60_000, 10_000)),
    _digits("emnist-digits", (240_000, 40_000)),
    _by_writer("emnist-byclass", 3_500, (697_932, 116_323), fitted=True),
    _by_writer("femnist", 3_550, (724_737, 80_526), fitted=False),
)
