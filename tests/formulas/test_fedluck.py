"""FedLuck in formulas: job time, staleness, the update steps, the key convergence factor, measurements."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from fedluck_runs import random_devices
from hypothesis import given
from hypothesis import strategies as st
from refusals import refuses

from fl_core.algorithms.base import mean_step
from fl_core.formulas import fedluck
from fl_core.formulas.fedluck import SOLVERS, Box, Variant

close = partial(pytest.approx, rel=1e-10)


# The key convergence factor, Eq. 14


# Time and staleness, Eqs. 5 and 7


# Measured times, 2.2


@pytest.mark.parametrize("seconds", [0.3, 0.7, 0.1])
def test_rounding_never_delays_a_job_that_ends_at_a_tick(seconds) -> None:
    for rounds in range(1, 500):
        assert fedluck.rounds_per_job(rounds * seconds, seconds) == rounds
        assert fedluck.rounds_per_job(sum([seconds] * rounds), seconds) == rounds


@given(beta=st.floats(0.01, 100), latency=st.floats(0, 10))
def test_noiseless_measurements_are_recovered(beta, latency) -> None:
    rates = np.repeat([0.05, 0.1, 0.25, 0.5, 1], 3)
    fit = fedluck.fit_upload_with_latency(rates.tolist(), (beta * rates + latency).tolist())
    assert fit == pytest.approx((beta, latency), rel=1e-9, abs=1e-9)
    assert fedluck.fit_upload(rates.tolist(), (beta * rates).tolist()) == close((beta, 0))


def test_a_fit_with_latency_stays_physical() -> None:
    """A negative intercept or slope would make a plan's job shorter than possible: the bound is the best fit then."""
    assert fedluck.fit_upload_with_latency([0.5, 1], [1, 3]) == fedluck.fit_upload([0.5, 1], [1, 3])
    assert fedluck.fit_upload_with_latency([0.5, 1], [3, 2]) == (0, 2.5)


test_each_formula_names_what_is_wrong = refuses(
    ValueError,
    (lambda: fedluck.key_convergence_factor(0, 0.1, 1, 1, 1), "local_steps = 0; local_steps must be > 0"),
    (lambda: fedluck.key_convergence_factor(1, 0, 1, 1, 1), r"compression_rate = 0; .* in \(0, 1\]"),
    (lambda: fedluck.key_convergence_factor(1, np.array([0.5, 1.5]), 1, 1, 1), "compression_rate = array"),
    (lambda: fedluck.key_convergence_factor(1, 1, -1, 1, 1), "seconds_per_step = -1"),
    (lambda: fedluck.key_convergence_factor(1, 1, 1, float("nan"), 1), "full_upload_seconds = nan"),
    (lambda: fedluck.key_convergence_factor(1, 1, 1, 1, 0), "period_seconds = 0"),
    (lambda: fedluck.key_convergence_factor(1, 1, 1, 1, 1, latency_seconds=-1), "latency_seconds = -1"),
    (lambda: fedluck.staleness_factor(1, 1, -1), "round_staleness = -1"),
    (lambda: Variant(0), "staleness_coefficient = 0"),
    (lambda: Variant(delta_power=2), r"delta_power = 2; .* in \(0, 1\]"),
    (lambda: Variant(delta_power=0), "delta_power = 0"),
    (lambda: Variant(contraction="loose"), "contraction = 'loose'; .*'printed' or 'tight'"),  # type: ignore[arg-type]
    (lambda: fedluck.rounds_per_job(-1, 1), "job_seconds = -1"),
    (lambda: fedluck.rounds_per_job(1, 0), "period_seconds = 0"),
    (lambda: mean_step(np.zeros(1), np.zeros((1, 1)), 0.0), "global_lr = 0.0"),
    (lambda: mean_step(np.zeros(1), np.zeros((2, 1)), 1.0, [1]), "2, one per upload"),
    (lambda: mean_step(np.zeros(1), np.zeros((1, 1)), 1.0, [0]), r"sample_counts = \[0\]"),
    (lambda: fedluck.mean_step_seconds([1, 1, 1]), "must be > warm_up = 3"),
    (lambda: fedluck.mean_step_seconds([-1], 0), "step_seconds"),
    (lambda: fedluck.mean_step_seconds([1], -1), "warm_up = -1"),
    (lambda: fedluck.fit_upload([], []), "compression_rates"),
    (lambda: fedluck.fit_upload([0.5], [1, 2]), "1, one per rate"),
    (lambda: fedluck.fit_upload([0.0], [1]), "compression_rates"),
    (lambda: fedluck.fit_upload([0.5], [-1]), "upload_seconds"),
    (lambda: fedluck.fit_upload_with_latency([0.5, 0.5], [1, 2]), "at least two different rates"),
)


