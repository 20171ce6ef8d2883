"""The stand-in for Speech Commands: its clips, their features, and that the same request always gives the same."""

import pytest
import torch

from fl_core.datasets import speech_commands
from fl_core.datasets.mfcc import mfcc
from fl_core.datasets.surrogates.speech import SPEAKERS, SURROGATES, WORDS, generate, waves
from fl_core.errors import SpecError


@pytest.fixture(scope="module")
def clips():
    return generate(1000, 300)


def test_the_surrogate_has_fedlucks_words_and_sizes():
    [surrogate] = SURROGATES
    assert (surrogate.name, surrogate.sizes) == ("speech-commands-surrogate", (30_000, 3_000))
    assert surrogate.shape == (1, 32, 32)
    assert surrogate.classes == speech_commands.WORDS


def test_inputs_are_finite_features_of_whole_16_bit_amplitudes(clips):
    sound = waves(0, 0, 60)
    assert sound.shape == (60, 16_000)
    assert torch.equal(sound, sound.round())
    assert sound.abs().max() <= 32_768
    assert (sound.abs().amax(1) > 50).all()
    assert clips[0].inputs.dtype == torch.float32
    assert clips[0].inputs.isfinite().all()
    expected = mfcc(sound).flatten(1)[:, :1024].reshape(60, 1, 32, 32)
    assert torch.allclose(clips[0].inputs[:60], expected, atol=1e-3)


def test_every_ten_clips_hold_every_word_once(clips):
    for split in clips:
        assert (split.labels.view(-1, 10).sort(1).values == torch.arange(10)).all()


def test_owners_are_speakers_and_test_speakers_are_new(clips):
    train, test = (split.owners for split in clips)
    assert 0 <= train.min() <= train.max() < SPEAKERS[0] <= test.min() <= test.max() < sum(SPEAKERS)
    assert len(train.unique()) < len(train)


@pytest.mark.parametrize(("train", "test"), [(0, 0), (3, 51)])
def test_a_smaller_request_gives_the_first_clips(clips, train, test):
    for part, whole, count in zip(generate(train, test), clips, (train, test), strict=True):
        assert torch.equal(part.inputs, whole.inputs[:count])
        assert torch.equal(part.labels, whole.labels[:count])
        assert torch.equal(part.owners, whole.owners[:count])


def test_clips_do_not_depend_on_where_a_request_starts():
    assert torch.equal(waves(1, 45, 10), waves(1, 0, 60)[45:55])
    assert waves(1, 45, 0).shape == (0, 16_000)


@pytest.mark.parametrize("threads", [1, 3, 4])
def test_threads_change_no_byte(clips, threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        inputs = generate(120, 0)[0].inputs
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert torch.equal(inputs, clips[0].inputs[:120])


def test_an_s_hisses_and_an_o_does_not(clips):
    spectra = torch.fft.rfft(waves(0, 0, 400)).abs().square()
    hiss = (spectra[:, 4_500:].sum(1) / spectra.sum(1)).log()
    labels = clips[0].labels[:400]

    def mean(word):
        return hiss[labels == list(WORDS).index(word)].mean()

    assert min(mean("yes"), mean("seven")) > max(mean("no"), mean("one")) + 0.5


def test_a_linear_probe_learns_words_far_above_chance(clips):
    inputs = [split.inputs.flatten(1).double() for split in clips]
    mean, std = inputs[0].mean(0), inputs[0].std(0)
    train, test = ((part - mean) / std for part in inputs)
    targets = torch.eye(10, dtype=torch.float64)[clips[0].labels]
    weights = torch.linalg.solve(train.T @ train + 3_000 * torch.eye(1024, dtype=torch.float64), train.T @ targets)
    chance, deviation = 0.1, (0.1 * 0.9 / len(test)) ** 0.5
    assert ((test @ weights).argmax(1) == clips[1].labels).double().mean() > chance + 5 * deviation


@pytest.mark.parametrize("wanted", [-1, 30_001])
def test_more_clips_than_there_are_are_refused(wanted):
    with pytest.raises(SpecError, match=f"cannot generate {wanted} clips"):
        generate(wanted, 0)
