"""FedASMU's claims: the test of each, then what the paper says where.

A study is one data set, so "in every cell" means each of its columns of Tables 1 and 2. Accuracies are final ones
(A18); a time is that of the first evaluation with the column's target accuracy (A19), in Figure 7 with 60 %. An
advantage is a difference of accuracies, or the part of the other method's time that is saved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial

import numpy as np

from fl_core.experiments.claims import Check, Comparison, make_claim
from fl_core.experiments.measures import BySeed
from fl_core.experiments.study import Study
from fl_core.formulas.fedasmu import Form
from fl_papers.fedasmu import theory
from fl_papers.fedasmu.experiment import (
    ABLATIONS,
    ASYNCHRONOUS,
    BASELINES,
    CONDITION_TARGET,
    EXTRA,
    HEURISTICS,
    SYNCHRONOUS,
)
from fl_papers.fedasmu.figures import Setting, final, gaps, reached, savings, settings, times, traffic
from fl_papers.fedasmu.tables import What, band, sensitivity_settings

DA, FA, ZERO = ABLATIONS
MOST_SENSITIVE = 0.024
"""Difference of accuracies that the text reports as an exception (C35)."""

Judge = Callable[[Study], Sequence[Comparison | Check]]


def above(name: str, values: BySeed, bound: float = 0.0) -> list[Comparison]:
    """Return the inequality value >= bound, if there are values."""
    return [Comparison(name, values, dict.fromkeys(values, 1.0), bound, above=True)] if values else []


def below(name: str, values: BySeed, bound: float = 0.0) -> list[Comparison]:
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
    found = []
    for at in settings(study):
        rivals = {other: values.mean for other in BASELINES if (values := final(study, other, at))}
        if rivals:
            found += more_accurate(study, [("FedASMU", max(rivals, key=rivals.__getitem__), at)])
    return found


def fastest(study: Study) -> list[Comparison]:
    """C02: against the fastest baseline of each column."""
    found = []
    for at in settings(study):
        rivals = {o: seconds.mean for o in BASELINES if (seconds := times(study, "FedASMU", o, at)[1])}
        if rivals:
            found += faster(study, [("FedASMU", min(rivals, key=rivals.__getitem__), at)])
    return found


def in_the_band(of: Callable[..., BySeed], what: What) -> Judge:
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
        least, most = (pick(found, key=lambda name: found[name].mean) for pick in (min, max))
        return above(f"least: {least}", found[least], low) + below(f"largest: {most}", found[most], high)

    return judge


def faster_than(other: str) -> Judge:
    """C05 to C13: in every column whose target the baseline reaches."""

    def judge(study: Study) -> list[Comparison]:
        found = []
        for at in settings(study, other):
            theirs = {seed: time.at for seed, time in reached(study, other, at).items() if time.reached}
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
    synchronous, asynchronous = (
        BySeed.over((savings(study, "FedASMU", m, at) for m in methods for at in settings(study)), np.median)
        for methods in (SYNCHRONOUS, ASYNCHRONOUS)
    )
    return above("median time saved, synchronous less asynchronous baselines", synchronous - asynchronous)


# Figure 7

saved = partial(savings, target=CONDITION_TARGET)


def conditions(study: Study, varied: str, *values: float) -> list[Setting]:
    """Return the settings in which something is varied, to these values if any are given."""
    return [at for at in settings(study, varied=varied) if not values or at.value in values]


def better_in(study: Study, points: Iterable[Setting]) -> list[Comparison]:
    """Return that FedASMU is more accurate and faster than every baseline."""
    found: list[Comparison] = []
    for at in points:
        pairs = [("FedASMU", other, at) for other in BASELINES]
        found += more_accurate(study, pairs) + faster(study, pairs, target=CONDITION_TARGET)
    return found


def over_baselines(of: Callable[..., BySeed], study: Study, at: Setting, reduce: Callable = np.mean) -> BySeed:
    """Return the mean (or another) advantage over the baselines."""
    return BySeed.over((of(study, "FedASMU", other, at) for other in BASELINES), reduce)


def low_bandwidth(study: Study) -> list[Comparison]:
    """C24."""
    points = conditions(study, "bandwidth", 50)
    found = better_in(study, points)
    for at in points:
        change = over_baselines(saved, study, at) - over_baselines(saved, study, Setting(at.column))
        found += below(f"{at}, mean time saved, less that at normal bandwidth", change)
    return found


def lower_bandwidth(study: Study) -> list[Comparison]:
    """C25: also the largest and the least advantages, which the paper's ranges have moving apart."""
    points = conditions(study, "bandwidth", 100)
    found = better_in(study, points)
    for at in points:
        for what, of in (("accuracy gained", gaps), ("time saved", saved)):
            for name, pick, moved in (("largest", max, above), ("least", min, below)):
                here, before = (over_baselines(of, study, one, pick) for one in (at, at._replace(value=50)))
                found += moved(f"{at}, {name} {what}, less that at bandwidth 50", here - before)
    return found