# The global minimum


TIMES = {
    "alpha": st.floats(0, 5),
    "beta": st.just(0.0) | st.floats(0.01, 500),
    "latency": st.floats(0, 5),
    "period": st.floats(0.05, 20),
}


@pytest.mark.parametrize("solver", ["exact", "exact_ceil"])
@given(
    **TIMES,
    k=st.integers(2, 60),
    delta=st.floats(0.01, 1),
    c=st.floats(0.2, 4),
    p=st.floats(0.05, 1),
    form=st.sampled_from(["printed", "tight"]),
)
def test_no_point_of_the_box_beats_the_plan(solver, alpha, beta, latency, period, k, delta, c, p, form) -> None:
    options = {"latency_seconds": latency, "variant": Variant(c, p, form)}
    found = fedluck.plan_devices(alpha, beta, period, solver=solver, **options)
    if solver == "exact":
        assert found.factor[0] <= fedluck.key_convergence_factor(k, delta, alpha, beta, period, **options) * (
            1 + 1e-14
        )
    else:
        d = fedluck.job_seconds(k, delta, alpha, beta, latency_seconds=latency)
        other = fedluck.staleness_factor(k, delta, max(1, np.ceil(d / period)), options["variant"])
        assert found.factor[0] <= other * (1 + 1e-8)


def test_many_devices_are_planned_as_each_alone() -> None:
    alpha, beta = random_devices(5, 700)
    for solver, n in (("exact", 700), ("exact_ceil", 700), ("official_grid", 30)):
        together = fedluck.plan_devices(alpha[:n], beta[:n], 1.5, solver=solver)
        for i in range(0, n, n // 7):
            alone = fedluck.plan_devices(alpha[i], beta[i], 1.5, solver=solver)
            assert [column[i] for column in together] == [column[0] for column in alone]


# Oracles


@pytest.mark.parametrize(
    ("device", "box", "k", "delta", "phi"),
    [
        ((0.4, 9, 1.5), Box(), 3, 0.0729431291170741, 4.8774021879351),
        ((0.25, 60, 3), Box(), 10, 0.0210480796507567, 2.83527012484777),
        ((0.05, 2, 3), Box(), 60, 1, 0.062962962962963),
        ((0.02, 0.5, 2), Box(1, 60, 0.001, 1.0), 60, 1, 0.0287083333333333),
        ((0.1, 3.6, 1.5), Box(), 39, 1, 2 / 3),  # O4: although an interior minimum exists
        ((0.3, 7, 1.5), Box(5, 20, 0.05, 0.5), 5, 0.108877344290077, 3.21310495452194),
    ],
)
def test_o6_exact(device, box, k, delta, phi) -> None:
    found = fedluck.plan_devices(*device, solver="exact", box=box)
    assert [column[0] for column in found] == close([k, delta, phi])


# The paper's devices, 6.3


def test_a_device_without_compute_or_upload_time_takes_all_it_can() -> None:
    assert fedluck.plan_devices(0, 0, 1.0, solver="exact").local_steps[0] == 60
    for solver in SOLVERS:
        assert fedluck.plan_devices(0.3, 0.0, 1.0, solver=solver).compression_rate[0] == 1
    assert fedluck.plan_devices(0.0, 5.0, 1.0, solver="exact").local_steps[0] == 60


test_the_planners_name_what_is_wrong = refuses(
    ValueError,
    (
        lambda: fedluck.plan_devices(1, 1, 1, solver="exactly"),
        "solver = 'exactly'; solver must be one of official_grid, exact",
    ),
    (lambda: fedluck.plan_devices(-1, 1, 1), "seconds_per_step = -1"),
    (lambda: fedluck.plan_devices(1, [1, float("inf")], 1), "full_upload_seconds = .*inf"),
    (lambda: fedluck.plan_devices(1, 1, 1, latency_seconds=-1), "latency_seconds = -1"),
    (lambda: fedluck.plan_devices(1, 1, 0), "period_seconds = 0"),
    (lambda: Box(0), r"k_min = 0; k_min must be in 1\.\.k_max = 60"),
    (lambda: Box(2.5), "k_min = 2.5; k_min must be a whole number"),  # type: ignore[arg-type]
    (lambda: Box(5, 4), "k_min = 5"),
    (lambda: Box(delta_min=0), "delta_min = 0"),
    (lambda: Box(delta_min=0.5, delta_max=0.4), "delta_min = 0.5"),
    (lambda: Box(delta_max=1.5), "delta_max = 1.5"),
    (lambda: fedluck.plan_devices(1, 1, 1, box=Box(delta_min=0.011, delta_max=0.019)), "multiple of 0.01"),
)
