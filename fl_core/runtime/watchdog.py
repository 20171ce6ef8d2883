"""Who watches a run: the one place that bounds what programs do, and, on request, that checks their every step.

A run that cannot reach its budget ends, with a line that says why.
"""

from __future__ import annotations

import ctypes
import random
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from fl_core.errors import RunError
from fl_core.runtime import executors, storage
from fl_core.runtime.device import DeviceHandle
from fl_core.runtime.kernel import Kernel, Kind, Process, StopRun, nothing_left, too_many

if TYPE_CHECKING:
    from fl_core.runtime.simulation import Simulation

CLOCKS = ("evaluate", "measure", "leaves", "available")
"""Timers that go on, whatever happens."""
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
        timer = threading.Thread(target=self._time, args=(threading.get_ident(), over), name="watchdog", daemon=True)
        timer.start()
        try:
            yield
        except Stuck:
            who = run.kernel.current.name if run.kernel.current else "the run"
            what = f"has computed for more than {PATIENCE_SECONDS:g} s at t = {run.kernel.now:g} s without waiting"
            raise RunError(f"{who} {what} for anything: is there a loop that does not end?") from None
        finally:
            over.set()
            timer.join()  # else it holds the run for some time more

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
                raise nothing_left(run.kernel)

    def clock(self) -> None:
        """End a run in which only clocks go on and nobody reacts to them: evaluations, devices that come and go."""
        run = self._run
        if run.running or run.dispatched != self.quiet[1]:
            self.quiet = [0, run.dispatched]
        self.quiet[0] += 1
        if self.quiet[0] > (0 if run.devices.always_available else 100 * (1 + len(run.devices))):
            self.quiet[0] = 0
            if len(run.kernel._queue) <= sum(key[0] in CLOCKS for key in run.timers.events):
                raise nothing_left(run.kernel)

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

    def _time(self, thread: int, over: threading.Event) -> None:
        """Interrupt `thread` if it computes too long between two events."""
        events, since, period = -1, 0.0, min(1.0, PATIENCE_SECONDS / 4)
        while not over.wait(period):
            if self._run.kernel.events != events or self._at_work(thread):
                events, since = self._run.kernel.events, 0.0
            else:
                since += period
                if since >= PATIENCE_SECONDS:
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(Stuck))

    def _at_work(self, thread: int) -> bool:
        """Return whether a job or an evaluation is being computed, or waited for."""
        frame = sys._current_frames().get(thread)
        while frame is not None:
            if frame.f_code.co_filename == executors.__file__:
                return True
            frame = frame.f_back
        return False


def _numpy_state() -> tuple[bytes, Any]:
    state: Any = np.random.get_state(legacy=True)
    return state[1].tobytes(), state[2:]


GENERATORS: dict[str, Callable[[], Any]] = {
    "torch": lambda: torch.get_rng_state().numpy().tobytes(),
    "numpy": _numpy_state,
    "random": random.getstate,
}
"""The states of what no program may draw from."""
MOST_UPLOADS = 32
"""Of uploads that wait or are under way the newest are looked at, so that no step costs more than others."""


