"""SD-FEEL, formulas of the chapters: mixing matrices, clocks, bounds of staleness, micro-runs."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import islice

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refuses
from sdfeel_runs import CENTRES, SIZES, SPEEDS

from fl_core.formulas.sdfeel import (
    effective_steps,
    gossip_average,
    gossip_towards,
    gossip_weights,
    intra_cluster_aggregate,
    laplacian,
    laplacian_eigenvalues,
    normalized_update,
    plan_cluster,
    synchronous_mixing_matrix,
)
from fl_papers.sdfeel.theory import (
    RING,
    cluster_event_clock,
    joint_mixing_matrix,
    local_model,
    paper_clock,
    perron_vector,
    quadratic_run,
    staleness_aware_mixing_matrix,
    staleness_bound,
    synchronous_round_seconds,
    transfer_seconds,
    zeta,
)

close = partial(pytest.approx, rel=1e-10)
digits = partial(pytest.approx, rel=1e-11, abs=1e-12)
LATE = (4, 0, 2, 7, 1, 5)
SHARES = (0.10, 0.12, 0.15, 0.18, 0.20, 0.25)
Y = np.arange(1.0, 7.0)
GRAPHS = [
    nx.cycle_graph(6), nx.complete_graph(5), nx.star_graph(4), nx.path_graph(4), nx.erdos_renyi_graph(9, 0.5, seed=3),
]  # fmt: skip


def adjacent(graph: nx.Graph) -> list[tuple[int, ...]]:
    return [tuple(sorted(graph[node])) for node in sorted(graph)]


@st.composite
def events(draw):
    """A connected graph, a trigger, and somebody's staleness."""
    count = draw(st.integers(2, 8))
    graph = nx.erdos_renyi_graph(count, draw(st.floats(0, 1)), seed=draw(st.integers(0, 999)))
    graph.add_edges_from((draw(st.integers(0, j - 1)), j) for j in range(1, count))
    staleness = draw(st.lists(st.integers(0, 40), min_size=count, max_size=count))
    return adjacent(graph), draw(st.integers(0, count - 1)), staleness


def shares_of(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.full(count, 2.0)) * 0.9 + 0.1 / count


def test_o4_a_cluster_applies_its_updates_to_the_present_model() -> None:
    ends = [local_model(0.8, c, 0.1, steps) for c, steps in ((2, 3), (-1, 5))]
    assert ends == digits([1.1252, 0.062882])
    updates = [normalized_update(end, 0.8, steps) for end, steps in zip(ends, (3, 5), strict=True)]
    assert updates == digits([0.1084, -0.1474236])
    assert effective_steps([0.75, 0.25], [3, 5]) == 3.5
    assert intra_cluster_aggregate(1.0, updates, [0.75, 0.25], [3, 5]) == digits(1.15555435)
    assert 1 + 0.75 * (ends[0] - 0.8) + 0.25 * (ends[1] - 0.8) == digits(1.0596205)


@given(events())
def test_mixing_preserves_the_uniform_mean_of_the_models(event) -> None:
    """D2: symmetric, doubly stochastic, not negative, with a positive diagonal."""
    neighbors, trigger, staleness = event
    for fresh in ("gap", "fresh"):
        matrix = staleness_aware_mixing_matrix(neighbors, trigger, staleness, self_staleness=fresh)
        assert np.allclose(matrix, matrix.T, rtol=0, atol=1e-15)
        assert np.allclose(matrix.sum(0), 1, rtol=0, atol=1e-14)
        assert matrix.min() >= 0
        assert np.diag(matrix).min() > 0
        models = np.random.default_rng(0).normal(size=len(neighbors))
        assert (models @ matrix).mean() == pytest.approx(models.mean(), abs=1e-14)


@given(events(), st.integers(0, 999))
def test_data_weighted_mixing_preserves_the_weighted_mean_of_the_models(event, seed) -> None:
    neighbors, trigger, staleness = event
    m = shares_of(len(neighbors), seed)
    single = staleness_aware_mixing_matrix(neighbors, trigger, staleness, rule="data_weighted", cluster_weight=m)
    for matrix in (single, joint_mixing_matrix(neighbors, staleness, cluster_weight=m)):
        assert np.allclose(matrix.sum(0), 1, rtol=0, atol=1e-14)
        assert np.allclose(matrix @ m, m, rtol=0, atol=1e-14)
        assert matrix.min() >= 0
        models = np.random.default_rng(seed).normal(size=len(m))
        assert models @ matrix @ m == pytest.approx(models @ m, abs=1e-14)


