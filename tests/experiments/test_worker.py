"""Workers share a queue of runs: each is finished once, whatever happens to the workers."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from commands import call
from few_images import first
from filelock import FileLock

from fl_core import RunSpec
from fl_core.errors import SpecError
from fl_core.experiments.run import run
from fl_core.experiments.store import Store
from fl_core.experiments.worker import queue, take
from fl_core.runtime import Simulation

QUIET = {"echo": lambda line: None}


def specs(count: int, updates: int = 6) -> list[RunSpec]:
    common = {"model": "linear", "world": {"devices": 20}, "evaluation": {"every_updates": 2, "test_samples": 200}}
    return [RunSpec(algorithm="fedasync", seed=seed, budget={"updates": updates}, **common) for seed in range(count)]


def simulations() -> int:
    return sum(type(each) is Simulation for each in gc.get_objects())


def time_is_up_when_written(monkeypatch, store, wanted, executor="sequential"):
    """Give a worker time until each run has a checkpoint, however fast the machine is."""
    folders = [store.checkpoints(spec, executor=executor).folder for spec in wanted]
    now = SimpleNamespace(monotonic=lambda: 99.0 * all(any(each.glob("*.safetensors")) for each in folders))
    monkeypatch.setattr("fl_core.experiments.worker.time", now)
    return {"minutes": 1, "every_seconds": 0.05, "executor": executor, **QUIET}


@pytest.mark.usefixtures("few_images_here")
def test_what_is_missing_is_computed_and_stored_once(tmp_path):
    store, wanted, lines = Store(tmp_path / "published", tmp_path / "cache"), specs(2), []
    store.save(run(wanted[0], executor="sequential"))
    tally = take(wanted, store, echo=lines.append)
    assert (tally.done, tally.failed, tally.left, tally.stopped) == (1, (), 0, False)
    assert [wanted[1].hash in line for line in lines] == [True]
    assert all(store.has(spec) for spec in wanted)
    assert take(wanted, store, **QUIET).done == 0


@pytest.mark.usefixtures("few_images_here")
@pytest.mark.parametrize("how", [{}, {"executor": "batched", "together": 2}], ids=["alone", "together"])
def test_what_a_run_needed_is_given_back_before_the_next(tmp_path, how):
    """Each kept its simulation once, some 40 MB: a worker grew without end."""
    gc.collect()
    before = simulations()  # of other tests
    take(specs(5), Store(tmp_path, tmp_path), **QUIET, **how)
    assert simulations() <= before  # five more, when each was kept


@pytest.mark.usefixtures("few_images_here")
@pytest.mark.filterwarnings("error:the batched executor computes jobs one by one")
def test_runs_are_computed_together_and_each_gives_what_it_gives_alone(tmp_path):
    store, alone, wanted, lines = *(Store(tmp_path / n, tmp_path / n) for n in "ab"), specs(5), []
    tally = take(wanted, store, echo=lines.append, executor="batched", together=3)
    assert (tally.done, tally.failed, tally.left, tally.stopped, len(lines)) == (5, (), 0, False, 5)
    take(wanted, alone, executor="batched", **QUIET)
    for spec in wanted:
        one, other = store.get(spec), alone.get(spec)
        assert one.provenance["together"] == 3
        assert one.provenance["numbers"] == "rounded"
        assert one.history.updates["device"] == other.history.updates["device"]
        assert one.history.evaluations["test_loss"] == pytest.approx(other.history.evaluations["test_loss"], rel=1e-4)


@pytest.mark.usefixtures("few_images_here")
def test_runs_that_are_computed_together_stop_in_time_and_none_falls_back_for_its_checkpoint(tmp_path, monkeypatch):
    """A checkpoint asks for evaluations, in which no other run takes part."""
    first("fashion-mnist", False)  # once, not by each thread
    store, wanted = Store(tmp_path / "published", tmp_path / "cache"), specs(2, updates=3000)
    tally = take(wanted, store, together=2, **time_is_up_when_written(monkeypatch, store, wanted, "batched"))
    assert (tally.stopped, tally.left, tally.done) == (True, 2, 0)


@pytest.mark.usefixtures("few_images_here")
def test_a_run_that_fails_is_named_and_the_others_go_on(tmp_path):
    store, [good], lines = Store(tmp_path / "published", tmp_path / "cache"), specs(1), []
    greedy = good.changed(**{"partition.samples_per_device": 50_000})
    tally = take([greedy, good], store, echo=lines.append)
    [failed] = tally.failed
    assert failed.startswith(f"run {greedy.hash} ")
    assert "need 1000000 samples" in failed
    assert lines[0] == f"failed: {failed}"
    assert (tally.done, tally.left, store.has(good)) == (1, 0, True)


@pytest.mark.usefixtures("few_images_here")
def test_a_worker_that_runs_out_of_time_leaves_a_checkpoint_and_the_next_one_goes_on(tmp_path, monkeypatch):
    store, [spec] = Store(tmp_path / "published", tmp_path / "cache"), specs(1, updates=400)
    tally = take([spec], store, **time_is_up_when_written(monkeypatch, store, [spec]))
    assert (tally.stopped, tally.left, store.has(spec)) == (True, 1, False)
    assert take([spec], store, **QUIET).done == 1
    resumed = store.get(spec)
    assert resumed is not None
    assert resumed.provenance["resumed"]
    assert resumed.history == replace_model(run(spec, executor="sequential").history)


@pytest.mark.usefixtures("few_images_here")
def test_on_an_accelerator_a_cut_off_run_goes_on_and_its_record_says_that_it_is_rounded(tmp_path, monkeypatch):
    store, [spec] = Store(tmp_path / "published", tmp_path / "cache"), specs(1, updates=400)
    assert take([spec], store, **time_is_up_when_written(monkeypatch, store, [spec], "batched")).stopped
    assert take([spec], store, executor="batched", **QUIET).done == 1
    assert {"resumed": True, "numbers": "rounded"}.items() <= store.get(spec).provenance.items()


def test_what_waits_for_an_accelerator_takes_a_core_too_long(tmp_path, monkeypatch):
    from fl_core.experiments import worker
    from fl_core.experiments.artifacts import find_artifacts, make_study

    chosen, store = find_artifacts(["sdfeel-fig2a"]), Store(tmp_path / "a", tmp_path / "b")
    monkeypatch.setattr(worker, "is_present", lambda name: name == "fashion-mnist")
    every = make_study(chosen, "paper", "fashion-mnist", [1, 0]).specs
    costs = {spec.hash: number for number, spec in enumerate(every, 1)}
    monkeypatch.setattr(worker, "seconds", lambda specs, store, measure: costs)
    monkeypatch.setattr(worker, "HEAVY_SECONDS", 2)
    found = worker.heavy(chosen, [1, 0], store)
    assert {spec.hash for spec in found} == {key for key, cost in costs.items() if cost > 2}
    assert found == sorted(found, key=lambda spec: (spec.seed, costs[spec.hash]))


def replace_model(history):
    history.model = None
    return history


@pytest.mark.usefixtures("few_images_here")
def test_a_run_that_somebody_else_holds_is_left_to_them(tmp_path, monkeypatch):
    monkeypatch.setattr("fl_core.experiments.worker.POLL_SECONDS", 0.05)
    store, [spec] = Store(tmp_path / "published", tmp_path / "cache"), specs(1)
    with FileLock(store.lease(spec)):
        assert take([spec], store, minutes=0.002, **QUIET).stopped
    assert take([spec], store, **QUIET).done == 1


def test_the_queue_has_each_missing_run_once(tmp_path):
    from fl_core.experiments.artifacts import find_artifacts, make_study

    chosen, store = find_artifacts(["sdfeel-fig2a", "sdfeel-fig2b"]), Store(tmp_path / "a", tmp_path / "b")
    found = queue(chosen, "smoke", "fashion-mnist", [1, 0], store)
    wanted = {entry.key for entry in make_study(chosen, "smoke", "fashion-mnist", [1, 0]).entries}
    assert sorted(spec.hash for spec in found) == sorted(wanted)


def judged_as(*claims, odds=0.81):
    """Return a ledger with open claims: id, seeds looked at and to look at, artifacts, and the runs that are read."""
    shared = {"open": True, "label": "undecided", "budget": "smoke", "odds": lambda look: look and odds}
    return lambda names, store, dataset: [
        SimpleNamespace(
            claim=SimpleNamespace(id=name), seeds=seeds, next_look=look, artifacts=of, runs=runs, **shared
        )
        for name, seeds, look, of, *runs in claims
        if len(names) != 1 or name in names
    ]


def test_runs_go_first_that_decide_most_per_work_and_only_up_to_the_look_that_would(tmp_path, monkeypatch):
    """It took all claims of a figure for equally near to a decision, and knew no seeds beyond the profile's."""
    from fl_core.experiments import grid, worker
    from fl_core.experiments.artifacts import find_artifacts, make_study

    chosen, store = find_artifacts(["sdfeel-fig2a", "fedluck-tab1"]), Store(tmp_path / "a", tmp_path / "b")
    mine = min(chosen[0].claims)
    ledger = judged_as(
        (mine, 3, 5, ["sdfeel-fig2a"]), ("FEDLUCK-C08", 3, None, ["fedluck-tab1"]), ("C", 0, None, ["fedluck-tab1"])
    )
    monkeypatch.setattr(worker, "judged", ledger)
    found = queue(chosen, "smoke", "fashion-mnist", None, store, undecided=True)
    grids = [
        make_study(artifact, "smoke", "fashion-mnist", range(n)) for artifact, n in zip(chosen, (5, 3), strict=True)
    ]
    assert {spec.hash for spec in found} == {entry.key for each in grids for entry in each.entries}
    cheap, dear = sorted(grids, key=lambda each: sum(grid.seconds(each.specs, store).values()))
    keys = [spec.hash for spec in found]
    assert {*keys[: len(set(cheap.specs))]} == {entry.key for entry in cheap.entries}
    assert [spec.seed for spec in found[: len(set(cheap.specs))]] == sorted(spec.seed for spec in cheap.specs)
    assert len(keys) == len(cheap.entries) + len(dear.entries)
    unlikely = judged_as((mine, 3, 5, ["sdfeel-fig2a"]), ("C", 0, None, ["fedluck-tab1"]), odds=1e-9)
    monkeypatch.setattr(worker, "judged", unlikely)
    last = queue(chosen, "smoke", "fashion-mnist", None, store, undecided=True)[-len(set(grids[0].specs)) :]
    assert {spec.hash for spec in last} == {entry.key for entry in grids[0].entries}, "hardly a chance"
    monkeypatch.setattr(worker, "judged", ledger)
    slow = next(spec.model for spec in cheap.specs)
    monkeypatch.setattr(grid, "_speeds", lambda *_: {(slow, ""): [1e9]})
    keys = [spec.hash for spec in queue(chosen, "smoke", "fashion-mnist", None, store, undecided=True)]
    assert {*keys[: len(set(dear.specs))]} == {entry.key for entry in dear.entries}, "a minute counts, not an image"
    only = queue(chosen, "smoke", "fashion-mnist", None, store, only=[mine])
    assert {spec.hash for spec in only} == {entry.key for entry in grids[0].entries}
    assert {spec.seed for spec in queue(chosen, "smoke", "fashion-mnist", [7], store, only=["FEDLUCK-C08"])} == {7}
    with pytest.raises(SpecError, match="unknown claim 'Z'"):
        queue(chosen, "smoke", "fashion-mnist", None, store, only=["Z"])


