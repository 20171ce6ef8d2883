"""The runs behind FedASMU's figures and tables are the paper's, and made cheaper without changing the clock."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fl_core.algorithms import FedASMU
from fl_core.datasets import data_folder
from fl_core.errors import SpecError
from fl_core.experiments.artifacts import artifacts, find_artifact, find_artifacts, make_study
from fl_core.experiments.claims import CLAIMS
from fl_core.experiments.grid import execute
from fl_core.experiments.run import Result
from fl_core.experiments.store import Store
from fl_core.experiments.study import Study, load_study
from fl_core.formulas.fedasmu import matched_lambda
from fl_core.models import num_parameters
from fl_core.report.figures import draw
from fl_core.report.tables import Table
from fl_core.runtime import History
from fl_papers.fedasmu import columns as fedasmu_columns
from fl_papers.fedasmu import grid as fedasmu_grid
from fl_papers.fedasmu.artifacts import PANELS
from fl_papers.fedasmu.columns import COLUMNS, SURROGATE
from fl_papers.fedasmu.curves import final_accuracy, readings, time_to
from fl_papers.fedasmu.grid import (
    GRIDS,
    ablations,
    comparison,
    conditions,
    heuristics,
    others,
    sensitivity,
    tuning,
    variants,
)
from fl_papers.fedasmu.methods import (
    ABLATIONS,
    ASYNCHRONOUS,
    EXTRA,
    HEURISTICS,
    METHODS,
    RATES,
    SYNCHRONOUS,
    VARIANTS,
)
from fl_papers.fedasmu.scales import SCALES
from fl_papers.fedasmu.system import column_settings, five_devices

FMNIST = "fashion-mnist"
DATA_SETS = tuple(dict.fromkeys(column.dataset for column in COLUMNS.values()))
FROM_FORMULAS = ("fedasmu-fig1", "fedasmu-tab3", "fedasmu-tab5", "fedasmu-tab6")


# The grids


def test_every_figure_and_table_of_the_paper_is_registered_and_every_claim_carried() -> None:
    names = {name for name in artifacts() if name.startswith("fedasmu")}
    assert names >= {*(f"fedasmu-fig{n}" for n in range(1, 8)), *(f"fedasmu-tab{n}" for n in (1, 2, 3, 5, 6))}
    carried = {claim for artifact in find_artifacts(["fedasmu-*"]) for claim in artifact.claims}
    assert carried == {name for name in CLAIMS if name.startswith("FEDASMU-")}
    assert sorted(name for names in PANELS.values() for name in names) == sorted(COLUMNS)


def test_the_columns_have_the_networks_of_the_specification() -> None:
    """O16 and section 6.1, as far as networks and rates can be built from them."""
    for name, column in COLUMNS.items():
        assert num_parameters(column.network, column.shape, column.classes) == column.parameters, name
    assert COLUMNS["lenet-cifar10"].rates == (0.001, 0.001, 0.1, 0.1, 0.001)
    assert [column.target for column in COLUMNS.values()] == [
        0.30, 0.13, 0.40, 0.15, 0.25, 0.12, 0.40, 0.12, 0.45, 0.12, 0.85, 0.70,
    ]  # fmt: skip
    assert {c.lr for c in COLUMNS.values()} == {0.03, 0.028, 0.013, 0.001, 0.005}


@pytest.mark.parametrize("dataset", DATA_SETS)
def test_the_paper_profile_has_the_papers_setting(dataset: str) -> None:
    entries = comparison("paper", dataset, [0]) + others("paper", dataset, [0])
    for entry in entries:
        spec, column, method = entry.spec, COLUMNS[entry.labels["column"]], entry.labels["method"]
        assert (spec.model, spec.dataset, spec.training.lr) == (column.network, dataset, column.lr)
        assert (spec.training.epochs, spec.training.batch_size, spec.training.momentum) == (5, 64, 0)
        assert (spec.partition.alpha, spec.partition.min_samples, spec.partition.train_fraction) == (0.5, 10, 1)
        assert (spec.world.devices, spec.world.compute.ratio, spec.world.trigger.concurrency) == (100, 5, 10)
        assert (spec.world.trigger.period_seconds, spec.world.trigger.per_tick) == (10, 10)
        rounds = method in SYNCHRONOUS
        assert (spec.budget.updates or spec.budget.uploads) == (500 if rounds else 5000)
        assert (spec.algorithm.clients_per_round if rounds else spec.algorithm.concurrency) == 10
        if isinstance(spec.algorithm, FedASMU):
            assert tuple(getattr(spec.algorithm, rate) for rate in RATES) == column.rates
            assert (spec.algorithm.staleness_bound, spec.algorithm.lr_rl) == (99, 0.001)
            assert spec.algorithm.lambda_0 == pytest.approx(29.66013673)
    assert {e.labels["method"] for e in entries} == {*METHODS, *EXTRA}


@pytest.mark.parametrize("profile", SCALES)
def test_no_profile_changes_the_clock(profile: str) -> None:
    """Training takes as long, and so does a transfer, whatever the size of the network."""
    for name, column in COLUMNS.items():
        [entry] = [e for e in comparison(profile, FMNIST, [3], columns=(name,)) if e.labels["method"] == "FedASMU"]
        spec = entry.spec
        devices = spec.world.realise(3)
        side = column.small_side if column.small_side and profile != "paper" else column.shape[-1]
        shape = (column.shape[0], side, side) if len(column.shape) == 3 else column.shape
        profile_of = devices.profile(7, None)
        assert profile_of.up_seconds(4 * num_parameters(spec.model, shape, column.classes)) == pytest.approx(1)
        times = [5 * devices.profile(device, None).train_seconds(1, 1) for device in range(100)]
        assert (min(times), max(times)) == pytest.approx((100, 500))


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


def test_the_published_runs_are_those_of_the_grids() -> None:
    published = Store(data_folder() / "results", data_folder() / "results")
    for make in (comparison, others, ablations, heuristics):
        for entry in make("laptop", FMNIST, [0]):
            assert published.has(entry.spec), entry.labels


def test_a_smaller_target_is_three_quarters_of_the_way_from_guessing_to_fedavg() -> None:
    published = data_folder() / "results"
    for name, column in COLUMNS.items():
        dataset = column.dataset if column.dataset == FMNIST else column.dataset + SURROGATE
        labels = {"method": "FedAvg", "column": name}
        [spec] = [e.spec for e in comparison("laptop", dataset, [0]) if labels.items() <= e.labels.items()]
        if not (stored := Store(published, published).get(spec)):
            assert column.small_target is None
            continue
        reached, chance = final_accuracy(stored), 1 / column.classes
        assert (column.small_target is None) == (column.target <= reached)
        if column.small_target is not None:
            assert abs(column.small_target - (chance + 0.75 * (reached - chance))) <= 0.005


def test_all_methods_get_as_many_uploads_and_measure_as_often() -> None:
    for entry in comparison("laptop", FMNIST, [0]) + others("laptop", FMNIST, [0]):
        spec, method = entry.spec, entry.labels["method"]
        per_version = 10 if method in SYNCHRONOUS else 5 if method in ("FedBuff", "PORT") else 1
        uploads = spec.budget.uploads or spec.budget.updates * per_version
        assert (uploads, spec.evaluation.every_updates * per_version) == (600, 10)
        assert spec.training.lr_decay_versions * per_version == 10
        assert spec.training.lr_decay == 0.998
    starts = {entry.spec.algorithm.lambda_0 for entry in heuristics("laptop", FMNIST, [0])}
    assert starts == {matched_lambda(600, 10)}


def test_figure_7_varies_one_thing_at_a_time() -> None:
    entries = conditions("paper", FMNIST, [0])
    found = {(e.labels["varied"], e.labels["value"]) for e in entries}
    assert found == {
        (None, None), ("bandwidth", 50), ("bandwidth", 100), ("heterogeneity", 110), ("heterogeneity", 220),
        ("heterogeneity", 330), ("heterogeneity", 440), ("devices", 200),
    }  # fmt: skip
    assert len(entries) == 10 * len(found) == len({entry.key for entry in entries})
    for entry in entries:
        world, varied, value = entry.spec.world, entry.labels["varied"], entry.labels["value"]
        assert world.compute.ratio == (value if varied == "heterogeneity" else 5)
        assert world.devices == (value if varied == "devices" else 100)
        transfer = world.realise(0).profile(0, None).up_seconds(4 * 61_706)
        assert transfer == pytest.approx(value if varied == "bandwidth" else 1)
        if entry.labels["method"] == "FedASMU" and varied == "devices":
            assert entry.spec.algorithm.concurrency == 20
            assert entry.spec.algorithm.lambda_0 == matched_lambda(5000, 20)
        if entry.labels["method"] == "FedAvg" and varied == "devices":
            assert (entry.spec.algorithm.clients_per_round, entry.spec.budget.updates) == (20, 250)
            assert entry.spec.training.lr_decay == pytest.approx(0.998**2)  # by uploads, as in all runs


def test_what_a_run_changes_is_what_its_labels_say() -> None:
    for entry in sensitivity("laptop", FMNIST, [0]):
        varied, value = entry.labels["varied"], entry.labels["value"]
        assert entry.spec.world.trigger.period_seconds == (value if varied == "trigger_period" else 10)
        for rate in RATES:
            assert getattr(entry.spec.algorithm, rate) == pytest.approx(value if rate == varied else 1e-4)
    for entry in variants("laptop", FMNIST, [0])[1:]:
        changed = VARIANTS[entry.labels["value"]]
        assert {name: getattr(entry.spec.algorithm, name) for name in changed} == changed
    for entry in tuning("laptop", FMNIST, [0]):
        if entry.labels["varied"] == "step_factor":
            assert entry.spec.training.lr == pytest.approx(0.03 * entry.labels["value"])
        elif entry.labels["varied"]:
            assert getattr(entry.spec.algorithm, entry.labels["varied"]) == entry.labels["value"]
    slots = {e.labels["method"]: e.spec.algorithm.slot for e in heuristics("laptop", FMNIST, [0])}
    assert slots == {"FedASMU": "learned", "H1": "first", "H2": "middle", "slot 3": 3, "H3": "last"}
    assert "slot 3" not in {e.labels["method"] for e in heuristics("laptop", FMNIST, [0], epochs=3)}


def test_runs_that_several_figures_need_are_one_run_seed_after_seed() -> None:
    entries = [entry for make in GRIDS.values() for entry in make("laptop", FMNIST, None)]
    by_key: dict[str, set[str]] = {}
    for entry in entries:
        by_key.setdefault(entry.key, set()).add(repr(entry.labels))
    assert all(len(labels) == 1 for labels in by_key.values())
    assert len(by_key) == 3 * (10 + 3 + 3 + 4 + 8) + 50 + 8 + 12
    assert [entry.labels["seed"] for entry in comparison("laptop", FMNIST, None)] == [0] * 10 + [1] * 10 + [2] * 10
    assert {entry.labels["seed"] for entry in comparison("laptop", "cifar10", None)} == {0}


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


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"upload": 10}, "unknown override 'upload'; did you mean 'uploads'"),
        ({"uploads": 15}, "uploads.*15"),
        ({"columns": ["lenet"]}, "no column 'lenet'"),
        ({"ticks": "never"}, "ticks.*never"),
        ({"dataset": "celeba"}, "unknown data set of this experiment 'celeba'"),
    ],
)
def test_wrong_overrides_are_one_clear_line(wrong: dict, message: str) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        make_study(find_artifact("fedasmu-tab2"), "smoke", **wrong)
    assert "\n" not in str(caught.value)


# What is read off a run


def result(accuracy: list[float], profile: str = "laptop", last_twice: bool = False) -> Result:
    """A run of FedASMU with these accuracies every 300 s; `last_twice`: measured once more at the end."""
    [entry] = [e for e in comparison(profile, FMNIST, [0]) if e.labels["method"] == "FedASMU"]
    history = History()
    rows = [(300.0 * place, 10 * place, value) for place, value in enumerate(accuracy)]
    rows += [rows[-1]] * last_twice
    for seconds, version, value in rows:
        given = {"seconds": seconds, "version": version, "test_accuracy": value}
        for name, column in history.evaluations.items():
            column.append(given.get(name, 0))
    return Result(entry.spec, history, {"data": "real"})


def test_the_end_on_all_images_is_not_read_where_the_others_use_a_part() -> None:
    part = result([0.1, 0.3, 0.5, 0.9])
    assert list(readings(part)[1]) == [0.1, 0.3, 0.5]
    assert (time_to(part, 0.5), time_to(part, 0.6)) == (600, np.inf)
    whole = result([0.1, 0.3, 0.5, 0.9], "paper")
    assert (time_to(whole, 0.6), len(readings(whole)[1])) == (900, 4)
    assert len(readings(result([0.1, 0.3, 0.5, 0.9], "paper", last_twice=True))[1]) == 4


def test_the_final_accuracy_is_the_mean_of_the_last_tenth() -> None:
    """A18; of 21 readings, the last three."""
    values = [0.01 * n for n in range(21)]
    assert final_accuracy(result(values, "paper")) == pytest.approx(0.19)


# One tiny grid, really run


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Study]:
    """All grids at profile smoke with a linear model, really run."""
    folder: Path = tmp_path_factory.mktemp("results")
    linear = replace(COLUMNS["lenet-fmnist"], network="linear", parameters=7850)
    scale = replace(SCALES["smoke"], uploads=20, test_samples=100)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(fedasmu_columns.COLUMNS, "lenet-fmnist", linear)
        patch.setitem(fedasmu_grid.SCALES, "smoke", scale)
        study = make_study(find_artifacts(["fedasmu-*"]), "smoke")
        store = Store(folder, folder)
        execute(study.specs, jobs=1, store=store, progress=False)
        yield load_study(study, store)


def test_every_figure_and_table_is_drawn_from_runs_with_a_true_caption(tiny: Study) -> None:
    for name in artifacts():
        if not name.startswith("fedasmu") or name in FROM_FORMULAS:
            continue
        shown, caption = draw(find_artifact(name), tiny)
        assert len(shown.frame) if isinstance(shown, Table) else shown.axes
        assert "fashion-mnist (real data), profile smoke, seed 0" in caption
        assert "papermill notebooks/fl_papers/fedasmu/replication.ipynb" in caption


def test_what_is_missing_is_hatched_and_nothing_at_all_is_an_error(tiny: Study) -> None:
    from fl_core.errors import RunError

    kept = {e.key: tiny.results[e.key] for e in tiny.entries if e.labels["varied"] is None}
    figure, _ = draw(find_artifact("fedasmu-fig7"), tiny.with_results(kept))
    assert any(patch.get_hatch() for axis in figure.axes for patch in axis.patches)
    for name in ("fedasmu-fig2", "fedasmu-fig6", "fedasmu-fig7", "fedasmu-tab2", "fedasmu-x1", "fedasmu-x3"):
        with pytest.raises(RunError, match="none of its runs"):
            draw(find_artifact(name), tiny.with_results({}))


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


def test_figure_1_is_a_timetable_of_the_protocol() -> None:
    spans = five_devices(make_study(find_artifact("fedasmu-fig1"), "smoke"))
    fresh, uploads = (spans[spans["activity"] == name] for name in ("fresh model", "upload"))
    assert len(fresh) > 3
    made = uploads.dropna().sort_values("end")
    assert list(made["made"]) == list(range(1, len(made) + 1))
    for _, one in fresh.iterrows():
        known = uploads[uploads["end"] <= one["start"]]["made"].max()
        assert one["version"] == known  # the newest there is
    for _, one in made.iterrows():
        own = spans[(spans["device"] == one["device"]) & (spans["end"] <= one["end"])]
        start = own[own["activity"] == "download"].iloc[-1]
        assert one["staleness"] == one["made"] - start["version"]
    for place, _ in spans.iterrows():
        at_work = spans[(spans["start"] <= spans.loc[place, "start"]) & (spans["end"] > spans.loc[place, "start"])]
        assert at_work["device"].nunique() <= 3


@pytest.mark.parametrize("name", FROM_FORMULAS)
def test_figures_and_tables_from_formulas_are_drawn(name: str) -> None:
    shown, caption = draw(find_artifact(name), make_study(find_artifact(name), "smoke"))
    assert "no runs" in caption
    assert len(shown.frame) if isinstance(shown, Table) else shown.axes
