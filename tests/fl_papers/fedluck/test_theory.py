"""FedLuck's theorem and corollary: the steps of the proof, what they bound, and what is wrong in print."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from refusals import refuses

from fl_papers.fedluck.theory import (
    INSIDE,
    LogCosh,
    Moments,
    corollary1_rates,
    lemma1_bound,
    q_local,
    random_trial,
    rescaled_bound,
    theorem1_bound,
)

close = partial(pytest.approx, rel=1e-10)
MOMENTS = Moments(noise=0.3, heterogeneity=0.2, gradient=0.5)
RUN = {
    "local_lr": 0.1, "global_lr": 0.5, "local_steps": 10,
    "num_rounds": 200, "compression_rate": 0.1, "max_staleness": 2,
}  # fmt: skip


# Theorem 1 and its repair: oracles


def test_o9_theorem_one_for_smaller_steps_and_the_tight_contraction_leaves_tau_squared() -> None:
    assert q_local(0.08, 10) == close(0.76)
    assert theorem1_bound(2, MOMENTS, **{**RUN, "local_lr": 0.08}).total == close(24572.010526315782)
    tight = theorem1_bound(2, MOMENTS, **RUN, contraction="tight")
    assert tight == close((0.04, 19.2, 0.01 * 1e4 * (4 + 1) * 18))


# The bounds against problems whose constants are known, E15


def test_the_tight_theorem_holds_too() -> None:
    rng, names = (
        np.random.default_rng(1),
        ("local_lr", "global_lr", "local_steps", "compression_rate", "max_staleness"),
    )
    for _ in range(15):
        trial = random_trial(rng, INSIDE, 120)
        gap = trial.problem.loss(trial.start) - trial.problem.minimum
        settings = {name: getattr(trial, name) for name in names} | {"num_rounds": 120, "contraction": "tight"}
        assert trial.measured <= theorem1_bound(gap, trial.moments, **settings).total


def test_constants_of_the_log_cosh_problem() -> None:
    rng = np.random.default_rng(3)
    problem = LogCosh(rng.normal(scale=2, size=(5, 4)), 0.7)
    heterogeneity, minimum, slopes = problem.heterogeneity, problem.minimum, []
    for w in rng.normal(scale=4, size=(2000, 4)):
        own = 0.7 * np.tanh(w - problem.centres)
        assert (own**2).sum(axis=1).max() <= problem.gradient_bound
        assert ((own - problem.gradient(w)) ** 2).sum(axis=1).max() <= heterogeneity
        assert problem.loss(w) >= minimum
        h = 1e-6 * rng.normal(size=4)
        slopes.append((problem.loss(w + h) - problem.loss(w - h)) / 2 - problem.gradient(w) @ h)
    assert np.abs(slopes).max() < 1e-13
    start = np.full(4, 0.3)
    moved = start - problem.local_path(2, start, 2, 0.1)[-1]
    first = start - 0.07 * np.tanh(start - problem.centres[2])
    assert moved.tolist() == close((start - first + 0.07 * np.tanh(first - problem.centres[2])).tolist())


test_each_formula_names_what_is_wrong = refuses(
    ValueError,
    (lambda: Moments(-1, 0, 0), "noise = -1"),
    (lambda: q_local(0, 1), "local_lr = 0"),
    (lambda: q_local(0.1, 0), "local_steps = 0"),
    (lambda: theorem1_bound(-1, MOMENTS, **RUN), "initial_gap = -1"),
    (lambda: theorem1_bound(1, MOMENTS, **{**RUN, "num_rounds": 0}), "num_rounds = 0"),
    (lambda: theorem1_bound(1, MOMENTS, **{**RUN, "global_lr": 0}), "global_lr = 0"),
    (lambda: theorem1_bound(1, MOMENTS, **{**RUN, "max_staleness": -1}), "max_staleness = -1"),
    (lambda: theorem1_bound(1, MOMENTS, **{**RUN, "compression_rate": 0}), "compression_rate = 0"),
    (lambda: theorem1_bound(1, MOMENTS, **RUN, contraction="none"), "contraction = 'none'"),  # type: ignore[arg-type]
    (lambda: rescaled_bound(1, MOMENTS, **RUN, smoothness=0), "smoothness = 0"),
    (lambda: rescaled_bound(1, MOMENTS, **RUN, smoothness=3), "global_lr = 0.5; .*smoothness"),
    (lambda: rescaled_bound(1, MOMENTS, **{**RUN, "compression_rate": 2}, smoothness=1), "compression_rate = 2"),
    (lambda: corollary1_rates(1, 1, 1, delta_power=0), "delta_power = 0"),
    (lambda: lemma1_bound(0, [1]), "global_lr = 0"),
)