def test_the_plan_of_open_claims_says_what_each_lacks_at_the_budget_that_it_is_judged_at(tmp_path, monkeypatch):
    from fl_core.experiments import worker
    from fl_core.experiments.artifacts import find_artifacts, make_study

    names = ["sdfeel-fig2a", "sdfeel-fig2b"]
    ledger = judged_as(("A", 3, 5, names[:1]), ("B", 3, 10, names), ("C", 3, None, names))
    monkeypatch.setattr(worker, "judged", ledger)
    monkeypatch.setenv("FL_CORE_RESULTS", str(tmp_path))
    need = {look: {entry.key for entry in make_study(find_artifacts(names), "smoke", seeds=range(look)).entries}
            for look in (5, 10)}  # fmt: skip
    head, one, two, _, others, *_, runs, _, missing, cost = call("plan", *names, "--undecided").splitlines()
    assert head.split()[:6] == ["claim", "label", "budget", "seeds", "look", "chance"]
    assert one.split()[:7] == ["A", "undecided", "smoke", "3", "5", "81%", str(len(need[5]))]
    assert two.split()[:7] == ["B", "undecided", "smoke", "3", "10", "81%", str(len(need[10]))]
    assert others.startswith("open as well, hardly decided by seeds: 1 (")
    assert runs.split() == ["runs", str(len(need[10]))], "what A and B share is counted once"
    assert missing.split() == ["missing", str(len(need[10]))]
    assert cost.startswith("estimate ")


