"""The device's side of a task: what a device program may await, and the virtual time that this takes.

Time passes with faults and absences. A resumed run brings a new coroutine to where the old one waited by answering
what it awaits from a record: see :mod:`fl_core.runtime.checkpoint`.
"""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Generator, Sequence
from copy import deepcopy
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from fl_core.errors import RunError
from fl_core.runtime.history import append
from fl_core.runtime.kernel import Crashed, Kind, sleep_until
from fl_core.runtime.local import Gradient, GradientJob, Job, LossJob, Peek, PeekJob, Trained, TrainJob
from fl_core.runtime.messages import TAKEN, Cluster, LocalTraining, SharedLink, Snapshot, Upload
from fl_core.streams import stream
from fl_core.tasks import POOLED, Contrast, Correction, Objective
from fl_core.world.faults import Fault, Interruption, Message

if TYPE_CHECKING:
    from fl_core.runtime.server import ServerHandle
    from fl_core.runtime.simulation import Simulation

MOST_WINDOWS = 10_000
"""So many windows of availability may a device need for one activity."""


class DeviceHandle:
    """One task of one device, from trigger to upload.

    Device `id` (:data:`fl_core.tasks.POOLED` for single-machine SGD) has been triggered `trigger` times before; its
    `profile` is what computing and communicating costs this task.
    """

    _snapshot: Snapshot | None
    _calls = _steps = _samples = 0
    _loss = float("nan")
    _sent = False
    _saved_bytes = 0.0
    _velocity: Tensor | None = None
    _struck: Sequence[tuple[Fault, np.random.Generator]] = ()
    _gone_at = 0.0
    # What a resumed run needs to bring a new coroutine to where this one waits.
    _journal: list[tuple[Any, ...]]
    _replay: deque[tuple[Any, ...]] = deque()
    _resuming = False
    _state_before: dict[str, Any] | None = None

    def __init__(
        self,
        run: Simulation,
        server: ServerHandle,
        device: int,
        trigger: int,
        task: int,
        snapshot: Snapshot,
        seconds: float | None,
        reserved: bool,
    ) -> None:
        self._run, self._server, self.id, self.trigger, self._task = run, server, device, trigger, task
        self._snapshot = self._trigger_snapshot = snapshot
        self._seconds, self._reserved = seconds, reserved
        self._triggered_at = run.kernel.now
        self.profile = run.devices.profile(device, trigger)
        if not run.undisturbed:
            self._struck = run.strike(device, trigger)
            if run.checkpointing:
                self._journal = []
                self._state_before = run.copy_of_state(device)

    def __str__(self) -> str:
        return "the pooled device" if self.id == POOLED else f"device {self.id}"

    @property
    def now(self) -> float:
        """Virtual time, seconds."""
        return self._run.kernel.now

    @property
    def state(self) -> dict[str, Any]:
        """Plain data that the device keeps between triggers."""
        return self._run.device_state.setdefault(self.id, {})

    @property
    def num_samples(self) -> int:
        """How many training samples the device holds."""
        if not self._samples:
            self._samples = self._run.task.num_samples(self.id)
        return self._samples

    @property
    def num_parameters(self) -> int:
        """How many entries at the beginning of a model are trained; those behind are statistics."""
        return self._run.lengths["gradient"]

    @property
    def segments(self) -> tuple[int, ...]:
        """Sizes of the parameter tensors, in their order in a model."""
        return self._run.segments

    @property
    def local_steps(self) -> int:
        """Mini-batches of a task, as the run's settings say."""
        settings = self._run.training
        return settings.epochs * self.steps_per_epoch if settings.steps is None else settings.steps

    @property
    def steps_per_epoch(self) -> int:
        """Mini-batches of a pass over the device's data."""
        return -(-self.num_samples // self._run.training.batch_size)

    @property
    def training(self) -> LocalTraining:
        """The run's settings of local training."""
        return self._run.training

    @property
    def lr(self) -> float:
        """Step size of this task as the run's settings say: that of the version with which it was triggered."""
        return self._run.training.lr_at(self._trigger_snapshot.version)

    @property
    def cluster(self) -> Cluster:
        """What is known about the devices of its server, itself among them."""
        return self._run.clusters[self._server.number]

    @property
    def rng(self) -> np.random.Generator:
        """A new random stream of this task, for the algorithm's own draws."""
        self._calls += 1
        return stream(self._run.seed, "device", self.id, self.trigger, self._calls)

    def step_seconds(self, trial: int | None = None) -> float:
        """Return the time of one local step as declared, or as drawn for `trial` >= 0, one before the run."""
        profile = self._run.devices.profile(self.id, None if trial is None else -1 - trial)
        return profile.train_seconds(1, self.steps_per_epoch)

    def upload_seconds(self, size: float) -> float:
        """Return the time to send `size` bytes."""
        return self.profile.up_seconds(size)

    async def download(self, *, bytes_down: float | None = None) -> Snapshot:
        """Receive the global model: the one of the trigger, and on later calls the newest one.

        With `bytes_down` the transfer is of a part, to which the program has to keep: the whole model is at hand.
        """
        snapshot = self._snapshot
        if snapshot is None:
            snapshot = await self._request()
        self._snapshot = None
        size: float = snapshot.model.nbytes
        if bytes_down is not None:
            if not 0 <= bytes_down < inf:
                raise RunError(f"bytes_down = {bytes_down} is not valid: it should be a number >= 0")
            self._send_less(size - bytes_down)
            size = bytes_down
        if self._seconds is None:
            began = self.now
            if self._run.links:
                await self._transfer("download", size)
            elif (seconds := self.profile.down_seconds(size, self.now)) > 0:
                await self._spend("download", seconds)
            if (power := self._run.power) is not None:
                joules = power.down_joules_per_byte * size + power.radio_watts * (self.now - began)
                self._draw("joules_transfer", joules)
        return snapshot

    async def download_newer(self, than: Snapshot) -> Snapshot | None:
        """Ask for a global model that is newer than `than` and receive it; None, at no cost, if there is none.

        The question is put after the arrivals of that instant, and waits while the server is down.
        """
        if self._seconds is not None:
            why = "this world draws staleness instead of simulating time"
            raise RunError(f"{self} cannot ask for a newer model: {why}")
        self._snapshot = await self._request(than.version)
        return None if self._snapshot is None else await self.download()

    async def ask(self, question: Any) -> Any:
        """Return what the algorithm's ``answer(server, device, question)`` says, at once; no bytes are counted."""
        if self._replay:
            return self._replayed()
        answer = self._run.algorithm.answer(self._server, self, question)
        self._record(answer)
        return answer

    async def train(
        self,
        model: Tensor,
        *,
        steps: int | None = None,
        epochs: int | None = None,
        lr: float | None = None,
        objective: Objective | None = None,
        contrast: Contrast | None = None,
        correction: Correction | None = None,
        cost: float = 1.0,
    ) -> Trained:
        """Run local SGD from `model` ``[d]`` and return the result after the virtual time that it costs.

        The model is not changed; for a proximal `objective` it is the anchor. `steps` (mini-batches) or `epochs`, and
        `lr`, are by default as the run's settings say. `objective` and `contrast` are terms added to the local loss;
        `correction` is what is done to the gradient of each step, with a memory. `cost` is the virtual time of a
        step, in steps of plain training: below 1 if only a part of the model is trained. With momentum, a second call
        in the same task goes on with the velocity of the first.
        """
        settings, samples, key, cursor = self._next_batch()
        per_epoch = -(-samples // settings.batch_size)
        if steps is not None or epochs is not None:
            steps = self._told(steps, epochs, per_epoch)
        elif (steps := settings.steps) is None:
            steps = settings.epochs * per_epoch
        if lr is None:
            lr = settings.lr_at(self._trigger_snapshot.version)
        elif not 0 <= lr < inf:
            raise RunError(f"{self} cannot train with lr = {lr}: it should be a number >= 0")
        if not cost >= 0:
            raise RunError(f"{self} cannot train at cost = {cost}: it should be a number >= 0")
        self._calls += 1
        job = TrainJob(model, self.id, samples, steps, settings.batch_size, lr, settings.weight_decay, objective, key)
        if contrast is not None or correction is not None or cursor is not None:
            job.contrast, job.correction, job.cursor = contrast, correction, cursor
        if settings.momentum:
            job.momentum = settings.momentum
            job.velocity = self._velocity if settings.momentum_reset else self.state.get("velocity")
        seconds = self._seconds or cost * self.profile.train_seconds(steps, per_epoch)
        trained: Trained = await self._work(job, seconds)
        before, self._steps = self._steps, self._steps + steps
        self._loss = (before * self._loss + steps * trained.loss) / self._steps if before else trained.loss
        if settings.momentum and not settings.momentum_reset:
            self.state["velocity"] = trained.velocity
        else:
            self._velocity = trained.velocity
        if cursor is not None:
            self.state["cursor"] = cursor + steps
        return trained

    async def gradient(self, model: Tensor | None, *, objective: Objective | None = None) -> Gradient:
        """Return the gradient ``[p]`` of one mini-batch at `model` ``[d]``, after the time of one local step.

        None: at the model that the server has then, without a transfer, as in WKAFL's published programs (E30).
        """
        settings, samples, key, cursor = self._next_batch()
        self._calls += 1
        start = self._server.model if model is None else model
        job = GradientJob(start, self.id, samples, settings.batch_size, settings.weight_decay, objective, key, cursor)
        seconds = self._seconds or self.profile.train_seconds(1, -(-samples // settings.batch_size))
        found: Gradient = await self._work(job, seconds, model is None)
        self._steps += 1
        self._loss = found.loss
        if cursor is not None:
            self.state["cursor"] = cursor + 1
        return found

    async def loss(self, model: Tensor, *, samples: int | None = None) -> float:
        """Return the mean loss of `model` ``[d]`` on the device's first `samples` training samples; takes no time."""
        job = LossJob(model, self.id, self.num_samples if samples is None else samples)
        return float(await self._work(job, 0.0))

    async def peek(self, model: Tensor, *, others: Sequence[Tensor] = ()) -> Peek:
        """Look at the first mini-batch of the next :meth:`train`, with `model` ``[d]``; takes no time, is no step.

        Of `others` ``[d]`` only the loss is wanted.
        """
        settings, samples, key, cursor = self._next_batch()
        job = PeekJob(model, tuple(others), self.id, samples, settings.batch_size, key, cursor)
        seen: Peek = await self._work(job, 0.0)
        return seen

    async def upload(self, *, based_on: Snapshot, bytes_up: float | None = None, **payload: Any) -> None:
        """Send `payload`, such as ``model=``, ``delta=`` or ``gradient=``, once per task; returns when it is there.

        Staleness counts from the version `based_on`. Tensors and arrays count as bytes, unless `bytes_up` says how
        long their form on the wire, e.g. compressed, is. What ``device.state`` holds may be changed in place later
        on: the server has what was sent. Any other tensor must stay as it is.
        """
        if self._sent:
            raise RunError("a task sends one upload; this is its second")
        if not TAKEN.isdisjoint(payload):
            own = min(TAKEN.intersection(payload))
            raise RunError(f"{self} cannot upload {own}=: every upload has that of its own; choose another name")
        size: float = 0
        kept = self._run.device_state.get(self.id)
        for name, value in payload.items():
            if value.__class__ is Tensor or isinstance(value, Tensor):  # isinstance() alone asks a slow metaclass
                size += value.nbytes
                if kept:
                    payload[name] = value.clone()
            elif isinstance(value, np.ndarray):
                size += value.nbytes
                if kept:
                    payload[name] = value.copy()
        if bytes_up is not None:
            if not 0 <= bytes_up < inf:
                raise RunError(f"bytes_up = {bytes_up} is not valid: it should be a number >= 0")
            size = bytes_up
        if self._run.sanitizer is not None:
            self._run.sanitizer.sending(self, payload)
        seconds, began = 0.0, self.now
        if self._seconds is None:
            if self._run.links and "upload" in self._run.links[self._server.number]:
                await self._transfer("upload", size)
            else:
                seconds = self.profile.up_seconds(size, self.now)
        arrived = await self._send(payload, seconds, size)
        if (power := self._run.power) is not None:
            self._draw("joules_transfer", power.up_joules_per_byte * size + power.radio_watts * (self.now - began))
        if arrived is None:
            return
        if self._seconds is not None:
            # In a sampled timeline the dispatch is only a way of writing it down, so the model that was sent is
            # counted now, together with the one that is received: two transfers per global epoch.
            self._server.counters["bytes_down"] -= self._saved_bytes
            self._server._count_download()
        made_from = self._server, self.id, self._task, based_on.version, self.now
        upload = Upload(*made_from, self.num_samples, self._steps, self._loss, arrived)
        self._server._deliver(upload, size, None if arrived is payload else payload)
        self._record()

    def _told(self, steps: int | None, epochs: int | None, per_epoch: int) -> int:
        """Return the mini-batches of a task that its program has told, as `steps` or `epochs`."""
        if steps is not None and epochs is not None:
            raise RunError(f"{self} is told steps = {steps} and epochs = {epochs}: give one of them")
        told: float = epochs * per_epoch if steps is None else steps  # type: ignore[operator]  # one of them is given
        if not (told >= 1 and told % 1 == 0):
            raise RunError(f"{self} cannot train for {told} steps: steps and epochs must be whole, at least 1")
        return int(told)  # a NumPy number could not be stored

    def _draw(self, what: str, joules: float) -> None:
        """Count what has been drawn; a task that is resumed has counted it."""
        if not self._resuming:
            self._server.counters[what] += joules

    def _next_batch(self) -> tuple[LocalTraining, int, tuple[int, str, int, int, int], int | None]:
        """Return the settings, the number of samples, and what decides the order of the next job's mini-batches."""
        settings, samples = self._run.training, self._samples or self.num_samples
        if not samples:
            raise RunError(f"{self} has no training samples; choose a partition that gives every device some")
        key = (self._run.seed, "batches", self.id, self.trigger, self._calls + 1)
        return settings, samples, key, self.state.get("cursor", 0) if settings.order == "cyclic" else None

    def _send_less(self, size: float) -> None:
        """Note that `size` bytes of the model that was counted are not sent; a task that is resumed has done so."""
        if self._seconds is not None:
            self._saved_bytes += size
        elif not self._resuming:
            self._server.counters["bytes_down"] -= size

    # What takes virtual time. These are generators, not coroutines that await one more: a million of them are run.

    @types.coroutine
    def _work(self, job: Job, seconds: float, newest: bool = False) -> Generator[Any, Any, Any]:
        """Have `job` computed while its virtual `seconds` pass, or, from the server's `newest` model, after them."""
        run, crash = self._run, None
        finish = run.kernel.now + seconds
        if run.undisturbed:
            ticket = None if newest else run.executor.submit(job, finish)
        else:
            struck = [(fault.interrupt(seconds, rng), fault) for fault, rng in self._struck] if seconds else []
            if self._replay:
                return self._replayed()
            pauses, crash = self._interruptions([(pause, fault) for pause, fault in struck if pause is not None])
            finish = self._plan("train", seconds if crash is None else crash[0].after, pauses)
            if finish == inf:
                yield from self._vanish()
            ticket = None if newest or crash is not None else run.executor.submit(job, finish)
        yield finish, Kind.PROGRESS
        if run.power is not None:
            at_work = seconds if crash is None else crash[0].after
            self._draw("joules_compute", 0.0 if self.id == POOLED else run.power.watts(self.id) * at_work)
        if crash is not None:
            self._crash(*crash)
        if ticket is None:
            assert isinstance(job, GradientJob)  # the only one that begins with the newest model
            job.start = self._server.model
            ticket = run.executor.submit(job, run.kernel.now)
        result = run.executor.result(ticket)
        if run.checkpointing:
            self._record(result)
        return result

    @types.coroutine
    def _spend(self, activity: str, seconds: float) -> Generator[Any, Any, None]:
        """Let virtual time pass."""
        run = self._run
        finish = run.kernel.now + seconds
        if not run.undisturbed:
            if self._replay:
                self._replayed()
                return
            finish = self._plan(activity, seconds)
            if finish == inf:
                yield from self._vanish()
        yield finish, Kind.PROGRESS
        self._record()

    async def _transfer(self, way: str, size: float) -> None:
        """Let the time of a transfer pass, over the server's own link where that is finite."""
        link = self._run.links[self._server.number].get(way)
        if link is None:
            if (seconds := self.profile.down_seconds(size, self.now)) > 0:
                await self._spend(way, seconds)
            return
        if self.profile.latency_seconds:
            await self._spend(way, self.profile.latency_seconds)
        own = self.profile.down_bits_per_second if way == "download" else self.profile.up_bits_per_second
        await self._share(link, way, 8 * size, inf if own is None else own)

    @types.coroutine
    def _share(self, link: SharedLink, way: str, bits: float, limit: float) -> Generator[Any, Any, None]:
        """Let a transfer pass over a link that others use, too; of each look is kept when it will be the next."""
        began = self._run.kernel.now
        while True:
            if self._replay:
                end = self._replayed()
            else:
                end = link.look(self._task, bits, limit, self._run.kernel.now) if bits else None
                self._record(end)
            if end is None:
                break
            if self._replay:
                self._replayed()
                continue
            self._resuming = False
            yield end, Kind.PROGRESS
            self._record()
        if self._run.tracing and not self._replay and not self._resuming:
            self._trace(way, began, self._run.kernel.now)

    @types.coroutine
    def _send(self, payload: dict[str, Any], seconds: float, size: float) -> Generator[Any, Any, Any]:
        """Let the transfer pass, with what goes wrong; return what arrives, or None if that is nothing (any more)."""
        run, arrived = self._run, payload
        finish = run.kernel.now + seconds
        if not run.undisturbed:
            messages = self._disturbed(payload)
            if messages:
                seconds, arrived = seconds + messages[0].delay, messages[0].payload
            for number, copy in enumerate(messages[1:]):
                first = self._intervals(seconds)[-1][1]
                self._send_again(first + (copy.delay - messages[0].delay), size, number)
            if self._replay:
                self._sent = True
                return self._replayed()
            finish = self._plan("upload", seconds)
            if finish == inf:
                yield from self._vanish()
        yield finish, Kind.ARRIVAL
        self._sent = True
        if not run.undisturbed and not messages:
            self._server._lose(self)
            self._record()
            return None
        return arrived

    async def _request(self, than: int = -1) -> Any:
        """Ask the server, when it is up, for a model newer than version `than`; None if there is none."""
        if self._replay:
            return self._replayed()
        kernel = self._run.kernel
        self._resuming = False
        await sleep_until(max(kernel.now, self._server.up_at), Kind.REQUEST)
        while kernel.now < self._server.up_at:  # it went down again meanwhile
            await sleep_until(self._server.up_at, Kind.REQUEST)
        snapshot = self._server._send_snapshot(than)
        self._record(snapshot)
        return snapshot

    def _vanish(self) -> Generator[Any, Any, None]:
        """Wait for the end of the last window of a device that goes away for good; then its task is lost."""
        yield self._gone_at, Kind.PROGRESS
        self._server._lose(self)
        raise Crashed

    # What goes wrong.

    def _disturbed(self, payload: dict[str, Any]) -> list[Message]:
        """Return what becomes of an upload, first come first."""
        messages = [Message(payload)]
        for fault, rng in self._struck:
            if not messages:
                break
            sent = fault.send(messages, rng)
            if sent is not messages:
                self._log(fault, self._run.kernel.now)
            messages = sent
        return sorted(messages, key=lambda message: message.delay)

    def _interruptions(
        self, struck: list[tuple[Interruption, Fault]]
    ) -> tuple[list[Interruption], tuple[Interruption, Fault] | None]:
        """Return the pauses of local work before its crash, and the crash if there is one."""
        pauses: list[Interruption] = []
        for pause, fault in sorted(struck, key=lambda pair: pair[0].after):
            if pause.fatal:
                return pauses, (pause, fault)
            begins = self._intervals(pause.after, pauses)[-1][1]
            if begins < inf:
                self._log(fault, begins)
            pauses.append(pause)
        return pauses, None

    def _crash(self, crash: Interruption, fault: Fault) -> None:
        """End the task, and have the device recover."""
        run = self._run
        self._log(fault, run.kernel.now)
        self._server._lose(self)
        if self._reserved and crash.seconds > 0:
            run.timers.keep_away(self.id, crash.seconds)
            if run.tracing:
                self._trace("down", run.kernel.now, run.kernel.now + crash.seconds)
        raise Crashed

    def _plan(self, activity: str, seconds: float, pauses: Sequence[Interruption] = ()) -> float:
        """Return when an activity that begins now will end; inf if the device goes away for good before."""
        intervals = self._intervals(seconds, pauses)
        finish, before = intervals[-1][1], self._run.kernel.now
        if finish == inf:
            self._gone_at = max([before, *(stop for _, stop in intervals if stop < inf)])
        if self._run.tracing and not self._resuming and finish > before:
            for start, stop in intervals:
                self._trace("down", before, start)
                self._trace(activity, start, stop)
                before = stop
        self._resuming = False
        return finish

    def _intervals(self, seconds: float, pauses: Sequence[Interruption] = ()) -> list[tuple[float, float]]:
        """Return from when to when the device works on something that takes `seconds` and begins now."""
        run, intervals = self._run, []
        time, done = run.kernel.now, 0.0
        windows = not run.devices.always_available and self.id != POOLED and self._seconds is None
        for after, away in [*((pause.after, pause.seconds) for pause in pauses), (seconds, 0.0)]:
            left = after - done
            if windows:
                time = run.devices.resume_at(self.id, time)
                while (stop := run.devices.leaves_at(self.id, time)) < time + left:
                    intervals.append((time, stop))
                    left -= stop - time
                    time = run.devices.resume_at(self.id, stop)
                    if len(intervals) > MOST_WINDOWS:
                        many = f"more than {MOST_WINDOWS:,} windows of time during {seconds:g} s of work"
                        hint = "give its availability in longer ones, or slow its computing down instead"
                        raise RunError(f"{self} is there for {many}: {hint}")
            intervals.append((time, time + left))
            time, done = time + left + away, after
        return intervals

    # What is kept of it.

    def _trace(self, activity: str, start: float, end: float) -> None:
        if start < end < inf:
            spans, version = self._run.history.spans, self._trigger_snapshot.version
            what = {"task": self._task, "device": self.id, "activity": activity}
            append(spans, **what, start=start, end=end, base_version=version)

    def _log(self, fault: Fault, seconds: float) -> None:
        if not self._replay and not self._resuming:
            self._run.log_fault(self.id, self._task, fault.kind, seconds)

    def _send_again(self, seconds: float, size: float, number: int) -> None:
        if not self._replay and not self._resuming:
            arguments = (self._server.number, self._task, self.id, size, number)
            self._run.timers.add(seconds, Kind.ARRIVAL, self._task, "duplicate", *arguments)

    def _record(self, value: Any = None) -> None:
        """Keep what the program has just been given, and when."""
        if self._run.checkpointing:
            kept = value if type(value) is Snapshot else deepcopy(value)
            state = None if self._reserved else self._run.copy_of_state(self.id)
            self._journal.append((self._run.kernel.now, kept, state))

    def _replayed(self) -> Any:
        """Return what the next effect of a resumed task gave, and set the clock to when that was."""
        self._run.kernel.now, value, state = self._replay.popleft()
        if not self._reserved:
            self.state.clear()
            self.state.update(state or {})
        return value

    def _end(self) -> None:
        """Note that the program is over."""
        del self._run.running[self._task]
        self._server._ended(self)
