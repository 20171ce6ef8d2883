"""FedASMU's figures and tables from runs that are really made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
from made_up import measured
from tiny_grids import drawn, really_run

from fl_core.algorithms import FedASMU
from fl_core.experiments.artifacts import find_artifact, find_artifacts, make_study
from fl_core.experiments.measures import passage
from fl_core.experiments.run import Result
from fl_core.experiments.spec import RunSpec
from fl_core.experiments.study import Study
from fl_core.report.figures import draw
from fl_core.report.tables import Table
from fl_core.runtime import History
from fl_papers.fedasmu.artifacts import GRIDS, PANELS, stored
from fl_papers.fedasmu.experiment import (
    ABLATIONS,
    ASYNCHRONOUS,
    COLUMNS,
    EXTRA,
    HEURISTICS,
    METHODS,
    PROFILES,
    SYNCHRONOUS,
)
from fl_papers.fedasmu.figures import final_accuracy, readings
from fl_papers.fedasmu.tables import column_settings

FMNIST = "fashion-mnist"
FROM_FORMULAS = ("fedasmu-fig1", "fedasmu-tab3", "fedasmu-tab5", "fedasmu-tab6")
DECISIVE = ("fedasmu-x5", "fedasmu-x6", "fedasmu-x7")
"""Their runs follow from each other: test_decisive."""
OTHERS = [artifact for artifact in find_artifacts(["fedasmu-*"]) if artifact.id not in DECISIVE]


def test_every_column_is_a_panel_of_one_figure() -> None:
    assert sorted(name for names in PANELS.values() for name in names) == sorted(COLUMNS)


def test_what_a_profile_changes_of_the_columns_stands_in_their_table() -> None:
    assert not any("paper" in str(cell) for cell in column_settings("paper").to_numpy().ravel())
    table = column_settings("laptop").set_index("column")
    assert list(table.loc["ResNet, Tiny-ImageNet"]) == [
        "20,556 (paper 282,072)", "16 (paper 64)", "500 (paper 1,000)", "600 (paper 5,000)", "0.1 (paper 0.03)",
        "0.02 (paper 0.12)", "PyTorch's", 1,
    ]  # fmt: skip
    assert list(table.loc["TextCNN, IMDb", ["side of an image", "samples of a device"]]) == ["–", "200 (paper 250)"]
    assert table.loc["LeNet, CIFAR-10", "parameters"] == "62,006"
    assert table.loc["VGG, CIFAR-100", "uploads"] == "900 (paper 5,000)"
    assert set(table.index[table["initial values"] == "Glorot's"]) == {
        f"{model}, {data}" for model in ("AlexNet", "VGG") for data in ("CIFAR-10", "CIFAR-100")
    }


def test_a_figure_shows_those_of_its_panels_that_a_data_set_has() -> None:
    shown = {
        (number, name): {
            e.labels["column"] for e in make_study(find_artifact(f"fedasmu-fig{number}"), "smoke", name).entries
        }
        for number in PANELS
        for name in ("cifar10-surrogate", FMNIST)
    }
    assert shown[3, "cifar10-surrogate"] == {"lenet-cifar10", "cnn-cifar10"}
    assert shown[5, "cifar10-surrogate"] == {"alexnet-cifar10", "vgg-cifar10"}
    assert {columns for (_, name), found in shown.items() if name == FMNIST for columns in found} == {"lenet-fmnist"}


class Kept:
    """A store that has the runs of which `has` is true."""

    def __init__(self, has: Callable[[RunSpec], bool]) -> None:
        self.has = has

    def get(self, spec: RunSpec) -> Result | None:
        return Result(spec, History(), {}) if self.has(spec) else None


def test_a_chapter_shows_the_seeds_that_are_complete_or_else_the_first_as_far_as_it_goes() -> None:
    def found(has: Callable[[RunSpec], bool], than: str = "smoke") -> Study | None:
        return stored([find_artifact("fedasmu-tab2")], Kept(has), than, FMNIST, None)

    assert found(lambda spec: spec.seed != 1).seeds == [0, 2]
    partly = found(lambda spec: isinstance(spec.algorithm, FedASMU))
    assert (partly.profile, partly.seeds, partly.complete, len(partly.results)) == ("laptop", [0], False, 1)
    assert found(lambda spec: False) is None
    assert found(lambda spec: True, than="laptop") is None


def test_a_chapter_shows_all_complete_seeds_of_a_column_though_others_have_none() -> None:
    """Two of CIFAR-10's four columns with three seeds were shown with one."""
    networks = {0: "alexnet(width=0.125)", 1: "alexnet(width=0.125)", 2: "vgg11(width=0.125)"}
    kept = Kept(
        lambda spec: spec.model == networks.get(spec.seed, "") or (spec.seed == 2 and spec.algorithm.name == "moon")
    )
    found = stored([find_artifact("fedasmu-tab2")], kept, "smoke", "cifar10", None)
    seen = {(e.labels["column"], e.labels["seed"]) for e in found.entries if e.key in found.results}
    assert seen == {("alexnet-cifar10", 0), ("alexnet-cifar10", 1), ("vgg-cifar10", 2)}
    assert not found.complete, "what is not stored is still asked for"
    assert len(found.results) == 3 * len(METHODS)


