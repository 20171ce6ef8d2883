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
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from fl_core.algorithms import ALGORITHMS
from fl_core.benchmarks.harness import new_report, read_report
from fl_core.errors import DataError, RunError
from fl_core.experiments.run import commit, run
from fl_core.experiments.spec import RunSpec
from fl_core.experiments.store import ENVIRONMENT, SUFFIX, Store, read
from fl_core.runtime.checkpoint import CURRENT

KILLS, COMMANDS = 50, 3
"""Kills of each algorithm, and how many of them hit the command line."""

SPEC = {
    "model": "linear",
    "world": {
        "devices": 12,
        "jitter": 0.3,
        "network": {"latency_seconds": 0.2},
        "faults": [
            {"kind": "crash", "down_seconds": 2},
            *({"kind": kind} for kind in ("lost", "duplicated", "unavailable")),
            {"kind": "server_restart", "at_seconds": [6, 14], "down_seconds": 1},
        ],
    },
    "partition": {"kind": "iid", "samples_per_device": 50},
    "training": {"epochs": 3, "batch_size": 50},
    "budget": {"updates": 12},
    "evaluation": {"every_updates": 4},
}
"""A short run in a world in which much goes wrong."""


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


def endure(algorithm: str, kills: int = KILLS, commands: int = COMMANDS, seed: int = 0) -> Verdict:
    """Kill runs of `algorithm` so often, `commands` times through the command line, and compare how they end.

    The calling process computes with one thread from then on: a pool of threads does not survive a fork.
    """
    torch.set_num_threads(1)
    commit()  # of the code that runs, not of what the checkout holds when it has finished
    verdict, rng = Verdict(algorithm), random.Random(f"{algorithm} {seed}")
    spec, started = RunSpec(algorithm=algorithm, **SPEC), time.perf_counter()
    spec.task()  # the data is loaded once, before the forks
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        _live(_alone, spec, folder / "alone")
        expected = _ending(spec, folder / "alone")
        for work, limit in ((_resumed, kills - commands), (_called, commands)):
            life = _live(work, spec, folder / work.__name__) if limit else 0.0
            limit += verdict.kills
            while verdict.kills < limit:
                place, torn = folder / str(verdict.runs), set()
                verdict.runs += 1
                while not _result(spec, place).exists():
                    moment = rng.uniform(0, life) if verdict.kills < limit else None
                    if _live(work, spec, place, moment) < 0:
                        verdict.kills += 1
                        torn |= {path.stat().st_mtime_ns for path in place.rglob(f"{CURRENT}.new")}
                verdict.writing += len(torn)
                verdict.identical += _ending(spec, place) == expected
    verdict.commands, verdict.seconds = commands, round(time.perf_counter() - started, 1)
    return verdict


def _live(work: Callable[[RunSpec, Path], None], spec: RunSpec, place: Path, moment: float | None = None) -> float:
    """Do the work in a fork of this process, for `moment` seconds or until it ends.

    Returns how long it lived, or -1 if it was killed.
    """
    process = multiprocessing.get_context("fork").Process(target=work, args=(spec, place))
    started = time.monotonic()
    process.start()
    # Not join(moment): what has become another program counts as ended there, and is waited for without end.
    while process.exitcode is None and (moment is None or time.monotonic() < started + moment):
        time.sleep(0.001)
    age = time.monotonic() - started
    process.kill()
    process.join()
    if process.exitcode and process.exitcode != -signal.SIGKILL:
        raise RunError(f"a process ended with status {process.exitcode}; it was not killed")
    return -1.0 if process.exitcode else age


def _alone(spec: RunSpec, place: Path) -> None:
    Store(place, place).save(run(spec, executor="threads", threads=2))


def _resumed(spec: RunSpec, place: Path) -> None:
    store = Store(place, place)
    store.save(run(spec, executor="threads", threads=2, checkpoints=store.checkpoints(spec, every_seconds=0.0)))


def _called(spec: RunSpec, place: Path) -> None:
    """Become ``fl-core run``, which does the same."""
    place.mkdir(exist_ok=True)
    (place / "spec.json").write_text(spec.to_json())
    options = ["--checkpoint-every", "0s", "--resume", "--out", str(place / "out.json"), "--force"]
    command = [sys.executable, "-m", "fl_core.cli", "run", str(place / "spec.json"), *options]
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.execve(sys.executable, command, {**os.environ, ENVIRONMENT: str(place)})


def _result(spec: RunSpec, place: Path) -> Path:
    return place / f"{spec.hash}{SUFFIX}"


def _ending(spec: RunSpec, place: Path) -> tuple[dict[str, Any], str]:
    """Return the history of a finished run, and the SHA-256 of its last model."""
    result = read(_result(spec, place))
    return result.history.to_dict(), result.provenance["model_sha256"]


def verdict_frame(path: Path) -> pd.DataFrame:
    """Return the verdicts that ``--out`` keeps: a row for each algorithm, columns as in :class:`Verdict`."""
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
            report = {**new_report(), "verdicts": [vars(verdict) for verdict in verdicts]}
            chosen.out.parent.mkdir(parents=True, exist_ok=True)
            chosen.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 0 if all(verdict.identical == verdict.runs for verdict in verdicts) else 1


if __name__ == "__main__":
    raise SystemExit(main())
