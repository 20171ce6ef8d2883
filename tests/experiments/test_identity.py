"""A result names the code that made it; other code is noticed, and may be shown to give the same bits."""

from __future__ import annotations

import collections
import importlib
import os
import runpy
import shutil
import subprocess
import sys
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import fl_core
from fl_core import Algorithm, RunSpec, register
from fl_core.algorithms import ALGORITHMS
from fl_core.datasets import data_folder, load_dataset
from fl_core.errors import DataError, RunError
from fl_core.experiments import identity, verify
from fl_core.experiments.identity import code_digest, essence, instructions, is_stale, own_parts
from fl_core.experiments.run import Result, run
from fl_core.experiments.store import Store, pack
from fl_core.experiments.verify import STANDINGS, Verified, difference, enter, in_words, made_by, replay, sample
from fl_core.runtime import History
from fl_core.runtime.simulation import StopRun

pytestmark = pytest.mark.usefixtures("few_images")

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


def digests(module: str = "", line: str = "") -> list[str]:
    """Return those of two algorithms, if a module of fl_core had one line more."""
    text, kept = identity._text, [each for each in vars(identity).values() if hasattr(each, "cache_clear")]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(identity, "_text", lambda name: text(name) + f"\n{line}\n" * (name == f"fl_core.{module}"))
        try:
            for each in kept:
                each.cache_clear()
            return [code_digest(RunSpec(algorithm=name)) for name in ("fedasync", "fedavg")]
        finally:
            for each in kept:
                each.cache_clear()


def test_an_edited_line_changes_the_digest_of_what_uses_it_and_of_nothing_else():
    asynchronous, synchronous = now = [code_digest(RunSpec(algorithm=name)) for name in ("fedasync", "fedavg")]
    assert identity._text("fl_core.onednn") == (PACKAGE / "onednn.py").read_text()
    assert digests() == digests("algorithms.fedasync", "# a comment") == now
    edited = digests("algorithms.fedasync", "CHANGED = 1")
    assert edited[0] != asynchronous
    assert edited[1] == synchronous
    for module in ("runtime.kernel", "onednn"):  # which replaces a function of PyTorch, whoever imports it
        changed = digests(module, "CHANGED = 1")
        assert changed[0] != asynchronous
        assert changed[1] != synchronous
    assert '"networks":' in identity._source("fl_core.world.traces")  # the phones' speeds, in a table beside it


@pytest.mark.thorough
def test_codes_are_compared_beside_each_other_where_no_record_can_be_replayed(finished, tmp_path):
    """The record was made with other images here, as if by a processor that rounds otherwise."""
    old, new, results = tmp_path / "old", tmp_path / "new", tmp_path / "results"
    for place in (old, new):
        shutil.copytree(PACKAGE, place / "fl_core", ignore=shutil.ignore_patterns("__pycache__"))
    Store(results, results).save(finished)
    settings = {"FL_CORE_RESULTS": str(results), "FL_CORE_DATA": str(PACKAGE.parent / "data"), "PYTHONPATH": str(new)}

    def verified(*options: str) -> str:
        command = [sys.executable, "-P", "-m", "fl_core.cli", "verify", *options]
        done = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    method = Path("fl_core", "algorithms", "fedasync.py")
    text = (old / method).read_text()
    (new / method).write_text(f"{text}\nUNUSED = 1\n")
    assert "1 of 1 records differ" in verified()
    assert "the same, to the last bit" in verified("--beside", str(old), "--enter")
    [row] = Verified(results).rows
    assert (row.recorded, row.beside, row.sample) == (code_digest(short()), code_digest(short()), {short().hash: 1.0})
    assert row.current != row.recorded
    assert "the same, to the last bit" in verified("--beside", str(old), "--enter")  # again, with what it wrote
    (new / method).write_text(text.replace("self.alpha", "0.5 * self.alpha", 1))
    assert ", seconds " in verified("--beside", str(old))
    (old / method).write_text(f"{text}\nUNUSED = 2\n")
    assert "is not verified for what" in verified("--beside", str(old))


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
    assert own_parts(short("homemade")) == [ALGORITHMS["homemade"]]
    before = run(
        short("homemade"), executor="sequential", checkpoints=store.checkpoints(short("homemade"), every_seconds=0)
    )
    store.save(before)
    define(0.5)
    assert store.has(short("homemade"))
    define(0.6)  # in a function that the class uses, not in the class
    assert is_stale(short("homemade"), before.provenance)
    with pytest.warns(UserWarning, match="homemade, or what it uses, has changed since .* counts as missing"):
        assert not store.has(short("homemade"))
    with pytest.raises(RunError, match="was written by other code"):
        run(short("homemade"), executor="sequential", checkpoints=store.checkpoints(short("homemade")))


