"""The networks of the papers, each as its paper or official code states it.

Where the order is convolution, ReLU, max pooling, the code pools first: the two commute bit for bit, and ReLU then
has a quarter of the work. Counts of parameters are for ``(3, 32, 32)`` and 10 classes unless said otherwise;
:func:`fl_core.models.num_parameters` has all others.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod, sqrt
from typing import Annotated

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from fl_core.errors import SpecError
from fl_core.models.units import HiddenLayer

_WIDTH = "Scales the numbers of channels and hidden units; above 0, at most 1."
Width = Annotated[float, Field(gt=0, le=1, description=_WIDTH)]  # of the networks that are large for a laptop
Vocabulary = Annotated[int, Field(ge=2, description="Number of different tokens; ids are below it, 0 is padding.")]


class Dropout(nn.Module):
    """Multiply by a given mask in training; do nothing in evaluation.

    `torch.nn.Dropout` draws from a stream that all threads share, so what a device learns would depend on who trains
    beside it. Here whoever trains draws the masks of a mini-batch from the job's own stream and hands them over,
    either by assignment to ``module.mask`` or as buffers of `torch.func.functional_call`: ``[n, *shape]`` for `n`
    samples, at first a scalar 1, with which nothing is dropped. A mask is no part of the model.
    """

    mask: Tensor

    def __init__(self, probability: float, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.probability, self.shape = probability, shape
        self.register_buffer("mask", torch.ones(()), persistent=False)

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Return a mask ``[count, *shape]``: 0, or 1/(1-p) so that the mean is 1; channels-last, as activations."""
        return self.scale(self.keep(count, generator))

    def keep(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw what of `count` samples is kept, channels last."""
        first, *rest = self.shape
        return torch.rand(count, *rest, first, generator=generator, device=generator.device) >= self.probability

    def scale(self, kept: Tensor) -> Tensor:
        """Return the mask of what :meth:`keep` has drawn ``[..., n, *shape]``."""
        mask = kept.to(torch.float32).div_(1 - self.probability)
        return mask.movedim(-1, -len(self.shape))

    def forward(self, activations: Tensor) -> Tensor:
        """Map activations ``[n, *shape]`` to activations of the same shape."""
        return activations * self.mask if self.training else activations

    def extra_repr(self) -> str:
        """Return what ``print(network)`` shows."""
        return f"{self.probability}, {self.shape}"


def named_dropouts(network: nn.Module) -> dict[str, Dropout]:
    """Return the dropout layers of `network` by name, in order; the mask of layer ``x`` is the buffer ``x.mask``."""
    return {name: module for name, module in network.named_modules() if isinstance(module, Dropout)}


class Linear(nn.Sequential):
    """Softmax regression on features, or the flattened image: 7,850 parameters for 28x28 and 10 classes."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__(nn.Flatten(), nn.Linear(prod(shape), classes))


class LeNet5(nn.Module):
    """Two 5x5 convolutions (6 and 16 channels) and dense layers of 120, 84 and `classes`.

    LeCun, Bottou, Bengio & Haffner (1998) with ReLU and max pooling: 62,006 parameters, 61,706 for ``(1, 28, 28)``
    (156 + 2,416 + 48,120 + 10,164 + 850). Images lower or narrower than 32 pixels, for which the network was drawn,
    get a border of 2 zeros on each side.
    """

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        channels, height, width = image_shape("lenet5", shape, smallest=12)
        border = 2 if min(height, width) < 32 else 0
        rows, columns = (((size + 2 * border - 4) // 2 - 4) // 2 for size in (height, width))
        self.conv1 = nn.Conv2d(channels, 6, 5, padding=border)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * rows * columns, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Map images ``[n, c, h, w]`` to logits ``[n, classes]``."""
        x = F.relu(F.max_pool2d(self.conv1(images), 2))
        x = F.relu(F.max_pool2d(self.conv2(x), 2))
        x = F.relu(self.fc1(x.flatten(1)))
        return self.fc3(F.relu(self.fc2(x)))


class FedAsyncCNN(nn.Sequential):
    """FedAsync, Table 2: four 3x3 convolutions with batch normalisation, dense layer of 512, dropout 0.25.

    Order convolution, ReLU, normalisation, as in the official code (specification, A15). 2,625,866 parameters and 768
    running statistics for ``(3, 24, 24)``.
    """

    def __init__(self, shape: tuple[int, ...], classes: int, width: Width = 1.0) -> None:
        channels, height, columns = image_shape("fedasync_cnn", shape, smallest=4)
        first, second, dense = scaled(width, 64, 128, 512)
        features = (second, height // 4, columns // 4)
        super().__init__(
            *_normalised(channels, first),
            *_normalised(first, first),
            nn.MaxPool2d(2),
            Dropout(0.25, (first, height // 2, columns // 2)),
            *_normalised(first, second),
            *_normalised(second, second),
            nn.MaxPool2d(2),
            Dropout(0.25, features),
            nn.Flatten(),
            *_dense(prod(features), dense),
            Dropout(0.25, (dense,)),
            nn.Linear(dense, classes),
        )


class FedASMUCNN(nn.Sequential):
    """FedASMU, Table 3: two 2x2 convolutions (64 and 32 channels) without pooling and one dense layer.

    297,066 parameters, 2,889,156 with 100 classes.
    """

    def __init__(self, shape: tuple[int, ...], classes: int, width: Width = 1.0) -> None:
        channels, height, columns = image_shape("fedasmu_cnn", shape, smallest=3)
        first, second = scaled(width, 64, 32)
        super().__init__(
            nn.Conv2d(channels, first, 2),
            nn.ReLU(),
            nn.Conv2d(first, second, 2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(second * (height - 2) * (columns - 2), classes),
        )


class WKAFLCNN(nn.Sequential):
    """WKAFL on EMNIST: two 5x5 convolutions (32 and 64 channels) with pooling, dense layer of 512.

    The official code's ``CNN2``: 582,026 parameters for ``(1, 28, 28)``, 608,702 with 62 classes.
    """

    def __init__(self, shape: tuple[int, ...], classes: int, width: Width = 1.0) -> None:
        super().__init__(*_two_convolutions("wkafl_cnn", shape, classes, scaled(width, 32, 64, 512)))


class FedLuckCNN(nn.Sequential):
    """FedLuck on Fashion-MNIST: two 5x5 convolutions of 32 channels with pooling, dense layer of 256.

    The official code's ``CNN1``: 234,090 parameters for ``(1, 32, 32)``.
    """

    def __init__(self, shape: tuple[int, ...], classes: int, width: Width = 1.0) -> None:
        super().__init__(*_two_convolutions("fedluck_cnn", shape, classes, scaled(width, 32, 32, 256)))


class CelebACNN(nn.Sequential):
    """WKAFL on CelebA: one 4x4 convolution of 10 channels with pooling, dense layer of 100.

    The official code's ``CNN1``: 1,600,792 parameters for ``(3, 84, 84)`` and 2 classes.
    """

    def __init__(self, shape: tuple[int, ...], classes: int, width: Width = 1.0) -> None:
        channels, height, columns = image_shape("celeba_cnn", shape, smallest=5)
        filters, dense = scaled(width, 10, 100)
        super().__init__(
            *_pooled(nn.Conv2d(channels, filters, 4)),
            nn.Flatten(),
            *_dense(filters * ((height - 3) // 2) * ((columns - 3) // 2), dense),
            nn.Linear(dense, classes),
        )


class AlexNet(nn.Sequential):
    """Five 3x3 convolutions (64 to 384 channels), two dense layers of 4,096 with dropout 0.5 before each.

    Krizhevsky, Sutskever & Hinton (2012) in the form for 32x32 images: 23,272,266 parameters, 23,640,996 with 100
    classes (FedASMU specification, 6.2).
    """

    def __init__(self, shape: tuple[int, ...], classes: int, width: Width = 1.0) -> None:
        channels, height, columns = image_shape("alexnet", shape, smallest=15)
        a, b, c, d, dense = scaled(width, 64, 192, 384, 256, 4096)
        features = d * ((height + 1) // 16) * ((columns + 1) // 16)
        super().__init__(
            *_pooled(nn.Conv2d(channels, a, 3, stride=2, padding=1)),
            *_pooled(nn.Conv2d(a, b, 3, padding=1)),
            nn.Conv2d(b, c, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(c, d, 3, padding=1),
            nn.ReLU(),
            *_pooled(nn.Conv2d(d, d, 3, padding=1)),
            nn.Flatten(),
            Dropout(0.5, (features,)),
            *_dense(features, dense),
            Dropout(0.5, (dense,)),
            *_dense(dense, dense),
            nn.Linear(dense, classes),
        )


class VGG11(nn.Sequential):
    """VGG-11: eight 3x3 convolutions (64 to 512 channels), five of them pooled, and one dense layer.

    Simonyan & Zisserman (2015) for 32x32 images, without batch normalisation: 9,225,610 parameters, 9,271,780 with
    100 classes (FedASMU specification, 6.2).
    """

    def __init__(self, shape: tuple[int, ...], classes: int, width: Width = 1.0) -> None:
        channels, height, columns = image_shape("vgg11", shape, smallest=32)
        plan = scaled(width, 64, 128, 256, 256, 512, 512, 512, 512)
        features = plan[-1] * (height // 32) * (columns // 32)
        super().__init__(*_eight_convolutions(channels, plan), nn.Flatten(), nn.Linear(features, classes))


class VGG11s(nn.Sequential):
    """VGG11s, FedLuck's small form of VGG-11: 32 to 128 channels and two hidden dense layers of 128.

    865,482 parameters, 864,906 for one channel.
    """

    def __init__(self, shape: tuple[int, ...], classes: int, width: Width = 1.0) -> None:
        channels, height, columns = image_shape("vgg11s", shape, smallest=32)
        plan = scaled(width, 32, 64, 128, 128, 128, 128, 128, 128)
        dense = plan[-1]
        super().__init__(
            *_eight_convolutions(channels, plan),
            nn.Flatten(),
            *_dense(dense * (height // 32) * (columns // 32), dense),
            *_dense(dense, dense),
            nn.Linear(dense, classes),
        )

    def reset(self, generator: torch.Generator) -> None:
        """Draw the convolutions as FedLuck's official code does: N(0, 2 / (9 outputs)), zero biases (A29)."""
        for module in self:
            if isinstance(module, nn.Conv2d):
                assert module.bias is not None
                nn.init.normal_(module.weight, std=sqrt(2 / (9 * module.out_channels)), generator=generator)
                nn.init.zeros_(module.bias)


class ResNet(nn.Module):
    """A 3x3 convolution, stages of basic blocks, the mean over the image, and a dense layer.

    He, Zhang, Ren & Sun (2016) for small images. `widths` are the channels of each stage; all but the first one halve
    the image. `shortcut` makes, of the numbers of channels before and after, the module by which the input of a block
    that halves the image skips it.
    """

    def __init__(
        self, channels: int, classes: int, widths: list[int], blocks: int, shortcut: Callable[[int, int], nn.Module]
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

    269,722 parameters, with 1,376 running statistics (and 19 counters).
    """

    def __init__(self, shape: tuple[int, ...], classes: int, width: Width = 1.0) -> None:
        channels, _, _ = image_shape("resnet20", shape)
        super().__init__(channels, classes, scaled(width, 16, 32, 64), 3, Subsample)


class ResNet18(ResNet):
    """ResNet-18 with the CIFAR stem: four stages of two blocks with 64 to 512 channels.

    11,173,962 parameters (SD-FEEL's model), with 9,600 running statistics (and 20 counters).
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


class LSTM(nn.Module):
    """Two LSTM layers of 128 that read an image of one channel row by row, and a dense layer on the last state.

    FedLuck's network for spoken words: 216,330 parameters for ``(1, 32, 32)``. The initial state is zero. A row of
    the image is a step, not a frame of the sound (FedLuck specification, A23).
    """

    def __init__(self, shape: tuple[int, ...], classes: int, width: Width = 1.0) -> None:
        super().__init__()
        _, _, columns = image_shape("lstm", shape, channels=1)
        [hidden] = scaled(width, 128)
        self.lstm = nn.LSTM(columns, hidden, num_layers=2, batch_first=True)
        self.fc = nn.Linear(hidden, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Map images ``[n, 1, steps, inputs]`` to logits ``[n, classes]``."""
        states, _ = self.lstm(images.squeeze(1))
        return self.fc(states[:, -1])


class TextCNN(nn.Module):
    """TextCNN: an embedding of 128 numbers, 100 convolutions each over 3, 4 and 5 tokens, maximum over time.

    Kim (2014): 2,714,502 parameters for a vocabulary of 20,000 and 2 classes (FedASMU specification, 6.2). The
    embedding of the padding is zero and stays so.
    """

    def __init__(
        self, shape: tuple[int, ...], classes: int, vocabulary: Vocabulary = 20_000, width: Width = 1.0
    ) -> None:
        super().__init__()
        if len(shape) != 1 or shape[0] < 5:
            raise _cannot_read("textcnn", "token sequences of shape (length,), at least 5 long", shape)
        size, filters = scaled(width, 128, 100)
        self.embedding = nn.Embedding(vocabulary, size, padding_idx=0)
        self.convolutions = nn.ModuleList(nn.Conv2d(size, filters, (1, tokens)) for tokens in (3, 4, 5))
        self.fc = nn.Linear(3 * filters, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map token ids ``[n, length]`` to logits ``[n, classes]``."""
        # As an image one pixel high, laid out channels-last, a sentence takes PyTorch's faster kernels.
        embedded = self.embedding(tokens).transpose(1, 2).unsqueeze(2)
        maxima = [convolution(embedded).amax((2, 3)) for convolution in self.convolutions]
        return self.fc(F.relu(torch.cat(maxima, 1)))

    def hidden_layers(self) -> list[HiddenLayer]:
        """Return the three convolutions, whose outputs the dense layer reads side by side."""
        filters = self.fc.in_features // 3
        return [
            HiddenLayer(convolution, None, self.fc, number * filters, filters)
            for number, convolution in enumerate(self.convolutions)
        ]


def scaled(width: float, *counts: int) -> list[int]:
    """Return `counts` times `width`, rounded, but at least 1."""
    return [max(1, round(width * count)) for count in counts]


def image_shape(
    network: str, shape: tuple[int, ...], smallest: int = 1, channels: int | None = None
) -> tuple[int, int, int]:
    """Return `shape` if it is that of images, as ``(channels, height, width)``, which `network` can read.

    `smallest` is the least height and width, `channels` their only possible number; anything else is a SpecError.
    """
    if len(shape) == 3 and min(shape[1:]) >= smallest and channels in (None, shape[0]):
        return shape[0], shape[1], shape[2]
    depth = "channels" if channels is None else channels
    size = f", at least {smallest} x {smallest} pixels" if smallest > 1 else ""
    raise _cannot_read(network, f"images of shape ({depth}, height, width){size}", shape)


def _cannot_read(network: str, valid: str, shape: tuple[int, ...]) -> SpecError:
    kind = {1: "tokens or features", 3: "images"}.get(len(shape), "inputs")
    return SpecError(f"{network} reads {valid}, not {kind} of shape {tuple(shape)}")


def _pooled(convolution: nn.Conv2d) -> tuple[nn.Module, ...]:
    return convolution, nn.MaxPool2d(2), nn.ReLU()


def _normalised(before: int, after: int) -> tuple[nn.Module, ...]:
    return nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.BatchNorm2d(after)


def _dense(before: int, after: int) -> tuple[nn.Module, ...]:
    return nn.Linear(before, after), nn.ReLU()


def _convolution(before: int, after: int, stride: int) -> nn.Conv2d:
    return nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False)


def _two_convolutions(network: str, shape: tuple[int, ...], classes: int, sizes: list[int]) -> list[nn.Module]:
    """Return two 5x5 convolutions without padding, each pooled, and two dense layers; `sizes` of the first three."""
    channels, height, columns = image_shape(network, shape, smallest=16)
    first, second, dense = sizes
    height, columns = (((size - 4) // 2 - 4) // 2 for size in (height, columns))
    return [
        *_pooled(nn.Conv2d(channels, first, 5)),
        *_pooled(nn.Conv2d(first, second, 5)),
        nn.Flatten(),
        *_dense(second * height * columns, dense),
        nn.Linear(dense, classes),
    ]


def _eight_convolutions(channels: int, plan: list[int]) -> list[nn.Module]:
    """Return the convolutions of VGG-11 with `plan` channels; all but the third, fifth and seventh are pooled."""
    layers: list[nn.Module] = []
    for number, (before, after) in enumerate(zip([channels, *plan], plan, strict=False), start=1):
        convolution = nn.Conv2d(before, after, 3, padding=1)
        layers += (convolution, nn.ReLU()) if number in (3, 5, 7) else _pooled(convolution)
    return layers
