"""FedAsync's claims: what is compared, declared before the runs that judge it; theory as printed and as corrected.

The paper prints no result as a number, so effects have a direction and no printed size; margins for its "as fast" and
"similar" are the specification's. Statements C09 and C10 (per communication) are C02 and C04 once more, as both
counters have the ratio 1 : 10 (readings). Learning rates and the best alpha are chosen on other seeds than the one
that they are judged on. What the clock alone decides and the theory are in exact.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd

from fl_core.experiments.claims import FULL, Check, make_claim
from fl_core.experiments.claims import exact as exact_statement
from fl_core.experiments.evidence import POINTS, RATIO, Effect, Relation
from fl_core.experiments.identity import EXACT
from fl_core.experiments.measures import BySeed, best_elsewhere, passage
from fl_core.experiments.study import Study
from fl_core.formulas.staleness import Hinge
from fl_core.report.discussion import Diagnosis
from fl_papers.fedasync import exact
from fl_papers.fedasync.experiment import ADAPTIVE, LOCAL_LR, SLOWER, options_of
from fl_papers.fedasync.figures import alphas, area, areas_by_rate, event_curves, oscillation, sweep_values

PLAIN, POLY, HINGE = ADAPTIVE
SMALL, LARGE = 0, 1
SYNC = "FedAvg", None  # Method and alpha of the synchronous runs with a clock.
AS_FAST, SIMILAR, ALIVE, TINY, LESS_NEEDED = 1.15, 1.1, 0.9, 0.05, 0.02
"""The specification's margins: of areas (C01, C04) and of final accuracies (C11, C13, C14)."""
WIDTH = 3  # Measurements of the running mean whose first passage is a time to a loss (C30).
IMAGES = 10_000  # Of the test set: one of them is the step of an accuracy.

points = partial(Effect, scale=POINTS, resolution=1 / IMAGES)


def staleness(study: Study, which: int) -> int:
    """Return the small or the large maximum staleness of `study`."""
    return options_of(study).max_staleness[which]


# Curves: Figures 2 to 7, and with a clock


def against(
    study: Study, axis: str, method: str, whiches: Sequence[int], claimed: Relation, bound: float | None = None
) -> list[Effect]:
    """Compare the areas of plain FedAsync, at each staleness and alpha, with another method's."""
    other = area(study, axis, method)
    return [
        Effect(f"against {method}, K = {K}, α = {alpha:g}", area(study, axis, PLAIN, alpha=alpha, max_staleness=K),
               other, RATIO, claimed, bound)
        for K in (staleness(study, which) for which in whiches) for alpha in alphas(study)
    ]  # fmt: skip


def areas(study: Study, which: int) -> dict[float, BySeed]:
    """Return plain FedAsync's areas per gradient, by alpha."""
    bound = staleness(study, which)
    return {a: area(study, "gradients", PLAIN, alpha=a, max_staleness=bound) for a in alphas(study)}


def as_fast_as_sgd(study: Study) -> list[Effect]:
    """FEDASYNC-C01: with the alpha that is best on the other seeds."""
    best, name = best_elsewhere(areas(study, SMALL)), f"K = {staleness(study, SMALL)}, best α"
    return [Effect(name, best, area(study, "gradients", "SGD"), claimed="less", bound=AS_FAST)]


def with_its_own_rate(study: Study) -> list[Effect]:
    """Another learning rate, best on the other seeds by its area, is better, and the best is enough for C01."""
    found, K = areas_by_rate(study), staleness(study, SMALL)
    authors, other = (
        best_elsewhere({setting: values for setting, values in found.items() if (setting[0] == LOCAL_LR) == same})
        for same in (True, False)
    )
    return [
        Effect(f"K = {K}, best other learning rate and α against the authors' rate, best α", other, authors,
               claimed="less"),
        Effect(f"K = {K}, best learning rate and α against SGD", best_elsewhere(found),
               area(study, "gradients", "SGD"), claimed="less", bound=AS_FAST),
    ]  # fmt: skip


def slower_if_staler(study: Study) -> list[Effect]:
    """FEDASYNC-C03."""
    small, large = (areas(study, which) for which in (SMALL, LARGE))
    return [Effect(f"α = {alpha:g}", large[alpha], small[alpha]) for alpha in small]


def towards_sgd(study: Study) -> list[Effect]:
    """FEDASYNC-C17."""
    settings = (0.9, staleness(study, SMALL)), (0.2, staleness(study, LARGE))
    fast, slow = (area(study, "gradients", PLAIN, alpha=alpha, max_staleness=K) for alpha, K in settings)
    name = " against ".join(f"α = {alpha:g}, K = {K}" for alpha, K in settings)
    return [Effect(name, fast, slow, claimed="less")]


