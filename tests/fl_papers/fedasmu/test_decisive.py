"""The decisive experiment is declared whole, and each stage follows from the records of the one before."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from fl_core.experiments.artifacts import find_artifact, make_study
from fl_core.experiments.grid import execute
from fl_core.experiments.run import run
from fl_core.experiments.store import ENVIRONMENT, default_store
from fl_core.experiments.study import Study, load_study
from fl_papers.fedasmu.decisive import (
    COLUMN,
    COMPARED,
    FRESH_SEEDS,
    LADDER,
    PLACES,
    SEARCH,
    SEARCH_SEED,
    SEARCHED,
    TICKS,
    TRIAL_SEED,
    TRIALS,
    Decisive,
    distance,
    outcome,
    trials,
)
from fl_papers.fedasmu.experiment import COLUMNS, FedASMUExperiment


@pytest.fixture
def whole() -> Decisive:
    experiment = Decisive("paper", "fashion-mnist")
    experiment.assumed = True
    return experiment


def test_a_begins_with_all_settings_and_halves_them(whole: Decisive):
    runs = Counter(entry.labels["part"] for entry in whole.search())
    assert [(len(SEARCHED) * count, part) for count, part in SEARCH] == [(runs[part], part) for part in runs]
    assert SEARCH[0][0] == len(set(PLACES))
    assert {entry.labels["place"].split(", ")[3] for entry in whole.search() if entry.labels["part"] < 1} == {
        f"ticks as in the {ticks}" for ticks in TICKS
    }
    assert {entry.spec.budget.uploads or entry.spec.budget.updates for entry in whole.search()} == {
        *(50, 150, 500),  # rounds of ten
        *(500, 1500, 5000),
    }


def test_a_round_waits_for_no_tick_so_that_one_run_is_for_both():
    ticks = [FedASMUExperiment("smoke", "fashion-mnist", ticks=ticks) for ticks in ("tables", "text")]
    specs = [each.entry("FedAvg", COLUMN, 0).spec for each in ticks]
    assert specs[0].world.trigger != specs[1].world.trigger
    assert len({tuple(run(spec).history.evaluations["test_loss"]) for spec in specs}) == 1


def test_every_method_gets_the_same_trials_and_fedasmu_both_scales(whole: Decisive):
    entries = [entry for entry in whole.tuning() if entry.labels["part"] == TRIALS[0][1]]
    counts = Counter((entry.labels["place"], entry.labels["method"]) for entry in entries)
    assert set(counts.values()) == {TRIALS[0][0]}
    assert len({entry.key for entry in entries}) == len(entries)
    assert {method for _, method in counts} == set(COMPARED)
    own = [entry.spec.algorithm for entry in entries if entry.labels["method"] == "FedASMU"]
    scales = {(round(each.lambda_0, 3), round(each.gamma_0, 3)) for each in own}
    assert [len({pair[side] for pair in scales}) for side in (0, 1)] == [3, 3]
    assert len(scales) == len(trials("FedASMU"))


def test_no_seed_chooses_and_judges_and_parts_come_one_by_one(whole: Decisive):
    assert not {SEARCH_SEED, TRIAL_SEED} & set(FRESH_SEEDS)
    entries = [entry for entry in whole.judged() if entry.labels["place"] == str(whole.places()[0])]
    assert {entry.spec.seed for entry in entries} == set(FRESH_SEEDS)
    own = {e.labels["rung"]: e.spec.algorithm for e in entries if e.labels["method"] == "FedASMU"}
    assert list(own) == ["", *LADDER]
    assert len({str(each) for each in own.values()}) == len(own)
    # "frozen" is frozen on devices, too
    assert own["and fresh models"].lr_gamma == own["and fresh models"].lr_upsilon == 0


def test_a_stage_is_laid_out_when_the_one_before_has_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path))
    linear = replace(COLUMNS["lenet-fmnist"], network="linear", parameters=7850)
    monkeypatch.setitem(COLUMNS, "lenet-fmnist", linear)

    def study(name: str) -> Study:
        """Lay out a stage, from what is stored now."""
        return make_study(find_artifact(f"fedasmu-{name}"), "smoke", uploads=10)

    assert not study("x6").entries
    for _ in SEARCH:
        before = len(study("x5").entries)
        execute(study("x5").specs, store=default_store(), jobs=1, progress=False)
    assert len(study("x5").entries) == before  # nothing comes after the last step
    found = load_study(study("x5"), default_store())
    table = find_artifact("fedasmu-x5").reduce(found)
    nearest = table[table["part"] == 1.0].iloc[0]
    counted = Decisive("smoke", "fashion-mnist", uploads=10)
    counted.assumed = True  # costs are of what won, too, as far as it is known
    assert str(counted.places()[0]) == nearest["setting"]
    pair = [found.select(place=nearest["setting"], part=1.0, method=method)[0][1] for method in SEARCHED]
    assert nearest["distance"] == pytest.approx(distance(pair))
    words, count = outcome(found), Counter(table["part"])
    assert "FedAsync's: +7.3 points, 5.25 times (printed); " in words
    assert all(f"({count[part]} settings, {100 * part:g} % of the uploads)" in words for part in count)
    assert words.endswith("The printed rows come out in none of the last.")  # no linear map gets there in ten uploads
    for _ in TRIALS:
        execute(study("x6").specs, store=default_store(), jobs=1, progress=False)
    judged = study("x7")
    assert {entry.labels["place"] for entry in judged.entries} >= {nearest["setting"]}
    execute(judged.specs, store=default_store(), jobs=1, progress=False)
    done = load_study(judged, default_store())
    assert find_artifact("fedasmu-x7").reduce(done)["compared"].str.contains("FedASMU against FedAvg").all()
