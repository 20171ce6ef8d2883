"""FedLuck's claims as one table, and what is measured for them: on formulas and the clock alone, and on runs.

An erratum that touches a numbered statement of the paper or its supplement has a row with the erratum's number, and a
second one (ending in "c") for what holds instead. C09 has none: its speed-ups are the sizes of C08.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from fl_core.experiments.claims import Check, exact, make_claim
from fl_core.experiments.evidence import PLAIN, POINTS, RATIO, Censored, Effect, Relation
from fl_core.experiments.measures import BySeed
from fl_core.experiments.study import Study
from fl_core.report.discussion import Diagnosis
from fl_papers.fedluck import errata, tables
from fl_papers.fedluck.experiment import BASELINES, SINGLE, TASKS, Target
from fl_papers.fedluck.experiment import FedLuckExperiment as Runs
from fl_papers.fedluck.figures import edge_share, factor_correlation, speeds, worst_and_best
from fl_papers.fedluck.tables import cells_of, final, needed, number, printed_wins, quoted, saving, sought
from fl_papers.fedluck.theory import Moments, printed_negative_term

# On the clock alone


def transfer_over_step(study: Study) -> list[Check]:
    """Beta over alpha of every device."""
    found = []
    for cell, (title, _) in TASKS.items():
        alpha, beta = speeds(cell)
        ratio = beta / alpha
        inside = int(((ratio >= 10) & (ratio <= 100)).sum())
        detail = f"{ratio.min():.1f} to {ratio.max():.1f}; {inside} of {len(ratio)} devices between 10 and 100"
        found.append(Check(title, inside == len(ratio), detail))
    return found


def table_1_follows_from_the_world(study: Study) -> list[Check]:
    """FedAvg+Topk's numbers."""
    found = []
    for task, own in tables.decoded_topk().groupby("task", sort=False):
        same = sum(int((own[f"printed {unit}"] == own[f"computed {unit}"]).sum()) for unit in ("seconds", "GB"))
        found.append(Check(str(task), same == 2 * len(own), f"{same} of {2 * len(own)} numbers equal as printed"))
    return found


# On runs

POINT = 0.01  # Of accuracy.
ROUNDING = 0.05
"""A ratio of printed numbers is compared with ours if their last digits leave it uncertain by at most this."""


def _printed_ratio(study: Study, left: str, right: str, what: str, target: Target, partition: str) -> float | None:
    """Return the ratio of two printed numbers for a target that is the paper's; None if print is too coarse."""
    cell = Runs.setup_of(study.dataset).cell
    sides = [number(cell, method, what, target.printed, partition) for method in (left, right)]
    if target.here != target.printed or not all(sides) or sum(0.005 / side for side in sides if side) > ROUNDING:
        return None
    return sides[0] / sides[1]  # type: ignore[operator]


def _less(study: Study, wanted: Iterable[tuple[str, str, Target]], partition: str, what: str) -> list[Effect]:
    """Return that one method needs less to a target than another, as parts."""
    return [
        Effect(f"{target}, {less} against {more}", needed(study, less, partition, target.here, what),
               needed(study, more, partition, target.here, what), RATIO, "less",
               printed=_printed_ratio(study, less, more, what, target, partition))
        for less, more, target in wanted
    ]  # fmt: skip


def least_at_every_target(study: Study, what: str) -> list[Effect]:
    """C08, C10: against each baseline, with Dirichlet labels."""
    wanted = [("FedLuck", method, target) for target in sought(study, "dirichlet") for method in BASELINES]
    return _less(study, wanted, "dirichlet", what)


def as_released(judge: Callable[[Study], Sequence[Effect]], study: Study) -> Sequence[Effect]:
    """Judge the runs as the authors' program does them."""
    return judge(tables.released(study))


def mean_saving(study: Study, what: str) -> list[Effect]:
    """C11, C12; what is printed is a mean over three tasks, which in Table 1 differ by a factor of two."""
    return [saving(cells_of(study, "iid", what).values(), name="mean over targets and baselines")]


