"""Where local jobs are computed.

``sequential`` and ``threads`` give the same numbers, bit for bit; those of ``batched`` agree with them within the
tolerance of floating point. PyTorch's intra-op threads are set to one while a run computes: summation order then
depends on nothing but the job, and two single-threaded workers are faster than one worker with two threads.
"""

from __future__ import annotations

import ctypes
import heapq
import sys
import threading
import time
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.cuda import CUDAGraph
from torch.func import vmap

from fl_core.errors import SpecError, unknown
from fl_core.processes import WORKER, usable_cores
from fl_core.runtime.local import Gradient, GradientJob, Job, Trained, TrainJob, batches_of, noise_stream, regularise
from fl_core.tasks import BatchedTask, BatchedWorkspace, Objective, Task, Workspace

RESULT_BYTES = 64 * 2**20
"""Models computed ahead of their use may fill this much memory."""


class Ticket:
    """A job that was handed to an executor."""

    __slots__ = ("done", "error", "executor", "job", "result", "started")

    def __init__(self, job: Job, executor: Executor | None = None) -> None:
        self.job: Job | None = job
        self.executor = executor
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
    jobs: Sequence[TrainJob] | Sequence[GradientJob], shape: Shape, workspace: BatchedWorkspace, block: int,
    tasks: Sequence[BatchedTask], mapped: Callable[..., Iterable[Any]] = map,
) -> list[Trained] | list[Gradient]:  # fmt: skip
    """Compute `jobs`, all of `shape`, on the mini-batches that each would use alone; results are in main memory.

    Each job is of its own one of `tasks`, which are all of one kin, and so is the workspace. What is done for
    each of them alone is `mapped`, in threads if need be.

    Rows of models are sorted by steps, so that those still in training are the first ones, and a mini-batch that does
    not fill its row of samples is padded with some that have no weight. Each step computes at least `block` rows, the
    missing ones for nothing: kernels are chosen by size.
    """
    place, dtype = workspace.vector.device, jobs[0].start.dtype
    turn = sorted(range(len(jobs)), key=lambda i: -jobs[i].steps)
    turn += turn[:1] * (block - len(jobs))
    ours = [jobs[i] for i in turn]
    models = torch.empty(len(ours), shape.length, dtype=dtype, device=place)
    for row, job in zip(models, ours, strict=True):
        row.copy_(job.start)
    parameters = models[:, : len(workspace.parameters)]
    objective = Stacked([job.objective for job in ours if job.objective is not None]) if shape.regularised else None
    anchors = parameters.clone() if objective else parameters
    lr = torch.tensor([[job.lr] for job in ours if isinstance(job, TrainJob)], dtype=dtype, device=place)
    velocity = _velocities(ours, parameters) if shape.momentum else None
    corrections = [job.correction for job in ours if isinstance(job, TrainJob) and job.correction is not None]
    memories = [each.begin(row) for each, row in zip(corrections, parameters, strict=False)]
    order, sizes = _padded_batches(ours, shape.samples)
    located = [tasks[i].locate(job.device, row.ravel()) for i, job, row in zip(turn, ours, order, strict=True)]
    samples = torch.stack(located).to(place).reshape(order.shape)
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
        last = [None] * len(jobs) if velocity is None else rows(velocity[: len(jobs)], mapped)
        kept = [tuple(part.cpu() for part in memory) for memory in memories] or [()] * len(ours)
        for i, model, job, *result in zip(
            turn, rows(models[: len(jobs)], mapped), ours, means, last, kept, strict=False
        ):
            found[i] = Trained(model, result[0], job.steps, *result[1:])
    else:
        for i, row, mean, job in zip(turn, rows(gradients, mapped), means, ours, strict=False):
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


def rows(matrix: Tensor, mapped: Callable[..., Iterable[Any]] = map) -> list[Tensor]:
    """Return copies of the rows in main memory: a view of one would keep the whole matrix alive."""
    return list(mapped(lambda row: row.to("cpu", copy=True), matrix))


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


