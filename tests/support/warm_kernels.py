"""Kernels for nbval that are forked from a process which has imported already what the chapters import.

A kernel that begins with nothing, as those that `make book` starts, imports for seconds, 27 times.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Sequence
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

IMPORTED = ["IPython", "ipykernel.kernelapp", "matplotlib.pyplot", "sympy", "fl_core.report.replication"]
INLINE = "module://matplotlib_inline.backend_inline"
"""What a kernel makes the backend of matplotlib before that is imported."""
TESTS = str(Path(__file__).resolve().parents[1])

forked = multiprocessing.get_context("forkserver")


def become(command: Sequence[str], folder: str, environment: dict[str, str], ready: Any) -> None:
    """Make this process the kernel that `command` would start."""
    os.setsid()
    ready.send(True)
    os.close(forkserver._forkserver._forkserver_alive_fd)  # held by pytest alone: whatever ends that, ends the kernel
    multiprocessing.current_process()._config["daemon"] = False  # it may have children
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    os.environ.clear()
    os.environ.update(environment, JPY_PARENT_PID=str(os.getppid()))
    os.chdir(folder)
    sys.path[:] = [place for place in sys.path if not place.startswith(TESTS)]
    sys.argv = ["ipykernel_launcher", *command[command.index("ipykernel_launcher") + 1 :]]
    from ipykernel.kernelapp import launch_new_instance

    launch_new_instance()


class Forked:
    """What the manager of a kernel asks a ``subprocess.Popen``."""

    stdin = stdout = stderr = None

    def __init__(self, command: Sequence[str], **settings: Any) -> None:
        ready, told = forked.Pipe(duplex=False)
        given = (list(command), str(settings["cwd"]), dict(settings["env"]), told)
        self.process = forked.Process(target=become, args=given, daemon=True)
        self.process.start()
        told.close()
        assert ready.recv()  # it has a session of its own: whoever ends its group ends nobody else
        self.pid = self.process.pid
        self.terminate, self.kill = self.process.terminate, self.process.kill

    def poll(self) -> int | None:
        return self.process.exitcode

    def wait(self, timeout: float | None = None) -> int | None:
        self.process.join(timeout)
        return self.poll()

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


def install() -> None:
    """Have nbval start such kernels."""
    import nbval.kernel
    import pytest
    from jupyter_client.provisioning import local_provisioner

    plain = nbval.kernel.start_new_kernel

    def start_new_kernel(*args: Any, **settings: Any) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(local_provisioner, "launch_kernel", Forked)
            patch.setenv("MPLBACKEND", INLINE)
            forked.set_forkserver_preload(IMPORTED)
            return plain(*args, **settings)

    nbval.kernel.start_new_kernel = start_new_kernel
