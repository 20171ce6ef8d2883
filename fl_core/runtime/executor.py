"""What every executor has: the tickets that it gives for jobs, and PyTorch's threads set to one while it computes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch

from fl_core.runtime.local import Job
from fl_core.tasks import Task, Workspace

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

    @abstractmethod
    def submit(self, job: Job, due: float) -> Ticket:
        """Hand in a job whose result will be needed at virtual time `due`."""

    @abstractmethod
    def result(self, ticket: Ticket) -> Any:
        """Wait for the result of `ticket` and return it, once; errors of the job are raised here."""


def models_ahead(task: Task) -> int:
    """Return how many models fit into :data:`RESULT_BYTES`."""
    return RESULT_BYTES // (4 * max(1, task.dimension))
