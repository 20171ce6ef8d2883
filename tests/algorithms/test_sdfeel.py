"""SD-FEEL and hierarchical FedAvg on simulated runs: oracles, timelines, and what they have to equal."""

from __future__ import annotations

from types import SimpleNamespace

import networkx as nx
import numpy as np
import pytest
import torch
from baseline_runs import TOY_B, TOY_B_WORLD
from pydantic import ValidationError
from refusals import refuses
from sdfeel_runs import CENTRES, MICRO_WORLD, SIZES, models, simulate

from fl_core.algorithms import AsyncSDFeel, FedAvg, HierarchicalFedAvg, SyncSDFeel
from fl_core.algorithms.sdfeel import aggregated, gossip_consensus
from fl_core.errors import RunError
from fl_core.tasks import Quadratic
from fl_core.world import World

ALONE = World(devices=3, compute=TOY_B_WORLD.compute, clusters={"servers": 3, "graph": {"kind": "path"}})
"""The baselines' toy with one device per cluster."""
EQUAL = {"compute": {"kind": "constant", "seconds_per_step": 0.5}, "network": {"up_bits_per_second": 256}}
"""Equal speeds, and times that binary numbers hold exactly."""


def spread_task(servers: int, each: int = 2, dimension: int = 3) -> Quadratic:
    rng = np.random.default_rng(servers)
    n = servers * each
    shape = (n, dimension)
    return Quadratic(np.ones(shape), rng.normal(size=shape), [3.0] * dimension, samples=rng.integers(5, 60, n))


# Asynchronous


