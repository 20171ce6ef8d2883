"""ASO-Fed: asynchronous online learning with a decayed memory of gradients on each device (Chen et al., 2020)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from fl_core.algorithms.base import Algorithm, mean_step, register, running_mean
from fl_core.formulas.checks import require
from fl_core.tasks import Objective, Proximal

if TYPE_CHECKING:
    from fl_core.runtime import DeviceHandle, ServerHandle

M = TypeVar("M", float, NDArray[Any], torch.Tensor)


@register
class ASOFed(Algorithm):
    """Add each arriving update by its share of the data; devices step along gradients with a memory (BL-3.6 to 3.10).

    A device keeps two vectors, the gradient of its last step and the decayed memory, and the mean duration of its
    tasks; with `start` ``"own"`` its model as well.

    Attributes
    ----------
    rho : float
        Weight lambda of the pull towards the received model: rho / 2 times the squared distance.
    beta : float
        Part of the memory that a step keeps.
    start : str
        Local training goes on from the ``"global"`` model, or from the device's ``"own"`` last one, only attracted by
        the global one; then the global model is the mean of the devices' models, weighted by samples, as long as no
        upload gets lost. That a new device has the initial model, too, is not counted in bytes.
    feature_learning : str
        What the server does to the first layer after each update (BL-3.10): nothing, ``"off"``; ``"paper"``, which
        shrinks a layer with many inputs to nothing; or ``"rescaled"`` by the number of inputs.
    concurrency : int
        Devices in flight.
    """

    name: ClassVar[str] = "asofed"

    rho: float = Field(0.01, ge=0, allow_inf_nan=False)
    beta: float = Field(0.5, ge=0, le=1)
    start: Literal["global", "own"] = "global"
    feature_learning: Literal["off", "paper", "rescaled"] = "off"
    concurrency: int = Field(10, ge=1)

    async def scheduler(self, server: ServerHandle) -> None:
        """Trigger idle devices so that `concurrency` of them work."""
        await server.keep_busy(self.concurrency)

    async def updater(self, server: ServerHandle) -> None:
        """Add p_k times the update of each arrival (BL-3.9)."""
        [upload] = await server.receive()
        if self.start == "own":
            server.state.setdefault("initial", server.model)
        share = server.share(upload.device)
        model = mean_step(server.model, upload.delta[None], share)
        if self.feature_learning != "off":
            model = self._attend(server.shapes[0], model)
        server.commit(model, weight=share)

    async def device(self, device: DeviceHandle) -> None:
        """Train with memory and longer steps (BL-3.6 to 3.8), and upload the difference."""
        began = device.now
        snapshot = await device.download()
        state = device.state
        count, mean_seconds = state.get("tasks", (0, None))
        start: Tensor = snapshot.model
        objective: Objective = Proximal(self.rho)
        if self.start == "own":
            if "model" in state:
                start = state["model"]
            elif snapshot.version:
                start = await device.ask("initial model")
            objective = Towards(self.rho, snapshot.model[: device.num_parameters])
        trained = await device.train(
            start,
            lr=device.lr * lr_factor(mean_seconds),
            objective=objective,
            correction=DecayedMemory(self.beta, state.get("memory", ())),
        )
        if torch.isfinite(trained.model).all():  # what the server will reject leaves no trace here either
            state["memory"] = trained.memory
            if self.start == "own":
                state["model"] = trained.model
        await device.upload(delta=start - trained.model, based_on=snapshot)
        state["tasks"] = (count + 1, running_mean(mean_seconds or 0.0, device.now - began, count + 1))

    def answer(self, server: ServerHandle, device: DeviceHandle, question: Any) -> Tensor:
        """Return the initial model, which all have in common: the server's copy of a device that is new."""
        initial: Tensor = server.state.get("initial", server.model)
        return initial

    def most_in_flight(self) -> int:
        """Return the concurrency."""
        return self.concurrency

    def _attend(self, shape: tuple[int, ...], model: Tensor) -> Tensor:
        """Return `model` after the feature step on its first tensor, a row for each of its units."""
        rows = shape[0] if len(shape) > 1 else 1
        first, others = model.tensor_split([prod(shape)])
        weighed = attended(first.view(rows, -1), rescaled=self.feature_learning == "rescaled")
        return torch.cat([weighed.flatten(), others])


