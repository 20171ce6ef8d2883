"""Clocks, fair repetition, and the circumstances that a timing depends on."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

import psutil
import torch

from fl_core.runtime.executors import usable_cores

K = TypeVar("K")
T = TypeVar("T")
MEBI = 2**20


class Stopwatch:
    """Times in seconds since it was made.

    Attributes
    ----------
    wall, cpu : float
        Wall time, and processor time of all threads of this process; known after :meth:`stop`.
    laps : dict of str to float
        Processor time of the calling thread by what it was spent on.
    """

    def __init__(self) -> None:
        self.wall, self.cpu = -time.perf_counter(), -time.process_time()
        self.laps: dict[str, float] = {}
        self._last = time.thread_time()

    def lap(self, what: str) -> None:
        """Book the time since the last lap on `what`."""
        now = time.thread_time()
        self.laps[what] = self.laps.get(what, 0.0) + now - self._last
        self._last = now

    def stop(self) -> Stopwatch:
        """Take the two times."""
        self.wall += time.perf_counter()
        self.cpu += time.process_time()
        return self


def seconds_of(work: Callable[[], object]) -> float:
    """Return the wall time of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def alternate(sides: dict[K, Callable[[], T]], times: int) -> dict[K, list[T]]:
    """Call all `sides` one right after the other, `times` times, every second time in reverse order.

    What else the machine does, and how warm it is, then meets all sides alike.
    """
    results: dict[K, list[T]] = {name: [] for name in sides}
    for number in range(times):
        for name in reversed(sides) if number % 2 else sides:
            results[name].append(sides[name]())
    return results


@contextmanager
def intraop_threads(count: int) -> Iterator[None]:
    """Let one PyTorch operation use `count` threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def peak_bytes() -> int:
    """Return the largest resident memory that this process has had.

    Linux's ``ru_maxrss`` would not do: a new process inherits it from the one that started it.
    """
    status = Path("/proc/self/status")
    if status.is_file():
        lines = status.read_text(encoding="utf-8").splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    info = psutil.Process().memory_info()
    if sys.platform == "win32":
        return int(info.peak_wset)
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def load_average() -> float | None:
    """Return how many processes wanted a core, averaged over the last minute; None where nobody counts."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def machine() -> dict[str, Any]:
    """Return the hardware and the versions that a timing depends on."""
    accelerator = torch.accelerator.current_accelerator()
    return {
        "processor": _processor(),
        "cores": usable_cores(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "accelerator": None if accelerator is None else _accelerator(accelerator),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": {name: metadata.version(name) for name in ("fl-core", "torch", "numpy")},
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8", errors="replace").splitlines() if info.is_file() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def _accelerator(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