def test_o13_the_micro_run():
    run = simulate(AsyncSDFeel(min_batches=2), updates=8)
    assert models(run) == pytest.approx([0.233544359222, 0.129204837532, 0.339256065355, 0.201987707615], rel=1e-11)
    assert float(run.history.model) == pytest.approx(0.236750168601, rel=1e-11)
    frame = run.history.update_frame().drop_duplicates("version")
    times = [1.75, 2.08333333333, 2.75, 3.5, 4.16666666667, 4.75, 5.25, 5.5]
    assert frame["seconds"].tolist() == pytest.approx(times, rel=1e-11)
    assert (frame["device"] // 2).tolist() == [3, 1, 0, 3, 1, 2, 3, 0]
    assert run.history.evaluations["bytes_up"][-1] == 8 * 16
    fresh = simulate(AsyncSDFeel(min_batches=2, self_staleness="fresh"), updates=8)
    expected = [0.205302245763, 0.174594042549, 0.285169287353, 0.221627577818]
    assert models(fresh) == pytest.approx(expected, rel=1e-11)
    assert float(fresh.history.model) == pytest.approx(0.22591244971, rel=1e-10)


def test_the_server_is_told_how_many_steps_everybody_does():
    run = simulate(AsyncSDFeel(min_batches=2), updates=30)
    frame = run.history.update_frame()
    assert dict(zip(frame["device"], frame["steps"], strict=True)) == dict(enumerate((2, 4, 2, 5, 2, 4, 2, 3)))


def test_a_device_that_is_too_slow_for_a_fixed_deadline_takes_no_part():
    run = simulate(AsyncSDFeel(deadline="fixed", deadline_seconds=1.0), updates=20)
    assert set(run.history.updates["device"]) == {0, 1, 2, 3, 5, 6, 7}  # device 4 needs 2 s for a step
    alone = simulate(AsyncSDFeel(deadline="fixed", deadline_seconds=1.0), updates=1)
    frame = alone.history.update_frame()
    assert frame["weight"].sum() == pytest.approx(1)
    with pytest.raises(RunError, match=r"deadline_seconds = 0.3; deadline_seconds must be >= 0.5"):
        simulate(AsyncSDFeel(deadline="fixed", deadline_seconds=0.3), updates=20)


test_parameters_out_of_range_are_refused = refuses(
    ValidationError,
    ({"deadline": "fixed"}, "deadline = 'fixed' with deadline_seconds = None"),
    ({"deadline_seconds": 3.0}, "deadline = 'slowest_min_batches' with deadline_seconds = 3.0"),
    ({"simultaneous": "together", "mixing": "printed"}, "mixing must be derived or data_weighted"),
    ({"min_batches": 0}, "min_batches"),
    ({"staleness_origin": 2}, "staleness_origin"),
    by=lambda parameters: AsyncSDFeel(**parameters),
)


# Equal speeds and deadlines: asynchronous is synchronous


def test_data_weighted_mixing_moves_the_weighted_mean_by_the_triggers_update_alone():
    """An event of cluster d moves the measured model by m-tilde_d times its update, whatever is mixed."""
    m = np.array([40, 40, 50, 20]) / 150
    before = simulate(AsyncSDFeel(min_batches=2, mixing="data_weighted"), updates=3)
    after = simulate(AsyncSDFeel(min_batches=2, mixing="data_weighted"), updates=4)
    start = models(simulate(AsyncSDFeel(min_batches=2, mixing="data_weighted"), updates=1))[3]  # the trigger's
    ends = [c + 0.9**k * (start - c) for c, k in ((0.5, 2), (1.5, 3))]
    update = (0.25 * 2 + 0.75 * 3) * (0.25 * (ends[0] - start) / 2 + 0.75 * (ends[1] - start) / 3)
    moved = float(after.history.model) - float(before.history.model)
    assert moved == pytest.approx(m[3] * update, abs=1e-15)


@pytest.mark.parametrize("graph", [nx.complete_graph(4), nx.erdos_renyi_graph(7, 0.5, seed=1)], ids=str)
def test_with_equal_speeds_and_deadlines_asynchronous_is_synchronous_exactly(graph):
    """The same history, bit for bit: times, models' losses, bytes, staleness 0."""
    count = len(graph)
    world = World(devices=2 * count, clusters={"servers": count, "graph": graph, "backhaul_seconds": 0.25}, **EQUAL)
    task = spread_task(count)
    asynchronous = AsyncSDFeel(min_batches=4, simultaneous="together")
    synchronous = SyncSDFeel(local_steps=4, mixing="metropolis")
    one, other = (simulate(a, world, task, updates=5 * count) for a in (asynchronous, synchronous))
    assert one.history == other.history
    assert (models(one) == models(other)).all()
    assert set(one.history.updates["staleness"]) == {0}
    assert sorted(set(one.history.updates["seconds"])) == [(2 + 0.75 + 0.25) * k for k in range(1, 6)]
    in_order = simulate(AsyncSDFeel(min_batches=4), world, task, updates=5 * count)
    assert (models(in_order) != models(one)).any()  # E-17: one after the other is another algorithm
    assert max(in_order.history.updates["staleness"]) == count - 1


def test_where_iteration_times_differ_together_has_nothing_to_do():
    runs = [simulate(AsyncSDFeel(min_batches=2, simultaneous=s), updates=40) for s in ("in_order", "together")]
    assert runs[0].history == runs[1].history


# Synchronous


@pytest.mark.parametrize(
    ("algorithm", "updates", "printed", "mean"),
    [
        (
            SyncSDFeel(local_steps=2, mixing="laplacian"), 3,
            [[0.0507142857143, 0.718571428571], [0.442678571429, 0.285178571429], [0.310892857143, 0.284107142857]],
            [0.311458333333, 0.356875],
        ),
        (
            SyncSDFeel(local_steps=1, intra_rounds=2, mixing="laplacian"), 12,
            [[-0.0327193877551, 0.589407653061], [0.208327487245, 0.253422002551], [0.178504655612, 0.122975191327]],
            [0.153241592262, 0.244196205357],
        ),
    ],
)  # fmt: skip
def test_the_runs_of_the_baselines_specification(algorithm, updates, printed, mean):
    """Oracle O3 of section 2.7 there; the second run exchanges twice."""
    run = simulate(algorithm, ALONE, TOY_B, updates)
    assert models(run) == pytest.approx(np.array(printed), rel=1e-10)
    assert run.history.model.numpy() == pytest.approx(mean, rel=1e-10)


@pytest.mark.parametrize("mixing", ["laplacian_safe", "laplacian"])
def test_synchronous_training_ends_at_the_optimum_of_a_convex_problem(mixing):
    """Equal step counts bring no bias: the weighted mean of the servers' models goes to the optimum exactly."""
    run = simulate(SyncSDFeel(local_steps=3, mixing=mixing), updates=4 * 150, every=None)
    assert float(run.history.model) == pytest.approx(np.average(CENTRES, weights=SIZES), abs=1e-12)


def test_the_consensus_phase_delivers_the_model_that_is_measured():
    run = simulate(AsyncSDFeel(min_batches=2), updates=30)
    before = models(run)
    found = gossip_consensus(run, 1e-9)
    assert found.models.squeeze() == pytest.approx([float(run.history.model)] * 4, abs=1e-9)
    assert found.rounds >= 20
    assert found.seconds == found.rounds * 0.25
    assert (models(run) == before).all()
    sooner = gossip_consensus(run, 1e-3, relative=True)
    assert np.ptp(sooner.models) <= 1e-3 * np.ptp(before)
    assert sooner.rounds < found.rounds
    with pytest.raises(ValueError, match="tolerance must be > 0"):
        gossip_consensus(run, 0)


def test_statistics_are_averaged_as_they_are():
    """A-06: parameters move by tau-bar times the mean update; running variances stay convex means."""
    server = SimpleNamespace(model=torch.tensor([1.0, 5.0]), num_parameters=1)
    uploads = [
        SimpleNamespace(device=1, num_samples=30, steps=5, delta=torch.tensor([0.1, 2.0])),
        SimpleNamespace(device=0, num_samples=10, steps=3, delta=torch.tensor([-0.3, 4.0])),
    ]
    torch.testing.assert_close(aggregated(server, uploads), torch.tensor([1 + 4.5 * (0.75 * 0.1 - 0.25 * 0.3), 2.5]))
    assert aggregated(server, []) is server.model


# Hierarchical


def test_with_one_edge_round_it_is_fedavg_of_everybody():
    world = {"devices": 8, "compute": MICRO_WORLD.compute}
    flat = simulate(FedAvg(clients_per_round=8, weighting="samples"), World(**world), updates=7, steps=3)
    edge = simulate(HierarchicalFedAvg(local_steps=3), World(**world, clusters={"servers": 4}), updates=4 * 7)
    assert float(edge.history.model) == pytest.approx(float(flat.history.model), rel=1e-13)
    assert len(set(models(edge))) == 1


def test_many_gossip_rounds_are_a_cloud():
    """Facts about synchronous SD-FEEL and its limit, with two aggregations at the edge in between."""
    cloud = simulate(HierarchicalFedAvg(local_steps=2, edge_rounds=2), updates=4 * 6)
    gossip = simulate(SyncSDFeel(local_steps=2, intra_rounds=2, gossip_rounds=200), updates=4 * 6)
    assert models(gossip) == pytest.approx(models(cloud), rel=1e-9)
    few = simulate(SyncSDFeel(local_steps=2, intra_rounds=2), updates=4 * 6)
    assert np.ptp(models(few)) > 0.01


def test_the_cloud_takes_its_time():
    run = simulate(HierarchicalFedAvg(local_steps=1, edge_rounds=2, cloud_seconds=7.0), updates=8)
    assert sorted(set(run.history.updates["seconds"])) == pytest.approx([2.5, 12.0])
