"""What a redesign must not change, as digests: grids, runs, checkpoints and frames.

    python tests/frozen/freeze.py [grids] [runs] [frames]        # compare with expected.json
    python tests/frozen/freeze.py write [grids] [runs] [frames]  # take over what this code computes
    python tests/frozen/freeze.py checkpoints                  # let this code write the checkpoints

Without names: grids and runs. An intended change is written, and its reason stands in the commit.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from fl_core.algorithms import make_algorithm
from fl_core.experiments.identity import instructions
from fl_core.experiments.spec import RunSpec
from fl_core.runtime import Budget, Checkpoints, Evaluation, History, LocalTraining, Simulation
from fl_core.runtime.checkpoint import CURRENT
from fl_core.tasks import Quadratic
from fl_core.world import World

FOLDER = Path(__file__).parent
EXPECTED = FOLDER / "expected.json"
CHECKPOINTS = FOLDER / "checkpoints.zip"

DATASETS = (
    "fashion-mnist", "cifar10-surrogate", "speech-commands-surrogate", "emnist-byclass-surrogate", "celeba-surrogate",
)  # fmt: skip
PROFILES = ("smoke", "laptop", "paper")

ALGORITHMS: dict[str, dict[str, Any]] = {
    "asofed": {"concurrency": 4, "start": "own", "feature_learning": "paper"},
    "async_sdfeel": {"min_batches": 2, "simultaneous": "together"},
    "asyncpart": {"concurrency": 4},
    "fedasmu": {"propagation": "exact", "merge_correction": True, "directions": "float16"},
    "fedasmu_0": {},
    "fedasmu_da": {},
    "fedasmu_fa": {},
    "fedasmu_h1": {},
    "fedasmu_h2": {"directions": "sketch", "sketch_size": 2},
    "fedasmu_h3": {"server_grad": "printed", "history": "producer"},
    "fedasync": {"concurrency": 4, "rho": 0.1, "weight": {"kind": "polynomial"}},
    "fedavg": {"clients_per_round": 3, "weighting": "samples"},
    "fedavg_topk": {"clients_per_round": 3, "error_feedback": True},
    "fedbuff": {"buffer": 2, "concurrency": 4, "compressor": "topk(delta=0.5)", "error_feedback": True},
    "feddelay": {"concurrency": 4, "threshold": 1, "mode": "drop", "count_dropped": False},
    "feddyn": {"clients_per_round": 3, "alpha": 0.5, "scale_alpha_by_share": True},
    "fedluck": {"period_seconds": 4.0, "k_max": 6, "measure": True, "error_feedback": True},
    "fedper": {"period_seconds": 3.0, "compressor": "randomk(delta=0.5)"},
    "fedprox": {"clients_per_round": 3, "sampling": "by_share", "deadline_seconds": 3.0},
    "fedsa": {"concurrency": 4, "initial_versions": 4, "initial_epochs": 3},
    "gsgm": {"num_aggregated": 3, "lr": 0.1},
    "hierarchical_fedavg": {"local_steps": 2, "cloud_seconds": 0.5},
    "kasync": {"num_aggregated": 2, "lr": 0.1, "client_snapshot": "aliased"},
    "moon": {"clients_per_round": 5},
    "port": {"min_uploads": 2, "concurrency": 5, "staleness_bound": 1},
    "sasgd": {"num_aggregated": 2, "lr": 0.1},
    "sgd": {"block": 2},
    "sync_sdfeel": {"local_steps": 2, "intra_rounds": 2},
    "syncdrop": {"concurrency": 4, "keep": 0.5, "assignment": "hetero", "reference": "last"},
    "twafl": {"num_aggregated": 2, "lr": 0.1},
    "wkafl": {"num_aggregated": 3, "lr": 0.1, "stage_threshold": 9.0, "stage_loss_window": 3},
    "zenopp": {"lr": 0.1, "server_samples": 20, "validation_batch": 5},
}
ALGORITHMS |= {
    name: {"trigger_period": 1.0, "concurrency": 4, "lr_lambda": 0.1, "lr_gamma": 0.1, "lr_rl": 0.1} | parameters
    for name, parameters in ALGORITHMS.items()
    if name.startswith("fedasmu")
}
NETWORK = {"down_bits_per_second": 500.0, "up_bits_per_second": 300.0, "latency_seconds": 0.1}
FAULTS = [
    {"kind": "crash", "probability": 0.15, "down_seconds": 2},
    {"kind": "lost"},
    {"kind": "duplicated", "probability": 0.3},
    {"kind": "delayed", "probability": 0.3},
    {"kind": "corrupted"},
    {"kind": "corrupted", "how": "scaled", "factor": 1.5},
    {"kind": "unavailable", "probability": 0.3},
    {"kind": "server_restart", "at_seconds": [3.0, 3.5, 11.0], "down_seconds": 1.5},
]
WORLDS: dict[str, dict[str, Any]] = {
    "heterogeneous": {
        "compute": {"kind": "ratio", "fastest": 0.3, "ratio": 6.0},
        "jitter": 0.2,
        "network": NETWORK,
        "faults": FAULTS,
        "availability": {"kind": "periodic", "period_seconds": 7, "available": 0.6},
    },
    "clusters": {"clusters": {"servers": 3, "graph": {"kind": "path"}}, "faults": FAULTS[:3], "network": NETWORK},
    "timed": {"trigger": {"kind": "timed", "period_seconds": 2, "per_tick": 3, "concurrency": 5}, "network": NETWORK},
    "sampled": {"max_staleness": 4},
}
NEED_CLUSTERS = ("async_sdfeel", "sync_sdfeel", "hierarchical_fedavg")
MANY_UPLOADS = ("fedasmu", "fedasmu_da", "fedasmu_h1", "fedasmu_h2", "fedasmu_h3", "fedbuff", "port")
"""What drawn staleness does not go with: more than one upload for a version, fresh models in mid-training."""


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def quadratic(algorithm: str, world: str) -> Simulation:
    """Return a small run on quadratics, with a trace."""
    rng = np.random.default_rng(0)
    task = Quadratic(rng.uniform(0.5, 2, (8, 3)), rng.normal(size=(8, 3)), [5.0, 5.0, 5.0], samples=range(1, 9))
    work = {"epochs": 3} if algorithm.startswith("fedasmu") else {"steps": 2}
    return Simulation(
        task,
        World(devices=8, **WORLDS[world]),
        make_algorithm(algorithm, **ALGORITHMS[algorithm]),
        budget=Budget(updates=24, seconds=400.0),
        training=LocalTraining(lr=0.1, **work),
        evaluation=Evaluation(every_updates=5, every_seconds=4.0, at_seconds=(3.3, 9.0), train_samples=1),
        seed=3,
        trace=True,
    )


def fashion_mnist(algorithm: str) -> Simulation:
    """Return a small run of a linear model on equal devices."""
    clusters = {"clusters": {"servers": 2}} if algorithm in NEED_CLUSTERS else {}
    training = {"epochs": 2, "batch_size": 2000} if algorithm.startswith("fedasmu") else {"steps": 2}
    return RunSpec(
        dataset="fashion-mnist",
        partition="dirichlet(alpha=0.5)",
        model="linear",
        world={"devices": 8, "compute": {"kind": "constant", "seconds_per_step": 0.5}, **clusters},
        algorithm={"name": algorithm, **ALGORITHMS[algorithm]},
        training={"lr": 0.05, "batch_size": 20, **training},
        budget={"updates": 12, "seconds": 400.0},
        evaluation={"every_updates": 6, "test_samples": 500, "train_samples": 100},
        seed=3,
    ).simulation(trace=True)


def run_cases() -> Iterator[tuple[str, Callable[[], Simulation]]]:
    """Yield the name of each run and what builds it."""
    for name in ALGORITHMS:
        yield f"{name}/homogeneous", lambda name=name: fashion_mnist(name)
        third = "clusters" if name in NEED_CLUSTERS else "timed" if name in MANY_UPLOADS else "sampled"
        for world in ("heterogeneous", third):
            yield f"{name}/{world}", lambda name=name, world=world: quadratic(name, world)


def measured(history: History) -> dict[str, Any]:
    """Return digests of the whole history and of the final model, and a few numbers for other processors."""
    assert history.model is not None
    last = {column: values[-1] for column, values in history.evaluations.items()}
    return {
        "history": sha(json.dumps({k: v for k, v in history.to_dict().items() if k != "learned"}, sort_keys=True)),
        "model": hashlib.sha256(history.model.numpy().tobytes()).hexdigest()[:16],
        "norm": float(history.model.double().norm()),
        "loss": last["train_loss"],
        "seconds": last["seconds"],
        "version": last["version"],
        "dispatched": history.outcomes["dispatched"],
    }


def measure(build: Callable[[], Simulation]) -> dict[str, Any] | str:
    """Return what a run gives, or the name of the error with which it ends."""
    try:
        return measured(build().run())
    except Exception as error:
        return type(error).__name__


def processor() -> str:
    """Say what the last bits depend on."""
    return f"{instructions()}, torch {torch.__version__.partition('+')[0]}"


def grids() -> dict[str, str]:
    """Return one digest for each artifact: the runs of its grid in every profile, on five data sets."""
    from fl_core.experiments.artifacts import artifacts

    def keys(one: Any, profile: str, dataset: str) -> Any:
        try:
            return [[entry.key, repr(entry.labels)] for entry in one.grid(profile, dataset)]
        except Exception as error:
            return type(error).__name__

    return {
        name: sha(json.dumps([keys(one, profile, dataset) for profile in PROFILES for dataset in DATASETS]))
        for name, one in artifacts().items()
    }


def runs() -> dict[str, Any]:
    """Return what every run gives."""
    return {name: measure(build) for name, build in run_cases()}


def published() -> Any:
    """Return the store without this machine's cache."""
    from fl_core.experiments.store import Store, default_store

    folder = default_store().published
    return Store(folder, folder)


