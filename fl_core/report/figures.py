"""Artifacts as pictures and tables; metrics against a budget: the mean over seeds, and a deviation as a band."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any, cast

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

from fl_core.errors import RunError
from fl_core.experiments.artifacts import Artifact, Columns, Curves, Panel
from fl_core.experiments.evidence import Effect
from fl_core.experiments.study import Study
from fl_core.report.style import BLACK, BLUE, SKY, VERMILION, drawing, line_of
from fl_core.report.tables import Table
from fl_core.runtime import History


def draw(artifact: Artifact, study: Study) -> tuple[Figure | Table, str]:
    """Return the figure or the table of `artifact` from the results of `study`, and its caption."""
    frame, view, caption = artifact.reduce(study), artifact.view, artifact.caption(study)
    if frame.empty:
        raise RunError(f"{artifact.id} cannot be drawn: none of its runs at profile {study.profile} is stored")
    if isinstance(view, Columns):
        title = f"{artifact.reference}, {artifact.title}"
        return Table(frame, view.names, view.digits, view.wrap, caption=title), caption
    return (plot_curves(frame, view) if isinstance(view, Curves) else view(frame)), caption


def files_of(shown: Figure | Table, salt: str) -> dict[str, bytes]:
    """Return the files that a figure or a table is kept as, by suffix; the same for the same `salt`."""
    if isinstance(shown, Table):
        return {"md": f"{shown.to_markdown()}\n".encode(), "html": f"{shown.to_html()}\n".encode()}
    contents = {}
    with plt.rc_context({"svg.hashsalt": salt}):
        for suffix, metadata in (("png", {"Software": None}), ("svg", {"Date": None})):
            buffer = io.BytesIO()
            shown.savefig(buffer, format=suffix, dpi=200, bbox_inches="tight", metadata=metadata)
            contents[suffix] = buffer.getvalue()
    return contents


def plot_curves(frame: pd.DataFrame, view: Curves) -> Figure:
    """Draw the panels below one another, on one abscissa, so that they can be read on a phone.

    `frame` has a row per curve and point: ``method``, the view's parameter (NaN where a method has none), ``x``, and
    for every panel its column and ``<column>_std`` (NaN with one seed: no band).
    """
    panels, values = view.panels, sorted(frame[view.parameter].dropna().unique())
    handles = _handles(frame, view, values)
    columns = 1 if max(len(str(handle.get_label())) for handle in handles) > 30 else 2  # else it widens the figure
    rows = 1 + -(-len(handles) // columns)
    with drawing((5.6, 2.7 * len(panels) + 0.24 * rows), len(panels), sharex=True, squeeze=False) as (figure, axes):
        for axis, panel in zip(axes[:, 0], panels, strict=True):
            _draw(axis, frame, panel, view, values)
        axes[-1, 0].set_xlabel(view.x_label)
        figure.legend(handles=handles, loc="outside lower center", ncols=columns, handlelength=3.2)
    return figure


def _draw(axis: Axes, frame: pd.DataFrame, panel: Panel, view: Curves, values: list[float]) -> None:
    methods = list(frame["method"].unique())
    for (method, value), curve in frame.groupby(["method", view.parameter], dropna=False, sort=False):
        look = _look(str(method), cast(float, value), view, values, methods)
        draw_curve(axis, curve, panel.column, look, 1 if view.points else None, log=panel.log)
    if panel.log:
        axis.set_yscale("log")
        low, high = axis.get_ylim()
        if high < 1e4 * low:  # else powers of ten
            axis.yaxis.set_major_formatter("{x:g}")
        if high < 100 * low:  # over more decades they would overlap
            axis.yaxis.set_minor_locator(LogLocator(subs=(2, 3, 5)))
            axis.yaxis.set_minor_formatter("{x:g}")
    axis.set_title(panel.label)
    axis.margins(x=0.02)


def draw_curve(
    axis: Axes, curve: pd.DataFrame, column: str, look: dict[str, Any], marked: Any = None, *, log: bool = False,
    alpha: float = 0.15,
) -> None:  # fmt: skip
    """Draw a mean over ``x`` and its deviation as a band; `marked` are the points with a marker, some by default."""
    x, mean, std = (curve[c].to_numpy(float) for c in ("x", column, f"{column}_std"))
    axis.plot(x, mean, markevery=marked or (len(x) // 12, max(1, len(x) // 6)), **look)
    if np.isfinite(std).any():
        low = np.maximum(mean - std, mean / 10) if log else mean - std
        axis.fill_between(x, low, mean + std, color=look["color"], alpha=alpha, lw=0)


def _handles(frame: pd.DataFrame, view: Curves, values: list[float]) -> list[Line2D]:
    handles, methods = [], list(frame["method"].unique())
    for method, value in frame[["method", view.parameter]].drop_duplicates().itertuples(index=False, name=None):
        label = f"{method}, {view.symbol} = {value:g}" if value in values else method
        handles.append(Line2D([], [], label=label, **_look(method, value, view, values, methods)))
    return handles


def _look(method: str, value: float, view: Curves, values: list[float], methods: list[str]) -> dict[str, Any]:
    look = line_of(method, values.index(value) if value in values else 0, methods)
    return look | {"marker": look["marker"] or "s"} if view.points else look


def draw_learned(history: History, panels: Mapping[str, str], x: str = "version") -> Figure:
    """Draw what a method has learned in a run: for each column of ``history.learned`` a panel with its symbol."""
    table = pd.DataFrame(history.learned)
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    with drawing((5.8, 1.55 * rows + 0.3), rows, columns, sharex=True, squeeze=False) as (figure, axes):
        for axis in axes.flat[len(panels) :]:
            axis.set_visible(False)
        for axis, (column, symbol) in zip(axes.flat, panels.items(), strict=False):
            axis.plot(table[x], table[column], ".", color=BLUE, markersize=4, rasterized=True)  # thousands
            axis.set_title(symbol)
            axis.ticklabel_format(axis="y", useOffset=False)
        figure.supxlabel(x, fontsize=11)
    return figure


def draw_effects(effects: Mapping[str, Effect]) -> Figure:
    """Draw effects of one scale: interval, null (line), practically equal (band), printed (diamond)."""
    with drawing((6.6, 0.6 + 0.38 * len(effects)), layout="constrained") as (figure, axis):
        for row, effect in enumerate(effects.values()):
            low, high = effect.interval
            shown = [effect.scale.shown(effect.null + side) for side in (-effect.margin, effect.margin)]
            axis.fill_between(shown, row - 0.4, row + 0.4, color=SKY, alpha=0.3, linewidth=0)
            axis.vlines(effect.scale.shown(effect.null), row - 0.4, row + 0.4, color=BLACK, linewidth=1)
            ends = [end if np.isfinite(end) else np.nan for end in (low, high)]
            axis.plot(ends, [row, row], color=BLUE, linewidth=2, solid_capstyle="butt")
            axis.plot(effect.estimate, row, "o", color=BLUE)
            if effect.printed is not None:
                axis.plot(effect.printed_shown, row, "D", color=VERMILION, markerfacecolor="none")
            words = f"{effect.direction}, {effect.size}".removesuffix(", not printed")
            axis.text(1.02, row, words, transform=axis.get_yaxis_transform(), va="center")
        first = next(iter(effects.values()))
        if first.scale.logarithmic:
            axis.set_xscale("log")
            places = LogLocator(subs=(1, 2, 5)) if np.ptp(np.log(axis.get_xlim())) > 0.7 else MaxNLocator(4)
            axis.xaxis.set(major_locator=places, major_formatter="{x:g}", minor_formatter=NullFormatter())
        axis.set_yticks(range(len(effects)), list(effects))
        axis.set_ylim(len(effects) - 0.5, -0.5)
        axis.set_xlabel(f"effect ({first.scale.unit})")
    return figure
