"""Surrogates of CIFAR-10, CIFAR-100, Tiny-ImageNet and CelebA: pictures of objects made of patterned figures.

An image is a vector of numbers between 0 and 1: the forms and colours of the figures that make up an object, and the
scene behind it. A family of similar classes is a point of that space, a class a point near its family's, a mode
(a kind or a view) of a class a point near the class's, an image a point near its mode's. Painting adds what
does not depend on the class: place, size, turn, mirror image, other figures before and behind, background, lighting,
and pixel noise.

All is made of additions, multiplications, divisions, square roots and comparisons of float32 arrays, each of them
correctly rounded by every processor: the same numbers give the same bytes on any machine and with any number of
threads.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray

from fl_core.datasets.base import Split, Surrogate
from fl_core.datasets.surrogates.blocks import fill, shares
from fl_core.streams import stream

Array = NDArray[np.float32]

BLOCK = 50  # images that are drawn together, from one stream
FIGURES = 4  # of an object
SCENE = 10  # numbers of a scene: two colours, height and width of the border between them, two strengths of noise
FORM = 13  # numbers of a figure that say what it looks like without its colours
PATTERN = 4  # the last of these: frequency, grain, checks and contrast of its pattern
FIGURE = FORM + 6  # numbers of a figure, its two colours included
ODDNESS = (0.4, 1.6)  # the spread varies between images by a factor from here: some are typical, some ambiguous
PIXEL_NOISE = 0.05  # largest noise in a pixel, white being 1


@dataclass(frozen=True)
class Spread:
    """How far numbers of an image lie from what they vary around, by what they say: of each figure, of the scene."""

    shape: float
    pattern: float
    colour: float
    scene: float

    @property
    def numbers(self) -> Array:
        """The spread of each number of an image, ``[FIGURES * FIGURE + SCENE]``."""
        figure = [self.shape] * (FORM - PATTERN) + [self.pattern] * PATTERN + [self.colour] * (FIGURE - FORM)
        return np.array(figure * FIGURES + [self.scene] * SCENE, np.float32)


@dataclass(frozen=True)
class Recipe:
    """What sets one of the data sets apart."""

    of: str  # name of the real data set
    side: int
    families: int
    classes: int
    sizes: tuple[int, int]
    modes: int  # kinds or views of each class
    variation: float  # calibrated: how much images of one mode differ; the larger, the harder
    class_spread: Spread = Spread(shape=0.6, pattern=0.6, colour=0.3, scene=0.15)
    """How far a class lies from its family: the smaller, the more alike are its classes."""
    mode_spread: Spread = Spread(shape=0.3, pattern=0.3, colour=0.65, scene=0.5)
    """How far a mode lies from its class: the larger, the less does a linear model learn, colours above all."""
    image_spread: Spread = Spread(shape=0.2, pattern=0.2, colour=0.36, scene=1.0)
    """How far an image lies from its mode, times `variation`."""
    reach: float = 0.3  # most that an object lies away from the middle of the image, which is 2 wide, along an axis
    turn: float = 0.25  # most that it is turned, 1 being 90 degrees
    scale: tuple[float, float] = (0.8, 1.3)
    ambiguous: float = 0.0
    """Share of the images that show any class of the label's family, as photographs do in which what the label names
    is hidden or beside something else: no network reaches more than ``1 - ambiguous`` plus what it guesses."""
    version: int = 1  # raised with every change of the images
    owners: int = 0  # whose images these are; their numbers of images are distributed as in LEAF
    owner_spread: Spread = Spread(shape=0.4, pattern=0.4, colour=1.0, scene=1.0)
    """How far what an owner's images have in common lies from what all have."""


