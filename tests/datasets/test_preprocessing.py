"""From stored pixels to what networks read, as the papers do it, and symmetric label noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from refusals import refuses

from fl_core.datasets import PRESETS, Dataset, Preprocessing, Split, load_dataset, preprocessing, with_label_noise
from fl_core.datasets.preprocessing import Augmentation
from fl_core.errors import SpecError
from fl_core.experiments.spec import RunSpec
from fl_core.streams import stream


def images(count=12, channels=3, side=32, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 256, (count, channels, side, side), np.uint8))


def dataset(channels=3, side=32):
    splits = [Split(images(n, channels, side, n), torch.arange(n) % 2) for n in (12, 5)]
    return Dataset("noise", "surrogate", ("a", "b"), *splits, mean=(0.5,) * channels, std=(0.25,) * channels)


def test_by_default_channels_are_standardised_with_the_numbers_of_the_data_set():
    train, test = Preprocessing().apply(dataset())
    for samples, split in ((train, dataset().train), (test, dataset().test)):
        torch.testing.assert_close(samples.inputs, (split.inputs.float() / 255 - 0.5) / 0.25)
    real, _ = Preprocessing().apply(load_dataset("fashion-mnist"))
    real = real.ready(most=math.inf)
    assert abs(float(real.inputs.mean())) < 1e-3
    assert abs(float(real.inputs.std()) - 1) < 1e-3


def test_wkafl_reads_raw_grey_levels():
    train, _ = Preprocessing(**PRESETS["wkafl"]).apply(dataset())
    assert torch.equal(train.inputs, dataset().train.inputs.float())


def test_fedasync_crops_rows_4_to_27_and_subtracts_the_mean_training_image():
    train, test = Preprocessing(**PRESETS["fedasync"]).apply(dataset())
    data = dataset()
    centre = data.train.inputs[:, :, 4:28, 4:28].double()
    torch.testing.assert_close(train.inputs, ((centre - centre.mean(0)) / 128).float(), atol=1e-6, rtol=0)
    other = (data.test.inputs[:, :, 4:28, 4:28].double() - centre.mean(0)) / 128
    torch.testing.assert_close(test.inputs, other.float(), atol=1e-6, rtol=0)


def test_fedluck_resizes_like_pillow_and_uses_its_printed_constants():
    data = dataset(1, 28)
    train, _ = Preprocessing(**PRESETS["fedluck-grey"]).apply(data)
    assert train.shape == (1, 32, 32)
    pillow = np.stack(
        [
            np.asarray(Image.fromarray(i[0].numpy()).resize((32, 32), Image.Resampling.BILINEAR))
            for i in data.train.inputs
        ]
    )
    pixels = train.inputs[:, 0] * 0.3081 * 255 + 0.1307 * 255
    assert float((pixels - torch.from_numpy(pillow.astype(np.float32))).abs().max()) <= 1.01


def test_the_paper_s_augmentation_touches_training_images_only(monkeypatch):
    train, test = Preprocessing(**PRESETS["fedluck-colour"]).apply(dataset())
    assert train.augmentation == Augmentation(4, True)
    assert test.augmentation is None


@pytest.mark.parametrize("fields", [{}, {"scale": "pixel_mean", "crop": 24}, {"scale": "unit"}, {"resize": 20}])
def test_large_sets_that_stay_bytes_give_the_same_mini_batches_bit_for_bit(monkeypatch, fields):
    ready, _ = Preprocessing(**fields).apply(dataset())
    monkeypatch.setattr(preprocessing, "READY_BYTES", 0)
    lazy, _ = Preprocessing(**fields).apply(dataset())
    assert (ready.inputs.dtype, lazy.inputs.dtype) == (torch.float32, torch.uint8)
    index = torch.tensor([3, 3, 11, 0])
    for one, other in ((ready.select(index), lazy.select(index)), (ready.slice(2, 9), lazy.slice(2, 9))):
        assert torch.equal(one[0], other[0])
        assert torch.equal(one[1], other[1])
        assert one[0].is_contiguous(memory_format=torch.channels_last)
        assert other[0].is_contiguous(memory_format=torch.channels_last)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 5), st.booleans(), st.integers(0, 2**32))
def test_augmentation_is_a_window_of_the_padded_image_perhaps_mirrored(shift, flip, seed):
    augment, originals = Augmentation(shift, flip), images(6, 2, 9)
    drawn = augment.draw(6, torch.Generator().manual_seed(seed))
    found = augment(originals, drawn)
    for image, (row, column, mirrored), result in zip(originals.numpy(), drawn.tolist(), found.numpy(), strict=True):
        padded = np.pad(image, ((0, 0), (shift, shift), (shift, shift)))
        window = padded[:, row : row + 9, column : column + 9]
        np.testing.assert_array_equal(result, window[:, :, ::-1] if mirrored else window)
        assert 0 <= row <= 2 * shift
        assert 0 <= column <= 2 * shift
        assert mirrored in ((0, 1) if flip else (0,))


def test_a_black_margin_is_black_before_it_is_scaled():
    train, _ = Preprocessing(shift=4).apply(dataset())
    corner = torch.tensor([[0, 0, 0]])
    batch, _ = train.select(torch.tensor([0]), corner)
    assert torch.equal(batch[0, :, :4], torch.full((3, 4, 32), -2.0))


def test_a_mini_batch_shares_no_memory_with_the_data():
    train, _ = Preprocessing().apply(dataset())
    batch, labels = train.select(torch.tensor([5, 5, 7]))
    assert torch.equal(batch[0], train.inputs[5])
    assert labels.tolist() == [1, 1, 1]
    batch.zero_()
    assert float(train.inputs[5].abs().sum()) > 0


def test_tokens_and_features_pass_as_they_are_and_take_no_image_preprocessing():
    for inputs in (torch.randint(0, 9, (6, 20), dtype=torch.int32), torch.randn(6, 1, 32, 32)):
        data = Dataset(
            "mine", "real", ("a", "b"), Split(inputs, torch.zeros(6).long()), Split(inputs, torch.zeros(6).long())
        )
        train, test = Preprocessing().apply(data)
        assert torch.equal(train.select(torch.arange(6))[0], inputs)
        assert torch.equal(test.slice(1, 3)[0], inputs[1:3])
        with pytest.raises(SpecError, match="data set 'mine' holds no images"):
            Preprocessing(crop=4).apply(data)


test_what_the_images_do_not_allow_is_refused_by_name = refuses(
    SpecError,
    ({"crop": 33}, r"preprocessing.crop = 33 is larger than the images of 'noise' \(32 x 32 pixels\)"),
    ({"mean": (0.5,), "std": (0.2,)}, r"preprocessing.mean has 1 numbers; the images of 'noise' have 3 channels"),
    by=lambda fields: Preprocessing(**fields).apply(dataset()),
)


@given(st.integers(0, 300), st.integers(2, 12), st.floats(0, 1), st.integers(0, 99))
def test_exactly_the_asked_share_is_wrong_and_the_original_stays(count, classes, share, seed):
    labels = np.arange(count) % classes
    before = labels.copy()
    noisy = with_label_noise(labels, classes, share, stream(seed, "label-noise"))
    assert (noisy != labels).sum() == round(share * count)
    assert ((noisy >= 0) & (noisy < classes)).all()
    np.testing.assert_array_equal(labels, before)


def test_every_other_class_is_as_likely():
    noisy = with_label_noise(np.zeros(9000, np.int64), 10, 1.0, stream(0, "label-noise"))
    counts = np.bincount(noisy, minlength=10)
    assert counts[0] == 0
    assert counts[1:].min() > 850


def test_in_a_run_only_training_labels_are_wrong_and_the_partition_is_as_without():
    clean, noisy = (RunSpec(algorithm="fedasync", label_noise=share).task() for share in (0.0, 0.2))
    assert int((clean.train.labels != noisy.train.labels).sum()) == 12_000
    assert bool((clean.test.labels == noisy.test.labels).all())
    assert all(bool((a == b).all()) for a, b in zip(clean.parts, noisy.parts, strict=True))
