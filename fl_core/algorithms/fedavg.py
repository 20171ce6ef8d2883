"""FedAvg (McMahan et al., 2017) in the form of FedAsync's Algorithm 2: synchronous rounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from pydantic import Field

from fl_core.algorithms.base import Algorithm, Weighting, commit_mean, register, upload_update
from fl_core.formulas.compression import Compressor, TopK
from fl_core.world.triggers import Rounds

if TYPE_CHECKING:
    from fl_core.runtime import DeviceHandle, ServerHandle


@register
class FedAvg(Algorithm):
    """Each round waits for all of its devices and replaces the global model by the mean of theirs.

    Attributes
    ----------
    clients_per_round : int
        Devices per round, drawn uniformly without replacement.
    weighting : str
        ``"uniform"``: plain mean (FedAsync's Algorithm 2); ``"samples"``: weighted by data size.
    """

    clients_per_round: int = Field(10, ge=1)
    weighting: Literal["uniform", "samples"] = "uniform"

    async def scheduler(self, server: ServerHandle) -> None:
        """Begin a round whenever there is a new version."""
        await Rounds(devices=self.clients_per_round).turn(server)

    async def updater(self, server: ServerHandle) -> None:
        """Replace the model by the mean of those that have come back; if none has, it stays."""
        uploads = await server.receive_round()
        if not uploads:
            server.commit(server.model)
            return
        models = torch.stack([upload.model for upload in uploads])
        sizes = [1 if self.weighting == "uniform" else upload.num_samples for upload in uploads]
        weights = torch.tensor(sizes, dtype=models.dtype) / sum(sizes)
        server.commit((weights[:, None] * models).sum(0))

    def most_in_flight(self) -> int:
        """Return the size of a round."""
        return self.clients_per_round


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
