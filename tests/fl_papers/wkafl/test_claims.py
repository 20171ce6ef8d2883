"""WKAFL's claims on made-up runs with a known answer."""

from __future__ import annotations

import numpy as np
import pytest
from made_up import measured

from fl_core.experiments.claims import Judgement, judge
from fl_core.experiments.evidence import luck
from fl_core.experiments.run import Result
from fl_core.experiments.study import Study
from fl_core.runtime.history import append
from fl_papers.wkafl import experiment
from fl_papers.wkafl.claims import tuned_alike
from fl_papers.wkafl.experiment import WKAFLExperiment
from fl_papers.wkafl.figures import by_level, by_skew, survival_table

comparison, ablations, byzantine = (
    WKAFLExperiment.made(part)
    for part in (WKAFLExperiment.comparison, WKAFLExperiment.ablations, WKAFLExperiment.byzantine)
)
LEVEL = {"WKAFL": 0.95, "TWAFL": 0.92, "SASGD": 0.80, "GSGM": 0.88, "No Grad-Sel": 0.90, "No Staleness": 0.7,
         "No Non-IIDness": 0.93, "Zeno++": 0.5, "SGD": 0.67}  # fmt: skip
SHAKE = {"WKAFL": 0.006, "TWAFL": 0.011, "SASGD": 0.08, "GSGM": 0.003, "No Grad-Sel": 0.02}
TABLES = [f"WKAFL-C{n:02d}" for n in (7, 8, 9, 10, 11, 12, 13, 14, 16, 18)]


def fabricate(entry, level: dict[str, float], even: bool = False) -> Result:
    """Make up a run that rises to its level, lower and later where it is stale and skewed, and goes up and down."""
    labels = entry.labels
    method, seed, skew = labels["method"], labels["seed"], (10 - (labels.get("labels") or 10)) / 20
    rng = np.random.default_rng([seed, sum(map(ord, method)), len(labels.get("snapshot") or ""), int(100 * skew)])
    stale = (labels.get("level") or 0) / 300
    end = level[method] - (0 if even else (1 - level[method]) * (stale / 4 + skew)) + 0.001 * rng.standard_normal()
    rate = 3.0 if even or method == "WKAFL" else 100 / (labels.get("level") or 100)
    shake = SHAKE.get(method, 0.01) * (1 + skew) * np.exp(0.05 * rng.standard_normal())
    number = np.arange(31)
    wobble = (0.01 if even else shake) * (-1.0) ** number * (1 + 0.1 * rng.random(31))
    accuracy = end * (1 - np.exp(-number * rate)) + (number > 15) * wobble
    return measured(entry.spec, version=50 * number, test_accuracy=[0.1, *accuracy[1:]])


def study_of(grid, level=LEVEL, dataset="fashion-mnist", even=False, seeds=range(5), **overrides) -> Study:
    entries = tuple(grid("laptop", dataset, seeds, **overrides))
    return Study("laptop", dataset, entries, {entry.key: fabricate(entry, level, even) for entry in entries})


def judged(study: Study, names) -> dict[str, Judgement]:
    return {found.claim.id: found for found in judge(names, study)}


def directions(study: Study, names) -> dict[str, str]:
    return {name: found.direction for name, found in judged(study, names).items()}


@pytest.fixture(scope="module")
def both() -> Study:
    return study_of(comparison)


def test_the_tables_claims_hold_where_they_were_made_to_hold_and_in_both_modes(both):
    names = [*TABLES, *(f"{name}-aliased" for name in TABLES)]
    assert directions(both, names) == dict.fromkeys(sorted(names), "holds")
    assert set(survival_table(judge(names, both))["survives"]) == {"yes"}


def test_beside_claims_are_listed_and_do_not_count_nor_weigh_on_the_others(both):
    names = [*TABLES, *(f"{name}-aliased" for name in TABLES)]
    found = judged(both, names)
    assert {name for name, each in found.items() if each.counted} == set(TABLES)
    assert {each.family for each in found.values()} == {len(TABLES)}


