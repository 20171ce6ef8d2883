"""When asynchrony wins: the same methods on devices whose speeds differ more and more, from stored runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fl_core.experiments.spec import RunSpec
from fl_core.experiments.store import Store
from fl_core.experiments.study import Entry, Study, load_study
from fl_core.report.explorable import Comparison, in_units

SLOWEST, SEEDS = (1, 2, 5, 20), range(5)
"""Seconds of the slowest device for a mini-batch, where the fastest needs one."""
MEASURED: dict[str, Any] = {"every_updates": None, "test_samples": 2000, "train_samples": 1000}
IN_FLIGHT, STEPS, TASKS = 6, 10, 60
METHODS: dict[str, dict[str, Any]] = {
    "FedAvg": {"name": "fedavg", "clients_per_round": IN_FLIGHT},
    "FedAsync": {"name": "fedasync", "alpha": 0.6, "weight": "polynomial", "concurrency": IN_FLIGHT},
    "FedBuff": {"name": "fedbuff", "buffer": 3, "concurrency": IN_FLIGHT},
}


def entries() -> Iterator[Entry]:
    """Yield the runs: in each the mean device has the time for :data:`TASKS` tasks."""
    for slowest in SLOWEST:
        seconds = TASKS * STEPS * (1 + slowest) / 2
        for method, algorithm in METHODS.items():
            for seed in SEEDS:
                spec = RunSpec(
                    dataset="fashion-mnist", partition={"kind": "dirichlet", "alpha": 0.5}, model="linear",
                    world={"devices": 12, "compute": {"kind": "uniform", "fastest": 1, "slowest": slowest}},
                    algorithm=algorithm, training={"lr": 0.05, "batch_size": 50, "steps": STEPS},
                    budget={"seconds": seconds}, evaluation=MEASURED | {"every_seconds": seconds / 15}, seed=seed,
                )  # fmt: skip
                yield Entry(spec, {"slowest": slowest, "method": method, "seed": seed})


def stored(store: Store) -> Study:
    """Return the runs with what `store` has of their results."""
    return load_study(Study("laptop", "fashion-mnist", tuple(entries()), {}), store)


def comparison(study: Study) -> Comparison:
    """Return them for a reader to examine, with a slider over the speeds."""
    settings = {
        f"{slowest} times slower" if slowest > 1 else "no slower": {
            method: {
                entry.labels["seed"]: in_units(result.history.evaluation_frame())
                for entry, result in study.select(slowest=slowest, method=method)
            }
            for method in METHODS
        }
        for slowest in SLOWEST
    }
    axes = {"seconds": "virtual time (s)", "models_received": "uploads", "gigabytes": "GB uploaded"}
    title, metrics = "Heterogeneity and asynchrony", {"test_accuracy": "test accuracy"}
    return Comparison(title, settings, axes, metrics, "FedAvg", slide="the slowest device is")


def in_words(figure: Comparison, method: str = "FedAsync", parts: Sequence[float] = (0.1, 1.0)) -> str:
    """Return as Markdown in which settings a method is ahead of the reference, after parts of the time."""
    lines = []
    for setting in figure.runs:
        said = []
        for part in parts:
            _, difference, half = figure.at_end(setting, "seconds", "test_accuracy", part)[method]
            sign = "ahead" if difference > half else "behind" if difference < -half else "not told apart"
            points = f"{100 * difference:+.1f} ± {100 * half:.1f} points".replace("-", "−")
            said.append(f"after {part:.0%} of the time **{sign}** ({points})")
        lines.append(f"- The slowest device is {setting}: {method} is {', '.join(said)}.")
    return "\n".join(lines)
