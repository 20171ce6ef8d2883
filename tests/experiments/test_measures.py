"""Quantities by seed, first passages, mean curves and printed numbers."""

from __future__ import annotations

from math import isnan
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from fl_core.errors import SpecError
from fl_core.experiments import measures
from fl_core.experiments.measures import BySeed, Printed, mean_curve, mean_text, passage, passages, unevenness


def test_arithmetic_pairs_the_seeds_that_both_sides_have():
    left, right = BySeed({0: 3.0, 1: 5.0, 2: 7.0}), BySeed({1: 2.0, 2: 2.0, 9: 1.0})
    assert left - right == {1: 3.0, 2: 5.0}
    assert left / right == {1: 2.5, 2: 3.5}
    assert left + 1 == {0: 4.0, 1: 6.0, 2: 8.0}
    assert left * right == {1: 10.0, 2: 14.0}
    assert left.mean == 5.0
    assert isnan(BySeed().mean)


def test_a_quantity_remembers_the_runs_that_it_rests_on():
    runs = [(SimpleNamespace(labels={"seed": seed}, key=f"r{seed}"), 2.0 * seed) for seed in range(3)]
    found = BySeed.of(runs, lambda entry, result: result)  # type: ignore[arg-type]
    other = BySeed({0: 1.0, 1: 1.0}, ["s0", "s1"])
    assert (found - other).runs == BySeed.over([found, other]).runs == {"r0", "r1", "r2", "s0", "s1"}
    assert (2 * 1.0 + BySeed(found).mean, (found * 2).runs) == (4.0, found.runs)


def test_a_setting_is_not_chosen_on_the_seed_that_it_is_compared_on():
    found = {"a": BySeed({0: 1.0, 1: 5.0, 2: 9.0}), "b": BySeed({0: 3.0, 1: 2.0})}  # seed 2 can choose nothing
    best = measures.best_elsewhere
    assert (best(found), best(found, max)) == ({0: 3.0, 1: 5.0}, {0: 1.0, 1: 2.0})


def test_reduction_over_quantities_takes_what_each_seed_has():
    assert BySeed.over([{0: 1.0, 1: 2.0}, {1: 4.0}]) == {0: 1.0, 1: 3.0}
    assert BySeed.over([{0: 1.0, 1: 2.0}, {1: 4.0}], max) == {0: 1.0, 1: 4.0}


def test_a_passage_lies_between_two_measurements():
    assert passage([0, 10, 20], [0.0, 0.2, 0.6], 0.4).at == pytest.approx(15)
    assert passage([0, 10, 20], [3.0, 2.0, 1.0], 1.25, falling=True).at == pytest.approx(17.5)
    assert passage([1, 4, 16], [0.0, 0.2, 0.6], 0.4, log=True).at == pytest.approx(8)
    assert passage([0, 4, 16], [0.0, 0.2, 0.6], 0.1, log=True).at == pytest.approx(2)  # no logarithm of 0


def test_passages_of_runs_of_different_speed_differ_where_a_coarse_grid_says_the_same():
    """On a grid of 10 both have the target at 20; their ratio was 1, with an interval of width zero."""
    at = np.arange(0, 60, 10.0)
    fast, slow = 1 - np.exp(-at / 14), 1 - np.exp(-at / 19)
    assert [at[np.argmax(values >= 0.62)] for values in (fast, slow)] == [20, 20]
    ratio = passage(at, slow, 0.62).at / passage(at, fast, 0.62).at
    assert ratio == pytest.approx(19 / 14, rel=0.08)


def test_a_running_mean_is_not_deceived_by_one_lucky_measurement():
    at, values = np.arange(9.0), np.array([0, 1, 2, 9, 4, 5, 6, 7, 8.0])
    assert passage(at, values, 6.5).at < 3
    assert passage(at, values, 6.5, width=3).at == pytest.approx(6.5)
    assert passage(at, at, 4.25, width=5).at == pytest.approx(4.25)  # no delay on a straight line
    assert passage(at, np.where(at == 8, 9.0, 0.0), 5, width=3) == (7, False)
    with pytest.raises(SpecError, match="width = 4 must be odd"):
        passage(at, at, 1, width=4)


def test_a_target_that_is_not_reached_is_a_lower_bound():
    runs = [(SimpleNamespace(labels={"seed": seed}, key=f"r{seed}"), top) for seed, top in enumerate([1.0, 0.4])]
    found = passages(runs, lambda top: ([0, 10], [0.0, top]), 0.5)
    assert found == {0: 5.0, 1: 10.0}
    assert (found.at_least, found.runs) == ({1}, {"r0", "r1"})
    assert passage([0, 1, 2], [0, float("nan"), float("nan")], 0.5) == (2, False)


def test_stability_does_not_see_a_trend():
    """The standard deviation of a curve without noise was all trend."""
    climb = np.linspace(0, 1, 30) ** 0.5
    assert unevenness(climb) == pytest.approx(0, abs=1e-12)
    assert unevenness(-climb, falling=True) == pytest.approx(0, abs=1e-12)
    noise = 0.05 * (-1.0) ** np.arange(30)
    assert 0.7 * noise.std() < unevenness(climb + noise) <= noise.std()


def test_mean_curve_counts_the_runs_at_each_point():
    points = pd.DataFrame({"t": [0, 1, 0, 1, 1], "loss": [2.0, 1.0, 4.0, 3.0, 5.0]})
    curve = mean_curve(points, "t", ["loss"])
    assert list(curve.columns) == ["x", "loss", "loss_std", "n"]
    assert curve["loss"].tolist() == [3.0, 3.0]
    assert curve["n"].tolist() == [2, 3]
    assert np.allclose(curve["loss_std"], [np.sqrt(2), 2.0])


def test_spread_is_shown_from_two_values_on():
    assert mean_text([0.5]) == "0.500"
    assert mean_text([0.5, 0.7], 2) == "0.60 ± 0.14"


def test_printed_numbers_are_found_by_what_they_are(tmp_path):
    (tmp_path / "printed.csv").write_text("source,method,target,value\ntab1,A,0.5,1\ntab1,A,,2\ntab1,,0.7,3\n")
    printed = Printed(str(tmp_path / "module.py"))
    assert printed.number(method="A", target=0.5) == 1
    assert printed.number(method="A", target=None) == 2
    assert printed.number(method="", target=0.7) == 3
    assert printed.number(method="B") is None