def test_a_claim_needs_of_a_figure_only_the_settings_that_it_reads(tmp_path, monkeypatch):
    """One that reads 3 of 33 settings was said to cost eleven times as much, and was never run."""
    from fl_core.experiments import worker
    from fl_core.experiments.artifacts import find_artifacts, make_study

    class Half(Store):
        def get(self, spec):
            return spec.hash in stored or None

    chosen, by_setting = find_artifacts(["sdfeel-fig2a"]), {}
    for entry in make_study(chosen, "smoke", "fashion-mnist", range(5)).entries:
        by_setting.setdefault(str(entry.labels | {"seed": None}), {})[entry.labels["seed"]] = entry.key
    read, *others, without_runs = by_setting.values()
    assert others
    stored = {setting[seed] for setting in (read, *others) for seed in range(3)}
    ledger = judged_as(("A", 3, 5, ["sdfeel-fig2a"], *(read[seed] for seed in range(3))))
    monkeypatch.setattr(worker, "judged", ledger)
    store = Half(tmp_path / "a", tmp_path / "b")
    found = queue(chosen, None, "fashion-mnist", None, store, undecided=True)
    assert {spec.hash for spec in found} == {read[3], read[4], *without_runs.values()}
    found = queue(chosen, None, "fashion-mnist", [4], store, undecided=True)
    assert {spec.hash for spec in found} == {read[4], without_runs[4]}, "also at seeds that are asked for"
    monkeypatch.setattr(worker, "judged", judged_as(("A", 2, 5, ["sdfeel-fig2a"])))
    found = queue(chosen, None, "fashion-mnist", None, store, undecided=True)
    every = {key for setting in by_setting.values() for key in setting.values()}
    assert {spec.hash for spec in found} == every - stored, "what is not judged at all needs all"


