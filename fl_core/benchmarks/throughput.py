"""Parts that compare whole runs with plain PyTorch and the hardware's limit, and executors with one another."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from fl_core.benchmarks.harness import Effort, Outcome, Row, Stopwatch, Target, alternate, intraop_threads, part
from fl_core.benchmarks.loops import Floor, Plain, Side, Workload
from fl_core.experiments.spec import RunSpec
from fl_core.models import build_network
from fl_core.runtime.executors import usable_cores


def reference_spec(updates: int) -> RunSpec:
    """Return the reference workload: FedAsync on Fashion-MNIST with LeNet-5, 100 devices, 10 in flight."""
    return RunSpec(
        algorithm={"name": "fedasync", "alpha": 0.6, "concurrency": 10}, dataset="fashion-mnist", model="lenet5",
        partition={"kind": "iid"}, world={"devices": 100}, training={"lr": 0.03, "batch_size": 50, "epochs": 1},
        budget={"updates": updates}, evaluation={"every_updates": 100},
    )  # fmt: skip


@part(Target("ratio", ">=", 1.85))
def reference(effort: Effort) -> Outcome:
    """FedAsync, LeNet-5, Fashion-MNIST, 100 devices, 10 in flight, 300 updates of 12 mini-batches of 50, against
    a bare PyTorch loop on one thread.
    """
    return against_plain(reference_spec(effort.pick(300, 8)), effort)


@part()
def synchronous(effort: Effort) -> Outcome:
    """Its synchronous twin: FedAvg, 10 of 100 devices in each of 30 rounds, against the same bare loop."""
    spec = reference_spec(effort.pick(30, 2)).changed(
        algorithm={"name": "fedavg", "clients_per_round": 10}, **{"evaluation.every_updates": 10}
    )
    return against_plain(spec, effort)


@part(Target("ratio", ">=", 1.7))
def small(effort: Effort) -> Outcome:
    """Many tiny tasks: 1,000 devices of 60 samples, 50 in flight, 3,000 updates of 6 mini-batches of 10, against
    the same bare loop.
    """
    spec = reference_spec(effort.pick(3000, 50)).changed(
        **{"world.devices": 1000, "algorithm.concurrency": 50, "training.batch_size": 10},
        **{"evaluation.every_updates": 1000},
    )
    return against_plain(spec, effort, pairs=min(effort.repetitions, 3))


def against_plain(spec: RunSpec, effort: Effort, pairs: int | None = None) -> Outcome:
    """Compare the ``threads`` executor with the bare loop, in alternating pairs (as many as the effort says)."""
    work = Workload(spec, effort.test_samples)
    work.warm_up(effort.threads)
    ours = f"simulator, {effort.threads} thread{'s' if effort.threads > 1 else ''}"
    sides = work.race({ours: ("threads", effort.threads), "bare loop, 1 thread": Plain}, pairs or effort.repetitions)
    rows = [Row(name, "samples/s", rates(work.samples, watches)) for name, watches in sides.items()]
    rows.append(Row("ratio", "×", gains(*sides.values())))
    for name, watches in sides.items():
        rows.append(
            Row(f"{name}: processor time", "µs/sample", [1e6 * watch.cpu / work.samples for watch in watches])
        )
    accuracy = work.history.evaluations["test_accuracy"][-1]
    return Outcome(rows, f"{work.samples:,} samples; history identical in all runs, final accuracy {accuracy:.3f}")


def rates(count: int, watches: Sequence[Stopwatch]) -> list[float]:
    """Return how many of `count` there were in a second of each."""
    return [count / watch.wall for watch in watches]


def gains(ours: Sequence[Stopwatch], other: Sequence[Stopwatch]) -> list[float]:
    """Return how many times as long each of the others took."""
    return [b.wall / a.wall for a, b in zip(ours, other, strict=True)]


@part(Target("overhead", "<=", 5, size=50), Target("overhead", "<=", 12, size=10), sizes="batch size")
def overhead(effort: Effort) -> Outcome:
    """The thread's processor time beyond forward, backward and step, as a share of these three, from a run's
    first event on: executor sequential, the same memory layout and the same step in both loops.
    """
    rows = []
    for batch, full in ((50, 10), (10, 6)):  # short, so that a slow second of the machine meets both sides
        spec = reference_spec(effort.pick(full, 2)).changed(**{"training.batch_size": batch})
        work = Workload(spec, test_samples=50)
        work.warm_up(1)
        floor_loop: Callable[[], Stopwatch] = partial(work.loop, Floor)
        sides = alternate({"ours": work.simulate_steadily, "floor": floor_loop}, 9 * effort.repetitions)
        total, gather, step = [], [], []
        for ours, floor in zip(sides["ours"], sides["floor"], strict=True):
            core = sum(floor.laps[what] for what in ("forward", "backward", "step"))
            training = ours.laps["run"] - floor.laps["evaluation"]
            total.append(100 * (training / core - 1))
            gather.append(100 * floor.laps["gather"] / core)
            step.append(1e6 * training / len(work.batches))
        setup = [1e3 * watch.laps["set-up"] for watch in sides["ours"]]
        rows += [
            Row("overhead", "%", total, batch),
            Row("of which gathering batches", "%", gather, batch),
            Row("simulator", "µs/step", step, batch),
            Row("set-up before the first event", "ms", setup, batch),
        ]
    return Outcome(rows)


@part(sizes="threads")
def scaling(effort: Effort) -> Outcome:
    """The reference workload on 1, 2, … threads, up to one per core."""
    cores = usable_cores()
    counts = sorted({min(2**power, cores) for power in range(cores.bit_length() + 1)})
    work = Workload(reference_spec(effort.pick(150, 8)), effort.test_samples)
    work.warm_up(cores)
    rows = []
    sides = work.race({count: ("threads", count) for count in counts}, effort.repetitions)
    for count, watches in sides.items():
        rows.append(Row("throughput", "samples/s", rates(work.samples, watches), count))
        rows.append(Row("gain over one thread", "×", gains(watches, sides[1]), count))
    return Outcome(rows, "history identical with every number of threads")


@part()
def batched(effort: Effort) -> Outcome:
    """The reference workload with devices in flight trained together, executor batched, against the other
    executors.
    """
    cuda = torch.cuda.is_available()
    work = Workload(reference_spec(effort.pick(300 if cuda else 40, 4)), test_samples=500)
    models: dict[str, Tensor] = {}

    def run(executor: str) -> Stopwatch:
        watch, history = work.simulate(executor, effort.threads if executor == "threads" else None)
        assert history.model is not None
        models[executor] = history.model
        return watch

    names = ("batched", "threads", "sequential")
    run("batched")  # warm up: libraries and kernels are loaded on first use
    sides = alternate({name: partial(run, name) for name in names}, effort.repetitions)
    rows = [Row(name, "samples/s", rates(work.samples, sides[name])) for name in names]
    rows += [Row(f"batched over {other}", "×", gains(sides["batched"], sides[other])) for other in names[1:]]
    difference = float((models["batched"] - models["sequential"]).abs().max())
    where = torch.cuda.get_device_name() if cuda else "the processor, where it is not meant to win"
    return Outcome(rows, f"batched ran on {where}; largest difference of a parameter at the end {difference:.1e}")


SIDE = 512
"""Of the square matrices: three of them fill 3 MiB, which the second and third cache level hold."""


def flops_per_sample(model: str, shape: tuple[int, ...], classes: int) -> tuple[int, int]:
    """Return the floating-point operations of one sample's forward and backward pass.

    A multiplication and the addition behind it are two; only matrix products and convolutions count. The images need
    no gradient, so the first layer's backward pass has one product instead of two.
    """
    network = build_network(model, shape, classes)
    image, label = torch.zeros(1, *shape), torch.zeros(1, dtype=torch.int64)
    with FlopCounterMode(display=False) as forward:
        loss = F.cross_entropy(network(image), label)
    with FlopCounterMode(display=False) as backward:
        loss.backward()
    return forward.get_total_flops(), backward.get_total_flops()


def matmul_rate(threads: int, seconds: float = 0.3) -> float:
    """Return the floating-point operations per second of `threads` workers that multiply their own matrices."""

    def work(_: int) -> float:
        torch.set_num_threads(1)
        one, other = torch.randn(2, SIDE, SIDE)
        product = one @ other
        start = time.perf_counter()
        count = 0
        while (elapsed := time.perf_counter() - start) < seconds:
            torch.mm(one, other, out=product)
            count += 1
        return 2 * SIDE**3 * count / elapsed

    with intraop_threads(1), ThreadPoolExecutor(threads) as pool:
        return sum(pool.map(work, range(threads)))


@part(sizes="threads")
def limit(effort: Effort) -> Outcome:
    """The physical limit of the reference workload: its floating-point operations over the machine's rate of
    matrix multiplication; how much of that is reached, and where one thread's time goes.
    """
    work = Workload(reference_spec(effort.pick(300, 8)), effort.test_samples)
    work.warm_up(effort.threads)
    task = work.task
    forward, backward = flops_per_sample(task.model, task.train.shape, len(task.dataset.classes))
    flops = work.samples * (forward + backward) + work.evaluations * len(task.test) * forward
    counts = sorted({1, effort.threads})
    rates = {n: [matmul_rate(n) for _ in range(effort.pick(7, 3))] for n in counts}
    how: dict[str, Side] = {"one": ("sequential", None), "floor": Floor, "all": ("threads", effort.threads)}
    sides = work.race(how, min(effort.repetitions, 3))
    walls = {1: [w.wall for w in sides["one"]], effort.threads: [w.wall for w in sides["all"]]}
    rows = [
        Row("forward, one sample", "kFLOP", [forward / 1e3]),
        Row("backward, one sample", "kFLOP", [backward / 1e3]),
        Row("whole workload", "GFLOP", [flops / 1e9]),
    ]
    for n in counts:
        shortest = [flops / rate for rate in rates[n]]
        best = sorted(shortest)[len(shortest) // 2]
        rows += [
            Row("matrix multiplication", "GFLOP/s", [rate / 1e9 for rate in rates[n]], n),
            Row("shortest possible time", "s", shortest, n),
            Row("time taken", "s", walls[n], n),
            Row("part of the limit reached", "%", [100 * best / wall for wall in walls[n]], n),
        ]
    pairs = list(zip(sides["one"], sides["floor"], strict=True))
    for what in sides["floor"][0].laps:
        rows.append(Row(f"share: {what}", "%", [100 * floor.laps[what] / ours.cpu for ours, floor in pairs]))
    rest = [100 * (1 - sum(floor.laps.values()) / ours.cpu) for ours, floor in pairs]
    rows.append(Row("share: runtime", "%", rest))
    return Outcome(rows, f"{work.samples:,} samples and {work.evaluations} evaluations of {len(task.test):,}")
