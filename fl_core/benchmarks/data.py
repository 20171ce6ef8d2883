"""The part that measures data: loading, generating, dividing among devices."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

import numpy as np

from fl_core.benchmarks.part import Effort, Outcome, Row, Target, part
from fl_core.benchmarks.timing import seconds_of
from fl_core.datasets import (
    IID,
    Dataset,
    Dirichlet,
    DirichletPerDevice,
    Natural,
    Preprocessing,
    Shards,
    Surrogate,
    WKAFLPartition,
    prepared,
)
from fl_core.datasets.registry import all_sources, all_surrogates, source_folder
from fl_core.streams import stream

SAMPLES, DEVICES = 60_000, 3000
PARTITIONS = (
    IID(),
    Dirichlet(alpha=0.5, min_samples=10),
    DirichletPerDevice(alpha=0.5),
    Shards(),
    WKAFLPartition(labels_per_device=10),
    Natural(),
)


@part(
    "Fashion-MNIST from its files to tensors ready for training; 60,000 samples divided among devices by each "
    "kind of partition; every surrogate generated, and read back from its file",
    Target("fashion-mnist: ready", "<=", 1.5),
    *(Target(f"partition {each.kind}", "<=", 1.0, DEVICES) for each in PARTITIONS),
    *(Target(f"{name}: generated", "<=", 60.0) for name in all_surrogates()),
    *(Target(f"{name}: read", "<=", 2.0) for name in all_surrogates()),
    sizes="devices",
)
def data(effort: Effort) -> Outcome:
    """Measure data."""
    rows = [Row("fashion-mnist: ready", "s", [seconds_of(_load) for _ in range(effort.repetitions)])]
    labels = np.arange(SAMPLES) % 10
    owners = np.arange(SAMPLES) % DEVICES
    for partition in PARTITIONS:
        seconds = [
            seconds_of(partial(partition.split, labels, DEVICES, stream(seed, "partition"), owners))
            for seed in range(effort.repetitions)
        ]
        rows.append(Row(f"partition {partition.kind}", "s", seconds, DEVICES))
    for surrogate in all_surrogates().values():
        rows += _surrogate(surrogate, effort)
    return Outcome(rows, "quick runs generate the first 64 samples of each surrogate" if effort.quick else "")


def _surrogate(surrogate: Surrogate, effort: Effort) -> list[Row]:
    count = effort.pick(0, 64) or None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "samples.safetensors"
        made = seconds_of(lambda: prepared.write(path, *surrogate.generate(count, count)))
        arguments = (path, surrogate.name, "surrogate", surrogate.classes)
        read = [seconds_of(lambda: prepared.read(*arguments)) for _ in range(effort.repetitions)]
    return [Row(f"{surrogate.name}: generated", "s", [made]), Row(f"{surrogate.name}: read", "s", read)]


def _load() -> None:
    """Read Fashion-MNIST without any cache, and scale it."""
    source = all_sources()["fashion-mnist"]
    train, test = source.read(source_folder(source))
    mean, std = prepared.channel_statistics(train.inputs)
    Preprocessing().apply(Dataset(source.name, "real", source.classes, train, test, tuple(mean), tuple(std)))
