"""The store: what goes in comes out, damage is noticed, and writers do not disturb each other."""

from __future__ import annotations

import gzip
import json
import lzma
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fl_core.errors import DataError, RunError
from fl_core.experiments import store as module
from fl_core.experiments.run import Result, run
from fl_core.experiments.spec import RunSpec
from fl_core.experiments.store import (
    OTHER,
    PACKED,
    TOTALS,
    Store,
    _means,
    _shortened,
    default_store,
    encode,
    pack,
    read,
    write_atomically,
)
from fl_core.experiments.study import load_frame
from fl_core.runtime import History
from fl_core.runtime.history import append

pytestmark = pytest.mark.usefixtures("few_images")


def result_of(seed: int = 0, accuracy: float = 0.5) -> Result:
    """Return a made-up result."""
    history = History()
    append(history.evaluations, seconds=0.0, version=0, gradients=0, models_sent=0, models_received=0,
           bytes_down=0, bytes_up=0, test_accuracy=accuracy, test_loss=1 / 3)  # fmt: skip
    append(history.updates, seconds=1.0, version=1, device=7, staleness=0, weight=0.6, steps=10, loss=0.1 + 0.2)
    history.model = torch.arange(4.0)
    return Result(RunSpec(algorithm="fedasync", seed=seed), history, {"wall_seconds": 1.5, "data": "real"})


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "published", tmp_path / "cache")


def test_what_goes_in_comes_out(store: Store) -> None:
    saved = result_of()
    store.save(saved)
    loaded = store.get(saved.spec)
    assert loaded is not None
    assert loaded.spec == saved.spec
    saved.history.model = None
    assert loaded.history == saved.history  # bit for bit, NaN included
    assert loaded.provenance["wall_seconds"] == 1.5


def test_the_final_model_is_kept_as_a_fingerprint(store: Store) -> None:
    one, other = result_of(), result_of()
    assert other.history.model is not None
    other.history.model[0] = 1e-7
    prints = [read(store.save(r)).provenance["model_sha256"] for r in (one, other)]
    assert prints[0] != prints[1]


def test_a_record_can_do_without_the_tables_of_updates_and_of_what_was_learned(store: Store) -> None:
    whole = result_of()
    whole.history.learned = {"version": [1], "slot": [2]}
    kept, without, bare = (read(store.save(whole, tables=t)) for t in (("updates", "learned"), ["updates"], ()))
    assert bare.history.evaluations["test_accuracy"] == whole.history.evaluations["test_accuracy"]
    assert kept.history.updates == without.history.updates == whole.history.updates != History().updates
    assert kept.history.learned == whole.history.learned
    assert bare.history.updates == History().updates
    assert bare.history.learned == without.history.learned == {}


def test_outlines_are_read_once_until_a_record_changes(store: Store) -> None:
    store.save(result_of())
    (outline,) = store.outlines()
    assert (outline.spec, outline.provenance["wall_seconds"]) == (result_of().spec, 1.5)
    assert outline.history == History()
    store.save(result_of(seed=1))
    first, second = sorted(store.outlines(), key=lambda each: each.spec.seed)
    assert (first is outline, second.spec.seed) == (True, 1)


def test_equal_results_give_equal_bytes() -> None:
    assert encode(result_of()) == encode(result_of())
    assert encode(result_of()) != encode(result_of(accuracy=0.6))


def test_published_runs_are_read_before_cached_ones(store: Store) -> None:
    store.save(result_of(accuracy=0.1))
    path = store.save(result_of(accuracy=0.9), published=True)
    assert path.parent == store.published
    found = store.get(result_of().spec)
    assert found is not None
    assert found.history.evaluations["test_accuracy"] == [0.9]
    assert len(list(store)) == 1


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def test_a_damaged_published_run_falls_back_to_the_cache(store: Store) -> None:
    truncate(store.save(result_of(), published=True))
    store.save(result_of(accuracy=0.7))
    with pytest.warns(UserWarning, match="published"):
        found = store.get(result_of().spec)
    assert found is not None
    assert found.history.evaluations["test_accuracy"] == [0.7]


