"""The server's side: what a scheduler and an updater may call and await."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from fl_core.errors import RunError
from fl_core.runtime.device import DeviceHandle, Snapshot, Upload
from fl_core.runtime.history import COUNTERS, append
from fl_core.runtime.idle import IdleSet
from fl_core.runtime.kernel import Kind, Process, suspend
from fl_core.runtime.schedules import keep_busy, sampled_staleness
from fl_core.streams import stream
from fl_core.tasks import POOLED

if TYPE_CHECKING:
    from fl_core.runtime.simulation import Simulation


class ServerHandle:
    """The server as an algorithm sees it.

    Attributes
    ----------
    version : int
        Commits so far.
    idle : IdleSet
        Devices that are not working.
    state : dict
        Plain data that the algorithm keeps.
    rng : numpy.random.Generator
        The server's own random stream.
    """

    def __init__(self, run: Simulation, model: Tensor) -> None:
        self._run = run
        self._model = model
        self._frozen = model._version
        self.version = 0
        self.idle = IdleSet(len(run.devices))
        self.state: dict[str, Any] = {}
        self.rng = stream(run.seed, "server")
        self.in_flight = 0
        self.counters = dict.fromkeys(COUNTERS, 0)
        self._dispatched = 0
        self._triggers: dict[int, int] = {}
        self._inbox: deque[Upload] = deque()
        self._taken: list[Upload] = []
        self._receiver: tuple[Process, Callable[[], list[Upload] | None]] | None = None
        self._idle_waiters: list[Process] = []
        self._commit_waiters: list[Process] = []

    @property
    def model(self) -> Tensor:
        """The global model ``[d]``; read only: a new one is made by :meth:`commit`."""
        return self._model

    @property
    def now(self) -> float:
        """Virtual time, seconds."""
        return self._run.kernel.now

    @property
    def devices(self) -> range:
        """All device numbers."""
        return range(len(self._run.devices))

    def share(self, device: int) -> float:
        """Return the part of all training samples that `device` holds."""
        return self._run.task.num_samples(device) / self._run.task.num_samples(POOLED)

    def dispatch(self, devices: Iterable[int], *, seconds: float | None = None) -> None:
        """Trigger `devices` now, in the given order, each with the present global model.

        Parameters
        ----------
        devices : iterable of int
            Idle devices (:data:`fl_core.tasks.POOLED` for the imaginary machine with all data).
        seconds : float, optional
            Fix the whole duration of these tasks instead of letting the world decide. Only then may a device do
            several tasks at once: this is how a sampled staleness becomes a timeline.

        Raises
        ------
        RunError
            If a device is already working or does not exist.
        """
        for device in devices:
            device = int(device)
            if device != POOLED and seconds is None:
                if device not in self.idle:
                    known = device in self.devices
                    why = "is already working" if known else f"does not exist (0..{len(self.devices) - 1})"
                    raise RunError(f"cannot trigger device {device} at t = {self.now:g} s: it {why}")
                self.idle.remove(device)
            trigger = self._triggers.get(device, 0)
            self._triggers[device] = trigger + 1
            self._dispatched += 1
            self.in_flight += 1
            if seconds is None:
                self._count_download()
            snapshot = Snapshot(self._checked_model(), self.version)
            handle = DeviceHandle(self._run, device, trigger, self._dispatched, snapshot, seconds)
            program = self._run.algorithm.device(handle)
            name = "the pooled device" if device == POOLED else f"device {device}"
            end = self._ender(device, seconds is None)
            self._run.kernel.spawn(Process(program, name, self._dispatched, end))

    async def receive(
        self,
        count: int = 1,
        *,
        until: float | None = None,
        from_: Sequence[int] | None = None,
    ) -> list[Upload]:
        """Wait for uploads and take them.

        Parameters
        ----------
        count : int
            Take the first `count` uploads in order of arrival.
        until : float, optional
            Instead: wait until this virtual time and take all that have arrived, possibly none. An arrival exactly
            then is included.
        from_ : sequence of int, optional
            Instead: wait for one upload of each of these devices, and return them in this order.
        """
        if until is not None:
            await self._run.kernel.sleep_until(until, Kind.TICK, 0)
            uploads, self._inbox = list(self._inbox), deque()
        else:
            select = (lambda: self._from(from_)) if from_ is not None else (lambda: self._first(count))
            ready = select()
            if ready is None:
                ready = await suspend(lambda process: self._wait(process, select))
            uploads = ready
        self._taken.extend(uploads)
        return uploads

    async def sleep(self, seconds: float) -> None:
        """Wait for `seconds` of virtual time (a trigger tick)."""
        await self._run.kernel.sleep_until(self.now + seconds, Kind.TICK, 0)

    async def idle_changed(self) -> None:
        """Wait until a device has finished its task."""
        await suspend(self._idle_waiters.append)

    async def committed(self) -> None:
        """Wait until a new version exists."""
        await suspend(self._commit_waiters.append)

    async def keep_busy(self, concurrency: int) -> None:
        """Keep `concurrency` tasks in flight for ever: idle devices are triggered, drawn uniformly.

        In a world with sampled staleness that sampling decides instead, and `concurrency` has no meaning.
        """
        limit = self._run.devices.world.max_staleness
        if limit is None:
            await keep_busy(self, concurrency)
        else:
            await sampled_staleness(self, limit, self._run.seed)

    def commit(self, model: Tensor, *, weight: float = float("nan")) -> None:
        """Make `model` the next global version, applied from the uploads received since the last commit.

        Parameters
        ----------
        model : Tensor
            ``[d]``; must be a new tensor, not the old one changed in place.
        weight : float
            Mixing weight, for the record.

        Raises
        ------
        RunError
            If the old model was changed in place: devices may still hold it.
        """
        run = self._run
        self._checked_model()
        stale = [upload.staleness for upload in self._taken]
        self._model, self._frozen = model, model._version
        self.version += 1
        for upload, staleness in zip(self._taken, stale, strict=True):
            self.counters["gradients"] += upload.steps
            append(
                run.history.updates,
                seconds=self.now,
                version=self.version,
                device=upload.device,
                staleness=staleness,
                weight=float(weight),
                steps=upload.steps,
                loss=upload.loss,
            )
        self._taken.clear()
        for process in self._commit_waiters:
            run.kernel.resume(process)
        self._commit_waiters.clear()
        run.committed()

    def send_snapshot(self) -> Snapshot:
        """Hand out the present model to a device that asks for it, and count the transfer."""
        self._count_download()
        return Snapshot(self._checked_model(), self.version)

    def deliver(self, upload: Upload, size: int, *, sampled: bool) -> None:
        """Take in `upload` of `size` bytes (called by the device that sent it).

        In a sampled timeline the dispatch is only a way of writing it down, so the model that was sent is counted
        here, together with the one that is received: two transfers per global epoch.
        """
        if sampled:
            self._count_download()
        self.counters["models_received"] += 1
        self.counters["bytes_up"] += size
        self._inbox.append(upload)
        if self._receiver is not None:
            process, select = self._receiver
            ready = select()
            if ready is not None:
                self._receiver = None
                self._run.kernel.resume(process, ready)

    def _count_download(self) -> None:
        self.counters["models_sent"] += 1
        self.counters["bytes_down"] += self._model.numel() * self._model.element_size()

    def _checked_model(self) -> Tensor:
        if self._model._version != self._frozen:
            raise RunError(
                f"the global model of version {self.version} was changed in place; "
                "devices may hold it: commit a new tensor instead"
            )
        return self._model

    def _ender(self, device: int, was_idle: bool) -> Callable[[], None]:
        def end() -> None:
            self.in_flight -= 1
            if was_idle and device != POOLED:
                self.idle.add(device)
            for process in self._idle_waiters:
                self._run.kernel.resume(process)
            self._idle_waiters.clear()

        return end

    def _wait(self, process: Process, select: Callable[[], list[Upload] | None]) -> None:
        if self._receiver is not None:
            raise RunError(f"{process.name} and {self._receiver[0].name} both wait for uploads")
        self._receiver = (process, select)

    def _first(self, count: int) -> list[Upload] | None:
        if len(self._inbox) < count:
            return None
        return [self._inbox.popleft() for _ in range(count)]

    def _from(self, devices: Sequence[int]) -> list[Upload] | None:
        found: dict[int, Upload] = {}
        for upload in self._inbox:
            found.setdefault(upload.device, upload)
        if any(device not in found for device in devices):
            return None
        uploads = [found[device] for device in devices]
        for upload in uploads:
            self._inbox.remove(upload)
        return uploads
