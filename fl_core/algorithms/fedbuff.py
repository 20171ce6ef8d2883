"""FedBuff: asynchronous training with buffered aggregation (Nguyen et al., 2022)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from pydantic import Field

from fl_core.algorithms.base import Algorithm, mean_step, register, upload_update
from fl_core.formulas.compression import Compressor, Identity
from fl_core.formulas.staleness import Polynomial, StalenessWeight

if TYPE_CHECKING:
    from fl_core.runtime import DeviceHandle, ServerHandle


@register
class FedBuff(Algorithm):
    """One step of the server for every K uploads; nobody waits for it (BL-3.3).

    Attributes
    ----------
    buffer : int
        Uploads K that make a version; those beyond wait for the next one.
    global_lr : float
        Step size eta_g of the server.
    weight : StalenessWeight
        Factor s(staleness) of an update; the sum is divided by K all the same. FedLuck's comparison has none.
    compressor : Compressor
        How uploads are compressed.
    error_feedback : bool
        Whether a device adds to its next update what the last one lost in compression.
    concurrency : int
        Devices in flight.
    """

    buffer: int = Field(10, ge=1)
    global_lr: float = Field(1.0, gt=0, allow_inf_nan=False)
    weight: StalenessWeight = Polynomial(a=0.5)
    compressor: Compressor = Identity()
    error_feedback: bool = False
    concurrency: int = Field(10, ge=1)

    async def scheduler(self, server: ServerHandle) -> None:
        """Trigger idle devices so that `concurrency` of them work."""
        await server.keep_busy(self.concurrency)

    async def updater(self, server: ServerHandle) -> None:
        """Apply the first K uploads that wait."""
        uploads = await server.receive(self.buffer)
        weights = [self.weight(upload.staleness) for upload in uploads]
        deltas = torch.stack([weight * upload.delta for weight, upload in zip(weights, uploads, strict=True)])
        model = mean_step(server.model, deltas, self.global_lr)
        server.commit(model, weight=[self.global_lr * weight / self.buffer for weight in weights])

    async def device(self, device: DeviceHandle) -> None:
        """Train, and upload the difference."""
        snapshot = await device.download()
        trained = await device.train(snapshot.model)
        await upload_update(device, snapshot, trained, self.compressor, error_feedback=self.error_feedback)

    def most_in_flight(self) -> int:
        """Return the concurrency."""
        return self.concurrency
