"""Parts that measure the runtime (events, memory, gradients in flight, edge servers), data and formulas."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch

from fl_core.algorithms import Algorithm, AsyncSDFeel, FedAsync
from fl_core.benchmarks.harness import (
    STATUS,
    Effort,
    Outcome,
    Row,
    Stopwatch,
    Target,
    alternate,
    high_water,
    part,
    peak_bytes,
    seconds_of,
)
from fl_core.benchmarks.throughput import Gradients, Recorder, Side, Workload, gains, rates, reference_spec
from fl_core.datasets import Dataset, Partition, Preprocessing, prepared
from fl_core.datasets.registry import all_sources, all_surrogates, source_folder
from fl_core.errors import RunError
from fl_core.experiments.grid import execute
from fl_core.experiments.spec import RunSpec
from fl_core.experiments.store import Store
from fl_core.formulas.compression import TopK
from fl_core.formulas.fedluck import plan_devices
from fl_core.processes import pool
from fl_core.runtime import Budget, DeviceHandle, Evaluation, ServerHandle, Simulation, Trained
from fl_core.runtime.local import TrainJob
from fl_core.streams import stream
from fl_core.world import Network, World
from fl_core.world.triggers import Contributors

MEBI = 2**20
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

    def num_samples(self, device: int) -> int:
        return 1


@contextmanager
def free_training(task: Free) -> Iterator[None]:
    """Let every local job return the same zeros at once, so that only the runtime costs time."""
    result = Trained(task.vector, 0.0, 1)
    with patch.object(TrainJob, "run", lambda job, workspace: result):
        yield


class Minimal(Algorithm):
    """The least that an asynchronous server can do: every upload becomes the next version."""

    concurrency: int = 100

    async def scheduler(self, server: ServerHandle) -> None:
        await server.keep_busy(self.concurrency)

    async def updater(self, server: ServerHandle) -> None:
        [upload] = await server.receive()
        server.commit(upload.model)


class Walking(Minimal):
    """Devices that do many jobs, one after the other, before they upload: nearly all events are theirs."""

    jobs: int = 100

    async def device(self, device: DeviceHandle) -> None:
        snapshot = await device.download()
        for _ in range(self.jobs):
            trained = await device.train(snapshot.model)
        await device.upload(model=trained.model, based_on=snapshot)


class FirstArrivals(Algorithm):
    """K-asynchronous rounds: the mean of the first `count` models to arrive, whose senders start again at once."""

    count: int = 10

    async def scheduler(self, server: ServerHandle) -> None:
        await Contributors().turn(server)

    async def updater(self, server: ServerHandle) -> None:
        uploads = await server.receive(count=self.count)
        server.commit(torch.stack([upload.model for upload in uploads]).mean(0))


@part(Target("events, device programs", ">=", 270_000))
def kernel(effort: Effort) -> Outcome:
    """Events per second when training is free: 1,000 devices, 100 in flight. Device programs: a hundred jobs in
    each task, so nearly all events are the end of a job. Updates: three events for each (download done, training
    done, upload arrived), with all that the server does for one.
    """
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
    Target("idle: peak memory", "<=", 1536, size=1_000_000),
    Target("idle: set-up", "<=", 20, size=1_000_000),
    Target("busy: peak memory", "<=", 943, size=3000),
    Target("worker: peak memory", "<=", 500),
    Target("worker: start of a run", "<=", 0.3),
    sizes="devices",
)
def memory(effort: Effort) -> Outcome:
    """Peak memory of a whole process and time until the first update. Idle: that many devices, 1,000 of them in
    flight with vectors as long as LeNet-5's, training free. Busy: LeNet-5 on Fashion-MNIST, all devices in
    flight, a new version from every 10 uploads. Worker: the reference workload, run after run.
    """
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
    found = probe("worker", 100, effort.pick(8, 2))
    rows.append(Row("worker: peak memory", "MiB", [found["peak"] / MEBI]))
    rows.append(Row("worker: start of a run", "s", [found["setup"]]))
    return Outcome(rows)


def probe(kind: str, devices: int, updates: int) -> dict[str, float]:
    """Run a function of this module in a process of its own and return what it found."""
    call = f"runtime.{kind}({devices}, {updates})"
    code = f"import json\nfrom fl_core.benchmarks import runtime\nprint(json.dumps({call}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise RunError(f"the memory measurement with {devices:,} devices failed: {last}")
    found: dict[str, float] = json.loads(done.stdout)
    return found


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
        algorithm=FirstArrivals(), world={"devices": devices}, training={"batch_size": 10},
        budget={"updates": updates}, evaluation={"every_updates": None},
        partition={"kind": "iid", "samples_per_device": 20},
    )  # fmt: skip
    return _watched(spec.simulation, "threads")


def worker(devices: int, runs: int) -> dict[str, float]:
    """Take `runs` short runs one after the other, here and as a grid's worker; the set-up is that of later ones."""
    settings = {"world.devices": devices, "evaluation.every_updates": None}
    specs = [reference_spec(1).changed(seed=seed, **settings) for seed in range(runs)]

    def start(spec: RunSpec) -> float:
        started, found = time.perf_counter(), []
        simulation = spec.simulation()
        simulation.watchdog.before_each_event(lambda: found.append(time.perf_counter() - started))
        simulation.run("sequential")
        return found[0]

    with tempfile.TemporaryDirectory() as folder, pool(1) as workers:
        execute(specs, store=Store(Path(folder), Path(folder)), pool=workers, progress=False)
        peak = workers.submit(STATUS.read_text).result() if STATUS.is_file() else ""
    return {"peak": high_water(peak) or peak_bytes(), "setup": statistics.median(list(map(start, specs))[1:])}


