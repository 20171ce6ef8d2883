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
    samples: int
    """Places for samples in a step, as many as the job needs whoever it is computed with."""
    sizes: tuple[int, ...]
    """Samples in each step's mini-batch where these see one another, so that nothing can be padded; else empty."""
    weight_decay: float
    regularised: bool
    momentum: float = 0.0
    corrected: bool = False


def shape_of(job: object, separate: bool = True) -> Shape | None:
    """Return the shape of `job`, or None if it is of a kind that is always computed alone."""
    if not isinstance(job, TrainJob | GradientJob):
        return None
    sizes = () if separate else sizes_of(job)
    width = max(sizes, default=min(job.batch_size, 1 << (job.samples - 1).bit_length()))
    common = (type(job), len(job.start), job.start.dtype, width, sizes, job.weight_decay, job.objective is not None)
    if not isinstance(job, TrainJob):
        return Shape(*common)
    return None if job.contrast is not None else Shape(*common, job.momentum, job.correction is not None)


def sizes_of(job: TrainJob | GradientJob) -> tuple[int, ...]:
    """Return the sizes of the mini-batches of `job`."""
    return batch_sizes(job.samples, job.batch_size, job.steps, (job.cursor or 0) % -(-job.samples // job.batch_size))


@lru_cache(maxsize=1024)
def batch_sizes(samples: int, size: int, steps: int, done: int = 0) -> tuple[int, ...]:
    """Return the sizes of `steps` mini-batches after the first `done`; the last one of an epoch may be smaller."""
    epoch = [min(size, samples - first) for first in range(0, samples, size)]
    return tuple(epoch[step % len(epoch)] for step in range(done, done + steps))


def compute_together(
    jobs: Sequence[TrainJob] | Sequence[GradientJob], shape: Shape, workspace: BatchedWorkspace, block: int = 0
) -> list[Trained] | list[Gradient]:
    """Compute `jobs`, all of `shape`, on the mini-batches that each would use alone; results are in main memory.

    Rows of models are sorted by steps, so that those still in training are the first ones, and a mini-batch that does
    not fill its row of samples is padded with some that have no weight. Each step computes at least `block` rows, the
    missing ones for nothing: kernels are chosen by size.
    """
    place, dtype = workspace.vector.device, jobs[0].start.dtype
    turn = sorted(range(len(jobs)), key=lambda i: -jobs[i].steps)
    ours = [jobs[i] for i in turn]
    ours += ours[:1] * (block - len(jobs))
    models = torch.stack([job.start for job in ours]).to(place)
    parameters = models[:, : len(workspace.parameters)]
    objective = Stacked([job.objective for job in ours if job.objective is not None]) if shape.regularised else None
    anchors = parameters.clone() if objective else parameters
    lr = torch.tensor([[job.lr] for job in ours if isinstance(job, TrainJob)], dtype=dtype, device=place)
    velocity = _velocities(ours, parameters) if shape.momentum else None
    corrections = [job.correction for job in ours if isinstance(job, TrainJob) and job.correction is not None]
    memories = [each.begin(row) for each, row in zip(corrections, parameters, strict=False)]
    order, sizes = _padded_batches(ours, shape.samples)
    samples = workspace.locate([job.device for job in ours], order.reshape(len(ours), -1)).reshape(order.shape)
    weights = torch.from_numpy((np.arange(shape.samples) < sizes[:, :, None]) / np.maximum(sizes, 1)[:, :, None])
    weights = weights.to(place, dtype)
    generators = [noise_stream(job.key) for job in ours] if workspace.noisy else []
    total = torch.zeros(len(ours), dtype=dtype, device=place)
    for step, width in enumerate(shape.sizes or [shape.samples] * len(sizes[0])):
        training = int((sizes[: len(jobs), step] > 0).sum())
        here = max(training, min(block, len(ours)))
        noise = list(zip(generators[:here], sizes[:here, step].tolist(), strict=False))
        stepped = workspace.gradients(
            models[:here], samples[:here, step, :width], weights[:here, step, :width], noise
        )
        gradients, losses = (each[:training] for each in stepped)
        now = parameters[:training]
        regularise(gradients, now, anchors[:training], objective, shape.weight_decay)
        total[:training] += losses
        for correction, row, memory in zip(corrections, gradients, memories, strict=False):
            correction.correct(row, memory)
        if velocity is not None:
            gradients = velocity[:training].mul_(shape.momentum).add_(gradients)
        if shape.kind is TrainJob:
            now.addcmul_(gradients, lr[:training], value=-1)
    means = [loss / job.steps for loss, job in zip(total.tolist(), ours, strict=True)]
    found: list[Any] = [None] * len(jobs)
    if shape.kind is TrainJob:
        last = [None] * len(jobs) if velocity is None else rows(velocity[: len(jobs)])
        kept = [tuple(each.cpu() for each in memory) for memory in memories] or [()] * len(ours)
        for i, model, job, *result in zip(turn, rows(models[: len(jobs)]), ours, means, last, kept, strict=False):
            found[i] = Trained(model, result[0], job.steps, *result[1:])
    else:
        for i, row, mean, job in zip(turn, rows(gradients), means, ours, strict=False):
            found[i] = Gradient(row, mean, sizes_of(job)[0])
    return found


def _padded_batches(jobs: Sequence[TrainJob | GradientJob], width: int) -> tuple[np.ndarray, np.ndarray]:
    """Return positions ``[g, steps, width]``, those of each mini-batch before zeros, and the sizes ``[g, steps]``."""
    sizes = np.zeros((len(jobs), max(job.steps for job in jobs)), dtype=np.int64)
    order = np.zeros((*sizes.shape, width), dtype=np.int64)
    for job, positions, counts in zip(jobs, order, sizes, strict=True):
        for step, batch in enumerate(batches_of(job)):
            positions[step, : len(batch)], counts[step] = batch, len(batch)
    return order, sizes


def rows(matrix: Tensor) -> list[Tensor]:
    """Return copies of the rows in main memory: a view of one would keep the whole matrix alive."""
    return [row.clone() for row in matrix.cpu()]


def _velocities(jobs: Sequence[TrainJob | GradientJob], like: Tensor) -> Tensor:
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
        pairs = zip(self.objectives, parameters, start, strict=False)  # of the first rows, if not of all
        return torch.stack([objective.gradient(row, anchor) for objective, row, anchor in pairs])


STEP_SAMPLES = 4096
STEP_BYTES = 2 * 2**30
"""At most so many samples are in one vectorised step, and so much memory (on an accelerator a quarter of what it has)
is used for them.
"""


class Batched(Executor):
    """Trains jobs of equal shape together, vectorised over devices; the default where there is an accelerator.

    A task that is no :class:`~fl_core.tasks.BatchedTask`, and whatever cannot be vectorised (control flow that looks
    at the data, say), is computed job by job, with a warning that names the reason.

    A job whose result is wanted is computed with pending jobs of its shape, earliest due first; mini-batches of
    unequal sizes and tasks of unequal lengths are padded, unless samples see one another (batch normalisation). What
    is computed for a job depends on no other one. Nor do its last digits where kernels see to it: on an accelerator
    every block has the same number of rows, some of them idle; on a CPU few layers round by where a row lies in
    memory. Results that nobody has taken yet fill at most :data:`RESULT_BYTES`.

    On a CPU it is slower than ``sequential``: the matrix products that an accelerator wants cost more there than its
    convolutions.
    """

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.place = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._window = max(2, models_ahead(task))
        on_cpu = self.place.type == "cpu"
        self._bytes = STEP_BYTES if on_cpu else torch.cuda.get_device_properties(self.place).total_memory // 4
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
        shape = self._shape(job)
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
        shape = self._shape(job)
        group = [ticket] if shape is None else self._group(ticket, shape)
        self._ahead += len(group)
        reason = ""
        if shape is not None and self._vectorised is not None:
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

    def _shape(self, job: object) -> Shape | None:
        return shape_of(job, self._vectorised is None or self._vectorised.separate)

    def _most(self, shape: Shape) -> int:
        """Return how many jobs of `shape` a step may train."""
        fitting = self._bytes // (self._vectorised.sample_bytes if self._vectorised else 1)
        return max(1, min(STEP_SAMPLES, fitting) // shape.samples)

    def _group(self, ticket: Ticket, shape: Shape) -> list[Ticket]:
        """Take `ticket` and what is to be computed with it from the pending ones."""
        ticket.started = True
        group, pending = [ticket], self._pending[shape]
        room = min(self._window - self._ahead, self._most(shape))
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
            block = 2 if self.place.type == "cpu" else min(self._window, self._most(shape))
            results = compute_together(jobs, shape, workspace, block)
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
