"""What FedLuck's theory says as printed and as it holds, each statement checked exactly: judges of its claims.

Numbers in brackets are those of the errata (readings.md). A check shows that a statement is true on the cases it
names, that it says nothing, or that it is false.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import numpy as np
import scipy

from fl_core.experiments.claims import Check
from fl_core.experiments.study import Study
from fl_core.formulas.compression import kept_count
from fl_core.formulas.fedluck import Box, plan_devices
from fl_papers.fedluck import theory
from fl_papers.fedluck.experiment import SINGLE
from fl_papers.fedluck.figures import compared, planned_rounds, speeds
from fl_papers.fedluck.tables import alpha_moves_steps_only, bounds_on_toys
from fl_papers.fedluck.theory import Moments, Upload, Variant, joint_optimum


def theorem_1(study: Study) -> list[Check]:
    """The bound holds on problems with known constants, and is above what an assumption bounds."""
    toys = bounds_on_toys().query("bound == 'Theorem 1'")
    least = float((toys["right"] / (toys["k"] ** 2 * toys["limit"])).min())
    detail = f"(12) is at least {least:.0f} k²G², and (11) says that the gradient is at most G²"
    return [Check("against (11)", least >= 45, detail, "vacuity"), _below(toys)]


def rescaled(study: Study) -> list[Check]:
    """(L-b) holds on problems with small steps."""
    return [_below(bounds_on_toys().query("bound == '(L-b)'"))]


def _below(toys: Any) -> Check:
    worst = float(toys["ratio"].max())
    return Check("measured ≤ bound", worst <= 1, f"{len(toys)} problems: measured at most {worst:.2g} of the bound")


def corollary_stays_in_the_window(study: Study) -> list[Check]:
    """Q > 0, which Theorem 1 needs, at the learning rates of Corollary 1."""
    rounds, found = np.geomspace(1, 1e6, 601), []
    for k in (1, 5, 10, 20):
        inside = rounds[theory.q_local(theory.corollary1_rates(k, rounds, 0.1).local_lr, k) > 0]
        last = f"up to T = {inside.max():.0f}" if len(inside) else "for no T"
        found.append(Check(f"k = {k}", len(inside) == len(rounds), f"Q > 0 {last} of 1,000,000"))
    return found


def what_vanishes(study: Study) -> list[Check]:
    """With a = eta_l k and eta_g both T^(-1/4), all of (L-b) but its floors falls as T^(-1/2)."""

    def bound(length: float) -> Any:
        step = length**-0.25
        return theory.rescaled_bound(
            2.0, Moments(0.3, 0.2, 0.5), local_lr=step / 10, global_lr=step, local_steps=10, num_rounds=length,
            compression_rate=0.1, max_staleness=2, smoothness=1.0,
        )  # fmt: skip

    early, late = bound(1e8), bound(1e12)
    floors = [one.floor + one.compression for one in (early, late)]
    slope = float(np.log((late.total - floors[1]) / (early.total - floors[0])) / np.log(1e4))
    same = Check("noise, heterogeneity and compression", floors[0] == floors[1], f"{floors[0]:g} at every T")
    return [Check("the rest", abs(slope + 0.5) < 0.01, f"falls as T^{slope:.2f}"), same]


def _exponents(**longer: tuple[float, float]) -> list[float]:
    """Return the exponents of the three terms of (13), tau fixed, in the quantity that is given as a range."""
    [(name, ends)] = longer.items()
    settings: dict[str, Any] = {"local_steps": 10, "num_rounds": 1e6, "compression_rate": 0.1, "max_staleness": 2}
    terms, moments = theory.printed_corollary1_terms, Moments(0.3, 0.2, 0.5)
    before, after = (np.array(terms(2.0, moments, **{**settings, name: end})) for end in ends)
    return (np.log(after / before) / np.log(ends[1] / ends[0])).round(6).tolist()


def third_term(study: Study, printed: bool) -> list[Check]:
    """The exponents of T and k in the three terms."""
    in_t, in_k = _exponents(num_rounds=(1e6, 1e8)), _exponents(local_steps=(10, 100))
    if printed:
        shown = f"exponents of T {listed(in_t)}; of k {listed(in_k)}"
        smaller = in_t[2] <= in_t[0] and in_k[2] < in_k[0]
        return [Check("the third is not the largest", smaller, shown, "counter-example")]
    return [Check("in T", in_t == [-0.5] * 3, listed(in_t)), Check("in k", in_k == [-0.5, -3, -1], listed(in_k))]


@cache
def worlds() -> list[tuple[list[float], list[list[Upload]]]]:
    """Return jobs and participants of 200 random worlds of five devices with a period of 1 s."""
    rng = np.random.default_rng(0)
    jobs = [rng.uniform(0.1, 6, 5).tolist() for _ in range(200)]
    return [(each, theory.timeline(each, 1.0, 60)) for each in jobs]


def rounds_without_uploads() -> tuple[bool, str]:
    """E2."""
    empty = any(not row for _, rounds in worlds() for row in rounds)
    return empty, "some rounds have none, and (6) divides by zero"


def _uploads(right: Callable[[int, Upload, float], bool]) -> tuple[int, int]:
    """Return of how many uploads something is right, and how many there are."""
    uploads = ((t, one, jobs) for jobs, rounds in worlds() for t, row in enumerate(rounds) for one in row)
    found = [right(t, one, jobs[one.device]) for t, one, jobs in uploads]
    return sum(found), len(found)


def staleness_is_the_ceiling(study: Study) -> list[Check]:
    """(7) on random worlds, and on every upload of the periodic runs that are stored."""
    good, count = _uploads(lambda t, one, job: one.round_staleness == int(np.ceil(job)))
    found = [Check("200 random worlds", good == count, f"{good:,} of {count:,} uploads")]
    for method in ("FedLuck", "FedPer", *SINGLE):
        wrong = count = 0
        for partition in ("iid", "dirichlet"):
            for entry, result in compared(study, method, partition).values():
                rounds, table = planned_rounds(entry), result.history.updates
                count += len(table["device"])
                wrong += sum(s + 1 != rounds[d] for d, s in zip(table["device"], table["staleness"], strict=True))
        if count:
            found.append(Check(method, not wrong, f"{count - wrong:,} of {count:,} uploads"))
    return found


def model_of_an_upload(study: Study, late: int) -> list[Check]:
    """Whether an upload of round t was computed on w^(t - tau + late)."""
    good, count = _uploads(lambda t, one, job: one.start_round == t - one.round_staleness + late)
    shows: Any = "statement" if late else "counter-example"
    right = good == count if late else good < count
    return [Check("200 random worlds", right, f"{good:,} of {count:,} uploads", shows)]


def both_resources_decide(study: Study, sharper: bool) -> list[Check]:
    """k* and delta* where alpha, and where beta, is varied."""
    alpha, steps, delta = alpha_moves_steps_only()
    best = joint_optimum(np.array([4.0, 6.0, 8.0]))
    found = [
        Check("k* changes with α", bool((np.diff(steps) < 0).all()), f"{listed(steps)} at α = {listed(alpha)} s"),
        Check("k* changes with β", bool((np.diff(best.kappa) < 0).all()), f"k*α/T̃ {listed(best.kappa.round(4))}"),
    ]
    if sharper:
        ends = f"δ* from {delta.min():.5f} to {delta.max():.5f}"
        found.append(Check("δ* does not change with α", float(np.ptp(delta)) < 1e-3 * float(delta.mean()), ends))
    rates = best.compression_rate
    return [*found, Check("δ* changes with β/T̃", bool((np.diff(rates) < 0).all()), f"δ* {listed(rates.round(4))}")]


def lost_factor(study: Study, printed: bool) -> list[Check]:
    """What the factor 2 of (12) does to the minimum of (14), which has lost it (E8)."""
    ratios, twice = np.array([0.8, 2.1, 2.5, 9.0]), Variant(staleness_coefficient=2)
    kept, lost = (joint_optimum(ratios, variant).compression_rate for variant in (twice, Variant()))
    if printed:
        shown = f"at β/T̃ = 2.5 δ* = {kept[2]:.3f} with it, {lost[2]:.3f} without"
        return [Check("the minimum moves", not np.allclose(kept, lost), shown, "counter-example")]
    same = np.allclose(kept, joint_optimum(ratios * 2**0.5).compression_rate)
    return [Check("the minimum at T̃/√2", bool(same), f"δ* {listed(kept.round(4))}")]


def power_of_delta(study: Study, power: float) -> list[Check]:
    """How many devices of the CNN's world compress, where k may grow without limit."""
    variant, box = Variant(delta_power=power), Box(1, 1000, 0.01, 1.0)
    sent = plan_devices(*speeds("cnn"), 1.5, solver="exact", variant=variant, box=box).compression_rate
    shown, printed = f"{int((sent < 1).sum())} of {len(sent)} devices compress", power == 1
    return [Check("CNN's world", bool((sent == 1).all() if printed else (sent < 1).any()), shown,
                  "counter-example" if printed else "statement")]  # fmt: skip


