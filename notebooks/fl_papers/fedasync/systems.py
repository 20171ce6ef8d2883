"""FedAsync as a system: dropping, triggering, stragglers, scale and pauses (claims C19 to C21, C24 and C25).

The exact claims are about who is triggered when and counted how, which no learning problem can change: they are
judged on quadratics, in virtual time, within a second or two. Whether FedAsync reaches a loss earlier than FedAvg
when a client is slow is a question for real training; those are the runs of :func:`event_grid`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from fl_core.algorithms import Algorithm, FedAsync, FedAvg
from fl_core.datasets import IID
from fl_core.experiments.claims import Check, Claim, Comparison, register
from fl_core.experiments.profiles import CONVERGENCE
from fl_core.experiments.spec import RunSpec
from fl_core.experiments.study import Entry, Study
from fl_core.runtime import Budget, Evaluation, History, LocalTraining, Simulation, Warmup
from fl_core.tasks import Quadratic
from fl_core.world import (
    Compute,
    ConstantCompute,
    ExponentialCompute,
    LogNormalCompute,
    RatioCompute,
    TraceAvailability,
    TraceCompute,
    UniformCompute,
    World,
)
from fl_core.world.triggers import Timed
from fl_papers.fedasync.curves import METRICS
from fl_papers.fedasync.grid import (
    BATCH,
    DEVICES,
    LOCAL_LR,
    ROUND,
    SAMPLES,
    WEIGHT_DECAY,
    Options,
    network,
)
from fl_papers.fedasync.stability import total_staleness

SLOWER = 10
"""The slow client needs so many times the others' time for a mini-batch."""
SECONDS_PER_STEP = 0.1
"""In the runs on data: a local task of ten mini-batches takes a virtual second, on the slow client ten."""
EVENT_SECONDS = {"smoke": (1.0, 1.0), "laptop": (60.0, 3.0), "paper": (200.0, 2.0)}
"""Budget and time between two evaluations by profile; the others make about ten FedAsync updates a second."""


def dropping_is_no_weight(study: Study) -> list[Check]:
    """FEDASYNC-C19: equal histories and models, bit for bit."""
    found = []
    for limit, bound in ((4, 0), (4, 2), (16, 4), (16, 12)):
        world = World(devices=5, max_staleness=limit)
        dropping = _simulate(FedAsync(drop_above=bound), world, updates=80)
        indicator = FedAsync.model_construct(**_indicator(bound))
        dropped = sum(weight == 0 for weight in dropping.updates["weight"])
        equal = dropping == _simulate(indicator, world, updates=80)
        detail = f"bitwise equal; {dropped} of 80 updates dropped"
        found.append(Check(f"K = {limit}, threshold {bound}", equal and dropped > 0, detail))
    return found


def less_often_is_fresher(study: Study) -> list[Check]:
    """FEDASYNC-C20: the conservation law of staleness under constant concurrency, then the periodic trigger."""
    laws: dict[str, Compute] = {
        "equal": ConstantCompute(),
        "uniform": UniformCompute(),
        "fixed ratio": RatioCompute(),
        "log-normal": LogNormalCompute(sigma=1.0),
        "exponential": ExponentialCompute(),
    }
    found = []
    for law, compute in laws.items():
        held, shown = True, []
        for tasks in (1, 4, 10):
            world = World(devices=20, compute=compute)
            history = _simulate(FedAsync(concurrency=tasks), world, seed=tasks, updates=200)
            completed, flying = sum(history.updates["staleness"]), _in_flight(history)
            held &= completed + flying == total_staleness(tasks, 200)
            shown.append(f"{completed} + {flying}")
        detail = f"completed + in flight = (M − 1)·200 for M = 1, 4, 10: {', '.join(shown)}"
        found.append(Check(f"constant concurrency, {law} durations", held, detail))
    crowd = World(devices=20, compute=UniformCompute())
    gaps = [
        9 - float(np.mean(_simulate(FedAsync(concurrency=10), crowd, updates=updates).updates["staleness"]))
        for updates in (50, 200, 800)
    ]
    shrinks = all(abs(later) < abs(earlier) for earlier, later in pairwise(gaps))
    detail = f"M − 1 less the mean: {', '.join(f'{gap:.3f}' for gap in gaps)} after 50, 200, 800 updates"
    found.append(Check("mean staleness tends to M − 1, M = 10", shrinks, detail))
    for seed in range(3):
        means = [_mean_staleness(period, seed) for period in (0.5, 1.0, 2.0, 4.0)]
        falls = all(later < earlier for earlier, later in pairwise(means))
        detail = " > ".join(f"{mean:.2f}" for mean in means)
        found.append(Check(f"periods 0.5, 1, 2, 4 s, seed {seed}", falls, f"mean staleness {detail}"))
    return found


