"""Inner products with directions that are kept in less memory: bounds that hold, and estimates without bias."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fl_core.formulas.fedasmu import half_product, sketch, to_half


def pair(size: int, seed: int, scale: float = 1.0, correlation: float = 0.0) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    vector = rng.normal(size=size)
    direction = scale * (rng.standard_cauchy(size=size) + correlation * vector)
    return torch.from_numpy(vector), torch.from_numpy(direction)


def test_half_precision_is_exact_for_numbers_with_few_bits_and_for_nothing() -> None:
    direction = torch.tensor([1.5e-9 * 0 + 2**-40, -3 * 2.0**-40, 0.0], dtype=torch.float64)
    assert half_product(torch.tensor([1.0, 1.0, 5.0], dtype=torch.float64), to_half(direction)) == -(2.0**-39)
    assert half_product(torch.ones(4), to_half(torch.zeros(4))) == 0


def test_a_sketch_is_linear_and_the_same_for_the_same_seed() -> None:
    vector, direction = pair(50, 0)
    both = sketch(2 * vector - direction, 8, 3)
    torch.testing.assert_close(both, 2 * sketch(vector, 8, 3) - sketch(direction, 8, 3))
    assert not torch.equal(sketch(vector, 8, 3), sketch(vector, 8, 4))


def test_a_sketch_of_no_numbers_is_refused() -> None:
    with pytest.raises(ValueError, match="size = 0"):
        sketch(torch.ones(3), 0, 0)
