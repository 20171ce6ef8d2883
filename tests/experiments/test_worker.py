"""Workers share a queue of runs: each is finished once, whatever happens to the workers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from filelock import FileLock

from fl_core import RunSpec
from fl_core.experiments.run import run
from fl_core.experiments.store import Store
from fl_core.experiments.worker import queue, take

QUIET = {"echo": lambda line: None}


def specs(count: int, updates: int = 6) -> list[RunSpec]:
    common = {"model": "linear", "world": {"devices": 20}, "evaluation": {"every_updates": 2, "test_samples": 200}}
    return [RunSpec(algorithm="fedasync", seed=seed, budget={"updates": updates}, **common) for seed in range(count)]


def test_what_is_missing_is_computed_and_stored_once(tmp_path):
    store, wanted, lines = Store(tmp_path / "published", tmp_path / "cache"), specs(2), []
    store.save(run(wanted[0], executor="sequential"))
    tally = take(wanted, store, echo=lines.append)
    assert (tally.done, tally.failed, tally.left, tally.stopped) == (1, (), 0, False)
    assert len(lines) == 1
    assert wanted[1].hash in lines[0]
    assert all(store.has(spec) for spec in wanted)
    assert take(wanted, store, **QUIET).done == 0


def test_a_run_that_fails_is_named_and_the_others_go_on(tmp_path):
    store = Store(tmp_path / "published", tmp_path / "cache")
    hopeless = specs(1)[0].changed(**{"world.faults": [{"kind": "lost", "probability": 1.0}], "seed": 9})
    deaf = hopeless.changed(**{"world.faults": [], "algorithm": {"name": "fedbuff", "buffer": 50, "concurrency": 5}})
    tally = take([deaf, *specs(1)], store, minutes=0.5, **QUIET)
    assert tally.done >= 1
    assert store.has(specs(1)[0])


def test_a_worker_that_runs_out_of_time_leaves_a_checkpoint_and_the_next_one_goes_on(tmp_path):
    store, [spec] = Store(tmp_path / "published", tmp_path / "cache"), specs(1, updates=2000)
    tally = take([spec], store, minutes=2 / 60, every_seconds=0.2, **QUIET)
    assert tally.stopped
    assert tally.left == 1
    assert any(store.checkpoints(spec).folder.glob("*.safetensors"))
    assert not store.has(spec)
    assert take([spec], store, **QUIET).done == 1
    resumed = store.get(spec)
    assert resumed is not None
    assert resumed.provenance["resumed"]
    assert resumed.history == replace_model(run(spec, executor="sequential").history)


def replace_model(history):
    history.model = None
    return history


def test_a_run_that_somebody_else_holds_is_left_to_them(tmp_path):
    store, [spec] = Store(tmp_path / "published", tmp_path / "cache"), specs(1)
    with FileLock(store.lease(spec)):
        assert take([spec], store, minutes=0.02, **QUIET).stopped
    assert take([spec], store, **QUIET).done == 1


def test_the_queue_has_each_missing_run_once(tmp_path):
    from fl_core.experiments.artifacts import find_artifacts, make_study

    chosen, store = find_artifacts(["sdfeel-fig2a", "sdfeel-fig2b"]), Store(tmp_path / "a", tmp_path / "b")
    found = queue(chosen, "smoke", "fashion-mnist", [1, 0], store)
    wanted = {entry.key for entry in make_study(chosen, "smoke", "fashion-mnist", [1, 0]).entries}
    assert {spec.hash for spec in found} == wanted
    assert len(found) == len(wanted)


def judged_as(*claims):
    """Return a ledger with open claims: id, seeds looked at, seeds needed, artifacts."""
    return lambda names, store, dataset: [
        SimpleNamespace(claim=name, open=True, seeds=seeds, seeds_needed=needed, artifacts=artifacts)
        for name, seeds, needed, artifacts in claims
    ]


def test_runs_go_first_that_decide_most_per_work_and_only_up_to_the_look_that_would(tmp_path, monkeypatch):
    """It took all claims of a figure for equally near to a decision, and knew no seeds beyond the profile's."""
    from fl_core.experiments import worker
    from fl_core.experiments.artifacts import find_artifacts, make_study
    from fl_core.experiments.grid import work

    chosen, store = find_artifacts(["sdfeel-fig2a", "fedluck-tab1"]), Store(tmp_path / "a", tmp_path / "b")
    ledger = judged_as(
        ("A", 3, 5, ["sdfeel-fig2a"]), ("B", 3, None, ["fedluck-tab1"]), ("C", 0, None, ["fedluck-tab1"])
    )
    monkeypatch.setattr(worker, "judged", ledger)
    found = queue(chosen, "smoke", "fashion-mnist", None, store, undecided=True)
    grids = [
        make_study(artifact, "smoke", "fashion-mnist", range(n)) for artifact, n in zip(chosen, (5, 3), strict=True)
    ]
    assert {spec.hash for spec in found} == {entry.key for grid in grids for entry in grid.entries}
    cheap, dear = sorted(grids, key=lambda grid: sum(work(spec) for spec in grid.specs))
    keys = [spec.hash for spec in found]
    assert {*keys[: len(set(cheap.specs))]} == {entry.key for entry in cheap.entries}
    assert [spec.seed for spec in found[: len(set(cheap.specs))]] == sorted(spec.seed for spec in cheap.specs)
    assert len(keys) == len(cheap.entries) + len(dear.entries)


PROGRAM = """
import sys
from pathlib import Path
sys.path.insert(0, {here!r})
from fl_core.experiments.store import Store
from fl_core.experiments.worker import take
from test_worker import specs
take(specs({count}, {updates}), Store(Path({folder!r}, "published"), Path({folder!r}, "cache")), every_seconds=0.1)
"""


@pytest.mark.thorough
def test_killed_workers_lose_no_run_and_change_no_bit(tmp_path):
    count, updates, kills = 12, 300, 20
    here = os.path.dirname(__file__)
    program = PROGRAM.format(here=here, count=count, updates=updates, folder=str(tmp_path))
    store = Store(tmp_path / "published", tmp_path / "cache")
    wanted = specs(count, updates)

    def begin() -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.DEVNULL)

    workers = [begin() for _ in range(3)]
    for kill in range(kills):
        time.sleep(4 + kill % 3)
        victim = workers[kill % 3]
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        workers[kill % 3] = begin()
        if all(store.has(spec) for spec in wanted):
            break
    for worker in workers:
        assert worker.wait(timeout=300) == 0
    for spec in wanted:
        found = store.get(spec)
        assert found is not None
        assert found.history == replace_model(run(spec, executor="sequential").history)
