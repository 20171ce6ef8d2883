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

from fl_core.errors import RunError
from fl_core.streams import stream, torch_stream
from fl_core.tasks import POOLED, Contrast, ContrastiveWorkspace, Correction, Objective, Workspace


class Job(Protocol):
    """A piece of work that needs a workspace and nothing else."""

    def run(self, workspace: Workspace) -> object:
        """Compute the result, which shares no memory with `workspace`."""


@dataclass(frozen=True)
class Trained:
    """What local training produced."""

    model: Tensor
    """``[d]``."""
    loss: float
    """Mean mini-batch loss on the way."""
    steps: int
    """Mini-batch steps done."""
    velocity: Tensor | None = None
    """``[p]``, with momentum: that of the last step."""
    memory: tuple[Tensor, ...] = ()
    """What the correction, if there was one, remembers."""


@dataclass(slots=True)
class TrainJob:
    """Local SGD on one device (FA-4, FA-5)."""

    start: Tensor
    """``[d]``, the received model; read only."""
    device: int
    samples: int
    """Whose data, and how many samples that is."""
    steps: int
    batch_size: int
    """Mini-batches to do, and their size; each epoch is a new permutation of the device's samples."""
    lr: float
    weight_decay: float
    objective: Objective | None
    """Added to the local loss."""
    key: tuple[int, str, int, int, int]
    """``(seed, purpose, *index)`` of the random stream that orders the samples; see :func:`noise_stream`."""
    momentum: float = 0.0
    """Part of the velocity that a step keeps."""
    velocity: Tensor | None = None
    """``[p]``, at the start; read only; None: 0."""
    cursor: int | None = None
    """The samples stay in order, and so many mini-batches have been done before."""
    contrast: Contrast | None = None
    """Added to the local loss."""
    correction: Correction | None = None
    """Has the last word on the gradient of each step."""

    def run(self, workspace: Workspace) -> Trained:
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
    """One mini-batch gradient."""

    gradient: Tensor
    """``[p]``."""
    loss: float
    """Mean loss of the mini-batch."""
    samples: int = 0
    """Size of the mini-batch."""


@dataclass(slots=True)
class GradientJob:
    """The gradient at `start` of one mini-batch on one device, as :class:`TrainJob` (WKAFL uploads these)."""

    steps: ClassVar[int] = 1

    start: Tensor
    device: int
    samples: int
    batch_size: int
    weight_decay: float
    objective: Objective | None
    """Added to the local loss, with `start` as both of its arguments."""
    key: tuple[int, str, int, int, int]
    cursor: int | None = None

    def run(self, workspace: Workspace) -> Gradient:
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
    """The gradient of one mini-batch of the server's own samples (Zeno++ validates with it)."""

    model: Tensor
    """``[d]``, read only."""
    batch: np.ndarray
    """Positions among the samples of all devices."""
    key: tuple[int, str, int, int, int]

    def run(self, workspace: Workspace) -> Gradient:
        workspace.load(self.model)
        noise = noise_stream(self.key) if workspace.noisy else None
        loss = float(workspace.backward(POOLED, self.batch, noise))
        return Gradient(workspace.gradient.to("cpu", copy=True), loss, len(self.batch))


@dataclass(frozen=True)
class Peek:
    """What one mini-batch says about a model, and about others."""

    gradient: Tensor
    """``[p]``, of the mean loss at the model, in training mode; without objective and weight decay."""
    losses: tuple[float, ...]
    """Mean losses in evaluation mode: of the model, then of the others."""


@dataclass(slots=True)
class PeekJob:
    """Losses of several models on the first mini-batch of a :class:`TrainJob`, and the gradient of one."""

    steps: ClassVar[int] = 1

    model: Tensor
    others: tuple[Tensor, ...]
    """``[d]``, read only."""
    device: int
    samples: int
    batch_size: int
    key: tuple[int, str, int, int, int]
    cursor: int | None = None

    def run(self, workspace: Workspace) -> Peek:
        [batch] = batches_of(self)
        losses = tuple(workspace.loss(model, self.device, batch) for model in (self.model, *self.others))
        workspace.load(self.model)
        workspace.backward(self.device, batch, noise_stream(self.key) if workspace.noisy else None)
        return Peek(workspace.gradient.to("cpu", copy=True), losses)


@dataclass(slots=True)
class LossJob:
    """The mean loss of a model ``[d]`` on training samples of one device."""

    model: Tensor
    device: int
    samples: int
    """Only the first so many samples are looked at."""

    def run(self, workspace: Workspace) -> float:
        return workspace.loss(self.model, self.device, self.samples)


@dataclass(slots=True)
class EvaluateJob:
    """Measure a global model ``[d]``."""

    model: Tensor
    train_samples: int
    """Bound on the training samples used."""
    test_samples: int = 0
    """Test samples used, spread evenly; 0: all."""

    def run(self, workspace: Workspace) -> dict[str, float]:
        return workspace.evaluate(self.model, self.train_samples, self.test_samples)


def noise_stream(key: tuple[int, str, int, int, int]) -> torch.Generator:
    """Return the stream of a job's augmentation and dropout, beside the one `key` that orders its samples."""
    seed, purpose, *index = key
    return torch_stream(seed, f"{purpose}/noise", *index)


def batches_of(job: TrainJob | GradientJob | PeekJob) -> Iterator[np.ndarray]:
    """Return the mini-batches of `job`, as positions among its device's samples, drawn or in their order."""
    samples, size = job.samples, job.batch_size
    if job.cursor is None:
        return batches(samples, size, job.steps, stream(*job.key))
    per_epoch = -(-samples // size)
    starts = (step % per_epoch * size for step in range(job.cursor, job.cursor + job.steps))
    return (np.arange(start, min(start + size, samples)) for start in starts)


def regularise(
    gradient: Tensor, parameters: Tensor, start: Tensor, objective: Objective | None, weight_decay: float
) -> None:
    """Add to `gradient` ``[..., p]`` what is not the loss: the objective's gradient and the weight decay."""
    with torch.no_grad():
        if objective is not None:
            term = objective.gradient(parameters, start)
            if getattr(term, "shape", None) != parameters.shape:  # else it would be added to every entry
                found = list(term.shape) if isinstance(term, Tensor) else term
                raise RunError(
                    f"an objective's gradient is {found}; it should have the shape {list(parameters.shape)}"
                )
            gradient.add_(term)
        if weight_decay:
            gradient.add_(parameters, alpha=weight_decay)


def batches(samples: int, size: int, steps: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Yield `steps` mini-batches of positions ``0..samples-1``: without replacement within an epoch."""
    done = 0
    while done < steps:
        order = rng.permutation(samples)
        for first in range(0, samples, size):
            if done == steps:
                return
            yield order[first : first + size]
            done += 1