class Captured:
    """A workspace whose steps an accelerator does from a recorded graph, with its operations started all at once.

    Recorded is what is done a second time with equally many models and samples, if nothing is drawn in it.
    """

    def __init__(self, workspace: BatchedWorkspace) -> None:
        self.workspace = workspace
        self.vector, self.parameters, self.noisy = workspace.vector, workspace.parameters, workspace.noisy
        self._seen: set[tuple[torch.Size, ...]] = set()
        self._graphs: dict[tuple[torch.Size, ...], tuple[CUDAGraph, list[Tensor], tuple[Tensor, Tensor]]]
        self._graphs, self._pool = {}, torch.cuda.graph_pool_handle()

    def gradients(
        self, models: Tensor, samples: Tensor, weights: Tensor, noise: Sequence[tuple[torch.Generator, int]] = ()
    ) -> tuple[Tensor, Tensor]:
        """Return what the workspace would; valid until the next call."""
        given, key = (models, samples, weights), (models.shape, samples.shape)
        if noise or key not in self._seen:
            self._seen.add(key)
            return self.workspace.gradients(*given, noise)
        if key not in self._graphs:
            held, graph = [torch.clone(each, memory_format=torch.contiguous_format) for each in given], CUDAGraph()
            with torch.cuda.graph(graph, self._pool):
                found = self.workspace.gradients(held[0], held[1], held[2])
            self._graphs[key] = graph, held, found
        graph, held, found = self._graphs[key]
        for mine, each in zip(held, given, strict=True):
            mine.copy_(each)
        graph.replay()
        models[:, len(self.parameters) :] = held[0][:, len(self.parameters) :]
        return found


