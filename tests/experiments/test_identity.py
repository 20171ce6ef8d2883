"""A result names the code that made it; other code is noticed, and may be shown to give the same bits."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import fl_core
from fl_core import Algorithm, RunSpec, register
from fl_core.algorithms import ALGORITHMS
from fl_core.errors import DataError, RunError
from fl_core.experiments import verify
from fl_core.experiments.identity import code_digest, essence, is_stale, is_users
from fl_core.experiments.run import Result, run
from fl_core.experiments.store import Store, pack
from fl_core.experiments.verify import STANDINGS, Verified, difference, enter, in_words, made_by, replay, sample

PACKAGE = Path(fl_core.__path__[0])
SHORT = {"model": "linear", "budget": {"updates": 6}, "evaluation": {"every_updates": 2, "test_samples": 200}}


def short(algorithm: str = "fedasync", **changed: object) -> RunSpec:
    return RunSpec(**{"algorithm": algorithm, "world": {"devices": 20}, **SHORT, **changed})


@pytest.fixture(scope="module")
def finished() -> Result:
    return run(short(), executor="sequential")


def test_comments_docstrings_and_blank_lines_are_no_code():
    plain = "def f(x):\n    return x + 1\n"
    talkative = '"""Module."""\n\n# why\ndef f(x):  # what\n    """Return more."""\n\n    return x + 1\n'
    assert essence(talkative) == essence(plain)
    assert essence(plain.replace("1", "2")) != essence(plain)
    assert essence("x = '# no comment'") == "x = '# no comment'"


def digests(package_parent: Path) -> list[str]:
    program = (
        "from fl_core import RunSpec\nfrom fl_core.experiments.identity import code_digest\n"
        "print(*(code_digest(RunSpec(algorithm=name)) for name in ('fedasync', 'fedavg')))"
    )
    environment = {**os.environ, "PYTHONPATH": str(package_parent), "FL_CORE_DATA": str(PACKAGE.parent / "data")}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=package_parent, check=True)
    return done.stdout.split()


def test_an_edited_line_changes_the_digest_of_what_uses_it_and_of_nothing_else(tmp_path):
    copy = tmp_path / "fl_core"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    asynchronous, synchronous = digests(tmp_path)
    path = copy / "algorithms" / "fedasync.py"
    text = path.read_text()
    path.write_text(text + "\n# a comment\n")
    assert digests(tmp_path) == [asynchronous, synchronous]
    path.write_text(text + "\nCHANGED = 1\n")
    edited = digests(tmp_path)
    assert edited[0] != asynchronous
    assert edited[1] == synchronous
    path.write_text(text)
    kernel = copy / "runtime" / "kernel.py"
    kernel.write_text(kernel.read_text() + "\nCHANGED = 1\n")
    changed = digests(tmp_path)
    assert changed[0] != asynchronous
    assert changed[1] != synchronous


def define(factor: float) -> type[Algorithm]:
    text = f"""
def weight(staleness):
    return {factor} ** staleness

@register
class Homemade(Algorithm):
    async def scheduler(self, server):
        await server.keep_busy(5)

    async def updater(self, server):
        [upload] = await server.receive()
        server.commit(torch.lerp(server.model, upload.model, weight(upload.staleness)))
