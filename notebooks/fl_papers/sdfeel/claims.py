"""SD-FEEL's claims: what is compared, declared before the runs that judge it; theory as printed and as corrected.

The paper prints no result as a number, so effects have a direction and no printed size. Times to a loss are first
passages of the running mean over three measurements. Figure 2's statements are judged for every H that it shows;
settings of the theory are D1, D5, D9 and D10. Statement C16, of the abstract, is C01 and C02 once more (readings).
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import numpy as np

from fl_core.experiments.claims import Check, make_claim
from fl_core.experiments.evidence import POINTS, RATIO, Censored, Effect
from fl_core.experiments.measures import BySeed
from fl_core.experiments.study import Study
from fl_core.report.discussion import Diagnosis
from fl_papers.sdfeel import exact, theory
from fl_papers.sdfeel.experiment import (
    ASYNC,
    FRESH,
    LONG_GAP,
    SYNC,
    WEIGHTED,
    gaps,
    horizon,
    runs,
    value_at,
    values_at,
)
from fl_papers.sdfeel.figures import REACHED, times

SHORT_ROUNDS = 5  # Synchronous rounds that a short training time is (C02).
SIMILAR = 0.02  # Difference of accuracies that "similar" leaves (C05).
IMAGES = 10_000  # Of the test set: one of them is the step of an accuracy.


# Claims about runs


def faster_in_loss(study: Study) -> list[Effect]:
    """SDFEEL-C01."""
    return [
        Effect(f"H = {gap:g}, loss of Sync. at {part:.0%}", *times(study, gap, part), claimed="less")
        for gap in gaps(study) for part in REACHED
    ]  # fmt: skip


def more_accurate_early(study: Study) -> list[Effect]:
    """SDFEEL-C02: accuracy after `SHORT_ROUNDS` synchronous rounds, interpolated between measurements."""
    found = []
    for gap in gaps(study):
        ours, theirs = (runs(study, method, gap) for method in (ASYNC, SYNC))
        part = {s: SHORT_ROUNDS * theory.run_clock(e.spec).round_seconds / horizon(e) for s, (e, _) in theirs.items()}
        early = [seed for seed, at in part.items() if seed in ours and at <= 1]
        left, right = (
            BySeed({s: value_at(side[s], "test_accuracy", part[s]) for s in early}, [side[s][0].key for s in early])
            for side in (ours, theirs)
        )
        found.append(Effect(f"H = {gap:g}", left, right, POINTS, resolution=1 / IMAGES))
    return found


def loss_rises_with_gap(study: Study, method: str, part: float) -> list[Effect]:
    """SDFEEL-C03 and C04: the loss at a part of the horizon, at each H against the next one.

    Of a loss that is still so near to the initial one that it cannot rise, "equal" would say nothing.
    """
    losses, found = {gap: values_at(study, method, gap, "train_loss", part) for gap in gaps(study, method)}, []
    for low, high in pairwise(losses):
        start = values_at(study, method, low, "train_loss", 0.0)
        most = float(np.mean([start[seed] / loss for seed, loss in losses[low].items()] or [np.inf]))
        unable = RATIO.inner(most) <= RATIO.delta
        why = f"it cannot rise by more than {most - 1:.1%}: hardly begun" if unable else ""
        found.append(Effect(f"H = {high:g} over {low:g}", losses[high], losses[low], excluded=why))
    return found


def similar_in_the_end(study: Study) -> list[Effect]:
    """SDFEEL-C05, on the long runs; "may even perform better" makes it one-sided."""
    sync, ours = (values_at(study, m, LONG_GAP, "test_accuracy", role="long") for m in (SYNC, ASYNC))
    return [Effect("Sync. less Async.", sync, ours, POINTS, bound=-SIMILAR, resolution=1 / IMAGES)]


def helps_more_with_gap(study: Study) -> list[Effect]:
    """SDFEEL-C06: Async.'s part of Sync.'s time falls from each H to the next."""
    found = []
    for part in REACHED:
        shares = {}
        for gap in gaps(study):
            ours, theirs = times(study, gap, part)
            late = theirs.at_least | {seed for seed, at in theirs.items() if not at}  # a part of nothing known
            known = {seed: np.nan if seed in late else at / theirs[seed] for seed, at in ours.items()}
            shares[gap] = Censored(known, ours.at_least, ours.runs | theirs.runs)
        found += [
            Effect(f"loss of Sync. at {part:.0%}: H = {high:g} over {low:g}", shares[high], shares[low],
                   claimed="less")
            for low, high in pairwise(shares)
        ]  # fmt: skip
    return found


def skew_hurts(study: Study) -> list[Effect]:
    """SDFEEL-C17: accuracy at half of the horizon and at its end, both methods."""
    return [
        Effect(f"{method} at {part:.0%}", values_at(study, method, gap, "test_accuracy", part, "non-IID"),
               values_at(study, method, gap, "test_accuracy", part), POINTS, "less",
               resolution=1 / IMAGES)
        for gap in gaps(study, role="non-IID") for method in (ASYNC, SYNC) for part in (0.5, 1.0)
    ]  # fmt: skip


claim = partial(make_claim, "SDFEEL")
system, printed = partial(claim, kind="system"), partial(claim, kind="theory")
corrected = partial(printed, corrected=True)
EARLY = "ratio of first passages (running mean of 3 measurements, interpolated, censored; Async. at every version)"
TWO = "both sides on two quadratics, τ = (1, 5)"

CLAIMS = [
    claim("C01", "Fig. 2a; abstract (C16); conclusion", "For each H asynchronous training converges faster in loss.",
          f"time of Async. over Sync. to the loss of Sync. at 25 % and 50 % of the horizon, each H: {EARLY}",
          faster_in_loss, null="equal times"),
    claim("C02", "Fig. 2b; abstract (C16)", "Within a short time asynchronous training has the higher test accuracy.",
          "points of accuracy, Async. less Sync., after five synchronous rounds, each H", more_accurate_early,
          null="equal accuracies"),
    claim("C03", "Fig. 2", "A larger H slows synchronous training.",
          "ratio of Sync.'s losses at 25 % of the horizon, each H over the one before",
          partial(loss_rises_with_gap, method=SYNC, part=0.25), null="equal losses"),
    claim("C04", "Fig. 2", "A larger H hinders convergence altogether.",
          "ratio of Async.'s losses at 10 % of the horizon, each H over the one before",
          partial(loss_rises_with_gap, method=ASYNC, part=0.1), null="equal losses"),
    claim("C05", "Fig. 2b", "Given enough time synchronous training is as accurate, possibly more.",
          "points of accuracy of a linear model, Sync. less Async., after some 300 rounds at H = 30: above −2 (the "
          "specification's margin; one-sided, as it may be better)", similar_in_the_end, null="2 points worse"),
    claim("C06", "section V (implied)", "Asynchrony helps more when devices differ more.",
          f"Async.'s part of Sync.'s time to the losses of C01, each H over the one before: {EARLY}",
          helps_more_with_gap, null="the same part at every H"),
    system("C07", "Figure 1, section III", "Fast devices idle in synchronous, not in asynchronous training.",
           "part of the time in which devices compute: Sync. < Async., Async. > 98 %", exact.devices_idle),
    printed("C08", "Lemma 1; E-08", "Staleness is bounded.",
            "by Σ⌈T_d/T_j⌉ (D4), on random clocks", exact.staleness_is_bounded, proof="thm-sdfeel-staleness"),
    printed("C09", "(2), (3)", "Dividing updates by the number of steps removes a bias towards fast devices.",
            "fixed points of two devices with 50 and 5 steps", exact.normalisation_is_fairer,
            proof="thm-sdfeel-normalised"),
    printed("C10", "the sentence before (5)", "No entry of the mixing matrix rises with staleness.",
            "p^{i,i} as δ^{(i)} grows", partial(exact.falls_with_staleness, whose="own")),
    corrected("C10c", "(5); E-04", "A staler neighbour has a smaller weight at the trigger.",
              "p^{i,d} as δ^{(i)} grows", partial(exact.falls_with_staleness, whose="trigger"),
              proof="sec:sdfeel-mixing: ψ/(ψ + rest) rises with ψ"),
    printed("C11", "Remark 1", "With η ∝ 1/√K the bound vanishes like 1/√K, which ensures convergence.",
            "F's mean squared gradient with 16 times as many iterations", exact.gradient_vanishes),
    corrected("C11c", "Remark 1; E-11, E-13", "The corrected bound, on the surrogate's gradient, falls like 1/√K.",
              "exponents of K: −0.5, −0.5, −1, −1; it needs C25c", exact.rate),
    printed("C12", "Remark 2", "The bound grows with H, with δ_max and with κ.",
            "finite differences of (16), both variants, τ_max fixed", exact.bound_grows,
            proof="sec:sdfeel-theorem: H, δ_max² and κ² have positive factors where F falls, (15) and U₁ > 0"),
    printed("C13", "Remark 2", "H = 1 and δ_max = 0 give the bound of synchronous training.", "theirs",
            lambda study: [Check("reference [14]", None, "its text was not at hand")]),
    corrected("C13c", "Remark 2; E-17", "One step, H = 1, δ_max = 0 and exact averaging give SGD's bound.",
              "(16) as fractions; staleness with H = 1", exact.synchronous_limit, proof="sec:sdfeel-theorem"),
    claim("C14", "section II", "With equal speeds synchronous training is viable.", "H = 1: equal steps, times, use",
          exact.equal_speeds, kind="definition"),
    system("C15", "section III", "The consensus phase happens once and costs little.",
           "rounds to a spread of 1e-6 take less than 1 % of the horizon", exact.consensus_is_cheap),
    claim("C17", "Remark 2", "Fewer classes on each device hurt asynchronous as they hurt synchronous training.",
          "points of accuracy, Dirichlet 0.1 less 0.5, both methods, at half and at the end of the horizon",
          skew_hurts, null="equal accuracies"),
    system("C18", "Lemma 1", "A smaller H bounds staleness more tightly.",
           "largest staleness over H on the paper's clock; every upload of the judged runs at most its bound",
           exact.observed_staleness),
    printed("C19", "sketch of Lemma 1", "Others finish at most H iterations during one: δ ≤ (D − 1) H.",
            "staleness of a clock; C08 has the bound that holds", exact.sketch_of_lemma1),
    printed("C20", "(5)", "The mixing weights average.", "sums of weights; a constant that only mixes",
            partial(exact.mixing_averages, rule="printed")),
    corrected("C20c", "(5); E-01, E-02", "With ψ of the source the mixing weights average.", "as C20",
              partial(exact.mixing_averages, rule="derived"), proof="thm-sdfeel-stochastic"),
    printed("C21", "(4), (11), consensus phase", "Mixing keeps the data-weighted mean, which moves as (11) says.",
            "means of six unequal clusters", partial(exact.mean_is_kept, corrected=False)),
    corrected("C21c", "(4), (11); E-05 to E-07", "Mixing keeps the uniform mean; an event moves it by a sixth.",
              "as C21: a sixth of the trigger's step", partial(exact.mean_is_kept, corrected=True),
              proof="sec:sdfeel-conserved"),
    printed("C22", "Lemma 2, (12)", "One iteration changes F by at most (12).", f"{TWO} (E-10)",
            partial(exact.inequality, sides=theory.lemma2_example)),
    corrected("C22c", "Lemma 2; E-10", "Without noise an iteration changes the surrogate by at most (12) with τ_eff.",
              TWO, partial(exact.inequality, sides=theory.lemma2_example, corrected=True), proof="eq:sdfeel-descent"),
    printed("C23", "Lemma 3, (13)", "The mean error of gradients is at most (13).",
            "both sides on a ring of 24 clusters (E-13)", partial(exact.inequality, sides=theory.lemma3_example)),
    corrected("C23c", "Lemma 3; E-12, E-13, E-21", "It is with τ_max² in B and C, a term with the gradient, C < 1.",
              "as C23; drift and collecting are proved, the terms of consensus and delay are not",
              partial(exact.inequality, sides=theory.lemma3_example, corrected=True)),
    printed("C24", "proof of Lemma 3", "Σ_s ρ_{s,k−1} ≤ 1/(1 − ρ_max).", "second eigenvalues of events",
            partial(exact.mixing_sums, printed=True)),
    corrected("C24c", "proof of Lemma 3; E-14, E-15", "Σ_s ρ_{s,k−1} ≤ W/(1 − ρ_W) over windows of events.",
              "largest sums", partial(exact.mixing_sums, printed=False), proof="thm-sdfeel-window"),
    printed("C25", "Theorem 1, (15), (16)", "F's mean squared gradient is at most (16).",
            f"{TWO} (E-11); what its conditions leave out", exact.theorem1_as_printed),
    corrected("C25c", "Theorem 1; E-09, E-11, E-16", "The surrogate's is at most (16), with τ_eff and U₁ > 0 (D11).",
              f"{TWO}; it needs C23c", partial(exact.inequality, sides=theory.theorem1_example, corrected=True)),
]  # fmt: skip

# Why claims may come out as they do, and the runs that test each suspicion


def mixes_better(study: Study, other: str) -> list[Effect]:
    """Return what asynchronous training gains at the end with another rule of mixing."""
    return [
        Effect(f"H = {gap:g}, {other.partition(', ')[2].replace('_', '-')} less the paper's rule",
               values_at(study, other, gap, "test_accuracy", role="variant"),
               values_at(study, ASYNC, gap, "test_accuracy"), POINTS, "more", resolution=1 / IMAGES)
        for gap in gaps(study, other, "variant")
    ]  # fmt: skip


DIAGNOSES = [
    Diagnosis("C02 C04 C06", "a cluster counts its own staleness and so takes weight from the only model that is up "
              "to date, its own; counted as fresh it would be more accurate", "sdfeel-x8",
              partial(mixes_better, other=FRESH)),
    Diagnosis("C05", "clusters are not weighed by their data; so weighed it would be more accurate", "sdfeel-x8",
              partial(mixes_better, other=WEIGHTED)),
]  # fmt: skip
