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
from functools import cache
from pathlib import Path

from filelock import FileLock, Timeout

from fl_core.errors import FlCoreError
from fl_core.experiments.artifacts import Artifact, make_study
from fl_core.experiments.evidence import LOOKS
from fl_core.experiments.grid import brief, in_words, work
from fl_core.experiments.ledger import judged
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
    chosen: Sequence[Artifact], profile: str, dataset: str, seeds: Sequence[int] | None, store: Store, *,
    undecided: bool = False,
) -> list[RunSpec]:  # fmt: skip
    """Return the missing runs of artifacts, those first that decide most claims per image trained on.

    A claim that is open needs the runs of its artifacts up to the planned look that is expected to decide it; each of
    them is worth one claim over the work of all. With `undecided` these are all that is returned, else also what is
    missing of the `seeds` (by default the profile's) and decides nothing. Lower seeds go first.
    """
    specs: dict[str, RunSpec] = {}

    @cache
    def missing(artifact: str, wanted: tuple[int, ...] | None) -> list[str]:
        study = load_study(make_study(carriers[artifact], profile, dataset, wanted), store)
        found = {entry.key: entry.spec for entry in study.entries if entry.key not in study.results}
        specs.update(found)
        return list(found)

    carriers = {artifact.id: artifact for artifact in chosen}
    given = None if seeds is None else tuple(seeds)
    if not undecided:
        for name in carriers:
            missing(name, given)
    worth = dict.fromkeys(specs, 0.0)
    names = sorted({claim for artifact in chosen for claim in artifact.claims})
    for found in judged(names, store=store, dataset=dataset) if names else []:
        look = found.seeds_needed or (0 if found.seeds else min(LOOKS))
        if not found.open or not look:
            continue
        wanted = given or (tuple(range(look)) if undecided else None)
        runs = {key for name in found.artifacts if name in carriers for key in missing(name, wanted)}
        cost = sum(work(specs[key]) for key in runs)
        for key in runs:
            worth[key] = worth.get(key, 0.0) + 1 / cost
    return sorted((specs[key] for key in worth), key=lambda spec: (-worth[spec.hash], spec.seed, spec.hash))


def take(
    specs: Iterable[RunSpec], store: Store, *, minutes: float | None = None, published: bool = False,
    every_seconds: float = 60.0, echo: Callable[[str], object] = print,
) -> Tally:  # fmt: skip
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
