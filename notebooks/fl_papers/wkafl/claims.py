"""WKAFL's claims: about runs, with true and with aliased staleness, and about its theory and its schedule.

``WKAFL-C07`` is judged on the runs with true staleness, ``WKAFL-C07-aliased`` on those whose devices share the
server's memory, as in the authors' programs (E30). Claims about the theory need no training.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import pairwise

import numpy as np

from fl_core.experiments.claims import Check, Claim, Comparison, make_claim
from fl_core.experiments.measures import BySeed
from fl_core.experiments.run import Result
from fl_core.experiments.study import Study
from fl_core.formulas.wkafl import learning_rate
from fl_papers.wkafl import theory
from fl_papers.wkafl.experiment import (
    ABLATIONS,
    COMPARED,
    Cell,
    Measure,
    accuracies,
    early,
    final,
    levels,
    measured,
    name_of,
    reached,
    skews,
    task_of,
    unrest,
)
from fl_papers.wkafl.figures import PROBE_SEEDS, probe, weights_of_updates
from fl_papers.wkafl.theory import STAGE1, STAGE2

Judge = Callable[..., Sequence[Comparison | Check]]

BASELINES = COMPARED[1:]
GAMMA = 0.1
"""WKAFL's gamma on the digits."""


# About runs, in one mode of staleness


def compare(
    study: Study,
    snapshot: str,
    *,
    cells: Callable[[Study, str], Iterable[Cell]],
    measures: Sequence[Measure],
    others: Iterable[str],
    method: str = "WKAFL",
    above: bool = True,
    bound: float = 1.0,
) -> list[Comparison]:
    """Compare a method with each of `others` by each measure, in each cell that has both."""
    found = []
    for measure in measures:
        for cell in cells(study, snapshot):
            for other in others:
                left, right = (measured(study, measure, each, cell) for each in (method, other))
                if left and right:
                    found.append(Comparison(f"{name_of(cell)}, {method} against {other}", left, right, bound, above))
    return found


def most_skewed(study: Study, snapshot: str) -> list[Cell]:
    """Return the cell of Table 3 with the fewest labels."""
    return skews(study, snapshot)[:1]


def gap(study: Study, cell: Cell, other: str) -> BySeed:
    """Return how much further WKAFL ends than another method, by seed."""
    return measured(study, final, "WKAFL", cell) - measured(study, final, other, cell)


def few_dominate(study: Study, snapshot: str) -> list[Comparison]:
    """C01: share of the updates in which at most five gradients weigh more than 0.1."""
    found = {seed: float((theory.predominated(w) <= 5).mean()) for seed, w in weights_of_updates(study).items()}
    return [Comparison("share of updates", found, bound=0.95, above=True)] if found else []


def ordered(study: Study, snapshot: str) -> list[Comparison]:
    """C07: WKAFL > TWAFL > SASGD at every level."""
    at_levels = partial(compare, study, snapshot, cells=levels, measures=[final])
    return [*at_levels(others=["TWAFL"]), *at_levels(method="TWAFL", others=["SASGD"])]


def robust_to_staleness(study: Study, snapshot: str) -> list[Comparison]:
    """C08: from the lowest to the highest level WKAFL loses less than TWAFL, and TWAFL less than SASGD."""
    cells = levels(study, snapshot)
    if len(cells) < 2:
        return []
    ends = {
        m: [measured(study, final, m, cell) for cell in (cells[0], cells[-1])] for m in ("WKAFL", "TWAFL", "SASGD")
    }
    drops = {method: low - high for method, (low, high) in ends.items()}
    return [Comparison(f"{a} against {b}", drops[a] - drops[b], bound=0.0) for a, b in pairwise(drops)]


def fastest(study: Study, snapshot: str) -> list[Comparison]:
    """C09: WKAFL is the first to reach the common target at every level, and most clearly at the highest."""
    found, leads = [], []
    for cell in levels(study, snapshot):
        found += _sooner(study, cell, ("TWAFL", "SASGD"))
        if times := _times(study, cell, ("WKAFL", "TWAFL", "SASGD")):
            ours, *theirs = times.values()
            # NaN, undecided: with a worst method no better than guessing, the initial model can be at the target
            leads.append((name_of(cell), ours / BySeed.over(theirs, lambda each: min(each) or float("nan"))))
    for name, lead in leads[:-1]:
        top, most = leads[-1]
        found.append(Comparison(f"lead at {top} against {name}", most, lead))
    return found


