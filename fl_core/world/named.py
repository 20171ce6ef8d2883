"""The worlds of the five papers, by name.

The numbers are those of the specifications; where a paper prints none, of the resolution there (A and E numbers).
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import Any, Literal

from pydantic import Field, ValidationError

from fl_core.errors import SpecError, nearest, unknown
from fl_core.part import Part, Seconds
from fl_core.world.compute import (
    Compute,
    ConstantCompute,
    ExponentialCompute,
    GapCompute,
    Ratio,
    RatioCompute,
    TraceCompute,
    UniformCompute,
    UniformTaskCompute,
)
from fl_core.world.network import Network, UniformBandwidth
from fl_core.world.topology import Clusters
from fl_core.world.triggers import Continuous, Timed
from fl_core.world.world import World

BITS_PER_MIB = 8 * 2**20
BITS_PER_PARAMETER = 32


class NamedWorld(Part):
    """A paper's setting with what varies in it. A new one is one class here and one line in :data:`WORLDS`."""

    devices: int = Field(100, ge=1)

    def world(self) -> World:
        """Return the world that these settings stand for."""
        raise NotImplementedError


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

    max_staleness: int = Field(4, ge=1)

    def world(self) -> World:
        return World(devices=self.devices, compute=ConstantCompute(), max_staleness=self.max_staleness)


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


class SDFeelWorld(NamedWorld):
    """SD-FEEL: six edge servers in a ring, each with five devices; speeds with a gap of exactly H (2.4, section 6).

    The times are those of the paper's ResNet-18 on CIFAR-10: 55.67 s for a step at the mean speed, 71.5 s for an
    upload over 5 Mb/s, 35.8 s from server to server over 10 Mb/s, downloads free.

    Attributes
    ----------
    devices, servers : int
        Numbers of devices and of edge servers.
    heterogeneity_gap : float
        Fastest to slowest speed H: 5, 10 or 30 in the paper.
    step_cost : str
        ``"printed"``, or ``"flop_consistent"``: a tenth, as a step has 10 samples and not 100 (E-19).
    parameters : int
        Size of the model that is really sent. The bandwidth follows, so that an upload takes the paper's time.
    communication : float
        Factor of both communication times; scale it together with the least number of mini-batches (D12).
    """

    devices: int = Field(30, ge=1)
    servers: int = Field(6, ge=1)
    heterogeneity_gap: Ratio = 5.0
    step_cost: Literal["printed", "flop_consistent"] = "printed"
    parameters: int = Field(11_173_962, ge=1)
    communication: float = Field(1.0, gt=0, allow_inf_nan=False)

    def world(self) -> World:
        resnet18 = 11_173_962
        seconds = {"printed": 55.67, "flop_consistent": 5.5665152}[self.step_cost]
        return World(
            devices=self.devices,
            compute=GapCompute(ratio=self.heterogeneity_gap, seconds_per_step=seconds),
            network=Network(up_bits_per_second=5e6 * self.parameters / resnet18 / self.communication),
            clusters=Clusters(
                servers=self.servers, backhaul_seconds=BITS_PER_PARAMETER * resnet18 / 10e6 * self.communication
            ),
        )


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

    devices: int = Field(10, ge=2)
    cell: Literal["cnn", "vgg11s", "lstm"] = "cnn"
    lists: Literal["official", "random"] = "official"

    def world(self) -> World:
        fastest = {"cnn": 0.1, "vgg11s": 0.1, "lstm": 0.15}[self.cell]
        compute: Compute = UniformCompute(fastest=fastest, slowest=4 * fastest)
        network = Network(up_bits_per_second=UniformBandwidth(slowest=0.25e6, fastest=2e6))
        if self.lists == "official":
            compute = TraceCompute(seconds_per_step=tuple(reversed(_linspace(fastest, 4 * fastest, self.devices))))
            mebibytes = _linspace(0.1, 0.25, self.devices)
            mebibytes[1] = 0.03
            network = Network(up_bits_per_second=tuple(BITS_PER_MIB * speed for speed in mebibytes))
        trigger = Continuous(concurrency=self.devices)
        return World(devices=self.devices, compute=compute, network=network, trigger=trigger)


WORLDS: dict[str, type[NamedWorld]] = {
    "fedasync": FedAsyncWorld,
    "wkafl": WKAFLWorld,
    "sdfeel": SDFeelWorld,
    "fedasmu": FedASMUWorld,
    "fedluck": FedLuckWorld,
}
"""A paper's name, and the settings of its world."""


def named(name: str, **settings: Any) -> World:
    """Return the world called `name`.

    Parameters
    ----------
    name : str
        One of :data:`WORLDS`.
    **settings
        Its settings; and fields of :class:`World`, which replace what results from them.

    Raises
    ------
    SpecError
        If there is no such world or setting, or if a value is not valid.
    """
    if not isinstance(name, str) or name not in WORLDS:
        raise unknown("world", name, WORLDS)
    chosen = WORLDS[name]
    for setting in settings:
        if setting not in {**chosen.model_fields, **World.model_fields}:
            valid = ", ".join(chosen.model_fields)
            hint = nearest(setting, [*chosen.model_fields, *World.model_fields])
            raise SpecError(
                f"unknown setting {setting!r} of world {name}{hint} (valid: {valid}; the fields of every world)"
            )
    own = {key: value for key, value in settings.items() if key in chosen.model_fields}
    replaced = {key: value for key, value in settings.items() if key not in own}
    try:
        world = chosen(**own).world()
        return World(**{**dict(world), **replaced}) if replaced else world
    except ValidationError as error:
        raise SpecError(f"world {name}: {'; '.join(map(_explained, error.errors()))}") from None


def read(text: str) -> dict[str, Any]:
    """Read ``"fedasmu(devices=50, cell=vgg-cifar10)"`` as a dictionary with a name.

    A value is JSON, such as ``{"kind": "constant"}``, or else a word that ends at the next comma.

    Raises
    ------
    SpecError
        If it has another form.
    """
    match = re.fullmatch(r"\s*([^()\s]+)\s*(?:\((.*)\))?\s*", text, re.DOTALL)
    unreadable = SpecError(f"cannot read the world {text!r}; write for example 'fedasmu' or 'fedasmu(devices=50)'")
    if match is None:
        raise unreadable
    settings: dict[str, Any] = {}
    rest = (match[2] or "").strip(" ,")
    while rest:
        key, _, rest = rest.partition("=")
        value, rest = _value(rest.lstrip())
        if not key.strip() or "," in key or value == "":
            raise unreadable
        settings[key.strip()] = value
    return {"name": match[1], **settings}


def _value(text: str) -> tuple[Any, str]:
    """Return the value that `text` begins with, and what comes after its comma."""
    with suppress(ValueError):
        value, end = json.JSONDecoder().raw_decode(text)
        if (rest := text[end:].lstrip())[:1] in ("", ","):
            return value, rest.lstrip(" ,")
    word, _, rest = text.partition(",")
    return word.strip().strip("'\""), rest.lstrip(" ,")


def _linspace(first: float, last: float, count: int) -> list[float]:
    return [first + (last - first) * index / (count - 1) for index in range(count)]


def _explained(fault: Any) -> str:
    """Return one sentence for one of pydantic's findings."""
    place = ".".join(map(str, fault["loc"]))
    if fault["type"] == "value_error":
        return f"{place}: {fault['ctx']['error']}" if place else str(fault["ctx"]["error"])
    return f"{place} = {fault['input']!r} is not valid: it {fault['msg'].removeprefix('Input ')}"
