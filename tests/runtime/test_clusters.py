"""Several servers: each with its own deadline, exchanging models with its neighbours (SD-FEEL oracle O13)."""

from __future__ import annotations

import pytest
import runs
import torch
from sdfeel_runs import SIZES, SPEEDS, models, simulate

from fl_core.algorithms import Algorithm, AsyncSDFeel, FedAsync
from fl_core.errors import RunError
from fl_core.runtime import Simulation
from fl_core.tasks import Quadratic
from fl_core.world import World
from fl_core.world.triggers import Contributors

STEPS = (2, 4, 2, 5, 2, 4, 2, 3)
"""As many as fit before the deadlines of the micro run, O13; for its models see tests/algorithms/test_sdfeel.py."""


class Noting(AsyncSDFeel):
    """Keeps which server mixed and how stale it and its neighbours were."""

    min_batches: int = 2

    def combine(self, trigger, models, staleness, cluster_weight=None):
        EVENTS.append((trigger, dict(staleness)))
        return super().combine(trigger, models, staleness, cluster_weight)


EVENTS: list[tuple[int, dict[int, int]]] = []


@pytest.fixture(autouse=True)
def _ledger():
    EVENTS.clear()


def micro() -> Simulation:
    return simulate(Noting(), updates=8)


def test_every_cluster_sees_how_stale_its_neighbours_are():
    """By hand: k minus the iteration after a cluster's own last event, for the trigger and its two neighbours."""
    run = micro()
    assert EVENTS == [
        (3, {3: 0, 0: 0, 2: 0}), (1, {1: 1, 0: 1, 2: 1}), (0, {0: 2, 1: 0, 3: 1}), (3, {3: 2, 0: 0, 2: 3}),
        (1, {1: 2, 0: 1, 2: 4}), (2, {2: 5, 1: 0, 3: 1}), (3, {3: 2, 0: 3, 2: 0}), (0, {0: 4, 1: 2, 3: 0}),
    ]  # fmt: skip
    own = {version: staleness[server] for version, (server, staleness) in enumerate(EVENTS, 1)}
    assert run.history.updates["staleness"] == [own[version] for version in run.history.updates["version"]]
    assert run.version == 8
    assert [server.version for server in run.servers] == [2, 2, 1, 3]


def test_the_updates_of_a_cluster_are_recorded_in_the_order_of_their_arrival():
    history = micro().history
    found = list(zip(history.updates["version"], history.updates["device"], strict=True))
    assert found == [
        (version, device)
        for version, (server, _) in enumerate(EVENTS, 1)
        for device in sorted((2 * server, 2 * server + 1), key=lambda d: (STEPS[d] / SPEEDS[d], d))
    ]
    assert history.updates["steps"] == [STEPS[device] for device in history.updates["device"]]
    assert history.outcomes == {
        "dispatched": 22, "applied": 16, "discarded": 0, "rejected": 0, "lost": 0, "duplicates": 0, "in_flight": 6,
    }  # fmt: skip


def clock(seconds: tuple[float, ...], events: int) -> list[tuple[float, int, list[int]]]:
    """Run complete graphs of clusters with one device each, whose deadlines come after two of its steps."""
    count = len(seconds)
    clusters = {"servers": count, "graph": {"kind": "complete"}}
    run = simulate(Noting(), runs.fixed(*seconds, clusters=clusters), runs.alike(count), events)
    return [
        (time, server, [late for _, late in sorted(staleness.items())])
        for time, (server, staleness) in zip(run.history.updates["seconds"], EVENTS, strict=True)
    ]


def test_equal_deadlines_end_in_the_order_of_the_servers():
    events = clock((1.0,) * 6, 60)
    assert [(time, server) for time, server, _ in events] == [(2.0 * (k // 6 + 1), k % 6) for k in range(60)]
    assert events[7] == (4.0, 1, [0, 5, 4, 3, 2, 1])
    assert max(max(staleness) for _, _, staleness in events) == 5


def test_devices_belong_to_one_server_and_servers_do_not_share_their_draws():
    world = World(devices=6, clusters={"sizes": (1, 2, 3)})
    run = runs.simulate(FedAsync(concurrency=1), world, updates=60)
    assert [list(server.devices) for server in run.servers] == [[0], [1, 2], [3, 4, 5]]
    draws = [server.rng.random() for server in run.servers]
    assert len(set(draws)) == 3
    assert sum(server.version for server in run.servers) == run.version == 60

    class Foreign(FedAsync):
        async def scheduler(self, server):
            server.dispatch([0])
            await server.sleep(100)

    with pytest.raises(RunError, match=r"cannot trigger device 0 at t = 0 s: it does not exist \(1..2\)"):
        runs.simulate(Foreign(), world, updates=5)


def test_the_measured_model_is_the_mean_of_all_servers_weighted_by_their_samples():
    run = micro()
    weights = torch.tensor([40, 40, 50, 20], dtype=torch.float64) / sum(SIZES)
    torch.testing.assert_close(run.history.model[0], weights @ torch.from_numpy(models(run)))


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
    task = Quadratic([[1.0]] * 5, [[c] for c in range(5)], [0.0])
    run = simulate(Meeting(), runs.fixed(1, 2, 4, 0.5, 3, clusters={"sizes": (1, 2, 2)}), task, updates=9)
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

    class Early(Both):
        async def updater(self, server):
            await server.meet(None)

    with pytest.raises(RunError, match="the scheduler of .* and the updater of .* both wait for the other servers"):
        runs.simulate(Early(), World(devices=2, clusters={"servers": 2}), updates=2)


def test_what_is_known_of_a_cluster_before_the_run():
    seen, shares = {}, {}

    class Curious(FedAsync):
        async def updater(self, server):
            seen[server.number] = server.clusters
            shares[server.number] = [server.share(device) for device in server.devices]
            await super().updater(server)

        async def device(self, device):
            seen[f"device {device.id}"] = device.cluster
            await super().device(device)

    world = runs.fixed(
        1, 2, 4, 0.5, 3, jitter=0.5, network={"up_bits_per_second": (64, 128, 32, 64, 64)},
        clusters={"sizes": (1, 2, 2), "graph": {"kind": "path"}},
    )  # fmt: skip
    task = Quadratic([[1.0]] * 5, [[0.0]] * 5, [1.0], samples=[1, 2, 3, 4, 5])
    runs.simulate(Curious(concurrency=5), world, task, updates=9)
    one, two, three = seen[0]
    assert [cluster.devices for cluster in (one, two, three)] == [range(1), range(1, 3), range(3, 5)]
    assert [cluster.neighbours for cluster in (one, two, three)] == [(1,), (0, 2), (1,)]
    assert [cluster.samples for cluster in (one, two, three)] == [1, 5, 9]
    assert shares == {0: [1], 1: [2 / 5, 3 / 5], 2: [4 / 9, 5 / 9]}
    assert two.step_seconds == (2, 4)
    assert two.upload_seconds(8) == 2.0
    assert seen[1] == seen[2] == seen[0]
    assert seen["device 4"] == three
