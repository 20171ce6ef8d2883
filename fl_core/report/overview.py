"""First pictures of a run: accuracy against virtual time, and how stale its updates were."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fl_core.report.style import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION
from fl_core.runtime import History

PALETTE = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY)
MARKERS = "osD^vP"


def plot_accuracy(histories: Mapping[str, History]) -> Figure:
    """Draw test accuracy against virtual time, one line a run.

    Parameters
    ----------
    histories : mapping of str to History
        Label and run.
    """
    figure, axis = plt.subplots(figsize=(5.2, 3.2))
    for (label, history), colour, marker in zip(histories.items(), PALETTE, MARKERS, strict=False):
        frame = history.evaluation_frame()
        axis.plot(frame["seconds"], frame["test_accuracy"], color=colour, marker=marker, ms=4, label=label)
    axis.set(xlabel="virtual time (s)", ylabel="test accuracy", ylim=(0, 1))
    axis.grid(alpha=0.3)
    axis.legend(frameon=False, loc="lower right")
    figure.tight_layout()
    return figure


def plot_staleness(history: History) -> Figure:
    """Draw how many updates of a run had which staleness."""
    staleness = np.asarray(history.updates["staleness"], dtype=int)
    counts = np.bincount(staleness)
    figure, axis = plt.subplots(figsize=(5.2, 2.6))
    axis.bar(np.arange(len(counts)), counts, color=PALETTE[0])
    axis.axvline(staleness.mean(), color="black", ls="--", lw=1, label=f"mean {staleness.mean():.1f}")
    axis.set(xlabel="staleness (versions missed)", ylabel="updates")
    axis.yaxis.set_major_locator(MaxNLocator(integer=True))
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.legend(frameon=False)
    figure.tight_layout()
    return figure
