"""Surrogates: what all of them promise, and what each imitates of the data set that it stands for."""

from __future__ import annotations

import hashlib
from functools import cache

import numpy as np
import pytest
import torch

from fl_core.datasets import Splits, all_surrogates
from fl_core.datasets.speech_commands import mfcc
from fl_core.datasets.surrogates import blocks
from fl_core.datasets.surrogates.characters import CHARACTERS, shapes
from fl_core.datasets.surrogates.objects import RECIPES, seen_classes, shuffled_labels
from fl_core.datasets.surrogates.speech import SPEAKERS, WORDS, waves
from fl_core.datasets.surrogates.text import INTENSIFIERS, LENGTH, MEDIAN_LENGTH, NEGATIONS, OPINIONS, words
from fl_core.errors import SpecError
from fl_core.streams import stream

BY_NAME = {surrogate.of: surrogate for surrogate in all_surrogates().values()}
OF_DIGITS, BY_WRITER = ["emnist-mnist", "emnist-digits"], ["emnist-byclass", "femnist"]
OF_OBJECTS = ["cifar10", "cifar100", "tiny-imagenet"]
OWNED = [*BY_WRITER, "celeba", "speech-commands"]
TRIED = dict.fromkeys([*OF_DIGITS, *BY_WRITER], (3000, 1000)) | {
    "cifar10": (2000, 500),
    "cifar100": (100, 60),
    "tiny-imagenet": (100, 60),
    "celeba": (1000, 150),
    "speech-commands": (1000, 300),
    "imdb": (3000, 500),
}
DTYPES = {"speech-commands": torch.float32, "imdb": torch.int32}
each = pytest.mark.parametrize("name", BY_NAME)


@cache
def some(name: str) -> Splits:
    """Return the first samples of a surrogate."""
    return BY_NAME[name].generate(*TRIED[name])


# What all of them promise


@pytest.mark.parametrize(
    ("name", "sizes", "shape", "classes"),
    [
        ("emnist-mnist", (60_000, 10_000), (1, 28, 28), 10),
        ("emnist-digits", (240_000, 40_000), (1, 28, 28), 10),
        ("emnist-byclass", (697_932, 116_323), (1, 28, 28), 62),
        ("femnist", (724_737, 80_526), (1, 28, 28), 62),
        ("celeba", (37_987, 4_887), (3, 84, 84), 2),
        ("cifar10", (50_000, 10_000), (3, 32, 32), 10),
        ("cifar100", (50_000, 10_000), (3, 32, 32), 100),
        ("tiny-imagenet", (100_000, 10_000), (3, 64, 64), 200),
        ("speech-commands", (30_000, 3_000), (1, 32, 32), 10),
        ("imdb", (25_000, 25_000), (256,), 2),
    ],
)
def test_samples_have_the_form_of_the_real_set(name, sizes, shape, classes):
    surrogate = BY_NAME[name]
    assert (surrogate.name, surrogate.sizes, surrogate.shape) == (f"{name}-surrogate", sizes, shape)
    assert len(surrogate.classes) == len(set(surrogate.classes)) == classes
    for split, size in zip(some(name), TRIED[name], strict=True):
        assert split.inputs.shape == (size, *shape)
        assert split.inputs.dtype == DTYPES.get(name, torch.uint8)
        assert split.labels.shape == (size,)
        assert split.labels.dtype == torch.int64
        assert 0 <= split.labels.min() <= split.labels.max() < classes
        assert (split.owners is not None) == (name in OWNED)
        assert split.owners is None or (split.owners.dtype, split.owners.shape) == (torch.int64, (size,))


@each
@pytest.mark.parametrize("part", ["train", "test"])
def test_there_are_as_many_samples_as_declared_and_no_more_can_be_asked_for(name, part):
    size = BY_NAME[name].sizes[part == "test"]
    for wanted in (-1, size + 1):
        with pytest.raises(SpecError, match=f"cannot generate {wanted} samples; valid are 0 to {size}"):
            BY_NAME[name].split(part, wanted)


