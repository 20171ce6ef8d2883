"""WKAFL's claims about runs as one table, and what is measured for them; those about its theory are in errata.py.

``WKAFL-C07`` is judged on the runs with true staleness, ``WKAFL-C07-aliased`` beside it on those whose devices share
the server's memory, as in the authors' programs (E30). An erratum that touches a numbered statement has a row with
its number, a second one (ending in "c") for what holds instead. C15 and C17 have none: they are sizes of C13 and C11.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise, product

import numpy as np

from fl_core.datasets import num_classes, sizes
from fl_core.experiments.claims import FULL, Check, Claim, Part, make_claim
from fl_core.experiments.evidence import PLAIN, POINTS, RATIO, Effect, Relation, Scale, untrained
from fl_core.experiments.measures import BySeed, best_elsewhere
from fl_core.experiments.rounding import luck
from fl_core.experiments.run import Result
from fl_core.experiments.study import Study
from fl_core.report.discussion import Diagnosis
from fl_papers.wkafl import errata, experiment
from fl_papers.wkafl.experiment import Cell, Measure, early, final, levels, measured, name_of, skews, task_of, uneven
from fl_papers.wkafl.figures import PROBE_SEEDS, probe

Judge = Callable[..., Sequence[Part]]
Cells = Callable[[Study, str], list[Cell]]

BASELINES = experiment.COMPARED[1:]
MEASURES: Mapping[Measure, tuple[str, Scale, str]] = {
    final: ("final", POINTS, "accuracy"), early: ("early", POINTS, ""), uneven: ("stability", RATIO, "stability"),
}  # fmt: skip
"""How a measure is called, compared, and printed."""
STEP = 1e-5  # Of an accuracy that is a mean of ten, each on 10,000 test images.


def printed(study: Study, source: str, quantity: str, method: str, cell: Cell) -> float:
    """Return a number of the tables; NaN if it is not printed, or for other data than those of the study.

    Fashion-MNIST, which stands for EMNIST MNIST, has the direction of an effect in common with it, not its size.
    """
    name = {"emnist-mnist": "digits", "cifar10": "cifar10"}.get(study.dataset)
    labels = {"source": source, "task": name, "method": method, "quantity": quantity}
    labels |= {key: cell.get(key) for key in experiment.PLACE}
    found = experiment.PRINTED.number(**labels) if name else None
    return float("nan") if found is None else found


def effect(
    study: Study, name: str, sides: tuple[BySeed, BySeed], methods: Iterable[str], measure: Measure,
    claimed: Relation, size: float, bound: float | None = None,
) -> list[Effect]:  # fmt: skip
    """Return one part, of `measure`; `methods` has a method as often as a value of it is in the effect.

    Where the paper prints the opposite, as on CIFAR-10 (C19), it does not claim that: there is no part.
    Training amplifies rounding, so an effect is given at least the spread that rounding makes.
    """
    scale = MEASURES[measure][1]
    if claimed != "equal" and not np.isnan(size) and scale.inner(size) * (1 if claimed == "more" else -1) < 0:
        return []
    chaos = [luck(study, method, lambda result: scale.inner(measure(result))) for method in methods]
    step, printed = STEP if scale is POINTS else 0.0, None if np.isnan(size) else size
    return [Effect(name, *sides, scale, claimed, bound, printed, None, False, step, float(np.linalg.norm(chaos)))]


def compare(
    study: Study, snapshot: str, *, cells: Cells, measures: Sequence[Measure], others: Iterable[str],
    method: str = "WKAFL", claimed: Relation = "more", bound: float | None = None,
) -> list[Effect]:  # fmt: skip
    """Compare a method with each of `others` by each measure, in each cell that has both."""
    found: list[Effect] = []
    for measure, cell, other in product(measures, cells(study, snapshot), others):
        what, scale, quantity = MEASURES[measure]
        source, both = "table2" if cells in (by_level, highest) else "table3", (method, other)
        ours, theirs = (printed(study, source, quantity, each, cell) for each in both)
        left, right = (measured(study, measure, each, cell) for each in both)
        size = ours / theirs if scale is RATIO else ours - theirs
        name = f"{what}, {name_of(cell)}, {method} against {other}"
        found += effect(study, name, (left, right), both, measure, claimed, size, bound)
    return found


def owners(study: Study, snapshot: str) -> list[Cell]:
    """Return the cell of data with owners: writers or celebrities."""
    return [cell for cell in skews(study, snapshot) if cell["labels"] is None]


def by_level(study: Study, snapshot: str) -> list[Cell]:
    """Return the cells of Table 2, by rising staleness; none of data that it is not about."""
    return levels(study, snapshot) if task_of(study.dataset) else []


def by_skew(study: Study, snapshot: str) -> list[Cell]:
    """Return the cells of Table 3, by rising number of labels; none of data that it is not about."""
    return skews(study, snapshot) if task_of(study.dataset) else []


def most_skewed(study: Study, snapshot: str) -> list[Cell]:
    """Return the cell of Table 3 with the fewest labels."""
    return by_skew(study, snapshot)[:1]


def highest(study: Study, snapshot: str) -> list[Cell]:
    """Return the cell of Table 2 with the highest level of staleness."""
    return by_level(study, snapshot)[-1:]


def gap_grows(
    study: Study, snapshot: str, *, cells: Cells, other: str, measure: Measure = final, one_pair: bool = False
) -> list[Effect]:
    """WKAFL's gap to another method is larger at the highest level (with the fewest labels) than in the other cells.

    `one_pair`: than in the one at the other end.
    """
    (what, _, quantity), found, both = MEASURES[measure], [], ("WKAFL", other)
    rising, source = (1, "table2") if cells is by_level else (-1, "table3")
    *others, top = cells(study, snapshot)[::rising] or [{}]
    for cell in others[:1] if one_pair else others:
        ends = (top, cell)
        left, right = (measured(study, measure, "WKAFL", e) - measured(study, measure, other, e) for e in ends)
        sizes = [printed(study, source, quantity, method, end) for end, method in product(ends, both)]
        name = f"{what}, gap to {other}, {name_of(top)} against {name_of(cell)}"
        size = sizes[0] - sizes[1] - sizes[2] + sizes[3]
        found += effect(study, name, (left, right), 2 * both, measure, "more", size)
    return found


def robust_to_staleness(study: Study, snapshot: str) -> list[Effect]:
    """C08: from the lowest to the highest level WKAFL loses less than TWAFL, and TWAFL less than SASGD."""
    cells, found = by_level(study, snapshot), []
    for both in pairwise(("WKAFL", "TWAFL", "SASGD")) if len(cells) > 1 else ():
        ends = cells[0], cells[-1]
        less, more = (measured(study, final, m, ends[0]) - measured(study, final, m, ends[1]) for m in both)
        sizes = [printed(study, "table2", "accuracy", method, end) for method, end in product(both, ends)]
        size = sizes[0] - sizes[1] - sizes[2] + sizes[3]
        name = f"{both[0]} against {both[1]}"
        found += effect(study, name, (less, more), 2 * both, final, "less", size)
    return found


def fastest(study: Study, snapshot: str) -> list[Effect]:
    """C09: WKAFL is ahead in the first fifth at every level, and further at the highest than at the others."""
    found = compare(study, snapshot, cells=by_level, measures=[early], others=("TWAFL", "SASGD"))
    for other in ("TWAFL", "SASGD"):
        found += gap_grows(study, snapshot, cells=by_level, other=other, measure=early)
    return found


def far_ahead(study: Study, snapshot: str) -> list[Effect]:
    """C10: more than 0.05 ahead of SASGD at the highest level, and further than at the others."""
    far = compare(study, snapshot, cells=highest, measures=[final], others=["SASGD"], bound=0.05)
    return [*far, *gap_grows(study, snapshot, cells=by_level, other="SASGD")]


def less_stable_if_skewed(study: Study, snapshot: str) -> list[Effect]:
    """C18: each method is less stable with the fewest labels than with the most."""
    cells, found = by_skew(study, snapshot), []
    for method in experiment.COMPARED if len(cells) > 1 else ():
        ends = cells[0], cells[-1]
        few, many = (measured(study, uneven, method, end) for end in ends)
        sizes = [printed(study, "table3", "stability", method, end) for end in ends]
        found += effect(study, method, (few, many), 2 * [method], uneven, "more", sizes[0] / sizes[1])
    return found


def _mild(study: Study, snapshot: str) -> list[Cell]:
    """Return the cells of CIFAR-10 with more than one label; none of another data set."""
    return [c for c in skews(study, snapshot) if task_of(study.dataset) == "cifar10" and (c["labels"] or 0) > 1]


def twafl_is_level(study: Study, snapshot: str) -> list[Effect]:
    """C19: CIFAR-10 with five or ten labels."""
    return [
        Effect(name_of(cell), measured(study, final, "WKAFL", cell), measured(study, final, "TWAFL", cell), POINTS,
               "equal", delta=0.01, resolution=STEP)
        for cell in _mild(study, snapshot)
    ]  # fmt: skip


def curves_coincide(study: Study, snapshot: str) -> list[Effect]:
    """C20: there, the curves of WKAFL and TWAFL, smoothed over five measurements."""
    found = []
    for cell in _mild(study, snapshot):
        both = [study.select(method=method, lr_factor=1.0, **cell) for method in ("WKAFL", "TWAFL")]
        ours, theirs = ({entry.labels["seed"]: result for entry, result in runs} for runs in both)
        keys = [entry.key for runs in both for entry, _ in runs]
        far = BySeed({seed: _farthest(ours[seed], theirs[seed]) for seed in ours.keys() & theirs.keys()}, keys)
        found.append(Effect(f"{name_of(cell)}, largest gap", far, 0.0, POINTS, "less", 0.03))
    return found


def _farthest(one: Result, other: Result) -> float:
    values = [np.array(experiment.accuracies(result)) for result in (one, other)]
    kernel = np.ones(min(5, *map(len, values)))
    smooth = [np.convolve(each, kernel / len(kernel), "valid") for each in values]
    shared = min(map(len, smooth))
    return float(np.abs(smooth[0][:shared] - smooth[1][:shared]).max())


def lenet_explains(study: Study, snapshot: str) -> list[Part]:
    """C30: trained centrally LeNet-5 is between 0.60 and 0.72, and WKAFL below it.

    The first half holds on the surrogate by construction: it was calibrated by this very run.
    """
    central = [float(np.mean(experiment.accuracies(result)[-4:])) for _, result in study.select(role="reference")]
    cells = [*levels(study, snapshot), *skews(study, snapshot)]
    ours = {name_of(cell): values for cell in cells if (values := measured(study, final, "WKAFL", cell))}
    if not central or not ours:
        return []
    below = [Effect(name, values, central[0], POINTS, "less", resolution=STEP) for name, values in ours.items()]
    return [Check("LeNet-5, centrally", 0.60 <= central[0] <= 0.72, f"accuracy {central[0]:.3f}"), *below]


def apart(study: Study, snapshot: str) -> list[Cell]:
    """Return the cell of Appendix A without Byzantine uploads."""
    return [{"role": "byzantine", "byzantine": 0.0}]


def consistency_falls_with_age(study: Study) -> list[Effect]:
    """C32: staleness and cosine with the true gradient, and the cosine of the gradients older than the median."""
    if study.profile == FULL:
        return []  # the probe is smaller than the paper's runs
    correlation, old = {}, {}
    for seed in PROBE_SEEDS:
        frame = probe(seed=seed)
        correlation[seed] = float(frame["staleness"].corr(frame["cosine"]))
        old[seed] = float(frame.loc[frame["staleness"] > frame["staleness"].median(), "cosine"].mean())
    return [
        Effect("correlation of staleness and cosine", BySeed(correlation, ["probe"]), 0.0, PLAIN, "less", delta=0.05),
        Effect("mean cosine of those older than the median", BySeed(old, ["probe"]), 0.0, PLAIN, "more", delta=0.05),
    ]


OTHER_MODES = {"aliased": "devices share the server's memory", "released": "the authors' programs as released"}
"""What the claims of the comparison are judged on beside the paper's own method, in words."""
claim = partial(make_claim, "WKAFL")


