"""Parts that measure the runtime without any training: events per second, and memory against devices."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from unittest.mock import patch

import torch
from torch import Tensor

from fl_core.algorithms import Algorithm, FedAsync
from fl_core.benchmarks.loops import Recorder
from fl_core.benchmarks.part import Effort, Outcome, Row, Target, part
from fl_core.benchmarks.timing import MEBI, Stopwatch, alternate, peak_bytes
from fl_core.errors import RunError
from fl_core.experiments.spec import RunSpec
from fl_core.runtime import Budget, DeviceHandle, Evaluation, ServerHandle, Simulation, Trained
from fl_core.runtime.local import TrainJob
from fl_core.world import Network, World
from fl_core.world.triggers import Contributors

LENET5 = 61_706
"""Length of LeNet-5's vector."""

LINK = Network(latency_seconds=0.25)
"""A link on which transfers take time, so that each task has three events."""


class Free(Recorder):
    """A task of `dimension` numbers and one sample a device that nobody trains: see :func:`free_training`."""

    def __init__(self, dimension: int = 1) -> None:
        self.dimension = dimension
        self.batches = []
        self.vector = self.parameters = self.gradient = torch.zeros(dimension)

    def initial_model(self, seed: int) -> Tensor:
        """Return zeros ``[d]``."""
        return torch.zeros(self.dimension)

    def num_samples(self, device: int) -> int:
        """Return 1."""
        return 1


@contextmanager
def free_training(task: Free) -> Iterator[None]:
    """Let every local job return the same zeros at once, so that only the runtime costs time."""
    result = Trained(task.vector, 0.0, 1)
    with patch.object(TrainJob, "run", lambda job, workspace: result):
        yield


class Minimal(Algorithm):
    """The least that an asynchronous server can do: every upload becomes the next version.

    Attributes
    ----------
    concurrency : int
        Devices in flight.
    """

    concurrency: int = 100

    async def scheduler(self, server: ServerHandle) -> None:
        """Keep devices busy."""
        await server.keep_busy(self.concurrency)

    async def updater(self, server: ServerHandle) -> None:
        """Commit what arrives."""
        [upload] = await server.receive()
        server.commit(upload.model)


class Walking(Minimal):
    """Devices that do many jobs, one after the other, before they upload: nearly all events are theirs.

    Attributes
    ----------
    jobs : int
        Local jobs of one task.
    """

    jobs: int = 100

    async def device(self, device: DeviceHandle) -> None:
        """Train again and again."""
        snapshot = await device.download()
        for _ in range(self.jobs):
            trained = await device.train(snapshot.model)
        await device.upload(model=trained.model, based_on=snapshot)


class FirstArrivals(Algorithm):
    """K-asynchronous rounds: the mean of the first models to arrive, whose senders start again at once.

    Attributes
    ----------
    count : int
        Models per version.
    """

    count: int = 10

    async def scheduler(self, server: ServerHandle) -> None:
        """Start everybody, and then the contributors again."""
        await Contributors().turn(server)

    async def updater(self, server: ServerHandle) -> None:
        """Commit the mean."""
        uploads = await server.receive(count=self.count)
        server.commit(torch.stack([upload.model for upload in uploads]).mean(0))


