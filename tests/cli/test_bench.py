"""The benchmark runs and compares like with like; what it measures is no matter of a test."""

from __future__ import annotations

import json

import pytest
import torch
from typer.testing import CliRunner

from fl_core.cli import app, baselines, bench
from fl_core.runtime.executors import Sequential
from fl_core.runtime.local import TrainJob, batches
from fl_core.streams import stream


def test_the_workload_is_the_reference():
    spec = bench.workload(300)
    assert (spec.dataset, spec.model, spec.world.devices, spec.partition.kind) == (
        "fashion-mnist",
        "lenet5",
        100,
        "iid",
    )
    assert (spec.algorithm.name, spec.algorithm.alpha, spec.algorithm.concurrency) == ("fedasync", 0.6, 10)
    assert spec.algorithm.weight.kind == "constant"
    assert (spec.training.lr, spec.training.batch_size, spec.training.epochs) == (0.03, 50, 1)
    assert (spec.budget.updates, spec.evaluation.every_updates, spec.evaluation.train_samples) == (300, 100, 0)
    task = spec.task()
    assert {task.num_samples(device) for device in range(100)} == {600}
    assert task.dimension == 61_706


def test_both_sides_train_on_the_same_mini_batches(monkeypatch: pytest.MonkeyPatch):
    """The bare loop gets the batches of exactly the jobs whose results the run uses, in order of arrival."""
    spec = bench.workload(12)
    task = spec.task()
    consumed: list[TrainJob] = []
    result = Sequential.result

    def record(self, ticket):
        if isinstance(ticket.job, TrainJob):
            consumed.append(ticket.job)
        return result(self, ticket)

    monkeypatch.setattr(Sequential, "result", record)
    history = spec.simulation().run("sequential")
    used = consumed[: len(history.updates["device"])]
    assert [job.device for job in used] == history.updates["device"]
    order = [
        task.indices(job.device)[torch.from_numpy(batch)]
        for job in used
        for batch in batches(job.samples, job.batch_size, job.steps, stream(*job.key))
    ]
    monkeypatch.undo()
    given = baselines.visited(task, spec)
    assert len(given) == len(order) == 12 * 12
    assert all(torch.equal(one, other) for one, other in zip(given, order, strict=True))


def test_a_tiny_benchmark_reports_everything(monkeypatch: pytest.MonkeyPatch):
    reference = bench.workload
    monkeypatch.setattr(bench, "workload", lambda updates: reference(updates).changed(model="linear"))
    monkeypatch.setattr(bench, "overhead", lambda: baselines.overhead(50))
    before = torch.get_num_threads()
    done = CliRunner().invoke(app, ["bench", "--updates", "3", "--pairs", "2", "--threads", "2", "--json"])
    assert done.exit_code == 0, repr(done.exception)
    report = json.loads(done.stdout)
    assert len(report["pairs"]) == len(report["ratios"]) == 2
    assert min(report["ratios"]) <= report["ratio"] <= max(report["ratios"])
    assert report["identical"] is True
    assert 0 < report["accuracy"] < 1
    assert report["events_per_second"] > 0
    assert report["peak_megabytes"] >= report["before_megabytes"] > 100
    assert report["machine"]["cores"] >= 1
    assert torch.get_num_threads() == before
    assert "pair 2 of 2" in done.stderr


def test_the_text_names_ratio_events_memory_and_accuracy():
    pairs = [bench.Pair(19_000, 10_000), bench.Pair(18_000, 10_000), bench.Pair(20_000, 10_000)]
    text = bench.Report(300, 2, pairs, accuracy=0.7, peak_megabytes=700, before_megabytes=600).text()
    assert "1.90 median of 3 pairs (1.80 to 2.00" in text
    for words in ("samples/s", "events/s", "MB resident, of which 100 MB by the runs", "0.7000 after 300 updates"):
        assert words in text
