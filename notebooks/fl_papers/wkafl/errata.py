"""WKAFL's theory and schedule, as printed and as they hold, each statement checked exactly, with a table of claims.

Numbers in brackets are those of the errata (readings.md). A check shows that a statement is true on the cases it
names, that it says nothing, or that it is false.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import numpy as np
import torch

from fl_core.experiments.claims import Check, Shows, exact, make_claim
from fl_core.experiments.study import Study
from fl_core.formulas.wkafl import aggregate, estimation_weights, learning_rate, similarities, stage_loss
from fl_papers.wkafl import theory
from fl_papers.wkafl.experiment import PRINTED
from fl_papers.wkafl.theory import DECAY, STAGE1, STAGE2

GAMMA = 0.1  # WKAFL's gamma on the digits.


def _monotone(name: str, values: Sequence[float]) -> Check:
    text = " < ".join(f"{value:.4f}" for value in values)
    return Check(f"rises with {name}", all(a < b for a, b in pairwise(values)), text)


def _both_sides(theorem: str) -> list[Check]:
    rows = theory.theorem_checks().query("theorem == @theorem")[["problem", "lr", "limit", "left", "right"]]
    return [
        Check(name, bool(left <= right and lr <= limit), f"{left:.4f} ≤ {right:.4f}")
        for name, lr, limit, left, right in rows.itertuples(index=False, name=None)
    ]


# The schedule


def few_dominate(study: Study) -> list[Check]:
    """C01: share of the updates in which at most five gradients weigh more than 0.1; arrivals alone decide."""
    drawn = theory.uniform_draws(1000, 10, 3000, np.random.default_rng(5)).staleness
    share = float((theory.predominated(theory.decay_weights(drawn, DECAY)) <= 5).mean())
    return [Check("3,000 updates, P = 1000, K = 10", share >= 0.95, f"in {share:.1%} of the updates")]


def contradiction(study: Study) -> list[Check]:
    """C02."""
    sweep = theory.swept_decay()
    slope = float(np.polyfit(sweep["gradients"], sweep["staleness"], 1)[0])
    fit = float(np.corrcoef(sweep["gradients"], sweep["staleness"])[0, 1] ** 2)
    return [Check("nine decays", slope > 0 and fit >= 0.9, f"slope {slope:.2f}, R² {fit:.3f}")]


def least_staleness(study: Study, printed: bool) -> list[Check]:
    """C21: of used gradients the mean staleness is P / K - 1 under every law, half of it the least age (E29)."""
    checks, everywhere = [], theory.mean_staleness(1000, 10)
    for name, staleness, age, lowest in theory.schedule_means().itertuples(index=False, name=None):
        text = f"staleness {staleness:.1f}, age {age:.1f}; P/(2K) = 50"
        if printed:
            checks.append(Check(name, abs(staleness / 50 - 1) > 0.5, text, "counter-example"))
        else:
            least = age >= lowest * (1 - 1e-9) and np.isclose(age, lowest) == (name == "round robin")
            checks.append(Check(name, bool(least and abs(staleness / everywhere - 1) <= 0.02), text))
    return checks


def sasgd_hardly_moves(study: Study) -> list[Check]:
    """C28: the mean step of SASGD over that of WKAFL at P / K = 300."""
    drawn = theory.uniform_draws(3000, 10, 4000, np.random.default_rng(6)).staleness[1500:]
    wkafl = float(np.mean([learning_rate(1.0, float(least), GAMMA) for least in drawn.min(axis=1)]))
    sasgd = float((1 / (drawn + 1)).mean())
    near = abs(sasgd / theory.expected_inverse_staleness(3000, 10) - 1) < 0.1
    return [Check("P = 3000, K = 10", near and sasgd / wkafl < 0.2, f"{sasgd:.4f} against {wkafl:.3f}")]


def asynchronous_saves_time(study: Study) -> list[Check]:
    """C31."""
    checks = []
    for name, waiting, going_on in theory.waiting_times().itertuples(index=False, name=None):
        ratio = going_on / waiting
        holds = abs(ratio - 1) <= 0.03 if name == "exponential" else ratio < 0.97
        checks.append(Check(name, bool(holds), f"{going_on:.4f} s against {waiting:.4f} s"))
    return checks


# Both theorems and their remarks


def no_long_run(study: Study, lr: Callable[[int], float], rate: str) -> list[Check]:
    """C22, C23: how the left side of the second condition as printed, at most 1/4, grows with the run (E13)."""
    sides = {length: theory.printed_condition(length, 0.1, 5, lr(length)) for length in (20, 100, 200)}
    text = ", ".join(f"10^{np.log10(side):.0f} at J = {length}" for length, side in sides.items())
    grows = min(sides.values()) > 1 and all(a < b for a, b in pairwise(sides.values()))
    return [Check(f"second condition, {rate}", grows, f"has to be at most 1/4: {text}", "vacuity")]


def stage_one(study: Study) -> list[Check]:
    """C22c: T1, and a bound that rises with tau_max and with G^2."""
    lrs, p2 = np.full(60, 0.05), np.full(60, 1 / 3)
    rising = {
        name: [theory.theorem51_bound(lrs, p2, **{**STAGE1, name: value}) for value in values]
        for name, values in {"max_staleness": (1, 3, 9), "dissimilarity_sq": (0.1, 0.3, 0.9)}.items()
    }
    return [*_both_sides("5.1"), *(_monotone(name, values) for name, values in rising.items())]


def first_rate(study: Study) -> list[Check]:
    """C23c: with eta = sqrt(K / J) and G = 0 the right side falls like the root of J, and for long runs of K J."""
    free = {**STAGE1, "dissimilarity_sq": 0.0}

    def bound(count: int, length: int) -> float:
        lr = np.sqrt(count / length)
        return theory.theorem51_bound(np.full(length, lr), np.full(length, 1 / count), **free) / (lr / 2)

    def limit(count: float, length: float) -> float:
        return float(theory.remark52_terms(np.sqrt(count / length), count, length, **free).total)

    found = {
        "in J, the bound, 500 to 2000": np.log(bound(1, 2000) / bound(1, 500)) / np.log(4),
        "in J, its terms at 10¹⁰": np.log(limit(4, 4e10) / limit(4, 1e10)) / np.log(4),
        "in K, its terms at 10¹⁰": np.log(limit(4, 1e10) / limit(1, 1e10)) / np.log(4),
    }
    return [Check(name, bool(abs(slope + 0.5) <= 0.05), f"slope {slope:.3f}") for name, slope in found.items()]


def stage_two(study: Study) -> list[Check]:
    """C24c: T2, and a bound that rises with sigma_g and with B, as V_j falls."""
    lrs, checks = np.full(40, 0.01), _both_sides("5.3")
    for name, values in {"est_error_sq": (0.1, 0.4, 1.6), "stage2_clip_factor": (1.0, 2.0, 4.0)}.items():
        made = [theory.theorem53(lrs, **{**STAGE2, name: value}) for value in values]
        checks.append(_monotone(name, [one.bound / one.coefficients.min() for one in made]))
    return checks


def one_biased_client() -> tuple[bool, str]:
    """C24: F = w²/2, full batches, and one client whose minimum is at 1: sigma_c is 0 there, sigma_g is 1 (E16)."""
    lr, length, w, left = 0.01, 1500, 3.0, 0.0
    given = {**STAGE2, "momentum_alpha": 0.0, "stage2_clip_factor": 1.0, "spread_var": 0.0, "gap": w**2 / 2}
    made = {e: theory.theorem53(np.full(length, lr), **{**given, "est_error_sq": e}) for e in (0.0, 1.0)}
    for coefficient in made[0.0].coefficients:
        left += coefficient * w**2 / length
        w -= lr * (w - 1)
    wrong, right = made[0.0].bound, made[1.0].bound
    return wrong < left <= right, f"left side {left:.6f}; right side {wrong:.6f} with σ_c, {right:.6f} with σ_g"


def second_rate(study: Study) -> list[Check]:
    """C25c: with C = 0 the bound falls like the root of J; else to a plateau in proportion to C."""
    slope = float(np.log(theory.bound53_by_length(800, 0, 0) / theory.bound53_by_length(200, 0, 0)) / np.log(4))
    small, large = (theory.bound53_by_length(1600, c, 0) - theory.bound53_by_length(1600, 0, 0) for c in (0.5, 1.0))
    return [
        Check("C = 0", bool(abs(slope + 0.5) <= 0.05), f"slope {slope:.3f}"),
        Check("twice C", bool(abs(large / small - 2) <= 0.05), f"plateau × {large / small:.3f}"),
    ]


def alike_and_noisy() -> tuple[bool, str]:
    """C25: clients that hold the same data, mini-batches with noise of variance 1: C is 1/K (E18)."""
    noise = np.random.default_rng(0).standard_normal((20_000, 10)).mean(axis=1)
    found = float(theory.estimate_constant((noise**2).mean(), 0.0, 0.0))
    return found > 0.05, f"C = {found:.2f} with ten gradients of one distribution"


def largest_spread(study: Study, printed: bool) -> list[Check]:
    """E17: whether some learning rate makes all V_j positive, above and below M_e = (1 - alpha) / 6."""
    given = {**STAGE2, "est_error_sq": 0.0, "spread_var": 0.0}
    rates = [theory.lr_limit_positive(100, **{**given, "spread_slope": 0.15 * factor}) for factor in (0.9, 1.1)]
    text = f"largest η L at M_e = 0.135: {rates[0]:.4f}, at 0.165: {rates[1]:g}"
    if printed:
        return [Check("M_e = 0.165, α = 0.1", rates[1] == 0, text, "counter-example")]
    return [Check("α = 0.1", rates[0] > 0 == rates[1], text)]


def first_condition(study: Study, printed: bool) -> list[Check]:
    """E12: what is left of the terms that have to cancel, at the first condition's limit with and without s_j."""
    mass = 1 / (1 - 0.8)
    lr = 0.5 if printed else 0.5 / mass
    left = -lr / 2 + lr**2 / 2 * mass
    text = f"s_j = {mass:g}, L = 1: {left:+.3f} of D_j is left, which must not be positive"
    return [Check("α = 0.8", left > 0 if printed else left <= 0, text, "counter-example" if printed else "statement")]


