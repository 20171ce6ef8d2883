"""The tests of FedASMU's claims that formulas and small simulations decide (specification, section 8)."""

from __future__ import annotations

from functools import cache

from fl_core.experiments.claims import Check, Comparison
from fl_core.experiments.study import Study
from fl_core.formulas.fedasmu import Form
from fl_papers.fedasmu import theory as theory

theorem = cache(theory.corrected_theorem)
counterexample = cache(theory.one_reporter)


def zero_is_fedasync(study: Study) -> list[Check]:
    """C34."""
    zero, fedasync = theory.without_both_parts()
    applied, discarded = (zero.outcomes[name] for name in ("applied", "discarded"))
    detail = f"{applied} uploads mixed in and {discarded} dropped on quadratic losses: equal bit for bit"
    return [Check("all of the run", zero == fedasync and discarded > 0, detail)]


def merging_lowers_staleness(study: Study) -> list[Comparison]:
    """C40."""
    seeds = range(3)
    merged, alone = (
        {seed: float(theory.distances(seed)[side].mean()) for seed in seeds} for side in ("merged", "alone")
    )
    return [Comparison("distance at arrival with the merge, over without", merged, alone)]


def theorem_1(study: Study) -> list[Check]:
    """C41."""
    found, example = theorem(range(2), 100), counterexample((3, 4, 5, 10, 20))
    corrected = (found["mean of |grad F|²"] <= found["bound"]).all() and not found["rounds violated"].sum()
    tight = (found["mean of |grad F|²"] / found["bound"]).max()
    wrong = example["|grad F|²"] > example["printed"]
    steps = example.loc[wrong, "steps"].min()
    return [
        Check("the corrected bound, to a neighbourhood", bool(corrected), f"measured at most {tight:.2g} of it"),
        Check("the printed bound, to a critical point", not wrong.any(),
              f"one device of two reports (E13): |∇F|² stays 0.0025, above the bound from {steps} steps on"),
    ]  # fmt: skip


def one_step_helps(study: Study) -> list[Check]:
    """C42."""
    found = []
    forms: dict[Form, str] = {"derived": "with derived gradients", "printed": "with the gradients that are printed"}
    for form, name in forms.items():
        table = theory.steps_of_the_controls(form)
        lower = int((table["after"] < table["before"]).sum())
        found.append(Check(name, lower == len(table), f"the loss falls in {lower} of {len(table)} random problems"))
    return found


def bound_removes_uploads(study: Study) -> list[Check]:
    """C43."""
    found = []
    for bound in (12, 99):
        count, largest = theory.dropped(bound)
        detail = f"{count:,} uploads dropped while 5,000 are mixed in; largest staleness {largest}"
        found.append(Check(f"τ = {bound}{', the paper' * (bound == 99)}", count > 0, detail))
    return found