def test_an_event_is_its_matrix() -> None:
    """Mixing neighbour by neighbour, all with the values before, is multiplying by P."""
    weights = gossip_weights(2, {j: LATE[j] for j in (1, 2, 3)})
    found = Y.copy()
    found[2] = gossip_average(dict(enumerate(Y)), weights.column)
    for j, weight in weights.given.items():
        found[j] = gossip_towards(Y[j], Y[2], weight)
    assert found == close(Y @ staleness_aware_mixing_matrix(RING, 2, LATE))


def test_o7_the_synchronous_matrix_for_unequal_shares() -> None:
    printed = [0, 5.42307820649, 6.81213717279, 16.4729480718, 20.0527760138, 30.3501716462]
    assert laplacian_eigenvalues(RING, SHARES) == pytest.approx(printed, rel=1e-11, abs=1e-13)
    whole, safe = (synchronous_mixing_matrix(RING, SHARES, kind) for kind in ("laplacian", "laplacian_safe"))
    diagonal = [-0.118153932469, 0.0682050562761, 0.254564045021, 0.378803370851, 0.440923033766, 0.552738427013]
    assert np.diag(whole) == digits(diagonal)
    assert whole[1, 0] * SHARES[0] == digits(0.0559076966234)
    assert zeta(whole) == digits(0.696808188866)
    assert np.diag(safe) == digits([0, 1 / 6, 1 / 3, 4 / 9, 1 / 2, 3 / 5])
    assert zeta(safe) == digits(0.728846089676)
    for matrix in (whole, safe):
        assert matrix.sum(0) == close([1] * 6)
        assert matrix @ SHARES == close(SHARES)
    assert safe.min() == pytest.approx(0, abs=1e-16)


def test_a_path_of_three_clusters_is_oracle_2_of_the_baselines() -> None:
    path, m = [(1,), (0, 2), (1,)], (1 / 6, 1 / 3, 1 / 2)
    assert laplacian_eigenvalues(path, m)[1:] == digits([3.39444872454, 10.6055512755])
    matrix = synchronous_mixing_matrix(path, m, "laplacian")
    assert zeta(matrix) == digits(0.515078753638)
    assert 7 * matrix == digits(np.array([[1, 3, 0], [6, 1, 2], [0, 3, 5]]))


def test_equal_clusters_on_a_ring_of_six() -> None:
    assert sorted(np.linalg.eigvalsh(laplacian(RING))) == digits([0, 1, 1, 3, 3, 4])
    matrix = synchronous_mixing_matrix(RING, kind="laplacian")
    assert matrix == close(synchronous_mixing_matrix(RING))
    assert matrix[:2, 0] == close([0.2, 0.4])
    assert sorted(np.linalg.eigvalsh(matrix)) == digits([-0.6, -0.2, -0.2, 0.6, 0.6, 1])
    uniform = synchronous_mixing_matrix(RING, kind="uniform")
    assert sorted(np.linalg.eigvalsh(uniform)) == digits([-1 / 3, 0, 0, 2 / 3, 2 / 3, 1])
    assert (zeta(matrix), zeta(uniform)) == close((0.6, 2 / 3))


@pytest.mark.parametrize("kind", ["laplacian_safe", "laplacian", "uniform", "metropolis"])
@pytest.mark.parametrize("graph", GRAPHS, ids=str)
def test_a_constant_matrix_keeps_its_mean_and_averages(graph, kind) -> None:
    neighbors = adjacent(graph)
    m = shares_of(len(neighbors), 4)
    matrix = synchronous_mixing_matrix(neighbors, m, kind)
    kept = m if kind.startswith("laplacian") else np.full(len(m), 1 / len(m))
    assert matrix.sum(0) == close([1] * len(m))
    assert matrix @ kept == close(kept)
    assert perron_vector(matrix) == close(kept)
    assert zeta(matrix) < 1
    if kind != "laplacian":
        assert matrix.min() >= -1e-15
    limit = np.linalg.matrix_power(matrix, 400)
    assert np.abs(limit - kept[:, None]).max() < 1e-4


def test_periods_of_a_synchronous_round() -> None:
    """Oracle O4 of the baselines' specification is 100 local iterations, that is ten rounds of two times five."""
    whole = synchronous_round_seconds([0.1, 0.5], 2.0, 0.25, local_steps=5, intra_rounds=2, gossip_rounds=3)
    assert 10 * whole == close(97.5)


