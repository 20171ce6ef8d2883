"""What the runtime promises for every algorithm, tried on one: tests for an algorithm of one's own."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fl_core.algorithms.base import Algorithm, make_algorithm
from fl_core.errors import FlCoreError
from fl_core.experiments.verify import difference
from fl_core.runtime import Budget, Checkpoints, Evaluation, History, LocalTraining, Simulation
from fl_core.tasks import Quadratic
from fl_core.world import World

DEVICES = 12
NETWORK = {"down_bits_per_second": 500.0, "up_bits_per_second": 300.0, "latency_seconds": 0.1}
WORLDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "slow links": {"network": NETWORK, "jitter": 0.3},
    "trouble": {
        "network": NETWORK,
        "faults": [
            {"kind": "crash", "probability": 0.1, "down_seconds": 2},
            {"kind": "lost", "probability": 0.1},
            {"kind": "duplicated", "probability": 0.2},
            {"kind": "corrupted", "probability": 0.1},
            {"kind": "server_restart", "at_seconds": [3.0, 11.0], "down_seconds": 1.5},
        ],
    },
}
"""Fields of a world by what is said of it."""


class Interrupted(BaseException):
    """The run that is to go on from its checkpoint ends here."""


def check_algorithm(
    algorithm: Algorithm | type[Algorithm] | str,
    *,
    updates: int = 40,
    seed: int = 0,
    worlds: Mapping[str, Mapping[str, Any]] = WORLDS,
) -> list[str]:
    """Return what `algorithm` was found to keep, on twelve quadratic losses in each of some worlds; a name will do.

    It keeps the rules for programs (the executor ``debug``), uses its budget up where nothing goes wrong, gives the
    same bits again, with threads and from a checkpoint, accounts for every task, and ends with a model of finite
    numbers. An AssertionError names everything that it does not keep.
    """
    if isinstance(algorithm, str):
        algorithm = make_algorithm(algorithm)
    elif isinstance(algorithm, type):
        algorithm = algorithm()
    found: list[str] = []
    broken: list[str] = []
    for name, fields in worlds.items():
        for promise, failure in _tried(algorithm, World(devices=DEVICES, **fields), updates, seed):
            (broken if failure else found).append(f"{name}: {promise}{f': {failure}' if failure else ''}")
    if broken:
        raise AssertionError(f"{type(algorithm).__name__} does not keep {len(broken)} promises\n" + "\n".join(broken))
    return found


def _tried(algorithm: Algorithm, world: World, updates: int, seed: int) -> Iterator[tuple[str, str]]:
    """Yield each promise with how it is broken, empty if it is kept."""
    rng = np.random.default_rng(seed)
    task = Quadratic(
        rng.uniform(0.5, 2, (DEVICES, 4)), rng.normal(size=(DEVICES, 4)), [3.0] * 4, range(1, DEVICES + 1)
    )

    def simulation() -> Simulation:
        return Simulation(
            task, world, algorithm, budget=Budget(updates=updates), training=LocalTraining(lr=0.1, epochs=3),
            evaluation=Evaluation(every_updates=10), seed=seed,
        )  # fmt: skip

    try:
        first = simulation().run("debug")
    except FlCoreError as error:
        yield "keeps the rules for programs", str(error)
        return
    yield "keeps the rules for programs", ""
    if not world.faults:
        versions, lost = len(set(first.updates["version"])), first.outcomes["lost"]
        failure = f"ended ({first.ended}) after {versions} versions; {lost} tasks brought no upload"
        yield "comes to its end", "" if first.ended == "budget" and versions else failure
    yield "gives the same bits again", _differs(first, simulation().run("sequential"))
    yield "gives the same bits with threads", _differs(first, simulation().run("threads", 2))
    for share in (0.3, 0.7):
        yield f"goes on from a checkpoint at {share:.0%}", _differs(first, _resumed(simulation, share))
    yield "accounts for every task", _unaccounted(first)
    model = first.model
    yield "ends with finite numbers", "" if model is not None and torch.isfinite(model).all() else f"{model}"


def _resumed(simulation: Any, share: float) -> History:
    """Return the history of a run that is interrupted after a share of its budget and goes on."""

    def stop(used: float) -> None:
        if used >= share:
            raise Interrupted

    with tempfile.TemporaryDirectory() as folder:
        checkpoints = Checkpoints(Path(folder) / "state", when=lambda events: events % 10 == 0)
        with suppress(Interrupted):
            simulation().run("sequential", None, stop, checkpoints)
        history: History = simulation().run("sequential", None, None, checkpoints)
    return history


def _differs(first: History, other: History) -> str:
    """Say where two histories differ first; empty: nowhere."""
    return "" if first == other else difference(first, other, said=("first", "then")) or "the model is another one"


def _unaccounted(history: History) -> str:
    ends = {name: count for name, count in history.outcomes.items() if name not in ("dispatched", "duplicates")}
    dispatched = history.outcomes["dispatched"]
    return "" if sum(ends.values()) == dispatched else f"{dispatched} tasks were dispatched, {ends} ended"
