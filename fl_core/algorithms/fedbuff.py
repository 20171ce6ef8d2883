"""FedBuff: asynchronous training with buffered aggregation (Nguyen et al., 2022)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from pydantic import Field
from torch import Tensor

from fl_core.algorithms.base import ContinuousAlgorithm, Step, mean_step, register, upload_update
from fl_core.formulas.compression import Compressor, Identity
from fl_core.formulas.staleness import Polynomial, StalenessWeight

if TYPE_CHECKING:
    from fl_core.runtime import DeviceHandle, ServerHandle


@register
class FedBuff(ContinuousAlgorithm):
    """One step of the server for every K uploads; nobody waits for it (BL-3.3)."""

    buffer: int = Field(10, ge=1)
    """Uploads K that make a version; those beyond wait for the next one."""
    global_lr: float = Field(1.0, gt=0, allow_inf_nan=False)
    """Step size eta_g of the server."""
    weight: StalenessWeight = Polynomial(a=0.5)
    """Factor s(staleness) of an update; the sum is divided by K all the same. FedLuck's comparison has none."""
    compressor: Compressor = Identity()
    """How uploads are compressed."""
    error_feedback: bool = False
    """Whether a device adds to its next update what the last one lost in compression."""

    async def updater(self, server: ServerHandle) -> None:
        """Apply the first K uploads that wait."""
        uploads = await server.receive(self.buffer)
        made = self.combine(server.model, [u.delta for u in uploads], [u.staleness for u in uploads])
        server.commit(made.model, weight=made.weight)

    def combine(self, model: Tensor, deltas: Sequence[Tensor], staleness: Sequence[int]) -> Step:
        """Return w - (eta_g / K) sum_k s(tau_k) Delta_k, each Delta_k a received model minus the trained one."""
        weights = [self.weight(late) for late in staleness]
        scaled = torch.stack([weight * delta for weight, delta in zip(weights, deltas, strict=True)])
        parts = [self.global_lr * weight / len(weights) for weight in weights]
        return Step(mean_step(model, scaled, self.global_lr), parts)

    async def device(self, device: DeviceHandle) -> None:
        snapshot = await device.download()
        trained = await device.train(snapshot.model)
        await upload_update(device, snapshot, trained, self.compressor, error_feedback=self.error_feedback)
