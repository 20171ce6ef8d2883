"""Floor 2: one file per algorithm."""

from __future__ import annotations

from fl_core.algorithms.async_sdfeel import AsyncSDFeel
from fl_core.algorithms.base import ALGORITHMS, Algorithm, make_algorithm, register
from fl_core.algorithms.fedasync import FedAsync
from fl_core.algorithms.fedavg import FedAvg
from fl_core.algorithms.fedavg_topk import FedAvgTopK
from fl_core.algorithms.fedbuff import FedBuff
from fl_core.algorithms.fedluck import FedLuck
from fl_core.algorithms.fedper import FedPer, PeriodicAggregation
from fl_core.algorithms.hierarchical_fedavg import HierarchicalFedAvg
from fl_core.algorithms.sgd import SGD
from fl_core.algorithms.sync_sdfeel import SyncSDFeel

__all__ = [
    "ALGORITHMS", "SGD", "Algorithm", "AsyncSDFeel", "FedAsync", "FedAvg", "FedAvgTopK", "FedBuff", "FedLuck",
    "FedPer", "HierarchicalFedAvg", "PeriodicAggregation", "SyncSDFeel", "make_algorithm", "register",
]  # fmt: skip
