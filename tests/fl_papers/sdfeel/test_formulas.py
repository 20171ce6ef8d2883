"""SD-FEEL, formulas of the chapters: mixing matrices, clocks, bounds of staleness, micro-runs."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import islice

import networkx as nx
import numpy as np
import pytest
import sympy as sp
from hypothesis import given
from hypothesis import strategies as st

from fl_core.formulas.sdfeel import (
    consensus_phase,
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
from fl_core.formulas.staleness import Polynomial
from fl_papers.sdfeel.experiment import model_bits
from fl_papers.sdfeel.theory import (
    RING,
    cluster_event_clock,
    cluster_steps,
    consensus_rounds,
    fixed_point,
    joint_mixing_matrix,
    local_model,
    paper_clock,
    perron_vector,
    printed_staleness_bound,
    quadratic_run,
    staleness_aware_mixing_matrix,
    staleness_bound,
    surrogate_minimiser,
    surrogate_weights,
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


def test_o15_only_normalised_updates_come_near_the_optimum() -> None:
    problem = ((1, -1), (0.5, 0.5), (50, 5), 0.01)
    assert fixed_point(*problem) == close(-0.107452574495)
    assert fixed_point(*problem, normalized=False) == close(0.779236389677)
    assert abs(fixed_point(*problem[:3], 1e-7)) < 1e-5  # what is left is client drift, of the order eta tau
    found = 0.3
    for _ in range(3000):
        updates = [normalized_update(local_model(found, c, 0.01, k), found, k) for c, k in ((1, 50), (-1, 5))]
        found = intra_cluster_aggregate(found, updates, (0.5, 0.5), (50, 5))
    assert found == close(fixed_point(*problem))


def test_o5_the_mixing_matrix_and_its_readings() -> None:
    matrix = staleness_aware_mixing_matrix(RING, 2, LATE)
    assert matrix[:, 2] == close([0, 24 / 35, 8 / 35, 3 / 35, 0, 0])
    assert np.diag(matrix) == close([1, 11 / 35, 8 / 35, 32 / 35, 1, 1])
    assert Y @ matrix == digits([1, 2.68571428571, 2.4, 3.91428571429, 5, 6])
    fresh = staleness_aware_mixing_matrix(RING, 2, LATE, self_staleness="fresh")
    assert fresh[:, 2] == close([0, 8 / 17, 8 / 17, 1 / 17, 0, 0])
    assert Y @ fresh == digits([1, 2.47058823529, 2.58823529412, 3.94117647059, 5, 6])


def test_o5_the_printed_matrix_does_not_average() -> None:
    """E-01."""
    printed = staleness_aware_mixing_matrix(RING, 2, LATE, rule="printed")
    assert printed[:, 2] == close([0, 8 / 35, 8 / 35, 8 / 35, 0, 0])
    assert printed[:, 2].sum() == close(24 / 35)
    assert Y @ printed == digits([1, 2.22857142857, 2.05714285714, 3.77142857143, 5, 6])
    fresh = staleness_aware_mixing_matrix(RING, 2, LATE, rule="printed", self_staleness="fresh")
    assert fresh[:, 2].sum() == close(24 / 17)


def test_o6_data_weighted_mixing_keeps_the_data_weighted_mean() -> None:
    matrix = staleness_aware_mixing_matrix(RING, 2, LATE, rule="data_weighted", cluster_weight=SHARES)
    assert matrix[:, 2] == digits([0, 0.548571428571, 0.365714285714, 0.0857142857143, 0, 0])
    assert matrix[2] == digits([0, 0.685714285714, 0.365714285714, 0.0714285714286, 0, 0])
    assert Y @ matrix == digits([1, 2.68571428571, 2.53714285714, 3.92857142857, 5, 6])
    assert np.dot(SHARES, Y @ matrix) == close(4.01)
    assert np.dot(SHARES, Y @ staleness_aware_mixing_matrix(RING, 2, LATE)) == digits(3.986857142857)


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


@given(events())
def test_all_clusters_at_once_mix_symmetrically_too(event) -> None:
    neighbors, _, staleness = event
    matrix = joint_mixing_matrix(neighbors, staleness)
    assert np.allclose(matrix, matrix.T, rtol=0, atol=1e-15)
    assert np.allclose(matrix.sum(0), 1, rtol=0, atol=1e-14)
    assert matrix.min() >= 0
    assert np.diag(matrix).min() > 0
    assert (matrix > 0).sum() == len(neighbors) + sum(map(len, neighbors))


@pytest.mark.parametrize("graph", GRAPHS, ids=str)
def test_nobody_stale_at_once_is_the_metropolis_matrix(graph) -> None:
    neighbors = adjacent(graph)
    joint = joint_mixing_matrix(neighbors, [3] * len(neighbors))
    assert np.allclose(joint, synchronous_mixing_matrix(neighbors, kind="metropolis"), rtol=0, atol=1e-15)
    if len(set(map(len, neighbors))) == 1:
        assert np.allclose(joint, synchronous_mixing_matrix(neighbors, kind="uniform"), rtol=0, atol=1e-15)


@given(events(), st.integers(1, 20))
def test_a_staler_neighbour_counts_less(event, more) -> None:
    """C10; what a neighbour keeps of its own, on the other hand, rises with its staleness (E-04)."""
    neighbors, trigger, staleness = event
    for stale in neighbors[trigger]:
        later = [late + more * (j == stale) for j, late in enumerate(staleness)]
        before, after = (staleness_aware_mixing_matrix(neighbors, trigger, s) for s in (staleness, later))
        assert after[stale, trigger] < before[stale, trigger]
        assert after[stale, stale] > before[stale, stale]


def test_the_half_in_the_discount_has_no_effect() -> None:
    """E-04, with symbols, and against the staleness weight that the algorithm takes by default."""
    scale, a, b = sp.symbols("scale a b", positive=True)
    column, _ = gossip_weights(0, {0: 0, 1: 1}, lambda late: scale * (a, b)[late])
    assert sp.simplify(column[1] - b / (a + b)) == 0
    for late in (LATE, (0, 0, 0, 9, 0, 0)):
        ours = staleness_aware_mixing_matrix(RING, 2, late, Polynomial(a=1.0))
        assert ours == close(staleness_aware_mixing_matrix(RING, 2, late))


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


def test_equal_clusters_on_a_ring_of_six() -> None:
    assert sorted(np.linalg.eigvalsh(laplacian(RING))) == digits([0, 1, 1, 3, 3, 4])
    matrix = synchronous_mixing_matrix(RING, kind="laplacian")
    assert matrix == close(synchronous_mixing_matrix(RING))
    assert matrix[:2, 0] == close([0.2, 0.4])
    assert sorted(np.linalg.eigvalsh(matrix)) == digits([-0.6, -0.2, -0.2, 0.6, 0.6, 1])
    uniform = synchronous_mixing_matrix(RING, kind="uniform")
    assert sorted(np.linalg.eigvalsh(uniform)) == digits([-1 / 3, 0, 0, 2 / 3, 2 / 3, 1])
    assert (zeta(matrix), zeta(uniform)) == close((0.6, 2 / 3))


def test_the_matrix_of_a_path_of_three() -> None:
    """Oracle O2 of synchronous SD-FEEL in the specification of the baselines."""
    neighbors, m = [(1,), (0, 2), (1,)], (1 / 6, 1 / 3, 1 / 2)
    assert laplacian_eigenvalues(neighbors, m)[1:] == digits([3.39444872454, 10.6055512755])
    matrix = synchronous_mixing_matrix(neighbors, m, "laplacian")
    expected = [
        [0.142857142857, 0.428571428571, 0], [0.857142857143, 0.142857142857, 0.285714285714],
        [0, 0.428571428571, 0.714285714286],
    ]  # fmt: skip
    assert matrix == digits(np.array(expected))
    assert zeta(matrix) == digits(0.515078753638)


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


@pytest.mark.parametrize("kind", ["laplacian_safe", "uniform", "metropolis"])
@pytest.mark.parametrize("graph", GRAPHS, ids=str)
def test_the_consensus_phase_converges_at_the_rate_of_the_second_eigenvalue(graph, kind) -> None:
    """The mean factor per round, after the transient, is zeta; faster gossip has a smaller one."""
    neighbors = adjacent(graph)
    m = shares_of(len(neighbors), 1)
    matrix = synchronous_mixing_matrix(neighbors, m, kind)
    second = zeta(matrix)
    if second < 1e-12:
        assert consensus_phase(np.random.default_rng(0).normal(size=(len(m), 3)), matrix, 1e-9).rounds == 1
        return
    values, vectors = np.linalg.eig(matrix.T)
    slowest = np.real(vectors[:, np.argsort(np.abs(values))[-2]])
    found = consensus_phase(slowest, matrix, 1e-6, relative=True)  # starts in the slowest direction: no transient
    assert np.array(found.spreads[1:]) / found.spreads[:-1] == pytest.approx(second, rel=1e-6)
    assert found.rounds == consensus_rounds(second, 1e-6)
    models = np.random.default_rng(2).normal(size=(len(m), 4))
    spreads = consensus_phase(models, matrix, 1e-10, relative=True).spreads
    half = len(spreads) // 2
    rate = (spreads[-1] / spreads[half]) ** (1 / (len(spreads) - 1 - half))
    assert rate == pytest.approx(second, rel=0.03)


def test_consensus_costs_28_rounds_for_a_millionth_on_the_papers_ring() -> None:
    """C15, in the paper's setting: 1001 s, some 6 % of a synchronous round at H = 5."""
    assert consensus_rounds(0.6, 1e-6) == 28
    seconds = 28 * transfer_seconds(model_bits(11_173_962), 10e6)
    assert seconds == digits(1001.1869952)
    assert seconds / 17578.052826 == pytest.approx(0.06, abs=0.004)


