"""Every inequality in the proofs of FedLuck's Theorem 1 and of its repair, and what they cannot say."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from fl_core.formulas.checks import inequalities, violations
from fl_papers.fedluck.theory import (
    INSIDE,
    SMALL,
    LogCosh,
    Trial,
    random_trial,
    rescaled_chains,
    theorem1_chains,
    timeline,
)


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


def test_small_steps_leave_the_window_of_theorem_one() -> None:
    with pytest.raises(ValueError, match="q_local"):
        theorem1_chains(random_trial(np.random.default_rng(2), SMALL, 20))
