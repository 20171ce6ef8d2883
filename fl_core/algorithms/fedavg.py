"""FedAvg (McMahan et al., 2017) in the form of FedAsync's Algorithm 2: synchronous rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from fl_core.algorithms.base import Algorithm, Step, Weighting, register, upload_update, weighted_step
from fl_core.formulas.compression import Compressor, TopK
from fl_core.world.triggers import Rounds

if TYPE_CHECKING:
    from fl_core.runtime import DeviceHandle, ServerHandle


class SynchronousRounds(Algorithm):
    """Base of those in which each round waits for all of its devices."""

    at_once: ClassVar[str] = "clients_per_round"
    clients_per_round: int = Field(10, ge=1)
    """Devices per round, drawn uniformly without replacement."""

    async def scheduler(self, server: ServerHandle) -> None:
        """Begin a round whenever there is a new version."""
        await Rounds(devices=self.clients_per_round).turn(server)


@register
class FedAvg(SynchronousRounds):
    """Replace the global model by the mean of those of a random round (BL-2.2, BL-2.3)."""

    weighting: Weighting = "uniform"
    """``"uniform"``: plain mean (FedAsync's Algorithm 2); "samples": weighted by data size."""

    async def updater(self, server: ServerHandle) -> None:
        """Replace the model by the mean of those that have come back; if none has, it stays."""
        uploads = await server.receive_round()
        if not uploads:
            server.commit(server.model)
            return
        models = torch.stack([upload.model for upload in uploads])
        server.commit(self.combine(models, [upload.num_samples for upload in uploads]))

    def combine(self, models: Tensor, num_samples: Sequence[int]) -> Tensor:
        """Return the mean of `models` ``[n, d]``, plain or weighted (BL-2.3)."""
        sizes = [1] * len(models) if self.weighting == "uniform" else list(num_samples)
        weights = torch.tensor(sizes, dtype=models.dtype) / sum(sizes)
        return (weights[:, None] * models).sum(0)


@register
class FedAvgTopK(SynchronousRounds):
    """Synchronous rounds whose devices send compressed differences instead of models (BL-2.11)."""

    name: ClassVar[str] = "fedavg_topk"
    weighting: Weighting = "samples"
    """By "samples", or "uniform"."""
    global_lr: float = Field(1.0, gt=0, allow_inf_nan=False)
    """Step size eta_g of the server; 1 in FedLuck's comparison."""
    compressor: Compressor = TopK(delta=0.5, wire="ideal_fraction")
    """How uploads are compressed."""
    error_feedback: bool = False
    """Whether a device adds to its next update what the last one lost: as in the original, not in FedLuck's code."""

    async def updater(self, server: ServerHandle) -> None:
        """Apply the mean of the updates that have come back; if none has, the model stays."""
        uploads = await server.receive_round()
        made = self.combine(server.model, [u.delta for u in uploads], [u.num_samples for u in uploads])
        server.commit(made.model, weight=made.weight)

    def combine(self, model: Tensor, deltas: Sequence[Tensor], num_samples: Sequence[int]) -> Step:
        return weighted_step(model, deltas, num_samples, self.global_lr, self.weighting)

    async def device(self, device: DeviceHandle) -> None:
        snapshot = await device.download()
        trained = await device.train(snapshot.model)
        await upload_update(device, snapshot, trained, self.compressor, error_feedback=self.error_feedback)
