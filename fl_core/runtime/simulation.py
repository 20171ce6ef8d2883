"""One run: a task, a world and an algorithm, interpreted by the kernel."""

from __future__ import annotations

import copy
import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from fl_core.errors import RunError
from fl_core.runtime.device import DeviceHandle
from fl_core.runtime.edge import Cluster
from fl_core.runtime.executors import Executor, Ticket, make_executor
from fl_core.runtime.history import History, append
from fl_core.runtime.kernel import Event, Kernel, Kind, Process, StopRun
from fl_core.runtime.local import EvaluateJob, TrainJob
from fl_core.runtime.programs import Program
from fl_core.runtime.server import ServerHandle
from fl_core.runtime.settings import Budget, Evaluation, LocalTraining, Warmup
from fl_core.runtime.state import restore
from fl_core.streams import stream
from fl_core.tasks import POOLED, Task
from fl_core.world import World
from fl_core.world.faults import Fault

if TYPE_CHECKING:
    from fl_core.algorithms.base import Algorithm
    from fl_core.models.units import Units
    from fl_core.runtime.checkpoint import Checkpoints

MOST_FAILED = 1000
"""So many tasks in a row that bring no usable upload, although the server is up, end a run; in a world of more than
half as many devices, two for each device."""

MOST_TICKS = 10_000
"""So many ticks of server programs in a row that nothing follows from, with nobody at work, end a run."""

CLOCKS = ("evaluate", "measure", "leaves", "available")
"""Timers that go on, whatever happens."""

YOUNG_OBJECTS = 50_000
"""Objects that are made between two searches for cyclic garbage."""