def shakier(study: Study, pairs: Sequence[tuple[str, float, str, float]], claimed: Relation) -> list[Effect]:
    """FEDASYNC-C05 and C06: oscillations of two methods, each with its alpha, at the large staleness.

    A difference and no ratio, as a run whose accuracy never falls has none at all.
    """
    found, large = [], staleness(study, LARGE)
    for method, alpha, other, beside in pairs:
        sides = (oscillation(study, m, alpha=a, max_staleness=large) for m, a in ((method, alpha), (other, beside)))
        found.append(points(f"{method}, α = {alpha:g} less {other}, α = {beside:g}", *sides, claimed=claimed))
    return found


def hinge_is_plain(study: Study) -> list[Check]:
    """FEDASYNC-C07: equal final model and equal evaluations, bit for bit, where equal processors made both."""
    small, found = staleness(study, SMALL), []
    others = study.select(role="identity") + study.select(role="curve", method=HINGE, max_staleness=small)
    for entry, result in others:
        method: Any = entry.spec.algorithm
        assert isinstance(method.weight, Hinge)
        if small > method.weight.b:
            continue  # the hinge bends inside the pool, so nothing needs to be equal
        labels = {name: entry.labels[name] for name in ("alpha", "max_staleness", "seed")}
        for _, plain in study.select(role="curve", method=PLAIN, **labels):
            made = {(p.get("instructions"), p.get("numbers", EXACT)) for p in (result.provenance, plain.provenance)}
            if len(made) > 1 or made.pop()[1] != EXACT:
                continue  # other processors and accelerators round otherwise
            equal = result.history.evaluations == plain.history.evaluations and (
                result.provenance["model_sha256"] == plain.provenance["model_sha256"]
            )
            where = f"α = {labels['alpha']:g}, seed {labels['seed']}"
            name = f"a = {method.weight.a:g}, {method.convention.replace('_', ' ')}, {where}"
            found.append(Check(name, equal, "bitwise equal"))
    return found


def counters(study: Study, column: str, asynchronous: int, rounds: int) -> list[Check]:
    """FEDASYNC-C22 and C23: every evaluation of every run counts exactly so much per global epoch."""
    found = []
    for name, per_epoch in ((PLAIN, asynchronous), ("FedAvg", rounds)):
        runs = study.select(role="curve", part="whole")
        frames = [r.history.evaluation_frame() for e, r in runs if e.labels["method"].startswith(name)]
        holds = all((frame[column] == per_epoch * frame["version"]).all() for frame in frames)
        total = f"{max((int(f[column].iloc[-1]) for f in frames), default=0):,} in all"
        found.append(Check(name, holds if frames else None, f"{per_epoch} per epoch, {total}"))
    return found


def sooner(study: Study) -> list[Effect]:
    """FEDASYNC-C30: first passages to the lowest loss (running mean) that both methods have in a seed.

    This rule was fixed before there were runs.
    """
    curves, found = event_curves(study), []
    rounds = curves.get(SYNC, {})
    for (method, alpha), runs in curves.items():
        if method == "FedAvg":
            continue
        ours, theirs = dict[int, float](), dict[int, float]()
        for seed in runs.keys() & rounds.keys():
            pair = [curve[["seconds", "train_loss"]].to_numpy().T for curve in (runs[seed], rounds[seed])]
            target = max(np.convolve(loss, np.full(WIDTH, 1 / WIDTH), "valid").min() for _, loss in pair)
            target *= 1 + 1e-9  # both have it, whatever the rounding of a mean
            ours[seed], theirs[seed] = (passage(x, y, target, falling=True, width=WIDTH).at for x, y in pair)
        keys = [[e.key for e, _ in study.select(role="event", method=m, alpha=a)] for m, a in ((method, alpha), SYNC)]
        found.append(Effect(f"α = {alpha:g}", BySeed(ours, keys[0]), BySeed(theirs, keys[1]), claimed="less"))
    return found


# Final values: Figures 8 to 10


def by_staleness(study: Study, metric: str, method: str) -> pd.DataFrame:
    """Return Figure 8's values, a row per seed and a column per maximum staleness."""
    return sweep_values(study, "staleness sweep", metric, method, "max_staleness")


def by_alpha(study: Study, method: str, which: int) -> pd.DataFrame:
    """Return final accuracies of Figure 9 or 10, a row per seed and a column per alpha."""
    return sweep_values(study, "alpha sweep", "test_accuracy", method, "alpha", max_staleness=staleness(study, which))


