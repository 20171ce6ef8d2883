"""Parts that compare whole runs with plain PyTorch and the hardware's limit, and executors with one another."""

from __future__ import annotations

import threading
import time
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from fl_core.benchmarks.harness import Effort, Outcome, Row, Stopwatch, Target, alternate, intraop_threads, part
from fl_core.benchmarks.loops import Floor, Workload, same
from fl_core.experiments.spec import RunSpec
from fl_core.models import build_network
from fl_core.runtime import History
from fl_core.runtime.executors import usable_cores


def reference_spec(updates: int) -> RunSpec:
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


@part(
    "FedAsync, LeNet-5, Fashion-MNIST, 100 devices, 10 in flight, 300 updates of 12 mini-batches of 50, against a "
    "bare PyTorch loop on one thread",
    Target("ratio", ">=", 1.85),
)
def reference(effort: Effort) -> Outcome:
    """Measure the workload that most chapters resemble."""
    return against_plain(reference_spec(effort.pick(300, 8)), effort)


@part("Its synchronous twin: FedAvg, 10 of 100 devices in each of 30 rounds, against the same bare loop")
def synchronous(effort: Effort) -> Outcome:
    """Measure rounds: a barrier after every ten tasks."""
    spec = reference_spec(effort.pick(30, 2)).changed(
        algorithm={"name": "fedavg", "clients_per_round": 10}, **{"evaluation.every_updates": 10}
    )
    return against_plain(spec, effort)


@part(
    "Many tiny tasks: 1,000 devices of 60 samples, 50 in flight, 3,000 updates of 6 mini-batches of 10, against the "
    "same bare loop",
    Target("ratio", ">=", 1.7),
)
def small(effort: Effort) -> Outcome:
    """Measure work that consists mostly of overhead."""
    spec = reference_spec(effort.pick(3000, 50)).changed(
        **{"world.devices": 1000, "algorithm.concurrency": 50, "training.batch_size": 10},
        **{"evaluation.every_updates": 1000},
    )
    return against_plain(spec, effort, pairs=min(effort.repetitions, 3))


def against_plain(spec: RunSpec, effort: Effort, pairs: int | None = None) -> Outcome:
    """Compare the ``threads`` executor with the bare loop, in alternating pairs (as many as the effort says)."""
    work = Workload(spec, effort.test_samples)
    work.warm_up(effort.threads)
    histories: list[History] = []

    def ours() -> Stopwatch:
        watch, history = work.simulate("threads", effort.threads)
        histories.append(history)
        return watch

    sides = alternate({"ours": ours, "bare": work.loop}, pairs or effort.repetitions)
    same(histories)
    rows = []
    names = {"ours": f"simulator, {_threads(effort.threads)}", "bare": "bare loop, 1 thread"}
    for side, name in names.items():
        rows.append(Row(name, "samples/s", [work.samples / watch.wall for watch in sides[side]]))
    rows.append(Row("ratio", "×", [b.wall / a.wall for a, b in zip(sides["ours"], sides["bare"], strict=True)]))
    for side, name in names.items():
        microseconds = [1e6 * watch.cpu / work.samples for watch in sides[side]]
        rows.append(Row(f"{name}: processor time", "µs/sample", microseconds))
    accuracy = histories[0].evaluations["test_accuracy"][-1]
    return Outcome(rows, f"{work.samples:,} samples; history identical in all runs, final accuracy {accuracy:.3f}")


@part(
    "The thread's processor time beyond forward, backward and step, as a share of these three, from a run's first "
    "event on: executor sequential, the same memory layout and the same step in both loops",
    Target("overhead", "<=", 5, size=50),
    Target("overhead", "<=", 12, size=10),
    sizes="batch size",
)
def overhead(effort: Effort) -> Outcome:
    """Measure what the runtime costs, in many short pairs; evaluations are small and taken out of both sides."""
    rows = []
    for batch, full in ((50, 10), (10, 6)):  # short, so that a slow second of the machine meets both sides
        spec = reference_spec(effort.pick(full, 2)).changed(**{"training.batch_size": batch})
        work = Workload(spec, test_samples=50)
        work.warm_up(1)
        rows += _overhead(work, batch, 9 * effort.repetitions)
    return Outcome(rows)