def selection_is_faster(study: Study, snapshot: str) -> list[Comparison]:
    """C04: WKAFL is more stable than without selection, and reaches the common target sooner."""
    without = ("No Grad-Sel",)
    steadier = compare(study, snapshot, cells=levels, measures=[unrest], others=without, above=False)
    return [*steadier, *(part for cell in levels(study, snapshot) for part in _sooner(study, cell, without))]


def _sooner(study: Study, cell: Cell, others: Sequence[str]) -> list[Comparison]:
    times = _times(study, cell, ("WKAFL", *others))
    names = {other: f"{name_of(cell)}, versions, WKAFL against {other}" for other in others}
    return [Comparison(names[other], times["WKAFL"], times[other]) for other in others] if times else []


def _times(study: Study, cell: Cell, methods: Sequence[str]) -> dict[str, BySeed]:
    """Return the versions to 90 % of the worst method's final accuracy, by method; empty if a method has no run."""
    ends = [measured(study, final, method, cell) for method in methods]
    if not all(ends):
        return {}
    target = 0.9 * min(end.mean for end in ends)
    return {method: measured(study, partial(reached, target=target), method, cell) for method in methods}


def large_gap(study: Study, snapshot: str) -> list[Comparison]:
    """C10: at the highest level WKAFL is more than 0.05 ahead of SASGD, and further than at the others."""
    gaps = [(name_of(cell), found) for cell in levels(study, snapshot) if (found := gap(study, cell, "SASGD"))]
    if not gaps:
        return []
    *lower, (top, largest) = gaps
    more = [Comparison(f"{top} against {name}", largest - each, bound=0.0, above=True) for name, each in lower]
    return [Comparison(f"{top}, gap", largest, bound=0.05, above=True), *more]


def gap_grows_with_skew(study: Study, snapshot: str) -> list[Comparison]:
    """C12: the gap to TWAFL is larger with the fewest labels per device than with the most."""
    gaps = [gap(study, cell, "TWAFL") for cell in skews(study, snapshot)]
    more = "fewest against most labels"
    return [Comparison(more, gaps[0] - gaps[-1], bound=0.0, above=True)] if len(gaps) > 1 else []


def less_stable_if_skewed(study: Study, snapshot: str) -> list[Comparison]:
    """C18: each method is less stable with the fewest labels than with the most."""
    cells = skews(study, snapshot)
    if len(cells) < 2:
        return []
    pairs = {m: [measured(study, unrest, m, cell) for cell in (cells[0], cells[-1])] for m in COMPARED}
    return [Comparison(m, few, many, above=True) for m, (few, many) in pairs.items() if few and many]


def stable_but_worse(study: Study, snapshot: str) -> list[Comparison]:
    """C16: GSGM is the most stable method, and less accurate than WKAFL."""
    in_table = partial(compare, study, snapshot, cells=skews)
    stable = in_table(measures=[unrest], method="GSGM", others=("WKAFL", "TWAFL", "SASGD"), above=False)
    return [*stable, *in_table(measures=[final], others=["GSGM"])]


def gap_to_gsgm(study: Study, snapshot: str) -> list[Comparison]:
    """C17: the gap to GSGM is positive in every cell of Table 3; the effect is the gap itself."""
    gaps = [(name_of(cell), gap(study, cell, "GSGM")) for cell in skews(study, snapshot)]
    return [Comparison(f"{name}, gap", found, bound=0.0, above=True) for name, found in gaps if found]


def _mild(study: Study, snapshot: str) -> list[Cell]:
    """Return the cells of CIFAR-10 with more than one label; none of another data set."""
    return [c for c in skews(study, snapshot) if task_of(study.dataset) == "cifar10" and (c["labels"] or 0) > 1]


def twafl_is_level(study: Study, snapshot: str) -> list[Check]:
    """C19: CIFAR-10 with five or ten labels, the gap to TWAFL is below two standard errors and below 0.01."""
    found = []
    for cell in _mild(study, snapshot):
        gaps = list(gap(study, cell, "TWAFL").values())
        if len(gaps) > 1:
            mean, error = abs(float(np.mean(gaps))), float(np.std(gaps, ddof=1) / np.sqrt(len(gaps)))
            text = f"|gap| {mean:.4f}, standard error {error:.4f}"
            found.append(Check(name_of(cell), mean <= min(2 * error, 0.01), text))
    return found


