"""FedASMU's figures that are no plain plots of curves: a timetable, panels by column, and Figure 7."""

from __future__ import annotations

from textwrap import fill

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from fl_core.report.style import BLUE, GREEN, GREY, ORANGE, SKY, VERMILION, line_of, style
from fl_papers.fedasmu.methods import SYNCHRONOUS

ACTIVITIES = {"download": SKY, "train": BLUE, "fresh model": GREEN, "upload": ORANGE}
CONDITIONS = {
    "bandwidth": "times lower bandwidth",
    "heterogeneity": "slowest to fastest device",
    "devices": "devices",
}


def timeline(spans: pd.DataFrame) -> Figure:
    """Draw what five devices do, with the staleness of every upload and the version that it makes.

    Parameters
    ----------
    spans : DataFrame
        As :func:`fl_papers.fedasmu.system.five_devices` returns it.
    """
    made = spans[spans["made"].notna()]
    until = float(made["end"].max()) + 20
    with style():
        figure, axis = plt.subplots(figsize=(5.8, 4.4))
        for activity, colour in ACTIVITIES.items():
            own = spans[(spans["activity"] == activity) & (spans["start"] < until)]
            axis.barh(own["device"], own["end"].clip(upper=until) - own["start"], left=own["start"], height=0.52,
                      color=colour)  # fmt: skip
        for name, shift, colour in (("version", -0.29, GREY), ("made", -0.29, VERMILION)):
            own = spans[spans["activity"] == "fresh model"] if name == "version" else made
            own = own[own["end"] < until]
            for x, device, number in own[["end", "device", name]].itertuples(index=False, name=None):
                axis.text(x, device + shift, f"{number:.0f}", ha="center", va="bottom", fontsize=8, color=colour)
        for x, device, number in made[["start", "device", "staleness"]].itertuples(index=False, name=None):
            axis.text(x - 6, device, f"{number:.0f}", ha="right", va="center", fontsize=8, color="white")
        for x in made["end"]:
            axis.axvline(x, color=GREY, lw=0.6, alpha=0.6, zorder=0)
        axis.set(yticks=range(spans["device"].max() + 1), ylim=(spans["device"].max() + 0.5, -0.7), xlim=(0, until),
                 xlabel="virtual time (s); a line is a new version")  # fmt: skip
        axis.set_yticklabels([f"device {number}" for number in range(spans["device"].max() + 1)])
        axis.grid(visible=False)
        patches = [Patch(color=colour, label=activity) for activity, colour in ACTIVITIES.items()]
        figure.legend(handles=patches, loc="outside lower center", ncols=4, columnspacing=1.0, handlelength=1.2)
    plt.close(figure)
    return figure


