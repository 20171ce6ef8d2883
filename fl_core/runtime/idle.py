"""Which devices of a server are free: the pool that schedulers draw from."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

import numpy as np


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
