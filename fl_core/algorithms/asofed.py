"""ASO-Fed: asynchronous online learning with a decayed memory of gradients on each device, and attention to features.

Source: Chen, Ning, Slawski & Rangwala, "Asynchronous Online Federated Learning for Edge Devices with Non-IID Data"
(IEEE Big Data 2020). BL-n are the equations of this project's specification of the baselines, which restate the
paper's from memory; their order agrees with the comments in two public codes. Vectors are ``[p]``: grad s
`gradient`, that of F_k plus lambda (x - w_b); v `previous`, the grad s of the device's step before, which may belong
to an earlier task; h `memory`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from fl_core.algorithms.base import ContinuousAlgorithm, Step, mean_step, register, running_mean
from fl_core.tasks import Objective, Proximal

if TYPE_CHECKING:
    from fl_core.runtime import DeviceHandle, ServerHandle

M = TypeVar("M", float, NDArray[Any], torch.Tensor)


@register
class ASOFed(ContinuousAlgorithm):
    """Add each arriving update by its share of the data; devices step along gradients with a memory (BL-3.6 to 3.10).

    A device keeps two vectors, the gradient of its last step and the decayed memory, and the mean duration of its
    tasks; with `start` ``"own"`` its model as well.
    """

    name: ClassVar[str] = "asofed"
    rho: float = Field(0.01, ge=0, allow_inf_nan=False)
    """Weight lambda of the pull towards the received model: rho / 2 times the squared distance."""
    beta: float = Field(0.5, ge=0, le=1)
    """Part of the memory that a step keeps."""
    start: Literal["global", "own"] = "global"
    """Local training goes on from the "global" model, or from the device's "own" last one, only attracted by the
    global one; then the global model is the mean of the devices' models, weighted by samples, as long as no upload
    gets lost. That a new device has the initial model, too, is not counted in bytes."""
    feature_learning: Literal["off", "paper", "rescaled"] = "off"
    """What the server does to the first layer after each update (BL-3.10): nothing, "off"; "paper", which shrinks a
    layer with many inputs to nothing; or "rescaled" by the number of inputs."""

    async def updater(self, server: ServerHandle) -> None:
        """Add p_k times the update of each arrival (BL-3.9)."""
        [upload] = await server.receive()
        if self.start == "own":
            server.state.setdefault("initial", server.model)
        made = self.combine(server.model, upload.delta, server.share(upload.device), server.shapes)
        server.commit(made.model, weight=made.weight)

    def combine(self, model: Tensor, delta: Tensor, share: float, shapes: Sequence[tuple[int, ...]]) -> Step:
        """Return w + p_k Delta_k (BL-3.9), with the feature step on the first of its tensors (BL-3.10)."""
        model = mean_step(model, delta[None], share)
        if self.feature_learning != "off":
            rows = shapes[0][0] if len(shapes[0]) > 1 else 1
            first, others = model.tensor_split([math.prod(shapes[0])])
            weighed = attended(first.view(rows, -1), rescaled=self.feature_learning == "rescaled")
            model = torch.cat([weighed.flatten(), others])
        return Step(model, share)

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
        lr, correction = device.lr * lr_factor(mean_seconds), DecayedMemory(self.beta, state.get("memory", ()))
        trained = await device.train(start, lr=lr, objective=objective, correction=correction)
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


@dataclass(frozen=True, eq=False)
class Towards:
    """A pull towards a model that is not the one from which training begins."""

    rho: float
    anchor: Tensor

    def gradient(self, parameters: Tensor, start: Tensor) -> Tensor:
        return Proximal(self.rho).gradient(parameters, self.anchor.to(parameters.device))


@dataclass(frozen=True, eq=False)
class DecayedMemory:
    """The correction of BL-3.6 and BL-3.7; it goes on with `kept`, v and h of the last task (none: zeros)."""

    beta: float
    kept: tuple[Tensor, ...]

    def begin(self, parameters: Tensor) -> tuple[Tensor, ...]:
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
    """Return zeta = grad s - v + h, BL-3.6: the way of a local step."""
    return gradient - previous + memory


def next_memory(memory: M, previous: M, beta: float) -> M:
    """Return beta h + (1 - beta) v, BL-3.7, with the v of `corrected_gradient`; after that v becomes grad s."""
    return beta * memory + (1 - beta) * previous


def lr_factor(mean_seconds: float | None) -> float:
    """Return r_k = max(1, log(mean duration of past tasks)), BL-3.8, by which a device multiplies its step size.

    It depends on the unit of time, here seconds, and is 1 before the first task.
    """
    if mean_seconds is None:
        return 1.0
    return max(1.0, math.log(mean_seconds)) if mean_seconds else 1.0


def attended(layer: Tensor, rescaled: bool = False) -> Tensor:
    """Return a_ij W_ij of W ``[rows, columns]``, with a the softmax of the |W_ij| of a row, BL-3.10.

    The a_ij of a row add up to 1, so that a layer with many inputs shrinks to nothing if this is done after every
    update; `rescaled` multiplies by the length of the row, which leaves a row of equal weights alone.
    """
    weighed = torch.softmax(layer.abs(), 1) * layer
    return weighed * layer.shape[1] if rescaled else weighed
