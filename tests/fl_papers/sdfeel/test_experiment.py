"""SD-FEEL's runs are laid out as the paper's, and shrunk without changing the order of events."""

from __future__ import annotations

import pytest

from fl_core.experiments.artifacts import find_artifact, find_artifacts, make_study
from fl_core.experiments.grid import work
from fl_core.experiments.study import Entry
from fl_papers.sdfeel.experiment import ASYNC, CLOUD, PRINTED, ROUND_SECONDS, SYNC, SDFeel, differences, parameters_of
from fl_papers.sdfeel.theory import run_clock

pytestmark = pytest.mark.usefixtures("few_images")

RUNS = ["sdfeel-fig2a", "sdfeel-x7", "sdfeel-x8", "sdfeel-x9", "sdfeel-x10"]
figure2 = SDFeel.made(SDFeel.figure2)


def labels_of(entries: list[Entry], *names: str) -> set[tuple[object, ...]]:
    return {tuple(entry.labels[name] for name in names) for entry in entries}


def test_the_paper_profile_has_the_papers_setting():
    entries = figure2("paper", "cifar10")
    assert len(entries) == 18
    for entry in entries:
        spec = entry.spec
        assert (spec.model, spec.training.lr, spec.training.batch_size) == ("resnet18", 0.001, 10)
        assert (spec.world.devices, spec.world.clusters.servers, spec.world.clusters.graph.kind) == (30, 6, "ring")
        assert spec.world.compute.ratio == entry.labels["gap"]
        assert (spec.partition.alpha, spec.partition.cuts) == (0.5, "floor")
        assert spec.budget.seconds == 50 * ROUND_SECONDS[10]
        assert spec.initialisation == "pytorch"
        steps = spec.algorithm.min_batches if spec.algorithm.name == "async_sdfeel" else spec.algorithm.local_steps
        assert steps == 100
    profile = entries[0].spec.world.realise(0).profile(0, None)
    assert profile.up_seconds(4 * 11_173_962) == pytest.approx(71.5133568)


@pytest.mark.parametrize("dataset", ["fashion-mnist", "cifar10-surrogate"])
def test_smaller_profiles_keep_the_order_of_events_and_step_size_times_steps(dataset):
    """D12; the rule by which a run is made cheaper."""
    paper = figure2("paper", "cifar10", seeds=[1])
    for profile in ("smoke", "laptop"):
        for whole, small in zip(paper, figure2(profile, dataset, seeds=[1]), strict=True):
            assert small.labels == whole.labels
            if small.spec.algorithm.name != "async_sdfeel":
                continue
            pairs = zip(*(run_clock(entry.spec).events(200) for entry in (whole, small)), strict=True)
            assert all(one._replace(seconds=0) == other._replace(seconds=0) for one, other in pairs)
            product = small.spec.training.lr * small.spec.algorithm.min_batches
            assert product == pytest.approx(0.001 * 100)


def test_one_figure_has_one_horizon_and_as_many_points_for_all_curves():
    for name in RUNS[:-1]:
        specs = [entry.spec for entry in find_artifact(name).grid("laptop")]
        [(horizon, every)] = {(spec.budget.seconds, spec.evaluation.every_seconds) for spec in specs}
        assert (horizon, horizon / every) == pytest.approx((5 * ROUND_SECONDS[10], 30))
        assert {spec.seed for spec in specs} == {0, 1, 2}
    slow = find_artifact("sdfeel-x10").grid("laptop", seeds=[0])
    assert slow[0].spec.budget.seconds == pytest.approx(30 * ROUND_SECONDS[30])


def test_the_larger_network_is_measured_on_fewer_images_at_laptop_only():
    def measured(profile, dataset):
        found = figure2(profile, dataset)[0].spec.evaluation
        return found.train_samples, found.test_samples

    assert measured("laptop", "cifar10-surrogate") == (2_000, 2_000)
    assert measured("laptop", "fashion-mnist") == (5_000, 0)
    assert measured("paper", "cifar10") == (10_000, 0)


def test_figures_beyond_the_paper_stand_beside_the_runs_that_they_vary():
    found = {name: find_artifact(name).grid("laptop") for name in RUNS}
    assert labels_of(found["sdfeel-x7"], "method", "gap", "role") == {
        (method, gap, role) for method, role in ((SYNC, "curve"), (CLOUD, "reference")) for gap in (5, 10, 30)
    }
    assert labels_of(found["sdfeel-x8"], "gap", "role") == {(10, "curve"), (10, "variant")}
    assert labels_of(found["sdfeel-x9"], "method", "gap", "role", "alpha") == {
        (method, 10, role, alpha) for method in (ASYNC, SYNC) for role, alpha in (("curve", 0.5), ("non-IID", 0.1))
    }


def test_no_run_occurs_twice():
    entries = make_study(find_artifacts(RUNS), "laptop").entries
    assert len({entry.key for entry in entries}) == len(entries)


def test_the_estimate_of_cost_counts_the_mini_batches_of_all_devices():
    """A smoke run's estimate against what the run really does."""
    for entry in figure2("smoke", "fashion-mnist", gaps=(5,)):
        spec = entry.spec.changed(model="linear")
        estimate = spec.algorithm.mini_batches(spec.world.realise(0), spec.budget.seconds)
        evaluated = 4 * (500 + 500) / 3
        assert work(spec) == pytest.approx(10 * estimate + evaluated)
        history = spec.simulation().run()
        assert 0.7 * estimate < sum(history.updates["steps"]) <= estimate


# The paper's setting


def test_printed_numbers_say_where_they_are_from():
    assert len(PRINTED.frame) == 68
    assert set(PRINTED.frame["origin"]) == {"printed", "derived", "resolved", "not stated"}
    assert PRINTED.number(table="latency", quantity="T_iter", gap=7) is None
    share = PRINTED.number(quantity="communication_share_of_iteration", step_cost="flop_consistent")
    assert share == 0.161570345713


def test_the_setting_at_profile_paper_is_the_papers():
    table = SDFeel("paper", "fashion-mnist").setting().set_index("setting")
    here = table["here, profile paper"]
    for row in ("devices; clusters; graph", "local steps of the slowest device", "heterogeneity gap H"):
        assert here[row] == table.loc[row, "the paper"]
    assert table.loc["network", "the paper"] == f"ResNet-18, {parameters_of('resnet18', 'cifar10'):,} parameters"
    assert here["batch; rate"] == "10; 0.001, constant"
    laptop = SDFeel("laptop", "fashion-mnist").setting()["here, profile laptop"]
    assert "10; 0.001/0.1 = 0.01, constant" in set(laptop)


def test_two_settings_differ_where_the_larger_network_makes_runs_shorter():
    first, second = (
        make_study(find_artifact("sdfeel-fig2a"), "laptop", dataset)
        for dataset in ("fashion-mnist", "cifar10-surrogate")
    )
    table = differences(first, second).set_index("setting")
    assert list(table.columns) == ["the paper", "fashion-mnist", "cifar10-surrogate"]
    assert set(table.index) == {
        "data", "network", "batch; rate", "local steps of the slowest device", "upload; server to server",
        "Sync.: local steps, exchanges", "horizon", "measured",
    }  # fmt: skip
    here = table["cifar10-surrogate"]
    assert here["local steps of the slowest device"] == "3"
    assert here["batch; rate"] == "10; 0.001/0.03 = 0.0333333, constant"
    assert here["measured"] == "30 times; on 2,000 training images and 2,000 test images"
    assert here["data"] == "cifar10-surrogate (surrogate)"
    assert differences(first, first).empty