def _true(
    number: str, source: str, statement: str, endpoint: str, judge: Judge, null: str = "no difference"
) -> Claim:
    return claim(number, source, statement, endpoint, partial(judge, snapshot="copy"), null=null)


def _both(
    number: str, source: str, statement: str, endpoint: str, judge: Judge, null: str = "no difference",
    modes: Iterable[str] = ("aliased",),
) -> list[Claim]:  # fmt: skip
    return [
        _true(number, source, statement, endpoint, judge, null),
        *(claim(f"{number}-{mode}", source, f"{statement} ({OTHER_MODES[mode]})", endpoint,
                partial(judge, snapshot=mode), null=null, beside=mode) for mode in modes),
    ]  # fmt: skip


_all_modes = partial(_both, modes=OTHER_MODES)


CLAIMS = [
    *_both("C03", "Fig. 5", "WKAFL ends highest and starts fastest among its ablations.",
           "final and early accuracy, WKAFL minus each ablation",
           partial(compare, cells=levels, measures=[final, early], others=experiment.ABLATIONS)),
    *_both("C04", "Fig. 5", "Selecting gradients makes training smoother and faster.",
           "stability without trend and early accuracy, WKAFL against No Grad-Sel",
           lambda *a, **k: [*compare(*a, **k, cells=levels, measures=[uneven], others=["No Grad-Sel"],
                                     claimed="less"),
                            *compare(*a, **k, cells=levels, measures=[early], others=["No Grad-Sel"])]),
    *_both("C05", "Fig. 5", "Removing what is done against staleness hurts most.",
           "final accuracy, No Staleness minus each of the three others",
           partial(compare, cells=levels, measures=[final], method="No Staleness", claimed="less",
                   others=("WKAFL", "No Grad-Sel", "No Non-IIDness"))),
    *_both("C06", "Fig. 6", "With one writer or celebrity per device WKAFL starts faster and ends higher.",
           "early and final accuracy, WKAFL minus each baseline",
           partial(compare, cells=owners, measures=[early, final], others=BASELINES)),
    *_all_modes("C07", "Table 2", "WKAFL is better than TWAFL, and TWAFL than SASGD, at every level of staleness.",
           "final accuracy, WKAFL minus TWAFL and TWAFL minus SASGD, each level",
           lambda *a, **k: [*compare(*a, **k, cells=by_level, measures=[final], others=["TWAFL"]),
                            *compare(*a, **k, cells=by_level, measures=[final], method="TWAFL", others=["SASGD"])]),
    *_all_modes("C08", "Table 2", "WKAFL loses least by staleness, SASGD most.",
           "what final accuracy loses from lowest to highest level, each method minus the next", robust_to_staleness),
    *_all_modes("C09", "Figs 7, 8", "WKAFL trains fastest at every level, most visibly at the highest.",
           "mean accuracy of the first fifth, WKAFL minus TWAFL and SASGD, each level; highest minus other levels",
           fastest),
    *_all_modes("C10", "Table 2", "At the highest level WKAFL is far ahead of SASGD.",
           "final accuracy, WKAFL minus SASGD at the highest level, above 5 points; highest minus other levels",
           far_ahead, "5 points ahead, as at other levels"),
    *_all_modes("C11", "Table 3; Sec. 1 (C17)", "WKAFL has the highest accuracy whatever the label skew.",
           "final accuracy, WKAFL minus each baseline, each number of labels",
           partial(compare, cells=by_skew, measures=[final], others=BASELINES)),
    *_all_modes("C12", "Table 3", "WKAFL's advantage is larger for stronger heterogeneity.",
           "gap of final accuracy to TWAFL, fewest minus most labels",
           partial(gap_grows, cells=by_skew, other="TWAFL", one_pair=True)),
    *_all_modes("C13", "Table 3; section 6.3.2 (C15)", "WKAFL is more stable than TWAFL.",
           "stability without trend, WKAFL over TWAFL, each number of labels",
           partial(compare, cells=by_skew, measures=[uneven], others=["TWAFL"], claimed="less")),
    *_all_modes("C14", "Table 3; Sec. 1", "With one label WKAFL is more stable than SASGD (by 93 %).",
           "stability without trend, WKAFL over SASGD, fewest labels",
           partial(compare, cells=most_skewed, measures=[uneven], others=["SASGD"], claimed="less")),
    *_all_modes("C16", "Table 3", "GSGM is the most stable (and less accurate: C11).",
           "stability without trend, GSGM over each other method, each number of labels",
           partial(compare, cells=by_skew, measures=[uneven], method="GSGM", others=("WKAFL", "TWAFL", "SASGD"),
                   claimed="less")),
    *_all_modes("C18", "Table 3", "Training gets less stable as heterogeneity grows.",
           "stability without trend, fewest over most labels, each method", less_stable_if_skewed),
    *_both("C19", "Table 3", "On CIFAR-10 with five or ten labels TWAFL and WKAFL are level.",
           "final accuracy, WKAFL minus TWAFL, within 1 point", twafl_is_level, "a point apart"),
    *_both("C20", "Fig. 10", "There, their curves nearly coincide.",
           "largest gap of the smoothed curves, below 3 points", curves_coincide, "3 points apart"),
    *_both("C27b", "Sec. 4.3.1", "Accumulated gradients make training on non-IID data more stable.",
           "stability without trend, WKAFL over No Non-IIDness",
           partial(compare, cells=levels, measures=[uneven], others=["No Non-IIDness"], claimed="less")),
    _true("C29", "App. A", "Zeno++ is far worse than WKAFL on non-IID data.",
          "final accuracy, WKAFL minus Zeno++, above 5 points",
          partial(compare, cells=apart, measures=[final], others=["Zeno++"], bound=0.05), "5 points ahead"),
    _true("C30", "Sec. 6.3.1", "The level of accuracy on CIFAR-10 is that of LeNet-5, less what asynchrony costs.",
          "accuracy of LeNet-5 centrally in [0.60, 0.72]; final accuracy of WKAFL minus it", lenet_explains),
    claim("C32", "Sec. 4.2", "Fresh gradients are the more consistent ones; some stale ones are consistent, too.",
          "correlation of staleness and cosine with the true gradient; mean cosine of the older half",
          consistency_falls_with_age, null="no correlation; no direction left"),
    *errata.CLAIMS,
]  # fmt: skip

