"""Keep the whole state of a run on disk, and go on from it bit for bit.

A checkpoint is taken between two events, when every server program waits at the beginning of a turn. It holds the
clock, the timers, the server's and the devices' state, uploads that wait, and for each task in flight what it has
seen since its trigger. Coroutines are not stored. A server program is begun again at the time at which its turn
began; a device program is run again from its trigger, and what it awaits is answered from the record until it comes
to the point where it waited. Local training that was under way is computed again: its result depends on nothing else.

The file is one safetensors file: numbers as tensors, JSON that says what they are, and as its last bytes a checksum
of all others. Nothing in it is executed.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import time
import warnings
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from fl_core.errors import RunError
from fl_core.runtime.device import DeviceHandle, Snapshot, Upload
from fl_core.runtime.history import TABLES
from fl_core.runtime.kernel import Event, Kind, Process
from fl_core.runtime.local import Gradient, Trained
from fl_core.runtime.server import Program, ServerHandle

if TYPE_CHECKING:
    from fl_core.runtime.simulation import Simulation

FORMAT = 1
"""Raised when older checkpoints can no longer be read."""

CURRENT, PREVIOUS = "checkpoint.safetensors", "previous.safetensors"
LONG = 32
"""A list with at least so many numbers of one type is stored as a tensor."""
CHECKSUM_BYTES = 16
PATIENCE = 100
"""After so many events at which a checkpoint was due and impossible, a warning says why."""

DTYPES = {
    torch.float64: "F64", torch.int64: "I64", torch.uint64: "U64", torch.complex64: "C64",
    torch.float32: "F32", torch.int32: "I32", torch.uint32: "U32",
    torch.float16: "F16", torch.bfloat16: "BF16", torch.int16: "I16", torch.uint16: "U16",
    torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip
"""What safetensors calls them."""

SERVER_FIELDS = (
    "version", "in_flight", "up_at", "failed_in_a_row", "changes", "_answered", "_committed_at", "_failed",
    "_missed", "_down",
)  # fmt: skip
RUN_FIELDS = ("version", "dispatched", "waits", "quiet")
RESULTS: dict[str, Any] = {"trained": Trained, "gradient": Gradient, "snapshot": Snapshot}
NAMES = {kind: name for name, kind in RESULTS.items()}


class Checkpoints:
    """Where a run keeps its last two states.

    Parameters
    ----------
    folder : Path
        Made if need be; it should hold nothing else.
    every_seconds : float
        Wall time between two checkpoints; 0: at every opportunity.
    identity : str
        What must be equal for a checkpoint to be used: the canonical specification of the run.
    when : callable, optional
        Instead of the time: told the number of events so far, says whether to write.

    Notes
    -----
    States may hold numbers, text, tensors, arrays, random generators, and lists, tuples, sets, deques and
    dictionaries of them; what was one object stays one object. A set comes back with its members, but may be iterated
    over in another order: sort them where the order matters.
    """

    def __init__(
        self, folder: Path, every_seconds: float = 60.0, identity: str = "", when: Callable[[int], bool] | None = None
    ) -> None:
        self.folder, self.every_seconds, self.identity, self.when = folder, every_seconds, identity, when
        self.written = 0
        self._current_is_whole = True
        self._missed, self._warned = 0, False
        self._restless: set[str] = set()

    def watch(self, run: Simulation) -> None:
        """Write checkpoints of `run` as it goes on."""
        self._run, self._next = run, time.monotonic() + self.every_seconds
        run.kernel.boundary = self._boundary
        for (number, _), program in _alive(run).items():
            _watch_turns(program, run.servers[number])

    def _boundary(self) -> None:
        run = self._run
        due = self.when(run.kernel.events) if self.when else time.monotonic() >= self._next
        if not due:
            return
        if at_rest(run):
            self.write(run)
            self._next, self._missed = time.monotonic() + self.every_seconds, 0
        else:
            self._miss(run)

    def _miss(self, run: Simulation) -> None:
        """Note that a checkpoint was due and impossible; if that goes on, say so, once."""
        restless = {str(program.name) for program in _alive(run).values() if not program.at_rest}
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
        """Store the state of `run`, which must be between two events; the previous checkpoint is kept beside it.

        Raises
        ------
        RunError
            If the state holds something that cannot be stored, or if the file cannot be written.
        """
        run.collect()
        writer = _Writer()
        text = writer.text(_state(run))
        metadata = {"format": str(FORMAT), "identity": self.identity, "torch": torch.__version__}
        fresh, current = self.folder / f"{CURRENT}.new", self.folder / CURRENT
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with fresh.open("wb") as file:
                _write(file, metadata, [_bytes_of(text), *writer.tensors])
                file.flush()
                os.fsync(file.fileno())
            if current.exists() and self._current_is_whole:
                current.replace(self.folder / PREVIOUS)
            fresh.replace(current)
        except OSError as error:
            with suppress(OSError):
                fresh.unlink()
            raise RunError(
                f"cannot write a checkpoint to {self.folder} ({error.strerror or error}); what was stored there "
                "before is untouched, and the run goes on from it when it is resumed"
            ) from error
        self._current_is_whole = True
        self.written += 1

    def load(self) -> Stored | None:
        """Return the last checkpoint that can be used, or None if there is none.

        Raises
        ------
        RunError
            If there are checkpoints, but each of them is damaged, of another run or of another format.
        """
        problems = []
        for name in (CURRENT, PREVIOUS):
            path = self.folder / name
            if not path.exists():
                continue
            try:
                stored = self._read(path)
            except (SafetensorError, OSError, ValueError) as error:
                problems.append(f"{path} {error}" if isinstance(error, _Unusable) else f"{path} is damaged ({error})")
                self._current_is_whole = False
                continue
            if problems:
                warnings.warn(f"{problems[0]}; the run goes on from the one before it", stacklevel=2)
            return stored
        if problems:
            raise RunError(f"{'; '.join(problems)}; delete {self.folder} to begin again")
        return None

    def clear(self) -> None:
        """Delete the checkpoints of a run that has ended."""
        for name in (CURRENT, PREVIOUS, f"{CURRENT}.new"):
            (self.folder / name).unlink(missing_ok=True)
        if self.folder.is_dir() and not any(self.folder.iterdir()):
            self.folder.rmdir()

    def _read(self, path: Path) -> Stored:
        _verify(path)
        with safe_open(path, "pt") as file:
            header = file.metadata()
            if header["format"] != str(FORMAT):
                raise _Unusable(
                    f"has format {header['format']}, but this version reads format {FORMAT}: finish the run with the "
                    "version that wrote it"
                )
            if header["identity"] != self.identity:
                raise _Unusable("belongs to another run")
            state, *tensors = (file.get_tensor(str(place)) for place in range(len(file.keys()) - 1))
        if header["torch"] != torch.__version__:
            warnings.warn(
                f"{path} was written with PyTorch {header['torch']}, this is {torch.__version__}: "
                "the result may differ in the last bits from that of an uninterrupted run",
                stacklevel=2,
            )
        return Stored(_Reader(tensors).full(json.loads(state.numpy().tobytes())))


class _Unusable(ValueError):
    """A whole checkpoint, but not one for this run."""


def at_rest(run: Simulation) -> bool:
    """Say whether the state between two events can be stored: every server program is at the beginning of a turn."""
    return all(program.at_rest for program in _alive(run).values())


def _alive(run: Simulation) -> dict[tuple[int, str], Any]:
    return {key: program for key, program in run.programs.items() if program in run.kernel._alive}


def _watch_turns(program: Program, server: ServerHandle) -> None:
    """Have a warning given if `program` changes, before it waits, what is stored: begun again, it would do so twice.

    The first turn may initialise the state. Of the others those are looked at whose numbers are powers of two, so
    that it costs next to nothing.
    """
    begin, turn, warned = program.begin, 0, False

    def watched() -> Any:
        nonlocal turn
        turn += 1
        coroutine = begin()
        return coroutine if warned or turn & (turn - 1) else _Watched(coroutine, program, server, warn)

    def warn() -> None:
        nonlocal warned
        warned = True
        warnings.warn(
            f"{program.name} changes server.state, or draws from server.rng, before it waits: unless that gives the "
            "same when it is done again, the run cannot be resumed from its checkpoints",
            stacklevel=2,
        )

    program.begin = watched


class _Watched:
    """A coroutine up to its first wait; then the program has the coroutine itself."""

    def __init__(
        self, coroutine: Coroutine[Any, Any, Any], program: Program, server: ServerHandle, warn: Callable[[], None]
    ) -> None:
        self.coroutine, self.program, self.server, self.warn = coroutine, program, server, warn
        self.close = coroutine.close

    def send(self, value: Any) -> Any:
        before = _fingerprint(self.server)
        wish = self.coroutine.send(value)
        self.program.coroutine, self.program.send = self.coroutine, self.coroutine.send
        if self.program.at_rest and _fingerprint(self.server) != before:
            self.warn()
        return wish


def _fingerprint(server: ServerHandle) -> tuple[str, bytes]:
    """Return what tells two states of `server` apart, as far as a program may change it before it waits."""
    writer = _Writer()
    text = writer.text(_Part("server.state", server.state)) + writer.text(server.rng.bit_generator.state)
    digest = hashlib.blake2b(digest_size=CHECKSUM_BYTES)
    for tensor in writer.tensors:
        digest.update(_buffer(tensor))
    return text, digest.digest()


def _write(file: BinaryIO, metadata: dict[str, str], tensors: list[Tensor]) -> None:
    """Write a safetensors file with the checksum as its last tensor; nothing is held in memory twice.

    Numbers that take more bytes come first, as the format wants it.
    """
    order = sorted(range(len(tensors)), key=lambda place: -tensors[place].element_size())
    header: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for place in order:
        tensor = tensors[place]
        start, end = end, end + tensor.nbytes
        entry = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
        header[str(place)] = entry
    offsets = [end, end + CHECKSUM_BYTES]
    header["checksum"] = {"dtype": "U8", "shape": [CHECKSUM_BYTES], "data_offsets": offsets}
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    digest = hashlib.blake2b(digest_size=CHECKSUM_BYTES)
    for piece in (len(head).to_bytes(8, "little"), head, *(_buffer(tensors[place]) for place in order)):
        digest.update(piece)
        file.write(piece)
    file.write(digest.digest())


def _verify(path: Path) -> None:
    """Raise ValueError unless the file ends with the checksum of what comes before."""
    digest = hashlib.blake2b(digest_size=CHECKSUM_BYTES)
    with path.open("rb") as file:
        left = os.fstat(file.fileno()).st_size - CHECKSUM_BYTES
        while left > 0 and (piece := file.read(min(left, 2**20))):
            digest.update(piece)
            left -= len(piece)
        if left or file.read() != digest.digest():
            raise ValueError("its checksum is wrong")


def _buffer(tensor: Tensor) -> Any:
    """Return the bytes of a contiguous tensor."""
    return tensor.reshape(-1).view(torch.uint8).numpy().data


def _bytes_of(text: str) -> Tensor:
    return torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)


def _state(run: Simulation) -> dict[str, Any]:
    kernel, history = run.kernel, run.history
    return {
        "clock": [kernel.now, kernel.events, kernel.scheduled],
        "run": {name: getattr(run, name) for name in RUN_FIELDS},
        "wall_seconds": run.wall_before + time.perf_counter() - run.wall_start,
        "history": {name: getattr(history, name) for name in TABLES},
        "away": sorted(run.away),
        "timers": [[*key, *_event(event)] for key, event in run.timers.items()],
        "servers": [_server(server) for server in run.servers],
        "devices": {
            device: _Part("device.state", state, f" of device {device}")
            for device, state in run.device_state.items()
            if state
        },
        "tasks": [_task(process) for process in run.running.values()],
        "programs": [
            [*key, p.began, p.place, list(p.wait), p.seen, _event(p.pending) if p.wait[0] == "until" else None]
            for key, p in sorted(_alive(run).items(), key=lambda item: item[1].place)
        ],
    }


def _server(server: ServerHandle) -> dict[str, Any]:
    return {
        **{name: getattr(server, name) for name in SERVER_FIELDS},
        "model": server.checked_model(),
        "state": _Part("server.state", server.state),
        "rng": server.rng.bit_generator.state,
        "idle": server.idle.to_dict(),
        "counters": server.counters,
        "outcomes": server.outcomes,
        "triggers": [list(server._triggers), list(server._triggers.values())],
        "inbox": [_upload(upload) for upload in server._inbox],
        "taken": [_upload(upload) for upload in server._taken],
        "released": None if server._released is None else list(server._released),
    }


def _upload(upload: Upload) -> list[Any]:
    *numbers, payload = (getattr(upload, name) for name in UPLOAD_FIELDS)
    return [*numbers, _Part("the upload", payload, f" of device {upload.device}")]


UPLOAD_FIELDS = ("device", "task", "base_version", "arrived_seconds", "num_samples", "steps", "loss", "payload")


def _task(process: Process) -> list[Any]:
    handle: DeviceHandle = process.name  # type: ignore[assignment]
    state = _Part("device.state", handle._state_before, f" of device {handle.id}")
    return [
        handle._server.number, handle.id, handle.trigger, handle._task, handle._trigger_snapshot, handle._seconds,
        handle._triggered_at, state, handle._journal, handle._sent, _event(process.pending), handle._reserved,
    ]  # fmt: skip


def _event(event: Event | None) -> list[Any]:
    """Return what puts an event in its place in the order; not what happens then."""
    assert event is not None
    when, kind, order, place, _ = event
    return [when, int(kind), order, place]


class Stored:
    """A checkpoint that was read."""

    def __init__(self, state: dict[str, Any]) -> None:
        self.state = state

    def restore(self, run: Simulation) -> None:
        """Bring `run`, which has not begun, to where the stored one was.

        Raises
        ------
        RunError
            If a program does not come to the point where it waited: it keeps something outside its state, or does
            something before its first wait.
        """
        state, kernel = self.state, run.kernel
        for name, value in state["run"].items():
            setattr(run, name, value)
        run.wall_before = state["wall_seconds"]
        for name, table in state["history"].items():
            setattr(run.history, name, table)
        run.away = set(state["away"])
        # The tasks of one device take turns with its state if they run at once, which only a sampled timeline has.
        shared = sorted({device for _, device, *_, reserved in state["tasks"] if not reserved})
        run.device_state = {device: kept for device, kept in state["devices"].items() if device not in shared}
        run.servers = [_restored_server(run, number, stored) for number, stored in enumerate(state["servers"])]
        for *key, when, kind, order, place in state["timers"]:
            run.put_timer(tuple(key), (when, Kind(kind), order, place))
        for record in state["programs"]:
            self._revive_program(run, *record)
        for record in state["tasks"]:
            self._revive_task(run, *record)
        for device in shared:
            _refill(run, device, state["devices"].get(device))
        kernel.now, kernel.events, kernel.scheduled = state["clock"]
        kernel.current = None

    def _revive_program(
        self,
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
        before, up_at = _fingerprint(server), server.up_at
        if pending is not None:
            kernel.scheduled = pending[3] - 1
            server.up_at = pending[0]  # a restart may have moved the tick on, or come only after it was set
        kernel.revive(program)
        run.waits, server.up_at = waits, up_at
        if not program.at_rest or list(program.wait) != wait:
            _cannot(program.name, f"it waited for {wait}, and now for {list(program.wait)}")
        if _fingerprint(server) != before:
            _cannot(program.name, "it changes server.state, or draws from server.rng, before it waits")

    def _revive_task(
        self,
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
        replay: Any = (tuple(v if type(v) is Snapshot else copy.deepcopy(v) for v in entry) for entry in journal)
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


def _cannot(name: object, why: str) -> NoReturn:
    raise RunError(
        f"{name} cannot be resumed: {why}. What a program must remember belongs into server.state or device.state"
    )


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


class _Part:
    """A value that the user's code has made: what cannot be stored is searched for in it, and named."""

    def __init__(self, name: str, value: Any, owner: str = "") -> None:
        self.name, self.value, self.owner = name, value, owner


