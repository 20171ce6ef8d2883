"""A network whose parameters are views of one flat vector.

A model on the wire is one float32 vector ``[d]``: all parameters in the order of ``named_parameters()``, then all
persistent float buffers (batch-norm statistics) in the order of ``named_buffers()``. Integer buffers (a count of
batches) are bookkeeping, buffers that are not persistent (a dropout mask) belong to one mini-batch: both stay behind.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Slot:
    """Where one named tensor lies in the flat vector."""

    name: str
    start: int
    shape: torch.Size
    trainable: bool

    @property
    def stop(self) -> int:
        """Index behind the last element."""
        return self.start + self.shape.numel()


class FlatModel:
    """Tie the parameters, gradients and persistent float buffers of `network` to flat vectors.

    Its parameters are float32 and all on one device, where the vectors are then made too. It is changed in place and
    must not be used by two threads at once. Writing to ``vector`` ``[d]`` changes the network; ``parameters`` ``[p]``
    is its trainable prefix (a view); ``backward()`` accumulates in ``gradient`` ``[p]``; ``slots`` is the layout.
    """

    def __init__(self, network: nn.Module) -> None:
        self.network = network
        parameters = list(network.named_parameters())
        persistent = network.state_dict().keys()
        buffers = [(n, b) for n, b in network.named_buffers() if b.is_floating_point() and n in persistent]
        slots, start = [], 0
        for trainable, group in ((True, parameters), (False, buffers)):
            for name, tensor in group:
                slots.append(Slot(name, start, tensor.shape, trainable))
                start += tensor.numel()
        self.slots = tuple(slots)
        place = parameters[0][1].device if parameters else None
        self.vector = torch.empty(start, device=place)
        count = sum(p.numel() for _, p in parameters)
        self.parameters = self.vector[:count]
        self.gradient = torch.zeros(count, device=place)
        for slot, (_, tensor) in zip(self.slots, [*parameters, *buffers], strict=True):
            view = self.vector[slot.start : slot.stop].view(slot.shape)
            view.copy_(tensor.detach())
            tensor.data = view
            if slot.trainable:
                tensor.grad = self.gradient[slot.start : slot.stop].view(slot.shape)

    def load(self, model: Tensor) -> None:
        """Copy `model` ``[d]`` into the network."""
        self.vector.copy_(model)

    def snapshot(self) -> Tensor:
        """Return a copy ``[d]`` of the present state in main memory, safe to keep."""
        return self.vector.to("cpu", copy=True)
