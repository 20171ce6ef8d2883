"""FedLuck in formulas: job time, staleness, the update steps, the key convergence factor, measurements."""

from __future__ import annotations

from collections.abc import Callable
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
    job_seconds,
    key_convergence_factor,
    mean_step_seconds,
    rounds_per_job,
    staleness_factor,
)
from fl_papers.fedluck.extra_formulas import (
    ceil_factor,
    factor_gradient,
    momentum_step,
    printed_supplement_factor,
    round_staleness,
)
from fl_papers.fedluck.toys import periodic_models, timeline

close = partial(pytest.approx, rel=1e-10)
POINT = (10, 0.1, 0.2, 5.0, 1.5)  # k, delta, alpha, beta, period
VARIANTS = [
    Variant(),
    Variant(staleness_coefficient=2),
    Variant(delta_power=1),
    Variant(delta_power=0.2),
    Variant(contraction="tight"),
    Variant(3, 0.7, "tight"),
]
Vector = np.ndarray


# The key convergence factor, Eq. 14


def test_o1_the_factor_and_its_variants() -> None:
    assert key_convergence_factor(*POINT) == close(1.98520764221682)
    assert key_convergence_factor(*POINT, variant=Variant(staleness_coefficient=2)) == close(3.65418751841679)
    assert key_convergence_factor(*POINT, variant=Variant(delta_power=1)) == close(6.27777777777778)
    assert printed_supplement_factor(*POINT[:4]) == close(12.875)


def test_o2_its_gradient() -> None:
    assert factor_gradient(*POINT) == close((0.0685160159703149, -4.12852916744205))


@pytest.mark.parametrize("variant", VARIANTS)
@given(
    k=st.floats(1, 80), delta=st.floats(0.01, 1), alpha=st.floats(0.01, 2), beta=st.floats(0, 90), l=st.floats(0, 3)
)
def test_the_gradient_is_that_of_automatic_differentiation(variant, k, delta, alpha, beta, l) -> None:  # noqa: E741
    x = torch.tensor([k, delta], dtype=torch.float64, requires_grad=True)
    phi = key_convergence_factor(x[0], x[1], alpha, beta, 1.5, latency_seconds=l, variant=variant)
    (expected,) = torch.autograd.grad(phi, x)
    found = factor_gradient(k, delta, alpha, beta, 1.5, latency_seconds=l, variant=variant)
    size = phi.item() * np.array([1 / k, 1 / delta])  # where the two parts of a derivative cancel
    assert np.abs(np.array(found) - expected.numpy()) / (size + np.abs(expected.numpy())) == pytest.approx(
        [0, 0], abs=1e-12
    )


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


@pytest.mark.parametrize("form", ["printed", "tight"])
def test_the_gradient_is_the_derivative_for_every_c_and_p(form) -> None:
    k, delta, alpha, beta, T, c, p, latency = sp.symbols("k delta alpha beta T c p l", positive=True)
    variant = Variant(c, p, form)
    phi = key_convergence_factor(k, delta, alpha, beta, T, latency_seconds=latency, variant=variant)
    found = factor_gradient(k, delta, alpha, beta, T, latency_seconds=latency, variant=variant)
    assert sp.simplify(sp.diff(phi, k) - found.local_steps) == 0
    assert sp.simplify(sp.diff(phi, delta) - found.compression_rate) == 0


def test_the_staleness_coefficient_only_rescales_the_period() -> None:
    doubled = key_convergence_factor(7, 0.3, 0.2, 5, 1.5, variant=Variant(staleness_coefficient=2))
    assert doubled == close(key_convergence_factor(7, 0.3, 0.2, 5, 1.5 / np.sqrt(2)))


def test_the_factor_falls_with_the_period() -> None:
    periods = np.linspace(0.2, 20, 200)
    assert (np.diff(key_convergence_factor(10, 0.1, 0.2, 5.0, periods)) < 0).all()


def test_the_ceiling_factor_uses_the_staleness_that_occurs() -> None:
    assert ceil_factor(*POINT) == close(staleness_factor(10, 0.1, 2))
    assert ceil_factor(5, 1 / 9, 0.4, 9, 1.5) == close(5.133333333333334)
    assert ceil_factor(10, 0.1, 0.2, 5, 2.5) == close(key_convergence_factor(10, 0.1, 0.2, 5, 2.5))  # d = period


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


