"""Benchmark reports as tables and pictures for a page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from fl_core.benchmarks.record import Report, compare
from fl_core.report.style import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, style
from fl_core.report.tables import Table

SHARES = {
    "forward": BLUE,
    "backward": SKY,
    "step": GREEN,
    "gather": ORANGE,
    "evaluation": GREY,
    "runtime": VERMILION,
}
"""What a thread's time goes to, in the order of the bars."""


def part_table(name: str, reports: Mapping[str, Report]) -> Table:
    """Return the rows of part `name`, a column for each report that measured it: median, and range in brackets.

    Parameters
    ----------
    name : str
    reports : mapping of str to dict
        Heading and report.
    """
    return Table(compare(name, reports))


def plot_shares(reports: Mapping[str, Report]) -> Figure:
    """Draw where the time of one thread goes: a bar for each report that measured part ``limit``.

    Parameters
    ----------
    reports : mapping of str to dict
        Label and report.
    """
    shown = {label: rows for label, report in reports.items() if (rows := _rows(report, "limit"))}
    with style():
        figure, axis = plt.subplots(figsize=(5.6, 1.5 + 0.45 * len(shown)))
        left = dict.fromkeys(shown, 0.0)
        for what, colour in SHARES.items():
            # A difference of two measurements can come out below zero: then there is nothing to see.
            widths = {label: max(0.0, _median(rows, f"share: {what}")) for label, rows in shown.items()}
            axis.barh(list(shown), list(widths.values()), 0.6, list(left.values()), color=colour, label=what)
            left = {label: left[label] + width for label, width in widths.items()}
        axis.invert_yaxis()
        axis.set_xlabel("share of one thread's time (%)")
        axis.grid(axis="y", visible=False)
        figure.legend(loc="outside lower center", ncols=3)
    plt.close(figure)
    return figure


def plot_memory(reports: Mapping[str, Report]) -> Figure:
    """Draw the peak memory of a process against the number of idle devices, one line for each report.

    Parameters
    ----------
    reports : mapping of str to dict
        Label and report; those without part ``memory`` are left out.
    """
    with style():
        figure, axis = plt.subplots(figsize=(5.6, 3.2))
        looks = zip((BLUE, VERMILION, GREEN, PURPLE), "osD^", strict=True)
        for (label, report), (colour, marker) in zip(reports.items(), looks, strict=False):
            rows = [row for row in _rows(report, "memory") if row["quantity"] == "idle: peak memory"]
            if rows:
                points = ([row[key] for row in rows] for key in ("size", "median"))
                axis.plot(*points, color=colour, marker=marker, label=label)
        axis.set(xscale="log", xlabel="devices", ylabel="peak memory (MiB)")
        axis.set_ylim(0, 1.1 * axis.get_ylim()[1])
        axis.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
        axis.legend(loc="lower right")
    plt.close(figure)
    return figure


def _rows(report: Report, part: str) -> list[dict[str, Any]]:
    return report["parts"][part]["rows"] if part in report["parts"] else []


def _median(rows: list[dict[str, Any]], quantity: str) -> float:
    return float(next(row["median"] for row in rows if row["quantity"] == quantity))
