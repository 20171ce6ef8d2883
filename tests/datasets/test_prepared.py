"""Prepared data sets on disk: whole, checked, made once."""

from __future__ import annotations

import multiprocessing
import warnings

import numpy as np
import pytest
import torch

from fl_core.datasets import Split, prepared
from fl_core.errors import DataError

CLASSES = ("a", "b")


def splits(channels=3, owners=True):
    rng = np.random.default_rng(0)
    return tuple(
        Split(
            torch.from_numpy(rng.integers(0, 256, (n, channels, 5, 4), dtype=np.uint8)),
            torch.from_numpy(rng.integers(0, 2, n)),
            torch.arange(n) // 7 if owners else None,
        )
        for n in (70, 21)
    )


def load(path, build=splits):
    return prepared.load_or_build(path, "mine", "surrogate", CLASSES, build)


def never():
    raise AssertionError("built although the file is there")


@pytest.mark.parametrize("owners", [True, False])
def test_what_is_read_is_what_was_built_and_it_is_built_once(tmp_path, owners):
    path = tmp_path / "new" / "mine.safetensors"
    first, again = load(path, lambda: splits(owners=owners)), load(path, never)
    for found in (first, again):
        for split, expected in zip((found.train, found.test), splits(owners=owners), strict=True):
            assert torch.equal(split.inputs, expected.inputs)
            assert torch.equal(split.labels, expected.labels)
            assert (split.owners is None) is (not owners)
            assert not owners or torch.equal(split.owners, expected.owners)
    assert (first.name, first.kind, first.classes) == ("mine", "surrogate", CLASSES)
    assert len(first.sha256) == 64
    assert first.sha256 == again.sha256


@pytest.mark.parametrize("inputs", [splits()[0].inputs, splits()[0].inputs[:3, :, :, :3]])
def test_means_and_deviations_are_those_of_each_channel(inputs):
    mean, std = prepared.channel_statistics(inputs)
    pixels = inputs.double() / 255
    assert mean == pytest.approx(pixels.mean((0, 2, 3)).tolist(), abs=5e-5)
    assert std == pytest.approx(pixels.std((0, 2, 3), correction=0).tolist(), abs=5e-5)
    assert prepared.channel_statistics(torch.zeros(4, 7)) == ([], [])


@pytest.mark.parametrize("how", ["flipped", "truncated", "emptied", "foreign"])
def test_a_damaged_file_is_reported_and_made_again(tmp_path, how):
    path = tmp_path / "mine.safetensors"
    good = load(path).sha256
    content = bytearray(path.read_bytes())
    content[-100] ^= 1
    path.write_bytes({"flipped": content, "truncated": content[:-50], "emptied": b"", "foreign": b"x" * 500}[how])
    with pytest.raises(DataError, match="damaged"):
        prepared.read(path, "mine", "surrogate", CLASSES)
    with pytest.warns(UserWarning, match="is damaged .* it is made again"):
        assert load(path).sha256 == good
    assert load(path, never).sha256 == good


def test_nothing_is_left_behind_when_building_fails(tmp_path):
    def fail():
        raise DataError("the archive is damaged")

    with pytest.raises(DataError, match="the archive is damaged"):
        load(tmp_path / "mine.safetensors", fail)
    assert [path.name for path in tmp_path.iterdir() if not path.name.endswith(".lock")] == []


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"'mine' cannot be kept in .*file"):
        load(tmp_path / "file" / "mine.safetensors")


def test_reading_takes_no_lock_so_that_a_folder_that_may_only_be_read_is_enough(tmp_path, monkeypatch):
    path = tmp_path / "mine.safetensors"
    load(path)

    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(prepared, "FileLock", refuse)
    assert load(path, never).name == "mine"
    path.unlink()
    with pytest.raises(DataError, match="cannot be kept in .*Permission denied"):
        load(path)


def _load_in_process(path, queue):
    def build():
        queue.put("built")
        return splits()

    queue.put(load(path, build).sha256)


def test_of_several_processes_one_builds_and_all_get_the_same(tmp_path):
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    path = tmp_path / "mine.safetensors"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking beside threads: the children use none
        workers = [context.Process(target=_load_in_process, args=(path, queue)) for _ in range(3)]
        for worker in workers:
            worker.start()
    found = [queue.get(timeout=60) for _ in range(4)]
    for worker in workers:
        worker.join(60)
    assert found.count("built") == 1
    assert len(set(found)) == 2
