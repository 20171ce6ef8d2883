"""Floor 0: the papers' networks by name, and the flat vector that a model is on the wire."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import torch
from torch import nn

from fl_core.errors import unknown
from fl_core.models.flat import FlatModel
from fl_core.models.lenet import LeNet5

__all__ = ["MODELS", "FlatModel", "LeNet5", "build_network", "initialise"]


class Linear(nn.Sequential):
    """Softmax regression on the flattened image: 7,850 parameters for 28x28 and 10 classes."""

    def __init__(self, shape: tuple[int, int, int], classes: int) -> None:
        super().__init__(nn.Flatten(), nn.Linear(prod(shape), classes))


MODELS: dict[str, Callable[[tuple[int, int, int], int], nn.Module]] = {"lenet5": LeNet5, "linear": Linear}


def build_network(name: str, shape: tuple[int, int, int], classes: int) -> nn.Module:
    """Build the network called `name` for images of `shape` ``(c, h, w)``, with PyTorch's own initial values.

    Raises
    ------
    SpecError
        If no network has that name.
    """
    if name not in MODELS:
        raise unknown("model", name, MODELS)
    return MODELS[name](shape, classes)


def initialise(network: nn.Module, generator: torch.Generator) -> None:
    """Draw new parameters: Glorot-uniform weights and zero biases (FedAsync specification, A12).

    Vectors called ``weight`` belong to normalisation layers and become 1.
    """
    for name, parameter in network.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
        elif parameter.dim() == 1:
            nn.init.ones_(parameter)
        else:
            nn.init.xavier_uniform_(parameter, generator=generator)
