"""What the chapter on FedASMU computes: the proof's steps, the schedule, the slots, the controls."""

from __future__ import annotations

import numpy as np
import pytest
import runs
import torch
from fedasmu_pairs import pair
from hypothesis import given
from hypothesis import strategies as st
from refusals import refuses

from fl_core.algorithms import FedASMUFA
from fl_core.formulas.fedasmu import half_product, matched_lambda, to_half
from fl_core.tasks import Quadratic
from fl_core.world import World
from fl_papers.fedasmu import theory
from fl_papers.fedasmu.theory import (
    Problem,
    SlotToy,
    arrivals,
    corrected_bound,
    drift_bound,
    grad_estimate,
    half_error,
    meta_probabilities,
    printed_bound,
    printed_drift,
    proof_steps,
    random_run,
)

# The theorem


@pytest.mark.parametrize("step", ["1", "3", "5"])
def test_a_step_fails_where_a_constant_is_too_small(monkeypatch: pytest.MonkeyPatch, step) -> None:
    real = theory._inequalities

    def smaller(trace, problem, drift, t):
        half = type(problem)(problem.smoothness, 1e-3 * problem.gradient, 1e-3 * problem.deviation)
        return real(trace, half, drift, t)

    monkeypatch.setattr(theory, "_inequalities", smaller)
    assert proof_steps([0], rounds=100).set_index("step").loc[step, "violated"] > 0


def test_a_random_run_merges_models_that_were_made_since_the_task_began() -> None:
    trace = random_run(3, rounds=60)
    for t, task in enumerate(trace.tasks):
        mixed = task.alpha * task.nexts[-1] + (1 - task.alpha) * trace.models[t]
        np.testing.assert_allclose(mixed, trace.models[t + 1], rtol=1e-12)
        if task.slot:
            assert any((task.fresh == w).all() for w in trace.models[: t + 1])
            blended = (1 - task.beta) * task.before + task.beta * task.fresh
            np.testing.assert_allclose(task.points[task.slot], blended, rtol=1e-12)
    assert sum(task.slot > 0 for task in trace.tasks) > 30


def test_e13_the_printed_number_of_gradients_is_too_small() -> None:
    problem = Problem(1.0, 0.0, 0.0)
    for epochs in (2, 3, 5):
        rounds, lr = epochs**6, epochs**-3.0
        arguments = {"alpha_min": 1.0, "staleness_bound": 1, "epochs_min": epochs, "epochs_max": epochs}
        assert printed_bound(1.0, problem, **arguments) == pytest.approx(2 / epochs**3)
        derived = corrected_bound(
            1.0, problem, lr=lr, weights=[1.0] * rounds, epochs=[epochs] * rounds, beta_max=0.0, drift=0.0
        )
        assert derived == pytest.approx(2 / epochs**4) == pytest.approx(2 / (lr * rounds * epochs))


ONE = Problem(1, 1, 1)
RATES = {"lr": 1, "beta_max": 0}
test_an_argument_out_of_range_is_named = refuses(
    ValueError,
    (lambda: Problem(0, 1, 1), "smoothness"),
    (lambda: Problem(1, -1, 1), "gradient"),
    (lambda: Problem(1, 1, -1), "deviation"),
    (lambda: printed_bound(1, ONE, alpha_min=0.5, staleness_bound=0, epochs_min=1, epochs_max=1), "staleness_bound"),
    (lambda: corrected_bound(1, ONE, **RATES, weights=[], epochs=[], drift=0), "weights"),
    (lambda: corrected_bound(1, ONE, **RATES, weights=[0.0], epochs=[1], drift=0), "weights"),
    (lambda: corrected_bound(1, ONE, **RATES, weights=[0.5], epochs=[0], drift=0), "epochs"),
    (lambda: drift_bound(ONE, **RATES, alpha_max=1, staleness_bound=0, epochs_max=1), "staleness_bound"),
    (lambda: printed_drift(ONE, lr=-1, alpha=1, staleness=1, epochs=1), "lr"),
    match="^{} = ",
)


# The schedule


def test_the_schedule_is_that_of_the_simulator() -> None:
    zeros = np.zeros((100, 1))
    task, world = Quadratic(zeros + 1, zeros, np.zeros(1)), World.named("fedasmu", devices=100)
    run = runs.simulate(FedASMUFA(), world, task, updates=600, every_updates=600, lr=0.05, epochs=5)
    simulated, played = np.array(run.history.updates["staleness"]) + 1, arrivals(600)
    assert simulated[100:].mean() == pytest.approx(played["staleness"][100:].mean(), rel=0.06)
    assert run.history.updates["seconds"][-1] == pytest.approx(played["seconds"].iloc[-1], rel=0.1)


# Slots


@pytest.mark.parametrize("sampled", [False, True])
def test_at_the_papers_rate_the_meta_model_stays_uniform_and_at_a_large_one_it_moves(sampled) -> None:
    toy = SlotToy()
    for lr, least, most in ((0.001, 0.0, 0.002), (1.0, 0.02, 1.0)):
        found = meta_probabilities(toy, 30, lr, 0, sampled=sampled)
        assert found.shape == (31, 4)
        np.testing.assert_allclose(found.sum(1), 1)
        assert least < abs(found - 0.25).max() < most


# What the claims take from simulations


def test_a_merge_of_weight_zero_leaves_an_upload_where_its_twin_is() -> None:
    scale = matched_lambda(100, theory.PARALLEL)
    run = theory.simulate(theory.quadratics()[2], theory.Paired(lambda_0=scale, gamma_0=0.0, lr_gamma=0.0), 100)
    found = np.array(run.server.state["distances"])
    assert len(found) > 30
    np.testing.assert_allclose(found[:, 0], found[:, 1], rtol=1e-5)


# Formulas of the chapter: gradients, and errors of directions that are kept


def test_d3_an_update_is_the_mean_gradient_on_the_way_and_with_a_merge_it_needs_the_jump() -> None:
    w, gradients = torch.tensor([1.0, -2.0], dtype=torch.float64), []
    start, jump = w, torch.tensor([0.3, 0.1], dtype=torch.float64)
    for step in range(4):
        w = w + jump if step == 2 else w
        gradients.append(w**3)
        w = w - 0.01 * gradients[-1]
    torch.testing.assert_close(grad_estimate(start, w, 0.01, 4, jump), torch.stack(gradients).mean(0))


@given(seed=st.integers(0, 10**6), size=st.integers(0, 300), exponent=st.integers(-40, 6))
def test_half_precision_stays_within_its_bound_at_every_scale(seed, size, exponent) -> None:
    vector, direction = pair(size, seed, 10.0**exponent)
    kept = to_half(direction)
    assert kept.values.dtype == torch.float16
    error = abs(half_product(vector, kept) - float(vector @ direction))
    assert error <= half_error(vector, direction) * (1 + 1e-9)


def test_half_precision_of_the_smallest_numbers_is_finite() -> None:
    for dtype, largest in ((torch.float32, 1e-40), (torch.float64, 1e-310)):
        direction = torch.tensor([largest, -largest / 3], dtype=dtype)
        kept = to_half(direction)
        assert kept.values.isfinite().all()
        vector = torch.tensor([1e30, 2e30], dtype=dtype)
        assert abs(half_product(vector, kept) - float(vector @ direction)) <= half_error(vector, direction) * 1.001
