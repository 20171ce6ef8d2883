"""SD-FEEL's runs are shrunk without changing the order of events; what they are is in tests/frozen."""

from __future__ import annotations

import pytest

from fl_core.experiments.artifacts import find_artifact, make_study
from fl_core.experiments.grid import work
from fl_papers.sdfeel.experiment import PRINTED, SDFeel, differences, parameters_of
from fl_papers.sdfeel.theory import run_clock

pytestmark = pytest.mark.usefixtures("few_images")

figure2 = SDFeel.made(SDFeel.figure2)


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


@pytest.mark.parametrize(("alpha", "fewer"), [(0.5, 0.1), (0.1, 0.02)])
def test_fewer_classes_are_fewer_than_those_of_the_curves(alpha, fewer):
    """They had a concentration of 0.1 whatever ALPHA was: with 0.1 the same runs stood on both sides of C17."""
    grid = SDFeel.made(SDFeel.non_iid)("smoke", "fashion-mnist", alpha=alpha)
    assert {entry.labels["role"]: entry.spec.partition.alpha for entry in grid} == {"curve": alpha, "non-IID": fewer}


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
