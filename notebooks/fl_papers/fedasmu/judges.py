"""The tests of FedASMU's claims, as the specification states them (section 8).

A study is one data set, so "in every cell" means each of its columns of Tables 1 and 2. Accuracies are final ones
(A18); a time is that of the first evaluation with the column's target accuracy (A19). An
advantage is a difference of accuracies, or the part of the other method's time that is saved. Figure 7 is in
:mod:`fl_papers.fedasmu.condition_judges`, what needs no runs in
:mod:`fl_papers.fedasmu.theory_judges`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from fl_core.experiments.claims import Check, Comparison
from fl_core.experiments.study import Study
from fl_papers.fedasmu.measures import (
    Setting,
    Values,
    difference,
    final,
    gaps,
    mean,
    over_seeds,
    reached,
    savings,
    settings,
    times,
    traffic,
)
from fl_papers.fedasmu.methods import ABLATIONS, ASYNCHRONOUS, BASELINES, EXTRA, HEURISTICS, SYNCHRONOUS
from fl_papers.fedasmu.printed import What, band

DA, FA, ZERO = ABLATIONS
MOST_SENSITIVE = 0.024
"""Difference of accuracies that the text reports as an exception (C35)."""

Judge = Callable[[Study], Sequence[Comparison | Check]]


def above(name: str, values: Values, bound: float = 0.0) -> list[Comparison]:
    """Return the inequality value >= bound, if there are values."""
    return [Comparison(name, values, dict.fromkeys(values, 1.0), bound, above=True)] if values else []


def below(name: str, values: Values, bound: float = 0.0) -> list[Comparison]:
    """Return the inequality value <= bound, if there are values."""
    return [Comparison(name, values, dict.fromkeys(values, 1.0), bound)] if values else []


def more_accurate(study: Study, pairs: Iterable[tuple[str, str, Setting]]) -> list[Comparison]:
    """Return, for each (method, other, setting), that the accuracies' difference is positive."""
    return [part for a, b, at in pairs for part in above(f"{at}, {a} against {b}", gaps(study, a, b, at))]


def faster(
    study: Study, pairs: Iterable[tuple[str, str, Setting]], bound: float = 1.0, target: float | None = None
) -> list[Comparison]:
    """Return, for each (method, other, setting), that the ratio of times is at most `bound`."""
    found = []
    for a, b, at in pairs:
        ours, theirs = times(study, a, b, at, target)
        if ours:
            found.append(Comparison(f"{at}, {a} against {b}", ours, theirs, bound))
    return found


# Tables 1 and 2


def highest(study: Study) -> list[Comparison]:
    """C01: against the best baseline of each column."""
    best = [(at, max(rivals, key=rivals.__getitem__)) for at in settings(study) if (rivals := _means(study, at))]
    return more_accurate(study, [("FedASMU", other, at) for at, other in best])


def fastest(study: Study) -> list[Comparison]:
    """C02: against the fastest baseline of each column."""
    found = []
    for at in settings(study):
        rivals = {other: mean(times(study, "FedASMU", other, at)[1]) for other in BASELINES}
        rivals = {other: seconds for other, seconds in rivals.items() if seconds == seconds}
        if rivals:
            found += faster(study, [("FedASMU", min(rivals, key=rivals.__getitem__), at)])
    return found


def in_the_band(of: Callable[..., Values], what: What) -> Judge:
    """C03, C04: the least and the largest advantage over columns and baselines lie in the reported range."""

    def judge(study: Study) -> list[Comparison]:
        low, high = band(what, "all") or (np.nan, np.nan)
        found = {
            f"{at}, {other}": values
            for at in settings(study)
            for other in BASELINES
            if (values := of(study, "FedASMU", other, at))
        }
        if not found:
            return []
        least, most = (pick(found, key=lambda name: mean(found[name])) for pick in (min, max))
        return above(f"least: {least}", found[least], low) + below(f"largest: {most}", found[most], high)

    return judge


