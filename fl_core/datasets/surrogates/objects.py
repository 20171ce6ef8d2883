"""Surrogates of CIFAR-10, CIFAR-100 and Tiny-ImageNet: pictures of objects made of patterned figures.

An image is a vector of numbers between 0 and 1: the forms and colours of the figures that make up an object, and the
scene behind it. A family of similar classes is a point of that space, a class a point near its family's, a mode
(a kind or a view) of a class a point near the class's, an image a point near its mode's. Painting adds what
does not depend on the class: place, size, turn, mirror image, other figures before and behind, background, lighting,
and pixel noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray
from torch import Tensor

from fl_core.datasets.base import Split, Surrogate
from fl_core.datasets.surrogates.blocks import Blocks, fill
from fl_core.datasets.surrogates.fields import (
    FIGURE,
    FORM,
    Array,
    Pose,
    bell,
    between,
    colours,
    paint,
    ramp,
    reflect,
    soft_noise,
    uniform,
)
from fl_core.streams import stream

BLOCK = 50
"""Images that are drawn together, from one stream."""

FIGURES = 4
"""Figures of an object."""

SCENE = 10
"""Numbers of a scene: two colours, height and width of the border between them, and two strengths of noise."""


PATTERN = 4
"""The last of the `FORM` numbers of a figure: frequency, grain, checks and contrast of its pattern."""


@dataclass(frozen=True)
class Spread:
    """How far numbers of an image lie from what they vary around, by what they say.

    Attributes
    ----------
    shape, pattern, colour : float
        Of each figure.
    scene : float
        Of the background.
    """

    shape: float
    pattern: float
    colour: float
    scene: float

    @property
    def numbers(self) -> Array:
        """The spread of each number of an image, ``[FIGURES * FIGURE + SCENE]``."""
        figure = [self.shape] * (FORM - PATTERN) + [self.pattern] * PATTERN + [self.colour] * (FIGURE - FORM)
        return np.array(figure * FIGURES + [self.scene] * SCENE, np.float32)


ODDNESS = (0.4, 1.6)
"""That spread again varies between images by a factor from this interval: some are typical, some ambiguous."""

PIXEL_NOISE = 0.05
"""Largest noise in a pixel, white being 1."""


@dataclass(frozen=True)
class Recipe:
    """What sets one of the data sets apart.

    Attributes
    ----------
    of : str
        Name of the real data set.
    side : int
        Pixels.
    families, classes : int
    sizes : (int, int)
        Training and test images.
    modes : int
        Kinds or views of each class.
    variation : float
        Calibrated: how much images of one mode differ; the larger, the harder.
    class_spread : Spread
        How far a class lies from its family: the smaller, the more alike are its classes.
    mode_spread : Spread
        How far a mode lies from its class: the larger, the less does a linear model learn, colours above all.
    image_spread : Spread
        How far an image lies from its mode, times `variation`.
    reach, turn : float
        Most that an object lies away from the middle of the image, which is 2 wide, along an axis, and that it is
        turned, 1 being 90 degrees.
    scale : (float, float)
        Smallest and largest of their sizes.
    ambiguous : float
        Share of the images that show any class of the label's family, as photographs do in which what the label names
        is hidden or beside something else: no network reaches more than ``1 - ambiguous`` plus what it guesses.
    version : int
        Raised with every change of the images.
    """

    of: str
    side: int
    families: int
    classes: int
    sizes: tuple[int, int]
    modes: int
    variation: float
    class_spread: Spread = Spread(shape=0.6, pattern=0.6, colour=0.3, scene=0.15)
    mode_spread: Spread = Spread(shape=0.3, pattern=0.3, colour=0.65, scene=0.5)
    image_spread: Spread = Spread(shape=0.2, pattern=0.2, colour=0.36, scene=1.0)
    reach: float = 0.3
    turn: float = 0.25
    scale: tuple[float, float] = (0.8, 1.3)
    ambiguous: float = 0.0
    version: int = 1


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


def _split(recipe: Recipe, part: str, wanted: int | None) -> Split:
    """Return the first `wanted` images (None: all) of the part ``"train"`` or ``"test"``."""
    labels, modes = shuffled_labels(recipe, part), _modes(recipe)

    def draw(block: int, count: int) -> tuple[Tensor, Tensor]:
        own = labels[block * BLOCK :][:count]
        images = _draw(recipe, modes, own, stream(0, f"{recipe.of}-surrogate/{part}", block))
        return torch.from_numpy(images), torch.from_numpy(own)

    blocks = Blocks((3, recipe.side, recipe.side), np.full(len(labels) // BLOCK, BLOCK), draw, owned=False)
    return fill(blocks, len(labels) if wanted is None else wanted)


def _generate(recipe: Recipe, train: int | None, test: int | None) -> tuple[Split, Split]:
    """Return the first `train` and `test` images (None: all)."""
    return _split(recipe, "train", train), _split(recipe, "test", test)


def _surrogate(recipe: Recipe) -> Surrogate:
    family = recipe.classes // recipe.families
    return Surrogate(
        of=recipe.of,
        version=recipe.version,
        shape=(3, recipe.side, recipe.side),
        classes=tuple(f"object {c} of family {c // family}" for c in range(recipe.classes)),
        sizes=recipe.sizes,
        generate=partial(_generate, recipe),
        about=f"Generated pictures of objects made of {FIGURES} patterned figures, in random poses and scenes.",
    )


RECIPES = (
    Recipe("cifar10", 32, families=5, classes=10, sizes=(50_000, 10_000), modes=4, variation=1.0),
    Recipe("cifar100", 32, families=20, classes=100, sizes=(50_000, 10_000), modes=2, variation=0.9),
    Recipe(
        "tiny-imagenet",
        64,
        families=40,
        classes=200,
        sizes=(100_000, 10_000),
        modes=2,
        variation=1.0,
        class_spread=Spread(shape=0.6, pattern=0.9, colour=0.4, scene=0.15),
        mode_spread=Spread(shape=0.1, pattern=0.03, colour=0.2, scene=0.5),
        image_spread=Spread(shape=0.08, pattern=0.02, colour=0.1, scene=1.0),
        reach=0.55,
        turn=0.12,
        scale=(0.7, 1.05),
        ambiguous=0.55,
        version=3,
    ),
)
"""Calibrated with LeNet-5 trained centrally on all training images, the third with ResNet-20; what is
known of the real sets and was measured on these is in :mod:`fl_core.experiments.calibration`."""

SURROGATES = tuple(map(_surrogate, RECIPES))
