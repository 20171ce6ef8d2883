"""Programs that cannot end, or that break the rules: a line that says why, and never a run that goes on for ever."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from fl_core.algorithms import Algorithm
from fl_core.errors import RunError
from fl_core.runtime import Budget, History, Simulation, kernel, simulation, watchdog
from fl_core.tasks import Quadratic
from fl_core.world import ConstantCompute, World


class Fair(Algorithm):
    """What every program here would be without its fault: FedAsync on four devices."""

    name = "fair"

    async def scheduler(self, server):
        await server.keep_busy(4)

    async def updater(self, server):
        [upload] = await server.receive()
        server.commit(torch.lerp(server.model, upload.model, 0.5))


def simulate(program: Any, budget: dict[str, Any], world: dict[str, Any] | None = None, **run: Any) -> History:
    """Run `program`, a class or one method of :class:`Fair`, on four quadratics."""
    name = program.__name__
    cls = program if isinstance(program, type) else type("Faulty", (Fair,), {name.rpartition("_")[2]: program})
    task = Quadratic([[1.0, 2.0]] * 4, [[0.0, 1.0], [2.0, 0.0], [1.0, 1.0], [0.0, 0.0]], [3.0, 3.0])
    settings = {"devices": 4, "compute": ConstantCompute()} | (world or {})
    return Simulation(task, World(**settings), cls(), budget=Budget(**budget)).run(**run)


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the bounds of these runs small; what a bound says does not depend on its size."""
    monkeypatch.setattr(watchdog, "WINDOW", 5_000)
    monkeypatch.setattr(watchdog, "PATIENCE_SECONDS", 1.0)
    monkeypatch.setattr(watchdog, "MOST_CALLS", 1_000)
    for module in (kernel, simulation):
        monkeypatch.setattr(module, "MOST_AT_ONCE", 1 << 12)


VERSIONS, TIME = {"updates": 50}, {"seconds": 100.0}


async def never_commits_updater(self, server):
    await server.receive()


async def never_receives_updater(self, server):
    await server.sleep(1.0)


async def returns_at_once_updater(self, server):
    pass


async def discards_all_updater(self, server):
    [upload] = await server.receive()
    server.discard(upload)


async def polls_updater(self, server):
    await server.sleep(1e-9)


async def sleeps_not_updater(self, server):
    await server.sleep(0.0)


async def sleeps_below_precision_updater(self, server):
    await server.sleep(1e-20)


async def commits_by_the_clock_updater(self, server):
    await server.sleep(1e-9)
    server.commit(server.model.clone())


async def takes_from_nobody_updater(self, server):
    await server.receive(from_=[])


async def meets_itself_updater(self, server):
    await server.meet(1)


async def commits_on_its_commits_updater(self, server):
    await server.new_version()
    server.commit(server.model.clone())


async def commits_without_end_updater(self, server):
    while True:
        server.commit(server.model.clone())


async def loops_updater(self, server):
    while True:
        pass


async def loops_scheduler(self, server):
    await server.idle_changed()
    while server.now < 10:
        pass


async def swallows_updater(self, server):
    while True:
        try:
            server.commit(None)
        except Exception:
            continue


async def never_uploads_device(self, device):
    snapshot = await device.download()
    while True:
        await device.train(snapshot.model)


async def looks_forever_device(self, device):
    snapshot = await device.download()
    while True:
        await device.loss(snapshot.model)


async def spins_device(self, device):
    while True:
        device.rng  # noqa: B018


async def returns_at_once_device(self, device):
    pass


ENDLESS = [
    (never_commits_updater, VERSIONS, r"of \S+ uploads the updater made no version \(\S+ wait\)"),
    (never_receives_updater, VERSIONS, r"of \S+ uploads the updater made no version"),
    (returns_at_once_updater, VERSIONS, "it is over, as it returned without waiting"),
    (discards_all_updater, VERSIONS, "the updater made no version"),
    (polls_updater, TIME, "server programs wake, and nothing follows"),
    (sleeps_not_updater, VERSIONS, "have brought it no nearer"),
    (sleeps_below_precision_updater, VERSIONS, "have brought it no nearer"),
    (commits_by_the_clock_updater, TIME, r"\S+ versions were made without any upload"),
    (takes_from_nobody_updater, VERSIONS, "what it waits for is there already"),
    (meets_itself_updater, VERSIONS, "what it waits for is there already|has computed for more than"),
    (commits_on_its_commits_updater, TIME, "what it waits for is there already"),
    (commits_without_end_updater, TIME, "what it waits for is there already"),
    (loops_updater, VERSIONS, "the updater of fair has computed for more than 1 s at t = 0 s"),
    (loops_scheduler, VERSIONS, "the scheduler of fair has computed for more than 1 s"),
    (swallows_updater, VERSIONS, "has computed for more than 1 s"),
    (never_uploads_device, VERSIONS, "devices work and never upload"),
    (looks_forever_device, VERSIONS, "devices work and never upload"),
    (spins_device, VERSIONS, "device 0 has computed for more than"),
]


@pytest.mark.parametrize(("program", "budget", "says"), ENDLESS, ids=[case[0].__name__ for case in ENDLESS])
def test_a_run_that_cannot_end_says_why(program, budget, says):
    with pytest.raises(RunError) as caught:
        simulate(program, budget)
    assert re.search(says, str(caught.value)), str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("program", "world", "ended"),
    [
        (returns_at_once_device, {}, "lost"),
        (Fair, {"faults": [{"kind": "lost", "probability": 1.0}]}, "lost"),
        (Fair, {"faults": [{"kind": "corrupted", "probability": 1.0}]}, "rejected"),
    ],
)
def test_nothing_usable_any_more_ends_a_run_early(program, world, ended):
    assert simulate(program, VERSIONS, world).ended == ended


def test_failures_of_all_servers_together_end_a_run():
    """Six servers that all diverge do not go on until one of them alone has had a thousand failures."""
    task = Quadratic([[1.0]] * 30, [[0.0]] * 30, [1.0])
    world = World(devices=30, clusters={"servers": 6}, faults=[{"kind": "lost", "probability": 1.0}])
    history = Simulation(task, world, Fair(), budget=Budget(updates=5)).run()
    assert history.ended == "lost"
    assert history.outcomes["lost"] == watchdog.MOST_FAILED


def test_a_program_that_gets_on_slowly_is_left_alone():
    class Patient(Fair):
        async def updater(self, server):
            uploads = await server.receive(6_000)
            server.commit(uploads[-1].model)

    class Nightly(Fair):
        async def updater(self, server):
            uploads = await server.receive(until=server.now + 5_000)
            server.commit(uploads[-1].model)

    class Diligent(Fair):
        async def device(self, device):
            snapshot = await device.download()
            for _ in range(900):
                trained = await device.train(snapshot.model, steps=1)
            for _ in range(900):
                await device.loss(trained.model)
            await device.upload(model=trained.model, based_on=snapshot)

    for cls in (Patient, Nightly, Diligent):
        assert simulate(cls, {"updates": 3}).ended == "budget", cls
