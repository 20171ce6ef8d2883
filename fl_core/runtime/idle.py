"""Which devices are free: the pool that schedulers draw from."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np


class IdleSet:
    """The devices that are not working; constant-time add, remove and uniform draw.

    Built from a count, so that a million idle devices cost two integer arrays.
    """

    def __init__(self, devices: int) -> None:
        self._members = np.arange(devices)
        self._place = np.arange(devices)
        self._size = devices

    def __len__(self) -> int:
        return self._size

    def __contains__(self, device: int) -> bool:
        return 0 <= device < len(self._place) and bool(self._place[device] < self._size)

    def __iter__(self) -> Iterator[int]:
        return iter(np.sort(self._members[: self._size]).tolist())

    def remove(self, device: int) -> None:
        """Take `device` out."""
        self._swap(device, self._size - 1)
        self._size -= 1

    def add(self, device: int) -> None:
        """Put `device` back."""
        self._swap(device, self._size)
        self._size += 1

    def draw(self, rng: np.random.Generator) -> int:
        """Return a uniformly drawn member, without removing it."""
        return int(self._members[rng.integers(self._size)])

    def _swap(self, device: int, place: int) -> None:
        other, here = self._members[place], self._place[device]
        self._members[here], self._members[place] = other, device
        self._place[other], self._place[device] = here, place
