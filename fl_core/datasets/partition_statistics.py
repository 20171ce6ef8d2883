"""What a partition looks like in numbers: sizes, labels per device, skew, samples used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class PartitionStatistics:
    """Counts of a partition; all else is derived from them.

    Attributes
    ----------
    counts : ndarray
        ``[devices, classes]`` samples of each class on each device.
    samples : int
        Samples in the data set.
    used : int
        How many of them are on at least one device.
    shared : int
        How many are on more than one device.
    """

    counts: np.ndarray = field(repr=False)
    samples: int
    used: int
    shared: int

    @property
    def sizes(self) -> np.ndarray:
        """Samples of each device, ``[devices]``."""
        return self.counts.sum(axis=1)

    @property
    def labels_per_device(self) -> np.ndarray:
        """Number of different labels on each device, ``[devices]``."""
        return (self.counts > 0).sum(axis=1)

    @property
    def shares(self) -> np.ndarray:
        """Label distribution of each device, ``[devices, classes]``; zeros for an empty device."""
        return self.counts / np.maximum(self.sizes, 1)[:, None]

    @property
    def skew(self) -> float:
        """Mean over devices with samples of the total-variation distance to the pooled label distribution.

        From 0 (all devices alike) to nearly 1 (no label in common); with equally frequent classes and one class per
        device, 1 - 1/classes. A few samples per device deviate by chance: IID is above 0, too. NaN without samples.
        """
        if not self.counts.any():
            return float("nan")
        pooled = self.counts.sum(axis=0) / self.counts.sum()
        distances = np.abs(self.shares - pooled).sum(axis=1) / 2
        return float(distances[self.sizes > 0].mean())

    @property
    def used_share(self) -> float:
        """Part of the data set's samples that is on at least one device, in [0, 1]."""
        return self.used / self.samples

    def row(self) -> dict[str, float]:
        """Return the numbers for one row of a table."""
        sizes, labels = self.sizes, self.labels_per_device
        return {
            "devices": len(sizes),
            "smallest": int(sizes.min()),
            "median": float(np.median(sizes)),
            "largest": int(sizes.max()),
            "fewest_labels": int(labels.min()),
            "mean_labels": float(labels.mean()),
            "most_labels": int(labels.max()),
            "skew": self.skew,
            "used_share": self.used_share,
            "shared": self.shared,
        }

    def in_words(self) -> str:
        """Return the numbers as a sentence, for captions and alternative texts."""
        sizes, labels = self.sizes, self.labels_per_device
        text = (
            f"{len(sizes):,} devices, each with {_span(sizes, 'sample', 'samples')} (median {np.median(sizes):g}) "
            f"of {_span(labels, 'class', 'classes')}; skew {self.skew:.2f}; "
            f"{100 * self.used_share:.3g} % of {self.samples:,} samples used"
        )
        return f"{text}, {self.shared:,} of them by several devices" if self.shared else text


def partition_statistics(
    labels: np.ndarray, parts: Sequence[np.ndarray], classes: int | None = None
) -> PartitionStatistics:
    """Count what is where.

    Parameters
    ----------
    labels : ndarray
        ``[n]`` class of every sample.
    parts : sequence of ndarray
        Sample indices of each device.
    classes : int, optional
        Number of classes; by default the largest label plus 1.
    """
    classes = classes or int(labels.max()) + 1
    counts = np.stack([np.bincount(labels[part], minlength=classes) for part in parts])
    holders = np.bincount(np.concatenate(list(parts)).astype(int), minlength=len(labels))
    return PartitionStatistics(counts, len(labels), int((holders > 0).sum()), int((holders > 1).sum()))


def _span(values: np.ndarray, one: str, several: str) -> str:
    low, high = int(values.min()), int(values.max())
    return f"{low:,} {one if low == 1 else several}" if low == high else f"{low:,} to {high:,} {several}"
