"""Label shards: each device has the samples of a few classes only."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from fl_core.datasets.partitions.base import PartitionBase, check_enough


class Shards(PartitionBase):
    """Sort by label, cut into ``devices * shards_per_device`` shards and deal them at random.

    (McMahan et al., 2017; extension of FedAsync, A14.) Shards differ in size by at most one sample, every sample is
    used once. A device has at most `shards_per_device` labels where every class fills whole shards (60,000
    samples, 10 equal classes, 100 devices: 200 shards of 300), and a few more where shards reach across a border
    between classes.

    Attributes
    ----------
    shards_per_device : int
        Shards that each device gets.
    """

    kind: Literal["shards"] = "shards"
    shards_per_device: int = Field(2, ge=1)

    def divide(
        self, labels: np.ndarray, devices: int, rng: np.random.Generator, owners: np.ndarray | None
    ) -> list[np.ndarray]:
        check_enough(devices, self.shards_per_device, len(labels), "at least samples each")
        shuffled = rng.permutation(len(labels))
        by_label = shuffled[np.argsort(labels[shuffled], kind="stable")]
        shards = np.array_split(by_label, devices * self.shards_per_device)
        hands = rng.permutation(len(shards)).reshape(devices, self.shards_per_device)
        return [np.concatenate([shards[number] for number in hand]) for hand in hands]
