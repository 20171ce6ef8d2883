"""FedASMU's claims: how they are judged, then what the paper says where.

A study is one data set, so "in every column" means each of its columns of Tables 1 and 2. Accuracies are those at the
end, after as many uploads of each method (A18), compared in points; times are those of the first passage of the
column's target (A19), in Figure 7 of 60 %, compared as ratios; a time that was not reached is a lower bound. C03 and
C04, the abstract's ranges, are C01 and C02: the same statements.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from functools import partial
from math import isfinite
from typing import Any

import numpy as np

from fl_core.experiments.claims import FULL, Check, Claim, Judge, Kind, Part, make_claim
from fl_core.experiments.evidence import POINTS, RATIO, Censored, Effect, Relation, untrained
from fl_core.experiments.measures import BySeed
from fl_core.experiments.study import Study
from fl_core.report.discussion import Diagnosis
from fl_papers.fedasmu import decisive, errata, experiment
from fl_papers.fedasmu.experiment import BASELINES, CONDITION_TARGET, EXTRA, SYNCHRONOUS, TUNED
from fl_papers.fedasmu.figures import Setting, at_equal_time, final, gaps, passed, settings, traffic
from fl_papers.fedasmu.tables import IMPLIED, PRINTED, What, band, gain, number, sensitivity_settings

DA, FA, ZERO = experiment.ABLATIONS
RECONSTRUCTED = ("FedSA", "AsyncPart")
"""No source gives their formulas: what our form of them does says little about them, so that it is never counted."""
MOST_SENSITIVE = PRINTED.number(source="finetune", quantity="accuracy difference, one case")
"""Difference of accuracies that the text reports as an exception (C35)."""
SLIGHTLY = PRINTED.number(method="FedASMU-0", against="FedAvg", quantity="accuracy gain, least")
"""The least difference of accuracies that the paper calls a slight advantage (C33); what is smaller is none."""

Pair = tuple[str, str]
PAIRS: list[Pair] = [("FedASMU", other) for other in BASELINES]

# Two quantities of a pair of methods


def effects(study: Study, what: What, pair: Pair, at: Setting, counted: bool = False, **more: Any) -> list[Effect]:
    """Return that the first of a pair is more accurate, or faster; `more` are fields of the effect.

    Reconstructions and methods that are not trained are shown and not judged; `counted`: reconstructions are.
    """
    ours, theirs = pair
    more = {"printed": printed_effect(what, *pair, at)} | more
    target = more.pop("target", None)
    why = [unjudged(study, at, one, counted) for one in pair]
    if what == "accuracy gain":
        left, right, name = final(study, ours, at), final(study, theirs, at), f"{at}: accuracy, {ours} less {theirs}"
        more |= {"scale": POINTS, "claimed": "more", "resolution": 1 / images(study)}
    else:
        left, right = (passed(study, one, at, target) for one in pair)  # type: ignore[assignment]
        name, more = f"{at}: time, {ours} over {theirs}", more | {"scale": RATIO, "claimed": "less"}
    return [Effect(name, left, right, excluded=why[0] or why[1], **more)]


def unjudged(study: Study, at: Setting, method: str, counted: bool = False) -> str:
    """Return why comparisons with a method are not judged, or nothing."""
    if method in RECONSTRUCTED and not counted:
        return f"{method} is reconstructed without a source"
    guessing = untrained(final(study, method, at), experiment.COLUMNS[at.column].classes, images(study))
    return f"{method} is not trained" if guessing else ""


def images(study: Study) -> int:
    """Return on how many images accuracy is measured."""
    return experiment.PROFILES[study.profile].test_samples or 10_000


def printed_effect(what: What, ours: str, theirs: str, at: Setting) -> float | None:
    """Return what is printed of a pair in a column: by Tables 1 and 2, by Figure 2's text, or for no column at all.

    The accuracy gain over FedDelay, 0.063 %, is a misprint of something unknown (E22).
    """
    for setting in ("", IMPLIED):
        a, b = (number(at.column, m, what.split()[0], setting) for m in (ours, theirs))
        if a is not None and b is not None:
            return (a - b if what == "accuracy gain" else a / b) if isfinite(b) else None
    found = None if (what, theirs) == ("accuracy gain", "FedDelay") else gain(what, theirs, ours)
    return found if found is None or what == "accuracy gain" else 1 - found


def compare(*pairs: Pair, where: str, only: What | None = None, counted: bool = False, **more: Any) -> Judge:
    """Return the judge of: the first of each pair is more accurate and faster, or `only` one of the two.

    They are compared in all settings in which the grid has the method `where`; `more` is for accuracies.
    """
    return lambda study: [
        part
        for at in settings(study, where)
        for pair in pairs
        for what, fields in (("accuracy gain", more), ("time saved", {}))
        if only in (None, what)
        for part in effects(study, what, pair, at, counted, **fields)  # type: ignore[arg-type]
    ]


# Times of several methods together


def product(times: Sequence[Censored], exponent: float = 1.0) -> Censored:
    """Return the product of times to a power, a lower bound where one of them is."""
    seeds = sorted(set.intersection(*(set(one) for one in times))) if times else []
    values = {seed: float(np.prod([one[seed] for one in times]) ** exponent) for seed in seeds}
    bounds = [seed for seed in seeds if any(seed in one.at_least for one in times)]
    return Censored(values, bounds, frozenset().union(*(one.runs for one in times)))


def middle(times: Sequence[Censored]) -> Censored:
    """Return the median of times, a lower bound where one that was not reached could move it."""
    values, bounds, rests = {}, [], product(times)
    for seed in rests:
        ordered = sorted(one[seed] for one in times)
        values[seed] = float(np.median(ordered))
        bounds += [seed] * any(seed in one.at_least and one[seed] <= ordered[len(times) // 2] for one in times)
    return Censored(values, bounds, rests.runs)


def asynchrony(study: Study) -> list[Part]:
    """C23: FedASMU's own time drops out; the medians are of all baselines of a kind, reconstructions among them."""
    found: list[Part] = []
    for at in settings(study, BASELINES[0]):
        groups = [
            [m for m in methods if not unjudged(study, at, m, counted=True)]
            for methods in (SYNCHRONOUS, experiment.ASYNCHRONOUS)
        ]
        left, right = (middle([passed(study, method, at) for method in methods]) for methods in groups)
        slow, quick = (np.median([number(at.column, m, "time") or np.nan for m in methods]) for methods in groups)
        name = f"{at}: median time, synchronous over asynchronous baselines"
        found.append(Effect(name, left, right, printed=float(slow / quick) if isfinite(slow) else None))
    return found


