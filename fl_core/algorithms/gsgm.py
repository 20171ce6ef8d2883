"""GSGM as WKAFL compares it: nobody contributes twice in a round, and a momentum of rounds (Li et al., 2019)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch
from pydantic import Field

from fl_core.algorithms.base import register
from fl_core.algorithms.kasync import KAsynchronous, descend, stacked
from fl_core.formulas.wkafl_baselines import gsgm_accumulate, gsgm_direction, kasync_weights
from fl_core.world.triggers import BlockedRounds

if TYPE_CHECKING:
    from fl_core.runtime import ServerHandle


@register
class GSGM(KAsynchronous):
    """K gradients make a version, and every device gives one in each round (BL-3.17, BL-3.18; WKAFL, 2.5).

    The next task of a device that was used begins with the next round, together with all others. With equal devices
    and exponential times the next K are then a uniform draw from those not yet used, as in the authors' programs; a
    round lasts as long as its slowest device.

    Attributes
    ----------
    momentum_alpha : float
        Weight alpha of the last round's mean direction; 0 leaves the rounds alone, which is what the authors'
        programs apply (E9).
    restart : str
        What a device computes on in the next round: the model made from its last gradient (``"use"``; staleness has
        the mean P / K - 1, as without rounds), or the newest when the round begins (``"round"``, BL-3.17; half of
        that).
    momentum_scale : str
        ``"mean"`` of the round's directions (BL-3.18), or ``"code"``: K times less (E9).
    """

    momentum_alpha: float = Field(0.1, ge=0, lt=1)
    restart: Literal["use", "round"] = "use"
    momentum_scale: Literal["mean", "code"] = "mean"

    async def scheduler(self, server: ServerHandle) -> None:
        """Begin a round when everybody has contributed."""
        if self.restart == "round":
            await BlockedRounds().turn(server)
            return
        released = await server.released()
        parked = {**server.state.get("parked", {}), **dict.fromkeys(released, server.snapshot)}
        if not server.in_flight and parked.keys() >= set(server.idle):
            for device in sorted(server.idle):
                server.dispatch([device], snapshot=parked[device])
            parked = {}
        server.state["parked"] = parked

    async def updater(self, server: ServerHandle) -> None:
        """Use the next K gradients of the round, at its end as many as are left."""
        uploads = await server.receive_round(most=self.num_aggregated)
        zero = torch.zeros_like(server.model[: server.num_parameters])
        momentum, partial = server.state.get("momentum", zero), server.state.get("partial", zero)
        over = not server.in_flight and len(server.waiting) == len(uploads)
        if uploads:
            direction = gsgm_direction(stacked(uploads).mean(0), momentum, self.momentum_alpha)
            by_commit = self.momentum_scale == "code"
            partial = gsgm_accumulate(partial, direction, len(uploads), len(server.devices), by_commit=by_commit)
        server.state["momentum"], server.state["partial"] = (partial, zero) if over else (momentum, partial)
        if uploads:
            descend(server, direction, self.lr, kasync_weights(len(uploads)))
