"""A way around a kernel of oneDNN that writes past its workspace and corrupts memory.

The gradients of a strided convolution of 1 x 1 pixels are wrong, or end the process, if it has fewer input channels
than a block and images are laid out channels last (https://github.com/uxlfoundation/oneDNN/issues/6035): seen with
AVX2, and the kernel for AVX-512 has the same line. The same convolution, of only those pixels that it looks at and
without a stride, takes another kernel. Nothing changes elsewhere.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

BLOCK = {"AVX2": 8, "AVX512": 16}.get(torch.backends.cpu.get_cpu_capability(), 0)
"""Channels in a block of this processor's kernels; 0: they have no such fault."""
_conv2d = torch.conv2d


def conv2d(
    input: torch.Tensor, weight: torch.Tensor, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
    groups: int = 1,
) -> torch.Tensor:  # fmt: skip
    """Convolve as :func:`torch.nn.functional.conv2d` does."""
    down, right = (stride, stride) if isinstance(stride, int) else [*stride, *stride][:2]  # one number is for both
    if weight.shape[2:] == (1, 1) and weight.shape[1] < BLOCK and down * right > 1 and padding in (0, (0, 0)):
        input, stride = input[..., ::down, ::right], 1
    return _conv2d(input, weight, bias, stride, padding, dilation, groups)


def avoid_overrun() -> None:
    """Have all networks of the process, users' too, convolve by :func:`conv2d` where the processor needs it."""
    if BLOCK:
        F.conv2d = conv2d  # type: ignore[assignment]  # its stub has overloads: padding is numbers or a word
