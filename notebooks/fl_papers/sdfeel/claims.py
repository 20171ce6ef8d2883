"""SD-FEEL's claims: what is compared, declared before the runs that judge it; theory as printed and as corrected.

The paper prints no result as a number, so effects have a direction and no printed size. Times to a loss are first
passages of the running mean over `WIDTH` measurements. Figure 2's statements are judged for every H that it shows;
settings of the theory are D1, D5, D9 and D10. Statement C16, of the abstract, is C01 and C02 once more (readings).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import partial, reduce
from itertools import islice, pairwise

import numpy as np
from numpy.typing import NDArray

from fl_core.experiments.claims import Check, make_claim
from fl_core.experiments.evidence import POINTS, Censored, Effect, untrained
from fl_core.experiments.measures import passage
from fl_core.experiments.study import Study
from fl_core.formulas.sdfeel import Mixing, synchronous_mixing_matrix
from fl_papers.sdfeel import theory
from fl_papers.sdfeel.experiment import (
    ASYNC,
    LONG_GAP,
    ROUND_SECONDS,
    SYNC,
    gaps,
    horizon,
    runs,
    value_at,
    values_at,
)
from fl_papers.sdfeel.figures import GAPS, VARIED

PARTS = (0.25, 0.5)
"""Of the horizon, at which synchronous training sets the loss to be reached (C01, C06)."""
SHORT_ROUNDS = 5
"""Synchronous rounds that a short training time is (C02)."""
WIDTH = 3
"""Measurements of the running mean whose first passage is a time to a loss."""
SIMILAR = 0.02
"""Difference of accuracies that "similar" leaves (C05)."""
IMAGES = 10_000
"""Of the test set: one of them is the step of an accuracy."""
UNEQUAL = (0.10, 0.12, 0.15, 0.18, 0.20, 0.25)
"""Cluster shares that are less even than those of the Dirichlet partitions (oracle O7)."""
EVENT = (2, (4, 0, 2, 7, 1, 5))
"""Trigger and stalenesses of the example of E-01 and E-05, whose models are 1 to 6."""


# Claims about runs


def idle(study: Study, *compared: float, methods: Sequence[str] = (ASYNC, SYNC), role: str = "curve") -> str:
    """Return which method is not trained at which of the gaps `compared`: a reason to exclude the comparison."""
    ends = {(m, gap): values_at(study, m, gap, "test_accuracy", role=role) for gap in compared for m in methods}
    none = (key for key, end in ends.items() if untrained(end, 10, IMAGES))
    return "; ".join(f"{method}, H = {gap:g} is not trained" for method, gap in none)


def times(study: Study, gap: float, part: float) -> tuple[Censored, Censored]:
    """Return when each method first has the loss that the synchronous one has at a part of the horizon, by seed."""
    ours, theirs = (runs(study, method, gap) for method in (ASYNC, SYNC))
    goals = {seed: value_at(theirs[seed], "train_loss", part) for seed in sorted(ours.keys() & theirs.keys())}
    sides = []
    for side in (ours, theirs):
        table = {seed: side[seed][1].history.evaluations for seed in goals}
        found = {
            seed: passage(table[seed]["seconds"], table[seed]["train_loss"], goal, falling=True, width=WIDTH)
            for seed, goal in goals.items()
        }
        sides.append(Censored({s: f.at for s, f in found.items()}, [s for s, f in found.items() if not f.reached]))
    return sides[0], sides[1]


def faster_in_loss(study: Study) -> list[Effect]:
    """SDFEEL-C01."""
    return _judged(
        Effect(f"H = {gap:g}, loss of Sync. at {part:.0%}", *times(study, gap, part), claimed="less",
               excluded=idle(study, gap))
        for gap in gaps(study) for part in PARTS
    )  # fmt: skip


def more_accurate_early(study: Study) -> list[Effect]:
    """SDFEEL-C02: accuracy after `SHORT_ROUNDS` synchronous rounds, interpolated between measurements."""
    found = []
    for gap in gaps(study):
        ours, theirs = (runs(study, method, gap) for method in (ASYNC, SYNC))
        part = {s: SHORT_ROUNDS * theory.run_clock(e.spec).round_seconds / horizon(e) for s, (e, _) in theirs.items()}
        left, right = (
            {seed: value_at(side[seed], "test_accuracy", at) for seed, at in part.items() if seed in ours and at <= 1}
            for side in (ours, theirs)
        )
        found.append(Effect(f"H = {gap:g}", left, right, POINTS, excluded=idle(study, gap), resolution=1 / IMAGES))
    return _judged(found)


def loss_rises_with_gap(study: Study, method: str, part: float) -> list[Effect]:
    """SDFEEL-C03 and C04: the loss at a part of the horizon, at each H against the next one."""
    losses = {gap: values_at(study, method, gap, "train_loss", part) for gap in gaps(study, method)}
    return _judged(
        Effect(
            f"H = {high:g} over {low:g}", losses[high], losses[low], excluded=idle(study, low, high, methods=[method])
        )
        for low, high in pairwise(losses)
    )


def similar_in_the_end(study: Study) -> list[Effect]:
    """SDFEEL-C05, on the long runs; "may even perform better" makes it one-sided."""
    sync, ours = (values_at(study, m, LONG_GAP, "test_accuracy", role="long") for m in (SYNC, ASYNC))
    why = idle(study, LONG_GAP, role="long")
    return _judged(
        [Effect("Sync. less Async.", sync, ours, POINTS, bound=-SIMILAR, excluded=why, resolution=1 / IMAGES)]
    )


def helps_more_with_gap(study: Study) -> list[Effect]:
    """SDFEEL-C06: Async.'s part of Sync.'s time falls from each H to the next."""
    found = []
    for part in PARTS:
        shares = {}
        for gap in gaps(study):
            ours, theirs = times(study, gap, part)
            known = {seed: np.nan if seed in theirs.at_least else ours[seed] / theirs[seed] for seed in ours}
            shares[gap] = Censored(known, ours.at_least)
        found += [
            Effect(f"loss of Sync. at {part:.0%}: H = {high:g} over {low:g}", shares[high], shares[low],
                   claimed="less", excluded=idle(study, low, high))
            for low, high in pairwise(shares)
        ]  # fmt: skip
    return _judged(found)


def skew_hurts(study: Study) -> list[Effect]:
    """SDFEEL-C17: accuracy at half of the horizon and at its end, both methods."""
    return _judged(
        Effect(
            f"{method} at {part:.0%}",
            values_at(study, method, gap, "test_accuracy", part, "non-IID"),
            values_at(study, method, gap, "test_accuracy", part),
            POINTS, "less", excluded=idle(study, gap, methods=[method]), resolution=1 / IMAGES,
        )
        for gap in gaps(study, role="non-IID") for method in (ASYNC, SYNC) for part in (0.5, 1.0)
    )  # fmt: skip


def _judged(effects: Iterable[Effect]) -> list[Effect]:
    return [effect for effect in effects if effect.seeds]


# Claims about the clock


def devices_idle(study: Study) -> list[Check]:
    """SDFEEL-C07: the part of the time in which devices compute."""
    found = []
    for gap in GAPS:
        sync, ours = theory.paper_clock(gap).busy
        found.append(Check(f"H = {gap:g}", sync < ours > 0.98, f"computing {sync:.1%} synchronous, {ours:.1%} async"))
    return found


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


# Theory: each statement where everything is known; a row's `proof` names its algebra, the rest is checked on cases


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
    return [
        Check("two clusters, periods 1.5 and 1", seen <= limit, f"staleness {seen}, (D − 1) H = {limit:g} (E-08)")
    ]


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


def mean_is_kept(study: Study, shares: Sequence[float]) -> list[Check]:
    """SDFEEL-C21 and C21c: the mean with weights `shares` of models 1 to 6, by an event and where servers agree."""
    models, weights = np.arange(1.0, 7), np.array(shares)
    mixed = models @ theory.staleness_aware_mixing_matrix(theory.RING, *EVENT)
    before, after = float(models @ weights), float(mixed @ weights)
    end = float((models @ reduce(np.matmul, theory.paper_matrices(5, 2000)))[0])
    return [
        Check("one event (E-05)", abs(after - before) < 1e-12, f"the mean {before:.4f} becomes {after:.4f}"),
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
            detail = f"second eigenvalues of {second:.6f} and more: at most infinity (E-14)"
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
    found = []
    for (name, values), symbol in zip(VARIED.items(), ("H", "δ_max", "κ²"), strict=True):
        for variant in theory.VARIANTS:
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


claim = partial(make_claim, "SDFEEL")
system, printed = partial(claim, kind="system"), partial(claim, kind="theory")
corrected = partial(printed, corrected=True)
EARLY = "ratio of first passages (running mean of 3 measurements, interpolated, censored at the horizon)"
TWO = "both sides on two quadratics, τ = (1, 5)"

CLAIMS = [
    claim("C01", "Fig. 2a; abstract; conclusion", "For each H asynchronous training converges faster in loss.",
          f"time of Async. over Sync. to the loss of Sync. at 25 % and 50 % of the horizon, each H: {EARLY}",
          faster_in_loss, null="equal times"),
    claim("C02", "Fig. 2b; abstract", "Within a short time asynchronous training has the higher test accuracy.",
          "points of accuracy, Async. less Sync., after five synchronous rounds, each H", more_accurate_early,
          null="equal accuracies"),
    claim("C03", "Fig. 2", "A larger H slows synchronous training.",
          "ratio of Sync.'s losses at 25 % of the horizon, each H over the one before",
          partial(loss_rises_with_gap, method=SYNC, part=0.25), null="equal losses"),
    claim("C04", "Fig. 2", "A larger H hinders convergence altogether.",
          "ratio of Async.'s losses at 10 % of the horizon, each H over the one before",
          partial(loss_rises_with_gap, method=ASYNC, part=0.1), null="equal losses"),
    claim("C05", "Fig. 2b", "Given enough time synchronous training is as accurate, possibly more.",
          "points of accuracy, Sync. less Async., after 300 synchronous rounds at H = 30: above −2 (the "
          "specification's margin; one-sided, as it may be better)", similar_in_the_end, null="2 points worse"),
    claim("C06", "section V (implied)", "Asynchrony helps more when devices differ more.",
          f"Async.'s part of Sync.'s time to the losses of C01, each H over the one before: {EARLY}",
          helps_more_with_gap, null="the same part at every H"),
    system("C07", "Figure 1, section III", "Fast devices idle in synchronous, not in asynchronous training.",
           "part of the time in which devices compute: Sync. < Async., Async. > 98 %", devices_idle),
    printed("C08", "Lemma 1; E-08", "Staleness is bounded.",
            "by Σ⌈T_d/T_j⌉ (D4), on random clocks", staleness_is_bounded, proof="thm-sdfeel-staleness"),
    printed("C09", "(2), (3)", "Dividing updates by the number of steps removes a bias towards fast devices.",
            "fixed points of two devices with 50 and 5 steps", normalisation_is_fairer,
            proof="thm-sdfeel-normalised"),
    printed("C10", "the sentence before (5)", "No entry of the mixing matrix rises with staleness.",
            "p^{i,i} as δ^{(i)} grows", partial(falls_with_staleness, whose="own")),
    corrected("C10c", "(5); E-04", "A staler neighbour has a smaller weight at the trigger.",
              "p^{i,d} as δ^{(i)} grows", partial(falls_with_staleness, whose="trigger"),
              proof="sec:sdfeel-mixing: ψ/(ψ + rest) rises with ψ"),
    printed("C11", "Remark 1", "With η ∝ 1/√K the bound vanishes like 1/√K, which ensures convergence.",
            "F's mean squared gradient with 16 times as many iterations", gradient_vanishes),
    corrected("C11c", "Remark 1; E-11, E-13", "The corrected bound, on the surrogate's gradient, falls like 1/√K.",
              "exponents of K: −0.5, −0.5, −1, −1; it needs C25c", rate),
    printed("C12", "Remark 2", "The bound grows with H, with δ_max and with κ.",
            "finite differences of (16), both variants, τ_max fixed", bound_grows,
            proof="sec:sdfeel-theorem: H, δ_max² and κ² have positive factors where (15) and U₁ > 0 hold"),
    printed("C13", "Remark 2", "H = 1 and δ_max = 0 give the bound of synchronous training.", "theirs",
            lambda study: [Check("reference [14]", None, "its text was not at hand")]),
    corrected("C13c", "Remark 2; E-17", "One step, H = 1, δ_max = 0 and exact averaging give SGD's bound.",
              "(16) as fractions; staleness with H = 1", synchronous_limit, proof="sec:sdfeel-theorem"),
    claim("C14", "section II", "With equal speeds synchronous training is viable.", "H = 1: equal steps, times, use",
          equal_speeds, kind="definition"),
    system("C15", "section III", "The consensus phase happens once and costs little.",
           "rounds to a spread of 1e-6 take less than 1 % of the horizon", consensus_is_cheap),
    claim("C17", "section V", "Fewer classes on each device hurt asynchronous as they hurt synchronous training.",
          "points of accuracy, Dirichlet 0.1 less 0.5, both methods, at half and at the end of the horizon",
          skew_hurts, null="equal accuracies"),
    system("C18", "Lemma 1", "A smaller H bounds staleness more tightly.",
           "largest staleness over H on the paper's clock; every upload of the runs below its bound",
           observed_staleness),
    printed("C19", "sketch of Lemma 1", "Others finish at most H iterations during one: δ ≤ (D − 1) H.",
            "staleness of a clock; C08 has the bound that holds", sketch_of_lemma1),
    printed("C20", "(5)", "The mixing weights average.", "sums of weights; a constant that only mixes",
            partial(mixing_averages, rule="printed")),
    corrected("C20c", "(5); E-01, E-02", "With ψ of the source the mixing weights average.", "as C20",
              partial(mixing_averages, rule="derived"), proof="thm-sdfeel-stochastic"),
    printed("C21", "(4), (11), consensus phase", "Mixing keeps the data-weighted mean, where servers agree.",
            "means of six unequal clusters", partial(mean_is_kept, shares=UNEQUAL)),
    corrected("C21c", "(4), (11); E-05 to E-07", "Mixing keeps the uniform mean, where servers agree.",
              "as C21", partial(mean_is_kept, shares=(1 / 6,) * 6), proof="sec:sdfeel-conserved"),
    printed("C22", "Lemma 2, (12)", "One iteration changes F by at most (12).", f"{TWO} (E-10)",
            partial(inequality, sides=theory.lemma2_example)),
    corrected("C22c", "Lemma 2; E-10", "One iteration changes the surrogate by at most (12) with τ_eff (D11).",
              TWO, partial(inequality, sides=theory.lemma2_example, corrected=True), proof="eq:sdfeel-descent"),
    printed("C23", "Lemma 3, (13)", "The mean error of gradients is at most (13).",
            "both sides on a ring of 24 clusters (E-13)", partial(inequality, sides=theory.lemma3_example)),
    corrected("C23c", "Lemma 3; E-12, E-13, E-21", "It is with τ_max² in B and C, and a term with the gradient.",
              "as C23; drift and collecting are proved, the terms of consensus and delay are not",
              partial(inequality, sides=theory.lemma3_example, corrected=True)),
    printed("C24", "proof of Lemma 3", "Σ_s ρ_{s,k−1} ≤ 1/(1 − ρ_max).", "second eigenvalues of events",
            partial(mixing_sums, printed=True)),
    corrected("C24c", "proof of Lemma 3; E-14, E-15", "Σ_s ρ_{s,k−1} ≤ W/(1 − ρ_W) over windows of events.",
              "largest sums", partial(mixing_sums, printed=False), proof="thm-sdfeel-window"),
    printed("C25", "Theorem 1, (15), (16)", "F's mean squared gradient is at most (16).",
            f"{TWO} (E-11); what its conditions leave out", theorem1_as_printed),
    corrected("C25c", "Theorem 1; E-09, E-11, E-16", "The surrogate's is at most (16), with τ_eff and U₁ > 0 (D11).",
              f"{TWO}; it needs C23c", partial(inequality, sides=theory.theorem1_example, corrected=True)),
]  # fmt: skip
