"""Asynchronous SD-FEEL (Sun et al., 2022): Figures 1 and 2, its setting and latencies, and figures beyond it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd

from fl_core.experiments.artifacts import Artifact, Columns, Curves, Panel, View
from fl_core.experiments.study import Study
from fl_papers.sdfeel import figures
from fl_papers.sdfeel.experiment import SDFeel, setting_of

_PAPER, _CHAPTER = "Sun et al. (2022)", "notebooks/fl_papers/sdfeel/replication.ipynb"
_LOSS, _ACCURACY = Panel("train_loss", "training loss"), Panel("test_accuracy", "test accuracy")

Frame = Callable[[Study], pd.DataFrame]


def _formulas(
    name: str,
    title: str,
    reduce: Frame,
    view: View,
    *claims: str,
    reference: str = "Beyond the paper",
    description: str = "Computed from formulas, without training.",
) -> Artifact:
    """Return an artifact that needs no runs."""
    tested = tuple(f"SDFEEL-{number}" for number in claims)
    return Artifact(f"sdfeel-{name}", title, reference, description, _CHAPTER, reduce, view, claims=tested)


def _training(
    name: str,
    title: str,
    grid: Callable[..., Any],
    reduce: Frame,
    view: View,
    *claims: str,
    reference: str = "Beyond the paper",
    description: str = "Runs beside those of Figure 2, on the same clock.",
    **more: Any,
) -> Artifact:
    """Return an artifact that shows the runs of one part of the experiment."""
    return Artifact(
        id=f"sdfeel-{name}",
        title=title,
        reference=reference,
        description=description,
        notebook=_CHAPTER,
        make_grid=SDFeel.made(grid),
        reduce=reduce,
        view=view,
        paper_setting=SDFeel.shown(SDFeel.setting),
        claims=tuple(f"SDFEEL-{number}" for number in claims),
        **more,
    )


def _over_time(*panels: Panel, parameter: str = "gap", symbol: str = "H") -> Curves:
    return Curves("virtual time (1000 s)", panels, parameter=parameter, symbol=symbol)


def _over(x_label: str, column: str, label: str, log: bool = False) -> Curves:
    return Curves(x_label, (Panel(column, label, log=log),), parameter="gap", symbol="H")


ARTIFACTS = [
    _formulas("alg1", "one iteration of a cluster", figures.listing, Columns(wrap={"what": 22}),
              reference=f"Algorithm 1 of {_PAPER}", description="What the program says that it does."),
    _formulas("fig1", "asynchronous clusters and synchronous rounds in time", figures.timeline, figures.draw_timeline,
              reference=f"Figure 1 of {_PAPER}", description="Who waits for whom, and for how long."),
    _formulas("setup", "the paper's setting beside ours", setting_of, Columns(wrap={"the paper": 9}),
              reference=f"section V of {_PAPER}", description="What is scaled or not stated."),
    _formulas("latency", "the latency model", figures.latency,
              Columns(wrap={"the paper's setting": 9, "the simulator's clock": 9}),
              reference=f"section V of {_PAPER}", description="The simulator's clock is the paper's."),
    _training("fig2a", "training loss over virtual time, H = 5, 10 and 30", SDFeel.figure2, figures.figure2,
              _over_time(_LOSS), "C01", "C03", "C04", "C06", "C18", reference=f"Figure 2a of {_PAPER}",
              description="The same devices, asynchronous and synchronous, measured at the same times."),
    _training("fig2b", "test accuracy over virtual time, H = 5, 10 and 30", SDFeel.figure2, figures.figure2,
              _over_time(_ACCURACY), "C02", reference=f"Figure 2b of {_PAPER}",
              description="The same devices, asynchronous and synchronous, measured at the same times."),
    _formulas("x1", "staleness of the trigger, and its bounds", figures.staleness, figures.draw_staleness,
              "C08", "C19"),
    _formulas("x2", "mixing with the printed and with the corrected weights", figures.printed_mixing,
              _over("global iteration k", "model", "largest of six models that begin at 1", log=True),
              "C10", "C10c", "C20", "C20c"),
    _formulas("x3", "what is minimised: quadratics, H = 10", figures.what_is_minimised,
              _over("global iteration k", "model", "mean model"),
              "C09", "C11", "C21", "C21c", "C22", "C22c", "C25", "C25c"),
    _formulas("x4", "the terms of Theorem 1's bound", figures.bound_terms, figures.draw_bound,
              "C11c", "C12", "C13", "C13c", "C23", "C23c"),
    _formulas("x5", "how devices spend their time", figures.idle_time, figures.draw_idle_time, "C07", "C14"),
    _formulas("x6", "how fast products of mixing matrices average", figures.contraction,
              _over("global iterations", "rho", "largest distance from averaging, ρ", log=True),
              "C15", "C24", "C24c"),
    _training("x7", "synchronous SD-FEEL beside hierarchical FedAvg", SDFeel.reference, figures.reference,
              _over_time(_LOSS, _ACCURACY)),
    _training("x8", "asynchronous SD-FEEL with other mixing", SDFeel.variants, figures.variants,
              _over_time(_LOSS, _ACCURACY)),
    _training("x9", "fewer classes on each device", SDFeel.non_iid, figures.non_iid,
              _over_time(_LOSS, _ACCURACY, parameter="alpha", symbol="α"), "C17"),
    _training("x10", "a very long horizon, linear model", SDFeel.long_runs, figures.long_runs,
              _over_time(_LOSS, _ACCURACY), "C05"),
    _training("x11", "all curves in numbers", SDFeel.figure2, figures.numbers, Columns()),
    _training("x12", "what a draw of speeds decides", SDFeel.figure2, figures.by_seed, Columns(),
              over_seeds="each run of"),
]  # fmt: skip
"""In the order in which they are listed."""
