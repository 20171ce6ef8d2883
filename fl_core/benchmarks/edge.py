"""The part about edge servers: what a local step costs in a large federation of clusters and in a small one."""

from __future__ import annotations

from functools import partial

from fl_core.algorithms import AsyncSDFeel
from fl_core.benchmarks.loops import Workload
from fl_core.benchmarks.part import Effort, Outcome, Row, Target, part
from fl_core.benchmarks.runtime import LENET5, Free, free_training
from fl_core.benchmarks.timing import Stopwatch, alternate
from fl_core.experiments.spec import RunSpec
from fl_core.runtime import Budget, Evaluation, Simulation

FEDERATIONS = {30: 6, 600: 60}
"""Devices, and the edge servers that they are divided among."""


def cluster_spec(devices: int, updates: int) -> RunSpec:
    """Return asynchronous SD-FEEL with LeNet-5 on Fashion-MNIST, 100 images a device, for so many `devices`."""
    world = f"sdfeel(devices={devices}, servers={FEDERATIONS[devices]}, parameters={LENET5}, communication=0.1)"
    return RunSpec(
        algorithm=AsyncSDFeel(min_batches=10),
        model="lenet5",
        partition={"kind": "iid", "samples_per_device": 100},
        world=world,
        training={"lr": 0.03, "batch_size": 10},
        budget={"updates": updates},
        evaluation={"every_updates": None},
    )


@part(
    "Asynchronous SD-FEEL, LeNet-5 on Fashion-MNIST, 60 edge servers with ten devices each against six with five: "
    "the thread's processor time for one mini-batch of 10, executor sequential; and for one task of a device when "
    "training is free",
    Target("600 devices against 30: mini-batch", "<=", 1.1),
    sizes="devices",
)
def clusters(effort: Effort) -> Outcome:
    """Measure whether clusters cost more when there are many, in alternating runs with about as many tasks."""
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
        simulation = Simulation(
            task, spec.world, spec.algorithm, budget=Budget(updates=spec.budget.updates),
            evaluation=Evaluation(every_updates=None),
        )  # fmt: skip
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
