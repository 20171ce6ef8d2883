"""Recorded steps: the bits of the step itself for every network, and what is not recorded."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from small_networks import SHAPES
from torch import nn

from fl_core import recorded
from fl_core.algorithms import WKAFL, FedAsync
from fl_core.experiments.spec import RunSpec
from fl_core.experiments.verify import difference
from fl_core.models import FlatModel, build_network

PLAIN = ("resnet", "fedasync_cnn", "alexnet")
"""They have statistics of batches, or dropout."""


class Counting(recorded.Steps):
    """Says how often a recording was asked, checks included."""

    runs = 0

    def _run(self, *given):
        self.runs += 1
        return super()._run(*given)


def steps_of(network):
    """Return the flat model of a network, its step as it is, and one that may be recorded."""
    flat = FlatModel(network)

    def compute(inputs, labels):
        flat.gradient.zero_()
        loss = F.cross_entropy(network(inputs), labels)
        loss.backward()
        return loss.detach()

    weights = list(network.parameters())
    return flat, compute, Counting(compute, [flat.gradient, *weights, *(each.grad for each in weights)])


def samples(shape, number, count=5):
    """Return mini-batch `number`."""
    stream = torch.Generator().manual_seed(number)
    labels = torch.randint(0, 3, (count,), generator=stream)
    if len(shape) == 1:
        return torch.randint(0, 100, (count, *shape), generator=stream, dtype=torch.int32), labels
    return torch.randn(count, *shape, generator=stream).contiguous(memory_format=torch.channels_last), labels


def descend(make, shape, patch, steps=8, after=2):
    """Return how often a recording ran, after trying that a few steps of it give the bits of those as they are."""
    patch.setattr(recorded, "AFTER", after)
    torch.manual_seed(0)
    flat, _, fast = steps_of(make())
    torch.manual_seed(0)
    other, slow, _ = steps_of(make())
    other.vector.copy_(flat.vector)
    for number in range(steps):
        batch = samples(shape, number, 4 if number == 1 else 5)  # one is of another shape
        torch.manual_seed(number)
        found = fast(*batch)
        torch.manual_seed(number)
        assert torch.equal(found, slow(*batch))
        assert torch.equal(flat.gradient, other.gradient)
        for each in (flat, other):
            each.parameters.add_(each.gradient, alpha=-0.1)
    assert torch.equal(flat.vector, other.vector)
    return fast.runs


@pytest.mark.parametrize("model", SHAPES)
def test_a_recorded_step_of_each_network_gives_the_bits_of_the_step_itself(model, monkeypatch):
    shape = SHAPES[model]
    runs = descend(lambda: build_network(model, shape, 3), shape, monkeypatch)
    # what nobody differentiates PyTorch may compute by another kernel (an LSTM here): the first check notices it
    assert runs in ((0,) if model.startswith(PLAIN) else (1, 5))


class Odd(nn.Module):
    """A dense layer and something odd."""

    def __init__(self, odd):
        super().__init__()
        self.dense, self.odd, self.calls = nn.Linear(6, 3), odd, 0
        self.register_buffer("halves", torch.full((3,), 0.5))

    def forward(self, x):
        self.calls += 1
        x = x.flatten(1)
        return self.dense(x) * self.odd(self, x)


ODD = {
    "draws": lambda _, x: F.dropout(torch.ones(3), 0.5),
    "uses a buffer": lambda net, x: net.halves,
    "decides by a number": lambda _, x: 1.0 if x.sum() > 0 else 2.0,
    "reads a list": lambda _, x: x.tolist()[0][0],
    "reads an array": lambda _, x: float(x.numpy()[0, 0]),
    "has a shape that depends on numbers": lambda _, x: 1.0 * len(x[x > 0.5]),
    "has an infinity": lambda _, x: x.new_full((3,), float("inf")).clamp(max=1.0),
}


@pytest.mark.parametrize("odd", ODD)
def test_what_is_no_list_of_operations_on_what_it_is_given_is_done_as_it_is(odd, monkeypatch):
    assert descend(lambda: Odd(ODD[odd]), (1, 2, 3), monkeypatch) == 0


def test_what_changes_from_call_to_call_is_noticed_by_the_first_check(monkeypatch):
    assert descend(lambda: Odd(lambda net, x: 1.0 / net.calls), (1, 2, 3), monkeypatch) == 1


def test_a_pytorch_without_torchscript_does_steps_as_they_are(monkeypatch):
    assert descend(lambda: Odd(lambda _, x: 1.0), (1, 2, 3), monkeypatch) == 5
    monkeypatch.delattr(torch.jit, "CompilationUnit")
    assert descend(lambda: Odd(lambda _, x: 1.0), (1, 2, 3), monkeypatch) == 0


@pytest.mark.parametrize("algorithm", [FedAsync(), WKAFL(num_aggregated=2, lr=0.1)])
def test_a_run_with_recorded_steps_has_the_bits_of_one_without(algorithm, monkeypatch, few_images_here):
    training, budget = {"batch_size": 10, "steps": 3}, {"updates": 12}
    spec = RunSpec(algorithm=algorithm, world={"devices": 20}, training=training, budget=budget, seed=3)
    monkeypatch.setattr(recorded, "AFTER", math.inf)
    wanted = spec.simulation().run("sequential")
    monkeypatch.setattr(recorded, "AFTER", 2)
    for executor, threads in (("sequential", None), ("threads", 2)):
        found = spec.simulation().run(executor, threads)
        assert torch.equal(found.model, wanted.model)
        assert not difference(wanted, found)
