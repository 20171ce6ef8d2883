"""When the global model of a run is measured, and what of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fl_core.errors import RunError
from fl_core.runtime.executor import Ticket
from fl_core.runtime.history import append
from fl_core.runtime.kernel import StopRun
from fl_core.runtime.local import EvaluateJob

if TYPE_CHECKING:
    from fl_core.runtime.simulation import Simulation


class Measurements:
    """The evaluations of a run: computed beside it, and filled in when their results are wanted."""

    def __init__(self, run: Simulation) -> None:
        self._run = run
        self._tickets: list[tuple[int, Ticket]] = []

    def measure(self, test_samples: int = 0) -> None:
        """Measure the global model on `test_samples` test samples or on all, unless the last row says the same."""
        run = self._run
        table, row = run.history.evaluations, len(run.history.evaluations["version"])
        alike = row and test_samples == run.evaluation.test_samples
        if alike and table["version"][-1] == run.version and not run.evaluation.every_seconds:
            return
        counters = {name: sum(server.counters[name] for server in run.servers) for name in run.servers[0].counters}
        found = {"seconds": run.kernel.now, "version": run.version, **counters}
        if alike and all(table[name][-1] == value for name, value in found.items()):
            return
        append(table, **found)
        job = EvaluateJob(run.global_model(), run.evaluation.train_samples, test_samples)
        self._tickets.append((row, run.executor.submit(job, run.kernel.now)))

    def periodic(self) -> None:
        """Measure on the test samples of a periodic evaluation, and end the run if that is as good as asked for."""
        run = self._run
        self.measure(run.evaluation.test_samples)
        if run.budget.accuracy is not None:
            self.collect()
            if run.history.evaluations["test_accuracy"][-1] >= run.budget.accuracy:
                raise StopRun

    def collect(self) -> None:
        """Fill in the results of all evaluations."""
        run = self._run
        tickets, self._tickets = self._tickets, []
        for row, ticket in tickets:
            try:
                metrics = run.executor.result(ticket)
            except Exception as error:
                version = run.history.evaluations["version"][row]
                raise RunError(f"evaluation of version {version} failed: {type(error).__name__}: {error}") from error
            for name, value in metrics.items():
                run.history.evaluations[name][row] = value
