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
from fl_core.errors import RunError
from fl_core.experiments.identity import code_digest, essence, is_stale, is_users
from fl_core.experiments.run import Result, run
from fl_core.experiments.store import Store
from fl_core.experiments.verify import BEFORE, Verified, difference, replay, sample

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


def test_an_algorithm_of_ones_own_that_has_changed_loses_its_stored_results_and_its_checkpoint(tmp_path):
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


def test_code_that_gave_the_same_bits_is_entered_with_the_sample_that_showed_it(finished, tmp_path):
    old = replace(finished, provenance={k: v for k, v in finished.provenance.items() if k != "code"})
    table = Verified(tmp_path)
    assert table.standing(finished) == "this code"
    assert table.standing(old) == "other code"
    table.enter([replay(old, 0.5)])
    again = Verified(tmp_path)
    assert again.standing(old) == "shown equal"
    [row] = again.rows
    assert (row.recorded, row.sample, row.part) == (BEFORE, (old.spec.hash,), 0.5)
    again.enter([replace(replay(old, 0.5), difference="something")])
    assert Verified(tmp_path).standing(old) == "other code"


def test_a_sample_is_spread_over_algorithms(finished):
    others = [replace(finished, spec=short("fedavg", seed=seed)) for seed in range(5)]
    chosen = sample([*others, finished], 2)
    assert {each.spec.algorithm.name for each in chosen} == {"fedasync", "fedavg"}