def digest_of(table: pd.DataFrame) -> str:
    """Return a digest of a table to six digits: the last ones of toys differ between processors."""
    numbers = table.select_dtypes("float")
    table = table.assign(**numbers.mask(numbers.abs() <= 1e-9, 0.0))
    return sha(table.to_csv(float_format="%.6g"))


def frames() -> dict[str, str]:
    """Return a digest of each artifact's table as pages show it, from published results; toys are computed now."""
    from fl_core.experiments.artifacts import artifacts, stored_study

    store, found = published(), {}
    for name, one in artifacts().items():
        try:
            found[name] = digest_of(one.reduce(stored_study([one], store, "laptop")))
        except Exception as error:
            found[name] = type(error).__name__
    return found


PARTS = {"grids": grids, "runs": runs, "frames": frames}


def expected() -> dict[str, Any]:
    """Return what was written last."""
    found: dict[str, Any] = json.loads(EXPECTED.read_text()) if EXPECTED.exists() else {}
    return found


def differences(part: str, wanted: dict[str, Any], got: dict[str, Any]) -> list[str]:
    """Say what differs."""
    return [
        f"{part} {name}: {wanted.get(name, 'nothing')} -> {got.get(name, 'nothing')}"
        for name in sorted(wanted.keys() | got.keys())
        if wanted.get(name) != got.get(name)
    ]


