"""FedAsync's claims: the specification's tests and thresholds (section 8), and the functions that judge them.

Claims about triggering, counting and waiting are exact: no learning problem can change them, so they are judged on
quadratics, in virtual time, within a second or two (C19, C20, C24, C25). Whether FedAsync reaches a loss earlier than
FedAvg when a client is slow is a question for real training (C21). Theorems are judged on toys (C26 to C29).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from fl_core.algorithms import Algorithm, FedAsync, FedAvg
from fl_core.experiments.claims import Check, Comparison, make_claim
from fl_core.experiments.study import Study
from fl_core.formulas.staleness import Hinge
from fl_core.runtime import Budget, Evaluation, History, LocalTraining, Simulation
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
from fl_papers.fedasync import theory
from fl_papers.fedasync.experiment import ADAPTIVE, SLOWER, options_of
from fl_papers.fedasync.figures import STEPS, alphas, area, event_curves, oscillation, sweep_values, time_to_loss

PLAIN = "FedAsync"
SMALL, LARGE = 0, 1


def staleness(study: Study, which: int) -> int:
    """Return the small or the large maximum staleness of `study`."""
    return options_of(study).max_staleness[which]


def _areas(study: Study, axis: str, which: int) -> dict[float, dict[int, float]]:
    """Area of plain FedAsync by alpha, without those that have no runs."""
    found = {a: area(study, axis, PLAIN, alpha=a, max_staleness=staleness(study, which)) for a in alphas(study)}
    return {alpha: values for alpha, values in found.items() if values}


def _against(
    study: Study, axis: str, which: int, method: str, bound: float = 1.0, above: bool = False
) -> list[Comparison]:
    """Compare plain FedAsync with another method, for each alpha."""
    other = area(study, axis, method)
    name = f"K = {staleness(study, which)}"
    return [
        Comparison(f"{name}, α = {alpha:g}", values, other, bound, above)
        for alpha, values in _areas(study, axis, which).items()
        if other
    ]


def as_fast_as_sgd(study: Study) -> list[Comparison]:
    """FEDASYNC-C01."""
    found = _against(study, "gradients", SMALL, "SGD", 1.15)
    return [min(found, key=lambda part: np.mean(list(part.left.values())))] if found else []


def slower_if_staler(study: Study) -> list[Comparison]:
    """FEDASYNC-C03."""
    small, large = _areas(study, "gradients", SMALL), _areas(study, "gradients", LARGE)
    return [Comparison(f"α = {alpha:g}", large[alpha], small[alpha], above=True) for alpha in small if alpha in large]


def large_alpha_oscillates(study: Study) -> list[Comparison]:
    """FEDASYNC-C05."""
    large = staleness(study, LARGE)
    high, low = (oscillation(study, PLAIN, alpha=alpha, max_staleness=large) for alpha in (0.9, 0.2))
    return [Comparison("α = 0.9 against 0.2", high, low, above=True)] if high and low else []


def adaptive_is_calmer(study: Study) -> list[Comparison]:
    """FEDASYNC-C06."""
    labels = {"alpha": 0.9, "max_staleness": staleness(study, LARGE)}
    plain = oscillation(study, PLAIN, **labels)
    found = {name: oscillation(study, f"{PLAIN}{name}", **labels) for name in ("+Poly", "+Hinge")}
    return [Comparison(name, values, plain) for name, values in found.items() if values and plain]


def hinge_is_plain(study: Study) -> list[Check]:
    """FEDASYNC-C07: equal final model and equal evaluations, bit for bit."""
    small, found = staleness(study, SMALL), []
    others = study.select(role="identity") + study.select(role="curve", method=f"{PLAIN}+Hinge", max_staleness=small)
    for entry, result in others:
        method = entry.spec.algorithm
        assert isinstance(method, FedAsync)
        assert isinstance(method.weight, Hinge)
        if small > method.weight.b:
            continue  # the hinge bends inside the pool, so nothing needs to be equal
        labels = {name: entry.labels[name] for name in ("alpha", "max_staleness", "seed")}
        for _, plain in study.select(role="curve", method=PLAIN, **labels):
            equal = result.history.evaluations == plain.history.evaluations and (
                result.provenance["model_sha256"] == plain.provenance["model_sha256"]
            )
            where = f"α = {labels['alpha']:g}, seed {labels['seed']}"
            name = f"a = {method.weight.a:g}, {method.convention.replace('_', ' ')}, {where}"
            found.append(Check(name, equal, "bitwise equal"))
    return found


def between(study: Study) -> list[Comparison]:
    """FEDASYNC-C16."""
    return [
        part
        for which in (SMALL, LARGE)
        for method, bound, above in (("SGD", 0.95, True), ("FedAvg", 1.1, False))
        for part in _named(_against(study, "gradients", which, method, bound, above), method)
    ]


def towards_sgd(study: Study) -> list[Comparison]:
    """FEDASYNC-C17."""
    fast = area(study, "gradients", PLAIN, alpha=0.9, max_staleness=staleness(study, SMALL))
    slow = area(study, "gradients", PLAIN, alpha=0.2, max_staleness=staleness(study, LARGE))
    name = f"α = 0.9, K = {staleness(study, SMALL)} against α = 0.2, K = {staleness(study, LARGE)}"
    return [Comparison(name, fast, slow)] if fast and slow else []


def slower_but_alive(study: Study) -> list[Comparison]:
    """FEDASYNC-C11."""
    small, large = staleness(study, SMALL), staleness(study, LARGE)
    loss, accuracy = (_by_staleness(study, metric, PLAIN) for metric in ("train_loss", "test_accuracy"))
    found = []
    if loss.shape[1] > 1:
        found.append(Comparison("rank correlation of loss with K", _correlation(loss), _one(loss), 0.0, above=True))
    if {small, large} <= set(accuracy.columns):
        name = f"accuracy, K = {large} against {small}"
        found.append(Comparison(name, _seeds(accuracy[large]), _seeds(accuracy[small]), 0.9, above=True))
    return found


def adaptive_helps_when_stale(study: Study) -> list[Comparison]:
    """FEDASYNC-C12."""
    large = staleness(study, LARGE)
    plain, poly = (_by_staleness(study, "train_loss", method) for method in (PLAIN, f"{PLAIN}+Poly"))
    known = large in plain.columns and large in poly.columns
    return [Comparison(f"K = {large}", _seeds(poly[large]), _seeds(plain[large]))] if known else []


def robust_to_alpha(study: Study) -> list[Comparison]:
    """FEDASYNC-C13: the range of each seed, which is at least the range of the means."""
    found = []
    for which in (SMALL, LARGE):
        for method in ADAPTIVE:
            values = _by_alpha(study, method, which)
            if values.shape[1] > 1:
                spread = _seeds(values.max(axis=1) - values.min(axis=1))
                found.append(Comparison(f"K = {staleness(study, which)}, {method}", spread, _one(values), 0.05))
    return found


def adaptivity_is_unnecessary(study: Study) -> list[Comparison]:
    """FEDASYNC-C14: the difference is within 0.02 to both sides."""
    plain, poly = (_by_alpha(study, method, SMALL) for method in (PLAIN, f"{PLAIN}+Poly"))
    found = []
    for alpha in plain.columns.intersection(poly.columns):
        difference = (poly[alpha] - plain[alpha]).dropna()
        for bound, above in ((0.02, False), (-0.02, True)):
            found.append(Comparison(f"α = {alpha:g}", _seeds(difference), _one(difference), bound, above))
    return found


def best_alpha(study: Study) -> list[Comparison]:
    """FEDASYNC-C15."""
    found = []
    for method in ADAPTIVE:
        values = _by_alpha(study, method, LARGE)
        if values.shape[1] > 1:
            found.append(Comparison(method, _correlation(values), _one(values), 0.0, above=method != PLAIN))
    return found


def poly_beats_hinge(study: Study) -> list[Comparison]:
    """FEDASYNC-C18."""
    large, methods = staleness(study, LARGE), (f"{PLAIN}+Poly", f"{PLAIN}+Hinge")
    poly, hinge = (_by_alpha(study, method, LARGE) for method in methods)
    found = [
        Comparison(f"Fig. 10, α = {alpha:g}", _seeds(poly[alpha]), _seeds(hinge[alpha]), above=True)
        for alpha in poly.columns.intersection(hinge.columns)
    ]
    poly, hinge = (_by_staleness(study, "test_accuracy", method) for method in methods)
    if large in poly.columns and large in hinge.columns:
        found.append(Comparison(f"Fig. 8, K = {large}", _seeds(poly[large]), _seeds(hinge[large]), above=True))
    return found


def _by_staleness(study: Study, metric: str, method: str) -> pd.DataFrame:
    return sweep_values(study, "staleness sweep", metric, method, "max_staleness")


def _by_alpha(study: Study, method: str, which: int) -> pd.DataFrame:
    return sweep_values(study, "alpha sweep", "test_accuracy", method, "alpha", max_staleness=staleness(study, which))


def _seeds(values: pd.Series) -> dict[int, float]:
    return {int(seed): float(value) for seed, value in zip(values.index, values, strict=True)}


def _correlation(values: pd.DataFrame) -> dict[int, float]:
    """Spearman's rank correlation of each row with the column names; 0 if all its values are equal."""
    found = values.apply(
        lambda row: stats.spearmanr(values.columns, row).statistic if row.nunique() > 1 else 0.0, axis=1
    )
    return _seeds(found)