def kasync_spec(devices: int, updates: int) -> RunSpec:
    """Return WKAFL on Fashion-MNIST with LeNet-5: all `devices` in flight, a version for every 10 gradients."""
    return RunSpec(
        algorithm={"name": "wkafl", "num_aggregated": 10, "lr": 0.05}, world=f"wkafl(devices={devices})",
        partition="wkafl(labels_per_device=1)", training={"batch_size": 4}, budget={"updates": updates},
        evaluation={"every_updates": None},
    )  # fmt: skip


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


@part(Target("ratio", ">=", 0.9, size=3000), Target("peak memory", "<=", 900, size=3000), sizes="devices")
def kasync(effort: Effort) -> Outcome:
    """WKAFL, LeNet-5, Fashion-MNIST, 3,000 devices in flight, 10 gradients of 4 images a version: against a bare
    loop on one thread that computes the same gradients and nothing else; peak memory of a whole process after
    1,500 versions.
    """
    devices = effort.pick(3000, 300)
    work = Workload(kasync_spec(devices, effort.pick(300, 5)), test_samples=50)
    work.warm_up(effort.threads)
    ours, one = f"simulator, {effort.threads} threads", "simulator, 1 thread"
    how: dict[str, Side] = {ours: ("threads", effort.threads), "bare loop": Gradients, one: ("sequential", None)}
    sides = work.race(how, effort.repetitions)
    names = (ours, one, "bare loop")
    rows = [Row(name, "gradients/s", rates(len(work.batches), sides[name]), devices) for name in names]
    for side, name in ((ours, "ratio"), (one, "ratio on one thread")):
        rows.append(Row(name, "×", gains(sides[side], sides["bare loop"]), devices))
    found = probe("gradients", devices, effort.pick(1500, 5))
    rows.append(Row("peak memory", "MiB", [found["peak"] / MEBI], devices))
    rows.append(Row("of which libraries and data", "MiB", [found["before"] / MEBI], devices))
    return Outcome(rows, f"{len(work.batches):,} gradients; history identical in all runs")


FEDERATIONS = {30: 6, 600: 60}
"""Devices, and the edge servers that they are divided among."""


def cluster_spec(devices: int, updates: int) -> RunSpec:
    """Return asynchronous SD-FEEL with LeNet-5 on Fashion-MNIST, 100 images a device, for so many `devices`."""
    world = f"sdfeel(devices={devices}, servers={FEDERATIONS[devices]}, parameters={LENET5}, communication=0.1)"
    return RunSpec(
        algorithm=AsyncSDFeel(min_batches=10), model="lenet5", partition={"kind": "iid", "samples_per_device": 100},
        world=world, training={"lr": 0.03, "batch_size": 10}, budget={"updates": updates},
        evaluation={"every_updates": None},
    )  # fmt: skip


