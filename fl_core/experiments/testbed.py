"""A testbed: the algorithm of a run, unchanged, in wall-clock time on the workers of a Dask cluster.

Server programs run here, the program of a task on a worker, which keeps the data and the state of its devices. What
travels is bytes of a form that holds no code, and is checked before it is used. In a *shaped* testbed devices and
network take as long as the world of the run says, where a second of the world lasts `pace` wall seconds; without a
pace everything takes what it takes.
"""

from __future__ import annotations

import hashlib
import heapq
import json
import platform
import threading
import time
import types
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache, partial
from importlib import metadata
from math import inf, isfinite, prod
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

import safetensors.torch
import torch
from torch import Tensor

from fl_core.datasets import load_dataset
from fl_core.errors import RunError, SpecError
from fl_core.experiments.grid import client_of, pack, unpack
from fl_core.experiments.run import Result, commit
from fl_core.experiments.spec import RunSpec
from fl_core.formulas import fedluck
from fl_core.runtime import Checkpoints, Simulation, storage
from fl_core.runtime.device import DeviceHandle
from fl_core.runtime.executors import Together, make_executor
from fl_core.runtime.history import History, append
from fl_core.runtime.kernel import Kernel, Kind, Process, StopRun, nothing_left
from fl_core.runtime.local import Job, TrainJob
from fl_core.runtime.messages import Snapshot, Upload

if TYPE_CHECKING:
    from distributed import Client, Future

LOOK_SECONDS = 1.0
"""Between two looks at which workers there are."""
PATIENCE_SECONDS = 60.0
"""So long a testbed waits for workers when there are none, and a task for an answer of the server."""
CHECKSUM_BYTES = 16
OVER = b"over"
NO_CODE = ["dask", "msgpack"]
"""The forms in which Dask may hand over what workers send: nothing that is executed to be read."""
ALONE: Any = {"allow_other_workers": False, "pure": False}
"""How Dask is to place tasks: where they are told to run, each for itself."""
COUNTED = {"bytes_down": 0.0}
"""What the program of a task may change of the server's counts: by what of a model is not sent."""


def encode(value: Any) -> bytes:
    """Return plain data and tensors as bytes; of a vector with mostly zeros only the others."""
    writer = storage.Writer()
    text = writer.text(_thinned(value)).encode()
    tensors = {str(place): tensor.clone() for place, tensor in enumerate(writer.tensors)}
    content = safetensors.torch.save(tensors | {"text": torch.frombuffer(bytearray(text), dtype=torch.uint8)})
    return hashlib.blake2b(content, digest_size=CHECKSUM_BYTES).digest() + content


def decode(message: Any) -> Any:
    """Return what was encoded; a message that is damaged or none is a ValueError."""
    try:
        head, content = message[:CHECKSUM_BYTES], bytes(message[CHECKSUM_BYTES:])
        if head != hashlib.blake2b(content, digest_size=CHECKSUM_BYTES).digest():
            raise ValueError("wrong checksum")
        tensors = safetensors.torch.load(content)
        text = tensors.pop("text").numpy().tobytes().decode()
        return _whole(storage.Reader([tensors[str(place)] for place in range(len(tensors))]).full(json.loads(text)))
    except Exception as error:  # whatever a stranger has made
        raise ValueError(f"damaged message: {type(error).__name__}: {error}") from None


def _thinned(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _thinned(part) for name, part in value.items()}
    if not isinstance(value, Tensor) or value.dim() != 1 or value.dtype != torch.float32:
        return value
    kept = value.contiguous().view(torch.int32).nonzero()[:, 0]  # by their bits: -0.0 stays
    return value if 2 * len(kept) >= len(value) else {"?": len(value), "at": kept.int(), "values": value[kept]}


