"""An upload never arrives."""

from __future__ import annotations

from typing import Literal

import numpy as np

from fl_core.world.faults.base import Fault, Message


class Lost(Fault):
    """The device spends the time of sending, but nothing reaches the server; then it is free again."""

    kind: Literal["lost"] = "lost"

    def send(self, messages: list[Message], rng: np.random.Generator) -> list[Message]:
        """Drop everything."""
        return []