class Sanitizer:
    """Checks, after each step of a program of one run, every rule that programs must keep; an error names who did it.

    What was handed out, sent or committed is bit for bit what it was, the global random generators have not been
    drawn from, and commits are finite.
    """

    def __init__(self, run: Simulation) -> None:
        self._run = run
        self._generators = {name: state() for name, state in GENERATORS.items()}
        self._known: dict[int, tuple[Any, bytes, str]] = {}
        self._sent: dict[int, tuple[str, dict[str, Any]]] = {}
        self._jobs: dict[int, Any] = {}
        run.kernel.step = self._step  # type: ignore[method-assign]
        self._look("the beginning")

    def sending(self, handle: DeviceHandle, payload: dict[str, Any]) -> None:
        """Freeze what a device begins to send."""
        self._sent[handle._task] = f"of {handle}", payload

    def begins(self, job: Any) -> bytes:
        """Note that a local job begins; return the digest of what it works on."""
        if (device := getattr(job, "device", None)) is not None:
            self._jobs[device] = job
        return digest([getattr(job, name, None) for name in ("start", "model", "velocity")])

    def ended(self, job: Any, before: bytes) -> None:
        """Check that a local job has kept the rules."""
        self._drawn(what := f"local work, {_words(job)},")
        if self.begins(job) != before:
            raise RunError(f"{what} has changed the model that it began with; devices and server hold it: copy it")

    def _step(self, process: Process, value: Any = None) -> None:
        try:
            try:
                Kernel.step(self._run.kernel, process, value)
            except StopRun:
                self._look(process.name)
                raise
            self._look(process.name)
        except RunError as error:
            raise RunError(f"{error} ({self._place(process)})") from error.__cause__

    def _look(self, who: Any) -> None:
        self._drawn(who)
        known, self._known = self._known, {}
        for words, value in self._frozen():
            if id(value) in self._known:  # thousands of devices hold one model
                continue
            found, old = digest(value), known.get(id(value))
            if old is not None and old[1] != found:
                raise self._changed(who, old[2])
            if old is None and words.startswith("the global model") and not bool(torch.isfinite(value).all()):
                raise RunError(f"{who} has committed {words}, which is not finite, at t = {self._run.kernel.now:g} s")
            self._known[id(value)] = old or (value, found, words)
        for key in known.keys() - self._known.keys():  # what this step has let go of, it may not have changed either
            value, found, words = known[key]
            if digest(value) != found:
                raise self._changed(who, words)

    def _changed(self, who: Any, words: str) -> RunError:
        return RunError(f"{who} has changed {words} in place at t = {self._run.kernel.now:g} s: copy it first")

    def _drawn(self, who: Any) -> None:
        for name, state in GENERATORS.items():
            if state() != self._generators[name]:
                self._generators[name] = state()
                what = f"has drawn from the global random generator of {name} at t = {self._run.kernel.now:g} s"
                why = "device.rng and server.rng belong to the run, and make it repeatable"
                raise RunError(f"{who} {what}: {why}")

    def _frozen(self) -> Iterator[tuple[str, Any]]:
        """Yield what nothing may change now, and what it is."""
        run = self._run
        for server in run.servers:
            yield f"the global model of version {server.version}", server._model
            for upload in server.waiting[-MOST_UPLOADS:]:
                yield from self._parts(f"of device {upload.device}", upload.payload)
        for handle in run.handles:
            yield f"the model of version {handle._trigger_snapshot.version}", handle._trigger_snapshot.model
        for task in [task for task in self._sent if task not in run.running]:
            del self._sent[task]
        for whose, payload in [*self._sent.values()][-MOST_UPLOADS:]:
            yield from self._parts(whose, payload)

    def _parts(self, whose: str, payload: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        for name, value in payload.items():
            if isinstance(value, Tensor | np.ndarray | list | dict | set):
                yield f"the upload {whose} ({name})", value

    def _place(self, process: Process) -> str:
        run, who = self._run, process.name
        if not isinstance(who, DeviceHandle):
            waiting = sum(len(server.waiting) for server in run.servers)
            return f"version {run.version}, {waiting} uploads wait, {len(run.running)} tasks in flight"
        job = self._jobs.get(who.id)
        text = f"task {who._task}, from version {who._trigger_snapshot.version}, now version {run.version}"
        return text if job is None else f"{text}; last local work {_words(job)}"


def digest(value: Any) -> bytes:
    """Return what tells two values apart; what a checkpoint could not hold is taken as it is."""
    try:
        return storage.digest(value)
    except RunError:
        return b""


def _words(job: Any) -> str:
    names = ("device", "samples", "steps", "batch_size", "lr")
    return f"{type(job).__name__}({', '.join(f'{n}={getattr(job, n)}' for n in names if hasattr(job, n))})"


def describe(run: Simulation, most: int = 12) -> str:
    """Return clock, servers, tasks and the next events of a run between two events, as text."""
    kernel = run.kernel
    used = ", ".join(f"{part:g} of {bound:g} {name}" for name, (part, bound) in run.used().items())
    lines = [f"event {kernel.events}, t = {kernel.now:g} s, version {run.version}; {used}"]
    for server in run.servers:
        waiting = ", ".join(f"device {u.device} from version {u.base_version}" for u in server.waiting[:most])
        lines += [
            f"server {server.number}: version {server.version}, {server.in_flight} at work, {len(server.idle)} idle",
            f"  uploads that wait: {waiting or 'none'}",
            *(f"  state[{name!r}] = {_short(value)}" for name, value in server.state.items()),
        ]
    lines += [f"{program.name} waits for {_short(program.wait)}" for program in run.programs.values()]
    for process in [*run.running.values()][:most]:
        handle, pending = process.name, process.pending
        assert isinstance(handle, DeviceHandle)
        until = f"until t = {pending[0]:g} s ({Kind(pending[1]).name.lower()})" if pending else "for somebody"
        lines.append(f"{handle}, task {handle._task}, from version {handle._trigger_snapshot.version}, waits {until}")
    timers = {event[3]: " ".join(map(str, key)) for key, event in run.timers.events.items()}
    ticks = {p.pending[3]: str(p.name) for p in run.programs.values() if p.pending is not None}
    lines.append(f"the next of {len(kernel._queue)} events:")
    for time, kind, _, place, action in sorted(kernel._queue, key=lambda event: event[:4])[:most]:
        what = str(action.name) if isinstance(action, Process) else timers.get(place) or ticks.get(place, "")
        lines.append(f"  t = {time:g} s  {Kind(kind).name.lower():<11}{what}")
    return "\n".join(lines)


def _short(value: Any, most: int = 100) -> str:
    if isinstance(value, Tensor):
        return f"tensor {list(value.shape)}, norm {float(value.double().norm()):g}"
    text = " ".join(repr(value).split())
    return text if len(text) <= most else f"{text[:most]}…"
