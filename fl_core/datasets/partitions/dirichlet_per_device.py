"""Label skew by device: each device's proportions of classes are Dirichlet-distributed, all sizes equal."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from fl_core.datasets.partitions.base import PartitionBase, check_enough


class DirichletPerDevice(PartitionBase):
    """Label skew with equal sizes: each device's class proportions are one draw of a Dirichlet distribution.

    Class c has the concentration ``alpha * C * p_c`` (C classes, p_c: share of the data set), that is `alpha` where
    all classes are equally frequent, so that `alpha` means the same as in ``dirichlet`` (in Hsu, Qi & Brown, 2019, it
    stands for our ``alpha * C``). Devices draw one after another and no sample twice; where a class is used up,
    its proportion goes to the other classes, so the last devices follow their draw less closely when all samples are
    dealt.

    Attributes
    ----------
    alpha : float
        Concentration, > 0.
    samples_per_device : int or None
        Size of every device; None: the number of samples divided by that of devices, rounded down.
    """

    kind: Literal["dirichlet_per_device"] = "dirichlet_per_device"
    alpha: float = Field(gt=0, allow_inf_nan=False)
    samples_per_device: int | None = Field(None, ge=1)

    def divide(
        self, labels: np.ndarray, devices: int, rng: np.random.Generator, owners: np.ndarray | None
    ) -> list[np.ndarray]:
        check_enough(devices, self.samples_per_device or 1, len(labels))
        size = self.samples_per_device or len(labels) // devices
        classes, totals = np.unique(labels, return_counts=True)
        wanted = rng.dirichlet(self.alpha * len(classes) * totals / totals.sum(), devices)
        left, counts = totals.copy(), np.zeros((devices, len(classes)), int)
        for shares, row in zip(wanted, counts, strict=True):
            while (missing := size - row.sum()) > 0:
                open_shares = np.where(left > 0, shares, 0.0)
                if open_shares.sum() < 1e-12:  # the device wanted nothing of what there still is
                    open_shares = left.astype(float)
                drawn = np.minimum(rng.multinomial(missing, open_shares / open_shares.sum()), left)
                row += drawn
                left -= drawn
        dealt, holders = [], []
        for label, column in zip(classes, counts.T, strict=True):
            dealt.append(rng.permutation(np.flatnonzero(labels == label))[: column.sum()])
            holders.append(np.repeat(np.arange(devices), column))
        order = np.argsort(np.concatenate(holders), kind="stable")
        return np.split(np.concatenate(dealt)[order], devices)
