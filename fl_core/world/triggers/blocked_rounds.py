"""Nobody contributes twice before everybody has contributed."""

from __future__ import annotations

from typing import Literal

from fl_core.world.triggers.base import Server, Trigger


class BlockedRounds(Trigger):
    """Trigger all devices, in order of their numbers, and again when all of them have contributed (GSGM).

    A device whose upload has been used stays parked until the end of the round, so that a round lasts as long as its
    slowest device, whatever the updater makes of the uploads (baselines specification, section 1.4). An upload that
    is discarded, lost or rejected counts as used: the round goes on without it. Who is away when a round begins
    takes part in the next one.
    """

    kind: Literal["blocked_rounds"] = "blocked_rounds"

    async def turn(self, server: Server) -> None:
        """Park who has contributed; begin the next round if nobody is left."""
        parked = {*server.state.get("parked", ()), *await server.released()}
        if not server.in_flight and parked.issuperset(free := list(server.idle)):
            server.dispatch(free)
            parked = set()
        server.state["parked"] = sorted(parked)
