"""FedAvg with compressed uploads (Aji & Heafield, 2017), as FedLuck compares with it: FedAvg+Topk."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from fl_core.algorithms.base import register
from fl_core.algorithms.fedavg import FedAvg
from fl_core.algorithms.updates import Weighting, commit_mean, upload_update
from fl_core.formulas.compression import Compressor, TopK

if TYPE_CHECKING:
    from fl_core.runtime import DeviceHandle, ServerHandle


@register
class FedAvgTopK(FedAvg):
    """Synchronous rounds whose devices send compressed differences instead of models (BL-2.11).

    Attributes
    ----------
    weighting : str
        By ``"samples"``, or ``"uniform"``.
    global_lr : float
        Step size eta_g of the server; 1 in FedLuck's comparison.
    compressor : Compressor
        How uploads are compressed.
    error_feedback : bool
        Whether a device adds to its next update what the last one lost: as in the original, not in FedLuck's code.
    """

    name: ClassVar[str] = "fedavg_topk"

    weighting: Weighting = "samples"
    global_lr: float = Field(1.0, gt=0, allow_inf_nan=False)
    compressor: Compressor = TopK(delta=0.5, wire="ideal_fraction")
    error_feedback: bool = False

    async def updater(self, server: ServerHandle) -> None:
        """Apply the mean of the updates that have come back; if none has, the model stays."""
        commit_mean(server, await server.receive_round(), self.global_lr, self.weighting)

    async def device(self, device: DeviceHandle) -> None:
        """Train, and upload the compressed difference."""
        snapshot = await device.download()
        trained = await device.train(snapshot.model)
        await upload_update(device, snapshot, trained, self.compressor, error_feedback=self.error_feedback)
