"""The small convolutional networks of the papers, each as its paper or official code states it.

Where the order is convolution, ReLU, max pooling, the code pools first: the two commute bit for bit, and ReLU then
has a quarter of the work.
"""

from __future__ import annotations

from torch import nn

from fl_core.models.dropout import Dropout
from fl_core.models.sizes import Width, image_shape, scaled


class FedAsyncCNN(nn.Sequential):
    """FedAsync, Table 2: four 3x3 convolutions with batch normalisation, dense layer of 512, dropout 0.25.

    Notes
    -----
    Order convolution, ReLU, normalisation, as in the official code (specification, A15). 2,625,866 parameters and 768
    running statistics for ``(3, 24, 24)`` and 10 classes.
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
            nn.Linear(second * features[1] * features[2], dense),
            nn.ReLU(),
            Dropout(0.25, (dense,)),
            nn.Linear(dense, classes),
        )


class FedASMUCNN(nn.Sequential):
    """FedASMU, Table 3: two 2x2 convolutions (64 and 32 channels) without pooling and one dense layer.

    Notes
    -----
    297,066 parameters for ``(3, 32, 32)`` and 10 classes, 2,889,156 with 100.
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

    Notes
    -----
    The official code's ``CNN2``: 582,026 parameters for ``(1, 28, 28)`` and 10 classes, 608,702 with 62.
    """

    def __init__(self, shape: tuple[int, ...], classes: int, width: Width = 1.0) -> None:
        super().__init__(*_two_convolutions("wkafl_cnn", shape, classes, scaled(width, 32, 64, 512)))


class FedLuckCNN(nn.Sequential):
    """FedLuck on Fashion-MNIST: two 5x5 convolutions of 32 channels with pooling, dense layer of 256.

    Notes
    -----
    The official code's ``CNN1``: 234,090 parameters for ``(1, 32, 32)`` and 10 classes.
    """

    def __init__(self, shape: tuple[int, ...], classes: int, width: Width = 1.0) -> None:
        super().__init__(*_two_convolutions("fedluck_cnn", shape, classes, scaled(width, 32, 32, 256)))


class CelebACNN(nn.Sequential):
    """WKAFL on CelebA: one 4x4 convolution of 10 channels with pooling, dense layer of 100.

    Notes
    -----
    The official code's ``CNN1``: 1,600,792 parameters for ``(3, 84, 84)`` and 2 classes.
    """

    def __init__(self, shape: tuple[int, ...], classes: int, width: Width = 1.0) -> None:
        channels, height, columns = image_shape("celeba_cnn", shape, smallest=5)
        filters, dense = scaled(width, 10, 100)
        super().__init__(
            nn.Conv2d(channels, filters, 4),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(filters * ((height - 3) // 2) * ((columns - 3) // 2), dense),
            nn.ReLU(),
            nn.Linear(dense, classes),
        )


def _normalised(inputs: int, outputs: int) -> tuple[nn.Module, ...]:
    return nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(), nn.BatchNorm2d(outputs)


def _two_convolutions(network: str, shape: tuple[int, ...], classes: int, sizes: list[int]) -> list[nn.Module]:
    """Return two 5x5 convolutions without padding, each pooled, and two dense layers; `sizes` of the first three."""
    channels, height, columns = image_shape(network, shape, smallest=16)
    first, second, dense = sizes
    height, columns = (((size - 4) // 2 - 4) // 2 for size in (height, columns))
    return [
        nn.Conv2d(channels, first, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(first, second, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(second * height * columns, dense),
        nn.ReLU(),
        nn.Linear(dense, classes),
    ]
