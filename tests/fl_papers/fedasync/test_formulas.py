"""FedAsync, formulas of the chapters: local steps, unrolled mixing, exact trajectories."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from refusals import refuses

from fl_papers.fedasync.theory import (
    iterate,
    local_factor,
    max_stable_lr,
    oldest_versions,
    prox_gradient,
    proximal_step,
    sampled_versions,
    unrolled_weights,
)

close = partial(pytest.approx, rel=1e-10)


def staleness_of(versions: list[int]) -> list[int]:
    return [t - 1 - tau for t, tau in enumerate(versions, start=1)]


def test_o13_weights() -> None:
    assert unrolled_weights([0.6, 0.3, 0.5]) == close([0.14, 0.21, 0.15, 0.5])
    with pytest.raises(ValueError, match=r"alpha = 1\.5"):
        unrolled_weights([0.6, 1.5])


@given(st.lists(st.floats(0, 1), max_size=20))
def test_weights_are_a_distribution(alphas: list[float]) -> None:
    weights = unrolled_weights(alphas)
    assert min(weights) >= 0
    assert sum(weights) == pytest.approx(1, abs=1e-12)


def test_the_anchor_is_the_received_model_and_the_term_is_squared() -> None:
    """The proximal gradient is that of rho/2 |x - anchor|^2, checked by automatic differentiation."""
    x = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64, requires_grad=True)
    anchor = torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64)
    loss = (x**4).sum()
    (plain,) = torch.autograd.grad(loss, x)
    (regularised,) = torch.autograd.grad((x**4).sum() + 0.3 / 2 * (x - anchor).square().sum(), x)
    assert torch.allclose(prox_gradient(plain, x.detach(), anchor, 0.3), regularised, atol=1e-14)


def test_curvature_may_be_one_number_per_coordinate() -> None:
    curvature = np.array([1.0, 5.0])
    assert local_factor(curvature, 0.1, 3).tolist() == close([0.9**3, 0.5**3])


test_local_formulas_name_what_is_wrong = refuses(
    ValueError,
    (lambda: local_factor(-1.0, 0.1, 3), "curvature = -1.0"),
    (lambda: local_factor(1.0, 0.0, 3), "lr = 0.0"),
    (lambda: local_factor(1.0, 0.1, -1), "steps = -1"),
    (lambda: local_factor(1.0, 0.1, 3, -1.0), "rho = -1.0"),
    (lambda: proximal_step(1.0, 1.0, 1.0, -0.1), "lr = -0.1"),
    (lambda: prox_gradient(1.0, 1.0, 1.0, -0.1), "rho = -0.1"),
    (lambda: max_stable_lr(0.0), "smoothness = 0.0"),
)


def test_iterate_works_on_models() -> None:
    x0 = torch.tensor([1.0, 2.0], dtype=torch.float64)
    last = iterate(x0, [0.9] * 10, oldest_versions(10, 4), lambda x: x / 2)[-1]
    assert last.tolist() == close([0.13153910005, 2 * 0.13153910005])


def test_schedules_of_base_versions() -> None:
    assert oldest_versions(6, 4) == [0, 0, 0, 0, 1, 2]
    versions = sampled_versions(4000, 4, np.random.default_rng(0))
    delays = np.array(staleness_of(versions))
    assert all(0 <= delta < t for t, delta in enumerate(delays, start=1))
    assert set(delays.tolist()) == {0, 1, 2, 3}
    assert np.bincount(delays) / 4000 == pytest.approx([0.25] * 4, abs=0.03)
    ends = SimpleNamespace(integers=min), SimpleNamespace(integers=lambda low, high: high - 1)
    for limit, mean in ((4, 1.4985), (16, 7.47)):  # O15: a uniform draw has the mean of its ends
        assert np.mean([staleness_of(sampled_versions(2000, limit, end)) for end in ends]) == close(mean)
    with pytest.raises(ValueError, match="max_staleness = 0"):
        oldest_versions(3, 0)


def test_iterate_refuses_models_from_the_future() -> None:
    with pytest.raises(ValueError, match=r"base_versions\[1\] = 2; base_versions\[1\] must be in 0..1"):
        iterate(1.0, [0.5, 0.5], [0, 2], lambda x: x)
    with pytest.raises(ValueError, match=r"len\(alphas\) = 1; .* 2, one per version"):
        iterate(1.0, [0.5], [0, 1], lambda x: x)
