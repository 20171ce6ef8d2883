"""FedASMU's exact statements: what is printed and what it should be, in numbers (E01 to E19).

Functions of the second half return whether what their name says was found, and what was compared, for the claims.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any, Literal

import numpy as np
import pandas as pd

from fl_core.experiments.claims import Check, Claim, Judge, Part, make_claim
from fl_core.experiments.study import Study
from fl_core.formulas.fedasmu import (
    ACTIONS,
    Controls,
    blend,
    fresh_slope,
    mixing_weight,
    project_controls,
    propagation,
)
from fl_papers.fedasmu import theory
from fl_papers.fedasmu.tables import deviations
from fl_papers.fedasmu.theory import Vector, grad_estimate

Shown = tuple[bool | np.bool_, str]

# Printed formulas beside difference quotients and exact gradients


@cache
def estimates(epochs: int = 5, batches: int = 16, lr: float = 1e-4, problems: int = 20) -> pd.DataFrame:
    """Return g_i relative to the gradient at w_o, on random quadratics: the part along it (1 if equal).

    Columns ``printed`` (E01), ``epochs`` (right sign, divided by the epochs, E08), ``merged`` (right, but the upload
    contains a merge after half of the steps, E09), ``derived``, and ``path``: ``derived`` less the mean gradient of
    the path, its largest entry.
    """
    rows, steps = [], epochs * batches
    for seed in range(problems):
        rng = np.random.default_rng(seed)
        curvature, centre, start, fresh = rng.uniform(0.5, 2, 7), *rng.normal(size=(3, 7))
        first = curvature * (start - centre)
        walked = {}
        for merged in (False, True):
            w, met = start, []
            for step in range(steps):
                w = blend(w, fresh, 0.15) if merged and step == steps // 2 else w
                met.append(curvature * (w - centre))
                w = w - lr * met[-1]
            walked[merged] = w, np.mean(met, axis=0)
        upload, mean = walked[False]
        cases = {"printed": (upload, epochs, -1), "epochs": (upload, epochs, 1), "derived": (upload, steps, 1),
                 "merged": (walked[True][0], steps, 1)}  # fmt: skip
        found = {name: sign * grad_estimate(start, w, lr, count) for name, (w, count, sign) in cases.items()}
        row = {name: float(g @ first / (first @ first)) for name, g in found.items()}
        rows.append(row | {"path": float(np.abs(found["derived"] - mean).max())})
    return pd.DataFrame(rows)


@cache
def merge_slopes(problems: int = 20) -> pd.DataFrame:
    """Return the derivative of the loss after a merge by its weight beta, of random quadratics (E07).

    Columns ``true`` (a difference quotient), ``derived`` (the gradient at w^a times w_g - w^b), ``printed`` ((9): the
    gradient at w^b) and ``letters`` (the appendix read with the letters of (7): times w_g - w^a).
    """
    rows = []
    for seed in range(problems):
        rng = np.random.default_rng(seed)
        curvature, centre, before, fresh = rng.uniform(0.5, 2, 6), *rng.normal(size=(3, 6))
        loss, beta, step = lambda w, c=curvature, o=centre: 0.5 * c @ (w - o) ** 2, 0.3, 1e-6
        after = blend(before, fresh, beta)
        there, early = (curvature * (w - centre) for w in (after, before))
        true = (loss(blend(before, fresh, beta + step)) - loss(blend(before, fresh, beta - step))) / (2 * step)
        rows.append((float(true), fresh_slope(there, fresh, before, after), fresh_slope(early, fresh, before, after),
                     fresh_slope(there, fresh, before, after, form="printed")))  # fmt: skip
    return pd.DataFrame(rows, columns=["true", "derived", "printed", "letters"])


@cache
def overwritten(between: int = 4, problems: int = 20) -> pd.DataFrame:
    """Return the derivative of F_i(w_o) by alpha_p with aggregations of other devices in between (E06).

    Columns ``true`` (a difference quotient), ``printed`` (as if there were none) and ``derived`` (times the product
    of 1 - alpha of those in between, D4); all at the same w_o.
    """
    rows = []
    for seed in range(problems):
        rng = np.random.default_rng(seed)
        curvature, centre, w_p, upload = rng.uniform(0.5, 2, 5), *rng.normal(size=(3, 5))
        others, weights = rng.normal(size=(between, 5)), rng.uniform(0.05, 0.3, between)

        def origin(alpha: float, w: Vector = w_p, own: Vector = upload, rest: Any = (others, weights)) -> Vector:
            w = blend(w, own, alpha)
            for model, weight in zip(*rest, strict=True):
                w = blend(w, model, weight)
            return w

        slope = curvature * (origin(0.2) - centre)
        ends = [0.5 * curvature @ (origin(0.2 + step) - centre) ** 2 for step in (1e-6, -1e-6)]
        printed = float(slope @ (upload - w_p))
        left = propagation([1.0, *(1 - weights)], 0, between + 1)
        rows.append((float(ends[0] - ends[1]) / 2e-6, printed, printed * left))
    return pd.DataFrame(rows, columns=["true", "printed", "derived"])


def literal_merges(slot: int, epochs: int) -> list[int]:
    """Return after how many epochs Algorithm 2 merges as its lines 3 to 17 are printed (E12)."""
    merges, arrived = [], False
    for epoch in range(1, epochs + 1):
        arrived = arrived or epoch == slot
        if arrived:
            merges.append(epoch - 1)  # line 10 changes w_{o,l-1}, and the condition of line 8 stays true
    return merges


# What the claims say


def equal_histories() -> Shown:
    """C34: of FedASMU-0 and FedAsync."""
    zero, fedasync = theory.without_both_parts()
    applied, discarded = (zero.outcomes[name] for name in ("applied", "discarded"))
    detail = f"{applied} uploads mixed in and {discarded} dropped on quadratic losses: equal bit for bit"
    return zero == fedasync and discarded > 0, detail


def smaller_mean_distance() -> Shown:
    """C40."""
    found = [theory.distances(seed) for seed in range(3)]
    nearer = sum(int((one["merged"] < one["alone"]).sum()) for one in found)
    lower = all(one["merged"].mean() < one["alone"].mean() for one in found)
    return lower, f"nearer in {nearer} of {sum(map(len, found))} uploads of three runs on quadratic losses"


@cache
def one_device_of_two() -> Shown:
    """C41 as printed: E13."""
    found = theory.one_reporter((3, 4, 5, 10, 20))
    wrong = found["|grad F|²"] > found["printed"]
    detail = (
        f"only one reports: |∇F|² stays 0.0025, above the bound from {found['steps'][wrong].min()} local steps on"
    )
    return wrong.any(), detail


@cache
def bound_of_the_neighbourhood() -> Shown:
    """C41 as corrected."""
    found = theory.corrected_theorem(range(2), 100)
    holds = (found["mean of |grad F|²"] <= found["bound"]).all() and not found["rounds violated"].sum()
    most = (found["mean of |grad F|²"] / found["bound"]).max()
    return holds, f"in {len(found)} random runs the mean of |∇F|² is at most {most:.2g} of the bound"


def steps_that_raise_the_loss() -> Shown:
    """C42 as printed: E01 and E02; E15."""
    printed, derived = (theory.steps_of_the_controls(form) for form in ("printed", "derived"))
    raised, mean = printed["after"] > printed["before"], derived["mean after"] > derived["mean before"]
    return raised.any() and mean.any(), (
        f"of {len(printed)} random problems a printed step raises the device's own loss in {raised.sum()}, and one "
        f"with the right signs the mean loss in {mean.sum()}"
    )


def steps_that_lower_the_loss() -> Shown:
    """C42 as corrected."""
    found = theory.steps_of_the_controls("derived")
    lower = int((found["after"] < found["before"]).sum())
    return lower == len(found), f"the loss of the device falls in {lower} of {len(found)} random problems"


def nothing_dropped() -> Shown:
    """C43: E17."""
    (none, largest), (some, _) = theory.dropped(99), theory.dropped(12)
    return none == 0 < some, f"{none} of 5,000 uploads dropped, largest staleness {largest}; with τ = 12 {some:,}"


def weights_outside() -> Shown:
    """C45 as printed: E04, E14."""
    first = mixing_weight(0, 1, Controls(29.66, 0.5, 0.0), sqrt_offset=0)
    negative = mixing_weight(4999, 10, Controls(1.0, 0.5, -0.05))
    detail = f"α = {first:g} at t = 0; α = {negative:.3f} once ι = −0.05 (t = 4999, s = 10)"
    return first == 1 and negative < 0, detail


def weights_inside() -> Shown:
    """C45 as corrected."""
    moved = [project_controls(Controls(x, 0.5, y)) for x in (-1.0, 0.0, 1.0, 30.0) for y in (-0.05, 0.0, 1.0)]
    found = [mixing_weight(t, s, controls) for controls in moved for t in (0, 1, 99, 4999) for s in (1, 10, 99)]
    return all(
        0 <= alpha < 1 for alpha in found
    ), f"α from {min(found):.2g} to {max(found):.2g} in {len(found)} cases"


def estimates_that_are_no_gradients() -> Shown:
    """C46 as printed: E01, E08; E09."""
    found = estimates()
    return (found["printed"] < -2).all() and found["merged"].std() > 1, (
        f"80 steps in 5 epochs: its part along the gradient is {found['printed'].mean():.1f} times as long; after a "
        f"merge, with sign and divisor right, {found['merged'].min():.1f} to {found['merged'].max():.1f} times"
    )


def mean_gradient_of_the_path() -> Shown:
    """C46 as corrected."""
    found = estimates()
    return (found["path"] < 1e-9).all(), f"off by at most {found['path'].max():.1g} in {len(found)} random problems"


def differences(table: Callable[[], pd.DataFrame], *wrong: str) -> Shown:
    """Return that derivatives in the columns `wrong` are so everywhere; without any, that the derived are right."""
    frame = table()
    errors = {name: (frame[name] / frame["true"] - 1).abs() for name in (wrong or ("derived",))}
    found = all((error > 1e-3).all() if wrong else (error < 1e-5).all() for error in errors.values())
    text = ", ".join(f"{name}: off by {error.min():.1g} to {error.max():.1g}" for name, error in errors.items())
    return found, f"{text} times the derivative, in {len(frame)} random problems"


def gradients_elsewhere() -> Shown:
    """C47 as printed: E07."""
    return differences(merge_slopes, "printed", "letters")


def gradient_after_the_merge() -> Shown:
    """C47 as corrected."""
    return differences(merge_slopes)


def aggregations_in_between() -> Shown:
    """C48 as printed: E06."""
    return differences(overwritten, "printed")


def product_of_what_is_left() -> Shown:
    """C48 as corrected."""
    return differences(overwritten)


def stay_that_adds() -> Shown:
    """C49: E11."""
    printed = dict(zip(ACTIONS, (1, 1, -1), strict=True))
    return printed["stay"] != 0, f"as printed: stay {printed['stay']:+d}, add {printed['add']:+d}"


def merges_again_and_again() -> Shown:
    """C50: E12."""
    merges = literal_merges(2, 5)
    return merges != [2], f"l* = 2 of 5: merges after {merges} epochs"


def passes_without_a_version() -> Shown:
    """C51: E05."""
    lost = theory.dropped(12)[0]
    return lost > 0, f"τ = 12: {lost:,} passes of the loop until 5,000 versions are made, each of which shifts t"


def ranges_that_differ() -> Shown:
    """C52: E19."""
    found = deviations()
    missing = int(found["text"].isna().sum())
    return len(found) > 0, f"{len(found) - missing} ends of ranges differ, {missing} are not printed"


# The claims

claim = partial(make_claim, "FEDASMU")


def exact(show: Callable[[], Shown], shows: Literal["statement", "counter-example"] = "statement") -> Judge:
    """Return the judge of an exact statement, or of a counter-example to one."""

    def judge(study: Study) -> list[Part]:
        holds, detail = show()
        return [Check(show.__name__.replace("_", " "), bool(holds), detail, shows)]

    return judge


Row = tuple[str, str, Callable[[], Shown], str]


def theorem(
    number: int, source: str, statement: str, endpoint: str, false: Callable[[], Shown], *right: Row
) -> list[Claim]:
    """Return a statement as printed, with what shows it false, and as corrected: errata, what, check, proof."""
    rows = [claim(f"C{number:02d}", source, statement, endpoint, exact(false, "counter-example"), "theory")]
    for found, text, check, proof in right:
        own, where = exact(check), f"{source}; {found}"
        rows.append(claim(f"C{number:02d}c", where, text, endpoint, own, "theory", corrected=True, proof=proof))
    return rows


CLAIMS = [
    claim("C34", "section 5, E18", "FedASMU-0 is FedAsync with a staleness bound.",
          "histories of FedASMU-0 and FedAsync+Poly; but the accuracies printed for them differ",
          exact(equal_histories), "definition"),
    claim("C40", "section 4", "Merging a fresh model lowers the staleness of the upload.",
          "mean ‖w_t − w_o^i‖ at arrival: with the merge below without, same tasks",
          exact(smaller_mean_distance), "theory"),
    *theorem(41, "Theorem 1", "FedASMU converges to a critical point.", "both sides of the bound",
             one_device_of_two,
             ("E13", "It converges to a neighbourhood, as large as devices differ and weights allow.",
              bound_of_the_neighbourhood, "sec:fedasmu-corrected")),
    *theorem(42, "(3), appendix", "One step on λ, σ and ι lowers the loss of the global model.",
             "losses before and after a step on random quadratic losses", steps_that_raise_the_loss,
             ("E01, E02, E15", "With g_i = (w_o − w_o^i) / (η K), and −λ ln s for ln σ, a small step lowers the "
              "device's own loss, if its previous upload made w_o.", steps_that_lower_the_loss, "sec:fedasmu-signs")),
    claim("C43", "section 4, E17", "A remark, no claim: the paper's staleness bound of 99 never removes an upload.",
          "uploads dropped on the paper's schedule", exact(nothing_dropped), "definition"),
    *theorem(45, "(2), Theorem 1", "The weight of an upload is above 0 and below 1.", "the weight by its formula",
             weights_outside,
             ("E04, E14", "With √(t + 1), and λ and ι projected to at least 0, it is from 0 to below 1.",
              weights_inside, "sec:fedasmu-weight")),
    *theorem(46, "appendix", "(w_o^i − w_o) / (η L), L epochs, is about the gradient at w_o, whatever was merged.",
             "the estimate beside gradients", estimates_that_are_no_gradients,
             ("E01, E08, E09", "(w_o − w_o^i) / (η K), K steps, is the path's mean gradient, if nothing was merged.",
              mean_gradient_of_the_path, "sec:fedasmu-learning")),
    *theorem(47, "(9), appendix", "The derivative by γ and υ takes the gradient at w^b.",
             "derivatives beside difference quotients", gradients_elsewhere,
             ("E07", "It takes that at w^a, times w_g − w^b.", gradient_after_the_merge, "sec:fedasmu-fresh")),
    *theorem(48, "(3), appendix", "The derivative by λ, σ and ι needs the device's last aggregation only.",
             "derivatives beside difference quotients, four aggregations in between", aggregations_in_between,
             ("E06", "It has a further factor, Π(1 − α) of the aggregations in between.", product_of_what_is_left,
              "sec:fedasmu-between")),
    *theorem(49, "(6)", "The action stay leaves the slot where it is.", "the printed rule", stay_that_adds),
    *theorem(50, "Algorithm 2", "The fresh model is merged once, after l* epochs.", "lines 3 to 17 as printed",
             merges_again_and_again),
    *theorem(51, "Algorithm 1", "t − o + 1 counts the versions since the task began.", "lines 7 to 16 as printed",
             passes_without_a_version),
    *theorem(52, "section 5, E19", "The ranges of the text are those of Tables 1 and 2.", "ends of the ranges",
             ranges_that_differ),
]  # fmt: skip