def curves_coincide(study: Study, snapshot: str) -> list[Comparison]:
    """C20: there, the curves of WKAFL and TWAFL, smoothed over five measurements, stay within 0.03."""
    found = []
    for cell in _mild(study, snapshot):
        ours, theirs = (
            {entry.labels["seed"]: result for entry, result in study.select(method=m, lr_factor=1.0, **cell)}
            for m in ("WKAFL", "TWAFL")
        )
        if far := {seed: _farthest(ours[seed], theirs[seed]) for seed in ours.keys() & theirs.keys()}:
            found.append(Comparison(f"{name_of(cell)}, largest gap", far, bound=0.03))
    return found


def _farthest(one: Result, other: Result, window: int = 5) -> float:
    values = [np.array(accuracies(result)) for result in (one, other)]
    kernel = np.ones(min(window, *map(len, values)))
    smooth = [np.convolve(each, kernel / len(kernel), "valid") for each in values]
    shared = min(map(len, smooth))
    return float(np.abs(smooth[0][:shared] - smooth[1][:shared]).max())


def lenet_explains(study: Study, snapshot: str) -> list[Check]:
    """C30: trained centrally LeNet-5 is between 0.60 and 0.72, and WKAFL below it.

    The first half holds on the surrogate by construction: it was calibrated by this very run.
    """
    central = [float(np.mean(accuracies(result)[-4:])) for _, result in study.select(role="reference")]
    cells = [*levels(study, snapshot), *skews(study, snapshot)]
    ours = [values.mean for cell in cells if (values := measured(study, final, "WKAFL", cell))]
    if not central or not ours:
        return []
    return [
        Check("LeNet-5, centrally", 0.60 <= central[0] <= 0.72, f"accuracy {central[0]:.3f}"),
        Check("WKAFL's best cell", max(ours) < central[0], f"{max(ours):.3f} < {central[0]:.3f}"),
    ]


def zeno_is_worse(study: Study, snapshot: str) -> list[Comparison]:
    """C29: Zeno++ ends more than 0.05 below WKAFL."""
    found = gap(study, {"role": "byzantine", "byzantine": 0.0}, "Zeno++")
    return [Comparison("gap", found, bound=0.05, above=True)] if found else []


def consistency_falls_with_age(study: Study) -> list[Comparison]:
    """C32: a negative correlation of staleness and cosine, and selected gradients older than the median."""
    correlation, old = {}, {}
    for seed in PROBE_SEEDS:
        frame = probe(seed=seed)
        correlation[seed] = float(frame["staleness"].corr(frame["cosine"]))
        old[seed] = float((frame.loc[frame["selected"], "staleness"] > frame["staleness"].median()).mean())
    return [
        Comparison("correlation of staleness and cosine", correlation, bound=0.0),
        Comparison("share of the selected that is older than the median", old, bound=0.0, above=True),
    ]


# About the theory and the schedule


def contradiction(study: Study) -> list[Check]:
    """C02."""
    sweep = theory.swept_decay()
    slope = float(np.polyfit(sweep["gradients"], sweep["staleness"], 1)[0])
    fit = float(np.corrcoef(sweep["gradients"], sweep["staleness"])[0, 1] ** 2)
    return [Check("nine decays", slope > 0 and fit >= 0.9, f"slope {slope:.2f}, R² {fit:.3f}")]


def least_staleness(study: Study) -> list[Check]:
    """C21: the age's least value is reached by round robin, and participants' staleness is P / K - 1 everywhere."""
    checks, everywhere = [], theory.mean_staleness(1000, 10)
    for name, staleness, age, lowest in theory.schedule_means().itertuples(index=False, name=None):
        least = age >= lowest * (1 - 1e-9)
        equal = np.isclose(age, lowest) == (name == "round robin")
        same = abs(staleness / everywhere - 1) <= 0.02
        checks.append(Check(name, bool(least and equal and same), f"age {age:.1f}, staleness {staleness:.1f}"))
    return checks


def stage_one(study: Study) -> list[Check]:
    """C22: T1, and a bound that rises with tau_max and with G^2."""
    lrs, p2 = np.full(60, 0.05), np.full(60, 1 / 3)
    rising = {
        name: [theory.theorem51_bound(lrs, p2, **{**STAGE1, name: value}) for value in values]
        for name, values in {"max_staleness": (1, 3, 9), "dissimilarity_sq": (0.1, 0.3, 0.9)}.items()
    }
    return [*_both_sides("5.1"), *(_monotone(name, values) for name, values in rising.items())]


