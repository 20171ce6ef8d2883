"""FedASMU (Liu et al., 2024): Figures 1 to 7, Tables 1 to 3, 5 and 6, what the text reports, and runs beyond it.

A data set stands for its columns of the tables; a figure shows those of its panels that are among them. The runs are
those of :mod:`fl_core.experiments.fedasmu_grid`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pandas as pd

from fl_core.experiments import fedasmu_claims  # noqa: F401  (registers the claims)
from fl_core.experiments import fedasmu_tables as tables
from fl_core.experiments.artifacts import Artifact, Columns, Drawing, register
from fl_core.experiments.fedasmu_beyond import equal_time_table, staleness_table, tuning_table, variants_table
from fl_core.experiments.fedasmu_columns import COLUMNS
from fl_core.experiments.fedasmu_curves import accuracy_curves, condition_points
from fl_core.experiments.fedasmu_grid import (
    ABLATIONS,
    METHODS,
    ablations,
    comparison,
    conditions,
    heuristics,
    others,
    sensitivity,
    tuning,
    variants,
)
from fl_core.experiments.fedasmu_system import five_devices, paper_setting
from fl_core.experiments.study import Entry, Study

_PAPER, _CHAPTER = "Liu et al. (2024)", "notebooks/2_papers/fedasmu_replication.ipynb"

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


def part(
    names: Sequence[str], profile: str, dataset: str, seeds: Sequence[int] | None, **overrides: Any
) -> list[Entry]:
    """Return the comparison on the columns `names` of a data set; if it has none of them, on all that it has."""
    entries = comparison(profile, dataset, seeds, **overrides)
    return [entry for entry in entries if entry.labels["column"] in names] or entries


def _claims(*numbers: int) -> tuple[str, ...]:
    return tuple(f"FEDASMU-C{number:02d}" for number in numbers)


register(
    Artifact(
        id="fedasmu-fig1",
        title="the system in time",
        reference=f"Figure 1 of {_PAPER}",
        description="Devices start at ticks, ask once for a fresh model, and make a version each when they upload.",
        notebook=_CHAPTER,
        reduce=five_devices,
        view=Drawing("fedasmu-timeline"),
        claims=_claims(40, 41, 42, 43),
    )
)
register(
    Artifact(
        id="fedasmu-fig2",
        title="accuracy over virtual time without parts of the method",
        reference=f"Figure 2 of {_PAPER}",
        description="DA: static weights; FA: no fresh models; 0: neither.",
        notebook=_CHAPTER,
        make_grid=ablations,
        reduce=partial(accuracy_curves, methods=("FedASMU", *ABLATIONS, "FedAvg")),
        view=Drawing("fedasmu-accuracy"),
        paper_setting=paper_setting,
        claims=_claims(*range(28, 35)),
    )
)
for _number, _names in PANELS.items():
    register(
        Artifact(
            id=f"fedasmu-fig{_number}",
            title="accuracy over virtual time",
            reference=f"Figure {_number} of {_PAPER}",
            description="All methods on the same clock, with as many uploads; dashed: the target of the tables.",
            notebook=_CHAPTER,
            make_grid=partial(part, _names),
            reduce=partial(accuracy_curves, methods=METHODS),
            view=Drawing("fedasmu-accuracy"),
            paper_setting=paper_setting,
            claims=_claims(2, 23),
        )
    )
register(
    Artifact(
        id="fedasmu-fig7",
        title="slower networks, more heterogeneous and more devices",
        reference=f"Figure 7 of {_PAPER}",
        description="Accuracy at the end, and virtual time to 60 %. No mark: not reached.",
        notebook=_CHAPTER,
        make_grid=conditions,
        reduce=condition_points,
        view=Drawing("fedasmu-conditions"),
        paper_setting=paper_setting,
        claims=_claims(24, 25, 26, 27),
    )
)
for _number, _names in TABLES.items():
    register(
        Artifact(
            id=f"fedasmu-tab{_number}",
            title="accuracy, and virtual time to a target",
            reference=f"Table {_number} of {_PAPER}",
            description="The columns of one data set, each number beside the printed one.",
            notebook=_CHAPTER,
            make_grid=partial(part, _names),
            reduce=tables.comparison_table,
            view=_MEASURED,
            paper_setting=paper_setting,
            claims=_claims(1, 2, *range(5, 24)),
        )
    )


def _from_formulas(make: Callable[[], pd.DataFrame], study: Study) -> pd.DataFrame:
    return make()


for _id, _title, _make in (
    ("tab3", "layers of the CNN", tables.cnn_layers),
    ("tab5", "learning rates of the columns of Table 1", partial(tables.hyperparameters, 5)),
    ("tab6", "learning rates of the columns of Table 2", partial(tables.hyperparameters, 6)),
):
    register(
        Artifact(
            id=f"fedasmu-{_id}",
            title=_title,
            reference=f"Table {_id[3:]} of {_PAPER}",
            description="Printed, and what the specifications of profile paper have.",
            notebook=_CHAPTER,
            reduce=partial(_from_formulas, _make),
            view=Columns(),
        )
    )
_Row = tuple[str, str, Callable[..., list[Entry]], Callable[[Study], pd.DataFrame], Columns | Drawing]
_REPORTED: tuple[tuple[_Row, tuple[int, ...]], ...] = (
    (("gains", "what FedASMU gains over each baseline", comparison, tables.gains_table, Columns()), (3, 4)),
    (("ablations", "without parts of the method", ablations, tables.ablation_table, _MEASURED), (28, 29, 30, 31)),
    (("heuristics", "learned and fixed slots", heuristics, tables.heuristics_table, Columns()), (38, 44)),
    (("others", "further baselines", others, tables.others_table, Columns()), (36, 37)),
    (("traffic", "models sent per upload", comparison, tables.communication_table, Columns()), (39,)),
    (("sensitivity", "other trigger periods and learning rates", sensitivity, tables.sensitivity_table, Columns()),
     (35,)),
)  # fmt: skip
_BEYOND: tuple[_Row, ...] = (
    ("x1", "staleness, and the weights that uploads get", ablations, staleness_table, Drawing("fedasmu-staleness")),
    ("x2", "FedASMU in variants", variants, variants_table, Columns()),
    ("x3", "baselines with other values of what the paper does not print", tuning, tuning_table, Columns()),
    ("x4", "accuracy after as many uploads, and after as much time", comparison, equal_time_table, Columns()),
)
for (_id, _title, _grid, _reduce, _view), _carried in (*_REPORTED, *((row, ()) for row in _BEYOND)):
    register(
        Artifact(
            id=f"fedasmu-{_id}",
            title=_title,
            reference="Beyond the paper" if _id.startswith("x") else f"Text of {_PAPER}",
            description="Runs of our own." if _id.startswith("x") else "What the text reports, beside ours.",
            notebook=_CHAPTER,
            make_grid=_grid,
            reduce=_reduce,
            view=_view,
            paper_setting=paper_setting,
            claims=_claims(*_carried),
        )
    )
