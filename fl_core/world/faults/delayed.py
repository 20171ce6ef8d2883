"""An upload takes longer than its size explains."""

from __future__ import annotations

from typing import Literal

import numpy as np

from fl_core.part import Seconds
from fl_core.world.faults.base import Fault, Message


class Delayed(Fault):
    """The upload arrives later by an exponentially distributed time; its sender stays busy until then.

    Attributes
    ----------
    mean_seconds : float
        Mean of the delay, of the uploads that are delayed.
    """

    kind: Literal["delayed"] = "delayed"
    mean_seconds: Seconds = 1.0

    def send(self, messages: list[Message], rng: np.random.Generator) -> list[Message]:
        """Hold everything back for the same time."""
        later = rng.exponential(self.mean_seconds)
        return [Message(message.payload, message.delay + later) for message in messages]
