"""Which devices of a server are free: the pool that schedulers draw from, and how they wait for it to change."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from fl_core.runtime.kernel import park
from fl_core.runtime.programs import Waiting

if TYPE_CHECKING:
    from fl_core.runtime.simulation import Simulation


class IdleSet:
    """The devices that are free; constant-time add, remove and uniform draw.

    Built from a range, so that a million idle devices cost two integer arrays.
    """

    def __init__(self, devices: range) -> None:
        self._first = devices.start
        self._members = array("q", devices)
        self._place = array("q", range(len(devices)))
        self._size = len(devices)

    def __len__(self) -> int:
        return self._size

    def __contains__(self, device: int) -> bool:
        index = device - self._first
        return 0 <= index < len(self._place) and self._place[index] < self._size

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self._members[: self._size]))

    def remove(self, device: int) -> None:
        """Take `device` out."""
        self._size -= 1
        self._swap(device, self._size)

    def add(self, device: int) -> None:
        """Put `device` back."""
        self._swap(device, self._size)
        self._size += 1

    def draw(self, rng: np.random.Generator) -> int:
        """Return a uniformly drawn member, without removing it."""
        return self._members[rng.integers(self._size)]

    def to_dict(self) -> dict[str, object]:
        """Return the whole state: later draws depend on the order of the members."""
        return {"members": np.array(self._members), "place": np.array(self._place), "size": self._size}

    def restore(self, state: dict[str, object]) -> None:
        """Take over what :meth:`to_dict` returned."""
        self._members, self._place = (array("q", np.asarray(state[name]).tolist()) for name in ("members", "place"))
        self._size = state["size"]  # type: ignore[assignment]

    def _swap(self, device: int, place: int) -> None:
        members, places = self._members, self._place
        index = device - self._first
        other, here = members[place], places[index]
        members[here], members[place] = other, device
        places[other - self._first], places[index] = here, place


class Fleet(Waiting):
    """The devices of a server, and those of them whose last upload has been dealt with."""

    def __init__(self, run: Simulation, number: int) -> None:
        super().__init__(run, number)
        self.devices: range = run.devices.members(number)
        self.idle = IdleSet(self.devices)
        self.changes = 1
        self._released: dict[int, None] | None = None

    async def idle_changed(self) -> None:
        """Wait until a device has become free that this program has not seen yet: at the start all are new."""
        program = self._program()
        if program.seen.get("idle") == self.changes or self._down:
            self._enlist(program, "idle")
            await park()
        program.seen["idle"] = self.changes

    async def released(self) -> list[int]:
        """Wait for devices whose last upload has been dealt with, and take them: at the start all devices.

        Those whose uploads were committed come in the order in which these were taken.
        """
        if self._released is None:
            self._released = dict.fromkeys(self.idle)
        program = self._program()
        if not self._released or self._down:
            self._enlist(program, "released")
            await park()
        released, self._released = list(self._released), {}
        return released

    def leave(self, device: int) -> None:
        """Take an idle `device` away."""
        if device in self.idle:
            self.idle.remove(device)
            if self._released:
                self._released.pop(device, None)

    def _release(self, device: int) -> None:
        if self._released is not None and device in self.idle:
            self._released[device] = None
            self._wake("released")

    def _changed(self) -> None:
        if not self._down:
            self.changes += 1
        self._wake("idle")
