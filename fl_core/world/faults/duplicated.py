"""An upload arrives twice."""

from __future__ import annotations

from typing import Literal

import numpy as np

from fl_core.part import Duration
from fl_core.world.faults.base import Fault, Message


class Duplicated(Fault):
    """A second copy arrives later; the server recognises it by its task and applies an upload once.

    The copy costs its bytes and is counted in ``history.outcomes["duplicates"]``; it never takes the place of a first
    one that was rejected, or lost at a server that was down. The sender is free when the first one has arrived.

    Attributes
    ----------
    mean_seconds : float
        Mean of the exponentially distributed time between the copies; 0: at the same instant.
    """

    kind: Literal["duplicated"] = "duplicated"
    mean_seconds: Duration = 1.0

    def send(self, messages: list[Message], rng: np.random.Generator) -> list[Message]:
        """Send every copy once more."""
        later = rng.exponential(self.mean_seconds) if self.mean_seconds else 0.0
        return messages + [Message(message.payload, message.delay + later) for message in messages]
