"""Execute notebooks with papermill, each in a process of its own, several at a time."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from fl_core.bookbuild.chapters import ROOT, BookError, tool
from fl_core.experiments.grid import JOBS
from fl_core.processes import pool, usable_cores

STARTS = 3
"""Kernels that are tried: two that start at the same time may choose the same port, and then one dies at once."""
QUIET_AND_VECTORS = ["--log-level=CRITICAL", "--InlineBackend.figure_formats=svg"]
"""No word of a kernel about being stopped, and figures that the page can colour."""


@dataclass(frozen=True)
class Job:
    """One notebook to execute: what to call it, from where, to where, with which parameters."""

    name: str
    source: Path
    target: Path
    parameters: dict[str, Any] = field(default_factory=dict)


@contextlib.contextmanager
def kernel_environment(processes: int | None = None) -> Iterator[None]:
    """Give kernels started inside one intra-op thread each, and the inline backend for figures.

    Any ``MPLBACKEND`` from outside would keep the pictures out of the notebook without a warning. With `processes`,
    a notebook that has runs to make makes so many at a time: several notebooks share the cores.
    """
    with patch.dict(os.environ):  # which puts back what was there
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        if processes is not None:
            os.environ.setdefault(JOBS, str(processes))
        os.environ.pop("MPLBACKEND", None)
        os.environ["MATPLOTLIBRC"] = str(ROOT / "book" / "matplotlibrc")
        yield


def run_notebook(job: Job, cwd: Path, processes: int | None = None) -> float:
    """Execute one notebook and return the seconds it took; a failure names the cell and leaves no target behind."""
    papermill = tool("papermill")
    logging.getLogger("papermill").setLevel(logging.CRITICAL)  # names are checked here, and errors are raised, too
    start = time.perf_counter()
    job.target.parent.mkdir(parents=True, exist_ok=True)
    partial = job.target.with_name(f".{job.target.name}.{os.getpid()}.partial.ipynb")
    try:
        with kernel_environment(processes):
            for left in reversed(range(STARTS)):
                try:
                    papermill.execute_notebook(
                        str(job.source),
                        str(partial),
                        parameters=job.parameters,
                        cwd=str(cwd),
                        kernel_name="python3",
                        progress_bar=False,
                        log_output=False,
                        request_save_on_cell_execute=False,
                        start_timeout=120,
                        shutdown_kernel="immediate",  # what it has to say is in the notebook by then
                        extra_arguments=QUIET_AND_VECTORS,
                    )
                    break
                except RuntimeError as error:
                    if not left or "before replying to kernel_info" not in str(error):
                        raise
        partial.replace(job.target)
    except papermill.exceptions.PapermillExecutionError as error:
        text = " ".join(str(error.evalue).split())
        where = _cell_number(job.source, error.source)
        raise BookError(f"{job.name}, code cell {where}: {error.ename}: {text[:400]}") from None
    except Exception as error:  # a dead kernel, a file that is no notebook, a full disk
        text = " ".join(str(error).split())
        raise BookError(f"{job.name}: {type(error).__name__}: {text[:400]}") from None
    finally:
        partial.unlink(missing_ok=True)
    return time.perf_counter() - start


def run_all(
    jobs: list[Job], cwd: Path, workers: int | None = None, echo: Callable[[str], object] = print
) -> dict[str, float]:
    """Execute `jobs` in up to `workers` processes, in this order; return seconds by name.

    When one fails, the others are ended.
    """
    if not jobs:
        return {}
    seconds: dict[str, float] = {}
    workers = min(workers or usable_cores(), len(jobs))
    share = max(1, usable_cores() // workers)
    with pool(workers) as processes:
        names = {processes.submit(run_notebook, job, cwd, share): job.name for job in jobs}
        try:
            for done in as_completed(names):
                seconds[names[done]] = done.result()
                echo(f"[{len(seconds)}/{len(jobs)}] {names[done]} {seconds[names[done]]:.1f} s")
        except BrokenProcessPool:
            raise BookError("a process that executed notebooks was killed (out of memory?)") from None
    return {job.name: seconds[job.name] for job in jobs}


def _cell_number(notebook: Path, source: str) -> str:
    """Return which code cell of the committed notebook has this source, counted from 1."""
    cells = tool("nbformat").read(notebook, 4).cells
    code = [cell.source for cell in cells if cell.cell_type == "code"]
    return str(code.index(source) + 1) if source in code else "?"


def joined(outputs: Iterable[Any]) -> list[Any]:
    """Join neighbouring streams: whether one print arrives in two pieces is a matter of timing."""
    found: list[Any] = []
    for out in outputs:
        if found and out.output_type == found[-1].output_type == "stream" and out.name == found[-1].name:
            found[-1].text += out.text
        else:
            found.append(out)
    return found
