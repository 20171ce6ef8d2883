"""One run: a task, a world and an algorithm, interpreted by the kernel; and what happens in it by the clock alone."""

from __future__ import annotations

import copy
import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from fl_core.errors import SpecError
from fl_core.runtime.checkpoint import restore
from fl_core.runtime.device import DeviceHandle
from fl_core.runtime.executors import Debug, Executor, Together, make_executor
from fl_core.runtime.history import JOULES, History, Measurements, append
from fl_core.runtime.kernel import MOST_AT_ONCE, Event, Kernel, Kind, Process, Program, StopRun
from fl_core.runtime.local import TrainJob
from fl_core.runtime.messages import Budget, Cluster, Evaluation, LocalTraining, SharedLink, Warmup
from fl_core.runtime.server import ServerHandle
from fl_core.runtime.watchdog import Sanitizer, Watchdog
from fl_core.streams import stream
from fl_core.tasks import POOLED, LayeredWorkspace, Task
from fl_core.world import World
from fl_core.world.faults import Fault

if TYPE_CHECKING:
    from fl_core.algorithms.base import Algorithm
    from fl_core.models.units import Units
    from fl_core.runtime.checkpoint import Checkpoints

YOUNG_OBJECTS = 50_000
"""Objects that are made between two searches for cyclic garbage."""


