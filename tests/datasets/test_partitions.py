"""Partitions: who gets which samples, how many, of how many classes, and what is refused."""

from __future__ import annotations

import hashlib
import math

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from refusals import refuses

from fl_core.datasets import (
    IID,
    PARTITIONS,
    Dirichlet,
    DirichletPerDevice,
    Natural,
    Partition,
    Shards,
    WKAFLPartition,
    partition_statistics,
)
from fl_core.datasets.partitions import class_counts
from fl_core.errors import SpecError
from fl_core.streams import stream

labels_of = st.integers(1, 12).flatmap(
    lambda classes: st.lists(st.integers(0, classes - 1), min_size=1, max_size=300).map(np.array)
)
devices_of = st.integers(1, 40)
seeds = st.integers(0, 99)
BALANCED = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 600))
OWNERS = np.random.default_rng(1).integers(0, 40, len(BALANCED))
EVERY_KIND = [
    IID(),
    IID(remainder="drop"),
    Dirichlet(alpha=0.3),
    Dirichlet(alpha=0.05, min_samples=20),
    Dirichlet(alpha=0.5, cuts="floor", min_samples=10, below_minimum="redraw"),
    DirichletPerDevice(alpha=0.3),
    Shards(),
    WKAFLPartition(labels_per_device=5),
    Natural(min_samples=16),
]
every_kind = pytest.mark.parametrize("partition", EVERY_KIND, ids=repr)


def split(partition, labels=BALANCED, devices=20, seed=0, owners=OWNERS):
    return partition.split(labels, devices, stream(seed, "p"), owners)


def same(first, second):
    return len(first) == len(second) and all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def class_matrix(labels, parts):
    return np.array([np.bincount(labels[part], minlength=12) for part in parts])


def skew(labels, parts):
    """Mean over devices of the largest class share."""
    return np.mean([np.bincount(labels[part]).max() / len(part) for part in parts if len(part)])


# Every kind


@every_kind
def test_the_same_stream_gives_the_same_partition_and_another_one_another(partition):
    assert same(split(partition, seed=1), split(partition, seed=1))
    assert isinstance(partition, Natural) == same(split(partition, seed=1), split(partition, seed=2))


@every_kind
def test_parts_are_sorted_and_no_device_has_a_sample_twice(partition):
    parts = split(partition)
    assert len(parts) == 20
    assert all(len(part) and (np.diff(part) > 0).all() for part in parts)
    assert all(part[0] >= 0 and part[-1] < len(BALANCED) for part in parts)


@pytest.mark.parametrize("partition", [p for p in EVERY_KIND if p.kind not in ("iid", "natural")], ids=repr)
def test_how_many_samples_of_a_class_a_device_gets_does_not_depend_on_the_order_of_the_samples(partition):
    other = np.sort(BALANCED)
    counts, reordered = (class_matrix(labels, split(partition, labels)) for labels in (BALANCED, other))
    assert np.array_equal(counts, reordered)


@every_kind
def test_a_hold_out_leaves_the_division_alone_and_drops_a_fifth_of_each_device(partition):
    whole, kept = split(partition), split(partition.model_copy(update={"train_fraction": 0.8}))
    for all_samples, trained_on in zip(whole, kept, strict=True):
        assert set(trained_on) < set(all_samples)
        assert len(trained_on) == len(all_samples) * 4 // 5
        assert (np.diff(trained_on) > 0).all()


@pytest.mark.parametrize(("fraction", "size", "kept"), [(0.29, 100, 29), (0.8, 6000, 4800), (0.8, 9, 7), (0.1, 3, 1)])
def test_a_hold_out_is_rounded_down_but_leaves_one(fraction, size, kept):
    assert [len(part) for part in split(IID(train_fraction=fraction), np.zeros(size, int), 1)] == [kept]


def test_a_hold_out_leaves_empty_devices_empty():
    parts = split(Dirichlet(alpha=0.01, min_samples=0, train_fraction=0.5), np.zeros(9, int), 30)
    assert min(map(len, parts)) == 0 < max(map(len, parts))


@every_kind
def test_a_partition_is_read_back_from_its_own_data(partition):
    assert TypeAdapter(Partition).validate_python(partition.model_dump()) == partition


