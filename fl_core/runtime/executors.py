"""Where local jobs are computed.

``sequential`` and ``threads`` give the same numbers, bit for bit; those of ``batched`` agree with them within the
tolerance of floating point. PyTorch's intra-op threads are set to one while a run computes: summation order then
depends on nothing but the job, and two single-threaded workers are faster than one worker with two threads.
"""

from __future__ import annotations

import ctypes
import heapq
import os
import sys
import threading
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.func import vmap

from fl_core.errors import SpecError, unknown
from fl_core.processes import WORKER
from fl_core.runtime.local import Gradient, GradientJob, Job, Trained, TrainJob, batches_of, noise_stream, regularise
from fl_core.tasks import BatchedTask, BatchedWorkspace, Objective, Task, Workspace

RESULT_BYTES = 64 * 2**20
"""Models computed ahead of their use may fill this much memory."""


class Ticket:
    """A job that was handed to an executor."""

    __slots__ = ("done", "error", "job", "result", "started")

    def __init__(self, job: Job) -> None:
        self.job: Job | None = job
        self.result: Any = None
        self.error: BaseException | None = None
        self.started = self.done = False

    def compute(self, workspace: Workspace) -> None:
        """Run the job, keeping its result or its error; the job itself is let go."""
        job, self.job = self.job, None
        assert job is not None
        try:
            self.result = job.run(workspace)
        except BaseException as error:
            self.error = error

    def take(self) -> Any:
        """Return the result, which is let go, or raise the job's error."""
        if self.error is not None:
            raise self.error
        result, self.result = self.result, None
        return result


class Executor(ABC):
    """Computes jobs; used as a context manager."""

    def __init__(self, task: Task) -> None:
        self.task = task

    def __enter__(self) -> Executor:
        self._intraop = torch.get_num_threads()
        torch.set_num_threads(1)
        return self

    def __exit__(self, *_: object) -> None:
        torch.set_num_threads(self._intraop)

    def submit(self, job: Job, due: float) -> Ticket:
        """Hand in a job whose result will be needed at virtual time `due`; it need not begin before."""
        return Ticket(job)

    @abstractmethod
    def result(self, ticket: Ticket) -> Any:
        """Wait for the result of `ticket` and return it, once; errors of the job are raised here."""


def models_ahead(task: Task) -> int:
    """Return how many models fit into :data:`RESULT_BYTES`."""
    return RESULT_BYTES // (4 * max(1, task.dimension))


@dataclass(frozen=True)
class Shape:
    """What jobs must have in common to be computed together."""

    kind: type
    """Training or one gradient."""
    length: int
    dtype: torch.dtype
    sizes: tuple[int, ...]
    """Samples in the mini-batch of each step."""
    weight_decay: float
    regularised: bool
    momentum: float = 0.0
    corrected: bool = False


