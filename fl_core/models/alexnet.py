"""AlexNet (Krizhevsky, Sutskever & Hinton, 2012) in the form for 32x32 images."""

from __future__ import annotations

from torch import nn

from fl_core.models.dropout import Dropout
from fl_core.models.sizes import Width, image_shape, scaled


class AlexNet(nn.Sequential):
    """Five 3x3 convolutions (64 to 384 channels), two dense layers of 4,096 with dropout 0.5 before each.

    Notes
    -----
    23,272,266 parameters for ``(3, 32, 32)`` and 10 classes, 23,640,996 with 100 (FedASMU specification, 6.2).
    """

    def __init__(self, shape: tuple[int, ...], classes: int, width: Width = 1.0) -> None:
        channels, height, columns = image_shape("alexnet", shape, smallest=15)
        a, b, c, d, dense = scaled(width, 64, 192, 384, 256, 4096)
        features = d * ((height + 1) // 16) * ((columns + 1) // 16)
        super().__init__(
            nn.Conv2d(channels, a, 3, stride=2, padding=1),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(a, b, 3, padding=1),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(b, c, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(c, d, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(d, d, 3, padding=1),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
            Dropout(0.5, (features,)),
            nn.Linear(features, dense),
            nn.ReLU(),
            Dropout(0.5, (dense,)),
            nn.Linear(dense, dense),
            nn.ReLU(),
            nn.Linear(dense, classes),
        )
