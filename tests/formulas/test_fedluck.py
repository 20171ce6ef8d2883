"""FedLuck in formulas: job time, staleness, the update steps, the key convergence factor, measurements."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import sympy as sp
import torch
from hypothesis import given
from hypothesis import strategies as st

from fl_core.algorithms.base import mean_step
from fl_core.formulas.fedluck import (
    Variant,
    fit_upload,
    fit_upload_with_latency,
    key_convergence_factor,
    mean_step_seconds,
    rounds_per_job,
    staleness_factor,
)

close = partial(pytest.approx, rel=1e-10)


# The key convergence factor, Eq. 14


def test_the_partial_derivatives_are_those_of_the_specification() -> None:
    """(L-c) with the second derivative in k, (L-d) and (L-e), each by SymPy."""
    k, delta, alpha, beta, T = sp.symbols("k delta alpha beta T", positive=True)
    u, D = k * alpha, k * alpha + delta * beta
    phi = key_convergence_factor(k, delta, alpha, beta, T, variant=Variant(1, sp.Rational(1, 2)))
    assert sp.simplify(phi - (D**2 * (2 - delta) + T**2) / (T**2 * k * sp.sqrt(delta))) == 0
    by_k = ((2 - delta) * (u**2 - delta**2 * beta**2) - T**2) / (T**2 * k**2 * sp.sqrt(delta))
    by_k_twice = 2 * ((2 - delta) * delta**2 * beta**2 + T**2) / (T**2 * k**3 * sp.sqrt(delta))
    square = (2 + delta) * D**2 - 4 * beta * delta * (2 - delta) * D + T**2
    cubic = 5 * beta**2 * delta**3 + 6 * beta * (u - beta) * delta**2 + u * (u - 4 * beta) * delta + 2 * u**2 + T**2
    assert sp.simplify(sp.diff(phi, k) - by_k) == 0
    assert sp.simplify(sp.diff(phi, k, 2) - by_k_twice) == 0
    assert sp.expand(square - cubic) == 0
    assert sp.simplify(sp.diff(phi, delta) + cubic / (2 * T**2 * k * delta ** sp.Rational(3, 2))) == 0


def test_the_staleness_coefficient_only_rescales_the_period() -> None:
    doubled = key_convergence_factor(7, 0.3, 0.2, 5, 1.5, variant=Variant(staleness_coefficient=2))
    assert doubled == close(key_convergence_factor(7, 0.3, 0.2, 5, 1.5 / np.sqrt(2)))


def test_the_factor_falls_with_the_period() -> None:
    periods = np.linspace(0.2, 20, 200)
    assert (np.diff(key_convergence_factor(10, 0.1, 0.2, 5.0, periods)) < 0).all()


def test_arrays_broadcast() -> None:
    k, delta = np.arange(1, 4)[:, None], np.array([0.1, 0.5])
    table = key_convergence_factor(k, delta, 0.2, 5.0, 1.5)
    assert table.shape == (3, 2)
    assert table[2, 1] == key_convergence_factor(3, 0.5, 0.2, 5.0, 1.5)


# Time and staleness, Eqs. 5 and 7


@pytest.mark.parametrize(("d", "period", "rounds"), [(3.0, 1.5, 2), (1.2667, 1.5, 1), (3.6, 1.5, 3), (0.0, 1.5, 1)])
def test_o8_staleness_is_a_ceiling(d, period, rounds) -> None:
    assert rounds_per_job(d, period) == rounds
    assert rounds_per_job(np.array([d, d]), period).tolist() == [rounds, rounds]


@pytest.mark.parametrize("seconds", [0.3, 0.7, 0.1])
def test_rounding_never_delays_a_job_that_ends_at_a_tick(seconds) -> None:
    for rounds in range(1, 500):
        assert rounds_per_job(rounds * seconds, seconds) == rounds
        assert rounds_per_job(sum([seconds] * rounds), seconds) == rounds


# The update steps, Eqs. 3 and 6


def test_the_server_step_is_a_mean_a_weighted_mean_or_nothing() -> None:
    w, deltas = torch.zeros(2), torch.tensor([[1.0, 2.0], [3.0, -2.0]])
    assert mean_step(w, deltas, 0.5).tolist() == [-1, 0]
    assert mean_step(w, deltas, 0.5, [3, 1]).tolist() == [-0.75, -0.5]
    assert mean_step(w, deltas[:0], 0.5) is w


# Measured times, 2.2


def test_o11_fits_of_the_upload_time() -> None:
    rates, seconds = (0.1, 0.25, 0.5, 1), (1.02, 2.31, 4.66, 9.12)
    assert fit_upload(rates, seconds) == close((9.17164461247637, 0))
    assert fit_upload_with_latency(rates, seconds) == pytest.approx((9.0305220884, 0.1008835341), abs=5e-11)


@given(beta=st.floats(0.01, 100), latency=st.floats(0, 10))
def test_noiseless_measurements_are_recovered(beta, latency) -> None:
    rates = np.repeat([0.05, 0.1, 0.25, 0.5, 1], 3)
    fit = fit_upload_with_latency(rates.tolist(), (beta * rates + latency).tolist())
    assert fit == pytest.approx((beta, latency), rel=1e-9, abs=1e-9)
    assert fit_upload(rates.tolist(), (beta * rates).tolist()) == close((beta, 0))


def test_a_fit_with_latency_stays_physical() -> None:
    """A negative intercept or slope would make a plan's job shorter than possible: the bound is the best fit then."""
    assert fit_upload_with_latency([0.5, 1], [1, 3]) == fit_upload([0.5, 1], [1, 3])
    assert fit_upload_with_latency([0.5, 1], [3, 2]) == (0, 2.5)


