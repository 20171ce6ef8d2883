"""How the training samples are divided among devices, one class per rule, and what a division looks like."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.random import Generator
from pydantic import Field, model_validator

from fl_core.config import Family
from fl_core.errors import SpecError

Array = np.ndarray
ATTEMPTS = 100  # draws before "redraw" gives up; what succeeds once in 20 draws fails less than once in 150 times


class Partition(Family):
    """A rule that divides the training samples among devices."""

    train_fraction: float = Field(1.0, gt=0, le=1)
    """Part of each device's samples that it trains on, in (0, 1]; the others, drawn uniformly, stay unused (FedLuck
    holds out 20 %, A3). Rounded down, but at least one sample of a device that has any."""

    def split(self, labels: Array, devices: int, rng: Generator, owners: Array | None = None) -> list[Array]:
        """Return one sorted array of sample indices per device, drawn from the partition's own stream `rng`.

        `labels` ``[n]`` is the class of every sample, `owners` ``[n]`` the number of the person it comes from.
        """
        parts = [np.sort(part) for part in self.divide(labels, devices, rng, owners)]
        if self.train_fraction == 1:
            return parts
        return [np.sort(rng.choice(part, self._kept(len(part)), replace=False)) for part in parts]

    def divide(self, labels: Array, devices: int, rng: Generator, owners: Array | None) -> list[Array]:
        """Return the sample indices of each device, in any order, before the hold-out; arguments as for `split`."""
        raise NotImplementedError

    def mean_size(self, samples: int, devices: int) -> float:
        """Return how many of `samples` a device trains on, on average and about: for estimates of cost."""
        each = getattr(self, "samples_per_device", None) or samples / devices
        return float(each * self.train_fraction)

    def test_samples(self, devices: int, owners: Array | None, test_owners: Array | None) -> Array | None:
        """Return the test samples ``[m]`` on which models are measured, given each sample's owner; None: all."""
        return None

    def _kept(self, size: int) -> int:
        # The small term keeps 0.29 * 100 = 28.999999999999996 at 29.
        return max(min(size, 1), int(self.train_fraction * size + 1e-9))


class Dirichlet(Partition):
    """Label skew: for each class, the devices' shares are one draw of Dirichlet(alpha, ..., alpha).

    Small `alpha` gives each device few classes, large `alpha` approaches IID (Yurochkin et al., 2019; SD-FEEL A-10,
    FedLuck A20, FedASMU A17). Device sizes are random: with C equally frequent classes a device's expected share of
    all samples is 1/devices, and its coefficient of variation about sqrt(1 / (alpha C)). Every sample is used once.
    For equal sizes see ``dirichlet_per_device``.
    """

    kind: Literal["dirichlet"] = "dirichlet"
    alpha: float = Field(gt=0, allow_inf_nan=False)
    """Concentration, > 0."""
    min_samples: int = Field(1, ge=0)
    """Fewest samples of a device; 0 allows empty devices."""
    cuts: Literal["round", "floor"] = "round"
    """A class is cut where the cumulative shares times its size are, to the nearest integer (``"round"``) or rounded
    down (``"floor"``: SD-FEEL, FedLuck)."""
    below_minimum: Literal["top_up", "redraw"] = "top_up"
    """What is done for devices below `min_samples`: ``"top_up"`` moves single samples to them from the device that is
    then the largest; ``"redraw"`` draws the whole partition again (SD-FEEL, FedASMU), at most 100 times."""

    def divide(self, labels: Array, devices: int, rng: Generator, owners: Array | None) -> list[Array]:
        _check_enough(devices, self.min_samples, len(labels), "at least samples each")
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

    def _draw(self, by_class: list[Array], devices: int, rng: Generator) -> list[Array]:
        """Return one draw: each device's samples, class after class, shuffled within each."""
        to_integer = np.rint if self.cuts == "round" else np.floor
        dealt, counts = [], []
        for members in by_class:
            dealt.append(rng.permutation(members))
            shares = rng.dirichlet(np.full(devices, self.alpha))
            cuts = to_integer(np.cumsum(shares)[:-1] * len(members)).astype(int)
            counts.append(np.diff(cuts, prepend=0, append=len(members)))
        return _collected(dealt, np.array(counts))

    def _top_up(self, blocks: list[Array], rng: Generator) -> None:
        """Move samples, in place, until no device is below the minimum; then none gives too many, or what it got."""
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


