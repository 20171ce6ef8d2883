"""The store is the queue: any number of workers, started anywhere, take missing runs until none is left.

A worker holds a lock of the operating system on the run that it computes, so the lock is gone when the worker is,
however it ended; the checkpoint stays, and who takes the run next goes on from it.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import product
from math import inf
from pathlib import Path

import torch
from filelock import FileLock, Timeout

from fl_core.datasets import all_sources, load_dataset
from fl_core.datasets.registry import is_present
from fl_core.errors import FlCoreError, SpecError, unknown
from fl_core.experiments.artifacts import Artifact, make_study
from fl_core.experiments.claims import FULL, Judgement
from fl_core.experiments.evidence import LOOKS, POWER
from fl_core.experiments.grid import brief, freed, in_words, seconds
from fl_core.experiments.ledger import REDUCED, judged
from fl_core.experiments.run import run
from fl_core.experiments.spec import RunSpec
from fl_core.experiments.store import Store
from fl_core.experiments.study import load_study
from fl_core.runtime.executors import Together

EXECUTORS = {"cpu": "sequential", "cuda": "batched"}
"""What computes a run on a device: exactly on one core, or up to rounding, all training devices of a run at once."""
HEAVY_SECONDS = 2 * 3600.0
"""On one core: a run that takes longer waits for an accelerator."""
POLL_SECONDS = 5.0
"""Between two looks at runs that other workers hold."""
TOGETHER = {"cpu": 1, "cuda": 12}
"""Runs at a time that a worker has: what a processor computes it computes as fast alone."""


class TimeIsUp(BaseException):
    """The worker's time is over in the middle of a run; its checkpoint stays."""


@dataclass(frozen=True)
class Tally:
    """What a worker has done: runs finished and failed, runs that are left, and whether its time was up."""

    done: int
    failed: tuple[str, ...]
    left: int
    stopped: bool


@dataclass(frozen=True)
class Rest:
    """What an open claim still needs: what its figures lack up to the look that is worth its runs."""

    judgement: Judgement
    look: int
    """0: no planned look is, so that no number of runs says what it would cost."""
    chance: float
    """Of a decision, by what is seen; before a first look 80 % as well."""
    missing: tuple[RunSpec, ...]


def still_needed(
    chosen: Sequence[Artifact], profile: str | None, dataset: str, seeds: Sequence[int] | None, store: Store,
    only: Collection[str] = (),
) -> list[Rest]:  # fmt: skip
    """Return what the open claims of artifacts need: at `profile`, by default each at the budget it is judged at.

    With `seeds` these are looked for, whatever the look; with `only` the claims with these ids are asked for.
    """

    @cache
    def entries(artifact: str, budget: str, wanted: tuple[int, ...]) -> dict[str, tuple[RunSpec, str, bool]]:
        study = load_study(make_study(carriers[artifact], budget, dataset, wanted), store)
        setting = {e.key: str([pair for pair in e.labels.items() if pair[0] != "seed"]) for e in study.entries}
        return {e.key: (e.spec, setting[e.key], e.key in study.results) for e in study.entries}

    def missing(found: Judgement, artifact: str, budget: str, wanted: tuple[int, ...]) -> dict[str, RunSpec]:
        """Of a figure only what the claim reads: settings that have runs, none of which it rests on, are not."""
        known = entries(artifact, found.budget, tuple(range(max(LOOKS))))
        read = {setting for key, (_, setting, _) in known.items() if key in found.runs}
        idle = {setting for _, setting, stored in known.values() if stored and found.runs} - read
        every = entries(artifact, budget, wanted).items()
        return {key: spec for key, (spec, setting, stored) in every if not stored and setting not in idle}

    carriers, rests = {artifact.id: artifact for artifact in chosen}, []
    names = sorted({claim for artifact in chosen for claim in artifact.claims})
    if strange := sorted(set(only) - set(names)):
        raise unknown("claim", strange[0], names)
    names = sorted(only) or names
    for found in judged(names, store=store, dataset=dataset) if names else []:
        if found.open:
            look = found.next_look or (0 if found.seeds or found.runs else min(LOOKS))
            chance = found.odds(look) if found.seeds else POWER
            budget, wanted = profile or found.budget, tuple(seeds or range(look))
            runs = [missing(found, name, budget, wanted) for name in found.artifacts if wanted and name in carriers]
            together = {key: spec for each in runs for key, spec in each.items()}
            rests.append(Rest(found, look, chance, tuple(together.values())))
    return rests