class Halted(Exception):
    """The end of a run whose checkpoint is kept."""


def halted_after(event: int) -> Callable[[int], bool]:
    """Write a checkpoint at every event until `event`, and end there."""

    def when(events: int) -> bool:
        if events >= event:
            raise Halted
        return True

    return when


def write_checkpoints() -> None:
    """Leave the middle of each algorithm's heterogeneous run in a file."""
    with zipfile.ZipFile(CHECKPOINTS, "w", zipfile.ZIP_LZMA) as kept, tempfile.TemporaryDirectory() as temporary:
        for name in ALGORITHMS:
            simulation = quadratic(name, "heterogeneous")
            simulation.run()
            folder = Path(temporary) / name
            when = halted_after(simulation.kernel.events // 2)
            with contextlib.suppress(Halted):
                quadratic(name, "heterogeneous").run(checkpoints=Checkpoints(folder, identity=name, when=when))
            kept.writestr(zipfile.ZipInfo(name), (folder / CURRENT).read_bytes(), zipfile.ZIP_LZMA)


def checkpoint(algorithm: str) -> bytes:
    """Return the file that :func:`write_checkpoints` kept."""
    with zipfile.ZipFile(CHECKPOINTS) as kept:
        return kept.read(algorithm)


def main(arguments: list[str]) -> int:
    """Compare, write, or make the checkpoints; the number of differences is the exit status."""
    warnings.simplefilter("ignore")
    if arguments == ["checkpoints"]:
        write_checkpoints()
        return 0
    write = arguments[:1] == ["write"]
    wanted, found = expected(), []
    for part in arguments[write:] or ("grids", "runs"):
        got = PARTS[part]()
        here = wanted.get("elsewhere", {}).get(processor(), {}) if part == "runs" else {}
        found += differences(part, wanted.get(part, {}) | here, got)
        only = {"processor": processor(), "elsewhere": {}}  # of other processors nothing is known
        wanted |= {part: got} | (only if part == "runs" else {})
    print("\n".join(found) or "identical")
    if write:
        EXPECTED.write_text(json.dumps(wanted, indent=1) + "\n")
    return 0 if write else min(len(found), 100)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