def _one(values: pd.DataFrame | pd.Series) -> dict[int, float]:
    return {int(seed): 1.0 for seed in values.index}


def counters(column: str, asynchronous: int, rounds: int) -> Callable[[Study], list[Check]]:
    """Return the check that every evaluation of every run counts exactly so much per global epoch."""

    def check(study: Study) -> list[Check]:
        found = []
        for name, per_epoch in ((PLAIN, asynchronous), ("FedAvg", rounds)):
            frames = [
                result.history.evaluation_frame()
                for entry, result in study.select(role="curve", part="whole")
                if entry.labels["method"].startswith(name)
            ]
            holds = all((frame[column] == per_epoch * frame["version"]).all() for frame in frames)
            total = f"{max((int(f[column].iloc[-1]) for f in frames), default=0):,} in all"
            found.append(Check(name, holds if frames else None, f"{per_epoch} per epoch, {total}"))
        return found

    return check


def _named(parts: Sequence[Comparison], prefix: str) -> list[Comparison]:
    return [replace(p, name=f"against {prefix}, {p.name}") for p in parts]


def _both(axis: str) -> Callable[[Study], list[Comparison]]:
    """FedAsync is slower than FedAvg at both stalenesses, for each alpha."""
    return lambda study: [
        part for which in (SMALL, LARGE) for part in _against(study, axis, which, "FedAvg", above=True)
    ]


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
            held &= completed + flying == theory.total_staleness(tasks, 200)
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


