"""WKAFL (Zhou et al., 2022): Figures 1 to 10, Tables 2 and 3, Appendix A, and figures and tables beyond the paper.

A data set stands for a task: Fashion-MNIST or the digits' surrogate for EMNIST MNIST (Figures 2, 7, 9), ``cifar10``
(8, 10), ``celeba`` and ``emnist-byclass`` (5, 6). The runs are those of :mod:`fl_papers.wkafl.grid`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pandas as pd

from fl_core.experiments.artifacts import (
    MEAN_AND_DEVIATION,
    Artifact,
    Columns,
    Curves,
    Panel,
    no_runs,
    register,
)
from fl_core.experiments.study import Study
from fl_papers.wkafl import claims as wkafl_claims  # noqa: F401  (registers the claims about runs)
from fl_papers.wkafl import curves as curves
from fl_papers.wkafl import (
    figures,
    theory,
    theory_claims,  # noqa: F401  (registers its claims)
)
from fl_papers.wkafl import probe as probe
from fl_papers.wkafl import tables as tables
from fl_papers.wkafl.grid import ablations, byzantine, comparison, gsgm_rates, motivation

_PAPER, _CHAPTER = "Zhou et al. (2022)", "notebooks/fl_papers/wkafl/replication.ipynb"
_PANELS = figures.panels


def _claims(*numbers: str, aliased: bool = True) -> tuple[str, ...]:
    names = tuple(f"WKAFL-{number}" for number in numbers)
    return (*names, *(f"{name}-aliased" for name in names)) if aliased else names


def _register(name: str, title: str, reference: str, description: str, reduce: Callable[..., pd.DataFrame], view: Any,
              grid: Callable[..., Any] | None = None, claims: tuple[str, ...] = (),
              over_seeds: str = MEAN_AND_DEVIATION) -> None:  # fmt: skip
    register(
        Artifact(
            id=f"wkafl-{name}", title=title, reference=reference, description=description, notebook=_CHAPTER,
            reduce=reduce if grid else partial(_without_study, reduce), view=view, make_grid=grid or no_runs,
            paper_setting=tables.paper_setting if grid else None, claims=claims, over_seeds=over_seeds,
        )
    )  # fmt: skip


def _without_study(make: Callable[[], pd.DataFrame], study: Study) -> pd.DataFrame:
    return make()


def _workflow() -> pd.DataFrame:
    """Return the steps of Figure 3."""
    steps = [
        ("gradients of K mini-batches, of some age", r"$g(w_{j-\tau},\xi),\quad\tau=0,1,2,\dots$", "clients"),
        ("add momentum, clip at CB", r"$\tilde g_i=g_i+\alpha\,\bar g(w_{j-1}),\quad"
         r"\bar g_i=\tilde g_i\,\min(1,\,CB/\Vert\tilde g_i\Vert)$", "server"),
        ("estimate the global gradient",
         r"$\bar g(w_j)=\sum_i\,a_i\,\bar g_i\,/\,\sum_i\,a_i,\quad a_i=(e/2)^{-\tau_i}$", "server"),
        ("select by cosine; in stage two clip again",
         r"$p_i\propto\exp(\beta\,\cos_i)$ if $\cos_i\geq sim_{min}$, else $0$", "server"),
        ("adapt the learning rate, descend",
         r"$w_{j+1}=w_j-\eta_0/(1+\gamma\,\tau_{min})\;\sum_i\,p_i\,\bar g_i$", "server"),
    ]  # fmt: skip
    return pd.DataFrame(steps, columns=["step", "formula", "where"])


_register("fig1", "K-asynchronous learning in time, four clients, K = 2", f"Figure 1 of {_PAPER}",
          "Nobody is called off; the staleness of each gradient stands at its end.",
          curves.four_clients, figures.timeline)  # fmt: skip
_register("fig2a", "how many gradients predominate", f"Figure 2 (a) of {_PAPER}",
          "Weights by staleness alone leave one or two gradients in charge.",
          curves.predominating, figures.histogram, motivation, _claims("C01", aliased=False))  # fmt: skip
_register("fig2b", "average staleness over the number of gradients", f"Figure 2 (b) of {_PAPER}",
          "More gradients are staler gradients.",
          theory.swept_decay, figures.conflict, claims=_claims("C02", aliased=False))  # fmt: skip
_register("fig3", "the method in five steps", f"Figure 3 of {_PAPER}", "What the server does with K gradients.",
          _workflow, figures.workflow)  # fmt: skip
_register("fig4", "the estimate before and after clipping", f"Figure 4 of {_PAPER}",
          "Long stale gradients turn the estimate; clipping turns it back.",
          curves.clipped_vectors, figures.vectors, claims=_claims("C26", aliased=False))  # fmt: skip
_register("fig5", "accuracy without one component at a time", f"Figure 5 of {_PAPER}",
          "(a) is CelebA, (b) EMNIST ByClass; here with true and with aliased staleness.",
          curves.by_component, _PANELS, ablations, _claims("C03", "C04", "C05", "C27b"))  # fmt: skip
_register("fig6", "accuracy of all methods, one owner of data per client", f"Figure 6 of {_PAPER}",
          "(a) is CelebA, (b) EMNIST ByClass.", curves.by_skew, _PANELS, comparison, _claims("C06"))  # fmt: skip
for _number, _task in ((7, "EMNIST MNIST"), (8, "CIFAR-10")):
    _register(f"fig{_number}", "accuracy by level of staleness, one label per client",
              f"Figure {_number} of {_PAPER}", f"In the paper {_task}; the level is P/K.",
              curves.by_level, _PANELS, comparison, _claims("C09"))  # fmt: skip
for _number, _task, _carried in ((9, "EMNIST MNIST", ()), (10, "CIFAR-10", (*_claims("C19", "C20"), "WKAFL-C30"))):
    _register(f"fig{_number}", "accuracy by labels per client", f"Figure {_number} of {_PAPER}",
              f"In the paper {_task}, at one level of staleness.",
              curves.by_skew, _PANELS, comparison, (*_claims("C12"), *_carried))  # fmt: skip
_register("tab2", "final accuracy by level of staleness", f"Table 2 of {_PAPER}",
          "The mean of the last ten measurements.", tables.staleness_table,
          Columns({"cell": "level"}), comparison, _claims("C07", "C08", "C10"))  # fmt: skip
_register("tab3", "final accuracy and stability by labels per client", f"Table 3 of {_PAPER}",
          "Stability is the spread of the logarithm of the last ten accuracies: small is stable.", tables.skew_table,
          Columns({"cell": "level and labels"}), comparison,
          _claims("C11", "C13", "C14", "C15", "C16", "C17", "C18"))  # fmt: skip
_register("appA", "WKAFL and Zeno++, without and with Byzantine uploads", f"Appendix A of {_PAPER}, and beyond",
          "A Byzantine upload is turned round and made ten times as long.",
          curves.byzantine, _PANELS, byzantine, _claims("C29", aliased=False))  # fmt: skip
_register("x1", "true against aliased staleness, by level", "Beyond the paper",
          "Solid: every client computes on the model it was sent; dashed: on the server's own memory.",
          partial(curves.by_level, snapshots=("copy", "aliased")), _PANELS, comparison)  # fmt: skip
_register("x2", "what of Tables 2 and 3 survives true staleness", "Beyond the paper",
          "The claims about the two tables, judged in both modes.",
          tables.survival_table, Columns(wrap={"the paper says": 12, "survives": 8}), comparison,
          over_seeds="verdicts by 95 % intervals over")  # fmt: skip
_register("x3", "WKAFL and Zeno++ in numbers", "Beyond the paper", "What was used, and what Zeno++ refused.",
          tables.byzantine_table, Columns(), byzantine)  # fmt: skip
_register("x4", "staleness and age under five laws of arrival, P = 1000, K = 10", "Beyond the paper",
          "P/(2K) is the age under round robin, and nobody's staleness.", theory.schedule_means,
          Columns({"staleness": "staleness of used gradients", "age": "age of all clients",
                   "least age": "(P/K − 1)/2"}, digits=1), claims=_claims("C21", "C28", aliased=False))  # fmt: skip
_register("x5", "seconds per update, waiting for K against going on", "Beyond the paper",
          "P = 100, K = 10, durations of mean 1 s.", theory.waiting_times, Columns(digits=4),
          claims=_claims("C31", aliased=False))  # fmt: skip
_register("x6", "both theorems on problems whose constants are known", "Beyond the paper",
          "Left side and right side of (13) and (14), and the largest learning rate that the conditions allow.",
          theory.theorem_checks,
          Columns({"alpha": "α", "lr": "η", "limit": "largest η", "left": "left side", "right": "right side"}, 4),
          claims=_claims("C22", "C24", "C27a", aliased=False))  # fmt: skip
_register("x7", "both bounds over the length of a run", "Beyond the paper",
          "η = √(K/J) in stage one, 1/(4√J) in stage two.", theory.rates,
          Curves("updates J, as a power of ten", (Panel("bound", "bound on a squared gradient", log=True),),
                 parameter="parameter"), claims=_claims("C23", "C25", aliased=False))  # fmt: skip
_register("x8", "how gradients of each age agree with the true one", "Beyond the paper",
          "A softmax regression on Fashion-MNIST, P = 100, K = 10, one label per client, true staleness.",
          probe.by_age, Columns({"selected": "selected by WKAFL"}), claims=_claims("C32", aliased=False))  # fmt: skip
_register("x9", "GSGM at smaller learning rates", "Beyond the paper",
          "Where label skew is varied, true staleness; the first rate is the one of the authors' programs.",
          tables.rates_table, Columns({"cell": "level and labels"}), gsgm_rates)  # fmt: skip
