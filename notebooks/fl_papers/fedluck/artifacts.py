"""FedLuck (Song et al., 2024): Figures 1 to 3, Tables 1 and 2, Algorithm 1 in time, and figures beyond the paper.

A data set stands for a task: ``fashion-mnist`` is panel (a) of the figures, ``cifar10`` (b), ``speech-commands`` (c);
Figure 1 has (a) and, as (b), Speech Commands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from fl_core.experiments import rounding
from fl_core.experiments.artifacts import Artifact, Columns, Curves, Panel
from fl_core.experiments.study import Entry
from fl_papers.fedluck import figures, tables
from fl_papers.fedluck.experiment import BASELINES, SINGLE
from fl_papers.fedluck.experiment import FedLuckExperiment as Runs

PAPER = "Song et al. (2024)"

replicated = partial(Artifact, notebook="notebooks/fl_papers/fedluck/replication.ipynb")
beyond = partial(replicated, reference="Beyond the paper")
made, setting = Runs.made, Runs.shown(Runs.setting)


def compared(*partitions: str, methods: Sequence[str] = ("FedLuck", *BASELINES)) -> Callable[..., list[Entry]]:
    """Return the grid of `methods` on `partitions`."""
    return made(partial(Runs.comparison, partitions=partitions, methods=methods))


def claims(numbers: str) -> tuple[str, ...]:
    """Return the ids of claims, ``"C01 C02"`` being the first two."""
    return tuple(f"FEDLUCK-{number}" for number in numbers.split())


FORMULAS: tuple[tuple[str, Callable[[], Any], Any, str], ...] = (
    ("φ over local steps and kept fraction, for a slow and a fast link", tables.surface,
     figures.surface, "C20 C20c E08 E08c E09 E09c E10 E10c E13 E13c"),
    ("the optimum over the ratio of upload time to period", tables.regimes,
     Curves(
         "upload time over period, β/T̃, as a power of ten",
         (Panel("delta", "kept fraction δ"), Panel("kappa", "computing time over period, kα/T̃, log scale", log=True),
          Panel("rounds", "job over period, d/T̃, log scale", log=True),
          Panel("factor", "φ T̃/α, log scale", log=True)),
         parameter="parameter",
     ), ""),
    ("the plan of every device, by three solvers, and where a local one stops", tables.plans,
     Columns({"alpha": "α (s)", "beta": "β (s)", "beta/T": "β/T̃", "official_grid": "grid: k, δ",
              "exact": "exact: k, δ", "exact_ceil": "with the ceiling: k, δ", "factor": "least φ",
              "rounds": "rounds per job", "local": "local solver: k, δ", "excess": "its φ over the least"}),
     "C19"),
    ("Q along the learning rates of Corollary 1", tables.q_along_corollary,
     Curves("rounds T, as a power of ten", (Panel("q", "Q, which must be positive"),), parameter="parameter",
            symbol="k"), "C02 C02c C03 C03c"),
    ("the bounds on random log-cosh problems", tables.bounds_table,
     Columns({"problems": "problems", "violations": "violations", "median": "median of measured over bound",
              "largest": "largest"}), "C01 C01c E03 E04 E04c E06 E06c E07"),
    ("FedAvg+Topk's part of Table 1 from the world alone", tables.decoded_topk, Columns(digits=2), "C21 E14"),
    ("FedLuck's gigabytes of Table 1 from its plan", tables.decoded_fedluck,
     Columns({"T~": "T̃ (s)", "fastest step": "fastest step (s)"}, digits=2), ""),
)  # fmt: skip
"""What formulas alone give: title, frame, view, claims."""

ARTIFACTS = [
    replicated(
        id="fedluck-alg1",
        title="periodic aggregation in time",
        reference=f"Algorithm 1 of {PAPER}",
        description="Nobody waits for the slowest device; each waits for the next tick.",
        reduce=tables.five_devices,
        view=figures.timeline,
        claims=claims("C04 E01 E01c E02"),
    ),
    replicated(
        id="fedluck-fig1",
        title="rounds to a target accuracy over local steps and kept fraction",
        reference=f"Figure 1 of {PAPER}",
        description="Where is the best setting, and how much does a bad one cost? Hatched: not reached.",
        make_grid=made(Runs.heat_map),
        reduce=figures.heat_map,
        view=figures.heat,
        paper_setting=setting,
        claims=claims("C05 C06 C07"),
    ),
    replicated(
        id="fedluck-fig2",
        title="accuracy over virtual time, independent labels",
        reference=f"Figure 2 of {PAPER}",
        description="All methods on the same clock, measured at the same times.",
        make_grid=compared("iid"),
        reduce=partial(figures.accuracy_curves, partition="iid", methods=("FedLuck", *BASELINES)),
        view=Curves("virtual time (s)", (Panel("test_accuracy", "test accuracy"),), parameter="parameter"),
        paper_setting=setting,
        claims=claims("C04 C11 C13 C18"),
    ),
    replicated(
        id="fedluck-fig3",
        title="gigabytes to three accuracies, independent labels",
        reference=f"Figure 3 of {PAPER}",
        description="What has been uploaded when a target is first reached; no bar: not reached by every seed.",
        make_grid=compared("iid"),
        reduce=tables.traffic,
        view=figures.traffic,
        paper_setting=setting,
        claims=claims("C12 C14 C15"),
    ),
    replicated(
        id="fedluck-tab1",
        title="seconds and gigabytes to three accuracies, Dirichlet labels",
        reference=f"Table 1 of {PAPER}",
        description="Time since the first aggregation, as the paper counts it, and since the start.",
        make_grid=compared("dirichlet"),
        reduce=tables.targets_table,
        view=Columns(
            {"printed seconds": "seconds, paper", "seconds": "seconds, here", "printed gigabytes": "GB, paper",
             "gigabytes": "GB, here", "since the start": "seconds since the start", "reached": "seeds that get there"}
        ),
        paper_setting=setting,
        claims=claims("C08 C10"),
    ),
    replicated(
        id="fedluck-tab2",
        title="joint optimisation against one variable alone, independent labels",
        reference=f"Table 2 of {PAPER}",
        description="Accuracy at the horizon, under both readings of the paper's row labels.",
        make_grid=compared("iid", methods=("FedLuck", *SINGLE)),
        reduce=tables.single_table,
        view=Columns(
            {"the text's reading": "the paper, its text's reading", "the names' reading": "the paper, other reading",
             "measured": "accuracy here"}
        ),
        paper_setting=setting,
        claims=claims("C17a C17b"),
    ),
    replicated(
        id="fedluck-savings",
        title="what FedLuck saves of each baseline's time and communication",
        reference=f"Figures 2 and 3 and Table 1 of {PAPER}",
        description="1 − FedLuck / baseline, with an interval at the level of the planned look.",
        make_grid=compared("iid", "dirichlet"),
        reduce=tables.improvements,
        view=Columns(
            {"printed seconds": "time saved, paper", "seconds": "time saved, here", "seeds, seconds": "seeds",
             "printed gigabytes": "communication saved, paper", "gigabytes": "communication saved, here",
             "seeds, gigabytes": "seeds"}
        ),
        paper_setting=setting,
        claims=claims("C11 C12 C16"),
        over_seeds="mean and interval over",
    ),
    *(
        beyond(
            id=f"fedluck-x{number}",
            title=title,
            description="Computed from formulas, without training.",
            reduce=lambda study, frame=frame: frame(),
            view=view,
            claims=claims(tested),
        )
        for number, (title, frame, view, tested) in enumerate(FORMULAS, start=1)
    ),
    beyond(
        id="fedluck-x8",
        title="accuracy after a fixed time, over the period",
        description="FedLuck alone, for a part of the horizon.",
        make_grid=made(Runs.periods),
        reduce=tables.other_periods,
        view=Curves(
            "period T̃ (s)", (Panel("test_accuracy", "test accuracy at the end"),), parameter="parameter", points=True
        ),
        paper_setting=setting,
    ),
    beyond(
        id="fedluck-x9",
        title="FedLuck in variants, Dirichlet labels",
        description="FedLuck alone, for a part of the horizon.",
        make_grid=made(Runs.variants),
        reduce=tables.variants_table,
        view=Columns(),
        paper_setting=setting,
    ),
    beyond(
        id="fedluck-x10",
        title="FedLuck against FedPer in the first two minutes",
        description="FedLuck's time to an accuracy as a part of FedPer's; below 1 FedLuck is first.",
        make_grid=made(Runs.race),
        reduce=tables.race_table,
        view=Columns({"ratio": "FedLuck / FedPer, or difference"}),
        paper_setting=setting,
        over_seeds="mean and 95 % t interval over",
    ),
    beyond(
        id="fedluck-x11",
        title="what of the printed accuracy each deviation of the authors' program explains",
        description="One at a time, and all together: as released.",
        make_grid=made(Runs.deviations),
        reduce=tables.deviations_table,
        view=Columns({"printed": "accuracy, paper", "all images": "accuracy, all test images",
                      "its own images": "accuracy, the images it is measured on"}),
        paper_setting=setting,
    ),
    beyond(
        id="fedluck-x12",
        title="how far a rounding error takes FedLuck",
        description="The same run from an initial model changed in its last bits.",
        make_grid=made(Runs.luck),
        reduce=rounding.parting,
        view=rounding.VIEW,
        paper_setting=setting,
        over_seeds="mean over",
    ),
    beyond(
        id="fedluck-x13",
        title="Table 1 as the authors' program has it",
        description="Inverted pixels, weights by samples, 1,000 test images, evaluation before dispatch.",
        make_grid=made(Runs.as_released),
        reduce=tables.released_table,
        view=Columns(
            {"printed seconds": "seconds, paper", "seconds": "seconds, as released",
             "printed gigabytes": "GB, paper", "gigabytes": "GB, as released",
             "since the start": "seconds since the start", "reached": "seeds that get there"}
        ),
        claims=("FEDLUCK-C08-released", "FEDLUCK-C10-released"),
        paper_setting=setting,
    ),
]  # fmt: skip