def accuracy(curves: pd.DataFrame) -> Figure:
    """Draw a panel for each column of the tables, with a line at its target; hatched: no runs.

    Where there are many methods, synchronous and asynchronous ones get a panel each, both with FedASMU.

    Parameters
    ----------
    curves : DataFrame
        As :func:`fl_papers.fedasmu.curves.accuracy_curves` returns it.
    """
    methods = list(curves["method"].dropna().unique())
    split = {"synchronous": [m for m in methods if m == "FedASMU" or m in SYNCHRONOUS],
             "asynchronous": [m for m in methods if m not in SYNCHRONOUS]}  # fmt: skip
    shares = split if len(methods) > 6 else {"": methods}
    panels: list[tuple[pd.DataFrame, str]] = []
    for _, own in curves.groupby("column", sort=False):
        panels += [(own, share) for share in shares if own["method"].notna().all() or share == next(iter(shares))]
    longest = float(curves["x"].max()) / 1000
    with style():
        height = 2.7 * len(panels) + 0.24 * -(-len(methods) // 3)
        figure, axes = plt.subplots(len(panels), 1, figsize=(5.6, height), squeeze=False)
        for axis, (own, share) in zip(axes[:, 0], panels, strict=True):
            hatched = own["method"].isna().any()
            axis.set_title(own["title"].iloc[0] + (f": {share} methods" if share and not hatched else ""))
            if hatched:
                _hatch(axis)
            else:
                _curves(axis, own, shares[share])
                axis.set_xlim(-0.02 * longest, 1.02 * longest)
        axes[-1, 0].set_xlabel("virtual time (1000 s)")
        _legend(figure, methods)
    plt.close(figure)
    return figure


def conditions(points: pd.DataFrame) -> Figure:
    """Draw accuracy and time to the target over what is varied; hatched: no runs; no mark: not reached.

    Parameters
    ----------
    points : DataFrame
        As :func:`fl_papers.fedasmu.curves.condition_points` returns it.
    """
    methods = list(points["method"].unique())
    with style():
        rows = list(points["varied"].unique())
        figure, axes = plt.subplots(len(rows), 2, figsize=(6.4, 2.6 * len(rows) + 0.9), squeeze=False)
        for (left, right), varied in zip(axes, rows, strict=True):
            own = points[points["varied"] == varied]
            values = sorted(own["value"].unique())
            for axis, what, title in ((left, "accuracy", "test accuracy"), (right, "seconds", "1000 s to 60 %")):
                grid = own.pivot(index="value", columns="method", values=what).reindex(values)
                for method in methods:
                    y = grid[method].to_numpy(float) / (1000 if what == "seconds" else 1)
                    look = line_of(method, 0, methods)
                    axis.plot(range(len(values)), np.where(np.isfinite(y), y, np.nan), **look | {
                        "marker": look["marker"] or "o"})  # fmt: skip
                for place in np.flatnonzero(grid.isna().all(axis=1)):
                    _hatch(axis, float(place))
                axis.set(xticks=range(len(values)), xlabel=CONDITIONS[varied], title=title,
                         xlim=(-0.3, len(values) - 0.7))  # fmt: skip
                axis.set_xticklabels([f"{value:g}" for value in values])
                reached = np.isfinite(grid.to_numpy(float)).any()
                if not reached and grid.notna().to_numpy().any():
                    axis.set_yticks([])
                    axis.text(0.5, 0.5, "not reached", transform=axis.transAxes, ha="center")
                if what == "seconds" and reached:
                    axis.set_yscale("log")
                    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
                    axis.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
                    axis.yaxis.set_minor_formatter(NullFormatter())
        _legend(figure, methods)
    plt.close(figure)
    return figure


def staleness(uploads: pd.DataFrame) -> Figure:
    """Draw how stale uploads are, and the weights that FedASMU and FedAsync give them.

    Parameters
    ----------
    uploads : DataFrame
        As :func:`fl_papers.fedasmu.beyond.staleness_table` returns it.
    """
    methods = list(uploads["method"].unique())
    bound = int(uploads["bound"].iloc[0])
    with style():
        figure, (above, below) = plt.subplots(2, 1, figsize=(5.6, 5.6))
        first = uploads[uploads["method"] == methods[0]]["staleness"]
        above.hist(first, bins=np.arange(0.5, max(first.max(), bound) + 1.5), color=SKY)
        above.axvline(bound, color=VERMILION, lw=1.6)
        above.set(xlabel="staleness $t-o+1$", ylabel="uploads")
        above.set_title(f"(a) {methods[0]}; red: the bound τ = {bound}")
        for method in methods:
            own = uploads[uploads["method"] == method]
            below.plot(
                own["version"], own["weight"], ".", ms=3, alpha=0.5, color=line_of(method, 0, methods)["color"]
            )
        below.set(xlabel="version", ylabel="mixing weight α")
        below.set_title("(b) weights")
        _legend(figure, methods)
    plt.close(figure)
    return figure


def _curves(axis: Axes, own: pd.DataFrame, methods: list[str]) -> None:
    """Draw the curves of some methods in one column."""
    axis.axhline(own["target"].iloc[0], color=GREY, lw=0.9, ls=(0, (2, 2)))
    for place, method in enumerate(methods):
        curve = own[own["method"] == method]
        look = line_of(method, 0, methods)
        x, mean, std = (curve[c].to_numpy(float) for c in ("x", "test_accuracy", "test_accuracy_std"))
        axis.plot(x / 1000, mean, markevery=(2 * place, 12), **look)
        if np.isfinite(std).any():
            axis.fill_between(x / 1000, mean - std, mean + std, color=look["color"], alpha=0.12, lw=0)
    if missing := own["missing"].iloc[0]:
        words = fill(f"no runs: {missing}", 60)
        axis.text(0.99, 0.03, words, transform=axis.transAxes, ha="right", fontsize=8, color=GREY)
    axis.set_ylabel("test accuracy")
    axis.margins(x=0.02)


def _hatch(axis: Axes, place: float | None = None) -> None:
    """Mark a whole panel, or one place of its abscissa, as missing."""
    corner, width = ((0.0, 0.0), 1.0) if place is None else ((place - 0.2, 0.0), 0.4)
    system = axis.transAxes if place is None else axis.get_xaxis_transform()
    axis.add_patch(Rectangle(corner, width, 1, transform=system, fill=False, ec=GREY, hatch="////", lw=0))
    if place is None:
        axis.set(xticks=[], yticks=[])


def _legend(figure: Figure, methods: list[str]) -> None:
    handles = [Line2D([], [], label=method, **line_of(method, 0, methods)) for method in methods]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, handlelength=2.6, columnspacing=1.2)