def nobody_waits(study: Study) -> list[Check | Comparison]:
    """FEDASYNC-C21: exact rates with one slow client, then time to a common loss on data."""
    durations, horizon, each_round = (1.0,) * 9 + (float(SLOWER),), 100.0, 3
    world = World(devices=len(durations), compute=TraceCompute(seconds_per_step=durations))
    history = _simulate(FedAsync(concurrency=len(durations)), world, seconds=horizon)
    used = Counter(history.updates["device"])
    least = min(used[device] for device in range(len(durations)))
    count, expected = len(history.updates["version"]), sum(horizon / duration for duration in durations)
    found: list[Check | Comparison] = [
        Check("every client is used", least >= 1, f"at least {least} mixed updates of each"),
        Check(
            "rate of updates", count == expected, f"{count} in {horizon:g} s, Σ 1/duration = {expected / horizon:g}"
        ),
    ]
    rounds = _simulate(FedAvg(clients_per_round=each_round), world, updates=60)
    by_round = rounds.update_frame().groupby("version")
    lasted = np.diff(by_round["seconds"].first(), prepend=0.0).tolist()
    slowest = [max(durations[device] for device in chosen) for chosen in by_round["device"].apply(list)]
    total = f"60 rounds in {sum(slowest):g} s"
    found.append(Check("FedAvg's rounds last as long as their slowest client", lasted == slowest, total))
    return found + (_times_to_loss(study) or [Check("time to a common training loss", None, "no runs")])


def rate_is_proportional(study: Study) -> list[Check]:
    """FEDASYNC-C24."""
    world, horizon = World(devices=32, compute=ConstantCompute(seconds_per_step=2.0)), 40.0
    found = []
    for tasks in (1, 2, 4, 8, 16, 32):
        count = len(_simulate(FedAsync(concurrency=tasks), world, seconds=horizon).updates["version"])
        found.append(Check(f"M = {tasks}", count == tasks * horizon / 2, f"{count} updates in {horizon:g} s"))
    return found


def pauses_stay_private(study: Study) -> list[Check]:
    """FEDASYNC-C25: each client in turn is away for a while in the middle of a task."""
    durations, horizon, start, pause, always = (3.0, 5.0, 7.0, 11.0), 60.0, 2.0, 4.0, (0.0, 1e6)
    whole = _finish_times(_clocked(durations), horizon)
    found = []
    for paused in range(len(durations)):
        away = ((0.0, start), (start + pause, always[1]))
        windows = tuple(away if device == paused else (always,) for device in range(len(durations)))
        times = _finish_times(_clocked(durations, TraceAvailability(windows=windows)), horizon)
        shifted = [time + pause for time in whole[paused] if time + pause <= horizon]
        others = all(times[device] == whole[device] for device in whole if device != paused)
        detail = f"its {len(shifted)} finish times shift by {pause:g} s, the others' stay"
        found.append(Check(f"client of {durations[paused]:g} s pauses", times[paused] == shifted and others, detail))
    return found


def event_grid(profile: str, dataset: str, seeds: Sequence[int] | None, **overrides: Any) -> list[Entry]:
    """Return the runs with a clock: FedAvg, and FedAsync for each alpha, with one slow client of a hundred.

    Both have ten clients at work, with the same local training, and the same budget of virtual seconds.

    Parameters
    ----------
    profile, dataset, seeds, **overrides
        As in :meth:`fl_core.experiments.artifacts.Artifact.grid`; of the overrides `alphas` and `rho` matter here.
    """
    chosen, scale = Options.of(**overrides), CONVERGENCE[profile]
    model, preprocessing = network(dataset, profile)
    seconds, every = EVENT_SECONDS[profile]
    per_step = (SECONDS_PER_STEP,) * (DEVICES - 1) + (SLOWER * SECONDS_PER_STEP,)
    methods: list[tuple[str, float | None, Algorithm]] = [("FedAvg", None, FedAvg(clients_per_round=ROUND))]
    for alpha in chosen.alphas or scale.alphas:
        methods.append(("FedAsync", alpha, FedAsync(alpha=alpha, rho=chosen.rho, concurrency=ROUND)))
    return [
        Entry(
            RunSpec(
                dataset=dataset,
                partition=IID(samples_per_device=SAMPLES),
                model=model,
                preprocessing=preprocessing,
                world=World(devices=DEVICES, compute=TraceCompute(seconds_per_step=per_step)),
                algorithm=algorithm,
                training=LocalTraining(lr=LOCAL_LR, batch_size=BATCH, weight_decay=WEIGHT_DECAY),
                warmup=Warmup(epochs=5, lr=0.01),
                budget=Budget(seconds=seconds),
                evaluation=Evaluation(every_updates=None, every_seconds=every, train_samples=scale.train_samples),
                seed=seed,
            ),
            {"method": method, "alpha": alpha, "lr": LOCAL_LR, "role": "event", "seed": seed},
        )
        for seed in (scale.seeds if seeds is None else seeds)
        for method, alpha, algorithm in methods
    ]