class DirichletPerDevice(Partition):
    """Label skew with equal sizes: each device's class proportions are one draw of a Dirichlet distribution.

    Class c has the concentration ``alpha * C * p_c`` (C classes, p_c: share of the data set), that is `alpha` where
    all classes are equally frequent, so that `alpha` means the same as in ``dirichlet`` (in Hsu, Qi & Brown, 2019, it
    stands for our ``alpha * C``). Devices draw one after another and no sample twice; where a class is used up,
    its proportion goes to the other classes, so the last devices follow their draw less closely when all samples are
    dealt.
    """

    kind: Literal["dirichlet_per_device"] = "dirichlet_per_device"
    alpha: float = Field(gt=0, allow_inf_nan=False)
    """Concentration, > 0."""
    samples_per_device: int | None = Field(None, ge=1)
    """Size of every device; None: the number of samples divided by that of devices, rounded down."""

    def divide(self, labels: Array, devices: int, rng: Generator, owners: Array | None) -> list[Array]:
        _check_enough(devices, self.samples_per_device or 1, len(labels))
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
        dealt = [rng.permutation(np.flatnonzero(labels == label)) for label in classes]
        return _collected([some[:used] for some, used in zip(dealt, counts.sum(0), strict=True)], counts.T)


class IID(Partition):
    """Shuffle all samples and cut blocks; sizes differ by at most one, every sample is used once."""

    kind: Literal["iid"] = "iid"
    samples_per_device: int | None = Field(None, ge=1)
    """Cut blocks of exactly this many and leave the rest unused (FedAsync: 100 x 500, A14); None divides all."""
    remainder: Literal["share", "drop"] = "share"
    """What becomes of the samples left over when equal blocks do not use up the data set: ``"share"`` gives one more
    to the first devices, ``"drop"`` leaves them unused (FedLuck, A21)."""

    def divide(self, labels: Array, devices: int, rng: Generator, owners: Array | None) -> list[Array]:
        n = len(labels)
        _check_enough(devices, self.samples_per_device or 1, n)
        size = self.samples_per_device or (n // devices if self.remainder == "drop" else None)
        order = rng.permutation(n)
        return np.array_split(order[: devices * size] if size else order, devices)


class Natural(Partition):
    """One owner (writer, celebrity, speaker) per device: the first that have enough samples, by their number.

    Sizes are those of the data set. Training and test samples of further owners stay unused.
    """

    kind: Literal["natural"] = "natural"
    min_samples: int = Field(1, ge=1)
    """Fewest training samples of an owner that becomes a device (WKAFL on EMNIST ByClass: 16)."""

    def divide(self, labels: Array, devices: int, rng: Generator, owners: Array | None) -> list[Array]:
        chosen = self.chosen(owners, devices)
        assert owners is not None
        by_owner = np.argsort(owners, kind="stable")
        first, last = (np.searchsorted(owners[by_owner], chosen, side) for side in ("left", "right"))
        return [by_owner[a:b] for a, b in zip(first, last, strict=True)]

    def test_samples(self, devices: int, owners: Array | None, test_owners: Array | None) -> Array | None:
        """Return the test samples of the owners that are devices, as WKAFL's experiments use them.

        Where owners of test samples own no training sample, the test samples are all of strangers: all are used.
        """
        if test_owners is None or owners is None or not np.isin(test_owners, owners).any():
            return None
        found = np.flatnonzero(np.isin(test_owners, self.chosen(owners, devices)))
        if not len(found):
            raise SpecError(f"no test sample is of one of the {devices} owners that are devices; use more devices")
        return found

    def chosen(self, owners: Array | None, devices: int) -> Array:
        """Return the numbers of the owners that become devices, ``[devices]``, rising."""
        if owners is None:
            how = "choose another partition (iid, dirichlet, shards, ...) or a data set with owners"
            raise SpecError(f"the data set does not say whose its samples are, so it has no natural partition; {how}")
        numbers, sizes = np.unique(owners, return_counts=True)
        enough = numbers[sizes >= self.min_samples]
        if len(enough) < devices:
            need = f"{devices} devices need as many owners with at least {self.min_samples} training samples"
            raise SpecError(f"{need}; the data set has {len(enough)} (of {len(numbers)} owners in all)")
        return enough[:devices]


class Shards(Partition):
    """Sort by label, cut into ``devices * shards_per_device`` shards and deal them at random.

    (McMahan et al., 2017; extension of FedAsync, A14.) Shards differ in size by at most one sample, every sample is
    used once. A device has at most `shards_per_device` labels where every class fills whole shards (60,000
    samples, 10 equal classes, 100 devices: 200 shards of 300), and a few more where shards reach across a border
    between classes.
    """

    kind: Literal["shards"] = "shards"
    shards_per_device: int = Field(2, ge=1)
    """Shards that each device gets."""

    def divide(self, labels: Array, devices: int, rng: Generator, owners: Array | None) -> list[Array]:
        _check_enough(devices, self.shards_per_device, len(labels), "at least samples each")
        shuffled = rng.permutation(len(labels))
        by_label = shuffled[np.argsort(labels[shuffled], kind="stable")]
        shards = np.array_split(by_label, devices * self.shards_per_device)
        hands = rng.permutation(len(shards)).reshape(devices, self.shards_per_device)
        return [np.concatenate([shards[number] for number in hand]) for hand in hands]


class WKAFLPartition(Partition):
    """Each device draws its labels, its size and the labels' proportions, then samples of its own.

    (Zhou et al., 2022, Algorithm 4.) Devices draw independently, so that they may share samples and a sample may
    stay unused; within a device no sample comes twice. The proportions are uniform numbers divided by their sum: even
    with all labels, devices are not IID. Counts are rounded half to even, so a device may end with a few samples more
    or fewer than `max_samples` and `min_samples` say; one that would have none draws again (A16).
    """

    kind: Literal["wkafl"] = "wkafl"
    labels_per_device: int = Field(1, ge=1)
    """L_num, the labels that a device draws; those whose count rounds to 0 are lost."""
    min_samples: int = Field(10, ge=1)
    """D_min, the smallest size that a device can draw, before rounding."""
    max_samples: int = Field(49, ge=1)
    """D_max, the largest; all in between are equally likely."""

    @model_validator(mode="after")
    def _devices_get_samples(self) -> WKAFLPartition:
        most = self.max_samples
        if self.min_samples > most:
            raise ValueError(f"min_samples = {self.min_samples} is larger than max_samples; choose at most {most}")
        if 2 * most < self.labels_per_device:  # all counts could round to 0, draw after draw
            many = f"labels_per_device = {self.labels_per_device} is too many for max_samples = {most}"
            raise ValueError(f"{many}; choose at most {2 * most}")
        return self

    def mean_size(self, samples: int, devices: int) -> float:
        return self.train_fraction * (self.min_samples + self.max_samples) / 2

    def divide(self, labels: Array, devices: int, rng: Generator, owners: Array | None) -> list[Array]:
        classes, totals = np.unique(labels, return_counts=True)
        if (many := self.labels_per_device) > len(classes):
            raise SpecError(f"labels_per_device = {many} is too many; the data set has {len(classes)} classes")
        if totals.min(initial=self.max_samples) < self.max_samples:
            scarce = f"class {classes[totals.argmin()]} has {totals.min()} samples"
            raise SpecError(f"max_samples = {self.max_samples} is too many; {scarce}")
        members = [np.flatnonzero(labels == label) for label in classes]
        return [self._draw(members, rng) for _ in range(devices)]

    def _draw(self, members: list[Array], rng: Generator) -> Array:
        """Return the samples of one device."""
        counts = np.zeros(0, int)
        while not counts.any():
            chosen = rng.choice(len(members), self.labels_per_device, replace=False)
            size = int(rng.integers(self.min_samples, self.max_samples, endpoint=True))
            counts = class_counts(size, rng.random(self.labels_per_device))
        pairs = zip(chosen, counts, strict=True)
        return np.concatenate([rng.choice(members[c], k, replace=False, shuffle=False) for c, k in pairs])


def _collected(dealt: list[Array], counts: Array) -> list[Array]:
    """Return each device's samples, class after class, of which it gets the next `counts` ``[classes, devices]``."""
    holder = np.concatenate([np.repeat(np.arange(len(row)), row) for row in counts])
    return np.split(np.concatenate(dealt)[np.argsort(holder, kind="stable")], np.cumsum(counts.sum(0))[:-1])


def class_counts(size: int, weights: Array) -> Array:
    """Return the samples of each class, ``size * weights / sum(weights)`` rounded half to even (Algorithm 4)."""
    return np.rint(size * weights / weights.sum()).astype(int)


def _check_enough(devices: int, each: int, samples: int, what: str = "samples each") -> None:
    if (needed := devices * each) > samples:
        what = what.replace("samples", f"{each} samples")
        raise SpecError(f"{devices} devices with {what} need {needed} samples; the data set has {samples}")


PARTITIONS: dict[str, type[Partition]] = Partition.kinds


@dataclass(frozen=True)
class PartitionStatistics:
    """Counts of a partition; all else is derived from them."""

    counts: Array = field(repr=False)  # [devices, classes] samples of each class on each device
    samples: int  # in the data set
    used: int  # how many of them are on at least one device
    shared: int  # how many are on more than one device

    @property
    def sizes(self) -> Array:
        """Samples of each device, ``[devices]``."""
        return self.counts.sum(axis=1)

    @property
    def labels_per_device(self) -> Array:
        """Number of different labels on each device, ``[devices]``."""
        return (self.counts > 0).sum(axis=1)

    @property
    def shares(self) -> Array:
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
        distances = np.abs(self.shares - self.counts.sum(axis=0) / self.counts.sum()).sum(axis=1) / 2
        return float(distances[self.sizes > 0].mean())

    @property
    def used_share(self) -> float:
        """Part of the data set's samples that is on at least one device, in [0, 1]."""
        return self.used / self.samples


def partition_statistics(labels: Array, parts: Sequence[Array], classes: int | None = None) -> PartitionStatistics:
    """Count what is where: `labels` ``[n]``, the indices of each device; `classes`: default the largest label + 1."""
    classes = classes or int(labels.max()) + 1
    counts = np.stack([np.bincount(labels[part], minlength=classes) for part in parts])
    holders = np.bincount(np.concatenate(list(parts)).astype(int), minlength=len(labels))
    return PartitionStatistics(counts, len(labels), int((holders > 0).sum()), int((holders > 1).sum()))
