"""Pictures of data: samples by class or owner, stages of preprocessing, and who has how many of which class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, PowerNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from torch import Tensor

from fl_core.datasets import PartitionStatistics, Split
from fl_core.datasets.speech_commands import RATE, mfcc
from fl_core.errors import DataError
from fl_core.report.style import BLUE, drawing, style

GAP = 1
"""Pixels between two images."""
PAPER = 238
"""Grey level between images, on which both white and black ones have an edge."""
WIDTH = 5.6
"""Of every picture, inches."""
MOST_BUBBLES = 40, 26
"""Devices and classes up to which bubbles can be told apart on a phone."""
MOST_COLUMNS = 150
"""Columns of a heat map, each one device; averages of several would hide how few labels a device has."""
# From white to dark in one hue: a larger share is darker for every reader, and in print.
SHARES = LinearSegmentedColormap.from_list("shares", ["#ffffff", "#9ecae1", BLUE, "#00213a"])


def plot_samples(split: Split, rows: Mapping[int, str], columns: int = 8, by: str = "labels") -> Figure:
    """Draw up to `columns` images of each class or owner in `rows` (number and name), one row each.

    Images are ``[n, c, h, w]`` (uint8), or features ``[n, 1, h, w]`` (float32), whose range becomes black to white;
    `by` ``"labels"`` or ``"owners"`` says what those of a row have in common.
    """
    key = _owners(split) if by == "owners" else split.labels
    chosen = [(key == number).nonzero().flatten()[:columns] for number in rows]
    for number, found in zip(rows, chosen, strict=True):
        if not len(found):
            raise DataError(f"none of the {len(split)} samples has {by} = {number}")
    return _sheet([split.inputs[found] for found in chosen], list(rows.values()), columns)


def plot_styles(
    split: Split, owners: Mapping[int, str], labels: Sequence[int], classes: Sequence[str] = ()
) -> Figure:
    """Draw images by several owners (number and name), one row each.

    A column is of one of the `labels`; one that comes again shows a further image of it. The names of all classes
    are written above the columns if they are given.
    """
    whose, rows = _owners(split), []
    for owner in owners:
        seen: dict[int, int] = {}
        places = []
        for label in labels:
            own = ((whose == owner) & (split.labels == label)).nonzero().flatten()
            if (number := seen.get(label, 0)) >= len(own):
                raise DataError(f"owner {owner} has {len(own)} of {len(split)} samples of class {label}; too few")
            places.append(int(own[number]))
            seen[label] = number + 1
        rows.append(split.inputs[places])
    figure = _sheet(rows, list(owners.values()), len(labels))
    if classes:
        pitch, start = rows[0].shape[3] + GAP, 0
        middles, names = [], []
        for label, run in groupby(labels):
            count = len(list(run))
            middles.append((start + count / 2) * pitch)
            names.append(classes[label])
            start += count
        axis = figure.axes[0]
        axis.set_xticks(middles, names)
        axis.tick_params(labeltop=True, labelbottom=False)
    return figure


def plot_words(clips: Mapping[str, Tensor]) -> Figure:
    """Draw spoken words as sound, as MFCC over time, and as the 32x32 numbers that a network reads, side by side.

    A clip is named and has the amplitudes ``[16000]`` of one second at 16 kHz.
    """
    plain = {"axes.grid": False}
    with drawing((WIDTH, 5.2), 3, len(clips), plain, squeeze=False, height_ratios=[1, 1.3, 1.6]) as (figure, axes):
        for (name, clip), (sound, frames, image) in zip(clips.items(), axes.T, strict=True):
            features = mfcc(clip[None])[0]
            sound.plot(np.arange(0, 1, 8 / RATE), (clip[::8] / clip.abs().max()).numpy(), color=BLUE, linewidth=0.6)
            sound.set(title=name, xlim=(0, 1), ylim=(-1, 1), xticks=[0, 1], yticks=[], xlabel="s")
            sound.xaxis.labelpad = -10
            # Coefficients differ in size by powers of ten: each is drawn on a scale of its own.
            low, high = features.amin(0), features.amax(0)
            scaled = ((features - low) / (high - low)).T.numpy()
            frames.imshow(scaled, cmap="cividis", aspect="auto", interpolation="nearest")
            frames.set(xticks=[], yticks=[])
            image.imshow(features.flatten()[:1024].view(32, 32).numpy(), cmap="cividis", interpolation="nearest")
            image.set(xticks=[], yticks=[])
        for axis, what in zip(axes[:, 0], ("sound", "13 MFCC", "32 × 32"), strict=True):
            axis.set_ylabel(what)
    return figure


def plot_stages(images: Mapping[str, Tensor], columns: int = 4) -> Figure:
    """Draw images ``[c, h, w]`` by title, each from its smallest number (black) to its largest (white).

    Size and range are written below.
    """
    down = -(-len(images) // columns)
    size = WIDTH, down * (WIDTH / columns + 0.55)
    with drawing(size, down, columns, rc={"axes.titlesize": 10}, squeeze=False) as (figure, axes):
        for axis, (title, image) in zip(axes.flat, images.items(), strict=False):
            low, high = float(image.min()), float(image.max())
            axis.imshow(_colour((image.float() - low) / max(high - low, 1e-9)), interpolation="nearest")
            height, width = image.shape[1:]
            axis.set_title(title, loc="center")
            axis.set_xlabel(f"{height} × {width}\n{low:.3g} to {high:.3g}".replace("-", "−"), fontsize=9.5)
            axis.set(xticks=[], yticks=[])
            axis.spines[:].set_visible(False)
        for axis in axes.flat[len(images) :]:
            axis.axis("off")
    return figure


def contact_sheet(rows: Sequence[Tensor], columns: int) -> np.ndarray:
    """Return images side by side, ``[height, width, 3]`` uint8, on light grey; each row ``[m, c, h, w]`` uint8."""
    _, _, h, w = rows[0].shape
    sheet = np.full((len(rows) * (h + GAP) + GAP, columns * (w + GAP) + GAP, 3), PAPER, np.uint8)
    for down, images in enumerate(rows):
        for across, image in enumerate(images):
            top, left = GAP + down * (h + GAP), GAP + across * (w + GAP)
            sheet[top : top + h, left : left + w] = _colour(image)
    return sheet


def _sheet(rows: Sequence[Tensor], names: Sequence[str], columns: int) -> Figure:
    sheet = contact_sheet([_pixels(images) for images in rows], columns)
    height, width = sheet.shape[:2]
    # The names take about a fifth of the figure's width.
    with drawing((WIDTH, 0.3 + 0.8 * WIDTH * height / width)) as (figure, axis):
        axis.imshow(sheet, interpolation="nearest")
        step = (height - GAP) / len(rows)
        axis.set_yticks([step * (row + 0.5) for row in range(len(rows))], names)
        axis.set_xticks([])
        axis.tick_params(length=0)
        axis.grid(visible=False)
        axis.spines[:].set_visible(False)
    return figure


def _owners(split: Split) -> Tensor:
    if split.owners is None:
        raise DataError("nobody owns these samples; draw them by = 'labels'")
    return split.owners


def _pixels(inputs: Tensor) -> Tensor:
    if not inputs.is_floating_point():
        return inputs
    low, high = inputs.min(), inputs.max()
    return ((inputs - low) / (high - low).clamp_min(1e-9) * 255).byte()


def _colour(image: Tensor) -> np.ndarray:
    """Return an image ``[c, h, w]`` of one or three channels as ``[h, w, 3]``."""
    pixels: np.ndarray = image.permute(1, 2, 0).numpy()
    return np.repeat(pixels, 3, axis=2) if pixels.shape[2] == 1 else pixels


def plot_partition(statistics: PartitionStatistics, classes: Sequence[str] = (), title: str = "") -> Figure:
    """Draw classes against devices.

    Few devices (up to 40) are bubbles whose area is the number of samples. More devices are a heat map of each
    device's label distribution, sorted by most frequent class (evenly spaced ones in this order, beyond 150
    devices), with a histogram of all devices' sizes below. Classes without names have numbers.
    """
    devices, number = statistics.counts.shape
    with style():
        if devices <= MOST_BUBBLES[0] and number <= MOST_BUBBLES[1]:
            figure, axis = plt.subplots(figsize=(WIDTH, 1.7 + 0.24 * number))
            _bubbles(figure, axis, statistics.counts)
        else:
            height = min(4.5, max(2.6, 1.2 + 0.22 * number))
            figure, (axis, below) = plt.subplots(2, figsize=(WIDTH, height + 1.9), height_ratios=[height, 1.5])
            _heat_map(figure, axis, statistics)
            _histogram(below, statistics.sizes)
        _name_classes(axis, list(classes) or [str(c) for c in range(number)], number)
        axis.set_title(title)
    return figure


def device_order(shares: np.ndarray) -> np.ndarray:
    """Return the devices ``[devices, classes]`` sorted by their most frequent class, then by how much it prevails."""
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
