"""Runs on quadratics in FedLuck's world, for its algorithm's tests and its paper's."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import numpy as np
import runs

from fl_core.algorithms import Algorithm
from fl_core.formulas.compression import Compressor
from fl_core.runtime import Simulation, simulation
from fl_core.runtime.executors import Sequential, Ticket
from fl_core.runtime.local import Trained, TrainJob
from fl_core.tasks import Quadratic
from fl_core.world import World

CELLS = {"cnn": 234_090, "vgg11s": 865_482, "lstm": 216_330}
BYTES = 16
"""Of the models of two numbers that stand for those of the paper."""


class Still(Sequential):
    """Does not train: a job gives back the model that it got."""

    def result(self, ticket: Ticket) -> Any:
        job = ticket.job
        return Trained(job.start.clone(), 0.0, job.steps) if isinstance(job, TrainJob) else super().result(ticket)


def simulate(
    algorithm: Algorithm,
    world: World,
    task: Quadratic,
    updates: int | None = None,
    seconds: float | None = None,
    learn: bool = True,
    **training: Any,
) -> Simulation:
    """Run; without `learn` for clock and bytes alone: nothing is trained, and compression changes nothing."""
    settings = {"updates": updates, "seconds": seconds, "every_updates": 1, "lr": 0.1, "steps": 2, **training}
    with ExitStack() as stack:
        if not learn:
            stack.enter_context(patch.object(simulation, "make_executor", lambda name, task, *_: Still(task)))
            stack.enter_context(patch.object(Compressor, "compress", lambda self, vector, *_: vector))
        return runs.simulate(algorithm, world, task, **settings)


def fedluck_world(cell: str = "cnn", size: int = BYTES, **fields: Any) -> World:
    """The paper's world, with links as many times slower as a model of `size` bytes is smaller than the paper's."""
    world = World.named("fedluck", cell=cell)
    bandwidths = world.network.up_bits_per_second
    assert isinstance(bandwidths, tuple)
    scaled = tuple(bits * size / (4 * CELLS[cell]) for bits in bandwidths)
    return World.named("fedluck", cell=cell, network={"up_bits_per_second": scaled}, **fields)


def small(devices: int = 10) -> Quadratic:
    return Quadratic(np.ones((devices, 2)), np.arange(2.0 * devices).reshape(devices, 2), [0.0, 0.0])


def rounds(run: Simulation) -> list[list[tuple[int, int]]]:
    """Device and staleness of the uploads of each version."""
    table, found = run.history.updates, [[] for _ in range(run.version)]
    for version, device, staleness in zip(table["version"], table["device"], table["staleness"], strict=True):
        found[version - 1].append((device, staleness))
    return found


def times(cell: str) -> tuple[np.ndarray, np.ndarray]:
    """alpha and beta of the world of section 6.2."""
    fastest = 0.15 if cell == "lstm" else 0.1
    speeds = np.linspace(0.1, 0.25, 10)
    speeds[1] = 0.03
    return fastest * np.linspace(1, 4, 10)[::-1], CELLS[cell] * 4 / 2**20 / speeds


def random_devices(seed: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return alpha and beta, log-uniform over 0.005..2 s and 0.05..200 s."""
    rng = np.random.default_rng(seed)
    return np.exp(rng.uniform(np.log(0.005), np.log(2), n)), np.exp(rng.uniform(np.log(0.05), np.log(200), n))
