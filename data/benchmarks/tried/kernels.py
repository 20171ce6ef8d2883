"""What a training step costs, done in each of the ways of ``steps.py``."""

from __future__ import annotations

import statistics
from functools import partial
from typing import Any

import steps
from torch.profiler import ProfilerActivity, profile

from fl_core.benchmarks.harness import Outcome, Row, Stopwatch, alternate, intraop_threads
from fl_core.benchmarks.throughput import flops_per_sample, matmul_rate, reference_spec

SENTENCE = "One training step of LeNet-5 on one thread, done in different ways"

DIFFERENCE = "largest difference of a gradient"

SIDES: dict[str, Any] = {
    "plain PyTorch": steps.Plain,
    "ours": steps.Ours,
    "no autograd, from Python": steps.WithoutAutograd,
    "no autograd, from C++": steps.Cpp,
    "inductor": steps.Compiled,
    "inductor, C++ wrapper": steps.CompiledCpp,
    "inductor, max-autotune": steps.Autotuned,
    "unfold + matrix product": steps.Unfolded,
    "fused pooling and ReLU": steps.Fused,
    "blocked layouts": steps.Blocked,
    "bfloat16": steps.Bfloat16,
    "matrix products alone": steps.Products,
}
PHASES = {
    "convolution, forward": ("aten::conv2d",),
    "convolution, backward": ("aten::convolution_backward",),
    "pooling": ("aten::max_pool2d", "aten::max_pool2d_with_indices_backward"),
    "dense layers": ("aten::linear", "AddmmBackward0"),
}
"""Operations, with all that they call, by what they are for; the rest is the rest."""


def measure(times: int) -> tuple[Outcome, dict[str, dict[str, Any]]]:
    """Return what each way takes at two batch sizes, and about each its note and how its gradient differs."""
    task = reference_spec(1).task()
    flops = sum(flops_per_sample(task.model, task.train.shape, len(task.dataset.classes)))
    rows: list[Row] = []
    about: dict[str, dict[str, Any]] = {}
    with intraop_threads(1):
        rates = [matmul_rate(1) for _ in range(7)]
        rows.append(Row("matrix multiplication", "GFLOP/s", [rate / 1e9 for rate in rates]))
        for batch in (10, 50):
            count = 1500 // batch  # steps in a turn
            ready = prepare(task, batch, about)
            found = alternate({name: partial(turn, way, count) for name, way in ready.items()}, times)
            for name, watches in found.items():
                took = [1e6 * watch.wall / count for watch in watches]
                limit = 1e6 * batch * flops / statistics.median(rates)
                rows.append(Row(name, "µs/step", took, batch))
                rows.append(Row(name, "processor time, µs/step", [1e6 * w.cpu / count for w in watches], batch))
                rows.append(Row(name, "% of the limit", [100 * limit / each for each in took], batch))
            rows += shares(ready["ours"], batch)
    return Outcome(rows, "share: what a step of ours spends its time on, by PyTorch's profiler"), about


def prepare(task: Any, batch: int, about: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return all ways that work here, warmed up, having compared their gradients with ours."""
    ready = {}
    ours = steps.Ours(task, batch)
    ours.backward()
    for name, kind in SIDES.items():
        try:
            way = kind(task, batch)
            difference = way.difference(ours)
            way.step()
        except (RuntimeError, OSError) as error:
            print(f"{name} is left out: {' '.join(str(error).split())[:200]}", flush=True)
            continue
        ready[name] = way
        before = about.get(name, {}).get(DIFFERENCE, difference)
        said = kind.__doc__
        largest = None if difference is None else max(before, difference)
        about[name] = {DIFFERENCE: largest, "what it is": said[0].lower() + said[1:-1]}
    return ready


def turn(way: Any, count: int) -> Stopwatch:
    """Return the time of `count` steps."""
    way.step()
    watch = Stopwatch()
    for _ in range(count):
        way.step()
    return watch.stop()


def shares(ours: steps.Ours, batch: int) -> list[Row]:
    """Return what the time of a step goes to, in per cent."""
    with profile(activities=[ProfilerActivity.CPU]) as found:
        for _ in range(50):
            ours.step()
    events = found.key_averages()
    total = sum(event.self_cpu_time_total for event in events)
    spent = {
        phase: 100 * sum(event.cpu_time_total for event in events if event.key in names) / total
        for phase, names in PHASES.items()
    }
    spent["rest"] = 100 - sum(spent.values())
    return [Row(f"share: {phase}", "%", [share], batch) for phase, share in spent.items()]