def replaced_gradients() -> tuple[bool, str]:
    """E15: F = w²/2 from w = 1, two steps with noise ±1, momentum of the first gradient: exact expectations."""
    alpha, lr, parts = 0.5, 0.1, []
    for noise in (-1.0, 1.0):
        after = 1.0 - lr * (1.0 + noise)
        parts.append((after * (after + alpha * (1.0 + noise)), after * (after + alpha * 1.0)))
    real, replaced = np.mean(parts, axis=0)
    return abs(real - replaced + alpha * lr) < 1e-12, f"E⟨∇F(w₂), g₂⟩ = {real:.3f}, with means {replaced:.3f}"


# Equations, listings and the paper's own numbers


def smoothness(study: Study, printed: bool) -> list[Check]:
    """E1: F = w²/2 with L = 1."""
    loss, here, there = (lambda w: w**2 / 2), 1.0, 0.0
    right = here * (there - here) + (there - here) ** 2 / 2
    left = loss(here) - loss(there) if printed else loss(there) - loss(here)
    shows: Shows = "counter-example" if printed else "statement"
    return [Check("w²/2 from 1 to 0", (left > right) == printed, f"left {left:g}, right {right:g}", shows)]


def unrolled(study: Study, printed: bool) -> list[Check]:
    """E2: two updates with momentum from the estimate (Eq. 4) or the aggregate, against Section 5's sum."""
    rows = torch.tensor
    steps = [
        (rows([[1.0, 0.0], [0.8, 0.6], [0.0, 1.5]]), rows([0.0, 0.0, 0.0])),
        (rows([[0.0, 1.0], [0.6, 0.8], [1.0, 0.5]]), rows([0.0, 1.0, 0.0])),
    ]
    carried, made, own = torch.zeros(2), [], []
    for grads, staleness in steps:
        one = aggregate(grads + 0.5 * carried, estimation_weights(staleness), sim_beta=2, sim_min=0.3)
        carried = one.estimate if printed else one.gradient
        made.append(one.gradient)
        own.append(one.weights @ grads)
    away = float((made[1] - own[1] - 0.5 * own[0]).norm())
    shows: Shows = "counter-example" if printed else "statement"
    return [Check("two updates", (away > 1e-3) == printed, f"{round(away, 3):.1g} from the sum of Section 5", shows)]


