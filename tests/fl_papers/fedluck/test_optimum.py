"""Where FedLuck's key convergence factor is smallest if k may be any number: closed forms, their proofs, the jump."""

from __future__ import annotations

import numpy as np
import pytest
import sympy as sp
from refusals import refuses

from fl_core.formulas.fedluck import Variant, key_convergence_factor, rate_polynomial
from fl_papers.fedluck.theory import (
    best_steps,
    factor_gradient,
    interior_minimum,
    joint_optimum,
    stationary_inverse_ratio,
    stationary_kappa,
    uncompressed_minimum,
)

TIGHT = Variant(contraction="tight")
HALF = sp.Rational(1, 2)


# One variable


@pytest.mark.parametrize("form", ["printed", "tight"])
def test_the_best_number_of_steps_is_stationary_for_every_c_and_p(form) -> None:
    delta, alpha, beta, T, c, p = sp.symbols("delta alpha beta T c p", positive=True)
    k = sp.nsimplify(best_steps(delta, alpha, beta, T, variant=Variant(c, p, form)), rational=True)
    slope = factor_gradient(k, delta, alpha, beta, T, variant=Variant(c, p, form)).local_steps
    assert sp.simplify(slope) == 0


def test_the_best_number_of_steps_accounts_for_latency() -> None:
    k = best_steps(0.2, 0.3, 5.0, 1.5, latency_seconds=0.7)
    assert factor_gradient(k, 0.2, 0.3, 5.0, 1.5, latency_seconds=0.7).local_steps == pytest.approx(0, abs=1e-14)


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


def test_o4_interior_minima_in_steps() -> None:
    for alpha, beta, period, *expected in (
        (0.4, 9, 1.5, 3.18690041513215, 0.0750436739782773, 4.8723675541347),
        (0.1, 3.6, 1.5, 14.2987784185353, 0.242812621612705, 0.730319701628855),
    ):
        kappa, delta, _, factor = interior_minimum(beta / period)
        assert [kappa * period / alpha, delta, factor * alpha / period] == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("variant", [Variant(), Variant(staleness_coefficient=2), TIGHT, Variant(3, 0.3, "tight")])
def test_nothing_is_below_the_joint_optimum(variant) -> None:
    kappa, delta = np.geomspace(0.01, 300, 1500)[:, None], np.geomspace(1e-4, 1, 1500)
    for r in (0.05, 0.5, 1.4, 2.1, 3, 3.2, 8, 60):
        best = joint_optimum(r, variant)
        lowest = key_convergence_factor(kappa, delta, 1, r, 1, variant=variant).min()
        assert best.factor <= lowest <= best.factor * (1 + 1e-4)


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


test_each_formula_names_what_is_wrong = refuses(
    ValueError,
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
)
