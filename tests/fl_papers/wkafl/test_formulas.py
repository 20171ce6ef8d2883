"""WKAFL, formulas of the chapters: momentum, clipping, staleness; thresholds of Zeno++."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import sympy as sp
import torch

from fl_core.algorithms.kasync import sasgd_weights, twafl_weights
from fl_core.algorithms.zenopp import judge_gradient
from fl_core.formulas.wkafl import (
    accumulate_momentum,
    learning_rate,
    temporal_weight,
)
from fl_papers.wkafl.theory import (
    expected_inverse_staleness,
    expected_min_staleness,
    expected_staleness_weight,
    official_momentum,
    relative_non_iid_variance,
    stale_cloud,
    zeno_cosine_threshold,
)

close = partial(np.testing.assert_allclose, rtol=1e-10, atol=1e-13)


printed = partial(np.testing.assert_allclose, rtol=0, atol=6e-13)  # oracles are given with twelve decimals


def tensor(*values: object) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_the_oracles_of_the_baselines_specification() -> None:
    w, grads, tau = tensor(1, 1), tensor((1, 0), (0, 2)), (0, 2)
    printed(w - 0.1 * twafl_weights(tau, (10, 30), "printed") @ grads, (0.975, 0.918798830058))
    printed(w - 0.2 * sasgd_weights(tau) @ grads, (0.9, 0.933333333333))
    assert temporal_weight(np.array([0, 1, 2, 5, 10.0])) == pytest.approx(
        (1, 0.735758882343, 0.541341132946, 0.215614303971, 0.0464895280768), rel=1e-11
    )
    v, options = tensor(1, 2, -1), {"rho": 0.02, "epsilon": 0.1, "score_gamma": 0.1}
    good, bad = judge_gradient(tensor(0.5, 1, 0.5), v, **options), judge_gradient(tensor(-1, 0.2, 2), v, **options)
    close(good.candidate, (1, 2, 1))
    assert (good.score, good.accepted) == (pytest.approx(0.28), True)
    printed(bad.candidate, (-1.09108945118, 0.218217890236, 2.18217890236), atol=6e-12)
    assert (bad.score, bad.accepted) == (pytest.approx(-0.403683257307, rel=1e-11), False)
    assert zeno_cosine_threshold(math.sqrt(6), **options) == pytest.approx(0.183333333333, rel=1e-11)


def test_two_of_the_programs_double_the_gradient() -> None:
    grads, previous = tensor((1, 2)), tensor(10, 20)
    assert official_momentum(grads, previous, 0.1).tolist() == [[3, 6]]  # E10
    assert accumulate_momentum(grads, previous, 0.1).tolist() == [[2, 4]]


def test_momentum_lessens_the_non_iid_error() -> None:
    """D2, by Monte Carlo and by SymPy."""
    alpha, n, rng = 0.4, 5, np.random.default_rng(0)
    now, before = rng.standard_normal(200_000), rng.standard_normal((200_000, n)).mean(1)
    found = ((now + alpha * before) / (1 + alpha)).var()
    assert found == pytest.approx(relative_non_iid_variance(1.0, n, alpha), rel=0.01)
    v, m, a = sp.symbols("v n alpha", positive=True)
    difference = sp.factor(v - relative_non_iid_variance(v, 1 + m, a))  # n = 1 + m >= 1
    assert sp.simplify(difference * (1 + a) ** 2 * (1 + m) / (v * a) - (a * m + 2 * (1 + m))) == 0


def test_clipping_brings_the_estimate_to_the_true_gradient() -> None:
    """C26, Figure 4 in a hundred dimensions, where the noise has its length in every draw."""
    truth, rng = torch.eye(100, dtype=torch.float64)[0], np.random.default_rng(0)
    cosines = []
    for _ in range(300):
        cloud = stale_cloud(truth, 5, 1.2, rng, spread=(0.03, 0.05))
        cosines.append([float(e[0] / e.norm()) for e in (cloud.estimate, cloud.clipped_estimate)])
    before, after = np.array(cosines).T
    assert (before.mean(), after.mean()) == (pytest.approx(0.791, abs=0.01), pytest.approx(0.931, abs=0.01))
    assert (after > before).mean() > 0.95


def test_c28_dividing_by_the_staleness_slows_training_more_than_by_the_least_one() -> None:
    """D14 at P / K = 300: SASGD keeps 0.019 of the learning rate, WKAFL a quarter."""
    sasgd, twafl = expected_inverse_staleness(3000, 10), expected_staleness_weight(3000, 10)
    wkafl = learning_rate(1.0, expected_min_staleness(3000, 10), 0.1)
    assert (sasgd, twafl) == (pytest.approx(0.0191, abs=5e-5), pytest.approx(0.0125, abs=5e-5))
    assert wkafl == pytest.approx(0.25, abs=0.005)
    assert sasgd / wkafl < 0.2


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: zeno_cosine_threshold(0.0), "validation_norm = 0.0"),
    ],
)
def test_an_argument_out_of_range_is_refused(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
