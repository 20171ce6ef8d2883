"""FedLuck's figures that are no plots of curves: jobs in time, heat maps, bars, and the surface of phi."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from fl_core.report.style import BLACK, GREY, ORANGE, SKY, VERMILION, line_of, style


def timeline(jobs: pd.DataFrame) -> Figure:
    """Draw what five devices do between the ticks, with the staleness of every upload.

    Parameters
    ----------
    jobs : DataFrame
        As :func:`fl_papers.fedluck.tables.five_devices` returns it.
    """
    ticks = np.arange(0, jobs["used"].max() + 1e-9, np.diff(np.unique(jobs["used"])).min())
    with style():
        figure, axis = plt.subplots(figsize=(5.8, 4.2))
        for start, end, colour in (("start", "trained", SKY), ("trained", "arrived", ORANGE)):
            axis.barh(jobs["device"], jobs[end] - jobs[start], left=jobs[start], height=0.5, color=colour)
        axis.barh(jobs["device"], jobs["used"] - jobs["arrived"], left=jobs["arrived"], height=0.5, fc="white",
                  ec=GREY, lw=0.5, hatch="////")  # fmt: skip
        for device, used, staleness in jobs[["device", "used", "round_staleness"]].itertuples(index=False, name=None):
            axis.text(used - 0.1, device - 0.29, f"{staleness}", ha="right", va="bottom", fontsize=8, color=VERMILION)
        for tick in ticks:
            axis.axvline(tick, color=BLACK, lw=0.8, alpha=0.6, zorder=0)
        axis.set(yticks=range(jobs["device"].max() + 1), xlabel="virtual time (s); a line is a tick",
                 ylim=(jobs["device"].max() + 0.5, -0.6))  # fmt: skip
        axis.set_yticklabels([f"device {number}" for number in range(jobs["device"].max() + 1)])
        axis.grid(visible=False)
        patches = [Patch(color=SKY, label="k local steps"), Patch(color=ORANGE, label="upload"),
                   Patch(fc="white", ec=GREY, hatch="////", label="idle")]  # fmt: skip
        figure.legend(handles=patches, loc="outside lower center", ncols=3)
    plt.close(figure)
    return figure


def heat(cells: pd.DataFrame) -> Figure:
    """Draw the rounds to a target over k and delta, and below them what phi predicts.

    Parameters
    ----------
    cells : DataFrame
        As :func:`fl_papers.fedluck.heat.heat_map` returns it.
    """
    with style():
        figure, axes = plt.subplots(2, 1, figsize=(5.6, 7.0))
        _cells(axes[0], cells, "rounds")
        _cells(axes[1], cells, "factor")
        axes[0].set_title(f"(a) rounds to {100 * cells['target'].iloc[0]:g} % accuracy")
        axes[1].set_title("(b) φ, averaged over the devices")
    plt.close(figure)
    return figure


def traffic(bars: pd.DataFrame) -> Figure:
    """Draw the gigabytes to each target as groups of bars, on a logarithmic ordinate.

    Parameters
    ----------
    bars : DataFrame
        As :func:`fl_papers.fedluck.tables.traffic` returns it.
    """
    methods, targets = list(bars["method"].unique()), list(bars["target"].unique())
    width = 0.8 / len(methods)
    with style():
        figure, axis = plt.subplots(figsize=(5.6, 3.9))
        for place, method in enumerate(methods):
            own = bars[bars["method"] == method].set_index("target").reindex(targets)
            x = np.arange(len(targets)) + (place - (len(methods) - 1) / 2) * width
            colour = line_of(method, 0, methods)["color"]
            spread = own["gigabytes_std"].to_numpy(float)
            axis.bar(x, own["gigabytes"], width * 0.92, color=colour, label=method)
            if np.isfinite(spread).any():
                axis.errorbar(x, own["gigabytes"], spread, fmt="none", ecolor=BLACK, elinewidth=1, capsize=2)
        if bars["gigabytes"].notna().any():
            axis.set_yscale("log")
            axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
            axis.yaxis.set_minor_formatter(NullFormatter())
        else:
            axis.text(0.5, 0.5, "no target is reached by every seed", transform=axis.transAxes, ha="center")
        axis.set(xticks=range(len(targets)), ylabel="gigabytes uploaded, log scale")
        axis.set_xticklabels([f"{100 * target:g} %" for target in targets])
        axis.set_xlabel("target accuracy")
        axis.grid(visible=False, axis="x")
        figure.legend(loc="outside lower center", ncols=3)
    plt.close(figure)
    return figure


def surface(frame: pd.DataFrame) -> Figure:
    """Draw the level lines of phi over k and delta for each device, with its minimum.

    Parameters
    ----------
    frame : DataFrame
        As :func:`fl_papers.fedluck.theory.surface` returns it.
    """
    devices = list(frame["device"].unique())
    with style():
        figure, axes = plt.subplots(len(devices), 1, figsize=(5.6, 3.4 * len(devices)), squeeze=False, sharex=True)
        for axis, device in zip(axes[:, 0], devices, strict=True):
            own = frame[frame["device"] == device]
            grid = own.pivot(index="delta", columns="steps", values="factor")
            least = float(own["factor"].min())
            levels = least * np.geomspace(1.02, 30, 12)
            axis.contourf(grid.columns, grid.index, grid, levels=levels, norm=LogNorm(), cmap="cividis_r",
                          extend="both")  # fmt: skip
            axis.contour(grid.columns, grid.index, grid, levels=levels, colors=BLACK, linewidths=0.5, alpha=0.5)
            best = own.iloc[0]
            axis.plot(best["best_steps"], best["best_delta"], "*", color=VERMILION, ms=14, mfc=VERMILION, mec="white",
                      clip_on=False)  # fmt: skip
            axis.set(xscale="log", yscale="log", ylabel="kept fraction δ")
            axis.set_title(f"device {device}: β/T̃ = {best['ratio']:.2f}, best k = {best['best_steps']:.0f}, "
                           f"δ = {best['best_delta']:.3g}")  # fmt: skip
            for way in (axis.xaxis, axis.yaxis):
                way.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.grid(visible=False)
        axes[-1, 0].set_xlabel("local steps k")
    plt.close(figure)
    return figure


def _cells(axis: Axes, cells: pd.DataFrame, column: str) -> None:
    """Draw one number for each k and delta: dark is much; hatched is missing, and marked if only some seeds miss."""
    grid = cells.pivot(index="steps", columns="delta", values=column)
    missed = cells.assign(missed=cells["n"] - cells["reached"]).pivot(index="steps", columns="delta", values="missed")
    values = grid.to_numpy(float)
    finite = values[np.isfinite(values)]
    scale = LogNorm(finite.min(), max(finite.max(), finite.min() * 1.01)) if len(finite) else None
    axis.imshow(np.where(np.isfinite(values), values, np.nan), cmap="cividis_r", norm=scale, aspect="auto",
                origin="lower")  # fmt: skip
    middle = np.sqrt(finite.min() * finite.max()) if len(finite) else 0.0
    for (row, place), value in np.ndenumerate(values):
        if np.isfinite(value):
            mark = "*" if column == "rounds" and missed.to_numpy()[row, place] else ""
            colour = "white" if value > middle else BLACK
            text = f"{value:.0f}" if column == "rounds" or value >= 10 else f"{value:.1f}"
            axis.text(place, row, text + mark, ha="center", va="center", fontsize=9, color=colour)
        else:
            axis.add_patch(Rectangle((place - 0.5, row - 0.5), 1, 1, fill=False, ec=GREY, hatch="////", lw=0))
    axis.set(xticks=range(len(grid.columns)), yticks=range(len(grid.index)), xlabel="kept fraction δ",
             ylabel="local steps k")  # fmt: skip
    axis.set_xticklabels([f"{delta:g}" for delta in grid.columns])
    axis.set_yticklabels([f"{steps}" for steps in grid.index])
    axis.grid(visible=False)
