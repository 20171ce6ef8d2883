"""FedLuck (Song et al., 2024): Figures 1 to 3, Tables 1 and 2, Algorithm 1 in time, and figures beyond the paper.

A data set stands for a task: ``fashion-mnist`` is panel (a) of the figures, ``cifar10`` (b), ``speech-commands`` (c);
Figure 1 has (a) and, as (b), Speech Commands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from fl_core.experiments import rounding
from fl_core.experiments.artifacts import Columns, Curves, Panel, Paper, computed
from fl_core.experiments.study import Entry
from fl_papers.fedluck import figures, tables
from fl_papers.fedluck.experiment import BASELINES, SINGLE
from fl_papers.fedluck.experiment import FedLuckExperiment as Runs

PAPER = Paper("fedluck", "Song et al. (2024)", Runs.shown(Runs.setting))
replicated, made = PAPER.artifact, Runs.made


def compared(*partitions: str, methods: Sequence[str] = ("FedLuck", *BASELINES)) -> Callable[..., list[Entry]]:
    """Return the grid of `methods` on `partitions`."""
    return made(partial(Runs.comparison, partitions=partitions, methods=methods))


def targets_view(ours: str) -> Columns:
    """Return how Table 1 is shown."""
    return Columns(
        {"printed seconds": "seconds, paper", "seconds": f"seconds, {ours}", "printed gigabytes": "GB, paper",
         "gigabytes": f"GB, {ours}", "since the start": "seconds since the start", "reached": "seeds that get there"}
    )  # fmt: skip


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
    replicated("alg1", "Algorithm 1", "periodic aggregation in time",
               "Nobody waits for the slowest device; each waits for the next tick.", tables.five_devices,
               figures.timeline, claims="C04 E01 E01c E02"),
    replicated("fig1", "Figure 1", "rounds to a target accuracy over local steps and kept fraction",
               "Where is the best setting, and how much does a bad one cost? Hatched: not reached.", figures.heat_map,
               figures.heat, made(Runs.heat_map), "C05 C06 C07"),
    replicated("fig2", "Figure 2", "accuracy over virtual time, independent labels",
               "All methods on the same clock, measured at the same times.",
               partial(figures.accuracy_curves, partition="iid", methods=("FedLuck", *BASELINES)),
               Curves("virtual time (s)", (Panel("test_accuracy", "test accuracy"),), parameter="parameter"),
               compared("iid"), "C11 C13 C18"),
    replicated("fig3", "Figure 3", "gigabytes to three accuracies, independent labels",
               "What has been uploaded when a target is first reached; no bar: not reached by every seed.",
               tables.traffic, figures.traffic, compared("iid"), "C12 C14 C15"),
    replicated("tab1", "Table 1", "seconds and gigabytes to three accuracies, Dirichlet labels",
               "Time since the first aggregation, as the paper counts it, and since the start.", tables.targets_table,
               targets_view("here"), compared("dirichlet"), "C08 C10"),
    replicated("tab2", "Table 2", "joint optimisation against one variable alone, independent labels",
               "Accuracy at the horizon, under both readings of the paper's row labels.", tables.single_table,
               Columns({"the text's reading": "the paper, its text's reading",
                        "the names' reading": "the paper, other reading", "measured": "accuracy here"}),
               compared("iid", methods=("FedLuck", *SINGLE)), "C17a C17b"),
    replicated("savings", "Figures 2 and 3 and Table 1",
               "what FedLuck saves of each baseline's time and communication",
               "1 − FedLuck / baseline, with an interval at the level of the planned look.", tables.improvements,
               Columns({"printed seconds": "time saved, paper", "seconds": "time saved, here",
                        "seeds, seconds": "seeds",
                        "printed gigabytes": "communication saved, paper",
                        "gigabytes": "communication saved, here", "seeds, gigabytes": "seeds"}),
               compared("iid", "dirichlet"), "C11 C12 C16", over_seeds="mean and interval over"),
    *(
        replicated(f"x{number}", "", title, "Computed from formulas, without training.",
                   computed(frame), view, claims=tested)
        for number, (title, frame, view, tested) in enumerate(FORMULAS, start=1)
    ),
    replicated("x8", "", "accuracy after a fixed time, over the period", "FedLuck alone, for a part of the horizon.",
               tables.other_periods,
               Curves("period T̃ (s)", (Panel("test_accuracy", "test accuracy at the end"),), parameter="parameter",
                      points=True), made(Runs.periods)),
    replicated("x9", "", "FedLuck in variants, Dirichlet labels", "FedLuck alone, for a part of the horizon.",
               tables.variants_table, Columns(), made(Runs.variants)),
    replicated("x10", "", "FedLuck against FedPer in the first two minutes",
               "FedLuck's time to an accuracy as a part of FedPer's; below 1 FedLuck is first.", tables.race_table,
               Columns({"effect": "FedLuck / FedPer, or difference"}), made(Runs.race), "C22 C23",
               over_seeds="mean and interval over"),
    replicated("x11", "", "what each deviation of the authors' program explains",
               "One at a time, and all together: as released.", tables.deviations_table,
               Columns({"printed": "accuracy, paper", "all images": "accuracy, all test images",
                        "its own images": "accuracy, the images it is measured on",
                        "seconds": "time saved of FedPer", "gigabytes": "communication saved of FedPer"}),
               made(Runs.deviations)),
    replicated("x12", "", "how far a rounding error takes FedLuck",
               "The same run from an initial model changed in its last bits.", rounding.parting, rounding.VIEW,
               made(Runs.luck), over_seeds="mean over"),
    replicated("x13", "", "Table 1 as the authors' program has it",
               "Inverted pixels, weights by samples, 1,000 test images, evaluation before dispatch.",
               lambda study: tables.targets_table(tables.released(study)), targets_view("as released"),
               made(partial(Runs.as_released, partition="dirichlet")), "C08-released C10-released"),
    replicated("x14", "", "Figures 2 and 3 as the authors' program has them", "Independent labels, as a table.",
               lambda study: tables.targets_table(tables.released(study), "iid"), targets_view("as released"),
               made(partial(Runs.as_released, partition="iid")), "C11-released C12-released"),
    replicated("x15", "", "FedPer's k and δ, tried in the first two minutes",
               "Mean accuracy in per cent, on a seed that judges nothing.", tables.search_table, Columns(digits=1),
               made(Runs.search)),
    replicated("x16", "", "what the plan is worth in the first two minutes",
               "FedLuck's plan, that of the tight factor, and one for all: the authors', or the best that was tried.",
               tables.plans_table, Columns({"mean": "mean accuracy", "effect": "less FedLuck's, points"}),
               made(Runs.plans), over_seeds="mean and interval over"),
]  # fmt: skip
