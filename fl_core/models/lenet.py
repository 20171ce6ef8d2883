"""LeNet-5 (LeCun, Bottou, Bengio & Haffner, 1998) in its present-day form: ReLU and max pooling."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from fl_core.models.sizes import image_shape


class LeNet5(nn.Module):
    """Two 5x5 convolutions (6 and 16 channels) and dense layers of 120, 84 and `classes`.

    Images lower or narrower than 32 pixels, for which the network was drawn, get a border of 2 zeros on each side.

    Parameters
    ----------
    shape : tuple of int
        ``(channels, height, width)`` of an image, at least 12 high and wide.
    classes : int
        Number of classes.

    Notes
    -----
    61,706 parameters for ``(1, 28, 28)`` and 10 classes: 156 + 2,416 + 48,120 + 10,164 + 850; 62,006 for
    ``(3, 32, 32)``.
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
        # ReLU and maximum commute, bit for bit; on the pooled image ReLU has a quarter of the work.
        x = F.relu(F.max_pool2d(self.conv1(images), 2))
        x = F.relu(F.max_pool2d(self.conv2(x), 2))
        x = F.relu(self.fc1(x.flatten(1)))
        return self.fc3(F.relu(self.fc2(x)))