class Simulation:
    """A run in virtual time.

    Parameters
    ----------
    task : Task
        What is learned.
    world : World
        What it is learned on.
    algorithm : Algorithm
        Scheduler, updater and device program.
    training : LocalTraining
        Defaults of local training.
    budget : Budget
        When the run ends.
    evaluation : Evaluation
        When the global model is measured.
    warmup : Warmup
        Training before version 0.
    seed : int
        Determines every random number of the run.
    trace : bool
        Whether to record the event trace (``history.spans``).
    """

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
        kinds = [f"fault-{fault.kind}" for fault in self.faults]  # type: ignore[attr-defined]
        self._fault_names = [(kind, kinds[:place].count(kind)) for place, kind in enumerate(kinds)]
        self.kernel = Kernel()
        self.history = History()
        self.tracing = trace
        self.checkpointing = self.plain = False
        self.version = self.dispatched = self.waits = 0
        self.wall_before = 0.0
        self.quiet = [0, 0]
        # Ticks since the last progress, how much of that there had been, and when it was noticed.
        self.ticks: list[Any] = [0, 0, 0.0]
        self.device_state: dict[int, dict[str, Any]] = {}
        self.running: dict[int, Process] = {}
        self.programs: dict[tuple[int, str], Program] = {}
        self.timers: dict[tuple[Any, ...], Event] = {}
        self.away: set[int] = set()
        self._tickets: list[tuple[int, Ticket]] = []
        self._progress: Callable[[float], None] | None = None
        self.executor: Executor
        self.servers: list[ServerHandle] = []
        self.meeting: dict[int, tuple[Program, Any]] = {}

    @cached_property
    def clusters(self) -> tuple[Cluster, ...]:
        """What is known of every server's devices, by its number."""
        return tuple(map(self._cluster, range(self.devices.num_servers)))

    @cached_property
    def hidden_units(self) -> tuple[Units, ...]:
        """Units of the model that a smaller one can do without, by layer."""
        return self.task.workspace().hidden_units()  # type: ignore[attr-defined]

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
    ) -> History:
        """Simulate until the budget is used up; the executor changes the speed and nothing else.

        Parameters
        ----------
        executor : str
            ``"sequential"``, ``"threads"`` or ``"batched"``.
        threads : int, optional
            Workers of the ``threads`` executor; one per core by default.
        progress : callable, optional
            Called after every commit with the part of the budget that is used, in [0, 1].
        checkpoints : Checkpoints, optional
            Where the state of the run is kept while it goes on. If there is one already, the run goes on from it.

        Raises
        ------
        RunError
            If a coroutine fails or the run can no longer reach its budget.
        """
        self._progress = progress
        self.wall_start = time.perf_counter()
        self.checkpointing = checkpoints is not None
        self.plain = not (self.faults or self.tracing or self.checkpointing) and self.devices.always_available
        whole = self.task.dimension
        space = self.task.workspace()
        self.lengths = {"model": whole, "delta": whole, "gradient": len(space.parameters)}
        slots = [tuple(slot.shape) for slot in getattr(space, "slots", ()) if slot.trainable]
        self.shapes = tuple(slots) or ((len(space.parameters),),)
        self.segments = tuple(map(prod, self.shapes))
        stored = checkpoints.load() if checkpoints is not None else None
        with make_executor(executor, self.task, threads) as self.executor:
            if stored is not None:
                restore(self, stored)
            else:
                self._begin()
            if checkpoints is not None:
                checkpoints.watch(self)
            with rare_garbage_collection():
                self.kernel.run()
            self._evaluate()
            self.collect()
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
        """Start the device program of a task; the process knows its handle, which does not know its process.

        Without a cycle all that a task has used is free as soon as it ends.
        """
        process = Process(self.algorithm.device(handle), handle, handle._task, handle.end)
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
            bounds = (
                (version, self._updates), (gradients, self._gradients), (self.kernel.now, self.budget.seconds),
                (self._dealt_with(), self.budget.uploads),
            )  # fmt: skip
            self._progress(min(1.0, max(used / bound for used, bound in bounds if bound is not None)))
        if version == self._updates or (self._gradients is not None and gradients >= self._gradients):
            raise StopRun
        period = self._period
        if period and version % period == 0:
            self._evaluate_periodically()
        self.dealt_with()

    def dealt_with(self) -> None:
        """End the run if uploads are the budget and all have been applied or discarded (called after each)."""
        if self.budget.uploads is not None and self._dealt_with() >= self.budget.uploads:
            raise StopRun

    def _dealt_with(self) -> int:
        return sum(server.outcomes["applied"] + server.outcomes["discarded"] for server in self.servers)

    def failed(self, outcome: str, in_a_row: int) -> None:
        """End the run if nothing usable arrives any more: training has diverged, or everything gets lost.

        That half of a large fleet leaves at once is no reason to end, hence the number of devices.
        """
        if in_a_row >= max(MOST_FAILED, 2 * len(self.devices)):
            self.history.ended = outcome
            raise StopRun

    def global_model(self) -> Tensor:
        """Return the model ``[d]`` that is measured: the server's, or the mean of all, weighted by their samples."""
        models = [server.checked_model() for server in self.servers]
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

    def trace(self, task: int, device: int, activity: str, start: float, end: float, base: int) -> None:
        """Record what a device does."""
        append(
            self.history.spans, task=task, device=device, activity=activity, start=start, end=end, base_version=base
        )

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

    def keep_away(self, device: int, seconds: float) -> None:
        """Let `device` be free again only after `seconds`."""
        self.away.add(device)
        self.timer(self.kernel.now + seconds, Kind.PROGRESS, self.dispatched, "back", device)

    def timer(self, time: float, kind: Kind, order: int, name: str, *arguments: Any) -> None:
        """Have ``_on_name(*arguments)`` called at virtual `time`; unlike a bare event it is part of a checkpoint."""
        if time < float("inf"):
            key = (name, *arguments)
            self.timers[key] = self.kernel.at(time, kind, order, lambda: self._fire(key))

    def put_timer(self, key: tuple[Any, ...], event: tuple[Any, ...]) -> None:
        """Put back the timer `key` of a resumed run."""
        self.timers[key] = (*event, lambda: self._fire(key))
        self.kernel.put(self.timers[key])

    def collect(self) -> None:
        """Fill in the results of all evaluations."""
        tickets, self._tickets = self._tickets, []
        for row, ticket in tickets:
            try:
                metrics = self.executor.result(ticket)
            except Exception as error:
                version = self.history.evaluations["version"][row]
                raise RunError(f"evaluation of version {version} failed: {type(error).__name__}: {error}") from error
            for name, value in metrics.items():
                self.history.evaluations[name][row] = value

    def _fire(self, key: tuple[Any, ...]) -> None:
        del self.timers[key]
        getattr(self, f"_on_{key[0]}")(*key[1:])

    def _begin(self) -> None:
        model = self._initial_model()
        self.servers = [ServerHandle(self, model, number) for number in range(self.devices.num_servers)]
        self._evaluate()
        if self.budget.seconds is not None:
            self.timer(self.budget.seconds, Kind.EVALUATION, 1, "stop")
        if self.evaluation.every_seconds is not None:
            self.timer(self.evaluation.every_seconds, Kind.EVALUATION, 0, "evaluate", 1)
        for place, when in enumerate(self.evaluation.at_seconds):
            self.timer(when, Kind.EVALUATION, 0, "measure", place)
        for number, (start, down) in enumerate(o for fault in self.faults for o in fault.outages()):
            self.timer(start, Kind.PROGRESS, 0, "outage", number, down)
        if not self.devices.always_available:
            for server in self.servers:
                for device in server.devices:
                    self._watch_availability(device)
        for number in range(len(self.servers)):
            for name in ("updater", "scheduler"):
                self.kernel.spawn(self.program(number, name))

    def _watch_availability(self, device: int) -> None:
        """Set the timer of the next coming or going of `device`; if it is away now, note that."""
        now = self.kernel.now
        back = self.devices.resume_at(device, now)
        if back > now:
            self.away.add(device)
            self._server_of(device).leave(device)
            self.timer(back, Kind.PROGRESS, self.dispatched, "available", device)
        else:
            self.timer(self.devices.leaves_at(device, now), Kind.PROGRESS, self.dispatched, "leaves", device)

    def _server_of(self, device: int) -> ServerHandle:
        return self.servers[self.devices.server_of(device)]

    def _cluster(self, number: int) -> Cluster:
        members = self.devices.members(number)
        samples = [self.task.num_samples(device) for device in members]
        profiles = tuple(self.devices.profile(device, None) for device in members)
        batch = self.training.batch_size
        seconds = tuple(p.train_seconds(1, -(-n // batch)) for p, n in zip(profiles, samples, strict=True))
        return Cluster(members, self.devices.neighbours(number), sum(samples), seconds, profiles)

    def _on_stop(self) -> None:
        raise StopRun

    def idle_tick(self) -> None:
        """Note that a server program goes on because of the time alone; end a run in which only that happens.

        Progress is a task that is under way or dispatched, or a version where versions are the budget. A device that
        may come back keeps a run alive until it has been there once in vain.
        """
        progress, now = self.dispatched + (self.version if self._updates else 0), self.kernel.now
        if self.running or progress != self.ticks[1]:
            self.ticks = [0, progress, now]
        self.ticks[0] += 1
        if self.ticks[0] > MOST_TICKS:
            self.ticks[0] = 0
            away = (key[1] for key in self.timers if key[0] == "available")
            back = all(self.devices.resume_at(device, self.ticks[2]) < now for device in away)
            if back and all(key[0] in CLOCKS for key in self.timers):
                raise self._nothing_left()

    def _stand_still(self) -> None:
        """End a run in which only clocks go on and nobody reacts to them: evaluations, devices that come and go."""
        if self.running or self.dispatched != self.quiet[1]:
            self.quiet = [0, self.dispatched]
        self.quiet[0] += 1
        if self.quiet[0] > (0 if self.devices.always_available else 100 * (1 + len(self.devices))):
            self.quiet[0] = 0
            if len(self.kernel._queue) <= sum(key[0] in CLOCKS for key in self.timers):
                raise self._nothing_left()

    def _nothing_left(self) -> RunError:
        return RunError(
            f"nothing is left to happen at t = {self.kernel.now:g} s, but the run has not reached its budget"
        )

    def _on_evaluate(self, count: int) -> None:
        self._stand_still()
        self._evaluate_periodically()
        assert self.evaluation.every_seconds is not None
        self.timer((count + 1) * self.evaluation.every_seconds, Kind.EVALUATION, 0, "evaluate", count + 1)

    def _on_measure(self, place: int) -> None:
        self._evaluate()

    def _on_outage(self, number: int, down: float) -> None:
        self.log_fault(-1, -1, "server_restart")
        for server in self.servers:
            server.go_down(self.kernel.now + down)
        if down:
            self.timer(self.kernel.now + down, Kind.PROGRESS, 0, "up", number)

    def _on_up(self, number: int) -> None:
        for server in self.servers:
            server.come_up()

    def _on_duplicate(self, server: int, task: int, device: int, size: float, number: int) -> None:
        self.servers[server].duplicate(task, device, size)

    def _on_back(self, device: int) -> None:
        """A device has recovered; it is free unless its window of availability has closed meanwhile."""
        self.away.discard(device)
        if self.devices.resume_at(device, self.kernel.now) > self.kernel.now:
            self.away.add(device)
        elif not self._busy(device):
            self._server_of(device).free(device)

    def _on_leaves(self, device: int) -> None:
        self._stand_still()
        self.away.add(device)
        self._server_of(device).leave(device)
        self.timer(
            self.devices.resume_at(device, self.kernel.now), Kind.PROGRESS, self.dispatched, "available", device
        )

    def _on_available(self, device: int) -> None:
        self._stand_still()
        if device in self.away and ("back", device) not in self.timers:  # it may have recovered at this very instant
            self.away.discard(device)
            if not self._busy(device):
                self._server_of(device).free(device)
        self.timer(self.devices.leaves_at(device, self.kernel.now), Kind.PROGRESS, self.dispatched, "leaves", device)

    def _busy(self, device: int) -> bool:
        return any(handle.id == device for handle in self.handles)

    def _initial_model(self) -> Any:
        model = self.task.initial_model(self.seed)
        if not self.warmup.epochs:
            return model
        samples = self.task.num_samples(0)
        job = TrainJob(
            start=model,
            device=0,
            samples=samples,
            steps=self.warmup.epochs * -(-samples // self.training.batch_size),
            batch_size=self.training.batch_size,
            lr=self.warmup.lr,
            weight_decay=self.training.weight_decay,
            objective=None,
            key=(self.seed, "warm-up", 0, 0, 0),
        )
        return self.executor.result(self.executor.submit(job, 0.0)).model

    def _evaluate_periodically(self) -> None:
        """Measure on the test samples of a periodic evaluation, and end the run if that is as good as asked for."""
        self._evaluate(self.evaluation.test_samples)
        if self.budget.accuracy is not None:
            self.collect()
            if self.history.evaluations["test_accuracy"][-1] >= self.budget.accuracy:
                raise StopRun

    def _evaluate(self, test_samples: int = 0) -> None:
        """Measure the global model on `test_samples` test samples or on all, unless the last row says the same."""
        table, row = self.history.evaluations, len(self.history.evaluations["version"])
        alike = row and test_samples == self.evaluation.test_samples
        if alike and table["version"][-1] == self.version and not self.evaluation.every_seconds:
            return
        counters = {name: sum(server.counters[name] for server in self.servers) for name in self.servers[0].counters}
        found = {"seconds": self.kernel.now, "version": self.version, **counters}
        if alike and all(table[name][-1] == value for name, value in found.items()):
            return
        append(table, **found)
        job = EvaluateJob(self.global_model(), self.evaluation.train_samples, test_samples)
        self._tickets.append((row, self.executor.submit(job, self.kernel.now)))


@contextmanager
def rare_garbage_collection() -> Iterator[None]:
    """Look for cyclic garbage less often: a run makes hardly any, and looking costs a sixth of the kernel's time."""
    before = gc.get_threshold()
    gc.set_threshold(max(before[0], YOUNG_OBJECTS), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
