"""FedASMU (Liu et al., 2024): Figures 1 to 7, Tables 1 to 3, 5 and 6, what the text reports, and runs beyond it.

A data set stands for its columns of the tables; a figure shows those of its panels that are among them. The runs are
those of :mod:`fl_papers.fedasmu.grid`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import pandas as pd

from fl_core.experiments.artifacts import Artifact, Columns, View, register
from fl_core.experiments.study import Entry, Study
from fl_papers.fedasmu import claims as fedasmu_claims  # noqa: F401  (registers the claims)
from fl_papers.fedasmu import figures
from fl_papers.fedasmu import tables as tables
from fl_papers.fedasmu.beyond import equal_time_table, staleness_table, tuning_table, variants_table
from fl_papers.fedasmu.columns import COLUMNS
from fl_papers.fedasmu.curves import accuracy_curves, condition_points
from fl_papers.fedasmu.grid import (
    ablations,
    comparison,
    conditions,
    heuristics,
    others,
    sensitivity,
    tuning,
    variants,
)
from fl_papers.fedasmu.methods import ABLATIONS, METHODS
from fl_papers.fedasmu.system import five_devices, paper_setting

_PAPER = "Liu et al. (2024)"

PANELS: dict[int, tuple[str, ...]] = {
    3: ("lenet-cifar10", "cnn-cifar10", "resnet-tiny-imagenet"),
    4: ("lenet-cifar100", "cnn-cifar100", "resnet-cifar100"),
    5: ("alexnet-cifar10", "vgg-cifar10", "textcnn-imdb"),
    6: ("alexnet-cifar100", "vgg-cifar100", "lenet-fmnist"),
}
"""(a), (b) and (c) of Figures 3 to 6."""


_MEASURED = Columns(
    {"printed accuracy": "accuracy, paper", "accuracy": "accuracy, here", "printed time": "time, paper",
     "time": "seconds, here", "printed ratio": "time over FedASMU's, paper", "ratio": "here",
     "reached": "seeds that get there"}
)  # fmt: skip
TABLES: dict[int, tuple[str, ...]] = {
    number: tuple(name for name, column in COLUMNS.items() if column.table == number) for number in (1, 2)
}


_SPREAD = {"fig7": "mean over", "traffic": "mean over", "x1": "all uploads of"}
"""What artifacts show of several seeds; other tables have intervals, other figures standard deviations."""


def part(
    names: Sequence[str], profile: str, dataset: str, seeds: Sequence[int] | None, **overrides: Any
) -> list[Entry]:
    """Return the comparison on the columns `names` of a data set; if it has none of them, on all that it has."""
    entries = comparison(profile, dataset, seeds, **overrides)
    return [entry for entry in entries if entry.labels["column"] in names] or entries


def _add(
    name: str,
    title: str,
    reference: str,
    description: str,
    reduce: Callable[[Study], pd.DataFrame],
    view: View,
    make_grid: Callable[..., list[Entry]] | None = None,
    claims: Iterable[int] = (),
) -> None:
    """Register an artifact; one without a grid needs no runs."""
    runs: dict[str, Any] = {} if make_grid is None else {"make_grid": make_grid, "paper_setting": paper_setting}
    kind = "95 % t-interval" if isinstance(view, Columns) else "standard deviation"
    register(
        Artifact(
            id=f"fedasmu-{name}",
            title=title,
            reference=reference,
            description=description,
            notebook="notebooks/fl_papers/fedasmu/replication.ipynb",
            reduce=reduce,
            view=view,
            claims=tuple(f"FEDASMU-C{number:02d}" for number in claims),
            over_seeds=_SPREAD.get(name, f"mean and {kind} over"),
            **runs,
        )
    )


def _without_study(make: Callable[[], pd.DataFrame], study: Study) -> pd.DataFrame:
    return make()


_add("fig1", "the system in time", f"Figure 1 of {_PAPER}",
     "Devices start at ticks, ask once for a fresh model, and make a version each when they upload.",
     five_devices, figures.timeline, claims=(40, 41, 42, 43))  # fmt: skip
_add("fig2", "accuracy over virtual time without parts of the method", f"Figure 2 of {_PAPER}",
     "DA: static weights; FA: no fresh models; 0: neither.",
     partial(accuracy_curves, methods=("FedASMU", *ABLATIONS, "FedAvg")), figures.accuracy,
     ablations, range(28, 35))  # fmt: skip
for _number, _names in PANELS.items():
    _add(f"fig{_number}", "accuracy over virtual time", f"Figure {_number} of {_PAPER}",
         "All methods on the same clock, with as many uploads; dashed: the target of the tables.",
         partial(accuracy_curves, methods=METHODS), figures.accuracy,
         partial(part, _names), (2, 23))  # fmt: skip
_add("fig7", "slower networks, more heterogeneous and more devices", f"Figure 7 of {_PAPER}",
     "Accuracy at the end, and virtual time to 60 %. No mark: not reached.",
     condition_points, figures.conditions, conditions, (24, 25, 26, 27))  # fmt: skip
for _number, _names in TABLES.items():
    _add(f"tab{_number}", "accuracy, and virtual time to a target", f"Table {_number} of {_PAPER}",
         "The columns of one data set, each number beside the printed one.",
         tables.comparison_table, _MEASURED, partial(part, _names), (1, 2, *range(5, 24)))  # fmt: skip
for _number, _title, _make in (
    (3, "layers of the CNN", tables.cnn_layers),
    (5, "learning rates of the columns of Table 1", partial(tables.hyperparameters, 5)),
    (6, "learning rates of the columns of Table 2", partial(tables.hyperparameters, 6)),
):
    _add(f"tab{_number}", _title, f"Table {_number} of {_PAPER}",
         "Printed, and what the specifications of profile paper have.",
         partial(_without_study, _make), Columns())  # fmt: skip

_Row = tuple[str, str, Callable[..., list[Entry]], Callable[[Study], pd.DataFrame], View, tuple[int, ...]]
_REPORTED: tuple[_Row, ...] = (
    ("gains", "what FedASMU gains over each baseline", comparison, tables.gains_table, Columns(), (3, 4)),
    ("ablations", "without parts of the method", ablations, tables.ablation_table, _MEASURED, (28, 29, 30, 31)),
    ("heuristics", "learned and fixed slots", heuristics, tables.heuristics_table, Columns(), (38, 44)),
    ("others", "further baselines", others, tables.others_table, Columns(), (36, 37)),
    ("traffic", "models sent per upload", comparison, tables.communication_table, Columns(), (39,)),
    ("sensitivity", "other trigger periods and learning rates", sensitivity, tables.sensitivity_table, Columns(),
     (35,)),
)  # fmt: skip
_BEYOND: tuple[_Row, ...] = (
    ("x1", "staleness, and the weights that uploads get", ablations, staleness_table, figures.staleness,
     ()),
    ("x2", "FedASMU in variants", variants, variants_table, Columns(), ()),
    ("x3", "baselines with other values of what the paper does not print", tuning, tuning_table, Columns(), ()),
    ("x4", "accuracy after as many uploads, and after as much time", comparison, equal_time_table, Columns(), ()),
)  # fmt: skip
for _rows, _reference, _description in (
    (_REPORTED, f"Text of {_PAPER}", "What the text reports, beside ours."),
    (_BEYOND, "Beyond the paper", "Runs of our own."),
):
    for _name, _title, _grid, _reduce, _view, _carried in _rows:
        _add(_name, _title, _reference, _description, _reduce, _view, _grid, _carried)
