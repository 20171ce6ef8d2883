"""Guarantees of a run: determinism, snapshots that nothing mutates, errors that say what happened."""

from __future__ import annotations

import gc
import hashlib
import json
import time

import numpy as np
import pytest
import torch
from runs import alike, simulate, simulation

from fl_core.algorithms import Algorithm, FedAsync
from fl_core.errors import RunError
from fl_core.experiments.spec import RunSpec
from fl_core.runtime import DeviceHandle
from fl_core.runtime.executors import Threads
from fl_core.runtime.history import History, append
from fl_core.runtime.local import batches
from fl_core.streams import stream
from fl_core.world import ConstantCompute, World

pytestmark = pytest.mark.usefixtures("few_images")

SMALL = {
    "world": {"devices": 12, "jitter": 0.3},
    "partition": {"kind": "dirichlet", "alpha": 0.5},
    "training": {"steps": 3, "lr": 0.1, "batch_size": 20},
    "budget": {"updates": 25},
    "evaluation": {"every_updates": 20, "train_samples": 500},
    "model": "linear",
}
SPECS = {
    "fedasync": RunSpec(
        algorithm={"name": "fedasync", "rho": 0.1, "weight": "polynomial", "concurrency": 6},
        **{**SMALL, "model": "lenet5", "budget": {"updates": 10}},
    ),
    "fedasync-sampled": RunSpec(algorithm="fedasync", **{**SMALL, "world": {"devices": 12, "max_staleness": 4}}),
    "fedavg": RunSpec(algorithm={"name": "fedavg", "clients_per_round": 4}, **{**SMALL, "budget": {"updates": 6}}),
    "sgd": RunSpec(algorithm={"name": "sgd", "block": 3}, **SMALL),
}


def digest(history: History) -> str:
    content = json.dumps(history.to_dict()).encode() + history.model.numpy().tobytes()
    return hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize("name", SPECS)
def test_same_seed_same_history_bit_for_bit_with_any_number_of_threads(name):
    spec = SPECS[name]
    reference = spec.simulation(trace=True).run("sequential")
    assert digest(spec.simulation(trace=True).run("sequential")) == digest(reference)
    for threads in (1, 3):
        assert spec.simulation(trace=True).run("threads", threads) == reference
    assert spec.changed(seed=1).simulation(trace=True).run() != reference


def test_numbers_do_not_depend_on_how_far_workers_run_ahead(monkeypatch):
    spec = SPECS["fedasync"]
    reference = spec.simulation().run("sequential")
    monkeypatch.setattr("fl_core.runtime.executors.RESULT_BYTES", 0)  # two models per thread at most
    assert spec.simulation().run("threads", 2) == reference


def test_work_ahead_is_bounded():
    executor = Threads(alike(50), 2)
    executor._window = 4

    class Job:
        def run(self, workspace):
            return threads_state.append(1)

    threads_state: list[int] = []
    with executor:
        tickets = [executor.submit(Job(), float(due)) for due in range(50)]
        deadline = time.monotonic() + 5
        while len(threads_state) < 4 and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.05)  # nothing more may start
        assert len(threads_state) == 4
        for ticket in reversed(tickets):  # the latest due first: every one is demanded before its turn
            executor.result(ticket)
    assert len(threads_state) == 50


def quadratic_run(algorithm: Algorithm, devices: int = 3, updates: int = 20, executor: str = "sequential"):
    world = World(devices=devices, compute=ConstantCompute())
    return simulate(algorithm, world, updates=updates, executor=executor).history


def test_a_model_in_use_does_not_follow_the_server():
    """Public code that lets devices share storage with the server has almost no staleness in fact."""
    received = []

    class Watching(FedAsync):
        async def device(self, device):
            snapshot = await device.download()
            before = snapshot.model.clone()
            trained = await device.train(snapshot.model)
            received.append((before, snapshot.model))
            await device.upload(model=trained.model, based_on=snapshot)

    quadratic_run(Watching(concurrency=3))
    assert all(torch.equal(before, after) for before, after in received)
    assert len({float(before) for before, _ in received}) > 5