def length_of_top_k(study: Study, bound: Callable[[float], float]) -> list[Check]:
    """How long a compressed vector is, and the largest change of delta* between links that differ by 1 %."""
    rng, worst = np.random.default_rng(0), 0.0
    for rate in (0.1, 0.3, 0.8, 1.0):
        for vector in rng.standard_t(2, (200, 40)):
            kept = np.sort(vector**2)[-kept_count(40, rate) :].sum()
            worst = max(worst, float(kept / (vector**2).sum() / bound(rate)))
    return [Check("800 heavy-tailed vectors", worst <= 1 + 1e-12, f"at most {worst:.2f} of it")]


def one_valley(study: Study) -> list[Check]:
    """The sharp bound, and that with it delta* does not jump."""
    ratios = np.geomspace(0.3, 100, 600)
    jumps = [joint_optimum(ratios, v).compression_rate for v in (Variant(), Variant(contraction="tight"))]
    printed, tight = (float((delta[:-1] / delta[1:]).max()) for delta in jumps)
    shown = f"a link that is 1 % slower changes δ* by {tight:.2f} at most, with 2 − δ by {printed:.2f}"
    return [*length_of_top_k(study, lambda rate: 1.0), Check("no jump", tight < 1.05, shown)]


def supplements_condition(study: Study, printed: bool) -> list[Check]:
    """Where the supplement's factor is stationary in delta (E13)."""
    u, beta = 1.0, 10.0
    delta = float(scipy.optimize.brentq(lambda x: 2 * beta * x**2 * (beta - u - beta * x) - 1 - 2 * u**2, 0.05, 0.5))
    ends = [theory.printed_supplement_factor(1.0, delta + step, u, beta) for step in (-1e-5, 1e-5)]
    slope, value = float(ends[1] - ends[0]) / 2e-5, float(theory.printed_supplement_stationarity(1.0, delta, u, beta))
    shown = f"at δ = {delta:.4f} the derivative is {slope:.1g}, the printed condition {value:.2f} instead of 0"
    return [Check("kα = 1, β = 10", abs(slope) < 1e-4 < (abs(value) if printed else 1.0), shown,
                  "counter-example" if printed else "statement")]  # fmt: skip