# What is read off a run


def result(accuracy: list[float], profile: str = "laptop", last_twice: bool = False) -> Result:
    """A run of FedASMU with these accuracies every 300 s; `last_twice`: measured once more at the end."""
    [entry] = [e for e in GRIDS["comparison"](profile, FMNIST, [0]) if e.labels["method"] == "FedASMU"]
    place = np.array([*range(len(accuracy)), *[len(accuracy) - 1] * last_twice])
    values = np.array(accuracy)[place]
    return measured(entry.spec, seconds=300.0 * place, version=10 * place, test_accuracy=values)


def test_the_end_on_all_images_is_not_read_where_the_others_use_a_part() -> None:
    part = result([0.1, 0.3, 0.5, 0.9])
    assert list(readings(part)[1]) == [0.1, 0.3, 0.5]
    assert [passage(*readings(part), target) for target in (0.5, 0.6)] == [(600, True), (600, False)]
    whole = result([0.1, 0.3, 0.5, 0.9], "paper")
    assert passage(*readings(whole), 0.6) == (pytest.approx(675), True)
    assert len(readings(whole)[1]) == 4
    assert len(readings(result([0.1, 0.3, 0.5, 0.9], "paper", last_twice=True))[1]) == 4


def test_the_final_accuracy_is_the_mean_of_the_last_tenth() -> None:
    """A18; of 21 readings, the last three."""
    values = [0.01 * n for n in range(21)]
    assert final_accuracy(result(values, "paper")) == pytest.approx(0.19)


# One tiny grid, really run


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Study]:
    """All grids but those of the decisive experiment at profile smoke with a linear model, really run."""
    linear = replace(COLUMNS["lenet-fmnist"], network="linear", parameters=7850)
    scale = replace(PROFILES["smoke"], uploads=20, test_samples=100)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(COLUMNS, "lenet-fmnist", linear)
        patch.setitem(PROFILES, "smoke", scale)
        yield really_run(make_study(OTHERS, "smoke"), tmp_path_factory.mktemp("results"))[0]


def test_every_figure_and_table_is_drawn_from_runs_with_a_true_caption(tiny: Study) -> None:
    for shown in drawn((each.id for each in OTHERS if each.id not in FROM_FORMULAS), tiny).values():
        assert len(shown.frame) if isinstance(shown, Table) else shown.axes


def test_what_is_missing_is_hatched(tiny: Study) -> None:
    kept = {e.key: tiny.results[e.key] for e in tiny.entries if e.labels["varied"] is None}
    figure, _ = draw(find_artifact("fedasmu-fig7"), tiny.with_results(kept))
    assert any(patch.get_hatch() for axis in figure.axes for patch in axis.patches)


def test_fedasmu_without_its_parts_is_fedasync(tiny: Study) -> None:
    """E18, C34: the same weights for the same uploads, and the same accuracies to the last bit."""
    [(_, reduced)] = tiny.select(method="FedASMU-0", varied=None)
    [(_, plain)] = tiny.select(method="FedAsync", varied=None)
    for name in ("device", "staleness", "weight", "loss"):
        assert reduced.history.updates[name] == plain.history.updates[name]
    assert reduced.history.evaluations["test_accuracy"] == plain.history.evaluations["test_accuracy"]
    assert reduced.history.evaluations["bytes_up"] == plain.history.evaluations["bytes_up"]


def test_every_method_counts_as_many_uploads(tiny: Study) -> None:
    for method in (*METHODS, *EXTRA, *ABLATIONS, *HEURISTICS):
        [(_, found)] = tiny.select(method=method, varied=None)
        assert found.history.outcomes["applied"] == 20
        assert len(readings(found)[0]) == (3 if method in ("FedBuff", "PORT") else 2)


def test_a_synchronous_round_lasts_longer_than_ten_single_uploads(tiny: Study) -> None:
    ends = {m: tiny.select(method=m, varied=None)[0][1].history.evaluations["seconds"][-1] for m in METHODS}
    assert max(ends[m] for m in ASYNCHRONOUS) < min(ends[m] for m in SYNCHRONOUS)
