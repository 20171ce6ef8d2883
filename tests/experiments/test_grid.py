"""Grids: what is missing is run once, failures lose nothing else, an interrupted call can be continued."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fl_core.datasets import IID
from fl_core.errors import RunError
from fl_core.experiments import grid
from fl_core.experiments.grid import brief, execute, in_words, plan, work
from fl_core.experiments.run import Result, run
from fl_core.experiments.spec import RunSpec
from fl_core.experiments.store import Store
from fl_core.runtime import Budget, Evaluation
from fl_core.world import World


def tiny(seed: int = 0, **changes: object) -> RunSpec:
    spec = RunSpec(
        algorithm="fedasync",
        model="linear",
        partition=IID(samples_per_device=50),
        world=World(devices=10, max_staleness=2),
        budget=Budget(updates=3),
        evaluation=Evaluation(every_updates=None),
        seed=seed,
    )
    return spec.changed(**changes) if changes else spec


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "published", tmp_path / "cache")


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Seeds of the runs that were really computed."""
    seeds: list[int] = []

    def counting(spec: RunSpec, **settings: object) -> Result:
        seeds.append(spec.seed)
        return run(spec, **settings)  # type: ignore[arg-type]

    monkeypatch.setattr(grid, "run", counting)
    return seeds


def test_each_missing_run_is_computed_once_and_then_read(store: Store, counted: list[int]) -> None:
    specs = [tiny(0), tiny(1), tiny(0)]
    first = execute(specs, jobs=1, store=store, progress=False)
    assert sorted(counted) == [0, 1]
    again = execute(specs, jobs=1, store=store, progress=False)
    assert sorted(counted) == [0, 1]
    assert list(first) == list(again) == [tiny(0).hash, tiny(1).hash]
    assert all(first[key].history == again[key].history for key in first)
    execute(specs, jobs=1, store=store, progress=False, recompute=True)
    assert sorted(counted) == [0, 0, 1, 1]


def test_a_dask_cluster_gives_the_same_bits_and_names_a_failing_run(store: Store, tmp_path: Path) -> None:
    from distributed import Client

    specs, impossible = [tiny(seed) for seed in range(2)], tiny(2, **{"partition.samples_per_device": 50_000})
    here = execute(specs, jobs=1, store=store, progress=False)
    other = Store(tmp_path / "a", tmp_path / "b")
    with Client(processes=False, n_workers=2, threads_per_worker=1, dashboard_address=None) as client:
        pool = client.get_executor()
        with pytest.raises(RunError, match=f"1 of 3 runs failed .*{impossible.hash}.*need 500000 samples"):
            execute([*specs, impossible], store=other, progress=False, pool=pool)
        there = execute(specs, store=other, progress=False, pool=pool)
    assert [result.history for result in there.values()] == [result.history for result in here.values()]


def test_a_failing_run_is_named_and_the_others_are_kept(
    store: Store, monkeypatch: pytest.MonkeyPatch, counted: list[int]
) -> None:
    counting = grid.run

    def failing(spec: RunSpec, **settings: object) -> Result:
        if spec.seed == 1:
            raise RunError("the updater of fedasync failed at t = 3 s")
        return counting(spec, **settings)  # type: ignore[arg-type]

    monkeypatch.setattr(grid, "run", failing)
    specs = [tiny(seed) for seed in range(3)]
    with pytest.raises(RunError, match=r"1 of 3 runs failed .*seed 1\): RunError: the updater of fedasync"):
        execute(specs, jobs=1, store=store, progress=False)
    assert [store.has(spec) for spec in specs] == [True, False, True]


@pytest.mark.thorough
def test_a_failing_run_in_a_process_is_named_too(store: Store) -> None:
    impossible = tiny(1, **{"partition.samples_per_device": 50_000})
    with pytest.raises(RunError, match=f"1 of 2 runs failed .*{impossible.hash}.*need 500000 samples"):
        execute([tiny(0), impossible], jobs=2, store=store, progress=False)
    assert store.has(tiny(0))


