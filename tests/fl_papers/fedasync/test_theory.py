"""FedAsync's theorems: the steps of the proofs, printed and repaired bounds, what is wrong in print."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
from refusals import refuses

from fl_core.formulas.checks import violations
from fl_core.formulas.staleness import Polynomial
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
    mixing_characteristic,
    oldest_versions,
    printed_bound,
    prox_gradient,
    q_option1,
    q_option2,
    residual,
    residual_tight,
    stationary_error,
    theorem2_chains,
    theorem2_constants,
    total_staleness,
)

close = partial(pytest.approx, rel=1e-10)
toy_q, toy_w = ToyQ(), ToyW()
V1 = toy_q.grad_deviation_bound


# Constants and bounds: oracles


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


def test_o11_the_exact_error_on_toy_q() -> None:
    errors = toy_q.run(0.6, oldest_versions(20, 4), 5).errors[[0, 1, 2, 5, 10]]
    assert errors == close([14.5, 4.4390041335956205, 2.4286695133405196, 1.3206486791308187, 0.5221151062835727])


def test_o17_stability_thresholds() -> None:
    assert [delta_stability_threshold(age) for age in (1, 4, 16)] == close(
        [2, 0.4450418679126288, 0.10129833767742542]
    )


# D7: Theorem 1', with staleness in the rate (on the toys: in the derivation)


@pytest.mark.parametrize("age", [1, 2, 64])
def test_d7_the_root_at_the_ends_of_its_range(age: int) -> None:
    assert contraction_root(0.5, 0.0, age) == close(0.5)
    assert contraction_root(1.0, 0.3, age) == close(0.3 ** (1 / age))
    assert contraction_root(1.0, 0.0, age) == 0
    assert contraction_root(1e-6, 0.999, age) < 1


# D8: Theorem 2, step by step on toy W


@pytest.mark.parametrize(
    ("wrong", "step"), [(ToyW(weak_convexity=3.0), "3 local drift"), (ToyW(smoothness=1.0), "1 descent")], ids=str
)
def test_d8_the_chains_break_for_wrong_constants(wrong: ToyW, step: str) -> None:
    """The wave is weakly convex with 5, not 3, and smooth with 7, not 1; near its ridge this shows."""
    chains = theorem2_chains(wrong, 1.6, 0.9, oldest_versions(60, 4), 5)
    assert violations({step: chains[step]}) > 0


def test_toy_w_gradient_bound_is_attained_at_the_ends_of_the_range() -> None:
    visited, grid = np.array([-0.5, 1.0, 2.5]), np.linspace(-0.5, 2.5, 301)
    pairs = [(x, anchor) for x in (*visited, 0.0) for anchor in grid]
    largest = max(abs(toy_w.gradient(x) + sign * 0.8 + 6 * (x - anchor)) for x, anchor in pairs for sign in (-1, 1))
    assert toy_w.grad_second_moment_bound(visited, 0.8) == close(largest**2)


# What the paper prints and what is true


def test_e3_no_bound_on_regularised_gradients_fits_every_anchor() -> None:
    for v2 in (1.0, 100.0, 1e6):
        anchor = 1.01 * math.sqrt(v2) / toy_w.prox_rho
        assert prox_gradient(toy_w.gradient(0.0), 0.0, anchor, toy_w.prox_rho) ** 2 > v2


# Refusals


test_each_formula_names_what_is_wrong = refuses(
    ValueError,
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
)
