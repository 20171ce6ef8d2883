"""The grids behind WKAFL's figures and tables: cells, settings, budgets, and that each method runs."""

from __future__ import annotations

import pytest

from fl_core.experiments.grid import work
from fl_papers.wkafl.experiment import WKAFLExperiment, name_of

pytestmark = pytest.mark.usefixtures("few_images")

comparison, ablations, motivation, byzantine = (
    WKAFLExperiment.made(part)
    for part in (
        WKAFLExperiment.comparison, WKAFLExperiment.ablations, WKAFLExperiment.motivation, WKAFLExperiment.byzantine,
    )
)  # fmt: skip


def cells(entries) -> set[tuple]:
    return {tuple(e.labels[name] for name in ("method", "clients", "aggregated", "labels")) for e in entries}


@pytest.mark.parametrize(
    ("dataset", "updates", "snapshots"),
    [
        ("fashion-mnist", 1500, ["copy", "aliased"]),
        ("emnist-mnist-surrogate", 1000, ["copy"]),
        ("emnist-mnist", 1000, ["copy"]),
    ],
)
def test_the_cells_of_tables_2_and_3(dataset, updates, snapshots):
    entries = comparison("laptop", dataset, None)
    three = ("WKAFL", "TWAFL", "SASGD")
    table2 = {(m, *level, 1) for level in ((1000, 10), (3000, 20), (3000, 10)) for m in three}
    table3 = {(m, 3000, 10, labels) for labels in (1, 5, 10) for m in (*three, "GSGM")}
    assert cells(entries) == table2 | table3
    assert len(entries) == len(table2 | table3) * 3 * len(snapshots)
    assert len({entry.key for entry in entries}) == len(entries)
    assert {(e.labels["snapshot"], e.spec.algorithm.client_snapshot) for e in entries} == {
        (mode, mode) for mode in snapshots
    }
    assert {e.spec.budget.updates for e in entries} == {updates}
    assert len(comparison("laptop", dataset, None, snapshots=["copy", "aliased"])) == len(table2 | table3) * 3 * 2


def test_a_small_share_of_byzantine_uploads_is_not_none():
    assert name_of({"role": "byzantine", "byzantine": 0.005}) == "0.5% Byzantine uploads"


def test_the_papers_settings():
    assert WKAFLExperiment.setup_of("cifar10-surrogate") is WKAFLExperiment.SETUPS["cifar10"]
    by_method = {
        e.labels["method"]: e.spec for e in comparison("paper", "cifar10-surrogate", [0], snapshots=["copy"])
    }
    wkafl = by_method["WKAFL"]
    assert (wkafl.model, wkafl.training.batch_size, wkafl.budget.updates) == ("lenet5", 8, 10_000)
    assert wkafl.evaluation.every_updates == 100
    assert wkafl.preprocessing.scale == "raw"
    chosen = wkafl.algorithm
    assert (chosen.lr, chosen.lr_staleness_factor, chosen.clip_bound, chosen.sim_beta) == (0.0005, 0.01, 70, 50)
    assert (chosen.stage_rule, chosen.stage_threshold, chosen.stage2_clip_factor) == ("iteration", 3500, 5)
    assert {by_method[m].algorithm.lr for m in ("TWAFL", "SASGD", "GSGM")} == {0.0005}
    digits = comparison("paper", "emnist-mnist-surrogate", [0], snapshots=["copy"])[0].spec
    assert (digits.model, digits.algorithm.stage_threshold, digits.partition.kind) == ("wkafl_cnn", 1000, "wkafl")


def test_the_size_of_a_run_counts_its_gradients():
    [entry] = motivation("laptop", "fashion-mnist", [0])
    assert work(entry.spec) == pytest.approx(1500 * 10 * 4 + 62 * 10_000 / 3)


@pytest.mark.parametrize("grid", [comparison, ablations, motivation, byzantine])
def test_a_smoke_run_of_every_method_ends_in_finite_numbers(grid):
    entries = {entry.labels["method"]: entry.spec for entry in grid("smoke", "fashion-mnist", [0], model="linear")}
    for spec in entries.values():
        history = spec.changed(**{"budget.updates": 5, "evaluation.every_updates": None}).simulation().run()
        assert history.evaluations["version"][-1] > 0
        assert 0 <= history.evaluations["test_accuracy"][-1] <= 1
        assert all(0 <= weight <= 1 for weight in history.updates["weight"])
