"""Many tiny tasks, their local work done in different ways.

``python small.py THREADS UPDATES`` runs ours alone and prints a line of JSON: so another interpreter is measured.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from math import inf
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, patch

for missing in ("safetensors", "safetensors.torch"):  # has no wheel for free-threaded Python; reads no data here
    try:
        __import__(missing)
    except ImportError:
        sys.modules[missing] = MagicMock()

import numpy as np
import psutil
import steps
import torch
from torch import Tensor, multiprocessing

from fl_core import recorded
from fl_core.benchmarks.harness import Outcome, Row, Stopwatch, alternate, intraop_threads
from fl_core.benchmarks.throughput import TINY_TASKS, Plain, Workload, gains, reference_spec
from fl_core.runtime import History, executors
from fl_core.runtime.local import Trained, TrainJob, batches_of
from fl_core.tasks import Classification
from fl_core.tasks.classification import ClassificationWorkspace

SENTENCE = "Many tiny tasks: 1,000 devices of 60 samples, 50 in flight, mini-batches of 10; done in different ways"
BASES = "bare loop", "ours, 1 thread"
"""What all are compared with, turn by turn."""
HERE = Path(__file__)
CPU = torch.device("cpu")


def workload(updates: int) -> Workload:
    """Return the workload ``small`` of the package, with fewer updates."""
    return Workload(reference_spec(updates).changed(**TINY_TASKS))


class WithoutAutograd(ClassificationWorkspace):
    """Gradients by hand."""

    def __init__(self, task: Classification) -> None:
        super().__init__(task, CPU)
        self.weights, self.gradients = steps.cut(self)

    def backward(self, device: int, batch: np.ndarray, *_: Any) -> Tensor:
        """Fill `gradient`; return the loss."""
        images, labels = self.train.select(self._index(device, batch))
        with torch.no_grad():
            return steps.explicit(self.weights, self.gradients, images, labels)


class Compiled(ClassificationWorkspace):
    """Gradients by a compiled graph."""

    def __init__(self, task: Classification, fill: Callable[..., Tensor]) -> None:
        super().__init__(task, CPU)
        self.fill = fill

    def backward(self, device: int, batch: np.ndarray, *_: Any) -> Tensor:
        """Fill `gradient`; return the loss."""
        return self.fill(self.vector, self.gradient, *self.train.select(self._index(device, batch)))


class Cpp(ClassificationWorkspace):
    """A whole local task in one call."""

    def __init__(self, task: Classification) -> None:
        super().__init__(task, CPU)
        self.train = task.train.ready(inf)

    def local_task(self, job: TrainJob) -> Trained:
        """Return what `job` gives."""
        self.load(job.start)
        order = self._index(job.device, np.concatenate(list(batches_of(job))))
        state = self.vector, self.gradient, self.train.inputs, self.train.labels
        total = steps.library().train(*state, order, job.batch_size, job.lr)
        return Trained(self.snapshot(), total / job.steps, job.steps)


class Elsewhere(ClassificationWorkspace):
    """A process of its own that is handed whole local tasks; models come and go in memory that both see."""

    def __init__(self, task: Classification) -> None:
        super().__init__(task, CPU)
        self.model = torch.empty(task.dimension).share_memory_()
        context = multiprocessing.get_context("spawn")
        self.line, other = context.Pipe()
        self.process = context.Process(target=serve, args=(task, self.model, other), daemon=True)
        self.process.start()
        self.line.recv()

    def local_task(self, job: TrainJob) -> Trained:
        """Return what `job` gives."""
        self.model.copy_(job.start)
        self.line.send((job.device, job.samples, job.steps, job.batch_size, job.lr, job.weight_decay, None, job.key))
        loss = self.line.recv()
        return Trained(self.model.clone(), loss, job.steps)


def serve(task: Classification, model: Tensor, line: Connection) -> None:
    """Compute what comes along the line, until it is closed."""
    torch.set_num_threads(1)
    workspace = task.workspace()
    line.send("ready")
    while (words := line.recv()) is not None:
        found = TrainJob(model, *words).run(workspace)
        model.copy_(found.model)
        line.send(found.loss)


def run_job(job: TrainJob, workspace: Any) -> Trained:
    """Have the workspace compute `job` as it likes."""
    return workspace.local_task(job) if hasattr(workspace, "local_task") else RUN(job, workspace)


RUN = TrainJob.run


@contextmanager
def workers(task: Classification, count: int) -> Iterator[Callable[[], ClassificationWorkspace]]:
    """Start so many processes, and give them out in turn."""
    made = [Elsewhere(task) for _ in range(count)]
    given = iter(made * 1_000_000)
    try:
        yield lambda: next(given)
    finally:
        for each in made:
            each.line.send(None)
            each.process.join()


def children_seconds() -> float:
    """Return the processor time of all processes that this one started and that run."""
    times = [child.cpu_times() for child in psutil.Process().children()]
    return sum(each.user + each.system for each in times)


def fingerprint(history: History) -> str:
    """Return what only an identical history has, too."""
    assert history.model is not None
    said = json.dumps([history.evaluations, history.updates], default=float)
    return hashlib.sha256(history.model.numpy().tobytes() + said.encode()).hexdigest()[:16]


def simulate(
    work: Workload,
    task: Classification,
    threads: int,
    switch: float = executors.SWITCH_SECONDS,
    after: float = recorded.AFTER,
) -> tuple[Stopwatch, str]:
    """Return the time of the run, that of its processes included, and its fingerprint."""
    work.task = task
    before = children_seconds()
    with ExitStack() as stack:
        changes = (executors, "SWITCH_SECONDS", switch), (recorded, "AFTER", after), (TrainJob, "run", run_job)
        for change in changes:
            stack.enter_context(patch.object(*change))
        watch, history = work.simulate("threads" if threads > 1 else "sequential", threads if threads > 1 else None)
    watch.cpu += children_seconds() - before
    return watch, fingerprint(history)


def elsewhere(work: Workload, python: str, threads: int) -> tuple[Stopwatch, str]:
    """Return time and fingerprint of ours under another interpreter, whose lock is off."""
    found = json.loads(said(python, str(HERE), str(threads), str(work.spec.budget.updates)))
    watch = Stopwatch()
    watch.wall, watch.cpu = found["wall"], found["cpu"]
    return watch, found["fingerprint"]


def versions(python: str) -> str:
    """Return the versions of that interpreter, which must have no lock, and of its PyTorch."""
    asked = "import platform, sys, torch; print(platform.python_version(), torch.__version__, sys._is_gil_enabled())"
    own, of_torch, locked = said(python, "-c", asked).split()
    if locked != "False":
        raise SystemExit(f"{python} has an interpreter lock")
    return f"Python {own}, torch {of_torch}"


def said(*command: str) -> str:
    """Return the last line that a command prints, run with this package and without lock."""
    paths = os.pathsep.join([str(HERE.parents[3]), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "PYTHON_GIL": "0"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return done.stdout.splitlines()[-1]


Side = Callable[[], tuple[Stopwatch, str]]


def sides(work: Workload, python: str | None, stack: ExitStack) -> Iterator[tuple[str, str, Side]]:
    """Yield what is compared: name, note, and what measures it once."""
    task: Any = work.task

    def with_workspace(make: Callable[..., ClassificationWorkspace]) -> Any:
        changed = copy.copy(task)
        changed.workspace = partial(make, changed)
        return changed

    yield "bare loop", "one thread, nothing of a federation", lambda: (work.loop(Plain), "")
    for threads in (1, 2):
        note = f"executor {'threads' if threads > 1 else 'sequential'}, steps recorded"
        yield f"ours, {threads_of(threads)}", note, partial(simulate, work, task, threads)
    for threads in (1, 2):
        note = "the same, each operation of each step called from Python and autograd"
        yield f"not recorded, {threads_of(threads)}", note, partial(simulate, work, task, threads, after=inf)
    default = sys.getswitchinterval()
    note = f"Python's own switch interval, {1e3 * default:g} ms instead of {1e3 * executors.SWITCH_SECONDS:g}"
    yield "default interval, 2 threads", note, partial(simulate, work, task, 2, default)
    give = stack.enter_context(workers(task, 2))
    note = "a thread hands whole local tasks to a process of its own, models in shared memory; start not counted"
    yield "2 processes", note, partial(simulate, work, with_workspace(lambda _: give()), 2)
    by_hand = with_workspace(WithoutAutograd)
    for threads in (1, 2):
        note = "the operations that autograd calls, called from Python by hand"
        yield f"no autograd, {threads_of(threads)}", note, partial(simulate, work, by_hand, threads)
    fill = steps.compiled(task.workspace(), cpp_wrapper=True)
    graph = with_workspace(lambda changed: Compiled(changed, fill))
    note = "gradients by torch.compile with the C++ wrapper, compiled before; may fail if two threads call it at once"
    yield "compiled, 1 thread", note, partial(simulate, work, graph, 1)
    whole = with_workspace(Cpp)
    for threads in (1, 2):
        note = "a whole local task in one C++ call, the interpreter's lock released, no autograd"
        yield f"C++, {threads_of(threads)}", note, partial(simulate, work, whole, threads)
    if python is None:
        print("free-threaded Python is left out: name its interpreter with --free-threaded PATH", flush=True)
        return
    note = f"ours without the interpreter's lock, {versions(python)}"
    for threads in (1, 2):
        yield f"free-threaded, {threads_of(threads)}", note, partial(elsewhere, work, python, threads)


def threads_of(count: int) -> str:
    """Return how many threads."""
    return f"{count} thread{'s' if count > 1 else ''}"


def measure(times: int, updates: int, python: str | None) -> tuple[Outcome, dict[str, dict[str, Any]]]:
    """Return what each side takes, and about each its note and whether its history is that of ours on one thread."""
    work = workload(updates)
    whole = work.spec
    about: dict[str, dict[str, Any]] = {}
    with ExitStack() as stack, intraop_threads(1):
        ready: dict[str, Side] = {}
        for name, note, side in sides(work, python, stack):
            work.spec = whole.changed(**{"budget.updates": 4})
            try:
                side()
            except (RuntimeError, OSError) as error:
                print(f"{name} is left out: {' '.join(str(error).split())[:200]}", flush=True)
                continue
            ready[name] = side
            about[name] = {"note": note}
        work.spec = whole
        found = alternate(ready, times)
    rows = []
    times_of = {name: [watch for watch, _ in results] for name, results in found.items()}
    for name, watches in times_of.items():
        rows.append(Row(name, "s", [watch.wall for watch in watches]))
        rows += [Row(name, f"{base} = 1", gains(times_of[base], watches)) for base in BASES]
        rows.append(Row(name, "processor time, µs/sample", [1e6 * watch.cpu / work.samples for watch in watches]))
        marks = {mark for _, mark in found[name]}
        same = None if marks == {""} else marks == {found[BASES[1]][0][1]}
        about[name] = {"same bits": same, "what it is": about[name]["note"]}
    return Outcome(rows, f"{updates} updates, {work.samples:,} samples"), about


def main() -> None:
    """Run ours once, after a short run that nobody measures."""
    threads, updates = map(int, sys.argv[1:])
    with intraop_threads(1):
        for each in (2, updates):
            work = workload(each)
            watch, mark = simulate(work, work.task, threads)
    print(json.dumps({"wall": watch.wall, "cpu": watch.cpu, "fingerprint": mark}))


if __name__ == "__main__":
    main()
