"""The authors' own programs, replayed."""

from __future__ import annotations

from fl_papers.wkafl import lockstep
from fl_papers.wkafl.experiment import WKAFLExperiment


def test_only_all_deviations_together_are_the_program():
    released = lockstep.RELEASED["WKAFL"]
    for name, written in lockstep.AS_WRITTEN["wkafl_1"].items():
        assert max(lockstep.errors("wkafl_1", **{name: written})) > 1e-2, name
        assert released[name] != written


def test_a_copied_model_is_told_from_a_shared_one():
    assert max(lockstep.errors("wkafl_copy", client_snapshot="aliased")) > 1e-2
    assert max(lockstep.errors("sasgd", client_snapshot="copy")) > 1e-2


def test_the_grid_as_released_has_the_options_that_the_record_confirms():
    entries = list(WKAFLExperiment("laptop", "fashion-mnist", mode="as_released").comparison())
    assert {entry.labels["snapshot"] for entry in entries} == {"released"}
    for entry in entries:
        released = lockstep.RELEASED[entry.labels["method"]]
        assert {name: getattr(entry.spec.algorithm, name) for name in released} == released
