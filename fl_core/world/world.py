"""Devices and network of a simulated federation."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from fl_core.streams import stream
from fl_core.tasks.base import POOLED


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class ConstantCompute(_Part):
    """Every device needs the same time for a local step (one mini-batch)."""

    kind: Literal["constant"] = "constant"
    seconds_per_step: Seconds = 1.0

    def draw(self, devices: int, rng: np.random.Generator) -> np.ndarray:
        """Return ``[n]`` seconds per local step."""
        return np.full(devices, self.seconds_per_step)


class UniformCompute(_Part):
    """Seconds per local step drawn once per device, uniformly between `fastest` and `slowest`."""

    kind: Literal["uniform"] = "uniform"
    fastest: Seconds = 1.0
    slowest: Seconds = 5.0

    @model_validator(mode="after")
    def _ordered(self) -> UniformCompute:
        if self.slowest < self.fastest:
            raise ValueError(f"slowest = {self.slowest} seconds must not be below fastest = {self.fastest}")
        return self

    def draw(self, devices: int, rng: np.random.Generator) -> np.ndarray:
        """Return ``[n]`` seconds per local step."""
        return rng.uniform(self.fastest, self.slowest, devices)


class LogNormalCompute(_Part):
    """Seconds per local step drawn once per device from a log-normal: a few devices are very slow."""

    kind: Literal["lognormal"] = "lognormal"
    median: Seconds = 1.0
    sigma: float = Field(0.5, ge=0, le=5)

    def draw(self, devices: int, rng: np.random.Generator) -> np.ndarray:
        """Return ``[n]`` seconds per local step."""
        return self.median * np.exp(self.sigma * rng.standard_normal(devices))


class TraceCompute(_Part):
    """Seconds per local step, given for each device."""

    kind: Literal["trace"] = "trace"
    seconds_per_step: tuple[Seconds, ...]

    def draw(self, devices: int, rng: np.random.Generator) -> np.ndarray:
        """Return ``[n]`` seconds per local step."""
        return np.array(self.seconds_per_step)


Compute = Annotated[ConstantCompute | UniformCompute | LogNormalCompute | TraceCompute, Field(discriminator="kind")]


class Network(_Part):
    """The link between server and devices; no cost by default.

    Attributes
    ----------
    down_bits_per_second, up_bits_per_second : float or None
        Bandwidth of each device's link; None: transfers take only the latency.
    latency_seconds : float
        Added to every transfer, each way.
    """

    down_bits_per_second: float | None = Field(None, gt=0, allow_inf_nan=False)
    up_bits_per_second: float | None = Field(None, gt=0, allow_inf_nan=False)
    latency_seconds: float = Field(0.0, ge=0, allow_inf_nan=False)


class DeviceProfile(NamedTuple):
    """What one device costs in virtual time."""

    seconds_per_step: float
    down_bits_per_second: float | None
    up_bits_per_second: float | None
    latency_seconds: float

    def down_seconds(self, size: int) -> float:
        """Return the time to receive `size` bytes."""
        return self.latency_seconds + (8 * size / self.down_bits_per_second if self.down_bits_per_second else 0.0)

    def up_seconds(self, size: int) -> float:
        """Return the time to send `size` bytes."""
        return self.latency_seconds + (8 * size / self.up_bits_per_second if self.up_bits_per_second else 0.0)


class World(_Part):
    """The simulated federation.

    Attributes
    ----------
    devices : int
        Number of devices.
    compute : Compute
        Seconds per local step, one draw per device and run.
    jitter : float
        Standard deviation of the logarithm of a factor drawn anew for every task (0: a device is always equally
        fast).
    network : Network
        Cost of transfers.
    max_staleness : int or None
        FedAsync's experiment: instead of letting time decide, every task starts from a version drawn uniformly
        among the last `max_staleness` ones, on a device drawn uniformly with replacement. None: time decides.
    """

    devices: int = Field(100, ge=1)
    compute: Compute = UniformCompute()
    jitter: float = Field(0.0, ge=0, le=5)
    network: Network = Network()
    max_staleness: int | None = Field(None, ge=1)

    @model_validator(mode="after")
    def _trace_fits(self) -> World:
        if isinstance(self.compute, TraceCompute) and len(self.compute.seconds_per_step) != self.devices:
            raise ValueError(
                f"compute trace has {len(self.compute.seconds_per_step)} entries for devices = {self.devices}"
            )
        return self

    def realise(self, seed: int) -> Devices:
        """Draw this world's devices for a run with `seed`."""
        return Devices(self, seed)


class Devices:
    """One draw of a world: the speed of every device, and of every single task."""

    def __init__(self, world: World, seed: int) -> None:
        self.world, self.seed = world, seed
        self.seconds_per_step = world.compute.draw(world.devices, stream(seed, "compute-speed"))

    def __len__(self) -> int:
        return self.world.devices

    def profile(self, device: int, trigger: int) -> DeviceProfile:
        """Return the costs of the `trigger`-th task of `device` (:data:`POOLED` works at the mean speed)."""
        speeds = self.seconds_per_step
        seconds = float(speeds.mean() if device == POOLED else speeds[device])
        if self.world.jitter:
            seconds *= float(
                np.exp(self.world.jitter * stream(self.seed, "jitter", device, trigger).standard_normal())
            )
        return DeviceProfile(seconds, *self._link)

    @property
    def _link(self) -> tuple[float | None, float | None, float]:
        network = self.world.network
        return network.down_bits_per_second, network.up_bits_per_second, network.latency_seconds
