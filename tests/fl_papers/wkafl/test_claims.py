"""WKAFL's claims on made-up runs with a known answer."""

from __future__ import annotations

import numpy as np
import pytest

from fl_core.experiments.claims import judge
from fl_core.experiments.run import Result
from fl_core.experiments.study import Study
from fl_core.runtime import History
from fl_core.runtime.history import append
from fl_papers.wkafl import experiment
from fl_papers.wkafl.claims import CLAIMS
from fl_papers.wkafl.experiment import WKAFLExperiment

comparison, ablations, motivation, byzantine = (
    WKAFLExperiment.made(part)
    for part in (
        WKAFLExperiment.comparison, WKAFLExperiment.ablations, WKAFLExperiment.motivation, WKAFLExperiment.byzantine,
    )
)  # fmt: skip

LEVEL = {"WKAFL": 0.95, "TWAFL": 0.93, "SASGD": 0.85, "GSGM": 0.88, "No Grad-Sel": 0.92, "No Staleness": 0.8,
         "No Non-IIDness": 0.94, "Zeno++": 0.5}  # fmt: skip
SHAKE = {"WKAFL": 0.006, "TWAFL": 0.011, "SASGD": 0.08, "GSGM": 0.003, "No Grad-Sel": 0.02}
TABLES = [f"WKAFL-C{n:02d}" for n in (7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18)]


def fabricate(entry, level: dict[str, float]) -> Result:
    """Make up a run that rises to its level, lower and later where it is stale and skewed, and goes up and down."""
    labels, history = entry.labels, History()
    method, seed = labels["method"], labels["seed"]
    rng = np.random.default_rng([seed, sum(map(ord, method))])
    weakness = 1 - level[method]
    end = level[method] - weakness * (labels["level"] / 300 + (10 - (labels["labels"] or 10)) / 20) / 4
    end += 0.0005 * rng.standard_normal()
    rate = 3.0 if method == "WKAFL" else 100 / labels["level"]
    shake = SHAKE.get(method, 0.01) * (1.5 - (labels["labels"] or 10) / 20)
    for number in range(31):
        wobble = shake * (-1) ** number * (1 + 0.05 * rng.random())
        accuracy = end * (1 - np.exp(-number * rate)) + (number > 15) * wobble
        append(history.evaluations, version=50 * number, test_accuracy=accuracy if number else 0.1)
    for name, value in (("version", 1), ("weight", 1 / labels["aggregated"])):
        history.updates[name] = [value] * labels["aggregated"]
    return Result(entry.spec, history, {"data": "real"})


def study_of(grid, level=LEVEL, dataset="fashion-mnist", **overrides) -> Study:
    entries = tuple(grid("laptop", dataset, None, **overrides))
    return Study("laptop", dataset, entries, {entry.key: fabricate(entry, level) for entry in entries})


def verdicts(study: Study, names) -> dict[str, str]:
    return {found.claim.id: found.verdict for found in judge(names, study)}


def test_the_tables_claims_hold_where_they_were_made_to_hold_and_in_both_modes():
    study = study_of(comparison)
    names = [*TABLES, *(f"{name}-aliased" for name in TABLES)]
    assert verdicts(study, names) == dict.fromkeys(sorted(names), "reproduced")


def test_a_mode_without_runs_is_inconclusive():
    found = verdicts(study_of(comparison, snapshots=["copy"]), [*TABLES, "WKAFL-C07-aliased"])
    assert found.pop("WKAFL-C07-aliased") == "inconclusive"
    assert set(found.values()) == {"reproduced"}


@pytest.mark.parametrize(
    ("changed", "fails"),
    [
        ({"TWAFL": 0.97}, {"C07", "C11"}),
        ({"SASGD": 0.94}, {"C07"}),
        ({"GSGM": 0.96}, {"C11", "C16"}),
    ],
)
def test_they_fail_where_another_method_is_better(changed, fails):
    found = verdicts(study_of(comparison, {**LEVEL, **changed}, snapshots=["copy"]), TABLES)
    not_reproduced = {name.removeprefix("WKAFL-") for name, verdict in found.items() if verdict != "reproduced"}
    assert fails <= not_reproduced


