"""Painting many small images at once with soft shapes."""

from __future__ import annotations

from torch import Tensor


class Canvas:
    """Images ``[n, 3, h, w]`` with coordinates ``u`` (right) and ``v`` (down) from -1 to 1 in each.

    `window` gives a part of it to paint small things faster.
    """

    def __init__(self, pixels: Tensor, u: Tensor, v: Tensor) -> None:
        self.pixels, self.u, self.v = pixels, u, v

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
