"""Who has reported is replaced when a version has been made."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fl_core.world.triggers.base import Server, Trigger


class Hold(Trigger):
    """An upload keeps its place until it has been used; then an idle device, drawn uniformly, takes that (PORT).

    With as many tasks as devices these are the same devices again, in order of arrival. A task that brings no upload
    gives its place up at once.

    Attributes
    ----------
    concurrency : int
        Tasks in flight and uploads that wait, together.
    """

    kind: Literal["hold"] = "hold"
    concurrency: int = Field(10, ge=1)

    async def turn(self, server: Server) -> None:
        """Fill the free places."""
        released = await server.released()
        waiting = {upload.device for upload in server.waiting}
        free = self.concurrency - server.in_flight - len(server.waiting)
        able = len(server.idle) - sum(device in server.idle for device in waiting)
        if free >= able:
            order = dict.fromkeys([*released, *server.idle])
            server.dispatch([device for device in order if device in server.idle and device not in waiting])
        else:
            for _ in range(free):
                device = server.idle.draw(server.rng)
                while device in waiting:
                    device = server.idle.draw(server.rng)
                server.dispatch((device,))

    def most_in_flight(self) -> int:
        """Return the concurrency."""
        return self.concurrency
