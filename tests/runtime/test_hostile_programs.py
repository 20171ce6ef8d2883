"""Hostile programs, a few lines each: those that cannot end, fail, or break the rules are answered with one line.

Each runs plainly and sanitized. Those that end have the same history with and without the sanitizer, unless that
refuses them; none goes on for ever.
"""

from __future__ import annotations

import random
import re
import time
from typing import Any

import numpy as np
import pytest
import runs
import torch

from fl_core.algorithms import Algorithm
from fl_core.errors import RunError
from fl_core.runtime import History, kernel, simulation, watchdog
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
    return runs.simulate(cls(), World(**settings), task, **budget, **run).history


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the bounds of these runs small; what a bound says does not depend on its size."""
    monkeypatch.setattr(watchdog, "WINDOW", 200)
    monkeypatch.setattr(watchdog, "MOST_FAILED", 100)
    monkeypatch.setattr(watchdog, "PATIENCE_SECONDS", 0.4)
    monkeypatch.setattr(watchdog, "MOST_CALLS", 400)
    monkeypatch.setattr(watchdog, "MOST_UPLOADS", 4)
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
    (loops_updater, VERSIONS, "the updater of fair has computed for more than 0.4 s at t = 0 s"),
    (loops_scheduler, VERSIONS, "the scheduler of fair has computed for more than 0.4 s"),
    (swallows_updater, VERSIONS, "has computed for more than 0.4 s"),
    (never_uploads_device, VERSIONS, "devices work and never upload"),
    (looks_forever_device, VERSIONS, "devices work and never upload"),
    (spins_device, VERSIONS, "device 0 has computed for more than"),
]


async def commits_nothing_updater(self, server):
    await server.receive()
    server.commit(None)


async def commits_another_shape_updater(self, server):
    await server.receive()
    server.commit(server.model[:1])


async def commits_another_type_updater(self, server):
    [upload] = await server.receive()
    server.commit(upload.model.float())


async def changes_in_place_updater(self, server):
    [upload] = await server.receive()
    server.model.add_(upload.model)
    server.commit(server.model)


async def divides_by_zero_updater(self, server):
    await server.receive()
    server.commit(server.model / (1 // 0))


async def wants_what_was_not_sent_updater(self, server):
    [upload] = await server.receive()
    server.commit(upload.gradient)


async def wants_no_upload_updater(self, server):
    await server.receive(0)


async def discards_twice_updater(self, server):
    [upload] = await server.receive()
    server.discard(upload)
    server.discard(upload)


async def logs_too_many_weights_updater(self, server):
    [upload] = await server.receive()
    server.commit(upload.model.clone(), weight=[1.0, 2.0])


async def logs_a_list_updater(self, server):
    [upload] = await server.receive()
    server.log(norms=np.ones(2))
    server.commit(upload.model.clone())


async def logs_another_version_updater(self, server):
    await server.receive()
    server.log(version=7)


async def waits_for_the_past_updater(self, server):
    await server.receive(until=float("nan"))


async def waits_for_ever_updater(self, server):
    await server.sleep(float("inf"))


async def awaits_something_else_updater(self, server):
    import asyncio

    await asyncio.sleep(0)


async def triggers_a_stranger_scheduler(self, server):
    await server.idle_changed()
    server.dispatch([99])


async def triggers_twice_scheduler(self, server):
    await server.idle_changed()
    server.dispatch([0, 0])


async def steals_uploads_scheduler(self, server):
    server.dispatch(list(server.idle))
    await server.receive()


async def never_triggers_scheduler(self, server):
    await server.sleep(1e9)


async def recurses_scheduler(self, server):
    await type(self).scheduler(self, server)


def plain_updater(self, server):
    return None


async def yields_updater(self, server):
    yield await server.receive()


async def uploads_twice_device(self, device):
    snapshot = await device.download()
    for _ in range(2):
        await device.upload(model=snapshot.model.clone(), based_on=snapshot)


async def uploads_a_wrong_length_device(self, device):
    snapshot = await device.download()
    await device.upload(model=snapshot.model[:1], based_on=snapshot)


async def uploads_nan_device(self, device):
    snapshot = await device.download()
    await device.upload(model=snapshot.model * float("nan"), based_on=snapshot)


async def sends_negative_bytes_device(self, device):
    snapshot = await device.download()
    await device.upload(model=snapshot.model, based_on=snapshot, bytes_up=-1)


async def receives_negative_bytes_device(self, device):
    await device.download(bytes_down=-5)


async def uploads_its_loss_device(self, device):
    snapshot = await device.download()
    await device.upload(model=snapshot.model.clone(), loss=0.5, based_on=snapshot)


async def trains_nothing_device(self, device):
    snapshot = await device.download()
    await device.train(snapshot.model, steps=0)


async def trains_for_no_time_device(self, device):
    snapshot = await device.download()
    await device.train(snapshot.model, cost=float("nan"))


async def asks_nobody_device(self, device):
    await device.ask("why?")


async def waits_like_a_server_device(self, device):
    await device._server.receive()


async def fails_device(self, device):
    await device.download()
    raise LookupError("no such luck")


async def exits_device(self, device):
    await device.download()
    raise SystemExit("done")


class Sour:
    """An objective that fails."""

    def gradient(self, parameters, start):
        raise ArithmeticError("no gradient")


async def has_a_bad_objective_device(self, device):
    snapshot = await device.download()
    await device.train(snapshot.model, objective=Sour())


FAILING = [
    (commits_nothing_updater, "the new model must be like the old one"),
    (commits_another_shape_updater, r"the new model must be like the old one, torch.float64 \[2\], not"),
    (commits_another_type_updater, "the new model must be like the old one"),
    (changes_in_place_updater, "changed in place|has changed the global model"),
    (divides_by_zero_updater, "the updater of fair failed at t = .* s: ZeroDivisionError"),
    (wants_what_was_not_sent_updater, "has no 'gradient'; it has"),
    (wants_no_upload_updater, r"receive\(count=0\) is not valid"),
    (discards_twice_updater, "it was discarded or committed already"),
    (logs_too_many_weights_updater, "2 weights for 1 uploads"),
    (logs_a_list_updater, r"log\(norms=\[1.0, 1.0\]\) keeps a number, under a name other than seconds, version"),
    (logs_another_version_updater, r"log\(version=7\) keeps a number, under a name other than seconds, version"),
    (waits_for_the_past_updater, "not a number|nan|cannot schedule"),
    (waits_for_ever_updater, "nothing is left|the updater made no version|waits for t = inf"),
    (awaits_something_else_updater, "the updater made no version"),
    (triggers_a_stranger_scheduler, "cannot trigger device 99 .*: it does not exist"),
    (triggers_twice_scheduler, "cannot trigger device 0 .*: it is already working"),
    (steals_uploads_scheduler, "both wait for uploads"),
    (never_triggers_scheduler, "nothing is left to happen|has brought|have brought"),
    (recurses_scheduler, "RecursionError"),
    (plain_updater, "the updater of fair gives a NoneType: it is to be written with async def"),
    (yields_updater, "the updater of fair gives a async_generator"),
    (uploads_twice_device, "a task sends one upload; this is its second"),
    (sends_negative_bytes_device, "bytes_up = -1 is not valid"),
    (receives_negative_bytes_device, "bytes_down = -5 is not valid: it should be a number >= 0"),
    (uploads_its_loss_device, "device 0 cannot upload loss=: every upload has that of its own"),
    (trains_nothing_device, "cannot train for 0 steps"),
    (trains_for_no_time_device, r"device 0 cannot train at cost = nan: it should be a number >= 0"),
    (asks_nobody_device, "must define answer"),
    (waits_like_a_server_device, "only the scheduler and the updater may wait"),
    (fails_device, "device 0 failed at t = 0 s: LookupError: no such luck"),
    (exits_device, "device 0 failed at t = 0 s: SystemExit: done"),
    (has_a_bad_objective_device, "ArithmeticError: no gradient"),
]


async def overwrites_through_data_updater(self, server):
    await server.receive()
    server.model.data.mul_(0.9)
    server.commit(server.model.clone())


async def overwrites_through_numpy_updater(self, server):
    [upload] = await server.receive()
    server.model.numpy()[:] = 0.0
    server.commit(upload.model.clone())


async def overwrites_an_upload_updater(self, server):
    uploads = await server.receive(2)
    uploads[0].model.data.add_(uploads[1].model)
    server.commit(uploads[0].model.clone())


async def commits_infinity_updater(self, server):
    [upload] = await server.receive()
    server.commit(upload.model / 0.0)


async def draws_with_torch_updater(self, server):
    [upload] = await server.receive()
    server.commit(upload.model + 0 * torch.rand(2))


async def draws_with_numpy_updater(self, server):
    [upload] = await server.receive()
    server.commit(upload.model * float(np.random.rand() > -1))


async def shuffles_scheduler(self, server):
    random.shuffle([1, 2, 3])
    await server.keep_busy(4)


async def overwrites_its_model_device(self, device):
    snapshot = await device.download()
    snapshot.model.numpy()[0] += 1.0
    await device.upload(model=snapshot.model.clone(), based_on=snapshot)


async def overwrites_what_it_sent_device(self, device):
    snapshot = await device.download()
    trained = await device.train(snapshot.model)
    await device.upload(model=trained.model, based_on=snapshot)
    trained.model.data.zero_()


async def overwrites_an_array_device(self, device):
    snapshot = await device.download()
    mine = np.zeros(2)
    await device.upload(model=snapshot.model.clone(), extra=mine, based_on=snapshot)
    mine[0] = 1.0


async def draws_from_the_global_device(self, device):
    snapshot = await device.download()
    np.random.rand()
    await device.upload(model=snapshot.model.clone(), based_on=snapshot)


class Noisy:
    """An objective that draws its own noise."""

    def gradient(self, parameters, start):
        return 0 * torch.randn(len(parameters))


class Pulling:
    """An objective that changes the anchor that all share."""

    def gradient(self, parameters, start):
        start.data.mul_(0.99)
        return parameters - start


def trains_with(objective: Any) -> Any:
    async def trains_device(self, device):
        snapshot = await device.download()
        trained = await device.train(snapshot.model, objective=objective)
        await device.upload(model=trained.model, based_on=snapshot)

    return trains_device


FORBIDDEN = [
    (overwrites_through_data_updater, "the updater of fair has changed the global model of version 0 in place"),
    (overwrites_through_numpy_updater, "the updater of fair has changed the global model of version 0 in place"),
    (overwrites_an_upload_updater, "the updater of fair has changed the upload of device . .model. in place"),
    (commits_infinity_updater, "has committed the global model of version 1, which is not finite"),
    (draws_with_torch_updater, "the updater of fair has drawn from the global random generator of torch"),
    (draws_with_numpy_updater, "the updater of fair has drawn from the global random generator of numpy"),
    (shuffles_scheduler, "the scheduler of fair has drawn from the global random generator of random"),
    (overwrites_its_model_device, "device 0 has changed the .*model of version 0 in place"),
    (overwrites_what_it_sent_device, "device . has changed the upload of device . .model. in place"),
    (overwrites_an_array_device, "device . has changed the upload of device . .extra. in place"),
    (draws_from_the_global_device, "device 0 has drawn from the global random generator of numpy"),
    (trains_with(Noisy()), r"local work, TrainJob\(device=0, .*lr=0.03\), has drawn from"),
    (trains_with(Pulling()), "has changed the model that it began with"),
]


def stays_honest(server: Any) -> None:
    """Do nothing that changes a run."""
    server.state["seen"] = server.state.get("seen", 0) + 1


async def keeps_count_updater(self, server):
    [upload] = await server.receive()
    stays_honest(server)
    server.commit(torch.lerp(server.model, upload.model, 1 / (1 + upload.staleness)), weight=0.5)


async def rounds_scheduler(self, server):
    await server.new_version()
    server.dispatch(list(server.idle))


async def draws_its_own_device(self, device):
    snapshot = await device.download()
    noise = torch.from_numpy(device.rng.normal(size=2))
    await device.upload(model=snapshot.model * 0.9 + 0.01 * noise, based_on=snapshot)


async def gives_up_sometimes_device(self, device):
    snapshot = await device.download()
    trained = await device.train(snapshot.model, steps=1 + device.trigger % 3)
    if (device.id + device.trigger) % 3:
        await device.upload(model=trained.model, based_on=snapshot)


async def sends_much_device(self, device):
    snapshot = await device.download()
    await device.upload(model=snapshot.model * 0.5, table={"a": [1, 2]}, text="x", based_on=snapshot, bytes_up=10.5)


HONEST = [
    Fair, keeps_count_updater, rounds_scheduler, draws_its_own_device, gives_up_sometimes_device, sends_much_device,
    uploads_nan_device, uploads_a_wrong_length_device, returns_at_once_device,
]  # fmt: skip
EXECUTORS = ["sequential", "debug"]


def names(cases: list[Any]) -> list[str]:
    return [(case[0] if isinstance(case, tuple) else case).__name__ for case in cases]


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize(("program", "budget", "says"), ENDLESS, ids=names(ENDLESS))
def test_a_run_that_cannot_end_says_why(program, budget, says, executor):
    with pytest.raises(RunError) as caught:
        simulate(program, budget, executor=executor)
    assert re.search(says, str(caught.value)), str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.filterwarnings("ignore:coroutine:RuntimeWarning")
@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize(("program", "says"), FAILING, ids=names(FAILING))
def test_a_program_that_fails_is_answered_with_one_line(program, says, executor):
    with pytest.raises(RunError) as caught:
        simulate(program, VERSIONS, executor=executor)
    assert re.search(says, str(caught.value)), str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("program", "says"), FORBIDDEN, ids=names(FORBIDDEN))
def test_a_program_that_breaks_a_rule_is_named_by_the_sanitizer(program, says):
    with pytest.raises(RunError) as caught:
        simulate(program, VERSIONS, executor="debug")
    assert re.search(says, str(caught.value)), str(caught.value)
    assert re.search(r"version \d+.*\)$", str(caught.value)), "versions and arguments"


@pytest.mark.parametrize("program", HONEST, ids=names(HONEST))
def test_the_sanitizer_changes_no_bit(program):
    assert simulate(program, VERSIONS, executor="debug") == simulate(program, VERSIONS)


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


def test_a_step_costs_the_sanitizer_no_more_however_many_devices_hold_a_model(monkeypatch):
    class Crowd(Fair):
        async def scheduler(self, server):
            await server.keep_busy(300)

    looked = []
    monkeypatch.setattr(watchdog, "digest", lambda value: looked.append(value) or b"")
    run = runs.simulate(Crowd(), World(devices=300, compute=ConstantCompute()), updates=2, executor="debug")
    assert len(looked) < 3 * watchdog.MOST_UPLOADS * run.kernel.events, "and not 300 an event"


def test_nothing_holds_a_run_that_has_ended(monkeypatch):
    """The watchdog's thread did, on a busy machine: a worker kept the 40 MB of a run that it had given back."""
    ended, end = [], watchdog.Watchdog._time
    monkeypatch.setattr(watchdog.Watchdog, "_time", lambda *args: (end(*args), time.sleep(0.1), ended.append(1)))
    simulate(Fair, VERSIONS)
    assert ended == [1]


def test_failures_of_all_servers_together_end_a_run():
    """Six servers that all diverge do not go on until one of them alone has had as many failures."""
    world = World(devices=30, clusters={"servers": 6}, faults=[{"kind": "lost", "probability": 1.0}])
    history = runs.simulate(Fair(), world, updates=5).history
    assert history.ended == "lost"
    assert history.outcomes["lost"] == watchdog.MOST_FAILED


def test_a_program_that_gets_on_slowly_is_left_alone():
    """Each brings nothing for several looks, one every 600 events."""

    class Patient(Fair):
        async def updater(self, server):
            uploads = await server.receive(500)
            server.commit(uploads[-1].model)

    class Nightly(Fair):
        async def updater(self, server):
            uploads = await server.receive(until=server.now + 300)
            server.commit(uploads[-1].model)

    class Diligent(Fair):
        async def device(self, device):
            snapshot = await device.download()
            for _ in range(150):
                trained = await device.train(snapshot.model, steps=1)
                await device.loss(trained.model)
            await device.upload(model=trained.model, based_on=snapshot)

    for cls in (Patient, Nightly, Diligent):
        assert simulate(cls, {"updates": 3}).ended == "budget", cls
