"""One run: a task, a world and an algorithm, interpreted by the kernel."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fl_core.errors import RunError
from fl_core.runtime.executors import Executor, Ticket, make_executor
from fl_core.runtime.history import History, append
from fl_core.runtime.kernel import Kernel, Kind, Process, StopRun
from fl_core.runtime.local import EvaluateJob, TrainJob
from fl_core.runtime.server import ServerHandle
from fl_core.runtime.settings import Budget, Evaluation, LocalTraining, Warmup
from fl_core.tasks import Task
from fl_core.world import World

if TYPE_CHECKING:
    from fl_core.algorithms.base import Algorithm


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
        self.devices = world.realise(seed)
        self.kernel = Kernel()
        self.history = History()
        self.device_state: dict[int, dict[str, Any]] = {}
        self._tracing = trace
        self._tickets: list[tuple[int, Ticket]] = []
        self._progress: Callable[[float], None] | None = None
        self.executor: Executor
        self.server: ServerHandle

    def run(
        self,
        executor: str = "sequential",
        threads: int | None = None,
        progress: Callable[[float], None] | None = None,
    ) -> History:
        """Simulate until the budget is used up; the executor changes the speed and nothing else.

        Parameters
        ----------
        executor : str
            ``"sequential"`` or ``"threads"``.
        threads : int, optional
            Workers of the ``threads`` executor; one per core by default.
        progress : callable, optional
            Called after every commit with the part of the budget that is used, in [0, 1].

        Raises
        ------
        RunError
            If a coroutine fails or the run can no longer reach its budget.
        """
        self._progress = progress
        self.wall_start = time.perf_counter()
        with make_executor(executor, self.task, threads) as self.executor:
            self.server = ServerHandle(self, self._initial_model())
            self._evaluate()
            self._schedule_timers()
            for name in ("updater", "scheduler"):
                program = getattr(self.algorithm, name)(self.server)
                self.kernel.spawn(Process(program, f"the {name} of {self.algorithm.name}"))
            self.kernel.run()
            self._evaluate()
            self._collect()
        self.history.model = self.server.model
        return self.history

    def committed(self) -> None:
        """Evaluate if it is time to, and end the run if the budget is used up (called after each commit)."""
        counted = (
            (self.server.version, self.budget.updates),
            (self.server.counters["gradients"], self.budget.gradients),
        )
        used = [value / bound for value, bound in counted if bound is not None]
        if self._progress is not None:
            timed = [self.kernel.now / self.budget.seconds] if self.budget.seconds is not None else []
            self._progress(min(1.0, max(used + timed)))
        if used and max(used) >= 1:
            raise StopRun
        period = self.evaluation.every_updates
        if period and self.server.version % period == 0:
            self._evaluate()

    def trace(self, task: int, device: int, activity: str, start: float, end: float, base: int) -> None:
        """Record what a device did, if the run traces."""
        if self._tracing:
            append(
                self.history.spans,
                task=task,
                device=device,
                activity=activity,
                start=start,
                end=end,
                base_version=base,
            )

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

    def _evaluate(self) -> None:
        server, row = self.server, len(self.history.evaluations["version"])
        if row and self.history.evaluations["version"][-1] == server.version and not self.evaluation.every_seconds:
            return
        append(self.history.evaluations, seconds=self.kernel.now, version=server.version, **server.counters)
        job = EvaluateJob(server.model, self.evaluation.train_samples)
        self._tickets.append((row, self.executor.submit(job, self.kernel.now)))

    def _collect(self) -> None:
        for row, ticket in self._tickets:
            try:
                metrics = self.executor.result(ticket)
            except Exception as error:
                version = self.history.evaluations["version"][row]
                raise RunError(f"evaluation of version {version} failed: {type(error).__name__}: {error}") from error
            for name, value in metrics.items():
                self.history.evaluations[name][row] = value

    def _schedule_timers(self) -> None:
        if self.budget.seconds is not None:
            self.kernel.at(self.budget.seconds, Kind.EVALUATION, 1, _stop)
        period = self.evaluation.every_seconds
        if period is not None:

            def tick(count: int = 1) -> None:
                self._evaluate()
                self.kernel.at((count + 1) * period, Kind.EVALUATION, 0, lambda: tick(count + 1))

            self.kernel.at(period, Kind.EVALUATION, 0, tick)


def _stop() -> None:
    raise StopRun
