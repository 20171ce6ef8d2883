"""FedLuck's theorem and corollary: the steps of the proof, what they bound, and what is wrong in print."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import sympy as sp

from fl_core.formulas.fedluck import Variant, rate_polynomial, staleness_factor
from fl_papers.fedluck.theory import (
    Q_WINDOW,
    LogCosh,
    Moments,
    corollary1_rates,
    factor_gradient,
    lemma1_bound,
    periodic_models,
    printed_corollary1_terms,
    printed_lemma1_bound,
    printed_negative_term,
    printed_supplement_q_local,
    printed_supplement_stationarity,
    q_local,
    rescaled_bound,
    theorem1_bound,
    timeline,
)

close = partial(pytest.approx, rel=1e-10)
MOMENTS = Moments(noise=0.3, heterogeneity=0.2, gradient=0.5)
RUN = {
    "local_lr": 0.1, "global_lr": 0.5, "local_steps": 10,
    "num_rounds": 200, "compression_rate": 0.1, "max_staleness": 2,
}  # fmt: skip


# Theorem 1 and its repair: oracles


def test_o9_theorem_one() -> None:
    bound = theorem1_bound(2, MOMENTS, **RUN)
    assert q_local(0.1, 10) == 1
    assert bound == close((0.04, 19.2, 29160))
    assert bound.total == close(29179.24)
    assert q_local(0.08, 10) == close(0.76)
    assert theorem1_bound(2, MOMENTS, **{**RUN, "local_lr": 0.08}).total == close(24572.010526315782)
    assert q_local(0.01, 10) == close(-3.86)


def test_o9_the_rescaled_bound() -> None:
    bound = rescaled_bound(2, MOMENTS, **{**RUN, "local_lr": 0.02}, smoothness=1)
    assert bound == close((0.2, 2.5, 13.5, 0.2, 0.6))
    assert bound.total == close(17)


def test_the_tight_contraction_leaves_tau_squared() -> None:
    tight = theorem1_bound(2, MOMENTS, **RUN, contraction="tight")
    assert tight == close((0.04, 19.2, 0.01 * 1e4 * (4 + 1) * 18))


def test_the_window_of_q_excludes_small_steps() -> None:
    assert pytest.approx((0.591752, 1.408248), abs=5e-7) == Q_WINDOW
    assert [q_local(edge, 1) for edge in Q_WINDOW] == pytest.approx([0, 0], abs=1e-14)
    assert [k for k in range(1, 200) if q_local(0.01, k) > 0] == list(range(60, 141))
    assert min(k for k in range(1, 200) if q_local(0.016, k) > 0) == 37


# Theorem 1: steps of the proof


def test_constants_of_the_proof() -> None:
    s, z, g, lr, k, delta, tau, L = sp.symbols("s z g eta_l k delta tau L", positive=True)
    moments = Moments(s, z, g)
    M = moments.second_moment
    own = 3 * lr**2 * k**2 * M  # Lemma 2: E‖g_i‖² with three pieces of the gradient
    drift = sp.Sum(sp.Symbol("j", positive=True) ** 2, (sp.Symbol("j", positive=True), 0, k - 1)).doit()
    assert sp.simplify(drift - k * (k - 1) * (2 * k - 1) / 6) == 0
    stale = L**2 * lr**2 * k**2 * tau**2 * 2 * (2 - delta) * own  # eta_g = 1
    six = 6 * (
        stale + lr**2 * k**2 * z + L**2 * lr**2 * k * 3 * lr**2 * k**3 * M + lr**2 * k**2 * s + (1 - delta) * own
    )
    collected = (
        lr**2 * k**2 * ((1 - delta) * moments.bias_1 + moments.bias_2)
        + L**2 * lr**4 * k**4 * (2 * tau**2 * (2 - delta) + 1) * moments.bias_1
    )
    assert sp.expand(six - collected) == 0


def test_the_coefficient_of_the_squared_gradient_has_the_papers_sign() -> None:
    """Step 9 and E4: -1/2 + 1/2 6 (1 - eta_l k)^2 = -Q_l / 2; the supplement's Q has the other sign."""
    lr, k = sp.symbols("eta_l k", positive=True)
    coefficient = -sp.Rational(1, 2) + sp.Rational(1, 2) * 6 * (1 - lr * k) ** 2
    assert sp.expand(coefficient - (6 * lr**2 * k**2 - 12 * lr * k + 5) / 2) == 0
    assert sp.expand(coefficient + q_local(lr, k) / 2) == 0
    assert sp.expand(coefficient - printed_supplement_q_local(lr, k) / 2) == 0


