"""FedDelay: asynchronous SGD with full steps up to a staleness, and shorter ones beyond (BL-3.24, BL-3.25).

FedASMU's name for Koloskova, Stich & Jaggi, "Sharper Convergence Guarantees for Asynchronous SGD for Distributed and
Federated Learning" (NeurIPS 2022).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field
from torch import Tensor

from fl_core.algorithms.base import ContinuousAlgorithm, Step, mean_step, register

if TYPE_CHECKING:
    from fl_core.runtime import DeviceHandle, ServerHandle

Mode = Literal["continuous", "inverse", "drop"]


@register
class FedDelay(ContinuousAlgorithm):
    """Add each arriving update, less of it if its staleness exceeds the concurrency (BL-3.25)."""

    global_lr: float = Field(1.0, gt=0, allow_inf_nan=False)
    """Step size eta_g of the server."""
    threshold: int | None = Field(None, ge=1)
    """Staleness tau_C up to which an update counts in full. None: `concurrency`."""
    mode: Mode = "continuous"
    """Beyond it an update counts tau_C / tau, "continuous"; 1 / tau, "inverse"; or not at all, "drop"."""
    count_dropped: bool = True
    """Whether a dropped update makes a version all the same; if not, it is discarded."""

    async def updater(self, server: ServerHandle) -> None:
        [upload] = await server.receive()
        made = self.combine(server.model, upload.delta, upload.staleness)
        if made.weight or self.count_dropped:
            server.commit(made.model, weight=made.weight)
        else:
            server.discard(upload)

    def combine(self, model: Tensor, delta: Tensor, staleness: int) -> Step:
        """Return the step along one update; the model itself where that is dropped."""
        step = self.global_lr * delay_factor(staleness, self.threshold or self.concurrency, self.mode)
        return Step(mean_step(model, delta[None], step) if step else model, step)

    async def device(self, device: DeviceHandle) -> None:
        snapshot = await device.download()
        trained = await device.train(snapshot.model)
        await device.upload(delta=snapshot.model - trained.model, based_on=snapshot)


def delay_factor(staleness: float, threshold: float, mode: Mode = "continuous") -> float:
    """Return what the server's step is multiplied by: 1 up to the threshold tau_C >= 1, BL-3.24 and BL-3.25.

    Beyond it: "continuous", tau_C / tau, which with a step of 1 / (4 L tau_C) is the bound 1 / (4 L tau) of the
    theorem; "inverse", 1 / tau, the paper's advice, with a jump at tau_C; or "drop", 0.
    """
    if staleness <= threshold:
        return 1.0
    return {"continuous": threshold / staleness, "inverse": 1 / staleness, "drop": 0.0}[mode]