@part("The reference workload on 1, 2, … threads, up to one per core", sizes="threads")
def scaling(effort: Effort) -> Outcome:
    """Measure throughput against the number of workers."""
    cores = usable_cores()
    counts = sorted({min(2**power, cores) for power in range(cores.bit_length() + 1)})
    work = Workload(reference_spec(effort.pick(150, 8)), effort.test_samples)
    work.warm_up(cores)
    histories: list[History] = []

    def run(count: int) -> Stopwatch:
        watch, history = work.simulate("threads", count)
        histories.append(history)
        return watch

    sides = alternate({count: partial(run, count) for count in counts}, effort.repetitions)
    same(histories)
    rows = []
    for count in counts:
        watches = sides[count]
        rows.append(Row("throughput", "samples/s", [work.samples / watch.wall for watch in watches], count))
        gains = [one.wall / watch.wall for one, watch in zip(sides[1], watches, strict=True)]
        rows.append(Row("gain over one thread", "×", gains, count))
    return Outcome(rows, "history identical with every number of threads")


@part("The reference workload with devices in flight trained together, executor batched, against the other executors")
def batched(effort: Effort) -> Outcome:
    """Measure vectorisation over devices."""
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
    rows = [Row(name, "samples/s", [work.samples / watch.wall for watch in sides[name]]) for name in names]
    for other in names[1:]:
        gains = [o.wall / b.wall for b, o in zip(sides["batched"], sides[other], strict=True)]
        rows.append(Row(f"batched over {other}", "×", gains))
    difference = float((models["batched"] - models["sequential"]).abs().max())
    where = torch.cuda.get_device_name() if cuda else "the processor, where it is not meant to win"
    return Outcome(rows, f"batched ran on {where}; largest difference of a parameter at the end {difference:.1e}")


def _overhead(work: Workload, batch: int, repetitions: int) -> list[Row]:
    sides = alternate({"ours": work.simulate_steadily, "floor": lambda: work.loop(Floor)}, repetitions)
    total, gather, step = [], [], []
    for ours, floor in zip(sides["ours"], sides["floor"], strict=True):
        core = sum(floor.laps[what] for what in ("forward", "backward", "step"))
        training = ours.laps["run"] - floor.laps["evaluation"]
        total.append(100 * (training / core - 1))
        gather.append(100 * floor.laps["gather"] / core)
        step.append(1e6 * training / len(work.batches))
    return [
        Row("overhead", "%", total, batch),
        Row("of which gathering batches", "%", gather, batch),
        Row("simulator", "µs/step", step, batch),
        Row("set-up before the first event", "ms", [1e3 * watch.laps["set-up"] for watch in sides["ours"]], batch),
    ]


def _threads(count: int) -> str:
    return f"{count} thread{'s' if count > 1 else ''}"


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
    counts: list[float] = []

    def work() -> None:
        torch.set_num_threads(1)
        one, other = torch.randn(2, SIDE, SIDE)
        product = one @ other
        start = time.perf_counter()
        count = 0
        while (elapsed := time.perf_counter() - start) < seconds:
            torch.mm(one, other, out=product)
            count += 1
        counts.append(2 * SIDE**3 * count / elapsed)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    with intraop_threads(1):
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    return sum(counts)


@part(
    "The physical limit of the reference workload: its floating-point operations over the machine's rate of matrix "
    "multiplication; how much of that is reached, and where one thread's time goes",
    sizes="threads",
)
def limit(effort: Effort) -> Outcome:
    """Measure the distance to the hardware."""
    work = Workload(reference_spec(effort.pick(300, 8)), effort.test_samples)
    work.warm_up(effort.threads)
    task = work.task
    forward, backward = flops_per_sample(task.model, task.train.shape, len(task.dataset.classes))
    flops = work.samples * (forward + backward) + work.evaluations * len(task.test) * forward
    counts = sorted({1, effort.threads})
    rates = {n: [matmul_rate(n) for _ in range(effort.pick(7, 3))] for n in counts}
    sides = alternate(
        {
            "one": lambda: work.simulate("sequential")[0],
            "floor": lambda: work.loop(Floor),
            "all": lambda: work.simulate("threads", effort.threads)[0],
        },
        min(effort.repetitions, 3),
    )
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
