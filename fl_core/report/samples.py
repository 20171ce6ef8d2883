"""Pictures of samples: images by class or owner, spoken words, and what preprocessing makes of an image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from torch import Tensor

from fl_core.datasets import Split
from fl_core.datasets.speech_commands import RATE, mfcc
from fl_core.errors import DataError
from fl_core.report.style import BLUE, style

GAP = 1
"""Pixels between two images."""
PAPER = 238
"""Grey level between images, on which both white and black ones have an edge."""
WIDTH = 5.6


def plot_samples(split: Split, rows: Mapping[int, str], columns: int = 8, by: str = "labels") -> Figure:
    """Draw the first images of each class or owner, one row each.

    Parameters
    ----------
    split : Split
        Images ``[n, c, h, w]`` (uint8), or features ``[n, 1, h, w]`` (float32), whose range becomes black to white.
    rows : mapping of int to str
        Which classes or owners, and what to call them.
    columns : int
        Images in a row; fewer where there are fewer.
    by : str
        ``"labels"`` or ``"owners"``: what the images of a row have in common.

    Raises
    ------
    DataError
        If nobody owns the samples, or if there is no sample of a row.
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
    """Draw images of the same classes by several owners, one row each.

    Parameters
    ----------
    split : Split
        Images with owners.
    owners : mapping of int to str
        Who, and what to call them.
    labels : sequence of int
        Class of each column; one that comes again shows a further image of it.
    classes : sequence of str
        Names of the classes, written above their columns; none: columns have no names.

    Raises
    ------
    DataError
        If nobody owns the samples, or if an owner has too few of a class.
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
    """Draw spoken words as sound, as MFCC over time, and as the 32x32 numbers that a network reads.

    Parameters
    ----------
    clips : mapping of str to Tensor
        Name and amplitudes ``[16000]`` of one-second clips at 16 kHz; side by side.
    """
    with style():
        figure, axes = plt.subplots(
            3, len(clips), figsize=(WIDTH, 5.2), squeeze=False, gridspec_kw={"height_ratios": [1, 1.3, 1.6]}
        )
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
            for axis in (sound, frames, image):
                axis.grid(visible=False)
        for axis, what in zip(axes[:, 0], ("sound", "13 MFCC", "32 × 32"), strict=True):
            axis.set_ylabel(what)
    plt.close(figure)  # the caller shows it: an open one would be shown a second time in a notebook
    return figure


def plot_stages(images: Mapping[str, Tensor], columns: int = 4) -> Figure:
    """Draw images of any size and range side by side, each from its smallest number (black) to its largest (white).

    Parameters
    ----------
    images : mapping of str to Tensor
        Title and pixels ``[c, h, w]``; size and range are written below.
    columns : int
        Images in a row.
    """
    down = -(-len(images) // columns)
    with style(), plt.rc_context({"axes.titlesize": 10}):
        figure, axes = plt.subplots(down, columns, figsize=(WIDTH, down * (WIDTH / columns + 0.55)), squeeze=False)
        for axis, (title, image) in zip(axes.flat, images.items(), strict=False):
            low, high = float(image.min()), float(image.max())
            axis.imshow(_colour((image.float() - low) / max(high - low, 1e-9)), interpolation="nearest")
            height, width = image.shape[1:]
            axis.set_title(title, loc="center")
            axis.set_xlabel(f"{height} × {width}\n{low:.3g} to {high:.3g}", fontsize=9)
            axis.set(xticks=[], yticks=[])
            axis.spines[:].set_visible(False)
        for axis in axes.flat[len(images) :]:
            axis.axis("off")
    plt.close(figure)
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
    with style():
        # The names take about a fifth of the figure's width.
        figure, axis = plt.subplots(figsize=(WIDTH, 0.3 + 0.8 * WIDTH * height / width))
        axis.imshow(sheet, interpolation="nearest")
        step = (height - GAP) / len(rows)
        axis.set_yticks([step * (row + 0.5) for row in range(len(rows))], names)
        axis.set_xticks([])
        axis.tick_params(length=0)
        axis.grid(visible=False)
        axis.spines[:].set_visible(False)
    plt.close(figure)
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
