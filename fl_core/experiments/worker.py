"""The store is the queue: any number of workers, started anywhere, take missing runs until none is left.

A worker holds a lock of the operating system on the run that it computes, so the lock is gone when the worker is,
however it ended; the checkpoint stays, and who takes the run next goes on from it.
"""

from __future__ import annotations

import contextlib
import gc
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from fl_core.errors import FlCoreError
from fl_core.experiments.artifacts import Artifact, make_study
from fl_core.experiments.claims import judge
from fl_core.experiments.grid import brief, in_words, work
from fl_core.experiments.run import run
from fl_core.experiments.spec import RunSpec
from fl_core.experiments.store import Store
from fl_core.experiments.study import load_study

POLL_SECONDS = 5.0
"""Between two looks at runs that other workers hold."""


class TimeIsUp(BaseException):
    """The worker's time is over in the middle of a run; its checkpoint stays."""


@dataclass(frozen=True)
class Tally:
    """What a worker has done: runs finished and failed, runs that are left, and whether its time was up."""

    done: int
    failed: tuple[str, ...]
    left: int
    stopped: bool


def queue(
    chosen: Sequence[Artifact], profile: str, dataset: str, seeds: Sequence[int] | None, store: Store
) -> list[RunSpec]:
    """Return the missing runs of artifacts, those first that serve most undecided claims per image trained on.

    Lower seeds go first, so that seeds become complete one by one.
    """
    serves: dict[str, int] = {}
    specs: dict[str, RunSpec] = {}
    for artifact in chosen:
        study = load_study(make_study(artifact, profile, dataset, seeds), store)
        missing = [entry for entry in study.entries if entry.key not in study.results]
        if not missing:
            continue
        undecided = sum(found.verdict == "inconclusive" for found in judge(artifact.claims, study))
        for entry in missing:
            specs[entry.key] = entry.spec
            serves[entry.key] = serves.get(entry.key, 0) + undecided
    return sorted(specs.values(), key=lambda spec: (spec.seed, -(1 + serves[spec.hash]) / work(spec), spec.hash))


def take(
    specs: Iterable[RunSpec],
    store: Store,
    *,
    minutes: float | None = None,
    published: bool = False,
    every_seconds: float = 60.0,
    echo: Callable[[str], object] = print,
) -> Tally:
    """Compute what is missing of `specs`, one run at a time, while other workers may do the same.

    With `minutes` it stops in time, in the middle of a run if need be. A run that fails is named and not tried again.
    """
    end = None if minutes is None else time.monotonic() + 60 * minutes
    left = {spec.hash: spec for spec in specs}
    size = {key: work(spec) for key, spec in left.items()}
    done, failed, spent, trained = 0, [], 0.0, 0.0

    def stop(used: float) -> None:
        if end is not None and time.monotonic() >= end:
            raise TimeIsUp

    try:
        while left:
            taken = False
            for key, spec in list(left.items()):
                stop(0.0)
                if store.has(spec):
                    del left[key]
                    continue
                lock = FileLock(store.lease(spec), mode=0o644)
                try:
                    lock.acquire(blocking=False)
                except Timeout:
                    continue
                with lock:
                    if store.has(spec):  # finished by somebody else since
                        del left[key]
                        continue
                    taken, started = True, time.monotonic()
                    checkpoints = store.checkpoints(spec, every_seconds=every_seconds)
                    try:
                        result = run(spec, executor="sequential", progress=stop, checkpoints=checkpoints)
                        store.save(result, published=published)
                    except FlCoreError as error:
                        failed.append(f"{brief(spec)}: {error}")
                        echo(f"failed: {failed[-1]}")
                    else:
                        checkpoints.clear()
                        done += 1
                    del left[key]
                    spent, trained = spent + time.monotonic() - started, trained + size[key]
                    rest = sum(size[each] for each in left) * spent / trained
                    echo(f"{brief(spec)}: {in_words(time.monotonic() - started)}; {len(left)} left, {in_words(rest)}")
                gc.collect()  # a simulation and its data refer to each other
            if left and not taken:
                stop(0.0)
                time.sleep(POLL_SECONDS)
    except TimeIsUp:
        return Tally(done, tuple(failed), len(left), True)
    return Tally(done, tuple(failed), len(left), False)


def be_nice() -> None:
    """Let everything else on the machine go first.

    Linux groups processes by session and shares the processor between groups, so the group must be nice, too.
    """
    if hasattr(os, "nice"):
        os.nice(19)
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text("19")
