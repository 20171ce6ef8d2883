"""What goes wrong, on timelines that are worked out by hand; nothing hangs, and every task is accounted for."""

from __future__ import annotations

import inspect
import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

import numpy as np
import pytest
import runs
import torch
from commands import TINY, call
from runs import rows

from fl_core.algorithms import Algorithm, FedAsync, FedAvg
from fl_core.errors import RunError
from fl_core.experiments.spec import RunSpec
from fl_core.runtime import Simulation, watchdog
from fl_core.runtime.history import History
from fl_core.tasks import Quadratic
from fl_core.world import FAULTS, ConstantCompute, Network, World
from fl_core.world.faults import Fault, Interruption, Message
from fl_core.world.triggers import TRIGGERS, BlockedRounds, Contributors, Timed, Trigger

ALWAYS = 1.0


def simulate(algorithm: Algorithm, world: World, **settings: Any) -> tuple[Simulation, History]:
    task = Quadratic([[1.0, 1.0]] * world.devices, [[0.0, 0.0]] * world.devices, [1.0, 2.0])
    run = runs.simulate(algorithm, world, task, **{"lr": 0.5, "steps": 1, **settings})
    check_conservation(run.history)
    return run, run.history


def check_conservation(history: History) -> None:
    outcomes = history.outcomes
    ended = sum(outcomes[name] for name in ("applied", "discarded", "rejected", "lost", "in_flight"))
    assert outcomes["dispatched"] == ended, outcomes
    assert outcomes["applied"] == len(history.updates["version"])


def world(*faults: dict[str, Any], seconds: tuple[float, ...] = (2.0,), **fields: Any) -> World:
    return runs.fixed(*seconds, faults=faults, **fields)


def faults(history: History) -> list[tuple[float, int, int, str]]:
    return list(zip(*(history.faults[c] for c in ("seconds", "device", "task", "fault")), strict=True))


def outcomes(history: History) -> dict[str, int]:
    return {name: count for name, count in history.outcomes.items() if count}


class Replace(FedAsync):
    """The last arrival is the model; one device after the other."""

    alpha: float = 1.0
    concurrency: int = 1


class Ask(Algorithm):
    """Devices train, ask for a fresh model, and train again; every arrival makes a version."""

    async def scheduler(self, server):
        await server.keep_busy(len(server.devices))

    async def updater(self, server):
        await server.receive()
        server.commit(server.model + 0)

    async def device(self, device):
        first = await device.download()
        await device.train(first.model)
        fresh = await device.download()
        device.state.setdefault("answers", []).append((device.now, fresh.version))
        trained = await device.train(fresh.model)
        await device.upload(model=trained.model, based_on=first)


class Hold(Algorithm):
    """Versions from K uploads, whose devices wait for it."""

    count: int = 2

    async def scheduler(self, server):
        await Contributors().turn(server)

    async def updater(self, server):
        uploads = await server.receive(self.count)
        server.commit(torch.stack([upload.model for upload in uploads]).mean(0))


class Busy(Hold):
    """The same, but nobody waits for it."""

    async def scheduler(self, server):
        await server.keep_busy(len(server.devices))


class Absent(Fault):
    """The device crashes after half a second of work and recovers two seconds after it began."""

    kind: Literal["absent"] = "absent"
    probability: float = 1.0

    def interrupt(self, seconds: float, rng: np.random.Generator) -> Interruption:
        return Interruption(0.5, 1.5, fatal=True)


del FAULTS["absent"]  # other tests list all kinds


def test_a_lost_upload_costs_its_time_and_changes_nothing():
    """Download 0.5 s, training 2 s, upload 0.5 s: the first task ends at 3 s without a trace, the second at 6 s."""
    lost = {"kind": "lost", "probability": ALWAYS, "stop_seconds": 1}
    _, history = simulate(Replace(), world(lost, network=Network(latency_seconds=0.5)), updates=2)
    assert rows(history) == [(6, 1, 0, 0), (9, 2, 0, 0)]
    assert [row[1:] for row in faults(history)] == [(0, 1, "lost")]
    assert outcomes(history) == {"dispatched": 3, "applied": 2, "lost": 1}
    assert history.model.tolist() == [0.25, 0.5]  # two tasks, each halves it
    assert history.evaluations["models_received"][-1] == 2