class Together:
    """Where the executors ``batched`` of several runs meet, one thread a run: jobs of all are computed together.

    Nothing is computed until none of the runs can go on without a result; so there are many jobs to choose from, and
    no two threads are ever at work on them. Who begins a run that shall meet others says so beforehand by `runs`, and
    says :meth:`leave` when no more follow in that thread.
    """

    def __init__(self, runs: int = 1) -> None:
        self.place = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        on_cpu = self.place.type == "cpu"
        self._bytes = STEP_BYTES if on_cpu else torch.cuda.get_device_properties(self.place).total_memory // 4
        self.runs = self.left = runs
        self._changed, self._helpers = threading.Condition(), ThreadPoolExecutor(usable_cores())
        self._waiting: dict[Batched, Ticket] = {}
        self._spaces: dict[Hashable, tuple[Any, Any]] = {}
        self._live: Counter[Hashable] = Counter()
        self._pending: dict[tuple[Hashable, Shape], list[tuple[float, int, Ticket]]] = {}
        self._count = 0
        self._alone: set[tuple[Hashable, ...]] = set()
        self._reasons: set[str] = set()

    def leave(self) -> None:
        """Say that a thread has no more runs."""
        with self._changed:
            self.left -= 1
            self._changed.notify_all()

    def spaces(self, task: Task) -> tuple[Hashable, Any, Any]:
        """Return the kin of `task`, a workspace for it, and one that trains many at once, if there is any."""
        with self._changed:
            if not isinstance(task, BatchedTask):
                return None, task.workspace(), None
            if task.kin not in self._spaces:
                for kin in self._spaces.keys() - (+self._live).keys():
                    del self._spaces[kin]
                space = task.batched_workspace(self.place)
                self._spaces[task.kin] = space, Captured(space) if self.place.type == "cuda" else space
            self._live[task.kin] += 1
            return task.kin, *self._spaces[task.kin]

    def submit(self, ticket: Ticket, of: Batched, due: float) -> None:
        """Put a job that can be computed with others among the pending ones."""
        if (shape := of.shape(ticket.job)) is not None:
            with self._changed:
                self._count += 1
                heapq.heappush(self._pending.setdefault((of.kin, shape), []), (due, self._count, ticket))

    def wait(self, ticket: Ticket, of: Batched) -> None:
        """Wait until `ticket` is done; the last one who comes computes what each waits for: none falls back."""
        with self._changed:
            self._waiting[of] = ticket
            try:
                while not ticket.done:
                    if len(self._waiting) < self.left or any(each.done for each in self._waiting.values()):
                        self._changed.wait()
                    else:
                        for each, wanted in self._waiting.items():
                            if not wanted.done:
                                self._compute(wanted, each)
                        self._changed.notify_all()
            finally:
                del self._waiting[of]

    def forget(self, of: Batched) -> None:
        """Forget what a run has not asked for."""
        with self._changed:
            self._live[of.kin] -= 1
            for pending in self._pending.values():
                pending[:] = [entry for entry in pending if entry[2].executor is not of]
                heapq.heapify(pending)

    def _compute(self, ticket: Ticket, of: Batched) -> None:
        job, shape = ticket.job, of.shape(ticket.job)
        group = [ticket] if shape is None else self._group(ticket, of, shape)
        reason = f"{type(of.task).__name__} has no batched_workspace" * (shape is not None)
        if shape is not None and of.vectorised is not None:
            reason = self._compute_together(group, of, shape)
        for each in group:
            owner: Any = each.executor
            owner.ahead += 1
            if not each.done:
                owner.space.task = owner.task
                each.compute(owner.space)
                each.done = True
        if reason and all(each.error is None for each in group):  # else it may be a job that is wrong
            self._alone.add((of.kin, *_kind(job)))
            if reason not in self._reasons:
                self._reasons.add(reason)
                warnings.warn(f"the batched executor computes jobs one by one: {reason}", UserWarning, stacklevel=4)

    def _most(self, of: Batched, shape: Shape) -> int:
        """Return how many jobs of `shape` a step may train."""
        fitting = self._bytes // (of.space.sample_bytes if of.vectorised else 1)
        return max(1, min(STEP_SAMPLES, fitting) // shape.samples)

    def _group(self, ticket: Ticket, of: Batched, shape: Shape) -> list[Ticket]:
        """Take `ticket`, what others wait for, and then what is due first."""
        ticket.started = True
        group, pending, most = [ticket], self._pending[of.kin, shape], self._most(of, shape)
        if (of.kin, *_kind(ticket.job)) in self._alone:
            most = 1
        wanted = [each for each in self._waiting.values() if not each.started and each.job is not None]
        for other in wanted[: most - 1]:
            owner: Any = other.executor
            if (owner.kin, owner.shape(other.job)) == (of.kin, shape):
                other.started = True
                group.append(other)
        room = min(most, self.runs * of.window - sum(each.ahead for each in self._waiting))
        while pending and (pending[0][2].started or len(group) < room):
            other = heapq.heappop(pending)[2]
            if not other.started:
                other.started = True
                group.append(other)
        return group

    def _compute_together(self, group: list[Ticket], of: Batched, shape: Shape) -> str:
        """Compute `group`, or return why that is impossible."""
        jobs: list[Any] = [ticket.job for ticket in group]
        tasks: list[Any] = [ticket.executor.task for ticket in group if ticket.executor]
        block = 2 if self.place.type == "cpu" else min(self.runs * of.window, self._most(of, shape))
        try:
            results = compute_together(jobs, shape, of.vectorised, block, tasks, self._helpers.map)
        except Exception as error:
            return f"{type(error).__name__}: {error}".partition("\n")[0]
        for ticket, result in zip(group, results, strict=True):
            ticket.result, ticket.job, ticket.done = result, None, True
        return ""


class Batched(Executor):
    """Trains jobs of equal shape together, vectorised over devices; the default where there is an accelerator.

    A task that is no :class:`~fl_core.tasks.BatchedTask`, and whatever cannot be vectorised (control flow that looks
    at the data, say), is computed job by job, with a warning that names the reason.

    A job whose result is wanted is computed with pending jobs of its shape, earliest due first; mini-batches of
    unequal sizes and tasks of unequal lengths are padded, unless samples see one another (batch normalisation). What
    is computed for a job depends on no other one. Nor do its last digits where kernels see to it: on an accelerator
    every block has the same number of rows, some of them idle; on a CPU few layers round by where a row lies in
    memory. Results that nobody has taken yet fill at most :data:`RESULT_BYTES`, and as much for each run that is
    computed `together` with this one.

    On a CPU it is slower than ``sequential``: the matrix products that an accelerator wants cost more there than its
    convolutions.
    """

    def __init__(self, task: Task, together: Together | None = None) -> None:
        super().__init__(task)
        self.together = together or Together()
        self.window, self.ahead = max(2, models_ahead(task)), 0

    def __enter__(self) -> Batched:
        super().__enter__()
        # The numbers of a CPU, and the same ones each time: no 19-bit products, no race between additions.
        self._flags = torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False)
        self._flags.__enter__()
        self.kin, self.space, self.vectorised = self.together.spaces(self.task)
        return self

    def __exit__(self, *error: object) -> None:
        self.together.forget(self)
        self._flags.__exit__(None, None, None)
        super().__exit__()

    def submit(self, job: Job, due: float) -> Ticket:
        ticket = Ticket(job, self)
        self.together.submit(ticket, self, due)
        return ticket

    def result(self, ticket: Ticket) -> Any:
        if not ticket.done:
            self.together.wait(ticket, self)
        self.ahead -= 1
        return ticket.take()

    def shape(self, job: object) -> Shape | None:
        """Return what `job` has to share with those that it is computed with; None: it is computed alone."""
        return shape_of(job, self.vectorised is None or self.space.separate)


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


def default_executor() -> str:
    """Return the name of the fastest executor on this machine."""
    return "batched" if torch.cuda.is_available() else "threads"


def make_executor(name: str, task: Task, threads: int | None = None, together: Together | None = None) -> Executor:
    """Build the executor called `name`; `threads` defaults to the number of usable processor cores.

    That of ``batched`` computes `together` with those of other runs.
    """
    if name not in EXECUTORS:
        raise unknown("executor", name, EXECUTORS)
    if threads is not None and not (1 <= threads <= MOST_THREADS and threads % 1 == 0):
        raise SpecError(f"threads = {threads} must be a whole number between 1 and {MOST_THREADS}")
    if name == "threads":
        return Threads(task, int(threads or usable_cores()))
    return Batched(task, together) if name == "batched" else Debug(task) if name == "debug" else Sequential(task)
