"""Which entries of a model belong to a hidden unit: what a smaller network does without."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from fl_core.errors import SpecError
from fl_core.models.flat import Slot
from fl_core.models.initial import LAYERS

TENSORS = ("weight", "bias", "running_mean", "running_var")


@dataclass(frozen=True)
class Place:
    """Where the units of a layer have their entries in one tensor: in slices along one axis.

    The tensor begins at `start` of the flat vector; along `axis` the first unit begins at `offset`, and each has
    `width` entries (more than 1 where channels are flattened).
    """

    start: int
    shape: tuple[int, ...]
    axis: int
    width: int = 1
    offset: int = 0

    def of(self, vector: Tensor, units: int) -> Tensor:
        """Return the entries in `vector` ``[d]`` as a view: ``[units, width]`` stands where the axis was."""
        tensor = vector[self.start : self.start + prod(self.shape)].view(self.shape)
        return tensor.narrow(self.axis, self.offset, units * self.width).unflatten(self.axis, (units, self.width))


@dataclass(frozen=True)
class Units:
    """The hidden units of one layer, its channels or its neurons: how many, F, and where their entries are.

    Those are their weights, biases and running statistics, and the weights by which the next layer reads them.
    """

    count: int
    places: tuple[Place, ...]

    def keep(self, mask: Tensor, units: Sequence[int]) -> None:
        """Set `mask`, booleans ``[d]``, to False wherever another unit than `units` has an entry."""
        kept = torch.zeros(self.count, dtype=torch.bool)
        kept[list(units)] = True
        for place in self.places:
            entries = place.of(mask, self.count)
            entries &= kept.view([self.count if axis == place.axis else 1 for axis in range(entries.dim())])

    def moved(self, model: Tensor, reference: Tensor) -> Tensor:
        """Return how much each unit has moved ``[F]``: the sum of abs(model - reference) over its weights.

        Those by which it reads and those by which it is read; not its biases and statistics.
        """
        total = torch.zeros(self.count, dtype=model.dtype)
        for place in self.places:
            if len(place.shape) > 1:
                change = (place.of(model, self.count) - place.of(reference, self.count)).abs()
                total += change.sum([axis for axis in range(change.dim()) if axis != place.axis])
        return total


class HiddenLayer(NamedTuple):
    """A layer whose units can be left out: dense or convolution, what normalises its outputs, and what reads it.

    Its outputs are the `outputs` (None: all) inputs of `reader`, the one layer that reads it, from `offset` on.
    """

    layer: nn.Module
    norm: nn.Module | None
    reader: nn.Module
    offset: int = 0
    outputs: int | None = None


def hidden_units(network: nn.Module, slots: Sequence[Slot]) -> tuple[Units, ...]:
    """Return the units of each hidden layer of `network` but the first layer; its inputs and outputs are no units.

    A network whose layers are not one after the other, in the order in which they were made, says which of them are
    hidden by a method ``hidden_layers()`` that returns :class:`HiddenLayer` objects; if that is not known, SpecError.
    """
    declared: Any = getattr(network, "hidden_layers", None)
    layers: list[HiddenLayer] = declared() if declared else list(_chain(network))
    names = {module: name for name, module in network.named_modules()}
    where = {slot.name: slot for slot in slots}
    groups = []
    for layer, norm, reader, offset, outputs in layers:
        weight: Any = layer.weight
        weight_read: Any = reader.weight
        count = len(weight)
        width = (outputs or weight_read.shape[1]) // count
        own = [f"{names[module]}.{tensor}" for module in (layer, norm) if module is not None for tensor in TENSORS]
        places = [Place(where[name].start, tuple(where[name].shape), 0) for name in own if name in where]
        read = where[f"{names[reader]}.weight"]
        places.append(Place(read.start, tuple(read.shape), 1, width, offset))
        groups.append(Units(count, tuple(places)))
    return tuple(groups)


def _chain(network: nn.Module) -> Iterator[HiddenLayer]:
    """Yield the hidden layers of a network in which each layer reads the one before."""
    layers: list[nn.Module] = []
    norms: list[nn.Module | None] = []
    for module in network.modules():
        if isinstance(module, LAYERS):
            layers.append(module)
            norms.append(None)
        elif isinstance(module, _NormBase) and layers:
            norms[-1] = module
        elif list(module.parameters(recurse=False)):
            raise _unknown(network, module)
    for layer, norm, reader in zip(layers[1:-1], norms[1:-1], layers[2:], strict=True):
        weights: Any = (layer.weight, reader.weight)
        outputs, inputs = weights[0].shape[0], weights[1].shape[1]
        flattened = isinstance(reader, nn.Linear) and not isinstance(layer, nn.Linear) and not inputs % outputs
        if inputs != outputs and not flattened:
            raise _unknown(network, reader)
        yield HiddenLayer(layer, norm, reader)


def _unknown(network: nn.Module, module: nn.Module) -> SpecError:
    return SpecError(
        f"what {type(module).__name__} in {type(network).__name__} reads is not known, so no unit can be left out; "
        "give the network a method hidden_layers(), or use one whose layers are one after the other"
    )
