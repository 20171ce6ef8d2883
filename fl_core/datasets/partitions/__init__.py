"""How the training samples are divided among devices: one file per rule; ``PARTITIONS`` holds all by their kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fl_core.datasets.partitions.base import PartitionBase
from fl_core.datasets.partitions.dirichlet import Dirichlet
from fl_core.datasets.partitions.dirichlet_per_device import DirichletPerDevice
from fl_core.datasets.partitions.iid import IID
from fl_core.datasets.partitions.natural import Natural
from fl_core.datasets.partitions.shards import Shards
from fl_core.datasets.partitions.wkafl import WKAFLPartition
from fl_core.part import kinds, union

PARTITIONS = kinds(__name__, PartitionBase)

if TYPE_CHECKING:
    Partition = PartitionBase
else:
    Partition = union(PARTITIONS)

__all__ = [
    "IID", "PARTITIONS", "Dirichlet", "DirichletPerDevice", "Natural", "Partition", "PartitionBase", "Shards",
    "WKAFLPartition",
]  # fmt: skip