def by_seed(values: pd.DataFrame, column: float) -> BySeed:
    """Return one column of swept values; nothing if there is no such column."""
    found = values[column].dropna() if column in values else pd.Series(dtype=float)
    ends = {int(str(seed)): float(value) for seed, value in found.items()}
    return BySeed(ends, values.attrs["runs"].get(column, ()))


def over(values: pd.DataFrame, reduce: Callable[[np.ndarray, np.ndarray], float]) -> BySeed:
    """Return a number made of the columns and the values of each complete row, by seed."""
    whole = values.dropna()
    x = whole.columns.to_numpy(float)
    rows = zip(whole.index, whole.to_numpy(float), strict=True) if len(x) > 1 else ()
    return BySeed({int(seed): float(reduce(x, row)) for seed, row in rows}, chain(*values.attrs["runs"].values()))


def rise(x: np.ndarray, values: np.ndarray) -> float:
    """Return how much a fitted line rises from the first to the last x."""
    return float(np.polyfit(x, values, 1)[0] * np.ptp(x))


def slower_but_alive(study: Study) -> list[Effect]:
    """FEDASYNC-C11."""
    loss, accuracy = (by_staleness(study, metric, PLAIN) for metric in ("train_loss", "test_accuracy"))
    small, large = (by_seed(accuracy, staleness(study, which)) for which in (SMALL, LARGE))
    grown = over(loss, lambda x, row: float(np.exp(rise(x, np.log(row)))))
    return [
        Effect("loss, largest K over smallest on a fitted line", grown, 1.0, of_settings=True),
        Effect("accuracy, large K over small", large, small, bound=ALIVE, of_settings=True),
    ]


def adaptive_helps_when_stale(study: Study) -> list[Effect]:
    """FEDASYNC-C12."""
    large = staleness(study, LARGE)
    poly, plain = (by_seed(by_staleness(study, "train_loss", method), large) for method in (POLY, PLAIN))
    return [Effect(f"K = {large}", poly, plain, claimed="less")]


def robust_to_alpha(study: Study) -> list[Effect]:
    """FEDASYNC-C13; +Hinge at the small staleness is plain FedAsync (C07) and no part of its own."""
    cells = [(SMALL, PLAIN), (SMALL, POLY), *((LARGE, method) for method in ADAPTIVE)]
    ranges = {cell: over(by_alpha(study, cell[1], cell[0]), lambda x, row: float(np.ptp(row))) for cell in cells}
    return [
        points(f"K = {staleness(study, which)}, {method}", found, 0.0, claimed="less", bound=TINY, of_settings=True)
        for (which, method), found in ranges.items()
    ]


def adaptivity_is_unnecessary(study: Study) -> list[Effect]:
    """FEDASYNC-C14."""
    plain, poly = (by_alpha(study, method, SMALL) for method in (PLAIN, POLY))
    return [
        points(f"α = {a:g}", by_seed(poly, a), by_seed(plain, a), claimed="equal", delta=LESS_NEEDED)
        for a in plain.columns.astype(float)
    ]


def best_alpha(study: Study) -> list[Effect]:
    """FEDASYNC-C15."""
    rises = {method: over(by_alpha(study, method, LARGE), rise) for method in ADAPTIVE}
    return [
        points(method, found, 0.0, of_settings=True, claimed="less" if method == PLAIN else "more")
        for method, found in rises.items()
    ]


def poly_beats_hinge(study: Study) -> list[Effect]:
    """FEDASYNC-C18."""
    large = staleness(study, LARGE)
    poly, hinge = (over(by_alpha(study, method, LARGE), lambda x, row: float(row.mean())) for method in (POLY, HINGE))
    ends = [by_seed(by_staleness(study, "test_accuracy", method), large) for method in (POLY, HINGE)]
    means = points(f"Fig. 10, K = {large}, mean over α", poly, hinge, of_settings=True)
    return [means, points(f"Fig. 8, K = {large}", *ends)]