def event_setting(
    profile: str, dataset: str = "fashion-mnist", seeds: Sequence[int] | None = None, **overrides: Any
) -> pd.DataFrame:
    """Return what the runs of :func:`event_grid` are, one row per quantity; the paper has no such experiment."""
    chosen, scale, (seconds, every) = Options.of(**overrides), CONVERGENCE[profile], EVENT_SECONDS[profile]
    alphas = ", ".join(f"{alpha:g}" for alpha in chosen.alphas or scale.alphas)
    rows = [
        ("data, network", f"{dataset}, {network(dataset, profile)[0]}"),
        ("devices × images", f"{DEVICES} × {SAMPLES}, independent and identically distributed"),
        (
            "local work of both",
            f"one pass, mini-batches of {BATCH}, rate {LOCAL_LR:g}, weight decay {WEIGHT_DECAY:g}",
        ),
        ("a local task takes", f"1 s; {SLOWER} s on one device; transfers take no time"),
        ("FedAsync", f"{ROUND} tasks in flight, α = {alphas}, ρ = {chosen.rho:g}, no decay of α"),
        ("FedAvg", f"{ROUND} devices per round"),
        ("budget", f"{seconds:g} virtual seconds, measured every {every:g} s"),
        ("training loss", f"first {scale.train_samples:,} training images"),
        ("repetitions", f"{len(scale.seeds if seeds is None else seeds)}"),
    ]
    table = pd.DataFrame(rows, columns=["setting", f"here, profile {profile}"])
    table.insert(1, "the paper", "no such experiment")
    return table


def time_curves(study: Study) -> pd.DataFrame:
    """Return the curves of :func:`event_grid` over virtual seconds.

    Returns
    -------
    DataFrame
        As :func:`fl_papers.fedasync.curves.curves` returns it; ``x`` is in seconds.
    """
    found = []
    for (method, alpha), runs in _event_curves(study).items():
        grouped = pd.concat(runs.values()).groupby("seconds")[list(METRICS)]
        table = grouped.mean().join(grouped.std().add_suffix("_std")).join(grouped.size().rename("n"))
        found.append(table.reset_index(names="x").assign(method=method, alpha=alpha, max_staleness=None, lr=LOCAL_LR))
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame()


def _times_to_loss(study: Study) -> list[Check | Comparison]:
    """Compare, by seed, when FedAsync and FedAvg first have a training loss that both reach.

    The loss aimed at is the lowest such: the larger one of the two curves' minima. This rule was fixed before there
    were runs. Between evaluations the loss is interpolated.
    """
    curves = _event_curves(study)
    rounds, found = curves.get(("FedAvg", None), {}), []
    for (method, alpha), runs in curves.items():
        times: tuple[dict[int, float], dict[int, float]] = ({}, {})
        for seed in runs.keys() & rounds.keys() if method == "FedAsync" else ():
            pair = runs[seed], rounds[seed]
            target = max(curve["train_loss"].min() for curve in pair)
            for side, curve in zip(times, pair, strict=True):
                side[seed] = time_to_loss(curve, target)
        if times[0]:
            found.append(Comparison(f"time to a common training loss, α = {alpha:g}", *times))
    return list(found)


def time_to_loss(curve: pd.DataFrame, target: float) -> float:
    """Return the first of a curve's ``seconds`` at which its ``train_loss``, interpolated, is at most `target`.

    NaN if it never is, which includes a loss that was not measured.
    """
    seconds, losses = curve["seconds"].to_numpy(float), curve["train_loss"].to_numpy(float)
    below = np.flatnonzero(losses <= target)
    if not len(below):
        return float("nan")
    after = int(below[0])
    if after == 0:
        return float(seconds[0])
    part = (losses[after - 1] - target) / (losses[after - 1] - losses[after])
    return float(seconds[after - 1] + part * (seconds[after] - seconds[after - 1]))


