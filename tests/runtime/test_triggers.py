"""Every way to trigger devices, on timelines that are worked out by hand (reference traces of the specifications)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import runs
import torch
from baseline_runs import TOY_B
from hypothesis import given, settings
from hypothesis import strategies as st
from runs import fixed, rows

from fl_core.algorithms import Algorithm, FedAsync, FedAvg
from fl_core.runtime import Simulation
from fl_core.runtime.history import History
from fl_core.streams import stream
from fl_core.tasks import Quadratic
from fl_core.world import ConstantCompute, UniformCompute, World, triggers
from fl_core.world.triggers import Contributors, Rounds, Sampled, Timed

UNIFORM_MEAN = (0.335416666667, 0.39625)
"""The first synchronous round of the baselines' toy with equal weights."""


def simulate(algorithm: Algorithm, world: World, **settings: Any) -> tuple[Simulation, History]:
    run = runs.simulate(algorithm, world, **settings)
    return run, run.history


def toy(algorithm: Algorithm, updates: int) -> tuple[Simulation, History]:
    return simulate(algorithm, fixed(1.0, 1.5, 2.5), task=TOY_B, updates=updates, lr=0.1, steps=2)


def numbered(trace: list[tuple[float, list[tuple[int, int]]]], first: int = 1) -> list[tuple[float, int, int, int]]:
    """Write a trace, (time, [(device, staleness), ...]) of each commit, in rows; its devices count from `first`."""
    return [
        (seconds, version, device - first, staleness)
        for version, (seconds, used) in enumerate(trace, 1)
        for device, staleness in used
    ]


class Deltas(Algorithm):
    """Devices upload their updates."""

    server_lr: float = 1.0

    async def device(self, device):
        snapshot = await device.download()
        trained = await device.train(snapshot.model)
        await device.upload(delta=trained.model - snapshot.model, based_on=snapshot)

    def step(self, server, uploads):
        server.state.setdefault("tasks", []).append([(upload.device, upload.task) for upload in uploads])
        change = sum((upload.delta for upload in uploads), torch.zeros_like(server.model))
        server.commit(server.model + self.server_lr * change / max(1, len(uploads)))


class Buffered(Deltas):
    """All devices always busy, a commit for every K arrivals (FedBuff without its weights)."""

    count: int = 2

    async def scheduler(self, server):
        await server.keep_busy(3)

    async def updater(self, server):
        self.step(server, await server.receive(self.count))


class Hold(Buffered):
    """The same, but a device waits until its upload is used (K-asynchronous)."""

    order: str = "arrival"

    async def scheduler(self, server):
        await Contributors(order=self.order).turn(server)


def close(model: torch.Tensor, expected: tuple[float, ...]) -> None:
    np.testing.assert_allclose(model.numpy(), expected, rtol=1e-9)


def test_per_arrival_is_trace_i():
    _, history = toy(FedAsync(concurrency=3, alpha=0.6), updates=12)
    assert rows(history) == numbered([
        (2, [(1, 0)]), (3, [(2, 1)]), (4, [(1, 1)]), (5, [(3, 3)]), (6, [(2, 2)]), (6, [(1, 2)]),
        (8, [(1, 0)]), (9, [(2, 2)]), (10, [(3, 4)]), (10, [(1, 2)]), (12, [(2, 2)]), (12, [(1, 1)]),
    ])  # fmt: skip
    close(toy(FedAsync(concurrency=3, alpha=0.6), updates=6)[1].model, (0.35677778, 0.401222624))


def test_the_first_two_with_contributors_held_is_trace_h():
    _, history = toy(Hold(), updates=4)
    assert rows(history) == numbered(
        [(3, [(1, 0), (2, 0)]), (5, [(3, 1), (1, 0)]), (7, [(2, 1), (1, 0)]), (10, [(1, 0), (3, 1)])]
    )


class Replacing(Buffered):
    """An upload keeps its place until it is used; then any idle device may take that."""

    concurrency: int = 3

    async def scheduler(self, server):
        await server.keep_busy(triggers.Hold(concurrency=self.concurrency))