def stage_two(study: Study) -> list[Check]:
    """C24: T2, and a bound that rises with sigma_g and with B, as V_j falls."""
    lrs, checks = np.full(40, 0.01), _both_sides("5.3")
    for name, values in {"est_error_sq": (0.1, 0.4, 1.6), "stage2_clip_factor": (1.0, 2.0, 4.0)}.items():
        made = [theory.theorem53(lrs, **{**STAGE2, name: value}) for value in values]
        checks.append(_monotone(name, [one.bound / one.coefficients.min() for one in made]))
    return checks


def first_rate(study: Study) -> list[Check]:
    """C23: with eta = sqrt(K / J) and G = 0 the bound falls like the root of J, and for long runs of K J."""
    free = {**STAGE1, "dissimilarity_sq": 0.0}

    def bound(count: int, length: int) -> float:
        lr = np.sqrt(count / length)
        return theory.theorem51_bound(np.full(length, lr), np.full(length, 1 / count), **free) / (lr / 2)

    def limit(count: float, length: float) -> float:
        return float(theory.remark52_terms(np.sqrt(count / length), count, length, **free).total)

    found = {
        "in J, the bound, 500 to 2000": np.log(bound(1, 2000) / bound(1, 500)) / np.log(4),
        "in J, its terms at 10¹⁰": np.log(limit(4, 4e10) / limit(4, 1e10)) / np.log(4),
        "in K, its terms at 10¹⁰": np.log(limit(4, 1e10) / limit(1, 1e10)) / np.log(4),
    }
    return [Check(name, bool(abs(slope + 0.5) <= 0.05), f"slope {slope:.3f}") for name, slope in found.items()]


def second_rate(study: Study) -> list[Check]:
    """C25: with C = 0 the bound falls like the root of J; else to a plateau in proportion to C."""
    slope = float(np.log(theory.bound53_by_length(800, 0, 0) / theory.bound53_by_length(200, 0, 0)) / np.log(4))
    small, large = (theory.bound53_by_length(1600, c, 0) - theory.bound53_by_length(1600, 0, 0) for c in (0.5, 1.0))
    return [
        Check("C = 0", bool(abs(slope + 0.5) <= 0.05), f"slope {slope:.3f}"),
        Check("twice C", bool(abs(large / small - 2) <= 0.05), f"plateau × {large / small:.3f}"),
    ]


def clipping_helps(study: Study) -> list[Check]:
    """C26: the toy of Figure 4."""
    [(_, before, after, improved)] = theory.clipping((1.2,), 200).itertuples(index=False, name=None)
    text = f"mean cosine {before:.3f} → {after:.3f}, better in {improved:.0%} of draws"
    return [Check("200 draws", bool(after > before and improved > 0.95), text)]


def momentum_averages(study: Study) -> list[Check]:
    """C27, the derivation's part: independent client errors, relative to the signal, before and after Eq. 4 (D2)."""
    rng, alpha, count = np.random.default_rng(0), 0.1, 10
    own, others = rng.standard_normal(40_000), rng.standard_normal((40_000, count)).mean(axis=1)
    measured = float(((own + alpha * others) / (1 + alpha)).var())
    expected = float(theory.relative_non_iid_variance(1.0, count, alpha))
    holds = measured < 1 and abs(measured / expected - 1) < 0.03
    return [Check("40,000 draws", holds, f"variance × {measured:.3f}, formula {expected:.3f}")]


def sasgd_hardly_moves(study: Study) -> list[Check]:
    """C28: the mean step of SASGD over that of WKAFL at P / K = 300."""
    drawn = theory.uniform_draws(3000, 10, 4000, np.random.default_rng(6)).staleness[1500:]
    wkafl = float(np.mean([learning_rate(1.0, float(least), GAMMA) for least in drawn.min(axis=1)]))
    sasgd = float((1 / (drawn + 1)).mean())
    near = abs(sasgd / theory.expected_inverse_staleness(3000, 10) - 1) < 0.1
    return [Check("P = 3000, K = 10", near and sasgd / wkafl < 0.2, f"{sasgd:.4f} against {wkafl:.3f}")]


