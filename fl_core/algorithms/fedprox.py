"""FedProx: FedAvg with a pull towards the received model, and partial work of slow devices (Li et al., 2020)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from fl_core.algorithms.base import Weighting, register
from fl_core.algorithms.fedavg import FedAvg
from fl_core.config import Seconds
from fl_core.formulas.fedluck import TIE
from fl_core.tasks import Proximal
from fl_core.world.triggers import Rounds

if TYPE_CHECKING:
    from fl_core.runtime import DeviceHandle, ServerHandle


@register
class FedProx(FedAvg):
    """Synchronous rounds in which devices are held back to the model that they received (BL-2.4).

    With mu = 0 and no deadline it is FedAvg, bit for bit.
    """

    weighting: Weighting = "samples"
    """By "samples"; or "uniform", with `sampling` "by_share" the paper's scheme (BL-2.5)."""
    sampling: Literal["uniform", "by_share"] = "uniform"
    """Devices of a round are drawn "uniform", or "by_share" of the data."""
    mu: float = Field(0.01, ge=0, allow_inf_nan=False)
    """Weight of the pull: mu / 2 times the squared distance."""
    deadline_seconds: Seconds | None = None
    """A device does as many local steps as it can in this time of computing, at least one, and uploads that (the
    paper's partial work). None: all of them, whatever the time."""

    async def scheduler(self, server: ServerHandle) -> None:
        await Rounds(devices=self.clients_per_round, sampling=self.sampling).turn(server)

    async def device(self, device: DeviceHandle) -> None:
        """Train near the received model (BL-2.4)."""
        snapshot = await device.download()
        objective = Proximal(self.mu) if self.mu else None
        trained = await device.train(snapshot.model, steps=self._steps(device), objective=objective)
        await device.upload(model=trained.model, based_on=snapshot)

    def _steps(self, device: DeviceHandle) -> int | None:
        if self.deadline_seconds is None:
            return None
        seconds = device.profile.train_seconds(1, device.steps_per_epoch)
        return max(1, min(device.local_steps, int(self.deadline_seconds / seconds + TIE)))
