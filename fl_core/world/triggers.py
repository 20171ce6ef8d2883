"""Whom to trigger, and when: rules written with the server's public handle."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from pydantic import Field

from fl_core.config import Family, Seconds

if TYPE_CHECKING:
    from fl_core.runtime import ServerHandle


class Trigger(Family):
    """A rule that says whom to trigger, and when.

    An algorithm's scheduler uses it, ``await Contributors().turn(server)``, or leaves the choice to the world with
    ``await server.keep_busy(n)``: then ``World(trigger={"kind": "timed", "period_seconds": 5})`` decides.

    A new one is one class with a ``kind``, anywhere. Its :meth:`turn` waits for one occasion and then acts; the
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

    at_once: ClassVar[str] = ""
    """Name of the field that says how many devices it wants at once, if there is one."""

    async def turn(self, server: ServerHandle) -> None:
        """Wait for the next occasion, then trigger devices."""
        raise NotImplementedError

    def most_in_flight(self) -> int | None:
        """Return how many devices it wants at once, so that a world that is too small is refused; None: any."""
        return getattr(self, self.at_once) if self.at_once else None


TRIGGERS: dict[str, type[Trigger]] = Trigger.kinds


class Continuous(Trigger):
    """Whenever a device has finished, trigger an idle one, drawn uniformly (FedAsync, FedBuff, ...).

    With as many tasks as devices this is the same device again, at once.
    """

    at_once: ClassVar[str] = "concurrency"
    kind: Literal["continuous"] = "continuous"
    concurrency: int = Field(10, ge=1)
    """Tasks in flight."""

    async def turn(self, server: ServerHandle) -> None:
        await server.idle_changed()
        free = self.concurrency - server.in_flight
        if free >= len(server.idle):
            server.dispatch(list(server.idle))
        else:
            for _ in range(free):
                server.dispatch((server.idle.draw(server.rng),))


class Hold(Trigger):
    """An upload keeps its place until it has been used; then an idle device, drawn uniformly, takes that (PORT).

    With as many tasks as devices these are the same devices again, in order of arrival. A task that brings no upload
    gives its place up at once.
    """

    at_once: ClassVar[str] = "concurrency"
    kind: Literal["hold"] = "hold"
    concurrency: int = Field(10, ge=1)
    """Tasks in flight and uploads that wait, together."""

    async def turn(self, server: ServerHandle) -> None:
        released = await server.released()
        waiting = {upload.device for upload in server.waiting}
        free = self.concurrency - server.in_flight - len(server.waiting)
        able = len(server.idle) - sum(device in server.idle for device in waiting)
        if free >= able:
            order = dict.fromkeys([*released, *server.idle])
            server.dispatch([device for device in order if device in server.idle and device not in waiting])
        else:
            for _ in range(free):
                device = server.idle.draw(server.rng)
                while device in waiting:
                    device = server.idle.draw(server.rng)
                server.dispatch((device,))


class Timed(Trigger):
    """At times 0, T, 2T, ... trigger idle devices, drawn uniformly, under a cap (FedASMU, Algorithm 1).

    A device that has finished waits for the next tick that draws it; an arrival at the very time of a tick comes
    first. With fewer than `per_tick` free places, or idle devices, a tick triggers as many as there are.
    """

    at_once: ClassVar[str] = "concurrency"
    kind: Literal["timed"] = "timed"
    period_seconds: Seconds = 10.0
    """Time T between ticks."""
    per_tick: int = Field(10, ge=1)
    """Most devices triggered at one tick (m')."""
    concurrency: int = Field(10, ge=1)
    """Most tasks in flight."""

    async def turn(self, server: ServerHandle) -> None:
        await server.every(self.period_seconds)
        for _ in range(min(self.per_tick, self.concurrency - server.in_flight, len(server.idle))):
            server.dispatch((server.idle.draw(server.rng),))


