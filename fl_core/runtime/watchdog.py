"""A run that cannot reach its budget ends, with a line that says why: the one place that bounds what programs do."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from typing import TYPE_CHECKING, Any

from fl_core.errors import RunError
from fl_core.runtime import executors
from fl_core.runtime.kernel import StopRun, nothing_left, too_many
from fl_core.runtime.timers import CLOCKS

if TYPE_CHECKING:
    from fl_core.runtime.simulation import Simulation

MOST_FAILED = 1000
"""So many tasks in a row that bring no usable upload, at servers that are up, end a run; in a world of more than half
as many devices, two for each device."""
MOST_TICKS = 10_000
"""So many ticks of server programs in a row that nothing follows from, with nobody at work, end a run."""
MOST_CALLS = 10_000
"""A task that has called for so much local work and uploads nothing is not waited for."""
WINDOW = 100_000
"""Events between two looks at how far a run has come, and 100 for each device."""
MOST_EVENTS = 1e10
"""A run that would need so many more events at its present pace ends: a day, if training were free."""
PATIENCE_SECONDS = 300.0
"""So long may a program compute between two events, local jobs and evaluations not counted."""


class Stuck(BaseException):
    """Raised in the thread of a run whose program does not let go."""


class Watchdog:
    """Looks after one run.

    `quiet` holds the timers since the last task was dispatched, and how many tasks had been; `ticks` those since the
    last progress, how much of that there had been, and when it was noticed.
    """

    def __init__(self, run: Simulation) -> None:
        self._run = run
        self._each: Callable[[], None] | None = None
        self.quiet = [0, 0]
        self.ticks: list[Any] = [0, 0, 0.0]
        self._last: dict[str, float] = {}
        self._waits: dict[Any, int] = {}
        self._next, self._crowded = 0, -1

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Look after the run while it goes on in this thread."""
        run, over = self._run, threading.Event()
        run.kernel.boundary = self._boundary
        self._look()
        arguments = threading.get_ident(), over, PATIENCE_SECONDS
        threading.Thread(target=self._time, args=arguments, name="watchdog", daemon=True).start()
        try:
            yield
        except Stuck:
            who = run.kernel.current.name if run.kernel.current else "the run"
            what = f"has computed for more than {PATIENCE_SECONDS:g} s at t = {run.kernel.now:g} s without waiting"
            raise RunError(f"{who} {what} for anything: is there a loop that does not end?") from None
        finally:
            over.set()

    def before_each_event(self, call: Callable[[], None] | None) -> None:
        """Have `call` called before every event from now on; None: nothing any more."""
        self._each, self._run.kernel.due = call, 0 if call else self._next

    def tick(self) -> None:
        """Note that a server program goes on because of the time alone; end a run in which only that happens.

        A device that may come back keeps a run alive until it has been there once in vain.
        """
        run = self._run
        progress, now = run.dispatched + (run.version if run.budget.updates else 0), run.kernel.now
        if run.running or progress != self.ticks[1]:
            self.ticks = [0, progress, now]
        self.ticks[0] += 1
        if self.ticks[0] > MOST_TICKS:
            self.ticks[0] = 0
            timers = run.timers.events
            away = (key[1] for key in timers if key[0] == "available")
            back = all(run.devices.resume_at(device, self.ticks[2]) < now for device in away)
            if back and all(key[0] in CLOCKS for key in timers):
                raise nothing_left(now)

    def clock(self) -> None:
        """End a run in which only clocks go on and nobody reacts to them: evaluations, devices that come and go."""
        run = self._run
        if run.running or run.dispatched != self.quiet[1]:
            self.quiet = [0, run.dispatched]
        self.quiet[0] += 1
        if self.quiet[0] > (0 if run.devices.always_available else 100 * (1 + len(run.devices))):
            self.quiet[0] = 0
            if len(run.kernel._queue) <= sum(key[0] in CLOCKS for key in run.timers.events):
                raise nothing_left(run.kernel.now)

    def failed(self, outcome: str) -> None:
        """End the run if nothing usable arrives any more: training has diverged, or everything gets lost.

        That half of a large fleet leaves at once is no reason to end, hence the number of devices.
        """
        run = self._run
        if sum(server._failed_in_a_row for server in run.servers) >= max(MOST_FAILED, 2 * len(run.devices)):
            run.history.ended = outcome
            raise StopRun

    def crowded(self) -> None:
        """End the run if no event has happened since the last call, so many versions ago."""
        kernel = self._run.kernel
        if kernel.events == self._crowded:
            raise too_many(kernel.current and kernel.current.name, kernel.now)
        self._crowded = kernel.events

    def _boundary(self) -> None:
        if self._each is not None:
            self._each()
        if self._run.kernel.events >= self._next:
            self._look()

    def _look(self) -> None:
        """End the run if it has not come on since the last look, or so little that it would take forever."""
        run, kernel, last = self._run, self._run.kernel, self._last
        used = run.used()
        self._last = now = {name: part for name, (part, _) in used.items()} | {
            "events": kernel.events, "time": kernel.now, "waits": run.waits, "versions": run.version,
            "timers": run.timers.fired, "arrivals": sum(server.counters["models_received"] for server in run.servers),
        }  # fmt: skip
        waits, self._waits = self._waits, {key: program.place for key, program in run.programs.items()}
        self._next = kernel.events + WINDOW + 100 * len(run.devices)
        kernel.due = 0 if self._each else self._next
        if not last:
            return
        gain = {name: now[name] - last[name] for name in now}

        def needed(left: float, name: str) -> float:
            return left * gain["events"] / gain[name] if gain[name] > 0 else inf

        least = min(needed(bound - part, name) for name, (part, bound) in used.items())
        if least <= MOST_EVENTS or gain["timers"] > 0.9 * gain["events"]:
            return
        polled = gain["waits"] > gain["events"] / 2
        at_work = run.running and not gain["arrivals"] and gain["time"] > 0 and not polled
        if at_work and max(handle._calls for handle in run.handles) < MOST_CALLS:
            return
        for key, program in run.programs.items():
            if key[1] == "updater" and program in kernel._alive and waits.get(key) in (0, program.place):
                kind, what = (program.wait or ("nothing",))[0], (program.wait or (0,))[-1]
                left, name = (what - kernel.now, "time") if kind == "until" else (0, "arrivals")
                if kind == "count":
                    left = what - len(run.servers[key[0]]._inbox)
                if kind in ("until", "count", "round") and needed(left, name) <= MOST_EVENTS:
                    return
        raise RunError(self._diagnosis(gain, least, used, polled))

    def _diagnosis(
        self, gain: dict[str, float], least: float, used: dict[str, tuple[float, float]], polled: bool
    ) -> str:
        run = self._run
        if not gain["arrivals"] and not gain["versions"]:
            why = "server programs wake, and nothing follows" if polled else "devices work and never upload"
        elif not gain["versions"]:
            waiting = sum(len(server.waiting) for server in run.servers)
            alive = any(key[1] == "updater" and p in run.kernel._alive for key, p in run.programs.items())
            ended = "" if alive else "; it is over, as it returned without waiting"
            why = f"of {gain['arrivals']:,} uploads the updater made no version ({waiting:,} wait{ended})"
        elif not gain["arrivals"]:
            why = f"{gain['versions']:,} versions were made without any upload"
        else:
            why = "what devices and server do takes next to no virtual time, or leads nowhere"
        budget = ", ".join(f"{part:g} of {bound:g} {name}" for name, (part, bound) in used.items())
        pace = "have brought it no nearer" if least == inf else f"leave {least:.0e} more to go"
        return (
            f"the run does not come to its end ({budget}): at t = {run.kernel.now:g} s the last "
            f"{gain['events']:,} events {pace}, and the clock advanced by {gain['time']:g} s; {why}"
        )

    def _time(self, thread: int, over: threading.Event, patience: float) -> None:
        """Interrupt `thread` if it computes too long between two events."""
        events, since = -1, 0.0
        period = min(1.0, patience / 4)
        while not over.wait(period):
            if self._run.kernel.events != events or self._at_work(thread):
                events, since = self._run.kernel.events, 0.0
            else:
                since += period
                if since >= patience:
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(Stuck))

    def _at_work(self, thread: int) -> bool:
        """Return whether a job or an evaluation is being computed, or waited for."""
        frame = sys._current_frames().get(thread)
        while frame is not None:
            if frame.f_code.co_filename == executors.__file__:
                return True
            frame = frame.f_back
        return False