KILLS = 100
WORKERS = 3
RUNS = 12
UPDATES = 100
NURSERY = """
import os, signal, sys
from pathlib import Path
sys.path[:0] = [{here!r}, {here!r} + "/../support"]
from fl_core.datasets import load_dataset
from fl_core.experiments.store import Store
from fl_core.experiments.worker import take
from test_worker import RUNS, UPDATES, specs
load_dataset("fashion-mnist")
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
store, log = Store(Path({folder!r}, "published"), Path({folder!r}, "cache")), open({folder!r} + "/log", "a", 1)
for line in sys.stdin:  # a worker for each line: to fork one is quicker than to import PyTorch again
    worker = os.fork()
    if not worker:
        try:
            take(specs(RUNS, UPDATES), store, every_seconds=0.1, echo=lambda line: log.write(line + chr(10)))
        finally:
            os._exit(0)
    print(worker, flush=True)
"""


@pytest.mark.thorough
def test_killed_workers_lose_no_run_and_change_no_bit(tmp_path):
    program = NURSERY.format(here=os.path.dirname(__file__), folder=str(tmp_path))
    store, wanted = Store(tmp_path / "published", tmp_path / "cache"), specs(RUNS, UPDATES)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    moments, struck = random.Random(0), 0
    with subprocess.Popen([sys.executable, "-c", program], **pipes) as nursery:

        def begin() -> int:
            nursery.stdin.write("\n")
            nursery.stdin.flush()
            return int(nursery.stdout.readline())

        workers = [begin() for _ in range(WORKERS)]
        while struck < KILLS:
            time.sleep(moments.uniform(0.05, 0.35))
            with contextlib.suppress(ProcessLookupError):
                os.kill(workers[struck % WORKERS], signal.SIGKILL)
            struck += 1
            workers[struck % WORKERS - 1] = begin()
        assert not all(store.has(spec) for spec in wanted), "all was finished before the last kill"
        by = time.monotonic() + 240
        while not all(store.has(spec) for spec in wanted):
            assert time.monotonic() < by
            time.sleep(0.5)
        nursery.stdin.close()
    finished = [line.split()[1] for line in (tmp_path / "log").read_text().splitlines()]
    assert len(finished) == len(set(finished)) > 0
    for spec in wanted:
        with FileLock(store.lease(spec), blocking=False):
            found = store.get(spec)
        assert found is not None
        assert found.history == replace_model(run(spec, executor="sequential").history)
    assert not list((tmp_path / "cache").rglob("*.safetensors"))
