"""The runs behind SD-FEEL's figures are laid out as the paper's, and shrunk without changing the order of events."""

from __future__ import annotations

from itertools import islice

import pytest

from fl_core.errors import SpecError
from fl_core.experiments.grid import work
from fl_papers.sdfeel.extra_formulas import cluster_event_clock
from fl_papers.sdfeel.grid import GRIDS, ROUND_SECONDS, figure2, long_runs, non_iid, parameters_of


def clock(entry, count):
    """The order of the clusters' events in a run."""
    spec = entry.spec
    devices = spec.world.realise(spec.seed)
    size = 4 * parameters_of(spec.model, spec.dataset)
    periods = []
    for server in range(6):
        members = devices.members(server)
        deadline = spec.algorithm.min_batches * devices.seconds[list(members)].max()
        periods.append(deadline + devices.profile(members[0], None).up_seconds(size) + devices.backhaul_seconds)
    return list(islice(cluster_event_clock(periods), count))


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
            pairs = zip(clock(whole, 200), clock(small, 200), strict=True)
            assert all(one._replace(seconds=0) == other._replace(seconds=0) for one, other in pairs)
            product = small.spec.training.lr * small.spec.algorithm.min_batches
            assert product == pytest.approx(0.001 * 100)


def test_one_figure_has_one_horizon_and_as_many_points_for_all_curves():
    for name in ("figure2", "reference", "variants", "non_iid"):
        specs = [entry.spec for entry in GRIDS[name]("laptop", "fashion-mnist")]
        [(horizon, every)] = {(spec.budget.seconds, spec.evaluation.every_seconds) for spec in specs}
        assert (horizon, horizon / every) == pytest.approx((5 * ROUND_SECONDS[10], 30))
        assert {spec.seed for spec in specs} == {0, 1, 2}
    slow = long_runs("laptop", "fashion-mnist", seeds=[0])
    assert slow[0].spec.budget.seconds == pytest.approx(30 * ROUND_SECONDS[30])
    assert {entry.labels["alpha"] for entry in non_iid("laptop", "fashion-mnist")} == {0.1}


def test_the_larger_network_is_measured_on_fewer_images_at_laptop_only():
    def measured(profile, dataset):
        found = figure2(profile, dataset)[0].spec.evaluation
        return found.train_samples, found.test_samples

    assert measured("laptop", "cifar10-surrogate") == (2_000, 2_000)
    assert measured("laptop", "fashion-mnist") == (5_000, 0)
    assert measured("paper", "cifar10") == (10_000, 0)


def test_no_run_occurs_twice():
    entries = [entry for make in GRIDS.values() for entry in make("laptop", "fashion-mnist")]
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


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: figure2("smoke", "emnist"), "unknown data set of this experiment 'emnist'"),
        (lambda: figure2("smoke", "fashion-mnist", gap=5), "unknown override 'gap'; did you mean 'gaps'"),
        (lambda: figure2("smoke", "fashion-mnist", gaps=(0.5,)), "gaps"),
    ],
)
def test_what_is_not_valid_is_refused(call, says):
    with pytest.raises(SpecError, match=says):
        call()
