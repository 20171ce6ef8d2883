"""Several servers: each with its own deadline, exchanging models with its neighbours (SD-FEEL oracles O8 and O13)."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sdfeel_runs import MICRO, MICRO_WORLD, SPEEDS

from fl_core.algorithms import Algorithm, FedAsync
from fl_core.errors import RunError
from fl_core.runtime import Budget, LocalTraining, Simulation
from fl_core.tasks import Quadratic
from fl_core.world import TraceCompute, World
from fl_core.world.triggers import Contributors

STEPS = (2, 4, 2, 5, 2, 4, 2, 3)
PERIODS = (2 + 0.75, 4 / 3 + 0.75, 4 + 0.75, 1 + 0.75)
"""Deadline of each cluster of two devices and the time of its transfers: two steps of its slowest device."""


class Gossip(Algorithm):
    """Asynchronous SD-FEEL, written for these tests: deadlines, normalised updates, staleness-aware mixing."""

    periods: tuple[float, ...] = PERIODS
    steps: tuple[int, ...] = STEPS
    discount: str = "gap"

    async def scheduler(self, server):
        await Contributors(order="id").turn(server)

    async def updater(self, server):
        uploads = await server.receive(until=(server.version + 1) * self.periods[server.number])
        iteration = server.iteration
        shares = {upload.device: server.share(upload.device) for upload in uploads}
        effective = sum(shares[upload.device] * upload.steps for upload in uploads)
        update = sum(shares[upload.device] * upload.delta / upload.steps for upload in uploads)
        own = server.model + effective * update
        others = await server.exchange()
        staleness = {j: iteration - snapshot.version for j, snapshot in others.items()}
        del others[server.number]
        fresh = {**staleness, server.number: 0 if self.discount == "fresh" else staleness[server.number]}
        discounts = {j: 1 / (2 * (late + 1)) for j, late in fresh.items()}
        weights = {j: one / sum(discounts.values()) for j, one in discounts.items()}
        mixed = weights[server.number] * own + sum(weights[j] * other.model for j, other in others.items())
        neighbours = {j: (1 - weights[j]) * other.model + weights[j] * own for j, other in others.items()}
        EVENTS.append((server.now, server.number, staleness))
        server.commit(mixed, neighbours=neighbours)

    async def device(self, device):
        snapshot = await device.download()
        trained = await device.train(snapshot.model, steps=self.steps[device.id])
        await device.upload(delta=trained.model - snapshot.model, based_on=snapshot)


EVENTS: list[tuple[float, int, dict[int, int]]] = []


@pytest.fixture(autouse=True)
def _ledger():
    EVENTS.clear()


def micro(events: int, **parameters: object) -> Simulation:
    world = World(devices=8, compute=MICRO_WORLD.compute, clusters={"servers": 4})
    run = Simulation(
        MICRO, world, Gossip(**parameters), budget=Budget(updates=events), training=LocalTraining(lr=0.1)
    )
    run.run("sequential")
    return run


class Paced(Gossip):
    """The same, but the deadline counts what the world says: two steps of the slowest, the upload, the exchange."""

    async def updater(self, server):
        slowest = min(SPEEDS[device] for device in server.devices)
        await Gossip(periods=(2 / slowest + 0.25 + server.backhaul_seconds,) * 4).updater(server)


def models(run: Simulation) -> list[float]:
    return [float(server.model) for server in run.servers]


def test_the_micro_run_of_sd_feel():
    """Oracle O13: ring of four servers, eight devices."""
    run = micro(8)
    assert [server for _, server, _ in EVENTS] == [3, 1, 0, 3, 1, 2, 3, 0]
    times = [1.75, 2.08333333333, 2.75, 3.5, 4.16666666667, 4.75, 5.25, 5.5]
    np.testing.assert_allclose([time for time, _, _ in EVENTS], times, rtol=1e-11)
    np.testing.assert_allclose(
        models(run), [0.233544359222, 0.129204837532, 0.339256065355, 0.201987707615], rtol=1e-9
    )
    assert float(run.history.model) == pytest.approx(0.236750168601, rel=1e-9)
    assert run.version == 8
    assert [server.version for server in run.servers] == [2, 2, 1, 3]


def test_an_updater_that_counts_the_exchange_in_its_deadline_has_the_micro_runs_timeline():
    """Of the 0.75 s of transfers in O13, 0.25 s are the upload's (64 bits) and 0.5 s the exchange's."""
    world = World(
        devices=8,
        compute=MICRO_WORLD.compute,
        network={"up_bits_per_second": 256},
        clusters={"servers": 4, "backhaul_seconds": 0.5},
    )
    run = Simulation(MICRO, world, Paced(), budget=Budget(updates=8), training=LocalTraining(lr=0.1))
    run.run("sequential")
    assert {server.backhaul_seconds for server in run.servers} == {0.5}
    assert [server for _, server, _ in EVENTS] == [3, 1, 0, 3, 1, 2, 3, 0]
    np.testing.assert_allclose([time for time, _, _ in EVENTS], [1.75, 25 / 12, 2.75, 3.5, 25 / 6, 4.75, 5.25, 5.5])
    np.testing.assert_allclose(
        models(run), [0.233544359222, 0.129204837532, 0.339256065355, 0.201987707615], rtol=1e-9
    )


def test_every_cluster_sees_how_stale_its_neighbours_are():
    """By hand: k minus the iteration after a cluster's own last event, for the trigger and its two neighbours."""
    micro(8)
    assert [staleness for _, _, staleness in EVENTS] == [
        {3: 0, 0: 0, 2: 0}, {1: 1, 0: 1, 2: 1}, {0: 2, 1: 0, 3: 1}, {3: 2, 0: 0, 2: 3},
        {1: 2, 0: 1, 2: 4}, {2: 5, 1: 0, 3: 1}, {3: 2, 0: 3, 2: 0}, {0: 4, 1: 2, 3: 0},
    ]  # fmt: skip


