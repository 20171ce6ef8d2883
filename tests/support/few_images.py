"""Data sets cut short: what grids, stores and commands do with a run does not depend on the number of images.

To make 70,000 of them ready takes longer than a short run.
"""

from __future__ import annotations

from functools import cache

import pytest
import torch

from fl_core.datasets import Dataset, load_dataset
from fl_core.experiments import spec


@cache
def first(name: str, strict: bool = False) -> Dataset:
    """Return the first 6,000 training and 1,000 test samples."""
    whole = load_dataset(name, strict)
    train, test = whole.train.take(torch.arange(6000)), whole.test.take(torch.arange(1000))
    return Dataset(**{**vars(whole), "train": train, "test": test})


def cut(patch: pytest.MonkeyPatch) -> None:
    """Give runs of this process no more than that."""
    patch.setattr(spec, "load_dataset", first)
