"""Keep the whole state of a run on disk, and go on from it bit for bit.

A checkpoint is taken between two events, when every server program waits at the beginning of a turn. It holds the
clock, the timers, all state, uploads that wait, and for each task in flight what it has seen since its trigger.

Coroutines are not stored. A server program is begun again at the time at which its turn began; a device program is
run again from its trigger, and what it awaits is answered from the record until it comes to the point where it
waited. Local training that was under way is computed again: its result depends on nothing else.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import time
import types
import warnings
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from filelock import FileLock, Timeout
from safetensors import SafetensorError

from fl_core.errors import RunError
from fl_core.runtime import storage
from fl_core.runtime.device import DeviceHandle
from fl_core.runtime.history import TABLES
from fl_core.runtime.kernel import Event, Kind, Process, Program
from fl_core.runtime.messages import SharedLink, Snapshot, Upload
from fl_core.runtime.server import ServerHandle
from fl_core.runtime.storage import Owned, Reader, Writer

if TYPE_CHECKING:
    from fl_core.runtime.simulation import Simulation
    from fl_core.runtime.watchdog import Watchdog

FORMAT = 1
"""Raised when older checkpoints can no longer be read."""

CURRENT, PREVIOUS, LOCK = "checkpoint.safetensors", "previous.safetensors", "running.lock"
PATIENCE = 100
"""After so many events at which a checkpoint was due and impossible, a warning says why."""


class Checkpoints:
    """Where a run keeps its last two states: a `folder` that is made if need be and holds nothing else.

    One is written `every_seconds` of wall time (0: at every opportunity), or `when` that says so of the number of
    events so far, and used only where `identity`, the run's specification, and the digest `code` are equal.

    States may hold numbers, text, tensors, arrays, random generators, and lists, tuples, sets, deques and
    dictionaries of them; what was one object stays one object. A set may come back in another order.
    """

    def __init__(
        self,
        folder: Path,
        every_seconds: float = 60.0,
        identity: str = "",
        when: Callable[[int], bool] | None = None,
        code: str = "",
    ) -> None:
        self.folder, self.every_seconds, self.when = folder, every_seconds, when
        self.identity, self.code = identity, code
        self.written = 0
        self._current_is_whole = True
        self._missed, self._warned = 0, False
        self._restless: set[str] = set()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other processes away from these checkpoints."""
        lock = FileLock(self.folder / LOCK)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock.acquire(blocking=False)
        except Timeout:
            text = f"another process computes this run and keeps its state in {self.folder}; wait for it"
            raise RunError(text) from None
        except OSError as error:
            why = error.strerror or error
            raise RunError(
                f"cannot keep checkpoints in {self.folder} ({why}): it must be a folder for them"
            ) from error
        try:
            yield
        finally:
            Path(lock.lock_file).unlink(missing_ok=True)
            lock.release()
            with suppress(OSError):  # it may hold checkpoints
                self.folder.rmdir()

    def watch(self, run: Simulation) -> None:
        """Write checkpoints of `run` as it goes on."""
        self._run, self._next = run, time.monotonic() + self.every_seconds
        run.watchdog.before_each_event(self._boundary)
        for (number, _), program in alive(run).items():
            watch_turns(program, run.servers[number])

    def _boundary(self) -> None:
        run = self._run
        due = self.when(run.kernel.events) if self.when else time.monotonic() >= self._next
        if due and all(program.at_rest for program in alive(run).values()):
            self.write(run)
            self._next, self._missed = time.monotonic() + self.every_seconds, 0
        elif due:
            self._miss(run)

    def _miss(self, run: Simulation) -> None:
        """Note that a checkpoint was due and impossible; if that goes on, say so, once."""
        restless = {str(program.name) for program in alive(run).values() if not program.at_rest}
        self._restless = (self._restless & restless or restless) if self._missed else restless
        self._missed += 1
        if self._missed >= PATIENCE and time.monotonic() >= self._next + self.every_seconds and not self._warned:
            self._warned = True
            warnings.warn(
                f"no checkpoint can be stored: {' and '.join(sorted(self._restless))} did not wait at the beginning "
                f"of a turn at any of the last {self._missed} events. A turn waits first, acts then, and returns; "
                "the runtime repeats it, so it needs no loop",
                stacklevel=2,
            )

    def write(self, run: Simulation) -> None:
        """Store the state of `run`, which must be between two events; the previous checkpoint is kept beside it."""
        run.measurements.collect()
        writer = Writer()
        text = writer.text(state_of(run))
        metadata = {"format": str(FORMAT), "identity": self.identity, "code": self.code, "torch": torch.__version__}
        fresh, current = self.folder / f"{CURRENT}.new", self.folder / CURRENT
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with fresh.open("wb") as file:
                storage.write(file, metadata, text, writer.tensors)
            if current.exists() and self._current_is_whole:
                current.replace(self.folder / PREVIOUS)
            fresh.replace(current)
        except OSError as error:
            with suppress(OSError):
                fresh.unlink()
            before = "what was stored there before is untouched, and the run goes on from it when it is resumed"
            why = f"cannot write a checkpoint to {self.folder} ({error.strerror or error}); {before}"
            raise RunError(why) from error
        self._current_is_whole = True
        self.written += 1

    def load(self) -> dict[str, Any] | None:
        """Return the state in the last checkpoint that can be used; None if there is no file, else an error."""
        problems = []
        for name in (CURRENT, PREVIOUS):
            path = self.folder / name
            if not path.exists():
                continue
            if not path.is_file():  # to open a pipe is to wait
                problems.append(f"{path} is no regular file")
                continue
            try:
                state = self._read(path)
            except (SafetensorError, OSError, ValueError) as error:
                problems.append(f"{path} {error}" if isinstance(error, _Unusable) else f"{path} is damaged ({error})")
                self._current_is_whole = False
                continue
            if problems:
                warnings.warn(f"{problems[0]}; the run goes on from the one before it", stacklevel=2)
            return state
        if problems:
            raise RunError(f"{'; '.join(problems)}; delete {self.folder} to begin again")
        return None

    def clear(self) -> None:
        """Delete the checkpoints of a run that has ended."""
        for name in (CURRENT, PREVIOUS, f"{CURRENT}.new"):
            (self.folder / name).unlink(missing_ok=True)
        if self.folder.is_dir() and not any(self.folder.iterdir()):
            self.folder.rmdir()

    def _read(self, path: Path) -> dict[str, Any]:
        header = storage.read_metadata(path)
        if header["format"] != str(FORMAT):
            hint = "finish the run with the version that wrote it"
            raise _Unusable(f"has format {header['format']}, but this version reads format {FORMAT}: {hint}")
        if header["identity"] != self.identity:
            raise _Unusable("belongs to another run")
        if header.get("code", "") != self.code:
            written, here = header.get("code", ""), self.code
            raise _Unusable(f"was written by other code ({written}, here {here}), so the run would be a mixture")
        text, tensors = storage.read(path)
        if header["torch"] != torch.__version__:
            warnings.warn(
                f"{path} was written with PyTorch {header['torch']}, this is {torch.__version__}: "
                "the result may differ in the last bits from that of an uninterrupted run",
                stacklevel=2,
            )
        state: dict[str, Any] = Reader(tensors).full(json.loads(text))
        return state


