"""Asynchronous SD-FEEL (Sun et al., 2022): Figures 1 and 2, its setting and latencies, and figures beyond the paper.

The runs are those of :mod:`fl_papers.sdfeel.grid`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd

from fl_core.experiments.artifacts import MEAN_AND_DEVIATION, Artifact, Columns, Curves, Panel, View, register
from fl_core.experiments.study import Entry, Study
from fl_papers.sdfeel import claims as sdfeel_claims  # noqa: F401  (registers the claims)
from fl_papers.sdfeel import clock as clock
from fl_papers.sdfeel import curves as curves
from fl_papers.sdfeel import figures
from fl_papers.sdfeel import tables as tables
from fl_papers.sdfeel import theory as theory
from fl_papers.sdfeel.grid import ASYNC, GRIDS, SYNC, figure2

_PAPER, _CHAPTER = "Sun et al. (2022)", "notebooks/fl_papers/sdfeel/replication.ipynb"
_TIME = "virtual time (1000 s)"
_LOSS, _ACCURACY = Panel("train_loss", "training loss"), Panel("test_accuracy", "test accuracy")


def _claims(*numbers: str) -> tuple[str, ...]:
    return tuple(f"SDFEEL-{number}" for number in numbers)


def with_figure2(grid: str, methods: Sequence[str], middle: bool = False) -> Callable[..., list[Entry]]:
    """Return a grid together with those runs of Figure 2 that it is compared with."""

    def make(profile: str, dataset: str, seeds: Sequence[int] | None = None, **overrides: Any) -> list[Entry]:
        own = GRIDS[grid](profile, dataset, seeds, **overrides)
        gaps = {entry.labels["gap"] for entry in own}
        beside = figure2(profile, dataset, seeds, **overrides)
        return [e for e in beside if e.labels["method"] in methods and (not middle or e.labels["gap"] in gaps)] + own

    return make


_SHOWN: tuple[tuple[str, str, str, str, Callable[[Study], pd.DataFrame], View, tuple[str, ...]], ...] = (
    ("sdfeel-alg1", "one iteration of a cluster", f"Algorithm 1 of {_PAPER}", "What the program says that it does.",
     tables.listing, Columns(wrap={"what": 22}), ()),
    ("sdfeel-fig1", "asynchronous clusters and synchronous rounds in time", f"Figure 1 of {_PAPER}",
     "Who waits for whom, and for how long.", clock.timeline, figures.timeline, ()),
    ("sdfeel-setup", "the paper's setting beside ours", f"section V of {_PAPER}", "What is scaled or not stated.",
     tables.setup, Columns(wrap={"the paper": 9}), ()),
    ("sdfeel-latency", "the latency model", f"section V of {_PAPER}", "The simulator's clock is the paper's.",
     clock.latency_table, Columns(wrap={"the paper's setting": 9, "the simulator's clock": 9}), ()),
)  # fmt: skip
for _id, _title, _where, _look, _reduce, _view, _tested in _SHOWN:
    register(Artifact(_id, _title, _where, _look, _CHAPTER, _reduce, _view, claims=_tested))

for _letter, _panel, _tested in (
    ("a", _LOSS, _claims("C01", "C03", "C04", "C06", "C08")),
    ("b", _ACCURACY, _claims("C02", "C16")),
):
    register(
        Artifact(
            id=f"sdfeel-fig2{_letter}",
            title=f"{_panel.label} over virtual time, H = 5, 10 and 30",
            reference=f"Figure 2{_letter} of {_PAPER}",
            description="The same devices, asynchronous and synchronous, measured at the same times.",
            notebook=_CHAPTER,
            make_grid=figure2,
            reduce=curves.figure2,
            view=Curves(_TIME, (_panel,), parameter="gap", symbol="H"),
            paper_setting=tables.paper_setting,
            claims=_tested,
        )
    )

_FORMULAS: tuple[tuple[str, Callable[[Study], pd.DataFrame], View, tuple[str, ...]], ...] = (
    ("staleness of the trigger, and its bounds", clock.staleness, figures.staleness, ()),
    ("mixing with the printed and with the corrected weights", theory.printed_mixing,
     Curves("global iteration k", (Panel("model", "largest of six models that begin at 1", log=True),),
            parameter="gap", symbol="H"), ("C10",)),
    ("what is minimised: quadratics, H = 10", theory.what_is_minimised,
     Curves("global iteration k", (Panel("model", "mean model"),), parameter="gap", symbol="H"), ("C09",)),
    ("the terms of Theorem 1's bound", theory.bound_terms, figures.bound, ("C11", "C12", "C13")),
    ("how devices spend their time", clock.idle_time, figures.time, ("C07", "C14")),
    ("how fast products of mixing matrices average", theory.contraction,
     Curves("global iterations", (Panel("rho", "largest distance from averaging, ρ", log=True),), parameter="gap",
            symbol="H"), ("C15",)),
)  # fmt: skip
for _number, (_title, _reduce, _shown, _tested) in enumerate(_FORMULAS, start=1):
    register(
        Artifact(
            id=f"sdfeel-x{_number}",
            title=_title,
            reference="Beyond the paper",
            description="Computed from formulas, without training.",
            notebook=_CHAPTER,
            reduce=_reduce,
            view=_shown,
            claims=_claims(*_tested),
        )
    )

_BOTH = (_LOSS, _ACCURACY)
_RUNS: tuple[
    tuple[str, Callable[..., list[Entry]], Callable[[Study], pd.DataFrame], Curves | Columns, tuple[str, ...]], ...
] = (
    ("synchronous SD-FEEL beside hierarchical FedAvg", with_figure2("reference", (SYNC,)), curves.reference,
     Curves(_TIME, _BOTH, parameter="gap", symbol="H"), ()),
    ("asynchronous SD-FEEL with other mixing", with_figure2("variants", (ASYNC,), middle=True), curves.variants,
     Curves(_TIME, _BOTH, parameter="gap", symbol="H"), ()),
    ("fewer classes on each device", with_figure2("non_iid", (ASYNC, SYNC), middle=True), curves.non_iid,
     Curves(_TIME, _BOTH, parameter="alpha"), ("C17",)),
    ("a very long horizon, linear model", GRIDS["long"], curves.long_runs,
     Curves(_TIME, _BOTH, parameter="gap", symbol="H"), ("C05",)),
    ("all curves in numbers", figure2, curves.numbers, Columns(), ()),
    ("what a draw of speeds decides", figure2, curves.by_seed, Columns(), ()),
)  # fmt: skip
for _number, (_title, _grid, _reduce, _shown, _tested) in enumerate(_RUNS, start=len(_FORMULAS) + 1):
    register(
        Artifact(
            id=f"sdfeel-x{_number}",
            title=_title,
            reference="Beyond the paper",
            description="Runs beside those of Figure 2, on the same clock.",
            notebook=_CHAPTER,
            make_grid=_grid,
            reduce=_reduce,
            view=_shown,
            paper_setting=tables.paper_setting,
            claims=_claims(*_tested),
            over_seeds="each run of" if _reduce is curves.by_seed else MEAN_AND_DEVIATION,
        )
    )