@pytest.mark.parametrize("down", [0.0, 3.0])
def test_a_crashed_device_comes_back_without_its_work(down):
    crash = {"kind": "crash", "probability": ALWAYS, "stop_seconds": 1e-9, "down_seconds": down}  # the first task
    _, history = simulate(Replace(), world(crash), updates=2)
    [(crashed, device, task, kind)] = faults(history)
    assert (device, task, kind) == (0, 1, "crash")
    assert 0 < crashed < 2  # in mid-training
    assert rows(history) == [(crashed + down + 2, 1, 0, 0), (crashed + down + 4, 2, 0, 0)]
    assert outcomes(history) == {"dispatched": 3, "applied": 2, "lost": 1}
    assert history.model.tolist() == [0.25, 0.5]


def test_a_paused_device_goes_on_where_it_stopped():
    pause = {"kind": "unavailable", "probability": ALWAYS, "stop_seconds": 1, "mean_seconds": 5}
    _, plain = simulate(Replace(), world(), updates=2)
    _, history = simulate(Replace(), world(pause), updates=2)
    (first, *_), (second, *_) = rows(history)
    assert first > 2
    assert second == first + 2
    assert [row[1:] for row in faults(history)] == [(0, 1, "unavailable")]
    assert outcomes(history) == {"dispatched": 2, "applied": 2}
    assert history.model.equal(plain.model)


def test_a_pause_is_recorded_when_it_begins_whatever_windows_come_before():
    """Six seconds of work in windows from 0 to 4 and from 9 on: what begins after 4 s of it begins 5 s later."""
    pause, there = {"kind": "unavailable", "probability": ALWAYS}, [[(0, 4), (9, 100)]]
    late = 0
    for seed in range(20):
        away = world(pause, seconds=(6.0,), availability={"kind": "trace", "windows": there})
        history = runs.simulate(Replace(), away, updates=1, seed=seed, trace=True).history
        [(seconds, *_)] = faults(history)
        spans = zip(*(history.spans[c] for c in ("activity", "start", "end")), strict=True)
        assert seconds in [end for activity, _, end in spans if activity == "train"]
        assert not 4 < seconds < 9
        late += seconds > 9
    assert 0 < late < 20


def test_a_pause_that_its_device_does_not_live_to_see_is_not_recorded():
    pause = {"kind": "unavailable", "probability": ALWAYS, "devices": [0]}
    windows = {"kind": "trace", "windows": [[(0, 1)], [(0, 100)]]}
    times = []
    for seed in range(20):
        _, history = simulate(
            Busy(count=1), world(pause, seconds=(6.0, 6.0), availability=windows), seed=seed, updates=1
        )
        times += [row[0] for row in faults(history)]
    assert 0 < len(times) < 20
    assert max(times) < 1


def test_a_second_copy_never_overtakes_the_first():
    """The upload of 2 s begins at 1 s, is interrupted from 2 s to 9 s, and ends at 10 s."""
    twice = {"kind": "duplicated", "probability": ALWAYS, "mean_seconds": 0.1, "stop_seconds": 1}
    away = world(
        twice, seconds=(1.0,), network=Network(up_bits_per_second=64),
        availability={"kind": "trace", "windows": [[(0, 2), (9, 100)]]},
    )  # fmt: skip
    for seconds, arrived, copies in ((9.9, 0, 0), (11.9, 1, 1)):
        _, history = simulate(Replace(), away, seconds=seconds)
        assert (history.evaluations["models_received"][-1], history.outcomes["duplicates"]) == (arrived, copies)


def test_a_device_that_recovers_as_its_window_opens_is_free_once():
    """It is away from 1 s to 2 s, and down from 0.5 s to 2 s; at 3 s it is triggered again."""
    windows = {"kind": "trace", "windows": [[(0, 1), (2, 100)], [(0, 100)]]}
    away = world(seconds=(10.0, 10.0), availability=windows)
    away = away.model_copy(update={"faults": (Absent(devices=(0,), stop_seconds=0.1),)})

    class Everybody(Replace):
        async def scheduler(self, server):
            await server.every(3.0)
            server.dispatch(list(server.idle))

    run, history = simulate(Everybody(), away, seconds=9)
    assert outcomes(history) == {"dispatched": 3, "lost": 1, "in_flight": 2}
    assert list(run.server.idle) == []
    assert sorted(handle.id for handle in run.handles) == [0, 1]


