"""Where FedLuck's key convergence factor is smallest if k may be any number: closed forms, their proofs, the jump."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import sympy as sp
from scipy.optimize import brentq

from fl_core.formulas.fedluck import Variant, key_convergence_factor, rate_polynomial
from fl_papers.fedluck.theory import (
    COMPRESSION_THRESHOLD,
    MIN_INTERIOR_RATIO,
    best_steps,
    factor_gradient,
    hessian_determinant,
    interior_minimum,
    joint_optimum,
    saddle_point,
    stationary_inverse_ratio,
    stationary_kappa,
    uncompressed_minimum,
)

close = partial(pytest.approx, rel=1e-10)
TIGHT = Variant(contraction="tight")
HALF = sp.Rational(1, 2)


# One variable


def test_o2_best_number_of_steps() -> None:
    assert best_steps(0.1, 0.2, 5, 1.5) == close(5.98792644893829)


@pytest.mark.parametrize("form", ["printed", "tight"])
def test_the_best_number_of_steps_is_stationary_for_every_c_and_p(form) -> None:
    delta, alpha, beta, T, c, p = sp.symbols("delta alpha beta T c p", positive=True)
    k = sp.nsimplify(best_steps(delta, alpha, beta, T, variant=Variant(c, p, form)), rational=True)
    slope = factor_gradient(k, delta, alpha, beta, T, variant=Variant(c, p, form)).local_steps
    assert sp.simplify(slope) == 0


def test_the_best_number_of_steps_accounts_for_latency() -> None:
    k = best_steps(0.2, 0.3, 5.0, 1.5, latency_seconds=0.7)
    assert factor_gradient(k, 0.2, 0.3, 5.0, 1.5, latency_seconds=0.7).local_steps == pytest.approx(0, abs=1e-14)


@pytest.mark.parametrize(
    ("kappa", "r", "roots"),
    [
        (0.9, 4, (0.121997097756449, 1.06101452676107)),
        (0.5, 1.2, (0.54240627061652, 0.703536717769645)),
        (4, 1, ()),
        (3, 2, ()),
    ],
)
def test_o3_roots_of_the_derivative_in_delta(kappa, r, roots) -> None:
    found = np.roots(rate_polynomial(kappa, r))
    positive = np.sort(found[(np.abs(found.imag) < 1e-12) & (found.real > 0)].real)
    assert positive.tolist() == close(roots)


@pytest.mark.parametrize("form", ["printed", "tight"])
def test_the_polynomial_has_the_sign_of_minus_the_derivative_for_every_c_and_p(form) -> None:
    kappa, r, delta, c, p = sp.symbols("kappa r delta c p", positive=True)
    variant = Variant(c, p, form)
    slope = factor_gradient(kappa, delta, 1, r, 1, variant=variant).compression_rate
    a3, a2, a1, a0 = rate_polynomial(kappa, r, variant)
    polynomial = a3 * delta**3 + a2 * delta**2 + a1 * delta + a0
    assert sp.simplify(slope + c * polynomial / (kappa * delta ** (p + 1))) == 0
    if form == "printed":
        halves = [5 * r**2, 6 * r * (kappa - r), kappa * (kappa - 4 * r), 2 * kappa**2 + 1]
        printed = rate_polynomial(kappa, r, Variant(1, HALF))
        assert [sp.expand(2 * a - b) for a, b in zip(printed, halves, strict=True)] == [0] * 4


def test_the_factor_is_not_unimodal_in_delta() -> None:
    """Falls, rises and falls again; the far end is lower than the valley (3.5)."""
    values = key_convergence_factor(0.5, np.array([0.5424, 0.7035, 1.0]), 1, 1.2, 1)
    assert values.tolist() == pytest.approx([7.9585, 7.9705, 7.78], abs=1e-4)
    slope = factor_gradient(0.5, np.linspace(0.01, 1, 2000), 1, 1.2, 1).compression_rate
    assert (np.diff(np.sign(slope)) != 0).sum() == 2


def test_at_most_two_positive_roots_whatever_the_device() -> None:
    """Descartes: the coefficients change sign at most twice, so that there is one valley at most."""
    rng = np.random.default_rng(0)
    kappa, r = 10 ** rng.uniform(-3, 3, (2, 4000))
    for power in (0.05, 0.5, 0.9, 1.0):
        signs = np.sign(np.array(rate_polynomial(kappa, r, Variant(delta_power=power))))
        for column in signs.T:
            assert (np.diff(column[column != 0]) != 0).sum() in (0, 2)


# Both variables


@pytest.mark.parametrize(
    ("r", "delta", "kappa", "rounds", "factor", "uncompressed"),
    [
        (2.1, 0.322747327641, 1.02741638797, 1.70518577602, 10.0685947647, 8.85188133985),
        (3, 0.173156112718, 0.904012999137, 1.42348133729, 12.4986842255, 12.3245553203),
        (4, 0.119882500565, 0.872829120872, 1.35235912313, 14.6868657801, 16.2462112512),
        (5, 0.0922103678254, 0.858333038745, 1.31938487787, 16.5783805649, 20.1980390272),
        (10, 0.0431443519960, 0.834965513282, 1.26640903324, 23.8616686227, 40.0997512422),
        (20, 0.0209607567738, 0.825249671215, 1.24446480669, 34.0222899794, 80.0499687890),
        (100, 0.00410352509441, 0.818179181152, 1.22853169059, 76.5553989027, 400.009999750),
    ],
)
def test_o5_table_of_interior_minima(r, delta, kappa, rounds, factor, uncompressed) -> None:
    inside, end = interior_minimum(r), uncompressed_minimum(r)
    assert [float(x) for x in inside] == pytest.approx((kappa, delta, rounds, factor), rel=1e-11)
    assert end.factor == pytest.approx(uncompressed, rel=1e-11)
    assert joint_optimum(r).compression_rate == (inside.compression_rate if factor < uncompressed else 1)


@pytest.mark.parametrize(
    ("alpha", "beta", "period", "delta", "k", "phi", "rounds"),
    [
        (0.4, 9, 1.5, 0.0750436739782773, 3.18690041513215, 4.8723675541347, 1.30010215457157),
        (0.25, 60, 3, 0.0209607567737717, 9.90299605457989, 2.83519083161479, 1.24446480669042),
    ],
)
def test_o4_joint_optimum(alpha, beta, period, delta, k, phi, rounds) -> None:
    best = joint_optimum(beta / period)
    assert (best.compression_rate, best.rounds) == close((delta, rounds))
    assert (best.kappa * period / alpha, best.factor * alpha / period) == close((k, phi))


def test_o4_an_interior_minimum_that_is_not_the_optimum() -> None:
    inside, best = interior_minimum(2.4), joint_optimum(2.4)
    assert (inside.kappa * 15, inside.compression_rate) == close((14.2987784185353, 0.242812621612705))
    assert inside.factor / 15 == close(0.730319701628855)
    assert (best.kappa * 15, best.compression_rate, best.factor / 15) == close((39, 1, 2 / 3))


def test_o5_constants() -> None:
    assert close(2.0171788261496963) == MIN_INTERIOR_RATIO
    assert np.isnan(interior_minimum(MIN_INTERIOR_RATIO * (1 - 1e-9)).factor)
    assert interior_minimum(MIN_INTERIOR_RATIO * (1 + 1e-12)).compression_rate == pytest.approx(0.4, abs=1e-5)

    def gain(r: float) -> float:
        return float(uncompressed_minimum(r).factor - interior_minimum(r).factor)

    assert close(brentq(gain, 2.5, 4, xtol=1e-14)) == COMPRESSION_THRESHOLD
    inside, end = interior_minimum(COMPRESSION_THRESHOLD), uncompressed_minimum(COMPRESSION_THRESHOLD)
    assert [float(x) for x in inside] == close(
        [0.8987162209558434, 0.1646624130727793, 1.411387612805242, 12.767181082921319]
    )
    assert (end.kappa, end.rounds) == pytest.approx((3.270121096, 6.383590541), abs=5e-10)


def test_both_derivatives_vanish_on_the_stationary_curve_for_every_c_and_p() -> None:
    delta, c, p = sp.symbols("delta c p", positive=True)
    variant = Variant(c, p)
    r = 1 / sp.sqrt(stationary_inverse_ratio(delta, variant))
    gradient = factor_gradient(stationary_kappa(delta, r, p), delta, 1, r, 1, variant=variant)
    for point in ({delta: sp.Rational(1, 7), c: 2, p: HALF}, {delta: sp.Rational(2, 9), c: 3, p: sp.Rational(1, 3)}):
        assert [sp.simplify(slope.subs(point)) for slope in gradient] == [0, 0]
    assert sp.simplify(stationary_kappa(delta, r, HALF) / (r * delta) - (2 - 3 * delta / 2)) == 0  # (L-g)
    assert sp.simplify(
        stationary_inverse_ratio(delta, Variant(1, HALF)) - 3 * delta**2 * (2 - delta) ** 2 * (2 - 3 * delta) / 4
    ) == 0  # fmt: skip


def test_hessian_and_value_at_a_stationary_point() -> None:
    """The determinant of 3.6, step 5; rounds and value of step 6; the peak 768/3125 of (L-h) at 2/5."""
    delta, kappa, x, square = sp.symbols("delta kappa x R", positive=True)
    left, r = stationary_inverse_ratio(delta, Variant(1, HALF)), sp.sqrt(square)
    phi = key_convergence_factor(kappa, x, 1, r, 1, variant=Variant(1, HALF))
    at = {kappa: stationary_kappa(delta, r, HALF), x: delta}

    def value(expression: sp.Expr) -> sp.Expr:
        return sp.cancel(sp.expand(expression.subs(at)).subs(square, 1 / left))

    assert sp.cancel(value(sp.hessian(phi, (kappa, x)).det()) - hessian_determinant(delta)) == 0
    rounds_squared = value((kappa + r * x) ** 2)
    assert sp.cancel(rounds_squared - 3 / (2 - 3 * delta)) == 0
    assert sp.cancel(value(phi**2) - 9 / left * delta * (2 - delta) ** 4) == 0
    assert sp.cancel(value(phi**2) - 4 * (2 - delta) ** 2 * rounds_squared / delta) == 0
    assert left.subs(delta, sp.Rational(2, 5)) == sp.Rational(768, 3125)
    assert sp.solve(sp.diff(left, delta) / (delta * (2 - delta)), delta)[0] == sp.Rational(2, 5)


def test_the_two_stationary_points_are_a_minimum_and_a_saddle() -> None:
    r = np.linspace(2.03, 40, 300)
    low, high = interior_minimum(r), saddle_point(r)
    assert (low.compression_rate < 0.4).all()
    assert (high.compression_rate > 0.4).all()
    for point, sign in ((low, 1), (high, -1)):
        slopes = factor_gradient(point.kappa, point.compression_rate, 1, r, 1)
        assert np.abs(slopes).max() < 1e-9
        assert (np.sign(hessian_determinant(point.compression_rate)) == sign).all()


def test_an_interior_optimum_has_staleness_two() -> None:
    r = np.geomspace(COMPRESSION_THRESHOLD, 1e6, 400)
    best = joint_optimum(r * (1 + 1e-9))
    assert (np.ceil(best.rounds) == 2).all()
    assert (best.compression_rate < 0.165).all()
    assert (joint_optimum(np.geomspace(0.01, COMPRESSION_THRESHOLD * (1 - 1e-9), 100)).compression_rate == 1).all()


def test_limits_of_a_slow_network() -> None:
    best = joint_optimum(1e9)
    assert (best.compression_rate * 1e9, best.kappa, best.rounds) == pytest.approx(
        (6**-0.5, (2 / 3) ** 0.5, 1.5**0.5), rel=1e-8
    )
    assert best.factor / 1e9**0.5 == pytest.approx(7.67, abs=0.005)


@pytest.mark.parametrize("variant", [Variant(), Variant(staleness_coefficient=2), TIGHT, Variant(3, 0.3, "tight")])
def test_nothing_is_below_the_joint_optimum(variant) -> None:
    kappa, delta = np.geomspace(0.01, 300, 1500)[:, None], np.geomspace(1e-4, 1, 1500)
    for r in (0.05, 0.5, 1.4, 2.1, 3, 3.2, 8, 60):
        best = joint_optimum(r, variant)
        lowest = key_convergence_factor(kappa, delta, 1, r, 1, variant=variant).min()
        assert best.factor <= lowest <= best.factor * (1 + 1e-4)


def test_the_theorems_coefficient_only_rescales_the_period() -> None:
    r = np.array([1.0, 2.5, 9.0])
    doubled, plain = joint_optimum(r, Variant(staleness_coefficient=2)), joint_optimum(r * 2**0.5)
    assert doubled.compression_rate.tolist() == close(plain.compression_rate.tolist())
    assert (doubled.kappa * 2**0.5).tolist() == close(plain.kappa.tolist())


def test_the_supplements_power_has_no_interior_minimum() -> None:
    delta = np.linspace(0.001, 1, 1000)
    for power in (1.0, 0.99):
        exists = stationary_inverse_ratio(delta, Variant(delta_power=power)) > 0
        assert exists.any() == (power < 1)


def test_the_tight_factor_has_one_minimum_and_no_jump() -> None:
    best = joint_optimum(6.0, TIGHT)
    k, phi = best.kappa * 1.5 / 0.4, best.factor * 0.4 / 1.5
    assert (k, best.compression_rate, phi) == pytest.approx((4.330127, 0.09622504, 2.977935549), rel=1e-6)
    assert best.rounds == close(3**0.5)
    assert best.factor / 6**0.5 == pytest.approx(4.559, abs=5e-4)
    rates = joint_optimum(np.linspace(0.3, 2, 4001), TIGHT).compression_rate
    assert np.abs(np.diff(rates)).max() < 1e-3
    r = np.array([3**-0.5 * 0.99, 3**-0.5 * 1.01])
    assert (joint_optimum(r, TIGHT).compression_rate == 1).tolist() == [True, False]


def test_the_tight_minimum_by_hand() -> None:
    """E10: delta beta = p k alpha and k alpha = T / sqrt(c (1 - p^2)); for given k a square root."""
    kappa, r, delta, c, p, u = sp.symbols("kappa r delta c p u", positive=True)
    variant = Variant(c, p, "tight")
    gradient = factor_gradient(kappa, delta, 1, r, 1, variant=variant)
    point = {kappa: 1 / sp.sqrt(c * (1 - p**2)), delta: p / (r * sp.sqrt(c * (1 - p**2)))}
    for slope in gradient:
        assert sp.simplify(slope.subs(point).subs({p: sp.Rational(2, 5), c: 3, r: 7})) == 0
    a3, a2, a1, a0 = rate_polynomial(u, r, Variant(1, HALF, "tight"))
    root = (sp.sqrt(4 * u**2 + 3) - u) / (3 * r)
    assert sp.simplify(a3 * root**3 + a2 * root**2 + a1 * root + a0) == 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: joint_optimum(0), "comm_ratio = 0"),
        (lambda: interior_minimum(-1), "comm_ratio = -1"),
        (lambda: interior_minimum(1, Variant(delta_power=1)), "delta_power = 1"),
        (lambda: interior_minimum(1, TIGHT), "contraction = 'tight'"),
        (lambda: joint_optimum(1, Variant(1, 1, "tight")), "delta_power = 1"),
        (lambda: best_steps(0, 1, 1, 1), "compression_rate = 0"),
        (lambda: best_steps(2, 1, 1, 1), "compression_rate = 2"),
        (lambda: best_steps(1, 0, 1, 1), "seconds_per_step = 0"),
        (lambda: best_steps(1, 1, 1, 0), "period_seconds = 0"),
        (lambda: rate_polynomial(-1, 1), "kappa = -1"),
        (lambda: rate_polynomial(1, -1), "comm_ratio = -1"),
    ],
)
def test_each_formula_names_what_is_wrong(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
