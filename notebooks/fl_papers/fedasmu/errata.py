"""FedASMU's exact statements: what is printed and what it should be, in numbers (E01 to E19).

A function of the second part returns whether something was found, and what was compared; of a statement that has to
be corrected twice: what shows the printed one false, and what was checked of the corrected one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import NamedTuple

import numpy as np
import pandas as pd

from fl_core.experiments.claims import Claim, exact, make_claim
from fl_core.formulas import fedasmu as formulas
from fl_core.formulas.fedasmu import Controls, blend, fresh_slope, mixing_weight
from fl_papers.fedasmu import theory
from fl_papers.fedasmu.tables import deviations
from fl_papers.fedasmu.theory import Vector, grad_estimate

Shown = tuple[bool | np.bool_, str]
PROBLEMS = 20  # Random ones on which formulas are compared.

# Printed formulas beside difference quotients and exact gradients


class Bowl(NamedTuple):
    """A quadratic loss."""

    curvature: Vector
    centre: Vector

    def gradient(self, w: Vector) -> Vector:
        """Return the gradient at a model."""
        return self.curvature * (w - self.centre)

    def slope(self, model: Callable[[float], Vector], at: float) -> float:
        """Return the derivative of the loss of ``model(x)`` by x, a difference quotient (exact but for rounding)."""
        up, down = (self.gradient(w) @ (w - self.centre) for w in (model(at + 1e-4), model(at - 1e-4)))
        return float(up - down) / 4e-4


def bowls() -> Iterator[tuple[np.random.Generator, Bowl, Vector, Vector]]:
    """Yield random losses with two random models."""
    for seed in range(PROBLEMS):
        rng = np.random.default_rng(seed)
        yield rng, Bowl(rng.uniform(0.5, 2, 7), rng.normal(size=7)), rng.normal(size=7), rng.normal(size=7)


@cache
def estimates(epochs: int = 5, batches: int = 16, lr: float = 1e-4) -> pd.DataFrame:
    """Return the part of g_i along the gradient at w_o, over that gradient's length: 1 if equal.

    Columns ``printed`` (E01, E08), ``merged`` (right, but the upload contains a merge after half of the steps, E09)
    and ``derived``; ``path`` is the largest entry of ``derived`` less the mean gradient of the path.
    """
    rows, steps = [], epochs * batches
    for _, bowl, start, fresh in bowls():
        uploads, met = {}, list[Vector]()
        for merged in (True, False):
            w, met = start, list[Vector]()
            for step in range(steps):
                w = blend(w, fresh, 0.15) if merged and step == steps // 2 else w
                met.append(bowl.gradient(w))
                w = w - lr * met[-1]
            uploads[merged] = w
        derived, first = grad_estimate(start, uploads[False], lr, steps), bowl.gradient(start)
        found = {"printed": -grad_estimate(start, uploads[False], lr, epochs), "derived": derived,
                 "merged": grad_estimate(start, uploads[True], lr, steps)}  # fmt: skip
        row = {name: float(g @ first / (first @ first)) for name, g in found.items()}
        rows.append(row | {"path": float(np.abs(derived - np.mean(met, axis=0)).max())})
    return pd.DataFrame(rows)


@cache
def merge_slopes(beta: float = 0.3) -> pd.DataFrame:
    """Return the derivative of the loss after a merge by its weight beta (E07).

    Columns ``true``, ``derived`` (the gradient at w^a times w_g - w^b), ``printed`` ((9): the gradient at w^b) and
    ``letters`` (the appendix read with the letters of (7): times w_g - w^a).
    """
    rows = []
    for _, bowl, before, fresh in bowls():
        after = blend(before, fresh, beta)
        there, models = bowl.gradient(after), (fresh, before, after)
        rows.append(
            {"true": bowl.slope(partial(blend, before, fresh), beta), "derived": fresh_slope(there, *models),
             "printed": fresh_slope(bowl.gradient(before), *models),
             "letters": fresh_slope(there, *models, form="printed")}
        )  # fmt: skip
    return pd.DataFrame(rows)


@cache
def overwritten(between: int = 4, alpha: float = 0.2) -> pd.DataFrame:
    """Return the derivative of F_i(w_o) by alpha_p with aggregations of other devices in between (E06).

    Columns ``true``, ``printed`` (as if there were none), ``derived`` (times the product of 1 - alpha of those, D4).
    """

    def origin(own: float) -> Vector:
        w = blend(before, upload, own)
        for model, weight in zip(others, weights, strict=True):
            w = blend(w, model, weight)
        return w

    rows = []
    for rng, bowl, before, upload in bowls():
        others, weights = rng.normal(size=(between, 7)), rng.uniform(0.05, 0.3, between)
        printed = float(bowl.gradient(origin(alpha)) @ (upload - before))
        left = formulas.propagation([1.0, *(1 - weights)], 0, between + 1)
        rows.append({"true": bowl.slope(origin, alpha), "printed": printed, "derived": printed * left})
    return pd.DataFrame(rows)


# What the claims say


def fedasync() -> Shown:
    """C34: equal histories."""
    zero, other = theory.without_both_parts()
    applied, discarded = (zero.outcomes[name] for name in ("applied", "discarded"))
    detail = f"{applied} uploads mixed in and {discarded} dropped on quadratic losses: equal bit for bit"
    return zero == other and discarded > 0, detail


def distance() -> Shown:
    """C40: smaller with the merge, on average."""
    found = [theory.distances(seed) for seed in range(3)]
    nearer = sum(int((one["merged"] < one["alone"]).sum()) for one in found)
    lower = all(one["merged"].mean() < one["alone"].mean() for one in found)
    return lower, f"nearer in {nearer} of {sum(map(len, found))} uploads of three runs on quadratic losses"


@cache
def convergence() -> tuple[Shown, Shown]:
    """C41: E13; the corrected bound."""
    stuck, found = theory.one_reporter((3, 4, 5, 10, 20)), theory.corrected_theorem(range(2), 100)
    wrong = stuck["|grad F|²"] > stuck["printed"]
    least = stuck["steps"][wrong].min()
    holds = (found["mean of |grad F|²"] <= found["bound"]).all() and not found["rounds violated"].sum()
    most = (found["mean of |grad F|²"] / found["bound"]).max()
    detail = f"one device of two reports: |∇F|² stays 0.0025, above the bound from {least} local steps on"
    other = f"in {len(found)} random runs the mean of |∇F|² is at most {most:.2g} of the bound"
    return (wrong.any(), detail), (holds, other)


def descent() -> tuple[Shown, Shown]:
    """C42: a printed step (E01, E02), and one with the right signs of one device's gradient (E15)."""
    printed, derived = (theory.steps_of_the_controls(form) for form in ("printed", "derived"))
    raised, mean = printed["after"] > printed["before"], derived["mean after"] > derived["mean before"]
    lower = int((derived["after"] < derived["before"]).sum())
    detail = (
        f"of {len(printed)} random problems a printed step raises the device's own loss in {raised.sum()}, and one "
        f"with the right signs the mean loss in {mean.sum()}"
    )
    other = f"the device's own loss falls in {lower} of {len(derived)} random problems"
    return (raised.any() and mean.any(), detail), (lower == len(derived), other)


