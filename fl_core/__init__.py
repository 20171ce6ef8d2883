"""Heterogeneity-aware asynchronous federated learning: runtime, algorithms, experiments.

The names below are loaded when they are first used, so that ``import fl_core`` and the command line stay quick.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"
CHECKOUT = (Path(__file__).resolve().parents[1] / "pyproject.toml").is_file()
"""Whether this is a copy of the repository, with its data folder; else the package was installed by itself."""


def user_folder() -> Path:
    """Return where a package that is installed by itself keeps data and results, by the custom of the platform."""
    home, roaming = Path.home(), os.environ.get("LOCALAPPDATA")
    if sys.platform == "darwin":
        return home / "Library" / "Application Support" / "fl-core"
    if sys.platform == "win32" and roaming:
        return Path(roaming) / "fl-core"
    return Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share") / "fl-core"


if not CHECKOUT:
    os.environ.setdefault("FL_CORE_DATA", str(user_folder()))  # and in every process that is started from here

if TYPE_CHECKING:
    from fl_core.algorithms import Algorithm, register
    from fl_core.datasets import register_dataset, register_preprocessing
    from fl_core.experiments.conformance import check_algorithm
    from fl_core.experiments.run import read_spec, run
    from fl_core.experiments.spec import RunSpec
    from fl_core.experiments.store import load_model, save_model
    from fl_core.experiments.sweep import compare, sweep
    from fl_core.models import register_model

_HOMES = {
    "Algorithm": "algorithms", "RunSpec": "experiments.spec", "check_algorithm": "experiments.conformance",
    "compare": "experiments.sweep", "load_model": "experiments.store", "read_spec": "experiments.run",
    "register": "algorithms", "register_dataset": "datasets", "register_model": "models",
    "register_preprocessing": "datasets", "run": "experiments.run", "save_model": "experiments.store",
    "sweep": "experiments.sweep",
}  # fmt: skip

__all__ = [
    "Algorithm", "RunSpec", "check_algorithm", "compare", "load_model", "read_spec", "register",
    "register_dataset", "register_model", "register_preprocessing", "run", "save_model", "sweep",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'fl_core' has no attribute {name!r}")
    return getattr(importlib.import_module(f"fl_core.{_HOMES[name]}"), name)