def test_the_updates_of_a_cluster_are_recorded_with_time_and_version():
    history = micro(8).history
    found = list(zip(*(history.updates[c] for c in ("seconds", "version", "device")), strict=True))
    expected = [
        (time, version, device)
        for version, (time, server, _) in enumerate(EVENTS, 1)
        for device in sorted((2 * server, 2 * server + 1), key=lambda d: (STEPS[d] / SPEEDS[d], d))
    ]
    assert sorted(found) == sorted(expected)
    assert history.updates["steps"] == [STEPS[device] for device in history.updates["device"]]
    assert history.outcomes == {
        "dispatched": 22, "applied": 16, "discarded": 0, "rejected": 0, "lost": 0, "duplicates": 0, "in_flight": 6,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        (1, (0.104041666667, 0.0, 0.104041666667, 0.104041666667)),
        (4, (0.28405551771, 0.102434785354, 0.210459999344, 0.191060838218)),
    ],
)
def test_mixing_reaches_the_neighbours_and_nobody_else(events, expected):
    np.testing.assert_allclose(models(micro(events)), expected, rtol=1e-9)


def test_a_trigger_that_counts_itself_as_fresh():
    run = micro(8, discount="fresh")
    np.testing.assert_allclose(
        models(run), [0.205302245763, 0.174594042549, 0.285169287353, 0.221627577818], rtol=1e-9
    )
    assert float(run.history.model) == pytest.approx(0.22591244971, rel=1e-9)


def clock(periods: tuple[float, ...], events: int) -> list[tuple[float, int, list[int]]]:
    """Run complete graphs of clusters with one quick device each."""
    world = World(
        devices=len(periods),
        compute=TraceCompute(seconds_per_step=(0.5,) * len(periods)),
        clusters={"servers": len(periods), "graph": {"kind": "complete"}},
    )
    task = Quadratic([[1.0]] * len(periods), [[0.0]] * len(periods), [1.0])
    algorithm = Gossip(periods=periods, steps=(1,) * len(periods))
    Simulation(task, world, algorithm, budget=Budget(updates=events)).run("sequential")
    return [(time, server, [late for _, late in sorted(staleness.items())]) for time, server, staleness in EVENTS]


def test_the_event_clock_of_independent_deadlines():
    """Oracle O8; at 15 s two clusters end together and the smaller number comes first."""
    assert clock((3.0, 5.0, 7.0), 12) == [
        (3, 0, [0, 0, 0]), (5, 1, [0, 1, 1]), (6, 0, [1, 0, 2]), (7, 2, [0, 1, 3]), (9, 0, [1, 2, 0]),
        (10, 1, [0, 3, 1]), (12, 0, [1, 0, 2]), (14, 2, [0, 1, 3]), (15, 0, [1, 2, 0]), (15, 1, [0, 3, 1]),
        (18, 0, [1, 0, 2]), (20, 1, [0, 1, 3]),
    ]  # fmt: skip


