"""The seam between the runtime and a learning problem."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from fl_core.models.units import Units

POOLED = -1  # device number of the imaginary machine that holds all data (single-machine SGD)


class Workspace(Protocol):
    """What one thread needs to train: a network and its scratch memory. Never shared between threads."""

    vector: Tensor  # [d], the model in the workspace
    parameters: Tensor  # [p], its trainable prefix (a view)
    gradient: Tensor  # [p], filled by `backward`
    noisy: bool  # whether training draws random numbers besides the order of the samples (augmentation, dropout)

    def load(self, model: Tensor) -> None:
        """Copy `model` ``[d]`` in."""

    def snapshot(self) -> Tensor:
        """Return a copy ``[d]`` of the present state."""

    def backward(self, device: int, batch: np.ndarray, noise: torch.Generator | None = None) -> Tensor:
        """Fill `gradient` for the samples `batch` ``[b]`` of `device`; return the mean loss, a 0-d tensor.

        A `noisy` workspace draws from `noise`.
        """

    def loss(self, model: Tensor, device: int, samples: int | np.ndarray) -> float:
        """Return the mean loss of `model` ``[d]`` on the first `samples` training samples of `device`, or on all.

        Instead of their number, positions among the device's samples may be given.
        """

    def evaluate(self, model: Tensor, train_samples: int, test_samples: int = 0) -> dict[str, float]:
        """Return the metrics of `model` ``[d]``.

        `train_samples` bounds the training samples looked at; of the test samples, `test_samples` or (0) all are.
        """


class ContrastiveWorkspace(Workspace, Protocol):
    """A workspace whose models have representations that a part of the loss may compare."""

    def backward(
        self, device: int, batch: np.ndarray, noise: torch.Generator | None = None, contrast: Contrast | None = None
    ) -> Tensor:
        """As :meth:`Workspace.backward`, of the loss plus `contrast`."""


@runtime_checkable
class LayeredWorkspace(Workspace, Protocol):
    """A workspace whose network has hidden units that a smaller one can do without."""

    def hidden_units(self) -> tuple[Units, ...]:
        """Return them by layer."""


class BatchedWorkspace(Workspace, Protocol):
    """A workspace on one processor or accelerator that also differentiates several models at once."""

    separate: bool
    """Whether the loss on a sample depends on no other of its mini-batch, so that this may be padded."""
    sample_bytes: int
    """About how much memory a step needs for each sample."""

    def gradients(
        self, models: Tensor, samples: Tensor, weights: Tensor, noise: Sequence[tuple[torch.Generator, int]] = ()
    ) -> tuple[Tensor, Tensor]:
        """Return gradients ``[g, p]`` and losses ``[g]`` of `models` ``[g, d]``, each on its row of `samples`.

        A loss is the sum over the samples ``[g, b]``, each with its weight: one over the size of the mini-batch, or 0
        for those that only fill the row. A row's numbers depend on nothing in the others. Statistics that training
        updates (batch normalisation) are updated in `models`. A noisy workspace draws from `noise`, one generator a
        row, for as many samples as stand beside it.
        """


class Task(Protocol):
    """A federated learning problem."""

    dimension: int  # length d of the model vector

    def initial_model(self, seed: int) -> Tensor:
        """Return the model ``[d]`` of version 0, from its own random stream."""

    def num_samples(self, device: int) -> int:
        """Return how many samples `device` holds (:data:`POOLED`: all devices together)."""

    def workspace(self) -> Workspace:
        """Return a new workspace."""


@runtime_checkable
class BatchedTask(Protocol):
    """A task whose local training can be vectorised over devices; tasks need not offer this."""

    @property
    def kin(self) -> Hashable:
        """Tasks of equal kin may be trained in one another's workspaces."""

    def locate(self, device: int, positions: np.ndarray) -> Tensor:
        """Return the numbers that a batched workspace knows a device's samples at `positions` ``[n]`` by."""

    def batched_workspace(self, place: torch.device) -> BatchedWorkspace:
        """Return a new workspace on `place`."""


class Objective(Protocol):
    """A term that a device adds to its local loss, given by its gradient.

    Objectives that are equal (``==``, by hash) are the same term: devices that have them may be trained together.
    """

    def gradient(self, parameters: Tensor, start: Tensor) -> Tensor:
        """Return the term's gradient ``[..., p]`` at `parameters` for a task that began at `start`."""


@dataclass(frozen=True, eq=False)
class Contrast:
    """A term of the local loss that compares the representation of a mini-batch with those under other models."""

    loss: Callable[[Tensor, Sequence[Tensor]], Tensor]
    """Of the representation ``[n, k]`` under the model that is trained, and of a list of those of the same samples
    under `references`, which are without gradient: the term, a 0-d tensor."""
    references: tuple[Tensor, ...]
    """Models ``[d]``, used as in evaluation: no dropout, and the running statistics that they hold."""

    def to(self, place: torch.device) -> Contrast:
        """Return the same with its references on `place`."""
        return Contrast(self.loss, tuple(model.to(place) for model in self.references))


class Correction(Protocol):
    """What a device does to the gradient of each local step, with a memory of the steps before.

    The gradient that it gets is complete: the loss's with that of the objective and of weight decay.
    """

    def begin(self, parameters: Tensor) -> tuple[Tensor, ...]:
        """Return the memory that a task begins with: new tensors, where `parameters` ``[p]`` are."""

    def correct(self, gradient: Tensor, memory: tuple[Tensor, ...]) -> None:
        """Change `gradient` ``[p]`` and `memory` in place."""


@dataclass(frozen=True)
class Proximal:
    r"""The pull :math:`\frac\rho2\lVert x-x_\tau\rVert^2` towards the received model (FA-3)."""

    rho: float  # >= 0

    def gradient(self, parameters: Tensor, start: Tensor) -> Tensor:
        """Return ``rho * (parameters - start)`` (FA-5); `start` stays frozen during the task."""
        return (parameters - start) * self.rho
