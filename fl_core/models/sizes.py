"""Which inputs a network reads, and how its `width` scales its layers."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fl_core.errors import SpecError

Width = Annotated[
    float, Field(gt=0, le=1, description="Scales the numbers of channels and hidden units; above 0, at most 1.")
]
"""An option of the networks that are large for a laptop."""


def scaled(width: float, *counts: int) -> list[int]:
    """Return `counts` times `width`, rounded, but at least 1."""
    return [max(1, round(width * count)) for count in counts]


def image_shape(
    network: str, shape: tuple[int, ...], smallest: int = 1, channels: int | None = None
) -> tuple[int, int, int]:
    """Return `shape` if it is the ``(channels, height, width)`` of images that `network` can read.

    Parameters
    ----------
    network : str
        Its name, for the message.
    shape : tuple of int
    smallest : int
        Least height and width, in pixels.
    channels : int, optional
        The only possible number of channels.

    Raises
    ------
    SpecError
        If `shape` is another one.
    """
    if len(shape) == 3 and min(shape[1:]) >= smallest and channels in (None, shape[0]):
        return shape[0], shape[1], shape[2]
    depth = "channels" if channels is None else channels
    size = f", at least {smallest} x {smallest} pixels" if smallest > 1 else ""
    raise SpecError(f"{network} reads images of shape ({depth}, height, width){size}, {_given(shape)}")


def token_length(network: str, shape: tuple[int, ...], shortest: int) -> int:
    """Return the length of token sequences of `shape` ``(length,)`` if `network` can read them.

    Raises
    ------
    SpecError
        If these are no tokens, or fewer than `shortest`.
    """
    if len(shape) == 1 and shape[0] >= shortest:
        return shape[0]
    raise SpecError(f"{network} reads token sequences of shape (length,), at least {shortest} long, {_given(shape)}")


def _given(shape: tuple[int, ...]) -> str:
    kind = {1: "token sequences", 3: "images"}.get(len(shape), "inputs")
    return f"not {kind} of shape {tuple(shape)}"
