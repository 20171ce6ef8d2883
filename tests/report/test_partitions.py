"""The partition plot shows what the partition is."""

from __future__ import annotations

import numpy as np
import pytest

from fl_core.datasets import Dirichlet, Shards, partition_statistics
from fl_core.report.samples import device_order, plot_partition
from fl_core.streams import stream

LABELS = np.arange(6000) % 10


def statistics(devices, partition=None, labels=LABELS):
    partition = partition or Dirichlet(alpha=0.3)
    return partition_statistics(labels, partition.split(labels, devices, stream(0, "p")))


def test_few_devices_are_bubbles_whose_area_is_the_number_of_samples():
    found = statistics(12)
    axis = plot_partition(found).axes[0]
    bubbles = axis.collections[0]
    device, label = np.asarray(bubbles.get_offsets()).astype(int).T
    counts = found.counts[device, label]
    assert counts.sum() == found.counts.sum()
    assert np.allclose(bubbles.get_sizes() / counts, bubbles.get_sizes()[0] / counts[0])


@pytest.mark.parametrize("devices", [1, 10, 40])
def test_bubbles_do_not_overlap(devices):
    found = statistics(devices, Shards())
    figure = plot_partition(found)
    figure.draw_without_rendering()
    axis = figure.axes[0]
    bubbles = axis.collections[0]
    places = axis.transData.transform(np.array(bubbles.get_offsets())) * 72 / figure.dpi
    radii = np.sqrt(bubbles.get_sizes()) / 2
    gaps = np.hypot(*(places[:, None] - places[None]).transpose(2, 0, 1)) - radii[:, None] - radii[None]
    assert gaps[~np.eye(len(gaps), dtype=bool)].min(initial=1) >= 0


def test_many_devices_are_sorted_by_their_most_frequent_class():
    found = statistics(100)
    axes = plot_partition(found, title="Dirichlet").axes
    shares = np.asarray(axes[0].images[0].get_array()).T
    assert shares.shape == (100, 10)
    assert (np.diff(shares.argmax(axis=1)) >= 0).all()
    assert np.allclose(np.sort(shares, axis=0), np.sort(found.shares, axis=0))
    assert axes[0].get_title(loc="left") == "Dirichlet"


def test_very_many_devices_are_drawn_in_part_and_counted_in_full():
    axes = plot_partition(statistics(3000, Shards())).axes
    shares = np.asarray(axes[0].images[0].get_array()).T
    assert len(shares) <= 150
    assert set(np.unique(shares)) <= {0, 0.5, 1}
    assert "(one in 20 drawn)" in axes[0].get_xlabel()
    assert sum(bar.get_height() for bar in axes[1].patches) == 3000


def test_classes_have_their_names_or_numbers_and_not_too_many():
    names = [f"class {c}" for c in range(10)]
    for devices in (10, 100):
        axis = plot_partition(statistics(devices), names).axes[0]
        assert [text.get_text() for text in axis.get_yticklabels()] == names
    axis = plot_partition(statistics(10, labels=np.arange(6000) % 200)).axes[0]
    assert len(axis.get_yticklabels()) <= 26
    assert axis.get_yticklabels()[1].get_text() == "8"


def test_devices_are_ordered_by_class_and_then_by_how_much_it_prevails():
    shares = np.array([[0.2, 0.8], [0.6, 0.4], [0.0, 1.0], [0.9, 0.1]])
    assert device_order(shares).tolist() == [3, 1, 2, 0]
