"""The logistic toy: its constants by automatic differentiation, its moments by brute force."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fl_papers.fedasync.theory import ToyLogistic, oldest_versions

toy = ToyLogistic()
rows = torch.tensor(toy.features.reshape(-1, toy.dimension))


def loss(x: torch.Tensor, rows: torch.Tensor = rows) -> torch.Tensor:
    return -torch.nn.functional.logsigmoid(rows @ x).mean() + toy.strong_convexity / 2 * x.square().sum()


def test_the_loss_is_that_of_the_definition() -> None:
    """Its gradient and its curvature are compared in the derivation."""
    for x in torch.randn(10, toy.dimension, dtype=torch.float64, generator=torch.Generator().manual_seed(0)):
        assert toy.loss(3 * x.numpy()) == pytest.approx(float(loss(3 * x)), rel=1e-12)


def test_clients_disagree() -> None:
    own = [torch.func.grad(loss)(torch.tensor(toy.optimum), torch.tensor(client)) for client in toy.features]
    assert min(float(gradient.norm()) for gradient in own) > 0.1


def test_deviation_and_second_moment_are_those_of_drawn_mini_batches() -> None:
    """One model, no update that changes it: the bounds of x_0 against 20,000 mini-batches of each client."""
    found = toy.run([0.0], [0], 1, 1)
    x, rng = torch.full((toy.dimension,), 2.0, dtype=torch.float64), np.random.default_rng(1)
    full = toy.gradient(x.numpy())
    deviations, seconds = [], []
    for client in toy.features:
        own = -(1 / (1 + np.exp(client @ x.numpy())))[:, None] * client + toy.strong_convexity * x.numpy()
        drawn = own[rng.integers(toy.samples, size=(20_000, toy.batch))].mean(axis=1)
        deviations.append(((drawn - full) ** 2).sum(-1).mean())
        seconds.append((drawn**2).sum(-1).mean())
    assert found.grad_deviation == pytest.approx(max(deviations), rel=0.02)
    assert found.grad_second_moment == pytest.approx(max(seconds), rel=0.02)


def test_runs_repeat_and_converge_to_a_neighbourhood() -> None:
    first, again = (toy.run([0.6] * 40, oldest_versions(40, 4), 5, 8) for _ in range(2))
    assert first.errors.tolist() == again.errors.tolist()
    assert first.errors[0] > 100 * first.errors[-10:].mean() > 0
    other = toy.run([0.6] * 40, oldest_versions(40, 4), 5, 8, seed=1)
    assert other.errors[1:].tolist() != first.errors[1:].tolist()