def test_o1_o3_the_papers_clock_at_equal_speeds_and_with_the_first_draw() -> None:
    assert paper_clock(1).periods == digits([5674.2700352] * 6)
    clock, periods = paper_clock(5), [16659.987, 5608.885, 17578.053, 10411.394, 15948.131, 7006.644]
    speeds = [1.13151170707, 0.660914216183, 0.367651001726, 0.336319417126, 1.35748125322]
    assert 55.67 / clock.seconds[:5] == digits(speeds)
    assert clock.local_steps[:5].tolist() == [336, 196, 109, 100, 403]
    assert clock.periods == pytest.approx(periods, abs=5e-4)


def test_o8_the_event_clock() -> None:
    found = [tuple(event) for event in islice(cluster_event_clock((3, 5, 7)), 12)]
    assert found == [
        (0, 3, 0, (0, 0, 0)), (1, 5, 1, (0, 1, 1)), (2, 6, 0, (1, 0, 2)), (3, 7, 2, (0, 1, 3)),
        (4, 9, 0, (1, 2, 0)), (5, 10, 1, (0, 3, 1)), (6, 12, 0, (1, 0, 2)), (7, 14, 2, (0, 1, 3)),
        (8, 15, 0, (1, 2, 0)), (9, 15, 1, (0, 3, 1)), (10, 18, 0, (1, 0, 2)), (11, 20, 1, (0, 1, 3)),
    ]  # fmt: skip
    history = list(islice(cluster_event_clock((3, 5, 7)), 71))
    assert history[-1].seconds <= 105 < next(islice(cluster_event_clock((3, 5, 7)), 71, None)).seconds
    for periods, bounds in (((3, 5, 7), [2, 3, 5]), ((1.1,) * 6, [5] * 6), ((0.1, 0.3), [1, 3])):  # not 4
        latest = np.max([event.staleness for event in islice(cluster_event_clock(periods), 200)], axis=0)
        assert latest.tolist() == bounds == staleness_bound(periods).tolist()
    equal = list(islice(cluster_event_clock((1.1,) * 6), 8))
    assert equal[7][2:] == (1, (0, 5, 4, 3, 2, 1))


def test_shrinking_work_and_transfers_alike_changes_no_event() -> None:
    """D12, a tenth, H = 10."""
    whole = paper_clock(10)
    small = replace(whole, upload=0.1 * whole.upload, exchange=0.1 * whole.exchange, min_batches=10)
    for one, other in zip(whole.events(500), small.events(500), strict=True):
        assert one._replace(seconds=0) == other._replace(seconds=0)
        assert other.seconds == pytest.approx(one.seconds / 10)
    assert abs(10 * small.local_steps - whole.local_steps).max() == 9


def test_o13_the_micro_run() -> None:
    clusters = [(0, 1), (2, 3), (4, 5), (6, 7)]
    plans = [plan_cluster([1 / SPEEDS[i] for i in c], 0.5, 0.25, min_batches=2) for c in clusters]
    steps = [step for plan in plans for step in plan.local_steps]
    assert steps == [2, 4, 2, 5, 2, 4, 2, 3]
    periods = [plan.iteration_seconds for plan in plans]
    ring = [(3, 1), (0, 2), (1, 3), (2, 0)]
    run = partial(quadratic_run, CENTRES, clusters, ring, steps, SIZES, periods, 0.1, 8)
    found = run()
    assert found.triggers == [3, 1, 0, 3, 1, 2, 3, 0]
    times = [1.75, 2.08333333333, 2.75, 3.5, 4.16666666667, 4.75, 5.25, 5.5]
    assert found.seconds == digits(times)
    assert found.models[1] == digits([0.104041666667, 0, 0.104041666667, 0.104041666667])
    assert found.models[4] == digits([0.28405551771, 0.102434785354, 0.210459999344, 0.191060838218])
    assert found.models[8] == digits([0.233544359222, 0.129204837532, 0.339256065355, 0.201987707615])
    m = np.array([40, 40, 50, 20]) / 150
    assert found.models[8] @ m == digits(0.236750168601)
    fresh = run(self_staleness="fresh").models[8]
    assert fresh == digits([0.205302245763, 0.174594042549, 0.285169287353, 0.221627577818])
    assert fresh @ m == digits(0.22591244971)


test_an_argument_out_of_range_is_refused = refuses(
    ValueError,
    (lambda: transfer_seconds(1, 0), "bits_per_second must be > 0"),
    (lambda: synchronous_round_seconds([1], 0, 0, gossip_rounds=0), "gossip_rounds must be >= 1"),
    (lambda: next(cluster_event_clock([1.0, 0.0])), "iteration_seconds must be > 0 for each cluster"),
)
