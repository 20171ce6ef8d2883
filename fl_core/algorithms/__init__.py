"""Floor 2: one file per algorithm."""

from __future__ import annotations

from fl_core.algorithms.base import ALGORITHMS, Algorithm, make_algorithm, register
from fl_core.algorithms.fedasync import FedAsync
from fl_core.algorithms.fedavg import FedAvg
from fl_core.algorithms.fedavg_topk import FedAvgTopK
from fl_core.algorithms.fedbuff import FedBuff
from fl_core.algorithms.fedluck import FedLuck
from fl_core.algorithms.fedper import FedPer, PeriodicAggregation
from fl_core.algorithms.gsgm import GSGM
from fl_core.algorithms.kasync import SASGD, TWAFL, KAsync, KAsynchronous
from fl_core.algorithms.sgd import SGD
from fl_core.algorithms.wkafl import WKAFL
from fl_core.algorithms.zenopp import ZenoPP

__all__ = [
    "ALGORITHMS", "GSGM", "SASGD", "SGD", "TWAFL", "WKAFL", "Algorithm", "FedAsync", "FedAvg", "FedAvgTopK",
    "FedBuff", "FedLuck", "FedPer", "KAsync", "KAsynchronous", "PeriodicAggregation", "ZenoPP", "make_algorithm",
    "register",
]  # fmt: skip
