"""The part that measures WKAFL's world: thousands of devices in flight, each with one mini-batch gradient."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from fl_core.benchmarks import runtime
from fl_core.benchmarks.loops import Plain, Workload
from fl_core.benchmarks.part import Effort, Outcome, Row, Target, part
from fl_core.benchmarks.throughput import same
from fl_core.benchmarks.timing import MEBI, Stopwatch, alternate
from fl_core.runtime import History
from fl_core.tasks import Classification


class Gradients(Plain):
    """Gradients and nothing else: what a device computes, at a model that is copied in each time."""

    def __init__(self, task: Classification, lr: float) -> None:
        super().__init__(task, lr)
        self.models = [self._parameters(), self._parameters()]

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

    def _parameters(self) -> list[Tensor]:
        return [parameter.detach().clone() for parameter in self.network.parameters()]


@part(
    "WKAFL, LeNet-5, Fashion-MNIST, 3,000 devices in flight, 10 gradients of 4 images a version: against a bare loop "
    "on one thread that computes the same gradients and nothing else; peak memory of a whole process after 1,500 "
    "versions",
    Target("ratio", ">=", 0.9, size=3000),
    Target("peak memory", "<=", 1536, size=3000),
    sizes="devices",
)
def kasync(effort: Effort) -> Outcome:
    """Measure the K-asynchronous server."""
    devices = effort.pick(3000, 300)
    work = Workload(runtime.kasync_spec(devices, effort.pick(300, 5)), test_samples=50)
    work.warm_up(effort.threads)
    histories: list[History] = []

    def ours(executor: str) -> Stopwatch:
        watch, history = work.simulate(executor, effort.threads if executor == "threads" else None)
        histories.append(history)
        return watch

    bare = partial(work.loop, Gradients)
    sides = alternate({"threads": partial(ours, "threads"), "bare": bare, "one": partial(ours, "sequential")},
                      effort.repetitions)  # fmt: skip
    same(histories)
    names = {"threads": f"simulator, {effort.threads} threads", "one": "simulator, 1 thread", "bare": "bare loop"}
    rows = []
    for side, name in names.items():
        rate = [len(work.batches) / watch.wall for watch in sides[side]]
        rows.append(Row(name, "gradients/s", rate, devices))
    for side, name in (("threads", "ratio"), ("one", "ratio on one thread")):
        values = [b.wall / a.wall for a, b in zip(sides[side], sides["bare"], strict=True)]
        rows.append(Row(name, "×", values, devices))
    found = runtime.probe("gradients", devices, effort.pick(1500, 5))
    rows.append(Row("peak memory", "MiB", [found["peak"] / MEBI], devices))
    rows.append(Row("of which libraries and data", "MiB", [found["before"] / MEBI], devices))
    return Outcome(rows, f"{len(work.batches):,} gradients; history identical in all runs")