@dataclass(frozen=True, eq=False)
class Towards:
    """A pull towards a model that is not the one from which training begins.

    Attributes
    ----------
    rho : float
    anchor : Tensor
        ``[p]``.
    """

    rho: float
    anchor: Tensor

    def gradient(self, parameters: Tensor, start: Tensor) -> Tensor:
        """Return ``rho * (parameters - anchor)``."""
        return Proximal(self.rho).gradient(parameters, self.anchor.to(parameters.device))


@dataclass(frozen=True, eq=False)
class DecayedMemory:
    """The correction of BL-3.6 and BL-3.7.

    Attributes
    ----------
    beta : float
    kept : tuple of Tensor
        v and h ``[p]`` of the device's last task; empty: zeros.
    """

    beta: float
    kept: tuple[Tensor, ...]

    def begin(self, parameters: Tensor) -> tuple[Tensor, ...]:
        """Return v and h."""
        if not self.kept:
            return torch.zeros_like(parameters), torch.zeros_like(parameters)
        return tuple(vector.to(parameters.device, copy=True) for vector in self.kept)

    def correct(self, gradient: Tensor, memory: tuple[Tensor, ...]) -> None:
        """Turn the gradient into zeta, and remember it."""
        previous, decayed = memory
        step = corrected_gradient(gradient, previous, decayed)
        decayed.copy_(next_memory(decayed, previous, self.beta))
        previous.copy_(gradient)
        gradient.copy_(step)


def corrected_gradient(gradient: M, previous: M, memory: M) -> M:
    """Return zeta = grad s - v + h, BL-3.6: the way of a local step.

    Parameters
    ----------
    gradient : float, ndarray or Tensor
        grad s ``[p]``, that of F_k plus lambda (x - w_b).
    previous : float, ndarray or Tensor
        v ``[p]``, the grad s of the device's step before, which may belong to an earlier task.
    memory : float, ndarray or Tensor
        h ``[p]``.
    """
    return gradient - previous + memory


def next_memory(memory: M, previous: M, beta: float) -> M:
    """Return beta h + (1 - beta) v, BL-3.7, with the v that `direction` was given; after that v becomes grad s.

    Raises
    ------
    ValueError
        `beta` is not in [0, 1].
    """
    require(0 <= beta <= 1, "beta", beta, "in [0, 1]")
    return beta * memory + (1 - beta) * previous


def lr_factor(mean_seconds: float | None) -> float:
    """Return r_k = max(1, log(mean duration)), BL-3.8, by which a device multiplies its step size.

    It depends on the unit of time, here seconds.

    Parameters
    ----------
    mean_seconds : float or None
        Mean duration of the device's past tasks, >= 0; None: it has none yet, and the factor is 1.

    Raises
    ------
    ValueError
        `mean_seconds` is negative.
    """
    if mean_seconds is None:
        return 1.0
    require(mean_seconds >= 0, "mean_seconds", mean_seconds, ">= 0")
    return max(1.0, math.log(mean_seconds)) if mean_seconds else 1.0


def attended(layer: Tensor, rescaled: bool = False) -> Tensor:
    """Return a_ij W_ij with a the softmax of the |W_ij| of a row, BL-3.10.

    The a_ij of a row add up to 1, so that a layer with many inputs shrinks to nothing if this is done after every
    update; `rescaled` multiplies by the length of the row, which leaves a row of equal weights alone.

    Parameters
    ----------
    layer : Tensor
        W ``[rows, columns]``.
    rescaled : bool
    """
    weighed = torch.softmax(layer.abs(), 1) * layer
    return weighed * layer.shape[1] if rescaled else weighed
