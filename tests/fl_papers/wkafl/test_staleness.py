"""The law of staleness behind "P / (2 K)", oracles O8 and O9, schedules without a simulator (D7 to D9)."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import runs
from refusals import refuses

from fl_core.algorithms import KAsync
from fl_core.tasks import Quadratic
from fl_core.world import World
from fl_papers.wkafl.theory import (
    average_num_gradients,
    average_staleness,
    conflict_slope,
    expected_run_staleness,
    k_asynchronous,
    mean_age_of_gaps,
    mean_staleness,
    predominated,
    stability,
    staleness_probability,
    uniform_draws,
)

close = partial(pytest.approx, rel=1e-10)
CELLS = [(1000, 10), (3000, 10), (3000, 20), (1000, 20)]


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
    assert stability(accuracies) * np.sqrt(10 / 9) == close(0.0022862461984202126)  # ddof = 1
    assert stability((0.1, *accuracies)) == stability(accuracies)


@pytest.mark.parametrize("updates", [1, 20, 400])
def test_the_staleness_of_a_run_that_begins_with_fresh_gradients(updates) -> None:
    draws = [uniform_draws(200, 10, updates, np.random.default_rng(seed)).staleness.mean() for seed in range(40)]
    assert expected_run_staleness(200, 10, updates) == pytest.approx(np.mean(draws), rel=0.02, abs=1e-12)
    assert expected_run_staleness(200, 10, 10**6) == pytest.approx(mean_staleness(200, 10), rel=1e-3)


@pytest.mark.parametrize("law", ["exponential", "shifted_exponential", "uniform"])
def test_the_simulators_schedule_is_the_one_without_a_simulator(law) -> None:
    rng = np.random.default_rng(0)
    task = Quadratic(rng.uniform(0.5, 2, (40, 6)), rng.standard_normal((40, 6)), [3.0] * 6)
    world = World.named("wkafl", devices=40, law=law)
    run = runs.simulate(KAsync(num_aggregated=5, lr=0.01), world, task, updates=100, batch_size=50, seed=1)
    table = run.history.updates
    made = k_asynchronous(lambda d, job: run.devices.profile(d, job).seconds_per_step, 40, 5, 100)
    assert (np.reshape(table["device"], (100, 5)) == made.clients).all()
    assert (np.reshape(table["staleness"], (100, 5)) == made.staleness).all()
    np.testing.assert_allclose(table["seconds"][4::5], made.seconds)


test_arguments_out_of_range_are_refused = refuses(
    ValueError,
    (lambda: mean_staleness(3, 4), "num_aggregated = 4"),
    (lambda: mean_age_of_gaps([0]), "gaps = "),
    (lambda: staleness_probability(-1, 3, 1), "staleness = -1"),
    (lambda: conflict_slope(10, 1, 1.0), "mu = 1.0"),
    (lambda: average_num_gradients([[1.0]], 0), "mu = 0"),
    (lambda: stability([0.5] * 9), "len"),
    (lambda: stability([0.0] * 10), "accuracies"),
)
