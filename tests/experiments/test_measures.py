"""Quantities by seed, first passages, mean curves and printed numbers."""

from __future__ import annotations

from math import isnan

import numpy as np
import pandas as pd

from fl_core.experiments.measures import BySeed, Printed, first_passage, mean_curve, mean_text


def test_arithmetic_pairs_the_seeds_that_both_sides_have():
    left, right = BySeed({0: 3.0, 1: 5.0, 2: 7.0}), BySeed({1: 2.0, 2: 2.0, 9: 1.0})
    assert left - right == {1: 3.0, 2: 5.0}
    assert left / right == {1: 2.5, 2: 3.5}
    assert left + 1 == {0: 4.0, 1: 6.0, 2: 8.0}
    assert left * right == {1: 10.0, 2: 14.0}
    assert left.mean == 5.0
    assert isnan(BySeed().mean)


def test_reduction_over_quantities_takes_what_each_seed_has():
    assert BySeed.over([{0: 1.0, 1: 2.0}, {1: 4.0}]) == {0: 1.0, 1: 3.0}
    assert BySeed.over([{0: 1.0, 1: 2.0}, {1: 4.0}], max) == {0: 1.0, 1: 4.0}


def test_first_passage_is_the_first_measurement_beyond_the_target():
    assert first_passage([0, 10, 20, 30], [0.1, 0.5, 0.4, 0.6], 0.45) == (10.0, True, 1)
    assert first_passage([0, 10, 20], [3.0, 2.0, 1.0], 2.0, falling=True) == (10.0, True, 1)


def test_a_target_that_is_never_reached_gives_the_end_as_lower_bound():
    assert first_passage([0, 10, 20], [0.1, 0.2, float("nan")], 0.9) == (20.0, False, 2)


def test_mean_curve_counts_the_runs_at_each_point():
    points = pd.DataFrame({"t": [0, 1, 0, 1, 1], "loss": [2.0, 1.0, 4.0, 3.0, 5.0]})
    curve = mean_curve(points, "t", ["loss"])
    assert list(curve.columns) == ["t", "loss", "loss_std", "n"]
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
