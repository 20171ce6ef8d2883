"""FedAsync: asynchronous federated optimisation with adaptive mixing (Xie, Koyejo & Gupta, 2019)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from fl_core.algorithms.base import ContinuousAlgorithm, Step, register
from fl_core.formulas.fedasync import alpha_t, mix
from fl_core.formulas.staleness import Constant, StalenessWeight
from fl_core.tasks import Proximal

if TYPE_CHECKING:
    from fl_core.runtime import DeviceHandle, ServerHandle, Upload

MOMENTUM = 0.1
"""Part of a batch-norm statistic that one mini-batch replaces: PyTorch's default, and that of all our networks."""


@register
class FedAsync(ContinuousAlgorithm):
    """Algorithm 1: mix every arriving model into the global one at once, with less weight if it is stale."""

    alpha: float = Field(0.6, gt=0, le=1)
    """Mixing weight of a fresh model, in (0, 1]."""
    weight: StalenessWeight = Constant()
    """Factor s(u) by staleness: constant, linear, polynomial, exponential or hinge (FA-7)."""
    rho: float = Field(0.0, ge=0, allow_inf_nan=False)
    """Proximal weight: 0 is Option I (FA-4), above 0 Option II (FA-5)."""
    schedule: Literal["constant", "step", "inv_sqrt"] = "constant"
    """How alpha changes with the global epoch: "constant", "step" or "inv_sqrt"."""
    step_epoch: int = Field(800, ge=1)
    """For "step": the last epoch with the full alpha."""
    step_factor: float = Field(0.5, gt=0, le=1)
    """For "step": what alpha is multiplied by after it."""
    convention: Literal["missed_updates", "paper"] = "missed_updates"
    """Argument of s: "missed_updates" (a fresh model has 0) or "paper" (a fresh model has 1)."""
    drop_above: int | None = Field(None, ge=0)
    """An upload that missed more updates than this is dropped. With a clock it makes no version and counts as
    discarded; where staleness is sampled it is a global epoch of weight 0 (A22). None: nothing is dropped."""
    bn_start: Literal["base", "latest"] = "base"
    """Batch-norm statistics of local training start as those of the received model ("base"), or as the newest global
    ones when the upload arrives ("latest"), as in the authors' code: a stale model lends it only its parameters (A9).
    That is a correction made afterwards; with a clock no device could know them beforehand."""

    async def updater(self, server: ServerHandle) -> None:
        """Mix each arrival (FA-2) with weight alpha_t (FA-6), or drop it."""
        [upload] = await server.receive()
        if self.drops(upload.staleness) and not server.sampled:
            server.discard(upload)
            return
        uploaded = upload.model if self.bn_start == "base" else _from_latest_statistics(server, upload)
        made = self.combine(server.model, uploaded, server.version + 1, upload.staleness)
        server.commit(made.model, weight=made.weight)

    def combine(self, model: Tensor, uploaded: Tensor, epoch: int, staleness: int) -> Step:
        """Return the mixture that is the model of global epoch `epoch` (from 1)."""
        weight = self.mixing_weight(epoch, staleness)
        return Step(mix(model, uploaded, weight), weight)

    async def device(self, device: DeviceHandle) -> None:
        """Train from the received model, held back to it in Option II."""
        snapshot = await device.download()
        objective = Proximal(self.rho) if self.rho else None
        trained = await device.train(snapshot.model, objective=objective)
        # A version that the server knows: named, not sent.
        known: dict[str, Any] = {"start": snapshot} if self.bn_start == "latest" else {}
        await device.upload(model=trained.model, based_on=snapshot, **known)

    def drops(self, staleness: int) -> bool:
        """Return whether an upload that missed `staleness` updates is too stale to be used."""
        return self.drop_above is not None and staleness > self.drop_above

    def mixing_weight(self, epoch: int, staleness: int) -> float:
        """Return alpha_t (FA-6) of global epoch `epoch` (from 1) for an upload that missed `staleness` updates."""
        if self.drops(staleness):
            return 0.0
        return alpha_t(
            self.alpha, epoch, staleness, self.weight, schedule=self.schedule, step_epoch=self.step_epoch,
            step_factor=self.step_factor, convention=self.convention,
        )  # fmt: skip


def restarted_statistics(trained: Tensor, start: Tensor, latest: Tensor, steps: int) -> Tensor:
    """Return the batch-norm statistics ``[b]`` that training would have ended with, had they started as `latest`.

    A step replaces r by (1 - m) r + m (statistic of the mini-batch), m the momentum, and training never reads r. So
    after H `steps` r is (1 - m)^H times its start plus what the mini-batches add, which does not depend on the start.
    """
    return trained + (1 - MOMENTUM) ** steps * (latest - start)


def _from_latest_statistics(server: ServerHandle, upload: Upload) -> Tensor:
    """Return the upload's model ``[d]`` as if its statistics had started as the newest global ones."""
    parameters, trained = upload.model.tensor_split([server.num_parameters])
    start, latest = (model[server.num_parameters :] for model in (upload.start.model, server.model))
    return torch.cat([parameters, restarted_statistics(trained, start, latest, upload.steps)])
