"""Where local jobs are computed.

``sequential`` and ``threads`` give the same numbers, bit for bit; those of ``batched`` agree with them within the
tolerance of floating point. PyTorch's intra-op threads are set to one while a run computes: summation order then
depends on nothing but the job, and two single-threaded workers are faster than one worker with two threads.
"""

from __future__ import annotations

import heapq
import os
import sys
import threading
from typing import Any

import torch

from fl_core.errors import SpecError, unknown
from fl_core.runtime.batched_executor import Batched
from fl_core.runtime.executor import Executor, Ticket, models_ahead
from fl_core.runtime.local import Job
from fl_core.tasks import Task, Workspace

SWITCH_SECONDS = 1e-4
"""Python's switch interval while workers compute (its default is 5 ms); see :class:`Threads`."""


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
        """Compute the job."""
        job = ticket.job
        if job is not None:  # the shortest way: what a job costs here, a million jobs cost in each run
            ticket.result = job.run(self._workspace)
            ticket.job = None
        return ticket.result


class Threads(Executor):
    """Computes jobs in worker threads, earliest due first, ahead of the virtual clock.

    Parameters
    ----------
    task : Task
    threads : int
        Number of workers.

    Notes
    -----
    Work ahead is bounded: results that nobody has taken yet fill at most
    :data:`~fl_core.runtime.executor.RESULT_BYTES` (and at least two models per thread), however many devices are in
    flight.

    A worker hands the interpreter back at each PyTorch call, mostly for a few microseconds. Those who wait for it are
    woken each time and mostly find it taken again; only after Python's switch interval does the next to let go wait
    until another has it. A short interval therefore saves most of that waking.
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

    def __enter__(self) -> Threads:
        super().__enter__()
        spaces = [self.task.workspace() for _ in range(self.threads)]
        self._workers = [threading.Thread(target=self._serve, args=(space,), daemon=True) for space in spaces]
        self._interval = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_SECONDS)
        for worker in self._workers:
            worker.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._closed = True
            self._work.notify_all()
        for worker in self._workers:
            worker.join()
        sys.setswitchinterval(self._interval)
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
        ticket = self._exchange(None)
        while ticket is not None:
            ticket.compute(workspace)
            ticket = self._exchange(ticket)

    def _exchange(self, finished: Ticket | None) -> Ticket | None:
        """Hand in a finished ticket and wait for the next one; None: go home."""
        with self._lock:
            if finished is not None:
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
            return ticket


EXECUTORS = ("sequential", "threads", "batched")


def usable_cores() -> int:
    """Return the number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def default_executor() -> str:
    """Return the name of the fastest executor on this machine."""
    return "batched" if torch.cuda.is_available() else "threads"


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
    if name == "threads":
        return Threads(task, threads or usable_cores())
    return Sequential(task) if name == "sequential" else Batched(task)