HELPER = """
STEPS, LIMIT = [0.5, 0.25], {"most": 3}

def weight(staleness):
    '''Say little.'''
    return min(staleness, LIMIT["most"]) + STEPS[0]
"""
PROGRAM = """
import warnings
from typing import ClassVar
import torch
from fl_core import Algorithm, RunSpec, register
from fl_core.experiments.grid import execute
import helper

def make(factor):
    @register
    class Edited(Algorithm):
        power: ClassVar = 2

        async def scheduler(self, server):
            await server.keep_busy(5)

        async def updater(self, server):
            [upload] = await server.receive()
            rate = factor ** self.power / (1 + helper.weight(upload.staleness))
            server.commit(torch.lerp(server.model, upload.model, rate))
    return Edited

make(0.5)
spec = RunSpec(algorithm="edited", model="linear", world={"devices": 9}, budget={"updates": 4},
               evaluation={"every_updates": None, "test_samples": 100}, partition="iid(samples_per_device=50)")
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    [result] = execute([spec], jobs=1, progress=False).values()
found = [result.provenance["code"], result.history.evaluations["test_loss"][-1], len(said)]
"""
EDITS = {
    "a constant in a list of a module that is imported": ("helper.py", "[0.5, ", "[0.4, "),
    "a constant in a dictionary": ("helper.py", '"most": 3', '"most": 0'),
    "a function of another module": ("helper.py", "+ STEPS", "+ 2 * STEPS"),
    "what a function has from where it was made": ("program.py", "make(0.5)", "make(0.6)"),
    "an attribute of the class": ("program.py", "ClassVar = 2", "ClassVar = 3"),
    "a line of the class": ("program.py", "/ (1 +", "/ (2 +"),
}
NOTEBOOK = """
from IPython.core.interactiveshell import InteractiveShell
shell, cell = InteractiveShell.instance(), open("program.py").read()
for text in (cell, cell.replace("/ (1 +", "/ (2 +")):
    shell.run_cell(text).raise_error()
    print(*shell.user_ns["found"])
"""


def test_an_edited_script_gets_no_old_number_without_a_word(tmp_path, monkeypatch, request):
    """Numbers that were computed with another helper, closure or list came back as if nothing had changed."""
    request.addfinalizer(lambda: ALGORITHMS.pop("edited", None))
    monkeypatch.setenv("FL_CORE_RESULTS", str(tmp_path / "results"))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(tmp_path)
    texts = {"helper.py": HELPER, "program.py": PROGRAM}

    def numbers() -> tuple[str, float, int]:
        for name, text in texts.items():
            (tmp_path / name).write_text(text)
        sys.modules.pop("helper", None)
        importlib.invalidate_caches()
        return tuple(runpy.run_path(str(tmp_path / "program.py"))["found"])

    seen = [numbers()]
    for file, old, new in EDITS.values():
        assert texts[file].count(old) == 1
        texts[file] = texts[file].replace(old, new)
        seen.append(numbers())
    codes, losses, said = zip(*seen, strict=True)
    assert len(set(codes)) == len(set(losses)) == len(EDITS) + 1
    assert said == (0, *[1] * len(EDITS))
    texts["helper.py"] = texts["helper.py"].replace("Say little.", "Say more.") + "# and a comment\n"
    assert numbers() == (*seen[-1][:2], 0)


HELD = {
    "slots": "class Held:\n  __slots__ = ('n',)\n  def __init__(self): self.n = {}\nheld = Held()",
    "a module's weights": "torch.manual_seed({})\nheld = torch.nn.Linear(2, 2)",
    "a parameter": "held = torch.nn.Parameter(torch.full([], {}.0))",
    "half precision": "held = torch.tensor({}, dtype=torch.bfloat16)",
    "a table": "held = pd.DataFrame({{'a': [{}] * 999}})",
    "a column's name": "held = pd.DataFrame({{'a{}': [0]}})",
    "an array of objects": "held = np.array([{}, 'a'], dtype=object)",
    "a method of a list": "class Held(list):\n  def n(self): return {}\nheld = Held()",
    "a default": "held = collections.defaultdict(lambda: {})",
}


