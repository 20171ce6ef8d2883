"""WKAFL's non-IID generator: few labels and few samples per device, drawn by each device on its own."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from fl_core.datasets.partitions.base import PartitionBase
from fl_core.errors import SpecError


class WKAFLPartition(PartitionBase):
    """Each device draws its labels, its size and the labels' proportions, then samples of its own.

    (Zhou et al., 2022, Algorithm 4.) Devices draw independently, so that they may share samples and a sample may
    stay unused; within a device no sample comes twice. The proportions are uniform numbers divided by their sum: even
    with all labels, devices are not IID. Counts are rounded half to even, so a device may end with a few samples more
    or fewer than `max_samples` and `min_samples` say; one that would have none draws again (A16).

    Attributes
    ----------
    labels_per_device : int
        L_num, the labels that a device draws; those whose count rounds to 0 are lost.
    min_samples : int
        D_min, the smallest size that a device can draw, before rounding.
    max_samples : int
        D_max, the largest; all in between are equally likely.
    """

    kind: Literal["wkafl"] = "wkafl"
    labels_per_device: int = Field(1, ge=1)
    min_samples: int = Field(10, ge=1)
    max_samples: int = Field(49, ge=1)

    @model_validator(mode="after")
    def _devices_get_samples(self) -> WKAFLPartition:
        if self.min_samples > self.max_samples:
            raise ValueError(
                f"min_samples = {self.min_samples} is larger than max_samples; choose at most {self.max_samples}"
            )
        if 2 * self.max_samples < self.labels_per_device:  # all counts could round to 0, draw after draw
            raise ValueError(
                f"labels_per_device = {self.labels_per_device} is too many for max_samples = {self.max_samples}; "
                f"choose at most {2 * self.max_samples}"
            )
        return self

    def mean_size(self, samples: int, devices: int) -> float:
        return self.train_fraction * (self.min_samples + self.max_samples) / 2

    def divide(
        self, labels: np.ndarray, devices: int, rng: np.random.Generator, owners: np.ndarray | None
    ) -> list[np.ndarray]:
        classes, totals = np.unique(labels, return_counts=True)
        if self.labels_per_device > len(classes):
            raise SpecError(
                f"labels_per_device = {self.labels_per_device} is too many; the data set has {len(classes)} classes"
            )
        if totals.min(initial=self.max_samples) < self.max_samples:
            raise SpecError(
                f"max_samples = {self.max_samples} is too many; "
                f"class {classes[totals.argmin()]} has {totals.min()} samples"
            )
        members = [np.flatnonzero(labels == label) for label in classes]
        return [self._draw(members, rng) for _ in range(devices)]

    def _draw(self, members: list[np.ndarray], rng: np.random.Generator) -> np.ndarray:
        """Return the samples of one device."""
        counts = np.zeros(0, int)
        while not counts.any():
            chosen = rng.choice(len(members), self.labels_per_device, replace=False)
            size = int(rng.integers(self.min_samples, self.max_samples, endpoint=True))
            counts = class_counts(size, rng.random(self.labels_per_device))
        return np.concatenate(
            [rng.choice(members[c], k, replace=False, shuffle=False) for c, k in zip(chosen, counts, strict=True)]
        )


def class_counts(size: int, weights: np.ndarray) -> np.ndarray:
    """Return the samples of each class, ``size * weights / sum(weights)`` rounded half to even (Algorithm 4)."""
    return np.rint(size * weights / weights.sum()).astype(int)
