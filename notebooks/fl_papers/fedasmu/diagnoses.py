"""Why FedASMU's claims may come out as they do, and the runs that test each suspicion."""

from __future__ import annotations

from functools import partial
from typing import Any

from fl_core.experiments.claims import FULL
from fl_core.experiments.evidence import POINTS, Effect, Relation
from fl_core.experiments.measures import BySeed
from fl_core.experiments.study import Study
from fl_core.report.discussion import Diagnosis
from fl_papers.fedasmu.claims import images, unjudged
from fl_papers.fedasmu.decisive import effects
from fl_papers.fedasmu.experiment import SYNCHRONOUS, TUNED
from fl_papers.fedasmu.figures import Setting, final, final_accuracy, readings, settings


def ahead_at_equal_time(study: Study) -> list[Effect]:
    """Return how far FedASMU is ahead of synchronous methods when it has finished."""
    found = []
    for at in settings(study):
        own = study.by_seed(method="FedASMU", **at._asdict())
        ends = {seed: readings(result)[0][-1] for seed, (_, result) in own.items()}
        for method in SYNCHRONOUS:
            theirs = study.by_seed(method=method, **at._asdict())
            early = BySeed({s: final_accuracy(r, ends[s]) for s, (_, r) in theirs.items() if s in ends})
            found.append(_points(study, f"FedASMU less {method}", final(study, "FedASMU", at), early))
    return found


def changed(study: Study, method: str, what: str, claimed: Relation = "more", only: Any = None) -> list[Effect]:
    """Return what a method gains with other values of `what` (`only` this one)."""
    found = []
    for at in settings(study, method, what):
        if only in (None, at.value) and not unjudged(study, at, method):
            value = at.value if what == "variant" else f"{what} = {at.value:g}"
            sides = final(study, method, at), final(study, method, Setting(at.column))
            found.append(_points(study, f"{method}, {value}, less as in the tables", *sides, claimed))
    return found


def _points(study: Study, name: str, left: BySeed, right: BySeed, claimed: Relation = "more") -> Effect:
    delta = POINTS.delta if claimed == "equal" else None
    return Effect(name, left, right, POINTS, claimed, delta=delta, resolution=1 / images(study))


_variant = partial(changed, method="FedASMU", what="variant")
DIAGNOSES = [
    Diagnosis("C01 C14 C15 C16 C17", "rounds take longer, so that as many uploads give synchronous methods more "
              "time, and FedASMU is ahead when it has finished", "fedasmu-x4", ahead_at_equal_time),
    Diagnosis("C28 C29", "the weights hardly learn at the printed rates, so that frozen ones do as well",
              "fedasmu-x2", partial(_variant, claimed="equal", only="frozen weights")),
    Diagnosis("C28 C29", "they learn too slowly, and with the largest printed rates it is more accurate",
              "fedasmu-x2", partial(_variant, only="largest rates")),
    Diagnosis("C01 C14 C15 C16 C17 C18", "the scale of its weights, which is not printed and chosen here, is "
              "wrong, and it is more accurate from initial values of 1", "fedasmu-x2",
              partial(_variant, only="initial values 1")),
    *(
        Diagnosis(claims, f"{method} has a worse value of `{TUNED[method][0]}` than it could have", "fedasmu-x3",
                  partial(changed, method=method, what=TUNED[method][0]))
        for claims, method in (
            ("C11 C20", "ASO-Fed"), ("C18", "FedAsync"), ("C12 C21", "FedBuff"), ("C36 C37", "FedDelay"),
        )
    ),
    Diagnosis("C01 C02", "the setting that the paper does not print favours rounds here, and with equal tuning where "
              "the printed rows come out it is ahead", "fedasmu-x7", effects, FULL),
]  # fmt: skip
