"""WKAFL's claims about runs, with the specification's tests (section 8), for true and for aliased staleness.

``WKAFL-C07`` is judged on the runs with true staleness, ``WKAFL-C07-aliased`` on those whose devices share the
server's memory, as in the authors' programs (E30). The runs are those of :mod:`fl_core.experiments.wkafl_grid`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from fl_core.experiments.claims import Check, Claim, Comparison, register
from fl_core.experiments.run import Result
from fl_core.experiments.study import Study
from fl_core.experiments.wkafl_grid import ABLATIONS, METHODS
from fl_core.experiments.wkafl_printed import task_of
from fl_core.formulas.wkafl_staleness import predominated, stability

LAST = 10
"""Evaluations at the end that a final accuracy is the mean of (A19), and whose spread is the stability (A9)."""
EARLY = 0.2
"""Part of the evaluations that training speed is measured on."""

Values = dict[int, float]
Cell = dict[str, Any]
Judge = Callable[[Study, str], Sequence[Comparison | Check]]


def accuracies(result: Result) -> list[float]:
    """Return the measured accuracies, without that of the initial model."""
    return result.history.evaluations["test_accuracy"][1:]


def final(result: Result) -> float:
    """Return the final accuracy: the mean of the last ten (A19)."""
    return float(np.mean(accuracies(result)[-LAST:]))


def early(result: Result) -> float:
    """Return the mean accuracy over the first fifth of the evaluations: the speed of training (2.8)."""
    values = accuracies(result)
    return float(np.mean(values[: max(1, round(EARLY * len(values)))]))


def unrest(result: Result) -> float:
    """Return the stability, which is large where training is not stable (2.8); NaN for fewer than ten evaluations."""
    values = accuracies(result)[-LAST:]
    if len(set(values)) == 1 and len(values) == LAST:
        return 0.0  # not the rounding error of a mean
    return stability(values, LAST) if len(values) == LAST and min(values) > 0 else float("nan")


def reached(result: Result, target: float) -> float:
    """Return the first measured version with at least accuracy `target`; the last one if there is none."""
    table = result.history.evaluations
    pairs = zip(table["version"], table["test_accuracy"], strict=True)
    return float(next((version for version, accuracy in pairs if accuracy >= target), table["version"][-1]))


def measured(study: Study, measure: Callable[[Result], float], method: str, cell: Cell) -> Values:
    """Return `measure` by seed of the runs of `method` in `cell`, at the authors' learning rates."""
    found = study.select(method=method, lr_factor=1.0, **cell)
    return {entry.labels["seed"]: measure(result) for entry, result in found}


def levels(study: Study, snapshot: str) -> list[Cell]:
    """Return the cells of Table 2 that `study` has, by rising staleness: those with the fewest labels per device."""
    found = _cells(study, snapshot)
    fewest = min((cell["labels"] or 0 for cell in found), default=0)
    return sorted((c for c in found if (c["labels"] or 0) == fewest), key=lambda c: c["clients"] / c["aggregated"])


def skews(study: Study, snapshot: str) -> list[Cell]:
    """Return the cells of Table 3, where GSGM is run, by rising number of labels per device."""
    return sorted(_cells(study, snapshot, "GSGM"), key=lambda cell: cell["labels"] or 0)


def _cells(study: Study, snapshot: str, method: str = "WKAFL") -> list[Cell]:
    runs = study.select(method=method, role="curve", snapshot=snapshot)
    cells = {tuple(e.labels[n] for n in ("clients", "aggregated", "labels")) for e, _ in runs}
    return [
        {"clients": c, "aggregated": k, "labels": n, "snapshot": snapshot, "role": "curve"}
        for c, k, n in sorted(cells, key=str)
    ]


def name_of(cell: Cell) -> str:
    """Return a cell in words."""
    if cell["role"] == "byzantine":
        return f"{cell['byzantine']:.0%} Byzantine uploads" if cell["byzantine"] else "no Byzantine uploads"
    level = f"P/K = {cell['clients'] / cell['aggregated']:g}"
    return level if cell["labels"] is None else f"{level}, {cell['labels']} label{'s' if cell['labels'] > 1 else ''}"