class _Unusable(ValueError):
    """A whole checkpoint, but not one for this run."""


SERVER_FIELDS = {
    "version": "version", "in_flight": "in_flight", "up_at": "up_at", "failed_in_a_row": "_failed_in_a_row",
    "changes": "_changes", "_answered": "_answered", "_committed_at": "_committed_at", "_failed": "_failed",
    "_missed": "_missed", "_down": "_down",
}  # fmt: skip
"""Names in a file, and in a server's handle."""
RUN_FIELDS, WATCHDOG_FIELDS = ("version", "dispatched", "waits"), ("quiet", "ticks")


def state_of(run: Simulation) -> dict[str, Any]:
    """Return the state of a run between two events."""
    kernel, history = run.kernel, run.history
    return {
        "clock": [kernel.now, kernel.events, kernel.scheduled],
        "run": {name: getattr(_owner(run, name), name) for name in (*RUN_FIELDS, *WATCHDOG_FIELDS)},
        "wall_seconds": run.wall_before + time.perf_counter() - run.wall_start,
        "history": {name: getattr(history, name) for name in TABLES},
        "away": sorted(run.away),
        "links": [
            [number, way, link.since, list(link.open), list(map(list, link.open.values()))]
            for number, way, link in _links(run)
        ],
        "timers": [[*key, *_event(event)] for key, event in run.timers.events.items()],
        "servers": [_server(server) for server in run.servers],
        "devices": {device: _kept(device, state) for device, state in run.device_state.items() if state},
        "tasks": [_task(process) for process in run.running.values()],
        "programs": [
            [*key, p.began, p.place, list(p.wait), p.seen, _event(p.pending) if p.wait[0] == "until" else None]
            for key, p in sorted(alive(run).items(), key=lambda item: item[1].place)
        ],
    }


