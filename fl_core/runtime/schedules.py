"""Ready-made schedulers, written like any other with the server's public handle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fl_core.streams import stream

if TYPE_CHECKING:
    from fl_core.runtime.server import ServerHandle


async def keep_busy(server: ServerHandle, concurrency: int) -> None:
    """Keep `concurrency` tasks in flight: whenever a device has finished, trigger an idle one, drawn uniformly.

    With as many tasks as devices this is the same device again, at once.
    """
    while True:
        free = concurrency - server.in_flight
        if free >= len(server.idle):
            server.dispatch(list(server.idle))
        else:
            for _ in range(free):
                server.dispatch([server.idle.draw(server.rng)])
        await server.idle_changed()


async def sampled_staleness(server: ServerHandle, max_staleness: int, seed: int) -> None:
    """Let staleness be drawn instead of arising: FedAsync's experiment (specification, section 2.6).

    The task of global epoch t starts from a version drawn uniformly among the last `max_staleness` ones, on a device
    drawn uniformly with replacement. Since both draws are independent of training, they define a timeline: with
    one epoch a second, that task leaves when its base version appears and arrives at second t. So the ordinary
    runtime runs it, and independent tasks may be computed at the same time.
    """
    devices = len(server.devices)
    while True:
        base = server.version
        for epoch in range(base + 1, base + max_staleness + 1):
            rng = stream(seed, "sampled-staleness", epoch)
            pool = min(epoch, max_staleness)
            version, device = epoch - pool + int(rng.integers(pool)), int(rng.integers(devices))
            if version == base:
                server.dispatch([device], seconds=float(epoch - base))
        await server.committed()
