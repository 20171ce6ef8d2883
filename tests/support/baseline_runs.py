"""The baselines' toy, and noise that a network learns, for the tests of synchronous and asynchronous methods."""

from __future__ import annotations

from typing import Any

import numpy as np
import runs
from local_work import noise

from fl_core.algorithms import Algorithm
from fl_core.tasks import Classification, Quadratic
from fl_core.world import World

TOY_B = Quadratic([[1, 2], [2, 1], [0.5, 1.5]], [[1, 0], [-1, 2], [0, -1]], [0.5, 0.5], samples=[10, 20, 30])
TOY_B_WORLD = runs.fixed(1.0, 1.5, 2.5)
"""Section 1.5 of the baselines' specification: two local steps take 2, 3 and 5 s."""


def simulate(algorithm: Algorithm, task: Any = TOY_B, world: World = TOY_B_WORLD, updates: int = 6, **training: Any):
    settings = {"updates": updates, "every_updates": 1, "lr": 0.1, "steps": 2, **training}
    return runs.simulate(algorithm, world, task, **settings)


def pictures(cuts: tuple[int, int] = (20, 40)) -> Classification:
    """Noise that is divided among three devices."""
    return Classification(noise(60, 10), np.split(np.arange(60), cuts), "lenet5")


def close(found, expected, rtol=1e-9):
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=1e-12)