def stage_rules() -> tuple[bool, str]:
    """E4: three losses around a threshold."""
    losses = (0.5, 0.6, 0.7)
    total, mean = (stage_loss(losses, rule) for rule in ("sum_loss", "mean_loss"))
    return (mean <= 0.6) != (total <= 0.6), f"losses {losses}, ε = 0.6: sum {total:.1f}, mean {mean:.1f}"


def nobody_selected() -> tuple[bool, str]:
    """E11: twelve orthogonal gradients of one length and age, threshold 0.3."""
    grads = torch.eye(12, dtype=torch.float64)
    largest = float(similarities(grads, grads.mean(0)).max())
    return largest < 0.3, f"the largest similarity is {largest:.3f}: Eq. 8 is 0/0"


def _cells(task: str, quantity: str, method: str) -> np.ndarray:
    frame = PRINTED.rows(source="table3", task=task, quantity=quantity, method=method)
    return frame.sort_values("labels")["value"].to_numpy()


def gains_over_gsgm() -> tuple[bool, str]:
    """E20: on CIFAR-10, in points."""
    gains = 100 * (_cells("cifar10", "accuracy", "WKAFL") - _cells("cifar10", "accuracy", "GSGM"))
    return gains.min() > 5.83, f"Table 3 has {gains.min():.2f} to {gains.max():.2f} there"


