"""FedSA (Chen, Mao & Ma, 2021), reconstructed: two stages, and less local work for those who are mostly stale."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from fl_core.algorithms.base import Algorithm, register, running_mean
from fl_core.formulas.checks import require
from fl_core.formulas.fedasync import mix
from fl_core.formulas.staleness import polynomial

if TYPE_CHECKING:
    from fl_core.runtime import DeviceHandle, ServerHandle


@register
class FedSA(Algorithm):
    """Mix each arrival with a polynomial weight; local epochs follow the device's mean staleness (BL-3.11, BL-3.12).

    A reconstruction: no source gives the paper's formulas. A task belongs to the initial stage if it began with one
    of the first versions.

    Attributes
    ----------
    alpha_initial, alpha_convergence : float
        Mixing weight of a fresh model in each stage.
    a : float
        Exponent of the weight, and of the reduction of local work.
    initial_versions : int
        T_1, versions of the initial stage; the default is a fifth of FedASMU's 5,000.
    initial_epochs, convergence_epochs : int or None
        Local epochs in each stage (mini-batches, where the run counts those). None: as the run's settings say, and
        half of that, rounded up.
    min_epochs : int
        Least local epochs of a stale device.
    concurrency : int
        Devices in flight.
    """

    name: ClassVar[str] = "fedsa"

    alpha_initial: float = Field(0.6, gt=0, le=1)
    alpha_convergence: float = Field(0.3, gt=0, le=1)
    a: float = Field(0.5, gt=0, allow_inf_nan=False)
    initial_versions: int = Field(1000, ge=0)
    initial_epochs: int | None = Field(None, ge=1)
    convergence_epochs: int | None = Field(None, ge=1)
    min_epochs: int = Field(1, ge=1)
    concurrency: int = Field(10, ge=1)

    async def scheduler(self, server: ServerHandle) -> None:
        """Trigger idle devices so that `concurrency` of them work."""
        await server.keep_busy(self.concurrency)

    async def updater(self, server: ServerHandle) -> None:
        """Mix each arrival (BL-3.11), and note its staleness."""
        [upload] = await server.receive()
        seen = server.state.setdefault("staleness", {})
        count, mean = seen.get(upload.device, (0, 0.0))
        seen[upload.device] = (count + 1, running_mean(mean, upload.staleness, count + 1))
        alpha = self.alpha_initial if self.is_initial(upload.base_version) else self.alpha_convergence
        weight = alpha * polynomial(float(upload.staleness), self.a)
        server.commit(mix(server.model, upload.model, weight), weight=weight)

    async def device(self, device: DeviceHandle) -> None:
        """Train for E_k epochs (BL-3.12)."""
        snapshot = await device.download()
        usual = device.training.steps or device.training.epochs
        if self.is_initial(snapshot.version):
            stage = self.initial_epochs or usual
        else:
            stage = self.convergence_epochs or -(-usual // 2)
        work = local_epochs(stage, await device.ask("mean staleness"), self.a, self.min_epochs)
        counted = device.training.steps is not None
        trained = await device.train(
            snapshot.model, steps=work if counted else None, epochs=None if counted else work
        )
        await device.upload(model=trained.model, based_on=snapshot)

    def answer(self, server: ServerHandle, device: DeviceHandle, question: Any) -> float:
        """Return the mean staleness of the uploads of `device` so far."""
        return float(server.state.get("staleness", {}).get(device.id, (0, 0.0))[1])

    def is_initial(self, version: int) -> bool:
        """Return whether a task that begins with `version` belongs to the initial stage."""
        return version < self.initial_versions

    def most_in_flight(self) -> int:
        """Return the concurrency."""
        return self.concurrency


def local_epochs(stage_epochs: int, mean_staleness: float, a: float = 0.5, least: int = 1) -> int:
    """Return E_k, the stage's E (1 + mean staleness)^(-a) rounded half up, but at least `least`, BL-3.12.

    Parameters
    ----------
    stage_epochs : int
        E of the stage, >= 1.
    mean_staleness : float
        Mean staleness of the device's uploads so far, >= 0; 0 before the first.
    a : float
        Exponent, > 0.
    least : int
        E_min >= 1.

    Raises
    ------
    ValueError
        An argument is out of range.
    """
    require(stage_epochs >= 1, "stage_epochs", stage_epochs, ">= 1")
    require(least >= 1, "least", least, ">= 1")
    return max(least, math.floor(stage_epochs * polynomial(mean_staleness, a) + 0.5))
