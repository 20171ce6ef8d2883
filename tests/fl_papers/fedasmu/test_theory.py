"""What the chapter on FedASMU computes: the proof's steps, the schedule, the slots, the controls."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fl_core.algorithms import FedASMUFA
from fl_core.formulas.fedasmu import blend, half_product, matched_lambda, sketch, to_half
from fl_core.runtime import Budget, Evaluation, LocalTraining, Simulation
from fl_core.tasks import Quadratic
from fl_core.world import World
from fl_papers.fedasmu import theory
from fl_papers.fedasmu.theory import (
    Problem,
    SlotToy,
    arrivals,
    control_log,
    control_run,
    corrected_bound,
    corrected_theorem,
    drift_bound,
    grad_estimate,
    half_error,
    meta_probabilities,
    one_reporter,
    pairs,
    printed_bound,
    printed_drift,
    proof_steps,
    random_run,
    sketch_error,
    table_slots,
    tug,
)

# The theorem


def test_every_valid_step_of_the_proof_holds_and_nearly_fails_where_it_is_an_identity() -> None:
    found = proof_steps(range(2), rounds=100).set_index("step")
    assert set(found.index) == set(theory.STEPS)
    assert found["violated"].sum() == 0
    assert found["inequalities"].min() > 100
    assert abs(found.loc["2", "largest excess"]) < 1e-12


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


def test_d11_the_corrected_theorem_holds_in_each_round_and_in_all_and_its_drift_is_bounded() -> None:
    found = corrected_theorem(range(8))
    assert found["rounds violated"].sum() == 0
    assert (found["mean of |grad F|²"] <= found["bound"]).all()
    assert (found["D"] <= found["bound of D"]).all()
    assert np.isfinite(found["bound of D"]).all()
    far = {"lr": 0.05, "alpha_max": 0.3, "beta_max": 0.3, "staleness_bound": 5, "epochs_max": 4}
    assert drift_bound(Problem(2.0, 5.0, 20.0), **far) == math.inf


def test_e13_the_counterexample_and_the_drift() -> None:
    found = one_reporter((3, 4, 5, 10, 20))
    np.testing.assert_allclose(found["|grad F|²"], 0.0025)
    np.testing.assert_allclose(found["printed"], [0.002933, 0.001727, 0.001162, 0.000365, 0.000129], atol=5.1e-7)
    assert list(found["printed"] < found["|grad F|²"]) == [False, True, True, True, True]
    assert (found["corrected"] > 0.0025).all()
    assert tug(0.3).set_index("versions").loc[1].tolist() == pytest.approx([1.11, 0.6])
    assert tug(0.3).set_index("versions").loc[2].tolist() == pytest.approx([1.797, 0.9])
    assert tug(0.5).set_index("versions").loc[1].tolist() == pytest.approx([2.75, 1.0])
    assert printed_drift(Problem(1.0, 1.0, 0.0), lr=1.0, alpha=0.3, staleness=1, epochs=1) == 0.3


def test_e13_no_constants_repair_the_printed_bound() -> None:
    large = printed_bound(
        0.0, Problem(0.1, 0.1, 0.0025), alpha_min=1.0, staleness_bound=1, epochs_min=10**9, epochs_max=10**9,
        constants=[1e3] * 5,
    )  # fmt: skip
    assert large < 0.0025 / 2


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


@pytest.mark.parametrize(
    ("function", "wrong", "name"),
    [
        (Problem, {"smoothness": 0}, "smoothness"),
        (Problem, {"gradient": -1}, "gradient"),
        (Problem, {"deviation": -1}, "deviation"),
        (printed_bound, {"staleness_bound": 0}, "staleness_bound"),
        (corrected_bound, {"weights": [], "epochs": []}, "weights"),
        (corrected_bound, {"weights": [0.0]}, "weights"),
        (corrected_bound, {"epochs": [0]}, "epochs"),
        (drift_bound, {"staleness_bound": 0}, "staleness_bound"),
        (printed_drift, {"lr": -1}, "lr"),
    ],
)
def test_an_argument_out_of_range_is_named(function, wrong, name) -> None:
    one = Problem(1, 1, 1)
    valid = {
        Problem: {"smoothness": 1, "gradient": 1, "deviation": 1},
        printed_bound: {"initial_gap": 1, "problem": one, "alpha_min": 0.5, "staleness_bound": 1, "epochs_min": 1,
                        "epochs_max": 1},
        corrected_bound: {"initial_gap": 1, "problem": one, "lr": 1, "weights": [0.5], "epochs": [1], "beta_max": 0,
                          "drift": 0},
        drift_bound: {"problem": one, "lr": 1, "alpha_max": 1, "beta_max": 0, "staleness_bound": 1, "epochs_max": 1},
        printed_drift: {"problem": one, "lr": 1, "alpha": 1, "staleness": 1, "epochs": 1},
    }[function]  # fmt: skip
    function(**valid)
    with pytest.raises(ValueError, match=f"^{name} = "):
        function(**(valid | wrong))


# The schedule


def test_e06_e17_the_paper_schedule_has_the_stated_staleness() -> None:
    found = arrivals(5000)
    own = found.loc[found["between"] >= 0, "between"]
    assert found["used"].all()
    assert len(found) == 5000
    assert found["staleness"].mean() == pytest.approx(9.86, abs=0.1)
    assert found["staleness"].max() < 30
    assert own.mean() == pytest.approx(88.7, abs=2)
    assert (own == 0).mean() == pytest.approx(0.012, abs=0.006)


def test_the_schedule_is_that_of_the_simulator() -> None:
    zeros = np.zeros((100, 1))
    run = Simulation(
        Quadratic(zeros + 1, zeros, np.zeros(1)), World.named("fedasmu", devices=100), FedASMUFA(),
        budget=Budget(updates=600), training=LocalTraining(lr=0.05, epochs=5), seed=0,
        evaluation=Evaluation(every_updates=600),
    )  # fmt: skip
    run.run("sequential")
    simulated, played = np.array(run.history.updates["staleness"]) + 1, arrivals(600)
    assert simulated[100:].mean() == pytest.approx(played["staleness"][100:].mean(), rel=0.06)
    assert run.history.updates["seconds"][-1] == pytest.approx(played["seconds"].iloc[-1], rel=0.1)


def test_a_bound_on_staleness_drops_uploads_without_a_version() -> None:
    found = arrivals(800, staleness_bound=8)
    assert found["used"].sum() == 800 < len(found)
    assert (found.loc[~found["used"], "staleness"] > 8).all()


# Slots


def test_the_toy_has_its_best_reward_inside_and_its_best_upload_at_the_end() -> None:
    toy = SlotToy()
    np.testing.assert_allclose(toy.rewards(), [0.2109, 0.2443, 0.2201, 0.1858], atol=5e-5)
    assert toy.uploads().argmin() == toy.slots - 1
    assert toy.merged(0) == 1
    rng = np.random.default_rng(0)
    assert np.mean([toy.draw(2, rng) for _ in range(2000)]) == pytest.approx(toy.rewards()[1], abs=2e-3)


def test_a_table_learns_from_centred_rewards_and_in_the_long_run_from_any() -> None:
    toy = SlotToy()
    late = {
        shift: np.mean([np.array(table_slots(toy, 50, 0.1, seed, shift=shift))[30:] == 2 for seed in range(60)])
        for shift in (0.0, float(toy.rewards().mean()))
    }
    assert min(late.values()) < 0.3 < 0.6 < max(late.values())
    assert np.mean(np.array(table_slots(toy, 8000, 0.1, 0))[-2000:] == 2) > 0.7


@pytest.mark.parametrize("sampled", [False, True])
def test_at_the_papers_rate_the_meta_model_stays_uniform_and_at_a_large_one_it_moves(sampled) -> None:
    toy = SlotToy()
    for lr, least, most in ((0.001, 0.0, 0.002), (1.0, 0.02, 1.0)):
        found = meta_probabilities(toy, 30, lr, 0, sampled=sampled)
        assert found.shape == (31, 4)
        np.testing.assert_allclose(found.sum(1), 1)
        assert least < abs(found - 0.25).max() < most


# Controls


def test_e15_products_are_negative_and_are_those_of_the_recorded_vectors() -> None:
    run = control_run(120, {"lr_iota": 0.1})
    products = control_log(run)["inner_product"].dropna()
    assert (products < 0).mean() > 0.9
    np.testing.assert_allclose([float(g @ d) for g, d in pairs(run)], products, rtol=1e-9)


# What the claims take from simulations


def test_a_merge_of_weight_zero_leaves_an_upload_where_its_twin_is() -> None:
    scale = matched_lambda(100, theory.PARALLEL)
    run = theory.simulate(theory.quadratics()[2], theory.Paired(lambda_0=scale, gamma_0=0.0, lr_gamma=0.0), 100)
    found = np.array(run.server.state["distances"])
    assert len(found) > 30
    np.testing.assert_allclose(found[:, 0], found[:, 1], rtol=1e-5)


def test_a_step_by_the_derived_gradients_always_helps_and_by_the_printed_ones_hardly_ever() -> None:
    derived, wrong = (theory.steps_of_the_controls(form) for form in ("derived", "printed"))
    assert (derived["after"] < derived["before"]).all()
    assert (wrong["after"] > wrong["before"]).mean() > 0.95


# Formulas of the chapter: gradients, and errors of directions that are kept


class Bowl:
    """A random quadratic with its gradient, and two random models."""

    def __init__(self, seed: int, size: int = 7) -> None:
        rng = torch.Generator().manual_seed(seed)
        root = torch.randn(size, size, generator=rng, dtype=torch.float64)
        self.hessian = root @ root.T / size + torch.eye(size, dtype=torch.float64)
        self.centre, self.model, self.other = torch.randn(3, size, generator=rng, dtype=torch.float64)

    def loss(self, x: torch.Tensor) -> torch.Tensor:
        return 0.5 * (x - self.centre) @ self.hessian @ (x - self.centre)

    def gradient(self, x: torch.Tensor) -> torch.Tensor:
        return self.hessian @ (x - self.centre)


def test_d3_the_update_of_a_device_is_its_mean_gradient_and_with_a_merge_it_needs_the_jump() -> None:
    bowl, lr = Bowl(3), 0.01
    w, gradients, jump = bowl.model.clone(), [], torch.zeros(7, dtype=torch.float64)
    for step in range(6):
        if step == 3:
            merged = blend(w, bowl.other, 0.15)
            jump, w = merged - w, merged
        gradients.append(bowl.gradient(w))
        w = w - lr * gradients[-1]
    mean = torch.stack(gradients).mean(0)
    np.testing.assert_allclose(grad_estimate(bowl.model, w, lr, 6, jump), mean, atol=1e-12)
    plain = grad_estimate(bowl.model, w, lr, 6)
    true = bowl.gradient(bowl.model)
    cosine = torch.nn.functional.cosine_similarity
    assert cosine(grad_estimate(bowl.model, w, lr, 6, jump), true, 0) > 0.99 > cosine(plain, true, 0)


def pair(size: int, seed: int, scale: float = 1.0, correlation: float = 0.0) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    vector = rng.normal(size=size)
    direction = scale * (rng.standard_cauchy(size=size) + correlation * vector)
    return torch.from_numpy(vector), torch.from_numpy(direction)


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


@pytest.mark.parametrize("correlation", [0.0, 1.0])
def test_a_sketch_is_unbiased_and_has_the_stated_deviation(correlation) -> None:
    vector, direction = pair(400, 1, correlation=correlation)
    direction = direction.clamp(-5, 5)
    size, seeds = 32, 2000
    products = np.array([float(sketch(vector, size, s) @ sketch(direction, size, s)) for s in range(seeds)])
    exact, deviation = float(vector @ direction), sketch_error(vector, direction, size)
    assert abs(products.mean() - exact) < 4 * deviation / seeds**0.5
    assert products.std() == pytest.approx(deviation, rel=0.1)
    assert deviation <= float(vector.norm() * direction.norm()) * (2 / size) ** 0.5