def test_an_interrupted_grid_continues(store: Store, monkeypatch: pytest.MonkeyPatch, counted: list[int]) -> None:
    counting = grid.run

    def interrupted(spec: RunSpec, **settings: object) -> Result:
        if len(counted) == 2:
            raise KeyboardInterrupt
        return counting(spec, **settings)  # type: ignore[arg-type]

    specs = [tiny(seed) for seed in range(4)]
    monkeypatch.setattr(grid, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        execute(specs, jobs=1, store=store, progress=False)
    assert sum(map(store.has, specs)) == 2
    monkeypatch.setattr(grid, "run", counting)
    execute(specs, jobs=1, store=store, progress=False)
    assert sorted(counted) == [0, 1, 2, 3]


def test_a_damaged_result_is_recomputed(store: Store, counted: list[int]) -> None:
    execute([tiny()], jobs=1, store=store, progress=False)
    path = store.cache / f"{tiny().hash}.json.gz"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.warns(UserWarning, match=path.name):
        execute([tiny()], jobs=1, store=store, progress=False)
    assert counted == [0, 0]
    assert store.has(tiny())


def test_new_runs_can_be_published(store: Store) -> None:
    execute([tiny()], jobs=1, store=store, progress=False, published=True)
    assert [p.name for p in store.published.iterdir()] == [f"{tiny().hash}.json.gz"]


def test_a_plan_counts_and_estimates(store: Store) -> None:
    specs = [tiny(0), tiny(1), tiny(1)]
    before = plan(specs, store, jobs=2)
    assert (before.total, before.stored, before.missing) == (2, 0, 2)
    assert before.core_seconds > before.seconds > 0
    assert "estimate" in before.table()
    execute(specs[:1], jobs=1, store=store, progress=False)
    between = plan(specs, store, jobs=2)
    assert (between.stored, between.missing) == (1, 1)
    assert between.basis == "from 1 stored runs, perhaps of another machine"
    assert between.likely == (between.core_seconds, between.core_seconds)
    [result] = store
    for seed, seconds in ((5, 10.0), (6, 20.0), (7, 30.0)):
        made = replace(result, spec=tiny(seed), provenance={**result.provenance, "cpu_seconds": seconds})
        store.save(made)
    spread = plan(specs, store, jobs=2)
    assert spread.core_seconds == pytest.approx(15)
    assert 0 < spread.likely[0] < 10 < 20 < spread.likely[1] < 30
    assert ", likely " in spread.table()
    execute(specs, jobs=1, store=store, progress=False)
    after = plan(specs, store)
    assert (after.missing, after.core_seconds) == (0, 0)
    assert "estimate" not in after.table()


def test_a_network_without_stored_runs_is_measured_once_for_all_algorithms(store, monkeypatch) -> None:
    measured: list[RunSpec] = []
    monkeypatch.setattr(grid, "_MEASURED", {})
    monkeypatch.setattr(grid, "_measure", lambda spec: measured.append(spec) or 0.5)
    specs = [
        tiny(**{"algorithm": name, "world.max_staleness": None, "world.devices": 100})
        for name in ("fedasync", "fedbuff", "fedavg")
    ]
    first = plan(specs, store)
    assert first.core_seconds == plan(specs, store).core_seconds == pytest.approx(sum(map(work, specs)) / 2)
    assert len(measured) == 1


def test_work_counts_the_images(store: Store) -> None:
    assert work(tiny()) == pytest.approx(3 * 50 + 2 * 10_000 / 3)
    assert work(tiny(**{"budget.updates": 6})) - work(tiny()) == 3 * 50
    rounds = RunSpec(algorithm="fedavg", partition=IID(samples_per_device=500), budget=Budget(updates=4))
    iterations = rounds.changed(algorithm="sgd")
    assert work(rounds) - work(iterations) == 4 * (10 * 500 - 10 * 50)


def test_runs_and_durations_in_words() -> None:
    assert brief(tiny(3, **{"algorithm.alpha": 0.9})) == (
        f"run {tiny(3, **{'algorithm.alpha': 0.9}).hash} (fedasync(alpha=0.9), lr 0.03, seed 3)"
    )
    assert [in_words(s) for s in (0.2, 40, 600, 9000)] == ["1 s", "40 s", "10 min", "2.5 h"]