def shape_of(job: object) -> Shape | None:
    """Return the shape of `job`, or None if it is of a kind that is always computed alone."""
    if not isinstance(job, TrainJob | GradientJob):
        return None
    done = (job.cursor or 0) % -(-job.samples // job.batch_size)
    sizes = batch_sizes(job.samples, job.batch_size, job.steps, done)
    common = (type(job), len(job.start), job.start.dtype, sizes, job.weight_decay, job.objective is not None)
    if not isinstance(job, TrainJob):
        return Shape(*common)
    return None if job.contrast is not None else Shape(*common, job.momentum, job.correction is not None)


@lru_cache(maxsize=1024)
def batch_sizes(samples: int, size: int, steps: int, done: int = 0) -> tuple[int, ...]:
    """Return the sizes of `steps` mini-batches after the first `done`; the last one of an epoch may be smaller."""
    epoch = [min(size, samples - first) for first in range(0, samples, size)]
    return tuple(epoch[step % len(epoch)] for step in range(done, done + steps))


def compute_together(
    jobs: Sequence[TrainJob] | Sequence[GradientJob], shape: Shape, workspace: BatchedWorkspace
) -> list[Trained] | list[Gradient]:
    """Compute `jobs`, all of `shape`, on the mini-batches that each would use alone; results are in main memory."""
    place = workspace.vector.device
    models = torch.stack([job.start for job in jobs]).to(place)
    parameters = models[:, : len(workspace.parameters)]
    objective = Stacked([job.objective for job in jobs if job.objective is not None]) if shape.regularised else None
    anchors = parameters.clone() if objective else parameters
    rates = [[job.lr] for job in jobs if isinstance(job, TrainJob)]
    lr = torch.tensor(rates, dtype=models.dtype, device=place)
    velocity = _velocities(jobs, parameters) if shape.momentum else None
    corrections = [job.correction for job in jobs if isinstance(job, TrainJob) and job.correction is not None]
    memories = [each.begin(row) for each, row in zip(corrections, parameters, strict=False)]
    steps = len(shape.sizes)
    order = np.stack([np.concatenate(list(batches_of(job))) for job in jobs])
    noise = [noise_stream(job.key) for job in jobs] if workspace.noisy else None
    total: Tensor | float = 0.0
    for samples in workspace.locate([job.device for job in jobs], order).split(shape.sizes, 1):
        gradients, losses = workspace.gradients(models, samples, noise)
        regularise(gradients, parameters, anchors, objective, shape.weight_decay)
        total = losses + total
        for correction, row, memory in zip(corrections, gradients, memories, strict=False):
            correction.correct(row, memory)
        if velocity is not None:
            gradients = velocity.mul_(shape.momentum).add_(gradients)
        if shape.kind is TrainJob:
            parameters.addcmul_(gradients, lr, value=-1)
    assert isinstance(total, Tensor)
    means = [loss / steps for loss in total.tolist()]
    if shape.kind is TrainJob:
        last = [None] * len(jobs) if velocity is None else rows(velocity)
        kept = [tuple(each.cpu() for each in memory) for memory in memories] or [()] * len(jobs)
        results = zip(rows(models), means, [steps] * len(jobs), last, kept, strict=True)
        return [Trained(*result) for result in results]
    return [Gradient(g, loss, shape.sizes[0]) for g, loss in zip(rows(gradients), means, strict=True)]


def rows(matrix: Tensor) -> list[Tensor]:
    """Return copies of the rows in main memory: a view of one would keep the whole matrix alive."""
    return [row.clone() for row in matrix.cpu()]


def _velocities(jobs: Sequence[TrainJob] | Sequence[GradientJob], like: Tensor) -> Tensor:
    """Return the velocities ``[g, p]`` that `jobs` begin with."""
    velocities = torch.zeros_like(like)
    for row, job in zip(velocities, jobs, strict=True):
        if isinstance(job, TrainJob) and job.velocity is not None:
            row.copy_(job.velocity)
    return velocities


class Stacked:
    """The objectives of several jobs, as one on matrices with a row for each."""

    def __init__(self, objectives: Sequence[Objective]) -> None:
        self.objectives = objectives
        try:
            self._same = len(set(objectives)) == 1
        except TypeError:  # not hashable, so nobody can say whether they are equal
            self._same = False

    def gradient(self, parameters: Tensor, start: Tensor) -> Tensor:
        """Return the gradients ``[g, p]``, each as its objective gives it for its row alone."""
        if self._same:
            return vmap(self.objectives[0].gradient)(parameters, start)
        pairs = zip(self.objectives, parameters, start, strict=True)
        return torch.stack([objective.gradient(row, anchor) for objective, row, anchor in pairs])


STEP_SAMPLES = 4096
"""At most so many samples are in one vectorised step: the bound on the memory of activations."""


class Batched(Executor):
    """Trains jobs of equal shape together, vectorised over devices; the default where there is an accelerator.

    A task that is no :class:`~fl_core.tasks.BatchedTask`, and whatever cannot be vectorised (control flow that looks
    at the data, say), is computed job by job, with a warning that names the reason.

    A job whose result is wanted is computed with pending jobs of its shape, earliest due first. The last digits of a
    result depend on this grouping, which depends on the order of calls and the due times alone. Results that nobody
    has taken yet fill at most :data:`RESULT_BYTES`, and a step has at most :data:`STEP_SAMPLES` samples.

    On a CPU it is 0.5 to 0.7 times as fast as ``sequential`` (LeNet-5): convolutions with a kernel for each model run
    badly there.
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
        ticket = Ticket(job)
        shape = shape_of(job)
        if shape is not None:
            self._count += 1
            heapq.heappush(self._pending.setdefault(shape, []), (due, self._count, ticket))
        return ticket

    def result(self, ticket: Ticket) -> Any:
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


SWITCH_SECONDS = 1e-4
"""Python's switch interval while workers compute (its default is 5 ms); see :class:`Threads`."""


class Sequential(Executor):
    """Computes a job when its result is asked for, in the calling thread."""

    def __enter__(self) -> Sequential:
        super().__enter__()
        self._workspace = self.task.workspace()
        return self

    def result(self, ticket: Ticket) -> Any:
        job = ticket.job
        if job is not None:  # the shortest way: what a job costs here, a million jobs cost in each run
            ticket.result = job.run(self._workspace)
            ticket.job = None
        return ticket.result


class Dismissed(BaseException):
    """Raised in a worker whose job nobody wants any more, as the run was interrupted."""


class Debug(Sequential):
    """Computes like ``sequential`` while every rule that programs must keep is checked; slow, for writing them."""

    sanitizer: Any = None
    """What checks; see :mod:`fl_core.runtime.watchdog`."""

    def result(self, ticket: Ticket) -> Any:
        """Compute the job, and see that it changes nothing but its result."""
        job = ticket.job
        if job is None or self.sanitizer is None:
            return super().result(ticket)
        before = self.sanitizer.begins(job)
        found = super().result(ticket)
        self.sanitizer.ended(job, before)
        return found


class Threads(Executor):
    """Computes jobs in so many worker threads, earliest due first, ahead of the virtual clock.

    Results that nobody has taken yet fill at most :data:`RESULT_BYTES` (and at least two models per thread), however
    many devices are in flight.

    A worker hands the interpreter back at each PyTorch call, mostly for a few microseconds. Those who wait for it are
    woken each time, in vain until Python's switch interval is over; a short one saves most of that waking.
    """

    def __init__(self, task: Task, threads: int) -> None:
        super().__init__(task)
        self.threads = threads
        self._window = max(2 * threads, models_ahead(task))
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._finished = threading.Condition(self._lock)
        self._pending: list[tuple[float, int, Ticket]] = []
        self._awaited: Ticket | None = None
        self._count = self._ahead = 0
        self._closed = False
        self._busy: set[int] = set()

    def __enter__(self) -> Threads:
        super().__enter__()
        spaces = [self.task.workspace() for _ in range(self.threads)]
        named: dict[str, Any] = {"target": self._serve, "name": WORKER, "daemon": True}
        self._workers = [threading.Thread(args=(space,), **named) for space in spaces]
        self._interval = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_SECONDS)
        for worker in self._workers:
            worker.start()
        return self

    def __exit__(self, *error: Any) -> None:
        interrupted = any(error) and not issubclass(error[0], Exception)
        with self._lock:
            self._closed = True
            self._work.notify_all()
            for ident in self._busy if interrupted else ():  # nobody waits for a long job to end
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(Dismissed))
        by = time.monotonic() + 1.0
        for worker in self._workers:
            worker.join(max(0.0, by - time.monotonic()) if interrupted else None)
        sys.setswitchinterval(self._interval)
        super().__exit__()

    def submit(self, job: Job, due: float) -> Ticket:
        ticket = Ticket(job)
        with self._lock:
            self._queue(ticket, due)
        return ticket

    def result(self, ticket: Ticket) -> Any:
        """Wait for `ticket`; a job that no worker has begun is moved to the front."""
        with self._lock:
            if not ticket.started:
                self._queue(ticket, float("-inf"))
            self._awaited = ticket
            while not ticket.done:
                self._finished.wait()
            self._ahead -= 1
            self._work.notify()
        return ticket.take()

    def _queue(self, ticket: Ticket, due: float) -> None:
        self._count += 1
        heapq.heappush(self._pending, (due, self._count, ticket))
        self._work.notify()

    def _may_start(self) -> bool:
        while self._pending and self._pending[0][2].started:  # queued twice: by submit and by result
            heapq.heappop(self._pending)
        return bool(self._pending) and (self._ahead < self._window or self._pending[0][0] == float("-inf"))

    def _serve(self, workspace: Workspace) -> None:
        torch.set_num_threads(1)
        with suppress(Dismissed):
            ticket = self._exchange(None)
            while ticket is not None:
                ticket.compute(workspace)
                ticket = self._exchange(ticket)

    def _exchange(self, finished: Ticket | None) -> Ticket | None:
        """Hand in a finished ticket and wait for the next one; None: go home."""
        with self._lock:
            if finished is not None:
                self._busy.discard(threading.get_ident())
                finished.done = True
                if finished is self._awaited:
                    self._finished.notify()
            while not self._closed and not self._may_start():
                self._work.wait()
            if self._closed:
                return None
            ticket = heapq.heappop(self._pending)[2]
            ticket.started = True
            self._ahead += 1
            self._busy.add(threading.get_ident())
            return ticket


EXECUTORS = ("sequential", "threads", "batched", "debug")
MOST_THREADS = 1024


def usable_cores() -> int:
    """Return the number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def default_executor() -> str:
    """Return the name of the fastest executor on this machine."""
    return "batched" if torch.cuda.is_available() else "threads"


def make_executor(name: str, task: Task, threads: int | None = None) -> Executor:
    """Build the executor called `name`; `threads` defaults to the number of usable processor cores."""
    if name not in EXECUTORS:
        raise unknown("executor", name, EXECUTORS)
    if threads is not None and not 1 <= threads <= MOST_THREADS:
        raise SpecError(f"threads = {threads} must be between 1 and {MOST_THREADS}")
    if name == "threads":
        return Threads(task, threads or usable_cores())
    return Batched(task) if name == "batched" else Debug(task) if name == "debug" else Sequential(task)