class Simulation:
    """A run in virtual time; `seed` determines its every random number, `trace` fills ``history.spans``."""

    def __init__(
        self,
        task: Task,
        world: World,
        algorithm: Algorithm,
        *,
        budget: Budget,
        training: LocalTraining | None = None,
        evaluation: Evaluation | None = None,
        warmup: Warmup | None = None,
        seed: int = 0,
        trace: bool = False,
    ) -> None:
        self.task, self.algorithm, self.seed = task, algorithm, seed
        self.training = training or LocalTraining()
        self.budget, self.evaluation = budget, evaluation or Evaluation()
        self.warmup = warmup or Warmup()
        self._updates, self._gradients, self._period = budget.updates, budget.gradients, self.evaluation.every_updates
        self.devices = world.realise(seed)
        self.faults = world.faults
        kinds = [f"fault-{fault.kind}" for fault in self.faults]
        self._fault_names = [(kind, kinds[:place].count(kind)) for place, kind in enumerate(kinds)]
        self.kernel = Kernel()
        self.history = History()
        self.power = world.power
        if self.power is not None:
            self.history.evaluations |= {name: [] for name in JOULES}
        self.tracing = trace
        self.checkpointing = self.undisturbed = False
        self.version = self.dispatched = self.waits = 0
        self.wall_before = 0.0
        self.device_state: dict[int, dict[str, Any]] = {}
        self.running: dict[int, Process] = {}
        self.programs: dict[tuple[int, str], Program] = {}
        self.timers, self.watchdog, self.measurements = Timers(self), Watchdog(self), Measurements(self)
        self.away: set[int] = set()
        self._progress: Callable[[float], None] | None = None
        self.executor: Executor
        self.sanitizer: Sanitizer | None = None
        self.servers: list[ServerHandle] = []
        self.meeting: dict[int, tuple[Program, Any]] = {}
        network = world.network
        rates = {"download": network.server_down_bits_per_second, "upload": network.server_up_bits_per_second}
        self.links = [
            {way: SharedLink(rate) for way, rate in rates.items() if rate is not None}
            for _ in range(self.devices.num_servers * network.shared)
        ]

    @cached_property
    def clusters(self) -> tuple[Cluster, ...]:
        """What is known of every server's devices, by its number."""
        return tuple(map(self._cluster, range(self.devices.num_servers)))

    @cached_property
    def hidden_units(self) -> tuple[Units, ...]:
        """Units of the model that a smaller one can do without, by layer."""
        with torch.random.fork_rng(devices=[]):  # a new network draws weights, which nobody uses
            space = self.task.workspace()
        if not isinstance(space, LayeredWorkspace):
            raise SpecError(f"{type(self.task).__name__} does not say which hidden units its models have")
        return space.hidden_units()

    @property
    def server(self) -> ServerHandle:
        """The first server: the only one in a world without clusters."""
        return self.servers[0]

    def run(
        self,
        executor: str = "sequential",
        threads: int | None = None,
        progress: Callable[[float], None] | None = None,
        checkpoints: Checkpoints | None = None,
        together: Together | None = None,
    ) -> History:
        """Simulate until the budget is used up; the `executor`, one of ``EXECUTORS``, changes only the speed.

        `threads` are by default one per core. `progress` is called after every commit with the part of the budget
        that is used, in [0, 1]. If there are `checkpoints` already, the run goes on from them. The executor
        ``batched`` computes `together` with those of other runs, each in a thread of its own.
        """
        self._progress = progress
        self.wall_start = time.perf_counter()
        self.checkpointing = checkpoints is not None
        self.undisturbed = not (self.faults or self.tracing or self.checkpointing) and self.devices.always_available
        whole = self.task.dimension
        space = self.task.workspace()
        self.lengths = {"model": whole, "delta": whole, "gradient": len(space.parameters)}
        slots = [tuple(slot.shape) for slot in getattr(space, "slots", ()) if slot.trainable]
        self.shapes = tuple(slots) or ((len(space.parameters),),)
        self.segments = tuple(map(prod, self.shapes))
        held = checkpoints.held() if checkpoints is not None else nullcontext()
        with held, make_executor(executor, self.task, threads, together) as self.executor:
            if checkpoints is not None and (stored := checkpoints.load()) is not None:
                restore(self, stored)
            else:
                self._begin()
            if checkpoints is not None:
                checkpoints.watch(self)
            if isinstance(self.executor, Debug):
                self.sanitizer = self.executor.sanitizer = Sanitizer(self)
            with rare_garbage_collection(), self.watchdog.watch():
                self.kernel.run()
            self.measurements.measure()
            self.measurements.collect()
        self.history.model = self.global_model()
        self.history.outcomes = self.outcomes()
        return self.history

    def program(self, number: int, name: str) -> Program:
        """Return the server program ``"scheduler"`` or ``"updater"`` of a server, at the beginning of a turn."""
        server, coroutine = self.servers[number], getattr(self.algorithm, name)
        title = f"the {name} of {self.algorithm.name}" + (f" on server {number}" if len(self.servers) > 1 else "")
        self.programs[number, name] = Program(lambda: coroutine(server), title, number, self.kernel)
        return self.programs[number, name]

    def launch(self, handle: DeviceHandle) -> Process:
        """Start the device program of a task; its handle does not know the process: what it holds is soon free."""
        process = Process(self.algorithm.device(handle), handle, handle._task, handle._end)
        self.running[handle._task] = process
        self.kernel.spawn(process)
        return process

    @property
    def handles(self) -> list[DeviceHandle]:
        """The tasks whose programs are running."""
        return [process.name for process in self.running.values()]  # type: ignore[misc]

    def committed(self) -> None:
        """Evaluate if it is time to, and end the run if the budget is used up (called after each commit)."""
        version = self.version
        gradients = 0 if self._gradients is None else sum(s.counters["gradients"] for s in self.servers)
        if self._progress is not None:
            self._progress(min(1.0, max(used / bound for used, bound in self.used().values())))
        if not version % MOST_AT_ONCE:
            self.watchdog.crowded()
        if version == self._updates or (self._gradients is not None and gradients >= self._gradients):
            raise StopRun
        period = self._period
        if period and version % period == 0:
            self.measurements.periodic()
        self.dealt_with()

    def used(self) -> dict[str, tuple[float, float]]:
        """Return how much of the budget is used, and how much there is, by name."""
        gradients = sum(server.counters["gradients"] for server in self.servers)
        used = {"updates": self.version, "gradients": gradients, "seconds": self.kernel.now}
        bounds = {name: getattr(self.budget, name) for name in (*used, "uploads")}
        used["uploads"] = self._dealt_with()
        return {name: (used[name], bound) for name, bound in bounds.items() if bound is not None}

    def dealt_with(self) -> None:
        """End the run if uploads are the budget and all have been applied or discarded (called after each)."""
        if self.budget.uploads is not None and self._dealt_with() >= self.budget.uploads:
            raise StopRun

    def _dealt_with(self) -> int:
        return sum(server.outcomes["applied"] + server.outcomes["discarded"] for server in self.servers)

    def global_model(self) -> Tensor:
        """Return the model ``[d]`` that is measured: the server's, or the mean of all, weighted by their samples."""
        models = [server._checked_model() for server in self.servers]
        if len(models) == 1:
            return models[0]
        samples = [sum(map(self.task.num_samples, server.devices)) for server in self.servers]
        weights = torch.tensor(samples, dtype=models[0].dtype) / sum(samples)
        return (weights[:, None] * torch.stack(models)).sum(0)

    def outcomes(self) -> dict[str, int]:
        """Return how the tasks of all servers have ended so far, with those in flight."""
        total = {name: sum(s.outcomes[name] for s in self.servers) for name in self.servers[0].outcomes}
        waiting = sum(len(server.waiting) for server in self.servers)
        total["in_flight"] = waiting + sum(not handle._sent for handle in self.handles)
        return total

    def log_fault(self, device: int, task: int, fault: str, seconds: float | None = None) -> None:
        """Record that something went wrong, now unless `seconds` is given."""
        when = self.kernel.now if seconds is None else seconds
        append(self.history.faults, seconds=when, device=device, task=task, fault=fault)

    def strike(self, device: int, trigger: int) -> list[tuple[Fault, np.random.Generator]]:
        """Draw the faults of a task, each from its own random stream; the imaginary pooled machine has none."""
        struck = []
        for (kind, place), fault in zip(self._fault_names, self.faults if device != POOLED else (), strict=False):
            if fault.probability and fault.concerns(device, self.kernel.now):
                rng = stream(self.seed, kind, place, device, trigger)
                if rng.random() < fault.probability:
                    struck.append((fault, rng))
        return struck

    def copy_of_state(self, device: int) -> dict[str, Any] | None:
        """Return a copy of what `device` keeps, which a program that begins now cannot change."""
        state = self.device_state.get(device)
        return copy.deepcopy(state) if state else None

    def _begin(self) -> None:
        model = self._initial_model()
        self.servers = [ServerHandle(self, model, number) for number in range(self.devices.num_servers)]
        self.measurements.measure()
        self.timers.begin()
        for number in range(len(self.servers)):
            for name in ("updater", "scheduler"):
                self.kernel.spawn(self.program(number, name))

    def _cluster(self, number: int) -> Cluster:
        members = self.devices.members(number)
        samples = [self.task.num_samples(device) for device in members]
        profiles = tuple(self.devices.profile(device, None) for device in members)
        batch = self.training.batch_size
        seconds = tuple(p.train_seconds(1, -(-n // batch)) for p, n in zip(profiles, samples, strict=True))
        return Cluster(members, self.devices.neighbours(number), sum(samples), seconds, profiles)

    def _initial_model(self) -> Any:
        model = self.task.initial_model(self.seed)
        if self.warmup.perturbation:
            drawn = torch.from_numpy(stream(self.seed, "perturbation").standard_normal(len(model)))
            model = (model * (1 + self.warmup.perturbation * drawn)).to(model.dtype)
        if not self.warmup.epochs:
            return model
        samples = self.task.num_samples(0)
        size, weight_decay = self.training.batch_size, self.training.weight_decay
        steps, key = self.warmup.epochs * -(-samples // size), (self.seed, "warm-up", 0, 0, 0)
        job = TrainJob(model, 0, samples, steps, size, self.warmup.lr, weight_decay, None, key)
        return self.executor.result(self.executor.submit(job, 0.0)).model


class Timers:
    """The timers of a run: evaluations, restarts of the server, devices that come and go, copies on their way.

    `events` are still to happen: the name of an action with its arguments, and its place in the kernel's queue; so
    many have `fired`.
    """

    def __init__(self, run: Simulation) -> None:
        self._run = run
        self.events: dict[tuple[Any, ...], Event] = {}
        self.fired = 0

    def begin(self) -> None:
        """Set the timers that a run begins with."""
        run = self._run
        if run.budget.seconds is not None:
            self.add(run.budget.seconds, Kind.EVALUATION, 1, "stop")
        if run.evaluation.every_seconds is not None:
            self.add(run.evaluation.every_seconds, Kind.EVALUATION, 0, "evaluate", 1)
        for place, when in enumerate(run.evaluation.at_seconds):
            self.add(when, Kind.EVALUATION, 0, "measure", place)
        for number, (start, down) in enumerate(o for fault in run.faults for o in fault.outages()):
            self.add(start, Kind.PROGRESS, 0, "outage", number, down)
        if not run.devices.always_available:
            for server in run.servers:
                for device in server.devices:
                    self._watch_availability(device)

    def add(self, time: float, kind: Kind, order: int, name: str, *arguments: Any) -> None:
        """Have ``_on_name(*arguments)`` called at virtual `time`; unlike a bare event it is part of a checkpoint."""
        if time < float("inf"):
            key = (name, *arguments)
            self.events[key] = self._run.kernel.at(time, kind, order, lambda: self._fire(key))

    def put(self, key: tuple[Any, ...], event: tuple[Any, ...]) -> None:
        """Put back the timer `key` of a resumed run."""
        self.events[key] = (*event, lambda: self._fire(key))
        self._run.kernel.put(self.events[key])

    def keep_away(self, device: int, seconds: float) -> None:
        """Let `device` be free again only after `seconds`."""
        run = self._run
        run.away.add(device)
        self.add(run.kernel.now + seconds, Kind.PROGRESS, run.dispatched, "back", device)

    def _fire(self, key: tuple[Any, ...]) -> None:
        del self.events[key]
        self.fired += 1
        getattr(self, f"_on_{key[0]}")(*key[1:])

    def _watch_availability(self, device: int) -> None:
        """Set the timer of the next coming or going of `device`; if it is away now, note that."""
        run = self._run
        now = run.kernel.now
        if run.devices.resume_at(device, now) > now:
            self._take_away(device)
        else:
            self.add(run.devices.leaves_at(device, now), Kind.PROGRESS, run.dispatched, "leaves", device)

    def _take_away(self, device: int) -> None:
        run = self._run
        run.away.add(device)
        self._server_of(device)._leave(device)
        self.add(run.devices.resume_at(device, run.kernel.now), Kind.PROGRESS, run.dispatched, "available", device)

    def _bring_back(self, device: int) -> None:
        self._run.away.discard(device)
        if not any(handle.id == device for handle in self._run.handles):
            self._server_of(device)._free(device)

    def _server_of(self, device: int) -> ServerHandle:
        run = self._run
        return run.servers[run.devices.server_of(device)]

    def _on_stop(self) -> None:
        raise StopRun

    def _on_evaluate(self, count: int) -> None:
        run = self._run
        run.watchdog.clock()
        run.measurements.periodic()
        assert run.evaluation.every_seconds is not None
        self.add((count + 1) * run.evaluation.every_seconds, Kind.EVALUATION, 0, "evaluate", count + 1)

    def _on_measure(self, place: int) -> None:
        self._run.measurements.measure()

    def _on_outage(self, number: int, down: float) -> None:
        run = self._run
        run.log_fault(-1, -1, "server_restart")
        for server in run.servers:
            server._go_down(run.kernel.now + down)
        if down:
            self.add(run.kernel.now + down, Kind.PROGRESS, 0, "up", number)

    def _on_up(self, number: int) -> None:
        for server in self._run.servers:
            server._come_up()

    def _on_duplicate(self, server: int, task: int, device: int, size: float, number: int) -> None:
        self._run.servers[server]._duplicate(size)

    def _on_back(self, device: int) -> None:
        """A device has recovered; it is free unless its window of availability has closed meanwhile."""
        run = self._run
        if run.devices.resume_at(device, run.kernel.now) <= run.kernel.now:
            self._bring_back(device)

    def _on_leaves(self, device: int) -> None:
        self._run.watchdog.clock()
        self._take_away(device)

    def _on_available(self, device: int) -> None:
        run = self._run
        run.watchdog.clock()
        if device in run.away and ("back", device) not in self.events:  # it may have recovered at this very instant
            self._bring_back(device)
        self.add(run.devices.leaves_at(device, run.kernel.now), Kind.PROGRESS, run.dispatched, "leaves", device)


@contextmanager
def rare_garbage_collection() -> Iterator[None]:
    """Look for cyclic garbage less often: a run makes hardly any, and looking costs a sixth of the kernel's time."""
    before = gc.get_threshold()
    gc.set_threshold(max(before[0], YOUNG_OBJECTS), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
