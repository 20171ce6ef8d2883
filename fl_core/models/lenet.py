"""LeNet-5 (LeCun, Bottou, Bengio & Haffner, 1998) in its present-day form: ReLU and max pooling."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class LeNet5(nn.Module):
    """Two 5x5 convolutions (6 and 16 channels, the first padded by 2) and dense layers of 120, 84 and `classes`.

    Parameters
    ----------
    shape : tuple of int
        ``(channels, height, width)`` of an image; height and width at least 12 and divisible by 4.
    classes : int
        Number of classes.

    Notes
    -----
    61,706 parameters for ``(1, 28, 28)`` and 10 classes: 156 + 2,416 + 48,120 + 10,164 + 850.
    """

    def __init__(self, shape: tuple[int, int, int], classes: int) -> None:
        super().__init__()
        channels, height, width = shape
        self.conv1 = nn.Conv2d(channels, 6, 5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * ((height // 2 - 4) // 2) * ((width // 2 - 4) // 2), 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Map images ``[n, c, h, w]`` to logits ``[n, classes]``."""
        # ReLU and maximum commute, bit for bit; on the pooled image ReLU has a quarter of the work.
        x = F.relu(F.max_pool2d(self.conv1(images), 2))
        x = F.relu(F.max_pool2d(self.conv2(x), 2))
        x = F.relu(self.fc1(x.flatten(1)))
        return self.fc3(F.relu(self.fc2(x)))