class _Unstorable(Exception):
    """Holds what cannot be stored, in words, and where it is."""

    def __init__(self, what: str) -> None:
        self.what, self.path = what, ""


class _Writer:
    """Turns a state into JSON and a list of tensors; what occurs twice is stored once."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        self._places: dict[int, int] = {}
        self._objects: dict[int, int] = {}
        self._kept: list[Any] = []

    def text(self, value: Any) -> str:
        """Return `value` as JSON text.

        Raises
        ------
        RunError
            If it holds something that is no plain data; names where that is.
        """
        try:
            return json.dumps(self._plain(value))
        except _Unstorable as error:
            raise _refused(f"what a task has received, {error.path}," if error.path else "the state", error) from None
        except RecursionError:
            raise RunError("a checkpoint cannot hold a state that is nested so deeply") from None

    def _plain(self, value: Any) -> Any:
        kind = type(value)
        if value is None or kind in (bool, str, int, float):
            return value
        if kind is Tensor:
            return self._tensor(value)
        if kind in NAMES:
            fields = value if kind is Snapshot else [getattr(value, field) for field in kind.__annotations__]
            return {"!": NAMES[kind], "v": [self._plain(field) for field in fields]}
        if kind is tuple or kind is frozenset:
            return {"!": kind.__name__, "v": self._items(value)}
        if isinstance(value, np.generic):
            return {"!": "scalar", **self._array(np.array(value))}
        if kind is _Part:
            try:
                return self._plain(value.value)
            except _Unstorable as error:
                raise _refused(f"{value.name}{error.path}{value.owner}", error) from None
        if id(value) in self._objects:
            return {"!": "same", "v": self._objects[id(value)]}
        self._objects[id(value)] = len(self._objects)
        self._kept.append(value)  # an identity is unique only as long as its object lives
        return self._mutable(kind, value)

    def _mutable(self, kind: type, value: Any) -> Any:
        if kind is dict:
            if all(type(key) is str and key != "!" for key in value):
                return dict(zip(value, self._items(value.values(), value), strict=True))
            pairs = zip(self._items(value), self._items(value.values(), value), strict=True)
            return {"!": "dict", "v": [list(pair) for pair in pairs]}
        if kind is list:
            if len(value) >= LONG and (dtype := _common(value)) is not None:
                return {"!": "list", "v": self._place(torch.tensor(value, dtype=dtype))}
            return self._items(value)
        if kind is deque:
            return {"!": "deque", "v": self._items(value), "n": value.maxlen}
        if kind is set:
            return {"!": "set", "v": self._items(value)}
        if kind is np.ndarray and not value.dtype.hasobject:
            return {"!": "array", **self._array(value)}
        if kind is np.random.Generator:
            return {"!": "generator", "v": self._plain(value.bit_generator.state)}
        if kind is torch.Generator and value.device.type == "cpu":
            return {"!": "torch_generator", "v": self._place(value.get_state())}
        raise _Unstorable(f"array of {value.dtype}" if kind is np.ndarray else kind.__name__)

    def _items(self, items: Any, keys: Any = None) -> list[Any]:
        plain: list[Any] = []
        try:
            for item in items:
                plain.append(self._plain(item))
        except _Unstorable as error:
            key = len(plain) if keys is None else list(keys)[len(plain)]
            error.path = f"[{key!r}]{error.path}"
            raise
        return plain

    def _array(self, array: np.ndarray) -> dict[str, Any]:
        fortran = array.flags.f_contiguous and not array.flags.c_contiguous
        flat = np.ascontiguousarray(array.ravel(order="F" if fortran else "C")).view(np.uint8)
        order = {"o": "F"} if fortran else {}
        return {"t": array.dtype.str, "s": list(array.shape), "v": self._place(torch.from_numpy(flat)), **order}

    def _tensor(self, tensor: Tensor) -> dict[str, Any]:
        if tensor.layout != torch.strided or tensor.device.type != "cpu" or tensor.dtype not in DTYPES:
            raise _Unstorable(f"tensor of type {tensor.dtype} on {tensor.device} with layout {tensor.layout}")
        laid_out = {} if tensor.is_contiguous() or 0 in tensor.stride() else {"s": list(tensor.stride())}
        return {"!": "tensor", "v": self._place(tensor), **laid_out}

    def _place(self, tensor: Tensor) -> int:
        if id(tensor) not in self._places:
            self._places[id(tensor)] = len(self.tensors)
            self._kept.append(tensor)
            self.tensors.append(tensor.detach().contiguous())
        return self._places[id(tensor)]


def _refused(where: str, error: _Unstorable) -> RunError:
    return RunError(
        f"a checkpoint cannot hold {where}, a {error.what}: keep numbers, text, tensors, arrays, random generators, "
        "and lists, tuples, sets or dictionaries of them"
    )


def _common(numbers: list[Any]) -> torch.dtype | None:
    """Return the type of tensor that holds `numbers` exactly, if they are all of one type."""
    kinds = set(map(type, numbers))
    if kinds == {float}:
        return torch.float64
    return torch.int64 if kinds == {int} and min(numbers) >= -(2**63) and max(numbers) < 2**63 else None


class _Reader:
    """Rebuilds what a :class:`_Writer` took apart."""

    def __init__(self, tensors: list[Tensor]) -> None:
        self.tensors = tensors
        self._objects: list[Any] = []

    def full(self, value: Any) -> Any:
        """Return the value that was stored."""
        if isinstance(value, list):
            items: list[Any] = self._made([])
            items.extend(map(self.full, value))
            return items
        if not isinstance(value, dict):
            return value
        if "!" not in value:
            fields: dict[Any, Any] = self._made({})
            fields.update((key, self.full(item)) for key, item in value.items())
            return fields
        content = value["v"]
        match value["!"]:
            case "tensor" if "s" in value:  # the order of its numbers in memory is that of their summation
                stored = self.tensors[content]
                return torch.empty_strided(stored.shape, value["s"], dtype=stored.dtype).copy_(stored)
            case "tensor":
                return self.tensors[content]
            case "list":
                return self._made(self.tensors[content].tolist())
            case "array":
                return self._made(self._array(value))
            case "scalar":
                return self._array(value)[()]
            case "same":
                return self._objects[content]
            case "dict":
                pairs: dict[Any, Any] = self._made({})
                keys = [self.full(key) for key, _ in content]
                pairs.update(zip(keys, [self.full(item) for _, item in content], strict=True))
                return pairs
            case "deque":
                queue: deque[Any] = self._made(deque(maxlen=value["n"]))
                queue.extend(map(self.full, content))
                return queue
            case "set":
                members: set[Any] = self._made(set())
                members.update(map(self.full, content))
                return members
            case "generator":
                return self._generator(content)
            case "torch_generator":
                generator: torch.Generator = self._made(torch.Generator())
                return generator.set_state(self.tensors[content].clone())
            case "tuple":
                return tuple(map(self.full, content))
            case "frozenset":
                return frozenset(map(self.full, content))
            case name:
                return RESULTS[name](*map(self.full, content))

    def _made(self, value: Any) -> Any:
        self._objects.append(value)
        return value

    def _array(self, value: dict[str, Any]) -> np.ndarray:
        flat = self.tensors[value["v"]].numpy().copy().view(value["t"])
        return flat.reshape(value["s"], order=value.get("o", "C"))

    def _generator(self, content: Any) -> np.random.Generator:
        place = len(self._objects)
        self._objects.append(None)
        state = self.full(content)
        generator = np.random.Generator(getattr(np.random, state["bit_generator"])())
        generator.bit_generator.state = state
        self._objects[place] = generator
        return generator
