"""Pictures from arithmetic: soft noise, and figures with a pattern painted on many canvases at once.

Everything is made of additions, multiplications, divisions, square roots and comparisons of float32 arrays, each of
them correctly rounded by every processor: the same numbers give the same bytes on any machine and with any number
of threads.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

Array = NDArray[np.float32]

FORM = 13
"""Numbers of a figure that say what it looks like without its colours."""

FIGURE = FORM + 6
"""Numbers of a figure, its two colours included."""


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
    return field


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
    """Where objects are: arrays ``[n]``; the image is 2 wide.

    Attributes
    ----------
    x, y, scale : Array
    turn : Array
        From -1 (-90 degrees) to 1 (90 degrees).
    mirror : Array
        1 or -1.
    """

    x: Array
    y: Array
    scale: Array
    turn: Array
    mirror: Array

    @staticmethod
    def random(rng: Generator, n: int, reach: float, scale: tuple[float, float], turn: float) -> Pose:
        """Draw centres up to `reach` from the middle, scales from an interval, and turns up to `turn`."""
        x, y, size, angle, side = uniform(rng, 5, n)
        return Pose(
            between(-reach, reach, x),
            between(-reach, reach, y),
            between(*scale, size),
            between(-turn, turn, angle),
            np.where(side < 0.5, np.float32(-1), np.float32(1)),
        )


def paint(canvas: Array, pose: Pose, figure: Array, light: Array) -> None:
    """Paint one figure on each image.

    Its outline is the unit circle of a norm that mixes the Euclidean, the maximum and the sum norm, bent, tapered,
    stretched, turned, and moved to its place in the object; its pattern are stripes or checks of two colours.

    Parameters
    ----------
    canvas : Array
        ``[n, 3, side, side]``, about 0 to 1; changed in place.
    pose : Pose
        Of the object that the figure is part of.
    figure : Array
        ``[n, FIGURE]``, numbers from 0 to 1.
    light : Array
        ``[n, side, side]``, added to the colours.
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
