"""Convex quadratics with known minimisers: the problem on which an algorithm can be checked by hand."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fl_core.models.units import Place, Units
from fl_core.tasks.base import POOLED, Contrast

V = TypeVar("V", NDArray[np.float64], Tensor)


class QuadraticLosses(Generic[V]):
    r"""Device *i* holds :math:`F_i(x)=\frac12\sum_j a_{ij}(x_j-c_{ij})^2`; F is their mean (FA-1: all weigh equally).

    `curvature` ``[n, d]`` are the positive :math:`a_{ij}`, `centre` ``[n, d]`` the minimisers :math:`c_{ij}`.
    """

    def __init__(self, curvature: V, centre: V) -> None:
        self.curvature: V = curvature
        self.centre: V = centre

    def gradient(self, device: int, x: V) -> V:
        """Return that of F_i, ``[d]``."""
        return self.curvature[device] * (x - self.centre[device])

    def mean_gradient(self, x: V) -> V:
        """Return that of F, ``[d]``."""
        return (self.curvature * (x - self.centre)).mean(0)

    def loss(self, x: V) -> float:
        """Return F(x)."""
        return float((0.5 * self.curvature * (x - self.centre) ** 2).sum(1).mean())

    def minimiser(self) -> V:
        """Return that of F, ``[d]``."""
        return (self.curvature * self.centre).sum(0) / self.curvature.sum(0)


class Quadratic(QuadraticLosses[Tensor]):
    """The task in which devices hold these losses, in float64; a "batch" is all of F_i, so an epoch is one step.

    `start` ``[d]`` is the model of version 0, `samples` are nominal data sizes for algorithms that weight by them
    (default: one each).
    """

    def __init__(self, curvature: object, centre: object, start: object, samples: object = None) -> None:
        super().__init__(*(torch.as_tensor(given, dtype=torch.float64) for given in (curvature, centre)))
        self.start = torch.as_tensor(start, dtype=torch.float64)
        self.samples = [1] * len(self.centre) if samples is None else [int(s) for s in np.asarray(samples)]
        self.dimension = self.start.numel()

    def initial_model(self, seed: int) -> Tensor:
        """Return `start`, whatever the seed."""
        return self.start.clone()

    def num_samples(self, device: int) -> int:
        """Return the nominal data size of `device`."""
        return sum(self.samples) if device == POOLED else self.samples[device]

    def workspace(self) -> QuadraticWorkspace:
        """Return a new workspace."""
        return QuadraticWorkspace(self, torch.device("cpu"))

    @property
    def kin(self) -> Hashable:
        """No other task: a workspace holds the functions."""
        return id(self)

    def locate(self, device: int, positions: np.ndarray) -> Tensor:
        """Return the device's number, like `positions`: it has one function, whichever sample is asked for."""
        return torch.full(positions.shape, device)

    def batched_workspace(self, place: torch.device) -> QuadraticWorkspace:
        """Return a new workspace on `place`."""
        return QuadraticWorkspace(self, place)


class QuadraticWorkspace:
    """The vector being trained and its gradient, or several of them."""

    noisy, separate, sample_bytes = False, True, 8

    def __init__(self, task: Quadratic, place: torch.device) -> None:
        self.task = task
        self.curvature, self.centre = task.curvature.to(place), task.centre.to(place)
        self.vector = torch.zeros(task.dimension, dtype=torch.float64, device=place)
        self.parameters = self.vector
        self.gradient = torch.zeros_like(self.vector)

    def load(self, model: Tensor) -> None:
        """Copy `model` in."""
        self.vector.copy_(model)

    def snapshot(self) -> Tensor:
        """Return a copy of the vector in main memory."""
        return self.vector.to("cpu", copy=True)

    def backward(
        self, device: int, batch: np.ndarray, noise: torch.Generator | None = None, contrast: Contrast | None = None
    ) -> Tensor:
        """Fill `gradient` with that of F_i (of the mean F for the pooled device); return the loss.

        What `contrast` compares is the vector itself, as if every sample were represented by it.
        """
        offset, pull = self._pull(self.vector, device)
        torch.mean(pull, 0, out=self.gradient)
        loss = (0.5 * pull * offset).sum(1).mean()
        if contrast is not None:
            ours = self.vector.clone().requires_grad_()
            term = contrast.loss(ours[None], [model[None] for model in contrast.references])
            self.gradient += torch.autograd.grad(term, ours)[0]
            loss = loss + term.detach()
        return loss

    def hidden_units(self) -> tuple[Units, ...]:
        """Return one group: each number of the vector stands for a unit."""
        size = len(self.parameters)
        return (Units(size, (Place(0, (size, 1), 0),)),)

    def gradients(
        self, models: Tensor, samples: Tensor, weights: Tensor, noise: Sequence[tuple[torch.Generator, int]] = ()
    ) -> tuple[Tensor, Tensor]:
        """Return the gradient ``[g, d]`` and the value ``[g]`` of each device's function at its model."""
        devices = samples[:, 0]
        offset = models - self.centre[devices]
        gradients = self.curvature[devices] * offset
        losses = 0.5 * (gradients * offset).sum(1)
        for row in (devices == POOLED).nonzero().flatten().tolist():
            offset, pull = self._pull(models[row], POOLED)
            gradients[row], losses[row] = pull.mean(0), (0.5 * pull * offset).sum(1).mean()
        return gradients, losses

    def loss(self, model: Tensor, device: int, samples: int | np.ndarray) -> float:
        """Return F_i at `model` (the mean F for the pooled device), whichever `samples` are asked for."""
        offset, pull = self._pull(model.to(self.centre.device), device)
        return float((0.5 * pull * offset).sum(1).mean())

    def evaluate(self, model: Tensor, train_samples: int, test_samples: int = 0) -> dict[str, float]:
        """Return ``train_loss``, the value of F."""
        return {"train_loss": self.task.loss(model)}

    def _pull(self, model: Tensor, device: int) -> tuple[Tensor, Tensor]:
        """Return ``x - c`` and ``a (x - c)``, a row ``[d]`` for each function that `device` has."""
        rows = slice(None) if device == POOLED else (device, None)
        offset = model - self.centre[rows]
        return offset, self.curvature[rows] * offset
