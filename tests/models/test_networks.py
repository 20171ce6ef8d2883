"""Every network of the papers: exact sizes, what it reads, that it learns; dropout."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from small_networks import SHAPES

from fl_core import onednn
from fl_core.errors import SpecError
from fl_core.models import (
    MODELS,
    Dropout,
    FlatModel,
    Size,
    build_network,
    initialise,
    named_dropouts,
    network_size,
    num_parameters,
)

# model, shape, classes, trainable parameters, float buffers, integer buffers: the specifications' numbers
CELLS = [
    ("linear", (1, 28, 28), 10, 7_850, 0, 0),
    ("lenet5", (1, 28, 28), 10, 61_706, 0, 0),
    ("lenet5", (3, 32, 32), 10, 62_006, 0, 0),
    ("lenet5", (3, 32, 32), 100, 69_656, 0, 0),
    ("fedasmu_cnn", (3, 32, 32), 10, 297_066, 0, 0),
    ("fedasmu_cnn", (3, 32, 32), 100, 2_889_156, 0, 0),
    ("fedasmu_cnn", (1, 28, 28), 10, 224_874, 0, 0),
    ("resnet20", (3, 32, 32), 10, 269_722, 1_376, 19),
    ("resnet20", (3, 32, 32), 100, 275_572, 1_376, 19),
    ("resnet20", (3, 64, 64), 200, 282_072, 1_376, 19),
    ("alexnet", (3, 32, 32), 10, 23_272_266, 0, 0),
    ("alexnet", (3, 32, 32), 100, 23_640_996, 0, 0),
    ("vgg11", (3, 32, 32), 10, 9_225_610, 0, 0),
    ("vgg11", (3, 32, 32), 100, 9_271_780, 0, 0),
    ("textcnn", (200,), 2, 2_714_502, 0, 0),
    ("fedasync_cnn", (3, 24, 24), 10, 2_625_866, 768, 4),
    ("fedasync_cnn", (3, 32, 32), 10, 4_460_874, 768, 4),
    ("fedasync_cnn", (1, 28, 28), 10, 3_476_682, 768, 4),
    ("fedasync_cnn", (1, 24, 24), 10, 2_624_714, 768, 4),
    ("fedluck_cnn", (1, 32, 32), 10, 234_090, 0, 0),
    ("vgg11s", (3, 32, 32), 10, 865_482, 0, 0),
    ("vgg11s", (1, 32, 32), 10, 864_906, 0, 0),
    ("lstm", (1, 32, 32), 10, 216_330, 0, 0),
    ("wkafl_cnn", (1, 28, 28), 10, 582_026, 0, 0),
    ("wkafl_cnn", (1, 28, 28), 62, 608_702, 0, 0),
    ("celeba_cnn", (3, 84, 84), 2, 1_600_792, 0, 0),
    ("resnet18", (3, 32, 32), 10, 11_173_962, 9_600, 20),
]


def stream(seed=0):
    return torch.Generator().manual_seed(seed)


def batch(shape, count=8, classes=3):
    """Random inputs, images laid out as the tasks give them, and labels."""
    generator = stream(1)
    labels = torch.randint(0, classes, (count,), generator=generator)
    if len(shape) == 1:
        return torch.randint(0, 100, (count, *shape), generator=generator, dtype=torch.int32), labels
    images = torch.randn(count, *shape, generator=generator)
    return images.contiguous(memory_format=torch.channels_last), labels


@pytest.mark.parametrize(("model", "shape", "classes", "parameters", "statistics", "counters"), CELLS)
def test_a_network_has_exactly_the_numbers_of_its_specification(
    model, shape, classes, parameters, statistics, counters
):
    assert network_size(model, shape, classes) == Size(parameters, statistics)
    assert num_parameters(model, shape, classes) == parameters
    with torch.device("meta"):
        network = build_network(model, shape, classes)
    assert sum(p.numel() for p in network.parameters()) == parameters
    state = network.state_dict().values()
    assert sum(v.numel() for v in state if not v.is_floating_point()) == counters


def test_every_network_is_among_those_tested_here():
    assert {model for model, *_ in CELLS} == {text.partition("(")[0] for text in SHAPES} == set(MODELS)


@pytest.mark.parametrize(("model", "shape"), SHAPES.items())
def test_a_network_gives_a_number_for_each_class_and_its_flat_vector_is_all_of_it(model, shape):
    inputs, labels = batch(shape)
    first, second = FlatModel(build_network(model, shape, 7)), FlatModel(build_network(model, shape, 7))
    F.cross_entropy(first.network(inputs), labels).backward()  # moves the statistics, too
    assert bool(first.gradient.isfinite().all())
    second.load(first.snapshot())
    first.network.eval()
    second.network.eval()
    logits = first.network(inputs)
    assert logits.shape == (len(inputs), 7)
    assert logits.std(0).max() > 0
    assert torch.equal(logits, second.network(inputs))


def test_width_scales_the_hidden_layers_and_neither_input_nor_classes():
    half = build_network("fedasync_cnn(width=0.125)", (3, 24, 24), 10)
    sizes = [tuple(p.shape[:2]) for name, p in half.named_parameters() if p.dim() > 1]
    assert sizes == [(8, 3), (8, 8), (16, 8), (16, 16), (64, 576), (10, 64)]
    assert [d.shape for d in named_dropouts(half).values()] == [(8, 12, 12), (16, 6, 6), (64,)]
    least = build_network("resnet20(width=0.001)", (3, 32, 32), 10)
    assert {p.shape[0] for p in least.parameters()} == {1, 10}


def test_the_padding_of_a_sentence_changes_nothing_in_the_embedding():
    network = build_network("textcnn(vocabulary=50)", (8,), 2)
    initialise(network, stream())
    F.cross_entropy(network(torch.tensor([[3, 4, 5, 6, 0, 0, 0, 0]])), torch.tensor([1])).backward()
    weight = network.embedding.weight
    assert float(weight[0].detach().abs().sum()) == float(weight.grad[0].abs().sum()) == 0
    assert float(weight.grad[3].abs().sum()) > 0


def test_the_lstm_reads_an_image_row_by_row():
    network = build_network("lstm", (1, 32, 32), 10)
    images = torch.randn(2, 1, 32, 32, generator=stream())
    states, _ = network.lstm(images[:, 0])
    assert torch.equal(network(images), network.fc(states[:, 31]))
    first_row_only = images.clone()
    first_row_only[:, :, 1:] = 0
    _, (hidden, cell) = network.lstm(images[:, 0, :1])
    rest, _ = network.lstm(torch.zeros(2, 31, 32), (hidden, cell))
    torch.testing.assert_close(network(first_row_only), network.fc(rest[:, -1]))


@pytest.mark.parametrize(
    ("model", "shape", "message"),
    [
        ("lenet5", (200,), r"lenet5 reads images of shape \(channels, height, width\), at least 12 x 12 pixels, not "
         r"tokens or features of shape \(200,\)"),
        ("lenet5", (1, 11, 28), r"at least 12 x 12 pixels, not images of shape \(1, 11, 28\)"),
        ("resnet18", (2, 3), r"resnet18 reads images of shape .*, not inputs of shape \(2, 3\)"),
        ("vgg11", (1, 28, 28), r"vgg11 reads .* at least 32 x 32 pixels, not images of shape \(1, 28, 28\)"),
        ("lstm", (3, 32, 32), r"lstm reads images of shape \(1, height, width\), not images of shape \(3, 32, 32\)"),
        ("textcnn", (1, 28, 28), r"textcnn reads token sequences of shape \(length,\), at least 5 long, not images"),
        ("textcnn", (4,), r"at least 5 long, not tokens or features of shape \(4,\)"),
    ],
)  # fmt: skip
def test_inputs_that_a_network_cannot_read_are_refused_with_what_it_can(model, shape, message):
    with pytest.raises(SpecError, match=message):
        build_network(model, shape, 10)


SMALLEST = {"alexnet": 15, "celeba_cnn": 5, "fedasmu_cnn": 3, "fedasync_cnn": 4, "fedluck_cnn": 16, "lenet5": 12}
SMALLEST |= {"linear": 1, "lstm": 1, "resnet18": 1, "resnet20": 1, "vgg11": 32, "vgg11s": 32, "wkafl_cnn": 16}


@pytest.mark.parametrize(("model", "size"), SMALLEST.items())
def test_the_smallest_image_is_read_and_odd_sizes_too(model, size):
    width = "" if model in ("lenet5", "linear") else "(width=0.0625)"
    for height, columns in ((size, size), (size + 3, size), (size + 17, size + 22)):
        network = build_network(model + width, (1, height, columns), 3).eval()
        assert network(torch.zeros(2, 1, height, columns)).shape == (2, 3)
    if size > 1:
        with pytest.raises(SpecError, match=f"{model} reads .* at least {size} x {size} pixels"):
            build_network(model + width, (1, size + 9, size - 1), 3)


# Dropout drops what its mask says, and nothing else decides


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


@pytest.mark.parametrize("channels", [1, 4, 6])
def test_the_gradients_of_a_strided_shortcut_of_few_channels_are_right(channels):
    """They are not, and memory is overwritten, where oneDNN's kernel for AVX2 has a stride."""
    generator = stream(3)
    image = torch.randn(8, channels, 32, 32, generator=generator).contiguous(memory_format=torch.channels_last)
    weight = torch.randn(2 * channels, channels, 1, 1, generator=generator)
    back = torch.randn(8, 2 * channels, 16, 16, generator=generator)
    found = []
    for convolve, kind in ((onednn.conv2d, torch.float32), (F.conv2d, torch.float64)):
        given = [each.to(kind, copy=True).requires_grad_() for each in (image, weight)]
        convolve(*given, stride=2).backward(back.to(kind))
        found.append([each.grad.double() for each in given])
    for ours, exact in zip(*found, strict=True):
        torch.testing.assert_close(ours, exact, rtol=1e-4, atol=1e-4)
