"""FedLuck's claims, and the functions that judge them: on formulas alone, and on runs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from fl_core.experiments.claims import Check, Comparison, make_claim
from fl_core.experiments.study import Study
from fl_papers.fedluck.experiment import BASELINES, SINGLE, TASKS, Target
from fl_papers.fedluck.experiment import FedLuckExperiment as Runs
from fl_papers.fedluck.figures import (
    compared,
    edge_share,
    factor_correlation,
    planned_rounds,
    speeds,
    spread_of_rounds,
)
from fl_papers.fedluck.tables import (
    Bootstrapped,
    alpha_moves_steps_only,
    bounds_on_toys,
    decoded_topk,
    final,
    mean,
    number,
    pairs,
    reached,
    reductions,
    sought,
)
from fl_papers.fedluck.theory import Moments, corollary1_rates, joint_optimum, printed_corollary1_terms, q_local

# On formulas alone: the theorem and its corollary, the optimum, and the world's own numbers


def theorem_1_bounds(study: Study) -> list[Check]:
    """FEDLUCK-C01."""
    found = []
    for bound, own in bounds_on_toys().groupby("bound", sort=False)["ratio"]:
        where = "0.6 ≤ η k ≤ 1.4" if bound == "Theorem 1" else "η k ≤ 0.3, where Theorem 1 is void"
        detail = f"{len(own)} problems, {where}: measured at most {own.max():.2g} of the bound"
        found.append(Check(str(bound), bool((own <= 1).all()), detail))
    return found


def corollary_stays_in_the_window(study: Study) -> list[Check]:
    """FEDLUCK-C02."""
    rounds, delta, found = np.geomspace(1, 1e6, 601), 0.1, []
    for k in (1, 5, 10, 20):
        q = q_local(corollary1_rates(k, rounds, delta).local_lr, k)
        inside = rounds[q > 0]
        last = f"up to T = {inside.max():.0f}" if len(inside) else "for no T"
        found.append(Check(f"k = {k}", bool((q > 0).all()), f"Q > 0 {last} of 1,000,000"))
    return found


def third_term_dominates(study: Study) -> list[Check]:
    """FEDLUCK-C03: the exponents of T and k in the three terms of (13), with τ fixed."""
    moments = Moments(0.3, 0.2, 0.5)

    def slopes(**longer: tuple[float, float]) -> list[float]:
        """Return the exponents of the three terms in the quantity that is given as a range."""
        [(name, ends)] = longer.items()
        settings: dict[str, Any] = {"local_steps": 10, "num_rounds": 1e6, "compression_rate": 0.1, "max_staleness": 2}
        before, after = (np.array(printed_corollary1_terms(2.0, moments, **{**settings, name: end})) for end in ends)
        return (np.log(after / before) / np.log(ends[1] / ends[0])).round(6).tolist()

    found = []
    for name, ends in (("num_rounds", (1e6, 1e8)), ("local_steps", (10, 100))):
        exponents = slopes(**{name: ends})
        letter = {"num_rounds": "T", "local_steps": "k"}[name]
        holds = exponents[2] > max(exponents[:2])
        found.append(Check(f"in {letter}", holds, f"exponents of {letter} in the terms: {_listed(exponents)}"))
    return found


def transfer_over_step(study: Study) -> list[Check]:
    """FEDLUCK-C19."""
    found = []
    for cell, (title, _) in TASKS.items():
        alpha, beta = speeds(cell)
        ratio = beta / alpha
        inside = int(((ratio >= 10) & (ratio <= 100)).sum())
        detail = (
            f"β/α from {ratio.min():.1f} to {ratio.max():.1f}; {inside} of {len(ratio)} devices between 10 and 100"
        )
        found.append(Check(title, inside == len(ratio), detail))
    return found


def both_resources_decide(study: Study) -> list[Check]:
    """FEDLUCK-C20."""
    alpha, steps, delta = alpha_moves_steps_only()
    ratios = np.array([4.0, 6.0, 8.0])
    by_link = joint_optimum(ratios).compression_rate
    return [
        Check(
            "k* depends on both",
            bool((np.diff(steps) < 0).all()),
            f"steps {_listed(steps.tolist())} at α = {_listed(alpha.tolist())} s",
        ),
        Check(
            "δ* does not depend on α",
            float(np.ptp(delta)) < 1e-3 * float(delta.mean()),
            f"δ from {delta.min():.5f} to {delta.max():.5f}",
        ),
        Check("δ* depends on β/T̃", bool((np.diff(by_link) < 0).all()), f"δ {_listed(np.round(by_link, 4).tolist())}"),
    ]


def table_1_follows_from_the_world(study: Study) -> list[Check]:
    """FEDLUCK-C21."""
    table = decoded_topk()
    found = []
    for task, own in table.groupby("task", sort=False):
        same = sum(int((own[f"printed {unit}"] == own[f"computed {unit}"]).sum()) for unit in ("seconds", "GB"))
        found.append(Check(str(task), same == 2 * len(own), f"{same} of {2 * len(own)} numbers equal as printed"))
    return found


def _listed(numbers: Sequence[float]) -> str:
    return ", ".join(f"{value:g}" for value in numbers)


# On runs


POINT = 0.01
"""Of accuracy."""


def first_at_every_target(what: str, partition: str) -> Callable[[Study], list[Comparison]]:
    """FedLuck needs less than the best baseline, target by target."""

    def check(study: Study) -> list[Comparison]:
        found: list[Comparison] = []
        for target in sought(study, partition):
            rivals = {m: pairs(study, "FedLuck", m, partition, target.here, what) for m in BASELINES}
            rivals = {m: sides for m, sides in rivals.items() if sides[0]}
            if rivals:
                best = min(rivals, key=lambda m: mean(rivals[m][1]))
                found.append(Bootstrapped(f"{target}, best baseline {best}", *rivals[best]))
        return found

    return check


def speed_ups_as_printed(study: Study) -> list[Comparison]:
    """FEDLUCK-C09, on each task's last target with Dirichlet labels."""
    cell, found = Runs.setup_of(study.dataset).cell, []
    target = sought(study, "dirichlet")[-1]
    printed = {m: number(cell, m, "seconds", target.printed, "dirichlet") for m in ("FedLuck", *BASELINES)}
    for method in BASELINES:
        ours, theirs = pairs(study, "FedLuck", method, "dirichlet", target.here, "seconds")
        speed_up = (printed[method] or np.nan) / (printed["FedLuck"] or np.nan)
        if ours:
            name = f"{target}, {method} (printed {speed_up:.2f})"
            found.append(Bootstrapped(f"{name}, not less", theirs, ours, round(0.75 * speed_up, 3), above=True))
            found.append(Bootstrapped(f"{name}, not more", theirs, ours, round(1.25 * speed_up, 3)))
    return list(found)


