"""A stand-in for LEAF's CelebA: drawn portraits of simulated celebrities, smiling or not.

What a celebrity looks like (skin, hair, geometry, lips) is his or her own; pose, light, clothes, background and the
expression are the image's. A smile is a matter of degree: it bends, widens and opens the mouth, lifts the cheeks and
narrows the eyes, each more or less, and faint smiles and faint refusals look alike. The frame is CelebA's aligned one
squeezed to 84x84, so that eyes and mouth are about where they are in the real images.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fl_core.datasets.base import Split, Surrogate
from fl_core.datasets.surrogates.blocks import fill, shares
from fl_core.streams import stream

SEED = 0
SIDE = 84
CELEBRITIES = 2_000
SMILING = 0.48  # of all images

# Degrees of smiling are +1 and -1 give or take this much; each sign of it then errs by the second number.
DEGREE, SIGNS = 0.45, 0.6
REST = 0.04  # how much the mouths of celebrities at rest differ in curvature (standard deviation)
TALKING = 0.25  # how often a mouth is open for another reason

SKIN = np.array([[0.96, 0.80, 0.69], [0.88, 0.67, 0.53], [0.72, 0.50, 0.37], [0.45, 0.30, 0.22]], np.float32)
HAIR = np.array([[0.10, 0.08, 0.07], [0.30, 0.19, 0.11], [0.78, 0.62, 0.36], [0.55, 0.25, 0.12], [0.62, 0.60, 0.58]],
                np.float32)  # fmt: skip


class Canvas(NamedTuple):
    """Images ``[n, 3, h, w]`` with coordinates ``u`` (right) and ``v`` (down) from -1 to 1 in each.

    `window` gives a part of it to paint small things faster.
    """

    pixels: Tensor
    u: Tensor
    v: Tensor

    def window(self, top: int, bottom: int, left: int = 0, right: int | None = None) -> Canvas:
        """Return these rows and columns; what is painted there is painted here."""
        part = (..., slice(top, bottom), slice(left, right))
        return Canvas(self.pixels[part], self.u[part], self.v[part])

    def paint(self, share: Tensor, colour: Tensor) -> None:
        """Mix in a colour ``[n or 1, 3, h or 1, w or 1]`` as far as `share` ``[n, h, w]`` says, from 0 to 1."""
        self.pixels.lerp_(colour.expand_as(self.pixels), share[:, None].expand_as(self.pixels))

    def dot(self, u: Tensor | float, v: Tensor | float, width: Tensor | float, height: Tensor | float) -> Tensor:
        """Return a soft spot."""
        return soft(((self.u - u) / width).square() + ((self.v - v) / height).square())

    def ellipse(
        self, u: Tensor | float, v: Tensor | float, width: Tensor | float, height: Tensor | float, edge: float = 12
    ) -> Tensor:
        """Return the cover of an ellipse of these half axes, 1 inside and 0 outside."""
        return cover(1 - ((self.u - u) / width).square() - ((self.v - v) / height).square(), edge)


def soft(distance: Tensor) -> Tensor:
    """Return nearly exp(-distance), but exactly 0 far away."""
    return (1 - distance / 4).clamp_(min=0).square_().square_()


def cover(inside: Tensor, edge: float) -> Tensor:
    """Return 1 where `inside` is positive and 0 where it is negative, with a ramp of slope `edge` between."""
    return (0.5 + edge * inside).clamp_(0, 1)


@dataclass(frozen=True)
class Celebrity:
    """What one person always looks like; lengths in half sides of the image, colours from 0 to 1."""

    skin: np.ndarray
    hair: np.ndarray
    lips: np.ndarray
    iris: np.ndarray
    width: float
    height: float
    jaw: float
    eyes: float  # half their distance
    eye_size: float
    brow: float  # thickness
    brow_tilt: float
    nose: float
    mouth: float  # half its width
    mouth_at: float
    lip: float  # thickness
    rest: float  # curvature of the mouth at rest
    hairline: float
    hair_length: float
    beard: float
    glasses: float  # how often worn
    smiling: float  # how often


def celebrity(number: int) -> Celebrity:
    """Return the celebrity of this number."""
    draw = stream(SEED, "faces/celebrity", number)
    shade = draw.beta(1, 1.6) * (len(SKIN) - 1)
    low = min(int(shade), len(SKIN) - 2)
    skin = SKIN[low] + (SKIN[low + 1] - SKIN[low]) * (shade - low)
    hair = HAIR[draw.choice(len(HAIR), p=[0.35, 0.33, 0.2, 0.07, 0.05])]
    bearded = draw.random() < 0.2
    normal = iter(draw.standard_normal(24).tolist())
    return Celebrity(
        skin=(skin * (1 + 0.04 * draw.standard_normal(3))).astype(np.float32),
        hair=(hair * (1 + 0.15 * draw.standard_normal() + 0.03 * draw.standard_normal(3))).astype(np.float32),
        lips=(skin * [0.88, 0.55, 0.55] * (1 + 0.08 * draw.standard_normal(3))).astype(np.float32),
        iris=np.array([[0.25, 0.15, 0.08], [0.3, 0.45, 0.6], [0.3, 0.4, 0.25]], np.float32)[draw.integers(3)],
        width=0.50 + 0.035 * next(normal),
        height=0.66 + 0.03 * next(normal),
        jaw=0.35 + 0.12 * next(normal),
        eyes=0.225 + 0.012 * next(normal),
        eye_size=0.095 + 0.008 * next(normal),
        brow=0.028 + 0.007 * next(normal),
        brow_tilt=0.12 * next(normal),
        nose=0.075 + 0.012 * next(normal),
        mouth=0.19 + 0.018 * next(normal),
        mouth_at=0.41 + 0.02 * next(normal),
        lip=0.034 + 0.008 * next(normal),
        rest=REST * next(normal),
        hairline=-0.40 + 0.06 * next(normal),
        hair_length=draw.choice([0.1, 1.1]) + 0.15 * next(normal),
        beard=0.5 * draw.random() if bearded else 0.0,
        glasses=draw.beta(0.15, 2),
        smiling=draw.beta(4 * SMILING, 4 * (1 - SMILING)),
    )


class Signs(NamedTuple):
    """What shows of the degree of smiling in each of `n` images, as columns ``[n, 1, 1]``."""

    curve: Tensor
    widen: Tensor
    open: Tensor
    cheeks: Tensor
    narrow: Tensor


def _signs(smiling: np.ndarray, draw: np.random.Generator) -> Signs:
    n = len(smiling)
    degree = 2 * smiling - 1 + DEGREE * draw.standard_normal(n)
    curve, widen, gape, cheeks, narrow = degree + SIGNS * draw.standard_normal((5, n))
    talking = (draw.random(n) < TALKING) * draw.uniform(0.02, 0.07, n)
    return Signs(
        curve=_column(0.03 + 0.035 * curve),
        widen=_column(0.022 * widen),
        open=_column(np.maximum(0.030 * gape, talking).clip(0, 0.09)),
        cheeks=_column((0.11 * (cheeks + 1)).clip(0, 0.4)),
        narrow=_column((1 - 0.14 * narrow).clip(0.5, 1.3)),
    )


def _column(values: np.ndarray) -> Tensor:
    return torch.from_numpy(np.asarray(values, np.float32))[:, None, None]


def portraits(person: Celebrity, smiling: np.ndarray, draw: np.random.Generator) -> Tensor:
    """Return images ``[n, 3, 84, 84]`` (uint8) of one celebrity, `smiling` (``[n]``, 0 or 1) or not."""
    n = len(smiling)
    signs = _signs(smiling, draw)
    pose = draw.standard_normal((5, n)) * np.array([0.06, 0.05, 0.02, 0.02, 0.03])[:, None]
    yaw, roll, x, y, size = map(_column, pose)
    light = draw.standard_normal((n, 2)) * 0.14
    tint = torch.from_numpy(1 + 0.13 * draw.standard_normal((n, 1)) + 0.04 * draw.standard_normal((n, 3)))

    grid = torch.linspace(-1, 1, SIDE)
    u0, v0 = grid[None, None, :] - x, grid[None, :, None] - y
    u, v = (u0 + roll * v0) * (1 - size), (v0 - roll * u0) * (1 - size)
    canvas = Canvas(_backdrop(n, draw), u.contiguous(), v.contiguous())

    skin, hair = _colour(person.skin), _colour(person.hair)
    clothes = torch.from_numpy(draw.random((n, 3), dtype=np.float32))[..., None, None]
    shine = (0.8 + 0.25 * v + 0.15 * torch.sin(9 * u + 3 * v))[:, None] * hair
    volume = _column(1 + 0.06 * draw.standard_normal(n))
    canvas.paint(canvas.ellipse(0, -0.12, (person.width + 0.14) * volume, 0.72 * volume), shine)
    if person.hair_length > 0.5:
        long = cover(((person.width + 0.13) * volume - u.abs()), 10) * cover(person.hair_length - v, 10)
        canvas.paint(long * cover(v, 10), shine)
    canvas.paint(cover(0.24 - u.abs(), 14) * cover(v - 0.3, 8), 0.78 * skin)
    canvas.paint(canvas.ellipse(0, 1.28, 0.95, 0.48), clothes)

    side = u / (person.width * (1 - person.jaw * (v - 0.15).clamp(min=0)))
    round_ = side.square() + ((v - 0.06) / person.height).square()
    shade = 1.05 - 0.22 * round_ + _column(light[:, 0]) * u + _column(light[:, 1]) * v
    face = cover(1 - round_, 10)
    canvas.paint(face, shade[:, None] * skin)
    if person.beard:
        canvas.paint(face * person.beard * cover(v - 0.28, 4) * cover(round_ - 0.12, 2), hair)
    fringe = person.hairline + _column(0.03 * draw.standard_normal(n)) + 0.5 * (u - 0.1).square()
    canvas.paint(cover(fringe - v, 12) * cover(1.25 - round_, 6), shine)

    turn = u - yaw
    inner = Canvas(canvas.pixels, turn, v)
    worn = _column(draw.random(n) < person.glasses)
    gaze = _column(0.015 * draw.standard_normal(n))
    _eyes(inner.window(28, 54), person, signs, shade[:, 28:54], worn, gaze)
    _nose_and_cheeks(inner.window(38, 66), person, signs, shade[:, 38:66])
    _mouth(inner.window(46, 76, 20, 64), person, signs, shade[:, 46:76, 20:64])

    image = canvas.pixels * tint.float()[..., None, None]
    grain = torch.from_numpy(draw.standard_normal((n, 1, SIDE, SIDE), dtype=np.float32))
    return (255 * (image + 0.02 * grain)).round_().clamp_(0, 255).to(torch.uint8)


def _colour(rgb: np.ndarray) -> Tensor:
    return torch.from_numpy(rgb)[None, :, None, None]


def _backdrop(n: int, draw: np.random.Generator) -> Tensor:
    """Return a blurred background: a few colours in a coarse grid."""
    colour = draw.random((n, 1, 1, 1)) + 0.12 * draw.standard_normal((n, 3, 1, 1))
    patches = 0.15 * draw.standard_normal((n, 1, 4, 4)) + 0.06 * draw.standard_normal((n, 3, 4, 4))
    coarse = torch.from_numpy((colour + patches).astype(np.float32)).clamp(0, 1)
    return torch.nn.functional.interpolate(coarse, size=(SIDE, SIDE), mode="bilinear", align_corners=True)


def _eyes(canvas: Canvas, person: Celebrity, signs: Signs, shade: Tensor, worn: Tensor, gaze: Tensor) -> None:
    away = canvas.u.abs() - person.eyes
    eye = Canvas(canvas.pixels, away, canvas.v - 0.03)
    lid = 0.45 * person.eye_size * signs.narrow
    skin = _colour(person.skin)
    eye.paint(0.45 * eye.dot(0, 0, 0.15, 0.08), 0.65 * skin * shade[:, None])
    white = eye.ellipse(0, 0, person.eye_size, lid, 2.5)
    eye.paint(white, torch.full((1, 3, 1, 1), 0.9))
    look = Canvas(canvas.pixels, away - gaze * canvas.u.sign(), eye.v)
    eye.paint(white * look.ellipse(0, 0, 0.042, 0.042, 2), _colour(person.iris))
    eye.paint(white * look.ellipse(0, 0, 0.02, 0.02, 2), torch.full((1, 3, 1, 1), 0.03))
    rim = eye.v + lid * (1 - (away / person.eye_size).square())
    eye.paint(0.8 * soft((rim / 0.018).square()) * cover(1.1 * person.eye_size - away.abs(), 20), 0.2 * skin)
    arch = eye.v + 0.15 - person.brow_tilt * away - 1.6 * away.square()
    brow = soft((arch / person.brow).square()) * cover(0.13 - away.abs(), 16)
    eye.paint(0.85 * brow, 0.6 * _colour(person.hair))
    if worn.any():
        frame = (away / 0.15).square() + (eye.v / 0.11).square()
        rims = soft(((frame - 1) / 0.22).square())
        bridge = soft(((eye.v + 0.03) / 0.018).square()) * cover(-away - 0.13, 20)
        eye.paint(0.8 * worn * torch.maximum(rims, bridge), torch.full((1, 3, 1, 1), 0.12))


def _nose_and_cheeks(canvas: Canvas, person: Celebrity, signs: Signs, shade: Tensor) -> None:
    skin, away = _colour(person.skin) * shade[:, None], canvas.u.abs()
    both = Canvas(canvas.pixels, away, canvas.v)
    both.paint(0.5 * both.dot(0.75 * person.nose, 0.245, 0.03, 0.02), 0.35 * skin)
    canvas.paint(0.3 * canvas.dot(0, 0.275, person.nose, 0.03), 0.6 * skin)
    canvas.paint(0.35 * canvas.dot(0, 0.17, 0.03, 0.09), 1.2 * skin)
    both.paint(signs.cheeks * both.dot(0.3, 0.2, 0.11, 0.09), skin * torch.tensor([1.25, 0.98, 0.95])[:, None, None])
    fold = away - 0.11 - 0.55 * (canvas.v - 0.2)
    crease = soft((fold / 0.03).square()) * cover(canvas.v - 0.22, 12) * cover(0.46 - canvas.v, 12)
    both.paint(signs.cheeks * crease, 0.55 * skin)


def _mouth(canvas: Canvas, person: Celebrity, signs: Signs, shade: Tensor) -> None:
    half = person.mouth + signs.widen
    across = canvas.u / half
    middle = canvas.v - person.mouth_at - (person.rest + signs.curve) * (0.6 - across.square())
    taper = (1 - across.square()).clamp(min=0)
    gap = signs.open * taper.sqrt()
    thick = person.lip * (0.35 + 0.65 * taper)
    lips = cover((thick + gap - (middle - 0.2 * gap).abs()) / 0.05, 2) * cover((1.05 - across.abs()) / 0.1, 1)
    canvas.paint(0.85 * lips, _colour(person.lips) * shade[:, None])
    inside = cover((gap - (middle - 0.2 * gap).abs()) / 0.04, 2) * cover((0.95 - across.abs()) / 0.1, 1)
    canvas.paint(inside * (signs.open > 0), torch.tensor([0.25, 0.08, 0.08])[None, :, None, None])
    teeth = inside * cover((0.55 * gap - middle) / 0.03, 1) * cover((0.8 - across.abs()) / 0.1, 1)
    canvas.paint(0.9 * teeth * (signs.open > 0.015), torch.full((1, 3, 1, 1), 0.93))
    line = soft((middle / 0.016).square()) * cover((1.1 - across.abs()) / 0.1, 1)
    canvas.paint(0.7 * line * (signs.open <= 0.015), 0.4 * _colour(person.lips))
    corners = Canvas(canvas.pixels, across.abs(), middle)
    canvas.paint(0.4 * corners.dot(1.05, 0, 0.12, 0.03), 0.45 * _colour(person.skin))


# LEAF's 177,457 and 22,831 images of 9,343 celebrities, for 2,000 of them.
SIZES = (37_987, 4_887)


def _split(part: str, wanted: int | None) -> Split:
    def draw(number: int, count: int) -> Split:
        person, accident = celebrity(number), stream(SEED, f"faces/celeba/{part}", number)
        smiling = (accident.random(count) < person.smiling).astype(np.int64)
        return Split(portraits(person, smiling, accident), torch.from_numpy(smiling), torch.full((count,), number))

    # Mean and standard deviation of table 1 of the LEAF paper.
    weights = stream(SEED, "faces/celeba/sizes").normal(21.44, 7.63, CELEBRITIES).clip(5, 35)
    return fill((3, SIDE, SIDE), shares(weights, SIZES[part == "test"]), draw, wanted, owned=True)


ABOUT = f"Drawn portraits of {CELEBRITIES} simulated celebrities, in the order of the celebrities."
SURROGATES = (Surrogate("celeba", 1, (3, SIDE, SIDE), ("not smiling", "smiling"), SIZES, _split, ABOUT),)
