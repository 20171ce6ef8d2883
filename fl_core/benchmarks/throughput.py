"""Parts that do one workload twice: by the simulator and by plain PyTorch over the very same mini-batches.

Executors are compared with one another, and with the hardware's limit, in the same way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from fl_core.benchmarks.harness import (
    Effort,
    K,
    Outcome,
    Row,
    Stopwatch,
    Target,
    alternate,
    intraop_threads,
    part,
    seconds_of,
)
from fl_core.datasets import Samples
from fl_core.errors import RunError
from fl_core.experiments.spec import RunSpec
from fl_core.models import FlatModel, build_network
from fl_core.processes import usable_cores
from fl_core.runtime import History, Simulation, executors
from fl_core.runtime.local import TrainJob
from fl_core.tasks import Classification, Task

EVALUATION_BATCH = 500
PROCESSOR = torch.device("cpu")


class Plain:
    """The loop that anyone would write for one machine: tensors in memory, one network, ``torch.optim.SGD``.

    No data loader, no federation, no clock; which samples make a mini-batch is known beforehand, and all are scaled.
    """

    most_scaled: float | None = inf

    def __init__(self, task: Classification, lr: float) -> None:
        self.lr = lr
        self.network = build_network(task.model, task.train.shape, len(task.dataset.classes))
        self.optimiser = torch.optim.SGD(self.network.parameters(), lr=lr)

    def gather(self, split: Samples, index: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mini-batch of `index` ``[b]``."""
        return split.inputs.index_select(0, index), split.labels.index_select(0, index)

    def slice(self, split: Samples, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Return the samples `start`..`stop`."""
        return split.inputs[start:stop], split.labels[start:stop]

    def clear(self) -> None:
        """Forget the last gradient."""
        self.optimiser.zero_grad()

    def step(self) -> None:
        """Descend."""
        self.optimiser.step()


class Floor(Plain):
    """The same loop with the simulator's memory layout and its step: what is left above it is the runtime's."""

    most_scaled = None

    def __init__(self, task: Classification, lr: float) -> None:
        super().__init__(task, lr)
        self.flat = FlatModel(self.network)

    def gather(self, split: Samples, index: Tensor) -> tuple[Tensor, Tensor]:
        return split.select(index)

    def slice(self, split: Samples, start: int, stop: int) -> tuple[Tensor, Tensor]:
        return split.slice(start, stop)

    def clear(self) -> None:
        self.flat.gradient.zero_()

    def step(self) -> None:
        self.flat.parameters.add_(self.flat.gradient, alpha=-self.lr)


class Gradients(Plain):
    """Gradients and nothing else: what a device computes, at a model that is copied in each time."""

    def __init__(self, task: Classification, lr: float) -> None:
        super().__init__(task, lr)
        self.models = [[each.detach().clone() for each in self.network.parameters()] for _ in range(2)]

    def clear(self) -> None:
        """Forget the last gradient, and take another model than before."""
        super().clear()
        self.models.reverse()
        with torch.no_grad():
            for parameter, given in zip(self.network.parameters(), self.models[0], strict=True):
                parameter.copy_(given)

    def step(self) -> None:
        """Keep the gradient: one vector, as it would be sent."""
        torch.cat([p.grad.view(-1) for p in self.network.parameters() if p.grad is not None])


Side = tuple[str, int | None] | type[Plain]
"""A simulation (executor, threads), or a loop."""


class Workload:
    """A run specification with everything that both sides need; `test_samples`: of so many test images, None: of all.

    `batches` are the indices ``[b]`` of every mini-batch that the run trains on, `samples` in all, in the order in
    which its results are used; `evaluations` is how often it measures the global model.
    """

    def __init__(self, spec: RunSpec, test_samples: int | None = None) -> None:
        self.spec, self.task, self.test_samples = spec, spec.task(), test_samples
        test = self.task.test
        self.task.test = replace(test, inputs=test.inputs[:test_samples], labels=test.labels[:test_samples])
        recorder = Recorder(self.task)
        history = simulation_of(self.spec, recorder).run("sequential")
        self.batches = recorder.batches
        self.evaluations = len(history.evaluations["version"])
        self.samples = sum(len(batch) for batch in self.batches)

    def simulate(self, executor: str, threads: int | None = None) -> tuple[Stopwatch, History]:
        """Return the time of the simulation, evaluations included, and its history."""
        simulation = simulation_of(self.spec, self.task)
        watch = Stopwatch()
        history = simulation.run(executor, threads)
        return watch.stop(), history

    def race(self, sides: Mapping[K, Side], times: int) -> dict[K, list[Stopwatch]]:
        """Return the times of all sides, in alternation.

        All histories have to be the same, bit for bit: a fast wrong answer is no answer.
        """
        histories: list[History] = []

        def once(side: Side) -> Stopwatch:
            if isinstance(side, type):
                return self.loop(side)
            watch, history = self.simulate(*side)
            histories.append(history)
            return watch

        found = alternate({name: partial(once, side) for name, side in sides.items()}, times)
        if any(history != histories[0] for history in histories):
            raise RunError("runs of one specification gave different histories; their times cannot be compared")
        self.history = histories[0]
        return found

    def simulate_steadily(self) -> Stopwatch:
        """Return the time of the simulation on one thread; laps: ``set-up``, to the first event, and ``run``."""
        simulation = simulation_of(self.spec, self.task)
        watch = Stopwatch()

        def begin() -> None:
            watch.lap("set-up")
            simulation.watchdog.before_each_event(None)

        simulation.watchdog.before_each_event(begin)
        simulation.run("sequential")
        watch.lap("run")
        return watch.stop()

    def loop(self, kind: type[Plain] = Plain, place: torch.device = PROCESSOR) -> Stopwatch:
        """Return the time of a loop on one thread over the same mini-batches, with as many evaluations.

        Its laps are ``gather``, ``forward``, ``backward``, ``step`` and ``evaluation``.
        """
        train, test = (split.ready(kind.most_scaled).to(place) for split in (self.task.train, self.task.test))
        loop = kind(self.task, self.spec.training.lr)
        loop.network.to(place)
        period = -(-len(self.batches) // max(1, self.evaluations - 1))
        with intraop_threads(1):
            watch = Stopwatch()
            for number, index in enumerate(self.batches):
                if number % period == 0:
                    evaluate(loop, test)
                    watch.lap("evaluation")
                images, labels = loop.gather(train, index.to(place))
                watch.lap("gather")
                loop.clear()
                loss = F.cross_entropy(loop.network(images), labels)
                watch.lap("forward")
                loss.backward()
                watch.lap("backward")
                loop.step()
                watch.lap("step")
            evaluate(loop, test)
            watch.lap("evaluation")
            return watch.stop()

    def warm_up(self, threads: int) -> None:
        """Run both sides once, unmeasured and short."""
        short = Workload(self.spec.changed(**{"budget.updates": 1}), self.test_samples)
        short.simulate("threads", threads)
        short.loop()


def simulation_of(spec: RunSpec, task: Task) -> Simulation:
    """Return the simulation of a specification on another task than its own."""
    chosen = {name: getattr(spec, name) for name in ("training", "budget", "evaluation", "seed")}
    return Simulation(task, spec.world, spec.algorithm, **chosen)


def evaluate(loop: Plain, split: Samples) -> tuple[float, float]:
    """Return accuracy in [0, 1] and mean loss on `split`, as plain PyTorch would compute them."""
    right, loss = 0, 0.0
    with torch.inference_mode():
        for start in range(0, len(split), EVALUATION_BATCH):
            images, labels = loop.slice(split, start, start + EVALUATION_BATCH)
            logits = loop.network(images)
            loss += float(F.cross_entropy(logits, labels, reduction="sum"))
            right += int((logits.argmax(1) == labels).sum())
    return right / len(split), loss / len(split)


class Recorder:
    """A task that writes down the mini-batches it is asked to train on, and its own workspace.

    Training takes no part in the timeline, so the run visits the same mini-batches as one that trains. Nothing is
    computed: there is one vector of zeros.
    """

    noisy = False

    def __init__(self, task: Classification) -> None:
        self.task, self.dimension = task, 1
        self.batches: list[Tensor] = []
        self.vector = self.parameters = self.gradient = torch.zeros(1)

    def initial_model(self, seed: int) -> Tensor:
        return torch.zeros(self.dimension)

    def num_samples(self, device: int) -> int:
        return self.task.num_samples(device)

    def workspace(self) -> Recorder:
        return self

    def load(self, model: Tensor) -> None:
        pass

    def snapshot(self) -> Tensor:
        return self.vector

    def backward(self, device: int, batch: np.ndarray, noise: torch.Generator | None = None) -> Tensor:
        """Write down the mini-batch."""
        self.batches.append(self.task.indices(device)[torch.from_numpy(batch)])
        return torch.zeros(())

    def loss(self, model: Tensor, device: int, samples: int | np.ndarray) -> float:
        return 0.0

    def evaluate(self, model: Tensor, train_samples: int, test_samples: int = 0) -> dict[str, float]:
        return {}


def reference_spec(updates: int) -> RunSpec:
    """Return the reference workload: FedAsync on Fashion-MNIST with LeNet-5, 100 devices, 10 in flight."""
    return RunSpec(
        algorithm={"name": "fedasync", "alpha": 0.6, "concurrency": 10}, dataset="fashion-mnist", model="lenet5",
        partition={"kind": "iid"}, world={"devices": 100}, training={"lr": 0.03, "batch_size": 50, "epochs": 1},
        budget={"updates": updates}, evaluation={"every_updates": 100},
    )  # fmt: skip


TINY_TASKS: dict[str, Any] = {  # what the reference workload becomes with many of them
    "world.devices": 1000, "algorithm.concurrency": 50, "training.batch_size": 10, "evaluation.every_updates": 1000,
}  # fmt: skip


@part(Target("ratio", ">=", 2))
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


@part(Target("ratio", ">=", 1.95), Target("ratio, 1 thread", ">=", 1.05))
def small(effort: Effort) -> Outcome:
    """Many tiny tasks: 1,000 devices of 60 samples, 50 in flight, 3,000 updates of 6 mini-batches of 10, against
    the same bare loop.
    """
    return against_plain(reference_spec(effort.pick(3000, 50)).changed(**TINY_TASKS), effort)


def against_plain(spec: RunSpec, effort: Effort) -> Outcome:
    """Compare the simulator, on one thread and on as many as the effort says, with the bare loop, by turns."""
    work = Workload(spec, effort.test_samples)
    work.warm_up(effort.threads)
    ours, one, bare = f"simulator, {effort.threads} threads", "simulator, 1 thread", "bare loop, 1 thread"
    how: dict[str, Side] = {ours: ("threads", effort.threads), bare: Plain}
    sides = work.race(how | ({one: ("sequential", None)} if effort.threads > 1 else {}), effort.repetitions)
    rows = [Row(name, "samples/s", rates(work.samples, watches)) for name, watches in sides.items()]
    rows.append(Row("ratio", "×", gains(sides[ours], sides[bare])))
    if one in sides:
        rows.append(Row("ratio, 1 thread", "×", gains(sides[one], sides[bare])))
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


@part(
    Target("over a loop there", ">=", 60, size=1), Target("part of the accelerator's rate", ">=", 25, size=1),
    sizes="runs at a time",
)  # fmt: skip
def batched(effort: Effort) -> Outcome:
    """The reference workload with devices in flight trained together, executor batched, against the other
    executors; on an accelerator with all devices in flight, against a bare PyTorch loop there, too, and with ten
    devices in flight in each of so many runs.
    """
    cuda = torch.cuda.is_available()
    place = torch.device("cuda" if cuda else "cpu")
    in_flight = {"algorithm.concurrency": 100} if cuda else {}
    works = [Workload(reference_spec(n).changed(**in_flight), 500) for n in (effort.pick(40, 4), effort.pick(500, 8))]
    short, work = works[0], works[cuda]
    models: dict[str, Tensor] = {}

    def run(executor: str, work: Workload = short) -> Stopwatch:
        watch, history = work.simulate(executor, effort.threads if executor == "threads" else None)
        assert history.model is not None
        models[executor] = history.model
        return watch

    def a_loop() -> Stopwatch:
        with torch.backends.cudnn.flags(allow_tf32=False):  # as precise as the others
            return work.loop(place=place)

    names = ("batched", "threads", "sequential")
    sides: dict[str, Callable[[], Stopwatch]] = {name: partial(run, name) for name in names}
    found = alternate(sides, 1 if cuda else effort.repetitions)
    difference = float((models["batched"] - models["sequential"]).abs().max())
    rows = [Row(name, "samples/s", rates(short.samples, found[name]), 1) for name in names[cuda:]]
    if cuda:
        sides = {"batched": partial(run, "batched", work), "a loop there": a_loop}
        found |= alternate(sides, effort.repetitions)
        rows += [Row(name, "samples/s", rates(work.samples, found[name]), 1) for name in ("batched", "a loop there")]
        reached = sum(flops_per_sample(work.task.model, work.task.train.shape, 10)) * np.array(rows[-2].values)
        rows.append(Row("part of the accelerator's rate", "%", (100 * reached / accelerator_rate(place)).tolist(), 1))
        rows.append(Row("over a loop there", "×", gains(found["batched"], found["a loop there"]), 1))
    else:
        rows += [Row(f"over {name}", "×", gains(found["batched"], found[name]), 1) for name in names[1:]]
    for runs in (1, 4, 12) if cuda else (1, 2):
        rows.append(Row("runs with ten devices in flight", "samples/s", [at_a_time(work, runs)], runs))
    where = torch.cuda.get_device_name() if cuda else "the processor, where it is not meant to win"
    return Outcome(rows, f"batched ran on {where}; largest difference of a parameter at the end {difference:.1e}")


def at_a_time(work: Workload, runs: int) -> float:
    """Return the samples per second of so many runs that are trained together."""
    together = executors.Together(runs)
    specs = [work.spec.changed(**{"algorithm.concurrency": 10, "seed": seed}) for seed in range(runs)]

    def run(spec: RunSpec) -> None:
        try:
            simulation_of(spec, work.task).run("batched", together=together)
        finally:
            together.leave()

    with ThreadPoolExecutor(runs) as pool:
        watch = Stopwatch()
        list(pool.map(run, specs))
        return runs * work.samples / watch.stop().wall


@part(sizes="tasks together")
def blocks(effort: Effort) -> Outcome:
    """Local tasks of ten mini-batches of 50, one at a time and in one block, by the executor batched: with LeNet-5
    and, on an accelerator, the network of FedAsync's authors; their parameters go there and come back.
    """
    cuda = torch.cuda.is_available()
    place, block, steps = torch.device("cuda" if cuda else "cpu"), 81 if cuda else 4, effort.pick(10, 2)
    rate, rows, different = accelerator_rate(place) if cuda else matmul_rate(1), [], 0.0
    helpers = ThreadPoolExecutor(usable_cores())  # kept, as a run keeps them
    for model in ("lenet5", "fedasync_cnn")[: 1 + cuda]:
        crop = {"preprocessing": {"crop": 24}} if model == "fedasync_cnn" else {}
        task = reference_spec(1).changed(model=model, **crop).task()
        space, start = task.batched_workspace(place), task.initial_model(0)
        ways = {"": space} | ({" from a recorded graph": executors.Captured(space)} if cuda else {})
        jobs = [
            TrainJob(start, k, task.num_samples(k), steps, 50, 0.03, 0.0, None, (0, "batches", k, 0, 1))
            for k in range(block)
        ]
        shape = executors.shape_of(jobs[0], space.separate)
        assert shape is not None

        def together(way: Any, number: int, task: Any = task, jobs: Any = jobs, shape: Any = shape) -> list[Any]:
            return executors.compute_together(jobs[:number], shape, way, block, [task] * number, helpers.map)

        sides: dict[tuple[str, int], Callable[[], object]] = {("", 1): partial(jobs[0].run, space)}
        sides |= {(name, block): partial(together, way, block) for name, way in ways.items()}
        for (name, number), work in sides.items():
            work()  # libraries and kernels are loaded on first use, and a graph recorded on second
            samples = [number * steps * 50 / seconds_of(work) for _ in range(effort.repetitions)]
            reached = [100 * sum(flops_per_sample(model, task.train.shape, 10)) * each / rate for each in samples]
            rows += [
                Row(model + name, "samples/s", samples, number),
                Row(f"{model}{name}, part of the rate", "%", reached, number),
            ]
        alone, among = (together([*ways.values()][-1], number)[0] for number in (1, block))
        different = max(different, float((alone.model - among.model).abs().max()))
    where = torch.cuda.get_device_name() if cuda else "one thread"
    return Outcome(rows, f"{where}: {rate / 1e12:.1f} TFLOP/s; a task alone in its block differs by {different:.1e}")


def accelerator_rate(place: torch.device, side: int = 8192, times: int = 20) -> float:
    """Return the floating-point operations per second of `place` that multiplies matrices in full float32."""
    one, other = torch.randn(2, side, side, device=place)
    torch.cuda.synchronize(place)
    watch = Stopwatch()
    for _ in range(times):
        one @ other
    torch.cuda.synchronize(place)
    return 2 * side**3 * times / watch.stop().wall


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
