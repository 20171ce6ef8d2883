"""Statistics of partitions, on cases that can be counted by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_core.datasets.partition_statistics import partition_statistics
from fl_core.datasets.partitions import IID, Shards
from fl_core.streams import stream

LABELS = np.array([0, 0, 0, 1, 1, 2])


def parts(*lists):
    return [np.array(indices, dtype=int) for indices in lists]


def test_what_can_be_counted_by_hand():
    found = partition_statistics(LABELS, parts([0, 1, 3], [1, 2, 3, 4]), classes=4)
    assert found.counts.tolist() == [[2, 1, 0, 0], [2, 2, 0, 0]]
    assert (found.samples, found.used, found.shared) == (6, 5, 2)
    assert found.sizes.tolist() == [3, 4]
    assert found.labels_per_device.tolist() == [2, 2]
    assert found.used_share == pytest.approx(5 / 6)
    # pooled (4, 3)/7; device 1 (2, 1)/3: |2/3 - 4/7| = 2/21; device 2 (1, 1)/2: |1/2 - 4/7| = 1/14
    assert found.skew == pytest.approx((2 / 21 + 1 / 14) / 2)


def test_one_class_and_one_size_are_said_in_the_singular():
    words = partition_statistics(LABELS, parts([0, 1], [3, 4])).in_words()
    assert words == "2 devices, each with 2 samples (median 2) of 1 class; skew 0.50; 66.7 % of 6 samples used"


def test_one_class_a_device_has_the_skew_of_its_class_count():
    labels = np.repeat(np.arange(5), 7)
    assert partition_statistics(labels, list(np.arange(35).reshape(5, 7))).skew == pytest.approx(1 - 1 / 5)


def test_alike_devices_have_no_skew():
    assert partition_statistics(LABELS, parts([0, 3, 5], [1, 4, 5])).skew == pytest.approx(0)


def test_an_empty_device_counts_as_device_but_has_no_skew():
    found = partition_statistics(LABELS, parts([0, 3], [], [1, 4]))
    assert found.sizes.tolist() == [2, 0, 2]
    assert found.shares[1].tolist() == [0, 0, 0]
    assert found.skew == pytest.approx(0)
    assert math.isnan(partition_statistics(LABELS, parts([], [])).skew)


def test_a_row_and_a_sentence_say_the_same():
    found = partition_statistics(LABELS, parts([0, 1, 3], [1, 2, 3, 4]))
    assert found.row() == {
        "devices": 2, "smallest": 3, "median": 3.5, "largest": 4, "fewest_labels": 2, "mean_labels": 2.0,
        "most_labels": 2, "skew": found.skew, "used_share": 5 / 6, "shared": 2,
    }  # fmt: skip
    assert found.in_words() == (
        "2 devices, each with 3 to 4 samples (median 3.5) of 2 classes; skew 0.08; "
        "83.3 % of 6 samples used, 2 of them by several devices"
    )


@given(st.integers(1, 50), st.integers(0, 99))
def test_iid_is_less_skewed_than_shards_and_both_use_all_samples(devices, seed):
    labels = np.arange(2000) % 10
    iid, shards = (
        partition_statistics(labels, kind.split(labels, devices, stream(seed, "p"))) for kind in (IID(), Shards())
    )
    assert iid.used_share == shards.used_share == 1
    assert iid.shared == shards.shared == 0
    assert iid.sizes.sum() == 2000
    assert 0 <= iid.skew <= shards.skew < 1
