"""FedAvg (McMahan et al., 2017) in the form of FedAsync's Algorithm 2: synchronous rounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch
from pydantic import Field

from fl_core.algorithms.base import Algorithm, register

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

    async def updater(self, server: ServerHandle) -> None:
        """Run rounds."""
        while True:
            drawn = server.rng.choice(len(server.devices), self.clients_per_round, replace=False)
            selected = sorted(int(device) for device in drawn)
            server.dispatch(selected)
            uploads = await server.receive(from_=selected)
            models = torch.stack([upload.model for upload in uploads])
            sizes = [1 if self.weighting == "uniform" else upload.num_samples for upload in uploads]
            weights = torch.tensor(sizes, dtype=models.dtype) / sum(sizes)
            server.commit((weights[:, None] * models).sum(0))

    def most_in_flight(self) -> int:
        """Return the size of a round."""
        return self.clients_per_round
