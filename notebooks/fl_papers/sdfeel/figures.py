"""SD-FEEL's figures that are no plots of curves: devices in time, staleness, the bound's terms, and idle time."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from fl_core.report.style import BLACK, BLUE, DASHES, GREEN, GREY, ORANGE, OTHERS, PURPLE, SKY, VERMILION, style

ACTIVITIES = {"step": (SKY, "a local step"), "upload": (ORANGE, "upload"), "exchange": (GREEN, "exchange"),
              "idle": ("white", "idle")}  # fmt: skip
TERMS = {"progress": (BLUE, "o", "progress"), "noise": (GREEN, "s", "noise"), "drift_noise": (ORANGE, "^", "A σ²/U₁"),
         "dissimilarity": (VERMILION, "v", "B κ²/U₁")}  # fmt: skip
VARIED = {"gap": "H", "delta_max": "$\\delta_{\\max}$", "dissimilarity": "$\\kappa^2$", "iterations": "$K$"}


def timeline(bars: pd.DataFrame) -> Figure:
    """Draw what the devices of three clusters do, asynchronously and synchronously.

    Parameters
    ----------
    bars : DataFrame
        As :func:`fl_papers.sdfeel.clock.timeline` returns it.
    """
    with style():
        figure, axes = plt.subplots(2, 1, figsize=(5.8, 6.8), sharex=True, height_ratios=(11, 8))
        for axis, (method, own) in zip(axes, bars.groupby("method", sort=True), strict=True):
            _lanes(axis, own)
            axis.set_title("asynchronous; k (staleness) at each event" if axis is axes[0] else str(method))
        axes[1].set_xlabel("virtual time (s)")
        patches = [Patch(fc=colour, ec=GREY, lw=0.5, hatch="" if name != "idle" else "////", label=label)
                   for name, (colour, label) in ACTIVITIES.items()]  # fmt: skip
        figure.legend(handles=patches, loc="outside lower center", ncols=4)
    plt.close(figure)
    return figure


def staleness(found: pd.DataFrame) -> Figure:
    """Draw how often a trigger has at most which staleness, and below it the largest one beside its bounds.

    Parameters
    ----------
    found : DataFrame
        As :func:`fl_papers.sdfeel.clock.staleness` returns it.
    """
    with style():
        figure, (above, below) = plt.subplots(2, 1, figsize=(5.6, 5.8))
        for place, (gap, own) in enumerate(found.groupby("gap")):
            look = {"color": OTHERS[place], "ls": DASHES[place % 4], "label": f"H = {gap:g}"}
            above.step(own["staleness"], own["share"].cumsum(), where="post", **look)
        above.set(xlabel="staleness of the cluster that ends an iteration", ylabel="events with at most this one")
        above.legend()
        ends = found.groupby("gap")[["largest", "bound", "printed"]].first()
        looks = (
            ("printed", GREY, "s", "(D − 1) H, the paper's sketch"),
            ("bound", VERMILION, "v", "the bound with its constant"),
            ("largest", BLUE, "o", "observed"),
        )
        for column, colour, marker, label in looks:
            below.plot(ends.index, ends[column], color=colour, marker=marker, label=label)
        below.set(xscale="log", yscale="log", xlabel="gap H", ylabel="largest staleness")
        for axis, ticks in ((below.xaxis, ends.index), (below.yaxis, (5, 10, 20, 50, 100))):
            axis.set_ticks(list(ticks), [f"{tick:g}" for tick in ticks])
            axis.set_ticks([], minor=True)
        below.legend()
    plt.close(figure)
    return figure


def bound(terms: pd.DataFrame) -> Figure:
    """Draw the four terms of the bound (16) on logarithmic ordinates, a panel for each thing that is varied.

    Parameters
    ----------
    terms : DataFrame
        As :func:`fl_papers.sdfeel.theory.bound_terms` returns it.
    """
    with style():
        figure, axes = plt.subplots(2, 2, figsize=(5.8, 5.4))
        for axis, (name, own) in zip(axes.flat, terms.groupby("varied", sort=False), strict=True):
            x = np.arange(len(own))
            for term, (colour, marker, label) in TERMS.items():
                axis.plot(x, own[term].where(own[term] > 0), color=colour, marker=marker, label=label)
            axis.set_yscale("log")
            axis.set_xticks(x, [f"{value:g}" for value in own["value"]])
            axis.set_title(f"over {VARIED[str(name)]}")
        handles, labels = axes.flat[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4)
    plt.close(figure)
    return figure


def time(shares: pd.DataFrame) -> Figure:
    """Draw how devices spend their time, two bars for each gap.

    Parameters
    ----------
    shares : DataFrame
        As :func:`fl_papers.sdfeel.clock.idle_time` returns it.
    """
    looks = (("computing", SKY, ""), ("sending", ORANGE, ""), ("waiting", "white", "////"))
    names = [f"{method}, H = {gap:g}" for gap, method in shares[["gap", "method"]].itertuples(index=False, name=None)]
    with style():
        figure, axis = plt.subplots(figsize=(5.6, 4.4))
        left = np.zeros(len(shares))
        for column, colour, hatch in looks:
            axis.barh(names, shares[column], 0.7, left=left, fc=colour, ec=GREY, lw=0.5, hatch=hatch, label=column)
            left += shares[column].to_numpy()
        for place, value in enumerate(shares["computing"]):
            axis.text(value - 0.01, place, f"{value:.1%}", ha="right", va="center", fontsize=9, color=BLACK)
        axis.invert_yaxis()
        axis.set(xlim=(0, 1), xlabel="part of the time, mean over devices")
        axis.grid(visible=False)
        figure.legend(loc="outside lower center", ncols=3)
    plt.close(figure)
    return figure


def _lanes(axis: Axes, bars: pd.DataFrame) -> None:
    """Draw a lane for each device; asynchronous events are arrows from a lane of a server to those of others."""
    events = bars[bars["activity"] == "event"]
    lanes = bars["device"] + (bars["cluster"] + 1 if len(events) else 0)
    for activity, (colour, _) in ACTIVITIES.items():
        own = bars[bars["activity"] == activity]
        idle = activity == "idle"
        axis.barh(lanes[own.index], own["end"] - own["start"], 0.66, own["start"], fc=colour, lw=0.5,
                  ec=GREY if idle else "white", hatch="////" if idle else "")  # fmt: skip
    first = {cluster: int(place) - 1 for cluster, place in lanes.groupby(bars["cluster"]).min().items()}
    for cluster, at, k, late in events[["cluster", "start", "k", "staleness"]].itertuples(index=False, name=None):
        for other in (place for number, place in first.items() if number != cluster):
            arrow = {"arrowstyle": "-|>", "color": PURPLE, "lw": 1, "shrinkA": 0, "shrinkB": 0, "mutation_scale": 8}
            axis.annotate("", (at, other), (at, first[cluster]), arrowprops=arrow, zorder=3)
        axis.plot(at, first[cluster], "o", ms=5, color=PURPLE, mfc=PURPLE, zorder=4)
        words, paper = f"{k:.0f} ({late:.0f})", {"fc": "white", "ec": "none", "pad": 0.6}
        place = (at - 0.13, first[cluster])
        axis.text(*place, words, ha="right", va="center", fontsize=8, color=PURPLE, zorder=5, bbox=paper)
    names = {place: f"server {cluster}" for cluster, place in first.items() if len(events)}
    names |= {int(place): f"device {device}" for place, device in zip(lanes, bars["device"], strict=True)}
    axis.set_yticks(list(names), list(names.values()))
    for tick in axis.get_yticklabels():
        tick.set_color(PURPLE if tick.get_text().startswith("server") else BLACK)
    axis.set_ylim(max(names) + 0.6, -0.6)
    axis.grid(visible=False)
