"""A damaged or forged record is refused in one line with its file, and the records beside it are still read."""

from __future__ import annotations

import copy
import gzip
import hashlib
import json
import lzma
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_core.errors import DataError
from fl_core.experiments import invariants
from fl_core.experiments import store as module
from fl_core.experiments.run import Result
from fl_core.experiments.spec import RunSpec
from fl_core.experiments.store import PACKED, Store, encode, pack, read
from fl_core.runtime import History
from fl_core.runtime.history import COUNTERS, append

pytestmark = pytest.mark.usefixtures("few_images")


def result_of(seed: int) -> Result:
    """Return a made-up result with something in every table."""
    history = History(learned={"seconds": [1.0], "alpha": [0.5]})
    for row in range(3):
        append(history.evaluations, seconds=float(row), version=row, gradients=row, models_sent=row,
               models_received=row, bytes_down=row, bytes_up=row, test_accuracy=row / 10, test_loss=1.0)  # fmt: skip
        append(
            history.updates, seconds=1.0 + row, version=1 + row, device=7, staleness=0, weight=0.6, steps=9, loss=1.0
        )
        append(history.spans, task=row, device=7, activity="train", start=0.0, end=1.0, base_version=0)
        append(history.faults, seconds=1.0, device=7, task=row, fault="lost")
    ends = {"applied": 3, "discarded": 0, "rejected": 1, "lost": 2, "in_flight": 0, "duplicates": 0}
    history.outcomes = {"dispatched": 6, **ends}
    return Result(
        RunSpec(algorithm="fedasync", seed=seed), history, {"wall_seconds": 1.5, "data": "real", "commit": "a"}
    )


DEEP: Any = 0
for _ in range(300):
    DEEP = [DEEP]
E, U, H, P = "history.evaluations", "history.updates", "history", "provenance"
FORGED: list[tuple[str, Any]] = [
    *((f"{E}.test_accuracy", [0.0, odd, 0.2]) for odd in (5.0, -0.1, None, "inf", "-inf", "0.1", True, [0.1], {})),
    *((f"{E}.seconds", odd) for odd in ([0.0, 2.0, 1.0], [0.0, None, 2.0], [-1.0, 0.0, 1.0], [0.0, "inf", "inf"])),
    *((f"{E}.version", wrong) for wrong in ([0, 2, 1], [0, 0.5, 1], [-1, 0, 1], [0, 1, 10**400], [0, 1, False])),
    *((f"{E}.{name}", odd) for name in COUNTERS for odd in ([0, -1, 2], [3, 2, 1])),
    *((f"{E}.test_loss", odd) for odd in ([1.0, 2.0], [1.0, "much", 1.0], [[], [], []], 3, None, "abc", {"0": 1.0})),
    *((f"{E}.{name}", []) for name in ("seconds", "test_accuracy", "train_loss")),
    (E, {}), (E, []), (E, None), (E, {name: [] for name in result_of(0).history.evaluations}),
    (f"{E}.more", [1, 2, 3]), (f"{U}.more", [1, 2, 3]), (U, {}), (U, {"seconds": [1.0]}), (U, 7),
    *((f"{U}.{name}", [0, -2, 1]) for name in ("seconds", "version", "device", "staleness", "steps")),
    *((f"{U}.{name}", [None] * 3) for name in ("seconds", "version", "device", "staleness", "steps")),
    *((f"{U}.{name}", ["x"] * 3) for name in ("weight", "loss")),
    *((f"{U}.{name}", [1]) for name in ("weight", "loss", "device")),
    (f"{U}.staleness", [0, 0.5, 1]), (f"{U}.version", [3, 2, 1]),
    (f"{H}.spans.activity", [1, 2, 3]), (f"{H}.spans.start", [0.0, -1.0, 0.0]), (f"{H}.spans.task", [0, 1]),
    (f"{H}.faults.fault", ["lost", None, "lost"]), (f"{H}.faults.device", [-2, 0, 0]),
    (f"{H}.faults.seconds", [None] * 3),
    (f"{H}.learned", {"seconds": [1.0], "alpha": [0.5, 0.6]}), (f"{H}.learned", [1]), (f"{H}.learned", {"alpha": 3}),
    *((f"{H}.outcomes.{name}", 99) for name in ("dispatched", "applied", "lost", "in_flight")),
    *((f"{H}.outcomes.lost", wrong) for wrong in (-2, 2.0, True, None, "2", [2])),
    *((f"{H}.outcomes", odd) for odd in ([6], {"dispatched": 0}, "none")), (f"{H}.outcomes.stolen", 0),
    *((f"{H}.ended", wrong) for wrong in ("", "victory", None, 3, ["budget"])),
    *((H, odd) for odd in ({}, [], None, "history", DEEP)),
    *((f"{E}.test_accuracy", odd) for odd in (DEEP, [DEEP] * 3)),
    *((P, odd) for odd in (None, [], "mine", {})), *((f"{P}.data", odd) for odd in ("surrogate", "synthetic", None)),
    *((f"{P}.{clock}_seconds", wrong) for clock in ("wall", "cpu") for wrong in (-1, "1.5", None, True, [1])),
    *((f"{P}.{name}", 3) for name in ("commit", "code", "model_sha256", "data_sha256")),
    ("spec", {}), ("spec", []), ("spec", None), ("spec", DEEP), ("spec.algorithm", "fedasinc"), ("spec.seed", 12),
    ("spec.seed", "x"), ("spec.dataset", "mnist"), ("spec.dataset", "cifar10-surrogate"), ("spec.extra", 1),
    ("spec.world", DEEP), ("spec.budget", {"updates": -1}), ("spec.algorithm", {"name": "fedasync", "alpha": 2}),
]  # fmt: skip
"""Where in a record's content, and what a forger who knows how to make the check sums writes there."""