def mean_reduction(what: str, low: float, high: float) -> Callable[[Study], list[Comparison]]:
    """The mean part saved over targets and baselines, IID, lies in a range."""

    def check(study: Study) -> list[Comparison]:
        saved = reductions(study, "iid", what)
        if saved.empty:
            return []
        means = saved.groupby("seed")["saved"].mean()
        left = dict(zip(means.index.tolist(), means.tolist(), strict=True))
        right = dict.fromkeys(left, 1.0)
        return [
            Bootstrapped("not less", left, right, low, above=True),
            Bootstrapped("not more", left, right, high),
        ]

    return check


def fastest_in_order(study: Study) -> list[Comparison]:
    """FEDLUCK-C13, at each task's last IID target."""
    target, order = sought(study, "iid")[-1], ("FedLuck", *BASELINES)
    wanted = [("FedLuck", method) for method in BASELINES] + list(itertools.pairwise(order[1:]))
    return _less(study, wanted, "iid", target, "seconds")


def least_traffic(study: Study) -> list[Comparison]:
    """FEDLUCK-C14, at each task's last IID target."""
    target = sought(study, "iid")[-1]
    wanted = [("FedLuck", m) for m in BASELINES] + [(m, "FedBuff") for m in BASELINES if m != "FedBuff"]
    return _less(study, wanted, "iid", target, "gigabytes")


def often_least_traffic(study: Study) -> list[Comparison]:
    """FEDLUCK-C15: least in two of three targets, in each at most 1.5 times the least."""
    found: list[Comparison] = []
    lowest: dict[int, float] = {}
    for target in sought(study, "iid"):
        rivals = {m: pairs(study, "FedLuck", m, "iid", target.here, "gigabytes") for m in BASELINES}
        rivals = {m: sides for m, sides in rivals.items() if sides[0]}
        if not rivals:
            continue
        best = min(rivals, key=lambda m: mean(rivals[m][1]))
        found.append(Bootstrapped(f"{target}, least of the others {best}", *rivals[best], bound=1.5))
        for seed in compared(study, "FedLuck", "iid"):
            won = all(ours[seed] <= theirs[seed] for ours, theirs in rivals.values() if seed in ours)
            lowest[seed] = lowest.get(seed, 0.0) + won
    if lowest:
        found.append(Bootstrapped("targets with the least", lowest, dict.fromkeys(lowest, 1.0), 2.0, above=True))
    return found


