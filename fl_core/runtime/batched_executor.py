"""The executor that trains jobs of equal shape together."""

from __future__ import annotations

import heapq
import warnings
from typing import Any

import torch

from fl_core.runtime.batched import Shape, compute_together, shape_of
from fl_core.runtime.executor import Executor, Ticket, models_ahead
from fl_core.runtime.local import Job
from fl_core.tasks import BatchedTask, BatchedWorkspace, Task, Workspace

STEP_SAMPLES = 4096
"""At most so many samples are in one vectorised step: the bound on the memory of activations."""


class Batched(Executor):
    """Trains jobs of equal shape together, vectorised over devices; the default where there is an accelerator.

    Parameters
    ----------
    task : Task
        One that is no :class:`~fl_core.tasks.BatchedTask` has its jobs computed one by one.

    Notes
    -----
    A job whose result is wanted is computed with the pending jobs of its shape (the same steps on mini-batches of the
    same sizes), earliest due first; on what they are grouped depends the last digits of a result, and on nothing but
    the order of calls and the due times depends the grouping. As with
    :class:`~fl_core.runtime.executors.Threads`, results that nobody has taken yet fill at most
    :data:`~fl_core.runtime.executor.RESULT_BYTES`, and a step has at most :data:`STEP_SAMPLES` samples.

    On a CPU this works and is slower, 0.5 to 0.7 times as fast as ``sequential`` with LeNet-5: a convolution with a
    kernel for each model runs badly there.

    Whatever cannot be vectorised (control flow that looks at the data, say) is computed one by one, with a warning
    that names the reason.
    """

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.place = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._window = max(2, models_ahead(task))
        self._pending: dict[Shape, list[tuple[float, int, Ticket]]] = {}
        self._count = self._ahead = 0
        self._alone: set[tuple[type, type]] = set()
        self._reasons: set[str] = set()

    def __enter__(self) -> Batched:
        super().__enter__()
        # The numbers of a CPU, and the same ones each time: no 19-bit products, no race between additions.
        self._flags = torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False)
        self._flags.__enter__()
        self._vectorised: BatchedWorkspace | None = None
        self._workspace: Workspace
        if isinstance(self.task, BatchedTask):
            self._workspace = self._vectorised = self.task.batched_workspace(self.place)
        else:
            self._workspace = self.task.workspace()
        return self

    def __exit__(self, *error: object) -> None:
        self._flags.__exit__(None, None, None)
        super().__exit__()

    def submit(self, job: Job, due: float) -> Ticket:
        """Keep the job for later, beside others of its shape."""
        ticket = Ticket(job)
        shape = shape_of(job)
        if shape is not None:
            self._count += 1
            heapq.heappush(self._pending.setdefault(shape, []), (due, self._count, ticket))
        return ticket

    def result(self, ticket: Ticket) -> Any:
        """Compute `ticket`, if that has not happened, and what goes with it."""
        if not ticket.done:
            self._compute(ticket)
        self._ahead -= 1
        return ticket.take()

    def _compute(self, ticket: Ticket) -> None:
        job = ticket.job
        shape = shape_of(job)
        group = [ticket] if shape is None else self._group(ticket, shape)
        self._ahead += len(group)
        reason = ""
        if shape is not None and self._vectorised is not None and (len(group) > 1 or self.place.type != "cpu"):
            reason = self._compute_together(group, shape, self._vectorised)
        elif shape is not None and self._vectorised is None:
            reason = f"{type(self.task).__name__} has no batched_workspace"
        for each in group:
            if not each.done:
                each.compute(self._workspace)
                each.done = True
        if reason and all(each.error is None for each in group):  # else it may be a job that is wrong
            self._alone.add(_kind(job))
            if reason not in self._reasons:
                self._reasons.add(reason)
                warnings.warn(f"the batched executor computes jobs one by one: {reason}", UserWarning, stacklevel=3)

    def _group(self, ticket: Ticket, shape: Shape) -> list[Ticket]:
        """Take `ticket` and what is to be computed with it from the pending ones."""
        ticket.started = True
        group, pending = [ticket], self._pending[shape]
        room = min(self._window - self._ahead, STEP_SAMPLES // max(shape.sizes))
        if _kind(ticket.job) in self._alone:
            room = 1
        while pending and (pending[0][2].started or len(group) < room):
            other = heapq.heappop(pending)[2]
            if not other.started:
                other.started = True
                group.append(other)
        return group

    def _compute_together(self, group: list[Ticket], shape: Shape, workspace: BatchedWorkspace) -> str:
        """Compute `group`, or return why that is impossible."""
        jobs: list[Any] = [ticket.job for ticket in group]
        try:
            results = compute_together(jobs, shape, workspace)
        except Exception as error:
            return f"{type(error).__name__}: {error}".partition("\n")[0]
        for ticket, result in zip(group, results, strict=True):
            ticket.result, ticket.job, ticket.done = result, None, True
        return ""


def _kind(job: Any) -> tuple[type, type]:
    """Return what jobs have in common that cannot be vectorised: their kind, and that of their objective."""
    return type(job), type(job.objective)