def on_task(cell: str, quantity: str, *orders: Sequence[str]) -> Callable[[Study], list[Effect]]:
    """Return a judge of orders at the last IID target of a task, pair by pair; nothing on another task."""

    def judge(study: Study) -> list[Effect]:
        if Runs.setup_of(study.dataset).cell != cell:
            return []
        last = sought(study, "iid")[-1]
        pairs = [(less, more, last) for order in orders for less, more in itertools.pairwise(order)]
        return _less(study, pairs, "iid", quantity)

    return judge


def often_least_traffic(study: Study) -> list[Effect]:
    """C15: how often the least, and how far from the least baseline, which is chosen on the next seed."""
    found: list[Effect] = []
    least: dict[int, float] = {}
    runs: frozenset[str] = frozenset()
    targets = sought(study, "iid")
    for target in targets:
        sides = {m: needed(study, m, "iid", target.here, "gigabytes") for m in ("FedLuck", *BASELINES)}
        ours, lowest, ends = sides.pop("FedLuck"), {}, set()
        if not (run := [seed for seed in ours if all(seed in side for side in sides.values())]):
            return []
        for seed, other in zip(run, [*run[1:], run[0]], strict=True):
            best = min(sides, key=lambda method: sides[method][other])
            lowest[seed] = sides[best][seed]
            ends |= {seed} & sides[best].at_least
            least[seed] = least.get(seed, 0.0) + all(ours[seed] <= side[seed] for side in sides.values())
        theirs = Censored(lowest, ends, frozenset().union(*(side.runs for side in sides.values())))
        found.append(Effect(f"{target}, against the least", ours, theirs, RATIO, "less", bound=1.5))
        runs |= ours.runs | theirs.runs
    share = BySeed({seed: count / len(targets) for seed, count in least.items()}, runs)
    won = Effect("share of the targets", share, 0.0, PLAIN, "more", bound=quoted("lowest of 9") / 9, discrete=True,
                 resolution=1 / len(targets))  # fmt: skip
    return [won, *found]


def skew_slows(study: Study) -> list[Effect]:
    """C16, at the targets that both partitions have."""
    return [
        Effect(f"{target}", needed(study, "FedLuck", "dirichlet", target.here, "since_start"),
               needed(study, "FedLuck", "iid", target.here, "since_start"), RATIO, "more")
        for target in sought(study, "iid") if target in sought(study, "dirichlet")
    ]  # fmt: skip


def _ends_above(study: Study, pairs: Iterable[tuple[str, str]], bound: float | None = None) -> list[Effect]:
    """Return that one method's accuracy at the horizon is above another's, IID, as parts."""
    cell, found = Runs.setup_of(study.dataset).cell, []
    for left, right in pairs:
        ours, theirs = (final(study, method) for method in (left, right))
        printed = [number(cell, tables.ROWS.get(method, method), "accuracy") for method in (left, right)]
        size = None if None in printed else printed[0] - printed[1]  # type: ignore[operator]
        if size is not None and size < (bound or 0.0):
            continue  # the paper prints the opposite: Table 2's rows on CIFAR-10 (C17b)
        found.append(Effect(f"{left} against {right}", ours, theirs, POINTS, "more", bound, size, resolution=1e-4))
    return found


def interior_is_best(study: Study) -> list[Effect]:
    """C05: of lines of n cells (n - 2)/n have their best one inside if nothing matters."""
    found = []
    for axis, name in (("steps", "columns of δ: best k inside"), ("delta", "rows of k: best δ inside")):
        runs = [entry for entry, _ in study.select(role="heat map")]
        count = len({entry.labels[axis] for entry in runs})
        shares = BySeed(edge_share(study, axis), [entry.key for entry in runs])
        found.append(Effect(name, shares, (count - 2) / max(1, count), PLAIN, "more", delta=1 / 12,
                            of_settings=True))  # fmt: skip
    return found


