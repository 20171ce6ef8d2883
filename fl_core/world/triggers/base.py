"""When devices are triggered, written with the server's public handle."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from fl_core.part import Part


class Idle(Protocol):
    """The free devices."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[int]: ...

    def __contains__(self, device: int) -> bool: ...

    def draw(self, rng: np.random.Generator) -> int:
        """Return a uniformly drawn member."""


class Server(Protocol):
    """The part of a server's handle that triggers use; see :class:`fl_core.runtime.ServerHandle`."""

    version: int
    in_flight: int
    state: dict[str, Any]

    @property
    def idle(self) -> Idle: ...

    @property
    def rng(self) -> np.random.Generator: ...

    @property
    def devices(self) -> range: ...

    @property
    def waiting(self) -> Sequence[Any]:
        """Uploads that have arrived and belong to no version yet."""

    def share(self, device: int) -> float:
        """Return the part of this server's training samples that `device` holds."""

    def stream(self, purpose: str, *index: int) -> np.random.Generator:
        """Return a named random stream of the run."""

    def dispatch(self, devices: Iterable[int], *, seconds: float | None = None) -> None:
        """Trigger `devices` now."""

    async def idle_changed(self) -> None:
        """Wait until a device has become free that this program has not seen yet."""

    async def new_version(self) -> None:
        """Wait until there is a version that this program has not seen yet."""

    async def released(self) -> list[int]:
        """Wait for devices whose last upload has been dealt with, and take them."""

    async def every(self, seconds: float) -> None:
        """Wait for the next of the times 0, `seconds`, 2 `seconds`, ..."""


class Trigger(Part):
    """A rule that says whom to trigger, and when.

    An algorithm's scheduler uses it, ``await Contributors().turn(server)``, or leaves the choice to the world with
    ``await server.keep_busy(n)``: then ``World(trigger={"kind": "timed", "period_seconds": 5})`` decides.

    A new one is one class in one file of this package, with a ``kind`` and a sentence for each setting. Nothing else
    changes, as the package is searched for its files. Its :meth:`turn` waits for one occasion and then acts; the
    runtime repeats it. What it must remember from turn to turn is kept in ``server.state``. For example, one device
    after the other, in the order of their numbers::

        class Cyclic(Trigger):
            kind: Literal["cyclic"] = "cyclic"

            async def turn(self, server):
                await server.idle_changed()
                if not server.in_flight and server.idle:
                    last = server.state.get("last", -1)
                    device = next((d for d in server.idle if d > last), min(server.idle))
                    server.state["last"] = device
                    server.dispatch([device])
    """

    async def turn(self, server: Server) -> None:
        """Wait for the next occasion, then trigger devices."""
        raise NotImplementedError

    def most_in_flight(self) -> int | None:
        """Return how many devices it wants at once, so that a world that is too small is refused; None: any."""
        return None
