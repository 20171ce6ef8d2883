"""Why FedLuck's claims may come out as they do, and the runs that test each suspicion."""

from __future__ import annotations

from fl_core.experiments.evidence import POINTS, RATIO, Effect
from fl_core.experiments.measures import BySeed
from fl_core.experiments.study import Study
from fl_core.report.discussion import Diagnosis
from fl_papers.fedluck.tables import needed, sought


def before_fedper(study: Study) -> list[Effect]:
    """Return FedLuck's time to the targets over FedPer's, which has everything but the plan."""
    return [
        Effect(f"{partition}, {target}, over FedPer",
               needed(study, "FedLuck", partition, target.here, "seconds"),
               needed(study, "FedPer", partition, target.here, "seconds"), RATIO, "less")
        for partition in ("iid", "dirichlet") for target in sought(study, partition)
    ]  # fmt: skip


def worse_inverted(study: Study) -> list[Effect]:
    """Return what the images of the authors' program cost, on those images."""
    written, inverted = (_at_the_end(study, "deviation", name) for name in ("as written", "inverted pixels"))
    return [Effect("inverted less as written", inverted, written, POINTS, "less", resolution=1e-4)]


def better_plan(study: Study) -> list[Effect]:
    """Return what a planner gains that knows that staleness is a whole number."""
    own, ceiling = (_at_the_end(study, "variant", name) for name in ("as in the tables", "plan with the ceiling"))
    return [Effect("with the ceiling less as in the tables", ceiling, own, POINTS, "more", resolution=1e-4)]


def _at_the_end(study: Study, role: str, name: str) -> BySeed:
    runs = study.select(**{"role": role, role: name})
    return BySeed.of(runs, lambda entry, result: float(result.history.evaluations["test_accuracy"][-1]))


DIAGNOSES = [
    Diagnosis("C08 C11", "it is the plan that saves time, and not compression and periods alone, which FedPer has, "
              "too", "fedluck-savings", before_fedper),
    Diagnosis("C17a C17b", "the authors' program trains and tests on inverted pixels, which costs accuracy",
              "fedluck-x11", worse_inverted),
    Diagnosis("C17a C17b", "the plan takes staleness for a real number, and one that knows better is more accurate",
              "fedluck-x9", better_plan),
    Diagnosis("C17a C17b", "the fast half of the devices does not compress because a constant of the proof is "
              "loose, and a plan with the tight one is better"),
]  # fmt: skip
