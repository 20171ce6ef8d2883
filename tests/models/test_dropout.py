"""Dropout drops what its mask says, and nothing else decides."""

from __future__ import annotations

import pytest
import torch

from fl_core.models import Dropout, FlatModel, build_network, named_dropouts


def stream(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("probability", [0.0, 0.25, 0.5])
@pytest.mark.parametrize("shape", [(400,), (3, 10, 12)])
def test_a_mask_drops_the_given_share_and_keeps_the_mean(probability, shape):
    mask = Dropout(probability, shape).draw(200, stream())
    assert mask.shape == (200, *shape)
    assert mask.dtype == torch.float32
    dropped = float((mask == 0).float().mean())
    assert dropped == pytest.approx(probability, abs=4 * (0.25 / mask.numel()) ** 0.5)
    assert mask[mask != 0].unique().tolist() == pytest.approx([1 / (1 - probability)])
    assert float(mask.mean()) == pytest.approx(1, abs=0.02)


def test_masks_of_images_lie_as_their_activations_do():
    mask = Dropout(0.25, (8, 5, 6)).draw(7, stream())
    assert mask.is_contiguous(memory_format=torch.channels_last)


def test_a_mask_depends_on_the_stream_alone():
    layer = Dropout(0.5, (100,))
    torch.manual_seed(1)
    first = layer.draw(5, stream(3))
    torch.manual_seed(2)
    before = torch.get_rng_state()
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1 + threads % 2)
        assert torch.equal(first, layer.draw(5, stream(3)))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(before, torch.get_rng_state())
    assert not torch.equal(first, layer.draw(5, stream(4)))


def test_training_multiplies_by_the_mask_and_evaluation_does_nothing():
    layer = Dropout(0.5, (6,))
    x = torch.randn(4, 6, generator=stream())
    assert torch.equal(layer(x), x)
    mask = layer.draw(4, stream())
    layer.mask = mask
    assert torch.equal(layer(x), x * mask)
    assert not torch.equal(layer(x), x)
    assert layer.eval()(x) is x


def test_units_are_dropped_before_the_layers_that_the_papers_name():
    dropouts = named_dropouts(build_network("alexnet(width=0.25)", (3, 32, 32), 10))
    assert [(d.probability, d.shape) for d in dropouts.values()] == [(0.5, (256,)), (0.5, (1024,))]
    dropouts = named_dropouts(build_network("fedasync_cnn", (3, 24, 24), 10))
    assert [(d.probability, d.shape) for d in dropouts.values()] == [
        (0.25, (64, 12, 12)),
        (0.25, (128, 6, 6)),
        (0.25, (512,)),
    ]
    assert named_dropouts(build_network("lenet5", (1, 28, 28), 10)) == {}


@pytest.mark.parametrize(("model", "shape"), [("alexnet(width=0.1)", (1, 30, 30)), ("fedasync_cnn", (1, 26, 25))])
def test_masks_of_their_own_make_a_network_train_the_units_that_are_left(model, shape):
    flat = FlatModel(build_network(model, shape, 3))
    dropouts = named_dropouts(flat.network)
    *_, last = dropouts.values()
    for dropout in dropouts.values():
        dropout.mask = dropout.draw(2, stream())
    last.mask[:, 1:] = 0
    last.mask[:, 0] = 1
    flat.network(torch.randn(2, *shape, generator=stream())).square().sum().backward()
    following = [layer for layer in flat.network if isinstance(layer, torch.nn.Linear)]
    columns = next(layer for layer in following if layer.in_features == last.shape[0] and layer is not following[0])
    assert float(columns.weight.grad[:, 1:].abs().sum()) == 0