def test_the_first_steps_warm_up() -> None:
    assert mean_step_seconds([9, 9, 9, 1, 2, 3]) == 2
    assert mean_step_seconds([4, 2], warm_up=1) == 2


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: key_convergence_factor(0, 0.1, 1, 1, 1), "local_steps = 0; local_steps must be > 0"),
        (lambda: key_convergence_factor(1, 0, 1, 1, 1), r"compression_rate = 0; .* in \(0, 1\]"),
        (lambda: key_convergence_factor(1, np.array([0.5, 1.5]), 1, 1, 1), "compression_rate = array"),
        (lambda: key_convergence_factor(1, 1, -1, 1, 1), "seconds_per_step = -1"),
        (lambda: key_convergence_factor(1, 1, 1, float("nan"), 1), "full_upload_seconds = nan"),
        (lambda: key_convergence_factor(1, 1, 1, 1, 0), "period_seconds = 0"),
        (lambda: key_convergence_factor(1, 1, 1, 1, 1, latency_seconds=-1), "latency_seconds = -1"),
        (lambda: staleness_factor(1, 1, -1), "round_staleness = -1"),
        (lambda: Variant(0), "staleness_coefficient = 0"),
        (lambda: Variant(delta_power=2), r"delta_power = 2; .* in \(0, 1\]"),
        (lambda: Variant(delta_power=0), "delta_power = 0"),
        (lambda: Variant(contraction="loose"), "contraction = 'loose'; .*'printed' or 'tight'"),  # type: ignore[arg-type]
        (lambda: rounds_per_job(-1, 1), "job_seconds = -1"),
        (lambda: rounds_per_job(1, 0), "period_seconds = 0"),
        (lambda: mean_step(np.zeros(1), np.zeros((1, 1)), 0.0), "global_lr = 0.0"),
        (lambda: mean_step(np.zeros(1), np.zeros((2, 1)), 1.0, [1]), "2, one per upload"),
        (lambda: mean_step(np.zeros(1), np.zeros((1, 1)), 1.0, [0]), r"sample_counts = \[0\]"),
        (lambda: mean_step_seconds([1, 1, 1]), "must be > warm_up = 3"),
        (lambda: mean_step_seconds([-1], 0), "step_seconds"),
        (lambda: mean_step_seconds([1], -1), "warm_up = -1"),
        (lambda: fit_upload([], []), "compression_rates"),
        (lambda: fit_upload([0.5], [1, 2]), "1, one per rate"),
        (lambda: fit_upload([0.0], [1]), "compression_rates"),
        (lambda: fit_upload([0.5], [-1]), "upload_seconds"),
        (lambda: fit_upload_with_latency([0.5, 0.5], [1, 2]), "at least two different rates"),
    ],
)
def test_each_formula_names_what_is_wrong(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
