"""FedLuck (Song et al., 2024): Figures 1 to 3, Tables 1 and 2, Algorithm 1 in time, and figures beyond the paper.

A data set stands for a task: ``fashion-mnist`` is panel (a) of the figures, ``cifar10`` (b), ``speech-commands`` (c);
Figure 1 has (a) and, as (b), Speech Commands. The runs are those of :mod:`fl_papers.fedluck.grid`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pandas as pd

from fl_core.experiments.artifacts import Artifact, Columns, Curves, Panel, View, register
from fl_core.experiments.study import Entry, Study
from fl_papers.fedluck import claims as fedluck_claims  # noqa: F401  (registers the claims)
from fl_papers.fedluck import figures
from fl_papers.fedluck import tables as tables
from fl_papers.fedluck import theory as theory
from fl_papers.fedluck.curves import accuracy_curves
from fl_papers.fedluck.grid import BASELINES, SINGLE, comparison, heat_map, periods, variants
from fl_papers.fedluck.heat import heat_map as heat_cells

_PAPER, _CHAPTER = "Song et al. (2024)", "notebooks/fl_papers/fedluck/replication.ipynb"
_BOTH = ("iid", "dirichlet")


def _claims(*numbers: str) -> tuple[str, ...]:
    return tuple(f"FEDLUCK-{number}" for number in numbers)


register(
    Artifact(
        id="fedluck-alg1",
        title="periodic aggregation in time",
        reference=f"Algorithm 1 of {_PAPER}",
        description="Nobody waits for the slowest device; each waits for the next tick.",
        notebook=_CHAPTER,
        reduce=tables.five_devices,
        view=figures.timeline,
    )
)
register(
    Artifact(
        id="fedluck-fig1",
        title="rounds to a target accuracy over local steps and kept fraction",
        reference=f"Figure 1 of {_PAPER}",
        description="Where is the best setting, and how much does a bad one cost? Hatched: not reached.",
        notebook=_CHAPTER,
        make_grid=heat_map,
        reduce=heat_cells,
        view=figures.heat,
        paper_setting=tables.paper_setting,
        claims=_claims("C05", "C06", "C07"),
    )
)
register(
    Artifact(
        id="fedluck-fig2",
        title="accuracy over virtual time, independent labels",
        reference=f"Figure 2 of {_PAPER}",
        description="All methods on the same clock, measured at the same times.",
        notebook=_CHAPTER,
        make_grid=partial(comparison, ("iid",), ("FedLuck", *BASELINES)),
        reduce=partial(accuracy_curves, partition="iid", methods=("FedLuck", *BASELINES)),
        view=Curves("virtual time (s)", (Panel("test_accuracy", "test accuracy"),), parameter="parameter"),
        paper_setting=tables.paper_setting,
        claims=_claims("C04", "C11", "C13", "C18"),
    )
)
register(
    Artifact(
        id="fedluck-fig3",
        title="gigabytes to three accuracies, independent labels",
        reference=f"Figure 3 of {_PAPER}",
        description="What has been uploaded when a target is first reached; no bar: not reached by every seed.",
        notebook=_CHAPTER,
        make_grid=partial(comparison, ("iid",), ("FedLuck", *BASELINES)),
        reduce=tables.traffic,
        view=figures.traffic,
        paper_setting=tables.paper_setting,
        claims=_claims("C12", "C14", "C15"),
    )
)
register(
    Artifact(
        id="fedluck-tab1",
        title="seconds and gigabytes to three accuracies, Dirichlet labels",
        reference=f"Table 1 of {_PAPER}",
        description="Time since the first aggregation, as the paper counts it, and since the start.",
        notebook=_CHAPTER,
        make_grid=partial(comparison, ("dirichlet",), ("FedLuck", *BASELINES)),
        reduce=tables.targets_table,
        view=Columns(
            {"printed seconds": "seconds, paper", "seconds": "seconds, here", "printed gigabytes": "GB, paper",
             "gigabytes": "GB, here", "since the start": "seconds since the start", "reached": "seeds that get there"}
        ),
        paper_setting=tables.paper_setting,
        claims=_claims("C08", "C09", "C10"),
    )
)  # fmt: skip
register(
    Artifact(
        id="fedluck-tab2",
        title="joint optimisation against one variable alone, independent labels",
        reference=f"Table 2 of {_PAPER}",
        description="Accuracy at the horizon, under both readings of the paper's row labels.",
        notebook=_CHAPTER,
        make_grid=partial(comparison, ("iid",), ("FedLuck", *SINGLE)),
        reduce=tables.single_table,
        view=Columns(
            {"the text's reading": "the paper, its text's reading", "the names' reading": "the paper, other reading",
             "measured": "accuracy here"}
        ),
        paper_setting=tables.paper_setting,
        claims=_claims("C17a", "C17b"),
    )
)  # fmt: skip
register(
    Artifact(
        id="fedluck-savings",
        title="what FedLuck saves of each baseline's time and communication",
        reference=f"Figures 2 and 3 and Table 1 of {_PAPER}",
        description="1 − FedLuck / baseline, with a 95 % bootstrap interval over seeds.",
        notebook=_CHAPTER,
        make_grid=partial(comparison, _BOTH, ("FedLuck", *BASELINES)),
        reduce=tables.improvements,
        view=Columns(
            {"printed seconds": "time saved, paper", "seconds": "time saved, here", "seeds, seconds": "seeds",
             "printed gigabytes": "communication saved, paper", "gigabytes": "communication saved, here",
             "seeds, gigabytes": "seeds"}
        ),
        paper_setting=tables.paper_setting,
        claims=_claims("C11", "C12", "C16"),
        over_seeds="mean and 95 % bootstrap interval over",
    )
)  # fmt: skip

_ACCURACY = (Panel("test_accuracy", "test accuracy at the end"),)
_RUNS: tuple[tuple[str, Callable[..., list[Entry]], Callable[[Study], pd.DataFrame], Curves | Columns], ...] = (
    (
        "accuracy after a fixed time, over the period",
        periods,
        tables.other_periods,
        Curves("period T̃ (s)", _ACCURACY, parameter="parameter", points=True),
    ),
    ("FedLuck in variants, Dirichlet labels", variants, tables.variants_table, Columns()),
)
_FORMULAS: tuple[tuple[str, Callable[[], pd.DataFrame], View, tuple[str, ...]], ...] = (
    ("φ over local steps and kept fraction, for a slow and a fast link", theory.surface,
     figures.surface, ("C20",)),
    ("the optimum over the ratio of upload time to period", theory.regimes,
     Curves(
         "upload time over period, β/T̃, as a power of ten",
         (Panel("delta", "kept fraction δ"), Panel("kappa", "computing time over period, kα/T̃, log scale", log=True),
          Panel("rounds", "job over period, d/T̃, log scale", log=True),
          Panel("factor", "φ T̃/α, log scale", log=True)),
         parameter="parameter",
     ), ()),
    ("the plan of every device, by three solvers, and where a local one stops", theory.plans,
     Columns({"alpha": "α (s)", "beta": "β (s)", "beta/T": "β/T̃", "official_grid": "grid: k, δ",
              "exact": "exact: k, δ", "exact_ceil": "with the ceiling: k, δ", "factor": "least φ",
              "rounds": "rounds per job", "local": "local solver: k, δ", "excess": "its φ over the least"}),
     ("C19",)),
    ("Q along the learning rates of Corollary 1", theory.q_along_corollary,
     Curves("rounds T, as a power of ten", (Panel("q", "Q, which must be positive"),), parameter="parameter",
            symbol="k"), ("C02", "C03")),
    ("the bounds on random log-cosh problems", theory.bounds_table,
     Columns({"problems": "problems", "violations": "violations", "median": "median of measured over bound",
              "largest": "largest"}), ("C01",)),
    ("FedAvg+Topk's part of Table 1 from the world alone", theory.decoded_topk, Columns(digits=2), ("C21",)),
    ("FedLuck's gigabytes of Table 1 from its plan", theory.decoded_fedluck,
     Columns({"T~": "T̃ (s)", "fastest step": "fastest step (s)"}, digits=2), ()),
)  # fmt: skip


def _without_study(make: Callable[[], pd.DataFrame], study: Study) -> pd.DataFrame:
    return make()


for _number, (_title, _make, _shown, _tested) in enumerate(_FORMULAS, start=1):
    register(
        Artifact(
            id=f"fedluck-x{_number}",
            title=_title,
            reference="Beyond the paper",
            description="Computed from formulas, without training.",
            notebook=_CHAPTER,
            reduce=partial(_without_study, _make),
            view=_shown,
            claims=_claims(*_tested),
        )
    )
for _number, (_title, _grid, _reduced, _view) in enumerate(_RUNS, start=len(_FORMULAS) + 1):
    register(
        Artifact(
            id=f"fedluck-x{_number}",
            title=_title,
            reference="Beyond the paper",
            description="FedLuck alone, for a part of the horizon.",
            notebook=_CHAPTER,
            make_grid=_grid,
            reduce=_reduced,
            view=_view,
            paper_setting=tables.paper_setting,
        )
    )
