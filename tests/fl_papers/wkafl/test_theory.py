"""Theorems 5.1 and 5.3: oracle O13, both bounds on problems with known constants, conditions, rates, errata."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import torch
from refusals import refuses

from fl_core.algorithms.kasync import sasgd_weights, twafl_weights
from fl_core.algorithms.zenopp import judge_gradient
from fl_core.formulas.wkafl import temporal_weight
from fl_papers.wkafl.theory import (
    STAGE1,
    conflict,
    decay_weights,
    error_parts,
    estimate_constant,
    lr_limit_noise,
    lr_limit_staleness,
    momentum_mass,
    noise_constants,
    printed_condition,
    theorem51_bound,
    theorem51_on_quadratics,
    theorem53,
    theorem53_on_paths,
    uniform_draws,
    zeno_cosine_threshold,
)

close = partial(pytest.approx, rel=1e-10)
same = partial(np.testing.assert_allclose, rtol=1e-10, atol=1e-13)
printed = partial(np.testing.assert_allclose, rtol=0, atol=6e-13)  # oracles are given with twelve decimals
STAGE2 = {
    "momentum_alpha": 0.1, "smoothness": 1.0, "stage2_clip_factor": 2.0, "est_error_sq": 0.04, "spread_var": 0.01,
    "spread_slope": 0.05, "gap": 1.0,
}  # fmt: skip


# Oracles


def test_o13_the_largest_learning_rates() -> None:
    assert lr_limit_staleness(20, 0.1, 5) == close(0.087836201202)
    assert lr_limit_staleness(6, 0.1, 2) == close(0.212990124746)
    limits = {3: 0.1437, 5: 0.0878, 7: 0.0632, 10: 0.0445, 20: 0.0224}
    assert {tau: round(lr_limit_staleness(60, 0.1, tau), 4) for tau in limits} == limits
    assert round(lr_limit_staleness(60, 0.5, 3), 4) == 0.0589
    assert lr_limit_staleness(100, 0.1, 5) == pytest.approx(lr_limit_staleness(40, 0.1, 5), rel=1e-6)


# The sums are those of the specification, written out once more without any algebra.


def naive_51(lrs, p2, *, momentum_alpha, smoothness, noise, dissimilarity_sq, max_staleness, gap):
    J, L = len(lrs), smoothness
    alpha, s = momentum_alpha, [sum(momentum_alpha ** (j - k) for k in range(1, j + 1)) for j in range(J + 1)]
    A = [L / 2 * noise * s[j] * sum(alpha ** (j - k) * p2[k - 1] for k in range(1, j + 1)) for j in range(J + 1)]
    total = 0.0
    for j in range(1, J + 1):
        eta = lrs[j - 1]
        total += A[j] * eta**2 + eta * s[j] * dissimilarity_sq
        for k in range(1, j + 1):
            first = max(1, k - max_staleness)
            total += eta * alpha ** (j - k) * (j - first) * sum(
                lrs[t - 1] ** 2 * 2 * L * A[t] for t in range(first, j)
            )  # fmt: skip
    return (total + gap) / J


def naive_53(lrs, *, momentum_alpha, smoothness, stage2_clip_factor, est_error_sq, spread_var, spread_slope, gap):
    J, alpha = len(lrs), momentum_alpha
    s = [sum(alpha ** (j - k) for k in range(1, j + 1)) for j in range(J + 1)]
    eta = [0.0, *lrs]

    def drift(later, k, t):
        return 3 * smoothness**2 * stage2_clip_factor**2 * s[t] * alpha ** (later - k) * (later - k)

    v, right = [], gap
    for j in range(1, J + 1):
        v.append(eta[j] * s[j] / 2)
        for n in range(j, J + 1):
            v[-1] -= 3 * spread_slope * eta[n] * alpha ** (n - j)
            for t in range(j, n):
                inner = sum(alpha ** (t - j) * drift(n, k, t) for k in range(1, t + 1))
                v[-1] -= eta[n] * eta[t] ** 2 * inner
        right += 1.5 * eta[j] * s[j] * estimate_constant(est_error_sq, spread_var, spread_slope)
        for n in range(1, j + 1):
            right += eta[j] * est_error_sq * sum(eta[t] ** 2 * s[t] * drift(j, n, t) for t in range(n, j))
    return v, right / J


@pytest.mark.parametrize("alpha", [0.0, 0.1, 0.6])
def test_the_bounds_are_their_sums_written_out(alpha) -> None:
    rng = np.random.default_rng(0)
    lrs, p2 = rng.uniform(0.01, 0.2, 9), rng.uniform(0.1, 1, 9)
    first, second = {**STAGE1, "momentum_alpha": alpha}, {**STAGE2, "momentum_alpha": alpha}
    assert theorem51_bound(lrs, p2, **first) == pytest.approx(naive_51(lrs, p2, **first), rel=1e-12)
    v, right = naive_53(lrs, **second)
    made = theorem53(lrs, **second)
    assert made.coefficients == pytest.approx(v, rel=1e-11)
    assert made.bound == pytest.approx(right, rel=1e-12)


# Formulas of the method and of the programs


def tensor(*values: object) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_the_oracles_of_the_baselines_specification() -> None:
    w, grads, tau = tensor(1, 1), tensor((1, 0), (0, 2)), (0, 2)
    printed(w - 0.1 * twafl_weights(tau, (10, 30), "printed") @ grads, (0.975, 0.918798830058))
    printed(w - 0.2 * sasgd_weights(tau) @ grads, (0.9, 0.933333333333))
    assert temporal_weight(np.array([0, 1, 2, 5, 10.0])) == pytest.approx(
        (1, 0.735758882343, 0.541341132946, 0.215614303971, 0.0464895280768), rel=1e-11
    )
    v, options = tensor(1, 2, -1), {"rho": 0.02, "epsilon": 0.1, "score_gamma": 0.1}
    good, bad = judge_gradient(tensor(0.5, 1, 0.5), v, **options), judge_gradient(tensor(-1, 0.2, 2), v, **options)
    same(good.candidate, (1, 2, 1))
    assert (good.score, good.accepted) == (pytest.approx(0.28), True)
    printed(bad.candidate, (-1.09108945118, 0.218217890236, 2.18217890236), atol=6e-12)
    assert (bad.score, bad.accepted) == (pytest.approx(-0.403683257307, rel=1e-11), False)
    assert zeno_cosine_threshold(math.sqrt(6), **options) == pytest.approx(0.183333333333, rel=1e-11)


# What the chapters show


def test_decayed_weights_are_those_of_each_update() -> None:
    staleness = np.array([[0, 1, 5], [7, 7, 9]])
    weights = decay_weights(staleness, 0.4)
    expected = np.exp(-0.4 * staleness)
    np.testing.assert_allclose(weights, expected / expected.sum(1, keepdims=True), rtol=1e-12)


def test_without_decay_all_gradients_count_and_with_much_only_the_freshest() -> None:
    drawn = uniform_draws(100, 5, 200, np.random.default_rng(0))
    swept = conflict(drawn, decays=(0.0, 50.0))
    assert swept["gradients"].iloc[0] == 5
    assert swept["staleness"].tolist() == pytest.approx([drawn.staleness.mean(), drawn.staleness.min(1).mean()])


def test_the_errors_of_staleness_and_of_non_iid_data_answer_to_their_causes() -> None:
    still = error_parts((0.0, 1.0), 60, 6, lr=0.0, spread=0.1)
    assert still["staleness"].tolist() == [0, 0]
    assert still["total"].tolist() == still["non_iid"].tolist()
    alike = error_parts((0.0, 1.0), 60, 6, lr=0.05, spread=0.0)
    assert alike["non_iid"].tolist() == [0, 0]
    assert alike["staleness"].iloc[0] > alike["staleness"].iloc[1] > 0


def test_both_theorems_hold_where_their_constants_are_known() -> None:
    first, second = theorem51_on_quadratics(40), theorem53_on_paths()
    for table in (first, second):
        assert (table["left"] > 0).all()
        assert (table["left"] <= table["right"]).all()
        assert (table["lr"] <= table["limit"]).all()
    assert (second["smallest V"] > 0).all()
    assert first["left"].iloc[0] == pytest.approx(0.0432, abs=0.001)  # D10
    assert first["right"].iloc[0] == pytest.approx(0.1932, abs=0.001)


test_arguments_out_of_range_are_refused = refuses(
    ValueError,
    (lambda: momentum_mass(0, 0.1), "num_iterations = 0"),
    (lambda: momentum_mass(3, 1.0), "momentum_alpha = 1.0"),
    (lambda: noise_constants(0.1, 0.0, 1.0, [1.0]), "smoothness = 0.0"),
    (lambda: theorem51_bound([0.1], [1.0], **{**STAGE1, "max_staleness": -1}), "max_staleness = -1"),
    (lambda: theorem53([0.1], **{**STAGE2, "stage2_clip_factor": 0}), "stage2_clip_factor = 0"),
    (lambda: theorem53([0.1], **{**STAGE2, "gap": -1}), "gap = -1"),
    (lambda: lr_limit_noise(5, 0.1, 1.0, -1.0), "noise_slope = -1.0"),
    (lambda: printed_condition(5, 0.0, 1, 0.1), "momentum_alpha = 0.0"),
    (lambda: zeno_cosine_threshold(0.0), "validation_norm = 0.0"),
)
