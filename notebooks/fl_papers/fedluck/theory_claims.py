"""FedLuck's claims that formulas decide: the theorem and its corollary, the optimum, and the world's own numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fl_core.experiments.claims import Check
from fl_core.experiments.study import Study
from fl_papers.fedluck.bounds import Moments, corollary1_rates, printed_corollary1_terms, q_local
from fl_papers.fedluck.extra_formulas import joint_optimum
from fl_papers.fedluck.theory import TASKS, alpha_moves_steps_only, bounds_on_toys, decoded_topk, speeds


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
