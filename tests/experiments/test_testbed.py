"""The testbed: the same algorithms in wall-clock time on a Dask cluster, beside their simulations."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import call
from distributed import Client, LocalCluster, Queue, Security
from scipy import stats

from fl_core.errors import RunError, SpecError
from fl_core.experiments import run, testbed
from fl_core.experiments.grid import dask_pool, execute
from fl_core.experiments.run import Result
from fl_core.experiments.spec import RunSpec
from fl_core.experiments.store import Store
from fl_core.experiments.testbed import decode, encode, run_testbed

SMALL = {
    "partition.samples_per_device": 100, "world.devices": 12, "training.batch_size": 20, "training.steps": 4,
    "evaluation.test_samples": 500, "evaluation.every_updates": 10, "model": "linear",
}  # fmt: skip


def small(algorithm: str | dict[str, Any], updates: int, **settings: Any) -> RunSpec:
    return RunSpec(algorithm=algorithm).changed(**SMALL | {"budget.updates": updates} | settings)


@pytest.fixture(scope="module")
def threads() -> Iterator[Client]:
    """Two workers in this process."""
    with Client(processes=False, n_workers=2, threads_per_worker=8, dashboard_address=None) as client:
        yield client


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(n_workers=2, threads_per_worker=8, dashboard_address=None, silence_logs=50) as found:
        yield found


# What travels.


def test_what_is_encoded_comes_back_and_zeros_cost_nothing():
    sparse = torch.zeros(10_000)
    sparse[[3, 99]] = torch.tensor([1.5, -0.0])
    value = {"model": torch.randn(50), "delta": sparse, "steps": 3, "state": [None, "x", (1, 2.5)], "none": {}}
    message = encode(value)
    found = decode(message)
    assert len(message) < 2_000
    assert torch.equal(found["model"], value["model"])
    assert torch.equal(found["delta"].view(torch.int32), sparse.view(torch.int32)), "with the sign of zero"
    assert found["state"] == value["state"]


@pytest.mark.parametrize("forged", [b"", b"x" * 100, None, 3, encode({"a": 1})[:-1], b"\0" + encode({"a": 1})[1:]])
def test_what_was_not_encoded_is_refused(forged):
    with pytest.raises(ValueError, match="damaged message: "):
        decode(forged)


def test_what_comes_from_workers_is_not_executed_to_be_read():
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None, silence_logs=50) as cluster,
        Client(cluster.scheduler_address, deserializers=testbed.NO_CODE, set_as_default=False) as client,
    ):
        assert client.submit(bytes, 3).result() == b"\0\0\0"
        with pytest.raises(Exception, match=r"[Dd]eserial"):
            client.submit(RunError, "made by unpickling").result()


# Runs.


@pytest.mark.usefixtures("few_images_here")
def test_an_algorithm_of_each_kind_runs_in_wall_clock_time(threads: Client):
    for algorithm in ("fedasync", {"name": "fedbuff", "buffer": 3}, "fedavg", "wkafl"):
        spec = small(algorithm, 6)
        result = run_testbed(spec, threads)
        history = result.history
        assert history.evaluations["version"][-1] == 6, algorithm
        assert len(history.updates["device"]) == history.outcomes["applied"]
        assert result.provenance["wire"]["bytes_up"] > history.evaluations["bytes_up"][-1] > 0


@pytest.mark.usefixtures("few_images_here")
def test_rounds_that_do_not_depend_on_time_have_the_numbers_of_the_simulation(threads: Client):
    """Of all clients in each round: who comes when does not matter, so the model is the simulated one."""
    spec = small({"name": "fedavg", "clients_per_round": 12}, 4)
    here, there = run.run(spec, executor="sequential"), run_testbed(spec, threads)
    assert torch.equal(here.history.model, there.history.model)
    names = ("version", "gradients", "bytes_up", "bytes_down", "test_accuracy")
    assert {n: here.history.evaluations[n] for n in names} == {n: there.history.evaluations[n] for n in names}


@pytest.mark.usefixtures("few_images_here")
def test_a_shaped_testbed_takes_the_time_of_its_world(threads: Client):
    spec = small({"name": "fedavg", "clients_per_round": 2}, 3, **{"world.devices": 2})
    simulated = run.run(spec, executor="sequential").history.evaluations["seconds"][-1]
    pace = 2.0 / simulated
    result = run_testbed(spec, threads, pace=pace, trace=True)
    assert simulated <= result.history.evaluations["seconds"][-1] < 2 * simulated
    assert set(result.history.spans["activity"]) >= {"train"}
    assert result.provenance["late_share"] < 0.5


@pytest.mark.thorough  # ten seconds, as the period is one of the wall
def test_fedluck_measures_what_its_plan_rests_on(threads: Client):
    spec = small({"name": "fedluck", "measure": True, "period_seconds": 1.0}, 10, **{"training.steps": None})
    result = run_testbed(spec, threads, pace=None)
    measured = result.provenance["measured"]
    assert len(measured) == 12, "all devices"
    assert all(alpha > 0 and beta > 0 for alpha, beta in measured.values())


@pytest.mark.usefixtures("few_images_here")
def test_a_program_that_fails_ends_the_testbed_and_says_where(threads: Client):
    with pytest.raises(RunError, match=r"device \d+: RunError: fedasmu counts local training in epochs.*task \d"):
        run_testbed(small("fedasmu", 5), threads)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"world.faults": [{"kind": "lost", "probability": 0.1}]}, "faults, absences and staleness of its own"),
        ({"world.max_staleness": 4}, "faults, absences and staleness of its own"),
    ],
)
def test_what_a_testbed_cannot_do_is_refused(threads: Client, settings, says):
    with pytest.raises(SpecError, match=says):
        run_testbed(small("fedasync", 5, **settings), threads)


@pytest.mark.parametrize("pace", [0.0, -1.0, float("nan"), float("inf")])
def test_a_pace_that_is_none_is_refused(threads: Client, pace: float):
    with pytest.raises(SpecError, match="pace = .* is not valid"):
        run_testbed(small("fedasync", 5), threads, pace=pace)


@pytest.mark.thorough
def test_a_worker_that_is_killed_loses_its_tasks_and_the_run_goes_on(cluster: LocalCluster):
    victims = [cluster.workers[0].pid]

    def kill(part: float) -> None:
        if part > 0.3 and victims:
            os.kill(victims.pop(), signal.SIGKILL)

    result = run_testbed(small("fedasync", 100), cluster.scheduler_address, pace=0.1, progress=kill)
    assert result.history.evaluations["version"][-1] == 100
    assert set(result.history.faults["fault"]) == {"worker lost"}
    assert 0 < result.history.outcomes["lost"] == len(result.history.faults["fault"]) <= 10


@pytest.mark.thorough
def test_a_grid_whose_workers_are_killed_is_computed_to_the_same_bits(tmp_path: Path):
    specs = [small("fedasync", 1_000, seed=seed) for seed in range(10)]
    over, killed = threading.Event(), []

    def kill() -> None:
        while len(killed) < 3 and not over.wait(6):
            found = [nanny.pid for nanny in cluster.workers.values() if nanny.pid]
            killed.append(found[len(killed) % len(found)])
            os.kill(killed[-1], signal.SIGKILL)

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50) as cluster,
        dask_pool(cluster.scheduler_address) as pool,
    ):
        threading.Thread(target=kill, daemon=True).start()
        found = execute(specs, store=Store(tmp_path, tmp_path), progress=False, pool=pool)
        over.set()
    assert len(killed) >= 2
    for spec in specs[::4]:
        here = run.run(spec, executor="sequential").history.evaluation_frame()
        assert found[spec.hash].history.evaluation_frame().equals(here)


@pytest.mark.thorough
def test_a_testbed_speaks_tls(tmp_path):
    import dask

    with LocalCluster(
        n_workers=1, threads_per_worker=8, dashboard_address=None, silence_logs=50, protocol="tls://", security=True
    ) as cluster:
        assert isinstance(cluster.security, Security)
        role = cluster.security.get_tls_config_for_role("client")
        files = {name: tmp_path / f"{name}.pem" for name in ("ca_file", "cert", "key")}
        for name, path in files.items():
            path.write_text(role[name])
        where = {"ca_file": "ca-file", "cert": "client.cert", "key": "client.key"}
        with dask.config.set({f"distributed.comm.tls.{where[name]}": str(path) for name, path in files.items()}):
            result = run_testbed(small("fedasync", 6), cluster.scheduler_address)
    assert result.history.evaluations["version"][-1] == 6


@pytest.mark.usefixtures("few_images_here")
def test_the_command_runs_on_a_cluster_and_stores_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("FL_CORE_RESULTS", str(tmp_path / "results"))
    (tmp_path / "spec.json").write_text(small("fedasync", 6).to_json())
    here = {"processes": False, "protocol": "tcp://", "dashboard_address": None, "silence_logs": 50}
    with LocalCluster(n_workers=2, threads_per_worker=8, **here) as found:
        words = ["run", str(tmp_path / "spec.json"), "--scheduler", found.scheduler_address, "--pace", "0.001"]
        call(*words, "--out", str(tmp_path / "out.json"))
    assert json.loads((tmp_path / "out.json").read_text())["provenance"]["executor"] == "testbed"
    assert not (tmp_path / "results").exists()


@pytest.mark.usefixtures("few_images_here")
def test_what_a_task_asks_is_answered_and_what_is_damaged_is_not(threads: Client):
    spec = small("fedasmu", 4, **{"training.steps": None, "training.epochs": 2})
    bed = testbed.WallSimulation(spec, threads)
    hostile = iter([b"", b"no message", encode({"task": 10**6, "what": "model", "value": -1, "back": "x"})])

    def progress(part: float) -> None:
        if (message := next(hostile, None)) is not None:
            Queue(bed.name, client=threads).put(message)

    history = bed.run(progress=progress)
    assert history.evaluations["version"][-1] == 4
    assert history.outcomes["applied"] == 4


# Beside the simulation.

DISTANCE = 0.3
"""Most total variation distance between the distributions of staleness; a shift by one version everywhere is 1."""
WORLD = {
    "world.devices": 12, "partition.samples_per_device": 200, "evaluation.test_samples": 2_000,
    "evaluation.every_updates": 3, "training.steps": 5,
    "world.network": {"up_bits_per_second": 2e5, "down_bits_per_second": 1e6},
}  # fmt: skip
BESIDE = {
    "fedasync": ({"name": "fedasync", "concurrency": 8}, 150),
    "fedbuff": ({"name": "fedbuff", "concurrency": 8, "buffer": 3, "global_lr": 0.4}, 60),
    "fedavg": ({"name": "fedavg", "clients_per_round": 8}, 20),
    "fedluck": ({"name": "fedluck", "period_seconds": 10.0}, 40),
}
"""At a global rate of 1 this world makes FedBuff oscillate: with devices late by 0.25 s, as a testbed has them, its
simulation loses 0.035 of the accuracy, ten times the spread of seeds; at 0.4 it loses 0.002."""


@pytest.mark.thorough
@pytest.mark.parametrize("name", BESIDE)
def test_a_testbed_and_the_simulation_of_its_world_agree(cluster: LocalCluster, name: str):
    algorithm, updates = BESIDE[name]
    spec = small(algorithm, updates, **WORLD)
    simulated = [run.run(spec.changed(seed=seed), executor="sequential") for seed in range(5)]
    real = run_testbed(spec, cluster.scheduler_address, pace=0.06)
    assert staleness_distance(simulated[0], real) <= DISTANCE
    begun = [from_first_model(result) for result in (simulated[0], real)]
    assert len(common := begun[0].keys() & begun[1].keys()) >= 3
    assert [begun[0][device] for device in common] == [begun[1][device] for device in common], "the same batches"
    seeds, here = [second_half(result) for result in simulated], second_half(real)
    predicted = stats.t(len(seeds) - 1).ppf(0.995) * np.std(seeds, ddof=1) * (1 + 1 / len(seeds)) ** 0.5
    assert abs(here - np.mean(seeds)) <= max(0.02, predicted), "as one more seed would have it, 99 times in 100"


def second_half(result: Result) -> float:
    """Return the mean accuracy of the second half; that of one moment goes up and down by several points."""
    accuracy = result.history.evaluations["test_accuracy"]
    return float(np.mean(accuracy[len(accuracy) // 2 :]))


def from_first_model(result: Result) -> dict[int, float]:
    """Return the loss of the first task of each device that began with the first model."""
    updates = result.history.updates
    rows = zip(updates["device"], updates["version"], updates["staleness"], updates["loss"], strict=True)
    return {device: loss for device, version, staleness, loss in [*rows][::-1] if version - 1 - staleness == 0}


def staleness_distance(left: Result, right: Result) -> float:
    """Return the total variation distance between the distributions of staleness."""
    stale = [np.array(result.history.updates["staleness"]) for result in (left, right)]
    most = max(each.max() for each in stale) + 1
    shares = [np.bincount(each, minlength=most) / len(each) for each in stale]
    return float(np.abs(shares[0] - shares[1]).sum() / 2)