def worst_setting(study: Study) -> list[Effect]:
    """C06; the size is printed for Figure 1's tasks and targets."""
    worst, best = worst_and_best(study)
    drawn = study.profile == "paper" and Runs.setup_of(study.dataset).cell != "vgg11s"
    paper = tables.PRINTED.number(source="section 3.1", quantity="best to worst") if drawn else None
    return [Effect("settings chosen on another seed", worst, best, RATIO, "more", printed=paper, of_settings=True)]


def factor_predicts(study: Study) -> list[Effect]:
    """C07."""
    found = BySeed(factor_correlation(study), [entry.key for entry, _ in study.select(role="heat map")])
    return [Effect("rank correlation", found, 0.0, PLAIN, "more", delta=0.1, of_settings=True)]


def against_fedper(study: Study, area: bool) -> list[Effect]:
    """C22, C23: the race, in which one plan for all is what FedPer has."""
    return [effect for effects in tables.race(study).values() for effect in (effects[:1] if area else effects[1:])]


claim = partial(make_claim, "FEDLUCK")
system, theory = partial(claim, kind="system"), partial(claim, kind="theory")
corrected = partial(theory, corrected=True)
SAVED = "1 − FedLuck / baseline, mean over targets and baselines of this task"
IN_TABLE_1 = f"it is {printed_wins('dirichlet', 'gigabytes')}, ties included"
NEGATIVE = printed_negative_term(0.5, 1, 0.1, 10, 0.1, Moments(1, 0, 0))
CLAIMS = [
    theory("C01", "Theorem 1", "The mean squared gradient is at most (12).",
           "(12) against assumption (11), and measured gradients against (12), on random log-cosh problems",
           errata.theorem_1, proof="sec:fedluck-vacuous"),
    corrected("C01c", "Theorem 1; E15", "Over rounds with uploads it is at most (L-b), if η_g η_l k ≤ 1/L.",
              "measured gradients against (L-b), on random log-cosh problems", errata.rescaled,
              proof="sec:fedluck-repaired"),
    theory("C02", "Corollary 1", "With its learning rates Theorem 1 gives the rate 1/√T.",
           "Q > 0, which Theorem 1 needs, for all T up to 1,000,000", errata.corollary_stays_in_the_window),
    corrected("C02c", "Corollary 1; E5", "Small steps leave a floor of noise, heterogeneity and compression; "
              "the rest of the bound (L-b) can fall as 1/√T.", "exponent of T at η_g = η_l k = T^(−1/4)",
              errata.what_vanishes, proof="sec:fedluck-repaired"),
    theory("C03", "(13)", "The third term has the highest order of influence.",
           "exponents of T and k in the three terms", partial(errata.third_term, printed=True)),
    corrected("C03c", "(13); E16", "All terms fall alike in T; in k, at fixed staleness, the first falls slowest.",
              "exponents of T and k in the three terms", partial(errata.third_term, printed=False),
              proof="sec:fedluck-corollary"),
    theory("C04", "(7)", "A device's staleness is constant: its job's length in periods, rounded up.",
           "every upload of random worlds", errata.staleness_is_the_ceiling,
           proof="sec:fedluck-staleness"),
    claim("C05", "Fig. 1", "Too large and too small k and δ both hurt; an efficient setting lies between.",
          "share of columns (rows) of the grid whose fewest rounds are not at an end, less chance", interior_is_best,
          null="the best of six cells is at any place: 4 of 6 inside"),
    claim("C06", "Fig. 1, section 3.1", "Unsuitable settings need several times the rounds (3; introduction: 11).",
          "rounds of the worst over those of the best setting", worst_setting, null="all settings need the same"),
    claim("C07", "Fig. 1 (implied)", "φ predicts convergence.", "rank correlation of φ and rounds over the grid",
          factor_predicts, null="no correlation"),
    *(claim(number + mode, source, f"{statement}{words}.", measure,
            partial(as_released, judge) if mode else judge, beside=mode[1:])
      for mode, words in (("", ""), ("-released", " (the authors' program as released)"))
      for number, source, statement, measure, judge in (
          ("C08", "Table 1; section 4.3 (C09)", "FedLuck reaches every target first, non-IID",
           "seconds from the first aggregation to the target, FedLuck over each baseline",
           partial(least_at_every_target, what="seconds")),
          ("C10", "Table 1, section 4.3", "FedLuck also needs the least communication, non-IID",
           "gigabytes to the target, FedLuck over each baseline", partial(least_at_every_target, what="gigabytes")),
          ("C11", "Fig. 2", "It saves time on average, IID (55 % over three tasks)", SAVED,
           partial(mean_saving, what="seconds")),
          ("C12", "Fig. 3", "It saves communication on average, IID (56 % over three tasks)", SAVED,
           partial(mean_saving, what="gigabytes")))),
    claim("C13", "Fig. 2c", "On Speech Commands FedLuck is first, then FedPer, FedBuff, FedAsync, FedAvg+TopK.",
          "seconds to the last IID target, FedLuck over each and each over the next",
          on_task("lstm", "seconds", *(("FedLuck", m) for m in BASELINES), BASELINES)),
    claim("C14", "Fig. 3b", "On CIFAR-10 FedLuck needs the fewest gigabytes, FedBuff the most.",
          "gigabytes to the last IID target, FedLuck over each and each over FedBuff",
          on_task("vgg11s", "gigabytes", *(("FedLuck", m) for m in BASELINES),
                  *((m, "FedBuff") for m in BASELINES if m != "FedBuff"))),
    claim("C15", "Fig. 3", "It needs the least communication in 6 of 9 IID cases and is close elsewhere.",
          "share of this task's targets at which it needs least; at each its gigabytes over the least baseline's",
          often_least_traffic, null="least at fewer than two of three, or more than 1.5 times the least"),
    claim("C16", "section 4.3", "Non-IID data slow convergence.",
          "FedLuck's seconds to the target, Dirichlet over IID", skew_slows),
    claim("C17a", "Table 2", "Joint optimisation beats optimising one variable.",
          "accuracy at the horizon, FedLuck minus each single-variable method",
          lambda study: _ends_above(study, [("FedLuck", method) for method in SINGLE])),
    claim("C17b", "Table 2 (the text's reading, E12)", "Opt. CR, which fixes the compression rate, beats Opt. LF.",
          "accuracy at the horizon, frequency only minus compression only",
          lambda study: _ends_above(study, [SINGLE])),
    claim("C18", "Fig. 2", "Final accuracy stays competitive.",
          "accuracy at the horizon, FedLuck minus each baseline, above −1 point",
          lambda study: _ends_above(study, [("FedLuck", method) for method in BASELINES], -POINT),
          null="a point behind"),
    system("C19", "introduction", "Sending a model takes 10 to 100 times as long as local updating.",
           "β/α of every device of the three worlds: updating read as one step", transfer_over_step),
    theory("C20", "(15)", "A device's best (k, δ) follows from computing and network together.",
           "k* and δ* where α, and where β, varies", partial(errata.both_resources_decide, sharper=False),
           proof="sec:fedluck-joint"),
    corrected("C20c", "(15)", "Where k is free, δ* follows from the network alone, k* from both.",
              "k* and δ* where α, and where β, varies", partial(errata.both_resources_decide, sharper=True),
              proof="sec:fedluck-joint"),
    system("C21", "Table 1 (ours)", "FedAvg+Topk's numbers follow from the world alone.",
           "printed seconds and gigabytes against computed ones", table_1_follows_from_the_world),
    *(claim(number, "Fig. 2, Table 1 (ours, finer)", f"{statement}, both partitions and weightings.", endpoint,
            partial(against_fedper, area=area), beside="race")
      for number, statement, endpoint, area in (
          ("C22", "FedLuck's curve lies above FedPer's in the first two minutes",
           "mean accuracy over the aggregations of two minutes, FedLuck minus FedPer", True),
          ("C23", "FedLuck is at every early accuracy before FedPer",
           "seconds from the start to 50, 55, ... 80 %, FedLuck over FedPer", False))),
    theory("E01", "(6)", "An upload of round t was computed on w^(t−τ).", "starting model of every upload",
           partial(errata.model_of_an_upload, late=0)),
    corrected("E01c", "(6)", "An upload of round t was computed on w^(t−τ+1).", "starting model of every upload",
              partial(errata.model_of_an_upload, late=1), proof="sec:fedluck-staleness"),
    theory("E02", "(6)", "Every round has a mean of uploads.", "rounds without uploads in random worlds",
           exact("200 random worlds", errata.rounds_without_uploads, "counter-example")),
    theory("E03", "Assumption 1, (8)", "A bounded mean deviation bounds the noise that the proof needs.",
           "second moment of a variable that is 100 with probability 1/100, else 0",
           exact("mean 1", lambda: (0.01 * 100**2 > 1, "its mean square is 100"), "counter-example")),
    theory("E04", "supplement, Q", "The squared gradient's coefficient is −Q/2 with Q = 6(1 − η_l k)² − 1.",
           "both as functions of η_l k", partial(errata.sign_of_q, printed=True)),
    corrected("E04c", "(12), Q", "It is −Q/2 with Q = 1 − 6(1 − η_l k)², which must be positive.",
              "both as functions of η_l k", partial(errata.sign_of_q, printed=False), proof="sec:fedluck-theorem"),
    theory("E06", "supplement, Lemma 1", "The server's move, squared, is at most τ Σ‖C(g)‖², whatever η_g.",
           "one step with η_g = 2", partial(errata.moves_of_the_server, printed=True)),
    corrected("E06c", "supplement, Lemma 1", "The server's move, squared, is at most η_g² τ Σ‖C(g)‖².",
              "random sequences of rounds", partial(errata.moves_of_the_server, printed=False),
              proof="sec:fedluck-theorem"),
    theory("E07", "supplement, proof", "A negative coefficient times an upper bound is an upper bound.",
           "the term where C(g) = 0",
           exact("C(g) = 0", lambda: (NEGATIVE < 0, f"0 ≤ {NEGATIVE:g}"), "counter-example")),
    theory("E08", "(13), (14)", "The factor 2 of (12) does not matter where (14) is minimised.",
           "δ* with and without it", partial(errata.lost_factor, printed=True)),
    corrected("E08c", "(13), (14)", "It is a period that is shorter by √2.", "δ* at both periods",
              partial(errata.lost_factor, printed=False), proof="sec:fedluck-variants"),
    theory("E09", "supplement, factor", "φ with δ to the power 1 makes devices compress.",
           "the exact plan of the CNN's world", partial(errata.power_of_delta, power=1.0)),
    corrected("E09c", "(14)", "φ with √δ makes devices with slow links compress.",
              "the exact plan of the CNN's world", partial(errata.power_of_delta, power=0.5),
              proof="sec:fedluck-joint"),
    theory("E10", "(12), (15)", "‖C(x)‖² ≤ 2(2 − δ)‖x‖² for top-k, whence 2 − δ.", "random vectors",
           partial(errata.length_of_top_k, bound=lambda rate: 2 * (2 - rate)), proof="sec:fedluck-compression"),
    corrected("E10c", "(12), (15)", "‖C(x)‖² ≤ ‖x‖²; with it φ has one valley, and no plan jumps.",
              "random vectors; δ* over β/T̃", errata.one_valley, proof="sec:fedluck-variants"),
    theory("E13", "supplement, stationarity", "Its condition holds where its factor is stationary in δ.",
           "condition and derivative at a stationary point", partial(errata.supplements_condition, printed=True)),
    corrected("E13c", "supplement, stationarity", "The condition holds with kα in place of 2kα.",
              "condition and derivative at a stationary point", partial(errata.supplements_condition, printed=False),
              proof="sec:fedluck-errata"),
    theory("E14", "section 4.3 on Table 1", "Table 1 has FedLuck with the least communication.",
           "printed gigabytes of the nine targets",
           exact("nine targets", lambda: (not IN_TABLE_1.startswith("it is 9"), IN_TABLE_1), "counter-example")),
]  # fmt: skip