def skew_slows(study: Study) -> list[Comparison]:
    """FEDLUCK-C16, at the targets that both partitions have."""
    common, found = sought(study, "dirichlet"), []
    for target in (t for t in sought(study, "iid") if t in common):
        even, uneven = (reached(study, "FedLuck", partition, target.here) for partition in ("iid", "dirichlet"))
        seeds = [s for s in even.keys() & uneven.keys() if even[s].reached]
        if seeds:
            left, right = ({s: side[s].since_start for s in seeds} for side in (uneven, even))
            found.append(Bootstrapped(f"{target}", left, right, above=True))
    return list(found)


def joint_beats_single(study: Study) -> list[Comparison]:
    """FEDLUCK-C17a."""
    ours = final(study, "FedLuck")
    sides = {method: final(study, method) for method in SINGLE}
    return [Bootstrapped(f"against {m}", ours, other, above=True) for m, other in sides.items() if ours and other]


def labels_as_in_the_text(study: Study) -> list[Comparison]:
    """FEDLUCK-C17b: frequency only and compression only in the order of the rows Opt. CR and Opt. LF."""
    cell = Runs.setup_of(study.dataset).cell
    rows = [number(cell, label, "accuracy") for label in ("Opt. CR", "Opt. LF")]
    frequency, compression = (final(study, method) for method in SINGLE)
    if not frequency or not compression:
        return []
    above = (rows[0] or 0) > (rows[1] or 0)
    order = f"printed {100 * (rows[0] or 0):.1f} and {100 * (rows[1] or 0):.1f} %"
    return [Bootstrapped(f"frequency only over compression only, {order}", frequency, compression, above=above)]


def competitive_at_the_end(study: Study) -> list[Comparison]:
    """FEDLUCK-C18."""
    rivals = {m: values for m in BASELINES if (values := final(study, m))}
    ours = {seed: accuracy + POINT for seed, accuracy in final(study, "FedLuck").items()}
    if not ours or not rivals:
        return []
    best = max(rivals, key=lambda m: mean(rivals[m]))
    return [Bootstrapped(f"best baseline {best}", ours, rivals[best], above=True)]


def staleness_is_the_ceiling(study: Study) -> list[Check]:
    """FEDLUCK-C04: every upload of every periodic run."""
    found = []
    for method in ("FedLuck", "FedPer", *SINGLE):
        wrong = uploads = 0
        for partition in ("iid", "dirichlet"):
            for entry, result in compared(study, method, partition).values():
                rounds = planned_rounds(entry)
                table = result.history.updates
                uploads += len(table["device"])
                wrong += sum(s + 1 != rounds[d] for d, s in zip(table["device"], table["staleness"], strict=True))
        if uploads:
            found.append(Check(method, not wrong, f"{uploads - wrong:,} of {uploads:,} uploads"))
    return found


def interior_is_best(study: Study) -> list[Comparison]:
    """FEDLUCK-C05."""
    found = []
    for axis, name in (("steps", "columns of δ: best k inside"), ("delta", "rows of k: best δ inside")):
        shares = edge_share(study, axis)
        found.append(Bootstrapped(name, shares, dict.fromkeys(shares, 1.0), 0.5, above=True))
    return [part for part in found if part.left]


def up_to_three_times(study: Study) -> list[Comparison]:
    """FEDLUCK-C06."""
    most, least = spread_of_rounds(study)
    return [Bootstrapped("most over fewest rounds of the settings that get there", most, least, 3.0)] if most else []


def factor_predicts(study: Study) -> list[Comparison]:
    """FEDLUCK-C07."""
    found = factor_correlation(study)
    return [Bootstrapped("rank correlation", found, dict.fromkeys(found, 1.0), 0.5, above=True)] if found else []


def _less(
    study: Study, wanted: Iterable[tuple[str, str]], partition: str, target: Target, what: str
) -> list[Comparison]:
    found = []
    for less, more in wanted:
        sides = pairs(study, less, more, partition, target.here, what)
        if sides[0]:
            found.append(Bootstrapped(f"{target}, {less} against {more}", *sides))
    return list(found)


