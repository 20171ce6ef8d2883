"""Devices and network of a simulated federation."""

from __future__ import annotations

from bisect import bisect_right
from functools import cache
from math import inf, nan
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from pydantic import Field, ValidationError, model_validator

from fl_core.config import Config, Duration, read_named, refuse_second
from fl_core.errors import SpecError, nearest, unknown
from fl_core.plugins import paper_modules
from fl_core.streams import stream
from fl_core.tasks.base import POOLED
from fl_core.world.availability import Availability
from fl_core.world.compute import Compute, UniformCompute
from fl_core.world.faults import Fault
from fl_core.world.network import Network, Positive
from fl_core.world.topology import Clusters, neighbours
from fl_core.world.triggers import Sampled, Trigger

if TYPE_CHECKING:
    from fl_core.world.traces import Trace


class DeviceProfile(NamedTuple):
    """What one task of one device costs in virtual time."""

    seconds_per_step: float
    """Time of a mini-batch; not a number where `seconds_per_epoch` is given (:meth:`train_seconds` knows both)."""
    down_bits_per_second: float | None
    """None: a transfer takes only the latency."""
    up_bits_per_second: float | None
    """None: a transfer takes only the latency."""
    latency_seconds: float
    """Of a transfer, each way."""
    seconds_per_epoch: float | None = None
    """Time of a pass over the device's data, where the world fixes that."""
    down_link: Trace | None = None
    """As `up_link`."""
    up_link: Trace | None = None
    """The course of the speed, where that changes; the bits per second are then its mean."""

    def train_seconds(self, steps: int, steps_per_epoch: int) -> float:
        """Return the time of `steps` mini-batches on a device whose data make `steps_per_epoch`."""
        if self.seconds_per_epoch is None:
            return steps * self.seconds_per_step
        return steps / steps_per_epoch * self.seconds_per_epoch

    def down_seconds(self, size: float, start: float | None = None) -> float:
        """Return the time to receive `size` bytes, from `start` on; without one at the mean speed."""
        return self._seconds(size, start, self.down_bits_per_second, self.down_link)

    def up_seconds(self, size: float, start: float | None = None) -> float:
        """Return the time to send `size` bytes, from `start` on; without one at the mean speed."""
        return self._seconds(size, start, self.up_bits_per_second, self.up_link)

    def _seconds(self, size: float, start: float | None, speed: float | None, link: Trace | None) -> float:
        if link is not None and start is not None:
            return self.latency_seconds + link.seconds(8 * size, start + self.latency_seconds)
        return self.latency_seconds + (8 * size / speed if speed else 0.0)


class Power(Config):
    """What devices draw while they work, so that a history counts joules; nothing while they wait."""

    compute_watts: Positive | tuple[Positive, ...]
    """Of every device that trains, or one for each."""
    radio_watts: Duration = 0.0
    """Of a device from the beginning of a transfer to its end."""
    down_joules_per_byte: Duration = 0.0
    """Of a byte received, on top of that."""
    up_joules_per_byte: Duration = 0.0
    """Of a byte sent, on top of that."""
    source: str = Field(min_length=3)
    """Where the numbers are from."""

    def watts(self, device: int) -> float:
        """Return what `device` draws while it trains."""
        return self.compute_watts[device] if isinstance(self.compute_watts, tuple) else self.compute_watts


