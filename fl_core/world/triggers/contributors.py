"""A device gets a new model when its upload has been used."""

from __future__ import annotations

from typing import Literal

from fl_core.world.triggers.base import Server, Trigger


class Contributors(Trigger):
    """Trigger all devices at first, then always those whose last upload has been dealt with.

    With an updater that waits for K uploads this is the K-asynchronous schedule (WKAFL), with one that waits for a
    time it is the periodic one (FedLuck), and with a deadline per cluster that of SD-FEEL. A device whose upload was
    discarded, lost or rejected is triggered again at once.

    Attributes
    ----------
    order : str
        Devices released together are triggered in ``"arrival"`` order of their uploads (usual after K uploads) or by
        ``"id"`` (usual at the end of a period).
    """

    kind: Literal["contributors"] = "contributors"
    order: Literal["arrival", "id"] = "arrival"

    async def turn(self, server: Server) -> None:
        """Send the newest model to who is free for it."""
        released = await server.released()
        server.dispatch(sorted(released) if self.order == "id" else released)