def _against(
    study: Study, cells: Iterable[Cell], measure: Callable[[Result], float], method: str, others: Iterable[str],
    above: bool = True, bound: float = 1.0,
) -> list[Comparison]:  # fmt: skip
    """Compare `method` with each of `others` in each cell that has both."""
    found = []
    for cell in cells:
        for other in others:
            left, right = (measured(study, measure, each, cell) for each in (method, other))
            if left and right:
                found.append(Comparison(f"{name_of(cell)}, {method} against {other}", left, right, bound, above))
    return found


def _gap(study: Study, cell: Cell, method: str, other: str, measure: Callable[[Result], float] = final) -> Values:
    left, right = (measured(study, measure, each, cell) for each in (method, other))
    return {seed: left[seed] - right[seed] for seed in left.keys() & right.keys()}


def _fixed(values: Values, value: float = 1.0) -> Values:
    return dict.fromkeys(values, value)


def few_dominate(study: Study, snapshot: str) -> list[Comparison]:
    """C01: share of the updates in which at most five gradients weigh more than 0.1."""
    found = {}
    for entry, result in study.select(role="motivation"):
        weights = np.array(result.history.updates["weight"]).reshape(-1, entry.labels["aggregated"])
        found[entry.labels["seed"]] = float((predominated(weights) <= 5).mean())
    return [Comparison("share of updates", found, _fixed(found), 0.95, above=True)] if found else []


def ordered(study: Study, snapshot: str) -> list[Comparison]:
    """C07: WKAFL > TWAFL > SASGD at every level."""
    cells = levels(study, snapshot)
    return [
        *_against(study, cells, final, "WKAFL", ["TWAFL"]),
        *_against(study, cells, final, "TWAFL", ["SASGD"]),
    ]


def robust_to_staleness(study: Study, snapshot: str) -> list[Comparison]:
    """C08: from the lowest to the highest level WKAFL loses less than TWAFL, and TWAFL less than SASGD."""
    cells = levels(study, snapshot)
    if len(cells) < 2:
        return []
    drops = []
    for method in ("WKAFL", "TWAFL", "SASGD"):
        low, high = (measured(study, final, method, cell) for cell in (cells[0], cells[-1]))
        drops.append({seed: low[seed] - high[seed] for seed in low.keys() & high.keys()})
    names = ("WKAFL against TWAFL", "TWAFL against SASGD")
    return [
        Comparison(name, {s: a[s] - b[s] for s in a.keys() & b.keys()}, _fixed(a), 0.0)
        for name, (a, b) in zip(names, pairwise(drops), strict=True)
    ]


def fastest(study: Study, snapshot: str) -> list[Comparison]:
    """C09: WKAFL is the first to reach 90 % of the worst method's final accuracy, at every level."""
    found = []
    for cell in levels(study, snapshot):
        ends = {method: measured(study, final, method, cell) for method in ("WKAFL", "TWAFL", "SASGD")}
        if not all(ends.values()):
            continue
        target = 0.9 * min(float(np.mean(list(values.values()))) for values in ends.values())
        found += _against(study, [cell], partial(reached, target=target), "WKAFL", ["TWAFL", "SASGD"], above=False)
    return found


def large_gap(study: Study, snapshot: str) -> list[Comparison]:
    """C10: at the highest level WKAFL is more than 0.05 ahead of SASGD, and further than at the others."""
    gaps = [(cell, _gap(study, cell, "WKAFL", "SASGD")) for cell in levels(study, snapshot)]
    gaps = [(cell, gap) for cell, gap in gaps if gap]
    if not gaps:
        return []
    top, largest = gaps[-1]
    found = [Comparison(f"{name_of(top)}, gap", largest, _fixed(largest), 0.05, above=True)]
    for cell, gap in gaps[:-1]:
        more = {seed: largest[seed] - gap[seed] for seed in largest.keys() & gap.keys()}
        found.append(Comparison(f"{name_of(top)} against {name_of(cell)}", more, _fixed(more), 0.0, above=True))
    return found