class World(Config):
    """The simulated federation; also given by the name of a paper's (``fl-core list worlds``).

    ``"fedasmu(devices=50, ratio=110)"`` and ``{"name": "fedasmu", "devices": 50, "jitter": 0.1}`` are read as
    :meth:`named` reads them; only the fields that they stand for are kept.
    """

    devices: int = Field(100, ge=1, le=10**7)
    """Number of devices."""
    compute: Compute = UniformCompute()
    """Seconds per local step, one draw per device and run."""
    jitter: float = Field(0.0, ge=0, le=5)
    """Standard deviation of the logarithm of a factor drawn anew for every task (0: a device is always equally
    fast)."""
    network: Network = Network()
    """Cost of transfers."""
    max_staleness: int | None = Field(None, ge=1)
    """FedAsync's experiment: instead of letting time decide, every task starts from a version drawn uniformly among
    the last `max_staleness` ones, on a device drawn uniformly with replacement; see
    :class:`fl_core.world.triggers.Sampled`. None: time decides."""
    trigger: Trigger | None = None
    """The rule by which devices are triggered, for algorithms that only ask for a number of devices in flight
    (``server.keep_busy``). None: as many as the algorithm says, continuously."""
    faults: tuple[Fault, ...] = ()
    """What goes wrong; drawn for every task."""
    availability: Availability | None = None
    """When devices are there. None: always."""
    clusters: Clusters | None = None
    """Edge servers and their graph. None: one server."""
    power: Power | None = None
    """What devices draw; None: joules are not counted."""

    @model_validator(mode="before")
    @classmethod
    def _by_name(cls, data: Any) -> Any:
        if isinstance(data, str):
            name, settings = read_named(data, "the world ", "name(devices=50)")
            data = {"name": name, **settings}
        if not isinstance(data, dict) or "name" not in data:
            return data
        return dict(cls.named(**data))

    @model_validator(mode="after")
    def _fits(self) -> World:
        for part in (self.compute, self.network, self.availability, self.clusters):
            if part is not None:
                part.check(self.devices)
        if self.network.shared and self.availability is not None:
            raise ValueError("a transfer over a finite server link does not pause: set availability to null")
        sampled = self.max_staleness is not None or isinstance(self.trigger, Sampled)
        if self.power is not None and sampled:
            raise ValueError("drawn staleness has no time in which power is drawn; set power to null")
        watts = self.power.compute_watts if self.power is not None else None
        if isinstance(watts, tuple) and len(watts) != self.devices:
            raise ValueError(f"power.compute_watts has {len(watts)} entries for devices = {self.devices}")
        if self.max_staleness is not None and self.trigger is not None:
            raise ValueError("max_staleness draws the staleness and so excludes a trigger; set one of them to null")
        if self.clusters is not None and sampled:
            drawn = "trigger" if self.max_staleness is None else f"max_staleness = {self.max_staleness}"
            raise ValueError(f"{drawn}: drawn staleness has one server; set clusters to null")
        need = self.trigger.most_in_flight() if self.trigger is not None else None
        if need is not None and need > self.devices:
            raise ValueError(f"trigger wants {need} devices at once, but the world has devices = {self.devices}")
        for fault in self.faults:
            if strangers := [device for device in fault.devices or () if not 0 <= device < self.devices]:
                raise ValueError(f"faults: there is no device {strangers[0]} for devices = {self.devices}")
        return self

    @classmethod
    def named(cls, name: str, **settings: Any) -> World:
        """Return the world of a paper: its `settings`, and fields of the world that replace what results."""
        if not isinstance(name, str) or (name not in REGISTERED and name not in named_worlds()):
            raise unknown("world", name, named_worlds())
        chosen = REGISTERED[name]
        own = {key: value for key, value in settings.items() if key in chosen.model_fields}
        replaced = {key: value for key, value in settings.items() if key not in own}
        for setting in [key for key in replaced if key not in cls.model_fields]:
            valid, hint = ", ".join(chosen.model_fields), nearest(setting, [*chosen.model_fields, *cls.model_fields])
            which = f"unknown setting {setting!r} of world {name}{hint}"
            raise SpecError(f"{which} (valid: {valid}; the fields of every world)")
        try:
            world = chosen(**own).world()
            return World(**{**dict(world), **replaced}) if replaced else world
        except ValidationError as error:
            raise SpecError(f"world {name}: {'; '.join(map(_explained, error.errors()))}") from None

    def realise(self, seed: int) -> Devices:
        """Draw this world's devices for a run with `seed`."""
        return Devices(self, seed)


class NamedWorld(Config):
    """A paper's setting with what varies in it; a subclass that has a `name` is known by it once it is defined."""

    name: ClassVar[str]
    devices: int = Field(100, ge=1)

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        if "name" in cls.__dict__:
            refuse_second("world", cls.name, cls, REGISTERED)
            REGISTERED[cls.name] = cls

    def world(self) -> World:
        """Return the world that these settings stand for."""
        raise NotImplementedError


REGISTERED: dict[str, type[NamedWorld]] = {}


@cache
def _load_papers() -> None:
    for module in ("world", "experiment"):
        list(paper_modules(module))


def named_worlds() -> dict[str, type[NamedWorld]]:
    """Return the settings of every named world, by its name: those of all papers, and those defined elsewhere."""
    _load_papers()
    return dict(sorted(REGISTERED.items()))


def _explained(fault: Any) -> str:
    """Return one sentence for one of pydantic's findings."""
    place = ".".join(map(str, fault["loc"]))
    if fault["type"] == "value_error":
        return f"{place}: {fault['ctx']['error']}" if place else str(fault["ctx"]["error"])
    return f"{place} = {fault['input']!r} is not valid: it {fault['msg'].removeprefix('Input ')}"


