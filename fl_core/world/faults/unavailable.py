"""A device is called away in mid-training and goes on later."""

from __future__ import annotations

from typing import Literal

import numpy as np

from fl_core.part import Seconds
from fl_core.world.faults.base import Fault, Interruption


class Unavailable(Fault):
    """Local training pauses at a uniformly drawn moment, for an exponentially distributed time; nothing is lost.

    For devices that come and go by a calendar, see the world's ``availability``.

    Attributes
    ----------
    mean_seconds : float
        Mean of the pause.
    """

    kind: Literal["unavailable"] = "unavailable"
    mean_seconds: Seconds = 1.0

    def interrupt(self, seconds: float, rng: np.random.Generator) -> Interruption:
        """Pause."""
        return Interruption(seconds * rng.random(), rng.exponential(self.mean_seconds), fatal=False)