def gap_grows_with_skew(study: Study, snapshot: str) -> list[Comparison]:
    """C12: the gap to TWAFL is larger with the fewest labels per device than with the most."""
    cells = skews(study, snapshot)
    if len(cells) < 2:
        return []
    few, many = (_gap(study, cell, "WKAFL", "TWAFL") for cell in (cells[0], cells[-1]))
    more = {seed: few[seed] - many[seed] for seed in few.keys() & many.keys()}
    return [Comparison("fewest against most labels", more, _fixed(more), 0.0, above=True)]


def less_stable_if_skewed(study: Study, snapshot: str) -> list[Comparison]:
    """C18."""
    cells = skews(study, snapshot)
    if len(cells) < 2:
        return []
    pairs = {m: [measured(study, unrest, m, cell) for cell in (cells[0], cells[-1])] for m in METHODS}
    return [Comparison(m, few, many, above=True) for m, (few, many) in pairs.items() if few and many]


def gsgm_is_most_stable(study: Study, snapshot: str) -> list[Comparison]:
    """C16, its first half."""
    return _against(study, skews(study, snapshot), unrest, "GSGM", ("WKAFL", "TWAFL", "SASGD"), above=False)


def gap_to_gsgm(study: Study, snapshot: str) -> list[Comparison]:
    """C17: the gap to GSGM is positive in every cell of Table 3; the effect is the gap itself."""
    gaps = [(cell, _gap(study, cell, "WKAFL", "GSGM")) for cell in skews(study, snapshot)]
    return [Comparison(f"{name_of(cell)}, gap", gap, _fixed(gap), 0.0, above=True) for cell, gap in gaps if gap]


def twafl_is_level(study: Study, snapshot: str) -> list[Check]:
    """C19: CIFAR-10 with five or ten labels, the gap to TWAFL is below two standard errors and below 0.01."""
    found = []
    for cell in _mild(study, snapshot):
        gap = list(_gap(study, cell, "WKAFL", "TWAFL").values())
        if len(gap) > 1:
            mean, error = abs(float(np.mean(gap))), float(np.std(gap, ddof=1) / np.sqrt(len(gap)))
            holds = mean <= min(2 * error, 0.01)
            found.append(Check(name_of(cell), holds, f"|gap| {mean:.4f}, standard error {error:.4f}"))
    return found


def curves_coincide(study: Study, snapshot: str) -> list[Comparison]:
    """C20: there, the curves of WKAFL and TWAFL, smoothed over five measurements, stay within 0.03."""
    found = []
    for cell in _mild(study, snapshot):
        ours, theirs = (
            {entry.labels["seed"]: result for entry, result in study.select(method=m, lr_factor=1.0, **cell)}
            for m in ("WKAFL", "TWAFL")
        )
        far = {seed: _farthest(ours[seed], theirs[seed]) for seed in ours.keys() & theirs.keys()}
        if far:
            found.append(Comparison(f"{name_of(cell)}, largest gap", far, _fixed(far), 0.03))
    return found


def lenet_explains(study: Study, snapshot: str) -> list[Check]:
    """C30: trained centrally LeNet-5 is between 0.60 and 0.72, and WKAFL below it.

    The first half holds on the surrogate by construction: it was calibrated by this very run.
    """
    central = [float(np.mean(accuracies(result)[-4:])) for _, result in study.select(role="reference")]
    cells = [*levels(study, snapshot), *skews(study, snapshot)]
    ours = [np.mean(list(values.values())) for cell in cells if (values := measured(study, final, "WKAFL", cell))]
    if not central or not ours:
        return []
    best = float(max(ours))
    return [
        Check("LeNet-5, centrally", 0.60 <= central[0] <= 0.72, f"accuracy {central[0]:.3f}"),
        Check("WKAFL's best cell", best < central[0], f"{best:.3f} < {central[0]:.3f}"),
    ]


