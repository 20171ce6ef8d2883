"""Floor 2: one file per algorithm."""

from __future__ import annotations

from fl_core.algorithms.base import ALGORITHMS, Algorithm, make_algorithm, register
from fl_core.algorithms.fedasync import FedAsync
from fl_core.algorithms.fedavg import FedAvg
from fl_core.algorithms.sgd import SGD

__all__ = ["ALGORITHMS", "SGD", "Algorithm", "FedAsync", "FedAvg", "make_algorithm", "register"]
