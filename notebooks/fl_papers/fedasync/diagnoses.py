"""Why FedAsync's claims may come out as they do, and the runs that test each suspicion."""

from __future__ import annotations

from fl_core.experiments.claims import FULL
from fl_core.report.discussion import Diagnosis
from fl_papers.fedasync.claims import best_alpha

DIAGNOSES = [
    Diagnosis("C01 C16", "the learning rate of FedAsync is the authors' and not searched, as SGD's is, and another "
              "one suits it better"),
    Diagnosis("C13 C15", "short runs favour a large α, and at the paper's length the trends are the paper's",
              "fedasync-fig10", best_alpha, FULL),
]  # fmt: skip