# Why claims may come out as they do, and the runs that test each suspicion


def before_fedper(study: Study) -> list[Effect]:
    """Return FedLuck's time to the targets over FedPer's, which has everything but the plan."""
    return [
        Effect(f"{partition}, {target}, over FedPer",
               needed(study, "FedLuck", partition, target.here, "seconds"),
               needed(study, "FedPer", partition, target.here, "seconds"), RATIO, "less")
        for partition in ("iid", "dirichlet") for target in sought(study, partition)
    ]  # fmt: skip


def as_printed(study: Study) -> list[Effect]:
    """Return what FedLuck saves as released, which has to be what the text states over three tasks."""
    return [
        replace(saved, name=f"{what}, saved", claimed="equal", bound=tables.printed_mean("iid", what))
        for what in ("seconds", "gigabytes") for saved in mean_saving(tables.released(study), what)
    ]  # fmt: skip


def at_the_end(role: str, one: str, other: str, claimed: Relation, study: Study) -> list[Effect]:
    """Return the accuracy at the end of one deviation or variant, less that of another."""

    def side(name: str) -> BySeed:
        found = study.select(**{"role": role, role: name, "method": "FedLuck"})
        return BySeed.of(found, lambda _, run: float(run.history.evaluations["test_accuracy"][-1]))

    return [Effect(f"{one} less {other}", side(one), side(other), POINTS, claimed, resolution=1e-4)]


