"""Asynchronous SD-FEEL (Sun et al., 2022): Figures 1 and 2, its setting and latencies, and figures beyond it."""

from __future__ import annotations

from functools import partial
from typing import Any

from fl_core.experiments.artifacts import Columns, Curves, Panel, Paper
from fl_papers.sdfeel import figures
from fl_papers.sdfeel.experiment import SDFeel, setting_of

_PAPER, _made = Paper("sdfeel", "Sun et al. (2022)", SDFeel.shown(SDFeel.setting)), SDFeel.made
_LOSS, _ACCURACY = Panel("train_loss", "training loss"), Panel("test_accuracy", "test accuracy")
_COMPUTED = "Computed from formulas, without training."
_BESIDE = "Runs beside those of Figure 2, on the same clock."
_BOTH = "The same devices, asynchronous and synchronous, measured at the same times."

_printed, _beyond = _PAPER.artifact, partial(_PAPER.artifact, where="")


def _over_time(*panels: Panel, parameter: str = "gap", symbol: str = "H") -> Curves:
    return Curves("virtual time (1000 s)", panels, parameter=parameter, symbol=symbol)


def _over(x_label: str, column: str, label: str, log: bool = False) -> Curves:
    return Curves(x_label, (Panel(column, label, log=log),), parameter="gap", symbol="H")


FORMULAS: tuple[tuple[str, Any, Any, str], ...] = (
    ("staleness of the trigger, and its bounds", figures.staleness, figures.draw_staleness, "C08 C19"),
    ("mixing with the printed and with the corrected weights", figures.printed_mixing,
     _over("global iteration k", "model", "largest of six models that begin at 1", log=True),
     "C10 C10c C20 C20c"),
    ("what is minimised: quadratics, H = 10", figures.what_is_minimised,
     _over("global iteration k", "model", "mean model"), "C09 C11 C21 C21c C22 C22c C25 C25c"),
    ("the terms of Theorem 1's bound", figures.bound_terms, figures.draw_bound,
     "C11c C12 C13 C13c C23 C23c"),
    ("how devices spend their time", figures.idle_time, figures.draw_idle_time, "C07 C14"),
    ("how fast products of mixing matrices average", figures.contraction,
     _over("global iterations", "rho", "largest distance from averaging, ρ", log=True), "C15 C24 C24c"),
)  # fmt: skip
STUDIES: tuple[tuple[str, Any, Any, Any, str, dict[str, Any]], ...] = (
    ("synchronous SD-FEEL beside hierarchical FedAvg", SDFeel.reference, figures.reference,
     _over_time(_LOSS, _ACCURACY), "", {}),
    ("asynchronous SD-FEEL with other mixing", SDFeel.variants, figures.variants,
     _over_time(_LOSS, _ACCURACY), "", {}),
    ("fewer classes on each device", SDFeel.non_iid, figures.non_iid,
     _over_time(_LOSS, _ACCURACY, parameter="alpha", symbol="α"), "C17", {}),
    ("a very long horizon, linear model", SDFeel.long_runs, figures.long_runs,
     _over_time(_LOSS, _ACCURACY), "C05", {}),
    ("all curves in numbers", SDFeel.figure2, figures.numbers, Columns(), "", {}),
    ("what a draw of speeds decides", SDFeel.figure2, figures.by_seed, Columns(), "",
     {"over_seeds": "each run of"}),
    ("times to losses, densely measured", SDFeel.beginning, figures.beginning, Columns(digits=1), "C01 C06", {}),
)  # fmt: skip

ARTIFACTS = [
    _printed("alg1", "Algorithm 1", "one iteration of a cluster", "What the program says that it does.",
             figures.listing, Columns(wrap={"what": 22})),
    _printed("fig1", "Figure 1", "asynchronous clusters and synchronous rounds in time",
             "Who waits for whom, and for how long.", figures.timeline, figures.draw_timeline),
    _printed("setup", "Section V", "the paper's setting beside ours", "What is scaled or not stated.", setting_of,
             Columns(wrap={"the paper": 9})),
    _printed("latency", "Section V", "the latency model", "The simulator's clock is the paper's.", figures.latency,
             Columns(wrap={"the paper's setting": 9, "the simulator's clock": 9})),
    _printed("fig2a", "Figure 2a", "training loss over virtual time, H = 5, 10 and 30", _BOTH, figures.figure2,
             _over_time(_LOSS), _made(SDFeel.figure2), "C03 C04 C18"),
    _printed("fig2b", "Figure 2b", "test accuracy over virtual time, H = 5, 10 and 30", _BOTH, figures.figure2,
             _over_time(_ACCURACY), _made(SDFeel.figure2), "C02"),
    *(
        _beyond(f"x{number}", title=title, description=_COMPUTED, reduce=frame, view=view, claims=claims)
        for number, (title, frame, view, claims) in enumerate(FORMULAS, 1)
    ),
    *(
        _beyond(f"x{number}", title=title, description=_BESIDE, reduce=frame, view=view, make_grid=_made(part),
                claims=claims, **more)
        for number, (title, part, frame, view, claims, more) in enumerate(STUDIES, 7)
    ),
]  # fmt: skip
"""In the order in which they are listed."""