def test_work_in_too_many_windows_is_refused_instead_of_taking_for_ever():
    for period in (1e-14, 1e-3):
        blinking = {"kind": "periodic", "period_seconds": period, "available": 0.5}
        with pytest.raises(RunError, match=r"device 0 is there for more than 10,000 windows of time during 1000 s"):
            simulate(Replace(), world(seconds=(1000.0,), availability=blinking), updates=1)


def test_a_delayed_upload_keeps_its_sender_busy_and_gets_stale():
    """Device 0 sends at 1 s what arrives at 1 s plus the delay; device 1 commits every 2 s meanwhile."""
    delay = {"kind": "delayed", "probability": ALWAYS, "devices": [0], "stop_seconds": 1, "mean_seconds": 20}
    _, history = simulate(Replace(concurrency=2), world(delay, seconds=(1.0, 2.0)), updates=40)
    of_zero = [row for row in rows(history) if row[2] == 0]
    arrived = of_zero[0][0]
    assert arrived > 2
    assert of_zero[0][3] == arrived // 2  # device 1's commits since then
    assert of_zero[1][0] == pytest.approx(arrived + 1)
    assert faults(history) == [(1.0, 0, 1, "delayed")]
    assert history.outcomes["lost"] == 0


@pytest.mark.parametrize("mean", [0.0, 3.0])
def test_a_duplicate_is_applied_once(mean):
    double = {"kind": "duplicated", "probability": ALWAYS, "mean_seconds": mean}
    _, plain = simulate(Replace(), world(), updates=10)
    _, history = simulate(Replace(), world(double), seconds=1000)
    assert rows(history)[:10] == rows(plain) == [(2.0 * t, t, 0, 0) for t in range(1, 11)]
    assert history.outcomes["applied"] == 500
    assert faults(history) == [(2.0 * task, 0, task, "duplicated") for task in range(1, 501)]
    assert 500 - 10 <= history.outcomes["duplicates"] <= 500  # the last few copies may still be on their way
    _, short = simulate(Replace(), world(double), updates=10)
    assert short.model.equal(plain.model)
    received = history.evaluations["models_received"][-1]
    assert received == 500
    assert history.evaluations["bytes_up"][-1] == 16 * (500 + history.outcomes["duplicates"])


@pytest.mark.parametrize(
    ("how", "reason"), [("nan", "not finite"), ("inf", "not finite"), ("length", "length 1 instead of 2")]
)
def test_an_unusable_upload_is_rejected_and_the_model_stays_bit_for_bit(how, reason):
    wrong = {"kind": "corrupted", "probability": ALWAYS, "how": how, "start_seconds": 2, "stop_seconds": 6}
    _, before = simulate(Replace(), world(), updates=1)
    run, during = simulate(Replace(), world(wrong), seconds=7)
    assert rows(during) == [(2, 1, 0, 0)]
    assert faults(during) == [
        (4, 0, 2, "corrupted"), (4, 0, 2, f"rejected: {reason}"),
        (6, 0, 3, "corrupted"), (6, 0, 3, f"rejected: {reason}"),
    ]  # fmt: skip
    assert during.model.numpy().tobytes() == before.model.numpy().tobytes()
    assert run.server.version == 1
    assert outcomes(during) == {"dispatched": 4, "applied": 1, "rejected": 2, "in_flight": 1}
    _, after = simulate(Replace(), world(wrong), updates=2)
    assert rows(after)[1] == (8, 2, 0, 0)