def test_o8_a_device_that_takes_two_rounds_arrives_in_every_second_one() -> None:
    run = timeline([3.0], 1.5, 8)
    uses = [(t, one.round_staleness, t - one.start_round) for t, uploads in enumerate(run) for one in uploads]
    assert uses == [(1, 2, 1), (3, 2, 1), (5, 2, 1), (7, 2, 1)]


@pytest.mark.parametrize("seconds", [0.3, 0.7, 0.1])
def test_rounding_never_delays_a_job_that_ends_at_a_tick(seconds) -> None:
    for rounds in range(1, 500):
        assert rounds_per_job(rounds * seconds, seconds) == rounds
        assert rounds_per_job(sum([seconds] * rounds), seconds) == rounds


def test_the_timeline_gives_every_upload_the_same_staleness() -> None:
    """3.1: tau = ceil(d / T), one version less is missed, and Eq. 6's superscript t - tau is one too old (E1)."""
    rng, count = np.random.default_rng(0), 0
    for _ in range(60):
        period = rng.uniform(0.2, 4)
        jobs = rng.uniform(0.05, 8, size=rng.integers(1, 12)) * period
        jobs[0] = period * rng.integers(1, 5)  # one of them always ends at a tick
        rounds = rounds_per_job(jobs, period)
        run = timeline(jobs.tolist(), period, 60)
        for t, uploads in enumerate(run):
            for one in uploads:
                assert one.round_staleness == rounds[one.device] == t - one.start_round + 1
        taken = np.bincount([one.device for uploads in run for one in uploads], minlength=len(jobs))
        assert (taken == 60 // rounds).all()
        count += taken.sum()
    assert count > 5000


def test_rounds_without_uploads_count() -> None:
    """E2: the first round is empty unless a device is done within a period; the model stays and t advances."""
    run = timeline([2.0, 3.5], 1.0, 4)
    assert [len(uploads) for uploads in run] == [0, 1, 0, 2]
    models = periodic_models(np.zeros(1), run, lambda device, w: np.ones(1), 0.5)
    assert [w.item() for w in models] == [0, 0, -0.5, -0.5, -1]


def test_job_time_is_linear_in_both_choices() -> None:
    assert job_seconds(*POINT[:4]) == close(2.5)
    assert job_seconds(*POINT[:4], latency_seconds=0.25) == close(2.75)
    assert round_staleness(0) == 1
    assert round_staleness(7, 3) == 4


# The update steps, Eqs. 3 and 6


def test_local_steps_are_those_of_torch() -> None:
    w = torch.tensor([1.0, -2.0], dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.SGD([w], lr=0.05, momentum=0.9)
    x, velocity = w.detach().clone(), torch.zeros(2, dtype=torch.float64)
    for _ in range(5):
        optimiser.zero_grad()
        (w**4).sum().backward()
        optimiser.step()
        x, velocity = momentum_step(x, 4 * x**3, velocity, 0.05)
    assert torch.allclose(x, w.detach(), rtol=1e-14)


def test_the_server_step_is_a_mean_a_weighted_mean_or_nothing() -> None:
    w, deltas = torch.zeros(2), torch.tensor([[1.0, 2.0], [3.0, -2.0]])
    assert mean_step(w, deltas, 0.5).tolist() == [-1, 0]
    assert mean_step(w, deltas, 0.5, [3, 1]).tolist() == [-0.75, -0.5]
    assert mean_step(w, deltas[:0], 0.5) is w


# O13: two updates interleaved on a quadratic


CURVATURE = np.array([1.0, 2.0, 0.5])
CENTRES = np.array([[1.0, -1.0, 2.0], [-2.0, 0.5, 1.0], [0.5, 3.0, -1.0]])
JOBS = [(0.2, 2.0, 3, 1 / 3), (0.5, 6.0, 4, 2 / 3), (0.3, 3.0, 2, 1.0)]  # alpha, beta, k, delta


def keep_largest(x: Vector, rate: float) -> Vector:
    """Keep the largest ceil(n rate) entries in magnitude."""
    kept = np.argsort(-np.abs(x), kind="stable")[: int(np.ceil(len(x) * rate - 1e-9))]
    return np.where(np.isin(np.arange(len(x)), kept), x, 0)


def device_program(*, momentum: float = 0.0, reset: bool = False, feedback: bool = False) -> Callable:
    velocity, residual = np.zeros((3, 3)), np.zeros((3, 3))

    def upload(device: int, w: Vector) -> Vector:
        _, _, k, delta = JOBS[device]
        x, v = w, np.zeros(3) if reset else velocity[device]
        for _ in range(k):
            x, v = momentum_step(x, CURVATURE * (x - CENTRES[device]), v, 0.1, momentum)
        velocity[device] = v
        g = w - x + feedback * residual[device]
        sent = keep_largest(g, delta)
        residual[device] = g - sent
        return sent

    return upload


def quadratic_run(counts=None, **options) -> list[Vector]:
    jobs = [job_seconds(k, delta, alpha, beta) for alpha, beta, k, delta in JOBS]
    assert rounds_per_job(np.array(jobs), 1.5).tolist() == [1, 4, 3]
    return periodic_models(np.zeros(3), timeline(jobs, 1.5, 12), device_program(**options), 0.7, counts)


def test_o13_end_to_end() -> None:
    models = quadratic_run()
    for t, expected in {
        0: (0, -0.3416, 0),
        1: (0, -0.56650944, 0),
        2: (0.03325, -0.18850944, 0.0657125),
        3: (-0.20748, -0.2237920276479999, 0.0657125),
        5: (-0.061911647000000014, -0.08719248156344317, 0.029345060937499994),
        11: (-0.15910725394897313, -0.1842311926171174, -0.028399813798668124),
    }.items():
        assert models[t + 1].tolist() == close(expected), t


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"momentum": 0.9}, (-0.23127074391763214, -0.5810072057791518, 0.8081022951043968)),
        ({"momentum": 0.9, "reset": True}, (0.073605213054805, 0.037599276340570253, 0.27040058828251157)),
        ({"counts": [1, 2, 3]}, (-0.40001278703224535, -0.006329349872787049, -0.13157891488217816)),
        ({"feedback": True}, (0.6461212006106303, -0.27282583074934597, 0.934551547089382)),
    ],
)
def test_o13_variants(options, expected) -> None:
    assert quadratic_run(**options)[-1].tolist() == close(expected)


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
        (lambda: factor_gradient(1, 1, 1, 1, 0), "period_seconds = 0"),
        (lambda: staleness_factor(1, 1, -1), "round_staleness = -1"),
        (lambda: Variant(0), "staleness_coefficient = 0"),
        (lambda: Variant(delta_power=2), r"delta_power = 2; .* in \(0, 1\]"),
        (lambda: Variant(delta_power=0), "delta_power = 0"),
        (lambda: Variant(contraction="loose"), "contraction = 'loose'; .*'printed' or 'tight'"),  # type: ignore[arg-type]
        (lambda: rounds_per_job(-1, 1), "job_seconds = -1"),
        (lambda: rounds_per_job(1, 0), "period_seconds = 0"),
        (lambda: round_staleness(3, 3), r"last_round = 3; .* in -1\.\.2"),
        (lambda: momentum_step(np.zeros(1), np.zeros(1), np.zeros(1), 0.0), "local_lr = 0.0"),
        (lambda: momentum_step(np.zeros(1), np.zeros(1), np.zeros(1), 0.1, 1.0), "momentum = 1.0"),
        (lambda: mean_step(np.zeros(1), np.zeros((1, 1)), 0.0), "global_lr = 0.0"),
        (lambda: mean_step(np.zeros(1), np.zeros((2, 1)), 1.0, [1]), "2, one per upload"),
        (lambda: mean_step(np.zeros(1), np.zeros((1, 1)), 1.0, [0]), r"sample_counts = \[0\]"),
        (lambda: timeline([0.0], 1, 1), "job_seconds"),
        (lambda: timeline([1.0], 0, 1), "period_seconds = 0"),
        (lambda: timeline([1.0], 1, -1), "num_rounds = -1"),
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
