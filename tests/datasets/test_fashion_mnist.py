"""The embedded data: complete, checked, and never used when damaged."""

from __future__ import annotations

import gzip
import hashlib
import shutil
import struct

import numpy as np
import pytest
import torch

from fl_core.cli.data import obtain
from fl_core.datasets import data_folder, load_dataset, mnist
from fl_core.errors import DataError

FOLDER = data_folder() / "fashion-mnist"


def test_all_seventy_thousand_images_are_there():
    data = load_dataset("fashion-mnist")
    assert (len(data.train), len(data.test), data.shape, data.kind) == (60_000, 10_000, (1, 28, 28), "real")
    assert len(data.classes) == 10
    assert torch.bincount(data.train.labels).tolist() == [6000] * 10
    assert torch.bincount(data.test.labels).tolist() == [1000] * 10
    assert data.train.inputs.dtype == torch.uint8
    assert (data.mean, data.std) == ((0.2860,), (0.3530,))


def test_files_are_byte_for_byte_those_that_torchvision_expects():
    """torchvision pins the MD5 sums of the authors' files."""
    from plain_torchvision import import_torchvision

    resources = dict(import_torchvision().datasets.FashionMNIST.resources)
    assert sorted(resources) == sorted(archive.file for archive in mnist.CLOTHES)
    for name, md5 in resources.items():
        content = (FOLDER / name).read_bytes()
        assert hashlib.md5(content).hexdigest() == md5
        assert len(content) == next(archive.bytes for archive in mnist.CLOTHES if archive.file == name)


@pytest.mark.parametrize("how", ["truncated", "flipped", "missing", "foreign"])
def test_a_damaged_file_gives_one_clear_error_and_nothing_of_it_is_used(tmp_path, how, monkeypatch):
    folder = tmp_path / "fashion-mnist"
    shutil.copytree(FOLDER, folder)
    victim = folder / "t10k-labels-idx1-ubyte.gz"
    content = bytearray(victim.read_bytes())
    if how == "truncated":
        victim.write_bytes(content[:-100])
    elif how == "flipped":
        content[2000] ^= 1
        victim.write_bytes(content)
    elif how == "foreign":
        victim.write_bytes(gzip.compress(b"<html>not found</html>"))
    else:
        victim.unlink()
    monkeypatch.setenv("FL_CORE_DATA", str(tmp_path))
    with pytest.raises(
        DataError, match=r"t10k-labels-idx1-ubyte.gz is (damaged \(|missing).*restore it with 'git checkout"
    ) as caught:
        load_dataset("fashion-mnist")
    assert "\n" not in str(caught.value)
    with pytest.raises(DataError, match="part of this repository; 'git checkout -- data/fashion-mnist' restores it"):
        obtain(["fashion-mnist"], again=how != "missing")


def test_idx_arrays_of_any_rank_are_read_and_anything_else_is_refused():
    body = np.arange(24, dtype=np.uint8)
    good = b"\0\0\x08\x03" + struct.pack(">III", 2, 3, 4) + body.tobytes()
    np.testing.assert_array_equal(mnist.read_idx(good), body.reshape(2, 3, 4))
    for bad in (good[:-1], good + b"\0", b"\0\0\x0d\x01" + good[4:], b"abcd"):
        with pytest.raises(DataError, match="not an IDX array"):
            mnist.read_idx(bad)


def test_the_data_folder_can_be_moved(tmp_path, monkeypatch):
    monkeypatch.setenv("FL_CORE_DATA", str(tmp_path))
    assert data_folder() == tmp_path
    with pytest.raises(DataError, match="is missing"):
        load_dataset("fashion-mnist")
