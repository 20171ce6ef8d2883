"""Floor 1: the virtual clock, server and device handles, executors, history, checkpoints."""

from __future__ import annotations

from fl_core.runtime.checkpoint import Checkpoints
from fl_core.runtime.device import DeviceHandle
from fl_core.runtime.executors import EXECUTORS, make_executor
from fl_core.runtime.history import History
from fl_core.runtime.kernel import Kernel, Kind, Process
from fl_core.runtime.local import Gradient, Peek, Trained
from fl_core.runtime.messages import Budget, Cluster, Evaluation, LocalTraining, Snapshot, Upload, Warmup
from fl_core.runtime.server import ServerHandle
from fl_core.runtime.simulation import Simulation

__all__ = [
    "EXECUTORS", "Budget", "Checkpoints", "Cluster", "DeviceHandle", "Evaluation", "Gradient", "History", "Kernel",
    "Kind", "LocalTraining", "Peek", "Process", "ServerHandle", "Simulation", "Snapshot", "Trained", "Upload",
    "Warmup", "make_executor",
]  # fmt: skip
