"""The networks by name, and the text by which a specification chooses one: ``"resnet18(width=0.25)"``."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from torch import nn

from fl_core.errors import SpecError, unknown
from fl_core.models.alexnet import AlexNet
from fl_core.models.cnn import WKAFLCNN, CelebACNN, FedASMUCNN, FedAsyncCNN, FedLuckCNN
from fl_core.models.lenet import LeNet5
from fl_core.models.linear import Linear
from fl_core.models.lstm import LSTM
from fl_core.models.resnet import ResNet18, ResNet20
from fl_core.models.textcnn import TextCNN
from fl_core.models.vgg import VGG11, VGG11s
from fl_core.part import tagged

MODELS: dict[str, Callable[..., nn.Module]] = {
    "alexnet": AlexNet,
    "celeba_cnn": CelebACNN,
    "fedasmu_cnn": FedASMUCNN,
    "fedasync_cnn": FedAsyncCNN,
    "fedluck_cnn": FedLuckCNN,
    "lenet5": LeNet5,
    "linear": Linear,
    "lstm": LSTM,
    "resnet18": ResNet18,
    "resnet20": ResNet20,
    "textcnn": TextCNN,
    "vgg11": VGG11,
    "vgg11s": VGG11s,
    "wkafl_cnn": WKAFLCNN,
}
"""What makes each network, of the shape of an input, the number of classes, and options by name.

A network of your own is one more entry. Its further parameters, with their annotations and defaults, are its options.
"""


def build_network(text: str, shape: tuple[int, ...], classes: int) -> nn.Module:
    """Build the network that `text` names, with PyTorch's own initial values.

    Parameters
    ----------
    text : str
        ``"name"`` or ``"name(option=value, ...)"``; values are JSON.
    shape : tuple of int
        Of one input: ``(channels, height, width)`` of images or ``(length,)`` of tokens.
    classes : int

    Raises
    ------
    SpecError
        If no network has that name, an option is wrong, or the network cannot read inputs of `shape`.
    """
    name, chosen = _read(text)
    return MODELS[name](shape, classes, **dict(chosen))


def canonical(text: str) -> str:
    """Return the one way to write `text`: options in order of their names, without those that have their defaults.

    Raises
    ------
    SpecError
        If no network has that name, or an option is wrong.
    """
    name, chosen = _read(text)
    given = sorted(chosen.model_dump(exclude_defaults=True).items())
    inside = ", ".join(f"{option}={json.dumps(value)}" for option, value in given)
    return f"{name}({inside})" if inside else name


def options(name: str) -> type[BaseModel]:
    """Return the options of the network called `name`, with their types, ranges and defaults, as a pydantic class.

    Raises
    ------
    SpecError
        If no network has that name.
    """
    if name not in MODELS:
        raise unknown("model", name, MODELS)
    _, _, *further = inspect.signature(MODELS[name], eval_str=True).parameters.values()
    fields: dict[str, Any] = {
        each.name: (
            Any if each.annotation is each.empty else each.annotation,
            ... if each.default is each.empty else each.default,
        )
        for each in further
    }
    return create_model(name, __config__=ConfigDict(extra="forbid", strict=True, allow_inf_nan=False), **fields)


def _read(text: str) -> tuple[str, BaseModel]:
    """Return the name of a network and its options."""
    try:
        found = tagged(text)
    except ValueError:
        found = None
    if found is None:
        raise SpecError(f"cannot read model {text!r}; write for example 'resnet18' or 'resnet18(width=0.25)'")
    name = found.pop("kind")
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
