"""The calibration of surrogates: complete, current, and read correctly from its runs."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from made_up import measured

from fl_core.datasets import all_surrogates, data_folder
from fl_core.datasets.surrogates.calibration import REAL, REFERENCES
from fl_core.errors import SpecError
from fl_core.experiments import calibration as module
from fl_core.experiments.calibration import (
    LESS,
    LINEAR,
    NOISY,
    REFERENCE,
    calibration,
    calibration_on_real_data,
    table,
)
from fl_core.experiments.store import Store
from fl_core.models import MODELS

EMPTY = Store(data_folder() / "nowhere", data_folder() / "nowhere")


def with_curves(**curves):
    """Return the study of the first reference with these test accuracies."""
    study = calibration(EMPTY, [REFERENCES[0].dataset])
    results = {}
    for entry in study.entries:
        if (accuracy := curves.get(entry.labels["variant"].replace(" ", "_").replace("%", "percent"))) is not None:
            results[entry.key] = measured(entry.spec, test_accuracy=accuracy)
    return study.with_results(results)


def test_every_surrogate_has_a_reference_on_a_network_of_the_papers():
    found = {f"{r.dataset}-surrogate" for r in REFERENCES} - {"fashion-mnist-surrogate"}
    assert found == set(all_surrogates()) - {"celeba-surrogate"}
    assert {r.model for r in REFERENCES} <= set(MODELS)
    assert all(0 < r.known < 1 and r.reported for r in REFERENCES)


def test_two_networks_on_one_data_set_are_two_rows_of_which_the_slow_one_has_no_controls():
    study = calibration(EMPTY, ["tiny-imagenet"])
    assert [entry.labels["variant"] for entry in study.entries] == [REFERENCE, LINEAR, LESS, NOISY, REFERENCE]
    slow = study.entries[-1]
    results = {slow.key: measured(slow.spec, test_accuracy=[0.0, 0.3, 0.49])}
    rows = table(study.with_results(results)).set_index("network")
    assert list(rows.index) == ["lenet5", "resnet20"]
    assert rows["measured"].isna().tolist() == [True, False]
    assert rows["calibrated"].tolist() == [None, True]


def test_the_table_says_how_far_off_a_surrogate_is_and_what_hurts(monkeypatch):
    known = replace(REFERENCES[0], known=0.6, points=4, tail=2)
    monkeypatch.setattr(module, "REFERENCES", (known,))
    curves = {
        "reference_network": [0.1, 0.3, 0.5, 0.6, 0.64],
        "linear_model": [0.1, 0.2, 0.2, 0.3, 0.4],
        "less_data": [0.1, 0.2, 0.3],
        "20_percent_wrong_labels": [0.1, 0.1, 0.2],
    }
    row = table(with_curves(**curves)).iloc[0]
    assert row["measured"] == pytest.approx(0.62)
    assert row["difference"] == pytest.approx(0.02)
    assert bool(row["calibrated"])
    assert row["linear"] == pytest.approx(0.35)
    assert row["less data"] == pytest.approx(0.25 - 0.4)
    assert row["wrong labels"] == pytest.approx(0.15 - 0.4)
    for known_accuracy, verdict in ((0.66, False), (0.645, True), (0.58, False)):
        monkeypatch.setattr(module, "REFERENCES", (replace(known, known=known_accuracy),))
        assert bool(table(with_curves(**curves)).iloc[0]["calibrated"]) is verdict
    monkeypatch.setattr(module, "REFERENCES", (replace(known, comparable=False),))
    assert table(with_curves(**curves)).iloc[0]["calibrated"] is None


def test_a_run_that_is_missing_leaves_a_gap_and_no_verdict():
    row = table(with_curves(linear_model=[0.1, 0.4])).iloc[0]
    assert row["calibrated"] is None
    assert all(math.isnan(row[name]) for name in ("measured", "difference", "less data", "wrong labels"))


def test_a_data_set_without_reference_is_refused_by_name():
    with pytest.raises(SpecError, match="unknown data set with a reference 'cifar'; did you mean 'cifar10'"):
        calibration(EMPTY, ["cifar"])


def test_all_calibration_runs_are_published_and_belong_to_the_present_surrogates():
    published = data_folder() / "results"
    study = calibration(Store(published, published))
    assert [entry.labels for entry in study.entries if entry.key not in study.results] == []


def test_all_published_networks_end_within_three_points_of_what_is_known_and_all_controls_do_worse():
    published = data_folder() / "results"
    rows = table(calibration(Store(published, published)))
    unknown = rows[~rows["calibrated"].eq(True)]
    assert list(zip(unknown["data set"], unknown["network"], strict=True)) == [("tiny-imagenet", "lenet5")]
    rows = rows[rows["network"] != "resnet20"]  # has no controls: LeNet-5 on the same surrogate has them
    linear = rows[rows["linear"].notna()]
    assert len(linear) == len(rows) - 1  # reviews have none
    assert (linear["linear"] < linear["measured"] - 0.05).all()
    assert (rows["less data"] < 0).all()
    assert (rows["wrong labels"] < 0).all()


def test_published_networks_reach_what_is_known_on_real_data_but_for_the_first_trainings_on_colours():
    published = data_folder() / "results"
    rows = table(calibration_on_real_data(Store(published, published)), REAL)
    training = [reference.training for reference in REAL]
    short = [(row["data set"], how) for (_, row), how in zip(rows.iterrows(), training, strict=True)
             if row["calibrated"] is not None and not row["calibrated"]]  # fmt: skip
    ten = ("cifar10", "10 passes, momentum 0.9, rate × 0.65, fedluck-colour")  # ResNet-18, mended by thirty
    assert short == [("cifar10", "15 passes"), ("cifar100-jpeg90", "12 passes"), ten]
