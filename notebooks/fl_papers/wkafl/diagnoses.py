"""Why WKAFL's claims may come out as they do, and the runs that test each suspicion."""

from __future__ import annotations

from itertools import product

from fl_core.experiments.evidence import Effect
from fl_core.experiments.measures import BySeed
from fl_core.experiments.study import Study
from fl_core.report.discussion import Diagnosis
from fl_papers.wkafl.claims import BASELINES, Cells, by_level, by_skew, effect
from fl_papers.wkafl.experiment import final, measured, name_of


def better_on_shared_memory(study: Study, cells: Cells, others: tuple[str, ...]) -> list[Effect]:
    """Return by how much WKAFL's lead is larger where nearly all gradients are fresh and counted as stale."""
    found = []
    for cell, other in product(cells(study, "copy"), others):
        true, shared = (
            measured(study, final, "WKAFL", here) - measured(study, final, other, here)
            for here in (cell, {**cell, "snapshot": "aliased"})
        )
        name = f"{name_of(cell)}, lead over {other}, shared less true"
        found += effect(study, name, (shared, true), 2 * ("WKAFL", other), final, "more", float("nan"))
    return found


def better_with_smaller_steps(study: Study) -> list[Effect]:
    """Return what GSGM gains with a tenth of its learning rate."""
    found = []
    for cell in by_skew(study, "copy"):
        runs = [study.select(method="GSGM", lr_factor=factor, **cell) for factor in (0.1, 1.0)]
        ends = [BySeed.of(each, lambda entry, result: final(result)) for each in runs]
        name = f"{name_of(cell)}, a tenth less the whole"
        found += effect(study, name, (ends[0], ends[1]), ("GSGM", "GSGM"), final, "more", float("nan"))
    return found


DIAGNOSES = [
    Diagnosis("C07 C08 C10", "in the authors' programs gradients are counted as stale and are not, which WKAFL's "
              "weights suit better than true staleness", "wkafl-x1",
              lambda study: better_on_shared_memory(study, by_level, ("TWAFL", "SASGD"))),
    Diagnosis("C11 C12", "the same, where label skew is varied", "wkafl-x1",
              lambda study: better_on_shared_memory(study, by_skew, BASELINES[:2])),
    Diagnosis("C11 C16", "GSGM suffers from its learning rate, not from its method", "wkafl-x9",
              better_with_smaller_steps),
    Diagnosis("C07 C10 C11", "learning rates that suit shared memory do not suit true staleness, and the same "
              "number of trials for each method would give another order"),
]  # fmt: skip