"""
    namespace = {"__name__": "somebodys_module", "Algorithm": Algorithm, "register": register, "torch": torch}
    exec(compile(text, "<a prompt without source>", "exec"), namespace)
    return namespace["Homemade"]


def test_an_algorithm_of_ones_own_that_has_changed_loses_its_stored_results_and_its_checkpoint(tmp_path, request):
    request.addfinalizer(lambda: ALGORITHMS.pop("homemade"))
    store = Store(tmp_path / "published", tmp_path / "cache")
    define(0.5)
    assert is_users(short("homemade").algorithm)
    before = run(
        short("homemade"), executor="sequential", checkpoints=store.checkpoints(short("homemade"), every_seconds=0)
    )
    store.save(before)
    define(0.5)
    assert store.has(short("homemade"))
    define(0.6)  # in a function that the class uses, not in the class
    assert is_stale(short("homemade"), before.provenance)
    with pytest.warns(UserWarning, match="homemade has changed since .* counts as missing"):
        assert not store.has(short("homemade"))
    with pytest.raises(RunError, match="was written by other code"):
        run(short("homemade"), executor="sequential", checkpoints=store.checkpoints(short("homemade")))


def test_the_record_says_code_exactness_and_instructions(finished):
    assert finished.provenance["code"] == code_digest(finished.spec)
    assert finished.provenance["numbers"] == "exact"
    assert finished.provenance["instructions"].split()[0]


def test_a_replay_gives_the_same_bits_whole_and_in_part(finished):
    assert replay(finished).same
    part = replay(finished, 0.5)
    assert part.same
    assert part.part == 0.5


@pytest.mark.parametrize("part", [1.0, 0.7])
def test_a_replay_names_the_first_difference(finished, part):
    table = {name: list(values) for name, values in finished.history.evaluations.items()}
    table["test_accuracy"][1] += 1e-9
    forged = replace(finished, history=replace(finished.history, evaluations=table))
    found = replay(forged, part)
    assert "test_accuracy in row 1 of the evaluations (version 2, " in found.difference
    assert not found.same


def test_nan_equals_nan_and_a_missing_row_is_a_difference(finished):
    history = finished.history
    nan = replace(history, evaluations={**history.evaluations, "train_loss": [float("nan")] * 4})
    assert difference(nan, nan) == ""
    shorter = replace(history, updates={name: values[:-1] for name, values in history.updates.items()})
    assert difference(shorter, history) == "5 updates stored, 6 now"


def made_before(result: Result, commit: str = "0123456789ab") -> Result:
    """Return a record as it was before records carried a digest."""
    kept = {name: value for name, value in result.provenance.items() if name != "code"}
    return replace(result, provenance={**kept, "commit": commit})


def test_what_a_record_s_code_is_to_this_one(finished, tmp_path):
    own, replayed, sampled, earlier, unverified = STANDINGS
    old, like_it = made_before(finished), replace(made_before(finished), spec=short(seed=7))
    other, uncommitted = made_before(finished, "another"), made_before(finished, "0123456789ab-dirty")

    def standings() -> list[str]:
        return [Verified(tmp_path).standing(each) for each in (finished, old, like_it, other, uncommitted)]

    assert standings() == [own, *[unverified] * 4]
    enter(tmp_path, [replay(old, 0.5)])
    assert standings() == [own, replayed, sampled, unverified, unverified]
    [row] = Verified(tmp_path).rows
    assert (row.recorded, row.sample) == ("commit 0123456789ab", {old.spec.hash: 0.5})
    enter(tmp_path, [replay(old), replace(replay(other), current="of yesterday")])
    assert Verified(tmp_path).rows[0].sample == {old.spec.hash: 1.0}
    assert standings() == [own, replayed, sampled, earlier, unverified]
    enter(tmp_path, [replace(replay(old, 0.5), difference="something")])
    assert standings() == [own, unverified, unverified, earlier, unverified]


def test_how_many_records_are_verified_is_said_in_words_and_as_a_table(finished, tmp_path, monkeypatch):
    monkeypatch.setenv("FL_CORE_RESULTS", str(tmp_path))
    own = replace(finished, provenance={**finished.provenance, "commit": "0123456789ab"})
    hour = {"wall_seconds": 3600.0, "executor": "threads", "machine": "x86_64, 2 cores"}
    own = replace(own, provenance={**own.provenance, **hour})
    records = [own, made_before(finished), made_before(finished, "abc-dirty"), made_before(finished, "other")]
    enter(tmp_path, [replay(records[1], 0.5), replace(replay(records[3], 0.5), current="of yesterday")])
    said = "2 of 4 runs verified by this code, 1 only by an earlier state of it, 1 unverified"
    assert in_words(records) == said
    assert in_words(records[:2]) == "2 of 2 runs verified by this code"
    store = Store(tmp_path, tmp_path)
    for seed, record in enumerate(records):
        store.save(replace(record, spec=short(seed=seed)))
    pack(tmp_path, {short(seed=seed).hash: f"mine-fig{seed}" for seed in range(4)})
    mine, *_, everything = verify.published_records(store).to_dict("records")
    counts = dict(zip(STANDINGS, (1, 0, 1, 1, 1), strict=True))  # the run that was replayed has another seed here
    cost = {"uncommitted code": 1, "core-hours": 2.0, "MJ, estimated": 0.07}
    assert mine == {"paper": "mine", "data": "all", "records": 4, **counts, **cost}
    assert everything == {**mine, "paper": "all", "data": "real"}


def test_another_final_model_is_a_difference(finished):
    forged = replace(finished, provenance={**finished.provenance, "model_sha256": "0" * 64})
    assert replay(forged).difference.startswith(f"the final model: SHA-256 {'0' * 64} stored, ")
    assert replay(forged, 0.5).same
    assert made_by(finished.provenance) == code_digest(finished.spec)


def test_a_damaged_table_is_named(tmp_path):
    (tmp_path / verify.TABLE).write_text("[{}]")
    with pytest.raises(DataError, match=r"verified.json is damaged \(TypeError: "):
        Verified(tmp_path)


def test_a_sample_is_spread_over_algorithms(finished):
    others = [replace(finished, spec=short("fedavg", seed=seed)) for seed in range(5)]
    chosen = sample([*others, finished], 2)
    assert {each.spec.algorithm.name for each in chosen} == {"fedasync", "fedavg"}