@part(
    "Events per second when training is free: 1,000 devices, 100 in flight. Device programs: a hundred jobs in each "
    "task, so nearly all events are the end of a job. Updates: three events for each (download done, training done, "
    "upload arrived), with all that the server does for one",
    Target("events, device programs", ">=", 200_000),
)
def kernel(effort: Effort) -> Outcome:
    """Measure the virtual clock."""
    updates = effort.pick(20_000, 1000)
    task = Free()

    def run(algorithm: Algorithm, updates: int) -> tuple[Stopwatch, int]:
        simulation = _unmeasured(task, World(devices=1000, network=LINK), algorithm, updates)
        watch = Stopwatch()
        simulation.run("sequential")
        return watch.stop(), simulation.kernel.events

    algorithms: dict[str, tuple[Algorithm, int]] = {
        "device programs": (Walking(), max(updates // 30, 1)),
        "updates, minimal algorithm": (Minimal(), updates),
        "updates, FedAsync": (FedAsync(concurrency=100), updates),
    }
    with free_training(task):
        run(Minimal(), updates)
        sides = alternate({name: partial(run, *what) for name, what in algorithms.items()}, effort.repetitions)
    rows = []
    for name, runs in sides.items():
        rows.append(Row(f"events, {name}", "events/s", [events / watch.wall for watch, events in runs]))
        for kind, attribute in (("", "wall"), (": processor time", "cpu")):
            values = [1e6 * getattr(watch, attribute) / events for watch, events in runs]
            rows.append(Row(f"one event, {name}{kind}", "µs", values))
    return Outcome(rows)


@part(
    "Peak memory of a whole process and time until the first update. Idle: that many devices, 1,000 of them in "
    "flight with vectors as long as LeNet-5's, training free. Busy: LeNet-5 on Fashion-MNIST, all devices in flight, "
    "a new version from every 10 uploads",
    Target("idle: peak memory", "<=", 1536, size=1_000_000),
    Target("idle: set-up", "<=", 20, size=1_000_000),
    Target("busy: peak memory", "<=", 1229, size=3000),
    sizes="devices",
)
def memory(effort: Effort) -> Outcome:
    """Measure memory, each point in a fresh process."""
    rows = []
    counts = (10**3, 10**5) if effort.quick else (10**3, 10**4, 10**5, 10**6)
    peaks = []
    for devices in counts:
        found = probe("idle", devices, effort.pick(5000, 2000))
        peaks.append(found["peak"])
        rows.append(Row("idle: peak memory", "MiB", [found["peak"] / MEBI], devices))
        rows.append(Row("idle: set-up", "s", [found["setup"]], devices))
    growth = (peaks[-1] - peaks[0]) / (counts[-1] - counts[0])
    rows.append(Row("idle: growth per device", "bytes", [growth]))
    devices = effort.pick(3000, 300)
    found = probe("busy", devices, effort.pick(600, 20))
    rows.append(Row("busy: peak memory", "MiB", [found["peak"] / MEBI], devices))
    rows.append(Row("busy: of which libraries and data", "MiB", [found["before"] / MEBI], devices))
    rows.append(Row("busy: set-up", "s", [found["setup"]], devices))
    return Outcome(rows)


def probe(kind: str, devices: int, updates: int) -> dict[str, float]:
    """Run :func:`idle`, :func:`busy` or :func:`gradients` in a process of its own and return what it found.

    Raises
    ------
    RunError
        If the process fails.
    """
    code = f"from fl_core.benchmarks import runtime as r; r.answer(r.{kind}({devices}, {updates}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise RunError(f"the memory measurement with {devices:,} devices failed: {last}")
    found: dict[str, float] = json.loads(done.stdout)
    return found


def answer(found: dict[str, float]) -> None:
    """Print what a probe found, for the process that asked."""
    print(json.dumps(found))


def idle(devices: int, updates: int) -> dict[str, float]:
    """Run FedAsync with 1,000 of `devices` in flight and free training."""
    task = Free(LENET5)
    world = World(devices=devices, network=LINK)
    algorithm = FedAsync(concurrency=min(devices, 1000))
    with free_training(task):
        return _watched(lambda: _unmeasured(task, world, algorithm, updates), "sequential")


def busy(devices: int, updates: int) -> dict[str, float]:
    """Train on all `devices` at once, K-asynchronously."""
    spec = RunSpec(
        algorithm=FirstArrivals(),
        world={"devices": devices},
        training={"batch_size": 10},
        budget={"updates": updates},
        evaluation={"every_updates": None},
        partition={"kind": "iid", "samples_per_device": 20},
    )
    return _watched(spec.simulation, "threads")


def kasync_spec(devices: int, updates: int) -> RunSpec:
    """Return WKAFL on Fashion-MNIST with LeNet-5: all `devices` in flight, a version for every 10 gradients."""
    return RunSpec(
        algorithm={"name": "wkafl", "num_aggregated": 10, "lr": 0.05},
        world=f"wkafl(devices={devices})",
        partition="wkafl(labels_per_device=1)",
        training={"batch_size": 4},
        budget={"updates": updates},
        evaluation={"every_updates": None},
    )


def gradients(devices: int, updates: int) -> dict[str, float]:
    """Run WKAFL with all `devices` in flight."""
    return _watched(kasync_spec(devices, updates).simulation, "threads")


def _watched(build: Callable[[], Simulation], executor: str) -> dict[str, float]:
    started, before = time.perf_counter(), peak_bytes()
    setup: list[float] = []

    def progress(_: float) -> None:
        if not setup:
            setup.append(time.perf_counter() - started)

    build().run(executor, progress=progress)
    return {"peak": peak_bytes(), "before": before, "setup": setup[0]}


def _unmeasured(task: Free, world: World, algorithm: Algorithm, updates: int) -> Simulation:
    evaluation = Evaluation(every_updates=None)
    return Simulation(task, world, algorithm, budget=Budget(updates=updates), evaluation=evaluation)
