"""The law of staleness behind "P / (2 K)", oracles O8, O9, O11 and O12, schedules without a simulator (D7 to D9)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fl_core.algorithms import KAsync
from fl_core.runtime import Budget, Evaluation, LocalTraining, Simulation
from fl_core.tasks import Quadratic
from fl_core.world import World
from fl_papers.wkafl.theory import (
    average_num_gradients,
    average_staleness,
    conflict_slope,
    expected_inverse_staleness,
    expected_live_versions,
    expected_min_staleness,
    expected_run_staleness,
    expected_staleness_weight,
    k_asynchronous,
    k_synchronous_seconds,
    mean_age_of_gaps,
    mean_staleness,
    min_mean_age,
    predominated,
    round_robin,
    stability,
    staleness_probability,
    uniform_draws,
)

close = partial(pytest.approx, rel=1e-10)
CELLS = [(1000, 10), (3000, 10), (3000, 20), (1000, 20)]


def drawn(rng: np.random.Generator, law: str) -> Callable[[int, int], float]:
    """Durations of a client's jobs, mean 1."""
    speeds = rng.uniform(0.4, 1.6, 5000)
    return {
        "exponential": lambda client, job: rng.exponential(),
        "shifted": lambda client, job: 0.5 + 0.5 * rng.exponential(),
        "uniform": lambda client, job: 2 * rng.random(),
        "constant": lambda client, job: speeds[client],
    }[law]


def test_o8_metrics() -> None:
    p, tau = ((0.7, 0.2, 0.1), (0.4, 0.35, 0.25)), ((0, 2, 5), (1, 1, 4))
    assert average_staleness(p, tau) == close(1.325)
    assert average_num_gradients(p, 2) == 2.0
    assert average_num_gradients(p, 4) == 2.5
    assert predominated(p).tolist() == [2, 3]


def test_o9_stability() -> None:
    accuracies = (0.970, 0.972, 0.968, 0.971, 0.973, 0.969, 0.974, 0.972, 0.970, 0.975)
    assert stability(accuracies) == close(0.0021689235836727366)
    assert stability(accuracies) / np.log(10) == close(0.0009419515440588953)
    assert stability(accuracies, log=False) == close(0.0021071307505705498)
    assert stability(accuracies, ddof=1) == close(0.0022862461984202126)
    assert stability((0.1, *accuracies)) == stability(accuracies)


def test_o11_the_trace_of_four_clients() -> None:
    durations = (1.0, 1.5, 2.5, 4.2)
    made = k_asynchronous(lambda client, job: durations[client], 4, 2, 6)
    expected = [
        (1.5, [0, 1], [0, 0]), (2.5, [0, 2], [0, 1]), (3.5, [1, 0], [1, 0]),
        (4.5, [3, 0], [3, 0]), (5.0, [1, 2], [1, 2]), (6.5, [0, 1], [1, 0]),
    ]  # fmt: skip
    found = zip(made.seconds.tolist(), made.clients.tolist(), made.staleness.tolist(), strict=True)
    assert [(pytest.approx(t), c, s) for t, c, s in found] == expected


def test_o12_expectations_of_the_papers_cells() -> None:
    assert [expected_min_staleness(*cell) for cell in CELLS] == close(
        [9.458290117591226, 29.452754541852347, 6.986117118877023, 2.0084957370373577]
    )
    assert [expected_staleness_weight(*cell) for cell in CELLS] == close(
        [0.036819026605770466, 0.01249873541240413, 0.024769687402318153, 0.07169581879558017]
    )
    assert [expected_inverse_staleness(*cell) for cell in CELLS] == close(
        [0.04651687056553627, 0.01907619556741204, 0.03362842479259232, 0.07983720419241115]
    )
    assert [round(expected_live_versions(*cell)) for cell in CELLS[:3]] == [293, 879, 540]
    assert expected_inverse_staleness(5, 5) == expected_staleness_weight(5, 5) == 1


@pytest.mark.parametrize("updates", [1, 20, 400])
def test_the_staleness_of_a_run_that_begins_with_fresh_gradients(updates) -> None:
    draws = [uniform_draws(200, 10, updates, np.random.default_rng(seed)).staleness.mean() for seed in range(40)]
    assert expected_run_staleness(200, 10, updates) == pytest.approx(np.mean(draws), rel=0.02, abs=1e-12)
    assert expected_run_staleness(200, 10, 10**6) == pytest.approx(mean_staleness(200, 10), rel=1e-3)


def test_o12_round_robin() -> None:
    made = round_robin(12, 3, 400)
    assert set(made.staleness[4:].ravel().tolist()) == {3}
    assert set(np.round(made.mean_age[3:], 12)) == {1.5}
    assert min_mean_age(12, 3) == mean_age_of_gaps([4] * 10) == 1.5


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 12), st.data())
def test_staleness_adds_up_whatever_the_schedule(clients, data) -> None:
    """D7: the missed updates of all gradients, one more for each, and what is still open fill P J exactly."""
    count, seed = data.draw(st.integers(1, clients)), data.draw(st.integers(0, 999))
    law = data.draw(st.sampled_from(["exponential", "shifted", "uniform", "constant"]))
    made = k_asynchronous(drawn(np.random.default_rng(seed), law), clients, count, 30)
    last = {client: j for j, used in enumerate(made.clients.tolist(), 1) for client in used}
    waiting = sum(30 - last.get(client, 0) for client in range(clients))
    assert int((made.staleness + 1).sum()) + waiting == clients * 30
    assert (made.staleness[0] == 0).all()
    assert all(len(set(used)) == count for used in made.clients.tolist())


