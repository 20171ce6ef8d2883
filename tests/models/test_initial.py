"""Initial values have the distributions that the papers' code gives them, from the run's stream and no other."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from fl_core.errors import SpecError
from fl_core.models import INITIALISATIONS, FlatModel, build_network, initialise
from fl_core.streams import torch_stream


def initialised(model, shape, classes=10, scheme="glorot", seed=1):
    network = build_network(model, shape, classes)
    initialise(network, torch_stream(seed, "initial-model"), scheme)
    return network


def assert_uniform(tensor, bound):
    values = tensor.detach().flatten()
    assert float(values.abs().max()) <= bound
    if len(values) > 1000:
        assert float(values.abs().max()) > 0.98 * bound
        assert float(values.std()) == pytest.approx(bound / 3**0.5, rel=0.05)
        assert float(values.mean()) == pytest.approx(0, abs=5 * bound / (3 * len(values)) ** 0.5)


@pytest.mark.parametrize("scheme", INITIALISATIONS)
@pytest.mark.parametrize(
    ("model", "shape"),
    [("lenet5", (1, 28, 28)), ("resnet20", (3, 32, 32)), ("vgg11s", (3, 32, 32)), ("textcnn", (20,)),
     ("lstm", (1, 32, 32))],
)  # fmt: skip
def test_initial_values_depend_on_the_stream_alone_and_leave_none_out(model, shape, scheme):
    torch.manual_seed(1)
    first = FlatModel(initialised(model, shape, scheme=scheme)).snapshot()
    torch.manual_seed(2)
    network = build_network(model, shape, 10)
    with torch.no_grad():
        for tensor in network.state_dict().values():
            tensor.fill_(77)
    before = torch.get_rng_state()
    initialise(network, torch_stream(1, "initial-model"), scheme)
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(first, FlatModel(network).snapshot())
    assert not torch.equal(first, FlatModel(initialised(model, shape, scheme=scheme, seed=2)).snapshot())


@pytest.mark.parametrize("model", ["lenet5", "linear", "lstm"])
def test_glorot_draws_the_weights_in_order_of_their_names(model):
    """The published results started from these values."""
    network = initialised(model, (1, 28, 28))
    generator = torch_stream(1, "initial-model")
    for name, parameter in network.named_parameters():
        expected = torch.zeros_like(parameter)
        if "bias" not in name:
            nn.init.xavier_uniform_(expected, generator=generator)
        assert torch.equal(parameter, expected)


def test_pytorch_weights_and_biases_are_uniform_within_the_inverse_root_of_the_inputs():
    network = initialised("wkafl_cnn", (1, 28, 28), scheme="pytorch")
    for layer, inputs in ((network[0], 25), (network[3], 32 * 25), (network[7], 1024), (network[9], 512)):
        assert_uniform(layer.weight, inputs**-0.5)
        assert_uniform(layer.bias, inputs**-0.5)
        assert float(layer.bias.detach().std()) == pytest.approx((3 * inputs) ** -0.5, rel=0.5)
    for parameter in initialised("lstm", (1, 32, 32), scheme="pytorch").lstm.parameters():
        assert_uniform(parameter, 128**-0.5)
        assert float(parameter.detach().std()) > 0


@pytest.mark.parametrize("scheme", INITIALISATIONS)
def test_embeddings_are_standard_normal_and_that_of_the_padding_is_zero(scheme):
    weight = initialised("textcnn", (20,), scheme=scheme).embedding.weight.detach()
    assert float(weight[0].abs().sum()) == 0
    assert float(weight[1:].std()) == pytest.approx(1, rel=0.01)
    assert float(weight[1:].mean()) == pytest.approx(0, abs=0.01)
    assert float(weight.abs().max()) > 4


@pytest.mark.parametrize("scheme", INITIALISATIONS)
def test_batch_normalisation_starts_as_the_identity_with_fresh_statistics(scheme):
    network = build_network("resnet18(width=0.1)", (3, 32, 32), 10)
    network(torch.randn(4, 3, 32, 32) + 3)
    initialise(network, torch_stream(0, "initial-model"), scheme)
    layers = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    assert len(layers) == 20
    for layer in layers:
        assert set(layer.weight.tolist()) == set(layer.running_var.tolist()) == {1.0}
        assert set(layer.bias.tolist()) == set(layer.running_mean.tolist()) == {0.0}
        assert int(layer.num_batches_tracked) == 0


def test_vgg11s_has_the_official_codes_own_rule_for_its_convolutions():
    network = initialised("vgg11s", (3, 32, 32), scheme="pytorch")
    for layer in network:
        if isinstance(layer, nn.Conv2d):
            assert float(layer.weight.detach().std()) == pytest.approx(
                math.sqrt(2 / (9 * layer.out_channels)), rel=0.1
            )
            assert float(layer.bias.detach().abs().sum()) == 0
        elif isinstance(layer, nn.Linear):
            assert_uniform(layer.weight, layer.in_features**-0.5)
            assert float(layer.bias.detach().abs().sum()) > 0
    assert_uniform(initialised("vgg11s", (3, 32, 32))[3].weight, math.sqrt(6 / (9 * 32 + 9 * 64)))


def test_a_layer_without_a_rule_is_named_unless_it_has_its_own():
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.factor = nn.Parameter(torch.zeros(3))

    class Known(Scale):
        def reset(self, generator):
            nn.init.uniform_(self.factor, 5, 6, generator=generator)

    network = nn.Sequential(nn.Linear(3, 3), Scale())
    with pytest.raises(SpecError, match=r"'pytorch' has no rule for the parameters of Scale \(factor\); give it"):
        initialise(network, torch_stream(0, "initial-model"), "pytorch")
    initialise(network, torch_stream(0, "initial-model"))
    assert network[1].factor.tolist() == [1, 1, 1]
    network = nn.Sequential(nn.Linear(3, 3), Known())
    initialise(network, torch_stream(0, "initial-model"), "pytorch")
    factor = network[1].factor.detach()
    assert 5 <= float(factor.min()) < float(factor.max()) <= 6


def test_an_unknown_scheme_is_named_with_the_valid_ones():
    with pytest.raises(SpecError, match=r"unknown initialisation 'glorit'; did you mean 'glorot'\? \(valid: glorot"):
        initialise(nn.Linear(2, 2), torch.Generator(), "glorit")
