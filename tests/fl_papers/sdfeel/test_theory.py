"""SD-FEEL's lemmas and theorem: constants, the steps between them, what is wrong in print and what replaces it."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import sympy as sp
from refusals import refuses

from fl_core.formulas.sdfeel import synchronous_mixing_matrix
from fl_papers.sdfeel import theory
from fl_papers.sdfeel.theory import (
    RING,
    MixingSums,
    conditions,
    constant_mixing_errors,
    constants,
    event_step,
    lemma2_example,
    lemma3_example,
    local_drift_bound,
    mixing_error_sums,
    mixing_errors,
    paper_clock,
    paper_matrices,
    printed_lemma2_bound,
    printed_sum_bound,
    round_step,
    staleness_aware_mixing_matrix,
    surrogate_weights,
    theorem1_bound,
    theorem1_example,
    window_contraction,
    window_sum_bound,
    zeta,
)

close = partial(pytest.approx, rel=1e-10)
digits = partial(pytest.approx, rel=1e-11)
SUMS = mixing_error_sums(constant_mixing_errors(0.6, 20))


def test_o9_sums_of_mixing_errors() -> None:
    assert digits((0.518554687559, 1.86330181566, 2.22789236529)) == SUMS
    rho = constant_mixing_errors(0.6, 20)
    per_s = (rho * rho.sum(0)).sum(1)
    assert int(per_s.argmax()) == 9


def test_o9_the_constants_as_they_follow_and_as_printed() -> None:
    derived = constants(0.01, 1, 5, 2, 3, SUMS)
    printed = constants(0.01, 1, 5, 2, 3, SUMS, 20, variant="printed")
    assert (derived.U2, derived.x, derived.U3, derived.U4) == digits((20, 0.002, 1.01204819277, 1.04819277108))
    assert digits((0.975903614458, 0.903614457831)) == (printed.U1, derived.U1)
    assert derived.A == printed.A == digits(0.043539784137)
    assert digits((0.153834670364, 0.312297519284)) == (printed.B, derived.B)
    assert digits((0.042244408643, 0.278864076474)) == (printed.C, derived.C)
    fresh = constants(0.01, 1, 5, 1, 0, SUMS)
    assert digits((0.0037056350404, 0.123622820489, 0.090189377679)) == (fresh.A, fresh.B, fresh.C)
    assert digits(0.0632787809653) == constants(0.01, 1, 5, 1, 0, SUMS, 20, variant="printed").B


def test_o9b_the_right_side_of_the_theorem() -> None:
    setting = {
        "lr": 0.01, "smoothness": 1, "tau_max": 5, "tau_min": 2.5, "num_iterations": 20, "decrease": 2,
        "noise": 0.5, "dissimilarity": 0.3, "square_weights": 1 / 30,
    }  # fmt: skip
    printed = constants(0.01, 1, 5, 2, 3, SUMS, 20, variant="printed")
    assert theorem1_bound(printed, **setting).total == digits(8.26781132922)
    assert theorem1_bound(constants(0.01, 1, 5, 2, 3, SUMS), **setting).total == digits(8.98184590140)


def test_o10_sums_with_a_constant_matrix() -> None:
    matrix = synchronous_mixing_matrix(RING)
    rho = mixing_errors([matrix] * 10)
    assert rho == pytest.approx(constant_mixing_errors(zeta(matrix), 11), abs=1e-14)
    assert rho[:, 10].sum() == digits(1.4909300736)
    assert rho[:, 10].sum() < 0.6 / 0.4 < printed_sum_bound(0.6) == close(2.5)
    assert printed_sum_bound(1.0) == float("inf")  # of every asynchronous matrix: E-14


# Mixing


@pytest.mark.parametrize(
    ("gap", "window", "contraction", "bound", "gap_sum", "fresh_sum"),
    [(5, 13, 0.3767, 20.9, 9.6, 16.5), (10, 17, 0.3077, 24.6, 12.1, 19.8), (30, 40, 0.1223, 45.6, 16.6, 32.1)],
)
def test_mixing_in_the_papers_setting(gap, window, contraction, bound, gap_sum, fresh_sum) -> None:
    """D5 on 400 events, and A-02: a trigger that counts its own staleness makes servers agree faster."""
    assert max(max(event.staleness) for event in paper_clock(gap).events(400)) + 1 == window
    found = window_contraction(paper_matrices(gap, 400), window)
    assert found == pytest.approx(contraction, abs=5e-5)
    assert window_sum_bound(window, found) == pytest.approx(bound, abs=0.05)
    sums = {}
    for own in ("gap", "fresh"):
        product, sums[own] = np.eye(6), 0.0
        for matrix in paper_matrices(gap, 400, self_staleness=own)[::-1]:  # rho_{s,399} for s = 399, 398, ...
            product = matrix @ product
            sums[own] += np.linalg.norm(product - 1 / 6, 2)
    assert sums == {"gap": pytest.approx(gap_sum, abs=0.06), "fresh": pytest.approx(fresh_sum, abs=0.06)}
    assert sums["gap"] < window_sum_bound(window, found)


def test_o11_weights_of_what_is_minimised() -> None:
    steps, periods = (150, 220, 120, 300), (6000, 9000, 5700, 14000)
    plain = [0.271958922161, 0.265915390558, 0.229018039715, 0.233107647567]
    assert surrogate_weights(steps, periods) == digits(plain)
    weighted = [0.112227868514, 0.219467831761, 0.283523036247, 0.384781263478]
    assert surrogate_weights(steps, periods, (0.1, 0.2, 0.3, 0.4)) == digits(weighted)


# One iteration: Eq. 11 and Lemma 2


def test_o14_the_error_in_the_counterexample_to_lemma_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(theory, "printed_lemma2_bound", lambda **figures: figures["error"])
    assert lemma2_example().printed == pytest.approx(8.08381619e-7, rel=1e-9, abs=0)


def test_what_replaces_lemma_two_is_sharp_where_curvature_is_smoothness() -> None:
    for seed in range(100):
        rng = np.random.default_rng(seed)
        start, lr = rng.normal(), 10 ** rng.uniform(-4, -0.8)
        sharp, loose = (lemma2_example(start, lr, smoothness) for smoothness in (1, 2))
        assert sharp.corrected == pytest.approx(sharp.corrected_left, rel=1e-9)
        assert loose.corrected_left < loose.corrected


# Lemma 3


def test_local_drift_stays_below_its_bound() -> None:
    """Log-cosh problems with noise, whose exact drift is averaged over many paths."""
    worst = 0.0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        scale, centre, y = rng.uniform(0.3, 2), rng.normal(), rng.normal()
        tau, sigma = int(rng.integers(2, 9)), rng.uniform(0, 1)
        lr = rng.uniform(0.1, 0.65) / (scale * tau)  # F'' <= scale, so L = scale
        w, drift = np.full(4000, y), []
        for _ in range(tau):
            drift.append(np.mean((w - y) ** 2))
            w = w - lr * (scale * np.tanh(w - centre) + sigma * rng.normal(size=w.shape))
        gradient = (scale * np.tanh(y - centre)) ** 2
        worst = max(worst, np.mean(drift) / local_drift_bound(lr, scale, tau, sigma**2, gradient))
    assert 0 < worst < 1


def test_the_flow_of_a_round_is_that_of_its_steps() -> None:
    """One Runge-Kutta step stands for 2,000 of gradient descent in E-13's example."""
    slope = -np.cos(2 * np.pi * np.arange(24) / 24)
    curved, ring = slope < 0, [((d - 1) % 24, (d + 1) % 24) for d in range(24)]
    models, errors = np.zeros(24), []
    for _ in range(3):
        ends = models
        for _ in range(2000):
            ends = ends - 0.005 / 2000 * (slope + curved * np.tanh(ends))
        true = (slope + curved * np.tanh(models.mean())).mean()
        errors.append((true - (models - ends).mean() / 0.005) ** 2)
        models = ends @ synchronous_mixing_matrix(ring, kind="laplacian")
    assert lemma3_example(rounds=3).left == pytest.approx(np.mean(errors), rel=1e-3)