class Devices:
    """One draw of a world: the speed of every device, and of every single task.

    `seconds` ``[n]`` are those of a local step, or epoch, of each device, a mean where each task draws its own;
    `num_servers` is 1 without clusters; `always_available` says that no device is ever away.
    """

    def __init__(self, world: World, seed: int) -> None:
        self.world, self.seed = world, seed
        n, compute = world.devices, world.compute
        drawn = np.asarray(compute.draw(n, stream(seed, "compute-speed")), float)
        self._mean_factor = compute.mean_factor()
        if drawn.shape != (n,) or not bool(np.isfinite(drawn).all() and np.min(drawn) >= 0):
            raise SpecError(f"compute: {type(compute).__name__}.draw has to return an array of {n} numbers >= 0")
        self.seconds = drawn if self._mean_factor == 1 else drawn * self._mean_factor
        self._per_epoch = compute.per == "epoch"
        self._redrawn = bool(world.jitter) or compute.redrawn
        down, up = (world.network.draw(direction, n, seed) for direction in ("down", "up"))
        # A memoryview gives Python floats several times faster than the array itself.
        self._seconds = drawn.data
        self._down = None if down is None else down.data
        self._up = None if up is None else up.data
        self._links = [world.network.links(direction, n, seed) for direction in ("down", "up")]
        self._latency = world.network.latency_seconds
        self._pooled = (float(drawn.mean()), _mean(down), _mean(up), self._latency)
        availability, clusters = world.availability, world.clusters
        self._calendar = availability.draw(n, stream(seed, "availability")) if availability else None
        self.always_available = self._calendar is None or self._calendar.always()
        self.num_servers = clusters.servers if clusters else 1
        self._bounds = clusters.bounds(n) if clusters else [0, n]
        edges = clusters.graph.edges(self.num_servers, stream(seed, "server-graph")) if clusters else ()
        self._neighbours = neighbours(self.num_servers, edges)

    def __len__(self) -> int:
        return self.world.devices

    def profile(self, device: int, trigger: int | None) -> DeviceProfile:
        """Return the costs of the `trigger`-th task of `device` (:data:`POOLED` works at the mean speed).

        Negative numbers are trials before the run; None: the costs before anything that is drawn for each task.
        """
        if device == POOLED:
            seconds, down, up, latency = self._pooled
        else:
            seconds, latency = self._seconds[device], self._latency
            down = None if self._down is None else self._down[device]
            up = None if self._up is None else self._up[device]
        if trigger is None:
            seconds *= self._mean_factor
        elif self._redrawn:
            seconds *= self._factor(device, trigger)
        links = [None if link is None or device == POOLED else link[device] for link in self._links]
        if self._per_epoch:
            return DeviceProfile(nan, down, up, latency, seconds, *links)
        return DeviceProfile(seconds, down, up, latency, None, *links)

    def resume_at(self, device: int, t: float) -> float:
        """Return `t` if `device` is there at time `t`, else when it comes back; inf if never."""
        return t if self._calendar is None or device == POOLED else self._calendar.resume_at(device, t)

    def leaves_at(self, device: int, t: float) -> float:
        """Return when `device`, there at time `t`, goes away: the stop of a window [start, stop); inf if never.

        A device that is away at `t` leaves at `t`.
        """
        return inf if self._calendar is None or device == POOLED else self._calendar.leaves_at(device, t)

    def members(self, server: int) -> range:
        """Return the devices of a server."""
        return range(self._bounds[server], self._bounds[server + 1])

    def server_of(self, device: int) -> int:
        """Return the server that `device` belongs to."""
        return bisect_right(self._bounds, device) - 1

    def neighbours(self, server: int) -> tuple[int, ...]:
        """Return the servers that a server exchanges models with."""
        return self._neighbours[server]

    @property
    def backhaul_seconds(self) -> float:
        """Time to send a model from server to server."""
        return self.world.clusters.backhaul_seconds if self.world.clusters else 0.0

    def _factor(self, device: int, trigger: int) -> float:
        """Return what is drawn anew for a task."""
        factor = 1.0
        if self.world.jitter:
            factor = float(np.exp(self.world.jitter * stream(self.seed, "jitter", device, trigger).standard_normal()))
        if self.world.compute.redrawn:
            factor *= self.world.compute.factor(stream(self.seed, "compute-task", device, trigger))
        return factor


def _mean(speeds: np.ndarray | None) -> float | None:
    """Return the mean, exactly if all are one repeated number."""
    if speeds is None:
        return None
    return float(speeds[0] if speeds.strides == (0,) else speeds.mean())
