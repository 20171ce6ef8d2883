"""Partitions: every sample exactly once, no empty device unless asked, skew as the parameter says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_core.datasets import IID, Dirichlet
from fl_core.errors import SpecError
from fl_core.streams import stream

labels_of = st.integers(1, 12).flatmap(
    lambda classes: st.lists(st.integers(0, classes - 1), min_size=1, max_size=300).map(np.array)
)


@given(labels_of, st.integers(1, 40), st.integers(0, 99))
def test_iid_uses_every_sample_once_in_equal_parts(labels, devices, seed):
    devices = min(devices, len(labels))
    parts = IID().split(labels, devices, stream(seed, "p"))
    assert sorted(np.concatenate(parts)) == list(range(len(labels)))
    sizes = [len(part) for part in parts]
    assert len(parts) == devices
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) >= 1


@given(labels_of, st.integers(1, 40), st.floats(0.01, 100), st.integers(0, 3), st.integers(0, 99))
def test_dirichlet_uses_every_sample_once_and_leaves_no_device_below_the_minimum(labels, devices, alpha, least, seed):
    devices = min(devices, max(1, len(labels) // max(1, least)))
    if devices * least > len(labels):
        least = 0
    parts = Dirichlet(alpha=alpha, min_samples=least).split(labels, devices, stream(seed, "p"))
    assert len(parts) == devices
    assert sorted(np.concatenate(parts)) == list(range(len(labels)))
    assert min(len(part) for part in parts) >= least


def skew(labels, parts):
    """Mean over devices of the largest class share."""
    return np.mean([np.bincount(labels[part]).max() / len(part) for part in parts if len(part)])


def test_dirichlet_goes_from_one_class_a_device_to_iid():
    labels = np.repeat(np.arange(10), 600)
    skews = [skew(labels, Dirichlet(alpha=a).split(labels, 20, stream(0, "p"))) for a in (0.01, 0.5, 1000.0)]
    assert skews[0] > 0.8 > skews[1] > 0.2 > skews[2]
    assert skew(labels, IID().split(labels, 20, stream(0, "p"))) < 0.2


def test_a_fixed_block_size_leaves_the_rest_unused():
    parts = IID(samples_per_device=500).split(np.zeros(60_000, int), 100, stream(0, "p"))
    assert [len(part) for part in parts] == [500] * 100
    assert len(np.unique(np.concatenate(parts))) == 50_000


def test_same_stream_same_partition():
    labels = np.arange(1000) % 10
    for partition in (IID(), Dirichlet(alpha=0.3)):
        first, second, other = (partition.split(labels, 7, stream(seed, "p")) for seed in (1, 1, 2))
        assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
        assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize("partition", [IID(samples_per_device=11), Dirichlet(alpha=1.0, min_samples=11)])
def test_too_few_samples_are_refused_with_the_numbers(partition):
    with pytest.raises(SpecError, match=r"10 devices with .*11 samples each need 110 samples; the data set has 100"):
        partition.split(np.zeros(100, int), 10, stream(0, "p"))
