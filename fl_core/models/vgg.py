"""VGG networks (Simonyan & Zisserman, 2015) for 32x32 images, without batch normalisation."""

from __future__ import annotations

from math import sqrt

import torch
from torch import nn

from fl_core.models.sizes import Width, image_shape, scaled


class VGG11(nn.Sequential):
    """VGG-11: eight 3x3 convolutions (64 to 512 channels), five of them pooled, and one dense layer.

    Notes
    -----
    9,225,610 parameters for ``(3, 32, 32)`` and 10 classes, 9,271,780 with 100 (FedASMU specification, 6.2).
    """

    def __init__(self, shape: tuple[int, ...], classes: int, width: Width = 1.0) -> None:
        channels, height, columns = image_shape("vgg11", shape, smallest=32)
        plan = scaled(width, 64, 128, 256, 256, 512, 512, 512, 512)
        super().__init__(
            *_convolutions(channels, plan),
            nn.Flatten(),
            nn.Linear(plan[-1] * (height // 32) * (columns // 32), classes),
        )


class VGG11s(nn.Sequential):
    """VGG11s, FedLuck's small form of VGG-11: 32 to 128 channels and two hidden dense layers of 128.

    Notes
    -----
    865,482 parameters for ``(3, 32, 32)`` and 10 classes, 864,906 for one channel.
    """

    def __init__(self, shape: tuple[int, ...], classes: int, width: Width = 1.0) -> None:
        channels, height, columns = image_shape("vgg11s", shape, smallest=32)
        plan = scaled(width, 32, 64, 128, 128, 128, 128, 128, 128)
        dense = plan[-1]
        super().__init__(
            *_convolutions(channels, plan),
            nn.Flatten(),
            nn.Linear(dense * (height // 32) * (columns // 32), dense),
            nn.ReLU(),
            nn.Linear(dense, dense),
            nn.ReLU(),
            nn.Linear(dense, classes),
        )

    def reset(self, generator: torch.Generator) -> None:
        """Draw the convolutions as FedLuck's official code does: N(0, 2 / (9 outputs)), zero biases (A29)."""
        for module in self:
            if isinstance(module, nn.Conv2d):
                assert module.bias is not None
                nn.init.normal_(module.weight, std=sqrt(2 / (9 * module.out_channels)), generator=generator)
                nn.init.zeros_(module.bias)


def _convolutions(channels: int, plan: list[int]) -> list[nn.Module]:
    """Return the eight convolutions with `plan` channels; all but the third, fifth and seventh are pooled."""
    layers: list[nn.Module] = []
    for number, (before, after) in enumerate(zip([channels, *plan], plan, strict=False), start=1):
        layers.append(nn.Conv2d(before, after, 3, padding=1))
        if number not in (3, 5, 7):
            layers.append(nn.MaxPool2d(2))  # before ReLU, with which it commutes bit for bit
        layers.append(nn.ReLU())
    return layers