def heterogeneity(study: Study) -> list[Comparison]:
    """C26: from the smallest to the largest ratio, against each synchronous baseline."""
    found = []
    points = conditions(study, "heterogeneity")
    for column in dict.fromkeys(at.column for at in points):
        ratios = sorted(at.value for at in points if at.column == column)
        if len(ratios) > 1:
            ends = [Setting(column, "heterogeneity", ratio) for ratio in (ratios[0], ratios[-1])]
            for other in SYNCHRONOUS:
                low, high = (saved(study, "FedASMU", other, at) for at in ends)
                name = f"time saved against {other}, ratio {ratios[-1]:g} less {ratios[0]:g}"
                found += above(name, high - low)
    return found


def more_devices(study: Study) -> list[Comparison]:
    """C27: with 200 devices, and with 100, the standard number."""
    points = conditions(study, "devices", 200)
    return better_in(study, [*points, *(Setting(at.column) for at in points)])


# Ablations and what the text reports


def compare(*pairs: tuple[str, str], where: str, accurate: bool = True, speed: float | None = None) -> Judge:
    """C28 to C33, C36 to C38: the first of each pair is more accurate, and needs at most `speed` times the seconds.

    They are compared in all settings in which the grid has the method `where`.
    """

    def judge(study: Study) -> list[Comparison]:
        wanted = [(*pair, at) for at in settings(study, where) for pair in pairs]
        found = more_accurate(study, wanted) if accurate else []
        return found + (faster(study, wanted, speed) if speed else [])

    return judge


ablation = partial(compare, where=DA)
others = partial(compare, *(("FedASMU", other) for other in EXTRA), where=EXTRA[0])


def insensitive(study: Study) -> list[Comparison]:
    """C35: the range of final accuracies over trigger periods and learning rates."""
    found = []
    varied = sensitivity_settings(study)
    for column in dict.fromkeys(at.column for at in varied):
        points = [Setting(column), *varied]
        spread = BySeed.over((final(study, "FedASMU", at) for at in points if at.column == column), np.ptp)
        found += below(f"{Setting(column)}, range over {len(points)} settings", spread, MOST_SENSITIVE)
    return found


def extra_traffic_is_downlink(study: Study) -> list[Check]:
    """C39: bytes per upload, over all of a run."""
    found = []
    for at in settings(study, "FedAsync"):
        (up, down), (up_async, down_async) = (traffic(study, method, at) for method in ("FedASMU", "FedAsync"))
        if seeds := up.keys() & up_async.keys():
            equal = all(up[seed] == up_async[seed] for seed in seeds)
            most = max(down[seed] / down_async[seed] for seed in seeds)
            found.append(Check(f"{at}, up", equal, f"{up.mean:,.0f} and {up_async.mean:,.0f} bytes per upload"))
            found.append(Check(f"{at}, down", most <= 2, f"at most {most:.2f} times FedAsync's"))
    return found