def test_equal_deadlines_end_in_the_order_of_the_servers():
    events = clock((2.0,) * 6, 60)
    assert [(time, server) for time, server, _ in events] == [(2.0 * (k // 6 + 1), k % 6) for k in range(60)]
    assert events[7] == (4.0, 1, [0, 5, 4, 3, 2, 1])
    assert max(max(staleness) for _, _, staleness in events) == 5


def test_devices_belong_to_one_server_and_servers_do_not_share_their_draws():
    world = World(devices=6, clusters={"sizes": (1, 2, 3)})
    run = Simulation(
        Quadratic([[1.0]] * 6, [[0.0]] * 6, [1.0]), world, FedAsync(concurrency=1), budget=Budget(updates=60)
    )
    run.run("sequential")
    assert [list(server.devices) for server in run.servers] == [[0], [1, 2], [3, 4, 5]]
    draws = [server.rng.random() for server in run.servers]
    assert len(set(draws)) == 3
    assert sum(server.version for server in run.servers) == run.version == 60

    class Foreign(FedAsync):
        async def scheduler(self, server):
            server.dispatch([0])
            await server.sleep(100)

    foreign = Simulation(run.task, world, Foreign(), budget=Budget(updates=5))
    with pytest.raises(RunError, match=r"cannot trigger device 0 at t = 0 s: it does not exist \(1..2\)"):
        foreign.run("sequential")


def test_the_recorded_staleness_counts_the_iterations_of_all_clusters():
    history = micro(8).history
    own = {version: staleness[server] for version, (_, server, staleness) in enumerate(EVENTS, 1)}
    assert history.updates["staleness"] == [own[version] for version in history.updates["version"]]
    assert sorted(own.values()) == [0, 1, 2, 2, 2, 2, 4, 5]


def test_the_measured_model_is_the_mean_of_all_servers_weighted_by_their_samples():
    run = micro(8)
    weights = torch.tensor([40, 40, 50, 20], dtype=torch.float64) / 150
    mean = (weights * torch.tensor(models(run), dtype=torch.float64)).sum()
    torch.testing.assert_close(run.history.model[0], mean)


class Meeting(Algorithm):
    """All servers meet when each of them has what its devices sent, and take the mean."""

    async def scheduler(self, server):
        await Contributors(order="id").turn(server)

    async def updater(self, server):
        uploads = await server.receive_round()
        met = await server.meet((server.number, sum(upload.model for upload in uploads) / len(uploads)))
        MET.append((server.now, server.number, [number for number, _ in met]))
        server.commit(torch.stack([model for _, model in met]).mean(0))

    async def device(self, device):
        snapshot = await device.download()
        trained = await device.train(snapshot.model, steps=2)
        await device.upload(model=trained.model, based_on=snapshot)


MET: list[tuple[float, int, list[int]]] = []


def test_servers_that_meet_go_on_together_and_count_as_one_event():
    MET.clear()
    world = World(devices=5, compute=TraceCompute(seconds_per_step=(1, 2, 4, 0.5, 3)), clusters={"sizes": (1, 2, 2)})
    task = Quadratic([[1.0]] * 5, [[c] for c in range(5)], [0.0])
    run = Simulation(task, world, Meeting(), budget=Budget(updates=9), training=LocalTraining(lr=0.1))
    run.run("sequential")
    expected = [(8.0 * turn, server, [0, 1, 2]) for turn in (1, 2, 3) for server in range(3)]
    assert expected == MET
    assert set(run.history.updates["staleness"]) == {0}
    assert len({float(server.model) for server in run.servers}) == 1
    frame = run.history.update_frame()
    assert frame.groupby("version")["device"].apply(list).tolist() == [[0], [1, 2], [3, 4]] * 3


def test_both_programs_of_a_server_cannot_meet():
    class Both(Meeting):
        async def scheduler(self, server):
            await server.meet(None)

    task = Quadratic([[1.0]] * 2, [[0.0]] * 2, [1.0])

    class Early(Both):
        async def updater(self, server):
            await server.meet(None)

    run = Simulation(task, World(devices=2, clusters={"servers": 2}), Early(), budget=Budget(updates=2))
    with pytest.raises(RunError, match="the scheduler of .* and the updater of .* both wait for the other servers"):
        run.run("sequential")


def test_what_is_known_of_a_cluster_before_the_run():
    seen = {}

    class Curious(FedAsync):
        async def updater(self, server):
            seen[server.number] = server.clusters
            await super().updater(server)

        async def device(self, device):
            seen[f"device {device.id}"] = device.cluster
            await super().device(device)

    world = World(
        devices=5, compute=TraceCompute(seconds_per_step=(1, 2, 4, 0.5, 3)), jitter=0.5,
        network={"up_bits_per_second": (64, 128, 32, 64, 64)},
        clusters={"sizes": (1, 2, 2), "graph": {"kind": "path"}},
    )  # fmt: skip
    task = Quadratic([[1.0]] * 5, [[0.0]] * 5, [1.0], samples=[1, 2, 3, 4, 5])
    Simulation(task, world, Curious(concurrency=5), budget=Budget(updates=9)).run("sequential")
    one, two, three = seen[0]
    assert [cluster.devices for cluster in (one, two, three)] == [range(1), range(1, 3), range(3, 5)]
    assert [cluster.neighbours for cluster in (one, two, three)] == [(1,), (0, 2), (1,)]
    assert [cluster.samples for cluster in (one, two, three)] == [1, 5, 9]
    assert two.step_seconds == (2, 4)
    assert two.upload_seconds(8) == 2.0
    assert seen[1] == seen[2] == seen[0]
    assert seen["device 4"] == three
