"""WKAFL's figures: accuracy in panels, gradients in time, weights, clipped vectors, and the method as a diagram."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Patch

from fl_core.report.style import BLACK, BLUE, GREEN, GREY, ORANGE, SKY, VERMILION, line_of, style


def panels(frame: pd.DataFrame) -> Figure:
    """Draw accuracy over updates, the panels below one another; dashes tell modes apart.

    Parameters
    ----------
    frame : DataFrame
        As :func:`fl_papers.wkafl.curves.panels` returns it.
    """
    names, methods, modes = (list(frame[column].unique()) for column in ("panel", "method", "mode"))
    with style():
        rows = 1 + -(-len(methods) * len(modes) // 2)
        figure, axes = plt.subplots(
            len(names), 1, figsize=(5.6, 2.5 * len(names) + 0.24 * rows), sharex=True, sharey=True, squeeze=False
        )
        for axis, name in zip(axes[:, 0], names, strict=True):
            own = frame[frame["panel"] == name]
            for (method, mode), curve in own.groupby(["method", "mode"], sort=False):
                _curve(axis, curve, str(method), modes.index(mode))
            axis.set_title(name)
            axis.margins(x=0.02)
        axes[len(names) // 2, 0].set_ylabel("test accuracy")
        axes[-1, 0].set_xlabel("updates of the model")
        handles = [
            Line2D([], [], label=f"{method}, {mode}" if mode else method, **line_of(method, modes.index(mode)))
            for method, mode in frame[["method", "mode"]].drop_duplicates().itertuples(index=False, name=None)
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=2, handlelength=3.2)
    plt.close(figure)
    return figure


def timeline(jobs: pd.DataFrame) -> Figure:
    """Draw what each client computes, and which gradients make an update (Figure 1).

    Parameters
    ----------
    jobs : DataFrame
        As :func:`fl_papers.wkafl.curves.four_clients` returns it.
    """
    with style():
        figure, axis = plt.subplots(figsize=(5.8, 3.7))
        for job in jobs.to_dict("records"):
            used = np.isfinite(job["used"])
            axis.barh(job["client"], job["finished"] - job["start"], left=job["start"], height=0.5,
                      color=SKY if used else "white", ec=BLUE if used else GREY, lw=0.8)  # fmt: skip
            if used:
                axis.barh(job["client"], job["used"] - job["finished"], left=job["finished"], height=0.5, fc="white",
                          ec=GREY, lw=0.5, hatch="////")  # fmt: skip
                axis.text(
                    job["finished"] - 0.06,
                    job["client"],
                    f"{job['staleness']:.0f}",
                    ha="right",
                    va="center",
                    fontsize=9,
                )
        for number, seconds in enumerate(sorted(jobs["used"].dropna().unique()), 1):
            axis.axvline(seconds, color=VERMILION, lw=1, zorder=0)
            axis.text(seconds, -0.62, f"{number}", ha="center", va="bottom", fontsize=9, color=VERMILION)
        axis.set(yticks=range(4), ylim=(3.5, -0.6), xlabel="virtual time (s)", xlim=(0, jobs["used"].max() + 0.1))
        axis.set_yticklabels([f"client {number}" for number in range(4)])
        axis.grid(visible=False)
        patches = [Patch(fc=SKY, ec=BLUE, label="gradient that is used"),
                   Patch(fc="white", ec=GREY, label="under way"),
                   Patch(fc="white", ec=GREY, hatch="////", label="waits for the update"),
                   Line2D([], [], color=VERMILION, label="update, with its number")]  # fmt: skip
        figure.legend(handles=patches, loc="outside lower center", ncols=2)
    plt.close(figure)
    return figure


def histogram(frame: pd.DataFrame) -> Figure:
    """Draw how often so many gradients predominate (Figure 2 a).

    Parameters
    ----------
    frame : DataFrame
        As :func:`fl_papers.wkafl.curves.predominating` returns it.
    """
    with style():
        figure, axis = plt.subplots(figsize=(5.6, 3.2))
        axis.bar(frame["count"], frame["share"], color=BLUE, width=0.7)
        if frame["share_std"].notna().any():
            axis.errorbar(frame["count"], frame["share"], frame["share_std"], fmt="none", ecolor=BLACK, capsize=3)
        axis.set(xticks=frame["count"], xlabel="gradients that weigh more than 0.1", ylabel="share of the updates")
        axis.grid(visible=False, axis="x")
    plt.close(figure)
    return figure


def conflict(sweep: pd.DataFrame) -> Figure:
    """Draw average staleness over the average number of gradients, with a line through the points (Figure 2 b).

    Parameters
    ----------
    sweep : DataFrame
        As :func:`fl_papers.wkafl.theory.conflict` returns it.
    """
    x, y = sweep["gradients"].to_numpy(), sweep["staleness"].to_numpy()
    slope, start = np.polyfit(x, y, 1)
    with style():
        figure, axis = plt.subplots(figsize=(5.6, 3.6))
        axis.plot(x, start + slope * x, "--", color=GREY, label=f"line through the points, slope {slope:.2f}")
        axis.plot(x, y, "o", color=BLUE, mfc=BLUE, label="weights $e^{-\\lambda\\tau}$")
        for decay, left, high in zip(sweep["decay"], x, y, strict=True):
            if decay <= 0.1 or decay == sweep["decay"].max():
                axis.annotate(f"λ = {decay:g}", (left, high), (6, -11), textcoords="offset points", fontsize=9)
        axis.set(xlabel="average number of gradients that count", ylabel="average staleness")
        axis.margins(x=0.12)
        figure.legend(loc="outside lower center", ncols=2)
    plt.close(figure)
    return figure


def vectors(frame: pd.DataFrame) -> Figure:
    """Draw five gradients and the estimate before and after clipping (Figure 4).

    Parameters
    ----------
    frame : DataFrame
        As :func:`fl_papers.wkafl.curves.clipped_vectors` returns it.
    """
    truth = frame[frame["what"] == "true gradient"].iloc[0]
    with style():
        figure, axes = plt.subplots(2, 1, figsize=(5.6, 6.2))
        for axis, clipped in zip(axes, (False, True), strict=True):
            own = frame[(frame["clipped"] == clipped) & (frame["what"] != "true gradient")]
            for row in own.to_dict("records"):
                stale = row["what"] == "gradient"
                colour = SKY if stale else VERMILION
                _arrow(axis, (row["x"], row["y"]), colour, 1.3 if stale else 2.6)
                if stale:
                    axis.annotate(
                        f"{row['staleness']:.0f}",
                        (row["x"], row["y"]),
                        (5, 5),
                        textcoords="offset points",
                        fontsize=9,
                    )
            _arrow(axis, (truth.x, truth.y), BLACK, 2.0)
            points = np.vstack([own[["x", "y"]].to_numpy(), [[0, 0], [truth.x, truth.y]]])
            low, high = points.min(axis=0), points.max(axis=0)
            half = 1.2 * max((high - low)[0] / 2, (high - low)[1])
            middle = (low + high) / 2
            axis.set_xlim(middle[0] - half, middle[0] + half)
            axis.set_ylim(middle[1] - half / 2, middle[1] + half / 2)
            axis.set_box_aspect(0.5)
            axis.set_title("(b) clipped at 1.2" if clipped else "(a) as they arrive; a number is staleness")
        handles = [Line2D([], [], color=colour, lw=2, label=name)
                   for colour, name in ((BLACK, "true gradient"), (SKY, "gradient"),
                                        (VERMILION, "estimate"))]  # fmt: skip
        figure.legend(handles=handles, loc="outside lower center", ncols=3)
    plt.close(figure)
    return figure


def workflow(steps: pd.DataFrame) -> Figure:
    """Draw the five steps of the method (Figure 3).

    Parameters
    ----------
    steps : DataFrame
        ``step``, ``formula``, ``where`` ("clients" or "server"), in order.
    """
    with style():
        figure, axis = plt.subplots(figsize=(5.6, 5.4))
        count = len(steps)
        axis.set(xlim=(1, 11), ylim=(-0.3, count))
        axis.axis("off")
        for place, row in enumerate(steps.to_dict("records")):
            y = count - 1 - place
            edge = GREEN if row["where"] == "clients" else BLUE
            axis.add_patch(FancyBboxPatch((1.2, y + 0.1), 7.6, 0.66, "round,pad=0.05,rounding_size=0.1", ec=edge,
                                          fc="white", lw=1.4))  # fmt: skip
            axis.text(1.4, y + 0.43, f"{place + 1}", va="center", fontsize=12, color=edge)
            axis.text(2.0, y + 0.57, row["step"], va="center", fontsize=10)
            axis.text(2.0, y + 0.27, row["formula"], va="center", fontsize=10, color=BLACK)
            if place:
                axis.add_patch(FancyArrowPatch((5, y + 1.05), (5, y + 0.83), arrowstyle="-|>", mutation_scale=11,
                                               color=GREY, lw=1.3))  # fmt: skip
        axis.add_patch(FancyArrowPatch((8.9, 0.43), (8.9, count - 0.57), connectionstyle="arc3,rad=0.35",
                                       arrowstyle="-|>", mutation_scale=12, color=ORANGE, lw=1.4))  # fmt: skip
        axis.text(10.6, count / 2, "new model, to the K clients", rotation=90, va="center", ha="center", fontsize=9,
                  color=ORANGE)  # fmt: skip
        handles = [Patch(fc="white", ec=GREEN, label="clients"), Patch(fc="white", ec=BLUE, label="server")]
        figure.legend(handles=handles, loc="outside lower center", ncols=2)
    plt.close(figure)
    return figure


def _curve(axis: Axes, curve: pd.DataFrame, method: str, mode: int) -> None:
    look = line_of(method, mode)
    x, mean, std = (curve[c].to_numpy(float) for c in ("x", "test_accuracy", "test_accuracy_std"))
    axis.plot(x, mean, markevery=(len(x) // 12, max(1, len(x) // 6)), **look)
    if np.isfinite(std).any():
        axis.fill_between(x, mean - std, mean + std, color=look["color"], alpha=0.15, lw=0)


def _arrow(axis: Axes, end: tuple[float, float], colour: str, width: float) -> None:
    look = {"arrowstyle": "-|>", "color": colour, "lw": width, "shrinkA": 0, "shrinkB": 0}
    axis.annotate("", end, (0, 0), arrowprops=look)
