"""FedDyn: rounds with a dynamic regulariser, so that all devices agree on one stationary point (BL-2.8 to BL-2.10).

Acar, Zhao, Matas Navarro, Mattina, Whatmough & Saligrama, "Federated Learning Based on Dynamic Regularization" (ICLR
2021). w_t is the round's global model, x_k what device k has made of it, g_k the `correction` of device k, h the
`state` of the server, N `num_devices`. Arguments are parameters only, no running statistics.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from fl_core.algorithms.base import register
from fl_core.algorithms.fedavg import SynchronousRounds

if TYPE_CHECKING:
    from fl_core.runtime import DeviceHandle, ServerHandle

M = TypeVar("M", float, NDArray[Any], torch.Tensor)


@register
class FedDyn(SynchronousRounds):
    """Synchronous rounds in which device and server keep a correction each, for ever (BL-2.8 to BL-2.10).

    The server's is the mean of the devices' as long as no upload gets lost. The limit for small alpha is not FedAvg:
    the server adds the sum of all mean moves so far, so that a first round with everybody goes twice as far.
    """

    weighting: Literal["uniform"] = "uniform"
    """``"uniform"``: the mean of the models has no weights."""
    alpha: float = Field(0.01, gt=0, allow_inf_nan=False)
    """Regularisation. Small values trust the devices' corrections, which are divided by it, too much."""
    scale_alpha_by_share: bool = False
    """Whether a device regularises by alpha / (N p_k), as in the authors' code. Then the mean of the losses that is
    minimised is weighted by samples; else it is not."""

    async def updater(self, server: ServerHandle) -> None:
        """Update h and then the model (BL-2.10); if nobody has come back, both stay."""
        uploads = await server.receive_round()
        if not uploads:
            server.commit(server.model)
            return
        models, state = torch.stack([upload.model for upload in uploads]), server.state.get("h", 0.0)
        counts = len(server.devices), server.num_parameters
        model, server.state["h"] = self.combine(server.model, models, state, *counts)
        server.commit(model)

    def combine(
        self, model: Tensor, models: Tensor, state: Tensor | float, num_devices: int, num_parameters: int
    ) -> tuple[Tensor, Tensor]:
        """Return the next model and h, given those of the round, ``[n, d]``; statistics are averaged."""
        mean, moved = models.mean(0), (models - model).sum(0)[:num_parameters]
        state = next_state(state, moved, self.alpha, num_devices)
        mean[:num_parameters] = next_model(mean[:num_parameters], state, self.alpha)
        return mean, state

    async def device(self, device: DeviceHandle) -> None:
        """Train with the dynamic regulariser (BL-2.8) and update the correction (BL-2.9)."""
        snapshot = await device.download()
        alpha = await device.ask("alpha") if self.scale_alpha_by_share else self.alpha
        correction = device.state.get("correction", torch.zeros(()))
        trained = await device.train(snapshot.model, objective=DynamicRegulariser(alpha, correction))
        moved = (trained.model - snapshot.model)[: device.num_parameters]
        if torch.isfinite(moved).all():  # what the server will reject leaves no trace here either
            device.state["correction"] = next_correction(correction, moved, alpha)
        await device.upload(model=trained.model, based_on=snapshot)

    def answer(self, server: ServerHandle, device: DeviceHandle, question: Any) -> float:
        return alpha_of_share(self.alpha, server.share(device.id), len(server.devices))


@dataclass(frozen=True, eq=False)
class DynamicRegulariser:
    """The terms of BL-2.8 beside F_k; the correction g_k is ``[p]``, or a single 0."""

    alpha: float
    correction: Tensor

    def gradient(self, parameters: Tensor, start: Tensor) -> Tensor:
        return added_gradient(parameters, start, self.correction.to(parameters.device), self.alpha)


def added_gradient(x: M, anchor: M, correction: M | float, alpha: float) -> M:
    """Return -g_k + alpha (x - w_t): what a local step adds to the gradient of F_k, BL-2.8."""
    return alpha * (x - anchor) - correction


def next_correction(correction: M | float, moved: M, alpha: float) -> M:
    """Return g_k - alpha (x_k - w_t), BL-2.9: the gradient of F_k at x_k if x_k minimises the local problem."""
    return correction - alpha * moved


def next_state(state: M | float, moved: M, alpha: float, num_devices: int) -> M:
    """Return h - (alpha / N) sum_k (x_k - w_t), BL-2.10: the mean of the g_k over all devices, at all times.

    `moved` is the sum over the devices of the round, N counts all devices.
    """
    return state - alpha / num_devices * moved


def next_model(mean: M, state: M, alpha: float) -> M:
    """Return the mean of the x_k minus h / alpha, BL-2.10, with the h of after the round."""
    return mean - state / alpha


def alpha_of_share(alpha: float, share: float, num_devices: int) -> float:
    """Return alpha / (N p_k), with which the authors' code regularises a device that holds the part p_k of the data.

    The g_k then balance where sum_k p_k F_k is stationary, not where the unweighted mean of the F_k is.
    """
    return alpha / (num_devices * share)