claim = partial(make_claim, "FEDASYNC")
clock, defined, printed = (partial(claim, kind=kind) for kind in ("system", "definition", "theory"))
corrected = partial(printed, corrected=True)
AREA = "ratio of areas (mean training loss over FedAsync's budget), per gradient"
SHAKE = "points of the standard deviation of test accuracy about its monotone fit, before the decay, large K"
CLAIMS = [
    claim("C01", "Fig. 2", "With little staleness FedAsync converges as fast as SGD per gradient.",
          f"{AREA}: FedAsync, small K, best α over SGD, below 1.15 (the specification's margin)", as_fast_as_sgd,
          null="15 % slower"),
    claim("C02", "Figs 2, 6 (C09); section 6.4", "With little staleness FedAsync is faster than FedAvg, per gradient "
          "and (the same) per communication.", f"{AREA}: FedAsync, small K, each α over FedAvg",
          partial(against, axis="gradients", method="FedAvg", whiches=(SMALL,), claimed="less"),
          null="equal areas"),
    claim("C03", "Figs 3, 8", "More staleness makes FedAsync slower.", f"{AREA}: large K over small K, each α",
          slower_if_staler, null="equal areas"),
    claim("C04", "Figs 3, 7 (C10); section 6.4", "In the worst case FedAsync is similar to FedAvg, per gradient and "
          "(the same) per communication.", f"{AREA}: FedAsync, large K, each α over FedAvg, below 1.1 (the "
          "specification's margin)",
          partial(against, axis="gradients", method="FedAvg", whiches=(LARGE,), claimed="less", bound=SIMILAR),
          null="10 % slower"),
    claim("C05", "Fig. 3", "Too large an α makes convergence unstable.", f"{SHAKE}: α = 0.9 less 0.2",
          partial(shakier, pairs=[(PLAIN, 0.9, PLAIN, 0.2)], claimed="more"), null="equally stable"),
    claim("C06", "Fig. 3", "Adaptive mixing is robust to a large α.",
          f"{SHAKE}: +Poly, +Hinge less FedAsync, α = 0.9",
          partial(shakier, pairs=[(POLY, 0.9, PLAIN, 0.9), (HINGE, 0.9, PLAIN, 0.9)], claimed="less"),
          null="equally stable"),
    defined("C07", "Figs 2, 4, 6", "With K = 4, FedAsync and FedAsync+Hinge with b = 4 are the same.",
            "same seed, same bits, both conventions, a = 10 and 4", hinge_is_plain),
    claim("C08", "Figs 4, 5", "FedAvg makes more progress per global epoch.",
          "ratio of areas per epoch: FedAsync, each K and α, over FedAvg",
          partial(against, axis="epochs", method="FedAvg", whiches=(SMALL, LARGE), claimed="more"),
          null="equal areas"),
    claim("C11", "Fig. 8", "More staleness makes FedAsync slower, but not catastrophically.",
          "final training loss: ratio of the ends of a line fitted to its logarithm over K; final accuracy: ratio of "
          "large to small K, above 0.9 (the specification's margin)", slower_but_alive,
          null="equal losses; 10 % lost"),
    claim("C12", "Fig. 8", "Adaptive mixing mitigates the instability that much staleness causes.",
          "ratio of final training losses: +Poly over FedAsync, large K", adaptive_helps_when_stale,
          null="equal losses"),
    claim("C13", "Figs 9, 10", "FedAsync is robust to α: the differences are tiny.",
          "range of final accuracy over α, each method and K: below 5 points (the specification's margin)",
          robust_to_alpha, null="5 points"),
    claim("C14", "Fig. 9", "With little staleness adaptive mixing is less necessary.",
          "points of final accuracy, +Poly less FedAsync, small K, each α: within 2 (the specification's margin)",
          adaptivity_is_unnecessary, null="2 points apart"),
    claim("C15", "Fig. 10", "With much staleness plain FedAsync prefers a small α, adaptive mixing a large one.",
          "points of final accuracy by which a line fitted over α rises, large K: below 0 for FedAsync, above for "
          "+Poly and +Hinge", best_alpha, null="no trend"),
    claim("C16", "section 6.4", "FedAsync's speed lies between SGD's and FedAvg's.",
          f"{AREA}: FedAsync, each K and α, over SGD (above 1) and over FedAvg (below 1)",
          lambda study: [*against(study, "gradients", "SGD", (SMALL, LARGE), "more"),
                         *against(study, "gradients", "FedAvg", (SMALL, LARGE), "less")], null="equal areas"),
    claim("C17", "section 6.4", "Larger α and less staleness bring it closer to SGD, the opposite closer to FedAvg.",
          f"{AREA}: α = 0.9, small K over α = 0.2, large K", towards_sgd, null="equal areas"),
    claim("C18", "section 6.4", "Polynomial weights with a = 0.5 are the best adaptive strategy.",
          "points of final accuracy, +Poly less +Hinge, large K: mean over the α of Figure 10; Figure 8",
          poly_beats_hinge, null="equal accuracies"),
    defined("C19", "section 6.4", "To drop updates that are too stale is to mix them with weight zero.",
            "sampled staleness: threshold and weight 1[u ≤ b] give the same bits", exact.dropping_is_no_weight),
    clock("C20", "section 6.4", "Triggering fewer tasks at a time, or less often, lowers staleness.",
          "constant concurrency M: Σ staleness = (M − 1) N exactly; periodic: mean staleness falls with the period",
          exact.less_often_is_fresher),
    clock("C21", "section 6.4", "The server waits for nobody, and the work of stragglers is used.",
          f"one client {SLOWER} times slower: all clients used, Σ 1/duration updates per second, FedAvg's rounds as "
          "long as their slowest", exact.nobody_waits),
    defined("C22", "section 6.2", "A global epoch of FedAvg costs ten times the communications.",
            "2 and 20 transfers per epoch in every evaluation",
            partial(counters, column="communications", asynchronous=2, rounds=20)),
    defined("C23", "section 6.2", "A global epoch applies 10 gradients in FedAsync and 100 in FedAvg.",
            "10 and 100 gradients per epoch in every evaluation",
            partial(counters, column="gradients", asynchronous=10, rounds=100)),
    clock("C24", "section 6.4", "More workers in parallel are used in full.",
          "equal durations: updates per second proportional to M, exactly", exact.rate_is_proportional),
    clock("C25", "section 6.4", "A worker may pause and push later, and nobody waits for it.",
          "a pause of Δ shifts the worker's own finish times by Δ and no others", exact.pauses_stay_private),
    printed("C26", "Theorem 1", "With Option I the error falls like β^T to a neighbourhood.",
            "FA-9 with its constant on toys; whether it is ever below the error at the start",
            partial(exact.first_theorem, bound="FA-9"), proof="sec:fedasync-theorem"),
    corrected("C26c", "Theorem 1; E1, E2, E4, E6, E18, E20, E22, E23", "It falls, at a rate that depends on "
              "staleness, to a neighbourhood without V₂, for adaptive weights too (FA-10).", "FA-10 on toys",
              partial(exact.first_theorem, bound="FA-10"), proof="thm-fedasync-repaired"),
    printed("C27", "Theorem 2; abstract", "With Option II and weak convexity it converges to a global optimum.",
            "where runs on toys end", exact.second_theorem),
    corrected("C27c", "Theorem 2; E3, E4, E7 to E9, E22", "Its inequality holds, to a neighbourhood, with V₂ of "
              "visited models and γ < 2/(L + ρ).", "every inequality of the proof on toy W; whether "
              "the bound is ever below the error at the start", exact.second_theorem_corrected,
              proof="thm-fedasync-second"),
    printed("C28", "Remark 3", "In the bound α trades the rate against the additional error.",
            "Theorem 1's bound at a smaller and a larger α", exact.trade_in_the_bound),
    corrected("C28c", "Remark 3; E5", "On quadratics α trades the rate against the error that remains.",
              "toy Q, K = 1: λ falls and the stationary error rises in α", exact.alpha_trades,
              proof="sec:fedasync-alpha"),
    printed("C29", "abstract, introduction", "FedAsync tolerates staleness: on quadratics mixing is always stable.",
            "largest root of mixing < 1 at every age; λ* < 1 for K ≤ 64", exact.tolerance,
            proof="thm-fedasync-stable, thm-fedasync-stable-varying, thm-fedasync-repaired"),
    printed("E10", "Algorithm 1; E10", "A model without staleness is mixed with the full weight α.",
            "weight of an upload that missed nothing, by Algorithm 1's t − τ",
            exact_statement("Poly, a = 0.5", exact.weight_without_staleness, "counter-example")),
    printed("E21", "Algorithm 1, section 6.2; E21", "Algorithm 1's weight is the one that α's decay leaves.",
            "weight of update 801 as Algorithm 1 assigns it, and with the decay of section 6.2",
            exact_statement("after the decay", exact.undone_decay, "counter-example")),
    claim("C30", "section 6.4", "With a straggler FedAsync has a loss earlier than FedAvg.",
          "ratio of first passages to the lowest training loss that both have (running mean of 3 measurements, "
          f"interpolated), one client {SLOWER} times slower, each α", sooner, null="equal times"),
]  # fmt: skip
DIAGNOSES = [
    Diagnosis("C01 C16", "the learning rate of FedAsync is the authors' and not searched, as SGD's is, and with the "
              "best of those tried for SGD it is faster and keeps up", "fedasync-x7", with_its_own_rate),
    Diagnosis("C13 C15", "short runs favour a large α, and at the paper's length the trends are the paper's",
              "fedasync-fig10", best_alpha, FULL),
]  # fmt: skip
"""Why claims may come out as they do, and the runs that test each suspicion."""
