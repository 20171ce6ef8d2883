"""How the initial values of a network are drawn."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from fl_core.errors import SpecError, unknown

NORMALISATIONS = (_NormBase, nn.GroupNorm, nn.LayerNorm)
LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


def initialise(network: nn.Module, generator: torch.Generator, scheme: str = "glorot") -> None:
    """Draw new parameters of `network` from `generator`, and from nothing else.

    ``"glorot"``: weights U(±√(6/(fan_in + fan_out))) and zero biases, MXNet's ``Xavier()`` (FedAsync specification,
    A12); the four gates of an LSTM count as one matrix. ``"pytorch"``: what PyTorch's layers draw when they are made,
    weights and biases U(±1/√fan_in), in an LSTM U(±1/√hidden); a module with rules of its own has them as a method
    ``reset(generator)``, which is called last. In both, embeddings are standard normal with a zero row for padding,
    normalisation layers start as the identity, and their running statistics at mean 0 and variance 1.
    """
    if scheme not in INITIALISATIONS:
        raise unknown("initialisation", scheme, INITIALISATIONS)
    for module in network.modules():
        if isinstance(module, NORMALISATIONS):
            _identity(module)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, generator=generator)
            if module.padding_idx is not None:
                nn.init.zeros_(module.weight[module.padding_idx])
        else:
            INITIALISATIONS[scheme](module, generator)
    if scheme == "pytorch":
        for module in reversed([*network.modules()]):  # what is outside has the last word
            if reset := getattr(module, "reset", None):
                reset(generator)


def _glorot(module: nn.Module, generator: torch.Generator) -> None:
    for name, parameter in module.named_parameters(recurse=False):
        if "bias" in name:
            nn.init.zeros_(parameter)
        elif parameter.dim() <= 1:  # the scale of a normalisation layer of the reader's own
            nn.init.ones_(parameter)
        else:
            nn.init.xavier_uniform_(parameter, generator=generator)


def _pytorch(module: nn.Module, generator: torch.Generator) -> None:
    own = dict(module.named_parameters(recurse=False))
    if isinstance(module, LAYERS):
        bound = module.weight[0].numel() ** -0.5
    elif isinstance(module, nn.RNNBase):
        bound = module.hidden_size**-0.5
    elif not own or hasattr(module, "reset"):
        return
    else:
        raise SpecError(
            f"initialisation 'pytorch' has no rule for the parameters of {type(module).__name__} ({', '.join(own)}); "
            "give it a method reset(generator) that draws them, or use 'glorot'"
        )
    for parameter in own.values():
        nn.init.uniform_(parameter, -bound, bound, generator=generator)


def _identity(module: nn.Module) -> None:
    for name, parameter in module.named_parameters(recurse=False):
        nn.init.constant_(parameter, float(name == "weight"))
    if isinstance(module, _NormBase):
        module.reset_running_stats()


INITIALISATIONS: dict[str, Callable[[nn.Module, torch.Generator], None]] = {"glorot": _glorot, "pytorch": _pytorch}
"""The schemes by name."""
