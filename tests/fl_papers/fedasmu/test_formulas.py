"""FedASMU, formulas of the chapters: gradients and errors of kept directions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fl_core.formulas.fedasmu import (
    blend,
    half_product,
    sketch,
    to_half,
)
from fl_papers.fedasmu.extra_formulas import grad_estimate, half_error, sketch_error


class Bowl:
    """A random quadratic with its gradient, and two random models."""

    def __init__(self, seed: int, size: int = 7) -> None:
        rng = torch.Generator().manual_seed(seed)
        root = torch.randn(size, size, generator=rng, dtype=torch.float64)
        self.hessian = root @ root.T / size + torch.eye(size, dtype=torch.float64)
        self.centre, self.model, self.other = torch.randn(3, size, generator=rng, dtype=torch.float64)

    def loss(self, x: torch.Tensor) -> torch.Tensor:
        return 0.5 * (x - self.centre) @ self.hessian @ (x - self.centre)

    def gradient(self, x: torch.Tensor) -> torch.Tensor:
        return self.hessian @ (x - self.centre)


def test_d3_the_update_of_a_device_is_its_mean_gradient_and_with_a_merge_it_needs_the_jump() -> None:
    bowl, lr = Bowl(3), 0.01
    w, gradients, jump = bowl.model.clone(), [], torch.zeros(7, dtype=torch.float64)
    for step in range(6):
        if step == 3:
            merged = blend(w, bowl.other, 0.15)
            jump, w = merged - w, merged
        gradients.append(bowl.gradient(w))
        w = w - lr * gradients[-1]
    mean = torch.stack(gradients).mean(0)
    np.testing.assert_allclose(grad_estimate(bowl.model, w, lr, 6, jump), mean, atol=1e-12)
    plain = grad_estimate(bowl.model, w, lr, 6)
    true = bowl.gradient(bowl.model)
    cosine = torch.nn.functional.cosine_similarity
    assert cosine(grad_estimate(bowl.model, w, lr, 6, jump), true, 0) > 0.99 > cosine(plain, true, 0)


def pair(size: int, seed: int, scale: float = 1.0, correlation: float = 0.0) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    vector = rng.normal(size=size)
    direction = scale * (rng.standard_cauchy(size=size) + correlation * vector)
    return torch.from_numpy(vector), torch.from_numpy(direction)


@given(seed=st.integers(0, 10**6), size=st.integers(0, 300), exponent=st.integers(-40, 6))
def test_half_precision_stays_within_its_bound_at_every_scale(seed, size, exponent) -> None:
    vector, direction = pair(size, seed, 10.0**exponent)
    kept = to_half(direction)
    assert kept.values.dtype == torch.float16
    error = abs(half_product(vector, kept) - float(vector @ direction))
    assert error <= half_error(vector, direction) * (1 + 1e-9)


def test_half_precision_of_the_smallest_numbers_is_finite() -> None:
    for dtype, largest in ((torch.float32, 1e-40), (torch.float64, 1e-310)):
        direction = torch.tensor([largest, -largest / 3], dtype=dtype)
        kept = to_half(direction)
        assert kept.values.isfinite().all()
        vector = torch.tensor([1e30, 2e30], dtype=dtype)
        assert abs(half_product(vector, kept) - float(vector @ direction)) <= half_error(vector, direction) * 1.001


@pytest.mark.parametrize("correlation", [0.0, 1.0])
def test_a_sketch_is_unbiased_and_has_the_stated_deviation(correlation) -> None:
    vector, direction = pair(400, 1, correlation=correlation)
    direction = direction.clamp(-5, 5)
    size, seeds = 32, 2000
    products = np.array([float(sketch(vector, size, s) @ sketch(direction, size, s)) for s in range(seeds)])
    exact, deviation = float(vector @ direction), sketch_error(vector, direction, size)
    assert abs(products.mean() - exact) < 4 * deviation / seeds**0.5
    assert products.std() == pytest.approx(deviation, rel=0.1)
    assert deviation <= float(vector.norm() * direction.norm()) * (2 / size) ** 0.5