def test_o1_latency() -> None:
    assert model_bits(11_173_962) == 357_566_784
    upload, exchange = (transfer_seconds(model_bits(11_173_962), rate) for rate in (5e6, 10e6))
    assert (upload, exchange, upload + exchange) == close((71.5133568, 35.7566784, 107.2700352))
    assert plan_cluster([55.67], upload, exchange).iteration_seconds == close(5674.2700352)


def test_periods_of_a_synchronous_round() -> None:
    """Oracle O4 of the baselines' specification is 100 local iterations, that is ten rounds of two times five."""
    whole = synchronous_round_seconds([0.1, 0.5], 2.0, 0.25, local_steps=5, intra_rounds=2, gossip_rounds=3)
    assert 10 * whole == close(97.5)


def test_o8_the_event_clock() -> None:
    found = [tuple(event) for event in islice(cluster_event_clock((3, 5, 7)), 12)]
    assert found == [
        (0, 3, 0, (0, 0, 0)), (1, 5, 1, (0, 1, 1)), (2, 6, 0, (1, 0, 2)), (3, 7, 2, (0, 1, 3)),
        (4, 9, 0, (1, 2, 0)), (5, 10, 1, (0, 3, 1)), (6, 12, 0, (1, 0, 2)), (7, 14, 2, (0, 1, 3)),
        (8, 15, 0, (1, 2, 0)), (9, 15, 1, (0, 3, 1)), (10, 18, 0, (1, 0, 2)), (11, 20, 1, (0, 1, 3)),
    ]  # fmt: skip
    history = list(islice(cluster_event_clock((3, 5, 7)), 71))
    assert history[-1].seconds <= 105 < next(islice(cluster_event_clock((3, 5, 7)), 71, None)).seconds
    maxima = [max(event.staleness[d] for event in history) for d in range(3)]
    assert maxima == [2, 3, 5] == staleness_bound((3, 5, 7)).tolist()
    equal = list(islice(cluster_event_clock((1.1,) * 6), 60))
    assert equal[7][2:] == (1, (0, 5, 4, 3, 2, 1))
    assert max(max(event.staleness) for event in equal) == 5 == staleness_bound((1.1,) * 6).max()