def gsgms_accuracy() -> tuple[bool, str]:
    """E21: with one label."""
    gsgm, sasgd = (_cells("digits", "accuracy", method)[0] for method in ("GSGM", "SASGD"))
    return abs(gsgm - 0.8553) > 0.01 and sasgd == 0.8553, f"Table 3 has {gsgm:g}; {sasgd:g} is SASGD's"


def increment(study: Study, printed: bool) -> list[Check]:
    """E22: 0.0060 against 0.0107."""
    ours, theirs = (_cells("digits", "stability", method)[0] for method in ("WKAFL", "TWAFL"))
    text = f"{theirs:g} is {theirs / ours - 1:.0%} more than {ours:g}, {ours:g} is {1 - ours / theirs:.0%} less"
    if printed:
        return [Check("increment", abs(theirs / ours - 1 - 0.44) > 0.05, text, "counter-example")]
    return [Check("reduction", abs(1 - ours / theirs - 0.44) < 0.005, text)]


def cifars_levels() -> tuple[bool, str]:
    """E23: of CIFAR-10 in Table 2."""
    table = PRINTED.rows(source="table2", task="cifar10")
    levels = sorted(set(table["clients"] / table["aggregated"]))
    return 100 not in levels, f"Table 2 has {', '.join(f'{level:g}' for level in levels)}"


def one_experiment_twice() -> tuple[bool, str]:
    """E24: TWAFL on CIFAR-10, P/K = 150, one label."""
    cell = {"task": "cifar10", "method": "TWAFL", "quantity": "accuracy", "clients": 3000, "labels": 1}
    two, three = (PRINTED.number(source=f"table{n}", aggregated=20, **cell) for n in (2, 3))
    return two != three, f"{two:g} in Table 2, {three:g} in Table 3"


def falls_in_every_column() -> tuple[bool, str]:
    """E26: accuracy by level, and stability by labels, of WKAFL on EMNIST MNIST."""
    table = PRINTED.rows(source="table2", task="digits", method="WKAFL", quantity="accuracy")
    by_level = table.assign(level=table["clients"] / table["aggregated"]).sort_values("level")["value"].tolist()
    stable = _cells("digits", "stability", "WKAFL").tolist()
    shown = f"accuracy by level {by_level}, stability by labels {stable}"
    return by_level != sorted(by_level, reverse=True) and stable != sorted(stable, reverse=True), shown


# What the parts of the method do


def clipping_helps() -> tuple[bool, str]:
    """C26: the toy of Figure 4."""
    [(_, before, after, improved)] = theory.clipping((1.2,), 200).itertuples(index=False, name=None)
    text = f"mean cosine {before:.3f} → {after:.3f}, better in {improved:.0%} of 200 draws"
    return bool(after > before and improved > 0.95), text


