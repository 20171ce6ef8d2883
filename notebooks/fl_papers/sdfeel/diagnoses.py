"""Why SD-FEEL's claims may come out as they do, and the runs that test each suspicion."""

from __future__ import annotations

from functools import partial

from fl_core.experiments.evidence import POINTS, Effect
from fl_core.experiments.study import Study
from fl_core.report.discussion import Diagnosis
from fl_papers.sdfeel.claims import IMAGES
from fl_papers.sdfeel.experiment import ASYNC, FRESH, WEIGHTED, gaps, values_at


def mixes_better(study: Study, other: str) -> list[Effect]:
    """Return what asynchronous training gains at the end with another rule of mixing."""
    return [
        Effect(f"H = {gap:g}, {other.partition(', ')[2].replace('_', '-')} less the paper's rule",
               values_at(study, other, gap, "test_accuracy", role="variant"),
               values_at(study, ASYNC, gap, "test_accuracy"), POINTS, "more", resolution=1 / IMAGES)
        for gap in gaps(study, other, "variant")
    ]  # fmt: skip


DIAGNOSES = [
    Diagnosis("C02 C04 C06", "a cluster counts its own staleness and so takes weight from the only model that is up "
              "to date, its own; counted as fresh it would be more accurate", "sdfeel-x8",
              partial(mixes_better, other=FRESH)),
    Diagnosis("C05", "clusters are not weighed by their data; so weighed it would be more accurate", "sdfeel-x8",
              partial(mixes_better, other=WEIGHTED)),
    Diagnosis("C05", "long local training at a constant step size keeps asynchronous curves restless"),
]  # fmt: skip
