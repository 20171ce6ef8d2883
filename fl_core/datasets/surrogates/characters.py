"""Stand-ins for EMNIST and LEAF FEMNIST: characters written with a simulated pen by simulated writers.

A character is a way of writing it, pen strokes through control points, bent by its writer's habits and by
the accidents of the moment, and drawn as a row of soft dots. What makes the classes hard to tell apart is what makes
the real ones so: as in EMNIST (Cohen et al. 2017, section II-B) each character is cut out and enlarged to the same
extent, after which C and c, O, o and 0, or 1, l and I differ only by habit. The writers are the same in all four
sets, and the numbers of images per writer are distributed as in LEAF (Caldas et al. 2018, table 1), whose images are
dark on white and neither cut out nor enlarged.
"""

from __future__ import annotations

import json
import string
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fl_core.datasets.base import Split, Surrogate
from fl_core.datasets.surrogates.blocks import fill, shares
from fl_core.streams import stream

CHARACTERS = string.digits + string.ascii_uppercase + string.ascii_lowercase
"""In the order of the labels of EMNIST ByClass and LEAF FEMNIST."""

DOTS = 56  # on each character: neighbours less than two pen radii apart on the longest one at 28x28
CONTROLS = 16  # at most, on one character

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


SHAPES: dict[str, list[str]] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
"""Ways to write each character, the most usual first. A way is strokes between bars; a stroke is a curve through
points, each an x and a y in hexadecimal; a point named twice in a row is a corner. Capitals and digits stand between
y = 0 and the baseline y = a, small letters start at 4, tails end at e. "~C" is C written small."""


class Shapes(NamedTuple):
    """The ways to write all characters, as arrays; a way is a row."""

    first: np.ndarray  # [62]: number of the first way of each character
    ways: np.ndarray  # [62]: how many there are
    controls: np.ndarray  # [w, CONTROLS, 2]: control points (x, y), in heights of a capital; unused ones are 0
    curve: np.ndarray  # [w, DOTS + 1, CONTROLS]: weights of the control points in each point along the pen's path
    drawn: np.ndarray  # [w, DOTS]: 1 where the pen is down between two neighbouring points, else 0


@cache
def shapes() -> Shapes:
    """Return all ways to write the characters."""
    written = [_read(way, index) for character in CHARACTERS for index, way in enumerate(SHAPES[character])]
    ways = np.array([len(SHAPES[character]) for character in CHARACTERS])
    controls, curve, drawn = (np.stack(part).astype(np.float32) for part in zip(*written, strict=True))
    return Shapes(np.cumsum(ways) - ways, ways, controls, curve, drawn)