def _mild(study: Study, snapshot: str) -> list[Cell]:
    """Return the cells of CIFAR-10 with more than one label; none of another data set."""
    return [c for c in skews(study, snapshot) if task_of(study.dataset) == "cifar10" and (c["labels"] or 0) > 1]


def _farthest(one: Result, other: Result, window: int = 5) -> float:
    values = [np.array(accuracies(result)) for result in (one, other)]
    kernel = np.ones(min(window, *map(len, values)))
    smooth = [np.convolve(each, kernel / len(kernel), "valid") for each in values]
    shared = min(map(len, smooth))
    return float(np.abs(smooth[0][:shared] - smooth[1][:shared]).max())


def zeno_is_worse(study: Study, snapshot: str) -> list[Comparison]:
    """C29: Zeno++ ends more than 0.05 below WKAFL."""
    cell = {"role": "byzantine", "byzantine": 0.0}
    gap = _gap(study, cell, "WKAFL", "Zeno++")
    return [Comparison("gap", gap, _fixed(gap), 0.05, above=True)] if gap else []


def _each_skew(
    measure: Callable[[Result], float], others: Sequence[str], above: bool, bound: float = 1.0, first: bool = False
) -> Judge:
    def judge(study: Study, snapshot: str) -> list[Comparison]:
        cells = skews(study, snapshot)[: 1 if first else None]
        return _against(study, cells, measure, "WKAFL", others, above, bound)

    return judge


def _both(*judges: Judge) -> Judge:
    return lambda study, snapshot: [part for judge in judges for part in judge(study, snapshot)]


def _on_levels(
    measure: Callable[[Result], float], method: str, others: Sequence[str], above: bool, bound: float = 1.0
) -> Judge:
    return lambda study, snapshot: _against(study, levels(study, snapshot), measure, method, others, above, bound)


def _in_mode(judge: Judge, snapshot: str) -> Callable[[Study], Sequence[Comparison | Check]]:
    def judged(study: Study) -> Sequence[Comparison | Check]:
        return judge(study, snapshot)

    return judged


def _add(number: str, source: str, statement: str, test: str, judge: Judge, modes: bool = True) -> None:
    for suffix, snapshot in (("", "copy"), ("-aliased", "aliased")) if modes else (("", "copy"),):
        told = statement if not suffix else f"{statement} (devices share the server's memory)"
        register(Claim(f"WKAFL-{number}{suffix}", told, source, test, _in_mode(judge, snapshot)))


_add("C01", "Fig. 2 a", "Exponential weights leave few dominating gradients: at most five in almost all updates.",
     "share of updates with at most 5 weights above 0.1 ≥ 0.95", few_dominate, modes=False)  # fmt: skip
_add("C03", "Fig. 5", "WKAFL ends highest and starts fastest among its ablations.",
     "final and early accuracy(WKAFL) > those of each ablation",
     _both(_on_levels(final, "WKAFL", tuple(ABLATIONS), True),
           _on_levels(early, "WKAFL", tuple(ABLATIONS), True)))  # fmt: skip
_add("C04", "Fig. 5", "Selecting gradients makes training smoother and faster.",
     "stability(WKAFL) < stability(No Grad-Sel), early accuracy higher",
     _both(_on_levels(unrest, "WKAFL", ("No Grad-Sel",), False),
           _on_levels(early, "WKAFL", ("No Grad-Sel",), True)))  # fmt: skip
_add("C05", "Fig. 5", "Removing what is done against staleness hurts most.",
     "final accuracy(No Staleness) < that of the three others",
     _on_levels(final, "No Staleness", ("WKAFL", "No Grad-Sel", "No Non-IIDness"), False))  # fmt: skip
_add("C06", "Fig. 6", "With one writer or celebrity per device WKAFL starts faster and ends higher than the others.",
     "early and final accuracy(WKAFL) > those of TWAFL, SASGD, GSGM",
     _both(_each_skew(early, METHODS[1:], True), _each_skew(final, METHODS[1:], True)))  # fmt: skip
