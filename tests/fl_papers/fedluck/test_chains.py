"""Every inequality in the proofs of FedLuck's Theorem 1 and of its repair, and what they cannot say."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import sympy as sp

from fl_core.formulas.checks import inequalities, violations
from fl_papers.fedluck.theory import (
    INSIDE,
    SMALL,
    LogCosh,
    Moments,
    Trial,
    q_local,
    random_trial,
    rescaled_bound,
    rescaled_chains,
    rescaled_trials,
    theorem1_bound,
    theorem1_chains,
    theorem1_trials,
    timeline,
)


@pytest.mark.parametrize("trials", [theorem1_trials, rescaled_trials])
def test_every_step_of_the_proof_holds_on_random_problems(trials) -> None:
    frame = trials(count=8)
    assert (frame["inequalities"] > 200).all()
    assert frame["violated"].sum() == 0
    assert (frame["measured"] <= frame["bound"]).all()


def test_the_chains_notice_constants_that_are_too_small() -> None:
    """With a tenth of the smoothness the descent inequality fails, with a heterogeneity of 0 the pieces do."""
    trial = random_trial(np.random.default_rng(0), INSIDE, 60)

    class Flat(LogCosh):
        heterogeneity = 0.0

    flat = dataclasses.replace(trial, problem=Flat(trial.problem.centres, trial.problem.smoothness))
    for chains in (theorem1_chains, rescaled_chains):
        assert violations(chains(trial)) == 0
        assert violations(chains(flat)) > 0


def test_rounds_without_uploads_have_no_inequalities() -> None:
    trial = Trial(LogCosh(np.zeros((1, 2))), np.ones(2), timeline([2.5], 1.0, 30), 0.5, 0.5, 2, 1.0)
    chains = theorem1_chains(trial)
    assert {len(part) for name, parts in chains.items() if name != "9 whole run" for part in parts} == {10}
    assert inequalities(chains) == 10 * (3 + 2 + 1 + 1 + 2 + 1 + 1) + 1


def test_theorem_one_is_45_times_weaker_than_the_assumption_of_bounded_gradients() -> None:
    """(eta_l k)^2 / Q_l >= 5/6 in the window, so that the third term alone is at least 5/6 * 3 * 18 G^2."""
    a = sp.Symbol("a", positive=True)
    ratio = a**2 / q_local(a, 1)
    [best] = sp.solve(sp.diff(ratio, a), a)
    assert (best, ratio.subs(a, best)) == (sp.Rational(5, 6), sp.Rational(5, 6))
    rng = np.random.default_rng(1)
    for _ in range(500):
        k, moments = int(rng.integers(1, 60)), Moments(*10 ** rng.uniform(-3, 3, 3))
        run = {"local_lr": rng.uniform(0.592, 1.408) / k, "global_lr": rng.uniform(0.01, 1), "local_steps": k}
        rest = {
            "num_rounds": 10**6,
            "compression_rate": rng.uniform(0.01, 1),
            "max_staleness": int(rng.integers(1, 9)),
        }
        bound = theorem1_bound(rng.uniform(0, 9), moments, **run, **rest)
        assert bound.total >= 45 * k**2 * moments.gradient
    least = theorem1_bound(
        0, Moments(0, 0, 1), local_lr=5 / 6, global_lr=1, local_steps=1, num_rounds=1, compression_rate=1,
        max_staleness=1,
    )  # fmt: skip
    assert least.total == pytest.approx(45)


def test_the_rescaled_bound_counts_rounds_with_uploads_only() -> None:
    """One device that arrives in every fifth round, on a long slope: with empty rounds in T the bound is false."""
    problem, start = LogCosh(np.zeros((1, 4))), np.full(4, 10.0)
    trial = Trial(problem, start, timeline([4.5], 1.0, 4500), 0.05, 0.2, 1, 1.0)
    settings = {"local_lr": 0.05, "global_lr": 0.2, "local_steps": 1, "compression_rate": 1.0, "max_staleness": 5}
    gap = problem.loss(start) - problem.minimum
    of_all = np.mean([problem.gradient(w) @ problem.gradient(w) for w in trial.models[:-1]])
    assert of_all > 2 * rescaled_bound(gap, trial.moments, **settings, num_rounds=4500, smoothness=1.0).total
    assert trial.measured <= trial.rescaled
    assert trial.rescaled == rescaled_bound(gap, trial.moments, **settings, num_rounds=900, smoothness=1.0).total
    assert violations(rescaled_chains(trial)) == 0


def test_small_steps_leave_the_window_of_theorem_one() -> None:
    with pytest.raises(ValueError, match="q_local"):
        theorem1_chains(random_trial(np.random.default_rng(2), SMALL, 20))
