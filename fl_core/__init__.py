"""Heterogeneity-aware asynchronous federated learning: runtime, algorithms, experiments.

The names below are loaded when they are first used, so that ``import fl_core`` and the command line stay quick.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "Algorithm": "fl_core.algorithms",
    "check_algorithm": "fl_core.experiments.conformance",
    "compare": "fl_core.experiments.sweep",
    "RunSpec": "fl_core.experiments.spec",
    "register": "fl_core.algorithms",
    "register_dataset": "fl_core.datasets",
    "register_model": "fl_core.models",
    "run": "fl_core.experiments.run",
    "sweep": "fl_core.experiments.sweep",
}

__all__ = [
    "Algorithm",
    "RunSpec",
    "check_algorithm",
    "compare",
    "register",
    "register_dataset",
    "register_model",
    "run",
    "sweep",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'fl_core' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