def test_methods_tuned_alike_are_compared_at_the_best_of_their_own_rates():
    entries = tuple(WKAFLExperiment.made(WKAFLExperiment.tuned)("laptop", "fashion-mnist", range(5)))
    levels = {factor: LEVEL | {"TWAFL": 0.99 if factor == 3 else 0.5} for factor in experiment.TRIALS}
    results = {entry.key: fabricate(entry, levels[entry.labels["lr_factor"]]) for entry in entries}
    found = tuned_alike(Study("laptop", "fashion-mnist", entries, results))
    assert {part.name.split()[-1]: part.direction for part in found} == {
        "TWAFL": "opposite", "SASGD": "holds", "GSGM": "holds",
    }  # fmt: skip


def test_figures_of_one_mode_show_what_there_is():
    """With ``mode="as_released"`` none of the runs that had just been made was "stored"."""
    for study in (study_of(comparison, mode="as_released"), study_of(comparison)):
        [mode] = {*by_level(study)["mode"], *by_skew(study)["mode"]}
        assert mode == ("as released" if study.entries[0].labels["snapshot"] == "released" else "")


def test_a_mode_without_runs_is_undecided():
    found = judged(study_of(comparison, snapshots=["copy"]), ["WKAFL-C07", "WKAFL-C07-aliased"])
    assert [each.direction for each in found.values()] == ["holds", "open"]
    assert found["WKAFL-C07-aliased"].label == "undecided"
    assert survival_table(found.values()).empty


@pytest.mark.parametrize(
    ("changed", "opposite"),
    [({"TWAFL": 0.97}, {"C07", "C11"}), ({"SASGD": 0.94}, {"C07"}), ({"GSGM": 0.96}, {"C11"})],
)
def test_they_are_contradicted_where_another_method_is_better(changed, opposite):
    found = directions(study_of(comparison, {**LEVEL, **changed}, snapshots=["copy"]), TABLES)
    assert opposite <= {name.removeprefix("WKAFL-") for name, direction in found.items() if direction == "opposite"}


def test_where_all_methods_are_alike_no_claim_holds():
    study = study_of(comparison, dict.fromkeys(LEVEL, 0.9), even=True, snapshots=["copy"])
    assert "holds" not in directions(study, TABLES).values()


def test_a_diverged_method_is_not_the_most_stable():
    """GSGM at chance used to be the most stable of all methods (C16), and to be beaten by WKAFL (C11, C17)."""
    study = study_of(comparison, snapshots=["copy"])
    for entry in study.entries:
        if entry.labels["method"] == "GSGM":
            table = study.results[entry.key].history.evaluations
            table["test_accuracy"] = [0.1 + 1e-5 * n for n in range(len(table["version"]))]
    found = judged(study, ["WKAFL-C11", "WKAFL-C16", "WKAFL-C18"])
    assert found["WKAFL-C16"].label == "undecided"
    assert found["WKAFL-C16"].reason == "9 of 9 parts left out (GSGM is not trained)"
    assert not any("GSGM" in part.name for name in ("WKAFL-C11", "WKAFL-C18") for part in found[name].effects)


def test_a_trend_is_not_unrest():
    """A run that still rises steadily was "less stable" than one that goes up and down half as far."""
    spec = comparison("laptop", "fashion-mnist", [0])[0].spec
    rising, shaken = (
        measured(spec, version=range(11), test_accuracy=[0.1, *values])
        for values in (np.linspace(0.5, 0.8, 10), [0.6, 0.66] * 5)
    )
    assert experiment.unrest(rising) > experiment.unrest(shaken)
    assert 0 < experiment.uneven(rising) < 2e-3 * experiment.uneven(shaken)


