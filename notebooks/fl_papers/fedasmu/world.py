"""FedASMU's world, with the numbers of the specification."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from fl_core.config import Seconds
from fl_core.world import Network, RatioCompute, World
from fl_core.world.compute import Ratio
from fl_core.world.named import NamedWorld
from fl_core.world.triggers import Timed

BITS_PER_PARAMETER = 32


class FedASMUWorld(NamedWorld):
    """FedASMU: a few devices at every tick of a clock, at most a tenth of all at once (6.1, A15, A16, E20).

    Local training takes 100 s on the fastest device, whatever its data, and a transfer 1 s at normal bandwidth.

    Attributes
    ----------
    devices : int
        Number of devices: 100, and 200 in one figure.
    ratio : float
        Slowest to fastest device, exactly: 5, and 110 to 440 in one figure.
    distribution : str
        Of the durations in between: ``"uniform"`` or ``"loguniform"``.
    slower_network : float
        How many times lower the bandwidth is: 1, 50 or 100.
    ticks : str
        ``"tables"``: up to 10 devices every 10 s; ``"text"``: one every 5 s.
    epochs : int
        Local epochs E of a task, among which its time is divided equally; the run has to use as many.
    fastest_seconds : float
        Local training of the fastest device.
    cell : str
        Model and data set, for the size of the model.
    """

    name: ClassVar[str] = "fedasmu"
    ratio: Ratio = 5.0
    distribution: Literal["uniform", "loguniform"] = "uniform"
    slower_network: float = Field(1.0, gt=0, allow_inf_nan=False)
    ticks: Literal["tables", "text"] = "tables"
    epochs: int = Field(5, ge=1)
    fastest_seconds: Seconds = 100.0
    cell: Literal[
        "lenet-cifar10", "lenet-cifar100", "cnn-cifar10", "cnn-cifar100", "resnet-cifar100", "resnet-tiny-imagenet",
        "alexnet-cifar10", "alexnet-cifar100", "vgg-cifar10", "vgg-cifar100", "textcnn-imdb", "lenet-fmnist",
    ] = "lenet-fmnist"  # fmt: skip

    def world(self) -> World:
        parameters = {
            "lenet-cifar10": 62_006,
            "lenet-cifar100": 69_656,
            "cnn-cifar10": 297_066,
            "cnn-cifar100": 2_889_156,
            "resnet-cifar100": 275_572,
            "resnet-tiny-imagenet": 282_072,
            "alexnet-cifar10": 23_272_266,
            "alexnet-cifar100": 23_640_996,
            "vgg-cifar10": 9_225_610,
            "vgg-cifar100": 9_271_780,
            "textcnn-imdb": 2_714_502,
            "lenet-fmnist": 61_706,
        }[self.cell]
        bandwidth = BITS_PER_PARAMETER * parameters / (0.01 * self.fastest_seconds * self.slower_network)
        period, per_tick = {"tables": (10.0, 10), "text": (5.0, 1)}[self.ticks]
        return World(
            devices=self.devices,
            compute=RatioCompute(
                fastest=self.fastest_seconds / self.epochs,
                ratio=self.ratio,
                distribution=self.distribution,
                per="epoch",
            ),
            network=Network(down_bits_per_second=bandwidth, up_bits_per_second=bandwidth),
            trigger=Timed(period_seconds=period, per_tick=per_tick, concurrency=max(1, self.devices // 10)),
        )