@pytest.mark.parametrize(("gap", "observed", "bound", "crude"), [(5, 12, 13, 20), (10, 17, 18, 30), (30, 39, 40, 85)])
def test_staleness_in_the_papers_setting_is_bounded(gap, observed, bound, crude) -> None:
    """D4 and C08 on 3000 events."""
    periods = paper_clock(gap).periods
    assert max(max(event.staleness) for event in paper_clock(gap).events(3000)) == observed
    assert staleness_bound(periods).max() == bound
    assert 5 * np.ceil(max(periods) / min(periods)) == crude <= printed_staleness_bound(6, gap)


@given(st.lists(st.floats(0.3, 10), min_size=2, max_size=6))
def test_no_clusters_staleness_exceeds_its_bound(periods) -> None:
    bound = staleness_bound(periods)
    for event in islice(cluster_event_clock(periods), 150):
        assert (np.array(event.staleness) <= bound).all()


def test_the_bound_of_the_sketch_is_wrong() -> None:
    """E-08."""
    observed = max(max(event.staleness) for event in islice(cluster_event_clock((1.5, 1.0)), 60))
    assert observed == 2 > printed_staleness_bound(2, 1.5)
    assert staleness_bound((1.5, 1.0)).tolist() == [2, 1]


def test_shrinking_work_and_transfers_alike_changes_no_event() -> None:
    """D12, a tenth, H = 10."""
    whole = paper_clock(10)
    small = replace(whole, upload=0.1 * whole.upload, exchange=0.1 * whole.exchange, min_batches=10)
    for one, other in zip(whole.events(500), small.events(500), strict=True):
        assert one._replace(seconds=0) == other._replace(seconds=0)
        assert other.seconds == pytest.approx(one.seconds / 10)
    assert abs(10 * small.local_steps - whole.local_steps).max() == 9


