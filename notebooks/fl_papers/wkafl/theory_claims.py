"""WKAFL's claims about its theory and its schedule, judged on formulas, toys and schedules: no network is trained."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from fl_core.experiments.claims import Check, Claim, register
from fl_core.experiments.study import Study
from fl_core.formulas.wkafl import learning_rate
from fl_papers.wkafl.theory import (
    STAGE1,
    STAGE2,
    bound53_by_length,
    clipping,
    expected_inverse_staleness,
    mean_staleness,
    relative_non_iid_variance,
    remark52_terms,
    schedule_means,
    swept_decay,
    theorem51_bound,
    theorem53,
    theorem_checks,
    uniform_draws,
    waiting_times,
)

GAMMA = 0.1
"""WKAFL's gamma on the digits."""


def contradiction(study: Study) -> list[Check]:
    """C02."""
    sweep = swept_decay()
    slope = float(np.polyfit(sweep["gradients"], sweep["staleness"], 1)[0])
    fit = float(np.corrcoef(sweep["gradients"], sweep["staleness"])[0, 1] ** 2)
    return [Check("nine decays", slope > 0 and fit >= 0.9, f"slope {slope:.2f}, R² {fit:.3f}")]


def least_staleness(study: Study) -> list[Check]:
    """C21: the age's least value is reached by round robin, and participants' staleness is P / K - 1 everywhere."""
    checks, everywhere = [], mean_staleness(1000, 10)
    for name, staleness, age, lowest in schedule_means().itertuples(index=False, name=None):
        least = age >= lowest * (1 - 1e-9)
        equal = np.isclose(age, lowest) == (name == "round robin")
        same = abs(staleness / everywhere - 1) <= 0.02
        checks.append(Check(name, bool(least and equal and same), f"age {age:.1f}, staleness {staleness:.1f}"))
    return checks


def stage_one(study: Study) -> list[Check]:
    """C22: T1, and a bound that rises with tau_max and with G^2."""
    lrs, p2 = np.full(60, 0.05), np.full(60, 1 / 3)
    rising = {
        name: [theorem51_bound(lrs, p2, **{**STAGE1, name: value}) for value in values]
        for name, values in {"max_staleness": (1, 3, 9), "dissimilarity_sq": (0.1, 0.3, 0.9)}.items()
    }
    return [*_both_sides("5.1"), *(_monotone(name, values) for name, values in rising.items())]


def stage_two(study: Study) -> list[Check]:
    """C24: T2, and a bound that rises with sigma_g and with B, as V_j falls."""
    lrs, checks = np.full(40, 0.01), _both_sides("5.3")
    for name, values in {"est_error_sq": (0.1, 0.4, 1.6), "stage2_clip_factor": (1.0, 2.0, 4.0)}.items():
        made = [theorem53(lrs, **{**STAGE2, name: value}) for value in values]
        checks.append(_monotone(name, [one.bound / one.coefficients.min() for one in made]))
    return checks


def first_rate(study: Study) -> list[Check]:
    """C23: with eta = sqrt(K / J) and G = 0 the bound falls like the root of J, and for long runs of K J."""
    free = {**STAGE1, "dissimilarity_sq": 0.0}

    def bound(count: int, length: int) -> float:
        lr = np.sqrt(count / length)
        return theorem51_bound(np.full(length, lr), np.full(length, 1 / count), **free) / (lr / 2)

    def limit(count: float, length: float) -> float:
        return float(remark52_terms(np.sqrt(count / length), count, length, **free).total)

    found = {
        "in J, the bound, 500 to 2000": np.log(bound(1, 2000) / bound(1, 500)) / np.log(4),
        "in J, its terms at 10¹⁰": np.log(limit(4, 4e10) / limit(4, 1e10)) / np.log(4),
        "in K, its terms at 10¹⁰": np.log(limit(4, 1e10) / limit(1, 1e10)) / np.log(4),
    }
    return [Check(name, bool(abs(slope + 0.5) <= 0.05), f"slope {slope:.3f}") for name, slope in found.items()]


def second_rate(study: Study) -> list[Check]:
    """C25: with C = 0 the bound falls like the root of J; else to a plateau in proportion to C."""
    slope = float(np.log(bound53_by_length(800, 0, 0) / bound53_by_length(200, 0, 0)) / np.log(4))
    small, large = (bound53_by_length(1600, c, 0) - bound53_by_length(1600, 0, 0) for c in (0.5, 1.0))
    return [
        Check("C = 0", bool(abs(slope + 0.5) <= 0.05), f"slope {slope:.3f}"),
        Check("twice C", bool(abs(large / small - 2) <= 0.05), f"plateau × {large / small:.3f}"),
    ]