def test_a_payload_of_any_name_is_rejected_if_it_arrives_in_another_shape():
    class Named(Hold):
        async def device(self, device):
            start = await device.download()
            trained = await device.train(start.model)
            step = trained.model - start.model
            await device.upload(based_on=start, **{"table" if device.id else "step": step.reshape(-1, 1 + device.id)})

        async def updater(self, server):
            [upload] = await server.receive()
            assert [tensor.shape for tensor in upload.payload.values()] == [(2 - upload.device, 1 + upload.device)]
            server.commit(server.model + 0)

    cut = {"kind": "corrupted", "how": "length", "probability": 0.5}
    _, history = simulate(Named(), world(cut, seconds=(1.0, 1.0)), updates=20)
    reasons = {(device, fault) for _, device, _, fault in faults(history) if "rejected" in fault}
    assert reasons == {(0, "rejected: shape [1] instead of [2, 1]"), (1, "rejected: shape [1] instead of [1, 2]")}
    assert history.outcomes["rejected"] == sum("rejected" in fault for _, _, _, fault in faults(history)) > 0


def test_a_scaled_upload_is_applied_because_nobody_can_tell():
    wrong = {"kind": "corrupted", "probability": ALWAYS, "how": "scaled", "factor": -3.0, "stop_seconds": 1}
    _, history = simulate(Replace(), world(wrong), updates=1)
    assert history.model.tolist() == [-1.5, -3.0]  # -3 times half of (1, 2)
    assert faults(history) == [(2, 0, 1, "corrupted")]
    assert outcomes(history) == {"dispatched": 1, "applied": 1}


def test_a_restart_loses_the_buffer_and_keeps_the_version():
    """Two uploads make a version; tasks take 2, 2 and 3 s.

    Devices 0 and 1 make version 1 at 2 s. The upload of device 2 waits from 3 s on and is lost at 3.5 s; those of
    devices 0 and 1 arrive at 4 s, while the server is down. It is up at 4.5 s and triggers all three.
    """
    restart = {"kind": "server_restart", "at_seconds": [3.5], "down_seconds": 1}
    run, history = simulate(Hold(), world(restart, seconds=(2.0, 2.0, 3.0)), updates=2)
    assert faults(history) == [(3.5, -1, -1, "server_restart")]
    assert rows(history) == [(2, 1, 0, 0), (2, 1, 1, 0), (6.5, 2, 0, 0), (6.5, 2, 1, 0)]
    assert outcomes(history) == {"dispatched": 8, "applied": 4, "lost": 3, "in_flight": 1}
    assert run.server.version == 2


def test_a_restart_that_loses_many_uploads_is_no_reason_to_end(monkeypatch):
    """145 of 150 are waited for, and at 1.35 s more than a hundred of them wait."""
    monkeypatch.setattr(watchdog, "MOST_FAILED", 100)
    restart = {"kind": "server_restart", "at_seconds": [1.35]}
    large = World(devices=150, compute=ConstantCompute(), jitter=0.5, faults=[restart])
    _, history = simulate(Busy(count=145), large, updates=2)
    assert history.outcomes["lost"] > 100
    assert (history.ended, history.outcomes["applied"]) == ("budget", 2 * 145)


def test_that_half_of_a_large_fleet_leaves_for_good_is_no_reason_to_end(monkeypatch):
    """A task takes 2 s, so at 5 s each of those 120 is in the middle of one."""
    monkeypatch.setattr(watchdog, "MOST_FAILED", 100)
    away = {"kind": "trace", "windows": [[(0, 5)]] * 120 + [[(0, 1e9)]] * 120}
    large = World(devices=240, compute=ConstantCompute(seconds_per_step=2.0), availability=away)
    _, history = simulate(Busy(count=100), large, updates=8)
    assert history.outcomes["lost"] == 120
    assert (history.ended, history.outcomes["applied"]) == ("budget", 8 * 100)


def test_an_arrival_at_the_instant_of_a_restart_is_lost_and_one_when_it_is_up_is_not():
    restart = {"kind": "server_restart", "at_seconds": [2], "down_seconds": 2}
    _, history = simulate(Replace(concurrency=2), world(restart, seconds=(2.0, 4.0)), updates=1)
    assert rows(history) == [(4, 1, 1, 0)]
    assert outcomes(history) == {"dispatched": 3, "applied": 1, "lost": 1, "in_flight": 1}