def before_fedper_by(one: str, other: str, study: Study) -> list[Effect]:
    """Return FedLuck's share of FedPer's time, a mean over targets, with one deviation and with another."""
    runs = (tables.as_comparison(study, role="deviation", deviation=name) for name in (one, other))
    here, there = (tables.of_fedper(each, "seconds") for each in runs)
    left, right = here.right, there.right
    assert isinstance(left, Censored)
    assert isinstance(right, Censored)
    late = getattr(there.left, "at_least", ())  # FedPer does not get there, and the share is at most so much
    known = Censored({s: share for s, share in right.items() if s not in late}, right.at_least, right.runs)
    return [Effect(f"FedLuck's share, {one} over {other}", left, known, RATIO, "less")]


DIAGNOSES = [
    Diagnosis("C08 C11", "it is the plan that saves time, and not compression and periods alone, which FedPer has, "
              "too", "fedluck-savings", before_fedper),
    Diagnosis("C11 C12", "as released FedLuck saves on this task what the text states in the mean over three",
              "fedluck-x14", as_printed),
    Diagnosis("C11 C12", "the program saves more because it inverts pixels, which delays FedPer more than FedLuck",
              "fedluck-x11", partial(before_fedper_by, "inverted pixels", "as written")),
    Diagnosis("C11 C12", "the program saves more because it evaluates before dispatch (supposed at one known seed)",
              "fedluck-x11", partial(before_fedper_by, "evaluation before dispatch", "as written")),
    Diagnosis("C17a C17b", "the authors' program trains and tests on inverted pixels, which costs accuracy",
              "fedluck-x11", partial(at_the_end, "deviation", "inverted pixels", "as written", "less")),
    Diagnosis("C17a C17b", "the plan takes staleness for a real number, and one that knows better is more accurate",
              "fedluck-x9", partial(at_the_end, "variant", "plan with the ceiling", "as in the tables", "more")),
    Diagnosis("C17a C17b", "four of the devices do not compress because a constant of the proof is loose, and a plan "
              "with the tight one is better", "fedluck-x9",
              partial(at_the_end, "variant", "plan by the tight factor", "as in the tables", "more")),
    Diagnosis("C17a C17b", "the same, with the full network, in the first two minutes", "fedluck-x16",
              partial(tables.above_fedluck, plan="tight")),
    Diagnosis("C22 C23", "FedPer's k and δ, which the authors chose, are not its best, and with the best it is ahead",
              "fedluck-x16", partial(tables.above_fedluck, plan="found")),
]  # fmt: skip
