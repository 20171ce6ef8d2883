"""WKAFL's world, with the numbers of the specification."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from fl_core.world import Compute, ConstantCompute, ExponentialCompute, UniformTaskCompute, World
from fl_core.world.named import NamedWorld


class WKAFLWorld(NamedWorld):
    """WKAFL: thousands of equal devices; the time of a mini-batch gradient is random (A1, D8). Mean duration 1.

    Attributes
    ----------
    devices : int
        Number P: 1000 or 3000 in most of the paper.
    law : str
        ``"exponential"``, which has the law of arrivals of the official code; ``"shifted_exponential"``,
        ``a (1 + exponential)`` with a factor a of each device, uniform on [0.2, 0.8]; ``"uniform"`` on [0, 2]; each
        drawn anew for every task; or ``"constant"``.
    """

    name: ClassVar[str] = "wkafl"
    devices: int = Field(1000, ge=1)
    law: Literal["exponential", "shifted_exponential", "uniform", "constant"] = "exponential"

    def world(self) -> World:
        laws: dict[str, Compute] = {
            "exponential": ExponentialCompute(),
            "shifted_exponential": ExponentialCompute(shift=1.0, factors=(0.2, 0.8)),
            "uniform": UniformTaskCompute(),
            "constant": ConstantCompute(),
        }
        return World(devices=self.devices, compute=laws[self.law])