# Figure 7


def better_at(study: Study, points: Iterable[Setting], printed: str) -> list[Part]:
    """Return that FedASMU is more accurate and faster than every baseline.

    The printed size is the least end of the range over baselines: what the paper says of each of them.
    """
    gained, saved = ((band(what, "all", setting=printed) or (None,))[0] for what in ("accuracy gain", "time saved"))
    shorter, found = None if saved is None else 1 - saved, list[Part]()
    for at, pair in itertools.product(points, PAIRS):
        found += effects(study, "accuracy gain", pair, at, printed=gained)
        found += effects(study, "time saved", pair, at, printed=shorter, target=CONDITION_TARGET)
    return found


def growth(study: Study, here: Setting, before: Setting, others: Iterable[str], claimed: Relation) -> list[Part]:
    """Return how advantages in time and accuracy, means over `others`, grow from one setting to another.

    That in time is the geometric mean of the others' times over FedASMU's.
    """
    have = {entry.labels["method"] for entry in study.entries}
    others = [m for m in others if m in have and not any(unjudged(study, at, m) for at in (here, before))]
    if not others:
        return []
    ours, before_ours = (passed(study, "FedASMU", at, CONDITION_TARGET) for at in (here, before))
    theirs, before_theirs = (
        product([passed(study, method, at, CONDITION_TARGET) for method in others], 1 / len(others))
        for at in (here, before)
    )
    left, right = product([theirs, before_ours]), product([ours, before_theirs])
    who = others[0] if len(others) == 1 else "the baselines"
    name = f"{here}: advantage in {{}} over {who}, against that at {before}"
    gained, earlier = (BySeed.over(gaps(study, "FedASMU", m, at) for m in others) for at in (here, before))
    time = Effect(name.format("time"), left, right, RATIO, claimed)
    accuracy = Effect(name.format("accuracy"), gained, earlier, POINTS, claimed)
    return [time, accuracy] if claimed == "more" else [time]  # of a smaller one it speaks because of transfers


