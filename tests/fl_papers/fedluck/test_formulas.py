"""FedLuck, formulas of the chapters: gradients, ceilings, timelines, plans beside the continuous optimum."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import sympy as sp
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from fl_core.formulas.fedluck import (
    SOLVERS,
    Box,
    Variant,
    job_seconds,
    key_convergence_factor,
    plan_devices,
    rounds_per_job,
    staleness_factor,
)
from fl_papers.fedluck.experiment import FedLuckWorld
from fl_papers.fedluck.theory import (
    COMPRESSION_THRESHOLD,
    ceil_factor,
    factor_gradient,
    joint_optimum,
    momentum_step,
    periodic_models,
    printed_supplement_factor,
    round_staleness,
    timeline,
)

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


@pytest.mark.parametrize("form", ["printed", "tight"])
def test_the_gradient_is_the_derivative_for_every_c_and_p(form) -> None:
    k, delta, alpha, beta, T, c, p, latency = sp.symbols("k delta alpha beta T c p l", positive=True)
    variant = Variant(c, p, form)
    phi = key_convergence_factor(k, delta, alpha, beta, T, latency_seconds=latency, variant=variant)
    found = factor_gradient(k, delta, alpha, beta, T, latency_seconds=latency, variant=variant)
    assert sp.simplify(sp.diff(phi, k) - found.local_steps) == 0
    assert sp.simplify(sp.diff(phi, delta) - found.compression_rate) == 0


def test_the_ceiling_factor_uses_the_staleness_that_occurs() -> None:
    assert ceil_factor(*POINT) == close(staleness_factor(10, 0.1, 2))
    assert ceil_factor(5, 1 / 9, 0.4, 9, 1.5) == close(5.133333333333334)
    assert ceil_factor(10, 0.1, 0.2, 5, 2.5) == close(key_convergence_factor(10, 0.1, 0.2, 5, 2.5))  # d = period


def test_o8_a_device_that_takes_two_rounds_arrives_in_every_second_one() -> None:
    run = timeline([3.0], 1.5, 8)
    uses = [(t, one.round_staleness, t - one.start_round) for t, uploads in enumerate(run) for one in uploads]
    assert uses == [(1, 2, 1), (3, 2, 1), (5, 2, 1), (7, 2, 1)]


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


PARAMETERS = {"cnn": 234_090, "vgg11s": 865_482, "lstm": 216_330}


PERIODS = {"cnn": 1.5, "vgg11s": 3.0, "lstm": 1.5}


def devices(cell: str) -> tuple[np.ndarray, np.ndarray, float]:
    """Return alpha, beta and the period of one of the paper's tasks."""
    world = FedLuckWorld(cell=cell).world()
    bits = np.array(world.network.up_bits_per_second)
    return np.array(world.compute.seconds_per_step), 32 * PARAMETERS[cell] / bits, PERIODS[cell]