def _read(way: str, index: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return control points, curve and pen of one way, the `index`-th of its character."""
    small = way.startswith("~")
    strokes = [stroke.split() for stroke in (SHAPES[way[1]][index] if small else way).split("|")]
    names = list(dict.fromkeys(name for stroke in strokes for name in stroke))
    at = np.array([[int(name[0], 16), int(name[1], 16)] for name in names]) / 10
    if small:
        at = at * 0.6 + [0.0, 0.4]
    controls = np.zeros((CONTROLS, 2))
    controls[: len(names)] = at

    paths = [_catmull_rom([names.index(name) for name in stroke]) for stroke in strokes]
    lengths = np.array([np.linalg.norm(np.diff(path @ controls, axis=0), axis=1).sum() for path in paths])
    free = DOTS + 1 - 2 * len(paths)  # each stroke needs a point at either end
    ends = np.round(np.cumsum(lengths) / lengths.sum() * free).astype(int)
    points = [_even(path, controls, count) for path, count in zip(paths, np.diff(ends, prepend=0) + 2, strict=True)]
    drawn = np.ones(DOTS)
    drawn[np.cumsum([len(part) for part in points])[:-1] - 1] = 0
    return controls, np.concatenate(points), drawn


def _catmull_rom(indices: list[int], steps: int = 16) -> np.ndarray:
    """Return weights ``[points, CONTROLS]`` of a Catmull-Rom curve through the control points in this order."""
    knots = np.eye(CONTROLS)[indices]
    # The ends are mirrored, so that a stroke of two points is straight.
    knots = np.concatenate([2 * knots[:1] - knots[1:2], knots, 2 * knots[-1:] - knots[-2:-1]])
    t = np.linspace(0, 1, steps, endpoint=False)[:, None, None]
    p0, p1, p2, p3 = knots[None, :-3], knots[None, 1:-2], knots[None, 2:-1], knots[None, 3:]
    curve = p1 + t / 2 * (p2 - p0 + t * (2 * p0 - 5 * p1 + 4 * p2 - p3 + t * (3 * (p1 - p2) + p3 - p0)))
    return np.concatenate([curve.transpose(1, 0, 2).reshape(-1, CONTROLS), np.eye(CONTROLS)[indices[-1:]]])


def _even(path: np.ndarray, controls: np.ndarray, count: int) -> np.ndarray:
    """Return `count` points of the path, equally far apart along it."""
    travelled = np.append(0, np.cumsum(np.linalg.norm(np.diff(path @ controls, axis=0), axis=1)))
    wanted = np.linspace(0, travelled[-1], count)
    after = np.clip(np.searchsorted(travelled, wanted, side="right"), 1, len(path) - 1)
    share = ((wanted - travelled[after - 1]) / np.maximum(np.diff(travelled)[after - 1], 1e-12)).clip(0, 1)[:, None]
    return path[after - 1] * (1 - share) + path[after] * share


class Hands(NamedTuple):
    """Habits of several writers, one row each."""

    slant: np.ndarray  # [w]: shear
    aspect: np.ndarray  # [w]: width against height
    height: np.ndarray
    pen: np.ndarray  # [w]: its radius in pixels
    ink: np.ndarray  # [w]: darkness
    care: np.ndarray  # [w]: factor of the accidental variation
    bend: np.ndarray  # [w, 2, 3]: what x and y gain with x², xy and y²
    habit: np.ndarray  # [w, 62, CONTROLS, 2]: displacement of the control points of each character
    way: np.ndarray  # [w, 62]: usual way to write each character
    taste: np.ndarray  # [w, 62]: factors of how often each character is written


def hands(writers: Iterable[int]) -> Hands:
    """Return the habits of these writers."""
    return Hands(*map(np.stack, zip(*map(_hand, writers), strict=True)))


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
    """Return images ``[n, 1, 28, 28]`` of characters, white on black: who (`row` ``[n]`` of `hand`) writes `labels`.

    `draw` is the stream of the accidents. If `fitted`, each character is cut out and enlarged as in EMNIST, otherwise
    it keeps its size as in LEAF.
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


@cache
def _digit_writers() -> Hands:
    return hands(range(DIGIT_WRITERS))


def _digits(of: str, sizes: tuple[int, int]) -> Surrogate:
    def split(part: str, wanted: int | None) -> Split:
        def draw(block: int, count: int) -> Split:
            accident = stream(SEED, f"characters/{of}/{part}", block)
            labels = accident.permutation(np.arange(count) % 10)
            row = accident.integers(DIGIT_WRITERS, size=count)
            return Split(write(_digit_writers(), row, labels, accident, fitted=True), torch.from_numpy(labels))

        return fill((1, SIDE, SIDE), np.full(sizes[part == "test"] // BLOCK, BLOCK), draw, wanted)

    about = f"Digits that {DIGIT_WRITERS} simulated writers draw with a simulated pen, all ten equally often."
    return Surrogate(of, 1, (1, SIDE, SIDE), tuple(CHARACTERS[:10]), sizes, split, about)


def _by_writer(of: str, writers: int, sizes: tuple[int, int], fitted: bool) -> Surrogate:
    def split(part: str, wanted: int | None) -> Split:
        def draw(writer: int, count: int) -> Split:
            accident = stream(SEED, f"characters/{of}/{part}", writer)
            hand = hands([writer])
            chances = np.cumsum(_frequencies() * hand.taste[0])
            labels = np.searchsorted(chances / chances[-1], accident.random(count)).clip(max=len(CHARACTERS) - 1)
            images = write(hand, np.zeros(count, int), labels, accident, fitted)
            owners = torch.full((count,), writer)
            return Split(images if fitted else 255 - images, torch.from_numpy(labels), owners)

        # Mean and standard deviation of table 1 of the LEAF paper.
        weights = stream(SEED, f"characters/{of}/sizes").normal(226.83, 88.94, writers).clip(min=20)
        return fill((1, SIDE, SIDE), shares(weights, sizes[part == "test"]), draw, wanted, owned=True)

    about = f"Characters that {writers} simulated writers draw with a simulated pen, in the order of the writers."
    return Surrogate(of, 1, (1, SIDE, SIDE), tuple(CHARACTERS), sizes, split, about)


SURROGATES = (
    _digits("emnist-mnist", (60_000, 10_000)),
    _digits("emnist-digits", (240_000, 40_000)),
    _by_writer("emnist-byclass", 3_500, (697_932, 116_323), fitted=True),
    _by_writer("femnist", 3_550, (724_737, 80_526), fitted=False),
)