def condition(what: str, value: float, printed: str, before: float | None, groups: Sequence[Sequence[str]],
              claimed: Relation = "more") -> Judge:  # fmt: skip
    """C24 to C26: better than each baseline at a value, and how the advantage over each group grows from another."""

    def judge(study: Study) -> list[Part]:
        points = [at for at in settings(study, varied=what) if at.value == value]
        found = better_at(study, points, printed)
        for at in points:
            earlier = Setting(at.column) if before is None else at._replace(value=before)
            found += [part for others in groups for part in growth(study, at, earlier, others, claimed)]
        return found

    return judge


def more_devices(study: Study) -> list[Part]:
    """C27: with 200 devices, and with 100, the standard number."""
    points = settings(study, varied="devices")
    return better_at(study, [*points, *(Setting(at.column) for at in points)], "devices 100 and 200")


# Slots, sensitivity, traffic


def insensitive(study: Study) -> list[Part]:
    """C35: each setting against the standard one; all that the text says of every one is 2.4 points."""
    return [
        Effect(f"{at}: accuracy, less the standard", final(study, "FedASMU", at),
               final(study, "FedASMU", Setting(at.column)), POINTS, "equal", delta=MOST_SENSITIVE,
               excluded=unjudged(study, at, "FedASMU"))
        for at in sensitivity_settings(study)
    ]  # fmt: skip


def interior_slot(study: Study) -> list[Part]:
    """C44: the mean accuracy of the slots in between, against the first and the last one."""
    first, *between, last = experiment.HEURISTICS
    return [
        Effect(f"{at}: accuracy, mean of {' and '.join(between)} less {end}",
               BySeed.over(final(study, slot, at) for slot in between), final(study, end, at), POINTS)
        for at in settings(study, first) for end in (first, last)
    ]  # fmt: skip


def extra_traffic_is_downlink(study: Study) -> list[Part]:
    """C39: bytes per upload, over all of a run."""
    found: list[Part] = []
    for at in settings(study, "FedAsync"):
        (up, down), (up_async, down_async) = (traffic(study, method, at) for method in ("FedASMU", "FedAsync"))
        if seeds := up.keys() & up_async.keys():
            equal = all(up[seed] == up_async[seed] for seed in seeds)
            most = max(down[seed] / down_async[seed] for seed in seeds)
            found.append(Check(f"{at}, up", equal, f"{up.mean:,.0f} and {up_async.mean:,.0f} bytes per upload"))
            found.append(Check(f"{at}, down", most <= 2, f"at most {most:.2f} times FedAsync's"))
    return found


# What the paper says


def says(what: What, other: str = "all", setting: str = "") -> str:
    """Return the range that the text gives for FedASMU's advantage, in words."""
    found = band(what, other, setting=setting)
    unit = "points" if what == "accuracy gain" else "%"
    return "no range printed" if found is None else f"{100 * found[0]:g} to {100 * found[1]:g} {unit}"


def ranges(setting: str) -> str:
    """Return the two ranges of a setting of Figure 7."""
    return f"{says('accuracy gain', setting=setting)}, {says('time saved', setting=setting)} of the time"


claim = partial(make_claim, "FEDASMU")
GAIN, LESS = "accuracy after as many uploads (points): {} − {} > 0", "time to the target (ratio): {} / {} < 1"
BOTH = "accuracy after as many uploads (points) higher and time to the target (ratio) shorter: {}"
LATER, WORSE = "they need as much time, or less", "they are as accurate, or more"


def against(number: int, other: str, what: What) -> Claim:
    """C05 to C22; what a reconstruction does is listed, and never counted."""
    judge = compare(("FedASMU", other), where=other, only=what, counted=True)
    gained = "After as many uploads it is more accurate", GAIN, WORSE
    more, form, null = gained if what == "accuracy gain" else ("It is faster", LESS, LATER)
    kind: Kind = "definition" if other in RECONSTRUCTED else "run"
    return claim(
        f"C{number:02d}", "section 5; Tables 1, 2", f"{more} than {other} ({says(what, other)}).",
        form.format("FedASMU", other) + ", each column", judge, kind, null=null,
    )  # fmt: skip