def _times_to_loss(study: Study) -> list[Check | Comparison]:
    """Compare, by seed, when FedAsync and FedAvg first have a training loss that both reach.

    The loss aimed at is the lowest such: the larger one of the two curves' minima. This rule was fixed before there
    were runs. Between evaluations the loss is interpolated.
    """
    curves = event_curves(study)
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


def first_theorem(study: Study) -> list[Check]:
    """FEDASYNC-C26: FA-9 on toy Q and logistic regression, and what it cannot say (E4)."""
    quadratic, logistic = theory.theorem1_on_toy_q(), theory.theorem1_on_logistic()
    failed = int(quadratic[["FA-9", "tight", "step"]].to_numpy().sum())
    below, _ = theory.vacuity()
    return [
        Check("toy Q", failed == 0, f"{failed} violations in {len(quadratic)} configurations, exact expectations"),
        Check(
            "logistic regression",
            not logistic["FA-9"].any(),
            f"{int(logistic['FA-9'].sum())} violations in {len(logistic)} configurations, mean of 40 runs",
        ),
        Check("never below the error at the start (E4)", below == 0, f"{below} of 200,000 admissible constants"),
    ]


def second_theorem(study: Study) -> list[Check]:
    """FEDASYNC-C27: the proof of Theorem 2 step by step, FA-12 with unlike clients, and what it allows (E4, E9)."""
    waves, clients = theory.theorem2_on_toy_w(), theory.theorem2_with_clients()
    _, below = theory.vacuity()
    failed, total = int(waves["violated"].sum()), int(waves["inequalities"].sum())
    stuck = waves["F"] > 4
    far = set(waves.loc[stuck, "x_0"])
    toy = theory.ToyW()
    minimum = float(toy.loss(toy.local_minimum))
    return [
        Check("toy W, step by step", failed == 0, f"{failed} of {total:,} inequalities violated, 9 runs"),
        Check("toy W, four unlike clients", clients == 0, f"{clients} violations, mean of 400 runs"),
        Check("never below the error at the start (E4)", below == 0, f"{below} of 200,000 admissible constants"),
        Check(
            "not the global optimum (E9)",
            stuck.sum() == 6 and far == {2.0, 3.0} and bool((waves.loc[stuck, "R"] > 1e5 * minimum).all()),
            f"{stuck.sum()} of 9 runs end in a local minimum, F = {waves.loc[stuck, 'F'].min():.3f}; "
            f"R = {waves.loc[stuck, 'R'].min():.1e} and more",
        ),
    ]


