"""Replays of recorded runs."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fl_core.algorithms import WKAFL, Algorithm, FedAsync, KAsync
from fl_core.errors import SpecError
from fl_core.experiments.replay import Arrival, replay
from fl_core.experiments.spec import RunSpec
from fl_core.runtime import Budget, Evaluation, LocalTraining
from fl_core.world import ExponentialCompute, World

pytestmark = pytest.mark.usefixtures("few_images")

BATCH = 4


def spec(algorithm: Algorithm, updates: int = 12) -> RunSpec:
    return RunSpec(
        dataset="fashion-mnist", model="linear", partition="iid(samples_per_device=24)", algorithm=algorithm,
        world=World(devices=6, compute=ExponentialCompute()), budget=Budget(updates=updates),
        training=LocalTraining(batch_size=BATCH, steps=1, order="cyclic"), evaluation=Evaluation(every_updates=None),
    )  # fmt: skip


def recorded(run: RunSpec, count: int) -> tuple[list[list[Arrival]], torch.Tensor]:
    """The arrivals of a run of ours, whose devices take four samples after the other, and its last model."""
    simulation = run.simulation()
    table, final = simulation.run().updates, simulation.history.model
    used, arrivals = [0] * 6, []
    for device, version, staleness in zip(table["device"], table["version"], table["staleness"], strict=True):
        first = BATCH * (used[device] % 6)
        used[device] += 1
        arrivals.append(Arrival(device, version - 1 - staleness, np.arange(first, first + BATCH)[None]))
    return [arrivals[first : first + count] for first in range(0, len(arrivals), count)], final


@pytest.mark.parametrize(
    ("algorithm", "count"),
    [
        (KAsync(num_aggregated=3, lr=0.1), 3),
        (WKAFL(num_aggregated=3, lr=0.1, client_snapshot="aliased"), 3),
        (FedAsync(concurrency=3), 1),
    ],
)
def test_a_run_of_ours_is_replayed_to_the_bit(algorithm: Algorithm, count: int):
    run = spec(algorithm)
    updates, final = recorded(run, count)
    task = run.task()
    found = replay(task, algorithm, updates, task.initial_model(run.seed), training=run.training)
    assert torch.equal(found.models[-1], final)
    assert found.history.updates["device"] == [arrival.device for update in updates for arrival in update]


def test_a_forced_replay_starts_every_update_from_the_record():
    run = spec(KAsync(num_aggregated=2, lr=0.1))
    updates, _ = recorded(run, 2)
    task = run.task()
    free = replay(task, run.algorithm, updates, task.initial_model(0)).models
    wrong = [model + 1 for model in free]
    forced = replay(task, run.algorithm, updates, task.initial_model(0), forced={1: wrong[0]}).models
    assert torch.equal(forced[0], free[0])
    assert not torch.allclose(forced[1], free[1], atol=0.5)
    again = replay(task, run.algorithm, updates, task.initial_model(0), forced=dict(enumerate(free, 1))).models
    assert all(map(torch.equal, again, free))


def test_a_record_that_cannot_be_is_refused_in_one_line():
    run = spec(KAsync(num_aggregated=1, lr=0.1))
    task, batch = run.task(), np.arange(4)[None]
    start = task.initial_model(0)
    with pytest.raises(SpecError, match=r"update 1 uses version 1; there are 0\.\.0 then"):
        replay(task, run.algorithm, [[Arrival(0, 1, batch)]], start)
    with pytest.raises(SpecError, match=r"shapes \[\(1, 3\), \(1, 4\)\]; all should have one, \(steps, size\)"):
        replay(task, run.algorithm, [[Arrival(0, 0, batch)], [Arrival(1, 0, batch[:, :3])]], start)
