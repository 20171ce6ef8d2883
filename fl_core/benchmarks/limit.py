"""The part that asks how fast the reference workload could be on this machine, and where its time goes."""

from __future__ import annotations

import threading
import time

import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from fl_core.benchmarks.loops import Floor, Workload
from fl_core.benchmarks.part import Effort, Outcome, Row, part
from fl_core.benchmarks.throughput import reference_spec
from fl_core.benchmarks.timing import alternate, intraop_threads
from fl_core.models import build_network

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
