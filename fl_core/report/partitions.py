"""Which device has how many samples of which class: the picture that papers draw of a partition."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, PowerNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from fl_core.datasets import PartitionStatistics
from fl_core.report.style import BLUE, style

MOST_BUBBLES = 40, 26
"""Devices and classes up to which bubbles can be told apart on a phone."""
MOST_COLUMNS = 150
"""Columns of a heat map, each one device; averages of several would hide how few labels a device has."""
WIDTH = 5.6
# From white to dark in one hue: a larger share is darker for every reader, and in print.
SHARES = LinearSegmentedColormap.from_list("shares", ["#ffffff", "#9ecae1", BLUE, "#00213a"])


def plot_partition(statistics: PartitionStatistics, classes: Sequence[str] = (), title: str = "") -> Figure:
    """Draw classes against devices.

    Few devices (up to 40) are bubbles whose area is the number of samples. More devices are a heat map of each
    device's label distribution, sorted by most frequent class (evenly spaced ones in this order, beyond 150
    devices), with a histogram of all devices' sizes below.

    Parameters
    ----------
    statistics : PartitionStatistics
    classes : sequence of str
        Names of the classes; their numbers if empty.
    title : str

    Returns
    -------
    Figure
    """
    devices, number = statistics.counts.shape
    with style():
        if devices <= MOST_BUBBLES[0] and number <= MOST_BUBBLES[1]:
            figure, axis = plt.subplots(figsize=(WIDTH, 1.7 + 0.24 * number))
            _bubbles(figure, axis, statistics.counts)
        else:
            height = min(4.5, max(2.6, 1.2 + 0.22 * number))
            figure, (axis, below) = plt.subplots(
                2, 1, figsize=(WIDTH, height + 1.9), gridspec_kw={"height_ratios": [height, 1.5]}
            )
            _heat_map(figure, axis, statistics)
            _histogram(below, statistics.sizes)
        _name_classes(axis, list(classes) or [str(c) for c in range(number)], number)
        axis.set_title(title)
    plt.close(figure)  # the caller shows it: an open one would be shown a second time in a notebook
    return figure


def device_order(shares: np.ndarray) -> np.ndarray:
    """Return the devices sorted by their most frequent class, then by how much it prevails.

    Parameters
    ----------
    shares : ndarray
        ``[devices, classes]`` label distributions.
    """
    return np.lexsort((-shares.max(axis=1), shares.argmax(axis=1)))


def _bubbles(figure: Figure, axis: Axes, counts: np.ndarray) -> None:
    devices, classes = counts.shape
    axis.set(xlim=(-0.6, devices - 0.4), ylim=(classes - 0.4, -0.6), xlabel="device")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axis.grid(alpha=0.2)
    axis.set_axisbelow(True)
    # As large as bubbles can be without touching, in points; the axes take about 3/4 of the figure's width.
    across, down = 72 * 0.72 * WIDTH / devices, 72 * 0.23
    diameters = np.sqrt(np.pad(counts, ((0, 1), (0, 0))))
    pairs = (diameters[:-1] + diameters[1:]).max() / 2
    top = max(int(counts.max()), 1)
    per_sample = min(across / max(pairs, 1), down / np.sqrt(top)) ** 2
    device, label = np.nonzero(counts)
    axis.scatter(device, label, s=counts[device, label] * per_sample, color=BLUE, linewidth=0)
    handles = [
        axis.scatter([], [], s=size * per_sample, color=BLUE, linewidth=0, label=f"{size:,}") for size in _sizes(top)
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), title="samples", handletextpad=0.3)


def _heat_map(figure: Figure, axis: Axes, statistics: PartitionStatistics) -> None:
    devices, classes = statistics.counts.shape
    every = -(-devices // MOST_COLUMNS)
    shares = statistics.shares[device_order(statistics.shares)][every // 2 :: every]
    # The square root spreads the small shares, where mild skew shows.
    image = axis.imshow(
        shares.T,
        aspect="auto",
        cmap=SHARES,
        norm=PowerNorm(0.5, 0, 1),
        extent=(0, devices, classes - 0.5, -0.5),
        interpolation="nearest",
    )
    axis.grid(False)
    drawn = f" (one in {every} drawn)" if every > 1 else ""
    axis.set_xlabel(f"devices, sorted by most frequent class{drawn}")
    bar = figure.colorbar(image, ax=axis, ticks=[0, 0.1, 0.25, 0.5, 1], format=PercentFormatter(1), pad=0.02)
    bar.set_label("share of the device's samples")


def _histogram(axis: Axes, sizes: np.ndarray) -> None:
    low, high = int(sizes.min()), int(sizes.max())
    step = max(1, -(-(high - low + 1) // 40))  # whole numbers of samples a bin
    axis.hist(sizes, bins=(np.arange(low, high + step + 1, step) - 0.5).tolist(), color=BLUE)
    if high - low < 4:
        axis.set_xlim(low - 4, high + 4)
    axis.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axis.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    axis.set(xlabel="samples of a device", ylabel="devices")


def _name_classes(axis: Axes, names: list[str], classes: int) -> None:
    """Name as many classes as fit below each other."""
    every = -(-classes // MOST_BUBBLES[1])
    axis.set_yticks(range(0, classes, every), names[:classes:every])


def _sizes(top: int) -> list[int]:
    """Return up to three bubble sizes for the key: the largest count, about a third and about a tenth of it."""
    return sorted({top, _round(top / 3), _round(top / 10)} - {0})


def _round(value: float) -> int:
    """Round down to one significant digit."""
    unit = 10 ** max(0, len(str(int(value))) - 1)
    return int(value // unit * unit)