def _whole(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if "?" in value:
        return torch.zeros(value["?"]).index_put_((value["at"].long(),), value["values"])
    return {name: _whole(part) for name, part in value.items()}


class Clock:
    """Wall-clock time since `origin` (seconds of the epoch), in units of `pace` seconds."""

    def __init__(self, origin: float, pace: float) -> None:
        self.origin, self.pace = origin, pace

    @property
    def now(self) -> float:
        """Seconds."""
        return (time.time() - self.origin) / self.pace

    def wait_until(self, moment: float) -> float:
        """Sleep until then, and return by how much it was over."""
        if (left := (moment - self.now) * self.pace) > 0:
            time.sleep(left)
        return max(0.0, -left / self.pace)


# On a worker.


class Site(Simulation):
    """What a worker keeps of a testbed: the data, a network to compute with, and the state of its devices."""

    def __init__(self, setup: bytes) -> None:
        given = decode(setup)
        unpack(given["parts"].numpy().tobytes()[:-1])
        _prepare(self, RunSpec.from_json(given["spec"]))
        whole, space = self.task.dimension, self.task.workspace()
        self.lengths = {"model": whole, "delta": whole, "gradient": len(space.parameters)}
        slots = [tuple(slot.shape) for slot in getattr(space, "slots", ()) if slot.trainable]
        self.segments = tuple(map(prod, slots)) or (len(space.parameters),)
        self.undisturbed = True
        self.name, self.shaped = given["name"], given["pace"] is not None
        self.clock = Clock(time.time(), given["pace"] or 1.0)
        self.kernel = cast(Any, self.clock)
        self.executor = make_executor("sequential", self.task).__enter__()
        self.one_at_a_time = threading.Lock()

    def perform(self, order: bytes) -> bytes:
        """Run the program of a task from its trigger to its end, and return what it has sent."""
        given = decode(order)
        self.clock.origin = given["origin"]
        server = _Away(given["server"])
        snapshot = Snapshot(given["model"], given["version"])
        trigger = given["device"], given["trigger"], given["task"]
        device = SiteDevice(self, cast(Any, server), *trigger, snapshot, None, True)
        program = self.algorithm.device(device)
        try:
            program.send(None)
        except StopIteration:
            pass
        except Exception as error:
            return encode({"failed": f"{device}: {type(error).__name__}: {error}"})
        else:
            program.close()
            return encode({"failed": f"{device} waits for what a testbed does not have"})
        upload = server.upload
        sent = {} if upload is None else {n: getattr(upload, n) for n in ("base_version", "steps", "loss", "payload")}
        told = {"counters": server.counters, "late": device.late, "spans": device.spans, "trials": device.trials}
        return encode({**told, "size": server.size, "upload": sent or None})


@lru_cache(maxsize=1)
def site(setup: bytes) -> Site:
    """Return what this worker keeps of that testbed."""
    return Site(setup)


_BEGINNING = threading.Lock()


def perform(setup: bytes, order: bytes) -> bytes:
    """Run the program of a task on this worker, in one of its threads."""
    with _BEGINNING:  # one thread loads the data for all
        here = site(setup)
    return here.perform(order)


def settle(setup: bytes) -> bytes:
    """Load the data on this worker; return, encoded, why that cannot be, or nothing."""
    try:
        with _BEGINNING:
            site(setup)
    except Exception as error:
        return encode(f"{type(error).__name__}: {error}")
    return encode("")


class _Away:
    """The server as a worker knows it: a number, and what a task has counted and sent."""

    size = 0.0
    upload: Upload | None = None

    def __init__(self, number: int) -> None:
        self.number = number
        self.counters = dict(COUNTED)

    def _deliver(self, upload: Upload, size: float, sent: object = None) -> None:
        self.upload, self.size = upload, size


class SiteDevice(DeviceHandle):
    """One task on its worker. Its program never has to wait: what takes time takes it here and now."""

    _run: Site

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.late, self._asked = 0.0, 0
        self.spans: list[tuple[str, float, float]] = []
        self.trials: list[tuple[float, float]] = []
        """Bytes that were sent, or -1 for a local step, and the seconds that it took."""

    # Those of DeviceHandle are generators, which a kernel runs faster; a program awaits either.

    async def _work(self, job: Any, seconds: float, newest: bool = False) -> Any:  # type: ignore[override]
        began = self.now
        if newest:
            job.start = cast(Snapshot, self._newest(-1)).model
        result = self._compute(job)
        self._pass(began, seconds, "train")
        return result

    async def _spend(self, activity: str, seconds: float) -> None:  # type: ignore[override]
        self._pass(self.now, seconds, activity)

    async def _send(self, payload: dict[str, Any], seconds: float, size: float) -> Any:  # type: ignore[override]
        self._pass(self.now, seconds, "upload")
        self._sent = True
        return payload

    async def _request(self, than: int = -1) -> Any:
        return self._newest(than)

    async def ask(self, question: Any) -> Any:
        """Return what the algorithm's ``answer(server, device, question)`` says on the server."""
        return self._call("answer", question)

    def step_seconds(self, trial: int | None = None) -> float:
        """Return the time of one local step as declared, or for a `trial` as it is measured now, on real data."""
        declared = super().step_seconds(trial)
        if trial is None:
            return declared
        settings, samples, key, _ = self._next_batch()
        key = (key[0], "trial", key[2], trial, 0)
        began, start = self.now, self._trigger_snapshot.model
        self._compute(TrainJob(start, self.id, samples, 1, settings.batch_size, self.lr, 0.0, None, key))
        return self._tried(-1, began, declared)

    def upload_seconds(self, size: float) -> float:
        """Return the time to send `size` bytes, as it is measured now; as declared where nothing is measured."""
        declared = super().upload_seconds(size)
        if not getattr(self._run.algorithm, "measure", False):
            return declared
        began = self.now
        self._call("parcel", torch.zeros(int(size), dtype=torch.uint8))
        return self._tried(size, began, declared)

    def _tried(self, size: float, began: float, declared: float) -> float:
        self._pass(began, declared, "train" if size < 0 else "upload")
        self.trials.append((size, self.now - began))
        return self.trials[-1][1]

    def _compute(self, job: Job) -> Any:
        with self._run.one_at_a_time:
            return self._run.executor.result(self._run.executor.submit(job, 0.0))

    def _pass(self, began: float, seconds: float, activity: str) -> None:
        """Let what has `began` take at least so long, in a shaped testbed."""
        if self._run.shaped:
            self.late += self._run.clock.wait_until(began + seconds)
        self.spans.append((activity, began, self.now))

    def _newest(self, than: int) -> Snapshot | None:
        """Ask the server for a model that is newer."""
        found = self._call("model", than)
        return None if found is None else Snapshot(found["model"], found["version"])

    def _call(self, what: str, value: Any) -> Any:
        """Put a question to the server, and wait for its answer."""
        from distributed import Queue

        self._asked += 1
        back = f"{self._run.name}-{self._task}-{self._asked}"
        Queue(self._run.name).put(encode({"back": back, "task": self._task, "what": what, "value": value}))
        return decode(Queue(back).get(timeout=PATIENCE_SECONDS))


# On the server.


class WallKernel(Kernel):
    """Handles events when they happen: `post` is called, from any thread, with what has."""

    def __init__(self, clock: Clock, look: Callable[[], None]) -> None:
        super().__init__()
        self.clock, self.look = clock, look
        self._inbox: SimpleQueue[tuple[float, Callable[[], None]]] = SimpleQueue()

    def post(self, action: Callable[[], None]) -> None:
        """Have `action` called by the thread of the kernel; it counts as having happened now."""
        self._inbox.put((self.clock.now, action))

    def run(self) -> None:
        """Handle events in the order in which they happen until a process raises :class:`StopRun`."""
        looked = 0.0
        try:
            while True:
                while self._ready:
                    self.step(*self._ready.popleft())
                self._collect(0.0)
                if self.events >= self.due:
                    self.boundary()
                if self._queue and self._queue[0][0] <= self.clock.now:
                    moment, _, _, _, action = heapq.heappop(self._queue)
                    self.now, self.events = max(self.now, moment), self.events + 1
                    if isinstance(action, Process):
                        self.step(action)
                    else:
                        action()
                    continue
                if time.monotonic() - looked >= LOOK_SECONDS:
                    self.look()
                    looked, self.events = time.monotonic(), self.events + 1  # to wait for devices is no idling
                due = self._queue[0][0] if self._queue else inf
                self._collect(min(LOOK_SECONDS, max(0.0, (due - self.clock.now) * self.clock.pace)))
        except StopRun:
            return
        finally:
            for process in self._alive:
                process.coroutine.close()
            self._alive.clear()

    def _collect(self, seconds: float) -> None:
        """Wait so long for what happens elsewhere, and take all of it."""
        try:
            moment, action = self._inbox.get(timeout=seconds) if seconds else self._inbox.get_nowait()
            while True:
                self.scheduled += 1
                heapq.heappush(self._queue, (max(moment, self.now), Kind.ARRIVAL, 0, self.scheduled, action))
                moment, action = self._inbox.get_nowait()
        except Empty:
            return


class WallSimulation(Simulation):
    """A run on the workers of `client`, which are as many devices at a time as they have threads."""

    kernel: WallKernel

    def __init__(self, spec: RunSpec, client: Client, pace: float | None = None, trace: bool = False) -> None:
        if pace is not None and not 0 < pace < inf:
            raise SpecError(f"pace = {pace} is not valid: a second of the world lasts so many wall seconds, above 0")
        self.spec, self.client, self.pace = spec.resolved(), client, pace
        _prepare(self, self.spec, trace)
        if self.faults or not self.devices.always_available or self.devices.world.max_staleness is not None:
            raise SpecError("a testbed has faults, absences and staleness of its own: take them out of world")
        if self.links or self.power is not None:
            raise SpecError("a testbed has a server link of its own, and measures no energy: take them out of world")
        self.name = f"fl-core-{uuid4().hex}"
        self.flights: dict[int, tuple[DeviceHandle, str, Future]] = {}
        self.homes: dict[int, str] = {}
        self.wire = {"bytes_up": 0, "bytes_down": 0}
        self.late = self.busy = 0.0
        self.trials: dict[int, list[tuple[float, float]]] = {}
        self._alone_since = time.monotonic()

    def run(
        self, executor: str = "threads", threads: int | None = 1, progress: Callable[[float], None] | None = None,
        checkpoints: Checkpoints | None = None, together: Together | None = None,
    ) -> History:  # fmt: skip
        """Run until the budget is used up; the `executor` computes evaluations, all else the workers."""
        from distributed import Queue

        if checkpoints is not None:
            raise SpecError("a testbed has no checkpoints: what its devices do cannot be repeated")
        given = {"spec": self.spec.to_json(), "name": self.name, "pace": self.pace}
        parts = torch.frombuffer(bytearray(pack() + b"!"), dtype=torch.uint8)  # a buffer cannot be empty
        self._setup = encode({**given, "parts": parts})
        self.client.wait_for_workers(1, timeout=PATIENCE_SECONDS)
        self._settle()
        self.clock = Clock(time.time(), self.pace or 1.0)
        self.kernel = WallKernel(self.clock, self._look)
        listener = threading.Thread(target=self._listen, daemon=True)
        listener.start()
        try:
            return super().run(executor, threads, progress, together=together)
        finally:
            for _, _, future in self.flights.values():
                future.cancel()
            Queue(self.name, client=self.client).put(OVER)
            listener.join(LOOK_SECONDS)

    def launch(self, handle: DeviceHandle) -> Any:
        """Send the task to the worker where its device lives."""
        task, snapshot = handle._task, handle._trigger_snapshot
        order = {"device": handle.id, "trigger": handle.trigger, "task": task, "server": handle._server.number}
        sent = encode({**order, "model": snapshot.model, "version": snapshot.version, "origin": self.clock.origin})
        self.wire["bytes_down"] += len(sent)
        address = self._home(handle.id)
        future = self.client.submit(perform, self._setup, sent, workers=[address], **ALONE)
        self.running[task] = cast(Any, types.SimpleNamespace(name=handle))
        self.flights[task] = handle, address, future
        future.add_done_callback(lambda _: self.kernel.post(partial(self._arrived, task)))
        return self.running[task]

    def measured(self) -> dict[str, tuple[float, float]]:
        """Return alpha_i and beta_i (seconds a step, and for a whole model) of each device that measured them."""
        whole, found = self.servers[0]._bytes, {}
        for device, trials in sorted(self.trials.items()):
            steps = [seconds for size, seconds in trials if size < 0]
            sent = [(size / whole, seconds) for size, seconds in trials if size >= 0]
            if len(steps) > fedluck.WARM_UP_STEPS and sent:
                alpha = fedluck.mean_step_seconds(steps)
                beta = fedluck.fit_upload(*zip(*sent, strict=True)).full_upload_seconds
                found[str(device)] = float(alpha), float(beta)
        return found

    def _workers(self) -> dict[str, int]:
        return dict(self.client.ncores())

    def _settle(self) -> None:
        """Have the workers load their data, before the clock runs."""
        for address in self._workers():
            future = self.client.submit(settle, self._setup, workers=[address], **ALONE)
            while address in self._workers():
                with suppress(TimeoutError):
                    if failed := decode(future.result(LOOK_SECONDS)):
                        raise RunError(f"a worker of the testbed cannot begin: {failed}")
                    break
        self._there = self._workers()

    def _home(self, device: int) -> str:
        """Return the worker of a device: of those that are there the one with the fewest, if it has none yet."""
        alive = self._there
        if self.homes.get(device) not in alive:
            count = Counter(self.homes.values())
            self.homes[device] = min(alive, key=lambda address: (count[address] / alive[address], address))
        return self.homes[device]

    def _look(self) -> None:
        """See which workers are there, and give up what those had that are gone."""
        alive = self._workers()
        self._there = alive or self._there  # a task for one that is gone is given up at the next look
        for task, (_, address, future) in list(self.flights.items()):
            if address not in alive:
                future.cancel()
                self._lost(task, "worker lost")
        if alive:
            self._alone_since = time.monotonic()
        elif time.monotonic() - self._alone_since > PATIENCE_SECONDS:
            raise RunError("no worker of the testbed is left")
        if not (self.flights or self.kernel._queue or self.kernel._ready):
            raise nothing_left(self.kernel)

    def _lost(self, task: int, why: str) -> None:
        handle, _, _ = self.flights.pop(task)
        self.log_fault(handle.id, task, why)
        handle._server._lose(handle)
        handle._end()

    def _arrived(self, task: int) -> None:
        """Take in what a task has brought, which nobody has checked yet."""
        if task not in self.flights:
            return
        handle, _, future = self.flights[task]
        try:
            message = future.result(LOOK_SECONDS)
            found = decode(message)
            upload = None if "failed" in found else self._upload(handle, found["upload"])
            size, counters = float(found.get("size", 0)), found.get("counters", {})
            if not 0 <= size < inf or not all(map(isfinite, counters.values())) or counters.keys() - COUNTED.keys():
                raise ValueError(f"damaged message: it counts {size} and {counters}")
        except Exception as error:
            if isinstance(error, TimeoutError) and future.status != "error":
                self.kernel.post(partial(self._arrived, task))  # slow to come, or gone with its worker: see _look
                return
            self._lost(task, f"rejected: {error}")
            return
        if "failed" in found:
            raise RunError(f"{found['failed']} (task {task}, at t = {self.kernel.now:g} s)")
        del self.flights[task]
        server = handle._server
        for name, change in counters.items():
            server.counters[name] += change
        self.wire["bytes_up"] += len(message)
        self.late += float(found["late"])
        self.busy += sum(end - begin for _, begin, end in found["spans"])
        if self.tracing:
            what = {"task": task, "device": handle.id, "base_version": handle._trigger_snapshot.version}
            for activity, begin, end in found["spans"]:
                append(self.history.spans, **what, activity=activity, start=begin, end=end)
        self.trials.setdefault(handle.id, []).extend(found["trials"])
        if upload is not None:
            handle._sent = True
            server._deliver(upload, size)
        handle._end()

    def _upload(self, handle: DeviceHandle, sent: dict[str, Any] | None) -> Upload | None:
        if sent is None:
            return None
        base, steps = sent["base_version"], sent["steps"]
        if not (type(base) is int and 0 <= base <= self.version and type(steps) is int and steps >= 0):
            raise ValueError(f"damaged message: it was made from version {base} in {steps} steps")
        made = handle._server, handle.id, handle._task, base, self.kernel.now
        return Upload(*made, self.task.num_samples(handle.id), steps, float(sent["loss"]), dict(sent["payload"]))

    def _listen(self) -> None:
        """Hand on what tasks ask while they are at work."""
        from distributed import Queue

        asked = Queue(self.name, client=self.client)
        with suppress(OSError, RuntimeError):  # the cluster is gone
            while (message := asked.get()) != OVER:
                self.kernel.post(partial(self._answer, message))

    def _answer(self, message: Any) -> None:
        """Answer a task; what is damaged, or comes from none that is under way, is not answered."""
        from distributed import Queue

        try:
            question = decode(message)
            handle, _, _ = self.flights[question["task"]]
            what, value, back = question["what"], question["value"], str(question["back"])
        except (ValueError, KeyError, TypeError):
            return
        answer: Any = None
        if what == "model" and (found := handle._server._send_snapshot(value)) is not None:
            answer = {"model": found.model, "version": found.version}
        elif what == "answer":
            answer = self.algorithm.answer(handle._server, handle, value)
        content = encode(answer)
        self.wire["bytes_up"] += len(message)
        self.wire["bytes_down"] += len(content)
        Queue(back, client=self.client).put(content)


def run_testbed(
    spec: RunSpec, scheduler: str | Client, *, pace: float | None = None, trace: bool = False,
    progress: Callable[[float], None] | None = None,
) -> Result:  # fmt: skip
    """Run `spec` on the workers of a Dask cluster, in wall-clock time, and return history and provenance.

    `scheduler` is its address, or a client of it; for ``tls://`` Dask's own configuration says where certificates
    are. With a `pace` devices and network take as long as the world says, a second of it lasting `pace` wall
    seconds. Times of the history are seconds of the world, or wall seconds without one. Such a run is not repeatable,
    and never comes into a store.
    """
    if isinstance(scheduler, str):
        with client_of(scheduler, deserializers=NO_CODE) as client:
            return run_testbed(spec, client, pace=pace, trace=trace, progress=progress)
    started, bed = time.perf_counter(), WallSimulation(spec, scheduler, pace, trace)
    workers = bed._workers()
    history = bed.run(progress=progress)
    data = load_dataset(bed.spec.dataset)
    provenance = {
        "commit": commit(),
        "versions": {name: metadata.version(name) for name in ("fl-core", "torch", "numpy", "distributed")},
        "python": platform.python_version(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "wall_seconds": round(time.perf_counter() - started, 2),
        "executor": "testbed",
        "pace": pace,
        "workers": len(workers),
        "threads": sum(workers.values()),
        "wire": bed.wire,
        "late_share": bed.late / bed.busy if pace and bed.busy else 0.0,
        "measured": bed.measured(),
        "data": data.kind,
    }
    return Result(bed.spec, history, provenance)


def _prepare(run: Simulation, spec: RunSpec, trace: bool = False) -> None:
    """Make `run` the simulation of `spec`, as :meth:`RunSpec.simulation` does it."""
    names = ("budget", "training", "evaluation", "warmup", "seed")
    settings = {name: getattr(spec, name) for name in names}
    Simulation.__init__(run, spec.task(), spec.world, spec.algorithm, **settings, trace=trace)
