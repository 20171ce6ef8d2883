"""Convolution as one matrix product, for many models at once.

Vectorised over models, PyTorch's convolution becomes a grouped one, for which accelerators have no fast kernels; a
matrix product becomes a batched product, for which they have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode


class Columns(torch.autograd.Function):
    """What each output of a convolution reads ``[n, c kernel height kernel width, outputs]``.

    That is :func:`torch.nn.functional.unfold`, which on an accelerator would do one image after the other.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(images: Tensor, kernel: tuple[int, int], stride: tuple[int, int]) -> Tensor:
        """Copy the windows of `images` ``[n, c, height, width]``."""
        windows = images.unfold(2, kernel[0], stride[0]).unfold(3, kernel[1], stride[1])
        return windows.permute(0, 1, 4, 5, 2, 3).flatten(1, 3).flatten(2).contiguous()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keep what the way back needs."""
        images, ctx.kernel, ctx.stride = inputs
        ctx.shape = images.shape

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, None, None]:
        """Add up what a pixel contributed, always in the same order."""
        image = gradient.new_zeros(ctx.shape)
        windows = image.unfold(2, ctx.kernel[0], ctx.stride[0]).unfold(3, ctx.kernel[1], ctx.stride[1])
        parts = gradient.unflatten(2, windows.shape[2:4]).unflatten(1, (-1, *ctx.kernel))
        for y, x in product(*map(range, ctx.kernel)):  # F.fold takes longer on an accelerator
            windows[..., y, x] += parts[:, :, y, x]
        return image, None, None


def conv2d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
    groups: int = 1,
) -> Tensor:  # fmt: skip
    """Convolve as :func:`torch.nn.functional.conv2d` does, by its own kernel where the kernel has gaps or groups.

    Images with many outputs are multiplied one by one, so that sums over all of them, the weight's gradient, are not
    left to a few processors; those with few as one matrix.
    """
    if groups != 1 or dilation not in (1, (1, 1)) or isinstance(padding, str) or input.dim() != 4:
        return torch.conv2d(input, weight, bias, stride, padding, dilation, groups)
    (down, right), (height, width) = _pair(stride), _pair(padding)
    padded = F.pad(input, (width, width, height, height)) if height or width else input
    columns, kernel = Columns.apply(padded, weight.shape[2:], (down, right)), weight.flatten(1)
    if columns.shape[2] < len(kernel):
        result = F.linear(columns.mT.flatten(0, 1), kernel).unflatten(0, (len(input), -1)).mT
    else:
        result = torch.bmm(kernel.expand(len(input), -1, -1), columns)
    rows = (padded.shape[2] - weight.shape[2]) // down + 1
    return (result if bias is None else result + bias[:, None]).unflatten(2, (rows, -1))


def _pair(given: Any) -> tuple[int, int]:
    return (given, given) if isinstance(given, int) else tuple(given)


class ByProducts(TorchFunctionMode):
    """While it is active, networks convolve by :func:`conv2d` of this module."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[Any], args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # fmt: skip
        """Call `func`, or what takes its place."""
        return (conv2d if func is torch.conv2d else func)(*args, **(kwargs or {}))
