"""Dropout whose masks come from outside.

`torch.nn.Dropout` draws from a stream that all threads share, so what a device learns would depend on who trains
beside it. Here whoever trains draws the masks of a mini-batch from the job's own stream and hands them over, either
by assignment to ``module.mask`` or as buffers of `torch.func.functional_call`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Dropout(nn.Module):
    """Multiply by a given mask in training; do nothing in evaluation.

    Parameters
    ----------
    probability : float
        Of a unit to be dropped, in [0, 1).
    shape : tuple of int
        Of one sample's activations.

    Attributes
    ----------
    mask : Tensor
        ``[n, *shape]`` for a mini-batch of ``n`` samples; at first a scalar 1, with which nothing is dropped. It is
        not persistent: no part of the model, and so not in the flat vector.
    """

    mask: Tensor

    def __init__(self, probability: float, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.probability, self.shape = probability, shape
        self.register_buffer("mask", torch.ones(()), persistent=False)

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Return a mask ``[count, *shape]`` for `count` samples: 0, or 1/(1-p) so that the mean is 1.

        Masks of images are laid out channels-last, as the activations are.
        """
        first, *rest = self.shape
        kept = torch.rand(count, *rest, first, generator=generator, device=generator.device) >= self.probability
        return kept.to(torch.float32).div_(1 - self.probability).movedim(-1, 1)

    def forward(self, activations: Tensor) -> Tensor:
        """Map activations ``[n, *shape]`` to activations of the same shape."""
        return activations * self.mask if self.training else activations

    def extra_repr(self) -> str:
        """Return what ``print(network)`` shows."""
        return f"{self.probability}, {self.shape}"


def named_dropouts(network: nn.Module) -> dict[str, Dropout]:
    """Return the dropout layers of `network` by name, in order; the mask of layer ``x`` is the buffer ``x.mask``."""
    return {name: module for name, module in network.named_modules() if isinstance(module, Dropout)}
