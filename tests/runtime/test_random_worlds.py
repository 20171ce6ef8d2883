"""Two thousand random worlds, schedules and fault plans: what must hold in every run, whatever happens in it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import runs
import torch
from killing import Killed

from fl_core.algorithms import SGD, Algorithm, FedAsync, FedAvg
from fl_core.errors import RunError
from fl_core.formulas.fedasync import mix
from fl_core.runtime import Checkpoints, History, Simulation
from fl_core.tasks import POOLED, Quadratic
from fl_core.world import World
from fl_core.world.triggers import Contributors

CASES, BLOCKS, LARGE = 2000, 40, 41
"""Every 41st case has more than a thousand devices, the others up to eight. Two blocks are always tried."""

MOST_EVENTS, EVENTS_PER_DEVICE = 60_000, 400
"""A run of these sizes has far fewer until it ends or is found to stand still; with more of them it hangs."""


class Buffered(Algorithm):
    """Commits the mean of every `count` arrivals."""

    count: int
    concurrency: int

    async def scheduler(self, server):
        await server.keep_busy(self.concurrency)

    async def updater(self, server):
        uploads = await server.receive(self.count)
        server.commit(torch.stack([upload.model for upload in uploads]).mean(0), weight=[0.5] * len(uploads))


class Contributing(Buffered):
    """The same, but who has contributed starts again from what has become of it."""

    async def scheduler(self, server):
        await Contributors().turn(server)


class Periodic(Algorithm):
    """Commits, in equal intervals, the mean of what has arrived."""

    period: float
    concurrency: int

    async def scheduler(self, server):
        await server.keep_busy(self.concurrency)

    async def updater(self, server):
        uploads = await server.receive(until=server.now + self.period)
        models = [upload.model for upload in uploads] or [server.model]
        server.commit(mix(server.model, torch.stack(models).mean(0), 0.5))


class Pairs(Algorithm):
    """Waits for what two of its devices send, which it triggers if they are free."""

    async def updater(self, server):
        wanted = server.devices[:2]
        await server.idle_changed()
        server.dispatch([device for device in wanted if device in server.idle])
        if uploads := await server.receive(from_=wanted):
            server.commit(torch.stack([upload.model for upload in uploads]).mean(0))


class Fresh(FedAsync):
    """Its devices ask for the newest model in mid-training, and remember how often they were asked."""

    async def device(self, device):
        start = await device.download()
        first = await device.train(start.model, steps=1)
        fresh = await device.download()
        device.state["tasks"] = device.state.get("tasks", 0) + 1
        slope = await device.gradient(fresh.model)
        share = 0.5 if await device.loss(first.model) < await device.loss(fresh.model) else 0.25
        model = mix(fresh.model, first.model, share) - 0.01 * slope.gradient / device.state["tasks"]
        await device.upload(model=model, based_on=fresh)


def number(rng: np.random.Generator, low: float, high: float) -> float:
    return round(float(rng.uniform(low, high)), 3)


def some(rng: np.random.Generator, *choices: Any) -> Any:
    return choices[int(rng.integers(len(choices)))]


def random_compute(rng: np.random.Generator, devices: int) -> dict[str, Any]:
    low = number(rng, 0.1, 2)
    return {
        "per": some(rng, "step", "epoch"),
        **some(
            rng,
            {"kind": "constant", "seconds_per_step": low},
            {"kind": "uniform", "fastest": low, "slowest": 3 * low},
            {"kind": "ratio", "fastest": low, "ratio": 4, "distribution": some(rng, "uniform", "loguniform")},
            {"kind": "gap", "ratio": 8, "distribution": some(rng, "uniform", "two_class")},
            {"kind": "lognormal", "median": low, "sigma": 1},
            {"kind": "trace", "seconds_per_step": [number(rng, 0.1, 3) for _ in range(devices)]},
            {"kind": "exponential", "mean": low, "shift": some(rng, 0, 0.5), "factors": [1, 2]},
            {"kind": "uniform_per_task", "fastest": 0, "slowest": low},
        ),
    }


def random_faults(rng: np.random.Generator, devices: int) -> list[dict[str, Any]]:
    kinds = (
        {"kind": "crash", "down_seconds": some(rng, 0, 3.5)},
        {"kind": "lost"},
        {"kind": "duplicated", "mean_seconds": some(rng, 0, 2)},
        {"kind": "delayed", "mean_seconds": number(rng, 0.1, 5)},
        {"kind": "corrupted", "how": some(rng, "nan", "inf", "length", "scaled")},
        {"kind": "unavailable", "mean_seconds": number(rng, 0.1, 5)},
    )
    faults = []
    for place in rng.integers(len(kinds), size=rng.integers(5)):
        fault: dict[str, Any] = {**kinds[place], "probability": number(rng, 0, 0.5)}
        if rng.random() < 0.2:
            fault["devices"] = sorted({int(d) for d in rng.integers(devices, size=2)})
        if rng.random() < 0.2:
            fault |= {"start_seconds": number(rng, 0, 5), "stop_seconds": number(rng, 5, 20)}
        faults.append(fault)
    if rng.random() < 0.3:
        times = sorted(number(rng, 0, 20 if devices < 9 else 3) for _ in range(rng.integers(1, 4)))
        faults.append({"kind": "server_restart", "at_seconds": times, "down_seconds": some(rng, 0, 1, 5)})
    return faults


def random_world(rng: np.random.Generator, devices: int) -> dict[str, Any]:
    world: dict[str, Any] = {"devices": devices, "compute": random_compute(rng, devices)}
    world["jitter"] = some(rng, 0, 0, 0.5)
    world["faults"] = random_faults(rng, devices) if rng.random() < 0.7 else []
    if rng.random() < 0.5:
        spread = {"kind": "uniform", "slowest": 50, "fastest": 500}
        bandwidths = (None, 200.0, [number(rng, 50, 500) for _ in range(devices)], spread)
        world["network"] = {f"{way}_bits_per_second": some(rng, *bandwidths) for way in ("down", "up")}
        world["network"]["latency_seconds"] = some(rng, 0, 0.25)
    timing = rng.random()
    if timing < 0.15:
        world["max_staleness"] = int(rng.integers(1, 6))
    elif timing < 0.5:
        wanted = int(rng.integers(1, devices + 1))
        world["trigger"] = some(
            rng,
            {"kind": "continuous", "concurrency": wanted},
            {"kind": "contributors", "order": some(rng, "arrival", "id")},
            {"kind": "rounds", "devices": wanted},
            {"kind": "timed", "period_seconds": number(rng, 0.5, 4), "per_tick": wanted, "concurrency": wanted},
            {"kind": "sampled", "max_staleness": 3},
        )
    if rng.random() < 0.25:
        world["availability"] = random_availability(rng, devices)
    if rng.random() < 0.2 and not drawn(world):
        graph = some(rng, "ring", "complete", "star", "path")
        world["clusters"] = {"servers": int(rng.integers(1, min(devices, 8) + 1)), "graph": {"kind": graph}}
    return world


def drawn(world: dict[str, Any]) -> bool:
    """Return whether staleness is drawn, so that there is no clock."""
    return "max_staleness" in world or world.get("trigger", {}).get("kind") == "sampled"


def random_availability(rng: np.random.Generator, devices: int) -> dict[str, Any]:
    period = number(rng, 2, 10)
    if rng.random() < 0.6:
        phase = some(rng, "random", "zero")
        return {"kind": "periodic", "period_seconds": period, "available": number(rng, 0.2, 1), "phase": phase}
    windows = []
    for _ in range(devices):
        times = sorted({round(float(t), 2) for t in rng.uniform(0, period, 2 * rng.integers(0, 3))})
        windows.append(list(zip(times[::2], times[1::2], strict=False)))
    return {"kind": "trace", "windows": windows, "period_seconds": some(rng, period, None)}


def random_algorithm(rng: np.random.Generator, devices: int) -> Algorithm:
    wanted, count = int(rng.integers(1, devices + 1)), int(rng.integers(1, 4 if devices < 9 else devices))
    return some(
        rng,
        FedAsync(concurrency=wanted, rho=some(rng, 0, 0.1), weight={"kind": some(rng, "constant", "polynomial")}),
        FedAvg(clients_per_round=wanted, weighting=some(rng, "uniform", "samples")),
        SGD(block=count),
        Buffered(count=count, concurrency=wanted),
        Contributing(count=min(count, devices), concurrency=wanted),
        Periodic(period=number(rng, 0.5, 5), concurrency=wanted),
        FedAsync(drop_above=count, bn_start="latest", concurrency=wanted),
        Fresh(concurrency=wanted),
    )


def random_case(case: int, trace: bool) -> Simulation:
    rng, large = np.random.default_rng(case), case % LARGE == 0
    devices = int(rng.integers(1001, 1400) if large else rng.integers(1, 9))
    world, dimension = random_world(rng, devices), int(rng.integers(2, 4))
    task = Quadratic(
        rng.uniform(0.5, 2, (devices, dimension)), rng.normal(size=(devices, dimension)), np.full(dimension, 3.0),
        samples=rng.integers(1, 9, devices),
    )  # fmt: skip
    algorithm, updates = random_algorithm(rng, devices), int(rng.integers(1, 4 if large else 13))
    if case // BLOCKS % 7 == 5 and not drawn(world):
        algorithm = Pairs()
    seconds = number(rng, 1, 2) if large else number(rng, 3, 30)
    budget = some(rng, {"updates": updates}, {"seconds": seconds}, {"gradients": 2 * updates})
    if rng.random() < 0.2:
        budget["seconds"] = seconds
    settings = {"seed": case, "trace": trace, "lr": 0.1, "batch_size": 4, "steps": some(rng, None, 1, 3), **budget}
    settings |= some(rng, {"every_updates": 4}, {"every_seconds": 2.5}, {"every_updates": None})
    simulation = runs.simulation(algorithm, World(**world), task, **settings)
    simulation.watchdog.before_each_event(lambda: unless_it_hangs(simulation.kernel.events, devices))
    return simulation


def unless_it_hangs(events: int, devices: int) -> bool:
    assert events < MOST_EVENTS + EVENTS_PER_DEVICE * devices, "the run does not end"
    return False


def outcome(simulation: Simulation, *executor: Any, checkpoints: Checkpoints | None = None) -> History | str:
    """Return the history of a run, or, where it got stuck as documented, the message that says so."""
    try:
        return simulation.run(*executor, checkpoints=checkpoints)
    except RunError as error:
        if str(error).startswith("nothing is left to happen at t = "):
            return str(error)
        raise


def grows(values: list[Any]) -> bool:
    return all(a <= b for a, b in pairwise(values))


def check(simulation: Simulation, history: History) -> None:
    updates, evaluations, faults = history.updates, history.evaluations, history.faults
    ended = simulation.outcomes()
    endings = ("applied", "discarded", "rejected", "lost", "in_flight")
    assert ended["dispatched"] == sum(ended[name] for name in endings)
    assert min(ended.values()) >= 0
    assert ended["applied"] == len(updates["version"])

    assert grows(updates["seconds"])
    assert grows(updates["version"])
    assert all(0 <= u < v for u, v in zip(updates["staleness"], updates["version"], strict=True))
    assert all(grows(evaluations[name]) for name in ("seconds", "version", "gradients", "models_sent", "bytes_up"))

    size = 8 * simulation.task.dimension
    counters = {
        name: sum(server.counters[name] for server in simulation.servers) for name in simulation.server.counters
    }
    assert counters["gradients"] == sum(updates["steps"])
    assert counters["bytes_down"] == size * counters["models_sent"]
    assert counters["bytes_up"] == size * (counters["models_received"] + ended["duplicates"])
    waiting = sum(len(server.waiting) for server in simulation.servers)
    used = ended["applied"] + ended["discarded"] + ended["rejected"] + waiting
    restarts = any(fault.outages() for fault in simulation.faults)
    lost_there = ended["lost"] if restarts else 0
    assert used <= counters["models_received"] <= used + lost_there
    sampled = isinstance(simulation.algorithm, FedAsync | Buffered | Periodic) and (
        simulation.devices.world.max_staleness is not None
        or getattr(simulation.devices.world.trigger, "kind", "") == "sampled"
    )
    if not sampled and not isinstance(simulation.algorithm, Fresh):
        assert counters["models_sent"] == ended["dispatched"]

    kinds = {fault.kind for fault in simulation.faults}
    counts = {kind: faults["fault"].count(kind) for kind in kinds}
    assert sum(fault.startswith("rejected: ") for fault in faults["fault"]) == ended["rejected"]
    assert all(fault in kinds or fault.startswith("rejected: ") for fault in faults["fault"])
    assert counts.get("crash", 0) + counts.get("lost", 0) <= ended["lost"] + ended["in_flight"]

    for server in simulation.servers:
        assert torch.isfinite(server.model).all()
        members, uploads = list(server.idle), [upload.device for upload in server.waiting]
        assert len(set(members)) == len(members) == len(server.idle)
        assert {*server.devices, POOLED} >= {*members, *uploads, *server._triggers}
    if not sampled:
        assert_one_thing_at_a_time(history)


def assert_one_thing_at_a_time(history: History) -> None:
    spans = history.spans
    by_device: dict[int, list[tuple[float, float]]] = {}
    for device, start, end in zip(spans["device"], spans["start"], spans["end"], strict=True):
        by_device.setdefault(device, []).append((start, end))
    for device, intervals in by_device.items():
        assert device == POOLED or all(a[1] <= b[0] for a, b in pairwise(sorted(intervals))), device


def killed_and_resumed(case: int, event: int, folder: Path) -> History | str:
    """Return how a run ends that is stored and killed before its `event`-th event, and then goes on."""

    def when(events: int) -> bool:
        if events > event:
            raise Killed
        return events == event or events == event // 2

    first, checkpoints = random_case(case, True), Checkpoints(folder, when=when)
    try:
        return outcome(first, checkpoints=checkpoints)
    except Killed:
        never = Checkpoints(folder, when=lambda events: unless_it_hangs(events, len(first.devices)))
        return outcome(random_case(case, True), checkpoints=never)


@pytest.mark.parametrize(
    "block", [0, 1, *(pytest.param(block, marks=pytest.mark.thorough) for block in range(2, BLOCKS))]
)
def test_random_worlds_keep_all_invariants(block, tmp_path):
    for case in range(block, CASES, BLOCKS):
        simulation = random_case(case, trace=True)
        history = outcome(simulation)
        try:
            if isinstance(history, History):
                check(simulation, history)
            match case // BLOCKS % 10:
                case 0:
                    assert outcome(random_case(case, True), "threads", 2) == history
                case 3:
                    event = int(np.random.default_rng(case).integers(max(1, simulation.kernel.events)))
                    assert killed_and_resumed(case, event, tmp_path / str(case)) == history
                case 6:  # without a trace or faults it takes the short way through the runtime
                    bare = random_case(case, trace=False)
                    outcome(bare)
                    tables = [one.history.to_dict() | {"spans": None} for one in (bare, simulation)]
                    assert tables[0] == tables[1]
        except Exception as error:
            raise AssertionError(f"case {case}: {error}") from error