def test_lemma_two_three_pieces_of_a_gradient() -> None:
    """‖a + b + c‖² <= 3 (‖a‖² + ‖b‖² + ‖c‖²): the difference is the sum of the squared differences."""
    a, b, c = sp.symbols("a b c")
    excess = 3 * (a**2 + b**2 + c**2) - (a + b + c) ** 2
    assert sp.expand(excess - ((a - b) ** 2 + (b - c) ** 2 + (c - a) ** 2)) == 0


def test_lemma_one_needs_the_squared_server_rate() -> None:
    """E6: one server step with eta_g = 2 and an upload of norm 1 moves the model by 2."""
    assert (lemma1_bound(2, [1.0]), printed_lemma1_bound([1.0])) == (4, 1)
    rng = np.random.default_rng(0)
    for _ in range(50):
        uploads, lr = rng.normal(size=(rng.integers(1, 6), 4, 7)), rng.uniform(0.1, 3)
        moved = lr * uploads.mean(axis=1).sum(axis=0)
        assert moved @ moved <= lemma1_bound(lr, (uploads**2).sum(axis=2).mean(axis=1))


def test_an_upper_bound_times_a_negative_number_is_no_upper_bound() -> None:
    """E7: with C(g) = 0 the left side is 0, above what is printed."""
    assert printed_negative_term(0.5, 1, 0.1, 10, 0.1, Moments(1, 0, 0)) == close(-1.425)


# Corollary 1


def test_corollary_one_follows_if_q_is_called_a_constant() -> None:
    gap, b, k, T, delta, tau = sp.symbols("gap b k T delta tau", positive=True)
    variant = Variant(2, sp.Rational(1, 2))  # keeps the theorem's factor 2, which is lost in print (E8)
    moments = Moments(b, 0, 0)
    choice = {"local_steps": k, "num_rounds": T, "compression_rate": delta}
    printed = printed_corollary1_terms(gap, moments, **choice, max_staleness=tau, variant=variant)
    rates = corollary1_rates(**choice, delta_power=sp.Rational(1, 2))
    times_q = (
        gap / (rates.global_lr * T),
        rates.local_lr**2 * k**2 * ((1 - delta) * moments.bias_1 + moments.bias_2),
        rates.local_lr**2 * k**4 * (2 * tau**2 * (2 - delta) + 1) * moments.bias_1,
    )
    for one, other in zip(printed, times_q, strict=True):
        ratio = sp.simplify(sp.nsimplify(one / other, rational=True))
        assert ratio == 1


def test_the_third_term_is_the_staleness_factor() -> None:
    terms = printed_corollary1_terms(2, MOMENTS, local_steps=7, num_rounds=400, compression_rate=0.3, max_staleness=3)
    assert terms.staleness == close(18 / 20 * staleness_factor(7, 0.3, 3))
    assert terms[:2] == close((2 / (7 * 400) ** 0.5, (0.7 * 18 + 3) / (7**3 * (400 * 0.3) ** 0.5)))


