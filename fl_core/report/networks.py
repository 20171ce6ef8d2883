"""The papers' networks: what they are made of and weigh; and the calibration of surrogates with reference networks.

Every known accuracy stands with its origin: who reports it, and what our runs beside it were made with.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, PercentFormatter

from fl_core.datasets.surrogates.calibration import TOLERANCE, Reference
from fl_core.experiments import calibration
from fl_core.experiments.calibration import LESS, LINEAR, NOISY, REFERENCE
from fl_core.experiments.study import Study, listed
from fl_core.models import network_size
from fl_core.report.interactive import asset
from fl_core.report.style import BLACK, BLUE, GREEN, ORANGE, VERMILION, drawing
from fl_core.report.tables import Table


@dataclass(frozen=True)
class Use:
    """A network as a paper uses it."""

    model: str
    shape: tuple[int, ...]  # of one input
    classes: int
    task: str  # paper and data set
    layers: str
    """In words. ``conv 6@5`` is a convolution with 6 channels and 5x5 kernels, ``pool`` takes the maximum of 2x2
    pixels, ``fc`` is a dense layer; ReLU follows each but the last one."""
    stated: int
    by: str
    """Who states the number of parameters: ``"paper"``, ``"authors' code"``, or ``"specification"`` where the paper
    gives layers at most (FedAsync, Table 2; FedASMU, Table 3) and the count follows from them."""


USES = tuple(
    Use(model, tuple(map(int, shape.split())), int(classes), task, layers, int(stated), by)
    for model, shape, classes, task, layers, stated, by in [*csv.reader(asset("networks.csv").splitlines())][1:]
)
"""Every network on the inputs of its papers, and the number of parameters that is stated for it: ``networks.csv``."""


def networks_table(uses: tuple[Use, ...] = USES) -> Table:
    """Return one row for each network and input of `uses`."""
    rows = []
    for use in uses:
        size = network_size(use.model, use.shape, use.classes)
        rows.append(
            {
                "network": use.model,
                "where": use.task,
                "input": " × ".join(map(str, use.shape)) if len(use.shape) > 1 else f"{use.shape[0]} tokens",
                "classes": use.classes,
                "parameters": size.parameters,
                "buffers": size.buffers,
                "MiB": size.mebibytes,
                "stated": f"{use.stated:,} ({use.by})",
                "layers": use.layers,
            }
        )
    return Table(pd.DataFrame(rows), digits=2, wrap={"layers": 16, "where": 8, "stated": 7})


COMMAND = "fl-core data calibrate"
LINES: dict[str, dict[str, Any]] = {
    REFERENCE: {"color": BLUE, "linestyle": "-", "linewidth": 2.4},
    LINEAR: {"color": BLACK, "linestyle": (0, (5, 2))},
    LESS: {"color": VERMILION, "linestyle": (0, (1.5, 1.5))},
    NOISY: {"color": GREEN, "linestyle": (0, (6, 2, 1.5, 2))},
}


def calibration_table(study: Study) -> Table:
    """Return known and measured accuracies, and what the controls say; a dash: the run is missing."""
    frame = calibration.table(study).drop(columns="reported", errors="ignore")
    if "data set" in frame:
        frame["data set"] = [_used(study, name) for name in frame["data set"]]
    return Table(
        frame, {"calibrated": "within 3 points", "linear": "linear model", "wrong labels": "20 % wrong labels"}
    )


def origin_table(study: Study) -> Table:
    """Return, folded away, who reports each known accuracy, and what our runs were made with."""
    found = calibration.table(study)
    pairs = list(zip(found.get("data set", []), found.get("network", []), strict=True))
    frame = pd.DataFrame([_origin(study, *pair) for pair in pairs])
    if pairs:
        frame.insert(0, "data set", [_used(study, name) for name, _ in pairs])
        frame.insert(1, "network", [network for _, network in pairs])
        frame["known from"] = found["reported"]
    return Table(
        frame,
        {"version": "surrogate version"},
        wrap={"known from": 18},
        fold="Who reports the known accuracies, and what our runs were made with",
    )


def origin_in_words(study: Study) -> str:
    """Return what the runs of `study` were made with, and which are missing, as Markdown."""
    if not study.entries:
        return f"No data set has a reference yet; once one has, `{COMMAND}` makes its runs."
    done = [study.results[entry.key] for entry in study.entries if entry.key in study.results]
    text = f"{len(done)} of {len(study.entries)} runs are stored"
    if done:
        commits = sorted({result.provenance["commit"] for result in done})
        text += f": {study.data_kind} data, seed {listed(study.seeds)}, commit {', '.join(commits)}"
    names = sorted({e.labels["dataset"] for e in study.entries if e.key not in study.results})
    return f"{text}. Missing are runs of {', '.join(names)}: `{COMMAND} {' '.join(names)}`." if names else f"{text}."


def plot_calibration(study: Study) -> Figure:
    """Draw test accuracy against passes over the data, with the known accuracy of the real data as a band.

    A data set without a run gets a panel that says so; one without a comparable figure has no band.
    """
    names = {entry.labels["dataset"] for entry in study.entries}
    shown = [reference for reference in calibration.REFERENCES if reference.dataset in names]
    down = max(1, -(-len(shown) // 2))
    look = {"axes.titlesize": 10, "lines.linewidth": 1.5}
    with drawing((5.6, 1.2 + 1.75 * down), down, 2, rc=look, squeeze=False) as (figure, axes):
        for axis, reference in zip(axes.flat, shown, strict=False):
            _panel(axis, reference, study)
        for axis in axes.flat[len(shown) :]:
            axis.axis("off")
        if not shown:
            axes[0, 0].text(0, 0.5, "nothing calibrated yet", transform=axes[0, 0].transAxes)
        for axis in axes[:, 0]:
            axis.set_ylabel("accuracy")
        for axis in axes[-1]:
            axis.set_xlabel("passes over the data")
        handles: list[Artist] = [Line2D([], [], label=name, **look) for name, look in LINES.items()]
        handles.append(Patch(color=ORANGE, alpha=0.4, label="known ± 3 points"))
        figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return figure


def _panel(axis: Axes, reference: Reference, study: Study) -> None:
    if reference.comparable:
        axis.axhspan(reference.known - TOLERANCE, reference.known + TOLERANCE, color=ORANGE, alpha=0.4, lw=0)
    runs = calibration.runs_of(study, reference)
    for entry, result in runs:
        accuracy = result.history.evaluations["test_accuracy"]
        passes = [reference.epochs * point / reference.points for point in range(len(accuracy))]
        axis.plot(passes, accuracy, **LINES[entry.labels["variant"]])
    if not runs:
        axis.text(0.5, 0.3, "not run yet", transform=axis.transAxes, ha="center")
    axis.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axis.xaxis.set_major_locator(MaxNLocator(4))
    axis.xaxis.set_major_formatter("{x:g}")
    axis.set(xlim=(0, reference.epochs), ylim=(0, 1), yticks=[0, 0.5, 1])
    axis.set_title(f"{_used(study, reference.dataset)}\n{reference.model}")


def _used(study: Study, dataset: str) -> str:
    """Return the name of what the runs for the real data set `dataset` are made on: its surrogate, if it has one."""
    return next(entry.spec.dataset for entry in study.entries if entry.labels["dataset"] == dataset)


def _origin(study: Study, dataset: str, network: str) -> dict[str, str | None]:
    """Return seeds, surrogate versions and commits of the stored runs of `network` on `dataset`; None without any."""
    runs = study.select(dataset=dataset, network=network)
    values = {
        "seed": [entry.labels["seed"] for entry, _ in runs],
        "version": [result.provenance.get("data_version", "real") for _, result in runs],
        "commit": [result.provenance["commit"] for _, result in runs],
    }
    return {name: ", ".join(sorted({str(v) for v in found})) or None for name, found in values.items()}
