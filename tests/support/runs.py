"""Runs on quadratics, of which every number can be worked out by hand, and the rows that they leave."""

from __future__ import annotations

from typing import Any

from fl_core.algorithms import Algorithm
from fl_core.runtime import Budget, Checkpoints, Evaluation, History, LocalTraining, Simulation
from fl_core.tasks import Quadratic
from fl_core.world import TraceCompute, World


def alike(devices: int = 1) -> Quadratic:
    """Devices with the same optimum, 0, that start at 1."""
    return Quadratic([[1.0]] * devices, [[0.0]] * devices, [1.0])


def fixed(*seconds: float, **fields: Any) -> World:
    """Devices that take so long for a step."""
    return World(devices=len(seconds), compute=TraceCompute(seconds_per_step=seconds), **fields)


def simulation(
    algorithm: Algorithm, world: World, task: Any = None, *, seed: int = 0, trace: bool = False, **settings: Any
) -> Simulation:
    """Return a run that has not begun; `settings` are fields of its budget, its evaluation and its local training."""
    chosen = {
        kind: {name: settings.pop(name) for name in kind.model_fields if name in settings}
        for kind in (Budget, Evaluation)
    }
    return Simulation(
        task or alike(world.devices), world, algorithm, budget=Budget(**chosen[Budget]), seed=seed, trace=trace,
        evaluation=Evaluation(**chosen[Evaluation]), training=LocalTraining(**settings),
    )  # fmt: skip


def simulate(
    algorithm: Algorithm, world: World, task: Any = None, *, executor: str = "sequential",
    threads: int | None = None, checkpoints: Checkpoints | None = None, **settings: Any,
) -> Simulation:  # fmt: skip
    """Return it when it has ended."""
    run = simulation(algorithm, world, task, **settings)
    run.run(executor, threads, checkpoints=checkpoints)
    return run


def rows(history: History, *columns: str) -> list[tuple[Any, ...]]:
    """Return these columns of every upload that was used; by default time, version, device and staleness."""
    names = columns or ("seconds", "version", "device", "staleness")
    return list(zip(*(history.updates[name] for name in names), strict=True))
