"""Inner products with directions that are kept in less memory: bounds that hold, and estimates without bias."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fl_core.formulas.fedasmu import half_product, sketch, to_half
from fl_papers.fedasmu.extra_formulas import half_error, sketch_error


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


def test_half_precision_is_exact_for_numbers_with_few_bits_and_for_nothing() -> None:
    direction = torch.tensor([1.5e-9 * 0 + 2**-40, -3 * 2.0**-40, 0.0], dtype=torch.float64)
    assert half_product(torch.tensor([1.0, 1.0, 5.0], dtype=torch.float64), to_half(direction)) == -(2.0**-39)
    assert half_product(torch.ones(4), to_half(torch.zeros(4))) == 0


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


def test_a_sketch_is_linear_and_the_same_for_the_same_seed() -> None:
    vector, direction = pair(50, 0)
    both = sketch(2 * vector - direction, 8, 3)
    torch.testing.assert_close(both, 2 * sketch(vector, 8, 3) - sketch(direction, 8, 3))
    assert not torch.equal(sketch(vector, 8, 3), sketch(vector, 8, 4))


def test_a_sketch_of_no_numbers_is_refused() -> None:
    with pytest.raises(ValueError, match="size = 0"):
        sketch(torch.ones(3), 0, 0)
