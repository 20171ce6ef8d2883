"""Where local jobs are computed. All executors give the same numbers, bit for bit.

PyTorch's intra-op threads are set to one while a run computes: summation order then depends on nothing but the job,
and two single-threaded workers are faster than one worker with two threads.
"""

from __future__ import annotations

import heapq
import os
import threading
from abc import ABC, abstractmethod
from typing import Any

import torch

from fl_core.errors import SpecError, unknown
from fl_core.runtime.local import Job
from fl_core.tasks import Task, Workspace

RESULT_BYTES = 64 * 2**20
"""Models computed ahead of their use may fill this much memory."""


class Ticket:
    """A job that was handed to an executor."""

    __slots__ = ("done", "error", "job", "result", "started")

    def __init__(self, job: Job) -> None:
        self.job: Job | None = job
        self.started = self.done = False
        self.result: Any = None
        self.error: BaseException | None = None

    def compute(self, workspace: Workspace) -> None:
        """Run the job, keeping its result or its error; the job itself is let go."""
        job, self.job = self.job, None
        assert job is not None
        try:
            self.result = job.run(workspace)
        except BaseException as error:
            self.error = error

    def take(self) -> Any:
        """Return the result, or raise the job's error."""
        if self.error is not None:
            raise self.error
        return self.result


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

    @abstractmethod
    def submit(self, job: Job, due: float) -> Ticket:
        """Hand in a job whose result will be needed at virtual time `due`."""

    @abstractmethod
    def result(self, ticket: Ticket) -> Any:
        """Wait for the result of `ticket` and return it; errors of the job are raised here."""


class Sequential(Executor):
    """Computes a job when its result is asked for, in the calling thread."""

    def __enter__(self) -> Sequential:
        super().__enter__()
        self._workspace = self.task.workspace()
        return self

    def submit(self, job: Job, due: float) -> Ticket:
        """Keep the job for later."""
        return Ticket(job)

    def result(self, ticket: Ticket) -> Any:
        """Compute `ticket` unless that has happened, and return its result."""
        if not ticket.done:
            ticket.compute(self._workspace)
            ticket.done = True
        return ticket.take()


class Threads(Executor):
    """Computes jobs in worker threads, earliest due first, ahead of the virtual clock.

    Parameters
    ----------
    task : Task
    threads : int
        Number of workers.

    Notes
    -----
    Work ahead is bounded: results that nobody has taken yet fill at most :data:`RESULT_BYTES` (and at least two
    models per thread), however many devices are in flight.
    """

    def __init__(self, task: Task, threads: int) -> None:
        super().__init__(task)
        self.threads = threads
        self._window = max(2 * threads, RESULT_BYTES // (4 * max(1, task.dimension)))
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._finished = threading.Condition(self._lock)
        self._pending: list[tuple[float, int, Ticket]] = []
        self._count = self._ahead = 0
        self._closed = False

    def __enter__(self) -> Threads:
        super().__enter__()
        self._workers = [threading.Thread(target=self._serve, daemon=True) for _ in range(self.threads)]
        for worker in self._workers:
            worker.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._closed = True
            self._work.notify_all()
        for worker in self._workers:
            worker.join()
        super().__exit__()

    def submit(self, job: Job, due: float) -> Ticket:
        """Queue the job."""
        ticket = Ticket(job)
        with self._lock:
            self._queue(ticket, due)
        return ticket

    def result(self, ticket: Ticket) -> Any:
        """Wait for `ticket`; a job that no worker has begun is moved to the front."""
        with self._lock:
            if not ticket.started:
                self._queue(ticket, float("-inf"))
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

    def _serve(self) -> None:
        torch.set_num_threads(1)
        workspace = self.task.workspace()
        while True:
            with self._lock:
                while not self._closed and not self._may_start():
                    self._work.wait()
                if self._closed:
                    return
                ticket = heapq.heappop(self._pending)[2]
                ticket.started = True
                self._ahead += 1
            ticket.compute(workspace)
            with self._lock:
                ticket.done = True
                self._finished.notify_all()


EXECUTORS = ("sequential", "threads")


def usable_cores() -> int:
    """Return the number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def make_executor(name: str, task: Task, threads: int | None = None) -> Executor:
    """Build the executor called `name`; `threads` defaults to the number of usable processor cores.

    Raises
    ------
    SpecError
        If the name is unknown or `threads` is below 1.
    """
    if name not in EXECUTORS:
        raise unknown("executor", name, EXECUTORS)
    if threads is not None and threads < 1:
        raise SpecError(f"threads = {threads} must be at least 1")
    if name == "sequential":
        return Sequential(task)
    return Threads(task, threads or usable_cores())
