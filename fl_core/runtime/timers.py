"""What happens in a run by the clock alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fl_core.runtime.kernel import Event, Kind, StopRun

if TYPE_CHECKING:
    from fl_core.runtime.server import ServerHandle
    from fl_core.runtime.simulation import Simulation

CLOCKS = ("evaluate", "measure", "leaves", "available")
"""Timers that go on, whatever happens."""


class Timers:
    """The timers of a run: evaluations, restarts of the server, devices that come and go, copies on their way.

    `events` are still to happen: the name of an action with its arguments, and its place in the kernel's queue; so
    many have `fired`.
    """

    def __init__(self, run: Simulation) -> None:
        self._run = run
        self.events: dict[tuple[Any, ...], Event] = {}
        self.fired = 0

    def begin(self) -> None:
        """Set the timers that a run begins with."""
        run = self._run
        if run.budget.seconds is not None:
            self.add(run.budget.seconds, Kind.EVALUATION, 1, "stop")
        if run.evaluation.every_seconds is not None:
            self.add(run.evaluation.every_seconds, Kind.EVALUATION, 0, "evaluate", 1)
        for place, when in enumerate(run.evaluation.at_seconds):
            self.add(when, Kind.EVALUATION, 0, "measure", place)
        for number, (start, down) in enumerate(o for fault in run.faults for o in fault.outages()):
            self.add(start, Kind.PROGRESS, 0, "outage", number, down)
        if not run.devices.always_available:
            for server in run.servers:
                for device in server.devices:
                    self._watch_availability(device)

    def add(self, time: float, kind: Kind, order: int, name: str, *arguments: Any) -> None:
        """Have ``_on_name(*arguments)`` called at virtual `time`; unlike a bare event it is part of a checkpoint."""
        if time < float("inf"):
            key = (name, *arguments)
            self.events[key] = self._run.kernel.at(time, kind, order, lambda: self._fire(key))

    def put(self, key: tuple[Any, ...], event: tuple[Any, ...]) -> None:
        """Put back the timer `key` of a resumed run."""
        self.events[key] = (*event, lambda: self._fire(key))
        self._run.kernel.put(self.events[key])

    def keep_away(self, device: int, seconds: float) -> None:
        """Let `device` be free again only after `seconds`."""
        run = self._run
        run.away.add(device)
        self.add(run.kernel.now + seconds, Kind.PROGRESS, run.dispatched, "back", device)

    def _fire(self, key: tuple[Any, ...]) -> None:
        del self.events[key]
        self.fired += 1
        getattr(self, f"_on_{key[0]}")(*key[1:])

    def _watch_availability(self, device: int) -> None:
        """Set the timer of the next coming or going of `device`; if it is away now, note that."""
        run = self._run
        now = run.kernel.now
        back = run.devices.resume_at(device, now)
        if back > now:
            run.away.add(device)
            self._server_of(device)._leave(device)
            self.add(back, Kind.PROGRESS, run.dispatched, "available", device)
        else:
            self.add(run.devices.leaves_at(device, now), Kind.PROGRESS, run.dispatched, "leaves", device)

    def _server_of(self, device: int) -> ServerHandle:
        run = self._run
        return run.servers[run.devices.server_of(device)]

    def _busy(self, device: int) -> bool:
        return any(handle.id == device for handle in self._run.handles)

    def _on_stop(self) -> None:
        raise StopRun

    def _on_evaluate(self, count: int) -> None:
        run = self._run
        run.watchdog.clock()
        run.measurements.periodic()
        assert run.evaluation.every_seconds is not None
        self.add((count + 1) * run.evaluation.every_seconds, Kind.EVALUATION, 0, "evaluate", count + 1)

    def _on_measure(self, place: int) -> None:
        self._run.measurements.measure()

    def _on_outage(self, number: int, down: float) -> None:
        run = self._run
        run.log_fault(-1, -1, "server_restart")
        for server in run.servers:
            server._go_down(run.kernel.now + down)
        if down:
            self.add(run.kernel.now + down, Kind.PROGRESS, 0, "up", number)

    def _on_up(self, number: int) -> None:
        for server in self._run.servers:
            server._come_up()

    def _on_duplicate(self, server: int, task: int, device: int, size: float, number: int) -> None:
        self._run.servers[server]._duplicate(size)

    def _on_back(self, device: int) -> None:
        """A device has recovered; it is free unless its window of availability has closed meanwhile."""
        run = self._run
        run.away.discard(device)
        if run.devices.resume_at(device, run.kernel.now) > run.kernel.now:
            run.away.add(device)
        elif not self._busy(device):
            self._server_of(device)._free(device)

    def _on_leaves(self, device: int) -> None:
        run = self._run
        run.watchdog.clock()
        run.away.add(device)
        self._server_of(device)._leave(device)
        self.add(run.devices.resume_at(device, run.kernel.now), Kind.PROGRESS, run.dispatched, "available", device)

    def _on_available(self, device: int) -> None:
        run = self._run
        run.watchdog.clock()
        if device in run.away and ("back", device) not in self.events:  # it may have recovered at this very instant
            run.away.discard(device)
            if not self._busy(device):
                self._server_of(device)._free(device)
        self.add(run.devices.leaves_at(device, run.kernel.now), Kind.PROGRESS, run.dispatched, "leaves", device)
