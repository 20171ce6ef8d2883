"""FedAsync's theorems: the steps of the proofs, printed and repaired bounds, what is wrong in print."""

from __future__ import annotations

import heapq
import itertools
import math
from functools import partial

import numpy as np
import pytest
import sympy as sp
from hypothesis import given
from hypothesis import strategies as st

from fl_core.formulas.checks import inequalities, violations
from fl_core.formulas.fedasync import alpha_t
from fl_core.formulas.staleness import Constant, Exponential, Hinge, Linear, Polynomial
from fl_papers.fedasync.theory import (
    ToyLogistic,
    ToyQ,
    ToyW,
    adaptive_rate,
    beta,
    contraction_root,
    delta_characteristic,
    delta_stability_threshold,
    derived_bound,
    iterate,
    local_factor,
    max_stable_lr,
    mixing_characteristic,
    oldest_versions,
    printed_bound,
    prox_gradient,
    q_option1,
    q_option2,
    residual,
    residual_tight,
    sampled_versions,
    spectral_radius,
    stationary_error,
    theorem2_chains,
    theorem2_constants,
    total_staleness,
)

close = partial(pytest.approx, rel=1e-10)
toy_q, toy_w = ToyQ(), ToyW()
MU, V1 = toy_q.strong_convexity, toy_q.grad_deviation_bound


# Constants and bounds: oracles


def test_toy_q_has_the_constants_of_the_specification() -> None:
    assert (MU, toy_q.smoothness, V1) == (1, 5, close(7.33))
    assert toy_q.optimum.tolist() == close([0, 0])
    assert toy_q.errors(toy_q.second_moments([], [], 5)).tolist() == close([14.5])


def test_o8_theorem_one() -> None:
    q = q_option1(0.1, 1, 10)
    assert q == close(0.3486784401)
    assert beta(0.6, q) == close(0.60920706406)
    assert residual(0.1, 1, 7.33, 40) == close(236.65)
    assert printed_bound(20, 14.5, beta(0.6, q), residual(0.1, 1, 7.33, 40)) == close(236.63898600363868)
    assert residual_tight(q, 1, 7.33, 40) < residual(0.1, 1, 7.33, 40)


def test_o9_the_repaired_theorem() -> None:
    q = 0.9**10
    rates = [contraction_root(0.6, q, age) for age in (1, 4, 16)]
    assert rates == close([0.60920706406, 0.8034166658302526, 0.9388713437298739])
    assert [derived_bound(20, 14.5, rate, 1, 7.33) for rate in rates] == close(
        [3.6655371895141777, 3.8010334281880827, 6.733672842039983]
    )
    poly = Polynomial(a=0.5)
    roots = [contraction_root(0.6 * poly(d), 0.9**5, d + 1) for d in range(4)]
    assert roots == close([0.754294, 0.8652687411697899, 0.9039311283741824, 0.9243196278817816])
    assert adaptive_rate(0.6, 0.9**5, 4, poly) == roots[3]
    assert adaptive_rate(0.6, q, 4) == rates[1]


def test_o10_theorem_two() -> None:
    q = q_option2(0.1, 6, 5, 10)
    constants = theorem2_constants(0.1, 6, 5, 0.64, 50)
    assert q == close(0.5987369392383787)
    assert beta(0.6, q) == close(0.7592421635430272)
    assert constants == close((1080.064, 22226.28, 444525.6))
    assert printed_bound(10, 4.5, beta(0.6, q), constants.residual) == close(416231.52104179043)


def test_o11_exact_expectation_on_toy_q() -> None:
    moments = toy_q.second_moments([0.6] * 20, oldest_versions(20, 4), 5)
    error = toy_q.errors(moments)
    assert error[[0, 1, 2, 5, 10, 20]].tolist() == close(
        # t = 0, 1, 2, 5, 10, 20
        [
            14.5,
            4.4390041335956205,
            2.4286695133405196,
            1.3206486791308187,
            0.5221151062835727,
            0.19700335418572884,
        ]
    )
    v2 = V1 + toy_q.grad_norms(moments).max()
    assert v2 == close(116.33)
    q = q_option1(0.1, 1, 5)
    assert printed_bound(20, 14.5, beta(0.6, q), residual(0.1, 1, V1, v2)) == close(616.1536221804319)
    rate = contraction_root(0.6, q, 4)
    assert rate == close(0.894695533740014)
    assert derived_bound(20, 14.5, rate, 1, V1) == close(4.835399973415404)


