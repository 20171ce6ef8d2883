"""Floor 2: one file per algorithm; BL-n are the equations of this project's specification of the baselines."""

from __future__ import annotations

from fl_core.algorithms.asofed import ASOFed
from fl_core.algorithms.asyncpart import AsyncPart
from fl_core.algorithms.base import ALGORITHMS, Algorithm, make_algorithm, register
from fl_core.algorithms.fedasmu import FedASMU, FedASMU0, FedASMUDA, FedASMUFA, FedASMUH1, FedASMUH2, FedASMUH3
from fl_core.algorithms.fedasync import FedAsync
from fl_core.algorithms.fedavg import FedAvg, FedAvgTopK
from fl_core.algorithms.fedbuff import FedBuff
from fl_core.algorithms.feddelay import FedDelay
from fl_core.algorithms.feddyn import FedDyn
from fl_core.algorithms.fedluck import FedLuck
from fl_core.algorithms.fedper import FedPer, PeriodicAggregation
from fl_core.algorithms.fedprox import FedProx
from fl_core.algorithms.fedsa import FedSA
from fl_core.algorithms.kasync import GSGM, SASGD, TWAFL, KAsync, KAsynchronous, SoftsyncSASGD
from fl_core.algorithms.moon import MOON
from fl_core.algorithms.port import PORT
from fl_core.algorithms.sdfeel import AsyncSDFeel, HierarchicalFedAvg, SyncSDFeel
from fl_core.algorithms.sgd import SGD
from fl_core.algorithms.syncdrop import SyncDrop
from fl_core.algorithms.wkafl import WKAFL
from fl_core.algorithms.zenopp import ZenoPP

__all__ = [
    "ALGORITHMS", "GSGM", "MOON", "PORT", "SASGD", "SGD", "TWAFL", "WKAFL", "ASOFed", "Algorithm", "AsyncPart",
    "AsyncSDFeel", "FedASMU", "FedASMU0", "FedASMUDA", "FedASMUFA", "FedASMUH1", "FedASMUH2", "FedASMUH3",
    "FedAsync", "FedAvg", "FedAvgTopK", "FedBuff", "FedDelay", "FedDyn", "FedLuck", "FedPer", "FedProx", "FedSA",
    "HierarchicalFedAvg", "KAsync", "KAsynchronous", "PeriodicAggregation", "SoftsyncSASGD", "SyncDrop", "SyncSDFeel",
    "ZenoPP", "make_algorithm", "register",
]  # fmt: skip
