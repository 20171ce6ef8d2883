"""Residual networks for small images (He, Zhang, Ren & Sun, 2016): ResNet-20 and ResNet-18 with the CIFAR stem."""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from fl_core.models.sizes import Width, image_shape, scaled
from fl_core.models.units import HiddenLayer


class ResNet(nn.Module):
    """A 3x3 convolution, stages of basic blocks, the mean over the image, and a dense layer.

    Parameters
    ----------
    channels, classes : int
    widths : list of int
        Channels of each stage; all but the first one halve the image.
    blocks : int
        Basic blocks in each stage.
    shortcut : callable
        Makes the module by which the input of a block that halves the image skips it, of the numbers of channels
        before and after the block.
    """

    def __init__(
        self,
        channels: int,
        classes: int,
        widths: list[int],
        blocks: int,
        shortcut: Callable[[int, int], nn.Module],
    ) -> None:
        super().__init__()
        self.conv = _convolution(channels, widths[0], 1)
        self.norm = nn.BatchNorm2d(widths[0])
        self.blocks = nn.Sequential()
        before = widths[0]
        for stage, after in enumerate(widths):
            for block in range(blocks):
                halve = stage > 0 and block == 0
                skip = shortcut(before, after) if halve else nn.Identity()
                self.blocks.append(Block(before, after, 2 if halve else 1, skip))
                before = after
        self.fc = nn.Linear(before, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Map images ``[n, c, h, w]`` to logits ``[n, classes]``."""
        x = self.blocks(F.relu(self.norm(self.conv(images))))
        return self.fc(x.mean((2, 3)))

    def hidden_layers(self) -> list[HiddenLayer]:
        """Return the first convolution of each block, which nothing but the second one reads."""
        blocks = [block for block in self.blocks if isinstance(block, Block)]
        return [HiddenLayer(block.conv1, block.norm1, block.conv2) for block in blocks]


class ResNet20(ResNet):
    """ResNet-20: three stages of three blocks with 16, 32 and 64 channels; shortcuts without parameters (option A).

    Notes
    -----
    269,722 parameters for ``(3, 32, 32)`` and 10 classes, with 1,376 running statistics (and 19 counters).
    """

    def __init__(self, shape: tuple[int, ...], classes: int, width: Width = 1.0) -> None:
        channels, _, _ = image_shape("resnet20", shape)
        super().__init__(channels, classes, scaled(width, 16, 32, 64), 3, Subsample)


class ResNet18(ResNet):
    """ResNet-18 with the CIFAR stem: four stages of two blocks with 64 to 512 channels.

    Notes
    -----
    11,173,962 parameters for ``(3, 32, 32)`` and 10 classes (SD-FEEL's model), with 9,600 running statistics (and 20
    counters).
    """

    def __init__(self, shape: tuple[int, ...], classes: int, width: Width = 1.0) -> None:
        channels, _, _ = image_shape("resnet18", shape)
        super().__init__(channels, classes, scaled(width, 64, 128, 256, 512), 2, Projection)


class Block(nn.Module):
    """Two 3x3 convolutions with batch normalisation, added to what comes by the shortcut."""

    def __init__(self, before: int, after: int, stride: int, shortcut: nn.Module) -> None:
        super().__init__()
        self.conv1 = _convolution(before, after, stride)
        self.norm1 = nn.BatchNorm2d(after)
        self.conv2 = _convolution(after, after, 1)
        self.norm2 = nn.BatchNorm2d(after)
        self.shortcut = shortcut

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[n, before, h, w]`` to ``[n, after, ceil(h / stride), ceil(w / stride)]``."""
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(y + self.shortcut(x))


class Subsample(nn.Module):
    """Every second pixel, and channels of zeros (option A)."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.extra = after - before

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[n, before, h, w]`` to ``[n, after, ceil(h / 2), ceil(w / 2)]``."""
        return F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 0, self.extra))


class Projection(nn.Sequential):
    """A 1x1 convolution of every second pixel, normalised (option B)."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__(nn.Conv2d(before, after, 1, stride=2, bias=False), nn.BatchNorm2d(after))


def _convolution(before: int, after: int, stride: int) -> nn.Conv2d:
    return nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False)
