"""Always the same number of tasks in flight."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fl_core.world.triggers.base import Server, Trigger


class Continuous(Trigger):
    """Whenever a device has finished, trigger an idle one, drawn uniformly (FedAsync, FedBuff, ...).

    With as many tasks as devices this is the same device again, at once.

    Attributes
    ----------
    concurrency : int
        Tasks in flight.
    """

    kind: Literal["continuous"] = "continuous"
    concurrency: int = Field(10, ge=1)

    async def turn(self, server: Server) -> None:
        """Fill the free places."""
        await server.idle_changed()
        free = self.concurrency - server.in_flight
        if free >= len(server.idle):
            server.dispatch(list(server.idle))
        else:
            for _ in range(free):
                server.dispatch((server.idle.draw(server.rng),))

    def most_in_flight(self) -> int:
        """Return the concurrency."""
        return self.concurrency