def test_o13_the_micro_run() -> None:
    centres, sizes = (1, -1, 2, 0, -2, 3, 0.5, 1.5), (10, 30, 20, 20, 40, 10, 5, 15)
    speeds, clusters = (1, 2, 1.5, 4, 0.5, 1, 2, 3), [(0, 1), (2, 3), (4, 5), (6, 7)]
    plans = [plan_cluster([1 / speeds[i] for i in c], 0.5, 0.25, min_batches=2) for c in clusters]
    steps = [step for plan in plans for step in plan.local_steps]
    assert steps == [2, 4, 2, 5, 2, 4, 2, 3]
    periods = [plan.iteration_seconds for plan in plans]
    ring = [(3, 1), (0, 2), (1, 3), (2, 0)]
    run = partial(quadratic_run, centres, clusters, ring, steps, sizes, periods, 0.1, 8)
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


def test_an_event_moves_the_uniform_mean_by_the_triggers_update_alone() -> None:
    """D3: what mixing conserves is the uniform mean; one cluster's delayed gradient moves it, a D-th part of it."""
    rng = np.random.default_rng(0)
    centres, clusters = rng.normal(size=12), [tuple(range(2 * d, 2 * d + 2)) for d in range(6)]
    steps, sizes = rng.integers(1, 9, 12).tolist(), rng.integers(10, 90, 12)
    found = quadratic_run(centres, clusters, RING, steps, sizes, rng.uniform(1, 4, 6), 0.05, 60)
    started, moved = np.zeros(6), []
    for k, d in enumerate(found.triggers):
        members = list(clusters[d])
        shares = sizes[members] / sizes[members].sum()
        updates = [
            normalized_update(local_model(started[d], centres[i], 0.05, steps[i]), started[d], steps[i])
            for i in members
        ]
        expected = cluster_steps(clusters, sizes, steps)[d] * np.dot(shares, updates) / 6
        moved.append(found.models[k + 1].mean() - found.models[k].mean() - expected)
        started[d] = found.models[k + 1][d]
    assert np.abs(moved).max() < 1e-15


@pytest.mark.parametrize("rule", ["derived", "data_weighted"])
def test_what_is_minimised_weighs_clusters_by_their_pace(rule) -> None:
    """D10 on a problem of our own: the mean over many events is where the surrogate objective says."""
    rng = np.random.default_rng(1)
    centres, sizes = rng.normal(size=12), rng.integers(10, 90, 12)
    clusters = [tuple(range(2 * d, 2 * d + 2)) for d in range(6)]
    periods, steps = np.array([1.0, 1.3, 2.1, 2.6, 3.3, 4.0]), rng.integers(2, 12, 12).tolist()
    m = np.array([sizes[list(c)].sum() for c in clusters]) / sizes.sum()
    variant = {"rule": rule, "cluster_weight": m}
    weighted = rule == "data_weighted"
    omega = surrogate_weights(cluster_steps(clusters, sizes, steps), periods, m if weighted else None)
    target, optimum = (surrogate_minimiser(centres, clusters, sizes, weights) for weights in (omega, m))
    run = quadratic_run(centres, clusters, RING, steps, sizes, periods, 5e-4, 9000, start=target, **variant)
    means = run.models @ (m if weighted else np.full(6, 1 / 6))
    assert abs(means[3000:].mean() - target) < 0.01 * abs(target - optimum)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: transfer_seconds(1, 0), "bits_per_second must be > 0"),
        (lambda: synchronous_round_seconds([1], 0, 0, gossip_rounds=0), "gossip_rounds must be >= 1"),
        (lambda: next(cluster_event_clock([1.0, 0.0])), "iteration_seconds must be > 0 for each cluster"),
    ],
)
def test_an_argument_out_of_range_is_refused(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