def test_o11_agrees_with_simulation() -> None:
    """The moment recursion against 20 000 simulated runs."""
    rng = np.random.default_rng(0)
    runs, versions = 20_000, oldest_versions(10, 4)
    curvatures, centres = np.array(toy_q.curvatures), np.array(toy_q.centres)
    models = [np.tile(toy_q.start, (runs, 1))]
    for tau in versions:
        x, mine = models[tau], centres[rng.integers(len(centres), size=runs)]
        for _ in range(5):
            noise = rng.normal(0, math.sqrt(toy_q.noise_variance), x.shape)
            x = x - toy_q.lr * (curvatures * (x - mine) - noise)
        models.append(0.4 * models[-1] + 0.6 * x)
    simulated = [(curvatures * m**2).sum(axis=1).mean() / 2 for m in models]
    exact = toy_q.errors(toy_q.second_moments([0.6] * 10, versions, 5))
    assert simulated == pytest.approx(exact.tolist(), rel=0.03)


def test_o12_stationary_error() -> None:
    p = local_factor(1.0, 0.1, 10)
    assert [stationary_error(alpha, 1, p, 1) for alpha in (0.9, 0.5, 0.1)] == close(
        [0.20730832175510322, 0.09725053801829803, 0.016831163996972025]
    )


def test_o17_stability_thresholds() -> None:
    assert [delta_stability_threshold(age) for age in (1, 4, 16)] == close(
        [2, 0.4450418679126288, 0.10129833767742542]
    )


# D2: mixing and the delta form


def test_d2_mixing_is_stable_for_every_staleness() -> None:
    radii = [
        spectral_radius(mixing_characteristic(alpha, q, age))
        for age in (1, 2, 4, 8, 16)
        for alpha in np.linspace(0.05, 0.95, 7)
        for q in np.linspace(-0.95, 0.95, 7)
    ]
    assert max(radii) == pytest.approx(0.99855, abs=5e-6)


@pytest.mark.parametrize("age", [1, 2, 4, 8, 16])
def test_d2_the_delta_form_is_stable_up_to_its_threshold_only(age: int) -> None:
    step = delta_stability_threshold(age)
    assert spectral_radius(delta_characteristic(0.99 * step, 0.0, age)) < 1
    assert spectral_radius(delta_characteristic(1.01 * step, 0.0, age)) > 1


def test_d2_roots_describe_the_recursion() -> None:
    alpha, q, age = 0.3, 0.5, 4
    run = iterate(1.0, [alpha] * 400, oldest_versions(400, age), lambda x: q * x)
    assert run[400] / run[399] == pytest.approx(spectral_radius(mixing_characteristic(alpha, q, age)), rel=1e-9)
    x = [1.0] * age
    for _ in range(400):
        x.append(x[-1] - alpha * (1 - q) * x[-age])
    growth = max(map(abs, x[-20:])) ** (1 / 400)
    assert growth == pytest.approx(spectral_radius(delta_characteristic(alpha, q, age)), rel=0.02)


