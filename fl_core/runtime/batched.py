"""Local jobs of several devices as one computation: the same steps, on matrices with a row for each job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from torch.func import vmap

from fl_core.runtime.local import Gradient, GradientJob, Trained, TrainJob, batches_of, noise_stream, regularise
from fl_core.tasks import BatchedWorkspace, Objective


@dataclass(frozen=True)
class Shape:
    """What jobs must have in common to be computed together.

    Attributes
    ----------
    kind : type
        Training or one gradient.
    length, dtype
        Of the start vector.
    sizes : tuple of int
        Samples in the mini-batch of each step.
    weight_decay : float
    regularised : bool
        Whether there is an objective.
    momentum : float
    corrected : bool
        Whether there is a correction.
    """

    kind: type
    length: int
    dtype: torch.dtype
    sizes: tuple[int, ...]
    weight_decay: float
    regularised: bool
    momentum: float = 0.0
    corrected: bool = False


def shape_of(job: object) -> Shape | None:
    """Return the shape of `job`, or None if it is of a kind that is always computed alone."""
    if not isinstance(job, TrainJob | GradientJob):
        return None
    done = (job.cursor or 0) % -(-job.samples // job.batch_size)
    sizes = batch_sizes(job.samples, job.batch_size, job.steps, done)
    shape = Shape(
        type(job), len(job.start), job.start.dtype, sizes, job.weight_decay, regularised=job.objective is not None
    )
    if not isinstance(job, TrainJob):
        return shape
    if job.contrast is not None:
        return None
    return replace(shape, momentum=job.momentum, corrected=job.correction is not None)


@lru_cache(maxsize=1024)
def batch_sizes(samples: int, size: int, steps: int, done: int = 0) -> tuple[int, ...]:
    """Return the sizes of `steps` mini-batches after the first `done`; the last one of an epoch may be smaller."""
    epoch = [min(size, samples - first) for first in range(0, samples, size)]
    return tuple(epoch[step % len(epoch)] for step in range(done, done + steps))


def compute_together(
    jobs: Sequence[TrainJob] | Sequence[GradientJob], shape: Shape, workspace: BatchedWorkspace
) -> list[Trained] | list[Gradient]:
    """Compute `jobs`, all of `shape`, and return their results in this order, in main memory.

    Each job uses the mini-batches that it would use alone. Temporary memory is a few matrices ``[g, d]`` and the
    activations of ``g`` mini-batches.
    """
    place = workspace.vector.device
    models = torch.stack([job.start for job in jobs]).to(place)
    parameters = models[:, : len(workspace.parameters)]
    objective = Stacked([job.objective for job in jobs if job.objective is not None]) if shape.regularised else None
    anchors = parameters.clone() if objective else parameters
    rates = [[job.lr] for job in jobs if isinstance(job, TrainJob)]
    lr = torch.tensor(rates, dtype=models.dtype, device=place)
    velocity = _velocities(jobs, parameters) if shape.momentum else None
    corrections = [job.correction for job in jobs if isinstance(job, TrainJob) and job.correction is not None]
    memories = [each.begin(row) for each, row in zip(corrections, parameters, strict=False)]
    steps = len(shape.sizes)
    order = np.stack([np.concatenate(list(batches_of(job))) for job in jobs])
    noise = [noise_stream(job.key) for job in jobs] if workspace.noisy else None
    total: Tensor | float = 0.0
    for samples in workspace.locate([job.device for job in jobs], order).split(shape.sizes, 1):
        gradients, losses = workspace.gradients(models, samples, noise)
        regularise(gradients, parameters, anchors, objective, shape.weight_decay)
        total = losses + total
        for correction, row, memory in zip(corrections, gradients, memories, strict=False):
            correction.correct(row, memory)
        if velocity is not None:
            gradients = velocity.mul_(shape.momentum).add_(gradients)
        if shape.kind is TrainJob:
            parameters.addcmul_(gradients, lr, value=-1)
    assert isinstance(total, Tensor)
    means = [loss / steps for loss in total.tolist()]
    if shape.kind is TrainJob:
        last = [None] * len(jobs) if velocity is None else rows(velocity)
        kept = [tuple(each.cpu() for each in memory) for memory in memories] or [()] * len(jobs)
        results = zip(rows(models), means, [steps] * len(jobs), last, kept, strict=True)
        return [Trained(*result) for result in results]
    return [Gradient(gradient, loss) for gradient, loss in zip(rows(gradients), means, strict=True)]


def rows(matrix: Tensor) -> list[Tensor]:
    """Return copies of the rows in main memory: a view of one would keep the whole matrix alive."""
    return [row.clone() for row in matrix.cpu()]


def _velocities(jobs: Sequence[TrainJob] | Sequence[GradientJob], like: Tensor) -> Tensor:
    """Return the velocities ``[g, p]`` that `jobs` begin with."""
    velocities = torch.zeros_like(like)
    for row, job in zip(velocities, jobs, strict=True):
        if isinstance(job, TrainJob) and job.velocity is not None:
            row.copy_(job.velocity)
    return velocities


class Stacked:
    """The objectives of several jobs, as one on matrices with a row for each."""

    def __init__(self, objectives: Sequence[Objective]) -> None:
        self.objectives = objectives
        try:
            self._same = len(set(objectives)) == 1
        except TypeError:  # not hashable, so nobody can say whether they are equal
            self._same = False

    def gradient(self, parameters: Tensor, start: Tensor) -> Tensor:
        """Return the gradients ``[g, p]``, each as its objective gives it for its row alone."""
        if self._same:
            return vmap(self.objectives[0].gradient)(parameters, start)
        pairs = zip(self.objectives, parameters, start, strict=True)
        return torch.stack([objective.gradient(row, anchor) for objective, row, anchor in pairs])
