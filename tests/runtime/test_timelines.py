"""Whole runs on problems whose every number is known by hand (oracles O4-O7, O14, O15 of the specification)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fl_core.algorithms import FedAsync, FedAvg
from fl_core.errors import RunError
from fl_core.runtime import Budget, Evaluation, LocalTraining, Simulation
from fl_core.runtime.server import IdleSet
from fl_core.tasks import Quadratic
from fl_core.world import ConstantCompute, Network, TraceCompute, World


def quadratic(devices: int = 1, curvature: float = 1.0, centre: float = 0.0, start: float = 1.0) -> Quadratic:
    return Quadratic([[curvature]] * devices, [[centre]] * devices, [start])


def simulate(task, world, algorithm, updates, executor="sequential", **settings_):
    run = Simulation(task, world, algorithm, budget=Budget(updates=updates), **settings_)
    return run, run.run(executor, threads=2 if executor == "threads" else None)


class Alternating(FedAsync):
    """FedAsync whose sampled staleness is always the largest possible (deterministic oracle schedules)."""

    limit: int = 4

    async def scheduler(self, server):
        await server.new_version()
        base = server.version
        for epoch in range(base + 1, base + self.limit + 1):
            if max(0, epoch - self.limit) == base:
                server.dispatch([0], seconds=float(epoch - base))


def models(history_of, updates):
    """Global models x_1..x_T, read off runs of growing length."""
    return [float(history_of(t).model) for t in range(1, updates + 1)]


@pytest.mark.parametrize("executor", ["sequential", "threads"])
def test_event_timeline_of_three_workers(executor):
    world = World(devices=3, compute=TraceCompute(seconds_per_step=(3.0, 5.0, 7.0)))
    run, history = simulate(quadratic(3), world, FedAsync(concurrency=3), 12, executor)
    rows = zip(*(history.updates[c] for c in ("seconds", "device", "version", "staleness")), strict=True)
    assert [(t, "ABC"[d], v, s) for t, d, v, s in rows] == [
        (3, "A", 1, 0), (5, "B", 2, 1), (6, "A", 3, 1), (7, "C", 4, 3), (9, "A", 5, 1), (10, "B", 6, 3),
        (12, "A", 7, 1), (14, "C", 8, 3), (15, "B", 9, 2), (15, "A", 10, 2), (18, "A", 11, 0), (20, "B", 12, 2),
    ]  # fmt: skip
    assert sum(history.updates["staleness"]) == 19
    assert run.server.counters["models_received"] == 12
    assert run.server.counters["models_sent"] == 3 + 11  # the last arrival ends the run before its re-dispatch


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (1, [0.55**t for t in range(1, 7)]),
        (
            4,
            [0.55, 0.505, 0.5005, 0.50005, 0.297505, 0.2570005, 0.25092505, 0.250115005, 0.1588887505, 0.13153910005],
        ),
    ],
)
def test_mixing_stale_models_of_a_quadratic(limit, expected):
    def run(updates):
        return simulate(
            quadratic(), World(devices=1, max_staleness=limit), Alternating(alpha=0.9, limit=limit), updates,
            training=LocalTraining(lr=0.5),
        )[1]  # fmt: skip

    np.testing.assert_allclose(models(run, len(expected)), expected, rtol=1e-12)


def test_sixteen_versions_late_mixing_is_slow_and_stable():
    world, algorithm = World(devices=1, max_staleness=16), Alternating(alpha=0.9, limit=16)
    _, history = simulate(quadratic(), world, algorithm, 50, training=LocalTraining(lr=0.5))
    assert float(history.model) == pytest.approx(0.06759125, rel=1e-12)


def test_option_two_trajectory():
    def run(updates):
        task = quadratic(curvature=2.0, centre=1.0, start=3.0)
        algorithm = Alternating(alpha=0.6, rho=0.5)
        training = LocalTraining(lr=0.1, steps=3)
        return simulate(task, World(devices=1, max_staleness=4), algorithm, updates, training=training)[1]

    np.testing.assert_allclose(models(run, 6), [2.445, 2.223, 2.1342, 2.09868, 1.9054845, 1.7566113], rtol=1e-12)


@pytest.mark.parametrize(
    ("convention", "weights", "expected"),
    [
        (
            "missed_updates",
            [0.9, 0.6363961030678928, 0.5196152422706631, 0.45, 0.45, 0.45],
            [0.55, 0.5181801948466054, 0.5087334884968586, 0.5048034186732723, 0.4013918802702998,
             0.3373560779891511],
        ),
        (
            "paper",
            [0.6363961030678928, 0.5196152422706631, 0.45, *[0.40249223594996214] * 3],
            [0.6818019484660536, 0.5873348849685865, 0.5480341867327226, 0.5287007995126312, 0.453112827924831,
             0.3889372982269655],
        ),
    ],
)  # fmt: skip
def test_adaptive_mixing_in_both_staleness_conventions(convention, weights, expected):
    algorithm = Alternating(alpha=0.9, weight="polynomial(a=0.5)", convention=convention)

    def run(updates):
        world = World(devices=1, max_staleness=4)
        return simulate(quadratic(), world, algorithm, updates, training=LocalTraining(lr=0.5))[1]

    np.testing.assert_allclose(models(run, 6), expected, rtol=1e-12)
    np.testing.assert_allclose(run(6).updates["weight"], weights, rtol=1e-12)


@pytest.mark.parametrize(("limit", "mean"), [(1, 0.0), (4, 1.4985), (16, 7.47)])
def test_sampled_staleness_is_uniform_over_the_last_versions(limit, mean):
    world = World(devices=100, max_staleness=limit)
    run, history = simulate(quadratic(100), world, FedAsync(concurrency=10), 2000, evaluation=Evaluation())
    staleness = np.array(history.updates["staleness"])
    version = np.array(history.updates["version"])
    assert list(version) == list(range(1, 2001))
    assert (staleness < np.minimum(version, limit)).all()
    counts = np.bincount(staleness, minlength=limit)
    assert len(counts) == limit
    assert abs(staleness.mean() - mean) < 4 * np.sqrt((limit**2 - 1) / 12 / 2000) + 1e-9
    assert run.server.counters["models_sent"] == run.server.counters["models_received"] == 2000
    assert len(set(history.updates["device"])) == 100


def test_fedavg_counts_twenty_transfers_a_round_and_takes_the_plain_mean():
    task = Quadratic([[1.0]] * 4, [[0.0], [1.0], [2.0], [3.0]], [0.0])
    world = World(devices=4, compute=ConstantCompute())
    run, history = simulate(task, world, FedAvg(clients_per_round=4), 1, training=LocalTraining(lr=0.5))
    assert float(history.model) == pytest.approx(0.75)
    run, history = simulate(quadratic(100), World(devices=100), FedAvg(), 7)
    assert run.server.counters["models_sent"] == run.server.counters["models_received"] == 70
    assert all(len(set(history.updates["device"][10 * r : 10 * r + 10])) == 10 for r in range(7))


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_every_trigger_ends_as_one_arrival_or_in_flight_and_time_never_decreases(data):
    devices = data.draw(st.integers(1, 20))
    concurrency = data.draw(st.integers(1, devices))
    network = Network(up_bits_per_second=64.0, down_bits_per_second=128.0, latency_seconds=0.25)
    world = World(
        devices=devices,
        compute=TraceCompute(seconds_per_step=tuple(data.draw(st.sampled_from([1.0, 2.0])) for _ in range(devices))),
        network=network if data.draw(st.booleans()) else Network(),
    )
    updates = data.draw(st.integers(1, 80))
    run, history = simulate(quadratic(devices), world, FedAsync(concurrency=concurrency), updates, trace=True)
    counters = run.server.counters
    assert counters["models_received"] == updates == len(history.updates["version"])
    # the run ends inside the last commit, before that device's slot is filled again
    assert counters["models_sent"] == updates + concurrency - 1
    times = history.updates["seconds"]
    assert times == sorted(times)
    spans = history.span_frame()
    for _, one in spans.groupby("device"):
        assert (one["end"].to_numpy()[:-1] <= one["start"].to_numpy()[1:]).all()  # a device does one thing at a time
    assert (spans["start"] <= spans["end"]).all()


def test_transfer_times_follow_from_bytes_and_bandwidth():
    network = Network(down_bits_per_second=64.0, up_bits_per_second=32.0, latency_seconds=0.5)
    world = World(devices=1, compute=ConstantCompute(seconds_per_step=3.0), network=network)
    _, history = simulate(quadratic(), world, FedAsync(concurrency=1), 1, trace=True)  # 8 bytes a model
    spans = list(zip(*(history.spans[c] for c in ("activity", "start", "end")), strict=True))
    assert spans == [("download", 0.0, 1.5), ("train", 1.5, 4.5), ("upload", 4.5, 7.0)]
    assert history.evaluations["bytes_up"] == [0, 8]
    assert history.evaluations["bytes_down"] == [0, 8]


class Fractional(FedAsync):
    """Uploads in a form that takes other bytes than its tensors."""

    size: float = 2.5

    async def device(self, device):
        snapshot = await device.download()
        trained = await device.train(snapshot.model)
        await device.upload(model=trained.model, based_on=snapshot, bytes_up=self.size)


def test_an_upload_may_cost_other_bytes_than_its_tensors_even_a_fraction():
    network = Network(up_bits_per_second=32.0, latency_seconds=0.5)
    world = World(devices=1, compute=ConstantCompute(seconds_per_step=3.0), network=network)
    _, history = simulate(quadratic(), world, Fractional(concurrency=1), 2)
    assert history.evaluations["bytes_up"][-1] == 5.0
    assert history.updates["seconds"] == [4.625, 9.25]


@pytest.mark.parametrize("size", [-1.0, float("nan"), float("inf")])
def test_bytes_that_are_no_size_are_refused(size):
    world = World(devices=1, compute=ConstantCompute())
    with pytest.raises(RunError, match="bytes_up = .* should be a number >= 0"):
        simulate(quadratic(), world, Fractional(concurrency=1, size=size), 1)


def test_evaluation_by_virtual_time_sees_all_that_happened_until_then():
    world = World(devices=1, compute=ConstantCompute(seconds_per_step=1.0))
    run = Simulation(
        quadratic(), world, FedAsync(concurrency=1), budget=Budget(seconds=3.0),
        evaluation=Evaluation(every_updates=None, every_seconds=1.0),
    )  # fmt: skip
    history = run.run()
    assert history.evaluations["seconds"] == [0.0, 1.0, 2.0, 3.0]  # the last one once, although the run ends with it
    assert history.evaluations["version"] == [0, 1, 2, 3]


@given(st.integers(1, 30), st.lists(st.integers(0, 29), max_size=60), st.integers(0, 99))
def test_the_idle_set_is_a_set(size, toggles, seed):
    idle, model = IdleSet(range(size)), set(range(size))
    rng = np.random.default_rng(seed)
    for device in toggles:
        device %= size
        if device in model:
            idle.remove(device)
            model.remove(device)
        else:
            idle.add(device)
            model.add(device)
        assert (len(idle), list(idle)) == (len(model), sorted(model))
        assert all((d in idle) == (d in model) for d in range(-1, size + 1))
        assert not model or idle.draw(rng) in model


def test_idle_devices_are_drawn_uniformly():
    idle, rng = IdleSet(range(5)), np.random.default_rng(0)
    idle.remove(2)
    counts = np.bincount([idle.draw(rng) for _ in range(4000)], minlength=5)
    assert counts[2] == 0
    assert (abs(counts[[0, 1, 3, 4]] - 1000) < 120).all()