def with_change(content: dict[str, Any], place: str, value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(content)
    target = changed
    *path, last = place.split(".")
    for name in path:
        target = target[name]
    target[last] = value
    return changed


def line_of(content: Any, **others: Any) -> bytes:
    record = {"format": 1, "sha256": module._digest(content), "content": content} | others
    return json.dumps(record, separators=(",", ":")).encode()


@pytest.fixture(scope="module")
def content() -> dict[str, Any]:
    return json.loads(gzip.decompress(encode(result_of(0))))["content"]


@pytest.fixture(scope="module")
def others() -> list[bytes]:
    """Return the lines of two records that are as they should be."""
    return [gzip.decompress(encode(result_of(seed))) for seed in (1, 2)]


def refused(path: Path, key: str) -> str:
    """Return the one line that says why a record is not read."""
    with pytest.raises(DataError) as found:
        read(path, key)
    line = str(found.value)
    assert str(path) in line
    assert "\n" not in line
    assert len(line) < 700
    return line


def packed(folder: Path, lines: list[bytes], **first: Any) -> Path:
    """Write a pack as somebody would who knows the form; a line is named by the seed that its place says."""
    keys = [result_of(seed).spec.hash for seed in range(len(lines))]
    runs = {key: hashlib.sha256(line).hexdigest()[:16] for key, line in zip(keys, lines, strict=True)}
    path = folder / f"a{PACKED}"
    index = json.dumps({"format": 1, "runs": runs} | first).encode()
    path.write_bytes(lzma.compress(b"\n".join([index, *lines, b""])))
    return path


@pytest.mark.parametrize(("place", "value"), FORGED, ids=[f"{i}-{place}" for i, (place, _) in enumerate(FORGED)])
def test_a_forged_record_is_refused_alone_and_in_a_pack(tmp_path: Path, content, others, place: str, value: Any):
    line, key = line_of(with_change(content, place, value)), result_of(0).spec.hash
    alone = tmp_path / f"{key}.json.gz"
    alone.write_bytes(gzip.compress(line))
    refused(alone, key)
    alone.unlink()
    together = packed(tmp_path, [line, *others])
    assert f"line 2 (run {key})" in refused(together, key)
    store = Store(tmp_path, tmp_path)
    with pytest.warns(UserWarning, match=key) as said:
        assert [result.spec.seed for result in store] == [1, 2], "the others are read"
    assert len(said) == 1
    with pytest.warns(UserWarning, match="the run counts as missing"):
        assert store.get(result_of(0).spec) is None


FORGERIES = 133
"""As the page of promises says it; the table has loops over what is known only when it is run."""


def test_there_are_as_many_forgeries_as_the_page_of_promises_says():
    assert len(FORGED) == FORGERIES


RAW: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda line: gzip.compress(b""),
    "no gzip": lambda line: line,
    "cut": lambda line: gzip.compress(line)[:-9],
    "twice": lambda line: gzip.compress(line) * 2,
    "tail": lambda line: gzip.compress(line) + b"tail",
    "number": lambda line: gzip.compress(b"3"),
    "null": lambda line: gzip.compress(b"null"),
    "list": lambda line: gzip.compress(b"[1, 2]"),
    "text": lambda line: gzip.compress(b'"record"'),
    "deep": lambda line: gzip.compress(b"[" * 100_000 + b"]" * 100_000),
    "deep object": lambda line: gzip.compress(b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
    "long number": lambda line: gzip.compress(b"1" * 10_000),
    "not UTF-8": lambda line: gzip.compress(line.replace(b"fedasync", b"fed\xff\xfesync")),
    "NaN": lambda line: gzip.compress(line.replace(b'"test_accuracy":[0.0', b'"test_accuracy":[NaN')),
    "infinity": lambda line: gzip.compress(line.replace(b'"test_accuracy":[0.0', b'"test_accuracy":[Infinity')),
    "a name twice": lambda line: gzip.compress(line.replace(b'"format":1', b'"format":1,"format":1')),
    "format 2": lambda line: gzip.compress(line.replace(b'"format":1', b'"format":2')),
    "format text": lambda line: gzip.compress(line.replace(b'"format":1', b'"format":"1"')),
    "no format": lambda line: gzip.compress(line.replace(b'"format":1,', b"")),
    "no content": lambda line: gzip.compress(b'{"format":1,"sha256":"a"}'),
    "other sum": lambda line: gzip.compress(line.replace(b'"sha256":"', b'"sha256":"0')),
    "improved": lambda line: gzip.compress(line.replace(b'"test_accuracy":[0.0', b'"test_accuracy":[0.9')),
    "bomb": lambda line: gzip.compress(bytes(1 << 24)),
}


@pytest.mark.parametrize("damage", RAW)
def test_a_damaged_file_is_refused(tmp_path: Path, others, damage: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(invariants, "MOST_BYTES", 1 << 20)
    key = result_of(1).spec.hash
    path = tmp_path / f"{key}.json.gz"
    path.write_bytes(RAW[damage](others[0]))
    said = refused(path, key)
    assert damage != "bomb" or "unpacks to more than 1 MiB" in said


@pytest.mark.parametrize(
    "first",
    [
        {"runs": []}, {"runs": None}, {"runs": {"x": 3}}, {"format": 9}, {"runs": "abc"}, {"format": None},
        {"runs": {result_of(seed).spec.hash: "0" * 16 for seed in range(9)}},
    ],
)  # fmt: skip
def test_a_pack_with_a_wrong_first_line_gives_nothing_and_says_so(tmp_path: Path, others, first: dict[str, Any]):
    path = packed(tmp_path, others, **first)
    with pytest.warns(UserWarning, match=path.name):
        assert list(Store(tmp_path, tmp_path)) == []
    result = result_of(3)
    Store(tmp_path, tmp_path).save(result)
    before = path.read_bytes()
    with pytest.raises(DataError, match="nothing is packed"):
        pack(tmp_path, {result.spec.hash: "a"})
    assert path.read_bytes() == before


@given(st.data())
def test_any_damaged_bytes_are_refused_or_change_nothing(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("fuzz")
    result = result_of(0)
    whole = encode(result)
    place = data.draw(st.integers(0, len(whole) - 1))
    path = folder / f"{result.spec.hash}.json.gz"
    path.write_bytes(whole[:place] + data.draw(st.binary(max_size=4)) + whole[place + data.draw(st.integers(0, 4)) :])
    with suppress(DataError):
        assert read(path).history == result.history