def _event_curves(study: Study) -> dict[tuple[str, float | None], dict[int, pd.DataFrame]]:
    """Evaluations by method and alpha, then by seed; the last one is there twice if the budget ends with a period."""
    found: dict[tuple[str, float | None], dict[int, pd.DataFrame]] = {}
    for entry, result in study.select(role="event"):
        curve = result.history.evaluation_frame().drop_duplicates("seconds", keep="last")
        found.setdefault((entry.labels["method"], entry.labels["alpha"]), {})[entry.labels["seed"]] = curve
    return found


def _simulate(algorithm: Algorithm, world: World, seed: int = 0, **budget: Any) -> History:
    """Run on quadratics with scattered minimisers, where a task is one step, and keep the trace."""
    curvature, centre = np.ones((world.devices, 1)), np.linspace(-1, 1, world.devices)[:, None]
    return Simulation(
        Quadratic(curvature, centre, [5.0]),
        world,
        algorithm,
        budget=Budget(**budget),
        training=LocalTraining(lr=0.1),
        evaluation=Evaluation(every_updates=None),
        seed=seed,
        trace=True,
    ).run("sequential")


def _indicator(bound: int) -> dict[str, Any]:
    """Return the weight 1[u <= bound] as FedAsync's setting; it is none of the paper's, so it is not among ours."""
    return {"weight": lambda u: float(u <= bound)}


def _in_flight(history: History) -> int:
    """Return the staleness so far of all tasks that were begun and are not completed."""
    last = history.updates["version"][-1]
    begun = Counter(history.spans["base_version"])
    rows = zip(history.updates["version"], history.updates["staleness"], strict=True)
    completed = Counter(version - 1 - staleness for version, staleness in rows)
    return sum(count * (last - base) for base, count in (begun - completed).items())


def _mean_staleness(period: float, seed: int) -> float:
    """Return the mean over 300 updates if an idle device is triggered every `period` seconds (tasks of 1 to 5 s)."""
    trigger = Timed(period_seconds=period, per_tick=1, concurrency=20)
    history = _simulate(FedAsync(), World(devices=20, compute=UniformCompute(), trigger=trigger), seed, updates=300)
    return float(np.mean(history.updates["staleness"]))


def _clocked(durations: tuple[float, ...], availability: TraceAvailability | None = None) -> World:
    compute = TraceCompute(seconds_per_step=durations)
    return World(devices=len(durations), compute=compute, availability=availability)


def _finish_times(world: World, horizon: float) -> dict[int, list[float]]:
    """Return by client when its tasks finished, with all clients at work all the time."""
    history = _simulate(FedAsync(concurrency=world.devices), world, seconds=horizon)
    times: dict[int, list[float]] = {device: [] for device in range(world.devices)}
    for device, seconds in zip(history.updates["device"], history.updates["seconds"], strict=True):
        times[device].append(seconds)
    return times


for _claim in (
    Claim("FEDASYNC-C19", "To drop updates that are too stale is to mix them with weight zero.", "section 6.4",
          "sampled staleness: threshold and weight 1[u ≤ b] give the same bits", dropping_is_no_weight, exact=True,
          computed=True),
    Claim("FEDASYNC-C20", "Triggering fewer tasks at a time, or less often, lowers staleness.", "section 4",
          "constant concurrency M: Σ staleness = (M − 1) N exactly; periodic: mean staleness falls with the period",
          less_often_is_fresher, exact=True, computed=True),
    Claim("FEDASYNC-C21", "The server waits for nobody, and the work of stragglers is used.", "section 4",
          f"one client {SLOWER} times slower: all clients used, Σ 1/duration updates per second, FedAvg's rounds as "
          "long as their slowest; time to a common loss(FedAsync) < that of FedAvg", nobody_waits),
    Claim("FEDASYNC-C24", "More workers in parallel are used in full.", "section 4",
          "equal durations: updates per second proportional to M, exactly", rate_is_proportional, exact=True,
          computed=True),
    Claim("FEDASYNC-C25", "A worker may pause and push later, and nobody waits for it.", "section 4",
          "a pause of Δ shifts the worker's own finish times by Δ and no others, exactly", pauses_stay_private,
          exact=True, computed=True),
):  # fmt: skip
    register(_claim)
