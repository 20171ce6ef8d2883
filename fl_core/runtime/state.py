"""The state of a run as plain data, and a run that goes on from it.

Coroutines are not stored. A server program is begun again at the time at which its turn began; a device program is
run again from its trigger, and what it awaits is answered from the record until it comes to the point where it
waited. Local training that was under way is computed again: its result depends on nothing else.
"""

from __future__ import annotations

import copy
import time
from collections import deque
from typing import TYPE_CHECKING, Any, NoReturn

from fl_core.errors import RunError
from fl_core.runtime.device import DeviceHandle
from fl_core.runtime.history import TABLES
from fl_core.runtime.kernel import Event, Kind, Process
from fl_core.runtime.messages import Snapshot, Upload
from fl_core.runtime.plain import Owned
from fl_core.runtime.server import ServerHandle
from fl_core.runtime.turns import alive, fingerprint

if TYPE_CHECKING:
    from fl_core.runtime.simulation import Simulation
    from fl_core.runtime.timers import Timers

SERVER_FIELDS = (
    "version", "in_flight", "up_at", "failed_in_a_row", "changes", "_answered", "_committed_at", "_failed",
    "_missed", "_down",
)  # fmt: skip
RUN_FIELDS, TIMERS_FIELDS = ("version", "dispatched", "waits"), ("quiet", "ticks")
UPLOAD_FIELDS = ("device", "task", "base_version", "arrived_seconds", "num_samples", "steps", "loss", "payload")


def state_of(run: Simulation) -> dict[str, Any]:
    """Return the state of a run between two events."""
    kernel, history = run.kernel, run.history
    return {
        "clock": [kernel.now, kernel.events, kernel.scheduled],
        "run": {name: getattr(_owner(run, name), name) for name in (*RUN_FIELDS, *TIMERS_FIELDS)},
        "wall_seconds": run.wall_before + time.perf_counter() - run.wall_start,
        "history": {name: getattr(history, name) for name in TABLES},
        "away": sorted(run.away),
        "timers": [[*key, *_event(event)] for key, event in run.timers.events.items()],
        "servers": [_server(server) for server in run.servers],
        "devices": {
            device: Owned("device.state", state, f" of device {device}")
            for device, state in run.device_state.items()
            if state
        },
        "tasks": [_task(process) for process in run.running.values()],
        "programs": [
            [*key, p.began, p.place, list(p.wait), p.seen, _event(p.pending) if p.wait[0] == "until" else None]
            for key, p in sorted(alive(run).items(), key=lambda item: item[1].place)
        ],
    }


def restore(run: Simulation, state: dict[str, Any]) -> None:
    """Bring `run`, which has not begun, to where the one was whose `state` was stored.

    Raises
    ------
    RunError
        If a program does not come to the point where it waited: it keeps something outside its state, or does
        something before its first wait.
    """
    kernel = run.kernel
    for name, value in state["run"].items():
        setattr(_owner(run, name), name, value)
    run.wall_before = state["wall_seconds"]
    for name, table in state["history"].items():
        setattr(run.history, name, table)
    run.away = set(state["away"])
    # The tasks of one device take turns with its state if they run at once, which only a sampled timeline has.
    shared = sorted({device for _, device, *_, reserved in state["tasks"] if not reserved})
    run.device_state = {device: kept for device, kept in state["devices"].items() if device not in shared}
    run.servers = [_restored_server(run, number, stored) for number, stored in enumerate(state["servers"])]
    for *key, when, kind, order, place in state["timers"]:
        run.timers.put(tuple(key), (when, Kind(kind), order, place))
    for record in state["programs"]:
        _revive_program(run, *record)
    for record in state["tasks"]:
        _revive_task(run, *record)
    for device in shared:
        _refill(run, device, state["devices"].get(device))
    kernel.now, kernel.events, kernel.scheduled = state["clock"]
    kernel.current = None


def _owner(run: Simulation, field: str) -> Simulation | Timers:
    return run.timers if field in TIMERS_FIELDS else run


