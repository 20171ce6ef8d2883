"""Theorems 5.1 and 5.3: oracle O13, both bounds on problems with known constants, conditions, rates, errata."""

from __future__ import annotations

import math
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import sympy as sp
import torch

from fl_core.algorithms.kasync import sasgd_weights, twafl_weights
from fl_core.algorithms.zenopp import judge_gradient
from fl_core.formulas.wkafl import accumulate_momentum, learning_rate, temporal_weight
from fl_papers.wkafl.theory import (
    clipping,
    conflict,
    decay_weights,
    drift_factor,
    error_parts,
    estimate_constant,
    expected_inverse_staleness,
    expected_min_staleness,
    expected_staleness_weight,
    lr_limit_noise,
    lr_limit_positive,
    lr_limit_staleness,
    mean_staleness,
    min_mean_age,
    momentum_mass,
    noise_constants,
    official_momentum,
    printed_condition,
    relative_non_iid_variance,
    remark52_terms,
    schedules,
    squared_delay_sum,
    stale_cloud,
    theorem51_bound,
    theorem51_on_quadratics,
    theorem53,
    theorem53_on_paths,
    true_and_aliased,
    turning,
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
STAGE1 = {
    "momentum_alpha": 0.1, "smoothness": 1.0, "noise": 0.25, "dissimilarity_sq": 0.3, "max_staleness": 3, "gap": 1.0,
}  # fmt: skip


# Oracles


def test_o13_constants() -> None:
    assert momentum_mass(3, 0.1).tolist() == close([1, 1.1, 1.11])
    assert drift_factor(5, 3, 4, momentum_alpha=0.1, smoothness=1, stage2_clip_factor=2) == close(0.26664)
    assert estimate_constant(0.04, 0.01, 0.05) == close(0.054)
    a, b = noise_constants(0.1, 1.0, 0.5 / 4, np.full(3, 1 / 2))
    assert (a[2], b[2]) == close((0.038503125, 0.07700625))
    found = theorem53(np.full(4, 0.01), **STAGE2).coefficients
    assert found == pytest.approx((0.0033318188564, 0.003832948564, 0.00389836164, 0.004055), rel=1e-10)


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


# Monotonicity, rates


def test_c22_the_first_bound_grows_with_staleness_and_dissimilarity() -> None:
    lrs, p2 = np.full(40, 0.1), np.full(40, 0.1)
    for name, values in (
        ("max_staleness", (0, 1, 3, 10)),
        ("dissimilarity_sq", (0.0, 0.1, 1.0)),
        ("noise", (0, 0.1, 1)),
    ):
        bounds = [theorem51_bound(lrs, p2, **{**STAGE1, name: value}) for value in values]
        assert all(low < high for low, high in pairwise(bounds))


def test_c24_the_second_bound_grows_with_the_estimates_error_and_with_b() -> None:
    lrs = np.full(40, 0.01)
    for name in ("est_error_sq", "stage2_clip_factor"):
        made = [theorem53(lrs, **{**STAGE2, "est_error_sq": 0.4, name: value}) for value in (0.5, 1.0, 2.0)]
        assert all(low.bound < high.bound for low, high in pairwise(made))
    sharper, looser = (theorem53(lrs, **{**STAGE2, "stage2_clip_factor": b}).coefficients for b in (1.0, 3.0))
    assert (sharper >= looser).all()
    assert (sharper[:-1] > looser[:-1]).all()
    assert (theorem53(lrs, **{**STAGE2, "spread_slope": 0.1}).coefficients < looser).any()


def test_c23_without_non_iid_data_the_rate_is_minus_one_half_in_k_j() -> None:
    arguments = {**STAGE1, "dissimilarity_sq": 0.0}

    def terms(count, length):
        return remark52_terms(np.sqrt(count / length), count, length, **arguments).total

    rates = {}
    for count, length in ((1, 500), (1, 2000), (4, 200)):
        lr = np.sqrt(count / length)
        bound = theorem51_bound(np.full(length, lr), np.full(length, 1 / count), **arguments)
        rates[count, length] = bound / (lr / 2)
        assert rates[count, length] <= terms(count, length)
    by_length = np.log(rates[1, 2000] / rates[1, 500]) / np.log(4)
    assert by_length == pytest.approx(-0.5, abs=0.05)
    far = np.log(terms(4, 1e10) / terms(1, 1e10)) / np.log(4)
    assert far == pytest.approx(-0.5, abs=1e-3)


def test_the_floor_of_theorem_51_does_not_vanish() -> None:
    terms = remark52_terms(1e-5, 10, 1e12, **STAGE1)
    assert terms.total == pytest.approx(terms.floor, rel=1e-3)
    assert terms.floor == pytest.approx(2 * STAGE1["dissimilarity_sq"] / 0.9)


def test_c25_the_second_rate_is_minus_one_half_in_j_down_to_a_plateau_of_c() -> None:
    def rate(length, est_error_sq, spread_var):
        lr = length**-0.5 / 4
        arguments = {**STAGE2, "est_error_sq": est_error_sq, "spread_var": spread_var}
        made = theorem53(np.full(length, lr), **arguments)
        return made.bound / made.coefficients.min()

    assert np.log(rate(800, 0, 0) / rate(200, 0, 0)) / np.log(4) == pytest.approx(-0.5, abs=0.05)
    plateaus = [rate(800, 100 * size, 25 * size) for size in (1.0, 2.0)]
    assert plateaus[1] / plateaus[0] == pytest.approx(2, rel=0.02)


def test_remark_52s_series_by_sympy() -> None:
    a, tau = sp.symbols("alpha tau", positive=True)
    taylor = sp.series(squared_delay_sum(a, tau), a, 0, 8).removeO()
    assert sp.expand(taylor - sum(a**r * (r + tau) ** 2 for r in range(8))) == 0


# Errata


def test_e1_the_printed_smoothness_is_false_and_the_corrected_one_true() -> None:
    w1, w2, L = 1.0, 0.0, 1.0
    right = w1 * (w2 - w1) + L / 2 * (w2 - w1) ** 2
    assert not w1**2 / 2 - w2**2 / 2 <= right
    assert w2**2 / 2 - w1**2 / 2 <= right


def test_e12_the_printed_learning_rate_leaves_a_positive_coefficient() -> None:
    L, M, s, eta = sp.symbols("L M s eta", positive=True)
    coefficient = -eta / 2 + L * eta**2 / 2 * (1 + M) * s
    first, second = (coefficient.subs(eta, limit) for limit in (1 / (2 * L * (1 + M)), 1 / (2 * L * s * (1 + M))))
    assert sp.simplify(first - (s - 2) / (8 * L * (1 + M))) == 0
    assert sp.simplify(second + 1 / (8 * L * s * (1 + M))) == 0


def test_e13_the_printed_condition_excludes_long_runs() -> None:
    sides = [printed_condition(length, 0.1, 5, lr=1.0) for length in (10, 20, 100)]
    assert sides[0] == pytest.approx(6.4e9, rel=0.05)
    assert np.log10(sides[1:]) == pytest.approx((19.8, 99.8), abs=0.1)


def test_e15_the_proof_drops_the_dependence_of_the_model_on_past_noise() -> None:
    """F = L/2 w², two steps: E<grad F(w_2), g_2> and E<grad F(w_2), means> differ by -L alpha eta sigma²."""
    L, alpha, eta, sigma, w = sp.symbols("L alpha eta sigma w", positive=True)
    n1 = sp.Symbol("n1")  # mean 0, variance sigma²; the noise of step 2 is independent of w_2 and drops out
    w2 = w - eta * (L * w + n1)
    mean = L * w2 + alpha * L * w
    real, assumed = sp.expand(L * w2 * (mean + alpha * n1)), sp.expand(L * w2 * mean)
    difference = sp.expand(real - assumed).subs(n1**2, sigma**2).subs(n1, 0)
    assert sp.simplify(difference + L * alpha * eta * sigma**2) == 0


def test_e16_with_the_clients_variance_the_second_theorem_is_false() -> None:
    """One biased client, full batches: sigma_c = 0, yet the estimate is wrong by 1 everywhere."""
    lr, w = 0.01, 1 + 2 * 0.99 ** np.arange(4000)  # descends on 1/2 (w - 1)^2 from 3; F = w^2 / 2
    arguments = {**STAGE2, "momentum_alpha": 0.0, "stage2_clip_factor": 1.0, "spread_var": 0.0, "spread_slope": 0.0}
    arguments["gap"] = w[0] ** 2 / 2
    for length in (200, 4000):
        left = (lr / 2 * w[:length] ** 2).mean()
        wrong, right = (arguments["gap"] / length + 1.5 * lr * error for error in (0.0, 1.0))
        assert length == 200 or wrong < left <= right
        for error, bound in ((0.0, wrong), (1.0, right)) if length == 200 else ():  # 4000 would fill the memory
            made = theorem53(np.full(length, lr), **{**arguments, "est_error_sq": error})
            assert made.bound == pytest.approx(bound, rel=1e-12)
            assert made.coefficients == pytest.approx([lr / 2] * length, rel=1e-12)
    assert (left, wrong, right) == pytest.approx((0.005751, 0.001125, 0.016125), rel=1e-3)


def test_e17_the_spread_of_the_gradients_must_be_small() -> None:
    limit = (1 - 0.1) / 6
    arguments = {**STAGE2, "smoothness": 1.0}
    assert lr_limit_positive(60, **{**arguments, "spread_slope": 0.9 * limit}) > 0
    assert lr_limit_positive(60, **{**arguments, "spread_slope": 1.1 * limit}) == 0


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


def test_two_of_the_programs_double_the_gradient() -> None:
    grads, previous = tensor((1, 2)), tensor(10, 20)
    assert official_momentum(grads, previous, 0.1).tolist() == [[3, 6]]  # E10
    assert accumulate_momentum(grads, previous, 0.1).tolist() == [[2, 4]]


def test_momentum_lessens_the_non_iid_error() -> None:
    """D2, by Monte Carlo and by SymPy."""
    alpha, n, rng = 0.4, 5, np.random.default_rng(0)
    now, before = rng.standard_normal(200_000), rng.standard_normal((200_000, n)).mean(1)
    found = ((now + alpha * before) / (1 + alpha)).var()
    assert found == pytest.approx(relative_non_iid_variance(1.0, n, alpha), rel=0.01)
    v, m, a = sp.symbols("v n alpha", positive=True)
    difference = sp.factor(v - relative_non_iid_variance(v, 1 + m, a))  # n = 1 + m >= 1
    assert sp.simplify(difference * (1 + a) ** 2 * (1 + m) / (v * a) - (a * m + 2 * (1 + m))) == 0


def test_clipping_brings_the_estimate_to_the_true_gradient() -> None:
    """C26, Figure 4 in a hundred dimensions, where the noise has its length in every draw."""
    truth, rng = torch.eye(100, dtype=torch.float64)[0], np.random.default_rng(0)
    cosines = []
    for _ in range(300):
        cloud = stale_cloud(truth, 5, 1.2, rng, spread=(0.03, 0.05))
        cosines.append([float(e[0] / e.norm()) for e in (cloud.estimate, cloud.clipped_estimate)])
    before, after = np.array(cosines).T
    assert (before.mean(), after.mean()) == (pytest.approx(0.791, abs=0.01), pytest.approx(0.931, abs=0.01))
    assert (after > before).mean() > 0.95


def test_c28_dividing_by_the_staleness_slows_training_more_than_by_the_least_one() -> None:
    """D14 at P / K = 300: SASGD keeps 0.019 of the learning rate, WKAFL a quarter."""
    sasgd, twafl = expected_inverse_staleness(3000, 10), expected_staleness_weight(3000, 10)
    wkafl = learning_rate(1.0, expected_min_staleness(3000, 10), 0.1)
    assert (sasgd, twafl) == (pytest.approx(0.0191, abs=5e-5), pytest.approx(0.0125, abs=5e-5))
    assert wkafl == pytest.approx(0.25, abs=0.005)
    assert sasgd / wkafl < 0.2


# What the chapters show


def test_every_schedule_has_the_same_mean_staleness_and_only_round_robin_the_least_age() -> None:
    for name, made in schedules(200, 10, 2000).items():
        late = slice(500, None)
        assert made.staleness[late].mean() == pytest.approx(mean_staleness(200, 10), rel=0.03), name
        ratio = made.mean_age[late].mean() / min_mean_age(200, 10)
        assert (ratio == pytest.approx(1)) if name == "round robin" else ratio > 1.1, name


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


def test_clipping_improves_the_estimate_as_in_the_specifications_trial() -> None:
    """C26, Figure 4: mean cosine .791 before and .931 after, better in all draws."""
    [bound, none] = clipping((1.2, 1e9), 200).itertuples()
    assert bound.before == pytest.approx(0.791, abs=0.01)
    assert bound.after == pytest.approx(0.931, abs=0.01)
    assert bound.improved > 0.95
    assert (none.after, none.improved) == (none.before, 0)


def test_gradients_that_do_not_turn_are_best_used_all_and_those_that_do_by_freshness() -> None:
    found = turning((0.0, 0.4), 60)
    assert found.loc[0.0, "selected"] == 10
    assert found.loc[0.0, "mean"] == found.loc[0.0, ["mean", "freshest", "estimate", "selection"]].max()
    assert found.loc[0.4, "freshest"] > found.loc[0.4, "mean"] + 0.5
    assert found.loc[0.4, "selection"] > found.loc[0.4, "estimate"]


def test_both_theorems_hold_where_their_constants_are_known() -> None:
    first, second = theorem51_on_quadratics(40), theorem53_on_paths()
    for table in (first, second):
        assert (table["left"] > 0).all()
        assert (table["left"] <= table["right"]).all()
        assert (table["lr"] <= table["limit"]).all()
    assert (second["smallest V"] > 0).all()
    assert first["left"].iloc[0] == pytest.approx(0.0432, abs=0.001)  # D10
    assert first["right"].iloc[0] == pytest.approx(0.1932, abs=0.001)


def test_aliased_devices_are_as_stale_as_counted_only_before_their_second_task() -> None:
    found = true_and_aliased(0.1, 60, devices=12, num_aggregated=3)
    copy, aliased = (part.reset_index() for _, part in sorted(found.groupby("mode"), reverse=True))
    assert copy["counted"].tolist() == aliased["counted"].tolist() == copy["actual"].tolist()
    never_used = aliased["counted"] == aliased["update"] - 1
    assert (aliased["actual"] == aliased["counted"].where(never_used, 0)).all()


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: momentum_mass(0, 0.1), "num_iterations = 0"),
        (lambda: momentum_mass(3, 1.0), "momentum_alpha = 1.0"),
        (lambda: noise_constants(0.1, 0.0, 1.0, [1.0]), "smoothness = 0.0"),
        (lambda: theorem51_bound([0.1], [1.0], **{**STAGE1, "max_staleness": -1}), "max_staleness = -1"),
        (lambda: theorem53([0.1], **{**STAGE2, "stage2_clip_factor": 0}), "stage2_clip_factor = 0"),
        (lambda: theorem53([0.1], **{**STAGE2, "gap": -1}), "gap = -1"),
        (lambda: lr_limit_noise(5, 0.1, 1.0, -1.0), "noise_slope = -1.0"),
        (lambda: printed_condition(5, 0.0, 1, 0.1), "momentum_alpha = 0.0"),
        (lambda: zeno_cosine_threshold(0.0), "validation_norm = 0.0"),
    ],
)
def test_arguments_out_of_range_are_refused(call, says) -> None:
    with pytest.raises(ValueError, match=says):
        call()