def interior_slot_is_best(study: Study) -> list[Comparison]:
    """C44: the best of the slots in between, against the first and the last one."""
    first, *between, last = HEURISTICS
    found = []
    for at in settings(study, first):
        inside = {slot: values.mean for slot in between if (values := final(study, slot, at))}
        if inside:
            best = max(inside, key=inside.__getitem__)
            found += more_accurate(study, [(best, first, at), (best, last, at)])
    return found


# What formulas and small simulations decide

theorem = cache(theory.corrected_theorem)
counterexample = cache(theory.one_reporter)


def zero_is_fedasync(study: Study) -> list[Check]:
    """C34."""
    zero, fedasync = theory.without_both_parts()
    applied, discarded = (zero.outcomes[name] for name in ("applied", "discarded"))
    detail = f"{applied} uploads mixed in and {discarded} dropped on quadratic losses: equal bit for bit"
    return [Check("all of the run", zero == fedasync and discarded > 0, detail)]


def merging_lowers_staleness(study: Study) -> list[Comparison]:
    """C40."""
    merged, alone = (
        {seed: float(theory.distances(seed)[side].mean()) for seed in range(3)} for side in ("merged", "alone")
    )
    return [Comparison("distance at arrival with the merge, over without", merged, alone)]


def theorem_1(study: Study) -> list[Check]:
    """C41."""
    found, example = theorem(range(2), 100), counterexample((3, 4, 5, 10, 20))
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


# What the paper says


def reported(what: What, other: str = "all") -> str:
    """Return what the text says that FedASMU gains, in words."""
    found = band(what, other)
    unit = "points" if what == "accuracy gain" else "%"
    return "no range printed" if found is None else f"{100 * found[0]:g} to {100 * found[1]:g} {unit}"


