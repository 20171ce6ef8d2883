"""What transfers cost: bandwidth and latency of the links between devices and their server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field, ValidationError, ValidatorFunctionWrapHandler, WrapValidator

from fl_core.config import Config, Duration, Family, ascending
from fl_core.streams import stream

if TYPE_CHECKING:
    from fl_core.world.traces import Trace

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Spread(Family):
    """How bits per second differ among devices."""

    def draw(self, devices: int, rng: np.random.Generator, direction: str = "down") -> np.ndarray:
        """Return ``[n]`` bits per second; of links whose speed changes the mean."""
        return np.array([link.mean for link in self.links(devices, rng, direction) or ()])

    def links(self, devices: int, rng: np.random.Generator, direction: str) -> Sequence[Trace] | None:
        """Return the course of each device's speed, or None where it never changes."""
        return None


class UniformBandwidth(Spread):
    """Bits per second drawn once per device, uniformly between `slowest` and `fastest`."""

    kind: Literal["uniform"] = "uniform"
    slowest: Positive
    """Least bits per second."""
    fastest: Positive
    """Most bits per second."""

    _ordered = ascending("slowest", "fastest", "bits per second")

    def draw(self, devices: int, rng: np.random.Generator, direction: str = "down") -> np.ndarray:
        return rng.uniform(self.slowest, self.fastest, devices)


class LinspaceBandwidth(Spread):
    """Bits per second in equal steps from `first`, the one of device 0, to `last`."""

    kind: Literal["linspace"] = "linspace"
    first: Positive
    """Bits per second of the first device."""
    last: Positive
    """Bits per second of the last device."""

    def draw(self, devices: int, rng: np.random.Generator, direction: str = "down") -> np.ndarray:
        return np.linspace(self.first, self.last, devices)


def _one_message(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    """Say what a bandwidth may be, instead of why it is none of the things that it may be."""
    try:
        return handler(value)
    except ValidationError as error:
        faults = [fault for fault in error.errors() if fault["type"] == "value_error"]
        if faults:
            raise ValueError(str(faults[0]["ctx"]["error"])) from None
        shown = repr(value) if len(repr(value)) <= 60 else f"{repr(value)[:59]}…"
        kinds = '{"kind": "uniform", "slowest": ..., "fastest": ...}, or another kind: "linspace", "phones", '
        may = f'a number > 0, a list with one for each device, null, {kinds}"measured", "trace"'
        raise ValueError(f"{shown} is not valid: it should be {may}") from None


Bandwidth = Annotated[Positive | tuple[Positive, ...] | Spread | None, WrapValidator(_one_message)]


class Network(Config):
    """The link between server and devices; no cost by default."""

    down_bits_per_second: Bandwidth = None
    """Bandwidth of every device's link, or one for each; None: transfers take only the latency."""
    up_bits_per_second: Bandwidth = None
    """The same on the way up."""
    latency_seconds: Duration = 0.0
    """Added to every transfer, each way."""
    server_down_bits_per_second: Positive | None = None
    """What a server can send in all, shared fairly among the devices that receive; None: any amount."""
    server_up_bits_per_second: Positive | None = None
    """What a server can receive in all; None: any amount."""

    @property
    def shared(self) -> bool:
        """Whether a server's link is finite."""
        return self.server_down_bits_per_second is not None or self.server_up_bits_per_second is not None

    def check(self, devices: int) -> None:
        """Refuse a number of devices that a list does not fit."""
        for name, value in self:
            if isinstance(value, Spread) and value.links(1, np.random.default_rng(0), "down") and self.shared:
                raise ValueError(f"{name}: a link whose speed changes has no fair share of a finite server link")
            if isinstance(value, Spread):
                value.check(devices)
            if isinstance(value, tuple) and len(value) != devices:
                raise ValueError(f"{name} has {len(value)} entries for devices = {devices}")

    def draw(self, direction: Literal["down", "up"], devices: int, seed: int) -> np.ndarray | None:
        """Return ``[n]`` bits per second in one direction, or None if bandwidth costs nothing there."""
        value = self.down_bits_per_second if direction == "down" else self.up_bits_per_second
        if value is None:
            return None
        if isinstance(value, Spread):
            return value.draw(devices, self._stream(value, direction, seed), direction)
        return np.broadcast_to(np.array(value, dtype=float), (devices,))

    def links(self, direction: Literal["down", "up"], devices: int, seed: int) -> Sequence[Trace] | None:
        """Return the course of each device's speed in one direction, or None where no speed changes."""
        value = self.down_bits_per_second if direction == "down" else self.up_bits_per_second
        if not isinstance(value, Spread):
            return None
        return value.links(devices, self._stream(value, direction, seed), direction)

    def _stream(self, value: Spread, direction: str, seed: int) -> np.random.Generator:
        """Return what a kind draws from: of a phone, the same link in both directions."""
        return stream(seed, "bandwidth" if value.kind == "phones" else f"bandwidth-{direction}")
