"""The networks by name, the text by which a specification chooses one (``"resnet18(width=0.25)"``), and sizes."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import torch
from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from torch import nn
from torch.nn.parameter import is_lazy

from fl_core.config import read_named
from fl_core.errors import SpecError, unknown
from fl_core.models import networks
from fl_core.models.flat import FlatModel

MODELS: dict[str, Callable[..., nn.Module]] = {
    "alexnet": networks.AlexNet,
    "celeba_cnn": networks.CelebACNN,
    "fedasmu_cnn": networks.FedASMUCNN,
    "fedasync_cnn": networks.FedAsyncCNN,
    "fedluck_cnn": networks.FedLuckCNN,
    "lenet5": networks.LeNet5,
    "linear": networks.Linear,
    "lstm": networks.LSTM,
    "resnet18": networks.ResNet18,
    "resnet20": networks.ResNet20,
    "textcnn": networks.TextCNN,
    "vgg11": networks.VGG11,
    "vgg11s": networks.VGG11s,
    "wkafl_cnn": networks.WKAFLCNN,
}
"""What makes each network, of the shape of an input, the number of classes, and options by name."""

Make = TypeVar("Make", bound=Callable[..., nn.Module])


def register_model(make: Make) -> Make:
    """Make a network known by the name, in small letters, of the function or class that builds it.

    That takes the shape of one input and the number of classes; its further parameters, with their annotations and
    defaults, are options: ``"mlp(width=32)"``. A second one of the same name replaces the first.
    """
    name = make.__name__.lower()
    if name in MODELS and MODELS[name].__module__ == networks.__name__:
        raise SpecError(f"the network {name!r} is there already; choose another name")
    MODELS[name] = make
    return make


def build_network(text: str, shape: tuple[int, ...], classes: int) -> nn.Module:
    """Build the network that `text`, ``"name"`` or ``"name(option=value, ...)"``, names; values are JSON.

    It has PyTorch's own initial values. `shape` is that of one input: ``(channels, height, width)`` of images or
    ``(length,)`` of tokens.
    """
    name, chosen = _read(text)
    try:
        network = MODELS[name](shape, classes, **dict(chosen))
    except (TypeError, RuntimeError) as error:  # a negative width, say; what is wrong with an input is a SpecError
        raise SpecError(f"model {text!r} cannot be built for inputs of shape {tuple(shape)}: {error}") from error
    if not isinstance(network, nn.Module) or any(map(is_lazy, network.parameters())):
        what = "lazy layers" if isinstance(network, nn.Module) else f"a {type(network).__name__}"
        raise SpecError(
            f"model {text!r} gives {what}; it should give a torch.nn.Module with parameters of known sizes"
        )
    return network


def num_parameters(text: str, shape: tuple[int, ...], classes: int) -> int:
    """Return how many numbers a network trains: the length of its gradient."""
    return network_size(text, shape, classes).parameters


@dataclass(frozen=True)
class Size:
    """Numbers of a network: those that are trained, and the running statistics that travel with them."""

    parameters: int
    buffers: int

    @property
    def mebibytes(self) -> float:
        """Size of one upload as float32, buffers included."""
        return 4 * (self.parameters + self.buffers) / 2**20


def network_size(text: str, shape: tuple[int, ...], classes: int) -> Size:
    """Count what a network is made of, without memory for it."""
    name, _ = _read(text)
    return _counted(MODELS[name], text, tuple(shape), classes)


@lru_cache(maxsize=256)
def _counted(make: Callable[..., nn.Module], text: str, shape: tuple[int, ...], classes: int) -> Size:
    """Count once for each maker, which is an argument because a reader may register another one under a name."""
    with torch.device("meta"):
        flat = FlatModel(build_network(text, shape, classes))
    return Size(len(flat.parameters), len(flat.vector) - len(flat.parameters))


def canonical(text: str) -> str:
    """Return the one way to write `text`: options in order of their names, without those that have their defaults."""
    name, chosen = _read(text)
    given = sorted(chosen.model_dump(exclude_defaults=True).items())
    inside = ", ".join(f"{option}={json.dumps(value)}" for option, value in given)
    return f"{name}({inside})" if inside else name


def options(name: str) -> type[BaseModel]:
    """Return the options of the network called `name`, with their types, ranges and defaults, as a pydantic class."""
    if name not in MODELS:
        raise unknown("model", name, MODELS)
    return _options(name, MODELS[name])


@lru_cache(maxsize=256)
def _options(name: str, make: Callable[..., nn.Module]) -> type[BaseModel]:
    _, _, *further = inspect.signature(make, eval_str=True).parameters.values()
    fields: dict[str, Any] = {}
    for each in further:
        annotation = Any if each.annotation is each.empty else each.annotation
        fields[each.name] = (annotation, ... if each.default is each.empty else each.default)
    return create_model(name, __config__=ConfigDict(extra="forbid", strict=True, allow_inf_nan=False), **fields)


def _read(text: str) -> tuple[str, BaseModel]:
    """Return the name of a network and its options."""
    name, found = read_named(text, "model ", "resnet18(width=0.25)")
    accepted = options(name)
    try:
        return name, accepted.model_validate(found)
    except ValidationError as error:
        first = error.errors()[0]
    option = str(first["loc"][0])
    if option in accepted.model_fields:
        given = f", not {found[option]!r}" if option in found else ""
        raise SpecError(f"option {option!r} of model {name!r}: {first['msg'].lower()}{given}")
    if accepted.model_fields:
        raise unknown(f"{name} option", option, accepted.model_fields)
    raise SpecError(f"model {name!r} has no options, so not {option!r}")
