"""WKAFL (Zhou et al., 2022): Figures 1 to 10, Tables 2 and 3, Appendix A, and figures and tables beyond the paper.

A data set stands for a task: Fashion-MNIST or the digits' surrogate for EMNIST MNIST (Figures 2, 7, 9), ``cifar10``
(8, 10), ``celeba`` and ``emnist-byclass`` (5, 6).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd

from fl_core.experiments import rounding
from fl_core.experiments.artifacts import Artifact, Columns, Curves, Panel, Paper, View, computed
from fl_core.experiments.study import Entry
from fl_papers.wkafl import figures, theory
from fl_papers.wkafl.experiment import WKAFLExperiment

_PAPER = Paper("wkafl", "Zhou et al. (2022)", WKAFLExperiment.shown(WKAFLExperiment.setting))
_ERRATA, _TABLES = "E01 E01c E02 E02c E04 E11 E12 E12c E15 E17 E17c", "E20 E21 E22 E22c E23 E24 E26"
"""Of the theory, and of the paper's words on its tables."""

Part = Callable[[WKAFLExperiment], Iterator[Entry]]


def _claims(numbers: str, *modes: str) -> str:
    """Return numbers of claims with true staleness and on shared memory, or in other `modes`."""
    return " ".join(f"{number}{mode}" for mode in modes or ("", "-aliased") for number in numbers.split())


def _formulas(
    name: str, title: str, frame: Callable[[], pd.DataFrame], view: View, description: str, claims: str = "",
    where: str = "",
) -> Artifact:  # fmt: skip
    """Return an artifact that needs no runs."""
    return _PAPER.artifact(name, where, title, description, computed(frame), view, claims=claims)


def _training(
    name: str, title: str, part: Part, frame: Callable[..., pd.DataFrame], view: View, description: str,
    claims: str = "", where: str = "", **more: Any,
) -> Artifact:  # fmt: skip
    """Return an artifact that shows the runs of one part of the experiment."""
    return _PAPER.artifact(name, where, title, description, frame, view, WKAFLExperiment.made(part), claims, **more)