FURTHER = [("FedASMU", other) for other in EXTRA]
SLOTS = [("FedASMU", slot) for slot in ("H1", "H2", "H3")]
CLAIMS = [
    claim("C01", "Tables 1, 2; abstract (C03)",
          "After as many uploads FedASMU is the most accurate in every column "
          f"({says('accuracy gain')}; by the tables up to 27).",
          GAIN.format("FedASMU", "each baseline") + ", each column",
          compare(*PAIRS, where=BASELINES[0], only="accuracy gain"), null=WORSE),
    claim("C02", "Tables 1, 2; abstract (C04)",
          f"FedASMU is the first to reach the target in every column ({says('time saved')} less time).",
          LESS.format("FedASMU", "each baseline") + ", each column",
          compare(*PAIRS, where=BASELINES[0], only="time saved"), null=LATER),
    *(against(number, other, "time saved") for number, other in enumerate(BASELINES, start=5)),
    *(against(number, other, "accuracy gain") for number, other in enumerate(BASELINES, start=14)),
    claim("C23", "section 5", "It is fast because it is asynchronous: it saves more over synchronous baselines.",
          "time to the target (ratio): median of the synchronous / median of the asynchronous baselines > 1",
          asynchrony, null="both kinds of baselines need as much time"),
    claim("C24", "section 5, Fig. 7", f"With 50 times lower bandwidth it is still better ({ranges('bandwidth 50')}), "
          "with a smaller advantage.",
          BOTH.format("each baseline; mean advantage in time below that at the normal bandwidth"),
          condition("bandwidth", 50, "bandwidth 50", None, [BASELINES], "less"),
          null="some baseline is as good, or the advantage is no smaller"),
    claim("C25", "appendix", f"With 100 times lower bandwidth it is still better ({ranges('bandwidth 100')}), by "
          "more than at 50.", BOTH.format("each baseline; mean advantages in time and accuracy above those at 50"),
          condition("bandwidth", 100, "bandwidth 100", 50.0, [BASELINES]),
          null="some baseline is as good, or an advantage is no larger"),
    claim("C26", "section 5, Fig. 7", "With very different devices it is much better "
          f"({ranges('heterogeneity 110 to 440')}), and its advantages grow with the difference.",
          BOTH.format("each baseline at ratio 440; advantages over each synchronous one above those at 110"),
          condition("heterogeneity", 440, "heterogeneity 110 to 440", 110.0, [[other] for other in SYNCHRONOUS]),
          null="some baseline is as good, or an advantage does not grow"),
    claim("C27", "section 5, Fig. 7",
          f"It is better with 100 and with 200 devices ({ranges('devices 100 and 200')}).",
          BOTH.format("each baseline, both numbers"), more_devices, null="some baseline is as good"),
    claim("C28", "Fig. 2", "Dynamic weights help: FedASMU is more accurate than FedASMU-DA.",
          GAIN.format("FedASMU", DA), compare(("FedASMU", DA), where=DA, only="accuracy gain"), null=WORSE),
    claim("C29", "Fig. 2", "Dynamic weights help: FedASMU-FA is more accurate than FedASMU-0.",
          GAIN.format(FA, ZERO), compare((FA, ZERO), where=DA, only="accuracy gain"), null=WORSE),
    claim("C30", "Fig. 2", "Fresh models help: FedASMU is more accurate and faster than FedASMU-FA.",
          BOTH.format(FA), compare(("FedASMU", FA), where=DA), null="one of both is no better"),
    claim("C31", "Fig. 2", "Fresh models help: FedASMU-DA is more accurate and faster than FedASMU-0.",
          BOTH.format(f"{DA} than {ZERO}"), compare((DA, ZERO), where=DA), null="one of both is no better"),
    claim("C32", "Fig. 2", "FedASMU-DA and FedASMU-FA are more accurate and faster than FedAvg.",
          BOTH.format("FedAvg, both"), compare((DA, "FedAvg"), (FA, "FedAvg"), where=DA), null="one is no better"),
    claim("C33", "Fig. 2", "FedASMU-0 is slightly more accurate than FedAvg and much faster.",
          BOTH.format("FedAvg; δ of the accuracy 0.08 points, the least that is printed; any time less counts"),
          compare((ZERO, "FedAvg"), where=DA, delta=SLIGHTLY), null="one of both is no better"),
    claim("C35", "appendix", "Accuracy hardly depends on the trigger period and the learning rates of λ, σ, ι.",
          "accuracy at the end (points) of each setting − that of the standard one within ± 2.4, the largest printed",
          insensitive, null="a setting changes the accuracy by more than 2.4 points"),
    claim("C36", "appendix", "FedASMU is more accurate than FedDelay, SyncDrop and AsyncPart.",
          GAIN.format("FedASMU", "each"), compare(*FURTHER, where=EXTRA[0], only="accuracy gain"), null=WORSE),
    claim("C37", "appendix", "FedASMU is faster than FedDelay, SyncDrop and AsyncPart.",
          LESS.format("FedASMU", "each"), compare(*FURTHER, where=EXTRA[0], only="time saved"), null=LATER),
    claim("C38", "appendix", "A learned slot is better than the fixed ones of H1, H2 and H3.",
          GAIN.format("FedASMU", "each"), compare(*SLOTS, where="H1", only="accuracy gain"), null=WORSE),
    claim("C39", "appendix", "Fresh models cost only downloads, and the gradient estimate no traffic at all.",
          "bytes up per upload equal FedAsync's; bytes down at most twice", extra_traffic_is_downlink, "definition"),
    claim("C44", "section 4", "A late request wastes the fresh model, an early one leaves staleness.",
          GAIN.format("mean of the slots in between", "H1, and − H3"), interior_slot, null="slots are as accurate"),
    *errata.CLAIMS,
]  # fmt: skip
CLAIMS.sort(key=lambda one: one.id)

