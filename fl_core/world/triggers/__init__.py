"""Whom to trigger, and when: one file per rule; ``TRIGGERS`` holds all of them by their kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fl_core.part import kinds, union
from fl_core.world.triggers.base import Server, Trigger
from fl_core.world.triggers.blocked_rounds import BlockedRounds
from fl_core.world.triggers.continuous import Continuous
from fl_core.world.triggers.contributors import Contributors
from fl_core.world.triggers.hold import Hold
from fl_core.world.triggers.rounds import Rounds
from fl_core.world.triggers.sampled import Sampled
from fl_core.world.triggers.timed import Timed

TRIGGERS = kinds(__name__, Trigger)

if TYPE_CHECKING:
    AnyTrigger = Trigger
else:
    AnyTrigger = union(TRIGGERS)

__all__ = [
    "TRIGGERS", "AnyTrigger", "BlockedRounds", "Continuous", "Contributors", "Hold", "Rounds", "Sampled", "Server",
    "Timed", "Trigger",
]  # fmt: skip
