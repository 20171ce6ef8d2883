"""Kill runs without warning at random moments, resume them, and compare how they end with runs that were left alone.

``python -m fl_core.benchmarks.endurance`` does it for every registered algorithm. Most of the processes are forks of
one that has imported everything, so that a kill costs no new start; some are calls of ``fl-core run`` from start to
end, where a kill may also hit the imports, the loading of the data or the writing of the result. The state is stored
at every event, so that many kills hit the middle of a write.

``--out data/benchmarks/endurance.json`` keeps the verdicts, with commit and machine; :func:`verdict_frame` reads it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from fl_core.algorithms import ALGORITHMS
from fl_core.benchmarks.harness import FORMAT, machine, read_report
from fl_core.errors import DataError, RunError
from fl_core.experiments.run import commit, run
from fl_core.experiments.spec import RunSpec
from fl_core.experiments.store import ENVIRONMENT, Store, read
from fl_core.runtime.checkpoint import CURRENT

KILLS, COMMANDS = 50, 3
"""Kills of each algorithm, and how many of them hit the command line."""

WORLD = {
    "devices": 12,
    "jitter": 0.3,
    "network": {"latency_seconds": 0.2},
    "faults": [
        {"kind": "crash", "down_seconds": 2},
        {"kind": "lost"},
        {"kind": "duplicated"},
        {"kind": "unavailable"},
        {"kind": "server_restart", "at_seconds": [6, 14], "down_seconds": 1},
    ],
}


@dataclass
class Verdict:
    """What became of the runs of one algorithm; each run was resumed until it ended."""

    algorithm: str
    kills: int = 0  # processes that were killed
    runs: int = 0
    writing: int = 0  # kills that left a checkpoint half written
    commands: int = 0  # kills of ``fl-core run``; the others hit forks
    identical: int = 0  # runs whose history and model were, bit for bit, those of a run that was left alone
    seconds: float = 0.0  # wall time


def specification(algorithm: str) -> RunSpec:
    """Return a short run of `algorithm` in a world in which much goes wrong."""
    return RunSpec(
        algorithm=algorithm,
        model="linear",
        world=WORLD,
        partition={"kind": "iid", "samples_per_device": 50},
        training={"epochs": 3, "batch_size": 50},
        budget={"updates": 12},
        evaluation={"every_updates": 4},
    )


def endure(algorithm: str, kills: int = KILLS, commands: int = COMMANDS, seed: int = 0) -> Verdict:
    """Kill runs of `algorithm` so often, `commands` times through the command line, and compare how they end.

    The calling process computes with one thread from then on: a pool of threads does not survive a fork.
    """
    torch.set_num_threads(1)
    commit()  # of the code that runs, not of what the checkout holds when it has finished
    spec, rng, verdict = specification(algorithm), random.Random(f"{algorithm} {seed}"), Verdict(algorithm)
    started = time.perf_counter()
    spec.task()  # the data is loaded once, before the forks
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        _wait(_forked(spec, folder / "alone", stored=False), None)
        expected = _ending(spec, folder / "alone")
        for start, limit in ((_forked, kills - commands), (_called, commands)):
            life = _wait(start(spec, folder / start.__name__), None) if limit else 0.0
            limit += verdict.kills
            while verdict.kills < limit:
                place = folder / str(verdict.runs)
                verdict.runs += 1
                _until_the_end(start, spec, place, verdict, partial(rng.uniform, 0, life), limit)
                verdict.identical += _ending(spec, place) == expected
    verdict.commands, verdict.seconds = commands, round(time.perf_counter() - started, 1)
    return verdict


def _until_the_end(
    start: Callable[[RunSpec, Path], int],
    spec: RunSpec,
    place: Path,
    verdict: Verdict,
    moment: Callable[[], float],
    limit: int,
) -> None:
    """Start a process again and again, killed at a new moment of its life each time, until the run has ended."""
    torn = set()
    while not _result(spec, place).exists():
        if _wait(start(spec, place), moment() if verdict.kills < limit else None) < 0:
            verdict.kills += 1
            torn |= {path.stat().st_mtime_ns for path in place.rglob(f"{CURRENT}.new")}
    verdict.writing += len(torn)


def _wait(process: int, moment: float | None) -> float:
    """Let `process` live for `moment` seconds, or until it ends; return how long it lived, or -1 if it was killed."""
    started = time.monotonic()
    while True:
        found, status = os.waitpid(process, os.WNOHANG)
        age = time.monotonic() - started
        if found:
            if status:
                raise RunError(f"a process ended with status {os.waitstatus_to_exitcode(status)}; it was not killed")
            return age
        if moment is not None and age >= moment:
            os.kill(process, signal.SIGKILL)
            _, status = os.waitpid(process, 0)
            return -1.0 if os.WIFSIGNALED(status) else age
        time.sleep(0.001)


def _forked(spec: RunSpec, place: Path, stored: bool = True) -> int:
    """Start a copy of this process that runs `spec`, resuming what it finds in `place`; return its number."""
    process = os.fork()
    if not process:
        try:
            store = Store(place, place)
            checkpoints = store.checkpoints(spec, every_seconds=0.0) if stored else None
            store.save(run(spec, executor="threads", threads=2, checkpoints=checkpoints))
            os._exit(0)
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(1)
    return process


def _called(spec: RunSpec, place: Path) -> int:
    """Start ``fl-core run`` in the same way."""
    place.mkdir(exist_ok=True)
    (place / "spec.json").write_text(spec.to_json())
    options = ["--checkpoint-every", "0s", "--resume", "--out", str(place / "out.json"), "--force"]
    command = [sys.executable, "-m", "fl_core.cli", "run", str(place / "spec.json"), *options]
    silent = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    return os.posix_spawn(sys.executable, command, {**os.environ, ENVIRONMENT: str(place)}, file_actions=silent)


def _result(spec: RunSpec, place: Path) -> Path:
    return Store(place, place).cache / f"{spec.hash}.json.gz"


def _ending(spec: RunSpec, place: Path) -> tuple[dict[str, Any], str]:
    """Return the history of a finished run, and the SHA-256 of its last model."""
    result = read(_result(spec, place))
    return result.history.to_dict(), result.provenance["model_sha256"]


def record(verdicts: list[Verdict], path: Path) -> None:
    """Write `verdicts` to `path`, as a report of :mod:`fl_core.benchmarks.harness` that has no measurements."""
    head = {"format": FORMAT, "date": datetime.now(UTC).isoformat(timespec="seconds"), "commit": commit()}
    report = {**head, "machine": machine(), "parts": {}, "verdicts": [vars(verdict) for verdict in verdicts]}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def verdict_frame(path: Path) -> pd.DataFrame:
    """Return the verdicts that :func:`record` wrote: one row for each algorithm, columns as in :class:`Verdict`."""
    verdicts = read_report(path).get("verdicts")
    if not verdicts:
        raise DataError(f"{path} holds no verdicts")
    return pd.DataFrame(verdicts).set_index("algorithm")


def main(words: Iterable[str] | None = None) -> int:
    """Print one line of JSON for each algorithm; the exit code is 1 if a run did not end as it should."""
    parser = argparse.ArgumentParser(prog="python -m fl_core.benchmarks.endurance", description=__doc__)
    parser.add_argument("--kills", type=int, default=KILLS, help="of each algorithm")
    parser.add_argument("--commands", type=int, default=COMMANDS, help="how many of these hit fl-core run")
    parser.add_argument("--algorithm", action="append", choices=sorted(ALGORITHMS), help="repeatable; all by default")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--out", type=Path, help="keep the verdicts in this file")
    chosen = parser.parse_args(None if words is None else list(words))
    verdicts = []
    for algorithm in chosen.algorithm or sorted(ALGORITHMS):
        verdicts.append(endure(algorithm, chosen.kills, min(chosen.commands, chosen.kills), chosen.seed))
        print(json.dumps(vars(verdicts[-1])), flush=True)
        if chosen.out is not None:
            record(verdicts, chosen.out)
    return 0 if all(verdict.identical == verdict.runs for verdict in verdicts) else 1


if __name__ == "__main__":
    raise SystemExit(main())