def test_an_early_lead_that_does_not_grow_with_staleness_contradicts():
    study = study_of(comparison, snapshots=["copy"])
    for entry in study.entries:
        if entry.labels["method"] == "WKAFL" and entry.labels["level"] == 300:
            evaluations = study.results[entry.key].history.evaluations
            late = [0.1] * 4 + evaluations["test_accuracy"]
            evaluations["test_accuracy"] = late[: len(evaluations["version"])]
    [found] = judge(["WKAFL-C09"], study)
    parts = {part.name: part.direction for part in found.parts}
    assert parts["early, gap to SASGD, P/K = 300, 1 label against P/K = 100, 1 label"] == "opposite"
    assert parts["early, P/K = 100, 1 label, WKAFL against TWAFL"] == "holds"
    assert found.direction == "opposite"
    assert luck(found.effects) <= 0.5


@pytest.mark.parametrize(
    ("names", "grid", "dataset", "changed", "wanted"),
    [
        ("C03 C04 C05 C05-aliased", ablations, "emnist-byclass-surrogate", {}, "holds"),
        ("C05", ablations, "emnist-byclass-surrogate", {"No Non-IIDness": 0.6}, "opposite"),
        ("C03", ablations, "emnist-byclass-surrogate", {"No Grad-Sel": 0.97}, "opposite"),
        ("C06", comparison, "emnist-byclass-surrogate", {}, "holds"),
        ("C29", byzantine, "fashion-mnist", {}, "holds"),
        ("C29", byzantine, "fashion-mnist", {"Zeno++": 0.93}, "opposite"),
        ("C19 C20", comparison, "cifar10-surrogate", {"TWAFL": 0.95}, "holds"),
        ("C19 C20", comparison, "cifar10-surrogate", {"TWAFL": 0.7}, "opposite"),
        ("C30", comparison, "cifar10-surrogate", {"WKAFL": 0.5}, "holds"),
        ("C30", comparison, "cifar10-surrogate", {"WKAFL": 0.8}, "opposite"),
    ],
)
def test_other_claims_come_out_each_way(names, grid, dataset, changed, wanted):
    snapshots = ["copy", "aliased"] if "aliased" in names else ["copy"]
    even = "C19" in names
    study = study_of(grid, {**LEVEL, **changed}, dataset, even, snapshots=snapshots)
    assert set(directions(study, [f"WKAFL-{name}" for name in names.split()]).values()) == {wanted}


def test_claims_about_other_data_are_not_judged_on_digits(both):
    """C06 is about data with owners, C19, C20 and C30 about CIFAR-10."""
    found = judged(both, [f"WKAFL-C{n}" for n in ("06", "19", "20", "30")])
    assert not any(each.parts for each in found.values())


def test_sizes_are_printed_for_the_papers_own_data_alone(both):
    """Fashion-MNIST stands for EMNIST MNIST in the direction of an effect, not in its size."""
    assert {part.printed for name in TABLES for part in judged(both, [name])[name].effects} == {None}
    study = study_of(comparison, snapshots=["copy"])
    digits = Study("laptop", "emnist-mnist", study.entries, study.results)
    found = {name: [part.printed for part in each.effects] for name, each in judged(digits, TABLES).items()}
    assert found["WKAFL-C14"] == [pytest.approx(0.0060 / 0.0834)]
    assert found["WKAFL-C13"][0] == pytest.approx(0.0060 / 0.0107)
    assert found["WKAFL-C08"] == pytest.approx([0.0006 - 0.0048, 0.0048 - 0.0766])
    assert found["WKAFL-C12"] == [pytest.approx(0.0156 - 0.0035)]
    assert found["WKAFL-C10"] == pytest.approx([0.1175, 0.1175 - 0.0415, 0.1175 - 0.1003])


def test_measures_of_a_run():
    accuracy = [0.1, *np.linspace(0.2, 0.6, 5), *[0.7, 0.8] * 5]
    spec = comparison("laptop", "fashion-mnist", [0])[0].spec
    result = measured(spec, version=range(0, 160, 10), test_accuracy=accuracy)
    assert experiment.final(result) == pytest.approx(0.75)
    assert experiment.early(result) == pytest.approx(0.3)
    assert experiment.unrest(result) == pytest.approx(np.log(8 / 7) / 2)
    append(result.history.evaluations, version=150, test_accuracy=0.99)  # the same model, on all test samples
    assert experiment.accuracies(result)[-2:] == [0.7, 0.8]
