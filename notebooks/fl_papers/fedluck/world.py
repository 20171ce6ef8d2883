"""FedLuck's world, with the numbers of the specification."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from fl_core.world import Compute, Network, TraceCompute, UniformBandwidth, UniformCompute, World
from fl_core.world.named import NamedWorld
from fl_core.world.triggers import Continuous

BITS_PER_MIB = 8 * 2**20


class FedLuckWorld(NamedWorld):
    """FedLuck: few devices, always training, slow to compute and slow to send; downloads are free (6.2, A10 to A12).

    Attributes
    ----------
    devices : int
        Number of devices, at least 2: 10, and 5 in one figure.
    cell : str
        ``"cnn"``, ``"vgg11s"``: 0.1 s for a step of the fastest device; ``"lstm"``: 0.15 s.
    lists : str
        ``"official"``: the lists of the official code, in which device 0 computes slowest and device 1 has by far the
        slowest link; ``"random"``: the ranges of the paper's text, 1 to 4 times the fastest step and 0.25 to 2 Mb/s,
        drawn independently.
    """

    name: ClassVar[str] = "fedluck"
    devices: int = Field(10, ge=2)
    cell: Literal["cnn", "vgg11s", "lstm"] = "cnn"
    lists: Literal["official", "random"] = "official"

    def world(self) -> World:
        fastest = {"cnn": 0.1, "vgg11s": 0.1, "lstm": 0.15}[self.cell]
        compute: Compute = UniformCompute(fastest=fastest, slowest=4 * fastest)
        network = Network(up_bits_per_second=UniformBandwidth(slowest=0.25e6, fastest=2e6))
        if self.lists == "official":
            compute = TraceCompute(seconds_per_step=tuple(reversed(linspace(fastest, 4 * fastest, self.devices))))
            mebibytes = linspace(0.1, 0.25, self.devices)
            mebibytes[1] = 0.03
            network = Network(up_bits_per_second=tuple(BITS_PER_MIB * speed for speed in mebibytes))
        trigger = Continuous(concurrency=self.devices)
        return World(devices=self.devices, compute=compute, network=network, trigger=trigger)


def linspace(first: float, last: float, count: int) -> list[float]:
    """Return `count` numbers in equal steps from `first` to `last`."""
    return [first + (last - first) * index / (count - 1) for index in range(count)]
