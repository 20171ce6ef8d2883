"""FedASMU (Liu et al., 2024): Figures 1 to 7, Tables 1 to 3, 5 and 6, what the text reports, and runs beyond it.

A data set stands for its columns of the tables; a figure shows those of its panels that are among them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd

from fl_core.experiments.artifacts import Artifact, Columns, Paper, View, computed, make_study, no_runs, stored_study
from fl_core.experiments.evidence import LOOKS
from fl_core.experiments.store import Store
from fl_core.experiments.study import Entry, Study, load_study
from fl_papers.fedasmu import decisive, errata, experiment, figures, tables
from fl_papers.fedasmu.decisive import Decisive
from fl_papers.fedasmu.experiment import METHODS, FedASMUExperiment, FirstColumn

_PAPER = Paper("fedasmu", "Liu et al. (2024)", FedASMUExperiment.shown(tables.paper_setting))

PANELS: dict[int, tuple[str, ...]] = {
    3: ("lenet-cifar10", "cnn-cifar10", "resnet-tiny-imagenet"),
    4: ("lenet-cifar100", "cnn-cifar100", "resnet-cifar100"),
    5: ("alexnet-cifar10", "vgg-cifar10", "textcnn-imdb"),
    6: ("alexnet-cifar100", "vgg-cifar100", "lenet-fmnist"),
}
"""(a), (b) and (c) of Figures 3 to 6."""
TABLES: dict[int, tuple[str, ...]] = {
    number: tuple(name for name, column in experiment.COLUMNS.items() if column.table == number) for number in (1, 2)
}
_MEASURED = Columns(
    {"printed accuracy": "accuracy, paper", "accuracy": "accuracy, here", "printed time": "time, paper",
     "time": "seconds, here", "printed ratio": "time over FedASMU's, paper", "ratio": "here",
     "reached": "seeds that get there"}
)  # fmt: skip
_ABLATED = ("FedASMU", *experiment.ABLATIONS, "FedAvg")
_SPREAD = {"fig7": "mean over", "traffic": "mean over", "x1": "all uploads of"}
"""What artifacts show of several seeds; other tables have intervals, other figures standard deviations."""

_ONE, _FEW = FedASMUExperiment, FirstColumn
GRIDS: dict[str, Callable[..., list[Entry]]] = {
    **{part.__name__: _ONE.made(part)
       for part in (_ONE.comparison, _ONE.others, _ONE.ablations, _ONE.heuristics, _ONE.sensitivity)},
    **{part.__name__: _FEW.made(part) for part in (_FEW.conditions, _FEW.variants, _FEW.tuning)},
}  # fmt: skip


def _artifact(
    name: str, title: str, where: str, description: str, reduce: Callable[[Study], pd.DataFrame], view: View,
    make_grid: Callable[..., list[Entry]] = no_runs, claims: Iterable[int | str] = (), columns: Sequence[str] = (),
) -> Artifact:  # fmt: skip
    """Return an artifact, its `claims` by number; one without a grid needs no runs.

    Of the comparison it shows those of its `columns` that a data set has, or else all that it has.
    """
    if columns:
        make_grid = _ONE.made(partial(_ONE.comparison, only=columns))
    numbers = " ".join(one if isinstance(one, str) else f"C{one:02d}" for one in claims)
    kind = "95 % t-interval" if isinstance(view, Columns) else "standard deviation"
    on = tuple(dict.fromkeys(experiment.COLUMNS[column].dataset for column in columns))
    more: dict[str, Any] = {"over_seeds": _SPREAD.get(name, f"mean and {kind} over"), "panels_on": on}
    return _PAPER.artifact(name, where, title, description, reduce, view, make_grid, numbers, **more)


ARTIFACTS = [
    _artifact("fig1", "the system in time", "Figure 1",
              "Devices start at ticks, ask once for a fresh model, and make a version each when they upload.",
              computed(figures.five_devices), figures.timeline,
              claims=[claim.id.removeprefix("FEDASMU-") for claim in errata.CLAIMS]),
    _artifact("fig2", "accuracy over virtual time without parts of the method", "Figure 2",
              "DA: static weights; FA: no fresh models; 0: neither.",
              partial(figures.accuracy_curves, methods=_ABLATED), figures.accuracy, GRIDS["ablations"],
              range(28, 34)),
    *(
        _artifact(f"fig{number}", "accuracy over virtual time", f"Figure {number}",
                  "All methods on the same clock, with as many uploads; dashed: the target of the tables.",
                  partial(figures.accuracy_curves, methods=METHODS), figures.accuracy,
                  claims=(2, 23), columns=columns)
        for number, columns in PANELS.items()
    ),
    _artifact("fig7", "slower networks, more heterogeneous and more devices", "Figure 7",
              "Accuracy at the end, and virtual time to 60 %. No mark: not reached.",
              figures.condition_points, figures.conditions, GRIDS["conditions"], (24, 25, 26, 27)),
    *(
        _artifact(f"tab{number}", "accuracy, and virtual time to a target", f"Table {number}",
                  "The columns of one data set, each number beside the printed one.",
                  partial(tables.measured, methods=METHODS), _MEASURED, claims=(1, 2, *range(5, 24)),
                  columns=columns)
        for number, columns in TABLES.items()
    ),
    *(
        _artifact(f"tab{number}", title, f"Table {number}",
                  "Printed, and what the specifications of profile paper have.", computed(make), Columns())
        for number, title, make in (
            (3, "layers of the CNN", tables.cnn_layers),
            (5, "learning rates of Table 1's columns, and of LeNet on FMNIST", partial(tables.hyperparameters, 5)),
            (6, "learning rates of the other columns of Table 2", partial(tables.hyperparameters, 6)),
        )
    ),
    *(
        _artifact(name, title, reference, description, reduce, view, GRIDS[grid], claims)
        for reference, description, rows in (
            ("Text", "What the text reports, beside ours.", (
                ("gains", "what FedASMU gains over each baseline", "comparison",
                 tables.gains_table, Columns(), (1, 2)),
                ("ablations", "without parts of the method", "ablations",
                 partial(tables.measured, methods=_ABLATED, setting=tables.IMPLIED), _MEASURED, (28, 29, 30, 31)),
                ("heuristics", "learned and fixed slots", "heuristics",
                 partial(tables.advantages, others=experiment.HEURISTICS), Columns(), (38, 44)),
                ("others", "further baselines", "others",
                 partial(tables.advantages, others=experiment.EXTRA), Columns(), (36, 37)),
                ("traffic", "models sent per upload", "comparison", tables.communication_table, Columns(), (39,)),
                ("sensitivity", "other trigger periods and learning rates", "sensitivity",
                 tables.sensitivity_table, Columns(), (35,)),
            )),
            ("", "Runs of our own.", (
                ("x1", "staleness, and the weights that uploads get", "ablations",
                 figures.staleness_points, figures.staleness, ()),
                ("x2", "FedASMU in variants", "variants",
                 partial(tables.changed_runs, table={"FedASMU": ("variant", experiment.VARIANTS)}), Columns(), ()),
                ("x3", "baselines with other values of what the paper does not print", "tuning",
                 partial(tables.changed_runs, table=experiment.TUNED), Columns(), ()),
                ("x4", "accuracy after as many uploads, and after as much time", "comparison",
                 tables.equal_time_table, Columns(), ()),
            )),
        )
        for name, title, grid, reduce, view, claims in rows
    ),
    *(
        _artifact(name, title, "", "Declared before it runs: each stage follows from the one before.",
                  reduce, Columns(), Decisive.made(grid))
        for name, title, grid, reduce in (
            ("x5", "decisive experiment, A: where printed rows come out", Decisive.search, decisive.search_table),
            ("x6", "decisive experiment, B: the same number of trials", Decisive.tuning, decisive.tuning_table),
            ("x7", "decisive experiment, C: fresh seeds", Decisive.judged, decisive.judged_table),
        )
    ),
]  # fmt: skip


def stored(
    chosen: Sequence[Artifact], store: Store, than: str, dataset: str, seeds: Sequence[int] | None,
    profile: str = "laptop", **overrides: Any,
) -> Study | None:  # fmt: skip
    """Return what a chapter made at profile ``smoke`` shows of the stored runs of a larger one.

    Those of the seeds that are complete, else those that are for a column, else of the first as far as it goes; None:
    no runs.
    """
    if than != "smoke":
        return None
    study = stored_study(chosen, store, profile, dataset, seeds, **overrides)
    if not study.complete and not study.stored_seeds:
        every = load_study(make_study(chosen, profile, dataset, seeds or range(max(LOOKS)), **overrides), store)
        lacking = {_column(entry) for entry in every.entries if entry.key not in every.results}
        whole = [entry for entry in every.entries if _column(entry) not in lacking]
        kept = every.of({entry.labels["seed"] for entry in whole} or study.seeds[:1])
        study = replace(kept, results={e.key: every.results[e.key] for e in whole} or kept.results)
    elif not study.complete:
        study = study.of(study.stored_seeds)
    return study if study.results else None


def _column(entry: Entry) -> tuple[str, int]:
    return entry.labels["column"], entry.labels["seed"]
