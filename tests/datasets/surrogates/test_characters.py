"""The surrogates of EMNIST and FEMNIST: the contract of a surrogate, and writers with hands of their own."""

import numpy as np
import pytest
import torch

from fl_core.datasets.surrogates import blocks, characters
from fl_core.datasets.surrogates.characters import SURROGATES
from fl_core.datasets.surrogates.glyphs import CHARACTERS, shapes
from fl_core.errors import SpecError

BY_NAME = {surrogate.of: surrogate for surrogate in SURROGATES}
OF_DIGITS = ["emnist-mnist", "emnist-digits"]
BY_WRITER = ["emnist-byclass", "femnist"]


@pytest.fixture(scope="module")
def some():
    """Return the first samples of each set."""
    return {name: surrogate.generate(3000, 1000) for name, surrogate in BY_NAME.items()}


@pytest.mark.parametrize("name", BY_NAME)
def test_samples_have_the_declared_form(some, name):
    surrogate = BY_NAME[name]
    for split, size in zip(some[name], (3000, 1000), strict=True):
        assert split.inputs.shape == (size, *surrogate.shape)
        assert split.inputs.dtype == torch.uint8
        assert split.labels.shape == (size,)
        assert split.labels.dtype == torch.int64
        assert split.labels.min() >= 0
        assert split.labels.max() < len(surrogate.classes)
        assert split.inputs.amax((1, 2, 3)).min() > 100  # something is written in each image


@pytest.mark.parametrize("name", BY_NAME)
def test_a_smaller_request_gives_the_first_samples(some, name):
    for whole, part in zip(some[name], BY_NAME[name].generate(601, 0), strict=True):
        n = len(part)
        assert torch.equal(part.inputs, whole.inputs[:n])
        assert torch.equal(part.labels, whole.labels[:n])
        assert part.owners is None or torch.equal(part.owners, whole.owners[:n])


def test_asking_for_more_than_there_is_says_how_many_there_are():
    with pytest.raises(SpecError, match="60001 samples; valid are 0 to 60000"):
        BY_NAME["emnist-mnist"].generate(60_001, 0)


@pytest.mark.parametrize("name", BY_NAME)
def test_the_blocks_add_up_to_the_declared_sizes(name, monkeypatch):
    monkeypatch.setattr(characters, "fill", lambda blocks, wanted: int(blocks.counts.sum()))
    assert BY_NAME[name].generate(None, None) == BY_NAME[name].sizes


@pytest.mark.parametrize("name", ["emnist-mnist", "femnist"])
def test_the_number_of_threads_changes_nothing(some, name, monkeypatch):
    monkeypatch.setattr(blocks, "WORKERS", 1)
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        again, _ = BY_NAME[name].generate(1000, 0)
        assert torch.get_num_threads() == threads + 1
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(again.inputs, some[name][0].inputs[:1000])


@pytest.mark.parametrize("name", BY_NAME)
def test_no_image_is_in_both_splits_or_twice(some, name):
    images = torch.cat([split.inputs for split in some[name]]).flatten(1)
    assert len(torch.unique(images, dim=0)) == len(images)


@pytest.mark.parametrize("name", OF_DIGITS)
def test_digits_are_balanced_and_have_no_owners(some, name):
    for split in some[name]:
        assert split.owners is None
        assert torch.bincount(split.labels).tolist() == [len(split) // 10] * 10


@pytest.mark.parametrize("name", BY_WRITER)
def test_owners_are_the_same_writers_in_both_splits(name):
    train, test = BY_NAME[name].generate(3000, 500)
    for split in (train, test):
        assert split.owners.dtype == torch.int64
        assert torch.equal(split.owners, split.owners.sort().values)
        assert torch.equal(split.owners.unique(), torch.arange(int(split.owners.max()) + 1))
    # The darkest writers of one split are the darkest of the other.
    common = range(int(min(train.owners.max(), test.owners.max())))
    ink = [[split.inputs[split.owners == writer].float().mean() for writer in common] for split in (train, test)]
    assert np.corrcoef(ink)[0, 1] > 0.7


@pytest.mark.parametrize("name", BY_WRITER)
def test_digits_are_about_half_of_what_is_written(some, name):
    train, _ = some[name]
    assert 0.40 < (train.labels < 10).float().mean() < 0.60
    assert len(train.labels.unique()) > 55


def test_paper_is_white_only_in_femnist(some):
    assert some["femnist"][0].inputs[:, :, 0, 0].float().mean() > 250
    assert some["emnist-byclass"][0].inputs[:, :, 0, 0].float().mean() < 5


def test_emnist_enlarges_each_character_and_femnist_keeps_its_size(some):
    def height(name, characters):
        split = some[name][0]
        ink = split.inputs if name != "femnist" else 255 - split.inputs
        chosen = torch.isin(split.labels, torch.tensor([CHARACTERS.index(c) for c in characters]))
        return (ink[chosen, 0].amax(2) > 60).sum(1).float().mean()

    assert height("emnist-byclass", "CSVZ") - height("emnist-byclass", "csvz") < 1
    assert height("femnist", "CSVZ") - height("femnist", "csvz") > 4


def test_a_probe_trained_on_some_digits_reads_others(some):
    assert _read(*_probe(*some["emnist-mnist"])) > 0.75


def test_one_can_tell_two_writers_apart_by_their_zeros_to_nines(some):
    train, _ = some["emnist-byclass"]
    digits = train.labels < 10
    right = []
    for a in range(0, 10, 2):
        images = [train.inputs[digits & (train.owners == writer)] for writer in (a, a + 1)]
        n = min(map(len, images))
        x = torch.cat([image[:n] for image in images]).flatten(1).float()
        y = torch.arange(2).repeat_interleave(n)
        right.append(_read(x[::2], y[::2], x[1::2], y[1::2]))
    assert np.mean(right) > 0.7


def test_what_is_learned_from_one_writer_fits_him_better_than_others():
    train, test = BY_NAME["emnist-byclass"].generate(2500, 500)
    own, foreign = [], []
    for writer in range(8):
        x, y = (part[(train.owners == writer) & (train.labels < 10)] for part in (train.inputs, train.labels))
        for scores, chosen in ((own, test.owners == writer), (foreign, test.owners != writer)):
            chosen = chosen & (test.labels < 10)
            x_test = test.inputs[chosen].flatten(1).float()
            scores.append(_read(x.flatten(1).float(), y, x_test, test.labels[chosen]))
    assert np.mean(own) > np.mean(foreign) + 0.1


def test_each_way_to_write_a_character_is_drawn_within_its_box():
    ways = shapes()
    assert len(ways.ways) == 62
    path = ways.curve @ ways.controls
    assert path.min() > -0.2
    assert path.max() < 1.6
    assert np.allclose(ways.curve.sum(2), 1, atol=1e-5)


def _probe(train, test):
    return train.inputs.flatten(1).float(), train.labels, test.inputs.flatten(1).float(), test.labels


def _read(x, y, x_test, y_test):
    """Return the accuracy of ridge regression on the labels."""
    mean = x.mean(0)
    x, x_test = (x - mean) / 128, (x_test - mean) / 128
    gram = x @ x.T + 10 * torch.eye(len(x))
    target = torch.nn.functional.one_hot(y, 62).float() - 1 / 62
    return ((x_test @ (x.T @ torch.linalg.solve(gram, target))).argmax(1) == y_test).float().mean().item()
