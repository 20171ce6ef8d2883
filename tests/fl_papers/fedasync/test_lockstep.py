"""The authors' own program, in float64."""

from __future__ import annotations

import pytest
import torch

from fl_core.datasets import Dataset, Split, actual, load_dataset
from fl_core.errors import DataError
from fl_papers.fedasync import lockstep


def test_a_task_of_ten_steps_is_theirs_where_the_original_images_are_at_hand():
    """CIFAR-10 is not part of the project; any other images are refused."""
    if actual("cifar10") == "cifar10":
        distances = lockstep.tasks(load_dataset("cifar10"))
        assert len(distances) == 2
        assert max(distances) <= 1e-5
    with pytest.raises(DataError, match="the recorded tasks are of the data set 'cifar10', not of 'fashion-mnist'"):
        lockstep.tasks(load_dataset("fashion-mnist"))


def test_other_images_of_that_name_end_elsewhere_and_in_double_precision(monkeypatch):
    """So the way to the comparison is walked where the original images are not at hand, too."""
    draw = torch.Generator().manual_seed(0)
    images = torch.randint(256, (200, 3, 32, 32), generator=draw, dtype=torch.uint8)
    noise = Split(images, torch.randint(10, (200,), generator=draw))
    kept = lockstep.record()
    monkeypatch.setattr(lockstep, "record", lambda: {**kept, "samples": kept["samples"] % 200})
    distances = lockstep.tasks(Dataset("cifar10", "own", tuple("abcdefghij"), noise, noise))
    assert len(distances) == 2
    assert 0.1 < min(distances) <= max(distances) < 10
    assert torch.get_default_dtype() == torch.float32
