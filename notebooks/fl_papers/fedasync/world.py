"""FedAsync's world, with the numbers of the specification."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from fl_core.world import ConstantCompute, World
from fl_core.world.named import NamedWorld


class FedAsyncWorld(NamedWorld):
    """FedAsync: staleness is drawn, time plays no part (specification, section 2.6).

    Attributes
    ----------
    devices : int
        Number of devices.
    max_staleness : int
        Number K of versions that a task may start from: 4 or 16 in the paper. Staleness is 0..K-1 in missed
        updates; give K + 1 for 0..K (A2).
    """

    name: ClassVar[str] = "fedasync"
    max_staleness: int = Field(4, ge=1)

    def world(self) -> World:
        return World(devices=self.devices, compute=ConstantCompute(), max_staleness=self.max_staleness)