@pytest.mark.parametrize("text", HELD.values(), ids=HELD)
def test_what_an_algorithm_holds_on_to_belongs_to_its_code(text, request):
    """Old numbers came back though it had changed; parameters and half precision ended the run in NumPy."""
    request.addfinalizer(lambda: ALGORITHMS.pop("holder", None))

    def digest(number: int) -> str:
        names: dict[str, Any] = {
            "torch": torch,
            "np": np,
            "pd": pd,
            "collections": collections,
            "__name__": "__main__",
        }
        method = "@register\nclass Holder(Algorithm):\n  async def updater(self, server): return held"
        exec(f"{text.format(number)}\n{method}", names | {"Algorithm": Algorithm, "register": register})
        return code_digest(RunSpec(algorithm="holder"))

    assert digest(1) == digest(1) != digest(2)


def test_an_edited_cell_of_a_notebook_gets_no_old_number_without_a_word(tmp_path):
    pytest.importorskip("IPython")
    for name, text in (("helper.py", HELPER), ("program.py", PROGRAM)):
        (tmp_path / name).write_text(text)
    environment = {**os.environ, "FL_CORE_RESULTS": str(tmp_path / "results"), "IPYTHONDIR": str(tmp_path)}
    command = [sys.executable, "-c", NOTEBOOK]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=True)
    (code, loss, said), (other, changed, warned) = map(str.split, done.stdout.splitlines())
    assert code != other
    assert loss != changed
    assert (said, warned) == ("0", "1")


def test_rounded_numbers_are_neither_taken_for_exact_ones_nor_mixed_with_them(tmp_path):
    """A record of the batched executor was "made by this code", which gives other bits."""
    spec, store = short(), Store(tmp_path, tmp_path)
    rounded = run(spec, executor="batched")
    assert made_by(rounded.provenance) == f"{code_digest(spec)} rounded"
    assert in_words([rounded]).endswith("1 computed up to rounding, by the batched executor")
    assert replay(rounded).same
    assert store.checkpoints(spec, executor="batched").folder != store.checkpoints(spec).folder


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
    own, replayed, sampled, alongside, earlier, unverified = STANDINGS
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
    enter(tmp_path, [replace(replay(old), beside="verified code")])
    assert standings() == [own, replayed, sampled, earlier, unverified]  # which says more
    enter(tmp_path, [replace(replay(old, 0.5), difference="something")])
    assert standings() == [own, unverified, unverified, earlier, unverified]
    enter(tmp_path, [replace(replay(old, 0.5), beside="verified code")])
    assert standings() == [own, alongside, alongside, earlier, unverified]
    enter(tmp_path, [replay(old, 0.5)])
    assert standings() == [own, replayed, sampled, earlier, unverified]


def test_how_many_records_are_verified_is_said_in_words_and_as_a_table(finished, tmp_path, monkeypatch):
    monkeypatch.setenv("FL_CORE_RESULTS", str(tmp_path))
    own = replace(finished, provenance={**finished.provenance, "commit": "0123456789ab"})
    hour = {"wall_seconds": 3600.0, "executor": "threads", "machine": "x86_64, 2 cores"}
    assert 0 < own.provenance.pop("cpu_seconds") <= 2 * own.provenance["wall_seconds"] + 1
    own = replace(own, provenance={**own.provenance, **hour})
    records = [own, made_before(finished), made_before(finished, "abc-dirty"), made_before(finished, "other")]
    enter(tmp_path, [replay(records[1], 0.5), replace(replay(records[3], 0.5), current="of yesterday")])
    said = "2 of 4 runs verified by this code, 1 UNVERIFIED since it has changed, 1 UNVERIFIED"
    assert in_words(records) == said
    assert in_words(records[:2]) == "2 of 2 runs verified by this code"
    store = Store(tmp_path, tmp_path)
    for seed, record in enumerate(records):
        store.save(replace(record, spec=short(seed=seed)))
    pack(tmp_path, {short(seed=seed).hash: f"mine-fig{seed}" for seed in range(4)})
    mine, *_, everything = verify.published_records(store).to_dict("records")
    counts = dict(zip(STANDINGS, (1, 0, 1, 0, 1, 1), strict=True))  # the run that was replayed has another seed here
    cost = {"uncommitted code": 1, "core-hours": 2.0, "MJ, estimated": 0.07}
    assert mine == {"paper": "mine", "data": "all", "records": 4, **counts, **cost}
    assert everything == {**mine, "paper": "all", "data": "real"}