def test_ticks_that_were_due_happen_once_when_the_server_is_up():
    """Ticks at 0, 1, 2, ...; down from 0.5 s to 3.25 s: the next ones are at 3.25, 4, 5, ... s."""

    class Ticking(Replace):
        async def scheduler(self, server):
            await server.every(1.0)
            server.state.setdefault("ticks", []).append(server.now)

        async def updater(self, server):
            await server.receive()

    class Sleeping(Ticking):
        async def scheduler(self, server):
            await server.sleep(1.0)
            server.state.setdefault("ticks", []).append(server.now)

    restart = {"kind": "server_restart", "at_seconds": [0.5], "down_seconds": 2.75}
    run, _ = simulate(Ticking(), world(restart), seconds=6.5)
    assert run.server.state["ticks"] == [0, 3.25, 4, 5, 6]
    run, _ = simulate(Sleeping(), world(restart), seconds=6.5)
    assert run.server.state["ticks"] == [3.25, 4.25, 5.25, 6.25]


def test_a_period_that_ends_while_the_server_is_down_is_closed_when_it_is_up():
    class Periodic(Replace):
        async def updater(self, server):
            uploads = await server.receive(until=2.0 * (server.version + 1))
            server.state.setdefault("periods", []).append((server.now, len(uploads)))
            server.commit(server.model + 0)

    restart = {"kind": "server_restart", "at_seconds": [3.5], "down_seconds": 1}
    run, _ = simulate(Periodic(), world(restart, seconds=(1.0,)), seconds=8.5)
    # 3 s: in the buffer, lost; 4 s: lost on arrival; triggered again at 4.5 s
    assert run.server.state["periods"] == [(2, 2), (4.5, 0), (6, 1), (8, 2)]


@pytest.mark.parametrize(
    ("at", "answered"), [([1], 4.0), ([1, 2.5], 5.5)], ids=["one restart", "a second one before the first is over"]
)
def test_a_device_that_asks_for_a_fresh_model_waits_until_the_server_is_up(at, answered):
    restart = {"kind": "server_restart", "at_seconds": at, "down_seconds": 3}
    run, history = simulate(Ask(), world(restart), updates=1)
    assert run.device_state[0]["answers"] == [(answered, 0)]
    assert rows(history) == [(answered + 2, 1, 0, 0)]


def test_a_round_goes_on_without_those_who_fail():
    """In round 1 one upload is lost and one rejected; in round 2 all are lost, and the model stays."""
    lost = {"kind": "lost", "probability": ALWAYS, "devices": [1], "stop_seconds": 1}
    wrong = {"kind": "corrupted", "probability": ALWAYS, "devices": [2], "stop_seconds": 1}
    all_lost = {"kind": "lost", "probability": ALWAYS, "start_seconds": 5, "stop_seconds": 6}
    _, history = simulate(FedAvg(clients_per_round=3), world(lost, wrong, all_lost, seconds=(2, 3, 5)), updates=3)
    assert rows(history) == [(5, 1, 0, 0), (15, 3, 0, 0), (15, 3, 1, 0), (15, 3, 2, 0)]
    assert outcomes(history) == {"dispatched": 9, "applied": 4, "rejected": 1, "lost": 4}
    assert history.model.tolist() == [0.25, 0.5]


def test_a_round_begins_with_those_who_are_not_down():
    crash = {"kind": "crash", "probability": ALWAYS, "devices": [1], "stop_seconds": 1, "down_seconds": 11}
    _, history = simulate(FedAvg(clients_per_round=2), world(crash, seconds=(5.0, 3.0)), updates=5)
    [(crashed, *_)] = faults(history)
    back = next(t for t in (5.0, 10.0, 15.0, 20.0) if t >= crashed + 11)
    assert [row[0] for row in rows(history) if row[2] == 1] == [t for t in (5.0, 10, 15, 20, 25) if t > back]


class Wanted(Algorithm):
    """The updater triggers two devices and asks for one upload of each."""

    async def updater(self, server):
        server.dispatch([device for device in (0, 1) if device in server.idle])
        uploads = await server.receive(from_=[1, 0])
        server.state.setdefault("from", []).append([upload.device for upload in uploads])
        server.commit(server.model + 0)


