"""Whole runs on problems whose every number is known by hand (oracles O5 to O7 and O14 of FedAsync)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runs import fixed, rows, simulate

from fl_core.algorithms import FedAsync
from fl_core.runtime.server import IdleSet
from fl_core.tasks import Quadratic
from fl_core.world import Network, World


class Alternating(FedAsync):
    """FedAsync whose sampled staleness is always the largest possible (deterministic oracle schedules)."""

    limit: int = 4

    async def scheduler(self, server):
        await server.new_version()
        base = server.version
        for epoch in range(base + 1, base + self.limit + 1):
            if max(0, epoch - self.limit) == base:
                server.dispatch([0], seconds=float(epoch - base))


PLAIN, ADAPTIVE = {"alpha": 0.9}, {"alpha": 0.9, "weight": "polynomial(a=0.5)"}


@pytest.mark.parametrize(
    ("limit", "fields", "weights", "expected"),
    [
        (1, PLAIN, [0.9] * 6, [0.55**t for t in range(1, 7)]),
        (4, PLAIN, [0.9] * 10, [0.55, 0.505, 0.5005, 0.50005, 0.297505, 0.2570005, 0.25092505, 0.250115005,
                                0.1588887505, 0.13153910005]),
        (4, ADAPTIVE, [0.9, 0.6363961030678928, 0.5196152422706631, 0.45, 0.45, 0.45],
         [0.55, 0.5181801948466054, 0.5087334884968586, 0.5048034186732723, 0.4013918802702998, 0.3373560779891511]),
        (4, {**ADAPTIVE, "convention": "paper"},
         [0.6363961030678928, 0.5196152422706631, 0.45, *[0.40249223594996214] * 3],
         [0.6818019484660536, 0.5873348849685865, 0.5480341867327226, 0.5287007995126312, 0.453112827924831,
          0.3889372982269655]),
    ],
)  # fmt: skip
def test_mixing_stale_models_of_a_quadratic(limit, fields, weights, expected):
    """Models x_1..x_T are read off runs of growing length."""
    algorithm, world = Alternating(limit=limit, **fields), World(devices=1, max_staleness=limit)
    made = [simulate(algorithm, world, updates=t, lr=0.5) for t in range(1, len(expected) + 1)]
    np.testing.assert_allclose([float(run.server.model) for run in made], expected, rtol=1e-12)
    np.testing.assert_allclose(made[-1].history.updates["weight"], weights, rtol=1e-12)


def test_o5_mixing_stale_models_that_were_held_back():
    algorithm, world = Alternating(alpha=0.6, rho=0.5), World(devices=1, max_staleness=4)
    task = Quadratic([[2.0]], [[1.0]], [3.0])
    made = [float(simulate(algorithm, world, task, updates=t, lr=0.1, steps=3).server.model) for t in range(1, 7)]
    np.testing.assert_allclose(made, [2.445, 2.223, 2.1342, 2.09868, 1.9054845, 1.7566113], rtol=1e-12)


def test_o14_the_timeline_of_three_devices():
    """The tie at 15 goes to B, which was sent out first."""
    found = rows(simulate(FedAsync(), fixed(3.0, 5.0, 7.0), updates=16).history)
    assert [(seconds, "ABC"[device], t, t - 1 - missed, missed) for seconds, t, device, missed in found[:12]] == [
        (3, "A", 1, 0, 0), (5, "B", 2, 0, 1), (6, "A", 3, 1, 1), (7, "C", 4, 0, 3), (9, "A", 5, 3, 1),
        (10, "B", 6, 2, 3), (12, "A", 7, 5, 1), (14, "C", 8, 4, 3), (15, "B", 9, 6, 2), (15, "A", 10, 7, 2),
        (18, "A", 11, 10, 0), (20, "B", 12, 9, 2),
    ]  # fmt: skip
    assert {"ABC"[d]: missed - (t - 13) for _, t, d, missed in found[:11:-1]} == {"A": 1, "B": 0, "C": 4}  # in flight


def test_transfer_times_follow_from_bytes_and_bandwidth():
    network = Network(down_bits_per_second=64.0, up_bits_per_second=32.0, latency_seconds=0.5)
    history = simulate(FedAsync(concurrency=1), fixed(3.0, network=network), updates=1, trace=True).history
    spans = list(zip(*(history.spans[c] for c in ("activity", "start", "end")), strict=True))
    assert spans == [("download", 0.0, 1.5), ("train", 1.5, 4.5), ("upload", 4.5, 7.0)]
    assert history.evaluations["bytes_up"] == history.evaluations["bytes_down"] == [0, 8]


class Fractional(FedAsync):
    """Uploads in a form that takes other bytes than its tensors."""

    async def device(self, device):
        snapshot = await device.download()
        trained = await device.train(snapshot.model)
        await device.upload(model=trained.model, based_on=snapshot, bytes_up=2.5)


def test_an_upload_may_cost_other_bytes_than_its_tensors_even_a_fraction():
    network = Network(up_bits_per_second=32.0, latency_seconds=0.5)
    history = simulate(Fractional(concurrency=1), fixed(3.0, network=network), updates=2).history
    assert history.evaluations["bytes_up"][-1] == 5.0
    assert history.updates["seconds"] == [4.625, 9.25]


class Arrays(FedAsync):
    """Uploads an array beside its model, which it keeps, goes on to change, and spoils in the end."""

    async def device(self, device):
        snapshot, mine = await device.download(), device.state.setdefault("mine", np.zeros(3))
        mine += 1 if device.trigger < 2 else np.nan
        await device.upload(model=snapshot.model, mine=mine, based_on=snapshot)
        mine += 10

    async def updater(self, server):
        [upload] = await server.receive()
        server.log(seen=upload.mine[0])
        server.commit(upload.model.clone())


def test_an_array_is_sent_as_a_tensor_is():
    """It costs bytes and time, is not what the device changes later on, and is rejected if it is not finite."""
    network = Network(up_bits_per_second=32.0)
    history = simulate(Arrays(concurrency=1), fixed(3.0, network=network), updates=9).history
    assert history.updates["seconds"] == [8.0, 16.0]
    assert history.outcomes["dispatched"] * 32.0 == history.evaluations["bytes_up"][-1]
    assert history.learned["seen"] == [1.0, 12.0]
    assert history.ended == "rejected"


def test_evaluation_by_virtual_time_sees_all_that_happened_until_then():
    every = {"every_updates": None, "every_seconds": 1.0}
    history = simulate(FedAsync(concurrency=1), fixed(1.0), seconds=3.0, **every).history
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