@pytest.mark.thorough
def test_the_beginnings_of_published_records_are_those_of_this_code(monkeypatch: pytest.MonkeyPatch):
    """A sample of all algorithms: bit for bit where the record is exact and of this instruction set, else rounded."""
    monkeypatch.setattr("fl_core.experiments.spec.load_dataset", load_dataset)  # all images
    records = Store(data_folder() / "results", data_folder() / "results")
    chosen = sample([result for result in verify.at_hand(records) if result.provenance["data"] == "real"], 24)
    assert len({result.spec.algorithm.name for result in chosen}) >= 10
    for result in chosen:
        if verify.is_exact(result.provenance) and result.provenance.get("instructions") == instructions():
            assert replay(result, 2 / result.provenance["wall_seconds"]).same, result.spec.hash
            continue
        before, after = result.history, beginning(result)
        for table in ("evaluations", "updates"):
            for column in getattr(before, table).keys() & getattr(after, table).keys():
                pairs = list(zip(*(getattr(each, table)[column][:2] for each in (before, after)), strict=False))
                rounded = column.startswith(("loss", "train", "test", "norm"))
                # Rounding grows from step to step, so a loss may differ by the twentieth of what it began with.
                for was, now in pairs:
                    near = 0.05 * abs(pairs[0][0]) if rounded else 1e-9
                    assert now == pytest.approx(was, rel=0.05 if rounded else 1e-9, abs=near, nan_ok=True), column


def beginning(stored: Result) -> History:
    """Return the run again as far as its second evaluation."""
    simulation = stored.spec.simulation()

    def stop(used: float) -> None:
        if len(simulation.history.evaluations["version"]) > 1:
            raise StopRun

    return simulation.run("sequential", progress=stop)


def test_a_replay_of_other_instructions_says_so(finished):
    forged = replace(deepcopy(finished), provenance=finished.provenance | {"instructions": "z80"})
    assert replay(forged).same
    forged.history.evaluations["test_loss"][1] += 1.0
    said = f"; made with instructions z80, replayed with {instructions()}, which round otherwise"
    assert replay(forged).difference.endswith(said)
    forged.provenance.update(numbers="rounded", machine="a GPU")
    assert replay(forged).difference.endswith("; made up to rounding, on a GPU")


def test_a_replay_of_next_to_nothing_compares_what_the_algorithm_did(finished):
    """It compared the initial model's evaluation, which all code has, and called the records of a code verified."""
    evaluations = {name: list(values) for name, values in finished.history.evaluations.items()}
    evaluations["test_loss"][1] += 1e-9
    without = {name: [] for name in finished.history.updates}
    forged = replace(finished, history=replace(finished.history, evaluations=evaluations, updates=without))
    found = replay(forged, 1e-9)
    assert found.difference.startswith("test_loss in row 1 of the evaluations (version 2")
    assert 2 / 6 <= found.part < 1
    assert replay(finished, 1e-9).part <= 2 / 6


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


def test_results_that_wait_to_be_committed_do_not_make_the_code_uncommitted(tmp_path, monkeypatch):
    """The second row that ``verify --enter`` wrote called the code of its own commit uncommitted."""
    from fl_core.experiments import run as module

    source, kept = tmp_path / "fl_core" / "run.py", tmp_path / "data" / "results" / "verified.json"
    for path in (source, kept):
        path.parent.mkdir(parents=True)
        path.write_text("1\n")
    ready = ["init -q", "add .", "-c user.name=a -c user.email=b commit -qm 1"]
    for command in ready:
        subprocess.run(["git", *command.split()], cwd=tmp_path, check=True)
    monkeypatch.setattr(module, "__file__", str(source))
    named = module.commit.__wrapped__()
    assert len(named) == 12
    kept.write_text("2\n")
    (tmp_path / "scratch.py").write_text("1\n")
    assert module.commit.__wrapped__() == named
    paper = tmp_path / "notebooks" / "fl_papers" / "sixth" / "experiment.py"
    paper.parent.mkdir(parents=True)
    paper.write_text("1\n")
    assert module.commit.__wrapped__() == f"{named}-dirty"
    paper.unlink()
    assert module.commit.__wrapped__() == named
    source.write_text("2\n")
    assert module.commit.__wrapped__() == f"{named}-dirty"