def test_who_was_lost_and_is_free_again_is_not_waited_for():
    lost = {"kind": "lost", "probability": ALWAYS, "devices": [0], "start_seconds": 3, "stop_seconds": 4}
    run, history = simulate(Wanted(), world(lost, seconds=(2.0, 3.0)), updates=3)
    assert run.server.state["from"] == [[1, 0], [1], [1, 0]]
    assert rows(history) == [(3, 1, 1, 0), (3, 1, 0, 0), (6, 2, 1, 0), (9, 3, 1, 0), (9, 3, 0, 0)]


class Blocked(Algorithm):
    """Its rounds begin with those who are left of the last one."""

    async def scheduler(self, server):
        await BlockedRounds().turn(server)


def test_blocked_rounds_go_on_without_a_lost_upload():
    class OneByOne(Blocked):
        async def updater(self, server):
            await server.receive()
            server.commit(server.model + 0)

    lost = {"kind": "lost", "probability": ALWAYS, "devices": [1], "stop_seconds": 1}
    _, history = simulate(OneByOne(), world(lost, seconds=(2.0, 3.0, 5.0)), updates=5)
    assert rows(history) == [(2, 1, 0, 0), (5, 2, 2, 1), (7, 3, 0, 0), (8, 4, 1, 1), (10, 5, 2, 2)]


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        (0, [(5, 1, 1, 0), (5, 1, 2, 0), (8, 2, 0, 0), (8, 2, 1, 0), (10, 3, 2, 1)]),
        (2, [(3, 1, 0, 0), (3, 1, 1, 0), (8, 2, 0, 0), (8, 2, 1, 0), (10, 3, 2, 1)]),
    ],
)
def test_a_blocked_round_takes_fewer_when_nobody_else_can_come(device, expected):
    """Two at a time of three; in the first round one of them is lost."""

    class InTwos(Blocked):
        async def updater(self, server):
            if await server.receive_round(most=2):
                server.commit(server.model + 0)

    lost = {"kind": "lost", "probability": ALWAYS, "devices": [device], "stop_seconds": 1}
    _, history = simulate(InTwos(), world(lost, seconds=(2.0, 3.0, 5.0)), updates=3)
    assert rows(history) == expected


@pytest.mark.parametrize("kind", ["corrupted", "crash", "delayed", "duplicated", "lost", "unavailable"])
def test_a_fault_strikes_as_often_as_its_probability_says(kind):
    _, history = simulate(Replace(), world({"kind": kind, "probability": 0.2}), seed=7, seconds=3000)
    tasks = history.outcomes["dispatched"]
    assert tasks > 800
    struck = len({row[2] for row in faults(history)})
    assert abs(struck - 0.2 * tasks) < 4 * np.sqrt(tasks * 0.2 * 0.8)
    expected = {"corrupted": "rejected", "crash": "lost", "lost": "lost"}.get(kind)
    if expected:
        assert struck - 1 <= history.outcomes[expected] <= struck
    else:
        assert history.outcomes["rejected"] == history.outcomes["lost"] == 0


def test_drawn_times_have_the_declared_means():
    """Exponential: the standard deviation of one draw is its mean; the moment of a crash is uniform."""
    for kind in ("delayed", "unavailable"):
        _, history = simulate(Replace(), world({"kind": kind, "probability": ALWAYS, "mean_seconds": 3}), updates=900)
        lengths = np.diff([0.0, *history.updates["seconds"]]) - 2
        assert lengths.min() > 0
        assert abs(lengths.mean() - 3) < 4 * 3 / np.sqrt(900)
    _, history = simulate(Replace(), world({"kind": "crash", "probability": ALWAYS}), seconds=900)
    moments = np.diff([0.0, *history.faults["seconds"]])
    assert moments.max() < 2
    assert abs(moments.mean() - 1) < 4 * 2 / np.sqrt(12 * len(moments))


def test_a_fault_can_be_kept_to_some_devices_and_to_an_interval():
    fault = {"kind": "lost", "probability": ALWAYS, "devices": [0, 2], "start_seconds": 4, "stop_seconds": 8}
    _, history = simulate(Replace(concurrency=3), world(fault, seconds=(2.0, 2.0, 2.0)), updates=30)
    assert faults(history) == [(time, device, task, "lost") for time, device, task in (
        (6.0, 0, 7), (6.0, 2, 9), (8.0, 0, 10), (8.0, 2, 12),
    )]  # fmt: skip