claim = partial(make_claim, "FEDASMU")
CLAIMS = [
    claim("C01", "Tables 1, 2", "FedASMU has the highest accuracy in every column.",
          "accuracy(FedASMU) − accuracy(best baseline) > 0, each column", highest),
    claim("C02", "Tables 1, 2", "FedASMU is the first to reach the target in every column.",
          "time(FedASMU) < time(fastest baseline), each column", fastest),
    claim("C03", "abstract", f"Its accuracy is {reported('accuracy gain')} higher (by the tables up to 27).",
          "least and largest difference over columns and baselines within the range",
          in_the_band(gaps, "accuracy gain"), fragile=True),
    claim("C04", "abstract", f"It saves {reported('time saved')} of the time.",
          "least and largest part saved over columns and baselines within the range",
          in_the_band(savings, "time saved"), fragile=True),
    *(
        claim(f"C{n:02d}", "section 5", f"It is faster than {other} ({reported('time saved', other)}).",
              f"time(FedASMU) < time({other}), each column where {other} reaches the target", faster_than(other))
        for n, other in enumerate(BASELINES, start=5)
    ),
    *(
        claim(f"C{n:02d}", "section 5", f"It is more accurate than {other} ({reported('accuracy gain', other)}).",
              f"accuracy(FedASMU) − accuracy({other}) > 0, each column", more_accurate_than(other))
        for n, other in enumerate(BASELINES, start=14)
    ),
    claim("C23", "section 5", "It is fast because it is asynchronous: it saves more over synchronous baselines.",
          "median part saved over synchronous − over asynchronous baselines > 0",
          saves_more_of_synchronous_time),
    claim("C24", "Fig. 7", "With 50 times lower bandwidth it is still better, with a smaller advantage.",
          "more accurate and faster than each baseline; mean part saved below that at normal bandwidth",
          low_bandwidth),
    claim("C25", "appendix",
          "With 100 times lower bandwidth it is still better, by more than at 50 (the least falls).",
          "more accurate and faster than each baseline; largest advantage above, least below that at 50",
          lower_bandwidth),
    claim("C26", "Fig. 7", "Its advantage grows with the heterogeneity of devices.",
          "part saved at ratio 440 − at 110 > 0, each synchronous baseline", heterogeneity),
    claim("C27", "Fig. 7", "It is better with 100 and with 200 devices.",
          "more accurate and faster than each baseline, both numbers", more_devices),
    claim("C28", "Fig. 2", "Dynamic weights help: FedASMU is more accurate than FedASMU-DA.",
          "accuracy(FedASMU) − accuracy(FedASMU-DA) > 0", ablation(("FedASMU", DA))),
    claim("C29", "Fig. 2", "Dynamic weights help: FedASMU-FA is more accurate than FedASMU-0.",
          "accuracy(FedASMU-FA) − accuracy(FedASMU-0) > 0", ablation((FA, ZERO))),
    claim("C30", "Fig. 2", "Fresh models help: FedASMU is more accurate and faster than FedASMU-FA.",
          "difference of accuracies > 0, time shorter", ablation(("FedASMU", FA), speed=1.0)),
    claim("C31", "Fig. 2", "Fresh models help: FedASMU-DA is more accurate and faster than FedASMU-0.",
          "difference of accuracies > 0, time shorter", ablation((DA, ZERO), speed=1.0)),
    claim("C32", "Fig. 2", "FedASMU-DA and FedASMU-FA are more accurate and faster than FedAvg.",
          "difference of accuracies > 0, time shorter, both",
          ablation((DA, "FedAvg"), (FA, "FedAvg"), speed=1.0)),
    claim("C33", "Fig. 2", "FedASMU-0 is slightly more accurate than FedAvg and much faster.",
          "difference of accuracies ≥ 0, time(FedASMU-0) ≤ 0.5 time(FedAvg)",
          ablation((ZERO, "FedAvg"), speed=0.5)),
    claim("C34", "section 5", "FedASMU-0 is FedAsync with a staleness bound.",
          "equal histories of FedASMU-0 and FedAsync+Poly, bit for bit",
          zero_is_fedasync, exact=True, computed=True),
    claim("C35", "appendix", "Accuracy hardly depends on the trigger period and the learning rates of λ, σ, ι.",
          "largest − least accuracy over the settings ≤ 0.024", insensitive),
    claim("C36", "appendix", "FedASMU is more accurate than FedDelay, SyncDrop and AsyncPart.",
          "difference of accuracies > 0, each", others()),
    claim("C37", "appendix", "FedASMU is faster than FedDelay, SyncDrop and AsyncPart.",
          "time(FedASMU) < time, each", others(accurate=False, speed=1.0)),
    claim("C38", "appendix", "A learned slot is better than the fixed ones of H1, H2 and H3.",
          "accuracy(FedASMU) − accuracy(Hn) > 0, each",
          compare(*(("FedASMU", slot) for slot in ("H1", "H2", "H3")), where="H1")),
    claim("C39", "appendix", "Fresh models cost only downloads, and the gradient estimate no traffic at all.",
          "bytes up per upload equal FedAsync's; bytes down at most twice",
          extra_traffic_is_downlink, exact=True),
    claim("C40", "section 4", "Merging a fresh model lowers the staleness of the upload.",
          "mean ‖w_t − w_o^i‖ at arrival: with the merge < without, same sessions, quadratic losses",
          merging_lowers_staleness, computed=True),
    claim("C41", "Theorem 1", "FedASMU converges to a critical point.",
          "the corrected bound holds on random runs; the printed one on the example of E13", theorem_1,
          exact=True, computed=True),
    claim("C42", "(3)", "Updating λ, σ and ι lowers the loss.",
          "F_i(w_o) falls with one step, on random quadratic losses",
          one_step_helps, exact=True, computed=True),
    claim("C43", "section 4", "The staleness bound removes uploads that are too stale.",
          "more than no upload is dropped, on the paper's schedule", bound_removes_uploads,
          exact=True, computed=True),
    claim("C44", "section 4", "A late request wastes the fresh model, an early one leaves staleness.",
          "accuracy(best slot in between) − accuracy(first), − accuracy(last) > 0",
          interior_slot_is_best),
]  # fmt: skip