@pytest.mark.parametrize("law", ["exponential", "shifted", "uniform", "constant"])
def test_the_mean_staleness_is_the_same_for_every_law_and_the_mean_age_at_least_half_of_it(law) -> None:
    """C21: P / (2 K) is the least mean age of all clients, not the mean staleness of the gradients."""
    made = k_asynchronous(drawn(np.random.default_rng(1), law), 200, 5, 6000)
    late = slice(1000, None)
    assert made.staleness[late].mean() == pytest.approx(mean_staleness(200, 5), rel=0.02)
    assert made.mean_age[late].mean() >= min_mean_age(200, 5)
    if law == "exponential":
        assert made.mean_age[late].mean() == pytest.approx(mean_staleness(200, 5), rel=0.03)


def test_exponential_times_draw_uniformly() -> None:
    """A1: the same law of staleness as the authors' sampler, and the geometric one."""
    events = k_asynchronous(drawn(np.random.default_rng(2), "exponential"), 60, 3, 12_000).staleness[600:]
    draws = uniform_draws(60, 3, 12_000, np.random.default_rng(3)).staleness[600:]
    for made in (events, draws):
        for staleness in (0, 5, 20, 60):
            assert (made == staleness).mean() == pytest.approx(staleness_probability(staleness, 60, 3), abs=0.004)
        assert made.min(axis=1).mean() == pytest.approx(expected_min_staleness(60, 3), rel=0.06)


@pytest.mark.parametrize(
    ("law", "synchronous", "asynchronous"),
    [("exponential", 0.1055, 0.1048), ("shifted", 0.5527, 0.1048), ("uniform", 0.1982, 0.1056)],
)
def test_c31_k_asynchronous_updates_need_no_more_time_than_synchronous_ones(law, synchronous, asynchronous) -> None:
    rng = np.random.default_rng(4)
    duration = drawn(rng, law)
    each = k_asynchronous(duration, 100, 10, 2000).seconds[-1] / 2000
    rounds = k_synchronous_seconds(np.array([[duration(c, 0) for c in range(100)] for _ in range(500)]), 10)
    assert each == pytest.approx(asynchronous, rel=0.03)
    assert rounds == pytest.approx(synchronous, rel=0.03)
    assert law == "exponential" or each < rounds


def test_d9_more_gradients_are_staler_gradients() -> None:
    """C02: over the decay of the weights, staleness grows linearly with the number of gradients that count."""
    tau = uniform_draws(1000, 10, 4000, np.random.default_rng(5)).staleness[1000:].astype(float)
    points = []
    for decay in (0.02, 0.03, 0.04, 0.06, 0.1, 0.2, 0.3069, 0.5, 1.0):
        weights = np.exp(-decay * (tau - tau.min(axis=1, keepdims=True)))
        weights /= weights.sum(axis=1, keepdims=True)
        points.append((average_num_gradients(weights), average_staleness(weights, tau)))
    x, y = np.array(points).T
    slope, _ = np.polyfit(x, y, 1)
    assert slope == pytest.approx(conflict_slope(1000, 10, 10), rel=0.1)
    assert np.corrcoef(x, y)[0, 1] ** 2 > 0.95
    few = np.exp(-0.3069 * (tau - tau.min(axis=1, keepdims=True)))
    counts = predominated(few / few.sum(axis=1, keepdims=True))
    assert (counts <= 5).mean() >= 0.95  # C01


@pytest.mark.parametrize("law", ["exponential", "shifted_exponential", "uniform"])
def test_the_simulators_schedule_is_the_one_without_a_simulator(law) -> None:
    rng = np.random.default_rng(0)
    task = Quadratic(rng.uniform(0.5, 2, (40, 6)), rng.standard_normal((40, 6)), [3.0] * 6)
    run = Simulation(
        task, World.named("wkafl", devices=40, law=law), KAsync(num_aggregated=5, lr=0.01),
        budget=Budget(updates=100), evaluation=Evaluation(every_updates=10),
        training=LocalTraining(batch_size=50), seed=1,
    )  # fmt: skip
    table = run.run("sequential").updates
    made = k_asynchronous(lambda d, job: run.devices.profile(d, job).seconds_per_step, 40, 5, 100)
    assert (np.reshape(table["device"], (100, 5)) == made.clients).all()
    assert (np.reshape(table["staleness"], (100, 5)) == made.staleness).all()
    np.testing.assert_allclose(table["seconds"][4::5], made.seconds)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: mean_staleness(3, 4), "num_aggregated = 4"),
        (lambda: mean_age_of_gaps([0]), "gaps = "),
        (lambda: staleness_probability(-1, 3, 1), "staleness = -1"),
        (lambda: conflict_slope(10, 1, 1.0), "mu = 1.0"),
        (lambda: average_num_gradients([[1.0]], 0), "mu = 0"),
        (lambda: stability([0.5] * 9), "len"),
        (lambda: stability([0.0] * 10), "accuracies"),
    ],
)
def test_arguments_out_of_range_are_refused(call, says) -> None:
    with pytest.raises(ValueError, match=says):
        call()