def clipping_helps(study: Study) -> list[Check]:
    """C26: the toy of Figure 4."""
    [(_, before, after, improved)] = clipping((1.2,), 200).itertuples(index=False, name=None)
    text = f"mean cosine {before:.3f} → {after:.3f}, better in {improved:.0%} of draws"
    return [Check("200 draws", bool(after > before and improved > 0.95), text)]


def momentum_averages(study: Study) -> list[Check]:
    """C27, the derivation's part: independent client errors, relative to the signal, before and after Eq. 4 (D2)."""
    rng, alpha, count = np.random.default_rng(0), 0.1, 10
    own, others = rng.standard_normal(40_000), rng.standard_normal((40_000, count)).mean(axis=1)
    measured = float(((own + alpha * others) / (1 + alpha)).var())
    expected = float(relative_non_iid_variance(1.0, count, alpha))
    holds = measured < 1 and abs(measured / expected - 1) < 0.03
    return [Check("40,000 draws", holds, f"variance × {measured:.3f}, formula {expected:.3f}")]


def sasgd_hardly_moves(study: Study) -> list[Check]:
    """C28: the mean step of SASGD over that of WKAFL at P / K = 300."""
    drawn = uniform_draws(3000, 10, 4000, np.random.default_rng(6)).staleness[1500:]
    wkafl = float(np.mean([learning_rate(1.0, float(least), GAMMA) for least in drawn.min(axis=1)]))
    sasgd = float((1 / (drawn + 1)).mean())
    near = abs(sasgd / expected_inverse_staleness(3000, 10) - 1) < 0.1
    return [Check("P = 3000, K = 10", near and sasgd / wkafl < 0.2, f"{sasgd:.4f} against {wkafl:.3f}")]


def asynchronous_saves_time(study: Study) -> list[Check]:
    """C31."""
    checks = []
    for name, waiting, going_on in waiting_times().itertuples(index=False, name=None):
        ratio = going_on / waiting
        holds = abs(ratio - 1) <= 0.03 if name == "exponential" else ratio < 0.97
        checks.append(Check(name, bool(holds), f"{going_on:.4f} s against {waiting:.4f} s"))
    return checks


def _both_sides(theorem: str) -> list[Check]:
    table = theorem_checks()
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


def _add(number: str, source: str, statement: str, test: str, judge: Callable[[Study], Sequence[Check]]) -> None:
    register(Claim(f"WKAFL-{number}", statement, source, test, judge, exact=True, computed=True))


_add("C02", "Fig. 2 b", "More aggregated gradients are staler ones, about linearly: the two remedies contradict.",
     "slope > 0 and R² ≥ 0.9 over nine decays of the weights", contradiction)  # fmt: skip
_add("C21", "Sec. 6.3.1", "The least average staleness is about P/(2K).",
     "mean age ≥ (P/K − 1)/2, equal for round robin alone; staleness of used gradients P/K − 1 ± 2 %",
     least_staleness)  # fmt: skip
_add("C22", "Theorem 5.1", "Stage one converges; staleness and non-IID data worsen the bound.",
     "(13) on T1; right side increasing in τ_max and G²", stage_one)  # fmt: skip
_add("C23", "Remark 5.2", "For G = 0 the rate is O(1/√(KJ)): linear speed-up.",
     "log-log slopes −1/2 ± 0.05", first_rate)  # fmt: skip
_add("C24", "Theorem 5.3", "Stage two converges; smaller σ_g and B are better.",
     "(14) on T2; right side over min V increasing in σ_g and B", stage_two)  # fmt: skip
_add("C25", "Remark 5.4", "With unbounded staleness the rate is O(1/√J + C).",
     "log-log slope −1/2 ± 0.05 for C = 0; plateau in proportion to C", second_rate)  # fmt: skip
_add("C26", "Fig. 4", "Clipping brings the estimate closer to the true gradient.",
     "mean cosine rises, in more than 95 % of draws", clipping_helps)  # fmt: skip
_add("C27a", "Sec. 4.3.1", "Accumulated gradients reduce the error of non-IID data.",
     "its variance relative to the signal falls as derived", momentum_averages)  # fmt: skip
_add("C28", "Sec. 4.3.4", "Dividing by staleness, as SASGD does, slows training too much at large scale.",
     "mean step SASGD / WKAFL < 0.2 at P/K = 300", sasgd_hardly_moves)  # fmt: skip
_add("C31", "Sec. 1", "K-asynchronous updates take less time than K-synchronous ones.",
     "equal ± 3 % for exponential durations, less for the two others", asynchronous_saves_time)  # fmt: skip