@given(
    st.sampled_from([Constant(), Linear(a=0.5), Polynomial(), Exponential(a=0.3), Hinge(a=10, b=4)]),
    st.integers(1, 12),
    st.floats(-0.95, 0.95),
    st.integers(0, 1000),
)
def test_d2_mixing_contracts_at_random_ages_with_every_function(weight, age: int, q: float, seed: int) -> None:
    versions = sampled_versions(60, age, np.random.default_rng(seed))
    alphas = [alpha_t(0.9, t, t - 1 - tau, weight) for t, tau in enumerate(versions, start=1)]
    run = np.abs(iterate(1.0, alphas, versions, lambda x: q * x))
    shrink = 1 - 0.9 * weight(age - 1) * (1 - abs(q))
    assert np.all(run <= shrink ** (np.arange(61) // age) + 1e-12)


def test_d2_staleness_functions_save_the_delta_form_only_if_they_fall_fast() -> None:
    def unstable(weight) -> list[int]:
        forms = ((age, delta_characteristic(0.9 * weight(age - 1), 0.05, age)) for age in range(1, 65))
        return [age for age, form in forms if spectral_radius(form) > 1]

    assert unstable(Constant()) == list(range(3, 65))
    assert unstable(Linear(a=0.5)) == list(range(18, 65))
    assert unstable(Polynomial()) == list(range(5, 65))
    assert unstable(Hinge(a=10, b=4)) == [3, 4, 5]
    assert unstable(Exponential(a=0.3)) == []


def test_d2_the_delta_form_diverges_at_random_ages_where_mixing_does_not() -> None:
    versions = sampled_versions(200, 16, np.random.default_rng(0))
    added = [1.0]
    for tau in versions:
        added.append(added[-1] - 0.855 * added[tau])
    assert abs(added[-1]) > 10
    assert abs(iterate(1.0, [0.9] * 200, versions, lambda x: 0.05 * x)[-1]) < 1e-9


# D5: Theorem 1, step by step


def test_d5_step_2_is_an_identity() -> None:
    n, m, inner, lr, L = sp.symbols("n m inner gamma L")  # n = |grad F|^2, m = |g|^2, inner = <grad F, g>
    left = -lr * inner + L * lr**2 / 2 * m
    right = -lr / 2 * n + lr / 2 * (n - 2 * inner + m) - lr / 2 * (1 - L * lr) * m
    assert sp.expand(left - right) == 0


def test_d5_steps_1_and_4_on_quadratics_between_mu_and_l() -> None:
    rng = np.random.default_rng(1)
    a = rng.uniform(0.5, 4, size=(2000, 6))
    x, g = rng.normal(size=(2, 2000, 6))
    mu, L = a.min(axis=1), a.max(axis=1)
    lr = rng.uniform(0, 1, 2000) / L

    def f(x: np.ndarray) -> np.ndarray:
        return (a * x**2).sum(axis=1) / 2

    gradient = a * x
    descent = f(x) - lr * (gradient * g).sum(axis=1) + L * lr**2 / 2 * (g**2).sum(axis=1)
    assert np.all(f(x - lr[:, None] * g) <= descent + 1e-12)
    assert np.all((gradient**2).sum(axis=1) >= 2 * mu * f(x) - 1e-12)


def test_d5_steps_5_and_12_telescope() -> None:
    b, c, x0 = sp.symbols("b c x0", positive=True)
    x = x0
    for _ in range(6):
        x = b * x + c
    assert sp.expand(x - (b**6 * x0 + c * sum(b**h for h in range(6)))) == 0
    assert sp.simplify(sum(b**h for h in range(6)) - (1 - b**6) / (1 - b)) == 0


@given(st.floats(1e-4, 0.999), st.integers(1, 200))
def test_d5_step_12_needs_one_local_step(product: float, steps: int) -> None:
    assert 1 - q_option1(product, 1.0, steps) >= product - 1e-15


# D7: Theorem 1', with staleness in the rate (on the toys: tests/experiments/test_fedasync_theory.py)


def test_d7_the_rate_lies_between_beta_and_its_root() -> None:
    rng = np.random.default_rng(3)
    for alpha, q, age in zip(
        rng.uniform(0.001, 1, 20_000), rng.uniform(0, 0.999, 20_000), rng.integers(1, 65, 20_000), strict=True
    ):
        rate, b = contraction_root(alpha, q, int(age)), beta(alpha, q)
        assert b - 1e-12 <= rate <= b ** (1 / age) + 1e-12 < 1 + 1e-12
        assert abs(rate**age - (1 - alpha) * rate ** (age - 1) - alpha * q) < 1e-12


@pytest.mark.parametrize("age", [1, 2, 64])
def test_d7_the_root_at_the_ends_of_its_range(age: int) -> None:
    assert contraction_root(0.5, 0.0, age) == close(0.5)
    assert contraction_root(1.0, 0.3, age) == close(0.3 ** (1 / age))
    assert contraction_root(1.0, 0.0, age) == 0
    assert contraction_root(1e-6, 0.999, age) < 1


def test_d7_larger_alpha_is_faster_and_staleness_slower() -> None:
    rates = [contraction_root(alpha, 0.35, 4) for alpha in (0.2, 0.4, 0.6, 0.8, 1.0)]
    assert rates == sorted(rates, reverse=True)
    rates = [contraction_root(0.6, 0.35, age) for age in range(1, 65)]
    assert rates == sorted(rates)
    assert rates[-1] < 1


# D8: Theorem 2, step by step on toy W


SETTINGS = [(1, 0.9, 5), (4, 0.6, 10), (16, 0.9, 3)]


@pytest.mark.parametrize("x0", [1.0, 2.0, 3.0])
@pytest.mark.parametrize(("age", "alpha", "steps"), SETTINGS)
def test_d8_every_inequality_holds_on_toy_w(x0: float, age: int, alpha: float, steps: int) -> None:
    chains = theorem2_chains(toy_w, x0, alpha, oldest_versions(60, age), steps)
    assert [name[0] for name in chains] == list("12345677899")
    assert chains["5 one step"][0].shape == (60, steps)
    assert inequalities(chains) == 60 * (10 * steps + 10) + 61
    assert violations(chains) == 0


@pytest.mark.parametrize(
    ("wrong", "step"), [(ToyW(weak_convexity=3.0), "3 local drift"), (ToyW(smoothness=1.0), "1 descent")], ids=str
)
def test_d8_the_chains_break_for_wrong_constants(wrong: ToyW, step: str) -> None:
    """The wave is weakly convex with 5, not 3, and smooth with 7, not 1; near its ridge this shows."""
    chains = theorem2_chains(wrong, 1.6, 0.9, oldest_versions(60, 4), 5)
    assert violations({step: chains[step]}) > 0


def test_d8_gamma_cancels_in_c2() -> None:
    lr, rho, r, v1, v2 = sp.symbols("gamma rho r V1 V2", positive=True)
    c1, c2, end = theorem2_constants(lr, rho, sp.Integer(0), v1, v2)
    expanded = 2 * v1 / r + 12 * rho**2 * v2 / r**3 + 2 * rho * v2 / r**2 + v2 / (2 * r)
    assert sp.simplify(c2 - expanded.subs(r, rho)) == 0
    assert sp.simplify(c1 - lr * v1 - 6 * lr * v2) == 0
    assert sp.simplify(end - 2 * c2 / (lr * rho)) == 0


def test_toy_w_has_the_constants_of_the_specification() -> None:
    x = sp.Symbol("x", real=True)
    F = x**2 / 2 + 3 * sp.sin(x) ** 2
    assert sp.simplify(sp.diff(F, x) - (x + 3 * sp.sin(2 * x))) == 0
    assert sp.simplify(sp.diff(F, x, 2) - (1 + 6 * sp.cos(2 * x))) == 0
    assert toy_w.smoothness == 1 + 6
    assert -toy_w.weak_convexity == 1 - 6
    assert toy_w.gradient(toy_w.local_minimum) == pytest.approx(0, abs=1e-6)
    assert toy_w.loss(toy_w.local_minimum) == pytest.approx(4.17690, abs=5e-6)
    assert toy_w.local_minimum == pytest.approx(2.61298, abs=5e-6)
    assert toy_w.local_maximum == pytest.approx(1.91751, abs=1e-5)
    assert toy_w.gradient(toy_w.local_maximum) == pytest.approx(0, abs=1e-12)
    assert 1 + 6 * math.cos(2 * toy_w.local_maximum) < 0 < 1 + 6 * math.cos(2 * toy_w.local_minimum)


def test_toy_w_gradient_bound_is_attained_at_the_ends_of_the_range() -> None:
    visited, grid = np.array([-0.5, 1.0, 2.5]), np.linspace(-0.5, 2.5, 301)
    pairs = [(x, anchor) for x in (*visited, 0.0) for anchor in grid]
    largest = max(abs(toy_w.gradient(x) + sign * 0.8 + 6 * (x - anchor)) for x, anchor in pairs for sign in (-1, 1))
    assert toy_w.grad_second_moment_bound(visited, 0.8) == close(largest**2)


# D9, D11


@pytest.mark.parametrize("alpha", [0.9, 0.5, 0.2, 0.05, 0.01])
def test_d9_stationary_error_is_the_limit_of_the_exact_recursion(alpha: float) -> None:
    two = ToyQ(curvatures=(1.0,), centres=((1.0,), (-1.0,)), noise_variance=0.0, start=(0.0,))
    p = local_factor(1.0, two.lr, 10)
    moment = 0.0
    for _ in range(5000):
        moment = (1 - alpha + alpha * p) ** 2 * moment + alpha**2 * (1 - p) ** 2
    assert stationary_error(alpha, 1, p, 1) == pytest.approx(moment / 2, abs=1e-15)
    steps = 400 if alpha > 0.1 else 50
    short = two.errors(two.second_moments([alpha] * steps, list(range(steps)), 10))
    expected = stationary_error(alpha, 1, p, 1) * (1 - (1 - alpha * (1 - p)) ** (2 * np.arange(steps + 1)))
    assert short == pytest.approx(expected, rel=1e-9, abs=1e-15)


@pytest.mark.parametrize(("ages", "alpha"), [(2, 0.9), (4, 0.3), (16, 0.6)])
def test_d9_with_random_ages_is_where_long_runs_end(ages: int, alpha: float) -> None:
    runs = [toy_q.run(alpha, sampled_versions(300, ages, np.random.default_rng(seed)), 10) for seed in range(6)]
    ends = [run.errors[-150:].mean() for run in runs]
    assert np.mean(ends) == pytest.approx(toy_q.stationary_error(alpha, 10, ages), rel=0.02)


def test_d9_on_toy_q_is_the_limit_of_its_recursion() -> None:
    for alpha in (0.2, 0.9):
        end = toy_q.run(alpha, oldest_versions(300, 1), 5).errors[-1]
        assert toy_q.stationary_error(alpha, 5) == close(end)


def test_d9_error_falls_in_proportion_to_alpha() -> None:
    alpha, a, p, variance = sp.symbols("alpha a p Var", positive=True)
    pull = alpha * (1 - p)
    form = a / 2 * pull**2 * variance / (1 - (1 - pull) ** 2)
    assert sp.simplify(sp.limit(form / alpha, alpha, 0) - a * (1 - p) * variance / 4) == 0
    assert stationary_error(0.3, 2, 0.4, 1.5) == close(float(form.subs({alpha: 0.3, a: 2, p: 0.4, variance: 1.5})))


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(0, 40))
def test_d11_staleness_is_conserved(durations: list[int], updates: int) -> None:
    """Devices of any speed, always all busy: completed plus pending staleness is (M - 1) N."""
    heap = [(duration, device, 0) for device, duration in enumerate(durations)]
    heapq.heapify(heap)
    completed = 0
    for version in range(updates):
        now, device, tau = heapq.heappop(heap)
        completed += version - tau
        heapq.heappush(heap, (now + durations[device], device, version + 1))
    pending = sum(updates - tau for _, _, tau in heap)
    assert completed + pending == total_staleness(len(durations), updates)


def test_d11_on_the_timeline_of_three_workers() -> None:
    assert total_staleness(3, 12) == 19 + (1 + 0 + 4)


# What the paper prints and what is true


def test_e1_h_max_is_bounded_only_by_a_hidden_assumption() -> None:
    def printed(steps: int) -> float:
        return steps * 0.1 * 1 / 2

    exact = 0.1 / 2 * sum(0.9**h for h in range(50))
    limit = 1 / (2 * 1)
    assert printed(50) == close(2.5)
    assert exact == pytest.approx(0.4974, abs=5e-5)
    assert exact <= limit
    assert next(steps for steps in range(1, 100) if printed(steps) > limit + 1e-12) == 11
    assert printed(11) == close(0.55)


def test_e2_no_bound_on_gradients_fits_a_strongly_convex_function() -> None:
    for v2 in (1.0, 100.0, 1e6):
        far = toy_q.optimum + np.array([1.01 * math.sqrt(v2) / MU, 0])
        assert np.sum((np.array(toy_q.curvatures) * (far - toy_q.optimum)) ** 2) > v2


def test_e3_no_bound_on_regularised_gradients_fits_every_anchor() -> None:
    for v2 in (1.0, 100.0, 1e6):
        anchor = 1.01 * math.sqrt(v2) / toy_w.prox_rho
        assert prox_gradient(toy_w.gradient(0.0), 0.0, anchor, toy_w.prox_rho) ** 2 > v2


def test_e4_on_toy_q() -> None:
    moments = toy_q.second_moments([0.6] * 20, oldest_versions(20, 4), 5)
    true, start = toy_q.errors(moments)[[20, 0]]
    q, v2 = q_option1(0.1, 1, 5), V1 + toy_q.grad_norms(moments).max()
    printed = printed_bound(np.arange(21), start, beta(0.6, q), residual(0.1, 1, V1, v2))
    assert np.all(np.diff(printed) > 0)
    assert (true, printed[20], start) == (
        pytest.approx(0.1970, abs=5e-5),
        pytest.approx(616.15, abs=5e-3),
        14.5,
    )
    assert derived_bound(20, start, contraction_root(0.6, q, 4), 1, V1) < start


def test_e5_the_limit_of_the_theorem_does_not_depend_on_alpha() -> None:
    x, alpha, q, c = sp.symbols("X alpha q c", positive=True)
    (limit,) = sp.solve(sp.Eq(x, beta(alpha, q) * x + alpha * c), x)
    assert sp.simplify(limit - c / (1 - q)) == 0
    p = local_factor(1.0, 0.1, 10)
    errors = [stationary_error(alpha, 1, p, 1) for alpha in (0.9, 0.5, 0.2, 0.05, 0.01)]
    assert [round(error, 4) for error in errors] == [0.2073, 0.0973, 0.0348, 0.0083, 0.0016]


def test_e6_beta_is_no_rate_when_models_are_stale() -> None:
    run = iterate(1.0, [0.9] * 50, oldest_versions(50, 16), lambda x: x / 2)
    ratio = run[50] ** 2
    assert ratio == pytest.approx(4.57e-3, rel=2e-3)
    q = 0.5  # the theorem's factor for F, (1 - gamma mu)^H, although F itself shrinks by its square
    assert beta(0.9, q) ** 50 == pytest.approx(1.04e-13, rel=5e-3)
    assert contraction_root(0.9, q, 16) ** 50 == pytest.approx(0.116, abs=5e-4)
    assert beta(0.9, q) ** 50 < ratio < contraction_root(0.9, q, 16) ** 50


def test_e7_theorem_two_gets_the_effect_of_rho_wrong() -> None:
    a, rho, lr, steps, alpha = 0.1, 10.0, 0.1, 50, 0.9
    factor = local_factor(a, lr, steps, rho)
    true = ((1 - alpha + alpha * factor) ** 50) ** 2
    assert true == pytest.approx(0.4086, abs=5e-5)
    claimed = beta(alpha, q_option2(lr, rho, 0.0, steps))
    assert math.log10(claimed**50) == pytest.approx(-50, abs=0.01)
    rates = [q_option2(lr, rho, 0.0, steps) for rho in (1, 5, 10)]
    truths = [local_factor(a, lr, steps, rho) for rho in (1, 5, 10)]
    assert rates == sorted(rates, reverse=True)
    assert truths == sorted(truths)


def test_e8_theorem_two_admits_step_sizes_that_diverge() -> None:
    lr, rho, curvature = 0.199, 10.0, 1.0
    assert lr < min(1 / curvature, 2 / rho)  # the theorem's condition
    assert lr > max_stable_lr(curvature, rho)
    assert 1 - lr * (curvature + rho) == pytest.approx(-1.189, abs=5e-4)
    factor = local_factor(curvature, lr, 10, rho)
    run = iterate(1.0, [0.6] * 20, oldest_versions(20, 1), lambda x: x * factor)
    assert run[1] == pytest.approx(1.253, abs=1e-3)
    assert run[20] == pytest.approx(91.7, abs=0.1)


def test_e9_a_global_optimum_is_not_reached_from_the_wrong_valley() -> None:
    for (age, alpha, steps), x0 in itertools.product(SETTINGS, (1.0, 2.0, 3.0)):
        versions = oldest_versions(200, age)
        end = iterate(x0, [alpha] * 200, versions, partial(toy_w.local_model, steps=steps))[-1]
        assert end == pytest.approx(0 if x0 == 1 else toy_w.local_minimum, abs=5e-3)
    chains = theorem2_chains(toy_w, 3.0, 0.9, oldest_versions(200, 1), 5)
    assert chains["9 whole run"][1][-1] == pytest.approx(3.6e6, rel=0.01)
    chains = theorem2_chains(toy_w, 2.0, 0.9, oldest_versions(200, 1), 5)
    assert chains["9 whole run"][1][-1] == pytest.approx(2.2e6, rel=0.01)


def test_e22_the_printed_residual_grows_where_the_true_floor_falls() -> None:
    rates = (0.1, 0.01, 0.001)
    quiet = [ToyQ(lr=lr, centres=((0.0, 0.0),)).stationary_error(0.6, 5) for lr in rates]
    assert quiet == sorted(quiet, reverse=True)
    assert quiet[0] / quiet[2] == pytest.approx(100, rel=0.1)  # in proportion to gamma
    assert [residual(lr, 1, 0.08, 0.08) for lr in rates] == close([0.8, 8, 80])


# Refusals


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: q_option1(1.0, 1.0, 5), r"lr \* strong_convexity = 1.0; .* must be < 1"),
        (lambda: q_option1(0.1, 0.0, 5), r"strong_convexity = 0.0"),
        (lambda: q_option1(0.1, 1.0, 0), r"min_local_steps = 0"),
        (lambda: q_option2(0.1, 5.0, 5.0, 5), r"prox_rho = 5.0; prox_rho must be > weak_convexity = 5.0"),
        (lambda: q_option2(2.0, 6.0, 5.0, 5), r"lr = 2.0; lr must be < 2 / \(prox_rho - weak_convexity\)"),
        (lambda: beta(0.0, 0.5), r"alpha = 0.0; alpha must be in \(0, 1\]"),
        (lambda: beta(0.5, 1.0), r"q = 1.0; q must be in \[0, 1\)"),
        (lambda: residual(0.1, 1.0, -1.0, 1.0), r"grad_deviation_bound = -1.0"),
        (lambda: residual_tight(0.5, 1.0, 1.0, -1.0), r"grad_second_moment_bound = -1.0"),
        (lambda: printed_bound(-1, 1.0, 0.5, 1.0), r"num_updates = -1"),
        (lambda: contraction_root(0.5, 0.5, 0), r"age = 0"),
        (lambda: adaptive_rate(0.5, 0.5, 0), r"max_staleness = 0"),
        (lambda: derived_bound(1, 1.0, 1.0, 1.0, 1.0), r"rate = 1.0"),
        (lambda: derived_bound(1, -1.0, 0.5, 1.0, 1.0), r"initial_gap = -1.0"),
        (lambda: mixing_characteristic(0.0, 0.5, 2), r"alpha = 0.0"),
        (lambda: delta_characteristic(0.5, 1.5, 2), r"q = 1.5"),
        (lambda: delta_stability_threshold(0), r"age = 0"),
        (lambda: stationary_error(0.5, 1.0, 1.0, 1.0), r"p = 1.0"),
        (lambda: total_staleness(0, 1), r"concurrency = 0"),
        (lambda: stationary_error(0.5, 1.0, 0.5, 1.0, 0), r"max_staleness = 0"),
        (lambda: ToyQ().second_moments([0.5], [0], 0), r"steps = 0"),
        (lambda: ToyLogistic().run([0.5], [0], 0, 1), r"steps = 0"),
        (lambda: ToyLogistic().run([0.5], [0], 1, 0), r"runs = 0"),
        (lambda: ToyLogistic().run([0.5], [1], 1, 1), r"base_versions\[0\] = 1"),
    ],
)
def test_each_formula_names_what_is_wrong(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
