"""How the 62 characters are written: pen strokes through control points, as curves that can be bent."""

from __future__ import annotations

import string
from functools import cache
from typing import NamedTuple

import numpy as np

CHARACTERS = string.digits + string.ascii_uppercase + string.ascii_lowercase
"""In the order of the labels of EMNIST ByClass and LEAF FEMNIST."""

DOTS = 56  # on each character: neighbours less than two pen radii apart on the longest one at 28x28
CONTROLS = 16  # at most, on one character

# Ways to write each character, the most usual first. A way is strokes between bars; a stroke is a curve through
# points, each an x and a y in hexadecimal; a point named twice in a row is a corner. Capitals and digits stand
# between y = 0 and the baseline y = a, small letters start at 4, tails end at e. "~C" is C written small.
SHAPES = {
    "0": ("30 11 05 19 3a 59 65 51 30", "50 21 06 09 2a 58 64 51 30 20", "30 11 05 19 3a 59 65 51 30|62 08"),
    "1": ("30 3a", "12 30 30 3a", "12 30 30 3a|0a 6a"),
    "2": ("02 11 30 51 53 36 0a 0a 6a", "02 11 30 52 46 19 08 29 6a", "01 30 63 36 0a 0a 39 69"),
    "3": ("01 20 51 53 25 25 56 58 4a 1a 08", "00 60 60 34 34 57 4a 1a 09"),
    "4": ("10 06 06 66|41 4a", "50 06 06 76|50 5a", "00 05 26 65|60 6a"),
    "5": ("50 10 10 04 04 33 55 58 3a 09", "10 04 04 33 55 58 3a 09|10 60", "51 20 02 14 45 57 4a 09"),
    "6": ("50 21 06 19 3a 59 57 45 15 07", "40 16 18 3a 58 56 35 16"),
    "7": ("00 60 60 2a", "00 60 60 45 3a", "00 60 60 2a|15 55", "02 00 00 60 60 2a"),
    "8": ("51 30 11 13 35 57 59 3a 19 17 35 53 51", "30 12 35 52 30|35 07 3a 67 35"),
    "9": ("51 20 02 14 34 52 51 51 5a", "62 40 11 03 25 53 62 62 58 3a 19"),
    "A": ("0a 30 30 6a|16 56", "0a 04 30 64 6a|06 66"),
    "B": ("00 0a|00 40 53 44 05 05 56 58 4a 0a", "10 1a|01 50 63 25 67 4a 0a"),
    "C": ("62 40 11 05 19 4a 68", "71 40 12 05 18 4a 79"),
    "D": ("00 0a|00 31 65 39 0a", "10 1a|00 41 75 49 0a"),
    "E": ("60 00 00 0a 0a 6a|05 45", "61 30 02 25 25 08 3a 69"),
    "F": ("60 00 00 0a|05 45", "70 10|10 1a|05 55"),
    "G": ("62 40 11 05 19 4a 68 66 66 36", "61 30 05 2a 59 56 56 36|56 5a"),
    "H": ("00 0a|60 6a|05 65", "00 0a|60 6a|06 64"),
    "I": ("30 3a", "30 3a|00 60|0a 6a"),
    "J": ("60 68 4a 1a 08", "30 90|60 68 4a 1a 08"),
    "K": ("00 0a|60 06 06 6a", "00 0a|60 05|25 6a"),
    "L": ("00 0a 0a 5a", "00 09 1a 5a"),
    "M": ("0a 00 00 46 46 80 80 8a", "0a 10 10 48 70 70 8a", "0a 02 20 43 4a|43 60 82 8a"),
    "N": ("0a 00 00 6a 6a 60", "0a 00|00 6a|6a 60", "00 0a|03 30 62 6a"),
    "O": ("40 11 05 19 4a 79 85 71 40", "40 11 05 19 4a 79 85 71 40 20"),
    "P": ("00 0a|00 40 63 46 05", "10 1a|01 50 63 46 16"),
    "Q": ("40 11 05 19 4a 79 85 71 40|57 8a", "40 11 05 19 4a 79 85 71 40|47 68 9a"),
    "R": ("00 0a|00 40 62 44 05 05 6a", "10 1a|01 50 63 45 15 6a"),
    "S": ("62 40 10 02 14 45 57 59 4a 1a 08", "51 20 02 14 45 57 4a 09"),
    "T": ("00 80|40 4a", "00 70|30 3a"),
    "U": ("00 07 2a 4a 67 60", "00 07 2a 4a 67 60|60 6a"),
    "V": ("00 3a 3a 60", "00 29 39 60"),
    "W": ("00 2a 2a 42 42 6a 6a 80", "00 07 2a 45 45 6a 87 80"),
    "X": ("00 6a|60 0a", "00 12 58 6a|60 0a"),
    "Y": ("00 35 35 60|35 3a", "00 35|60 0a", "00 03 25 63|60 67 4a 1a"),
    "Z": ("00 60 60 0a 0a 6a", "00 60 60 0a 0a 6a|15 55"),
    "a": ("54 24 06 08 2a 57 54 54 5a", "14 34 56 5a|57 27 08 1a 3a 58", "55 24 07 1a 58 55 55 59 6a"),
    "b": ("00 0a|06 34 57 4a 1a 09", "00 08 2a 58 46 17 08"),
    "c": ("~C", "~C"),
    "d": ("55 24 07 1a 3a 58|50 5a", "55 24 07 1a 58 50 50 59 6a"),
    "e": ("07 57 55 34 15 07 19 3a 59", "18 55 34 15 07 19 3a 59"),
    "f": ("61 40 22 2a|05 55", "61 30 2a|04 54", "60 30 3e|05 65"),
    "g": ("54 24 06 08 29 57 54 54 5c 3e 1e 0c", "54 24 06 08 29 57 54|54 5b 3e 0d 1b 5a"),
    "h": ("00 0a|06 34 56 5a", "00 0a|07 25 55 5a 6a"),
    "i": ("34 3a|31 32", "34 39 4a|31 32", "34 3a"),
    "j": ("44 4c 2e 0d|41 42", "~J"),
    "k": ("00 0a|54 07 07 5a", "~K"),
    "l": ("30 3a", "30 39 4a 5a", "18 45 51 30 24 28 3a 59"),
    "m": ("04 0a|06 24 45 4a|46 64 85 8a", "04 0a|07 24 4a|47 64 8a", "~M"),
    "n": ("04 0a|06 34 56 5a", "04 0a|07 25 54 59 6a"),
    "o": ("~O", "~O"),
    "p": ("04 0e|05 34 57 4a 19 09", "~P", "04 0e|04 34 56 39 08"),
    "q": ("54 24 06 08 29 57 54 54 5e", "54 24 06 08 29 57 54|54 5e 7c"),
    "r": ("04 0a|07 15 34 55", "04 0a|06 34 54"),
    "s": ("~S", "~S"),
    "t": ("30 38 5a 79|04 64", "30 3a|03 63", "30 3a|04 64"),
    "u": ("~U", "04 08 2a 49 54|54 5a", "04 08 2a 49 54 54 59 6a"),
    "v": ("~V", "~V"),
    "w": ("~W", "04 08 1a 36 36 5a 78 74"),
    "x": ("~X", "~X"),
    "y": ("04 3a|64 0e", "04 07 2a 58 54|54 5c 3e 0d", "~Y"),
    "z": ("~Z", "~Z"),
}


class Shapes(NamedTuple):
    """The ways to write all characters, as arrays; a way is a row.

    Attributes
    ----------
    first, ways : ndarray
        ``[62]``: number of the first way of each character, and how many there are.
    controls : ndarray
        ``[w, CONTROLS, 2]``: control points (x, y), in heights of a capital; unused ones are 0.
    curve : ndarray
        ``[w, DOTS + 1, CONTROLS]``: weights of the control points in each point along the pen's path.
    drawn : ndarray
        ``[w, DOTS]``: 1 where the pen is down between two neighbouring points, else 0.
    """

    first: np.ndarray
    ways: np.ndarray
    controls: np.ndarray
    curve: np.ndarray
    drawn: np.ndarray


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