def struck(history: History, kind: str) -> set[int]:
    return {task for _, _, task, fault in faults(history) if fault == kind}


def test_every_fault_has_its_own_draws_whatever_else_is_declared():
    """Duplicates and lies cost no time, so that the tasks are the same with and without them."""
    lost = {"kind": "lost", "probability": 0.3}
    double = {"kind": "duplicated", "probability": 0.3, "mean_seconds": 0}
    scaled = {"kind": "corrupted", "probability": 0.3, "how": "scaled", "factor": 1.0}
    alone = struck(simulate(Replace(), world(lost), seconds=600)[1], "lost")
    assert len(alone) > 50
    for others in ([double, scaled, lost], [lost, double], [{**scaled, "devices": [0]}, lost]):
        assert struck(simulate(Replace(), world(*others), seconds=600)[1], "lost") == alone
    [first, second] = (
        struck(simulate(Replace(), world({**double, "probability": p}, lost), seconds=600)[1], "duplicated")
        for p in (0.3, 0.6)
    )
    assert len(second) > len(first)
    _, twice = simulate(Replace(), world(lost, lost), seconds=600)
    assert len(struck(twice, "lost")) > len(alone)  # a second fault of the same kind draws for itself


def test_what_did_not_happen_any_more_is_not_recorded():
    """No pause after a crash, and no delay or second copy of what is lost."""
    crash, pause = {"kind": "crash", "probability": ALWAYS}, {"kind": "unavailable", "probability": ALWAYS}
    _, history = simulate(Replace(), world(crash, pause), seconds=2000)
    pauses, crashes = len(struck(history, "unavailable")), len(struck(history, "crash"))
    assert abs(pauses - crashes / 2) < 4 * np.sqrt(crashes / 4) + 1  # the earlier of two uniform moments
    _, history = simulate(Replace(), world(crash, crash), seconds=100)
    assert len(faults(history)) == history.outcomes["lost"]
    lost, delay = {"kind": "lost", "probability": ALWAYS}, {"kind": "delayed", "probability": ALWAYS}
    _, history = simulate(Replace(), world(lost, delay), seconds=10)
    assert {row[3] for row in faults(history)} == {"lost"}


@pytest.mark.parametrize("down", [0.0, 2.0])
def test_a_sampled_timeline_goes_on_when_uploads_are_lost(down):
    sampled = World(devices=3, max_staleness=4, faults=[{"kind": "crash", "probability": 0.5, "down_seconds": down}])
    _, history = simulate(Replace(), sampled, updates=150)
    assert history.outcomes["lost"] > 50
    assert max(history.updates["staleness"]) <= 3
    assert list(history.updates["version"]) == list(range(1, 151))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("sampled", [False, True])
def test_a_run_that_diverges_ends_and_says_why(sampled):
    """The step size makes every local model infinite at the second version; no upload after it can be used."""
    place = World(devices=3, max_staleness=4) if sampled else World(devices=3, compute=ConstantCompute())
    _, history = simulate(FedAsync(concurrency=3), place, lr=1e200, updates=10_000)
    assert history.ended == "rejected"
    assert bool(torch.isfinite(history.model).all())
    assert history.outcomes["rejected"] == 1000
    assert set(history.faults["fault"]) == {"rejected: not finite"}
    assert History.from_dict(json.loads(json.dumps(history.to_dict()))).ended == "rejected"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FL_CORE_RESULTS", str(tmp_path / "results"))


def test_faults_and_triggers_are_declared_on_the_command_line(tmp_path):
    out = tmp_path / "run.json"
    words = [
        *("--set", 'world.faults=[{"kind":"lost","probability":0.5}]', "--out", str(out)),
        *("--set", "world.trigger=timed(period_seconds=5, per_tick=2, concurrency=3)"),
    ]
    call("run", "--no-store", *TINY, *words)
    history = History.from_dict(json.loads(out.read_text())["history"])
    check_conservation(history)
    assert history.outcomes["lost"] == len(history.faults["task"]) > 0
    declared = json.loads(call("run", *TINY, *words, "--force", "--print-spec"))["world"]
    assert declared["trigger"] == {"kind": "timed", "period_seconds": 5, "per_tick": 2, "concurrency": 3}
    assert declared["faults"][0]["probability"] == 0.5