def bound_of_99() -> Shown:
    """C43: nothing is dropped (E17)."""
    (none, largest), (some, _) = theory.dropped(99), theory.dropped(12)
    return none == 0 < some, f"{none} of 5,000 uploads dropped, largest staleness {largest}; with τ = 12 {some:,}"


def weight() -> tuple[Shown, Shown]:
    """C45: E04, E14."""
    negative = mixing_weight(4999, 10, Controls(1.0, 0.5, -0.05))
    moved = [
        formulas.project_controls(Controls(x, 0.5, y)) for x in (-1.0, 0.0, 1.0, 30.0) for y in (-0.05, 0.0, 1.0)
    ]
    found = [mixing_weight(t, s, controls) for controls in moved for t in (0, 1, 99, 4999) for s in (1, 10, 99)]
    low, high = min(found), max(found)
    detail = f"α = {negative:.3f} once ι = −0.05 (t = 4999, s = 10)"
    other = f"α from {low:.2g} to {high:.2g} in {len(found)} cases"
    return (negative < 0, detail), (0 <= low <= high < 1, other)


def estimate() -> tuple[Shown, Shown]:
    """C46: E01, E08, E09."""
    found = estimates()
    printed, merged, path = found["printed"], found["merged"], found["path"].max()
    detail = (
        f"80 steps in 5 epochs: its part along the gradient is {printed.mean():.1f} times as long; after a merge, "
        f"with sign and divisor right, {merged.min():.1f} to {merged.max():.1f} times"
    )
    # how small rounding is depends on the processor, so only the bound is told
    other = f"{'off by less' if path < 1e-9 else 'NOT off by less'} than 1e-9 in {PROBLEMS} random problems"
    return ((printed < -2).all() and merged.std() > 1, detail), (path < 1e-9, other)


def derivatives(table: Callable[[], pd.DataFrame], *printed: str) -> tuple[Shown, Shown]:
    """C47 (E07), C48 (E06): derivatives in the columns `printed` are wrong in all problems, and the derived right."""
    frame = table()
    errors = {name: (frame[name] / frame["true"] - 1).abs() for name in (*printed, "derived")}
    ends = {name: dict.fromkeys(f"{end:.1g}" for end in (each.min(), each.max())) for name, each in errors.items()}
    said = {name: f"{name}: off by {' to '.join(found)}" for name, found in ends.items()}
    right = (errors["derived"] < 1e-9).all()
    said["derived"] = f"derived: {'off by less' if right else 'NOT off by less'} than 1e-9"
    about = f" times the derivative, in {PROBLEMS} random problems"
    return (
        (all((errors[name] > 1e-3).all() for name in printed), ", ".join(said[name] for name in printed) + about),
        (right, said["derived"] + about),
    )