def momentum_averages() -> tuple[bool, str]:
    """C27a: independent client errors, relative to the signal, before and after Eq. 4 (D2)."""
    rng, alpha, count = np.random.default_rng(0), 0.1, 10
    own, others = rng.standard_normal(40_000), rng.standard_normal((40_000, count)).mean(axis=1)
    measured = float(((own + alpha * others) / (1 + alpha)).var())
    expected = float(theory.relative_non_iid_variance(1.0, count, alpha))
    holds = measured < 1 and abs(measured / expected - 1) < 0.03
    return holds, f"40,000 draws: variance × {measured:.3f}, formula {expected:.3f}"


system, as_printed = (partial(make_claim, "WKAFL", kind=kind) for kind in ("system", "theory"))
corrected = partial(as_printed, corrected=True)
CLAIMS = [
    system("C01", "Fig. 2 a",
           "Exponential weights leave few dominating gradients: at most five in almost all updates.",
           "share of updates with at most five weights above 0.1, at least 0.95", few_dominate),
    system("C02", "Fig. 2 b",
           "More aggregated gradients are staler ones, about linearly: the two remedies contradict.",
           "slope > 0 and R² ≥ 0.9 over nine decays of the weights", contradiction),
    as_printed("C21", "Sec. 6.3.1", "The least average staleness is about P/(2K).",
               "mean staleness of used gradients under five laws", partial(least_staleness, printed=True)),
    corrected("C21c", "Sec. 6.3.1; E29",
              "The mean staleness is P/K − 1 for every law, if gaps stay short; (P/K − 1)/2 is the least mean age.",
              "both means under five laws of arrival", partial(least_staleness, printed=False),
              proof="sec:wkafl-staleness"),
    as_printed("C22", "Theorem 5.1", "Stage one converges; staleness and non-IID data worsen the bound.",
               "its second condition, by the length of the run, η L = 0.001",
               partial(no_long_run, lr=lambda length: 0.001, rate="η L = 0.001")),
    corrected("C22c", "Theorem 5.1; E12 to E15", "(13) holds under (C1) and (C2), up to a gap in the proof (E15).",
              "(13) on T1; right side over τ_max and G²", stage_one),
    as_printed("C23", "Remark 5.2", "For G = 0 and long runs the rate is O(1/√(KJ)): linear speed-up.",
               "Theorem 5.1's second condition at η = √(K/J)",
               partial(no_long_run, lr=lambda length: (10 / length) ** 0.5, rate="η L = √(10/J)")),
    corrected("C23c", "Remark 5.2", "For G = 0 the right side of (13) over η/2 is O(1/√(KJ)).",
              "log-log slopes −1/2 ± 0.05", first_rate, proof="sec:wkafl-theorem1"),
    as_printed("C24", "Theorem 5.3", "Stage two converges, if σ_c in (14) is read as the clients' variance.",
               "(14) with one biased client and full batches",
               exact("one biased client", one_biased_client, "counter-example")),
    corrected("C24c", "Theorem 5.3; E16",
              "(14) holds with the error σ_g of the estimate; smaller σ_g and B are better.",
              "(14) on T2; right side over min V in σ_g and B", stage_two, proof="sec:wkafl-theorem2"),
    as_printed("C25", "Remark 5.4", "With IID data C = 0, and with unbounded staleness the rate is O(1/√J).",
               "C of equal clients with mini-batches", exact("equal clients", alike_and_noisy, "counter-example")),
    corrected("C25c", "Remark 5.4; E18, E19",
              "With C = 0 the rate is O(1/√J), else O(1/√J + C); staleness does not enter (14).",
              "log-log slope −1/2 ± 0.05 for C = 0; plateau in proportion to C", second_rate,
              proof="sec:wkafl-theorem2"),
    as_printed("C26", "Fig. 4", "Clipping brings the estimate closer to the true gradient when stale ones are long.",
               "cosine before and after, on the toy of Figure 4", exact("200 draws", clipping_helps)),
    as_printed("C27a", "Sec. 4.3.1", "Accumulated gradients reduce the error of non-IID data.",
               "its variance relative to the signal", exact("Eq. 4", momentum_averages), proof="sec:wkafl-momentum"),
    system("C28", "Sec. 4.3.4", "Dividing by staleness, as SASGD does, slows training too much at large scale.",
           "mean step SASGD / WKAFL < 0.2 at P/K = 300", sasgd_hardly_moves),
    system("C31", "Sec. 1", "K-async updates take less time than K-sync ones where jobs are new longer than used.",
           "equal ± 3 % for exponential durations, less for the two others", asynchronous_saves_time),
    as_printed("E01", "Assumption 3.1", "F(w₁) − F(w₂) ≤ ⟨∇F(w₁), w₂ − w₁⟩ + L/2 ‖w₂ − w₁‖².", "both sides",
               partial(smoothness, printed=True)),
    corrected("E01c", "Assumption 3.1", "F(w₂) − F(w₁) ≤ ⟨∇F(w₁), w₂ − w₁⟩ + L/2 ‖w₂ − w₁‖², if F is L-smooth.",
              "both sides", partial(smoothness, printed=False), proof="sec:wkafl-theorem1"),
    as_printed("E02", "Eq. 4, Section 5", "Momentum from the estimate unrolls into Section 5's sum.", "two updates",
               partial(unrolled, printed=True)),
    corrected("E02c", "Eq. 4, Section 5", "Momentum from the aggregated gradient unrolls into Section 5's sum.",
              "two updates", partial(unrolled, printed=False), proof="sec:wkafl-momentum"),
    as_printed("E04", "Algorithm 2, line 10", "The sum of losses and their mean decide alike.", "three losses",
               exact("ε = 0.6", stage_rules, "counter-example")),
    as_printed("E11", "Eq. 8", "Selection has weights that add up to one.", "twelve orthogonal gradients",
               exact("K = 12", nobody_selected, "counter-example")),
    as_printed("E12", "Theorem 5.1, first condition", "η_j ≤ 1/(2L(1 + M_G/m)) makes the terms of step 6 cancel.",
               "what is left at its limit", partial(first_condition, printed=True)),
    corrected("E12c", "Theorem 5.1, (C1)", "η_j ≤ 1/(2L s_j (1 + M_c/m)) does.", "what is left at its limit",
              partial(first_condition, printed=False), proof="sec:wkafl-theorem1"),
    as_printed("E15", "Theorem 5.1, step 1", "Past gradients may be replaced by their means.",
               "two noisy steps, exactly", exact("F = w²/2", replaced_gradients, "counter-example")),
    as_printed("E17", "Theorem 5.3, V_j ≥ 0", "A small learning rate makes every V_j positive.",
               "largest learning rate", partial(largest_spread, printed=True)),
    corrected("E17c", "Theorem 5.3, V_j ≥ 0", "It does where M_e is below (1 − α)/6.", "largest learning rate",
              partial(largest_spread, printed=False), proof="sec:wkafl-theorem2"),
    as_printed("E20", "Sec. 1 on Table 3", "On CIFAR-10 WKAFL gains 5.83 to 10.59 points over GSGM.",
               "printed accuracies", exact("three cells", gains_over_gsgm, "counter-example")),
    as_printed("E21", "Sec. 6.3.2 on Table 3", "GSGM's accuracy with one label is 85.53 percent.",
               "printed accuracies", exact("one label", gsgms_accuracy, "counter-example")),
    as_printed("E22", "Sec. 6.3.2 on Table 3", "0.0107 is a 44 percent increment over 0.0060.", "printed stabilities",
               partial(increment, printed=True)),
    corrected("E22c", "Sec. 6.3.2 on Table 3", "0.0060 is 44 percent less than 0.0107.", "printed stabilities",
              partial(increment, printed=False), proof="sec:wkafl-errata"),
    as_printed("E23", "Sec. 6.3 on Table 2", "On CIFAR-10 the level of staleness goes from 100 to 300.",
               "printed levels", exact("three levels", cifars_levels, "counter-example")),
    as_printed("E24", "Tables 2, 3", "One experiment has one accuracy in both tables.", "printed accuracies",
               exact("TWAFL on CIFAR-10", one_experiment_twice, "counter-example")),
    as_printed("E26", "Secs 6.3.1, 6.3.2 on Tables 2, 3",
               "Accuracy falls with staleness, and stability with labels, throughout.",
               "WKAFL's printed numbers", exact("EMNIST MNIST", falls_in_every_column, "counter-example")),
]  # fmt: skip
