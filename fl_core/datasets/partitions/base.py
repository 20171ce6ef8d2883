"""What all partitions have in common: their call, the local hold-out, and the error for too few samples."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from fl_core.errors import SpecError
from fl_core.part import Part


class PartitionBase(Part):
    """A rule that divides the training samples among devices.

    Attributes
    ----------
    train_fraction : float
        Part of each device's samples that it trains on, in (0, 1]; the others, drawn uniformly, stay unused (FedLuck
        holds out 20 %, A3). Rounded down, but at least one sample of a device that has any.
    """

    train_fraction: float = Field(1.0, gt=0, le=1)

    def split(
        self, labels: np.ndarray, devices: int, rng: np.random.Generator, owners: np.ndarray | None = None
    ) -> list[np.ndarray]:
        """Return one sorted array of sample indices per device.

        Parameters
        ----------
        labels : ndarray
            ``[n]`` class of every sample.
        devices : int
            Number of devices.
        rng : numpy.random.Generator
            The partition's own random stream.
        owners : ndarray, optional
            ``[n]`` number of the person each sample comes from.

        Raises
        ------
        SpecError
            If the samples cannot be divided as asked.
        """
        parts = [np.sort(part) for part in self.divide(labels, devices, rng, owners)]
        if self.train_fraction == 1:
            return parts
        return [np.sort(rng.choice(part, self._kept(len(part)), replace=False)) for part in parts]

    def divide(
        self, labels: np.ndarray, devices: int, rng: np.random.Generator, owners: np.ndarray | None
    ) -> list[np.ndarray]:
        """Return the sample indices of each device, in any order, before the hold-out; arguments as for `split`."""
        raise NotImplementedError

    def mean_size(self, samples: int, devices: int) -> float:
        """Return how many of `samples` a device trains on, on average and about: for estimates of cost."""
        each = getattr(self, "samples_per_device", None) or samples / devices
        return float(each * self.train_fraction)

    def test_samples(
        self, devices: int, owners: np.ndarray | None, test_owners: np.ndarray | None
    ) -> np.ndarray | None:
        """Return the test samples ``[m]`` on which models are measured; None: all of them.

        Parameters
        ----------
        devices : int
        owners, test_owners : ndarray or None
            The owner of each training and of each test sample.
        """
        return None

    def _kept(self, size: int) -> int:
        # The small term keeps 0.29 * 100 = 28.999999999999996 at 29.
        return max(min(size, 1), int(self.train_fraction * size + 1e-9))


def check_enough(devices: int, each: int, samples: int, what: str = "samples each") -> None:
    """Raise SpecError unless `samples` suffice for `devices` devices with `each` of them."""
    if devices * each > samples:
        raise SpecError(
            f"{devices} devices with {what.replace('samples', f'{each} samples')} need {devices * each} samples; "
            f"the data set has {samples}"
        )
