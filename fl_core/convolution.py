"""Convolution as one matrix product, for many models at once.

Vectorised over models, PyTorch's convolution becomes a grouped one, for which accelerators have no fast kernels; a
matrix product becomes a batched product, for which they have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode


class Windows(torch.autograd.Function):
    """What each output of a convolution reads, ``[n, height, width, c, kernel height, kernel width]``."""

    generate_vmap_rule = True

    @staticmethod
    def forward(images: Tensor, kernel: tuple[int, int], stride: tuple[int, int]) -> Tensor:
        """Copy the windows of `images` ``[n, c, height, width]``."""
        windows = images.unfold(2, kernel[0], stride[0]).unfold(3, kernel[1], stride[1])
        return windows.permute(0, 2, 3, 1, 4, 5).contiguous()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keep what the way back needs."""
        images, _, ctx.stride = inputs
        ctx.shape = images.shape

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, None, None]:
        """Add up what a pixel contributed, always in the same order."""
        if not ctx.needs_input_grad[0]:
            return None, None, None
        (height, width), (down, right) = gradient.shape[1:3], ctx.stride
        image = gradient.new_zeros(ctx.shape)
        pixels = gradient.permute(4, 5, 0, 3, 1, 2)
        for i in range(len(pixels)):
            for j in range(len(pixels[i])):
                image[:, :, i : i + down * height : down, j : j + right * width : right] += pixels[i, j]
        return image, None, None


def conv2d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
    groups: int = 1,
) -> Tensor:  # fmt: skip
    """Convolve as :func:`torch.nn.functional.conv2d` does, by its own kernel where the kernel has gaps or groups."""
    if groups != 1 or dilation not in (1, (1, 1)) or isinstance(padding, str) or input.dim() != 4:
        return torch.conv2d(input, weight, bias, stride, padding, dilation, groups)
    (down, right), (rows, columns) = ((x, x) if isinstance(x, int) else x for x in (stride, padding))
    padded = F.pad(input, (columns, columns, rows, rows)) if rows or columns else input
    windows = Windows.apply(padded, weight.shape[2:], (down, right))
    return (
        F.linear(windows.flatten(3).flatten(0, 2), weight.flatten(1), bias)
        .unflatten(0, windows.shape[:3])
        .movedim(3, 1)
    )


class ByProducts(TorchFunctionMode):
    """While it is active, networks convolve by :func:`conv2d` of this module."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call `func`, or what takes its place."""
        return (conv2d if func is torch.conv2d else func)(*args, **(kwargs or {}))
