"""FedAsync's claims that no training decides: the clock's, on quadratics, and the theory's, on known toys.

A row of the ledger names the algebra that proves it (`proof`); everything else here is checked on cases.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import pairwise, product
from typing import Any

import numpy as np

from fl_core import world as worlds
from fl_core.algorithms import Algorithm, FedAsync, FedAvg
from fl_core.experiments.claims import Check
from fl_core.experiments.study import Study
from fl_core.formulas.fedasync import alpha_t
from fl_core.formulas.staleness import polynomial
from fl_core.runtime import Budget, Evaluation, History, LocalTraining, Simulation
from fl_core.tasks import Quadratic
from fl_core.world import Compute, ConstantCompute, TraceAvailability, TraceCompute, UniformCompute, World
from fl_core.world.triggers import Timed
from fl_papers.fedasync import theory
from fl_papers.fedasync.experiment import SLOWER
from fl_papers.fedasync.figures import STEPS


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
        "fixed ratio": worlds.RatioCompute(),
        "log-normal": worlds.LogNormalCompute(sigma=1.0),
        "exponential": worlds.ExponentialCompute(),
    }
    found = []
    for law, compute in laws.items():
        held, shown = True, []
        for tasks in (1, 4, 10):
            world = World(devices=20, compute=compute)
            history = _simulate(FedAsync(concurrency=tasks), world, seed=tasks, updates=200)
            completed, flying = sum(history.updates["staleness"]), _in_flight(history)
            held &= completed + flying == theory.total_staleness(tasks, 200)
            shown.append(f"{completed} + {flying}")
        detail = f"completed + in flight = (M − 1)·200 for M = 1, 4, 10: {', '.join(shown)}"
        found.append(Check(f"constant concurrency, {law} durations", held, detail))
    crowd = World(devices=20, compute=UniformCompute())
    histories = (_simulate(FedAsync(concurrency=10), crowd, updates=updates) for updates in (50, 200, 800))
    gaps = [9 - float(np.mean(history.updates["staleness"])) for history in histories]
    shrinks = all(abs(later) < abs(earlier) for earlier, later in pairwise(gaps))
    detail = f"M − 1 less the mean: {', '.join(f'{gap:.3f}' for gap in gaps)} after 50, 200, 800 updates"
    found.append(Check("mean staleness tends to M − 1, M = 10", shrinks, detail))
    for seed in range(3):
        means = [_mean_staleness(period, seed) for period in (0.5, 1.0, 2.0, 4.0)]
        falls = all(later < earlier for earlier, later in pairwise(means))
        detail = " > ".join(f"{mean:.2f}" for mean in means)
        found.append(Check(f"periods 0.5, 1, 2, 4 s, seed {seed}", falls, f"mean staleness {detail}"))
    return found


def nobody_waits(study: Study) -> list[Check]:
    """FEDASYNC-C21: exact rates with one slow client."""
    durations, horizon, each_round = (1.0,) * 9 + (float(SLOWER),), 100.0, 3
    world = World(devices=len(durations), compute=TraceCompute(seconds_per_step=durations))
    history = _simulate(FedAsync(concurrency=len(durations)), world, seconds=horizon)
    used = Counter(history.updates["device"])
    least = min(used[device] for device in range(len(durations)))
    count, expected = len(history.updates["version"]), sum(horizon / duration for duration in durations)
    rate = f"{count} in {horizon:g} s, Σ 1/duration = {expected / horizon:g}"
    found = [
        Check("every client is used", least >= 1, f"at least {least} mixed updates of each"),
        Check("rate of updates", count == expected, rate),
    ]
    rounds = _simulate(FedAvg(clients_per_round=each_round), world, updates=60)
    by_round = rounds.update_frame().groupby("version")
    lasted = np.diff(by_round["seconds"].first(), prepend=0.0).tolist()
    slowest = [max(durations[device] for device in chosen) for chosen in by_round["device"].apply(list)]
    total = f"60 rounds in {sum(slowest):g} s"
    found.append(Check("FedAvg's rounds last as long as their slowest client", lasted == slowest, total))
    return found


def rate_is_proportional(study: Study) -> list[Check]:
    """FEDASYNC-C24."""
    world, horizon = World(devices=32, compute=ConstantCompute(seconds_per_step=2.0)), 40.0
    runs = {m: _simulate(FedAsync(concurrency=m), world, seconds=horizon) for m in (1, 2, 4, 8, 16, 32)}
    counts = {tasks: len(history.updates["version"]) for tasks, history in runs.items()}
    return [Check(f"M = {m}", n == m * horizon / 2, f"{n} updates in {horizon:g} s") for m, n in counts.items()]


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


def _simulate(algorithm: Algorithm, world: World, seed: int = 0, **budget: Any) -> History:
    """Run on quadratics with scattered minimisers, where a task is one step, and keep the trace."""
    curvature, centre = np.ones((world.devices, 1)), np.linspace(-1, 1, world.devices)[:, None]
    return Simulation(
        Quadratic(curvature, centre, [5.0]), world, algorithm, budget=Budget(**budget), seed=seed, trace=True,
        training=LocalTraining(lr=0.1), evaluation=Evaluation(every_updates=None),
    ).run("sequential")  # fmt: skip


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


def _finish_times(world: World, horizon: float) -> dict[Any, list[float]]:
    """Return by client when its tasks finished, with all clients at work all the time."""
    history = _simulate(FedAsync(concurrency=world.devices), world, seconds=horizon)
    return {device: own["seconds"].tolist() for device, own in history.update_frame().groupby("device")}


# The theory


def first_theorem(study: Study, bound: str) -> list[Check]:
    """FEDASYNC-C26 (FA-9, and what it cannot say) and C26c (FA-10)."""
    quadratic, logistic = theory.theorem1_on_toy_q(adaptive=bound == "FA-10"), theory.theorem1_on_logistic()
    found = []
    for name, table, how in (("toy Q", quadratic, "exact expectations"), ("logistic", logistic, "mean of 40 runs")):
        failed = int(table[bound].sum())
        found.append(Check(name, failed == 0, f"{failed} violations in {len(table)} configurations, {how}"))
    return found if bound == "FA-10" else [*found, says_nothing(0)]


def says_nothing(theorem: int) -> Check:
    """Return that a theorem's bound is never below the error at the start (E4)."""
    below = theory.vacuity()[theorem]
    detail = f"in {below} of 200,000 admissible draws (E4)"
    return Check("below the error at the start", below == 0, detail, "vacuity")