ARTIFACTS = [
    _formulas("fig1", "K-asynchronous learning in time, four clients, K = 2", figures.four_clients,
              figures.draw_timeline, "Nobody is called off; the staleness of each gradient stands at its end.",
              where="Figure 1"),
    _training("fig2a", "how many gradients predominate", WKAFLExperiment.motivation, figures.predominating,
              figures.draw_histogram, "Weights by staleness alone leave one or two gradients in charge.",
              "C01", "Figure 2 (a)"),
    _formulas("fig2b", "average staleness over the number of gradients", theory.swept_decay, figures.draw_conflict,
              "More gradients are staler gradients.", "C02", where="Figure 2 (b)"),
    _formulas("fig3", "the method in five steps", figures.steps, figures.draw_steps,
              "What the server does with K gradients.", where="Figure 3"),
    _formulas("fig4", "the estimate before and after clipping", figures.clipped_vectors, figures.draw_vectors,
              "Long stale gradients turn the estimate; clipping turns it back.", "C26",
              where="Figure 4"),
    _training("fig5", "accuracy without one component at a time", WKAFLExperiment.ablations, figures.by_component,
              figures.draw_panels, "(a) is CelebA, (b) EMNIST ByClass; here in two modes of staleness.",
              _claims("C03 C04 C05 C27b"), "Figure 5"),
    _training("fig6", "accuracy of all methods, one owner of data per client", WKAFLExperiment.comparison,
              figures.by_skew, figures.draw_panels, "(a) is CelebA, (b) EMNIST ByClass.", _claims("C06"),
              "Figure 6"),
    *(
        _training(f"fig{number}", "accuracy by level of staleness", WKAFLExperiment.comparison, figures.by_level,
                  figures.draw_panels, f"In the paper {task}; the level is P/K.", _claims("C09"), f"Figure {number}")
        for number, task in ((7, "EMNIST MNIST"), (8, "CIFAR-10"))
    ),
    *(
        _training(f"fig{number}", "accuracy by labels per client", WKAFLExperiment.comparison, figures.by_skew,
                  figures.draw_panels, f"In the paper {task}, at one level of staleness.",
                  f"{_claims('C12')} {claims}", f"Figure {number}")
        for number, task, claims in ((9, "EMNIST MNIST", ""), (10, "CIFAR-10", f"{_claims('C19 C20')} C30"))
    ),
    _training("tab2", "final accuracy by level of staleness", WKAFLExperiment.comparison, figures.staleness_table,
              Columns({"cell": "level"}), "The mean of the last ten measurements.", _claims("C07 C08 C10"),
              "Table 2"),
    _training("tab3", "final accuracy and stability by labels per client", WKAFLExperiment.comparison,
              figures.skew_table, Columns({"cell": "level and labels"}),
              "Stability is the spread of the logarithm of the last ten accuracies: small is stable.",
              f"{_claims('C11 C13 C14 C16 C18')} {_TABLES}", "Table 3"),
    replace(_training("appA", "WKAFL and Zeno++, without and with Byzantine uploads", WKAFLExperiment.byzantine,
              figures.byzantine, figures.draw_panels,
              "A Byzantine upload is turned round and made ten times as long.", "C29"),
            reference=f"Appendix A of {_PAPER.cited}, and beyond"),
    _training("x1", "true staleness against shared memory, by level", WKAFLExperiment.comparison,
              partial(figures.by_level, snapshots=("copy", "aliased")), figures.draw_panels,
              "Solid: every client computes on the model it was sent; dashed: on the server's own memory."),
    _training("x3", "WKAFL and Zeno++ in numbers", WKAFLExperiment.byzantine, figures.byzantine_table, Columns(),
              "What was used, and what Zeno++ refused."),
    _formulas("x4", "staleness and age under five laws of arrival, P = 1000, K = 10", theory.schedule_means,
              Columns({"staleness": "staleness of used gradients", "age": "age of all clients",
                       "least age": "(P/K − 1)/2"}, digits=1),
              "P/(2K) is the age under round robin, and nobody's staleness.", "C21 C21c C28"),
    _formulas("x5", "seconds per update, waiting for K against going on", theory.waiting_times, Columns(digits=4),
              "P = 100, K = 10, durations of mean 1 s.", "C31"),
    _formulas("x6", "both theorems on problems whose constants are known", theory.theorem_checks,
              Columns({"alpha": "α", "lr": "η", "limit": "largest η", "left": "left side", "right": "right side"}, 4),
              "Left side and right side of (13) and (14), and the largest learning rate that the conditions allow.",
              f"C22 C22c C24 C24c C27a {_ERRATA}"),
    _formulas("x7", "both bounds over the length of a run", theory.rates,
              Curves("updates J, as a power of ten", (Panel("bound", "bound on a squared gradient", log=True),),
                     parameter="parameter"), "η = √(K/J) in stage one, 1/(4√J) in stage two.",
              "C23 C23c C25 C25c"),
    _formulas("x8", "how gradients of each age agree with the true one", figures.by_age,
              Columns({"selected": "selected by WKAFL"}),
              "A softmax regression on Fashion-MNIST, P = 100, K = 10, one label per client, true staleness.", "C32"),
    _training("x9", "GSGM at smaller learning rates", WKAFLExperiment.gsgm_rates, figures.rates_table,
              Columns({"cell": "level and labels"}),
              "Where label skew is varied, true staleness; the first rate is the one of the authors' programs."),
    _training("x10", "how far a rounding error takes WKAFL", WKAFLExperiment.luck, rounding.parting,
              rounding.VIEW, "The same run from an initial model changed in its last bits.", over_seeds="mean over"),
    _training("x11", "what a rounding error does to a final accuracy", WKAFLExperiment.luck, rounding.moved,
              Columns(), "The same run from an initial model changed in its last bits; spread over seeds.",
              _claims("C03 C04 C05 C07 C08 C09 C10 C11 C12 C13 C14 C16 C18 C27b")),
    _training("x12", "Table 2 as written, on shared memory and as released", WKAFLExperiment.in_all_modes,
              figures.staleness_table, Columns({"cell": "level"}), "The mean of the last ten measurements.",
              _claims("C07 C08 C09 C10", "-released")),
    _training("x13", "Table 3 as written, on shared memory and as released", WKAFLExperiment.in_all_modes,
              figures.skew_table, Columns({"cell": "level and labels"}),
              "Stability is the spread of the logarithm of the last ten accuracies: small is stable.",
              _claims("C11 C12 C13 C14 C16 C18", "-released")),
    _training("x14", "all methods with equally many learning rates", WKAFLExperiment.tuned, figures.tuned_table,
              Columns({"cell": "level and labels"}),
              "Final accuracy by factor of the learning rate in the authors' programs; true staleness."),
]  # fmt: skip