def _server(server: ServerHandle) -> dict[str, Any]:
    return {
        **{name: getattr(server, name) for name in SERVER_FIELDS},
        "model": server.checked_model(),
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
    for name in SERVER_FIELDS:
        setattr(server, name, stored[name])
    server.state, server.counters, server.outcomes = stored["state"], stored["counters"], stored["outcomes"]
    server.rng.bit_generator.state = stored["rng"]
    server.idle.restore(stored["idle"])
    server._triggers = dict(zip(*stored["triggers"], strict=True))
    server._inbox.extend(Upload(server, *fields) for fields in stored["inbox"])
    server._taken = [Upload(server, *fields) for fields in stored["taken"]]
    server._released = None if stored["released"] is None else dict.fromkeys(stored["released"])
    return server


def _upload(upload: Upload) -> list[Any]:
    *numbers, payload = (getattr(upload, name) for name in UPLOAD_FIELDS)
    return [*numbers, Owned("the upload", payload, f" of device {upload.device}")]


def _task(process: Process) -> list[Any]:
    handle: DeviceHandle = process.name  # type: ignore[assignment]
    state = Owned("device.state", handle._state_before, f" of device {handle.id}")
    return [
        handle._server.number, handle.id, handle.trigger, handle._task, handle._trigger_snapshot, handle._seconds,
        handle._triggered_at, state, handle._journal, handle._sent, _event(process.pending), handle._reserved,
    ]  # fmt: skip


def _revive_task(
    run: Simulation,
    server: int,
    device: int,
    trigger: int,
    task: int,
    snapshot: Snapshot,
    seconds: float | None,
    triggered_at: float,
    state: dict[str, Any] | None,
    journal: list[list[Any]],
    sent: bool,
    pending: list[Any],
    reserved: bool,
) -> None:
    kernel = run.kernel
    kernel.now, kernel.scheduled = triggered_at, pending[3] - 1
    if reserved:
        run.device_state.pop(device, None)
    if state or not reserved:
        _refill(run, device, state)
    handle = DeviceHandle(run, run.servers[server], device, trigger, task, snapshot, seconds, reserved)
    handle._journal = list(map(tuple, journal))
    # Results belong to the program, which may change them; global models are everybody's.
    replay = (tuple(v if type(v) is Snapshot else copy.deepcopy(v) for v in entry) for entry in journal)
    handle._replay, handle._resuming = deque(replay), True
    process = run.launch(handle)
    kernel._ready.pop()
    asked = run.servers[server]
    up_at = asked.up_at
    if pending[1] == Kind.REQUEST:
        asked.up_at = pending[0]  # a later restart may have moved it on
    kernel.step(process)
    handle._sent, asked.up_at = sent, up_at
    if handle._replay or process.pending is None or _event(process.pending) != pending:
        _cannot(process.name, f"it waited for {pending}, and now for {process.pending}")


def _refill(run: Simulation, device: int, state: dict[str, Any] | None) -> None:
    """Let `device` keep what `state` holds, in the dictionary that its programs know."""
    kept = run.device_state.setdefault(device, {})
    kept.clear()
    kept.update(state or {})


def _revive_program(
    run: Simulation,
    number: int,
    name: str,
    began: float,
    place: int,
    wait: list[Any],
    seen: dict[str, int],
    pending: list[Any] | None,
) -> None:
    program, kernel, server = run.program(number, name), run.kernel, run.servers[number]
    program.began, program.seen = began, dict(seen)
    kernel.now = began
    waits, run.waits = run.waits, place - 1
    before, up_at = fingerprint(server), server.up_at
    if pending is not None:
        kernel.scheduled = pending[3] - 1
        server.up_at = pending[0]  # a restart may have moved the tick on, or come only after it was set
    kernel.revive(program)
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
    raise RunError(
        f"{name} cannot be resumed: {why}. What a program must remember belongs into server.state or device.state"
    )
