"""How the training samples are divided among devices: every sample exactly once, unless a limit is asked for."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from fl_core.errors import SpecError


class _Partition(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    def split(self, labels: np.ndarray, devices: int, rng: np.random.Generator) -> list[np.ndarray]:
        """Return one sorted array of sample indices per device.

        Parameters
        ----------
        labels : ndarray
            ``[n]`` class of every sample.
        devices : int
            Number of devices.
        rng : numpy.random.Generator
            The partition's own random stream.

        Raises
        ------
        SpecError
            If there are fewer samples than the partition needs.
        """
        raise NotImplementedError


class IID(_Partition):
    """Shuffle all samples and cut equal blocks; sizes differ by at most one.

    Attributes
    ----------
    samples_per_device : int or None
        Cut blocks of exactly this many and leave the rest unused (FedAsync: 100 x 500); None uses every sample.
    """

    kind: Literal["iid"] = "iid"
    samples_per_device: int | None = Field(None, ge=1)

    def split(self, labels: np.ndarray, devices: int, rng: np.random.Generator) -> list[np.ndarray]:
        need = devices * (self.samples_per_device or 1)
        if need > len(labels):
            raise SpecError(
                f"{devices} devices with {self.samples_per_device or 1} samples each need {need} samples; "
                f"the data set has {len(labels)}"
            )
        order = rng.permutation(len(labels))
        if self.samples_per_device:
            order = order[:need]
        return [np.sort(block) for block in np.array_split(order, devices)]


class Dirichlet(_Partition):
    """Label skew: for each class, the devices' shares are one draw of Dirichlet(alpha, ..., alpha).

    Small `alpha` gives each device few classes, large `alpha` approaches IID (Hsu, Qi & Brown, 2019, applied
    class by class). Device sizes are random. A device that would stay below `min_samples` takes single samples
    from the largest device, so that no sample is lost or used twice.

    Attributes
    ----------
    alpha : float
        Concentration, > 0.
    min_samples : int
        Fewest samples of a device; 0 allows empty devices.
    """

    kind: Literal["dirichlet"] = "dirichlet"
    alpha: float = Field(gt=0, allow_inf_nan=False)
    min_samples: int = Field(1, ge=0)

    def split(self, labels: np.ndarray, devices: int, rng: np.random.Generator) -> list[np.ndarray]:
        if devices * self.min_samples > len(labels):
            raise SpecError(
                f"{devices} devices with at least {self.min_samples} samples each need "
                f"{devices * self.min_samples} samples; the data set has {len(labels)}"
            )
        parts: list[list[np.ndarray]] = [[] for _ in range(devices)]
        for label in np.unique(labels):
            members = rng.permutation(np.flatnonzero(labels == label))
            shares = rng.dirichlet(np.full(devices, self.alpha))
            cuts = np.rint(np.cumsum(shares)[:-1] * len(members)).astype(int)
            for part, block in zip(parts, np.split(members, cuts), strict=True):
                part.append(block)
        blocks = [np.concatenate(part) for part in parts]
        sizes = np.array([len(block) for block in blocks])
        for poor in np.flatnonzero(sizes < self.min_samples):
            while sizes[poor] < self.min_samples:
                rich = int(sizes.argmax())
                taken = int(rng.integers(sizes[rich]))
                blocks[poor] = np.append(blocks[poor], blocks[rich][taken])
                blocks[rich] = np.delete(blocks[rich], taken)
                sizes[poor] += 1
                sizes[rich] -= 1
        return [np.sort(block) for block in blocks]


Partition = Annotated[IID | Dirichlet, Field(discriminator="kind")]