def test_places_that_are_held_among_as_many_devices_are_trace_h():
    one, other = (toy(algorithm, updates=9)[1] for algorithm in (Hold(), Replacing()))
    assert rows(one) == rows(other)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 5), st.integers(1, 6), st.floats(0, 0.4), st.integers(0, 10**6))
def test_tasks_and_waiting_uploads_never_take_more_places_than_there_are(count, concurrency, lost, seed):
    class Watched(Replacing):
        async def updater(self, server):
            places.append(server.in_flight + len(server.waiting))
            await super().updater(server)

        async def device(self, device):
            assert device.id not in {upload.device for upload in run.server.waiting}
            await super().device(device)

    places: list[int] = []
    world = World(devices=6, compute=UniformCompute(fastest=1.0, slowest=5.0), jitter=0.3,
                  faults=[{"kind": "lost", "probability": lost}])  # fmt: skip
    algorithm = Watched(count=min(count, concurrency), concurrency=concurrency)
    run = runs.simulation(algorithm, world, updates=12, seed=seed)
    run.run()
    assert max(places) <= concurrency
    assert len(set(run.history.updates["device"])) > 1 or concurrency == 1


def test_all_arrivals_held_are_synchronous_rounds():
    _, history = toy(Hold(count=3), updates=3)
    assert rows(history) == numbered([(5 * r, [(1, 0), (2, 0), (3, 0)]) for r in (1, 2, 3)])
    close(toy(Hold(count=3), updates=1)[1].model, UNIFORM_MEAN)
    torch.testing.assert_close(
        history.model, toy(FedAvg(clients_per_round=3), updates=3)[1].model, rtol=1e-12, atol=0
    )


def test_the_first_two_of_four_are_the_trace_of_wkafl():
    """Oracle O11, which lists arrivals of the same instant by device; the kernel has them in order of dispatch."""
    _, history = simulate(Hold(count=2), fixed(1.0, 1.5, 2.5, 4.2), updates=6)
    expected = numbered([
        (1.5, [(0, 0), (1, 0)]), (2.5, [(0, 0), (2, 1)]), (3.5, [(1, 1), (0, 0)]),
        (4.5, [(3, 3), (0, 0)]), (5.0, [(1, 1), (2, 2)]), (6.5, [(0, 1), (1, 0)]),
    ], first=0)  # fmt: skip
    tied = {2: sorted, 5: sorted}
    found = rows(history)
    for version in range(1, 7):
        order = tied.get(version, list)
        assert order(r for r in found if r[1] == version) == [r for r in expected if r[1] == version]


def test_more_arrivals_at_one_instant_than_are_waited_for_open_the_next_version():
    _, history = simulate(Hold(count=2), fixed(1.0, 1.0, 1.0), updates=4)
    assert rows(history) == numbered(
        [(1, [(0, 0), (1, 0)]), (2, [(2, 1), (0, 0)]), (3, [(1, 1), (2, 0)]), (4, [(0, 1), (1, 0)])], first=0
    )  # fmt: skip


@pytest.mark.parametrize(("order", "second"), [("arrival", [1, 2, 0]), ("id", [0, 1, 2])])
def test_contributors_are_triggered_in_order_of_arrival_or_of_their_numbers(order, second):
    run, _ = simulate(Hold(count=3, order=order), fixed(3.0, 1.0, 2.0), updates=2)
    first, again = run.server.state["tasks"]
    assert first == [(1, 2), (2, 3), (0, 1)]
    by_task = [device for device, _ in sorted(again, key=lambda used: used[1])]
    assert by_task == second


def test_synchronous_rounds_last_as_long_as_their_slowest_device():
    _, history = toy(FedAvg(clients_per_round=2), updates=60)
    now, lengths = 0.0, {(0, 1): 3.0, (0, 2): 5.0, (1, 2): 5.0}
    drawn = Counter()
    for version in range(1, 61):
        devices = tuple(row[2] for row in rows(history) if row[1] == version)
        now += lengths[devices]  # a KeyError if they are not two, in order of their numbers
        drawn[devices] += 1
        assert all(row[0] == now and row[3] == 0 for row in rows(history) if row[1] == version)
    assert min(drawn.values()) >= 8  # 20 each, standard deviation 3.7


