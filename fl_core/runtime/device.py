"""The device's side of a task: what a device program may await."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from fl_core.runtime.kernel import Kind
from fl_core.runtime.local import Trained, TrainJob
from fl_core.streams import stream
from fl_core.tasks import Objective
from fl_core.world import DeviceProfile

if TYPE_CHECKING:
    from fl_core.runtime.simulation import Simulation


@dataclass(frozen=True)
class Snapshot:
    """A global model as it was handed to a device; nothing may change it.

    Attributes
    ----------
    model : Tensor
        ``[d]``, read only.
    version : int
        How many commits had happened.
    """

    model: Tensor
    version: int


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
    state : dict
        Plain data that the device keeps between triggers.
    """

    def __init__(
        self,
        run: Simulation,
        device: int,
        trigger: int,
        task: int,
        snapshot: Snapshot,
        train_seconds: float | None,
    ) -> None:
        self._run, self.id, self.trigger, self._task = run, device, trigger, task
        self._snapshot: Snapshot | None = snapshot
        self._base_version = snapshot.version
        self._train_seconds = train_seconds
        self._steps = self._calls = 0
        self._loss = float("nan")
        self.profile: DeviceProfile = run.devices.profile(device, trigger)
        self.state: dict[str, Any] = run.device_state.setdefault(device, {})

    @property
    def now(self) -> float:
        """Virtual time, seconds."""
        return self._run.kernel.now

    @property
    def num_samples(self) -> int:
        """How many training samples the device holds."""
        return self._run.task.num_samples(self.id)

    @property
    def rng(self) -> np.random.Generator:
        """A new random stream of this task, for the algorithm's own draws."""
        self._calls += 1
        return stream(self._run.seed, "device", self.id, self.trigger, self._calls)

    async def download(self) -> Snapshot:
        """Receive the global model: the one of the trigger, and on later calls the newest one."""
        snapshot = self._snapshot
        if snapshot is None:
            await self._run.kernel.sleep_until(self.now, Kind.REQUEST, self._task)
            snapshot = self._run.server.send_snapshot()
        self._snapshot = None
        if self._train_seconds is None:
            await self._spend("download", self.profile.down_seconds(_nbytes(snapshot.model)))
        return snapshot

    async def train(
        self,
        model: Tensor,
        *,
        steps: int | None = None,
        epochs: int | None = None,
        lr: float | None = None,
        objective: Objective | None = None,
    ) -> Trained:
        """Run local SGD from `model` ``[d]`` and return the result after the virtual time that it costs.

        Parameters
        ----------
        model : Tensor
            Start and, for a proximal `objective`, anchor. It is not changed.
        steps, epochs : int, optional
            Local work: mini-batches, or passes over the device's data; by default as the run's settings say.
        lr : float, optional
            Step size; by default as the run's settings say.
        objective : Objective, optional
            A term added to the local loss.
        """
        run, settings = self._run, self._run.training
        if steps is None and epochs is None:
            steps, epochs = settings.steps, settings.epochs
        samples = self.num_samples
        steps = steps or (epochs or 1) * -(-samples // settings.batch_size)
        self._calls += 1
        job = TrainJob(
            start=model,
            device=self.id,
            samples=samples,
            steps=steps,
            batch_size=settings.batch_size,
            lr=settings.lr if lr is None else lr,
            weight_decay=settings.weight_decay,
            objective=objective,
            key=(run.seed, "batches", self.id, self.trigger, self._calls),
        )
        seconds = steps * self.profile.seconds_per_step if self._train_seconds is None else self._train_seconds
        ticket = run.executor.submit(job, self.now + seconds)
        await self._spend("train", seconds)
        trained: Trained = run.executor.result(ticket)
        self._steps += trained.steps
        self._loss = trained.loss
        return trained

    async def upload(self, *, based_on: Snapshot, **payload: Any) -> None:
        """Send `payload` to the server; returns when the server has it.

        Parameters
        ----------
        based_on : Snapshot
            The global model that the payload was made from; staleness counts from its version.
        **payload
            Named content, e.g. ``model=``, ``delta=`` or ``gradient=``; tensors count as bytes on the wire.
        """
        size = sum(_nbytes(value) for value in payload.values() if isinstance(value, Tensor))
        run = self._run
        finish = self.now + (self.profile.up_seconds(size) if self._train_seconds is None else 0.0)
        if finish > self.now:
            run.trace(self._task, self.id, "upload", self.now, finish, self._base_version)
        await run.kernel.sleep_until(finish, Kind.ARRIVAL, self._task)
        run.server.deliver(
            Upload(
                server=run.server,
                device=self.id,
                task=self._task,
                base_version=based_on.version,
                arrived_seconds=self.now,
                num_samples=self.num_samples,
                steps=self._steps,
                loss=self._loss,
                payload=payload,
            ),
            size,
            sampled=self._train_seconds is not None,
        )

    async def _spend(self, activity: str, seconds: float) -> None:
        if seconds > 0:
            finish = self.now + seconds
            self._run.trace(self._task, self.id, activity, self.now, finish, self._base_version)
            await self._run.kernel.sleep_until(finish, Kind.PROGRESS, self._task)


@dataclass(frozen=True, eq=False)
class Upload:
    """What has arrived at the server.

    Attributes
    ----------
    device, task : int
        Sender, and dispatch sequence number.
    base_version : int
        Version that the content was made from.
    arrived_seconds : float
        Virtual time of arrival.
    num_samples, steps : int
        The device's data size, and its local steps in this task.
    loss : float
        Mean local training loss.
    payload : dict
        The content by name; also reachable as attributes (``upload.model``).
    """

    server: Any
    device: int
    task: int
    base_version: int
    arrived_seconds: float
    num_samples: int
    steps: int
    loss: float
    payload: dict[str, Any]

    @property
    def staleness(self) -> int:
        """Commits since the model it is based on was sent: 0 for a fresh upload, if used now."""
        return self.server.version - self.base_version

    def __getattr__(self, name: str) -> Any:
        payload = self.__dict__.get("payload", {})
        if name in payload:
            return payload[name]
        raise AttributeError(f"the upload of device {self.device} has no {name!r}; it has {sorted(payload)}")


def _nbytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
