"""Surrogates of CIFAR-10, CIFAR-100 and Tiny-ImageNet."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fl_core.datasets.surrogates import blocks
from fl_core.datasets.surrogates.fields import FIGURE, Pose, bell, paint, reflect, soft_noise, uniform
from fl_core.datasets.surrogates.objects import RECIPES, SURROGATES, seen_classes, shuffled_labels
from fl_core.streams import stream

each_surrogate = pytest.mark.parametrize("surrogate", SURROGATES, ids=lambda surrogate: surrogate.name)


def test_the_three_stand_for_the_real_sets_shape_for_shape():
    assert [(s.name, s.shape, len(s.classes), s.sizes) for s in SURROGATES] == [
        ("cifar10-surrogate", (3, 32, 32), 10, (50_000, 10_000)),
        ("cifar100-surrogate", (3, 32, 32), 100, (50_000, 10_000)),
        ("tiny-imagenet-surrogate", (3, 64, 64), 200, (100_000, 10_000)),
    ]
    assert all(len(set(s.classes)) == len(s.classes) for s in SURROGATES)


@each_surrogate
def test_images_are_bytes_that_use_the_whole_range(surrogate):
    train, test = surrogate.generate(64, 10)
    assert train.inputs.shape == (64, *surrogate.shape)
    assert test.inputs.shape == (10, *surrogate.shape)
    assert train.inputs.dtype == torch.uint8
    assert train.labels.dtype == torch.int64
    assert train.labels.shape == (64,)
    assert train.owners is None
    pixels = train.inputs.float()
    assert pixels.min() == 0
    assert pixels.max() == 255
    assert 90 < pixels.mean() < 165
    assert 40 < pixels.std() < 90
    assert ((pixels == 0) | (pixels == 255)).float().mean() < 0.15  # not washed out


@each_surrogate
def test_the_same_request_gives_the_same_bytes(surrogate):
    for one, other in zip(surrogate.generate(30, 20), surrogate.generate(30, 20), strict=True):
        assert torch.equal(one.inputs, other.inputs)
        assert torch.equal(one.labels, other.labels)


CHECKSUMS = {
    "cifar10": (1, "24d8ed8e5228aa474d837c403cf9dd42"),
    "cifar100": (1, "1b86e482b71ab196c50bafb369e72a42"),
    "tiny-imagenet": (3, "b539639ccf2da44a2807ae11d1d48fe8"),
}


@each_surrogate
def test_a_version_has_these_bytes_on_every_machine(surrogate):
    digest = hashlib.sha256()
    for split in surrogate.generate(50, 50):
        digest.update(split.inputs.numpy().tobytes() + split.labels.numpy().tobytes())
    assert (surrogate.version, digest.hexdigest()[:32]) == CHECKSUMS[surrogate.of]


@settings(max_examples=8, deadline=None)
@given(train=st.integers(0, 120), test=st.integers(0, 120))
def test_a_smaller_request_gives_the_first_samples_of_a_larger_one(train, test):
    [cifar10, *_] = SURROGATES
    for few, many in zip(cifar10.generate(train, test), cifar10.generate(120, 120), strict=True):
        assert torch.equal(few.inputs, many.inputs[: len(few)])
        assert torch.equal(few.labels, many.labels[: len(few)])


@pytest.mark.parametrize("workers", [1, 4])
def test_bytes_do_not_depend_on_the_number_of_threads(workers, monkeypatch):
    [cifar10, *_] = SURROGATES
    expected, _ = cifar10.generate(200, 0)
    monkeypatch.setattr(blocks, "WORKERS", workers)
    before = torch.get_num_threads()
    torch.set_num_threads(workers)
    try:
        found, _ = cifar10.generate(200, 0)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found.inputs, expected.inputs)


def test_training_and_test_images_all_differ():
    [cifar10, *_] = SURROGATES
    train, test = cifar10.generate(500, 500)
    assert len(torch.cat([train.inputs, test.inputs]).flatten(1).unique(dim=0)) == 1000


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.of)
@pytest.mark.parametrize("part", ["train", "test"])
def test_every_class_has_equally_many_images_in_shuffled_order(recipe, part):
    labels = shuffled_labels(recipe, part)
    size = recipe.sizes[part == "test"]
    assert np.bincount(labels).tolist() == [size // recipe.classes] * recipe.classes
    assert abs(np.corrcoef(np.arange(size), labels)[0, 1]) < 0.05


def test_an_ambiguous_image_shows_any_class_of_its_labels_family():
    [*_, recipe] = RECIPES
    labels = shuffled_labels(recipe, "train")
    seen = seen_classes(recipe, labels, stream(0, "test"))
    assert recipe.classes // recipe.families == 5
    np.testing.assert_array_equal(seen // 5, labels // 5)
    assert abs((seen == labels).mean() - (1 - recipe.ambiguous + recipe.ambiguous / 5)) < 0.01
    shares = np.bincount(seen[labels == 7], minlength=200)[5:10] / 500
    assert shares.argmax() == 2
    assert np.abs(np.delete(shares, 2) - recipe.ambiguous / 5).max() < 0.06  # 500 images: four deviations


def test_two_hundred_images_per_class_teach_a_linear_model_more_than_chance():
    [cifar10, *_] = SURROGATES
    train, test = cifar10.generate(2000, 500)
    weights = torch.linalg.lstsq(coarse(train), torch.nn.functional.one_hot(train.labels).float()).solution
    assert ((coarse(test) @ weights).argmax(1) == test.labels).float().mean() > 0.2


def coarse(split):
    small = torch.nn.functional.avg_pool2d(split.inputs.float() / 128 - 1, 4).flatten(1)
    return torch.cat([small, torch.ones(len(split), 1)], dim=1)


@given(st.lists(st.floats(-1, 2, width=32), min_size=1))
def test_reflecting_keeps_numbers_in_the_unit_interval_and_those_already_there(numbers):
    given_numbers = np.array(numbers, np.float32)
    folded = reflect(given_numbers)
    inside = (given_numbers >= 0) & (given_numbers <= 1)
    assert folded.min() >= 0
    assert folded.max() <= 1
    np.testing.assert_allclose(folded[inside], given_numbers[inside], atol=1e-6)


def test_bell_numbers_have_mean_0_and_deviation_one_half():
    numbers = bell(stream(0, "test"), 100_000)
    assert abs(numbers.mean()) < 0.01
    assert abs(numbers.std() - 0.5) < 0.01


def test_soft_noise_is_smoother_than_independent_pixels():
    noise = soft_noise(stream(0, "test"), 50, 1, 32)
    neighbours = np.corrcoef(noise[..., :-1].ravel(), noise[..., 1:].ravel())[0, 1]
    assert noise.shape == (50, 1, 32, 32)
    assert 0.7 < neighbours < 0.99


def test_a_figure_moves_with_its_pose_and_leaves_the_rest_of_the_canvas_alone():
    figure = np.full((1, FIGURE), 0.5, np.float32)
    middles = []
    for x in (-0.25, 0.25):  # a quarter of the half width: 8 of 64 pixels
        one = np.ones(1, np.float32)
        canvas = np.full((1, 3, 64, 64), -1, np.float32)
        paint(canvas, Pose(x * one, 0 * one, 0.5 * one, 0 * one, one), figure, np.zeros((1, 64, 64), np.float32))
        columns = np.flatnonzero((canvas[0, 0] != -1).any(axis=0))
        middles.append(columns.mean())
        assert 8 < len(columns) < 32
    assert middles[1] - middles[0] == 16


def test_painting_one_image_does_not_depend_on_the_others_in_its_block():
    rng = stream(0, "test")
    n = 5
    figures, light = uniform(rng, n, FIGURE), np.zeros((n, 32, 32), np.float32)
    pose = Pose.random(rng, n, reach=0.3, scale=(0.8, 1.2), turn=0.5)
    together = np.zeros((n, 3, 32, 32), np.float32)
    paint(together, pose, figures, light)
    for i in range(n):
        alone = np.zeros((1, 3, 32, 32), np.float32)
        one = Pose(*(getattr(pose, name)[i : i + 1] for name in ("x", "y", "scale", "turn", "mirror")))
        paint(alone, one, figures[i : i + 1], light[:1])
        np.testing.assert_array_equal(alone[0], together[i])
