"""Synchronous rounds."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from fl_core.world.triggers.base import Server, Trigger


class Rounds(Trigger):
    """Once per version, trigger devices drawn without replacement, in order of their numbers (FedAvg).

    If fewer are free, because some crashed or are away, those; if none is, the round waits for the first.

    Attributes
    ----------
    devices : int
        Devices per round.
    sampling : str
        ``"uniform"``, or ``"by_share"``: each draw is in proportion to the samples of those that are left (FedProx).
    """

    kind: Literal["rounds"] = "rounds"
    devices: int = Field(10, ge=1)
    sampling: Literal["uniform", "by_share"] = "uniform"

    async def turn(self, server: Server) -> None:
        """Begin the next round."""
        await server.new_version()
        while not server.idle:
            await server.idle_changed()
        all_free = len(server.idle) == len(server.devices)
        pool = len(server.idle) if all_free else list(server.idle)
        shares = None
        if self.sampling == "by_share":
            shares = np.array([server.share(device) for device in server.idle])
            shares /= shares.sum()
        drawn = server.rng.choice(pool, min(self.devices, len(server.idle)), replace=False, p=shares)
        server.dispatch(sorted(server.devices[int(i)] if all_free else int(i) for i in drawn))

    def most_in_flight(self) -> int:
        """Return the size of a round."""
        return self.devices