claim = partial(make_claim, "FEDLUCK")
CLAIMS = [
    claim("C01", "Theorem 1", "The theorem bounds the mean squared gradient.",
         "measured ≤ (12) inside its window, and ≤ (L-b) for small steps, on random log-cosh problems",
         theorem_1_bounds, exact=True, computed=True),
    claim("C02", "Corollary 1", "With its learning rates the bound falls as 1/√T.",
         "Q > 0, which Theorem 1 needs, for all T up to 1,000,000", corollary_stays_in_the_window,
         exact=True, computed=True),
    claim("C03", "(13)", "The third term has the highest order of influence.",
         "its exponents of T and of k are the largest", third_term_dominates,
         exact=True, computed=True),
    claim("C04", "(7)", "A device's staleness is constant: its job's length in periods, rounded up.",
         "every recorded staleness equals ⌈d/T̃⌉", staleness_is_the_ceiling, exact=True),
    claim("C05", "Fig. 1", "Too large and too small k and δ both hurt; an efficient setting lies between.",
         "in half of the columns (rows) or more the fewest rounds are not at an end of the grid",
         interior_is_best, fragile=True),
    claim("C06", "section 3.1", "Unsuitable settings need up to 3 times the rounds (introduction: 11).",
         "most rounds ≤ 3 times the fewest, over the settings that get there", up_to_three_times,
         fragile=True),
    claim("C07", "Fig. 1 (implied)", "φ predicts convergence.",
         "rank correlation of φ and rounds > 0.5", factor_predicts),
    claim("C08", "Table 1", "FedLuck reaches every target first, non-IID.",
         "seconds(FedLuck) < seconds(best baseline), each target",
         first_at_every_target("seconds", "dirichlet")),
    claim("C09", "Table 1", "Its speed-ups at the last target are those printed.",
         "each within 25 % of the printed one", speed_ups_as_printed, fragile=True),
    claim("C10", "Table 1", "FedLuck also needs the least communication, non-IID.",
         "gigabytes(FedLuck) < gigabytes(best baseline), each target",
         first_at_every_target("gigabytes", "dirichlet")),
    claim("C11", "Figs 2, 3", "It saves 55 % of the time on average, IID.",
         "mean saving over targets and baselines between 0.45 and 0.65",
         mean_reduction("seconds", 0.45, 0.65), fragile=True),
    claim("C12", "Figs 2, 3", "It saves 56 % of the communication on average, IID.",
         "mean saving over targets and baselines between 0.46 and 0.66",
         mean_reduction("gigabytes", 0.46, 0.66), fragile=True),
    claim("C13", "Fig. 2c", "At the last IID target FedLuck is first, then FedPer, FedBuff, FedAsync, FedAvg+TopK.",
         "seconds in this order", fastest_in_order),
    claim("C14", "Fig. 3b", "At the last IID target FedLuck needs the fewest gigabytes, FedBuff the most.",
         "gigabytes(FedLuck) < each baseline's ≤ gigabytes(FedBuff)", least_traffic),
    claim("C15", "Fig. 3", "It needs the least communication in 6 of 9 IID cases and is close elsewhere.",
         "least at two of a task's three targets; at each ≤ 1.5 times the least of the others",
         often_least_traffic),
    claim("C16", "section 5", "Non-IID data slow convergence.",
         "seconds(Dirichlet) > seconds(IID) for FedLuck, each common target", skew_slows),
    claim("C17a", "Table 2", "Joint optimisation beats optimising one variable.",
         "accuracy(FedLuck) > accuracy(frequency only), accuracy(compression only) at the horizon",
         joint_beats_single),
    claim("C17b", "Table 2 (ours)", "Opt. CR is the row that fixes the compression rate, as the text says.",
         "frequency only and compression only in the order of the rows", labels_as_in_the_text, fragile=True),
    claim("C18", "Fig. 2", "Final accuracy stays competitive.",
         "accuracy(FedLuck) + 0.01 ≥ accuracy(best baseline) at the horizon", competitive_at_the_end),
    claim("C19", "introduction", "Sending a model takes 10 to 100 times a local step.",
         "10 ≤ β/α ≤ 100 for every device of the three worlds", transfer_over_step,
         exact=True, computed=True),
    claim("C20", "(15)", "A device's best (k, δ) follows from computing and network together.",
         "k* changes with α, δ* does not, and changes with β/T̃", both_resources_decide,
         exact=True, computed=True),
    claim("C21", "Table 1 (ours)", "FedAvg+Topk's numbers follow from the world alone.",
         "18 of 18 equal after rounding", table_1_follows_from_the_world, exact=True, computed=True),
]  # fmt: skip
