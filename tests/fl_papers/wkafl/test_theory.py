"""Theorems 5.1 and 5.3: oracle O13, both bounds on problems with known constants, conditions, rates, errata."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import sympy as sp

from fl_papers.wkafl.theory import (
    StaleQuadratic,
    clipped_path,
    drift_factor,
    estimate_constant,
    lr_limit_estimate,
    lr_limit_noise,
    lr_limit_positive,
    lr_limit_staleness,
    momentum_mass,
    noise_constants,
    printed_condition,
    remark52_terms,
    round_robin,
    squared_delay_sum,
    theorem51_bound,
    theorem53,
    weighted_gradient_mean,
)

close = partial(pytest.approx, rel=1e-10)
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
        for l in range(j, J + 1):  # noqa: E741
            v[-1] -= 3 * spread_slope * eta[l] * alpha ** (l - j)
            for t in range(j, l):
                inner = sum(alpha ** (t - j) * drift(l, k, t) for k in range(1, t + 1))
                v[-1] -= eta[l] * eta[t] ** 2 * inner
        right += 1.5 * eta[j] * s[j] * estimate_constant(est_error_sq, spread_var, spread_slope)
        for l in range(1, j + 1):  # noqa: E741
            right += eta[j] * est_error_sq * sum(eta[t] ** 2 * s[t] * drift(j, l, t) for t in range(l, j))
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


# T1 and T2


def toy(noise: float, offset: float, seed: int = 0) -> StaleQuadratic:
    rng = np.random.default_rng(seed)
    offsets = offset * rng.standard_normal((12, 4))
    return StaleQuadratic(np.linspace(0.2, 1, 4), offsets - offsets.mean(0), 2 * rng.standard_normal(4), noise)


@pytest.mark.parametrize(
    ("noise", "offset", "alpha", "lr"),
    [(0.25, 0.3, 0.1, 0.1293), (0.0, 0.0, 0.1, 0.1293), (1.0, 0.0, 0.1, 0.1293), (0.25, 0.3, 0.5, 0.053)],
)
def test_t1_theorem_51_holds_with_a_wide_margin(noise, offset, alpha, lr) -> None:
    problem = toy(noise, offset)
    assert lr <= min(lr_limit_noise(60, alpha, 1.0), lr_limit_staleness(60, alpha, 3))
    norms = problem.run(round_robin(12, 3, 60), lr, alpha, 400, np.random.default_rng(1))
    left = weighted_gradient_mean(np.full(60, lr), alpha, norms)
    right = theorem51_bound(
        np.full(60, lr), np.full(60, 1 / 3), momentum_alpha=alpha, smoothness=problem.smoothness, noise=noise,
        dissimilarity_sq=problem.dissimilarity_sq, max_staleness=3, gap=problem.gap,
    )  # fmt: skip
    assert 0 < left <= right


@pytest.mark.parametrize(
    ("est", "spread", "alpha"), [(0.05, 0.02, 0.1), (0.0, 0.0, 0.1), (0.5, 0.2, 0.1), (0.05, 0.02, 0.4)]
)
def test_t2_theorem_53_holds(est, spread, alpha) -> None:
    rng = np.random.default_rng(2)
    curvatures, start = np.linspace(0.2, 1, 5), 3 * rng.standard_normal(5)
    path = clipped_path(
        curvatures, start, lr=0.02, momentum_alpha=alpha, stage2_clip_factor=2.0, num_aggregated=4, num_iterations=80,
        est_std=est, spread_std=spread, rng=rng,
    )  # fmt: skip
    made = theorem53(
        np.full(80, 0.02), momentum_alpha=alpha, smoothness=1.0, stage2_clip_factor=2.0,
        est_error_sq=path.est_error_sq, spread_var=path.spread_var, spread_slope=0.0,
        gap=float((curvatures * start**2).sum() / 2),
    )  # fmt: skip
    assert (made.coefficients > 0).all()
    assert lr_limit_estimate(80, alpha, 1.0) >= 0.02
    assert 0 < (made.coefficients * path.gradient_norms_sq).mean() <= made.bound


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
        (lambda: StaleQuadratic(np.ones(2), np.ones((3, 2)), np.ones(2)), "centred"),
    ],
)
def test_arguments_out_of_range_are_refused(call, says) -> None:
    with pytest.raises(ValueError, match=says):
        call()
