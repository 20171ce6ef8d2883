"""Staleness drawn instead of arising."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fl_core.world.triggers.base import Server, Trigger


class Sampled(Trigger):
    """FedAsync's experiment: staleness is drawn from a distribution (specification, section 2.6).

    The task of global epoch t starts from a version drawn uniformly among the last `max_staleness` ones, on a device
    drawn uniformly with replacement. Since both draws are independent of training, they define a timeline: with
    one epoch a second, that task leaves when its base version appears and arrives at second t. So the ordinary
    runtime runs it, and independent tasks may be computed at the same time.

    An upload that is lost or rejected makes no version, so that epochs count on from the last one. When nothing is on
    its way any more, the tasks of the next epochs that should have left already leave from the newest version.

    Attributes
    ----------
    max_staleness : int
        Number of versions K to draw from; an upload has missed 0..K-1 updates, the paper's t - tau is 1..K. To draw
        from 0..K missed updates (the variant "inclusive" of A2) give K + 1.
    """

    kind: Literal["sampled"] = "sampled"
    max_staleness: int = Field(4, ge=1)

    async def turn(self, server: Server) -> None:
        """Trigger the tasks that start from the newest version."""
        await server.released()
        base = server.version
        before = server.state.get("sampled", -1) if server.in_flight else -1
        server.state["sampled"] = base
        for epoch in range(base + 1, base + self.max_staleness + 1):
            rng = server.stream("sampled-staleness", epoch)
            pool = min(epoch, self.max_staleness)
            version, device = epoch - pool + int(rng.integers(pool)), int(rng.integers(len(server.devices)))
            if before < version <= base:
                server.dispatch((device,), seconds=float(epoch - base))