def second_theorem(study: Study) -> list[Check]:
    """FEDASYNC-C27: convergence to a global optimum (E9), with every admitted step size (E8)."""
    waves, lr, rho = theory.theorem2_on_toy_w(), 0.199, 10.0
    stuck, admitted = int((waves["F"] > 4).sum()), lr < min(1, 2 / rho)
    factor = theory.local_factor(1.0, lr, 10, rho)
    end = float(theory.iterate(1.0, [0.6] * 20, range(20), lambda x: factor * x)[-1])
    return [
        Check("toy W, to the global optimum", stuck == 0, f"{stuck} of {len(waves)} runs end elsewhere (E9)"),
        Check("x²/2, an admitted step size", not admitted or end < 1, f"from 1 to {end:.1f} in 20 updates (E8)"),
    ]


def second_theorem_corrected(study: Study) -> list[Check]:
    """FEDASYNC-C27c: the proof of Theorem 2 step by step, FA-12 with unlike clients, and what it allows."""
    waves, clients = theory.theorem2_on_toy_w(), theory.theorem2_with_clients()
    failed, total = int(waves["violated"].sum()), int(waves["inequalities"].sum())
    return [
        Check("toy W, step by step", failed == 0, f"{failed} of {total:,} inequalities violated, 9 runs"),
        Check("toy W, four unlike clients", clients == 0, f"{clients} violations, mean of 400 runs"),
        says_nothing(1),
    ]


def trade_in_the_bound(study: Study, draws: int = 20_000) -> list[Check]:
    """FEDASYNC-C28: among admissible constants a larger alpha never lowers Theorem 1's bound (E5, D6)."""
    rng = np.random.default_rng(5)
    v1, v2, q = rng.uniform(0.01, 10, draws), rng.uniform(0.01, 10, draws), rng.uniform(0.01, 0.99, draws)
    T, (low, high) = rng.integers(1, 500, draws), np.sort(rng.uniform(0.01, 1, (2, draws)), axis=0)
    level, start = (v1 + v2) / 2, rng.uniform(0, 0.5, draws) * v2
    less, more = (theory.printed_bound(T, start, theory.beta(alpha, q), level) for alpha in (low, high))
    lower = int(np.count_nonzero(more < less * (1 - 1e-12)))
    detail = f"the bound falls in {lower} of {draws:,} admissible draws; its level has no α (E5)"
    return [Check("a larger α against a smaller one", lower == 0, detail, "vacuity")]


def alpha_trades(study: Study) -> list[Check]:
    """FEDASYNC-C28c: toy Q, K = 1."""
    toy, grid = theory.ToyQ(), np.geomspace(0.01, 1, 41)
    q = theory.q_option1(toy.lr, toy.strong_convexity, STEPS)
    rates = np.array([theory.contraction_root(a, q, 1) for a in grid])
    errors = np.array([toy.stationary_error(a, STEPS) for a in grid])
    span = "α from 0.01 to 1: from {:.3g} to {:.3g}"
    return [
        Check("rate λ falls", bool((np.diff(rates) < 0).all()), span.format(rates[0], rates[-1])),
        Check("remaining error rises", bool((np.diff(errors) > 0).all()), span.format(errors[0], errors[-1])),
    ]


def weight_without_staleness() -> tuple[bool, str]:
    """E10: s of Algorithm 1's t - tau, which is 1 for a model that missed no update."""
    weight = alpha_t(1.0, 1, 0, partial(polynomial, a=0.5), convention="paper")
    return weight < 1, f"{weight:.4f} α"


def undone_decay() -> tuple[bool, str]:
    """E21: update 801, fresh, alpha = 0.8."""
    assigned, decayed = alpha_t(0.8, 801, 0), alpha_t(0.8, 801, 0, schedule="step")
    return assigned != decayed, f"{assigned:g}, with the decay {decayed:g}"


def tolerance(study: Study) -> list[Check]:
    """FEDASYNC-C29: mixing is stable for every age and function (D2), and the repaired rate is below one (D7)."""
    roots = theory.largest_mixing_root()
    settings = product(theory.WEIGHTS, (0.05, 0.5, 0.95), (0.0, 0.5, 0.95))
    rates = [theory.adaptive_rate(alpha, q, 64, weight) for weight, alpha, q in settings]
    return [
        Check("mixing is stable", bool(roots.max() < 1), f"largest root {roots.max():.5f}, ages 1 to 16"),
        Check("rate λ* < 1 for K ≤ 64", max(rates) < 1, f"1 − λ* ≥ {1 - max(rates):.1e}, five functions"),
    ]