def test_many_writers_and_a_reader_never_meet_half_a_file(store: Store) -> None:
    results = [result_of(seed, 0.5) for seed in range(3)]
    stop = threading.Event()
    seen: list[int] = []

    def write(result: Result) -> None:
        while not stop.is_set():
            store.save(result)

    writers = [threading.Thread(target=write, args=(results[i % 3],)) for i in range(6)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for writer in writers:
            writer.start()
        for _ in range(60):
            seen.append(sum(store.has(result.spec) for result in results))
        stop.set()
        for writer in writers:
            writer.join()
    assert seen[-1] == 3
    assert sorted(path.name for path in store.cache.iterdir()) == sorted(f"{r.spec.hash}.json.gz" for r in results)


def test_a_failed_write_leaves_the_old_file_and_nothing_else(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    path = store.save(result_of())
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(module.os, "replace", full)
    with pytest.raises(RunError, match="is finished, but"):
        store.save(result_of(accuracy=0.9))
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    assert path.read_bytes() == before


@pytest.fixture
def packed(store: Store) -> Store:
    """Return a store that has published seeds 0 to 3: two in file a, one in b, one in no grid's."""
    for seed in range(4):
        store.save(result_of(seed, accuracy=seed / 10), published=True)
    keys = [result_of(seed).spec.hash for seed in range(4)]
    files = pack(store.published, dict(zip(keys, ["a", "b", "a"], strict=False)))
    assert [path.name for path in files] == [f"{name}{PACKED}" for name in ("a", "b", OTHER)]
    assert sorted(path.name for path in store.published.glob("[!.]*")) == [path.name for path in files]
    return store


def accuracy_of(store: Store, seed: int) -> float | None:
    found = store.get(result_of(seed).spec)
    return found.history.evaluations["test_accuracy"][0] if found else None


def test_packed_runs_are_found_like_single_ones(packed: Store) -> None:
    assert [accuracy_of(packed, seed) for seed in range(5)] == [0.0, 0.1, 0.2, 0.3, None]
    found, whole = packed.get(result_of(1).spec), result_of(1, accuracy=0.1)
    whole.history.model = None
    assert found is not None
    assert found.history == whole.history
    packed.save(result_of(2))  # in the cache, too
    assert sorted(result.spec.seed for result in packed) == [0, 1, 2, 3]
    assert packed.outlines() == tuple(replace(result, history=History()) for result in packed)


def test_a_run_that_is_published_anew_counts_and_replaces_the_packed_one_where_it_is(packed: Store) -> None:
    packed.save(result_of(1, accuracy=0.9), published=True)
    assert accuracy_of(packed, 1) == 0.9
    assert [path.name for path in pack(packed.published, {})] == [f"b{PACKED}"]
    assert [accuracy_of(packed, seed) for seed in range(4)] == [0.0, 0.9, 0.2, 0.3]
    assert pack(packed.published, {}) == []


def test_whoever_reads_is_not_disturbed_by_whoever_writes_and_packs(store: Store) -> None:
    """Files under way, and those that another process has packed meanwhile, ended a worker."""
    for seed in range(4):
        store.save(result_of(seed), published=True)
    with ThreadPoolExecutor(1) as pool:
        busy = pool.submit(lambda: [write_atomically(store.published / "other", b"x" * 20_000) for _ in range(300)])
        while not busy.done():
            store.stamp()
    found = []
    for result in store:
        found.append(result.spec.seed)
        pack(store.published, {})
    assert sorted(found) == [0, 1, 2, 3]


def test_packing_equal_records_in_another_order_gives_equal_bytes(packed: Store, tmp_path: Path) -> None:
    other = Store(tmp_path / "other", tmp_path / "other")
    for seed in (2, 0):
        other.save(result_of(seed, accuracy=seed / 10))
        pack(other.cache, {result_of(seed).spec.hash: "a"})
    assert (other.cache / f"a{PACKED}").read_bytes() == (packed.published / f"a{PACKED}").read_bytes()


def test_a_packed_file_is_lines_by_hash_that_are_the_records(packed: Store) -> None:
    first, *lines = lzma.decompress((packed.published / f"a{PACKED}").read_bytes()).splitlines()
    runs = json.loads(first)["runs"]
    assert list(runs) == sorted(result_of(seed).spec.hash for seed in (0, 2))
    assert [gzip.decompress(encode(found)) for found in packed if found.spec.hash in runs] == lines


@given(
    st.lists(st.tuples(st.floats(width=32, allow_nan=False, allow_infinity=False), st.integers(1, 40)), min_size=1),
    st.booleans(),
)
def test_losses_of_updates_are_packed_as_short_sums_and_come_back_bit_for_bit(rows, exact: bool) -> None:
    losses = [total / steps if exact else total / 3 + 1e-9 for total, steps in rows]
    updates = {"loss": [*losses, None], "steps": [*(steps for _, steps in rows), 2]}
    text = json.dumps(
        {"format": 1, "sha256": "", "content": {"history": {"updates": updates}}}, separators=(",", ":")
    )
    packed = json.loads(short := _shortened(text.encode()))
    assert not exact or packed["format"] == TOTALS
    found = packed["content"]["history"]["updates"]
    assert (_means(found) if packed["format"] == TOTALS else found["loss"]) == updates["loss"]
    assert _shortened(short) == short


def without_end(content: bytes) -> bytes:
    return content[:-40]


def with_a_bit_flipped(content: bytes) -> bytes:
    return content[:200] + bytes([content[200] ^ 1]) + content[201:]


def improved(content: bytes) -> bytes:
    return lzma.compress(lzma.decompress(content).replace(b'"test_accuracy":[0.2]', b'"test_accuracy":[0.9]'))


@pytest.mark.parametrize("damage", [without_end, with_a_bit_flipped, improved, lambda content: b""])
def test_damage_to_a_packed_file_is_reported_by_name_and_never_used(packed: Store, damage) -> None:
    path = packed.published / f"a{PACKED}"
    path.write_bytes(damage(path.read_bytes()))
    packed.save(result_of(0, accuracy=0.7))
    with pytest.warns(UserWarning, match=path.name):
        assert accuracy_of(packed, 2) is None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert accuracy_of(packed, 0) in (0.0, 0.7)  # its line may be whole, else that of the cache
        assert 2 not in {outline.spec.seed for outline in packed.outlines()}
    assert accuracy_of(packed, 1) == 0.1
    packed.save(result_of(2, accuracy=0.2), published=True)
    before = {file.name: file.read_bytes() for file in packed.published.glob("[!.]*")}
    with pytest.raises(DataError, match=f"{path.name}.*nothing is packed"):
        pack(packed.published, {})
    assert {file.name: file.read_bytes() for file in packed.published.glob("[!.]*")} == before


def test_published_records_are_packed_and_few_are_of_generated_data() -> None:
    folder = default_store().published
    assert not list(folder.glob("*.json.gz"))
    kinds = [outline.provenance["data"] for outline in Store(folder, folder).outlines()]
    assert len(kinds) > 800
    assert kinds.count("surrogate") <= len(kinds) / 5


@pytest.mark.thorough
def test_every_published_record_is_readable() -> None:
    folder = default_store().published
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(list(Store(folder, folder))) == len(Store(folder, folder).grids())


def test_one_folder_can_replace_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FL_CORE_RESULTS", str(tmp_path))
    store = default_store()
    assert store.save(result_of(), published=True).parent == store.save(result_of()).parent == tmp_path
    assert len(list(store)) == 1


def test_all_runs_are_one_frame(store: Store) -> None:
    for seed in (0, 1):
        store.save(result_of(seed))
    frame = load_frame(store)
    assert sorted(frame["seed"]) == [0, 1]
    assert set(frame["algorithm.name"]) == {"fedasync"}
    assert {"hash", "final.test_accuracy", "training.lr", "provenance.wall_seconds", "standing"} <= set(frame.columns)


@pytest.mark.parametrize(
    "world",
    [
        {"power": {"compute_watts": 3, "source": "a test"}, "network": {"server_up_bits_per_second": 1e6}},
        {"name": "phones"},
        {"name": "measured-links"},
    ],
)
def test_runs_in_measured_worlds_and_with_joules_are_kept_and_read(store: Store, world: dict) -> None:
    spec = RunSpec(
        dataset="fashion-mnist", model="linear", algorithm={"name": "fedasync", "concurrency": 2},
        world={"devices": 4, **world}, budget={"updates": 3}, training={"steps": 1}, evaluation={"test_samples": 100},
    )  # fmt: skip
    result = run(spec)
    store.save(result)
    again = store.get(spec)
    assert again is not None
    assert again.history.to_dict()["evaluations"] == result.history.to_dict()["evaluations"]
    assert ("joules_compute" in again.history.evaluations) == ("power" in world)


@pytest.mark.parametrize("kind", ["real", "re-encoded", "partial"])
def test_records_on_copies_that_differ_are_read(store: Store, kind: str) -> None:
    result = result_of()
    store.save(Result(result.spec, result.history, result.provenance | {"data": kind}))
    assert store.get(result.spec).provenance["data"] == kind
