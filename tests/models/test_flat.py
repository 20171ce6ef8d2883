"""The flat vector is the network: same storage, same numbers, exact counts."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fl_core.models import Dropout, FlatModel, LeNet5


class WithBatchNorm(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4 * 26 * 26, 10))


@pytest.mark.parametrize("make", [lambda: LeNet5((1, 28, 28), 10), WithBatchNorm])
def test_vector_parameters_and_gradients_are_views(make):
    flat = FlatModel(make())
    flat.load(torch.arange(flat.vector.numel(), dtype=torch.float32) / flat.vector.numel())
    named = dict(flat.network.named_parameters()) | dict(flat.network.named_buffers())
    for slot in flat.slots:
        assert torch.equal(named[slot.name].flatten(), flat.vector[slot.start : slot.stop])
        assert named[slot.name].untyped_storage().data_ptr() == flat.vector.untyped_storage().data_ptr()
    assert flat.slots[-1].stop == flat.vector.numel()
    loss = flat.network(torch.ones(3, 1, 28, 28)).square().mean()
    loss.backward()
    collected = torch.cat([p.grad.flatten() for p in flat.network.parameters()])
    assert torch.equal(collected, flat.gradient)
    assert float(flat.gradient.abs().sum()) > 0


def test_batch_norm_statistics_travel_and_counters_stay_behind():
    flat = FlatModel(WithBatchNorm())
    names = [slot.name for slot in flat.slots]
    assert names[-2:] == ["1.running_mean", "1.running_var"]
    assert len(flat.parameters) == flat.vector.numel() - 8
    before = flat.snapshot()
    flat.network(torch.randn(5, 1, 28, 28) + 3)
    assert not torch.equal(before[-8:], flat.vector[-8:])
    assert torch.equal(before[:-8], flat.vector[:-8])


def test_a_buffer_that_is_not_persistent_is_no_part_of_the_model():
    flat = FlatModel(nn.Sequential(nn.Linear(3, 2), Dropout(0.5, (2,)), nn.BatchNorm1d(2)))
    assert [slot.name for slot in flat.slots][-2:] == ["2.running_mean", "2.running_var"]
    assert flat.vector.numel() == 8 + 4 + 4
    before = flat.snapshot()
    flat.network[1].mask = torch.full((5, 2), 7.0)
    assert torch.equal(flat.vector, before)


def test_relu_after_pooling_is_lenet_bit_for_bit():
    class AsPublished(LeNet5):
        def forward(self, images):
            x = nn.functional.max_pool2d(self.conv1(images).relu(), 2)
            x = nn.functional.max_pool2d(self.conv2(x).relu(), 2)
            return self.fc3(self.fc2(self.fc1(x.flatten(1)).relu()).relu())

    ours, published = FlatModel(LeNet5((1, 28, 28), 10)), FlatModel(AsPublished((1, 28, 28), 10))
    published.load(ours.vector)
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(50, 1, 28, 28, generator=generator)
    for flat in (ours, published):
        flat.network(images).square().mean().backward()
    assert torch.equal(ours.gradient, published.gradient)