def test_every_kind_can_be_chosen_and_is_tested_here():
    assert set(PARTITIONS.values()) == {type(partition) for partition in EVERY_KIND}
    assert [PARTITIONS[partition.kind] for partition in EVERY_KIND] == [type(partition) for partition in EVERY_KIND]


@pytest.mark.parametrize(
    "partition",
    [
        IID(samples_per_device=11),
        Dirichlet(alpha=1.0, min_samples=11),
        DirichletPerDevice(alpha=1.0, samples_per_device=11),
        Shards(shards_per_device=11),
    ],
    ids=repr,
)
def test_too_few_samples_are_refused_with_the_numbers(partition):
    with pytest.raises(SpecError, match=r"10 devices with .*11 samples each need 110 samples; the data set has 100"):
        split(partition, np.zeros(100, int), 10)


# What published results rest on: these two must never change for the fields that they had from the start.


def reference_dirichlet(labels, devices, rng, alpha, least):
    """Write the division down again, sample by sample, in Python lists."""
    blocks = [[] for _ in range(devices)]
    for label in sorted(set(labels.tolist())):
        members = rng.permutation([i for i, other in enumerate(labels) if other == label]).tolist()
        shares = np.cumsum(rng.dirichlet([alpha] * devices))
        start = 0
        for device in range(devices):
            end = len(members) if device == devices - 1 else int(np.rint(shares[device] * len(members)))
            blocks[device] += members[start:end]
            start = end
    for block in [block for block in blocks if len(block) < least]:
        while len(block) < least:
            largest = max(blocks, key=len)
            block.append(largest.pop(int(rng.integers(len(largest)))))
    return [sorted(block) for block in blocks]


@given(labels_of, devices_of, st.floats(0.003, 100), st.integers(0, 10), seeds)
@example(np.zeros(300, int), 30, 0.01, 10, 0)
@example(np.arange(300) % 12, 40, 0.003, 7, 1)
def test_dirichlet_is_what_it_always_was(labels, devices, alpha, least, seed):
    assume(devices * least <= len(labels))
    rng, other = stream(seed, "p"), stream(seed, "p")
    parts = Dirichlet(alpha=alpha, min_samples=least).split(labels, devices, rng)
    assert same(parts, reference_dirichlet(labels, devices, other, alpha, least))
    assert rng.random() == other.random()


@pytest.mark.parametrize(
    ("partition", "digest"),
    [
        (IID(), "88e5d05e7c4e24a5"),
        (IID(samples_per_device=50), "850fe71025f996ec"),
        (Dirichlet(alpha=0.5), "7d1242832dcd1b1a"),
        (Dirichlet(alpha=0.01, min_samples=50), "640f8b4df1437e1f"),
    ],
    ids=repr,
)
def test_partitions_of_published_results_keep_every_index(partition, digest):
    parts = split(partition, np.arange(6000) * 7 % 10, 100)
    text = ";".join(",".join(map(str, part)) for part in parts)
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == digest


# IID


