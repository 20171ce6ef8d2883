"""Label skew by class: each class is dealt to the devices in Dirichlet-distributed shares."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from fl_core.datasets.partitions.base import PartitionBase, check_enough
from fl_core.errors import SpecError

ATTEMPTS = 100
"""Draws before "redraw" gives up; a setting that succeeds once in 20 draws fails less than once in 150 times."""


class Dirichlet(PartitionBase):
    """Label skew: for each class, the devices' shares are one draw of Dirichlet(alpha, ..., alpha).

    Small `alpha` gives each device few classes, large `alpha` approaches IID (Yurochkin et al., 2019; SD-FEEL A-10,
    FedLuck A20, FedASMU A17). Device sizes are random: with C equally frequent classes a device's expected share of
    all samples is 1/devices, and its coefficient of variation about sqrt(1 / (alpha C)). Every sample is used once.
    For equal sizes see ``dirichlet_per_device``.

    Attributes
    ----------
    alpha : float
        Concentration, > 0.
    min_samples : int
        Fewest samples of a device; 0 allows empty devices.
    cuts : str
        A class is cut where the cumulative shares times its size are, to the nearest integer (``"round"``) or
        rounded down (``"floor"``: SD-FEEL, FedLuck).
    below_minimum : str
        What is done for devices below `min_samples`: ``"top_up"`` moves single samples to them from the device that
        is then the largest; ``"redraw"`` draws the whole partition again (SD-FEEL, FedASMU), at most 100 times.
    """

    kind: Literal["dirichlet"] = "dirichlet"
    alpha: float = Field(gt=0, allow_inf_nan=False)
    min_samples: int = Field(1, ge=0)
    cuts: Literal["round", "floor"] = "round"
    below_minimum: Literal["top_up", "redraw"] = "top_up"

    def divide(
        self, labels: np.ndarray, devices: int, rng: np.random.Generator, owners: np.ndarray | None
    ) -> list[np.ndarray]:
        check_enough(devices, self.min_samples, len(labels), "at least samples each")
        by_class = [np.flatnonzero(labels == label) for label in np.unique(labels)]
        if self.below_minimum == "top_up":
            blocks = self._draw(by_class, devices, rng)
            self._top_up(blocks, rng)
            return blocks
        largest = 0
        for _ in range(ATTEMPTS):
            blocks = self._draw(by_class, devices, rng)
            smallest = min(len(block) for block in blocks)
            if smallest >= self.min_samples:
                return blocks
            largest = max(largest, smallest)
        raise SpecError(
            f"none of {ATTEMPTS} draws of dirichlet(alpha={self.alpha:g}) gave each of {devices} devices "
            f"{self.min_samples} samples (at best, the smallest had {largest}); use fewer devices, a larger alpha, a "
            f'smaller min_samples, or below_minimum="top_up"'
        )

    def _draw(self, by_class: list[np.ndarray], devices: int, rng: np.random.Generator) -> list[np.ndarray]:
        """Return one draw: each device's samples, class after class, shuffled within each."""
        to_integer = np.rint if self.cuts == "round" else np.floor
        dealt, holders = [], []
        for members in by_class:
            dealt.append(rng.permutation(members))
            shares = rng.dirichlet(np.full(devices, self.alpha))
            cuts = to_integer(np.cumsum(shares)[:-1] * len(members)).astype(int)
            counts = np.diff(cuts, prepend=0, append=len(members))
            holders.append(np.repeat(np.arange(devices), counts))
        samples, holder = np.concatenate(dealt), np.concatenate(holders)
        ends = np.cumsum(np.bincount(holder, minlength=devices))
        return np.split(samples[np.argsort(holder, kind="stable")], ends[:-1])

    def _top_up(self, blocks: list[np.ndarray], rng: np.random.Generator) -> None:
        """Move samples, in place, until no device is below the minimum.

        The largest device is above the minimum as long as another is below it, so no device gives away too many,
        and none that received gives.
        """
        sizes = np.array([len(block) for block in blocks])
        givers: dict[int, list[int]] = {}
        for poor in np.flatnonzero(sizes < self.min_samples):
            received = []
            for _ in range(self.min_samples - sizes[poor]):
                rich = int(sizes.argmax())
                if rich not in givers:
                    givers[rich] = blocks[rich].tolist()
                received.append(givers[rich].pop(int(rng.integers(sizes[rich]))))
                sizes[rich] -= 1
            blocks[poor] = np.append(blocks[poor], np.array(received, dtype=int))
            sizes[poor] = self.min_samples
        for rich, left in givers.items():
            blocks[rich] = np.array(left)
