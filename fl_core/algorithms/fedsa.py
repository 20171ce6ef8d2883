"""FedSA, reconstructed: two stages, and less local work for those who are mostly stale (BL-3.11, BL-3.12).

The method is Chen, Mao & Ma, "FedSA: A staleness-aware asynchronous Federated Learning algorithm with non-IID data"
(Future Generation Computer Systems 120, 2021). Its formulas are in no source that could be read. These are this
project's, with the ingredients that its abstract and those who cite it name: two stages, local epochs adjusted to the
estimated staleness, polynomial weights. Another algorithm of the same name (Ma et al., IEEE JSAC 2021) is not meant.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field
from torch import Tensor

from fl_core.algorithms.base import ContinuousAlgorithm, Step, register, running_mean
from fl_core.formulas.fedasync import mix
from fl_core.formulas.staleness import polynomial

if TYPE_CHECKING:
    from fl_core.runtime import DeviceHandle, ServerHandle


@register
class FedSA(ContinuousAlgorithm):
    """Weight by staleness, local epochs by its mean (BL-3.11, BL-3.12): a reconstruction without a source."""

    name: ClassVar[str] = "fedsa"
    alpha_initial: float = Field(0.6, gt=0, le=1)
    """Mixing weight of a fresh model in the initial stage."""
    alpha_convergence: float = Field(0.3, gt=0, le=1)
    """The same in the convergence stage."""
    a: float = Field(0.5, gt=0, allow_inf_nan=False)
    """Exponent of the weight, and of the reduction of local work."""
    initial_versions: int = Field(1000, ge=0)
    """T_1, versions of the initial stage; the default is a fifth of FedASMU's 5,000."""
    initial_epochs: int | None = Field(None, ge=1)
    """Local epochs in the initial stage (mini-batches, where the run counts those); None: as the run says."""
    convergence_epochs: int | None = Field(None, ge=1)
    """The same in the convergence stage; None: half of the run's, rounded up."""
    min_epochs: int = Field(1, ge=1)
    """Least local epochs of a stale device."""

    async def updater(self, server: ServerHandle) -> None:
        """Mix each arrival (BL-3.11), and note its staleness."""
        [upload] = await server.receive()
        seen = server.state.setdefault("staleness", {})
        count, mean = seen.get(upload.device, (0, 0.0))
        seen[upload.device] = (count + 1, running_mean(mean, upload.staleness, count + 1))
        made = self.combine(server.model, upload.model, upload.base_version, upload.staleness)
        server.commit(made.model, weight=made.weight)

    def combine(self, model: Tensor, uploaded: Tensor, base_version: int, staleness: int) -> Step:
        """Return the mixture with the stage's alpha times (staleness + 1)^-a (BL-3.11)."""
        alpha = self.alpha_initial if self.is_initial(base_version) else self.alpha_convergence
        weight = alpha * polynomial(float(staleness), self.a)
        return Step(mix(model, uploaded, weight), weight)

    async def device(self, device: DeviceHandle) -> None:
        """Train for E_k epochs (BL-3.12)."""
        snapshot = await device.download()
        usual = device.training.steps or device.training.epochs
        first, later = self.initial_epochs or usual, self.convergence_epochs or -(-usual // 2)
        stage = first if self.is_initial(snapshot.version) else later
        work = local_epochs(stage, await device.ask("mean staleness"), self.a, self.min_epochs)
        epochs = work if device.training.steps is None else None
        trained = await device.train(snapshot.model, epochs=epochs, steps=None if epochs else work)
        await device.upload(model=trained.model, based_on=snapshot)

    def answer(self, server: ServerHandle, device: DeviceHandle, question: Any) -> float:
        """Return the mean staleness of the uploads of `device` so far."""
        return float(server.state.get("staleness", {}).get(device.id, (0, 0.0))[1])

    def is_initial(self, version: int) -> bool:
        """Return whether a task that begins with `version` belongs to the initial stage."""
        return version < self.initial_versions


def local_epochs(stage_epochs: int, mean_staleness: float, a: float = 0.5, least: int = 1) -> int:
    """Return E_k, the stage's E (1 + mean staleness)^(-a) rounded half up, but at least `least`, BL-3.12."""
    return max(least, math.floor(stage_epochs * polynomial(mean_staleness, a) + 0.5))
