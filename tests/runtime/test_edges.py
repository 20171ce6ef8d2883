"""Where clocks round, devices leave, times are drawn for each task, or a program works with numbers of NumPy."""

from __future__ import annotations

import json
from typing import Any, Literal

import numpy as np
import pytest
import runs
import torch

from fl_core.algorithms import Algorithm, FedAsync, make_algorithm
from fl_core.errors import SpecError
from fl_core.experiments.run import Result
from fl_core.experiments.spec import RunSpec
from fl_core.experiments.store import encode
from fl_core.runtime import Simulation
from fl_core.tasks import Quadratic
from fl_core.world import World
from fl_core.world.compute import Compute

PER_TASK = {"kind": "uniform_per_task", "fastest": 4.0, "slowest": 6.0}
PERIODIC = {"kind": "periodic", "period_seconds": 10.0, "available": 0.5}


def simulation(
    algorithm: str | Algorithm, devices: int, world: dict[str, Any], budget: dict[str, Any], every: int | None = None,
    **parameters: Any,
) -> Simulation:  # fmt: skip
    rng = np.random.default_rng(0)
    task = Quadratic(rng.uniform(0.5, 1.5, (devices, 8)), rng.normal(size=(devices, 8)), np.zeros(8))
    chosen = make_algorithm(algorithm, **parameters) if isinstance(algorithm, str) else algorithm
    return runs.simulation(chosen, World(devices=devices, **world), task, **budget, every_updates=every)


def test_a_transfer_ends_though_what_is_left_takes_less_than_the_clock_can_tell():
    """At t = 1e5 s one ulp is 1e-11 s; a link of 100 Mb/s was asked again and again for ever."""
    slow = {"kind": "uniform", "fastest": 3e4, "slowest": 1e5}
    links = {"server_up_bits_per_second": 1e8, "server_down_bits_per_second": 1e8}
    run = simulation("fedasync", 4, {"compute": slow, "network": links}, {"updates": 30}, concurrency=4)
    assert run.run().ended == "budget"
    assert run.kernel.events < 200


def test_a_transfer_that_ends_within_the_tolerance_of_a_tick_is_asked_once():
    """Tick and link called each other for ever, where no watchdog looks; it is the next tick's."""
    world = {
        "compute": {"kind": "constant", "seconds_per_step": 0.9000000005},
        "network": {"server_up_bits_per_second": 8 * 64 / 0.1},
    }
    run = simulation("fedper", 1, world, {"updates": 5}, period_seconds=1.0, compressor="identity")
    assert run.run().updates["seconds"] == [2, 4]
    assert (run.version, run.kernel.events) == (5, 15)


@pytest.mark.parametrize(("period", "rounds"), [(1.5, 3), (1.1, 3), (0.1, 3), (1.2, 1000)])
def test_the_period_that_ends_with_the_budget_is_not_lost_by_rounding(period, rounds):
    """3 times 1.1 is more than 3.3 in floating point."""
    world = {"compute": {"kind": "constant", "seconds_per_step": period / 3}}
    run = simulation("fedper", 2, world, {"seconds": float(f"{period * rounds:.6g}")}, period_seconds=period)
    assert run.run().evaluations["version"][-1] == rounds


def test_drawn_staleness_is_as_uniform_where_devices_come_and_go():
    shares = []
    for world in ({}, {"availability": PERIODIC}):
        run = simulation("fedasync", 6, {"max_staleness": 4, **world}, {"updates": 400})
        shares.append(np.bincount(run.run().updates["staleness"][4:], minlength=4).tolist())
    assert shares[0] == shares[1]


def test_a_device_that_leaves_during_the_handover_is_triggered_when_it_is_back():
    world = {"compute": {"kind": "uniform", "fastest": 0.1, "slowest": 0.4}, "availability": PERIODIC}
    run = simulation("fedper", 6, world, {"seconds": 60.0}, period_seconds=1.5, handover_seconds=0.3)
    assert run.run().ended == "budget"
    assert run.version == 40


@pytest.mark.parametrize("compute", [PER_TASK, {"kind": "exponential", "mean": 5.0}])
def test_what_is_drawn_for_each_task_is_declared_by_its_mean(compute):
    """FedLuck planned 36 local steps instead of 7, as if a step took a second."""
    plans = {}
    for name, each in (("constant", {"kind": "constant", "seconds_per_step": 5.0}), ("drawn", compute)):
        world = {"compute": each, "network": {"up_bits_per_second": 25.6}}
        run = simulation("fedluck", 4, world, {"seconds": 90.0}, period_seconds=30.0)
        plans[name] = run.run().learned["steps"]
        assert run.devices.seconds.tolist() == [5.0] * 4
        assert run.devices.profile(1, None).seconds_per_step == 5.0
    assert plans["drawn"][:3] == plans["constant"][:3]


def test_a_world_whose_draw_is_no_array_of_times_is_refused():
    class Odd(Compute):
        kind: Literal["odd"] = "odd"

        def draw(self, count: int, rng: np.random.Generator) -> Any:
            return np.full(count - 1, -1.0)

    try:
        with pytest.raises(SpecError, match=r"compute: Odd.draw has to return an array of 3 numbers >= 0"):
            World(devices=3, compute={"kind": "odd"}).realise(0)
    finally:
        del Compute.kinds["odd"]


def test_evaluations_that_nobody_asks_for_do_not_pile_up():
    """Each held a model: 100 of them took 1.5 GB with a network of 7.6 MB."""
    run, most = simulation("fedasync", 3, {}, {"updates": 20}, every=1, concurrency=2), []
    run.run("sequential", None, lambda used: most.append(len(run.measurements._tickets)))
    assert max(most) <= 2
    assert run.history.evaluations["version"] == [*range(21)]
    assert run.measurements._tickets == []


class Drawing(FedAsync):
    async def updater(self, server):
        [upload] = await server.receive()
        server.log(moved=(upload.model - server.model).abs().mean(), most=np.float32(1.5))
        server.commit(torch.lerp(server.model, upload.model, 0.5), weight=np.float64(0.5))

    async def device(self, device):
        snapshot = await device.download()
        trained = await device.train(snapshot.model, steps=device.rng.integers(1, 4))
        await device.upload(model=trained.model, based_on=snapshot)


def test_numbers_of_numpy_and_torch_can_be_stored():
    history = simulation(Drawing(concurrency=2), 3, {}, {"updates": 6}).run()
    assert set(history.updates["steps"]) <= {1, 2, 3}
    result = Result(RunSpec(algorithm="fedasync"), history, {})
    assert json.loads(json.dumps(result.history.to_dict()))["learned"]["most"] == [1.5] * 6
    assert encode(result)