# Theorem 1


def test_the_bound_grows_in_what_claim_c12_varies() -> None:
    """The factors of H, delta_max² and kappa² in Eq. 16 are positive.

    With tau = 1 + n and x = e n tau, what stands over 1 - 50 x (printed: 1 - 14 x) has no negative coefficient.
    """
    e, n, H, delta, square, sums, K = sp.symbols("e n H delta s q K", positive=True)
    tau, x = 1 + n, e * n * (1 + n)
    for variant, left in (("derived", 50), ("printed", 14)):
        found = constants(sp.sqrt(e), 1, tau, H, delta, MixingSums(square, sums, 1), K, variant=variant)
        assert sp.simplify(found.U1 - (1 - left * x) / (1 - 2 * x)) == 0
        for term, varied in ((found.A, (H, delta)), (found.B, (delta,))):
            numerator = sp.expand(sp.cancel(term / found.U1 * (1 - left * x)))
            assert all(c > 0 for c in sp.Poly(numerator, e, n, H, delta, square, sums).coeffs())
            assert all(sp.diff(numerator, symbol) != 0 for symbol in varied)


def test_conditions_that_do_not_hold_are_seen() -> None:
    large = constants(0.05, 1, 5, 2, 0, SUMS)
    assert large.x == close(0.05)
    assert not conditions(0.05, 1, 5, 2, large).hold  # 50 x = 2.5: U_1 < 0 (E-16)
    assert conditions(0.05, 1, 5, 2, large).drift > 0


