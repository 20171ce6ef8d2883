"""FedAsync, FedAvg and SGD against the paper's Algorithms 1 to 3, on runs that are worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import runs
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from killing import Killed, killed_at
from runs import alike, fixed, rows
from torch import nn

from fl_core.algorithms import SGD, FedAsync, FedAvg
from fl_core.algorithms.fedasync import MOMENTUM
from fl_core.datasets.base import Dataset, Split
from fl_core.models import MODELS, build_network
from fl_core.runtime import Checkpoints, History, Simulation
from fl_core.tasks import Classification, Quadratic
from fl_core.world import ConstantCompute, UniformCompute, World

SCATTERED = Quadratic([[1.0], [2.0], [4.0]], [[1.0], [-1.0], [3.0]], [5.0])


def local_solution(x: float, centre: float, curvature: float, lr: float, steps: int, rho: float = 0.0) -> float:
    """The closed form of `steps` proximal steps on curvature / 2 (x - centre)^2 (D4)."""
    pull = curvature + rho
    return centre + (x - centre) * (rho + curvature * (1 - lr * pull) ** steps) / pull


def simulate(algorithm, world, task=SCATTERED, updates=40, **settings: Any) -> tuple[Simulation, History]:
    run = runs.simulate(algorithm, world, task, **{"updates": updates, "lr": 0.1, "steps": 2, **settings})
    return run, run.history


# Dropping


@pytest.mark.parametrize(("limit", "bound"), [(4, 0), (4, 2), (16, 4), (16, 15)])
@pytest.mark.parametrize("convention", ["missed_updates", "paper"])
def test_where_staleness_is_sampled_dropping_equals_a_weight_of_zero_bit_for_bit(limit, bound, convention):
    highest = bound + (convention == "paper")
    shared = {"alpha": 0.7, "rho": 0.1, "convention": convention}
    indicator = FedAsync.model_construct(**shared, weight=lambda u: float(u <= highest))
    world = World(devices=3, max_staleness=limit)
    _, dropping = simulate(FedAsync(**shared, drop_above=bound), world, updates=60, seed=1)
    assert dropping == simulate(indicator, world, updates=60, seed=1)[1]
    stale = np.array(dropping.updates["staleness"]) > bound
    assert (np.array(dropping.updates["weight"]) == np.where(stale, 0, 0.7)).all()
    assert stale.any() == (bound < limit - 1)


def test_a_dropped_update_of_the_sampled_experiment_is_an_epoch_that_keeps_the_model():
    seen = []

    class Watched(FedAsync):
        async def updater(self, server):
            before = server.model
            await super().updater(server)
            seen.append((server.version, torch.equal(before, server.model)))

    run, history = simulate(Watched(drop_above=1), World(devices=3, max_staleness=4), updates=40)
    assert [version for version, _ in seen] == list(range(1, 40))  # the last commit ends the run
    assert [kept for _, kept in seen] == [staleness > 1 for staleness in history.updates["staleness"][:-1]]
    assert run.outcomes()["discarded"] == 0


def test_with_a_clock_a_dropped_update_makes_no_version():
    """The three workers of O14; C's first two uploads missed three updates."""
    _, history = simulate(FedAsync(concurrency=3, drop_above=2), fixed(3.0, 5.0, 7.0), updates=8, steps=1)
    assert [(t, version, "ABC"[device], missed) for t, version, device, missed in rows(history)] == [
        (3, 1, "A", 0), (5, 2, "B", 1), (6, 3, "A", 1), (9, 4, "A", 0), (10, 5, "B", 2), (12, 6, "A", 1),
        (15, 7, "B", 1), (15, 8, "A", 1),
    ]  # fmt: skip
    assert history.outcomes["discarded"] == 2
    assert history.outcomes["dispatched"] == history.outcomes["applied"] + 2 + history.outcomes["in_flight"]


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 10), st.integers(1, 10), st.integers(0, 8), st.integers(0, 10**6), st.integers(1, 40))
def test_dropping_keeps_the_conservation_law_of_staleness(devices, concurrency, bound, seed, updates):
    """D11, with what was dropped: it too aged by one whenever another upload made a version."""
    concurrency = min(devices, concurrency)
    world = World(devices=devices, compute=UniformCompute(fastest=0.5, slowest=5.0), jitter=0.5)
    in_flight, dropped = {}, []

    class Watched(FedAsync):
        def drops(self, staleness):
            if super().drops(staleness):
                dropped.append(staleness)
            return super().drops(staleness)

        async def device(self, device):
            in_flight[device.id] = device._trigger_snapshot.version
            await super().device(device)
            del in_flight[device.id]

    algorithm = Watched(concurrency=concurrency, drop_above=bound)
    run, history = simulate(algorithm, world, alike(devices), updates, seed=seed)
    assert len(dropped) == run.outcomes()["discarded"]
    flying = sum(updates - base for base in in_flight.values())
    assert sum(history.updates["staleness"]) + sum(dropped) + flying == (concurrency - 1) * updates
    assert max(history.updates["staleness"]) <= bound


