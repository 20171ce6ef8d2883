"""FedAsync's update: mixing, the adaptive weight, the regularised local step, exact trajectories."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import torch
from refusals import refuses

from fl_core.formulas.fedasync import alpha_t, mix, schedule_factor, staleness_argument
from fl_core.formulas.staleness import Constant, Hinge, Polynomial

poly = Polynomial(a=0.5)
close = partial(pytest.approx, rel=1e-10)


# Mixing, FA-2


def test_o4_mixing_the_local_models_of_o3() -> None:
    assert mix(3.0, 2.024, 0.6) == close(2.4144)
    assert mix(3.0, 2.075, 0.6) == close(2.445)


def test_mixing_is_the_same_for_numbers_arrays_and_tensors() -> None:
    w, v = np.array([3.0, -1.0]), np.array([2.0, 4.0])
    expected = [mix(a, b, 0.3) for a, b in zip(w.tolist(), v.tolist(), strict=True)]
    assert mix(w, v, 0.3).tolist() == close(expected)
    assert mix(torch.tensor(w), torch.tensor(v), 0.3).tolist() == close(expected)


def test_the_ends_of_mixing_are_exact() -> None:
    w, v = torch.randn(2, 50, generator=torch.Generator().manual_seed(0))
    assert torch.equal(mix(w, v, 0.0), w)
    assert torch.equal(mix(w, v, 1.0), v)


@pytest.mark.parametrize("bad", [-0.1, 1.1, math.nan])
def test_a_mixing_weight_out_of_range_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match=rf"alpha_t = {bad}; alpha_t must be in \[0, 1\]"):
        mix(1.0, 2.0, bad)


def test_mixing_refuses_counters_and_other_shapes() -> None:
    counter = torch.tensor([7])  # batch norm's num_batches_tracked
    with pytest.raises(ValueError, match=r"torch.int64; w.dtype must be a floating-point type"):
        mix(counter, counter, 0.5)
    with pytest.raises(ValueError, match=r"w_new.shape = \(1,\); w_new.shape must be \(3,\)"):
        mix(torch.zeros(3), torch.zeros(1), 0.5)


# The adaptive weight, FA-6


@pytest.mark.parametrize(
    ("weight", "convention", "expected"),
    [
        (poly, "missed_updates", [0.8, 0.4, 0.2, 0.1]),
        (poly, "paper", [0.5656854249492381, 0.35777087639996635, 0.17888543819998318, 0.09701425001453319]),
        (Hinge(a=10, b=4), "missed_updates", [0.8, 0.8, 0.4, 0.0036036036036036037]),
    ],
)
def test_o2_alpha_t(weight, convention, expected) -> None:
    points = [(1, 0), (800, 3), (801, 3), (2000, 15)]
    assert [alpha_t(0.8, t, delta, weight, schedule="step", convention=convention) for t, delta in points] == close(
        expected
    )


def test_schedules() -> None:
    assert [schedule_factor(t, "step", step_epoch=2, step_factor=0.25) for t in (1, 2, 3, 9)] == [1, 1, 0.25, 0.25]
    assert [schedule_factor(t, "inv_sqrt") for t in (1, 4, 100)] == close([1, 0.5, 0.1])
    assert alpha_t(0.6, 5, 3) == 0.6
    assert staleness_argument(0) == 0
    assert staleness_argument(0, "paper") == 1


test_alpha_t_names_what_is_wrong = refuses(
    ValueError,
    ({"alpha": 0}, r"alpha = 0; alpha must be in \(0, 1\]"),
    ({"alpha": 1.2}, r"alpha = 1.2"),
    ({"t": 0}, r"t = 0; t must be >= 1"),
    ({"staleness": -1}, r"u = -1; u must be >= 0"),
    ({"schedule": "cosine"}, r"schedule = 'cosine'; schedule must be 'constant', 'step' or 'inv_sqrt'"),
    ({"schedule": "step", "step_factor": 0}, r"step_factor = 0"),
    ({"schedule": "step", "step_epoch": -1}, r"step_epoch = -1"),
    ({"convention": "official"}, r"convention = 'official'; .*'missed_updates' or 'paper'"),
    by=lambda change: alpha_t(**{"alpha": 0.6, "t": 1, "staleness": 0, "weight": Constant(), **change}),
)
