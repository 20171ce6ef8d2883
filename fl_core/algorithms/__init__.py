"""Floor 2: one file per algorithm."""

from __future__ import annotations

from fl_core.algorithms.base import ALGORITHMS, Algorithm, make_algorithm, register
from fl_core.algorithms.fedasmu import FedASMU
from fl_core.algorithms.fedasmu_variants import FedASMU0, FedASMUDA, FedASMUFA, FedASMUH1, FedASMUH2, FedASMUH3
from fl_core.algorithms.fedasync import FedAsync
from fl_core.algorithms.fedavg import FedAvg
from fl_core.algorithms.fedavg_topk import FedAvgTopK
from fl_core.algorithms.fedbuff import FedBuff
from fl_core.algorithms.fedluck import FedLuck
from fl_core.algorithms.fedper import FedPer, PeriodicAggregation
from fl_core.algorithms.sgd import SGD

__all__ = [
    "ALGORITHMS", "SGD", "Algorithm", "FedASMU", "FedASMU0", "FedASMUDA", "FedASMUFA", "FedASMUH1", "FedASMUH2",
    "FedASMUH3", "FedAsync", "FedAvg", "FedAvgTopK", "FedBuff", "FedLuck", "FedPer", "PeriodicAggregation",
    "make_algorithm", "register",
]  # fmt: skip
