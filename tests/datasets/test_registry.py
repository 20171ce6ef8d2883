"""Which data set a specification gets: the real one, or its surrogate, and never in silence."""

from __future__ import annotations

import warnings
from dataclasses import replace

import pytest
import torch

from fl_core.datasets import (
    Archive,
    Source,
    Split,
    Surrogate,
    SurrogateNotice,
    actual,
    kind_of,
    load_dataset,
    registry,
    sizes,
)
from fl_core.errors import DataError, SpecError
from fl_core.experiments.run import run
from fl_core.experiments.spec import RunSpec
from fl_core.experiments.store import Store

pytestmark = pytest.mark.filterwarnings("ignore::fl_core.datasets.registry.PreparationNotice")
SHAPE, CLASSES = (1, 12, 12), ("a", "b")


def samples(level):
    def split(part, count=None):
        n = count or (6 if part == "test" else 24)
        images = torch.full((n, *SHAPE), level, dtype=torch.uint8) + torch.arange(n).view(n, 1, 1, 1).byte()
        return Split(images, torch.arange(n) % 2)

    return split


def both(level):
    return lambda folder: tuple(samples(level)(part) for part in ("train", "test"))


@pytest.fixture
def toys(tmp_path, monkeypatch):
    """A real data set that is not here yet, its surrogate, and one without a surrogate."""
    about = {"title": "Toy", "licence": "none", "homepage": "", "shape": SHAPE, "classes": CLASSES, "sizes": (24, 6)}
    archive = (Archive("toy.bin", 3, "md5:900150983cd24fb0d6963f7d28e17f72"),)
    toy = Source(name="toy", archives=archive, read=both(100), **about)
    lonely = Source(name="lonely", archives=archive, read=both(1), **about)
    stand_in = Surrogate("toy", 1, SHAPE, CLASSES, (24, 6), samples(50))
    monkeypatch.setenv(registry.FOLDER, str(tmp_path))
    monkeypatch.setattr(registry, "all_sources", lambda: {"toy": toy, "lonely": lonely})
    for module in ("fl_core.datasets.registry", "fl_core.experiments.run", "fl_core.experiments.store"):
        monkeypatch.setattr(f"{module}.all_surrogates", lambda: {"toy-surrogate": stand_in})
    registry._load.cache_clear()
    registry._notify.cache_clear()
    yield tmp_path
    registry._load.cache_clear()
    registry._notify.cache_clear()


def bring(folder, content=b"abc"):
    (folder / "toy").mkdir()
    (folder / "toy" / "toy.bin").write_bytes(content)


def spec(**fields):
    small = {"world": {"devices": 2}, "budget": {"updates": 2}, "training": {"batch_size": 4}, "model": "linear"}
    return RunSpec(**({"dataset": "toy", "algorithm": {"name": "fedavg", "clients_per_round": 2}, **small} | fields))


def test_a_surrogate_stands_in_with_one_visible_notice(toys):
    with pytest.warns(SurrogateNotice, match="toy is not on this machine: its surrogate 'toy-surrogate' is used"):
        found = load_dataset("toy")
    assert (found.name, found.kind) == ("toy-surrogate", "surrogate")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert actual("toy") == "toy-surrogate"
        assert load_dataset("toy-surrogate").sha256 == found.sha256


def test_the_real_one_is_used_as_soon_as_it_is_there_but_a_surrogate_can_still_be_asked_for(toys):
    bring(toys)
    with warnings.catch_warnings():
        warnings.simplefilter("error", SurrogateNotice)
        real, stand_in = load_dataset("toy"), load_dataset("toy-surrogate")
    assert (real.name, real.kind) == ("toy", "real")
    assert (stand_in.name, stand_in.kind) == ("toy-surrogate", "surrogate")
    assert int(real.train.inputs[0, 0, 0, 0]) == 100
    assert (kind_of("toy"), kind_of("toy-surrogate"), sizes("toy")) == ("real", "surrogate", (24, 6))


def test_what_takes_a_while_is_announced_once(toys):
    with pytest.warns(registry.PreparationNotice, match="toy-surrogate is generated now .* happens once"):
        load_dataset("toy-surrogate")
    registry._load.cache_clear()
    bring(toys)
    with pytest.warns(registry.PreparationNotice, match="toy is decoded now"):
        load_dataset("toy")
    registry._load.cache_clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_dataset("toy-surrogate")
        load_dataset("toy")


def test_a_damaged_archive_is_an_error_and_no_reason_for_a_surrogate(toys):
    bring(toys, b"abd")
    with pytest.raises(DataError, match=r"toy\.bin"):
        load_dataset("toy")
    assert not list(toys.rglob("*.safetensors"))


def test_strict_data_refuses_surrogates_however_they_are_asked_for(toys):
    with pytest.raises(
        DataError, match="'toy' is not on this machine, and strict_data refuses surrogates; 'fl-core data get toy'"
    ):
        run(spec(strict_data=True))
    with pytest.raises(DataError, match="'toy-surrogate' is a surrogate, and strict_data refuses"):
        actual("toy-surrogate", strict=True)
    bring(toys)
    assert run(spec(strict_data=True)).provenance["data"] == "real"


def test_a_set_without_surrogate_is_missing_and_an_unknown_one_is_named(toys):
    with pytest.raises(DataError, match="'lonely' is not on this machine and has no surrogate"):
        load_dataset("lonely")
    with pytest.raises(
        SpecError, match=r"unknown data set 'toi'; did you mean 'toy'\? \(valid: lonely, toy, toy-surrogate\)"
    ):
        load_dataset("toi")


def test_the_record_of_a_run_says_what_it_ran_on_and_never_passes_for_the_other(toys, tmp_path):
    store = Store(tmp_path / "results", tmp_path / "results")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SurrogateNotice)
        result = run(spec())
        store.save(result)
        assert result.spec.dataset == "toy-surrogate"
        assert result.provenance["data"] == "surrogate"
        assert result.provenance["data_sha256"] == load_dataset("toy").sha256
        assert store.get(spec()).spec == result.spec
        assert store.get(spec(dataset="toy-surrogate")).spec == result.spec
    bring(toys)
    assert store.get(spec()) is None
    assert store.get(spec(dataset="toy-surrogate")).provenance["data"] == "surrogate"
    real = run(spec())
    assert (real.spec.dataset, real.provenance["data"]) == ("toy", "real")
    assert real.spec.hash != result.spec.hash


def test_results_on_an_older_version_of_a_surrogate_are_not_used(toys, tmp_path, monkeypatch):
    store = Store(tmp_path / "results", tmp_path / "results")
    store.save(run(spec(dataset="toy-surrogate")))
    assert store.get(spec(dataset="toy-surrogate")) is not None
    newer = replace(registry.all_surrogates()["toy-surrogate"], version=2)
    monkeypatch.setattr("fl_core.experiments.store.all_surrogates", lambda: {newer.name: newer})
    with pytest.warns(UserWarning, match="ran on version 1 of toy-surrogate, which is now version 2; it is ignored"):
        assert store.get(spec(dataset="toy-surrogate")) is None


def test_every_surrogate_belongs_to_a_real_data_set_of_the_same_shape_and_is_never_called_like_it():
    for name, surrogate in registry.all_surrogates().items():
        real = registry.all_sources()[surrogate.of]
        assert name == f"{surrogate.of}-surrogate"
        assert name not in registry.all_sources()
        assert (surrogate.shape, len(surrogate.classes)) == (real.shape, len(real.classes))
        assert surrogate.about
