"""The tests of FedASMU's claims, as the specification states them (section 8).

A study is one data set, so "in every cell" means each of its columns of Tables 1 and 2. Accuracies are final ones
(A18); a time is that of the first evaluation with the column's target accuracy (A19), in Figure 7 with 60 %. An
advantage is a difference of accuracies, or the part of the other method's time that is saved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from fl_core.experiments import fedasmu_theory as theory
from fl_core.experiments.claims import Check, Comparison
from fl_core.experiments.fedasmu_grid import (
    ABLATIONS,
    ASYNCHRONOUS,
    CONDITION_TARGET,
    EXTRA,
    HEURISTICS,
    METHODS,
    SYNCHRONOUS,
)
from fl_core.experiments.fedasmu_measures import (
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
)
from fl_core.experiments.fedasmu_printed import What, band
from fl_core.experiments.study import Study
from fl_core.formulas.fedasmu import Form

BASELINES = METHODS[1:]
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


# Figure 7


def better_in(study: Study, varied: str, *values: float) -> list[Comparison]:
    """Return that FedASMU is more accurate and faster than every baseline."""
    found: list[Comparison] = []
    for at in _conditions(study, varied, *values):
        pairs = [("FedASMU", other, at) for other in BASELINES]
        found += more_accurate(study, pairs) + faster(study, pairs, target=CONDITION_TARGET)
    return found


def low_bandwidth(study: Study) -> list[Comparison]:
    """C24."""
    found = better_in(study, "bandwidth", 50)
    for at in _conditions(study, "bandwidth", 50):
        here, normal = (over_seeds(_savings(study, one).values()) for one in (at, Setting(at.column)))
        found += below(f"{at}, mean time saved, less that at normal bandwidth", difference(here, normal))
    return found


def lower_bandwidth(study: Study) -> list[Comparison]:
    """C25: also the largest and the least advantages, which the paper's ranges have moving apart."""
    found = better_in(study, "bandwidth", 100)
    for at in _conditions(study, "bandwidth", 100):
        before = at._replace(value=50)
        for what, of in (("accuracy gained", _gaps), ("time saved", _savings)):
            for name, pick in (("largest", max), ("least", min)):
                here, there = (over_seeds(of(study, one).values(), pick) for one in (at, before))
                change = difference(here, there)
                made = above if name == "largest" else below
                found += made(f"{at}, {name} {what}, less that at bandwidth 50", change)
    return found


def heterogeneity(study: Study) -> list[Comparison]:
    """C26: from the smallest to the largest ratio, against each synchronous baseline."""
    found = []
    points = _conditions(study, "heterogeneity")
    for column in dict.fromkeys(at.column for at in points):
        ratios = sorted(at.value for at in points if at.column == column)
        if len(ratios) > 1:
            ends = [Setting(column, "heterogeneity", ratio) for ratio in (ratios[0], ratios[-1])]
            for other in SYNCHRONOUS:
                low, high = (savings(study, "FedASMU", other, at, CONDITION_TARGET) for at in ends)
                name = f"time saved against {other}, ratio {ratios[-1]:g} less {ratios[0]:g}"
                found += above(name, difference(high, low))
    return found


def more_devices(study: Study) -> list[Comparison]:
    """C27: with 100 devices, the standard number, and with 200."""
    found = better_in(study, "devices", 200)
    for at in _conditions(study, "devices", 200):
        pairs = [("FedASMU", other, Setting(at.column)) for other in BASELINES]
        found += more_accurate(study, pairs) + faster(study, pairs, target=CONDITION_TARGET)
    return found


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


def traffic(study: Study, method: str, at: Setting) -> tuple[Values, Values]:
    """Return the bytes that are sent up and down per upload received, by seed."""
    found: tuple[Values, Values] = ({}, {})
    for entry, result in study.select(method=method, **at._asdict()):
        table = result.history.evaluations
        if uploads := table["models_received"][-1]:
            for side, direction in zip(found, ("bytes_up", "bytes_down"), strict=True):
                side[entry.labels["seed"]] = table[direction][-1] / uploads
    return found


def _means(study: Study, at: Setting) -> dict[str, float]:
    return {other: mean(values) for other in BASELINES if (values := final(study, other, at))}


def _conditions(study: Study, varied: str, *values: float) -> list[Setting]:
    return [at for at in settings(study, varied=varied) if not values or at.value in values]


def _gaps(study: Study, at: Setting) -> dict[str, Values]:
    return {other: gaps(study, "FedASMU", other, at) for other in BASELINES}


def _savings(study: Study, at: Setting) -> dict[str, Values]:
    return {other: savings(study, "FedASMU", other, at, CONDITION_TARGET) for other in BASELINES}


# What formulas and small simulations decide


def zero_is_fedasync(study: Study) -> list[Check]:
    """C34."""
    zero, fedasync = theory.without_both_parts()
    applied, discarded = (zero.outcomes[name] for name in ("applied", "discarded"))
    detail = f"{applied} uploads mixed in and {discarded} dropped on quadratic losses: equal bit for bit"
    return [Check("all of the run", zero == fedasync and discarded > 0, detail)]


def merging_lowers_staleness(study: Study) -> list[Comparison]:
    """C40."""
    seeds = range(3)
    merged, alone = (
        {seed: float(theory.distances(seed)[side].mean()) for seed in seeds} for side in ("merged", "alone")
    )
    return [Comparison("distance at arrival with the merge, over without", merged, alone)]


def theorem_1(study: Study) -> list[Check]:
    """C41."""
    found, example = theory.theorem(range(2), 100), theory.counterexample((3, 4, 5, 10, 20))
    corrected = (found["mean of |grad F|²"] <= found["bound"]).all() and not found["rounds violated"].sum()
    tight = (found["mean of |grad F|²"] / found["bound"]).max()
    wrong = example["|grad F|²"] > example["printed"]
    steps = example.loc[wrong, "steps"].min()
    return [
        Check("the corrected bound, to a neighbourhood", bool(corrected), f"measured at most {tight:.2g} of it"),
        Check("the printed bound, to a critical point", not wrong.any(),
              f"one device of two reports (E13): |∇F|² stays 0.0025, above the bound from {steps} steps on"),
    ]  # fmt: skip


def one_step_helps(study: Study) -> list[Check]:
    """C42."""
    found = []
    forms: dict[Form, str] = {"derived": "with derived gradients", "printed": "with the gradients that are printed"}
    for form, name in forms.items():
        table = theory.steps_of_the_controls(form)
        lower = int((table["after"] < table["before"]).sum())
        found.append(Check(name, lower == len(table), f"the loss falls in {lower} of {len(table)} random problems"))
    return found


def bound_removes_uploads(study: Study) -> list[Check]:
    """C43."""
    found = []
    for bound in (12, 99):
        count, largest = theory.dropped(bound)
        detail = f"{count:,} uploads dropped while 5,000 are mixed in; largest staleness {largest}"
        found.append(Check(f"τ = {bound}{', the paper' * (bound == 99)}", count > 0, detail))
    return found