# Why claims may come out as they do, and the runs that test each suspicion


def better_on_shared_memory(study: Study, cells: Cells, others: tuple[str, ...]) -> list[Effect]:
    """Return by how much WKAFL's lead is larger where nearly all gradients are fresh and counted as stale."""
    found = []
    for cell, other in product(cells(study, "copy"), others):
        true, shared = (
            measured(study, final, "WKAFL", here) - measured(study, final, other, here)
            for here in (cell, {**cell, "snapshot": "aliased"})
        )
        name = f"{name_of(cell)}, lead over {other}, shared less true"
        found += effect(study, name, (shared, true), 2 * ("WKAFL", other), final, "more", float("nan"))
    return found


def better_with_smaller_steps(study: Study) -> list[Effect]:
    """Return what GSGM gains with a tenth of its learning rate."""
    found = []
    for cell in by_skew(study, "copy"):
        runs = [study.select(method="GSGM", lr_factor=factor, **cell) for factor in (0.1, 1.0)]
        ends = [BySeed.of(each, lambda entry, result: final(result)) for each in runs]
        name = f"{name_of(cell)}, a tenth less the whole"
        found += effect(study, name, (ends[0], ends[1]), ("GSGM", "GSGM"), final, "more", float("nan"))
    return found


def tuned_alike(study: Study) -> list[Effect]:
    """Return WKAFL's lead where each method has the learning rate that is best on the other seeds."""
    found = []
    for cell, other in product(most_skewed(study, "copy"), BASELINES):
        both = "WKAFL", other
        ends = ({f: measured(study, final, each, cell, f) for f in experiment.TRIALS} for each in both)
        ours, theirs = (best_elsewhere(each, max) for each in ends)
        name = f"{name_of(cell)}, each at its best rate, WKAFL less {other}"
        [part] = effect(study, name, (ours, theirs), both, final, "more", float("nan"))
        lost = untrained(theirs, num_classes(study.dataset), sizes(study.dataset)[1])
        found.append(replace(part, excluded=f"{other} is not trained" if lost else ""))
    return found


DIAGNOSES = [
    Diagnosis("C07 C08 C10", "in the authors' programs gradients are counted as stale and are not, which WKAFL's "
              "weights suit better than true staleness", "wkafl-x1",
              lambda study: better_on_shared_memory(study, by_level, ("TWAFL", "SASGD"))),
    Diagnosis("C11 C12", "the same, where label skew is varied", "wkafl-x1",
              lambda study: better_on_shared_memory(study, by_skew, BASELINES[:2])),
    Diagnosis("C11 C16", "GSGM suffers from its learning rate, not from its method", "wkafl-x9",
              better_with_smaller_steps),
    Diagnosis("C07 C10 C11", "learning rates that suit shared memory do not suit true staleness, and with the same "
              "number of trials for each method WKAFL would be first", "wkafl-x14", tuned_alike),
]  # fmt: skip