def _modes(recipe: Recipe) -> Array:
    """Return the numbers of each mode of each class ``[classes, modes, numbers]``."""
    rng = stream(0, f"{recipe.of}-surrogate/modes")
    n, spread = recipe.classes, recipe.class_spread.numbers
    family = np.repeat(uniform(rng, recipe.families, len(spread)), n // recipe.families, axis=0)
    centre = reflect(family + spread * bell(rng, n, len(spread)))
    return reflect(centre[:, None] + recipe.mode_spread.numbers * bell(rng, n, recipe.modes, len(spread)))


def _draw(recipe: Recipe, modes: Array, labels: NDArray[np.int64], rng: Generator) -> NDArray[np.uint8]:
    """Draw images ``[n, 3, side, side]`` of classes `labels` ``[n]``."""
    n, side = len(labels), recipe.side
    seen = seen_classes(recipe, labels, rng) if recipe.ambiguous else labels
    mode = modes[seen, rng.integers(recipe.modes, size=n)]
    spread = recipe.image_spread.numbers * between(*ODDNESS, uniform(rng, n, 1)) * np.float32(recipe.variation)
    numbers = reflect(mode + spread * bell(rng, *mode.shape))
    figures, scene = numbers[:, :-SCENE].reshape(n, FIGURES, FIGURE), numbers[:, -SCENE:]
    noise = soft_noise(rng, n, 4, side)
    canvas = _background(scene, noise, uniform(rng, n))
    light = noise[:, 3] * np.float32(0.12)
    light += between(-0.15, 0.15, uniform(rng, n, 1, 1)) * ramp(side)

    other = uniform(rng, 2, n, FIGURE)
    paint(canvas, Pose.random(rng, n, reach=0.9, scale=(0.3, 0.8), turn=1), other[0], light)
    pose = Pose.random(rng, n, reach=recipe.reach, scale=recipe.scale, turn=recipe.turn)
    for figure in range(FIGURES):
        paint(canvas, pose, figures[:, figure], light)
    paint(canvas, Pose.random(rng, n, reach=0.9, scale=(0.18, 0.48), turn=1), other[1], light)

    canvas -= np.float32(0.5)
    canvas *= between(0.6, 1.2, uniform(rng, n, 1, 1, 1))
    canvas += between(0.325, 0.675, uniform(rng, n, 1, 1, 1))
    canvas += between(-PIXEL_NOISE, PIXEL_NOISE, uniform(rng, *canvas.shape))
    canvas *= np.float32(255)
    canvas += np.float32(0.5)
    return np.clip(canvas, 0, 255, out=canvas).astype(np.uint8)


def _background(scene: Array, noise: Array, shift: Array) -> Array:
    """Return noisy canvases ``[n, 3, side, side]`` with the upper and lower colour of each `scene` ``[n, SCENE]``."""
    upper, lower = colours(scene[:, :3]), colours(scene[:, 3:6])
    border = between(-0.8, 0.8, scene[:, 6]) + between(-0.25, 0.25, shift)
    steep = between(0.6, 4.6, scene[:, 7] * scene[:, 7])
    below = np.clip((ramp(noise.shape[-1]) - border[:, None]) * steep[:, None] + np.float32(0.5), 0, 1)
    canvas = noise[:, :3] * between(0.1, 0.35, scene[:, 8])[:, None, None, None]
    canvas += noise[:, 3:] * between(0.1, 0.4, scene[:, 9])[:, None, None, None]
    canvas += (upper[:, :, None] + (lower - upper)[:, :, None] * below[:, None, :])[..., None]
    return canvas


def shuffled_labels(recipe: Recipe, part: str) -> NDArray[np.int64]:
    """Return the labels of all images of the part ``"train"`` or ``"test"``, equally many of each class."""
    size = recipe.sizes[part == "test"]
    return stream(0, f"{recipe.of}-surrogate/{part}/labels").permutation(np.arange(size) % recipe.classes)


def seen_classes(recipe: Recipe, labels: NDArray[np.int64], rng: Generator) -> NDArray[np.int64]:
    """Return the class that is seen in each image of classes `labels` ``[n]``: sometimes any of the same family."""
    alike = recipe.classes // recipe.families
    other = labels // alike * alike + rng.integers(alike, size=len(labels))
    return np.where(uniform(rng, len(labels)) < recipe.ambiguous, other, labels)


def _surrogate(recipe: Recipe) -> Surrogate:
    shape, name = (3, recipe.side, recipe.side), f"{recipe.of}-surrogate"

    def by_owner(part: str, wanted: int | None) -> Split:
        modes, numbers = _modes(recipe), recipe.owner_spread.numbers

        def draw(owner: int, count: int) -> Split:
            rng, own = stream(0, f"{name}/{part}", owner), stream(0, f"{name}/owner", owner)
            labels = rng.integers(recipe.classes, size=count)
            images = _draw(recipe, reflect(modes + numbers * bell(own, len(numbers))), labels, rng)
            return Split(torch.from_numpy(images), torch.from_numpy(labels), torch.full((count,), owner))

        # Mean and standard deviation of table 1 of the LEAF paper.
        weights = stream(0, f"{name}/sizes").normal(21.44, 7.63, recipe.owners).clip(5, 35)
        return fill(shape, shares(weights, recipe.sizes[part == "test"]), draw, wanted, owned=True)

    def split(part: str, wanted: int | None) -> Split:
        labels, modes = shuffled_labels(recipe, part), _modes(recipe)

        def draw(block: int, count: int) -> Split:
            own = labels[block * BLOCK :][:count]
            images = _draw(recipe, modes, own, stream(0, f"{name}/{part}", block))
            return Split(torch.from_numpy(images), torch.from_numpy(own))

        return fill(shape, np.full(len(labels) // BLOCK, BLOCK), draw, wanted)

    family = recipe.classes // recipe.families
    classes = tuple(f"object {c} of family {c // family}" for c in range(recipe.classes))
    about = f"Generated pictures of objects made of {FIGURES} patterned figures, in random poses and scenes."
    if recipe.owners:
        about += f" {recipe.owners} owners have tastes of their own; not calibrated."
    chosen = by_owner if recipe.owners else split
    return Surrogate(recipe.of, recipe.version, shape, classes, recipe.sizes, chosen, about)


def uniform(rng: Generator, *shape: int) -> Array:
    """Draw float32 numbers from [0, 1)."""
    return rng.random(shape, dtype=np.float32)


def between(low: float, high: float, numbers: Array) -> Array:
    """Map `numbers` from [0, 1] to [low, high]."""
    return numbers * np.float32(high - low) + np.float32(low)


def bell(rng: Generator, *shape: int) -> Array:
    """Draw numbers of mean 0 and standard deviation 0.5 from (-1.5, 1.5): sums of three uniform ones, shifted."""
    total = uniform(rng, *shape)
    total += uniform(rng, *shape)
    total += uniform(rng, *shape)
    total -= np.float32(1.5)
    return total


def reflect(numbers: Array) -> Array:
    """Fold numbers from [-1, 2] into [0, 1] at the ends of that interval."""
    return np.clip(1 - np.abs(1 - np.abs(numbers)), 0, 1)


def colours(numbers: Array) -> Array:
    """Map lightness, warmth and greenness ``[..., 3]`` from [0, 1] to red, green and blue."""
    light, warm, green = np.moveaxis(numbers, -1, 0)
    light, warm, green = between(0.1, 0.9, light), between(-0.25, 0.25, warm), between(-0.2, 0.2, green)
    return np.stack([light + warm, light + green - warm * np.float32(0.25), light - warm - green], axis=-1)


def ramp(side: int) -> Array:
    """Return the centres of `side` pixels, from -1 to 1."""
    return between(-1, 1, (np.arange(side, dtype=np.float32) + np.float32(0.5)) / np.float32(side))


def soft_noise(rng: Generator, n: int, channels: int, side: int) -> Array:
    """Return noise ``[n, channels, side, side]``: octaves from 4 pixels a side on, each half the last."""
    field = bell(rng, n, channels, 4, 4)
    amplitude = 1.0
    while field.shape[-1] < side:
        amplitude /= 2
        field = _doubled(_doubled(field, -1), -2)
        finer = uniform(rng, *field.shape)
        finer *= np.float32(2 * amplitude)
        finer -= np.float32(amplitude)
        field += finer
    return field[..., :side, :side]


def _doubled(field: Array, axis: int) -> Array:
    """Return `field` with twice the pixels along one of its last two axes, by linear interpolation."""
    length, width = field.shape[axis], field.shape[-1] if axis == -2 else 1
    # All images as one long column of rows (or, along the last axis, of pixels), then the ends of each set right.
    near, far = ((field * np.float32(share)).reshape(-1, width) for share in (0.75, 0.25))
    out = np.empty((2 * len(near), width), np.float32)
    np.add(near[1:], far[:-1], out=out[2::2])
    np.add(near[:-1], far[1:], out=out[1:-1:2])
    out.reshape(-1, 2 * length, width)[:, [0, -1]] = field.reshape(-1, length, width)[:, [0, -1]]
    shape = list(field.shape)
    shape[axis] *= 2
    return out.reshape(shape)


@dataclass(frozen=True)
class Pose:
    """Where objects are: arrays ``[n]``; the image is 2 wide."""

    x: Array
    y: Array
    scale: Array
    turn: Array  # from -1 (-90 degrees) to 1 (90 degrees)
    mirror: Array  # 1 or -1

    @staticmethod
    def random(rng: Generator, n: int, reach: float, scale: tuple[float, float], turn: float) -> Pose:
        """Draw centres up to `reach` from the middle, scales from an interval, and turns up to `turn`."""
        x, y, size, angle, side = uniform(rng, 5, n)
        mirror = np.where(side < 0.5, np.float32(-1), np.float32(1))
        place = between(-reach, reach, x), between(-reach, reach, y)
        return Pose(*place, between(*scale, size), between(-turn, turn, angle), mirror)


def paint(canvas: Array, pose: Pose, figure: Array, light: Array) -> None:
    """Paint one `figure` ``[n, FIGURE]``, numbers from 0 to 1, on each image of `canvas` ``[n, 3, side, side]``.

    Its outline is the unit circle of a norm that mixes the Euclidean, the maximum and the sum norm, bent, tapered,
    stretched, turned, and moved to its place in the object, whose is `pose`; its pattern are stripes or checks of two
    colours, to which `light` ``[n, side, side]`` is added.
    """
    side = canvas.shape[-1]
    x, y, size, aspect, turn, square, diamond, taper, bend, frequency, grain, checks, contrast = figure[:, :FORM].T
    half = between(0.25, 0.65, size)
    stretch = between(0.65, 1.35, aspect)
    u, v = _coordinates(side, pose, x, y, turn, half * stretch, half / stretch)

    bent = u * u
    bent *= _each(between(-0.6, 0.6, bend))
    bent += v
    tapered = v * _each(between(-0.5, 0.5, taper))
    tapered += np.float32(1)
    np.clip(tapered, 0.3, 3, out=tapered)
    tapered *= u
    mask = _norm(tapered, bent, square, diamond * np.float32(0.7))
    mask -= np.float32(1)
    mask *= _each(half * pose.scale * np.float32(-0.5 * side))  # to pixels, about: the edge is one pixel wide
    mask += np.float32(0.5)
    inside = mask > 0  # a small part: from here on only these pixels, one after the other
    counts = np.count_nonzero(inside, axis=(1, 2))
    mask, u, v, light = mask[inside], u[inside], v[inside], light[inside]
    np.minimum(mask, 1, out=mask)

    cosine, sine = _direction(between(-1, 1, grain))
    cycles = between(0.5, 2.5, frequency)
    right: Array = np.repeat(cycles * cosine, counts)
    down: Array = np.repeat(cycles * sine, counts)
    pattern = _wave(right * u + down * v)
    crossing = _wave(right * v - down * u)
    crossing -= np.float32(1)
    crossing *= np.repeat(np.clip(between(-1.5, 1.5, checks), 0, 1), counts)
    crossing += np.float32(1)
    pattern *= crossing

    first, second = colours(figure[:, FORM : FORM + 3]), colours(figure[:, FORM + 3 :])
    amplitude = (second - first) * contrast[:, None] * np.float32(0.5)
    for channel in range(3):
        plane = canvas[:, channel]
        there = plane[inside]
        change = np.repeat(amplitude[:, channel], counts)
        change *= pattern
        change += np.repeat(first[:, channel], counts)
        change += light
        change -= there
        change *= mask
        there += change
        plane[inside] = there


def _coordinates(
    side: int, pose: Pose, x: Array, y: Array, turn: Array, length: Array, width: Array
) -> tuple[Array, Array]:
    """Return coordinates ``[n, side, side]`` of all pixels along and across each figure, whose half axes are 1."""
    (cosine, sine), (part_cosine, part_sine) = _direction(pose.turn), _direction(between(-1, 1, turn))

    def at(column: Array, row: Array) -> tuple[Array, Array]:
        dx, dy = column - _each(pose.x), row - _each(pose.y)
        a = _each(pose.mirror / pose.scale) * (_each(cosine) * dx + _each(sine) * dy) - _each(between(-0.6, 0.6, x))
        b = (_each(cosine) * dy - _each(sine) * dx) / _each(pose.scale) - _each(between(-0.6, 0.6, y))
        along = _each(part_cosine) * a + _each(part_sine) * b
        across = _each(part_cosine) * b - _each(part_sine) * a
        return along / _each(length), across / _each(width)

    axis, middle = ramp(side), np.zeros((1, 1, 1), np.float32)
    u0, v0 = at(middle, middle)
    ux, vx = at(axis[None, None, :], middle)
    uy, vy = at(middle, axis[None, :, None])
    return ux + (uy - u0), vx + (vy - v0)  # both are affine: one row and one column tell the rest


def _norm(a: Array, b: Array, square: Array, diamond: Array) -> Array:
    """Mix ``max(|a|, |b|)``, ``|a| + |b|`` and the root of ``a^2 + b^2``; overwrites `a` and `b`."""
    np.abs(a, out=a)
    np.abs(b, out=b)
    mixed = np.maximum(a, b)
    mixed *= _each(square - diamond)
    total = a + b
    total *= _each(diamond)
    mixed += total
    a *= a
    b *= b
    a += b
    np.sqrt(a, out=a)
    a *= _each(1 - square)
    mixed += a
    return mixed


def _wave(phase: Array) -> Array:
    """Return a triangle wave of period 1, cut off at -1 and 1; overwrites `phase`."""
    phase -= np.rint(phase)
    np.abs(phase, out=phase)
    phase *= np.float32(-8)
    phase += np.float32(2)
    return np.clip(phase, -1, 1, out=phase)


def _direction(turn: Array) -> tuple[Array, Array]:
    """Return cosine and sine of an angle that grows from -90 to 90 degrees with `turn` from -1 to 1."""
    square = turn * turn
    return (1 - square) / (1 + square), 2 * turn / (1 + square)


def _each(per_image: Array) -> Array:
    """Return ``[n]`` as ``[n, 1, 1]``."""
    return per_image[:, None, None]


RECIPES = (
    Recipe("cifar10", 32, families=5, classes=10, sizes=(50_000, 10_000), modes=4, variation=1.0),
    Recipe("cifar100", 32, families=20, classes=100, sizes=(50_000, 10_000), modes=2, variation=0.9),
    Recipe("tiny-imagenet", 64, families=40, classes=200, sizes=(100_000, 10_000), modes=2, variation=1.0,
           class_spread=Spread(shape=0.6, pattern=0.9, colour=0.4, scene=0.15),
           mode_spread=Spread(shape=0.1, pattern=0.03, colour=0.2, scene=0.5),
           image_spread=Spread(shape=0.08, pattern=0.02, colour=0.1, scene=1.0),
           reach=0.55, turn=0.12, scale=(0.7, 1.05), ambiguous=0.55, version=3),
    Recipe("celeba", 84, families=1, classes=2, sizes=(37_987, 4_887), modes=2, variation=0.6, version=2,
           owners=2_000),
)  # fmt: skip
"""Calibrated with the networks that :mod:`fl_core.datasets.surrogates.calibration` names."""

SURROGATES = tuple(map(_surrogate, RECIPES))
