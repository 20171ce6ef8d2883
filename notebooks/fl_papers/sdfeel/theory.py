"""SD-FEEL's theory as figures and claims: mixing, what is minimised, the bound; computed without training.

Settings are the specification's: D1, D5, D9 and D10, claims C07 and C09 to C15.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache, partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fl_core.experiments.claims import Check, add_claim
from fl_core.experiments.study import Study
from fl_core.formulas.sdfeel import Mixing, synchronous_mixing_matrix
from fl_papers.sdfeel.bounds import (
    BoundTerms,
    MixingSums,
    Variant,
    constant_mixing_errors,
    constants,
    mixing_error_sums,
    mixing_errors,
    surrogate_weights,
    theorem1_bound,
)
from fl_papers.sdfeel.clock import paper_clock
from fl_papers.sdfeel.extra_formulas import consensus_rounds, staleness_aware_mixing_matrix, zeta
from fl_papers.sdfeel.grid import ASYNC, ROUND_SECONDS, SYNC
from fl_papers.sdfeel.toys import cluster_steps, fixed_point, quadratic_run, surrogate_minimiser

GAPS = (5.0, 10.0, 30.0)
"""The paper's gaps H."""
RING = [(5, 1), (0, 2), (1, 3), (2, 4), (3, 5), (4, 0)]
BUSY = {5.0: (0.4114, 0.9869), 10.0: (0.2859, 0.9892), 30.0: (0.1634, 0.9909)}
"""Part of the time in which devices compute, synchronous and asynchronous, that claim C07 is tested against."""
UNEQUAL = (0.10, 0.12, 0.15, 0.18, 0.20, 0.25)
"""Cluster shares that are less even than those of the Dirichlet partitions (oracle O7)."""
VARIANTS: tuple[Variant, ...] = ("derived", "printed")
EXACT = MixingSums(0, 0, 0)
"""Servers that average exactly."""
BOUND = {"lr": 0.002, "tau_max": 20, "iterations": 50, "zeta": 0.6, "noise": 0.5, "dissimilarity": 0.3}
VARIED: dict[str, tuple[float, ...]] = {
    "gap": (1, 2, 5, 10), "delta_max": (0, 1, 5, 10), "dissimilarity": (0, 0.3, 1),
}  # fmt: skip
"""What claim C12 varies of the bound (16), and how."""


# Figures


def printed_mixing(study: Study, events: int = 300) -> pd.DataFrame:
    """Return the largest of six models that all begin at 1 when events only mix, by rule and gap (E-01)."""
    found = []
    rules: dict[Mixing, str] = {"derived": "corrected weights", "printed": "printed weights"}
    for rule, name in rules.items():
        for gap in GAPS:
            models, largest = np.ones(6), [1.0]
            for matrix in _matrices(gap, events, rule):
                models = models @ matrix
                largest.append(abs(models).max())
            found.append(_curve(name, range(events + 1), "model", largest, gap))
    return pd.concat(found, ignore_index=True)