def queue(
    chosen: Sequence[Artifact], profile: str | None, dataset: str, seeds: Sequence[int] | None, store: Store, *,
    undecided: bool = False, only: Collection[str] = (),
) -> list[RunSpec]:  # fmt: skip
    """Return the missing runs of artifacts, those first that decide most claims per core-minute.

    Each run that an open claim still needs is worth the chance that all of them decide it over their cost, at the
    speeds of stored runs. With `undecided` these are all that is returned, with `only` those of the claims with these
    ids, else what is missing of the `seeds` (by default the profile's, and that is by default `laptop`), also if it
    decides nothing. Lower seeds go first.
    """
    specs: dict[str, RunSpec] = {}
    for artifact in () if undecided or only else chosen:
        specs |= _lacking(artifact, profile or REDUCED, dataset, seeds, store)
    worth = dict.fromkeys(specs, 0.0)
    for rest in still_needed(chosen, profile, dataset, seeds, store, only):
        needed = {spec.hash: spec for spec in rest.missing if undecided or only or spec.hash in worth}
        specs, cost = specs | needed, sum(seconds(needed.values(), store).values())
        worth |= {key: worth.get(key, 0.0) + (rest.chance or 1) / cost for key in needed}
    return sorted(specs.values(), key=lambda spec: (-worth[spec.hash], spec.seed, spec.hash))


def heavy(chosen: Sequence[Artifact], seeds: Sequence[int] | None, store: Store) -> list[RunSpec]:
    """Return the missing runs at the paper's budget that are heavy, on all data that is here.

    Lower seeds go first, and of a seed what is quickest.
    What a step of a network takes is measured where no stored run says it.
    """
    specs: dict[str, RunSpec] = {}
    for dataset, artifact in product(filter(is_present, all_sources()), chosen):
        with contextlib.suppress(SpecError):  # not laid out for this data set
            specs |= _lacking(artifact, FULL, dataset, seeds, store)
    cost = seconds(specs.values(), store, measure=True)
    found = [spec for spec in specs.values() if cost[spec.hash] > HEAVY_SECONDS]
    return sorted(found, key=lambda spec: (spec.seed, cost[spec.hash], spec.hash))


def _lacking(
    artifact: Artifact, profile: str, dataset: str, seeds: Sequence[int] | None, store: Store
) -> dict[str, RunSpec]:
    study = load_study(make_study(artifact, profile, dataset, seeds), store)
    return {entry.key: entry.spec for entry in study.entries if entry.key not in study.results}


def take(
    specs: Iterable[RunSpec], store: Store, *, minutes: float | None = None, published: bool = False,
    every_seconds: float = 60.0, echo: Callable[[str], object] = print, executor: str = "sequential",
    together: int = 1,
) -> Tally:  # fmt: skip
    """Compute what is missing of `specs`, one run at a time, while other workers may do the same.

    With `minutes` it stops in time, in the middle of a run if need be. A run that fails is named and not tried again.
    With the executor ``batched`` so many runs go on `together`, and those on the same data are trained as one.
    """
    end = inf if minutes is None else time.monotonic() + 60 * minutes
    left = {spec.hash: spec for spec in specs}
    size, done, failed, spent, reckoned = seconds(left.values(), store), 0, [], 0.0, 0.0

    def stop(used: float) -> None:
        if time.monotonic() >= end:
            raise TimeIsUp

    def compute(spec: RunSpec, shared: Together | None) -> bool:  # a call of its own: nothing is left to hold the run
        checkpoints = store.checkpoints(spec, every_seconds=every_seconds, executor=executor)
        try:
            result = run(spec, executor=executor, progress=stop, checkpoints=checkpoints, together=shared)
            store.save(result, published=published)
        except FlCoreError as error:
            failed.append(f"{brief(spec)}: {error}")
            echo(f"failed: {failed[-1]}")
            return False
        checkpoints.clear()
        return True

    def work(shared: Together | None = None) -> None:
        nonlocal done, spent, reckoned
        while left:
            taken = False
            for key, spec in list(left.items()):
                stop(0.0)
                if store.has(spec):
                    left.pop(key, None)
                    continue
                lock = FileLock(store.lease(spec), mode=0o644)
                try:
                    lock.acquire(blocking=False)
                except Timeout:
                    continue
                with lock, freed(alone=shared is None):
                    if store.has(spec) or key not in left:  # finished by somebody else since
                        left.pop(key, None)
                        continue
                    taken, started = True, time.monotonic()
                    stored = compute(spec, shared)
                    done += stored  # apart: other threads count meanwhile
                    left.pop(key, None)
                    spent, reckoned = spent + time.monotonic() - started, reckoned + size[key]
                    rest = sum(size[each] for each in list(left)) * spent / reckoned / together
                    echo(f"{brief(spec)}: {in_words(time.monotonic() - started)}; {len(left)} left, {in_words(rest)}")
            if left and not taken:
                if shared is not None and shared.left > 1:  # what is left, the other threads compute
                    return
                stop(0.0)
                time.sleep(POLL_SECONDS)

    def beside(shared: Together) -> None:
        try:
            work(shared)
        finally:
            shared.leave()

    try:
        if together == 1 or not left:
            work()
        else:
            load_dataset(next(iter(left.values())).dataset)  # once, not by each thread
            shared = Together(together)
            # All threads have these flags in common, and the first run that ends puts back what it found.
            flags = torch.backends.cudnn.flags(True, deterministic=True, allow_tf32=False)
            with flags, ThreadPoolExecutor(together) as pool:
                try:
                    list(pool.map(beside, [shared] * together))
                except BaseException:
                    end = 0.0  # so that the other threads stop
                    raise
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