def stay() -> Shown:
    """C49: E11."""
    printed = dict(zip(formulas.ACTIONS, (1, 1, -1), strict=True))
    return printed["stay"] != 0, f"as printed: stay {printed['stay']:+d}, add {printed['add']:+d}"


def merges() -> Shown:
    """C50: E12. Line 10 changes w_{o,l-1}; the condition of line 8, read as a state, stays true from then on."""
    found = [epoch - 1 for epoch in range(1, 6) if epoch >= 2]
    return found != [2], f"l* = 2 of 5: merges after {', '.join(map(str, found))} epochs"


def loop() -> Shown:
    """C51: E05."""
    lost = theory.dropped(12)[0]
    return lost > 0, f"τ = 12: {lost:,} passes of the loop until 5,000 versions are made, each of which shifts t"


def ranges() -> Shown:
    """C52: E19."""
    found = deviations()
    missing = int(found["text"].isna().sum())
    return len(found) > 0, f"{len(found) - missing} ends of ranges differ, {missing} are not printed"


# The claims

claim = partial(make_claim, "FEDASMU")
Both = Callable[[], tuple[Shown, Shown]]


def false(number: int, source: str, statement: str, endpoint: str, errata: str, show: Callable[[], Shown]) -> Claim:
    """Return a statement as printed that something shows false."""
    judge = exact(errata, show, "counter-example")
    return claim(f"C{number:02d}", f"{source}; {errata}", statement, endpoint, judge, "theory")


def theorem(
    number: int, source: str, endpoint: str, errata: str, show: Both, says: str, right: str, proof: str
) -> list[Claim]:
    """Return a statement as printed (`says`), and as corrected (`right`) with the section of its proof."""
    corrected = claim(
        f"C{number:02d}c", f"{source}; {errata}", right, endpoint, exact("all cases", lambda: show()[1]), "theory",
        corrected=True, proof=f"sec:fedasmu-{proof}",
    )  # fmt: skip
    return [false(number, source, says, endpoint, errata, lambda: show()[0]), corrected]


CLAIMS = [
    claim("C34", "section 5, E18", "FedASMU-0 is FedAsync with a staleness bound.",
          "histories of FedASMU-0 and FedAsync+Poly; but the accuracies printed for them differ",
          exact("equal histories", fedasync), "definition"),
    claim("C40", "section 4", "Merging a fresh model lowers the staleness of the upload.",
          "mean ‖w_t − w_o^i‖ at arrival: with the merge below without, same tasks",
          exact("mean distance", distance), "theory"),
    *theorem(41, "Theorem 1", "both sides of the bound", "E13", convergence,
             "FedASMU converges to a critical point.",
             "If convex, and weights ignore noise, it reaches a neighbourhood (V², staleness, merges).", "corrected"),
    *theorem(42, "(3), appendix", "losses before and after a step on random quadratic losses", "E01, E02, E15",
             descent, "One step on λ, σ and ι lowers the loss of the global model.",
             "With g_i = (w_o − w_o^i) / (η K) of small local steps, and −λ ln s for ln σ, a small step lowers the "
             "device's own loss, if its previous upload made w_o.", "signs"),
    claim("C43", "section 4, E17", "A remark, no claim: the paper's staleness bound of 99 never removes an upload.",
          "uploads dropped on the paper's schedule", exact("τ = 99", bound_of_99), "definition"),
    *theorem(45, "(2), Theorem 1", "the weight by its formula", "E04, E14", weight,
             "The weight of an upload is above 0 and at most 1.",
             "With √(t + 1), and λ and ι projected to at least 0, it is from 0 to below 1.", "weight"),
    *theorem(46, "appendix", "the estimate beside gradients", "E01, E08, E09", estimate,
             "(w_o^i − w_o) / (η L), L epochs, is about the gradient at w_o, whatever was merged.",
             "(w_o − w_o^i) / (η K), K steps, is the path's mean gradient, if nothing was merged.", "learning"),
    *theorem(47, "(9), appendix", "derivatives beside difference quotients", "E07",
             partial(derivatives, merge_slopes, "printed", "letters"),
             "The derivative by γ and υ takes the gradient at w^b.",
             "It takes that at w^a, times w_g − w^b.", "fresh"),
    *theorem(48, "(3), appendix", "derivatives beside difference quotients, four aggregations in between", "E06",
             partial(derivatives, overwritten, "printed"),
             "The derivative by λ, σ and ι needs the device's last aggregation only.",
             "It has a further factor, Π(1 − α) of the aggregations in between.", "between"),
    false(49, "(6)", "The action stay leaves the slot where it is.", "the printed rule", "E11", stay),
    false(50, "Algorithm 2", "The fresh model is merged once, after l* epochs.", "lines 3 to 17 as printed", "E12",
          merges),
    false(51, "Algorithm 1", "t − o + 1 counts the versions since the task began.", "lines 7 to 16 as printed", "E05",
          loop),
    false(52, "section 5", "The ranges of the text are those of Tables 1 and 2.", "ends of the ranges", "E19",
          ranges),
]  # fmt: skip
