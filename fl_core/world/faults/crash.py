"""A device stops in mid-training and comes back without its work."""

from __future__ import annotations

from typing import Literal

import numpy as np

from fl_core.part import Duration
from fl_core.world.faults.base import Fault, Interruption


class Crash(Fault):
    """The device crashes at a uniformly drawn moment of local training; the task is lost.

    A device that trains in several parts crashes in the first one. What it keeps in ``device.state`` is on its disk.

    Attributes
    ----------
    down_seconds : float
        How long it takes until the device can be triggered again; 0: at once.
    """

    kind: Literal["crash"] = "crash"
    down_seconds: Duration = 0.0

    def interrupt(self, seconds: float, rng: np.random.Generator) -> Interruption:
        """Stop for good."""
        return Interruption(seconds * rng.random(), self.down_seconds, fatal=True)
