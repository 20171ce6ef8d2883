"""Throughput against a bare PyTorch loop over the same batches: ``fl-core bench``.

Both sides do the whole job: 300 local tasks of 600 images and four evaluations on 10,000 images, and samples per
second are trained images over that wall time. The bare loop is what PyTorch alone needs on one core: tensors in
memory, one network, ``torch.optim.SGD``, no data loader, no federation, no event queue, indices prepared beforehand.
"""

from __future__ import annotations

import os
import platform
import statistics
import sys
from collections.abc import Callable
from dataclasses import asdict, astuple, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from fl_core.cli.baselines import Stopwatch, bare, overhead, visited
from fl_core.errors import SpecError
from fl_core.experiments.spec import RunSpec
from fl_core.runtime import History
from fl_core.runtime.executors import usable_cores

TARGET = 1.8
"""Ratio that the project promises with two threads on two cores."""


@dataclass(frozen=True)
class Pair:
    """The two sides, measured one right after the other.

    Attributes
    ----------
    ours, bare : float
        Trained samples per second of wall time.
    ours_cpu, bare_cpu : float
        Microseconds of processor time, of all threads together, per trained sample.
    """

    ours: float
    bare: float
    ours_cpu: float = float("nan")
    bare_cpu: float = float("nan")

    @property
    def ratio(self) -> float:
        """How many times faster than the bare loop."""
        return self.ours / self.bare


@dataclass
class Report:
    """What a benchmark found.

    Attributes
    ----------
    updates, threads : int
    pairs : list of Pair
    identical : bool
        Whether all runs of ours gave the same history, bit for bit.
    accuracy : float
        Test accuracy of our runs at the end.
    events_per_second, microseconds_per_update : float
        Of the runtime alone: a task whose training costs nothing.
    peak_megabytes, before_megabytes : float
        Largest resident memory of the process, at the end and before the first run (libraries and data).
    load : float
        Load average of the machine when the benchmark began.
    machine : dict
    """

    updates: int
    threads: int
    pairs: list[Pair] = field(default_factory=list)
    identical: bool = True
    accuracy: float = float("nan")
    events_per_second: float = float("nan")
    microseconds_per_update: float = float("nan")
    peak_megabytes: float = float("nan")
    before_megabytes: float = float("nan")
    load: float = float("nan")
    machine: dict[str, Any] = field(default_factory=dict)

    @property
    def ratio(self) -> float:
        """Median of the pairs' ratios."""
        return statistics.median(pair.ratio for pair in self.pairs)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {**asdict(self), "ratios": [pair.ratio for pair in self.pairs], "ratio": self.ratio, "target": TARGET}

    def text(self) -> str:
        """Return the summary that the command prints."""
        ours, bare, ours_cpu, bare_cpu = (
            statistics.median(column) for column in zip(*map(astuple, self.pairs), strict=True)
        )
        ratios = [pair.ratio for pair in self.pairs]
        same = "identical in all runs" if self.identical else "NOT identical in all runs"
        own = self.peak_megabytes - self.before_megabytes
        return "\n".join(
            [
                f"fl_core, {self.threads} threads   {ours:10,.0f} samples/s",
                f"bare loop, 1 thread  {bare:10,.0f} samples/s",
                f"ratio                {self.ratio:10.2f} median of {len(ratios)} pairs "
                f"({min(ratios):.2f} to {max(ratios):.2f}; promised with two threads on two free cores: {TARGET})",
                f"processor time       {ours_cpu:10.1f} µs per sample against {bare_cpu:.1f} "
                "(other work on the machine disturbs this less)",
                f"runtime alone        {self.events_per_second:10,.0f} events/s, "
                f"{self.microseconds_per_update:.0f} µs per update (training that costs nothing)",
                f"peak memory          {self.peak_megabytes:10,.0f} MB resident, of which {own:,.0f} MB by the runs",
                f"final accuracy       {self.accuracy:10.4f} after {self.updates} updates, history {same}",
                f"machine              {', '.join(f'{k} {v}' for k, v in self.machine.items())}, "
                f"load {self.load:.1f} at the start",
            ]
        )


def workload(updates: int) -> RunSpec:
    """Return the reference workload: FedAsync on Fashion-MNIST with LeNet-5, 100 devices, 10 in flight."""
    return RunSpec(
        algorithm={"name": "fedasync", "alpha": 0.6, "concurrency": 10},
        dataset="fashion-mnist",
        model="lenet5",
        partition={"kind": "iid"},
        world={"devices": 100},
        training={"lr": 0.03, "batch_size": 50, "epochs": 1},
        budget={"updates": updates},
        evaluation={"every_updates": 100},
    )


def measure(
    updates: int = 300, pairs: int = 5, threads: int = 2, echo: Callable[[str], object] = lambda line: None
) -> Report:
    """Run the benchmark.

    Parameters
    ----------
    updates : int
        Local tasks on each side.
    pairs : int
        Measurements of both sides; every second pair begins with the other side.
    threads : int
        Workers of the ``threads`` executor.
    echo : callable
        Receives a line per pair.

    Raises
    ------
    SpecError
        If a number is below 1.
    """
    for name, value in (("updates", updates), ("pairs", pairs), ("threads", threads)):
        if value < 1:
            raise SpecError(f"{name} = {value} must be at least 1")
    report = Report(updates, threads, load=load_average(), machine=machine())
    spec = workload(updates)
    task = spec.task()
    order = visited(task, spec)
    samples = sum(len(index) for index in order)
    ours(workload(min(updates, 4)), threads)  # warm up
    bare(task, spec, order[:20])
    report.before_megabytes = peak_megabytes()
    reference: History | None = None
    for number in range(pairs):
        if number % 2:
            there, (here, history) = bare(task, spec, order), ours(spec, threads)
        else:
            (here, history), there = ours(spec, threads), bare(task, spec, order)
        cpu = (1e6 * side.cpu / samples for side in (here, there))
        report.pairs.append(Pair(samples / here.wall, samples / there.wall, *cpu))
        report.identical &= reference is None or history == reference
        reference = history
        report.accuracy = history.evaluations["test_accuracy"][-1]
        ratio = report.pairs[-1].ratio
        echo(f"pair {number + 1} of {pairs}: {here.wall:.2f} s against {there.wall:.2f} s, ratio {ratio:.2f}")
    report.peak_megabytes = peak_megabytes()
    report.events_per_second, report.microseconds_per_update = overhead()
    return report


def ours(spec: RunSpec, threads: int) -> tuple[Stopwatch, History]:
    """Return the time of a run with the ``threads`` executor, evaluations included, and its history."""
    simulation = spec.simulation()
    watch = Stopwatch()
    history = simulation.run("threads", threads)
    return watch.stop(), history


def peak_megabytes() -> float:
    """Return the largest resident memory that this process has had, in 10^6 bytes; NaN on Windows."""
    try:
        import resource
    except ImportError:
        return float("nan")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6


def load_average() -> float:
    """Return how many processes want a core, averaged over the last minute."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")


def machine() -> dict[str, Any]:
    """Return the processor and the versions that a throughput depends on."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8", errors="replace").splitlines() if info.is_file() else []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return {
        "processor": model or platform.machine(),
        "cores": usable_cores(),
        "Python": platform.python_version(),
        "torch": metadata.version("torch"),
    }