def random_devices(seed: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return alpha and beta, log-uniform over 0.005..2 s and 0.05..200 s."""
    rng = np.random.default_rng(seed)
    return np.exp(rng.uniform(np.log(0.005), np.log(2), n)), np.exp(rng.uniform(np.log(0.05), np.log(200), n))


def brute_force(alpha, beta, period, box, form="printed") -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return k, delta and phi by search alone: a fine grid for every k, its lowest valley refined by golden section.

    Shares no code with the planner, not even phi.
    """
    a, b = alpha[:, None], beta[:, None]
    k = np.arange(box.k_min, box.k_max + 1.0)

    def phi(delta):
        excess = 2 - delta if form == "printed" else 1
        return ((k * a + delta * b) ** 2 * excess + period**2) / (period**2 * k * np.sqrt(delta))

    grid = np.unique(
        np.concatenate(
            [np.linspace(box.delta_min, box.delta_max, 1000), np.geomspace(box.delta_min, box.delta_max, 1000)]
        )
    )
    before, here = np.full((len(alpha), len(k)), np.inf), phi(grid[0])
    best, low, high = here.copy(), np.full(here.shape, grid[0]), np.full(here.shape, grid[1])
    for j in range(len(grid)):
        after = phi(grid[j + 1]) if j + 1 < len(grid) else np.full(here.shape, np.inf)
        valley = (here <= before) & (here <= after) & (here < best)
        best = np.where(valley, here, best)
        low, high = (
            np.where(valley, grid[max(j - 1, 0)], low),
            np.where(valley, grid[min(j + 1, len(grid) - 1)], high),
        )
        before, here = here, after
    ratio = (np.sqrt(5) - 1) / 2
    for _ in range(60):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        lower = phi(left) < phi(right)
        low, high = np.where(lower, low, left), np.where(lower, right, high)
    candidates = np.stack([np.full(here.shape, grid[0]), (low + high) / 2, np.full(here.shape, grid[-1])])
    values = np.stack([phi(delta) for delta in candidates])
    pick = values.argmin(axis=0)[None]
    values, rates = np.take_along_axis(values, pick, 0)[0], np.take_along_axis(candidates, pick, 0)[0]
    index, rows = values.argmin(axis=1), np.arange(len(alpha))
    return k[index].astype(int), rates[rows, index], values[rows, index]


@pytest.mark.parametrize(
    ("n", "period", "box"),
    [(500, 1.5, Box()), (150, 3.0, Box(1, 60, 0.001, 1.0)), (150, 0.8, Box(5, 20, 0.05, 0.5))],
)
def test_the_exact_planner_equals_brute_force(n, period, box) -> None:
    alpha, beta = random_devices(n, n)
    k, rate, factor = brute_force(alpha, beta, period, box)
    found = plan_devices(alpha, beta, period, solver="exact", box=box)
    assert found.local_steps.tolist() == k.tolist()
    assert np.abs(found.factor / factor - 1).max() < 1e-14
    assert np.abs(found.compression_rate / rate - 1).max() < 1e-6  # what a flat valley lets a search see
    inside = (rate > box.delta_min * 1.001) & (rate < box.delta_max * 0.999)
    assert inside.sum() > n / 20
    slope = factor_gradient(k, found.compression_rate, alpha, beta, period).compression_rate
    assert np.abs(slope * found.compression_rate / found.factor)[inside].max() < 1e-12


def random_boxes(seed: int, n: int):
    """Yield n times 60 devices with latency, a period, and a box with one k and a random largest rate."""
    rng = np.random.default_rng(seed)
    for i in range(n):
        box = Box(1, 60, 0.001, float(rng.uniform(0.1, 1))).fixed_steps(int(rng.integers(1, 61)))
        yield *random_devices(1000 * seed + i, 60), rng.uniform(0, 2, 60), rng.uniform(0.2, 20), box


@pytest.mark.parametrize(
    "variant", [Variant(), Variant(2, 0.2), Variant(delta_power=1), Variant(contraction="tight")]
)
def test_the_best_rate_for_given_steps(variant) -> None:
    """Below every point of a grid and, inside the box, stationary to rounding."""
    inside = 0
    for alpha, beta, latency, period, box in random_boxes(1, 60):
        found = plan_devices(alpha, beta, period, solver="exact", box=box, latency_seconds=latency, variant=variant)
        grid = np.geomspace(box.delta_min, box.delta_max, 300)[:, None]
        options = {"latency_seconds": latency, "variant": variant}
        values = key_convergence_factor(box.k_min, grid, alpha, beta, period, **options)
        assert (found.factor <= values.min(axis=0) * (1 + 1e-14)).all()
        slope = factor_gradient(box.k_min, found.compression_rate, alpha, beta, period, **options).compression_rate
        free = (found.compression_rate > box.delta_min) & (found.compression_rate < box.delta_max)
        assert (np.abs(slope * found.compression_rate / found.factor)[free] < 1e-12).all()
        inside += free.sum()
    assert inside > 500


def test_the_plan_with_the_ceiling_equals_an_enumeration_of_all_staleness_values() -> None:
    for alpha, beta, latency, period, box in random_boxes(2, 60):
        found = plan_devices(alpha, beta, period, solver="exact_ceil", box=box, latency_seconds=latency)
        for a, b, rest, factor in zip(alpha, beta, latency, found.factor, strict=True):
            u = box.k_min * a + rest
            first, last = (int(np.ceil((u + delta * b) / period)) for delta in (box.delta_min, box.delta_max))
            m = np.arange(first, last + 1)
            delta = np.minimum((m * period - u) / b, box.delta_max)
            assert factor == pytest.approx(((m**2 * (2 - delta) + 1) / (box.k_min * delta**0.5)).min(), rel=1e-13)
    alpha, beta = random_devices(3, 40)
    joint = plan_devices(alpha, beta, 1.5, solver="exact_ceil")
    each = [
        plan_devices(alpha, beta, 1.5, solver="exact_ceil", box=Box().fixed_steps(k)).factor for k in range(2, 61)
    ]
    assert joint.factor.tolist() == np.min(each, axis=0).tolist()
    plain = ceil_factor(joint.local_steps, joint.compression_rate, alpha, beta, 1.5)
    assert joint.factor.tolist() == close(plain.tolist())


def test_rounding_the_continuous_optimum_finds_the_same_steps() -> None:
    """Not proved, hence not used: the whole k beside the continuous one is the best where the box does not bind."""
    alpha, beta = random_devices(11, 400)
    period, box = 1.5, Box(1, 2000, 1e-5, 1.0)
    continuous = joint_optimum(beta / period).kappa * period / alpha
    free = (continuous > 2) & (continuous < 1500)
    found = plan_devices(alpha[free], beta[free], period, solver="exact", box=box)
    assert (np.abs(found.local_steps - continuous[free]) < 1).all()


def test_the_best_rate_depends_on_the_network_alone() -> None:
    """Claim C20 in sharper form, for whole k up to their rounding: delta* changes with beta, k* alpha does not."""
    alpha = np.array([0.001, 0.002, 0.004])
    found = plan_devices(alpha, 9.0, 1.5, solver="exact", box=Box(1, 5000, 1e-4, 1.0))
    assert np.ptp(found.compression_rate) < 1e-3 * found.compression_rate.mean()
    assert np.abs(found.local_steps * alpha / joint_optimum(6.0).kappa / 1.5 - 1).max() < 2e-3
    assert plan_devices(0.004, 12.0, 1.5, solver="exact").compression_rate[0] < found.compression_rate.min() * 0.9


@pytest.mark.parametrize(("cell", "period"), [("cnn", 1.147), ("vgg11s", 4.242), ("lstm", 1.060)])
def test_every_device_compresses_if_the_period_is_short_enough(cell, period) -> None:
    """All of them iff T~ < min beta / r_0 (3.6), where k is free and need not be whole."""
    _, beta, _ = devices(cell)
    assert beta.min() / COMPRESSION_THRESHOLD == pytest.approx(period, abs=5e-4)
    assert (joint_optimum(beta / (period - 0.001)).compression_rate < 1).all()
    assert (joint_optimum(beta / (period + 0.001)).compression_rate == 1).any()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: factor_gradient(1, 1, 1, 1, 0), "period_seconds = 0"),
        (lambda: round_staleness(3, 3), r"last_round = 3; .* in -1\.\.2"),
        (lambda: momentum_step(np.zeros(1), np.zeros(1), np.zeros(1), 0.0), "local_lr = 0.0"),
        (lambda: momentum_step(np.zeros(1), np.zeros(1), np.zeros(1), 0.1, 1.0), "momentum = 1.0"),
        (lambda: timeline([0.0], 1, 1), "job_seconds"),
        (lambda: timeline([1.0], 0, 1), "period_seconds = 0"),
        (lambda: timeline([1.0], 1, -1), "num_rounds = -1"),
    ],
)
def test_an_argument_out_of_range_is_refused(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_a_local_solver_ends_in_the_wrong_valley() -> None:
    """E17: L-BFGS-B from (1, 1) misses the optimum for 13 of the paper's 30 devices, whole k or not."""
    wrong = 0
    for cell in PARAMETERS:
        alpha, beta, period = devices(cell)
        exact = plan_devices(alpha, beta, period, solver="exact", box=Box(1, 60, 0.001, 1.0))
        for a, b, best in zip(alpha, beta, exact.factor, strict=True):
            stop = minimize(
                lambda x, a=a, b=b, period=period: key_convergence_factor(x[0], x[1], a, b, period),
                (1.0, 1.0),
                bounds=[(1, 60), (0.001, 1)],
                method="L-BFGS-B",
            )
            wrong += stop.fun > best * 1.01
    assert wrong == 13


CNN_EXACT = (
    (3, 0.073566110676, 4.85726991738), (3, 0.020188887291, 8.3183015501), (4, 0.10673358974, 3.46638120986),
    (4, 0.1155668774, 2.93084693871), (5, 0.13838290271, 2.45250247059), (6, 0.16017509041, 2.03500756041),
    (24, 1, 1.63127040832), (26, 1, 1.26040153767), (31, 1, 0.940759655158), (39, 1, 0.661877343628),
)  # fmt: skip


CNN_GRID = (
    (3, 0.07, 4.8596288442), (3, 0.02, 8.3184552106), (4, 0.11, 3.4669799084), (4, 0.12, 2.9316443595),
    (5, 0.14, 2.4525632084), (6, 0.16, 2.0350079920), (24, 1, 1.6312704083), (26, 1, 1.2604015377),
    (31, 1, 0.9407596552), (39, 1, 0.6618773436),
)  # fmt: skip


VGG_STEPS = [6, 7, 8, 8, 10, 11, 13, 15, 19, 26]


VGG_RATES = [0.038315134277, 0.011486717301, 0.054433600068, 0.058743718863, 0.069168765157, 0.075253767516,
             0.083330682731, 0.089270362278, 0.097614820222, 0.10697824525]  # fmt: skip


LSTM_STEPS = [2, 2, 3, 3, 3, 14, 15, 16, 19, 24]


LSTM_RATES = [0.080180810088, 0.021884271778, 0.12561147703, 0.13509164492, 0.14335823743, 1, 1, 1, 1, 1]


ROUNDS = {"cnn": [2] * 6 + [7, 6, 6, 5], "vgg11s": [2] * 10, "lstm": [2] * 5 + [7, 6, 6, 5, 5]}


@pytest.mark.parametrize(("solver", "table"), [("exact", CNN_EXACT), ("official_grid", CNN_GRID)])
def test_plan_of_the_cnn(solver, table) -> None:
    found = plan_devices(*devices("cnn"), solver=solver)
    for column, expected in zip(found, zip(*table, strict=True), strict=True):
        assert column.tolist() == close(expected)


@pytest.mark.parametrize(
    ("cell", "steps", "rates"), [("vgg11s", VGG_STEPS, VGG_RATES), ("lstm", LSTM_STEPS, LSTM_RATES)]
)
def test_plans_of_the_others(cell, steps, rates) -> None:
    exact, grid = (plan_devices(*devices(cell), solver=solver) for solver in ("exact", "official_grid"))
    assert exact.local_steps.tolist() == steps
    assert grid.local_steps.tolist() == ([6, 7, 7, 8, 10, 11, 13, 15, 19, 26] if cell == "vgg11s" else steps)
    assert exact.compression_rate.tolist() == close(rates)
    assert grid.compression_rate.tolist() == np.round(rates, 2).tolist()


@pytest.mark.parametrize("cell", PARAMETERS)
def test_staleness_of_the_plans(cell) -> None:
    alpha, beta, period = devices(cell)
    for solver in ("exact", "official_grid"):
        k, delta, _ = plan_devices(alpha, beta, period, solver=solver)
        assert rounds_per_job(job_seconds(k, delta, alpha, beta), period).tolist() == ROUNDS[cell]


@pytest.mark.parametrize(
    ("cell", "fixed_rate", "steps", "fixed_steps", "rates"),
    [
        ("cnn", 0.3, [7, 25, 7, 7, 7, 8, 9, 10, 12, 16], 10, [21, 5, 25, 26, 26, 26, 24, 23, 21, 20]),
        ("vgg11s", 0.1, [10, 31, 10, 10, 11, 12, 14, 16, 19, 25], 7, [4, 1, 5, 6, 6, 6, 7, 7, 8, 9]),
        ("lstm", 0.16, [3, 8, 3, 3, 3, 4, 4, 5, 6, 8], 20, [100, 17] + [100] * 8),
    ],
)
def test_one_variable_alone(cell, fixed_rate, steps, fixed_steps, rates) -> None:
    frequency_only = plan_devices(*devices(cell), box=Box().fixed_compression(fixed_rate))
    compression_only = plan_devices(*devices(cell), box=Box().fixed_steps(fixed_steps))
    assert frequency_only.local_steps.tolist() == steps
    assert set(frequency_only.compression_rate.tolist()) == {fixed_rate}
    assert (compression_only.compression_rate * 100).tolist() == close(rates)
    assert set(compression_only.local_steps.tolist()) == {fixed_steps}


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("cell", PARAMETERS)
def test_both_variables_together_are_never_worse_than_one(cell, solver) -> None:
    joint, one = plan_devices(*devices(cell), solver=solver), []
    for box in (Box().fixed_compression(0.3), Box().fixed_steps(10)):
        one.append(plan_devices(*devices(cell), solver=solver, box=box).factor)
    assert (joint.factor <= np.minimum(*one) * (1 + 1e-12)).all()