def what_is_minimised(study: Study, events: int = 3000) -> pd.DataFrame:
    """Return the mean model on quadratics over time, for two ways of mixing, and where theory has it end (D10)."""
    found = []
    run = inconsistency(events)
    for name, values in run.items():
        smooth = pd.Series(values).rolling(events // 20, min_periods=1).mean().to_numpy()[:: events // 60]
        found.append(_curve(name, np.arange(0, events + 1, events // 60), "model", smooth))
    return pd.concat(found, ignore_index=True)


@cache
def inconsistency(events: int = 3000) -> dict[str, NDArray[np.float64]]:
    """Return the mean model ``[events + 1]`` of asynchronous runs on quadratics, predictions and the optimum (D10).

    Thirty devices with the paper's clock at H = 10, a tenth of its steps, clusters with unequal data.
    """
    rng, clock = np.random.default_rng(0), paper_clock(10)
    clusters = [tuple(range(5 * d, 5 * d + 5)) for d in range(6)]
    centres, sizes = rng.normal(size=30), rng.integers(100, 900, 30)
    steps = (clock.local_steps // 10).tolist()
    share = np.array([sizes[list(own)].sum() for own in clusters]) / sizes.sum()
    taus, found = cluster_steps(clusters, sizes, steps), {}
    optimum = surrogate_minimiser(centres, clusters, sizes, share)
    rules: tuple[tuple[str, Mixing, Any], ...] = (
        ("Eq. 5", "derived", None),
        ("data-weighted mixing", "data_weighted", share),
    )
    for name, rule, weight in rules:
        target = surrogate_minimiser(centres, clusters, sizes, surrogate_weights(taus, clock.periods, weight))
        run = quadratic_run(
            centres, clusters, RING, steps, sizes, clock.periods, 5e-4, events, rule=rule, cluster_weight=share
        )
        found[name] = run.models @ (np.full(6, 1 / 6) if weight is None else weight)
        found[f"{name}: prediction"] = np.full(events + 1, target)
    return {**found, "optimum of F": np.full(events + 1, optimum)}


def bound_terms(study: Study) -> pd.DataFrame:
    """Return the terms of the bound (16), with derived constants, as one thing after the other grows.

    Returns
    -------
    DataFrame
        ``varied``, ``value``, and the four terms by name.
    """
    rows = []
    for name, values in {**VARIED, "iterations": (10, 50, 250, 1000)}.items():
        for value in values:
            terms = bound("derived", **{name: value})._asdict()
            rows.append({"varied": name, "value": value, **{k: float(v) for k, v in terms.items()}})
    return pd.DataFrame(rows)


def contraction(study: Study, events: int = 80) -> pd.DataFrame:
    """Return the largest distance from averaging of products of mixing matrices, by their number (D5)."""
    lags = np.arange(1, 61)
    found = []
    for gap in GAPS:
        rho = mixing_errors(_matrices(gap, events))
        worst = [np.diagonal(rho, lag).max() for lag in lags]
        found.append(_curve(ASYNC, lags, "rho", worst, gap))
    rate = zeta(synchronous_mixing_matrix(RING))
    found.append(_curve(f"{SYNC}, six events a round", lags, "rho", rate ** (lags / 6)))
    return pd.concat(found, ignore_index=True)


def bound(variant: Variant, **varied: float) -> BoundTerms:
    """Return the terms of (16) in the setting of claim C12, with some of it changed."""
    now = {**BOUND, "gap": 1, "delta_max": 0, **varied}
    tau_max, count = int(now["tau_max"]), int(now["iterations"])
    sums = mixing_error_sums(constant_mixing_errors(now["zeta"], count))
    found = constants(now["lr"], 1.0, tau_max, now["gap"], now["delta_max"], sums, count, variant=variant)
    return theorem1_bound(
        found, lr=now["lr"], smoothness=1.0, tau_max=tau_max, tau_min=tau_max / now["gap"], num_iterations=count,
        decrease=2.0, noise=now["noise"], dissimilarity=now["dissimilarity"], square_weights=1 / 30,
    )  # fmt: skip


def _matrices(gap: float, events: int, rule: Mixing = "derived") -> NDArray[np.float64]:
    """Return the mixing matrices ``[events, 6, 6]`` of the paper's clock."""
    made = paper_clock(gap).events(events)
    return np.array([staleness_aware_mixing_matrix(RING, e.cluster, e.staleness, rule=rule) for e in made])


def _curve(method: str, x: Any, column: str, values: Any, gap: float = np.nan) -> pd.DataFrame:
    """Return one exact curve as :func:`fl_core.report.curves.plot_curves` reads it."""
    return pd.DataFrame({"method": method, "gap": gap, "x": x, column: values, f"{column}_std": np.nan, "n": 1})


# Claims


def devices_idle(study: Study) -> list[Check]:
    """SDFEEL-C07: the part of the time in which devices compute, to the four digits of the specification."""
    found = []
    for gap, expected in BUSY.items():
        clock = paper_clock(gap)
        busy = (clock.synchronous_use, clock.asynchronous_use)
        holds = busy[0] < busy[1] and np.allclose(busy, expected, atol=5e-5)
        found.append(
            Check(f"H = {gap:g}", bool(holds), f"computing {busy[0]:.1%} synchronous, {busy[1]:.1%} asynchronous")
        )
    return found


def normalisation_is_fairer(study: Study) -> list[Check]:
    """SDFEEL-C09: D1 (c), two devices that want 1 and -1 and do 50 and 5 steps; the optimum is 0."""
    two = ((1, -1), (0.5, 0.5), (50, 5), 0.01)
    fair, unfair = fixed_point(*two), fixed_point(*two, normalized=False)
    tiny = fixed_point(*two[:3], 1e-6)
    return [
        Check("nearer to the optimum", abs(fair) < abs(unfair), f"ends at {fair:.4f}, without it at {unfair:.4f}"),
        Check("as the specification says", np.allclose((fair, unfair), (-0.1074525745, 0.7792363897), atol=1e-9),
              "both fixed points to nine digits"),
        Check("rest vanishes with η", abs(tiny) < 1e-4, f"η = 1e-6: ends at {tiny:.1e}"),
    ]  # fmt: skip


def stale_weighs_less(study: Study) -> list[Check]:
    """SDFEEL-C10: p^{i,d} falls in delta^{(i)}, for neighbours of a trigger on the ring; p^{i,i} does not (E-04)."""
    rng, down, up, count = np.random.default_rng(0), 0, 0, 200
    for _ in range(count):
        late, trigger = rng.integers(0, 40, 6).tolist(), int(rng.integers(6))
        neighbour = RING[trigger][int(rng.integers(2))]
        later = [n + 1 if j == neighbour else n for j, n in enumerate(late)]
        before, after = (staleness_aware_mixing_matrix(RING, trigger, each) for each in (late, later))
        down += after[neighbour, trigger] < before[neighbour, trigger]
        up += after[neighbour, neighbour] > before[neighbour, neighbour]
    kept = f"its own share of itself rises in {up} of {count}"
    return [Check("weight of a neighbour", down == count, f"falls in {down} of {count} random events; {kept}")]


def rate_of_the_bound(study: Study) -> list[Check]:
    """SDFEEL-C11: exponents of K in the terms of (16) with eta proportional to 1/sqrt(K)."""
    sums, found = mixing_error_sums(constant_mixing_errors(0.6, 20)), []
    setting = {"smoothness": 1.0, "decrease": 2.0, "noise": 0.5, "dissimilarity": 0.3, "square_weights": 1 / 30}
    for variant in VARIANTS:
        terms = []
        for count in (10**6, 10**8):
            lr = 0.01 / count**0.5
            got = constants(lr, 1.0, 10, 2, 4, sums, count, variant=variant)
            terms.append(theorem1_bound(got, lr=lr, tau_max=10, tau_min=5, num_iterations=count, **setting))
        slopes = np.log(np.array(terms[1]) / np.array(terms[0])) / np.log(100)
        holds = np.allclose(slopes, (-0.5, -0.5, -1, -1), atol=0.02)
        found.append(Check(f"{variant} constants", holds, "exponents " + ", ".join(f"{s:.2f}" for s in slopes)))
    return found


def bound_grows(study: Study) -> list[Check]:
    """SDFEEL-C12: finite differences of (16), in both variants."""
    found = []
    for name, symbol in (("gap", "H"), ("delta_max", "δ_max"), ("dissimilarity", "κ²")):
        for variant in VARIANTS:
            totals = [float(bound(variant, **{name: value}).total) for value in VARIED[name]]
            grows = bool((np.diff(totals) > 0).all())
            span = f"{symbol} from {VARIED[name][0]:g} to {VARIED[name][-1]:g}"
            found.append(Check(f"in {symbol}, {variant}", grows, f"{span}: {totals[0]:.4f} to {totals[-1]:.4f}"))
    return found


def synchronous_limit(study: Study) -> list[Check]:
    """SDFEEL-C13: D9 in exact fractions; the printed theorem of the synchronous paper is not at hand."""
    lr, smoothness, tau, decrease = Fraction(1, 100), Fraction(1), Fraction(5), Fraction(2)
    sums = MixingSums(Fraction(1, 2), Fraction(3, 2), Fraction(2))
    found = []
    powers: dict[Variant, int] = {"derived": 2, "printed": 1}
    for variant, power in powers.items():
        got = constants(lr, smoothness, tau, 1, 0, sums, 20, variant=variant)
        x = lr**2 * tau * (tau - 1)
        u3 = (1 + 4 * x) / (1 - 2 * x)
        A = 4 * lr**2 * (tau - 1) / (1 - 2 * x) + 8 * lr**2 * tau * u3 * sums.squares
        B = 24 * x / (1 - 2 * x) + 16 * lr**2 * tau**power * u3 * sums.squared_sums
        found.append(Check(f"{variant} A, B", got.A == A and got.B == B, "equal as fractions, no term with δ_max"))
    one = Fraction(1)
    none = constants(lr, smoothness, one, one, 0, EXACT)
    sgd = theorem1_bound(
        none, lr=lr, smoothness=smoothness, tau_max=one, tau_min=one, num_iterations=50, decrease=decrease,
        noise=Fraction(1, 2), dissimilarity=Fraction(1, 3), square_weights=Fraction(1, 30),
    ).total  # fmt: skip
    expected = 2 * decrease / (lr * 50) + lr * smoothness * Fraction(1, 30) * Fraction(1, 2)
    found.append(Check("one step, exact averaging", sgd == expected, "the bound of mini-batch SGD, as a fraction"))
    return found


def equal_speeds(study: Study) -> list[Check]:
    """SDFEEL-C14: H = 1 on the paper's clock."""
    clock = paper_clock(1.0)
    periods, steps = clock.periods, set(clock.local_steps.tolist())
    busy = (clock.synchronous_use, clock.asynchronous_use)
    return [
        Check("local steps", steps == {100}, f"{sorted(steps)} on all devices"),
        Check("iteration = round", set(periods) == {clock.round_seconds},
              f"{periods[0]:.1f} s in every cluster, {clock.round_seconds:.1f} s a round"),
        Check("computing", busy[0] == busy[1], f"{busy[0]:.1%} and {busy[1]:.1%} of the time"),
    ]  # fmt: skip


def consensus_is_cheap(study: Study) -> list[Check]:
    """SDFEEL-C15: gossip to a spread of 1e-6, against the horizon of A-11."""
    horizon, found = 50 * ROUND_SECONDS[10], []
    for name, shares in (("equal clusters", None), ("unequal clusters (O7)", UNEQUAL)):
        rounds = consensus_rounds(zeta(synchronous_mixing_matrix(RING, shares)), 1e-6)
        seconds = rounds * paper_clock(5).exchange
        found.append(Check(name, seconds < 0.01 * horizon,
                           f"{rounds} rounds, {seconds:,.0f} s, {seconds / horizon:.2%} of the horizon"))  # fmt: skip
    return found


_add = partial(add_claim, "SDFEEL", exact=True, computed=True)

_add("C07", "Figure 1, section III", "Fast devices idle in synchronous training, and are fully used in asynchronous.",
     "part of the time in which devices compute, seed 0: 0.4114, 0.2859, 0.1634 and 0.9869, 0.9892, 0.9909",
     devices_idle)  # fmt: skip
_add("C09", "(2), (3)", "Dividing updates by the number of steps removes a bias towards fast devices.",
     "fixed points of two devices with 50 and 5 steps", normalisation_is_fairer)  # fmt: skip
_add("C10", "(5)", "A staler neighbour gets a smaller weight.",
     "p^{i,d} falls strictly in δ^{(i)}, all else fixed", stale_weighs_less)  # fmt: skip
_add("C11", "Remark 1", "With η ∝ 1/√K the bound vanishes like 1/√K.",
     "exponents of K: −0.5 in the first two terms, −1 in the others, within 0.02; for the surrogate objective (E-11)",
     rate_of_the_bound)  # fmt: skip
_add("C12", "Remark 2", "The bound grows with H, with δ_max and with κ.",
     "finite differences of (16) are positive, both variants, τ_max fixed", bound_grows)  # fmt: skip
_add("C13", "Remark 2", "H = 1 and δ_max = 0 give the bound of synchronous training.",
     "A and B lose the terms of delay; with one step and exact averaging SGD's bound remains; "
     "the synchronous paper's own theorem is not at hand",
     synchronous_limit)  # fmt: skip
_add("C14", "section II", "With equal speeds synchronous training is viable.",
     "H = 1: equal steps, equal times, equally busy", equal_speeds)  # fmt: skip
_add("C15", "section III", "The consensus phase happens once and costs little.",
     "rounds to a spread of 1e-6 take less than 1 % of the horizon", consensus_is_cheap)  # fmt: skip