def test_the_corollary_leaves_the_theorem() -> None:
    """E5: eta_l k falls with T, so that Q_l tends to -5; already negative at T = 100."""
    rates = corollary1_rates(1, 100, 0.1)
    assert rates.local_lr == pytest.approx(0.562, abs=5e-4)
    assert q_local(rates.local_lr, 1) == pytest.approx(-0.149, abs=1e-3)
    with pytest.raises(ValueError, match="q_local = .*between 0.5918 and 1.4082"):
        theorem1_bound(2, MOMENTS, **{**RUN, **rates._asdict(), "local_steps": 1, "compression_rate": 0.1})
    for power in (0.5, 1.0):
        rounds = 10.0 ** np.arange(2, 20)
        q = [q_local(corollary1_rates(1, T, 0.1, delta_power=power).local_lr, 1) for T in rounds]
        assert (np.diff(q[2:]) < 0).all()
        assert q[-1] == pytest.approx(-5, abs=1e-3)
    k, T, delta = sp.symbols("k T delta", positive=True)
    rate = sp.nsimplify(corollary1_rates(k, T, delta).local_lr, rational=True)
    assert sp.limit(q_local(rate, k), T, sp.oo) == -5


def test_all_terms_of_the_corollary_fall_alike_and_the_first_falls_slowest_in_k() -> None:
    """E16: the third term is not of the highest order."""

    def terms(k: int, T: int) -> np.ndarray:
        choice = {"local_steps": k, "num_rounds": T, "compression_rate": 0.3, "max_staleness": 2}
        return np.array(printed_corollary1_terms(2, MOMENTS, **choice))

    assert np.log2(terms(8, 100) / terms(8, 400)).tolist() == close([1, 1, 1])
    assert np.log2(terms(8, 100) / terms(16, 100)).tolist() == close([0.5, 3, 1])


def test_the_supplements_stationarity_has_a_factor_two_too_many() -> None:
    """E13: for p = 1 and T~ = 1 the derivative in delta gives u where 2 u is printed."""
    k, delta, alpha, beta = sp.symbols("k delta alpha beta", positive=True)
    a3, a2, a1, a0 = rate_polynomial(k * alpha, beta, Variant(delta_power=1))
    derived = -(a3 * delta**3 + a2 * delta**2 + a1 * delta + a0)
    printed = printed_supplement_stationarity(k, delta, alpha, beta)
    assert sp.expand(derived - printed - 2 * k * alpha * beta * delta**2) == 0
    slope = factor_gradient(k, delta, alpha, beta, 1, variant=Variant(delta_power=1)).compression_rate
    assert sp.simplify(slope - derived / (k * delta**2)) == 0


# The bounds against problems whose constants are known, E15


def sparsify(x: np.ndarray, rate: float) -> np.ndarray:
    kept = np.argsort(-np.abs(x), kind="stable")[: int(np.ceil(len(x) * rate - 1e-9))]
    out = np.zeros_like(x)
    out[kept] = x[kept]
    return out


def random_problem(rng: np.random.Generator, step_range: tuple[float, float]):
    """Return the mean squared gradient of 120 rounds and all that the bounds need."""
    smoothness = rng.uniform(0.3, 1.0)
    problem = LogCosh(rng.normal(scale=2, size=(6, 12)), smoothness)
    k, rate, global_lr = int(rng.integers(1, 8)), float(rng.choice([0.1, 0.25, 0.5, 1])), rng.uniform(0.3, 1)
    local_lr = rng.uniform(*step_range) / k
    rounds = timeline((rng.uniform(0.1, 5, size=6)).tolist(), 1.0, 120)

    def upload(device: int, w: np.ndarray) -> np.ndarray:
        return sparsify(problem.local_delta(device, w, k, local_lr), rate)

    start = rng.normal(scale=3, size=12)
    models = periodic_models(start, rounds, upload, global_lr)
    measured = np.mean([problem.gradient(w) @ problem.gradient(w) for w in models[:-1]])
    settings = {
        "local_lr": local_lr, "global_lr": global_lr, "local_steps": k, "num_rounds": 120, "compression_rate": rate,
        "max_staleness": max(one.round_staleness for uploads in rounds for one in uploads),
    }  # fmt: skip
    moments = Moments(0.0, problem.heterogeneity, problem.gradient_bound)
    return measured, problem.loss(start) - problem.minimum, moments, settings, smoothness


