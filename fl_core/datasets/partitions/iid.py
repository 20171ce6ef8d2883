"""No skew: every device's samples are drawn from the whole data set."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from fl_core.datasets.partitions.base import PartitionBase, check_enough


class IID(PartitionBase):
    """Shuffle all samples and cut blocks; sizes differ by at most one, every sample is used once.

    Attributes
    ----------
    samples_per_device : int or None
        Cut blocks of exactly this many and leave the rest unused (FedAsync: 100 x 500, A14); None divides all.
    remainder : str
        What becomes of the samples left over when equal blocks do not use up the data set: ``"share"`` gives one
        more to the first devices, ``"drop"`` leaves them unused (FedLuck, A21).
    """

    kind: Literal["iid"] = "iid"
    samples_per_device: int | None = Field(None, ge=1)
    remainder: Literal["share", "drop"] = "share"

    def divide(
        self, labels: np.ndarray, devices: int, rng: np.random.Generator, owners: np.ndarray | None
    ) -> list[np.ndarray]:
        n = len(labels)
        check_enough(devices, self.samples_per_device or 1, n)
        size = self.samples_per_device or (n // devices if self.remainder == "drop" else None)
        order = rng.permutation(n)
        return np.array_split(order[: devices * size] if size else order, devices)
