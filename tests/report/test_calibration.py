"""The calibration page shows the runs there are, says what they were made with, and names those that are missing."""

from __future__ import annotations

import pytest

from fl_core.datasets.surrogates.calibration import Reference
from fl_core.experiments import calibration
from fl_core.experiments.calibration import LESS, LINEAR, NOISY, REFERENCE, entries
from fl_core.experiments.run import Result
from fl_core.experiments.study import Study
from fl_core.report.networks import calibration_table, origin_in_words, origin_table, plot_calibration
from fl_core.runtime import History

REFERENCES = tuple(
    Reference(name, "lenet5", known, "somebody", lr=0.1, linear_lr=0.1, epochs=4, points=2)
    for name, known in (("cifar10", 0.60), ("cifar100", 0.30), ("celeba", 0.9), ("femnist", 0.8))
)
ENDS = {REFERENCE: 0.62, LINEAR: 0.4, LESS: 0.45, NOISY: 0.44}


def study(*datasets, ends=ENDS):
    """A study of all references, with runs of `datasets` that end at `ends`."""
    runs = tuple(entry for reference in REFERENCES for entry in entries(reference))
    results = {}
    for entry in runs:
        if entry.labels["dataset"] in datasets and (end := ends.get(entry.labels["variant"])):
            history = History()
            points = entry.spec.budget.updates + 1
            history.evaluations["test_accuracy"] = [0.1, *[(end + 0.3) / 2] * (points - 2), end]
            made = {"data": "surrogate", "data_version": 3, "commit": "abc123"}
            results[entry.key] = Result(entry.spec, history, made)
    return Study("laptop", "surrogates", runs, results)


@pytest.fixture(autouse=True)
def references(monkeypatch):
    monkeypatch.setattr(calibration, "REFERENCES", REFERENCES)


def test_a_row_says_what_is_known_what_was_measured_and_where_it_comes_from():
    row = calibration_table(study("cifar10")).frame.iloc[0]
    assert (row["known"], row["measured"], bool(row["calibrated"])) == (0.60, 0.62, True)
    assert row["data set"] == "cifar10-surrogate"
    assert row["less data"] == pytest.approx(0.45 - (0.62 + 0.3) / 2)  # after the same number of steps
    row = origin_table(study("cifar10")).frame.iloc[0]
    assert tuple(row) == ("cifar10-surrogate", "lenet5", "0", "3", "abc123", "somebody")


def test_a_row_without_runs_is_dashes():
    table = calibration_table(study("cifar10"))
    assert table.frame.iloc[1][["measured", "calibrated"]].isna().all()
    assert table.to_markdown().splitlines()[-1].count("–") == 6  # all but the three that need no run
    assert origin_table(study("cifar10")).frame.iloc[1][["seed", "version", "commit"]].isna().all()


def test_more_than_three_points_away_is_not_calibrated():
    assert not calibration_table(study("cifar10", ends={REFERENCE: 0.64})).frame["calibrated"][0]


def test_missing_runs_are_named_with_the_command_that_makes_them():
    words = origin_in_words(study("cifar10"))
    assert "4 of 16 runs are stored: surrogate data, seed 0, commit abc123" in words
    assert words.endswith("`fl-core data calibrate celeba cifar100 femnist`.")
    assert "Missing" not in origin_in_words(study("cifar10", "cifar100", "celeba", "femnist"))


def test_each_data_set_is_a_panel_with_a_line_for_each_run_and_the_known_band():
    here, missing, *_ = plot_calibration(study("cifar10")).axes
    assert here.get_title(loc="left") == "cifar10-surrogate\nlenet5"
    ends = sorted((line.get_xdata()[-1], round(line.get_ydata()[-1], 2)) for line in here.get_lines())
    assert ends == [(2, 0.44), (2, 0.45), (4, 0.4), (4, 0.62)]
    [band] = here.patches
    assert band.get_y() == pytest.approx(0.57)
    assert band.get_height() == pytest.approx(0.06)
    assert not missing.get_lines()
    assert [text.get_text() for text in missing.texts] == ["not run yet"]


def test_without_any_reference_the_page_still_works():
    empty = Study("laptop", "surrogates", (), {})
    assert calibration_table(empty).frame.empty
    assert origin_table(empty).frame.empty
    assert "fl-core data calibrate" in origin_in_words(empty)
    assert plot_calibration(empty).axes[0].texts
