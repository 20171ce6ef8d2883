"""Symmetric label noise."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fl_core.datasets.label_noise import with_label_noise
from fl_core.experiments.spec import RunSpec
from fl_core.streams import stream


@given(st.integers(0, 300), st.integers(2, 12), st.floats(0, 1), st.integers(0, 99))
def test_exactly_the_asked_share_is_wrong_and_the_original_stays(count, classes, share, seed):
    labels = np.arange(count) % classes
    before = labels.copy()
    noisy = with_label_noise(labels, classes, share, stream(seed, "label-noise"))
    assert (noisy != labels).sum() == round(share * count)
    assert ((noisy >= 0) & (noisy < classes)).all()
    np.testing.assert_array_equal(labels, before)


def test_every_other_class_is_as_likely():
    noisy = with_label_noise(np.zeros(9000, np.int64), 10, 1.0, stream(0, "label-noise"))
    counts = np.bincount(noisy, minlength=10)
    assert counts[0] == 0
    assert counts[1:].min() > 850


def test_with_one_class_there_is_nothing_to_confuse():
    assert with_label_noise(np.zeros(5, np.int64), 1, 1.0, stream(0, "label-noise")).tolist() == [0] * 5


def test_in_a_run_only_training_labels_are_wrong_and_the_partition_is_as_without():
    clean, noisy = (RunSpec(algorithm="fedasync", label_noise=share).task() for share in (0.0, 0.2))
    assert int((clean.train.labels != noisy.train.labels).sum()) == 12_000
    assert bool((clean.test.labels == noisy.test.labels).all())
    assert all(bool((a == b).all()) for a, b in zip(clean.parts, noisy.parts, strict=True))
