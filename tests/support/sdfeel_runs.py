"""SD-FEEL's micro example, for its algorithm's tests and its paper's."""

from __future__ import annotations

from typing import Any

import numpy as np
import runs
import torch

from fl_core.algorithms import Algorithm
from fl_core.runtime import Simulation
from fl_core.tasks import Quadratic
from fl_core.world import TraceCompute, World

SPEEDS = (1.0, 2.0, 1.5, 4.0, 0.5, 1.0, 2.0, 3.0)
CENTRES = (1.0, -1.0, 2.0, 0.0, -2.0, 3.0, 0.5, 1.5)
SIZES = (10, 30, 20, 20, 40, 10, 5, 15)
MICRO = Quadratic([[1.0]] * 8, [[c] for c in CENTRES], [0.0], samples=SIZES)
MICRO_WORLD = World(
    devices=8, compute=TraceCompute(seconds_per_step=tuple(1 / speed for speed in SPEEDS)),
    network={"up_bits_per_second": 128}, clusters={"servers": 4, "backhaul_seconds": 0.25},
)  # fmt: skip
"""Oracle O13: a model has 64 bits."""


def simulate(
    algorithm: Algorithm, world: World = MICRO_WORLD, task: Quadratic = MICRO, updates: int | None = None,
    every: int | None = 1, **settings: Any,
) -> Simulation:  # fmt: skip
    settings = {"updates": updates, "every_updates": every, "lr": 0.1, **settings}
    return runs.simulate(algorithm, world, task, **settings)


def models(run: Simulation) -> np.ndarray:
    return torch.stack([server.model for server in run.servers]).numpy().squeeze()
