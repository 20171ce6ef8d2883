"""FedLuck, formulas of the chapters: gradients, ceilings, timelines, plans beside the continuous optimum."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from fedluck_runs import random_devices
from hypothesis import given
from hypothesis import strategies as st
from refusals import refuses

from fl_core.formulas.fedluck import Box, Variant, job_seconds, key_convergence_factor, plan_devices
from fl_papers.fedluck.theory import (
    ceil_factor,
    factor_gradient,
    joint_optimum,
    momentum_step,
    round_staleness,
    timeline,
)

close = partial(pytest.approx, rel=1e-10)


VARIANTS = [
    Variant(),
    Variant(staleness_coefficient=2),
    Variant(delta_power=1),
    Variant(delta_power=0.2),
    Variant(contraction="tight"),
    Variant(3, 0.7, "tight"),
]


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


def test_job_time_is_linear_in_both_choices() -> None:
    assert job_seconds(10, 0.1, 0.2, 5.0) == close(2.5)
    assert job_seconds(10, 0.1, 0.2, 5.0, latency_seconds=0.25) == close(2.75)
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


test_an_argument_out_of_range_is_refused = refuses(
    ValueError,
    (lambda: factor_gradient(1, 1, 1, 1, 0), "period_seconds = 0"),
    (lambda: round_staleness(3, 3), r"last_round = 3; .* in -1\.\.2"),
    (lambda: momentum_step(np.zeros(1), np.zeros(1), np.zeros(1), 0.0), "local_lr = 0.0"),
    (lambda: momentum_step(np.zeros(1), np.zeros(1), np.zeros(1), 0.1, 1.0), "momentum = 1.0"),
    (lambda: timeline([0.0], 1, 1), "job_seconds"),
    (lambda: timeline([1.0], 0, 1), "period_seconds = 0"),
    (lambda: timeline([1.0], 1, -1), "num_rounds = -1"),
)