_add("C07", "Table 2", "WKAFL is better than TWAFL, and TWAFL than SASGD, at every level of staleness.",
     "final accuracy(WKAFL) > TWAFL > SASGD, each level", ordered)  # fmt: skip
_add("C08", "Table 2", "WKAFL loses least by staleness, SASGD most.",
     "drop from lowest to highest level: WKAFL < TWAFL < SASGD", robust_to_staleness)  # fmt: skip
_add("C09", "Figs 7, 8", "WKAFL trains fastest at every level.",
     "versions to 90 % of the worst final accuracy: fewest with WKAFL", fastest)  # fmt: skip
_add("C10", "Table 2", "At the highest level WKAFL is far ahead of SASGD.",
     "gap > 0.05 and larger than at the other levels", large_gap)  # fmt: skip
_add("C11", "Table 3", "WKAFL has the highest accuracy whatever the label skew.",
     "final accuracy(WKAFL) > each baseline, each number of labels",
     _each_skew(final, METHODS[1:], True))  # fmt: skip
_add("C12", "Table 3", "WKAFL's advantage is larger for stronger heterogeneity.",
     "gap to TWAFL: fewest labels > most labels", gap_grows_with_skew)  # fmt: skip
_add("C13", "Table 3", "WKAFL is more stable than TWAFL.",
     "stability(WKAFL) < stability(TWAFL), each number of labels", _each_skew(unrest, ("TWAFL",), False))  # fmt: skip
_add("C14", "Table 3", "With one label WKAFL is more than twice as stable as SASGD (93 % in print).",
     "stability(WKAFL) ≤ 0.5 stability(SASGD), fewest labels",
     _each_skew(unrest, ("SASGD",), False, 0.5, first=True))  # fmt: skip
_add("C15", "Table 3", "With one label WKAFL's stability is about 44 % better than TWAFL's.",
     "stability(WKAFL) ≤ 0.8 stability(TWAFL), fewest labels",
     _each_skew(unrest, ("TWAFL",), False, 0.8, first=True))  # fmt: skip
_add("C16", "Table 3", "GSGM is the most stable, but less accurate than WKAFL.",
     "stability(GSGM) < that of the others; final accuracy(WKAFL) > that of GSGM",
     _both(gsgm_is_most_stable, _each_skew(final, ("GSGM",), True)))  # fmt: skip
_add("C17", "Table 3", "WKAFL gains 5.83 to 10.59 points over GSGM.",
     "gap > 0, each number of labels (the effect is the gap)", gap_to_gsgm)  # fmt: skip
_add("C18", "Table 3", "Training gets less stable as heterogeneity grows.",
     "stability with the fewest labels > with the most, each method", less_stable_if_skewed)  # fmt: skip
_add("C19", "Table 3", "On CIFAR-10 with five or ten labels TWAFL and WKAFL are level.",
     "|gap| < two standard errors over seeds and < 0.01", twafl_is_level)  # fmt: skip
_add("C20", "Fig. 10", "There, their curves nearly coincide.",
     "largest gap of the smoothed curves < 0.03", curves_coincide)  # fmt: skip
_add("C30", "Sec. 6.3.1", "The level of accuracy on CIFAR-10 is that of LeNet-5, less what asynchrony costs.",
     "accuracy(LeNet-5, centrally) in [0.60, 0.72], that of WKAFL below it", lenet_explains, modes=False)  # fmt: skip
_add("C27b", "Sec. 4.3.1", "Accumulated gradients make training on non-IID data more stable.",
     "stability(WKAFL) < stability(No Non-IIDness)",
     _on_levels(unrest, "WKAFL", ("No Non-IIDness",), False))  # fmt: skip
_add("C29", "App. A", "Zeno++ is far worse than WKAFL on non-IID data.",
     "final accuracy(WKAFL) − final accuracy(Zeno++) > 0.05", zeno_is_worse, modes=False)  # fmt: skip
