"""Ctrl-C, SIGTERM, SIGHUP and ``kill -9``, with real processes: a line within seconds, and nobody left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from fl_core.bookbuild.chapters import ROOT
from fl_core.processes import usable_cores

LONG = [
    *("--algorithm", "fedasync", "--set", "training.steps=1000000", "--set", "concurrency=2"),
    *("--set", "world.devices=4", "--set", "partition.samples_per_device=200"),
]
SECONDS = 3.0 * max(1.0, os.getloadavg()[0] / usable_cores())
"""Within which a command must have ended; longer where others use the machine."""
COMMANDS: dict[str, tuple[list[str], Callable[[psutil.Process], bool]]] = {
    "run": (["run", *LONG, "--threads", "2"], lambda process: cpu([process]) > 5),
    "run-sequential": (["run", *LONG, "--executor", "sequential"], lambda process: cpu([process]) > 5),
    "work": (["work", "fedasync-fig2", "--seeds", "77"], lambda process: cpu([process]) > 8),
    "work-2": (["work", "fedasync-fig2", "--seeds", "77", "-j", "2"], lambda process: busy(process, 2, 5)),
    "regenerate": (["regenerate", "fedasync-fig2", "-P", "laptop", "-p", "seeds=[77]", "-j", "2", "-o", "figures"],
                   lambda process: busy(process, 2, 5)),
    "regenerate-page": (["regenerate", "start_here", "-o", "page.ipynb"], lambda process: busy(process, 1, 2)),
    "book": (["book", "--jobs", "2"], lambda process: busy(process, 2, 3, recursive=True)),
}  # fmt: skip
ENDS = [
    *((name, signal.SIGINT) for name in COMMANDS),
    *(("run", number) for number in (signal.SIGTERM, signal.SIGHUP)),
    *(("regenerate", number) for number in (signal.SIGTERM, signal.SIGKILL)),
    *(("work-2", number) for number in (signal.SIGHUP, signal.SIGKILL)),
    *((name, signal.SIGKILL) for name in ("regenerate-page", "book")),
]


def cpu(processes: list[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def busy(process: psutil.Process, number: int, seconds: float, recursive: bool = False) -> bool:
    """Return whether `number` children have computed for so long."""
    return sum(cpu([child]) > seconds for child in process.children(recursive=recursive)) >= number


def alive(process: psutil.Process) -> bool:
    """Return whether `process` has not ended; one that nobody has asked about since is a zombie."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[[str], psutil.Popen]]:
    begun: list[psutil.Popen] = []

    def start(name: str) -> psutil.Popen:
        words, ready = COMMANDS[name]
        settings = {"FL_CORE_RESULTS": str(tmp_path / "results"), "JUPYTER_RUNTIME_DIR": str(tmp_path / "runtime")}
        process = psutil.Popen(
            [sys.executable, "-m", "fl_core.cli", *words],
            cwd=tmp_path,
            env={**os.environ, **settings, "TMPDIR": str(tmp_path)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            # Whoever starts the tests in the background of a script makes them, and their children, ignore it.
            preexec_fn=lambda: [signal.signal(each, signal.SIG_DFL) for each in (signal.SIGINT, signal.SIGHUP)],
        )
        begun.append(process)
        by = time.monotonic() + 90
        while not ready(process):
            assert process.poll() is None, process.stderr.read()
            assert time.monotonic() < by
            time.sleep(0.1)
        return process

    yield start
    for process in begun:
        if process.poll() is None:
            for each in [*process.children(recursive=True), process]:
                each.kill()
        process.wait()


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "number"), ENDS, ids=[f"{name}-{number.name}" for name, number in ENDS])
def test_a_command_ends_soon_with_one_line_and_leaves_nobody_behind(started, tmp_path: Path, name: str, number: int):
    process = started(name)
    children = process.children(recursive=True)
    process.send_signal(number)
    began = time.monotonic()
    process.wait(timeout=30)
    taken = time.monotonic() - began
    while (left := list(filter(alive, children))) and time.monotonic() < began + SECONDS:
        time.sleep(0.05)
    assert not left
    assert taken < SECONDS
    if number == signal.SIGKILL:
        return
    assert process.returncode == 130
    lines = [line for line in process.stderr.read().splitlines() if line.strip() and not line.startswith("runs:")]
    assert len(lines) == 1, lines
    assert lines[0].startswith("fl-core: interrupted; ")
    assert not list((ROOT / "_build").glob(".smoke-*"))
    assert [path.name for path in tmp_path.iterdir() if path.name not in ("results", "runtime")] == []
    assert not list((tmp_path / "runtime").glob("*"))


def test_a_long_local_job_is_not_waited_for_and_nothing_is_written(started, tmp_path: Path):
    """The short form of the above, for every change."""
    process = started("run")
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    assert process.wait(timeout=30) == 130
    assert time.monotonic() - began < SECONDS
    assert process.stderr.read().strip() == "fl-core: interrupted; nothing was written"
    assert not (tmp_path / "results").exists()


@pytest.mark.thorough
def test_what_a_killed_build_has_left_is_cleared_away(started):
    """`kill -9` cannot clear up; the next build does."""
    process = started("book")
    process.kill()
    process.wait()
    left = set((ROOT / "_build").glob(".smoke-*"))
    assert left
    process = started("book")
    assert not left & set((ROOT / "_build").glob(".smoke-*"))
    process.send_signal(signal.SIGINT)
    process.wait()
    assert not list((ROOT / "_build").glob(".smoke-*"))


WRAPS = """
import atexit, os, signal, sys
from fl_core.cli import app, main

@app.command()
def stop():
    try:
        os.kill(os.getpid(), signal.{name})
    except KeyboardInterrupt:
        raise ValueError("as pydantic makes it of an interruption, while it builds a class")

atexit.register(os.kill, os.getpid(), signal.{name})
sys.argv = ["fl-core", "stop"]
main()
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_an_interruption_is_one_line_whatever_a_library_makes_of_it_and_however_often_it_comes(name: str):
    done = subprocess.run(
        [sys.executable, "-c", WRAPS.format(name=name)],
        capture_output=True, text=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (130, "\nfl-core: interrupted; nothing was changed\n")


def test_what_nohup_wants_ignored_is_ignored_by_workers_too():
    """It ended them, and fl-core work, when their terminal was closed."""
    code = (
        "import os; from fl_core.cli import app, main; from fl_core.processes import apart\n"
        "app.command('x')(lambda: print(apart(1, os.system, ['kill -1 $PPID']))); main()"
    )
    words = [sys.executable, "-c", code, "x"]
    usual = {"preexec_fn": lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL)}  # of a shell
    assert subprocess.check_output(words, text=True, **usual) == "[None]\n"
    assert subprocess.check_output(["nohup", *words], text=True, stderr=subprocess.DEVNULL) == "[0]\n"
