"""When devices are there: windows of time, outside of which a device does nothing."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from math import floor, inf
from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from fl_core.config import Duration, Family, Seconds
from fl_core.errors import SpecError

Window = tuple[float, float]
"""Start and stop in seconds, half-open: [start, stop)."""


class Calendar:
    """The windows of all devices in one run.

    `cycles` holds those of each device, in order of time and apart from each other, or one entry for all devices;
    after `period` seconds they repeat, and `offsets` ``[n]`` are seconds by which each device's are shifted.
    """

    def __init__(
        self, cycles: Sequence[tuple[Window, ...]], period: float | None, offsets: np.ndarray | None = None
    ) -> None:
        self._cycles = [_joined(cycle, period) for cycle in cycles]
        self._period, self._offsets = period, offsets

    def always(self) -> bool:
        """Return whether nobody is ever away."""
        return all(self._full(cycle) for cycle in self._cycles)

    def resume_at(self, device: int, t: float) -> float:
        """Return `t` if `device` is there at `t`, else the start of its next window; inf if there is none."""
        start, _ = self._window(device, t)
        return max(t, start)

    def leaves_at(self, device: int, t: float) -> float:
        """Return the stop of the window that contains `t` (inf if it has none), or `t` if none contains it."""
        start, stop = self._window(device, t)
        return stop if start <= t else t

    def _full(self, cycle: tuple[Window, ...]) -> bool:
        return self._period is not None and cycle == ((0.0, self._period),)

    def _window(self, device: int, t: float) -> Window:
        """Return the first window that stops after `t`."""
        cycle = self._cycles[device if len(self._cycles) > 1 else 0]
        if self._full(cycle):
            return -inf, inf
        if self._period is None or not cycle:
            return _first(cycle, 0.0, t) or (inf, inf)
        offset = 0.0 if self._offsets is None else float(self._offsets[device])
        # Rounding may put t into a neighbouring cycle, and a joined window reaches into the next one.
        nearest = floor((t - offset) / self._period)
        for count in range(nearest - 2, nearest + 3):
            if window := _first(cycle, offset + count * self._period, t):
                return window
        return inf, inf


def _first(cycle: tuple[Window, ...], base: float, t: float) -> Window | None:
    """Return the first window, shifted by `base`, that stops after `t`."""
    index = bisect_right(cycle, t, key=lambda window: base + window[1])
    return (base + cycle[index][0], base + cycle[index][1]) if index < len(cycle) else None


def _joined(cycle: tuple[Window, ...], period: float | None) -> tuple[Window, ...]:
    """Join windows that touch, also across the end of the period."""
    joined: list[Window] = []
    end = 0.0
    for start, stop in cycle:
        if not end <= start < stop:
            raise SpecError(
                f"a window from {start} to {stop} s must begin after the one before it, and end after that"
            )
        end = stop
        if joined and joined[-1][1] == start:
            joined[-1] = (joined[-1][0], stop)
        else:
            joined.append((start, stop))
    if period is not None and len(joined) > 1 and joined[0][0] == 0 and joined[-1][1] == period:
        (_, stop), *middle, (start, _) = joined
        joined = [*middle, (start, period + stop)]
    return tuple(joined)


class Availability(Family):
    """When devices are there."""

    def draw(self, devices: int, rng: np.random.Generator) -> Calendar:
        """Return the windows of all devices."""
        raise NotImplementedError


class PeriodicAvailability(Availability):
    """Each device is there for the same part of every period."""

    kind: Literal["periodic"] = "periodic"
    period_seconds: Seconds
    """Length of a period."""
    available: float = Field(gt=0, le=1)
    """Part of it that a device is there, in (0, 1]."""
    phase: Literal["random", "zero"] = "random"
    """``"random"``: each device's windows are shifted by a uniform draw; ``"zero"``: all begin together, at time
    0."""

    def draw(self, devices: int, rng: np.random.Generator) -> Calendar:
        cycle = ((0.0, self.available * self.period_seconds),)
        shifted = self.phase == "random" and self.available < 1
        offsets = rng.uniform(0, self.period_seconds, devices) if shifted else None
        return Calendar([cycle], self.period_seconds, offsets)


class TraceAvailability(Availability):
    """The windows of each device, given."""

    kind: Literal["trace"] = "trace"
    windows: tuple[tuple[tuple[Duration, Duration], ...], ...]
    """For each device its windows ``(start, stop)`` in seconds, in order; a device without any never comes."""
    period_seconds: Seconds | None = None
    """After how many seconds the windows repeat; None: after its last window a device is gone for good."""

    @model_validator(mode="after")
    def _in_order(self) -> TraceAvailability:
        for device, windows in enumerate(self.windows):
            end = 0.0
            for start, stop in windows:
                if start < end or stop <= start:
                    what = f"windows of device {device}: [{start:g}, {stop:g}) must have its stop after its start"
                    raise ValueError(f"{what} and begin after the window before it, which stops at {end:g} s")
                end = stop
            if (period := self.period_seconds) is not None and end > period:
                raise ValueError(f"windows of device {device} reach to {end:g} s, beyond period_seconds = {period:g}")
        return self

    def draw(self, devices: int, rng: np.random.Generator) -> Calendar:
        return Calendar(self.windows, self.period_seconds)

    def check(self, devices: int) -> None:
        if len(self.windows) != devices:
            raise ValueError(f"availability trace has {len(self.windows)} entries for devices = {devices}")