def test_a_run_that_diverges_is_explained_on_the_command_line(monkeypatch):
    monkeypatch.setattr(watchdog, "MOST_FAILED", 20)
    said = call("run", "--no-store", *TINY, "--set", "training.lr=1e38", code=3)
    assert "ended before its budget: no upload could be used any more (not finite)" in said


@pytest.fixture
def kinds() -> Iterator[None]:
    """Take away what a test adds to the kinds of faults and triggers."""
    with patch.dict(FAULTS), patch.dict(TRIGGERS):
        yield


def test_a_new_fault_and_a_new_trigger_are_one_class_each(kinds):
    """Defined anywhere, they have names, are checked, listed and run, and nothing else has changed."""

    class Erased(Fault):
        """The upload is zero."""

        kind: Literal["erased"] = "erased"
        but_first: int = 0
        """Messages of which nothing is erased."""

        def send(self, messages, rng):
            return [Message({n: 0 * v for n, v in m.payload.items()}, m.delay) for m in messages[self.but_first :]]

    example = inspect.cleandoc(str(Trigger.__doc__)).partition("in the order of their numbers::")[2]
    code = compile(textwrap.dedent(example), "the documented example", "exec", dont_inherit=True)
    exec(code, {"Trigger": Trigger, "Literal": Literal})  # class Cyclic

    spec = RunSpec(
        algorithm={"name": "fedasync", "concurrency": 3},
        world={"devices": 3, "faults": [{"kind": "erased", "probability": 1}], "trigger": {"kind": "cyclic"}},
        budget={"updates": 7},
    )
    assert RunSpec.from_json(spec.to_json()) == spec
    history = runs.simulate(FedAsync(alpha=0.5), spec.world, updates=7).history
    assert history.updates["device"] == [0, 1, 2, 0, 1, 2, 0]
    assert history.model.tolist() == [0.5**7]
    assert "but_first" in call("list", "faults")
    assert "cyclic" in call("list", "triggers")


@pytest.mark.parametrize("windows", [False, True])
def test_a_run_that_waits_for_more_than_can_come_ends_although_clocks_go_on(windows):
    class Greedy(Algorithm):
        async def scheduler(self, server):
            await server.new_version()
            server.dispatch(list(server.idle)[:1])

        async def updater(self, server):
            await server.receive(count=2)
            server.commit(server.model)

    window = {"kind": "periodic", "period_seconds": 4.0, "available": 0.5, "phase": "zero"} if windows else None
    with pytest.raises(RunError, match="nothing is left to happen at t = "):
        simulate(Greedy(), world(seconds=(1.0, 1.0), availability=window), updates=3, every_seconds=1.0)


@pytest.mark.parametrize("budget", [{"updates": 100}, {"gradients": 100}])
def test_a_run_in_which_only_the_server_ticks_ends(budget):
    """All devices are gone for good at 5 s; a timed trigger, and an updater that makes versions of nothing, go on."""

    class Periodic(Replace):
        async def updater(self, server):
            uploads = await server.receive(until=server.now + 1)
            if uploads or "gradients" in budget:
                server.commit(server.model + 0)

    timed, gone = Timed(period_seconds=1, per_tick=3, concurrency=3), {"kind": "trace", "windows": [[(0, 5)]] * 3}
    where = world(seconds=(1.0,) * 3, trigger=timed, availability=gone)
    with pytest.raises(RunError, match="nothing is left to happen at t = "):
        simulate(Periodic(), where, every_updates=None, **budget)


def test_a_server_may_tick_for_long_before_anybody_comes():
    late = {"kind": "trace", "windows": [[(30_000, 40_000)]]}
    away = world(seconds=(2.0,), trigger=Timed(period_seconds=1, concurrency=1), availability=late)
    assert simulate(Replace(), away, updates=2)[1].updates["seconds"] == [30_002, 30_004]
