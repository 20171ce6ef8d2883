"""FedAsync's Figure 1: the system, and three workers in time."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from fl_core.report.style import BLACK, BLUE, GREEN, GREY, ORANGE, SKY, VERMILION, style

Point = tuple[float, float]


def system(timeline: pd.DataFrame) -> Figure:
    """Draw FedAsync's Figure 1: who sends what to whom, and below it what that looks like in time.

    Parameters
    ----------
    timeline : DataFrame
        As :func:`three_workers` returns it.
    """
    with style():
        figure, (above, below) = plt.subplots(2, 1, figsize=(5.8, 6.4), height_ratios=(1.75, 1))
        _roles(above)
        _workers(below, timeline)
    plt.close(figure)
    return figure


def _roles(axis: Axes) -> None:
    axis.set(xlim=(0, 10), ylim=(0, 7.4))
    axis.axis("off")
    axis.set_title("(a) the system")
    _box(axis, (5.35, 0.35), 4.5, 6.7, "server", edge=GREY, fill="#F6F6F6", top=True)
    _box(axis, (5.8, 4.9), 3.6, 1.1, "scheduler", edge=GREEN)
    _box(axis, (5.8, 2.9), 3.6, 1.1, "global model $x_t$, version $t$", edge=BLACK)
    _box(axis, (7.4, 0.85), 2.0, 1.1, "updater", edge=VERMILION)
    _box(axis, (5.8, 0.95), 1.15, 0.9, "queue", edge=ORANGE)
    for row, (name, state, edge, fill) in enumerate(
        (("worker 1", "working", BLUE, "#E3F0F8"), ("worker 2", "idle", GREY, "white"),
         ("worker n", "working", BLUE, "#E3F0F8"))
    ):  # fmt: skip
        _box(axis, (0.15, 4.95 - 2.1 * row), 2.2, 1.1, f"{name}\n{state}", edge=edge, fill=fill)
    _arrow(axis, (5.8, 5.75), (2.4, 5.75), "0  trigger", GREEN)
    _arrow(axis, (5.75, 3.75), (2.4, 5.2), "1, 2  receive $x_\\tau$, $\\tau$", BLACK, lift=-0.45)
    axis.text(1.25, 4.75, "3  train", ha="center", va="top", fontsize=9, color=BLUE)
    _arrow(axis, (2.4, 1.25), (5.75, 1.25), "4–6  push $x_{\\mathrm{new}}$, $\\tau$", ORANGE)
    _arrow(axis, (7.0, 1.4), (7.4, 1.4), "", ORANGE)
    _arrow(axis, (8.4, 2.0), (8.4, 2.85), "7, 8  mix", VERMILION, aside=True)
    _arrow(axis, (7.6, 4.05), (7.6, 4.85), "read", GREEN, aside=True)


def _workers(axis: Axes, timeline: pd.DataFrame) -> None:
    names = sorted(timeline["worker"].unique())
    for place, name in enumerate(names):
        own = timeline[timeline["worker"] == name]
        axis.barh(place, own["end"] - own["start"], left=own["start"], height=0.6, color=SKY, ec="white", lw=1.5)
        for end, version, staleness in own[["end", "version", "staleness"]].itertuples(index=False, name=None):
            axis.text(end - 0.12, place, f"{staleness}", ha="right", va="center", fontsize=9)
            axis.text(end, place - 0.34, f"{version}", ha="center", va="bottom", fontsize=8, color=VERMILION)
    axis.set(yticks=range(len(names)), ylim=(len(names) - 0.5, -0.8), xlabel="virtual time (s)", xlim=(0, 20.6))
    axis.set_yticklabels([f"worker {name}" for name in names])
    axis.set_title("(b) three workers: staleness (black) and version made (red)")
    axis.grid(visible=False, axis="y")


def _box(
    axis: Axes,
    corner: Point,
    width: float,
    height: float,
    text: str,
    edge: str,
    fill: str = "white",
    top: bool = False,
) -> None:
    axis.add_patch(
        FancyBboxPatch(corner, width, height, "round,pad=0.05,rounding_size=0.12", ec=edge, fc=fill, lw=1.4)
    )
    x, y = corner[0] + width / 2, corner[1] + (height - 0.12 if top else height / 2)
    axis.text(x, y, text, ha="center", va="top" if top else "center", fontsize=9)


def _arrow(
    axis: Axes, start: Point, end: Point, text: str, colour: str, lift: float = 0.12, aside: bool = False
) -> None:
    axis.add_patch(
        FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=12, color=colour, lw=1.4, shrinkA=0, shrinkB=0)
    )
    x, y = (start[0] + end[0]) / 2, (start[1] + end[1]) / 2
    if aside:
        axis.text(x + 0.12, y, text, ha="left", va="center", fontsize=9, color=colour)
    else:
        axis.text(
            x - max(0, -lift),
            y + lift,
            text,
            ha="center",
            va="bottom" if lift > 0 else "top",
            fontsize=9,
            color=colour,
        )