def moves_of_the_server(study: Study, printed: bool) -> list[Check]:
    """Lemma 1 on one step with eta_g = 2, and corrected on random ones (E6)."""
    if printed:
        bound = theory.printed_lemma1_bound([1.0])
        shown = f"moved 2² = 4, bound {bound:g}"
        return [Check("η_g = 2, one upload of length 1", bound < 4, shown, "counter-example")]
    rng, worst = np.random.default_rng(4), 0.0
    for _ in range(100):
        sent, rate = rng.normal(size=(rng.integers(1, 7), 3, 5)), float(rng.uniform(0.1, 3))
        moved = rate * sent.mean(axis=1).sum(axis=0)
        worst = max(worst, float(moved @ moved / theory.lemma1_bound(rate, (sent**2).sum(axis=2).mean(axis=1))))
    return [Check("100 random sequences of rounds", worst <= 1, f"at most {worst:.2f} of the bound")]


def sign_of_q(study: Study, printed: bool) -> list[Check]:
    """The coefficient of the squared gradient, which has to be -Q/2 (E4)."""
    steps = np.linspace(0.1, 1.9, 37)
    wanted = -0.5 + 3 * (1 - steps) ** 2
    q = theory.printed_supplement_q_local if printed else theory.q_local
    got = np.array([-0.5 * q(a, 1) for a in steps])
    shown = f"at η_l k = 1 it is {wanted[18]:g}, −Q/2 is {got[18]:g}"
    same = bool(np.allclose(wanted, got))
    return [Check("0.1 ≤ η_l k ≤ 1.9", not same if printed else same, shown,
                  "counter-example" if printed else "statement")]  # fmt: skip


def listed(numbers: Iterable[float]) -> str:
    """Return numbers as text."""
    return ", ".join(f"{value:g}" for value in numbers)