def test_theorem_one_holds_inside_its_window_and_is_loose() -> None:
    rng, ratios = np.random.default_rng(0), []
    for _ in range(25):
        measured, gap, moments, settings, _ = random_problem(rng, (0.6, 1.4))
        ratios.append(measured / theorem1_bound(gap, moments, **settings).total)
    assert max(ratios) < 0.05


def test_the_tight_theorem_holds_too() -> None:
    rng, ratios = np.random.default_rng(1), []
    for _ in range(15):
        measured, gap, moments, settings, _ = random_problem(rng, (0.6, 1.4))
        ratios.append(measured / theorem1_bound(gap, moments, **settings, contraction="tight").total)
    assert max(ratios) <= 1


def test_the_rescaled_bound_holds_for_small_steps() -> None:
    rng, ratios = np.random.default_rng(2), []
    for _ in range(25):
        measured, gap, moments, settings, smoothness = random_problem(rng, (0.005, 0.3))
        ratios.append(measured / rescaled_bound(gap, moments, **settings, smoothness=smoothness).total)
    assert max(ratios) <= 1
    assert max(ratios) > 0.05  # it says something: the measured value comes near


def test_constants_of_the_log_cosh_problem() -> None:
    rng = np.random.default_rng(3)
    problem = LogCosh(rng.normal(scale=2, size=(5, 4)), 0.7)
    heterogeneity, minimum, slopes = problem.heterogeneity, problem.minimum, []
    for w in rng.normal(scale=4, size=(2000, 4)):
        own = 0.7 * np.tanh(w - problem.centres)
        assert (own**2).sum(axis=1).max() <= problem.gradient_bound
        assert ((own - problem.gradient(w)) ** 2).sum(axis=1).max() <= heterogeneity
        assert problem.loss(w) >= minimum
        h = 1e-6 * rng.normal(size=4)
        slopes.append((problem.loss(w + h) - problem.loss(w - h)) / 2 - problem.gradient(w) @ h)
    assert np.abs(slopes).max() < 1e-13
    start = np.full(4, 0.3)
    moved = problem.local_delta(2, start, 2, 0.1)
    first = start - 0.07 * np.tanh(start - problem.centres[2])
    assert moved.tolist() == close((start - first + 0.07 * np.tanh(first - problem.centres[2])).tolist())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Moments(-1, 0, 0), "noise = -1"),
        (lambda: q_local(0, 1), "local_lr = 0"),
        (lambda: q_local(0.1, 0), "local_steps = 0"),
        (lambda: theorem1_bound(-1, MOMENTS, **RUN), "initial_gap = -1"),
        (lambda: theorem1_bound(1, MOMENTS, **{**RUN, "num_rounds": 0}), "num_rounds = 0"),
        (lambda: theorem1_bound(1, MOMENTS, **{**RUN, "global_lr": 0}), "global_lr = 0"),
        (lambda: theorem1_bound(1, MOMENTS, **{**RUN, "max_staleness": -1}), "max_staleness = -1"),
        (lambda: theorem1_bound(1, MOMENTS, **{**RUN, "compression_rate": 0}), "compression_rate = 0"),
        (lambda: theorem1_bound(1, MOMENTS, **RUN, contraction="none"), "contraction = 'none'"),  # type: ignore[arg-type]
        (lambda: rescaled_bound(1, MOMENTS, **RUN, smoothness=0), "smoothness = 0"),
        (lambda: rescaled_bound(1, MOMENTS, **RUN, smoothness=3), "global_lr = 0.5; .*smoothness"),
        (lambda: rescaled_bound(1, MOMENTS, **{**RUN, "compression_rate": 2}, smoothness=1), "compression_rate = 2"),
        (lambda: corollary1_rates(1, 1, 1, delta_power=0), "delta_power = 0"),
        (lambda: lemma1_bound(0, [1]), "global_lr = 0"),
    ],
)
def test_each_formula_names_what_is_wrong(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