def alpha_trades(study: Study) -> list[Check]:
    """FEDASYNC-C28: toy Q, K = 1."""
    toy, grid = theory.ToyQ(), np.geomspace(0.01, 1, 41)
    rates = np.array(
        [theory.contraction_root(a, theory.q_option1(toy.lr, toy.strong_convexity, STEPS), 1) for a in grid]
    )
    errors = np.array([toy.stationary_error(a, STEPS) for a in grid])
    span = "α from 0.01 to 1: from {:.3g} to {:.3g}"
    return [
        Check("rate λ decreases in α", bool(np.all(np.diff(rates) < 0)), span.format(rates[0], rates[-1])),
        Check(
            "remaining error increases in α", bool(np.all(np.diff(errors) > 0)), span.format(errors[0], errors[-1])
        ),
    ]


def tolerance(study: Study) -> list[Check]:
    """FEDASYNC-C29: mixing is stable for every age and function (D2), and the repaired rate is below one (D7)."""
    roots = theory.largest_mixing_root()
    rates = [
        theory.adaptive_rate(a, q, 64, w) for w in theory.WEIGHTS for a in (0.05, 0.5, 0.95) for q in (0.0, 0.5, 0.95)
    ]
    return [
        Check("mixing is stable", bool(roots.max() < 1), f"largest root {roots.max():.5f}, ages 1 to 16"),
        Check("rate λ* < 1 for K ≤ 64", max(rates) < 1, f"1 − λ* ≥ {1 - max(rates):.1e}, five functions"),
    ]


