"""Hidden units of networks: what is left out with them, and that nothing else depends on it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fl_core.errors import SpecError
from fl_core.models import FlatModel, build_network, initialise
from fl_core.models.units import HiddenLayer, hidden_units

NETWORKS = {
    "lenet5": ((1, 28, 28), {"conv2": 16, "fc1": 120, "fc2": 84}),
    "fedasmu_cnn": ((3, 12, 12), {"2": 32}),
    "fedasync_cnn(width=0.125)": ((3, 8, 8), {"3": 8, "8": 16, "11": 16, "17": 64}),
    "wkafl_cnn(width=0.25)": ((1, 16, 16), {"3": 16, "7": 128}),
    "alexnet(width=0.0625)": ((3, 32, 32), {"3": 12, "6": 24, "8": 16, "10": 16, "15": 256, "18": 256}),
    "vgg11(width=0.0625)": ((3, 32, 32), {"3": 8, "6": 16, "8": 16, "11": 32, "13": 32, "16": 32, "18": 32}),
    "resnet20(width=0.25)": ((3, 8, 8), {f"blocks.{n}.conv1": 4 * 2 ** (n // 3) for n in range(9)}),
    "textcnn(vocabulary=50, width=0.1)": ((12,), {f"convolutions.{n}": 10 for n in range(3)}),
    "linear": ((1, 4, 4), {}),
}


def made(text: str) -> FlatModel:
    space = FlatModel(build_network(text, NETWORKS[text][0], 5))
    initialise(space.network, torch.Generator().manual_seed(0))
    return space


@pytest.mark.parametrize("text", NETWORKS)
def test_every_hidden_layer_but_the_first_is_found_with_all_its_units(text):
    space = made(text)
    groups = hidden_units(space.network, space.slots)
    names = {slot.start: slot.name for slot in space.slots}
    found = {names[group.places[0].start].removesuffix(".weight"): group.count for group in groups}
    assert found == NETWORKS[text][1]


@pytest.mark.parametrize("text", NETWORKS)
def test_a_network_without_some_units_is_one_that_never_touches_their_entries(text):
    """If a weight were missing from the mask, it would get a gradient; if one were too many, a unit would be cut."""
    space, rng = made(text), np.random.default_rng(0)
    groups = hidden_units(space.network, space.slots)
    mask = torch.ones(len(space.vector), dtype=torch.bool)
    kept = [sorted(rng.choice(group.count, (group.count + 1) // 2, replace=False).tolist()) for group in groups]
    for group, units in zip(groups, kept, strict=True):
        group.keep(mask, units)
    shape = NETWORKS[text][0]
    inputs = torch.randint(1, 50, (16, *shape)) if len(shape) == 1 else torch.randn(16, *shape)
    labels = torch.arange(16) % 5
    space.parameters.add_(torch.rand(len(space.parameters)), alpha=0.05)  # biases that are not zero
    space.vector.mul_(mask)
    before = space.vector.clone()
    for _ in range(3):
        space.gradient.zero_()
        F.cross_entropy(space.network(inputs), labels).backward()
        assert not space.gradient[~mask[: len(space.gradient)]].any()
        space.parameters.add_(space.gradient, alpha=-0.05)
    moved = (space.vector != before) & mask
    for group, units in zip(groups, kept, strict=True):
        own = group.places[0]  # a unit that is kept learns, unless none of these samples wakes it
        learned = own.of(moved, group.count).flatten(1).any(1) if own.axis == 0 else None
        assert learned is not None
        assert not learned[[unit for unit in range(group.count) if unit not in units]].any()
        assert learned[units].float().mean() > 0.5


def test_how_much_a_unit_has_moved_counts_the_weights_that_it_reads_and_those_by_which_it_is_read():
    network = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2), nn.Linear(2, 4))
    space = FlatModel(network)
    [units] = hidden_units(network, space.slots)
    changed = space.vector.clone()
    space.vector.copy_(changed)
    with torch.no_grad():
        network[1].weight[0] += torch.tensor([1.0, -2.0, 3.0])
        network[1].bias += 100.0
        network[2].weight[:, 1] -= 0.5
    torch.testing.assert_close(units.moved(space.vector, changed), torch.tensor([6.0, 2.0]))


class Branched(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.left, self.right = nn.Linear(4, 6), nn.Linear(6, 3), nn.Linear(6, 3)
        self.last = nn.Linear(6, 2)


class Declared(Branched):
    def hidden_layers(self):
        return [HiddenLayer(self.left, None, self.last, 0, 3), HiddenLayer(self.right, None, self.last, 3, 3)]


def test_a_network_whose_layers_are_not_one_after_the_other_has_to_say_so():
    for network in (Branched(), build_network("lstm", (1, 8, 8), 5)):
        with pytest.raises(SpecError, match=r"not known.*hidden_layers"):
            hidden_units(network, FlatModel(network).slots)
    network = Declared()
    space = FlatModel(network)
    left, right = hidden_units(network, space.slots)
    mask = torch.ones(len(space.vector), dtype=torch.bool)
    left.keep(mask, [0])
    right.keep(mask, [1, 2])
    views = {slot.name: mask[slot.start : slot.stop].view(slot.shape) for slot in space.slots}
    assert views["last.weight"].tolist() == [[True, False, False, False, True, True]] * 2
    assert views["left.bias"].tolist() == [True, False, False]