def test_an_advantage_in_time_that_does_not_grow_with_staleness_is_not_reproduced():
    study = study_of(comparison)
    for entry in study.entries:
        if entry.labels["method"] == "WKAFL" and entry.labels["level"] == 300:
            evaluations = study.results[entry.key].history.evaluations
            late = [0.1] * 10 + evaluations["test_accuracy"]
            evaluations["test_accuracy"] = late[: len(evaluations["version"])]
    found = {part.name: part.verdict for part in judge(["WKAFL-C09"], study)[0].parts}
    assert found["lead at P/K = 300, 1 label against P/K = 100, 1 label"] == "not reproduced"
    assert found["P/K = 100, 1 label, versions, WKAFL against TWAFL"] == "reproduced"


def test_an_advantage_in_time_over_a_method_that_begins_at_the_target_is_undecided():
    study = study_of(comparison, snapshots=["copy"])
    for entry in study.entries:
        if entry.labels["method"] == "SASGD" and entry.labels["level"] == 300:  # never better than guessing
            evaluations = study.results[entry.key].history.evaluations
            evaluations["test_accuracy"] = [0.1] * len(evaluations["version"])
    leads = [part for part in judge(["WKAFL-C09"], study)[0].parts if part.name.startswith("lead")]
    assert [part.verdict for part in leads] == ["inconclusive"] * 2
    assert all(part.words()[:2] == ("–", "–") for part in leads)


def test_the_ablations_claims():
    study = study_of(ablations, dataset="emnist-byclass-surrogate", snapshots=["copy", "aliased"])
    assert set(verdicts(study, ["WKAFL-C03", "WKAFL-C04", "WKAFL-C05", "WKAFL-C05-aliased"]).values()) == {
        "reproduced"
    }
    worse = study_of(ablations, {**LEVEL, "No Non-IIDness": 0.7}, dataset="emnist-byclass-surrogate")
    assert verdicts(worse, ["WKAFL-C05"]) == {"WKAFL-C05": "not reproduced"}
    natural = study_of(comparison, dataset="celeba-surrogate")
    assert verdicts(natural, ["WKAFL-C06"]) == {"WKAFL-C06": "reproduced"}


def test_the_motivation_and_appendix_a():
    assert verdicts(study_of(motivation), ["WKAFL-C01"]) == {"WKAFL-C01": "reproduced"}
    study = study_of(motivation)
    for result in study.results.values():
        result.history.updates["weight"] = [0.11] * 9 + [0.01]
    assert verdicts(study, ["WKAFL-C01"]) == {"WKAFL-C01": "not reproduced"}
    assert verdicts(study_of(byzantine), ["WKAFL-C29"]) == {"WKAFL-C29": "reproduced"}
    assert verdicts(study_of(byzantine, {**LEVEL, "Zeno++": 0.93}), ["WKAFL-C29"]) == {"WKAFL-C29": "not reproduced"}


def test_a_study_without_runs_decides_nothing():
    empty = Study("laptop", "fashion-mnist", tuple(comparison("laptop", "fashion-mnist", [0])), {})
    names = [claim.id for claim in CLAIMS if not claim.computed]
    assert len(names) >= 30
    assert set(verdicts(empty, names).values()) == {"inconclusive"}


def test_measures_of_a_run():
    history = History()
    for version, accuracy in enumerate([0.1, *np.linspace(0.2, 0.6, 5), *[0.7, 0.8] * 5]):
        append(history.evaluations, version=10 * version, test_accuracy=float(accuracy))
    result = Result(comparison("laptop", "fashion-mnist", [0])[0].spec, history, {})
    assert experiment.final(result) == pytest.approx(0.75)
    assert experiment.early(result) == pytest.approx(0.3)
    assert experiment.unrest(result) == pytest.approx(np.log(8 / 7) / 2)
    assert experiment.reached(result, 0.65) == 60
    assert experiment.reached(result, 0.9) == 150
    append(history.evaluations, version=150, test_accuracy=0.99)  # the same model, on all test samples
    assert experiment.accuracies(result)[-2:] == [0.7, 0.8]