def restore(run: Simulation, state: dict[str, Any]) -> None:
    """Bring `run`, which has not begun, to where the one was whose `state` was stored, or say who cannot."""
    kernel = run.kernel
    for name, value in state["run"].items():
        setattr(_owner(run, name), name, value)
    run.wall_before = state["wall_seconds"]
    for name, table in state["history"].items():
        setattr(run.history, name, table)
    run.away = set(state["away"])
    for number, way, since, tasks, transfers in state.get("links", ()):
        link = run.links[number][way]
        link.since, link.open = since, dict(zip(tasks, map(tuple, transfers), strict=True))
    # The tasks of one device take turns with its state if they run at once, which only a sampled timeline has.
    shared = sorted({device for _, device, *_, reserved in state["tasks"] if not reserved})
    run.device_state = {device: kept for device, kept in state["devices"].items() if device not in shared}
    run.servers = [_restored_server(run, number, stored) for number, stored in enumerate(state["servers"])]
    for *key, when, kind, order, place in state["timers"]:
        run.timers.put(tuple(key), (when, Kind(kind), order, place))
    for record in state["programs"]:
        _revive_program(run, record)
    for record in state["tasks"]:
        _revive_task(run, record)
    for device in shared:
        _refill(run, device, state["devices"].get(device))
    kernel.now, kernel.events, kernel.scheduled = state["clock"]
    kernel.current = None


def _links(run: Simulation) -> list[tuple[int, str, SharedLink]]:
    return [(number, way, link) for number, links in enumerate(run.links) for way, link in links.items()]


def _owner(run: Simulation, field: str) -> Simulation | Watchdog:
    return run.watchdog if field in WATCHDOG_FIELDS else run


def _server(server: ServerHandle) -> dict[str, Any]:
    return {
        **{name: getattr(server, field) for name, field in SERVER_FIELDS.items()},
        "model": server._checked_model(),
        "state": Owned("server.state", server.state),
        "rng": server.rng.bit_generator.state,
        "idle": server.idle.to_dict(),
        "counters": server.counters,
        "outcomes": server.outcomes,
        "triggers": [list(server._triggers), list(server._triggers.values())],
        "inbox": [_upload(upload) for upload in server._inbox],
        "taken": [_upload(upload) for upload in server._taken],
        "released": None if server._released is None else list(server._released),
    }


def _restored_server(run: Simulation, number: int, stored: dict[str, Any]) -> ServerHandle:
    server = ServerHandle(run, stored["model"], number)
    for name, field in SERVER_FIELDS.items():
        setattr(server, field, stored[name])
    server.state, server.counters, server.outcomes = stored["state"], stored["counters"], stored["outcomes"]
    server.rng.bit_generator.state = stored["rng"]
    server.idle.restore(stored["idle"])
    server._triggers = dict(zip(*stored["triggers"], strict=True))
    server._inbox.extend(Upload(server, *fields) for fields in stored["inbox"])
    server._taken = [Upload(server, *fields) for fields in stored["taken"]]
    server._released = None if stored["released"] is None else dict.fromkeys(stored["released"])
    return server


def _upload(upload: Upload) -> list[Any]:
    """Return the fields after the first one, which is the server."""
    *numbers, payload = (getattr(upload, field.name) for field in dataclasses.fields(upload)[1:])
    return [*numbers, Owned("the upload", payload, f" of device {upload.device}")]


def _task(process: Process) -> list[Any]:
    handle: DeviceHandle = process.name  # type: ignore[assignment]
    return [
        handle._server.number, handle.id, handle.trigger, handle._task, handle._trigger_snapshot, handle._seconds,
        handle._triggered_at, _kept(handle.id, handle._state_before), handle._journal, handle._sent,
        _event(process.pending), handle._reserved,
    ]  # fmt: skip


def _kept(device: int, state: dict[str, Any] | None) -> Owned:
    return Owned("device.state", state, f" of device {device}")