def test_timed_triggering_keeps_to_the_cap_and_to_the_number_per_tick():
    """Tasks of 2.5 s, a tick every second, two per tick, three at once.

    Tick 0 triggers two (tasks 1 and 2), tick 1 one more (3), tick 2 nobody. At 2.5 s two are back, so tick 3 triggers
    two (4, 5); at 3.5 s the third is back, and tick 4 triggers one (6); tick 5 nobody; and so on.
    """
    world = World(devices=5, compute=ConstantCompute(seconds_per_step=2.5))

    class Ticking(FedAsync):
        async def scheduler(self, server):
            await Timed(period_seconds=1, per_tick=2, concurrency=3).turn(server)

        async def updater(self, server):
            [upload] = await server.receive()
            row = (server.now, upload.task, upload.base_version, upload.staleness)
            server.state.setdefault("used", []).append(row)
            server.commit(server.model + 0)

    run, _ = simulate(Ticking(concurrency=3), world, updates=9)
    assert run.server.state["used"] == [
        (2.5, 1, 0, 0), (2.5, 2, 0, 1), (3.5, 3, 0, 2), (5.5, 4, 2, 1), (5.5, 5, 2, 2), (6.5, 6, 3, 2),
        (8.5, 7, 5, 1), (8.5, 8, 5, 2), (9.5, 9, 6, 2),
    ]  # fmt: skip


@pytest.mark.parametrize("limit", [1, 4])
def test_sampled_staleness_is_the_loop_of_the_specification(limit):
    """FedAsync specification, section 2.6, with the run's own draws: epoch t at second t."""
    task = Quadratic([[1.0], [2.0], [4.0]], [[1.0], [-1.0], [3.0]], [5.0])
    sampled = World(devices=3, max_staleness=limit)
    _, history = simulate(FedAsync(alpha=0.6), sampled, task=task, updates=60, lr=0.1, steps=1, seed=5)
    pool, expected = [5.0], []
    for epoch in range(1, 61):
        rng = stream(5, "sampled-staleness", epoch)
        pooled = min(epoch, limit)
        version, device = epoch - pooled + int(rng.integers(pooled)), int(rng.integers(3))
        a, c = float(task.curvature[device]), float(task.centre[device])
        local = pool[version] - 0.1 * a * (pool[version] - c)
        pool.append(0.4 * pool[-1] + 0.6 * local)
        expected.append((float(epoch), epoch, device, epoch - 1 - version))
    assert rows(history) == expected
    assert float(history.model) == pytest.approx(pool[-1], rel=1e-12)


def test_a_trigger_of_the_world_replaces_the_number_of_devices_in_flight():
    task = fixed(1.0, 1.0, 1.0)
    one = task.model_copy(update={"trigger": Timed(period_seconds=5, per_tick=1, concurrency=1)})
    assert [row[0] for row in rows(simulate(FedAsync(concurrency=3), one, updates=3)[1])] == [1, 6, 11]
    drawn = task.model_copy(update={"trigger": Sampled(max_staleness=2)})
    named = task.model_copy(update={"max_staleness": 2})
    assert simulate(FedAsync(), drawn, updates=30)[1] == simulate(FedAsync(), named, updates=30)[1]


def test_rounds_begin_with_those_that_are_free():
    """A trigger of rounds with an updater that takes the first: whoever is slow is not asked again meanwhile."""

    class First(Deltas):
        async def scheduler(self, server):
            await Rounds(devices=2).turn(server)

        async def updater(self, server):
            self.step(server, await server.receive())

    _, history = simulate(First(), fixed(1.0, 10.0), updates=11)
    assert [row[:3] for row in rows(history)] == [(float(min(t, 10)), t, int(t == 10)) for t in range(1, 12)]
    assert [row[3] for row in rows(history)] == [0] * 9 + [9, 1]