@given(labels_of, devices_of, seeds)
def test_iid_without_the_remainder_has_exactly_equal_parts(labels, devices, seed):
    devices = min(devices, len(labels))
    parts = split(IID(remainder="drop"), labels, devices, seed)
    assert [len(part) for part in parts] == [len(labels) // devices] * devices
    assert len(np.unique(np.concatenate(parts))) == len(labels) // devices * devices


# Dirichlet, class by class


@pytest.mark.parametrize(("cuts", "rounding"), [("round", np.rint), ("floor", np.floor)])
def test_dirichlet_cuts_a_class_at_the_cumulative_shares(cuts, rounding):
    rng = stream(0, "p")
    order, shares = rng.permutation(1000), rng.dirichlet([0.5] * 7)
    ends = [*rounding(np.cumsum(shares)[:-1] * 1000).astype(int), 1000]
    parts = split(Dirichlet(alpha=0.5, min_samples=0, cuts=cuts), np.zeros(1000, int), 7)
    assert same(parts, [np.sort(order[a:b]) for a, b in zip([0, *ends], ends, strict=False)])


@given(seeds)
def test_a_redraw_keeps_the_first_draw_in_which_every_device_has_enough(seed):
    partition = Dirichlet(alpha=0.2, min_samples=40, cuts="floor", below_minimum="redraw")
    free = Dirichlet(alpha=0.2, min_samples=0, cuts="floor")
    rng = stream(seed, "p")
    draws = (free.split(BALANCED, 10, rng) for _ in range(100))
    expected = next(parts for parts in draws if min(map(len, parts)) >= 40)
    assert same(split(partition, devices=10, seed=seed), expected)


def test_a_redraw_gives_up_and_says_what_would_help():
    partition = Dirichlet(alpha=0.01, min_samples=60, below_minimum="redraw")
    with pytest.raises(
        SpecError, match=r"none of 100 draws of dirichlet\(alpha=0.01\) gave each of 100 devices 60 sa"
    ):
        split(partition, devices=100)


@pytest.mark.parametrize("kind", [Dirichlet, DirichletPerDevice])
def test_dirichlet_goes_from_one_class_a_device_to_iid(kind):
    labels = np.sort(BALANCED)
    skews = [skew(labels, split(kind(alpha=a), labels, 20)) for a in (0.01, 0.5, 1000.0)]
    assert skews[0] > 0.8 > skews[1] > 0.2 > skews[2]
    assert skew(labels, split(IID(), labels, 20)) < 0.2


# Dirichlet, device by device


@given(labels_of, devices_of, st.floats(0.003, 100), seeds, st.booleans())
def test_dirichlet_per_device_makes_equal_devices_and_uses_no_sample_twice(labels, devices, alpha, seed, half):
    devices = min(devices, len(labels))
    size = max(1, len(labels) // devices // (2 if half else 1))
    partition = DirichletPerDevice(alpha=alpha, samples_per_device=size if half else None)
    parts = split(partition, labels, devices, seed)
    assert [len(part) for part in parts] == [size] * devices
    assert len(np.unique(np.concatenate(parts))) == size * devices


def test_dirichlet_per_device_has_the_spread_of_its_distribution():
    labels = np.repeat(np.arange(4), 50_000)
    parts = split(DirichletPerDevice(alpha=2.0, samples_per_device=100), labels, 1000)
    shares = class_matrix(labels, parts)[:, :4] / 100
    a, total = 2.0, 8.0
    variance = a * (total - a) / total**2 / (total + 1)
    variance += (0.25 * 0.75 - variance) / 100  # of the multinomial draw on top
    assert np.allclose(shares.mean(axis=0), 0.25, atol=5 * (variance / 1000) ** 0.5)
    assert np.allclose(shares.var(axis=0), variance, rtol=0.25)


# Shards


@given(labels_of, devices_of, st.integers(1, 4), seeds)
def test_shards_use_every_sample_once_in_nearly_equal_parts(labels, devices, shards, seed):
    assume(devices * shards <= len(labels))
    parts = split(Shards(shards_per_device=shards), labels, devices, seed)
    assert sorted(np.concatenate(parts)) == list(range(len(labels)))
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= shards


@given(st.integers(1, 10), st.integers(1, 5), st.integers(1, 6), st.integers(1, 3), seeds)
def test_a_device_has_no_more_labels_than_shards_where_classes_fill_whole_shards(
    classes, shards_of_a_class, size, shards, seed
):
    assume(classes * shards_of_a_class % shards == 0)
    labels = np.arange(classes * shards_of_a_class * size) % classes
    parts = split(Shards(shards_per_device=shards), labels, classes * shards_of_a_class // shards, seed)
    assert all(len(part) == size * shards for part in parts)
    assert (class_matrix(labels, parts) % size == 0).all()


# WKAFL, Algorithm 4


@pytest.mark.parametrize(
    ("size", "weights", "counts"), [(37, [0.2, 0.5, 0.9], [5, 12, 21]), (5, [0.5, 0.5], [2, 2]), (1, [1, 1], [0, 0])]
)
def test_algorithm_4_rounds_half_to_even(size, weights, counts):
    assert class_counts(size, np.array(weights)).tolist() == counts


@given(st.integers(1, 10), st.integers(1, 30), st.integers(0, 40), devices_of, seeds)
def test_wkafl_devices_have_their_labels_and_sizes_within_rounding(labels_per_device, low, more, devices, seed):
    assume(2 * (low + more) >= labels_per_device)
    partition = WKAFLPartition(labels_per_device=labels_per_device, min_samples=low, max_samples=low + more)
    for part in split(partition, devices=devices, seed=seed):
        assert 1 <= len(np.unique(BALANCED[part])) <= labels_per_device
        assert max(1, low - labels_per_device / 2) <= len(part) <= low + more + labels_per_device / 2
        assert len(np.unique(part)) == len(part)


def test_wkafl_with_one_label_has_uniform_sizes_and_labels():
    parts = split(WKAFLPartition(), devices=8000)
    sizes, labels = np.bincount([len(part) for part in parts]), np.bincount([BALANCED[part[0]] for part in parts])
    assert sizes[:10].sum() == 0
    assert len(sizes) == 50
    # 40 sizes and 10 labels, equally likely: chi-squared with 39 and 9 degrees of freedom, beyond 1 in 10,000
    assert ((sizes[10:] - 200) ** 2 / 200).sum() < 80.6
    assert ((labels - 800) ** 2 / 800).sum() < 33.7


def test_wkafl_devices_share_samples_and_do_not_know_of_each_other():
    few, many = (split(WKAFLPartition(), devices=devices) for devices in (10, 1000))
    assert same(few, many[:10])
    assert np.bincount(np.concatenate(many)).max() > 1


test_wkafl_names_what_the_data_set_cannot_give = refuses(
    SpecError,
    ({"labels_per_device": 11}, "labels_per_device = 11 is too many; the data set has 10 classes"),
    ({"max_samples": 601}, "max_samples = 601 is too many; class 0 has 600 samples"),
    by=lambda fields: split(WKAFLPartition(**fields)),
)


test_wkafl_refuses_sizes_that_do_not_fit = refuses(
    ValidationError,
    ({"min_samples": 50}, "min_samples = 50 is larger than max_samples; choose at most 49"),
    ({"labels_per_device": 9, "min_samples": 1, "max_samples": 4}, "labels_per_device = 9 is too many for max_sa"),
    by=lambda fields: WKAFLPartition(**fields),
)


# Natural


@given(st.lists(st.integers(0, 15), min_size=1, max_size=200).map(np.array), st.integers(1, 12), st.randoms())
def test_natural_devices_are_the_first_owners_with_enough_samples(owners, least, random):
    kept = [owner for owner in range(16) if (owners == owner).sum() >= least]
    assume(kept)
    devices = random.randint(1, len(kept))
    parts = split(Natural(min_samples=least), np.zeros_like(owners), devices, owners=owners)
    assert same(parts, [np.flatnonzero(owners == owner) for owner in kept[:devices]])
    assert Natural(min_samples=least).chosen(owners, devices).tolist() == kept[:devices]


def test_natural_says_how_many_owners_there_are():
    with pytest.raises(
        SpecError, match=r"3 devices need as many owners with at least 2 .* has 1 \(of 2 owners in all"
    ):
        split(Natural(min_samples=2), np.zeros(3, int), 3, owners=np.array([5, 5, 7]))


def test_natural_needs_owners():
    with pytest.raises(SpecError, match="does not say whose its samples are"):
        split(Natural(), owners=None)


# Statistics, on cases that can be counted by hand


LABELS = np.array([0, 0, 0, 1, 1, 2])


def lists_of(*lists):
    return [np.array(indices, dtype=int) for indices in lists]


def test_what_can_be_counted_by_hand():
    found = partition_statistics(LABELS, lists_of([0, 1, 3], [1, 2, 3, 4]), classes=4)
    assert found.counts.tolist() == [[2, 1, 0, 0], [2, 2, 0, 0]]
    assert (found.samples, found.used, found.shared) == (6, 5, 2)
    assert found.sizes.tolist() == [3, 4]
    assert found.labels_per_device.tolist() == [2, 2]
    assert found.used_share == pytest.approx(5 / 6)
    # pooled (4, 3)/7; device 1 (2, 1)/3: |2/3 - 4/7| = 2/21; device 2 (1, 1)/2: |1/2 - 4/7| = 1/14
    assert found.skew == pytest.approx((2 / 21 + 1 / 14) / 2)


def test_an_empty_device_counts_as_device_but_has_no_skew():
    found = partition_statistics(LABELS, lists_of([0, 3], [], [1, 4]))
    assert found.sizes.tolist() == [2, 0, 2]
    assert found.shares[1].tolist() == [0, 0, 0]
    assert found.skew == pytest.approx(0)
    assert math.isnan(partition_statistics(LABELS, lists_of([], [])).skew)
