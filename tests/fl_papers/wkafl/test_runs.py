"""Runs of the algorithms against the chapters' formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fl_core.algorithms import Algorithm, KAsync
from fl_core.runtime import Budget, Evaluation, LocalTraining, Simulation
from fl_core.tasks import Quadratic
from fl_core.world import World
from fl_papers.wkafl.theory import (
    k_asynchronous,
)

DEVICES = 40


def simulate(
    algorithm: Algorithm, task: Quadratic, world: World, updates: int, executor: str = "sequential", **training: Any
) -> Simulation:
    run = Simulation(
        task, world, algorithm, budget=Budget(updates=updates), evaluation=Evaluation(every_updates=10), seed=1,
        training=LocalTraining(**{"batch_size": 50, **training}),
    )  # fmt: skip
    run.run(executor)
    return run


def random_task(agree: bool = False, devices: int = DEVICES, size: int = 6) -> Quadratic:
    rng = np.random.default_rng(0)
    centre = rng.standard_normal((devices, size))
    if agree:
        centre = centre[:1].repeat(devices, 0)
    return Quadratic(rng.uniform(0.5, 2, (devices, size)), centre, [3.0] * size)


def world(devices: int = DEVICES, **fields: Any) -> World:
    return World.named("wkafl", devices=devices, **fields)


def updates(run: Simulation) -> list[list[tuple[int, int]]]:
    """Device and staleness of the gradients of each version, in the order in which they were used."""
    table, found = run.history.updates, [[] for _ in range(run.version)]
    for version, device, staleness in zip(table["version"], table["device"], table["staleness"], strict=True):
        found[version - 1].append((device, staleness))
    return found


@pytest.mark.parametrize("law", ["exponential", "shifted_exponential", "uniform"])
def test_the_schedule_is_the_one_without_a_simulator(law):
    run = simulate(KAsync(num_aggregated=5, lr=0.01), random_task(), world(law=law), 100)
    made = k_asynchronous(lambda d, job: run.devices.profile(d, job).seconds_per_step, DEVICES, 5, 100)
    expected = [
        list(zip(*both, strict=True)) for both in zip(made.clients.tolist(), made.staleness.tolist(), strict=True)
    ]
    assert updates(run) == expected
    np.testing.assert_allclose(run.history.updates["seconds"][4::5], made.seconds)
