"""The device's side of a task: what a device program may await."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from fl_core.errors import RunError
from fl_core.runtime.effects import Effects
from fl_core.runtime.kernel import Kind, sleep_until
from fl_core.runtime.local import Gradient, GradientJob, LossJob, Peek, PeekJob, Trained, TrainJob
from fl_core.runtime.messages import LocalTraining, Snapshot, Upload
from fl_core.streams import stream
from fl_core.tasks import Contrast, Correction, Objective

if TYPE_CHECKING:
    from fl_core.runtime.messages import Cluster


class DeviceHandle(Effects):
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
