"""Numbers that no rebuilding of the code may change: see freeze.py for how an intended change is taken over.

`expected.json` and the checkpoints were made by the code before the redesign.
"""

from __future__ import annotations

import math
import warnings

import freeze
import pytest

from fl_core.errors import RunError
from fl_core.runtime import Checkpoints
from fl_core.runtime.checkpoint import CURRENT

EXPECTED = freeze.expected()
RUNS = dict(freeze.run_cases())
SAME_PROCESSOR = EXPECTED["processor"] == freeze.processor()
WANTED = EXPECTED["runs"] | EXPECTED["elsewhere"].get(freeze.processor(), {})
EXACT = SAME_PROCESSOR or freeze.processor() in EXPECTED["elsewhere"]
CLOSE = {"norm": 1e-4, "loss": 1e-4, "seconds": 1e-9, "version": 0, "dispatched": 0}
"""Relative tolerance where sums are taken in another order: another processor, another PyTorch."""


def assert_same_run(name: str, got: object, exact: bool = EXACT) -> None:
    wanted = WANTED[name]
    if exact or isinstance(wanted, str):
        assert got == wanted
    else:
        assert isinstance(got, dict), got
        for key, tolerance in CLOSE.items():
            assert math.isclose(got[key], wanted[key], rel_tol=tolerance), (key, got, wanted)


def test_the_runs_of_every_grid_have_the_names_that_they_had():
    assert freeze.differences("grids", EXPECTED["grids"], freeze.grids()) == []


@pytest.mark.parametrize("name", RUNS)
def test_a_run_gives_the_numbers_that_it_gave(name):
    assert_same_run(name, freeze.measure(RUNS[name]))


def test_every_algorithm_ran_to_its_end_in_three_worlds():
    assert all(isinstance(result, dict) and result["version"] > 10 for result in EXPECTED["runs"].values())
    assert len(EXPECTED["runs"]) == 3 * len(freeze.ALGORITHMS)


@pytest.mark.parametrize("algorithm", freeze.ALGORITHMS)
def test_a_checkpoint_of_older_code_leads_to_the_same_end_or_is_refused_in_one_line(algorithm, tmp_path):
    (tmp_path / CURRENT).write_bytes(freeze.checkpoint(algorithm))
    checkpoints = Checkpoints(tmp_path, identity=algorithm, when=lambda events: False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # another PyTorch
        try:
            history = freeze.quadratic(algorithm, "heterogeneous").run(checkpoints=checkpoints)
        except RunError as error:
            refusal = str(error)
        else:
            assert_same_run(f"{algorithm}/heterogeneous", freeze.measured(history), SAME_PROCESSOR)
            return
    assert "has format 1" in refusal
    assert "\n" not in refusal


@pytest.mark.thorough
def test_tables_of_the_published_results_are_what_they_were():
    """Of the judgements see data/claims.csv (tests/experiments/test_ledger.py)."""
    here = freeze.frames()
    if not SAME_PROCESSOR:  # it trains a network for its table, and the last digits are the processor's
        here["wkafl-x8"] = EXPECTED["frames"]["wkafl-x8"]
    assert freeze.differences("frames", EXPECTED["frames"], here) == []