@pytest.mark.parametrize(("convention", "same"), [("missed_updates", True), ("paper", False)])
def test_the_inclusive_pool_has_one_version_more(convention, same):
    """With K + 1 = 5 versions the paper's staleness reaches 5, and a hinge with b = 4 is no longer plain FedAsync."""
    world = World(devices=3, max_staleness=4 + 1)
    shared = {"convention": convention, "alpha": 0.6}
    _, plain = simulate(FedAsync(**shared), world)
    _, hinge = simulate(FedAsync(**shared, weight="hinge(a=10, b=4)"), world)
    assert set(plain.updates["staleness"]) == set(range(5))
    assert (plain == hinge) is same


# Batch-norm statistics


class Normalised(nn.Sequential):
    """A dense network with one batch normalisation."""

    def __init__(self, shape, classes):
        super().__init__(nn.Flatten(), nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, classes))


@pytest.fixture
def normalised(monkeypatch) -> Classification:
    """Three devices with eight samples each, which are a mini-batch."""
    monkeypatch.setitem(MODELS, "normalised", Normalised)
    generator = torch.Generator().manual_seed(4)
    scale = torch.tensor([1.0, 3.0, 0.3]).repeat_interleave(8)[:, None, None, None]
    inputs = torch.randn(24, 1, 2, 3, generator=generator) * scale + scale
    split = Split(inputs, torch.arange(24) % 3)
    return Classification(
        Dataset("noise", "real", ("a", "b", "c"), split, split), np.arange(24).reshape(3, 8), "normalised"
    )


def authors_procedure(task, history, seed, *, alpha, rho, epochs, latest=True):
    """FedAsync's released code, in words: a stale version's parameters are loaded into the newest network.

    Its statistics stay, local training goes on from there, and then all arrays are mixed.
    """
    network = build_network("normalised", (1, 2, 3), 3)
    norm, parameters = network[2], list(network.parameters())
    start = task.initial_model(seed)
    nn.utils.vector_to_parameters(start[:-10].clone(), parameters)
    norm.running_mean.copy_(start[-10:-5])
    norm.running_var.copy_(start[-5:])
    pool = [([p.detach().clone() for p in parameters], [norm.running_mean.clone(), norm.running_var.clone()])]
    for device, staleness in zip(history.updates["device"], history.updates["staleness"], strict=True):
        (stale, old), (newest, statistics) = pool[-1 - staleness], pool[-1]
        with torch.no_grad():
            for parameter, value in zip(parameters, stale, strict=True):
                parameter.copy_(value)
            for buffer, value in zip(
                (norm.running_mean, norm.running_var), statistics if latest else old, strict=True
            ):
                buffer.copy_(value)
        optimiser = torch.optim.SGD(parameters, lr=0.1)
        inputs, labels = task.train.select(task.indices(device))
        for _ in range(epochs):
            optimiser.zero_grad()
            distance = sum((p - value).square().sum() for p, value in zip(parameters, stale, strict=True))
            (F.cross_entropy(network(inputs), labels) + rho / 2 * distance).backward()
            optimiser.step()
        new = [p.detach() for p in parameters], [norm.running_mean, norm.running_var]
        pool.append(
            tuple(
                [(1 - alpha) * w + alpha * v for w, v in zip(before, after, strict=True)]
                for before, after in zip((newest, statistics), new, strict=True)
            )
        )
    return torch.cat([value.flatten() for part in pool[-1] for value in part])


def normalised_run(task, world, algorithm, executor="sequential", checkpoints=None, updates=12):
    how = {"executor": executor, "threads": 2, "checkpoints": checkpoints}
    return runs.simulate(algorithm, world, task, updates=updates, seed=3, lr=0.1, epochs=3, **how).history


SAMPLED, CLOCKED = World(devices=3, max_staleness=4), fixed(1.0, 1.0, 3.0)


@pytest.mark.parametrize("executor", ["sequential", "threads", "batched"])
@pytest.mark.parametrize("world", [SAMPLED, CLOCKED], ids=["sampled", "clocked"])
def test_latest_statistics_are_those_of_the_authors_procedure(normalised, world, executor):
    """With a clock the newest statistics are those at the arrival."""
    algorithm = FedAsync(bn_start="latest", rho=0.2, concurrency=3)
    history = normalised_run(normalised, world, algorithm, executor)
    assert max(history.updates["staleness"]) > 1
    expected = authors_procedure(normalised, history, 3, alpha=0.6, rho=0.2, epochs=3)
    torch.testing.assert_close(history.model, expected, rtol=1e-4, atol=1e-5)


