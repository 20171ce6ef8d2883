"""The partition that the data came with: one person, one device."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from fl_core.datasets.partitions.base import PartitionBase
from fl_core.errors import SpecError


class Natural(PartitionBase):
    """One owner (writer, celebrity, speaker) per device: the first that have enough samples, by their number.

    Sizes are those of the data set. Training and test samples of further owners stay unused.

    Attributes
    ----------
    min_samples : int
        Fewest training samples of an owner that becomes a device (WKAFL on EMNIST ByClass: 16).
    """

    kind: Literal["natural"] = "natural"
    min_samples: int = Field(1, ge=1)

    def divide(
        self, labels: np.ndarray, devices: int, rng: np.random.Generator, owners: np.ndarray | None
    ) -> list[np.ndarray]:
        chosen = self.chosen(owners, devices)
        assert owners is not None
        by_owner = np.argsort(owners, kind="stable")
        first = np.searchsorted(owners[by_owner], chosen, side="left")
        last = np.searchsorted(owners[by_owner], chosen, side="right")
        return [by_owner[a:b] for a, b in zip(first, last, strict=True)]

    def test_samples(
        self, devices: int, owners: np.ndarray | None, test_owners: np.ndarray | None
    ) -> np.ndarray | None:
        """Return the test samples of the owners that are devices, as WKAFL's experiments use them."""
        return None if test_owners is None else np.flatnonzero(np.isin(test_owners, self.chosen(owners, devices)))

    def chosen(self, owners: np.ndarray | None, devices: int) -> np.ndarray:
        """Return the numbers of the owners that become devices, ``[devices]``, rising.

        Raises
        ------
        SpecError
            If the data set knows no owners, or too few with enough samples.
        """
        if owners is None:
            raise SpecError(
                "the data set does not say whose its samples are, so it has no natural partition; choose another "
                "partition (iid, dirichlet, shards, ...) or a data set with owners"
            )
        numbers, sizes = np.unique(owners, return_counts=True)
        enough = numbers[sizes >= self.min_samples]
        if len(enough) < devices:
            raise SpecError(
                f"{devices} devices need as many owners with at least {self.min_samples} training samples; the data "
                f"set has {len(enough)} (of {len(numbers)} owners in all)"
            )
        return enough[:devices]