@each
@pytest.mark.parametrize("counts", [(0, 3), (54, 51)])
def test_a_smaller_request_gives_the_first_samples(name, counts):
    for part, whole, count in zip(BY_NAME[name].generate(*counts), some(name), counts, strict=True):
        assert len(part) == count
        for found, expected in zip(vars(part).values(), vars(whole.take(torch.arange(count))).values(), strict=True):
            assert (found is None and expected is None) or torch.equal(found, expected)


@each
@pytest.mark.parametrize("threads", [1, 4])
def test_threads_change_no_byte(name, threads, monkeypatch):
    monkeypatch.setattr(blocks, "WORKERS", threads)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        inputs = BY_NAME[name].split("train", 100).inputs
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert torch.equal(inputs, some(name)[0].inputs[:100])


@each
def test_no_sample_is_in_both_splits_or_twice(name):
    inputs = torch.cat([split.inputs for split in some(name)]).flatten(1)
    assert len(torch.unique(inputs, dim=0)) == len(inputs)


# Characters


@pytest.mark.parametrize("name", OF_DIGITS)
def test_digits_are_balanced(name):
    for split in some(name):
        assert torch.bincount(split.labels).tolist() == [len(split) // 10] * 10


@pytest.mark.parametrize("name", BY_WRITER)
def test_owners_are_the_same_writers_in_both_splits(name):
    train, test = BY_NAME[name].generate(3000, 500)
    for split in (train, test):
        assert torch.equal(split.owners, split.owners.sort().values)
        assert torch.equal(split.owners.unique(), torch.arange(int(split.owners.max()) + 1))
    # The darkest writers of one split are the darkest of the other.
    common = range(int(min(train.owners.max(), test.owners.max())))
    ink = [[split.inputs[split.owners == writer].float().mean() for writer in common] for split in (train, test)]
    assert np.corrcoef(ink)[0, 1] > 0.7


@pytest.mark.parametrize("name", BY_WRITER)
def test_digits_are_about_half_of_what_is_written(name):
    train, _ = some(name)
    assert 0.40 < (train.labels < 10).float().mean() < 0.60
    assert len(train.labels.unique()) > 55


def test_paper_is_white_only_in_femnist():
    assert some("femnist")[0].inputs[:, :, 0, 0].float().mean() > 250
    assert some("emnist-byclass")[0].inputs[:, :, 0, 0].float().mean() < 5


def test_emnist_enlarges_each_character_and_femnist_keeps_its_size():
    def height(name, characters):
        split = some(name)[0]
        ink = split.inputs if name != "femnist" else 255 - split.inputs
        chosen = torch.isin(split.labels, torch.tensor([CHARACTERS.index(c) for c in characters]))
        return (ink[chosen, 0].amax(2) > 60).sum(1).float().mean()

    assert height("emnist-byclass", "CSVZ") - height("emnist-byclass", "csvz") < 1
    assert height("femnist", "CSVZ") - height("femnist", "csvz") > 4


def test_a_probe_trained_on_some_digits_reads_others():
    assert _read(*_probe(*some("emnist-mnist"))) > 0.75


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


@pytest.mark.parametrize("name", [*OF_DIGITS, *BY_WRITER])
def test_something_is_written_in_each_image(name):
    assert all(split.inputs.amax((1, 2, 3)).min() > 100 for split in some(name))


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


# Owners


def test_each_celebrity_has_as_many_images_as_in_leaf():
    counts = torch.bincount(some("celeba")[0].owners)[:-1]  # the last one may be cut
    assert counts.min() >= 4
    assert counts.max() <= 36
    assert 15 < counts.float().mean() < 23


def test_the_images_of_an_owner_resemble_each_other():
    train, test = some("celeba")
    looks, probe = (torch.nn.functional.avg_pool2d(split.inputs.float(), 12).flatten(1) for split in (train, test))
    means = torch.stack([looks[train.owners == owner].mean(0) for owner in range(40)])
    known = test.owners < 40
    nearest = torch.cdist(probe[known], means).argmin(1)
    assert (nearest == test.owners[known]).float().mean() > 4 / 40


# Objects


CHECKSUMS = {
    "cifar10": (1, "24d8ed8e5228aa474d837c403cf9dd42"),
    "cifar100": (1, "1b86e482b71ab196c50bafb369e72a42"),
    "tiny-imagenet": (3, "b539639ccf2da44a2807ae11d1d48fe8"),
}


@pytest.mark.parametrize("name", OF_OBJECTS)
def test_a_version_has_these_bytes_on_every_machine(name):
    digest = hashlib.sha256()
    for split in BY_NAME[name].generate(50, 50):
        digest.update(split.inputs.numpy().tobytes() + split.labels.numpy().tobytes())
    assert (BY_NAME[name].version, digest.hexdigest()[:32]) == CHECKSUMS[name]


@pytest.mark.parametrize("recipe", [each for each in RECIPES if not each.owners], ids=lambda recipe: recipe.of)
@pytest.mark.parametrize("part", ["train", "test"])
def test_every_class_has_equally_many_images_in_shuffled_order(recipe, part):
    labels = shuffled_labels(recipe, part)
    size = recipe.sizes[part == "test"]
    assert np.bincount(labels).tolist() == [size // recipe.classes] * recipe.classes
    assert abs(np.corrcoef(np.arange(size), labels)[0, 1]) < 0.05


def test_an_ambiguous_image_shows_any_class_of_its_labels_family():
    [recipe] = [each for each in RECIPES if each.ambiguous]
    labels = shuffled_labels(recipe, "train")
    seen = seen_classes(recipe, labels, stream(0, "test"))
    assert recipe.classes // recipe.families == 5
    np.testing.assert_array_equal(seen // 5, labels // 5)
    assert abs((seen == labels).mean() - (1 - recipe.ambiguous + recipe.ambiguous / 5)) < 0.01
    shares = np.bincount(seen[labels == 7], minlength=200)[5:10] / 500
    assert shares.argmax() == 2
    assert np.abs(np.delete(shares, 2) - recipe.ambiguous / 5).max() < 0.06  # 500 images: four deviations


# Speech


def test_inputs_are_finite_features_of_whole_16_bit_amplitudes():
    sound = waves(0, 0, 60)
    assert sound.shape == (60, 16_000)
    assert torch.equal(sound, sound.round())
    assert sound.abs().max() <= 32_768
    assert (sound.abs().amax(1) > 50).all()
    assert some("speech-commands")[0].inputs.isfinite().all()
    expected = mfcc(sound).flatten(1)[:, :1024].reshape(60, 1, 32, 32)
    assert torch.allclose(some("speech-commands")[0].inputs[:60], expected, atol=1e-3)


def test_every_ten_clips_hold_every_word_once():
    for split in some("speech-commands"):
        assert (split.labels.view(-1, 10).sort(1).values == torch.arange(10)).all()


def test_owners_are_speakers_and_test_speakers_are_new():
    train, test = (split.owners for split in some("speech-commands"))
    assert 0 <= train.min() <= train.max() < SPEAKERS[0] <= test.min() <= test.max() < sum(SPEAKERS)
    assert len(train.unique()) < len(train)


def test_clips_do_not_depend_on_where_a_request_starts():
    assert torch.equal(waves(1, 45, 10), waves(1, 0, 60)[45:55])
    assert waves(1, 45, 0).shape == (0, 16_000)


def test_an_s_hisses_and_an_o_does_not():
    spectra = torch.fft.rfft(waves(0, 0, 400)).abs().square()
    hiss = (spectra[:, 4_500:].sum(1) / spectra.sum(1)).log()
    labels = some("speech-commands")[0].labels[:400]

    def mean(word):
        return hiss[labels == list(WORDS).index(word)].mean()

    assert min(mean("yes"), mean("seven")) > max(mean("no"), mean("one")) + 0.5


def test_a_linear_probe_learns_words_far_above_chance():
    inputs = [split.inputs.flatten(1).double() for split in some("speech-commands")]
    mean, std = inputs[0].mean(0), inputs[0].std(0)
    train, test = ((part - mean) / std for part in inputs)
    targets = torch.eye(10, dtype=torch.float64)[some("speech-commands")[0].labels]
    weights = torch.linalg.solve(train.T @ train + 3_000 * torch.eye(1024, dtype=torch.float64), train.T @ targets)
    chance, deviation = 0.1, (0.1 * 0.9 / len(test)) ** 0.5
    assert ((test @ weights).argmax(1) == some("speech-commands")[1].labels).double().mean() > chance + 5 * deviation


# Text


def _among(tokens, role):
    return (tokens >= role.start) & (tokens < role.stop)


def _opinions(split):
    """Return, of each opinion: its review, 1 for praise and -1 for blame as spelled, whether negated, intensified."""
    tokens = torch.cat([torch.zeros(len(split), 2, dtype=torch.int32), split.inputs], 1)
    opinion = _among(tokens, OPINIONS)
    before, earlier = tokens.roll(1, 1), tokens.roll(2, 1)
    negated = (_among(before, NEGATIONS) | _among(earlier, NEGATIONS))[opinion]
    spelled = 1 - 2 * (tokens[opinion] % 2)
    return opinion.nonzero()[:, 0], spelled, negated, _among(before, INTENSIFIERS)[opinion]


def test_reviews_are_token_ids_padded_at_the_end():
    for split in some("imdb"):
        assert split.inputs.min() == 0
        assert split.inputs.max() < 20_000
        padding = split.inputs == 0
        assert not (padding[:, :-1] & ~padding[:, 1:]).any()


def test_half_of_the_reviews_are_positive():
    assert some("imdb")[0].labels.float().mean() == 0.5
    assert set(some("imdb")[0].labels.tolist()) == {0, 1}


def test_lengths_spread_as_in_imdb():
    lengths = (some("imdb")[0].inputs != 0).sum(1)
    assert abs(lengths.median() - MEDIAN_LENGTH) < 12
    assert 0.2 < (lengths == LENGTH).float().mean() < 0.4
    assert (lengths < 80).float().mean() > 0.1


def test_words_are_zipf_distributed():
    counts = torch.bincount(some("imdb")[0].inputs.flatten(), minlength=20_000)[OPINIONS.stop :].double()
    assert counts[0] > 5 * counts[40:50].mean() > 25 * counts[1000:1100].mean() > 0


def test_a_negation_turns_an_opinion_round():
    review, spelled, negated, _ = _opinions(some("imdb")[0])
    agrees = spelled == 2 * some("imdb")[0].labels[review] - 1
    assert agrees[~negated].float().mean() > 0.65
    assert agrees[negated].float().mean() < 0.35


def test_an_intensifier_makes_an_opinion_more_reliable():
    review, spelled, negated, intensified = _opinions(some("imdb")[0])
    agrees = (spelled * (1 - 2 * negated.int()) == 2 * some("imdb")[0].labels[review] - 1).float()
    assert agrees[intensified].mean() > agrees[~intensified].mean() + 0.03


def test_counting_words_is_good_and_reading_negations_is_better():
    review, spelled, negated, _ = _opinions(some("imdb")[0])
    labels = 2 * some("imdb")[0].labels - 1

    def accuracy(polarity):
        score = torch.zeros(len(labels)).index_add(0, review, polarity.float())
        return ((score.sign() == labels) + 0.5 * (score == 0)).mean()

    counting, reading = accuracy(spelled), accuracy(spelled * (1 - 2 * negated.int()))
    assert counting > 0.75
    assert reading > counting + 0.05


def test_tokens_have_readable_names():
    tokens = torch.tensor([1, NEGATIONS[0], INTENSIFIERS[1], OPINIONS[0], OPINIONS[3], OPINIONS.stop, 0, 0])
    assert words(tokens) == ["?", "not0", "very1", "good0", "bad1", "w0"]