def asynchronous_saves_time(study: Study) -> list[Check]:
    """C31."""
    checks = []
    for name, waiting, going_on in theory.waiting_times().itertuples(index=False, name=None):
        ratio = going_on / waiting
        holds = abs(ratio - 1) <= 0.03 if name == "exponential" else ratio < 0.97
        checks.append(Check(name, bool(holds), f"{going_on:.4f} s against {waiting:.4f} s"))
    return checks


def _both_sides(theorem: str) -> list[Check]:
    table = theory.theorem_checks()
    rows = table[table["theorem"] == theorem]
    columns = ["problem", "lr", "limit", "left", "right"]
    return [
        Check(name, bool(left <= right and lr <= limit), f"{left:.4f} ≤ {right:.4f}")
        for name, lr, limit, left, right in rows[columns].itertuples(index=False, name=None)
    ]


def _monotone(name: str, values: Sequence[float]) -> Check:
    return Check(
        f"rises with {name}", all(a < b for a, b in pairwise(values)), " < ".join(f"{v:.4f}" for v in values)
    )


_claim = partial(make_claim, "WKAFL")
_computed = partial(_claim, exact=True, computed=True)


def _true(number: str, source: str, statement: str, test: str, judge: Judge) -> Claim:
    return _claim(number, source, statement, test, partial(judge, snapshot="copy"))


def _both(number: str, source: str, statement: str, test: str, judge: Judge) -> list[Claim]:
    told = f"{statement} (devices share the server's memory)"
    aliased = _claim(f"{number}-aliased", source, told, test, partial(judge, snapshot="aliased"))
    return [_true(number, source, statement, test, judge), aliased]


