"""The server's side: what a scheduler and an updater may call and await, and what becomes of their devices' uploads.

Both are programs that the runtime repeats: a *turn* waits for one occasion, acts on it, and returns; what must be
remembered is kept in ``server.state``. (A loop in the coroutine works too, but then no checkpoint can be stored.)
While the server is down, nobody goes on; what the programs have missed they are told when it is up again.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from functools import cache
from math import ceil
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from torch import Tensor

from fl_core.errors import RunError
from fl_core.runtime.device import DeviceHandle
from fl_core.runtime.history import COUNTERS, JOULES, OUTCOMES
from fl_core.runtime.kernel import Kind, Program, park
from fl_core.runtime.local import Gradient, ServerGradientJob
from fl_core.runtime.messages import Cluster, Snapshot, Upload, misshapen, unusable
from fl_core.streams import stream
from fl_core.tasks import POOLED
from fl_core.world.triggers import Continuous, Sampled, Trigger

if TYPE_CHECKING:
    from fl_core.models.units import Units
    from fl_core.runtime.simulation import Simulation

T = TypeVar("T")
Select = Callable[[Any], "list[Upload] | None"]


class ServerHandle:
    """The server as an algorithm sees it, `number` from 0; in a world with clusters there is one for each.

    It has made `version` commits; its `devices` work on `in_flight` tasks, and those that are free are `idle`.
    `state` is plain data that the algorithm keeps, `rng` its own random stream; `counters` are of transfers and
    gradients, `outcomes` of how tasks have ended; it is up again at `up_at`, in the past except during a restart.
    """

    def __init__(self, run: Simulation, model: Tensor, number: int = 0) -> None:
        self._run, self.number, self.version, self.in_flight, self.up_at = run, number, 0, 0, 0.0
        self.devices = run.devices.members(number)
        self.idle = IdleSet(self.devices)
        self.state: dict[str, Any] = {}
        self.rng = stream(run.seed, "server", *([number] if number else []))
        self.counters: dict[str, Any] = dict.fromkeys((*COUNTERS, *(JOULES if run.power else ())), 0)
        self.outcomes = dict.fromkeys(OUTCOMES, 0)
        self._model, self._frozen = model, model._version
        self._snapshot: Snapshot | None = None
        self._bytes = model.numel() * model.element_size()
        self._triggers: dict[int, int] = {}
        self._committed_at = 0
        self._met: int | None = None
        world = run.devices.world
        sampled = world.max_staleness is not None
        self._declared = Sampled(max_staleness=world.max_staleness) if sampled else world.trigger
        self._samples = 0
        # Uploads that wait and that were taken since the last commit, and who waits for them.
        self._inbox: deque[Upload] = deque()
        self._taken: list[Upload] = []
        self._receiver: tuple[Program, Select, Any] | None = None
        self._answered = self._failed_in_a_row = 0
        self._failed: set[int] = set()
        # Changes of the idle set, who is released, and who waits for what.
        self._changes = 1
        self._released: dict[int, None] | None = None
        self._down = False
        self._waiters: dict[str, list[Program]] = {"idle": [], "version": [], "released": []}
        self._missed: set[str] = set()

    # What it knows of its task, its devices and its world.

    @property
    def now(self) -> float:
        """Virtual time, seconds."""
        return self._run.kernel.now

    @property
    def model(self) -> Tensor:
        """The global model ``[d]``; read only: a new one is made by :meth:`commit`."""
        return self._model

    @property
    def snapshot(self) -> Snapshot:
        """The present global model with its version; it may be kept, and handed out later by :meth:`dispatch`."""
        self._checked_model()
        if self._snapshot is None or self._snapshot.version != self._run.version:
            self._snapshot = Snapshot(self._model, self._run.version)
        return self._snapshot

    @property
    def base_versions(self) -> dict[int, int]:
        """The version that each device works from whose upload is still to come; the oldest, if it has several."""
        found: dict[int, int] = {}
        for handle in self._run.handles:
            if handle._server is self and not handle._sent:
                found.setdefault(handle.id, handle._trigger_snapshot.version)
        return found

    @property
    def sampled(self) -> bool:
        """Whether the world draws staleness instead of letting it arise: then every task is one global epoch."""
        return isinstance(self._declared, Sampled)

    @property
    def iteration(self) -> int:
        """Commits of all servers together (SD-FEEL's global iteration k)."""
        return self._run.version

    @property
    def waiting(self) -> list[Upload]:
        """Uploads that have arrived and belong to no version yet."""
        return [*self._inbox, *self._taken]

    @property
    def num_parameters(self) -> int:
        """How many entries at the beginning of a model are trained; those behind are statistics."""
        return self._run.lengths["gradient"]

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of the parameter tensors, in their order in a model; only ``(p,)`` if the task has no layers."""
        return self._run.shapes

    @property
    def hidden_units(self) -> tuple[Units, ...]:
        """Units of the model that a smaller one can do without, by layer; an error if that is not known."""
        return self._run.hidden_units

    @property
    def num_samples(self) -> int:
        """Training samples of all devices together."""
        return self._run.task.num_samples(POOLED)

    def share(self, device: int) -> float:
        """Return the part of this server's training samples that `device` holds."""
        task = self._run.task
        if not self._samples:
            alone = self._run.devices.num_servers == 1
            self._samples = task.num_samples(POOLED) if alone else sum(map(task.num_samples, self.devices))
        return task.num_samples(device) / self._samples

    @property
    def declared_seconds(self) -> np.ndarray:
        """``[n]`` seconds per local step, or epoch, of its devices, before what is drawn for each task."""
        return self._run.devices.seconds[self.devices.start : self.devices.stop]

    @property
    def neighbours(self) -> tuple[int, ...]:
        """Numbers of the servers that this one exchanges models with."""
        return self._run.devices.neighbours(self.number)

    @property
    def clusters(self) -> tuple[Cluster, ...]:
        """What is known about the devices of every server, by its number."""
        return self._run.clusters

    @property
    def backhaul_seconds(self) -> float:
        """Time to send a model to a neighbour, as the world says; :meth:`exchange` says who has to count it."""
        return self._run.devices.backhaul_seconds

    def stream(self, purpose: str, *index: int) -> np.random.Generator:
        """Return the run's random stream of that name."""
        return stream(self._run.seed, purpose, *index)

    def gradient(self, batch: np.ndarray) -> Gradient:
        """Return the gradient ``[p]`` of the mean loss at the present model over the samples at `batch` ``[b]``.

        Positions are those among all devices' samples, which the server has, too. It takes no virtual time.
        """
        key = (self._run.seed, "server-gradient", self.number, self.version, 0)
        job = ServerGradientJob(self._checked_model(), batch, key)
        found: Gradient = self._run.executor.result(self._run.executor.submit(job, self.now))
        return found

    # What a program may wait for.

    async def sleep(self, seconds: float) -> None:
        """Wait for `seconds` of virtual time (a trigger tick)."""
        await self._sleep(self.now + seconds)

    async def every(self, seconds: float) -> None:
        """Wait for the next of the times 0, `seconds`, 2 `seconds`, ... (a trigger tick)."""
        program = self._program()
        program.waits -= 1  # counted again by the sleep
        count = max(program.seen.get("ticks", 0), ceil(self.now / seconds))
        await self._sleep(count * seconds)
        program.seen["ticks"] = count + 1

    async def new_version(self) -> None:
        """Wait until there is a version that this program has not seen yet: at the start version 0 is new."""
        program = self._program()
        if program.seen.get("version") == self.version or self._down:
            self._enlist(program, "version")
            await park()
        program.seen["version"] = self.version

    async def idle_changed(self) -> None:
        """Wait until a device has become free that this program has not seen yet: at the start all are new."""
        program = self._program()
        if program.seen.get("idle") == self._changes or self._down:
            self._enlist(program, "idle")
            await park()
        program.seen["idle"] = self._changes

    async def released(self) -> list[int]:
        """Wait for devices whose last upload has been dealt with, and take them in their order; at first all."""
        if self._released is None:
            self._released = dict.fromkeys(self.idle)
        program = self._program()
        if not self._released or self._down:
            self._enlist(program, "released")
            await park()
        released, self._released = [device for device in self._released if device in self.idle], {}
        return released

    async def receive(
        self,
        count: int = 1,
        *,
        until: float | None = None,
        tolerance: float = 0.0,
        from_: Sequence[int] | None = None,
    ) -> list[Upload]:
        """Wait for uploads and take them: the first `count` in order of arrival.

        Or all, possibly none, that have arrived `until` a virtual time, then included; what ends within `tolerance`
        seconds after it, because of rounding, counts as well. Or one of each of the devices `from_`, in this order,
        except those whose last upload was lost or rejected and that have not been triggered since.
        """
        if until is not None:
            await self._sleep(float(until), tolerance)
            uploads, self._inbox = list(self._inbox), deque()
            self._taken.extend(uploads)
            return uploads
        if from_ is not None:
            ready = self._select("from", self._from, tuple(from_))
        elif count >= 1:
            ready = self._select("count", self._first, count)
        else:
            raise RunError(f"receive(count={count}) is not valid: wait for at least 1 upload")
        return await park() if ready is None else ready

    async def receive_round(self, most: int | None = None) -> list[Upload]:
        """Wait until every triggered device has answered or failed; take the answers, in order of dispatch.

        With `most`: the first so many to arrive, and fewer only when nobody else can answer (blocked rounds).
        """
        ready = self._select("round", self._round, (most,))
        uploads: list[Upload] = await park() if ready is None else ready
        if not self.in_flight:
            self._answered = self.outcomes["dispatched"]
        return uploads

    async def meet(self, value: T) -> list[T]:
        """Hand in `value`, wait until every server has, and return all values, by number.

        What each commits next belongs to one event: their staleness does not grow by it, and counts from its end.
        """
        run, program = self._run, self._program()
        if self.number in run.meeting:
            raise RunError(f"{program.name} and {run.meeting[self.number][0].name} both wait for the other servers")
        self._register(program, ("meet",))
        run.meeting[self.number] = program, value
        if len(run.meeting) == len(run.servers):
            met, run.meeting = sorted(run.meeting.items()), {}
            values = [one for _, (_, one) in met]
            for number, (waiting, _) in met:
                run.servers[number]._met = run.version
                run.kernel.resume(waiting, values)
        everybody: list[T] = await park()
        return everybody

    async def exchange(self) -> dict[int, Snapshot]:
        """Return, by number, the present model of this server and of each neighbour.

        The version of each is the :attr:`iteration` that its own last commit made (0 before the first). No time
        passes: aggregation, exchange and mixing are one event at the end of a server's iteration (SD-FEEL, A-14), of
        whose length an updater counts :attr:`backhaul_seconds` in the time that it waits for uploads.
        """
        servers = (self._run.servers[number] for number in (self.number, *self.neighbours))
        return {server.number: Snapshot(server._checked_model(), server._committed_at) for server in servers}

    # What a program may do.

    def keep_busy(self, concurrency: int | Trigger) -> Coroutine[Any, Any, None]:
        """Keep so many tasks in flight, of idle devices drawn uniformly, or use another trigger; one turn of that.

        A trigger that the world declares, or its sampled staleness, goes before what is given here.
        """
        default = _continuous(concurrency) if isinstance(concurrency, int) else concurrency
        return (self._declared or default).turn(self)

    def dispatch(
        self, devices: Iterable[int], *, seconds: float | None = None, snapshot: Snapshot | None = None
    ) -> None:
        """Trigger idle `devices` of this server, in this order, with the present global model or a `snapshot` of one.

        :data:`fl_core.tasks.POOLED` is the imaginary machine with all data. `seconds` fixes the whole duration of
        the tasks; only then may a device do several at once: so a sampled staleness becomes a timeline.
        """
        run, triggers, idle = self._run, self._triggers, self.idle
        snapshot = snapshot or self.snapshot
        run.kernel.current.acted = True  # type: ignore[union-attr]
        for device in devices:
            device = int(device)
            reserved = device != POOLED and seconds is None
            if reserved:
                if device not in idle:
                    raise self._not_idle(device)
                idle.remove(device)
                if self._released:
                    self._released.pop(device, None)
            elif device != POOLED and device not in self.devices:
                raise self._not_idle(device)
            if self._failed:
                self._failed.discard(device)
            trigger = triggers.get(device, 0)
            triggers[device] = trigger + 1
            self.in_flight += 1
            self.outcomes["dispatched"] += 1
            if seconds is None:
                self._count_download()
            run.dispatched += 1
            run.launch(DeviceHandle(run, self, device, trigger, run.dispatched, snapshot, seconds, reserved))

    def discard(self, upload: Upload) -> None:
        """Drop an upload that was received, e.g. because it is too stale; it counts as discarded."""
        self._run.kernel.current.acted = True  # type: ignore[union-attr]
        if upload not in self._taken:
            which, why = f"device {upload.device} (task {upload.task})", "discarded or committed already, or not"
            raise RunError(f"cannot discard the upload of {which}: it was {why} received here")
        self._taken.remove(upload)
        self.outcomes["discarded"] += 1
        self._release(upload.device)
        self._run.dealt_with()

    def commit(
        self,
        model: Tensor,
        *,
        weight: float | Sequence[float] = float("nan"),
        neighbours: Mapping[int, Tensor] | None = None,
    ) -> None:
        """Make `model` ``[d]``, a new tensor, the next version, applied from the uploads since the last commit.

        `weight` is for the record: of all uploads, or of each in the order in which they were received. `neighbours`
        are new models of neighbouring servers, changed at the same instant; their versions stay.
        """
        run, taken = self._run, self._taken
        run.kernel.current.acted = True  # type: ignore[union-attr]
        self._replace(model)
        if neighbours:
            for number, theirs in neighbours.items():
                run.servers[number]._replace(theirs)
        before = run.version if self._met is None else self._met
        self.version += 1
        run.version += 1
        self._committed_at = run.version if self._met is None else before + len(run.servers)
        self._met = None
        if taken:
            one_for_all = isinstance(weight, int | float) or not np.ndim(weight)
            weights: Any = [weight] * len(taken) if one_for_all else list(weight)  # type: ignore[arg-type]
            if len(weights) != len(taken):
                raise RunError(f"commit got {len(weights)} weights for {len(taken)} uploads")
            table = run.history.updates
            for upload, one in zip(taken, weights, strict=True):
                self.counters["gradients"] += upload.steps
                table["seconds"].append(run.kernel.now)
                table["version"].append(run.version)
                table["device"].append(upload.device)
                table["staleness"].append(before - upload.base_version)
                table["weight"].append(float(one))
                table["steps"].append(upload.steps)
                table["loss"].append(upload.loss)
            self.outcomes["applied"] += len(taken)
            if self._released is not None:
                for upload in taken:
                    self._release(upload.device)
            self._taken = []
        self._wake("version")
        run.committed()

    def log(self, **values: float) -> None:
        """Keep numbers that the algorithm has learned, with the version in the making: in ``history.learned``."""
        run, table = self._run, self._run.history.learned
        row: dict[str, Any] = {"seconds": run.kernel.now, "version": run.version + 1}
        for name, value in values.items():
            plain = value.tolist() if isinstance(value, Tensor | np.generic | np.ndarray) else value
            if name in row or not isinstance(plain, int | float):
                raise RunError(f"log({name}={plain!r}) keeps a number, under a name other than {', '.join(row)}")
            row[name] = plain
        rows = len(table.get("version", ()))
        for name in row:
            table.setdefault(name, [float("nan")] * rows)
        for name, column in table.items():
            column.append(row.get(name, float("nan")))

    # The rest is the runtime's. How its programs wait:

    def _program(self) -> Program:
        program = self._run.kernel.current
        if program.__class__ is not Program:
            raise RunError("only the scheduler and the updater may wait for the server")
        program.waits += 1
        return program

    def _register(self, program: Program, wait: tuple[Any, ...]) -> None:
        program.wait = wait
        self._run.waits += 1
        program.place = self._run.waits

    def _enlist(self, program: Program, signal: str) -> None:
        self._register(program, (signal,))
        self._waiters[signal].append(program)

    def _wake(self, signal: str) -> None:
        if self._down:
            self._missed.add(signal)
        elif waiters := self._waiters[signal]:
            self._waiters[signal] = []
            for program in waiters:
                self._run.kernel.resume(program)

    async def _sleep(self, until: float, tolerance: float = 0.0) -> None:
        program = self._program()
        until, end = max(until, self.now), self._run.budget.seconds
        if end is not None and end < until <= end * (1 + 1e-12):  # a multiple of a period that rounding has moved
            until = end
        self._register(program, ("until", until))
        self._wake_at(max(until, self.up_at), program, tolerance)
        await park()

    def _wake_at(self, time: float, program: Program, tolerance: float) -> None:
        """Resume `program` at a tick, or, if the server is down then, when it is up again."""

        def wake() -> None:
            if self._down:
                self._wake_at(self.up_at, program, tolerance)
            else:
                self._run.watchdog.tick()
                if tolerance:
                    self._run.kernel.bring_forward(time + tolerance)
                self._run.kernel.resume(program)

        program.pending = self._run.kernel.at(time, Kind.TICK, self.number, wake)

    def _select(self, name: str, select: Select, wanted: Any) -> list[Upload] | None:
        """Return what is there already, or None: then the calling program is resumed with what it wants."""
        program = self._program()
        ready = None if self._down else select(wanted)
        if ready is not None:
            self._taken.extend(ready)
            return ready
        self._register(program, (name, wanted))
        if self._receiver is not None:
            raise RunError(f"{program.name} and {self._receiver[0].name} both wait for uploads")
        self._receiver = (program, select, wanted)
        return None

    def _first(self, count: int) -> list[Upload] | None:
        if len(self._inbox) < count:
            return None
        return [self._inbox.popleft()] if count == 1 else [self._inbox.popleft() for _ in range(count)]

    def _from(self, devices: Sequence[int]) -> list[Upload] | None:
        found: dict[int, Upload] = {}
        for upload in self._inbox:
            found.setdefault(upload.device, upload)
        if any(device not in found and device not in self._failed for device in devices):
            return None
        uploads = [found[device] for device in devices if device in found]
        for upload in uploads:
            self._inbox.remove(upload)
        return uploads

    def _round(self, wanted: tuple[int | None]) -> list[Upload] | None:
        if wanted[0] is not None and len(self._inbox) >= wanted[0]:
            return self._first(wanted[0])
        if self.in_flight or self.outcomes["dispatched"] == self._answered:
            return None
        uploads, self._inbox = sorted(self._inbox, key=lambda upload: upload.task), deque()
        return uploads

    def _look(self) -> None:
        """Let who waits for certain devices see that one of them may no longer be waited for."""
        if self._receiver is not None and self._receiver[2].__class__ is not int:
            self._offer()

    def _offer(self) -> None:
        """Let who waits for uploads see what there is."""
        if self._receiver is not None and not self._down:
            program, select, wanted = self._receiver
            ready = select(wanted)
            if ready is not None:
                self._receiver = None
                self._taken.extend(ready)  # now: their devices end before the program goes on
                self._run.kernel.resume(program, ready)

    # What becomes of its devices and their tasks:

    def _deliver(self, upload: Upload, size: float, sent: dict[str, Any] | None = None) -> None:
        """Take in `upload` of `size` bytes; `sent` is what its device sent, if that may be something else."""
        if self._down:
            self._drop("lost", upload.device)
            return
        self.counters["models_received"] += 1
        self.counters["bytes_up"] += size
        problem = unusable(upload.payload, self._run.lengths)
        if sent is not None and not problem:
            problem = misshapen(upload.payload, sent)
        if problem:
            self._run.log_fault(upload.device, upload.task, f"rejected: {problem}")
            self._drop("rejected", upload.device)
            return
        self._failed_in_a_row = 0
        self._inbox.append(upload)
        self._offer()

    def _lose(self, handle: DeviceHandle) -> None:
        """Note that the task of `handle` will bring no upload."""
        handle._sent = True
        self._drop("lost", handle.id)

    def _duplicate(self, size: float) -> None:
        """Take in a second copy of an upload: it costs its bytes and changes nothing."""
        if not self._down:
            self.counters["bytes_up"] += size
            self.outcomes["duplicates"] += 1

    def _ended(self, handle: DeviceHandle) -> None:
        """Note that a device program is over."""
        self.in_flight -= 1
        if not handle._sent:
            self._lose(handle)
        if handle._reserved:
            self._free(handle.id)
        else:
            self._changed()
            self._look()

    def _free(self, device: int) -> None:
        """Put `device` back among the idle ones, unless it is away, and tell who waits for that."""
        if device not in self._run.away:
            self.idle.add(device)
            if self._released is not None and not any(upload.device == device for upload in self.waiting):
                self._release(device)
        self._changed()
        self._look()

    def _leave(self, device: int) -> None:
        """Take an idle `device` away."""
        if device in self.idle:
            self.idle.remove(device)
            if self._released:
                self._released.pop(device, None)

    def _release(self, device: int) -> None:
        if self._released is not None and (self.sampled or device in self.idle):
            self._released[device] = None
            self._wake("released")

    def _changed(self) -> None:
        if not self._down:
            self._changes += 1
        self._wake("idle")

    def _drop(self, outcome: str, device: int) -> None:
        """Note that a task has failed, and count it if that was not this server's doing."""
        if not self._down:
            self._failed_in_a_row += 1
        self._give_up(outcome, device)
        if not self._down:
            self._run.watchdog.failed(outcome)

    def _give_up(self, outcome: str, device: int) -> None:
        """Note that a task has failed."""
        self.outcomes[outcome] += 1
        self._failed.add(device)
        self._release(device)

    def _go_down(self, until: float) -> None:
        """Lose what has not been applied and answer nobody before virtual time `until`."""
        self.up_at = max(self.up_at, until)
        self._down = self.up_at > self.now
        lost, self._inbox = self._inbox, deque()
        for upload in lost:
            self._give_up("lost", upload.device)
        self._offer()

    def _come_up(self) -> None:
        """Let the programs that wait for what has happened in the meantime go on."""
        self._down = self.up_at > self.now
        if not self._down:
            missed, self._missed = self._missed, set()
            if "idle" in missed:
                self._changes += 1
            for signal in sorted(missed):
                self._wake(signal)
            self._offer()

    # What is handed out:

    def _send_snapshot(self, than: int = -1) -> Snapshot | None:
        """Hand out the present model to a device that asks for one newer than `than`, and count the transfer."""
        if self._committed_at <= than:
            return None
        self._count_download()
        return self.snapshot

    def _count_download(self) -> None:
        """Count a model that a device is sent."""
        self.counters["models_sent"] += 1
        self.counters["bytes_down"] += self._bytes

    def _checked_model(self) -> Tensor:
        """Return the global model, having made sure that nobody has changed it."""
        if self._model._version != self._frozen:
            which = f"the global model of version {self.version}"
            raise RunError(f"{which} was changed in place; devices may hold it: commit a new tensor instead")
        return self._model

    def _replace(self, model: Tensor) -> None:
        old = self._checked_model()
        tensor = model.__class__ is Tensor or isinstance(model, Tensor)  # the second asks a slow metaclass
        if not tensor or model.shape != old.shape or model.dtype != old.dtype:
            found = f"{model.dtype} {list(model.shape)}" if tensor else type(model).__name__
            raise RunError(f"the new model must be like the old one, {old.dtype} {list(old.shape)}, not {found}")
        self._model, self._frozen, self._snapshot = model, model._version, None

    def _not_idle(self, device: int) -> RunError:
        why = "it is away" if device in self._run.away else "it is already working"
        if device not in self.devices:
            why = f"it does not exist ({self.devices.start}..{self.devices.stop - 1})"
        return RunError(f"cannot trigger device {device} at t = {self.now:g} s: {why}")


@cache
def _continuous(concurrency: int) -> Continuous:
    return Continuous(concurrency=concurrency)


class IdleSet:
    """The devices that are free; constant-time add, remove and uniform draw.

    Built from a range, so that a million idle devices cost two integer arrays.
    """

    def __init__(self, devices: range) -> None:
        self._first = devices.start
        self._members = array("q", devices)
        self._place = array("q", range(len(devices)))
        self._size = len(devices)

    def __len__(self) -> int:
        return self._size

    def __contains__(self, device: int) -> bool:
        index = device - self._first
        return 0 <= index < len(self._place) and self._place[index] < self._size

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self._members[: self._size]))

    def remove(self, device: int) -> None:
        """Take `device` out."""
        self._size -= 1
        self._swap(device, self._size)

    def add(self, device: int) -> None:
        """Put `device` back."""
        self._swap(device, self._size)
        self._size += 1

    def draw(self, rng: np.random.Generator) -> int:
        """Return a uniformly drawn member, without removing it."""
        return self._members[rng.integers(self._size)]

    def to_dict(self) -> dict[str, object]:
        """Return the whole state: later draws depend on the order of the members."""
        return {"members": np.array(self._members), "place": np.array(self._place), "size": self._size}

    def restore(self, state: dict[str, object]) -> None:
        """Take over what :meth:`to_dict` returned."""
        self._members, self._place = (array("q", np.asarray(state[name]).tolist()) for name in ("members", "place"))
        self._size = state["size"]  # type: ignore[assignment]

    def _swap(self, device: int, place: int) -> None:
        members, places = self._members, self._place
        index = device - self._first
        other, here = members[place], places[index]
        members[here], members[place] = other, device
        places[other - self._first], places[index] = here, place
