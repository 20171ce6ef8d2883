"""The linear model, which tells how much of a task needs no depth."""

from __future__ import annotations

from math import prod

from torch import nn

from fl_core.models.sizes import image_shape


class Linear(nn.Sequential):
    """Softmax regression on the flattened image: 7,850 parameters for 28x28 and 10 classes."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__(nn.Flatten(), nn.Linear(prod(image_shape("linear", shape)), classes))
