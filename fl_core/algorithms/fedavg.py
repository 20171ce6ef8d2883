"""FedAvg (McMahan et al., 2017) in the form of FedAsync's Algorithm 2: synchronous rounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch
from pydantic import Field

from fl_core.algorithms.base import Algorithm, register
from fl_core.world.triggers import Rounds

if TYPE_CHECKING:
    from fl_core.runtime import ServerHandle


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
