"""Noise to be learned, and local jobs that are done by an executor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from fl_core.datasets import Dataset, Split
from fl_core.runtime import make_executor


def noise(train: int, test: int, shape: tuple[int, ...] = (1, 28, 28)) -> Dataset:
    """Return so many samples of three classes: tokens for sequences, pixels for images."""
    generator = torch.Generator().manual_seed(0)

    def split(count: int) -> Split:
        if len(shape) == 1:
            inputs = torch.randint(0, 100, (count, *shape), generator=generator, dtype=torch.int32)
        else:
            inputs = torch.randn(count, *shape, generator=generator)
        return Split(inputs, torch.randint(0, 3, (count,), generator=generator))

    return Dataset("noise", "surrogate", ("a", "b", "c"), split(train), split(test))


def results(executor: str, task: Any, jobs: Sequence[Any], due: Sequence[float] | None = None) -> list[Any]:
    """Return what the jobs give, which are due in their order unless it is said when."""
    with make_executor(executor, task) as ex:
        tickets = [ex.submit(job, float(when)) for job, when in zip(jobs, due or range(len(jobs)), strict=True)]
        return [ex.result(ticket) for ticket in tickets]
