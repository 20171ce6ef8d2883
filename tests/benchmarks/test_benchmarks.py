"""Benchmarks run, report everything and compare like with like; what they measure is no matter of a test."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from commands import invoke

from fl_core.benchmarks import (
    PARTS,
    Effort,
    circumstances,
    find_parts,
    harness,
    measure,
    part_text,
    published,
    runtime,
    throughput,
)
from fl_core.benchmarks.harness import (
    SHARES,
    Outcome,
    Part,
    Row,
    Target,
    compare,
    part_table,
    plot_memory,
    plot_shares,
    read_report,
    tried_table,
)  # fmt: skip
from fl_core.benchmarks.throughput import Floor, Plain, Workload
from fl_core.cli import doctor
from fl_core.datasets import PARTITIONS, all_surrogates
from fl_core.errors import DataError, RunError
from fl_core.runtime import Budget, Simulation
from fl_core.runtime.local import TrainJob
from fl_core.world import World

QUICK = Effort(quick=True)
NAMES = [
    *("reference", "synchronous", "overhead", "small", "kernel", "memory"),
    *("kasync", "clusters", "scaling", "batched", "blocks", "limit", "data", "formulas"),
]


def test_the_reference_workload_is_what_it_is_said_to_be():
    spec = throughput.reference_spec(300)
    assert (spec.dataset, spec.model, spec.world.devices, spec.partition.kind) == (
        *("fashion-mnist", "lenet5", 100, "iid"),
    )
    assert (spec.algorithm.name, spec.algorithm.alpha, spec.algorithm.concurrency) == ("fedasync", 0.6, 10)
    assert spec.algorithm.weight.kind == "constant"
    assert (spec.training.lr, spec.training.batch_size, spec.training.epochs) == (0.03, 50, 1)
    assert (spec.budget.updates, spec.evaluation.every_updates, spec.evaluation.train_samples) == (300, 100, 0)
    task = spec.task()
    assert {task.num_samples(device) for device in range(100)} == {600}
    assert task.dimension == runtime.LENET5 == 61_706


def test_all_parts_are_registered_and_the_help_names_them():
    assert list(PARTS) == NAMES == list(doctor.PARTS)
    assert [part.name for part in find_parts([])] == NAMES
    assert [part.name for part in find_parts(["limit", "kernel", "limit"])] == ["limit", "kernel"]


def test_targets_are_the_promised_ones():
    promised = {
        (part.name, target.quantity, target.size): str(target) for part in PARTS.values() for target in part.targets
    }
    data = {key: promised.pop(key) for key in list(promised) if key[0] == "data"}
    assert data.pop(("data", "fashion-mnist: ready", None)) == "≤ 1.5"
    assert {target for (_, quantity, _), target in data.items() if quantity.startswith("partition ")} == {"≤ 1"}
    assert {target for (_, quantity, _), target in data.items() if quantity.endswith(": generated")} == {"≤ 60"}
    assert {target for (_, quantity, _), target in data.items() if quantity.endswith(": read")} == {"≤ 2"}
    assert len(data) == len(PARTITIONS) + 2 * len(all_surrogates())
    assert promised == {
        ("reference", "ratio", None): "≥ 2",
        ("small", "ratio", None): "≥ 1.95",
        ("small", "ratio, 1 thread", None): "≥ 1.05",
        ("batched", "over a loop there", 1): "≥ 60",
        ("batched", "part of the accelerator's rate", 1): "≥ 25",
        ("overhead", "overhead", 50): "≤ 5",
        ("overhead", "overhead", 10): "≤ 12",
        ("kernel", "events, device programs", None): "≥ 270,000",
        ("memory", "idle: peak memory", 1_000_000): "≤ 1,536",
        ("memory", "idle: set-up", 1_000_000): "≤ 20",
        ("memory", "busy: peak memory", 3000): "≤ 943",
        ("memory", "worker: peak memory", None): "≤ 500",
        ("memory", "worker: start of a run", None): "≤ 0.3",
        ("kasync", "ratio", 3000): "≥ 0.9",
        ("kasync", "peak memory", 3000): "≤ 900",
        ("clusters", "600 devices against 30: mini-batch", None): "≤ 1.1",
        ("formulas", "exact plan", 100_000): "≤ 5",
        ("formulas", "top-k", 11_000_000): "≤ 0.5",
    }


@pytest.fixture(scope="module")
def quick() -> dict[str, dict]:
    """Quick reports of one part each, with a network that costs nothing and without processes of their own."""
    spec, before = throughput.reference_spec, torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        for module in (throughput,):
            patch.setattr(module, "reference_spec", lambda updates: spec(updates).changed(model="linear"))
        patch.setattr(runtime, "probe", lambda kind, devices, _: getattr(runtime, kind)(min(devices, 100), 3))
        reports = {name: measure([name], QUICK) for name in NAMES}
    assert torch.get_num_threads() == before
    return reports


@pytest.mark.parametrize("name", NAMES)
def test_a_quick_run_reports_everything_in_finite_numbers(quick, name):
    report = quick[name]
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    assert report["machine"]["cores"] >= 1
    assert report["machine"]["versions"]["torch"]
    assert report["effort"] == {"quick": True, "repetitions": 1, "threads": 2}
    assert report["commit"]
    assert report["date"].startswith("20")
    [(key, part)] = report["parts"].items()
    assert (key, part["name"], part["sentence"]) == (name, name, PARTS[name].sentence)
    assert part["seconds"] >= 0
    assert part["load"] >= 0
    assert part["rows"]
    for row in part["rows"]:
        assert all(math.isfinite(value) for value in row["values"])
        assert row["low"] <= row["median"] <= row["high"]
    large = (10**6, 3000) if name in ("memory", "kasync") else ()
    targets = PARTS[name].targets if name != "batched" or torch.cuda.is_available() else ()  # those of an accelerator
    goals = {(target.quantity, target.size) for target in targets if target.size not in large}
    assert {(r["quantity"], r["size"]) for r in part["rows"] if r["target"]} == goals
    text = part_text(part)
    assert text.startswith(f"{name}: ")
    assert all(row["quantity"] in text and row["unit"] in text for row in part["rows"])


def test_both_sides_train_on_the_same_mini_batches():
    """With one device in flight and full weight, a run is plain SGD: the loop over its batches gives its model."""
    spec = throughput.reference_spec(3).changed(**{"algorithm.alpha": 1.0, "algorithm.concurrency": 1})
    work = Workload(spec, test_samples=50)
    _, history = work.simulate("sequential")
    loops = []

    class Kept(Floor):
        def __init__(self, task, lr):
            super().__init__(task, lr)
            self.flat.load(task.initial_model(spec.seed))
            loops.append(self)

    watch = work.loop(Kept)
    assert history.model is not None
    assert torch.equal(loops[0].flat.vector, history.model)
    assert set(watch.laps) == {"evaluation", "gather", "forward", "backward", "step"}
    assert 0 < sum(watch.laps.values()) <= watch.cpu * 1.01


def load(network: torch.nn.Module, vector: torch.Tensor) -> None:
    """Copy `vector` into the parameters, wherever they lie."""
    with torch.no_grad():
        for parameter in network.parameters():
            part, vector = vector[: parameter.numel()], vector[parameter.numel() :]
            parameter.copy_(part.view_as(parameter))


@pytest.mark.parametrize(("model", "batches"), [("linear", None), ("lenet5", 1)])
def test_the_plain_loop_and_the_floor_do_the_same_mathematics(model, batches):
    """Where a network has kinks, one batch: from then on a tie of pixels may end otherwise in another layout."""
    work = Workload(throughput.reference_spec(2).changed(model=model), test_samples=50)
    work.batches = work.batches[:batches]
    start = work.task.initial_model(0)
    ends = []
    for kind in (Floor, Plain):

        class Kept(kind):
            def __init__(self, task, lr):
                super().__init__(task, lr)
                load(self.network, start)
                ends.append(self.network)

        work.loop(Kept)
    vectors = [torch.nn.utils.parameters_to_vector(network.parameters()) for network in ends]
    torch.testing.assert_close(*vectors)
    assert not torch.allclose(vectors[0], start)


@pytest.mark.parametrize("algorithm", [{"name": "fedasync", "concurrency": 10}, {"name": "fedavg"}])
def test_the_batches_are_those_of_the_updates_and_complete(algorithm):
    updates = {"fedasync": 20, "fedavg": 2}[algorithm["name"]]
    spec = throughput.reference_spec(updates).changed(algorithm=algorithm, model="linear")
    work = Workload(spec, test_samples=50)
    _, history = work.simulate("threads", 2)
    devices = history.updates["device"]
    assert len(devices) == 20
    assert len(work.batches) == 20 * 12
    assert work.samples == 20 * 600
    assert work.evaluations == len(history.evaluations["version"])
    tasks = [torch.cat(work.batches[first : first + 12]).sort().values for first in range(0, 240, 12)]
    trained = sorted(tuple(task.tolist()) for task in tasks)
    assert trained == sorted(tuple(work.task.indices(device).sort().values.tolist()) for device in devices)


def test_a_process_of_its_own_measures_memory_and_set_up():
    found = runtime.probe("idle", 50, 5)
    assert found["peak"] >= found["before"] > 50 * 2**20
    assert found["setup"] > 0


def test_a_failing_measurement_process_is_an_error_with_its_last_words(tmp_path: Path, monkeypatch):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho Traceback >&2\necho 'MemoryError: too many' >&2\nexit 1\n")
    python.chmod(0o755)
    monkeypatch.setattr(runtime.sys, "executable", str(python))
    with pytest.raises(RunError, match="with 1 devices failed: MemoryError: too many$"):
        runtime.probe("idle", 1, 1)


def test_training_is_free_only_inside():
    before = TrainJob.run
    with runtime.free_training(runtime.Free()):
        assert TrainJob.run is not before
    assert TrainJob.run is before


@pytest.mark.parametrize("algorithm", [runtime.Minimal(concurrency=5), runtime.FedAsync(concurrency=5)])
def test_every_update_of_the_kernel_part_has_three_events(algorithm):
    task = runtime.Free()
    world = World(devices=20, network=runtime.LINK)
    with runtime.free_training(task):
        history = Simulation(task, world, algorithm, budget=Budget(updates=40), trace=True).run()
    spans = history.span_frame()
    finished = spans[spans["activity"] == "upload"]["task"]
    assert len(history.updates["device"]) == 40 <= len(finished)
    activities = spans[spans["task"].isin(finished)].groupby("task")["activity"].apply(list)
    assert all(activity == ["download", "train", "upload"] for activity in activities)


def test_first_arrivals_commits_the_mean_of_ten_and_keeps_everybody_busy():
    task = runtime.Free(3)
    world = World(devices=30)
    with runtime.free_training(task):
        simulation = Simulation(task, world, runtime.FirstArrivals(), budget=Budget(updates=9))
        history = simulation.run()
    versions = history.update_frame().groupby("version")["device"].agg(["size", "nunique"])
    assert (versions["size"] == 10).all()
    assert (versions["nunique"] == 10).all()
    assert history.evaluations["models_sent"][-1] >= 30 + 8 * 10
    assert history.model.tolist() == [0, 0, 0]


def test_sides_alternate_and_change_places():
    calls: list[str] = []
    sides = {name: lambda name=name: calls.append(name) or len(calls) for name in ("a", "b")}
    assert harness.alternate(sides, 3) == {"a": [1, 4, 5], "b": [2, 3, 6]}
    assert calls == ["a", "b", "b", "a", "a", "b"]


def test_runs_that_differ_are_no_benchmark(monkeypatch: pytest.MonkeyPatch):
    work = Workload(throughput.reference_spec(2).changed(model="linear"), test_samples=50)
    other = Workload(work.spec.changed(seed=1), test_samples=50)
    sides = {"one": ("sequential", None), "bare": Plain, "two": ("threads", 2)}
    assert {name: len(watches) for name, watches in work.race(sides, 2).items()} == {"one": 2, "bare": 2, "two": 2}
    simulate = Workload.simulate
    monkeypatch.setattr(work, "simulate", lambda *side: simulate(other if side[0] == "threads" else work, *side))
    with pytest.raises(RunError, match="different histories"):
        work.race(sides, 1)


def made(*values: float, size: int | None = None, note: str = "") -> dict:
    """A report of one part with a target of at least 2."""
    part = Part("speed", "How fast.", lambda effort: Outcome([]), (Target("ratio", ">=", 2, size),), "threads")
    outcome = Outcome([Row("ratio", "×", values, size), Row("rate", "events/s", [12345.6])] if values else [], note)
    return {"parts": {"speed": part.report(outcome, load=0.5, seconds=1.0)}}


def test_a_report_has_median_range_and_verdict():
    ratio, rate = made(1.8, 2.5, 2.1)["parts"]["speed"]["rows"]
    assert (ratio["median"], ratio["low"], ratio["high"]) == (2.1, 1.8, 2.5)
    assert (ratio["target"], ratio["reached"]) == ("≥ 2", True)
    assert (rate["target"], rate["reached"]) == (None, None)
    assert made(1.9)["parts"]["speed"]["rows"][0]["reached"] is False


def test_the_text_of_a_part_is_a_table():
    title, head, ratio, rate, note, time = part_text(made(1.8, 2.5, 2.1, size=4, note="Yes.")["parts"]["speed"])[
        :-1
    ].splitlines()
    assert title == "speed: How fast."
    assert head.split() == ["median", "range", "unit", "target"]
    assert ratio.split() == ["ratio,", "threads", "=", "4", "2.10", "1.80", "to", "2.50", "×", "≥", "2", "reached"]
    assert rate.split() == ["rate", "12,346", "events/s"]
    assert (note, time) == ("  Yes.", "  measured in 1 s, load average 0.5 when it began")


def test_reports_are_compared_side_by_side():
    frame = compare("speed", {"here": made(1.5), "laptop": made(1.8, 2.5, 2.1), "old": {"parts": {}}})
    assert list(frame.columns) == ["quantity", "unit", "target", "here", "laptop"]
    assert frame.iloc[0].tolist() == ["ratio", "×", "≥ 2", "1.50", "2.10 (1.80 to 2.50)"]
    different = compare("speed", {"here": made(1.5, size=2), "laptop": made(1.8, size=4)})
    assert different["quantity"].tolist() == ["ratio, threads = 2", "ratio, threads = 4", "rate"]
    assert different["laptop"].isna().tolist() == [True, False, False]


def test_records_are_read_from_the_data_folder_and_damaged_ones_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("FL_CORE_DATA", str(tmp_path))
    assert published() == {}
    (tmp_path / "benchmarks").mkdir()
    path = tmp_path / "benchmarks" / "mine.json"
    path.write_text('{"format": 1, "parts": {}}')
    assert published() == {"mine": {"format": 1, "parts": {}}}
    for content, says in (("{", "cannot be read"), ("[]", "cannot be read"), ('{"format": 9}', "has format 9")):
        path.write_text(content)
        with pytest.raises(DataError, match=f"mine.json {says}"):
            published()
    with pytest.raises(DataError, match="cannot be read"):
        read_report(tmp_path / "missing.json")


def test_figures_draw_what_the_reports_hold(quick):
    [axis] = plot_shares({"this page": quick["limit"], "without": quick["memory"]}).axes
    assert len(axis.patches) == len(SHARES)
    [axis] = plot_memory({"this page": quick["memory"], "without": quick["limit"]}).axes
    [line] = axis.lines
    assert line.get_xdata().tolist() == [1e3, 1e5]


def test_a_page_table_has_a_column_for_each_report_that_measured_the_part(quick):
    html = part_table("limit", {"this page": quick["limit"], "laptop": quick["kernel"]}).to_html()
    assert "this page" in html
    assert "laptop" not in html
    assert "share: runtime" in html


def test_what_was_tried_has_a_row_for_each_way_with_what_is_said_of_it():
    rows = [Row("in C++", "µs/step", [9.0, 5.0, 4.0], 10), Row("by hand", "s", [2.0]), Row("share: rest", "%", [8.0])]
    part = Part("tried", "", lambda effort: Outcome([]), sizes="batch size").report(Outcome(rows))
    about = {"in C++": {"same bits": True, "difference": 4e-8}, "by hand": {"same bits": None, "difference": None}}
    table = tried_table({"parts": {"tried": part}, "tried": {"tried": about}}, "tried")
    assert table.to_markdown().splitlines()[2:] == [
        "| in C++ | 5.00 | yes | 4e-08 | – |",
        "| by hand | – | – | – | 2.00 |",
    ]


def test_the_circumstances_are_one_line(quick):
    line = circumstances(quick["kernel"])
    for words in ("cores", "GiB", "Python", "torch", "commit", "load average"):
        assert words in line
    assert "\n" not in line


def bench(*words: str) -> SimpleNamespace:
    done = invoke("bench", *words)
    return SimpleNamespace(code=done.exit_code, out=done.stdout, err=done.stderr, error=done.exception)


def test_the_command_prints_tables_and_keeps_the_report(tmp_path: Path):
    path = tmp_path / "record.json"
    done = bench("kernel", "--quick", "--out", str(path))
    assert done.code == 0, repr(done.error)
    assert done.out.startswith("kernel: Events per second when training is free")
    assert "events/s" in done.out
    report = read_report(path)
    assert list(report["parts"]) == ["kernel"]
    assert report["effort"]["quick"] is True
    assert done.out.splitlines()[-1] == circumstances(report)


def test_as_json_only_the_report_goes_to_standard_output():
    done = bench("kernel", "--quick", "--pairs", "2", "--json")
    assert done.code == 0, repr(done.error)
    report = json.loads(done.out)
    assert all(len(row["values"]) == 2 for row in report["parts"]["kernel"]["rows"])
    assert done.err.startswith("kernel: ")


def test_the_command_replaces_a_file_by_force_only(tmp_path: Path):
    path = tmp_path / "record.json"
    path.write_text("mine")
    done = bench("kernel", "--out", str(path))
    assert (done.code, done.out, path.read_text()) == (2, "", "mine")
    assert "exists; give another name or add --force" in done.err
    assert bench("kernel", "--quick", "--force", "--out", str(path)).code == 0
    assert read_report(path)["parts"]["kernel"]["name"] == "kernel"