# Why claims may come out as they do, and the runs that test each suspicion


def ahead_at_equal_time(study: Study) -> list[Effect]:
    """Return how far FedASMU is ahead of synchronous methods when it has finished."""
    return [
        _points(study, f"FedASMU less {method}", final(study, "FedASMU", at), at_equal_time(study, method, at))
        for at in settings(study) for method in SYNCHRONOUS
    ]  # fmt: skip


def changed(study: Study, method: str, what: str, claimed: Relation = "more", only: Any = None) -> list[Effect]:
    """Return what a method gains with other values of `what` (`only` this one)."""
    found = []
    for at in settings(study, method, what):
        if only in (None, at.value) and not unjudged(study, at, method):
            value = at.value if what == "variant" else f"{what} = {at.value:g}"
            sides = final(study, method, at), final(study, method, Setting(at.column))
            found.append(_points(study, f"{method}, {value}, less as in the tables", *sides, claimed))
    return found


def _points(study: Study, name: str, left: BySeed, right: BySeed, claimed: Relation = "more") -> Effect:
    delta = POINTS.delta if claimed == "equal" else None
    return Effect(name, left, right, POINTS, claimed, delta=delta, resolution=1 / images(study))


_variant = partial(changed, method="FedASMU", what="variant")
DIAGNOSES = [
    Diagnosis("C01 C14 C15 C16 C17", "rounds take longer, so that as many uploads give synchronous methods more "
              "time, and FedASMU is ahead when it has finished", "fedasmu-x4", ahead_at_equal_time),
    Diagnosis("C28 C29", "the weights hardly learn at the printed rates, so that frozen ones do as well",
              "fedasmu-x2", partial(_variant, claimed="equal", only="frozen weights")),
    Diagnosis("C28 C29", "they learn too slowly, and with the largest printed rates it is more accurate",
              "fedasmu-x2", partial(_variant, only="largest rates")),
    Diagnosis("C01 C14 C15 C16 C17 C18", "the scale of its weights, which is not printed and chosen here, is "
              "wrong, and it is more accurate from initial values of 1", "fedasmu-x2",
              partial(_variant, only="initial values 1")),
    *(
        Diagnosis(claims, f"{method} has a worse value of `{TUNED[method][0]}` than it could have", "fedasmu-x3",
                  partial(changed, method=method, what=TUNED[method][0]))
        for claims, method in (
            ("C11 C20", "ASO-Fed"), ("C18", "FedAsync"), ("C12 C21", "FedBuff"), ("C36 C37", "FedDelay"),
        )
    ),
    Diagnosis("C01 C02", "the setting that the paper does not print favours rounds here, and with equal tuning where "
              "the printed rows come out it is ahead", "fedasmu-x7", decisive.effects, FULL),
]  # fmt: skip
