"""Local work: the PyTorch part of a run, as jobs that any thread may compute at any moment.

A job's result is a function of the job alone (its start vector, its device's data, its random stream), so when and
where it is computed cannot change a single bit. Jobs are plain dataclasses with slots: a frozen one costs three times
as much to make, and a run makes millions of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Protocol, cast

import numpy as np
import torch
from torch import Tensor

from fl_core.runtime.minibatches import batches, cyclic_batches
from fl_core.streams import stream, torch_stream
from fl_core.tasks import POOLED, Contrast, ContrastiveWorkspace, Correction, Objective, Workspace


class Job(Protocol):
    """A piece of work that needs a workspace and nothing else."""

    def run(self, workspace: Workspace) -> object:
        """Compute the result."""


@dataclass(frozen=True)
class Trained:
    """What local training produced.

    Attributes
    ----------
    model : Tensor
        ``[d]``.
    loss : float
        Mean mini-batch loss on the way.
    steps : int
        Mini-batch steps done.
    velocity : Tensor or None
        ``[p]``, with momentum: that of the last step.
    memory : tuple of Tensor
        What the correction, if there was one, remembers.
    """

    model: Tensor
    loss: float
    steps: int
    velocity: Tensor | None = None
    memory: tuple[Tensor, ...] = ()


@dataclass(slots=True)
class TrainJob:
    """Local SGD on one device (FA-4, FA-5).

    Attributes
    ----------
    start : Tensor
        ``[d]``, the received model; read only.
    device, samples : int
        Whose data, and how many samples that is.
    steps, batch_size : int
        Mini-batches to do, and their size; each epoch is a new permutation of the device's samples.
    lr, weight_decay : float
    objective : Objective or None
        Added to the local loss.
    key : tuple
        ``(seed, purpose, *index)`` of the random stream that orders the samples; see :func:`noise_stream`.
    momentum : float
        Part of the velocity that a step keeps.
    velocity : Tensor or None
        ``[p]``, at the start; read only; None: 0.
    cursor : int or None
        The samples stay in order, and so many mini-batches have been done before.
    contrast : Contrast or None
        Added to the local loss.
    correction : Correction or None
        Has the last word on the gradient of each step.
    """

    start: Tensor
    device: int
    samples: int
    steps: int
    batch_size: int
    lr: float
    weight_decay: float
    objective: Objective | None
    key: tuple[int, str, int, int, int]
    momentum: float = 0.0
    velocity: Tensor | None = None
    cursor: int | None = None
    contrast: Contrast | None = None
    correction: Correction | None = None

    def run(self, workspace: Workspace) -> Trained:
        """Train in `workspace` and return a copy of the result."""
        workspace.load(self.start)
        parameters, gradient = workspace.parameters, workspace.gradient
        step, velocity, anchor = gradient, None, None
        if self.momentum:
            step = velocity = torch.zeros_like(gradient)
            if self.velocity is not None:
                velocity.copy_(self.velocity)
        if self.objective is not None or self.weight_decay:
            anchor = self.start[: len(parameters)].to(parameters.device)
        total: Tensor | float = 0.0
        noise = noise_stream(self.key) if workspace.noisy else None
        contrast = None if self.contrast is None else self.contrast.to(parameters.device)
        memory = () if self.correction is None else self.correction.begin(parameters)
        for batch in batches_of(self):
            if contrast is None:
                total = workspace.backward(self.device, batch, noise) + total
            else:
                total = cast(ContrastiveWorkspace, workspace).backward(self.device, batch, noise, contrast) + total
            if anchor is not None:
                regularise(gradient, parameters, anchor, self.objective, self.weight_decay)
            if self.correction is not None:
                self.correction.correct(gradient, memory)
            if velocity is not None:
                velocity.mul_(self.momentum).add_(gradient)
            parameters.add_(step, alpha=-self.lr)
        velocity = None if velocity is None else velocity.cpu()
        memory = tuple(remembered.cpu() for remembered in memory)
        return Trained(workspace.snapshot(), float(total) / self.steps, self.steps, velocity, memory)


@dataclass(frozen=True)
class Gradient:
    """One mini-batch gradient.

    Attributes
    ----------
    gradient : Tensor
        ``[p]``.
    loss : float
        Mean loss of the mini-batch.
    samples : int
        Size of the mini-batch.
    """

    gradient: Tensor
    loss: float
    samples: int = 0


@dataclass(slots=True)
class GradientJob:
    """The gradient of one mini-batch on one device, the first of an epoch (WKAFL uploads these).

    Attributes
    ----------
    start : Tensor
        ``[d]``, the model at which it is taken; read only.
    device, samples : int
        Whose data, and how many samples that is.
    batch_size : int
    weight_decay : float
    objective : Objective or None
        Added to the local loss, with `start` as both of its arguments.
    key : tuple
        ``(seed, purpose, *index)`` of the random stream that orders the samples; see :func:`noise_stream`.
    cursor : int or None
        As in :class:`TrainJob`.
    """

    steps: ClassVar[int] = 1

    start: Tensor
    device: int
    samples: int
    batch_size: int
    weight_decay: float
    objective: Objective | None
    key: tuple[int, str, int, int, int]
    cursor: int | None = None

    def run(self, workspace: Workspace) -> Gradient:
        """Differentiate in `workspace` and return a copy of the result."""
        workspace.load(self.start)
        parameters, gradient = workspace.parameters, workspace.gradient
        [batch] = batches_of(self)
        noise = noise_stream(self.key) if workspace.noisy else None
        loss = float(workspace.backward(self.device, batch, noise))
        anchor = self.start[: len(parameters)].to(parameters.device)
        regularise(gradient, parameters, anchor, self.objective, self.weight_decay)
        return Gradient(gradient.to("cpu", copy=True), loss, len(batch))


@dataclass(slots=True)
class ServerGradientJob:
    """The gradient of one mini-batch of the server's own samples (Zeno++ validates with it).

    Attributes
    ----------
    model : Tensor
        ``[d]``, read only.
    batch : ndarray
        Positions among the samples of all devices.
    key : tuple
        Of :func:`noise_stream`.
    """

    model: Tensor
    batch: np.ndarray
    key: tuple[int, str, int, int, int]

    def run(self, workspace: Workspace) -> Gradient:
        """Differentiate in `workspace` and return a copy of the result."""
        workspace.load(self.model)
        noise = noise_stream(self.key) if workspace.noisy else None
        loss = float(workspace.backward(POOLED, self.batch, noise))
        return Gradient(workspace.gradient.to("cpu", copy=True), loss, len(self.batch))


@dataclass(frozen=True)
class Peek:
    """What one mini-batch says about a model, and about others.

    Attributes
    ----------
    gradient : Tensor
        ``[p]``, of the mean loss at the model, in training mode; without objective and weight decay.
    losses : tuple of float
        Mean losses in evaluation mode: of the model, then of the others.
    """

    gradient: Tensor
    losses: tuple[float, ...]


@dataclass(slots=True)
class PeekJob:
    """Losses of several models on the first mini-batch of a training, and the gradient of one.

    Attributes
    ----------
    model, others : Tensor, tuple of Tensor
        ``[d]``, read only.
    device, samples, batch_size : int
        Whose data, how many samples that is, and how many of them are a mini-batch.
    key, cursor
        As in the :class:`TrainJob` that begins with this mini-batch.
    """

    steps: ClassVar[int] = 1

    model: Tensor
    others: tuple[Tensor, ...]
    device: int
    samples: int
    batch_size: int
    key: tuple[int, str, int, int, int]
    cursor: int | None = None

    def run(self, workspace: Workspace) -> Peek:
        """Measure and differentiate in `workspace`."""
        [batch] = batches_of(self)
        losses = tuple(workspace.loss(model, self.device, batch) for model in (self.model, *self.others))
        workspace.load(self.model)
        workspace.backward(self.device, batch, noise_stream(self.key) if workspace.noisy else None)
        return Peek(workspace.gradient.to("cpu", copy=True), losses)


@dataclass(slots=True)
class LossJob:
    """The mean loss of a model on training samples of one device.

    Attributes
    ----------
    model : Tensor
        ``[d]``, read only.
    device : int
        Whose data.
    samples : int
        Only the first so many samples are looked at.
    """

    model: Tensor
    device: int
    samples: int

    def run(self, workspace: Workspace) -> float:
        """Return the loss."""
        return workspace.loss(self.model, self.device, self.samples)


@dataclass(slots=True)
class EvaluateJob:
    """Measure a global model.

    Attributes
    ----------
    model : Tensor
        ``[d]``, read only.
    train_samples : int
        Bound on the training samples used.
    test_samples : int
        Test samples used, spread evenly; 0: all.
    """

    model: Tensor
    train_samples: int
    test_samples: int = 0

    def run(self, workspace: Workspace) -> dict[str, float]:
        """Return the task's metrics."""
        return workspace.evaluate(self.model, self.train_samples, self.test_samples)


def noise_stream(key: tuple[int, str, int, int, int]) -> torch.Generator:
    """Return the stream of a job's augmentation and dropout, beside the one `key` that orders its samples."""
    seed, purpose, *index = key
    return torch_stream(seed, f"{purpose}/noise", *index)


def batches_of(job: TrainJob | GradientJob | PeekJob) -> Iterator[np.ndarray]:
    """Return the mini-batches of `job`, as positions among its device's samples."""
    if job.cursor is None:
        return batches(job.samples, job.batch_size, job.steps, stream(*job.key))
    return cyclic_batches(job.samples, job.batch_size, job.steps, job.cursor)


def regularise(
    gradient: Tensor, parameters: Tensor, start: Tensor, objective: Objective | None, weight_decay: float
) -> None:
    """Add to `gradient` ``[..., p]`` what is not the loss: the objective's gradient and the weight decay."""
    with torch.no_grad():
        if objective is not None:
            gradient.add_(objective.gradient(parameters, start))
        if weight_decay:
            gradient.add_(parameters, alpha=weight_decay)
