"""Floor 0: data sets by name, and how their samples are divided among devices."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from fl_core.datasets import fashion_mnist
from fl_core.datasets.base import Dataset, Split
from fl_core.datasets.partition import IID, Dirichlet, Partition
from fl_core.errors import unknown

__all__ = ["DATASETS", "IID", "Dataset", "Dirichlet", "Partition", "Split", "data_folder", "load_dataset"]

DATASETS: dict[str, Callable[[Path], Dataset]] = {"fashion-mnist": fashion_mnist.load}


def data_folder() -> Path:
    """Return the folder with the embedded data: ``$FL_CORE_DATA``, else ``data/`` beside the package."""
    return Path(os.environ.get("FL_CORE_DATA") or Path(__file__).resolve().parents[2] / "data")


@lru_cache(maxsize=2)
def _load(name: str, folder: Path) -> Dataset:
    return DATASETS[name](folder / name)


def load_dataset(name: str) -> Dataset:
    """Return the data set called `name`, in memory and normalised; loaded once per process.

    Raises
    ------
    SpecError
        If no data set has that name.
    DataError
        If a file is missing or damaged.
    """
    if name not in DATASETS:
        raise unknown("data set", name, DATASETS)
    return _load(name, data_folder())
