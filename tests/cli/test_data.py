"""``fl-core data``: what is here, and how to get the rest."""

from __future__ import annotations

import json

import pytest
import torch
from commands import invoke

from fl_core.datasets import Archive, Source, Split, Surrogate, registry
from fl_core.world.traces import SETS

pytestmark = pytest.mark.filterwarnings("ignore::fl_core.datasets.registry.PreparationNotice")
SHAPE = (1, 4, 4)


def split(part, count=None):
    n = count or (4 if part == "test" else 8)
    return Split(torch.zeros(n, *SHAPE, dtype=torch.uint8), torch.arange(n) % 2)


def splits():
    return split("train"), split("test")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """One data set that can be downloaded from a server that does not answer, and one by hand."""
    about = {"licence": "CC0", "homepage": "https://example.org", "shape": SHAPE, "sizes": (8, 4)}
    about["classes"] = ("a", "b")
    archive = Archive("toy.bin", 3, "md5:900150983cd24fb0d6963f7d28e17f72", "http://127.0.0.1:9/toy.bin")
    toy = Source(name="toy", title="Toy (Me, 2026)", archives=(archive,), read=lambda _: splits(), **about)
    hand = Source(name="hand", title="Hand", archives=(), read=lambda _: splits(), by_hand="Ask its owner", **about)
    hand = Source(**{**vars(hand), "present": lambda path: (path / "all").is_file()})
    stand_in = Surrogate("toy", 1, SHAPE, ("a", "b"), (8, 4), split, "Grey squares.")
    real = registry.all_sources()["fashion-mnist"]
    monkeypatch.setenv(registry.FOLDER, str(tmp_path))
    monkeypatch.setattr(registry, "all_sources", lambda: {"fashion-mnist": real, "toy": toy, "hand": hand})
    monkeypatch.setattr(registry, "all_surrogates", lambda: {"toy-surrogate": stand_in})
    registry._load.cache_clear()
    yield tmp_path
    registry._load.cache_clear()


def call(*words):
    return invoke("data", *words)


def test_the_list_says_what_is_real_what_is_not_and_what_to_do(folder):
    text = " ".join(call().output.split())
    assert "fashion-mnist real 60,000 + 10,000 samples of 1 x 28 x 28, 10 classes, 29 MiB" in text
    assert "toy SURROGATE 8 + 4 samples" in text
    assert "Toy (Me, 2026) Licence: CC0 https://example.org Get it: fl-core data get toy" in text
    assert "Surrogate toy-surrogate: Grey squares." in text
    assert "hand MISSING" in text
    assert "By hand: Ask its owner; 'here' is" in text
    assert str(folder) in text.replace(" ", "")


def test_the_list_of_the_real_registry_names_licence_size_and_source_of_every_set():
    output = call().output
    for source in registry.all_sources().values():
        assert source.name in output
        assert source.homepage in output.replace("\n", "")
    assert all(f"\n{name} " in output and links.licence in output for name, links in SETS.items())
    assert output.count("Licence: ") == len(registry.all_sources()) + len(SETS)


def test_a_surrogate_is_generated_on_request_and_a_present_set_verified(folder):
    first = call("get", "toy-surrogate", "fashion-mnist")
    assert first.exit_code == 0, first.output
    assert "toy-surrogate: surrogate data, 8 + 4 samples, checksums right" in first.output
    assert "fashion-mnist: real data, 60,000 + 10,000 samples" in first.output
    [path] = folder.rglob("toy-surrogate-v1.safetensors")
    rows = json.loads(call("get", "toy-surrogate", "fashion-mnist", "--json").stdout)
    found = [[row["name"], row["state"], row["sizes"]] for row in rows]
    assert found == [["toy-surrogate", "surrogate", [8, 4]], ["fashion-mnist", "real", [60_000, 10_000]]]
    assert rows[0]["place"] == str(path)


def test_an_archive_that_lies_there_is_verified_decoded_and_used(folder):
    (folder / "toy").mkdir()
    (folder / "toy" / "toy.bin").write_bytes(b"abc")
    found = call("get", "toy")
    assert found.exit_code == 0, found.output
    assert "toy: real data, 8 + 4 samples" in found.output
    taken = call("import", str(folder / "toy"), "--json")
    assert "toy: real data, 8 + 4 in an archive verified, kept as" in taken.stderr
    assert [(row["name"], row["state"]) for row in json.loads(taken.stdout)] == [("toy", "real")]


def fails(*words):
    found = call(*words)
    assert found.exit_code != 0
    assert "Traceback" not in found.output
    assert found.exception is None or isinstance(found.exception, SystemExit)
    return " ".join(found.output.split())


def test_without_a_network_it_says_so_and_what_can_be_done(folder):
    text = fails("get", "toy")
    assert "127.0.0.1:9/toy.bin" in text
    assert "get the file elsewhere and copy it to" in text
    assert not list(folder.rglob("*.safetensors"))


def test_what_must_be_obtained_by_hand_is_explained_with_the_folder(folder):
    assert f"fetched by hand: Ask its owner; 'here' is {folder}/hand" in fails("get", "hand")
    (folder / "hand").mkdir()
    (folder / "hand" / "all").write_text("")
    assert call("get", "hand").exit_code == 0


def test_an_unknown_name_is_refused_before_anything_is_done(folder):
    assert "unknown data set 'tou'; did you mean 'toy'?" in fails("get", "toy-surrogate", "tou")
    assert not list(folder.rglob("*.safetensors"))


def test_again_begins_anew_but_leaves_the_embedded_set_alone(folder):
    call("get", "toy-surrogate")
    [path] = folder.rglob("toy-surrogate-v1.safetensors")
    path.write_bytes(b"damaged")
    found = call("get", "toy-surrogate", "--again")
    assert found.exit_code == 0, found.output
    assert "damaged" not in found.output
    assert "git checkout -- data/fashion-mnist" in fails("get", "fashion-mnist", "--again")


def test_another_folder_can_be_named(folder, tmp_path, monkeypatch):
    found = call("get", "toy-surrogate", "--folder", str(tmp_path / "elsewhere"))
    assert found.exit_code == 0, found.output
    assert list((tmp_path / "elsewhere").rglob("toy-surrogate-v1.safetensors"))