def test_the_printed_evolution_of_the_mean_is_that_of_synchronous_rounds() -> None:
    """E-07: in a round all clusters move the data-weighted mean; in an event the trigger alone, the uniform one."""
    rng = np.random.default_rng(5)
    m, taus = np.array([0.10, 0.12, 0.15, 0.18, 0.20, 0.25]), rng.uniform(1, 9, 6)
    models, gradients = rng.normal(size=(2, 6, 3))
    matrix = synchronous_mixing_matrix(RING, m)
    after = matrix.T @ (models - 0.1 * taus[:, None] * gradients)
    assert m @ after - m @ models == pytest.approx(round_step(0.1, m, taus, gradients), abs=1e-15)
    alone = models.copy()
    alone[2] -= 0.1 * taus[2] * gradients[2]
    after = staleness_aware_mixing_matrix(RING, 2, (4, 0, 2, 7, 1, 5)).T @ alone
    moved = event_step(0.1, 6, taus[2], gradients[2])
    assert after.mean(0) - models.mean(0) == pytest.approx(moved, abs=1e-15)
    assert m @ after - m @ models != pytest.approx(m[2] * 6 * moved, abs=1e-3)  # E-05: nor the weighted mean's share


test_what_is_out_of_range_is_refused = refuses(
    ValueError,
    (lambda: constants(0, 1, 5, 2, 0, SUMS), "lr must be > 0"),
    (lambda: constants(0.1, 1, 0, 2, 0, SUMS), "tau_max must be >= 1"),
    (lambda: constants(0.1, 1, 5, 2, 0, SUMS, variant="printed"), "num_iterations must be given"),
    (lambda: constants(0.1, 1, 5, 2, 0, SUMS, variant="right"), "variant must be 'derived' or 'printed'"),
    (lambda: window_sum_bound(3, 1.0), r"contraction must be in \[0, 1\)"),
    (lambda: theorem1_example(lr=0.1), r"lr = 0\.1 is too large"),
    (lambda: local_drift_bound(0.5, 1, 5, 0, 1), "lr must be small enough"),
    (
        lambda: printed_lemma2_bound(lr=1, smoothness=1, tau_max=1, tau_min=2, gradient=0, delayed=0, error=0),
        "tau_max must be >= tau_min = 2",
    ),
)