def faster_than(other: str) -> Judge:
    """C05 to C13: in every column whose target the baseline reaches."""

    def judge(study: Study) -> list[Comparison]:
        found = []
        for at in settings(study, other):
            theirs = {seed: time.seconds for seed, time in reached(study, other, at).items() if time.reached}
            ours = times(study, "FedASMU", other, at)[0]
            if ours.keys() & theirs.keys():
                found.append(Comparison(str(at), ours, theirs))
        return found

    return judge


def more_accurate_than(other: str) -> Judge:
    """C14 to C22."""
    return lambda study: [
        part for at in settings(study, other) for part in above(str(at), gaps(study, "FedASMU", other, at))
    ]


def saves_more_of_synchronous_time(study: Study) -> list[Comparison]:
    """C23: medians over columns and baselines."""
    sides = [
        over_seeds((savings(study, "FedASMU", m, at) for m in methods for at in settings(study)), np.median)
        for methods in (SYNCHRONOUS, ASYNCHRONOUS)
    ]
    return above("median time saved, synchronous less asynchronous baselines", difference(*sides))


# Ablations and what the text reports


def ablation(*pairs: tuple[str, str], speed: float | None = None, accurate: bool = True) -> Judge:
    """C28 to C33: the first of each pair is more accurate, and needs at most the part `speed` of the time."""

    def judge(study: Study) -> list[Comparison]:
        wanted = [(*pair, at) for at in settings(study, DA) for pair in pairs]
        found = more_accurate(study, wanted) if accurate else []
        return found + (faster(study, wanted, speed) if speed else [])

    return judge


def insensitive(study: Study) -> list[Comparison]:
    """C35: the range of final accuracies over trigger periods and learning rates."""
    found = []
    varied = ("trigger_period", "lr_lambda", "lr_sigma", "lr_iota")
    for column in dict.fromkeys(at.column for name in varied for at in settings(study, varied=name)):
        points = [Setting(column), *(at for name in varied for at in settings(study, varied=name))]
        spread = over_seeds((final(study, "FedASMU", at) for at in points if at.column == column), np.ptp)
        found += below(f"{Setting(column)}, range over {len(points)} settings", spread, MOST_SENSITIVE)
    return found


def more_accurate_than_others(study: Study) -> list[Comparison]:
    """C36."""
    return more_accurate(study, [("FedASMU", other, at) for other in EXTRA for at in settings(study, other)])


def faster_than_others(study: Study) -> list[Comparison]:
    """C37."""
    return faster(study, [("FedASMU", other, at) for other in EXTRA for at in settings(study, other)])


def beats_fixed_slots(study: Study) -> list[Comparison]:
    """C38."""
    named = [name for name in HEURISTICS if name.startswith("H")]
    return more_accurate(study, [("FedASMU", slot, at) for at in settings(study, named[0]) for slot in named])


def interior_slot_is_best(study: Study) -> list[Comparison]:
    """C44: the best of the slots in between, against the first and the last one."""
    first, *between, last = HEURISTICS
    found = []
    for at in settings(study, first):
        inside = {slot: mean(values) for slot in between if (values := final(study, slot, at))}
        if inside:
            best = max(inside, key=inside.__getitem__)
            found += more_accurate(study, [(best, first, at), (best, last, at)])
    return found


def extra_traffic_is_downlink(study: Study) -> list[Check]:
    """C39: bytes per upload, over all of a run."""
    found = []
    for at in settings(study, "FedAsync"):
        (up, down), (up_async, down_async) = (traffic(study, method, at) for method in ("FedASMU", "FedAsync"))
        seeds = up.keys() & up_async.keys()
        if seeds:
            equal = all(up[seed] == up_async[seed] for seed in seeds)
            most = max(down[seed] / down_async[seed] for seed in seeds)
            found.append(Check(f"{at}, up", equal, f"{mean(up):,.0f} and {mean(up_async):,.0f} bytes per upload"))
            found.append(Check(f"{at}, down", most <= 2, f"at most {most:.2f} times FedAsync's"))
    return found


def _means(study: Study, at: Setting) -> dict[str, float]:
    return {other: mean(values) for other in BASELINES if (values := final(study, other, at))}
