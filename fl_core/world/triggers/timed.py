"""A few devices at every tick of a clock."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fl_core.part import Seconds
from fl_core.world.triggers.base import Server, Trigger


class Timed(Trigger):
    """At times 0, T, 2T, ... trigger idle devices, drawn uniformly, under a cap (FedASMU, Algorithm 1).

    A device that has finished waits for the next tick that draws it; an arrival at the very time of a tick comes
    first. With fewer than `per_tick` free places, or idle devices, a tick triggers as many as there are.

    Attributes
    ----------
    period_seconds : float
        Time T between ticks.
    per_tick : int
        Most devices triggered at one tick (m').
    concurrency : int
        Most tasks in flight.
    """

    kind: Literal["timed"] = "timed"
    period_seconds: Seconds = 10.0
    per_tick: int = Field(10, ge=1)
    concurrency: int = Field(10, ge=1)

    async def turn(self, server: Server) -> None:
        """Trigger what fits at the next tick."""
        await server.every(self.period_seconds)
        for _ in range(min(self.per_tick, self.concurrency - server.in_flight, len(server.idle))):
            server.dispatch((server.idle.draw(server.rng),))

    def most_in_flight(self) -> int:
        """Return the cap."""
        return self.concurrency