def _revive_task(run: Simulation, record: list[Any]) -> None:
    number, device, trigger, task, snapshot, seconds, triggered_at, state, journal, sent, pending, reserved = record
    kernel, server = run.kernel, run.servers[number]
    kernel.now, kernel.scheduled = triggered_at, pending[3] - 1
    if reserved:
        run.device_state.pop(device, None)
    if state or not reserved:
        _refill(run, device, state)
    handle = DeviceHandle(run, server, device, trigger, task, snapshot, seconds, reserved)
    handle._journal = list(map(tuple, journal))
    # Results belong to the program, which may change them; global models are everybody's.
    replay = (tuple(v if type(v) is Snapshot else copy.deepcopy(v) for v in entry) for entry in journal)
    handle._replay, handle._resuming = deque(replay), True
    process = run.launch(handle)
    kernel._ready.pop()
    up_at = server.up_at
    if pending[1] == Kind.REQUEST:
        server.up_at = pending[0]  # a later restart may have moved it on
    kernel.step(process)
    handle._sent, server.up_at = sent, up_at
    if handle._replay or process.pending is None or _event(process.pending) != pending:
        _cannot(process.name, f"it waited for {pending}, and now for {process.pending}")


def _refill(run: Simulation, device: int, state: dict[str, Any] | None) -> None:
    """Let `device` keep what `state` holds, in the dictionary that its programs know."""
    kept = run.device_state.setdefault(device, {})
    kept.clear()
    kept.update(state or {})


def _revive_program(run: Simulation, record: list[Any]) -> None:
    number, name, began, place, wait, seen, pending = record
    program, kernel, server = run.program(number, name), run.kernel, run.servers[number]
    program.began, program.seen = began, dict(seen)
    kernel.now = began
    waits, run.waits = run.waits, place - 1
    before, up_at = fingerprint(server), server.up_at
    if pending is not None:
        kernel.scheduled = pending[3] - 1
        server.up_at = pending[0]  # a restart may have moved the tick on, or come only after it was set
    kernel._alive[program] = None
    kernel.step(program)
    run.waits, server.up_at = waits, up_at
    if not program.at_rest or list(program.wait) != wait:
        _cannot(program.name, f"it waited for {wait}, and now for {list(program.wait)}")
    if fingerprint(server) != before:
        _cannot(program.name, "it changes server.state, or draws from server.rng, before it waits")


def _event(event: Event | None) -> list[Any]:
    """Return what puts an event in its place in the order; not what happens then."""
    assert event is not None
    when, kind, order, place, _ = event
    return [when, int(kind), order, place]


def _cannot(name: object, why: str) -> NoReturn:
    rule = "What a program must remember belongs into server.state or device.state"
    raise RunError(f"{name} cannot be resumed: {why}. {rule}")


def alive(run: Simulation) -> dict[tuple[int, str], Program]:
    """Return the server programs that are not over, by server and name."""
    return {key: program for key, program in run.programs.items() if program in run.kernel._alive}


def watch_turns(program: Program, server: ServerHandle) -> None:
    """Have a warning given if `program` changes, before it waits, what is stored: begun again, it would do so twice.

    Only turns whose numbers are powers of two are looked at: that costs next to nothing.
    """
    begin, turn, warned = program.begin, 0, False

    def watched() -> Any:
        nonlocal turn
        turn += 1
        coroutine = begin()
        return coroutine if warned or turn & (turn - 1) else _to_first_wait(coroutine, program, server, warn)

    def warn() -> None:
        nonlocal warned
        warned = True
        why = "unless that gives the same when it is done again, the run cannot be resumed from its checkpoints"
        what = f"{program.name} changes server.state, or draws from server.rng, before it waits"
        warnings.warn(f"{what}: {why}", stacklevel=2)

    program.begin = watched


@types.coroutine
def _to_first_wait(
    coroutine: Coroutine[Any, Any, Any], program: Program, server: ServerHandle, warn: Callable[[], None]
) -> Generator[Any, Any, None]:
    """Run a turn to its first wait, and then let the program have its own coroutine back."""
    try:
        before = fingerprint(server)
    except RunError:  # of what cannot be stored
        coroutine.close()
        raise
    try:
        wish = coroutine.send(None)
    except StopIteration:
        return
    program.coroutine, program.send = coroutine, coroutine.send
    if program.at_rest and fingerprint(server) != before:
        warn()
    yield wish


def fingerprint(server: ServerHandle) -> bytes:
    """Return what tells two states of `server` apart, as far as a program may change it before it waits."""
    return storage.digest(Owned("server.state", server.state), server.rng.bit_generator.state)