claim = partial(make_claim, "FEDASYNC")
CLAIMS = [
    claim("C01", "Fig. 2", "With little staleness FedAsync converges as fast as SGD per gradient.",
         "area(FedAsync, small K, best α) ≤ 1.15 area(SGD)", as_fast_as_sgd),
    claim("C02", "Fig. 2", "With little staleness FedAsync converges faster than FedAvg per gradient.",
         "area(FedAsync, small K) < area(FedAvg), each α",
         lambda study: _against(study, "gradients", SMALL, "FedAvg")),
    claim("C03", "Fig. 3", "More staleness makes FedAsync slower.",
         "area(FedAsync, large K) > area(FedAsync, small K), each α", slower_if_staler),
    claim("C04", "Fig. 3", "In the worst case FedAsync is similar to FedAvg per gradient.",
         "area(FedAsync, large K) ≤ 1.1 area(FedAvg), each α",
         lambda study: _against(study, "gradients", LARGE, "FedAvg", 1.1)),
    claim("C05", "Fig. 3", "Too large an α makes convergence unstable.",
         "oscillation(α = 0.9) > oscillation(α = 0.2), large K", large_alpha_oscillates, fragile=True),
    claim("C06", "Fig. 3", "Adaptive mixing is robust to a large α.",
         "oscillation(+Poly), oscillation(+Hinge) < oscillation(FedAsync), α = 0.9, large K",
         adaptive_is_calmer, fragile=True),
    claim("C07", "Figs 2, 4, 6", "With K = 4, FedAsync and FedAsync+Hinge with b = 4 are the same.",
         "same seed, same bits, both conventions, a = 10 and 4", hinge_is_plain, exact=True),
    claim("C08", "Figs 4, 5", "FedAvg makes more progress per global epoch.",
         "area per epoch(FedAvg) < area per epoch(FedAsync), each K and α", _both("epochs")),
    claim("C09", "Fig. 6", "With little staleness FedAsync is faster than FedAvg for the same communication.",
         "area per communication(FedAsync, small K) < that of FedAvg, each α",
         lambda study: _against(study, "communications", SMALL, "FedAvg")),
    claim("C10", "Fig. 7", "With much staleness it is similar to FedAvg for the same communication.",
         "area per communication(FedAsync, large K) ≤ 1.1 times that of FedAvg, each α",
         lambda study: _against(study, "communications", LARGE, "FedAvg", 1.1)),
    claim("C11", "Fig. 8", "More staleness makes FedAsync slower, but not catastrophically.",
         "rank correlation of final loss with K > 0; final accuracy at the large K ≥ 0.9 times that at the small K",
         slower_but_alive),
    claim("C12", "Fig. 8", "Adaptive mixing mitigates the instability that much staleness causes.",
         "final loss(+Poly) ≤ final loss(FedAsync), large K", adaptive_helps_when_stale, fragile=True),
    claim("C13", "Figs 9, 10", "FedAsync is robust to α: the differences are tiny.",
         "range of final accuracy over α ≤ 0.05, each method and K", robust_to_alpha),
    claim("C14", "Fig. 9", "With little staleness adaptive mixing is less necessary.",
         "|final accuracy(+Poly) − final accuracy(FedAsync)| ≤ 0.02, small K, each α",
         adaptivity_is_unnecessary),
    claim("C15", "Fig. 10", "With much staleness plain FedAsync prefers a small α, adaptive mixing a large one.",
         "rank correlation of final accuracy with α: below 0 for FedAsync, above 0 for +Poly and +Hinge, large K",
         best_alpha, fragile=True),
    claim("C16", "Figs 2, 3", "FedAsync's speed lies between SGD's and FedAvg's.",
         "0.95 area(SGD) ≤ area(FedAsync) ≤ 1.1 area(FedAvg), each K and α", between),
    claim("C17", "Figs 2, 3", "Larger α and less staleness bring it closer to SGD, the opposite closer to FedAvg.",
         "area(α = 0.9, small K) < area(α = 0.2, large K)", towards_sgd),
    claim("C18", "section 6", "Polynomial weights with a = 0.5 are the best adaptive strategy.",
         "final accuracy(+Poly) ≥ final accuracy(+Hinge), large K, Figure 8 and each α of Figure 10",
         poly_beats_hinge, fragile=True),
    claim("C22", "Figs 6, 7", "A global epoch of FedAvg costs ten times the communications.",
         "2 and 20 transfers per epoch in every evaluation", counters("communications", 2, 20), exact=True),
    claim("C23", "Figs 2, 3", "A global epoch applies 10 gradients in FedAsync and 100 in FedAvg.",
         "10 and 100 gradients per epoch in every evaluation", counters("gradients", 10, 100), exact=True),
    claim("C19", "section 6.4", "To drop updates that are too stale is to mix them with weight zero.",
          "sampled staleness: threshold and weight 1[u ≤ b] give the same bits", dropping_is_no_weight, exact=True,
          computed=True),
    claim("C20", "section 4", "Triggering fewer tasks at a time, or less often, lowers staleness.",
          "constant concurrency M: Σ staleness = (M − 1) N exactly; periodic: mean staleness falls with the period",
          less_often_is_fresher, exact=True, computed=True),
    claim("C21", "section 4", "The server waits for nobody, and the work of stragglers is used.",
          f"one client {SLOWER} times slower: all clients used, Σ 1/duration updates per second, FedAvg's rounds as "
          "long as their slowest; time to a common loss(FedAsync) < that of FedAvg", nobody_waits),
    claim("C24", "section 4", "More workers in parallel are used in full.",
          "equal durations: updates per second proportional to M, exactly", rate_is_proportional, exact=True,
          computed=True),
    claim("C25", "section 4", "A worker may pause and push later, and nobody waits for it.",
          "a pause of Δ shifts the worker's own finish times by Δ and no others, exactly", pauses_stay_private,
          exact=True, computed=True),
    claim("C26", "Theorem 1", "Theorem 1: with Option I the error falls like β^T to a neighbourhood.",
          "printed bound with its constant holds wherever it is tried; it never certifies progress", first_theorem,
          exact=True, computed=True),
    claim("C27", "Theorem 2", "Theorem 2: the same for weakly convex losses with Option II.",
          "every inequality of the proof on toy W; the bound never certifies progress, nor a global optimum",
          second_theorem, exact=True, computed=True),
    claim("C28", "Remark 3", "α trades the speed of convergence against the error that remains.",
          "toy Q, K = 1: λ decreases and the stationary error increases in α", alpha_trades, exact=True,
          computed=True),
    claim("C29", "Introduction, conclusion", "FedAsync tolerates staleness.",
          "largest root of mixing < 1 at every age; λ* < 1 for K ≤ 64", tolerance, exact=True, computed=True),
]  # fmt: skip
