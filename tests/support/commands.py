"""The command line, called in this process."""

from __future__ import annotations

from functools import cache

from typer import testing
from typer.testing import CliRunner, Result

from fl_core.cli import app

testing._get_command = cache(testing._get_command)
"""Typer makes all commands anew for each call, which takes longer than many of them."""

TINY = [
    *("--algorithm", "fedasync", "--set", "model=linear", "--set", "world.devices=5", "--set", "concurrency=2"),
    *("--set", "partition.samples_per_device=50", "--set", "budget.updates=5"),
]


def invoke(*words: str) -> Result:
    """Return how a command ends and what it prints."""
    return CliRunner().invoke(app, list(words))


def call(*words: str, code: int = 0) -> str:
    """Return what a command prints."""
    done = invoke(*words)
    assert done.exit_code == code, f"{done.output}\n{done.exception!r}"
    return done.stdout


def refused(*words: str) -> str:
    """Return the one line with which a command says no."""
    done = invoke(*words)
    assert (done.exit_code, done.stdout) == (2, ""), f"{done.output[-300:]}\n{done.exception!r}"
    [line] = [line for line in done.stderr.splitlines() if not line.startswith("fl-core: warning: ")]
    assert line.startswith("fl-core: error: ")
    return line.removeprefix("fl-core: error: ")