@pytest.mark.parametrize("executor", ["sequential", "threads"])
def test_a_failing_local_job_is_named_with_time_and_cause(executor):
    class WrongSize(FedAsync):
        async def device(self, device):
            await device.train(torch.zeros(7, dtype=torch.float64))

    with pytest.raises(RunError, match=r"^device 0 failed at t = 1 s: RuntimeError: .*shape"):
        quadratic_run(WrongSize(concurrency=3), executor=executor)


def test_an_unknown_device_cannot_be_triggered_for_a_fixed_time_either():
    class Elsewhere(FedAsync):
        async def scheduler(self, server):
            server.dispatch([77], seconds=1.0)

    with pytest.raises(RunError, match=r"cannot trigger device 77 at t = 0 s: it does not exist \(0..2\)"):
        quadratic_run(Elsewhere())


@pytest.mark.parametrize("weight", [np.float32(0.5), np.array(0.5), torch.tensor(0.5), [0.5], np.array([0.5])])
def test_a_weight_may_be_any_number(weight):
    class Weighted(FedAsync):
        async def updater(self, server):
            [upload] = await server.receive()
            server.commit(upload.model + 0, weight=weight)

    assert quadratic_run(Weighted(concurrency=1), updates=2).updates["weight"] == [0.5, 0.5]


def test_what_was_sent_does_not_follow_what_the_device_keeps():
    """One device counts its tasks in place; three uploads wait at a time."""
    received = []

    class Counting(FedAsync):
        async def device(self, device):
            snapshot = await device.download()
            count = device.state.setdefault("count", torch.zeros_like(snapshot.model))
            count += 1
            await device.train(snapshot.model)
            await device.upload(delta=count, based_on=snapshot)

        async def updater(self, server):
            uploads = await server.receive(3)
            received.append([float(upload.delta) for upload in uploads])
            server.commit(server.model + 0)

    quadratic_run(Counting(concurrency=1), devices=1, updates=2)
    assert received == [[1, 2, 3], [4, 5, 6]]


@pytest.mark.parametrize(("samples", "size", "steps"), [(600, 50, 12), (7, 3, 10), (5, 8, 3), (1, 1, 4)])
def test_every_epoch_visits_every_sample_once(samples, size, steps):
    drawn = list(batches(samples, size, steps, stream(0, "test")))
    assert len(drawn) == steps
    per_epoch = -(-samples // size)
    for first in range(0, steps - per_epoch + 1, per_epoch):
        epoch = np.concatenate(drawn[first : first + per_epoch])
        assert sorted(epoch) == list(range(samples))


def test_streams_depend_on_their_name_alone():
    assert stream(1, "a", 2).integers(10**9) == stream(1, "a", 2).integers(10**9)
    names = [(1, "a", 2), (1, "a", 3), (2, "a", 2), (1, "b", 2), (1, "a"), (1, "a", 2, 0)]
    assert len({int(stream(*name).integers(10**18)) for name in names}) == len(names)


def test_a_diverged_history_survives_json():
    history = History()
    append(history.evaluations, version=1, test_loss=float("inf"), train_loss=float("nan"))
    text = json.dumps(history.to_dict(), allow_nan=False)
    assert History.from_dict(json.loads(text)).to_dict() == history.to_dict()
    assert History.from_dict(json.loads(text)).evaluations["test_loss"] == [float("inf")]


def test_what_a_task_used_is_free_as_soon_as_it_ends_without_garbage_collection():
    """A cycle through a finished task would keep its base version alive: megabytes for each update."""
    run = simulation(FedAsync(concurrency=3), World(devices=3, compute=ConstantCompute()), updates=40)
    gc.collect()
    gc.disable()
    try:
        run.run()
        alive = [o for o in gc.get_objects() if type(o) is DeviceHandle and o._run is run]
    finally:
        gc.enable()
    assert len(alive) == run.outcomes()["in_flight"] == 2


def test_a_device_without_training_samples_is_named():
    spec = RunSpec(
        algorithm={"name": "fedasync", "concurrency": 300}, model="linear", world={"devices": 300},
        partition={"kind": "dirichlet", "alpha": 0.01, "min_samples": 0}, training={"steps": 1},
        budget={"updates": 300},
    )  # fmt: skip
    with pytest.raises(RunError, match=r"device \d+ has no training samples; choose a partition that gives"):
        spec.simulation().run()
