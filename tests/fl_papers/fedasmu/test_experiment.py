"""The runs behind FedASMU's figures and tables are made cheaper without changing the clock; see tests/frozen."""

from __future__ import annotations

import pytest

from fl_core.datasets import data_folder
from fl_core.experiments.store import Store
from fl_core.models import num_parameters
from fl_papers.fedasmu.artifacts import GRIDS
from fl_papers.fedasmu.experiment import COLUMNS, PROFILES
from fl_papers.fedasmu.figures import final_accuracy

FMNIST = "fashion-mnist"


def test_the_columns_have_the_networks_of_the_specification() -> None:
    """O16 and section 6.1, as far as networks and rates can be built from them."""
    for name, column in COLUMNS.items():
        assert num_parameters(column.network, column.shape, column.classes) == column.parameters, name
    assert COLUMNS["lenet-cifar10"].rates == (0.001, 0.001, 0.1, 0.1, 0.001)
    assert [column.target for column in COLUMNS.values()] == [
        0.30, 0.13, 0.40, 0.15, 0.25, 0.12, 0.40, 0.12, 0.45, 0.12, 0.85, 0.70,
    ]  # fmt: skip
    assert {c.lr for c in COLUMNS.values()} == {0.03, 0.028, 0.013, 0.001, 0.005}


@pytest.mark.parametrize("profile", PROFILES)
def test_no_profile_changes_the_clock(profile: str) -> None:
    """Training takes as long, and so does a transfer, whatever the size of the network."""
    for name, column in COLUMNS.items():
        [entry] = [
            e for e in GRIDS["comparison"](profile, FMNIST, [3], columns=(name,)) if e.labels["method"] == "FedASMU"
        ]
        spec = entry.spec
        devices = spec.world.realise(3)
        side = column.small_side if column.small_side and profile != "paper" else column.shape[-1]
        shape = (column.shape[0], side, side) if len(column.shape) == 3 else column.shape
        profile_of = devices.profile(7, None)
        assert profile_of.up_seconds(4 * num_parameters(spec.model, shape, column.classes)) == pytest.approx(1)
        times = [5 * devices.profile(device, None).train_seconds(1, 1) for device in range(100)]
        assert (min(times), max(times)) == pytest.approx((100, 500))


def test_a_smaller_target_is_three_quarters_of_the_way_from_guessing_to_fedavg() -> None:
    published, checked = data_folder() / "results", []
    for name, column in COLUMNS.items():
        dataset = column.dataset if column.dataset == FMNIST else column.dataset + "-surrogate"
        labels = {"method": "FedAvg", "column": name}
        [spec] = [e.spec for e in GRIDS["comparison"]("laptop", dataset, [0]) if labels.items() <= e.labels.items()]
        if not (stored := Store(published, published).get(spec)):
            continue  # a surrogate, whose runs are not published
        checked.append(name)
        reached, chance = final_accuracy(stored), 1 / column.classes
        assert (column.small_target is None) == (column.target <= reached)
        if column.small_target is not None:
            assert abs(column.small_target - (chance + 0.75 * (reached - chance))) <= 0.005
    assert checked


def test_a_slot_that_no_epoch_has_is_left_out_and_labels_may_be_as_uneven_as_one_likes() -> None:
    assert "slot 3" not in {e.labels["method"] for e in GRIDS["heuristics"]("laptop", FMNIST, [0], epochs=3)}
    assert "top_up" in {e.spec.partition.below_minimum for e in GRIDS["others"]("smoke", FMNIST, [0], dirichlet=0.09)}
