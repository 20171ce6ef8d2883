"""SD-FEEL's claims that no training decides: the clock's, and each statement of the theory where everything is known.

A row of the ledger names the algebra that proves it (`proof`); everything else here is checked on cases.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import reduce
from itertools import islice, product

import numpy as np
from numpy.typing import NDArray

from fl_core.experiments.claims import Check
from fl_core.experiments.study import Study
from fl_core.formulas.sdfeel import Mixing, synchronous_mixing_matrix
from fl_papers.sdfeel import theory
from fl_papers.sdfeel.experiment import ASYNC, ROUND_SECONDS, gaps, runs
from fl_papers.sdfeel.figures import GAPS, VARIED

UNEQUAL = (0.10, 0.12, 0.15, 0.18, 0.20, 0.25)
"""Cluster shares that are less even than those of the Dirichlet partitions (oracle O7)."""
EVENT = (2, (4, 0, 2, 7, 1, 5))  # Trigger and stalenesses of the example of E-01 and E-05, whose models are 1 to 6.


# The clock


def devices_idle(study: Study) -> list[Check]:
    """SDFEEL-C07: the part of the time in which devices compute."""
    busy = {gap: theory.paper_clock(gap).busy for gap in GAPS}
    return [
        Check(f"H = {gap:g}", sync < ours > 0.98, f"computing {sync:.1%} synchronous, {ours:.1%} async")
        for gap, (sync, ours) in busy.items()
    ]


def equal_speeds(study: Study) -> list[Check]:
    """SDFEEL-C14."""
    clock = theory.paper_clock(1.0)
    (step,), (period,), busy = set(clock.local_steps.tolist()), set(clock.periods), clock.busy
    detail = f"{step} steps on all devices, {period:.1f} s, computing {busy[0]:.1%} of the time"
    return [Check("steps, times, use", step == 100 and period == clock.round_seconds and busy[0] == busy[1], detail)]


def consensus_is_cheap(study: Study) -> list[Check]:
    """SDFEEL-C15: gossip to a spread of 1e-6, against the horizon of A-11."""
    whole, found = 50 * ROUND_SECONDS[10], []
    for name, shares in (("equal clusters", None), ("unequal clusters (O7)", UNEQUAL)):
        rounds = theory.consensus_rounds(theory.zeta(synchronous_mixing_matrix(theory.RING, shares)), 1e-6)
        seconds = rounds * theory.paper_clock(5).exchange
        detail = f"{rounds} rounds, {seconds:,.0f} s, {seconds / whole:.2%} of the horizon"
        found.append(Check(name, seconds < 0.01 * whole, detail))
    return found


def observed_staleness(study: Study) -> list[Check]:
    """SDFEEL-C18: the largest one over 3,000 events for three draws of speeds, and every upload of the runs (D4)."""
    found, uploads, over = [], 0, 0
    for seed in range(3):
        seen = [int(latenesses(theory.paper_clock(gap, seed).periods, 3000).max()) for gap in GAPS]
        found.append(Check(f"draw {seed}", seen == sorted(seen), f"{seen} at H = 5, 10, 30"))
    for role in ("curve", "non-IID", "long"):
        for gap in gaps(study, role=role):
            for entry, result in runs(study, ASYNC, gap, role).values():
                bounds, table = theory.staleness_bound(theory.run_clock(entry.spec).periods), result.history.updates
                owner = entry.spec.world.realise(entry.spec.seed).server_of
                late = zip(table["device"], table["staleness"], strict=True)
                over += sum(staleness > bounds[owner(device)] for device, staleness in late)
                uploads += len(table["device"])
    detail = f"{uploads - over:,} of {uploads:,} uploads at most Σ⌈T_d/T_j⌉"
    return [*found, Check("stored runs", not over if uploads else None, detail)]


# The theory


def staleness_is_bounded(study: Study) -> list[Check]:
    """SDFEEL-C08: D4 on 60 clocks."""
    gaps = np.random.default_rng(0).uniform(1, 40, 20)
    clocks = [theory.paper_clock(gap, seed).periods for gap in gaps for seed in range(3)]
    over = [max(late - theory.staleness_bound(periods)) for periods in clocks for late in latenesses(periods)]
    return [Check("60 clocks", max(over) <= 0, f"{len(over):,} events, none above Σ⌈T_d/T_j⌉")]


def latenesses(periods: Sequence[float], events: int = 100) -> NDArray[np.int64]:
    """Return the stalenesses of all clusters at events of a clock."""
    return np.array([event.staleness for event in islice(theory.cluster_event_clock(periods), events)])


def sketch_of_lemma1(study: Study) -> list[Check]:
    """SDFEEL-C19."""
    seen, limit = latenesses((1.5, 1.0)).max(), theory.printed_staleness_bound(2, 1.5)
    detail = f"staleness {seen}, (D − 1) H = {limit:g} (E-08)"
    return [Check("two clusters, periods 1.5 and 1", seen <= limit, detail)]


def normalisation_is_fairer(study: Study) -> list[Check]:
    """SDFEEL-C09: D1 (c), two devices that want 1 and -1 and do 50 and 5 steps; the optimum is 0."""
    two = (1, -1), (0.5, 0.5), (50, 5)
    fair, unfair = (theory.fixed_point(*two, 0.01, normalized=each) for each in (True, False))
    tiny = theory.fixed_point(*two, 1e-6)
    return [
        Check("nearer to the optimum", abs(fair) < abs(unfair), f"ends at {fair:.4f}, without it at {unfair:.4f}"),
        Check("rest vanishes with η", abs(tiny) < 1e-4, f"η = 1e-6: ends at {tiny:.1e}"),
    ]


def falls_with_staleness(study: Study, whose: str) -> list[Check]:
    """SDFEEL-C10 (a neighbour's share of itself) and C10c (its weight at the trigger), one more event late."""
    rng, falls, count = np.random.default_rng(0), 0, 200
    for _ in range(count):
        late, trigger = rng.integers(0, 40, 6), int(rng.integers(6))
        near = theory.RING[trigger][int(rng.integers(2))]
        at = near, near if whose == "own" else trigger
        before, after = (
            theory.staleness_aware_mixing_matrix(theory.RING, trigger, (late + n).tolist())
            for n in (0, np.eye(6, dtype=int)[near])
        )
        falls += after[at] < before[at]
    words = {"own": "a neighbour's share of itself", "trigger": "weight of a neighbour"}[whose]
    return [Check(words, falls == count, f"falls in {falls} of {count} random events (E-04)")]


def mixing_averages(study: Study, rule: Mixing) -> list[Check]:
    """SDFEEL-C20 and C20c: the example of E-01, and six models of 1 that only mix."""
    total = theory.staleness_aware_mixing_matrix(theory.RING, *EVENT, rule=rule)[:, EVENT[0]].sum()
    found = [Check("weights of the trigger", abs(total - 1) < 1e-12, f"their sum is {total:.4f}")]
    for gap in GAPS:
        end = float((np.ones(6) @ reduce(np.matmul, theory.paper_matrices(gap, 300, rule=rule))).max())
        found.append(Check(f"models of 1, H = {gap:g}", abs(end - 1) < 1e-9, f"after 300 events {end:.3g}"))
    return found


def mean_is_kept(study: Study, corrected: bool) -> list[Check]:
    """SDFEEL-C21 and C21c: the data-weighted and the uniform mean, in mixing, in an event, where servers agree."""
    models, weights = np.arange(1.0, 7), np.full(6, 1 / 6) if corrected else np.array(UNEQUAL)
    matrix, trigger = theory.staleness_aware_mixing_matrix(theory.RING, *EVENT), EVENT[0]
    before, mixed = float(models @ weights), float(models @ matrix @ weights)
    taus, gradients = np.random.default_rng(0).uniform(1, 9, (2, 6))
    trained = models - 0.1 * taus * gradients * (np.arange(6) == trigger)
    moved = float((trained @ matrix - models) @ weights)
    step = theory.event_step(0.1, 6, taus[trigger], gradients[trigger])
    if not corrected:
        step = theory.round_step(0.1, UNEQUAL, taus.tolist(), gradients.tolist())
    end = float((models @ reduce(np.matmul, theory.paper_matrices(5, 2000)))[0])
    return [
        Check("mixing alone (E-05)", abs(mixed - before) < 1e-12, f"the mean {before:.4f} becomes {mixed:.4f}"),
        Check("an event (E-07)", abs(moved - step) < 1e-12, f"moves it by {moved:.4f}, said to be {step:.4f}"),
        Check("where servers agree (E-06)", abs(end - before) < 1e-9, f"at {end:.4f}, the mean is {before:.4f}"),
    ]


def inequality(study: Study, sides: Callable[[], theory.Sides], corrected: bool = False) -> list[Check]:
    """SDFEEL-C22, C23, C25 and their corrections: both sides on the problem that contradicts the printed one."""
    left, right = sides()[2:] if corrected else sides()[:2]
    return [Check("where all is known", left <= right + 1e-12, f"left side {left:.4g}, right side {right:.4g}")]


def mixing_sums(study: Study, printed: bool) -> list[Check]:
    """SDFEEL-C24 and C24c: the bounds on sums of mixing errors, over 150 events of the paper's clock."""
    found = []
    for gap in GAPS[:2]:
        matrices = theory.paper_matrices(gap, 150)
        if printed:
            second = min(np.linalg.eigvalsh(matrix)[-2] for matrix in matrices)
            detail = f"every second eigenvalue is {second:.6f}: at most infinity (E-14)"
            found.append(Check(f"H = {gap:g}", theory.printed_sum_bound(second) == np.inf, detail, "vacuity"))
            continue
        largest = theory.mixing_errors(matrices).sum(0).max()
        window = latenesses(theory.paper_clock(gap).periods, 150).max() + 1
        limit = theory.window_sum_bound(window, theory.window_contraction(matrices, window))
        found.append(Check(f"H = {gap:g}", largest <= limit, f"largest sum {largest:.1f}, bound {limit:.1f}"))
    return found


def theorem1_as_printed(study: Study) -> list[Check]:
    """SDFEEL-C25: E-11, its conditions (E-16), and the ratio that it calls H (E-09)."""
    met = theory.conditions(0.13, 1, 5, 1, theory.constants(0.13, 1, 5, 1, 0, theory.EXACT, 10, variant="printed"))
    steps, enough = theory.paper_clock(5).local_steps, met.step < 0 or met.drift <= 0 or met.leading > 0
    return [
        *inequality(study, theory.theorem1_example),
        Check("(15) is enough", enough, f"η = 0.13, τ = 5: (15) holds, U₁ = {met.leading:.2f} (E-16)"),
        Check("τ_max/τ_min = H", steps.max() == 5 * steps.min(), f"{steps.max()}/{steps.min()} at H = 5 (E-09)"),
    ]


def rate(study: Study) -> list[Check]:
    """SDFEEL-C11c: exponents of K in the terms of the bound with eta proportional to 1/sqrt(K)."""
    sums, terms = theory.mixing_error_sums(theory.constant_mixing_errors(0.6, 20)), []
    setting = {"smoothness": 1.0, "decrease": 2.0, "noise": 0.5, "dissimilarity": 0.3, "square_weights": 1 / 30}
    for count in (10**6, 10**8):
        lr = 0.01 / count**0.5
        got = theory.constants(lr, 1.0, 10, 2, 4, sums, count)
        terms.append(theory.surrogate_bound(got, lr=lr, tau_max=10, tau_min=5, effective_steps=7,
                                            num_iterations=count, **setting))  # fmt: skip
    slopes = np.log(np.array(terms[1]) / np.array(terms[0])) / np.log(100)
    holds = bool(np.allclose(slopes, (-0.5, -0.5, -1, -1), atol=0.02))
    return [Check("exponents of K", holds, ", ".join(f"{s:.2f}" for s in slopes))]


def gradient_vanishes(study: Study) -> list[Check]:
    """SDFEEL-C11: on the problem of E-11, with eta = c/sqrt(K)."""
    few, many = (theory.theorem1_example(0.0447 / count**0.5, count).left for count in (200_000, 3_200_000))
    detail = f"F's mean squared gradient {few:.4f} with K = 200,000, {many:.4f} with 16 times as many (E-11)"
    return [Check("two quadratics, η = 0.0447/√K", many < few / 2, detail)]


def bound_grows(study: Study) -> list[Check]:
    """SDFEEL-C12: finite differences of (16), in both variants."""
    found, varied = [], zip(VARIED.items(), ("H", "δ_max", "κ²"), strict=True)
    for ((name, values), symbol), variant in product(varied, theory.VARIANTS):
        totals = [float(theory.bound(variant, **{name: value}).total) for value in values]
        detail = f"{symbol} from {values[0]:g} to {values[-1]:g}: {totals[0]:.4f} to {totals[-1]:.4f}"
        found.append(Check(f"in {symbol}, {variant}", totals == sorted(set(totals)), detail))
    return found


def synchronous_limit(study: Study) -> list[Check]:
    """SDFEEL-C13c: one local step and exact averaging in exact fractions (D9), and E-17."""
    lr, one, noise = Fraction(1, 100), Fraction(1), Fraction(1, 60)
    sgd = theory.theorem1_bound(
        theory.constants(lr, one, one, one, 0, theory.EXACT), lr=lr, smoothness=one, tau_max=one, tau_min=one,
        num_iterations=50, decrease=2, noise=one, dissimilarity=Fraction(1, 3), square_weights=noise,
    ).total  # fmt: skip
    seen = latenesses((1.0,) * 6).max()
    return [
        Check("the bound of mini-batch SGD", sgd == 4 / (lr * 50) + lr * noise, "equal as fractions"),
        Check("H = 1 is not δ_max = 0", seen == 5, f"staleness up to {seen} on the event clock (E-17)"),
    ]