@part(Target("600 devices against 30: mini-batch", "<=", 1.1), sizes="devices")
def clusters(effort: Effort) -> Outcome:
    """Asynchronous SD-FEEL, LeNet-5 on Fashion-MNIST, 60 edge servers with ten devices each against six with
    five: the thread's processor time for one mini-batch of 10, executor sequential; and for one task of a device
    when training is free.
    """
    works = {
        devices: Workload(cluster_spec(devices, updates), test_samples=50)
        for devices, updates in ((30, effort.pick(120, 6)), (600, effort.pick(60, 3)))
    }
    for work in works.values():
        work.warm_up(1)

    def trained(devices: int) -> float:
        work = works[devices]
        return 1e6 * work.simulate_steadily().laps["run"] / len(work.batches)

    def free(devices: int) -> float:
        spec = cluster_spec(devices, effort.pick(1200, 60) // (1 if devices == 30 else 2))
        task = Free(LENET5)
        simulation = Simulation(task, spec.world, spec.algorithm, budget=spec.budget, evaluation=spec.evaluation)
        with free_training(task):
            watch = Stopwatch()
            simulation.run("sequential")
            watch.lap("run")
        return 1e6 * watch.laps["run"] / simulation.dispatched

    rows = []
    for what, unit, measure in (("mini-batch", "µs/step", trained), ("task, training free", "µs/task", free)):
        sides = alternate({devices: partial(measure, devices) for devices in FEDERATIONS}, effort.repetitions)
        rows += [Row(what, unit, values, devices) for devices, values in sides.items()]
        ratios = [large / small for small, large in zip(sides[30], sides[600], strict=True)]
        rows.append(Row(f"600 devices against 30: {what}", "×", ratios))
    return Outcome(rows)


SAMPLES, DEVICES = 60_000, 3000
PARTITIONS: list[Partition] = [
    Partition.model_validate(text)
    for text in (
        "iid()", "dirichlet(alpha=0.5, min_samples=10)", "dirichlet_per_device(alpha=0.5)", "shards()",
        "wkafl(labels_per_device=10)", "natural()",
    )
]  # fmt: skip


@part(
    Target("fashion-mnist: ready", "<=", 1.5),
    *(Target(f"partition {each.kind}", "<=", 1.0, DEVICES) for each in PARTITIONS),
    *(Target(f"{name}: generated", "<=", 60.0) for name in all_surrogates()),
    *(Target(f"{name}: read", "<=", 2.0) for name in all_surrogates()),
    sizes="devices",
)
def data(effort: Effort) -> Outcome:
    """Fashion-MNIST from its files to tensors ready for training; 60,000 samples divided among devices by each
    kind of partition; every surrogate generated, and read back from its file.
    """
    rows = [Row("fashion-mnist: ready", "s", [seconds_of(_load) for _ in range(effort.repetitions)])]
    labels = np.arange(SAMPLES) % 10
    owners = np.arange(SAMPLES) % DEVICES
    for partition in PARTITIONS:
        streams = [stream(seed, "partition") for seed in range(effort.repetitions)]
        seconds = [seconds_of(partial(partition.split, labels, DEVICES, each, owners)) for each in streams]
        rows.append(Row(f"partition {partition.kind}", "s", seconds, DEVICES))
    count = effort.pick(0, 64) or None
    for name, surrogate in all_surrogates().items():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "samples.safetensors"
            made = seconds_of(lambda: prepared.write(path, *surrogate.generate(count, count)))  # noqa: B023
            read = partial(prepared.read, path, name, "surrogate", surrogate.classes)
            times = [seconds_of(read) for _ in range(effort.repetitions)]
        rows += [Row(f"{name}: generated", "s", [made]), Row(f"{name}: read", "s", times)]
    return Outcome(rows, "quick runs generate the first 64 samples of each surrogate" if effort.quick else "")


def _load() -> None:
    """Read Fashion-MNIST without any cache, and scale it."""
    source = all_sources()["fashion-mnist"]
    train, test = source.read(source_folder(source))
    mean, std = prepared.channel_statistics(train.inputs)
    Preprocessing().apply(Dataset(source.name, "real", source.classes, train, test, tuple(mean), tuple(std)))


PLANNED, ENTRIES, RATE = 100_000, 11_000_000, 0.01
"""To plan for; of a vector as large as the parameters of a ResNet-18, and the fraction of it that is kept."""


@part(Target("exact plan", "<=", 5.0, PLANNED), Target("top-k", "<=", 0.5, ENTRIES), sizes="devices, entries")
def formulas(effort: Effort) -> Outcome:
    """FedLuck's exact plan for devices of all speeds, each with every whole k from 2 to 60; top-k of one vector,
    of which one entry in a hundred is kept.
    """
    rng = np.random.default_rng(0)
    alpha, beta = (low * (high / low) ** rng.random(PLANNED) for low, high in ((0.005, 2), (0.05, 200)))
    vector, compressor = torch.from_numpy(rng.standard_normal(ENTRIES, dtype=np.float32)), TopK(delta=RATE)
    plans = [seconds_of(lambda: plan_devices(alpha, beta, 1.5, solver="exact")) for _ in range(effort.repetitions)]
    selections = [seconds_of(lambda: compressor.compress(vector)) for _ in range(effort.repetitions)]
    return Outcome([Row("exact plan", "s", plans, PLANNED), Row("top-k", "s", selections, ENTRIES)])
