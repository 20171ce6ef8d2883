"""The surrogate of LEAF's CelebA: the contract of a surrogate, and celebrities with faces of their own."""

import numpy as np
import pytest
import torch

from fl_core.datasets.surrogates import blocks
from fl_core.datasets.surrogates.faces import CELEBRITIES, SMILING, SURROGATES, celebrity

(CELEBA,) = SURROGATES


@pytest.fixture(scope="module")
def some():
    """Return the first samples."""
    return CELEBA.generate(1000, 150)


def test_samples_have_the_declared_form(some):
    for split, size in zip(some, (1000, 150), strict=True):
        assert split.inputs.shape == (size, 3, 84, 84)
        assert split.inputs.dtype == torch.uint8
        assert split.labels.dtype == split.owners.dtype == torch.int64
        assert set(split.labels.tolist()) == {0, 1}


def test_a_smaller_request_gives_the_first_samples(some):
    for whole, part in zip(some, CELEBA.generate(101, 33), strict=True):
        n = len(part)
        assert torch.equal(part.inputs, whole.inputs[:n])
        assert torch.equal(part.labels, whole.labels[:n])
        assert torch.equal(part.owners, whole.owners[:n])


def test_the_number_of_threads_changes_nothing(some, monkeypatch):
    monkeypatch.setattr(blocks, "WORKERS", 1)
    again, _ = CELEBA.generate(200, 0)
    assert torch.equal(again.inputs, some[0].inputs[:200])


def test_no_image_is_in_both_splits_or_twice(some):
    images = torch.cat([split.inputs for split in some]).flatten(1)
    assert len(torch.unique(images, dim=0)) == len(images)


def test_each_celebrity_has_as_many_images_as_in_leaf(some):
    counts = torch.bincount(some[0].owners)[:-1]  # the last one may be cut
    assert counts.min() >= 4
    assert counts.max() <= 36
    assert 15 < counts.float().mean() < 23


def test_celebrities_smile_about_equally_often_in_all():
    smiling = [celebrity(number).smiling for number in range(0, CELEBRITIES, 4)]
    assert np.mean(smiling) == pytest.approx(SMILING, abs=0.03)
    assert np.std(smiling) > 0.1


def test_the_images_of_a_celebrity_resemble_each_other(some):
    train, test = some
    # The middle of the cheek, forehead and hair: compare each test image with the mean of every celebrity.
    looks = torch.nn.functional.avg_pool2d(train.inputs.float(), 6)[:, :, 2:11, 3:11].flatten(1)
    means = torch.stack([looks[train.owners == owner].mean(0) for owner in range(40)])
    known = test.owners < 40
    probe = torch.nn.functional.avg_pool2d(test.inputs[known].float(), 6)[:, :, 2:11, 3:11].flatten(1)
    nearest = torch.cdist(probe, means).argmin(1)
    assert (nearest == test.owners[known]).float().mean() > 5 / 40


def test_a_probe_of_the_mouth_tells_smiles_from_other_faces(some):
    def mouth(split):
        grey = split.inputs.float().mean(1)[:, 50:70, 24:60]
        grey = torch.nn.functional.avg_pool2d(grey[:, None], 2).flatten(1)
        return (grey - grey.mean(1, keepdim=True)) / grey.std(1, keepdim=True)

    (x, y), (x_test, y_test) = [(mouth(split), 2.0 * split.labels - 1) for split in some]
    solution = torch.linalg.solve(x.T @ x + 100 * torch.eye(x.shape[1]), x.T @ y)
    assert ((x_test @ solution > 0) == (y_test > 0)).float().mean() > 0.65
