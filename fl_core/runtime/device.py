"""The device's side of a task: what a device program may await."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from fl_core.errors import RunError
from fl_core.runtime.executors import Ticket
from fl_core.runtime.kernel import Crashed, Kind, sleep_until
from fl_core.runtime.local import Gradient, GradientJob, Job, LossJob, Peek, PeekJob, Trained, TrainJob
from fl_core.runtime.messages import Snapshot, Upload
from fl_core.runtime.settings import LocalTraining
from fl_core.streams import stream
from fl_core.tasks import POOLED, Contrast, Correction, Objective
from fl_core.world import DeviceProfile
from fl_core.world.faults import Fault, Interruption, Message

if TYPE_CHECKING:
    from fl_core.runtime.edge import Cluster
    from fl_core.runtime.server import ServerHandle
    from fl_core.runtime.simulation import Simulation


MOST_WINDOWS = 10_000
"""So many windows of availability may a device need for one activity."""


class DeviceHandle:
    """One task of one device, from trigger to upload.

    Attributes
    ----------
    id : int
        Device number (:data:`fl_core.tasks.POOLED` for single-machine SGD).
    trigger : int
        How often this device has been triggered before.
    profile : DeviceProfile
        What computing and communicating costs this task.
    """

    _snapshot: Snapshot | None
    _calls = _steps = _samples = 0
    _loss = float("nan")
    _sent = False
    _saved_bytes = 0.0
    _velocity: Tensor | None = None
    _struck: Sequence[tuple[Fault, np.random.Generator]] = ()
    # What a resumed run needs to bring a new coroutine to where this one waits: see fl_core.runtime.checkpoint.
    _journal: list[tuple[Any, ...]]
    _replay: Sequence[tuple[float, Any]] = ()
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
        self.profile: DeviceProfile = run.devices.profile(device, trigger)
        if not run.plain:
            self._struck = run.strike(device, trigger)
            if run.checkpointing:
                self._journal = []
                self._state_before = run.copy_of_state(device)

    def end(self) -> None:
        """Note that the program is over."""
        del self._run.running[self._task]
        self._server.ended(self)

    def __str__(self) -> str:
        return "the pooled device" if self.id == POOLED else f"device {self.id}"

    @property
    def now(self) -> float:
        """Virtual time, seconds."""
        return self._run.kernel.now

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
    def state(self) -> dict[str, Any]:
        """Plain data that the device keeps between triggers."""
        return self._run.device_state.setdefault(self.id, {})

    @property
    def rng(self) -> np.random.Generator:
        """A new random stream of this task, for the algorithm's own draws."""
        self._calls += 1
        return stream(self._run.seed, "device", self.id, self.trigger, self._calls)

    def step_seconds(self, trial: int | None = None) -> float:
        """Return the time of one local step as the world declares it, before anything that is drawn for each task.

        With `trial`, a number >= 0: the time in that trial before the run, drawn as a task's is where tasks differ.
        """
        profile = self._run.devices.profile(self.id, None if trial is None else -1 - trial)
        return profile.train_seconds(1, -(-self.num_samples // self._run.training.batch_size))

    def upload_seconds(self, size: float) -> float:
        """Return the time to send `size` bytes."""
        return self.profile.up_seconds(size)

    async def download(self, *, bytes_down: float | None = None) -> Snapshot:
        """Receive the global model: the one of the trigger, and on later calls the newest one.

        Parameters
        ----------
        bytes_down : float, optional
            Size on the wire if only a part of the model is sent: for the time of the transfer and for the counter of
            bytes. The whole model is at hand all the same; the program has to keep to its part.
        """
        snapshot = self._snapshot
        if snapshot is None:
            snapshot = await self._request()
        self._snapshot = None
        size: float = snapshot.model.nbytes
        if bytes_down is not None:
            self._send_less(size - bytes_down)
            size = bytes_down
        if self._seconds is None:
            seconds = self.profile.down_seconds(size)
            if not self._run.plain:
                await self._spend("download", seconds)
            elif seconds:
                await sleep_until(self._run.kernel.now + seconds, Kind.PROGRESS)
        return snapshot

    async def ask(self, question: Any) -> Any:
        """Return what the algorithm's ``answer(server, device, question)`` says, at once.

        For numbers that travel with a model: neither time nor bytes are counted.
        """
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

        Parameters
        ----------
        model : Tensor
            Start and, for a proximal `objective`, anchor. It is not changed.
        steps, epochs : int, optional
            Local work: mini-batches, or passes over the device's data, at least 1; by default as the run's settings
            say.
        lr : float, optional
            Step size; by default :attr:`lr`.
        objective : Objective, optional
            A term added to the local loss.
        contrast : Contrast, optional
            A term of the local loss that compares representations with those under other models.
        correction : Correction, optional
            What is done to the gradient of each step, with a memory.
        cost : float
            Virtual time of a step, in steps of plain training: above 1 if it takes more, below 1 if only a part of
            the model is trained.

        Notes
        -----
        With momentum, a second call in the same task goes on with the velocity of the first.

        Raises
        ------
        RunError
            If the device has no training samples, or nothing is to be done.
        """
        settings, samples = self._run.training, self.num_samples
        if not samples:
            raise self._no_samples()
        if steps is None and epochs is None:
            steps, epochs = settings.steps, settings.epochs
        per_epoch = -(-samples // settings.batch_size)
        if steps is None:
            steps = epochs * per_epoch  # type: ignore[operator]  # one of the two is given
        if steps < 1:
            raise RunError(f"{self} cannot train for {steps} steps: steps and epochs must be at least 1")
        lr = self.lr if lr is None else lr
        self._calls += 1
        key = (self._run.seed, "batches", self.id, self.trigger, self._calls)
        job = TrainJob(model, self.id, samples, steps, settings.batch_size, lr, settings.weight_decay, objective, key)
        job.contrast, job.correction = contrast, correction
        if settings.momentum:
            job.momentum = settings.momentum
            job.velocity = self._velocity if settings.momentum_reset else self.state.get("velocity")
        if settings.order == "cyclic":
            job.cursor = self.state.get("cursor", 0)
        seconds = self._seconds or cost * self.profile.train_seconds(steps, per_epoch)
        run = self._run
        if run.plain:  # as _work does, with one coroutine less
            finish = run.kernel.now + seconds
            ticket = run.executor.submit(job, finish)
            await sleep_until(finish, Kind.PROGRESS)
            trained: Trained = run.executor.result(ticket)
        else:
            trained = await self._work(job, seconds)
        before, self._steps = self._steps, self._steps + steps
        self._loss = (before * self._loss + steps * trained.loss) / self._steps if before else trained.loss
        if settings.momentum and not settings.momentum_reset:
            self.state["velocity"] = trained.velocity
        else:
            self._velocity = trained.velocity
        if job.cursor is not None:
            self.state["cursor"] = job.cursor + steps
        return trained

    async def gradient(self, model: Tensor | None, *, objective: Objective | None = None) -> Gradient:
        """Return the gradient ``[p]`` of one mini-batch at `model` ``[d]``, after the time of one local step.

        None: at the model that the server has when that time is over, as if the device shared its memory. No transfer
        is counted; WKAFL's published programs are like that (E30 of its specification).
        """
        settings, samples = self._run.training, self.num_samples
        if not samples:
            raise self._no_samples()
        self._calls += 1
        key = (self._run.seed, "batches", self.id, self.trigger, self._calls)
        cursor = self.state.get("cursor", 0) if settings.order == "cyclic" else None
        start = self._server.model if model is None else model
        job = GradientJob(start, self.id, samples, settings.batch_size, settings.weight_decay, objective, key, cursor)
        seconds = self._seconds or self.profile.train_seconds(1, -(-samples // settings.batch_size))
        found: Gradient = await self._work(job, seconds, newest=model is None)
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
        """Look at the mini-batch with which the next :meth:`train` begins; takes no time and is no step.

        Parameters
        ----------
        model : Tensor
            ``[d]``; the gradient is that of the first step of a training that begins with it.
        others : sequence of Tensor
            Further models ``[d]`` whose loss is wanted.
        """
        settings, samples = self._run.training, self.num_samples
        if not samples:
            raise self._no_samples()
        key = (self._run.seed, "batches", self.id, self.trigger, self._calls + 1)
        cursor = self.state.get("cursor", 0) if settings.order == "cyclic" else None
        seen: Peek = await self._work(
            PeekJob(model, tuple(others), self.id, samples, settings.batch_size, key, cursor), 0.0
        )
        return seen

    async def download_newer(self, than: Snapshot) -> Snapshot | None:
        """Ask for a global model that is newer than `than` and receive it; None if there is none.

        The question takes no time, and an answer that there is none takes none and no bytes either. It is put after
        the arrivals of that instant, and waits while the server is down.

        Raises
        ------
        RunError
            If the world draws staleness: then there is no time at which a device could ask.
        """
        if self._seconds is not None:
            raise RunError(
                f"{self} cannot ask for a newer model: this world draws staleness instead of simulating time"
            )
        self._snapshot = await self._request(than.version)
        return None if self._snapshot is None else await self.download()

    async def upload(self, *, based_on: Snapshot, bytes_up: float | None = None, **payload: Any) -> None:
        """Send `payload` to the server, once per task; returns when the server has it.

        Parameters
        ----------
        based_on : Snapshot
            The global model that the payload was made from; staleness counts from its version.
        bytes_up : float, optional
            Size on the wire of a payload that is sent in another form than its tensors, e.g. compressed: for the time
            of the transfer and for the counter of bytes, which is not rounded.
        **payload
            Named content, e.g. ``model=``, ``delta=`` or ``gradient=``; tensors count as bytes on the wire. What
            ``device.state`` holds may be changed in place later on: the server has what was sent. Any other tensor
            must stay as it is.

        Raises
        ------
        RunError
            If this task has sent something already, or if the size is not a number >= 0.
        """
        if self._sent:
            raise RunError("a task sends one upload; this is its second")
        size: float = 0
        run, sent = self._run, None
        kept = run.device_state.get(self.id)
        for name, value in payload.items():
            if value.__class__ is Tensor or isinstance(value, Tensor):  # isinstance() alone asks a slow metaclass
                size += value.nbytes
                if kept:
                    payload[name] = value.clone()
        if bytes_up is not None:
            if not 0 <= bytes_up < inf:
                raise RunError(f"bytes_up = {bytes_up} is not valid: it should be a number >= 0")
            size = bytes_up
        seconds = self.profile.up_seconds(size) if self._seconds is None else 0.0
        if run.plain:
            await sleep_until(run.kernel.now + seconds, Kind.ARRIVAL)
        else:
            sent, arrived = payload, await self._send(payload, seconds, size)
            if arrived is None:
                return
            payload = arrived
        self._sent = True
        if self._seconds is not None:
            # In a sampled timeline the dispatch is only a way of writing it down, so the model that was sent is
            # counted now, together with the one that is received: two transfers per global epoch.
            self._server.counters["bytes_down"] -= self._saved_bytes
            self._server.count_download()
        upload = Upload(
            self._server, self.id, self._task, based_on.version, run.kernel.now, self.num_samples, self._steps,
            self._loss, payload,
        )  # fmt: skip
        self._server.deliver(upload, size, sent)
        self._record()

    def _send_less(self, size: float) -> None:
        """Note that `size` bytes of the model that was counted are not sent; a task that is resumed has done so."""
        if self._seconds is not None:
            self._saved_bytes += size
        elif not self._resuming:
            self._server.counters["bytes_down"] -= size

    def _no_samples(self) -> RunError:
        return RunError(f"{self} has no training samples; choose a partition that gives every device some")

    async def _send(self, payload: dict[str, Any], seconds: float, size: float) -> dict[str, Any] | None:
        """Let the transfer pass, with what goes wrong; return what arrives, or None if that is nothing (any more)."""
        messages = [Message(payload)]
        for fault, rng in self._struck:
            if not messages:
                break
            sent = fault.send(messages, rng)
            if sent is not messages:
                self._log(fault, self._run.kernel.now)
            messages = sent
        messages.sort(key=lambda message: message.delay)
        if messages:
            seconds += messages[0].delay
            if len(messages) > 1:
                first = self._intervals(seconds, ())[-1][1]
                for number, copy in enumerate(messages[1:]):
                    self._send_again(first + (copy.delay - messages[0].delay), size, number)
        if not self._replay:
            await self._pass("upload", seconds, Kind.ARRIVAL)
        self._sent = True
        if self._replay:
            self._replayed()
        elif messages:
            return messages[0].payload
        else:
            self._server.lose(self)
            self._record()
        return None

    async def _request(self, than: int = -1) -> Any:
        """Ask the server for a model newer than version `than`, or return None.

        It answers after the arrivals of that instant, and when it is up.
        """
        if self._replay:
            return self._replayed()
        kernel = self._run.kernel
        self._resuming = False
        await sleep_until(max(kernel.now, self._server.up_at), Kind.REQUEST)
        while kernel.now < self._server.up_at:  # it went down again meanwhile
            await sleep_until(self._server.up_at, Kind.REQUEST)
        snapshot = self._server.send_snapshot(than)
        self._record(snapshot)
        return snapshot

    async def _work(self, job: Job, seconds: float, newest: bool = False) -> Any:
        """Have `job` computed while its virtual `seconds` pass, with what interrupts it.

        With `newest` it is computed when they have passed, and starts from the server's model of that time.
        """
        run = self._run
        if run.plain:
            finish = run.kernel.now + seconds
            ticket = None if newest else run.executor.submit(job, finish)
            await sleep_until(finish, Kind.PROGRESS)
            return run.executor.result(ticket or self._on_newest(job))
        pauses = []
        for fault, rng in self._struck if seconds else ():
            pause = fault.interrupt(seconds, rng)
            if pause is not None:
                pauses.append((pause, fault))
        if self._replay:
            return self._replayed()
        if not pauses and run.devices.always_available:
            ticket = None if newest else run.executor.submit(job, run.kernel.now + seconds)
            await self._pass("train", seconds, Kind.PROGRESS)
            result = run.executor.result(ticket or self._on_newest(job))
        else:
            result = await self._interrupted(job, seconds, pauses, newest)
        self._record(result)
        return result

    def _on_newest(self, job: Any) -> Ticket:
        """Submit `job` with the server's present model as its start."""
        job.start = self._server.model
        return self._run.executor.submit(job, self._run.kernel.now)

    async def _interrupted(
        self, job: Job, seconds: float, struck: list[tuple[Interruption, Fault]], newest: bool
    ) -> Any:
        """Have `job` computed although its device is called away, or crashes before it is done."""
        run = self._run
        struck.sort(key=lambda pair: pair[0].after)
        pauses: list[Interruption] = []
        crash = None
        for pause, fault in struck:
            if pause.fatal:
                crash, seconds = (pause, fault), pause.after
                break
            begins = self._intervals(pause.after, pauses)[-1][1]
            if begins < inf:
                self._log(fault, begins)
            pauses.append(pause)
        finish = self._intervals(seconds, pauses)[-1][1]
        submitted = crash is None and finish < inf and not newest
        ticket = run.executor.submit(job, finish) if submitted else None
        await self._pass("train", seconds, Kind.PROGRESS, pauses)
        if crash is not None:
            self._log(crash[1], run.kernel.now)
            self._server.lose(self)
            if self._reserved and crash[0].seconds > 0:
                run.keep_away(self.id, crash[0].seconds)
                if run.tracing:
                    until = run.kernel.now + crash[0].seconds
                    run.trace(self._task, self.id, "down", run.kernel.now, until, self._trigger_snapshot.version)
            raise Crashed
        return run.executor.result(ticket or self._on_newest(job))

    async def _spend(self, activity: str, seconds: float) -> None:
        """Let virtual time pass, if it is any."""
        if seconds > 0:
            if self._replay:
                self._replayed()
                return
            await self._pass(activity, seconds, Kind.PROGRESS)
            self._record()

    async def _pass(self, activity: str, seconds: float, kind: Kind, pauses: Sequence[Interruption] = ()) -> None:
        """Let the time of an activity pass; a device that goes away for good never ends it."""
        run = self._run
        intervals = self._intervals(seconds, pauses)
        finish = intervals[-1][1]
        if run.tracing and not self._resuming and finish > run.kernel.now:
            before = run.kernel.now
            for start, stop in intervals:
                for what, first, last in (("down", before, start), (activity, start, stop)):
                    if first < last < inf:
                        run.trace(self._task, self.id, what, first, last, self._trigger_snapshot.version)
                before = stop
        self._resuming = False
        if finish == inf:
            await sleep_until(max([run.kernel.now, *(stop for _, stop in intervals if stop < inf)]), Kind.PROGRESS)
            self._server.lose(self)
            raise Crashed
        await sleep_until(finish, kind)

    def _intervals(self, seconds: float, pauses: Sequence[Interruption]) -> list[tuple[float, float]]:
        """Return from when to when the device works on something that takes `seconds` and begins now.

        Raises
        ------
        RunError
            If it comes and goes more than :data:`MOST_WINDOWS` times meanwhile.
        """
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
                        raise RunError(
                            f"{self} is there for more than {MOST_WINDOWS:,} windows of time during {seconds:g} s of "
                            "work: give its availability in longer ones, or slow its computing down instead"
                        )
            intervals.append((time, time + left))
            time, done = time + left + away, after
        return intervals

    def _record(self, value: Any = None) -> None:
        """Keep what the program has just been given, and when."""
        if self._run.checkpointing:
            kept = value if type(value) is Snapshot else deepcopy(value)
            state = None if self._reserved else self._run.copy_of_state(self.id)
            self._journal.append((self._run.kernel.now, kept, state))

    def _replayed(self) -> Any:
        """Return what the next effect of a resumed task gave, and set the clock to when that was."""
        self._run.kernel.now, value, state = self._replay.popleft()  # type: ignore[attr-defined]
        if not self._reserved:
            self.state.clear()
            self.state.update(state or {})
        return value

    def _log(self, fault: Fault, seconds: float) -> None:
        if not self._replay and not self._resuming:
            self._run.log_fault(self.id, self._task, fault.kind, seconds)  # type: ignore[attr-defined]

    def _send_again(self, seconds: float, size: float, number: int) -> None:
        if not self._replay and not self._resuming:
            arguments = (self._server.number, self._task, self.id, size, number)
            self._run.timer(seconds, Kind.ARRIVAL, self._task, "duplicate", *arguments)
