"""Synchronous rounds."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fl_core.world.triggers.base import Server, Trigger


class Rounds(Trigger):
    """Once per version, trigger devices drawn uniformly without replacement, in order of their numbers (FedAvg).

    If fewer are free, because some crashed or are away, those; if none is, the round waits for the first.

    Attributes
    ----------
    devices : int
        Devices per round.
    """

    kind: Literal["rounds"] = "rounds"
    devices: int = Field(10, ge=1)

    async def turn(self, server: Server) -> None:
        """Begin the next round."""
        await server.new_version()
        while not server.idle:
            await server.idle_changed()
        all_free = len(server.idle) == len(server.devices)
        pool = len(server.idle) if all_free else list(server.idle)
        drawn = server.rng.choice(pool, min(self.devices, len(server.idle)), replace=False)
        server.dispatch(sorted(server.devices[int(i)] if all_free else int(i) for i in drawn))

    def most_in_flight(self) -> int:
        """Return the size of a round."""
        return self.devices
