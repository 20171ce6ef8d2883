"""FedAsync: asynchronous federated optimisation with adaptive mixing (Xie, Koyejo & Gupta, 2019)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from fl_core.algorithms.base import Algorithm, register
from fl_core.formulas.fedasync import alpha_t, mix
from fl_core.formulas.staleness import Constant, StalenessWeight
from fl_core.tasks import Proximal

if TYPE_CHECKING:
    from fl_core.runtime import DeviceHandle, ServerHandle


@register
class FedAsync(Algorithm):
    """Algorithm 1: mix every arriving model into the global one at once, with less weight if it is stale.

    Attributes
    ----------
    alpha : float
        Mixing weight of a fresh model, in (0, 1].
    weight : StalenessWeight
        Factor s(u) by staleness: constant, linear, polynomial, exponential or hinge (FA-7).
    rho : float
        Proximal weight: 0 is Option I (FA-4), above 0 Option II (FA-5).
    schedule : str
        How alpha changes with the global epoch: ``"constant"``, ``"step"`` or ``"inv_sqrt"``.
    step_epoch, step_factor : int, float
        For ``"step"``: alpha is multiplied by the factor after this epoch.
    convention : str
        Argument of s: ``"missed_updates"`` (a fresh model has 0) or ``"paper"`` (a fresh model has 1).
    concurrency : int
        Devices in flight.
    """

    alpha: float = Field(0.6, gt=0, le=1)
    weight: StalenessWeight = Constant()
    rho: float = Field(0.0, ge=0, allow_inf_nan=False)
    schedule: Literal["constant", "step", "inv_sqrt"] = "constant"
    step_epoch: int = Field(800, ge=1)
    step_factor: float = Field(0.5, gt=0, le=1)
    convention: Literal["missed_updates", "paper"] = "missed_updates"
    concurrency: int = Field(10, ge=1)

    async def scheduler(self, server: ServerHandle) -> None:
        """Trigger idle devices so that `concurrency` of them work."""
        await server.keep_busy(self.concurrency)

    async def updater(self, server: ServerHandle) -> None:
        """Mix each arrival (FA-2) with weight alpha_t (FA-6)."""
        [upload] = await server.receive()
        weight = self.mixing_weight(server.version + 1, upload.staleness)
        server.commit(mix(server.model, upload.model, weight), weight=weight)

    async def device(self, device: DeviceHandle) -> None:
        """Train from the received model, held back to it in Option II."""
        snapshot = await device.download()
        objective = Proximal(self.rho) if self.rho else None
        trained = await device.train(snapshot.model, objective=objective)
        await device.upload(model=trained.model, based_on=snapshot)

    def mixing_weight(self, epoch: int, staleness: int) -> float:
        """Return alpha_t (FA-6) of global epoch `epoch` (from 1) for an upload that missed `staleness` updates."""
        return alpha_t(
            self.alpha,
            epoch,
            staleness,
            self.weight,
            schedule=self.schedule,
            step_epoch=self.step_epoch,
            step_factor=self.step_factor,
            convention=self.convention,
        )

    def most_in_flight(self) -> int:
        """Return the concurrency."""
        return self.concurrency