CLAIMS = [
    _true("C01", "Fig. 2 a",
          "Exponential weights leave few dominating gradients: at most five in almost all updates.",
          "share of updates with at most 5 weights above 0.1 ≥ 0.95", few_dominate),
    *_both("C03", "Fig. 5", "WKAFL ends highest and starts fastest among its ablations.",
           "final and early accuracy(WKAFL) > those of each ablation",
           partial(compare, cells=levels, measures=[final, early], others=ABLATIONS)),
    *_both("C04", "Fig. 5", "Selecting gradients makes training smoother and faster.",
           "stability(WKAFL) < stability(No Grad-Sel), fewer versions to 90 % of the worse final accuracy",
           selection_is_faster),
    *_both("C05", "Fig. 5", "Removing what is done against staleness hurts most.",
           "final accuracy(No Staleness) < that of the three others",
           partial(compare, cells=levels, measures=[final], method="No Staleness", above=False,
                   others=("WKAFL", "No Grad-Sel", "No Non-IIDness"))),
    *_both("C06", "Fig. 6",
           "With one writer or celebrity per device WKAFL starts faster and ends higher than the others.",
           "early and final accuracy(WKAFL) > those of TWAFL, SASGD, GSGM",
           partial(compare, cells=skews, measures=[early, final], others=BASELINES)),
    *_both("C07", "Table 2", "WKAFL is better than TWAFL, and TWAFL than SASGD, at every level of staleness.",
           "final accuracy(WKAFL) > TWAFL > SASGD, each level", ordered),
    *_both("C08", "Table 2", "WKAFL loses least by staleness, SASGD most.",
           "drop from lowest to highest level: WKAFL < TWAFL < SASGD", robust_to_staleness),
    *_both("C09", "Figs 7, 8", "WKAFL trains fastest at every level, most visibly at the highest.",
           "versions to 90 % of the worst final accuracy: fewest with WKAFL; "
           "least against the next at the highest level", fastest),
    *_both("C10", "Table 2", "At the highest level WKAFL is far ahead of SASGD.",
           "gap > 0.05 and larger than at the other levels", large_gap),
    *_both("C11", "Table 3", "WKAFL has the highest accuracy whatever the label skew.",
           "final accuracy(WKAFL) > each baseline, each number of labels",
           partial(compare, cells=skews, measures=[final], others=BASELINES)),
    *_both("C12", "Table 3", "WKAFL's advantage is larger for stronger heterogeneity.",
           "gap to TWAFL: fewest labels > most labels", gap_grows_with_skew),
    *_both("C13", "Table 3", "WKAFL is more stable than TWAFL.",
           "stability(WKAFL) < stability(TWAFL), each number of labels",
           partial(compare, cells=skews, measures=[unrest], others=["TWAFL"], above=False)),
    *_both("C14", "Table 3", "With one label WKAFL is more than twice as stable as SASGD (93 % in print).",
           "stability(WKAFL) ≤ 0.5 stability(SASGD), fewest labels",
           partial(compare, cells=most_skewed, measures=[unrest], others=["SASGD"], above=False, bound=0.5)),
    *_both("C15", "Table 3", "With one label WKAFL's stability is about 44 % better than TWAFL's.",
           "stability(WKAFL) ≤ 0.8 stability(TWAFL), fewest labels",
           partial(compare, cells=most_skewed, measures=[unrest], others=["TWAFL"], above=False, bound=0.8)),
    *_both("C16", "Table 3", "GSGM is the most stable, but less accurate than WKAFL.",
           "stability(GSGM) < that of the others; final accuracy(WKAFL) > that of GSGM", stable_but_worse),
    *_both("C17", "Table 3", "WKAFL gains 5.83 to 10.59 points over GSGM.",
           "gap > 0, each number of labels (the effect is the gap)", gap_to_gsgm),
    *_both("C18", "Table 3", "Training gets less stable as heterogeneity grows.",
           "stability with the fewest labels > with the most, each method", less_stable_if_skewed),
    *_both("C19", "Table 3", "On CIFAR-10 with five or ten labels TWAFL and WKAFL are level.",
           "|gap| < two standard errors over seeds and < 0.01", twafl_is_level),
    *_both("C20", "Fig. 10", "There, their curves nearly coincide.",
           "largest gap of the smoothed curves < 0.03", curves_coincide),
    *_both("C27b", "Sec. 4.3.1", "Accumulated gradients make training on non-IID data more stable.",
           "stability(WKAFL) < stability(No Non-IIDness)",
           partial(compare, cells=levels, measures=[unrest], others=["No Non-IIDness"], above=False)),
    _true("C29", "App. A", "Zeno++ is far worse than WKAFL on non-IID data.",
          "final accuracy(WKAFL) − final accuracy(Zeno++) > 0.05", zeno_is_worse),
    _true("C30", "Sec. 6.3.1", "The level of accuracy on CIFAR-10 is that of LeNet-5, less what asynchrony costs.",
          "accuracy(LeNet-5, centrally) in [0.60, 0.72], that of WKAFL below it", lenet_explains),
    _claim("C32", "Sec. 4.2", "Fresh gradients are the more consistent ones; some stale ones are consistent, too.",
           "correlation < 0 on a probe run; share of old ones among the selected > 0", consistency_falls_with_age,
           computed=True),
    _computed("C02", "Fig. 2 b",
              "More aggregated gradients are staler ones, about linearly: the two remedies contradict.",
              "slope > 0 and R² ≥ 0.9 over nine decays of the weights", contradiction),
    _computed("C21", "Sec. 6.3.1", "The least average staleness is about P/(2K).",
              "mean age ≥ (P/K − 1)/2, equal for round robin alone; staleness of used gradients P/K − 1 ± 2 %",
              least_staleness),
    _computed("C22", "Theorem 5.1", "Stage one converges; staleness and non-IID data worsen the bound.",
              "(13) on T1; right side increasing in τ_max and G²", stage_one),
    _computed("C23", "Remark 5.2", "For G = 0 the rate is O(1/√(KJ)): linear speed-up.",
              "log-log slopes −1/2 ± 0.05", first_rate),
    _computed("C24", "Theorem 5.3", "Stage two converges; smaller σ_g and B are better.",
              "(14) on T2; right side over min V increasing in σ_g and B", stage_two),
    _computed("C25", "Remark 5.4", "With unbounded staleness the rate is O(1/√J + C).",
              "log-log slope −1/2 ± 0.05 for C = 0; plateau in proportion to C", second_rate),
    _computed("C26", "Fig. 4", "Clipping brings the estimate closer to the true gradient.",
              "mean cosine rises, in more than 95 % of draws", clipping_helps),
    _computed("C27a", "Sec. 4.3.1", "Accumulated gradients reduce the error of non-IID data.",
              "its variance relative to the signal falls as derived", momentum_averages),
    _computed("C28", "Sec. 4.3.4", "Dividing by staleness, as SASGD does, slows training too much at large scale.",
              "mean step SASGD / WKAFL < 0.2 at P/K = 300", sasgd_hardly_moves),
    _computed("C31", "Sec. 1", "K-asynchronous updates take less time than K-synchronous ones.",
              "equal ± 3 % for exponential durations, less for the two others", asynchronous_saves_time),
]  # fmt: skip