def test_by_default_statistics_start_as_those_of_the_received_model_and_are_mixed(normalised):
    history = normalised_run(normalised, SAMPLED, FedAsync(rho=0.2))
    expected = authors_procedure(normalised, history, 3, alpha=0.6, rho=0.2, epochs=3, latest=False)
    torch.testing.assert_close(history.model, expected, rtol=1e-4, atol=1e-5)
    latest = normalised_run(normalised, SAMPLED, FedAsync(rho=0.2, bn_start="latest"))
    assert torch.equal(latest.model[:-10], history.model[:-10])  # the parameters know nothing of it
    assert not torch.isclose(latest.model[-10:], history.model[-10:], rtol=1e-2).any()


@pytest.mark.parametrize("world", [SAMPLED, CLOCKED], ids=["sampled", "clocked"])
def test_latest_statistics_survive_a_checkpoint_and_cost_nothing_on_the_wire(normalised, world, tmp_path):
    algorithm = FedAsync(bn_start="latest", concurrency=3)
    whole = normalised_run(normalised, world, algorithm)
    assert normalised_run(normalised, world, algorithm, "threads") == whole

    with pytest.raises(Killed):
        normalised_run(normalised, world, algorithm, checkpoints=Checkpoints(tmp_path, when=killed_at(16)))
    assert (
        normalised_run(normalised, world, algorithm, checkpoints=Checkpoints(tmp_path, when=lambda _: False)) == whole
    )
    plain = normalised_run(normalised, world, FedAsync(concurrency=3))
    for column in ("bytes_up", "bytes_down", "seconds", "version"):
        assert whole.evaluations[column] == plain.evaluations[column]


@pytest.mark.parametrize(
    ("model", "shape"),
    [("fedasync_cnn(width=0.125)", (3, 24, 24)), ("resnet18(width=0.0625)", (3, 32, 32)),
     ("resnet20(width=0.5)", (3, 32, 32))],
)  # fmt: skip
def test_all_statistics_of_our_networks_have_the_momentum_that_the_correction_assumes(model, shape):
    network = build_network(model, shape, 10)
    norms = [module for module in network.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    assert {norm.momentum for norm in norms} == {MOMENTUM}
    persistent = network.state_dict()
    floating = [name for name, b in network.named_buffers() if b.is_floating_point() and name in persistent]
    assert len(floating) == 2 * len(norms) > 0


# The event-driven runtime


def test_the_anchor_is_the_received_model_even_if_the_server_has_moved_on():
    """Device 1 needs as long as three tasks of device 0; rho is large, so a wrong anchor would show."""
    task = Quadratic([[1.0], [2.0]], [[1.0], [-1.0]], [5.0])
    algorithm = FedAsync(alpha=0.5, rho=3.0, concurrency=2)
    _, history = simulate(algorithm, fixed(1.0, 2.75), task, updates=4)
    assert rows(history, "device", "staleness") == [(0, 0), (0, 0), (1, 2), (0, 1)]
    x = [5.0]
    for device, staleness in ((0, 0), (0, 0), (1, 2), (0, 1)):
        a, c = ((1.0, 1.0), (2.0, -1.0))[device]
        x.append(0.5 * x[-1] + 0.5 * local_solution(x[-1 - staleness], c, a, 0.1, 2, 3.0))
    assert float(history.model) == pytest.approx(x[-1], rel=1e-12)


# Counters and the references


def test_counters_of_o15():
    """A FedAsync epoch applies H = 10 gradients and moves 2 models, a round of FedAvg 100 and 20."""
    task, last = alike(100), {"steps": 10, "every_updates": None}
    _, mixed = simulate(FedAsync(), World(devices=100, max_staleness=4), task, 200, **last)
    world = World(devices=100, compute=ConstantCompute())
    _, averaged = simulate(FedAvg(), world, task, 20, **last)
    found = [h.evaluation_frame().iloc[-1] for h in (mixed, averaged)]
    assert [(row["gradients"], row["communications"]) for row in found] == [(2_000, 400), (2_000, 400)]


def test_sgd_is_algorithm_3():
    """On the pooled data one iteration is one gradient, whatever the block."""
    _, history = simulate(SGD(block=5), World(devices=3), updates=4)
    assert history.evaluations["gradients"][-1] == 20
    curvature, centre = float(SCATTERED.curvature.mean()), float(SCATTERED.minimiser())
    assert float(history.model) == pytest.approx(local_solution(5.0, centre, curvature, 0.1, 20), rel=1e-12)