class Contributors(Trigger):
    """Trigger all devices at first, then always those whose last upload has been dealt with.

    With an updater that waits for K uploads this is the K-asynchronous schedule (WKAFL), with one that waits for a
    time it is the periodic one (FedLuck), and with a deadline per cluster that of SD-FEEL. A device whose upload was
    discarded, lost or rejected is triggered again at once.
    """

    kind: Literal["contributors"] = "contributors"
    order: Literal["arrival", "id"] = "arrival"
    """Devices released together are triggered in ``"arrival"`` order of their uploads (usual after K uploads) or by
    ``"id"`` (usual at the end of a period)."""

    async def turn(self, server: ServerHandle) -> None:
        released = await server.released()
        server.dispatch(sorted(released) if self.order == "id" else released)


class BlockedRounds(Trigger):
    """Trigger all devices, in order of their numbers, and again when all of them have contributed (GSGM).

    A device whose upload has been used stays parked until the end of the round, so that a round lasts as long as its
    slowest device, whatever the updater makes of the uploads (baselines specification, section 1.4). An upload that
    is discarded, lost or rejected counts as used: the round goes on without it. Who is away when a round begins
    takes part in the next one.
    """

    kind: Literal["blocked_rounds"] = "blocked_rounds"

    async def turn(self, server: ServerHandle) -> None:
        parked = {*server.state.get("parked", ()), *await server.released()}
        if not server.in_flight and parked.issuperset(free := list(server.idle)):
            server.dispatch(free)
            parked = set()
        server.state["parked"] = sorted(parked)


class Rounds(Trigger):
    """Once per version, trigger devices drawn without replacement, in order of their numbers (FedAvg).

    If fewer are free, because some crashed or are away, those; if none is, the round waits for the first.
    """

    at_once: ClassVar[str] = "devices"
    kind: Literal["rounds"] = "rounds"
    devices: int = Field(10, ge=1)
    """Devices per round."""
    sampling: Literal["uniform", "by_share"] = "uniform"
    """``"by_share"``: each draw is in proportion to the samples of those that are left (FedProx)."""

    async def turn(self, server: ServerHandle) -> None:
        await server.new_version()
        while not server.idle:
            await server.idle_changed()
        all_free = len(server.idle) == len(server.devices)
        pool = len(server.idle) if all_free else list(server.idle)
        shares = None
        if self.sampling == "by_share":
            shares = np.array([server.share(device) for device in server.idle])
            shares /= shares.sum()
        drawn = server.rng.choice(pool, min(self.devices, len(server.idle)), replace=False, p=shares)
        server.dispatch(sorted(server.devices[int(i)] if all_free else int(i) for i in drawn))


class Sampled(Trigger):
    """FedAsync's experiment: staleness is drawn from a distribution (specification, section 2.6).

    The task of global epoch t starts from a version drawn uniformly among the last `max_staleness` ones, on a device
    drawn uniformly with replacement. Since both draws are independent of training, they define a timeline: with
    one epoch a second, that task leaves when its base version appears and arrives at second t. So the ordinary
    runtime runs it, and independent tasks may be computed at the same time.

    An upload that is lost or rejected makes no version, so that epochs count on from the last one. When nothing is on
    its way any more, the tasks of the next epochs that should have left already leave from the newest version.
    """

    kind: Literal["sampled"] = "sampled"
    max_staleness: int = Field(4, ge=1)
    """Number of versions K to draw from; an upload has missed 0..K-1 updates, the paper's t - tau is 1..K. To draw
    from 0..K missed updates (the variant "inclusive" of A2) give K + 1."""

    async def turn(self, server: ServerHandle) -> None:
        await server.released()
        base = server.version
        before = server.state.get("sampled", -1) if server.in_flight else -1
        server.state["sampled"] = base
        for epoch in range(base + 1, base + self.max_staleness + 1):
            rng = server.stream("sampled-staleness", epoch)
            pool = min(epoch, self.max_staleness)
            version, device = epoch - pool + int(rng.integers(pool)), int(rng.integers(len(server.devices)))
            if before < version <= base:
                server.dispatch((device,), seconds=float(epoch - base))
