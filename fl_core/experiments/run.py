"""Execute one specification and keep what it takes to trust the result."""

from __future__ import annotations

import platform
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, partial
from importlib import metadata
from pathlib import Path
from typing import Any

from fl_core.datasets import all_surrogates, differs, load_dataset
from fl_core.experiments.identity import circumstances
from fl_core.experiments.spec import RunSpec
from fl_core.runtime import Checkpoints, History
from fl_core.runtime.executors import usable_cores


@dataclass
class Result:
    """A finished run."""

    spec: RunSpec
    """With the name of the data set that was really used."""
    history: History
    provenance: dict[str, Any]
    """Commit, versions, machine, date, wall seconds, executor, and whether the data is real or surrogate."""


def run(
    spec: RunSpec,
    *,
    executor: str = "threads",
    threads: int | None = None,
    trace: bool = False,
    progress: Callable[[float], None] | None = None,
    checkpoints: Checkpoints | None = None,
) -> Result:
    """Run `spec` and return its history with provenance, as :meth:`fl_core.runtime.Simulation.run` does it.

    `trace` records what every device does when.
    """
    spec = spec.resolved()
    code = {"commit": commit(), **circumstances(spec, executor)}  # that runs, not that is there when it has finished
    simulation = spec.simulation(trace)
    started = time.perf_counter()
    history = simulation.run(executor, threads, progress, checkpoints)
    seconds = simulation.wall_before + time.perf_counter() - started
    data = load_dataset(spec.dataset)
    provenance = {
        **({"resumed": True} if simulation.wall_before > 0 else {}),
        **code,
        "versions": {name: metadata.version(name) for name in ("fl-core", "torch", "numpy")},
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {usable_cores()} cores",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "wall_seconds": round(seconds, 2),  # all parts of a resumed one
        "executor": executor,
        "data": data.kind,
        **({"data_differs": differs(data.name)} if differs(data.name) else {}),
        **({"data_sha256": data.sha256} if data.sha256 else {}),
        **({"data_version": all_surrogates()[data.name].version} if data.kind == "surrogate" else {}),
    }
    return Result(spec, history, provenance)


@cache
def commit() -> str:
    """Return the short commit of the source, with ``-dirty`` for uncommitted changes, or ``"unknown"``.

    Results that wait to be committed are no change of the source.
    """
    git = partial(subprocess.run, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=10)
    try:
        named = git(["git", "describe", "--always", "--abbrev=12"], check=True).stdout.strip()
        changed = git(["git", "diff", "--quiet", "HEAD", "--", ":/", ":(top,exclude)data/results"]).returncode
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return f"{named}-dirty" if changed else named
