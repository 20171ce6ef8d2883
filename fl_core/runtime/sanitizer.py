"""A run with every rule checked that programs must keep, and what a run's state is in words.

After each step of a program: what was handed out, sent or committed is bit for bit what it was, the global random
generators have not been drawn from, and commits are finite. So an error names who did it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from fl_core.errors import RunError
from fl_core.runtime import storage
from fl_core.runtime.device import DeviceHandle
from fl_core.runtime.kernel import Kernel, Kind, Process, StopRun

if TYPE_CHECKING:
    from fl_core.runtime.simulation import Simulation


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
    """Watches one run."""

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
