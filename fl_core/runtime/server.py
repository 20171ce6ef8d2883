"""The server's side: what a scheduler and an updater may call and await.

Both are programs that the runtime repeats: a *turn* waits for one occasion, acts on it, and returns; what must be
remembered is kept in ``server.state``. (A loop inside the coroutine works too, but a run can be stored only while
every server program waits at the beginning of a turn.)
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from torch import Tensor

from fl_core.errors import RunError
from fl_core.runtime.device import DeviceHandle
from fl_core.runtime.facts import Facts
from fl_core.runtime.inbox import Inbox
from fl_core.runtime.kernel import park
from fl_core.runtime.local import Gradient, ServerGradientJob
from fl_core.runtime.messages import Snapshot
from fl_core.streams import stream
from fl_core.tasks import POOLED
from fl_core.world.triggers import Continuous, Sampled, Trigger

if TYPE_CHECKING:
    from fl_core.runtime.simulation import Simulation

T = TypeVar("T")


class ServerHandle(Facts, Inbox):
    """The server as an algorithm sees it; in a world with clusters there is one for each.

    What it knows of its world is in :class:`~fl_core.runtime.facts.Facts`, how it receives uploads in
    :class:`~fl_core.runtime.inbox.Inbox`, how it waits for its devices in :class:`~fl_core.runtime.idle.Fleet`, and
    for a time in :class:`~fl_core.runtime.programs.Waiting`.

    Attributes
    ----------
    number : int
        Which server this is, from 0.
    devices : range
        Numbers of its devices.
    version : int
        Its commits so far.
    in_flight : int
        Tasks that its devices work on.
    idle : IdleSet
        Its devices that are free.
    state : dict
        Plain data that the algorithm keeps.
    rng : numpy.random.Generator
        The server's own random stream.
    up_at : float
        Virtual time at which it is up again; in the past except during a restart.
    """

    def __init__(self, run: Simulation, model: Tensor, number: int = 0) -> None:
        super().__init__(run, number)
        self._model = model
        self._frozen = model._version
        self._snapshot: Snapshot | None = None
        self._bytes = model.numel() * model.element_size()
        self.version = 0
        self.state: dict[str, Any] = {}
        self.rng = stream(run.seed, "server", *([number] if number else []))
        self._triggers: dict[int, int] = {}
        self._committed_at = 0
        self._met: int | None = None
        world = run.devices.world
        sampled = world.max_staleness is not None
        self._declared = Sampled(max_staleness=world.max_staleness) if sampled else world.trigger

    @property
    def model(self) -> Tensor:
        """The global model ``[d]``; read only: a new one is made by :meth:`commit`."""
        return self._model

    @property
    def snapshot(self) -> Snapshot:
        """The present global model with its version; it may be kept, and handed out later by :meth:`dispatch`."""
        return self._current()

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

    def gradient(self, batch: np.ndarray) -> Gradient:
        """Return the gradient ``[p]`` of the mean loss at the present model over the server's own samples.

        It takes no virtual time.

        Parameters
        ----------
        batch : ndarray
            ``[b]``, positions in 0 .. `num_samples` - 1: which of all devices' samples the server has, too.
        """
        run = self._run
        key = (run.seed, "server-gradient", self.number, self.version, 0)
        found: Gradient = run.executor.result(
            run.executor.submit(ServerGradientJob(self.checked_model(), batch, key), self.now)
        )
        return found

    def dispatch(
        self, devices: Iterable[int], *, seconds: float | None = None, snapshot: Snapshot | None = None
    ) -> None:
        """Trigger `devices` now, in the given order, each with the present global model.

        Parameters
        ----------
        devices : iterable of int
            Idle devices of this server (:data:`fl_core.tasks.POOLED` for the imaginary machine with all data).
        seconds : float, optional
            Fix the whole duration of these tasks instead of letting the world decide. Only then may a device do
            several tasks at once: this is how a sampled staleness becomes a timeline.
        snapshot : Snapshot, optional
            A :attr:`snapshot` taken earlier, to be handed out instead of the present model.

        Raises
        ------
        RunError
            If a device is already working or does not exist.
        """
        run, triggers, idle = self._run, self._triggers, self.idle
        snapshot = snapshot or self._current()
        run.kernel.current.acted = True  # type: ignore[union-attr]
        for device in devices:
            device = int(device)
            reserved = device != POOLED and seconds is None
            if reserved:
                if device not in idle:
                    raise RunError(f"cannot trigger device {device} at t = {self.now:g} s: {self._why_not(device)}")
                idle.remove(device)
                if self._released:
                    self._released.pop(device, None)
            elif device != POOLED and device not in self.devices:
                raise RunError(f"cannot trigger device {device} at t = {self.now:g} s: {self._why_not(device)}")
            if self._failed:
                self._failed.discard(device)
            trigger = triggers.get(device, 0)
            triggers[device] = trigger + 1
            self.in_flight += 1
            self.outcomes["dispatched"] += 1
            if seconds is None:
                self.count_download()
            run.dispatched += 1
            run.launch(DeviceHandle(run, self, device, trigger, run.dispatched, snapshot, seconds, reserved))

    async def new_version(self) -> None:
        """Wait until there is a version that this program has not seen yet: at the start version 0 is new."""
        program = self._program()
        if program.seen.get("version") == self.version or self._down:
            self._enlist(program, "version")
            await park()
        program.seen["version"] = self.version

    def keep_busy(self, concurrency: int | Trigger) -> Coroutine[Any, Any, None]:
        """Keep `concurrency` tasks in flight: idle devices are triggered, drawn uniformly; one turn of that.

        Instead of a number, another trigger may be given. If the world declares one (or sampled staleness), that
        decides, and what is given here has no meaning.
        """
        default = _continuous(concurrency) if isinstance(concurrency, int) else concurrency
        return (self._declared or default).turn(self)

    async def exchange(self) -> dict[int, Snapshot]:
        """Return, by number, the present model of this server and of each neighbour.

        The version of each is the :attr:`iteration` that its own last commit made (0 before the first): when its
        devices were sent what they now train. A neighbour may have changed the model since.

        All models are those of this instant, and no time passes: aggregation, exchange and mixing are one event at
        the end of a server's iteration (SD-FEEL, A-14). What the exchange takes, :attr:`backhaul_seconds`, is a part
        of the length of that iteration, for which nobody waits but this server and its devices; so an updater counts
        it in the time that it waits for uploads.
        """
        servers = (self._run.servers[number] for number in (self.number, *self.neighbours))
        return {server.number: Snapshot(server.checked_model(), server._committed_at) for server in servers}

    async def meet(self, value: T) -> list[T]:
        """Hand in `value`, wait until every server has handed in one, and return all of them, by number.

        All go on at that instant, in the order of their numbers. What each of them commits next belongs to one event:
        their staleness does not grow by it, and counts from its end.

        Raises
        ------
        RunError
            If both programs of a server want to meet.
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

    def commit(
        self,
        model: Tensor,
        *,
        weight: float | Sequence[float] = float("nan"),
        neighbours: Mapping[int, Tensor] | None = None,
    ) -> None:
        """Make `model` the next global version, applied from the uploads received since the last commit.

        Parameters
        ----------
        model : Tensor
            ``[d]`` of the old one's type; must be a new tensor, not the old one changed in place.
        weight : float or sequence of float
            Mixing weight, for the record; of all uploads, or of each in the order in which they were received.
        neighbours : mapping of int to Tensor, optional
            New models of neighbouring servers, changed at the same instant; their versions stay.

        Raises
        ------
        RunError
            If the old model was changed in place: devices may still hold it. If the new one is of another length or
            type, or if there are not as many weights as uploads.
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

    def send_snapshot(self, than: int = -1) -> Snapshot | None:
        """Hand out the present model to a device that asks for one newer than `than`, and count the transfer."""
        if self._committed_at <= than:
            return None
        self.count_download()
        return self._current()

    def checked_model(self) -> Tensor:
        """Return the global model, having made sure that nobody has changed it."""
        if self._model._version != self._frozen:
            raise RunError(
                f"the global model of version {self.version} was changed in place; "
                "devices may hold it: commit a new tensor instead"
            )
        return self._model

    def _current(self) -> Snapshot:
        self.checked_model()
        if self._snapshot is None or self._snapshot.version != self._run.version:
            self._snapshot = Snapshot(self._model, self._run.version)
        return self._snapshot

    def _replace(self, model: Tensor) -> None:
        old = self.checked_model()
        tensor = model.__class__ is Tensor or isinstance(model, Tensor)  # the second asks a slow metaclass
        if not tensor or model.shape != old.shape or model.dtype != old.dtype:
            found = f"{model.dtype} {list(model.shape)}" if tensor else type(model).__name__
            raise RunError(f"the new model must be like the old one, {old.dtype} {list(old.shape)}, not {found}")
        self._model, self._frozen, self._snapshot = model, model._version, None

    def _why_not(self, device: int) -> str:
        if device not in self.devices:
            return f"it does not exist ({self.devices.start}..{self.devices.stop - 1})"
        return "it is away" if device in self._run.away else "it is already working"

    def count_download(self) -> None:
        """Count a model that a device is sent."""
        self.counters["models_sent"] += 1
        self.counters["bytes_down"] += self._bytes


@cache
def _continuous(concurrency: int) -> Continuous:
    return Continuous(concurrency=concurrency)
