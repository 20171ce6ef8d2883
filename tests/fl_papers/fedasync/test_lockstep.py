"""The authors' own program, in float64."""

from __future__ import annotations

import pytest

from fl_core.datasets import actual, load_dataset
from fl_core.errors import DataError
from fl_papers.fedasync import lockstep


def test_staleness_weights_and_mixtures_of_six_epochs_are_theirs():
    table = lockstep.mixing()
    assert len(table) == 6
    assert (table["their staleness"] == table["our staleness"]).all()
    assert table["their weight"].to_numpy() == pytest.approx(table["our weight"].to_numpy(), abs=1e-15)
    assert table["distance"].max() <= 1e-12


def test_a_task_of_ten_steps_is_theirs_where_the_original_images_are_at_hand():
    """CIFAR-10 is not part of the project; any other images are refused."""
    if actual("cifar10") == "cifar10":
        distances = lockstep.tasks(load_dataset("cifar10"))
        assert len(distances) == 2
        assert max(distances) <= 1e-5
    with pytest.raises(DataError, match="the recorded tasks are of the data set 'cifar10', not of 'fashion-mnist'"):
        lockstep.tasks(load_dataset("fashion-mnist"))
