"""Timelines say what happened: checked on a schedule that can be worked out by hand."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pytest

mpl.use("agg")

from fl_core.algorithms import FedAsync, FedAvg
from fl_core.report.timeline import (
    WORK,
    arrivals,
    plot_accuracy,
    plot_staleness,
    plot_timelines,
    schedule_summary,
    state_at,
)
from fl_core.runtime import Budget, Simulation
from fl_core.tasks import Quadratic
from fl_core.world import Network, TraceCompute, World


def history(algorithm, seconds=12.0, latency=0.5):
    world = World(
        devices=2, compute=TraceCompute(seconds_per_step=(1.0, 3.0)), network=Network(latency_seconds=latency)
    )
    task = Quadratic([[1.0]] * 2, [[0.0]] * 2, [1.0])
    return Simulation(task, world, algorithm, budget=Budget(seconds=seconds), trace=True).run()


@pytest.fixture(scope="module")
def histories():
    return {"sync": history(FedAvg(clients_per_round=2)), "async": history(FedAsync(concurrency=2))}


def test_summary_of_rounds_and_of_an_asynchronous_schedule(histories):
    summary = schedule_summary(histories, 12.0, 2)
    # tasks take 2 s and 4 s: three rounds of 4 s; asynchronously 6 + 3 results
    assert summary.loc["sync", ["versions", "uploads", "max staleness"]].tolist() == [3, 6, 0]
    assert summary.loc["sync", "idle"] == pytest.approx(3 * 2 / 24)
    assert summary.loc["async", ["versions", "uploads"]].tolist() == [9, 9]
    assert summary.loc["async", "idle"] == pytest.approx(0)
    assert summary.loc["async", "mean staleness"] == np.mean(histories["async"].updates["staleness"])


def test_a_task_in_flight_at_the_end_counts_as_work_up_to_the_end(histories):
    assert schedule_summary(histories, 11.0, 2).loc["async", "idle"] == pytest.approx(0)


def test_arrivals_know_when_training_ended(histories):
    table = arrivals(histories["sync"])
    assert table["arrived"].tolist() == [2, 4, 6, 8, 10, 12]
    assert (table["arrived"] - table["trained"]).tolist() == [0.5] * 6


def test_state_counts_versions_and_tasks_right_after_the_events_of_a_moment(histories):
    # the fast device delivers at 2, 4, 6, ... s and starts again at once; rounds end at 4, 8, 12 s
    assert [state_at(histories["sync"], t) for t in (0.0, 1.9, 2.0, 4.0, 5.0)] == [
        (0, 2),
        (0, 2),
        (0, 1),
        (1, 2),
        (1, 2),
    ]
    assert [state_at(histories["async"], t) for t in (1.9, 2.0, 4.0)] == [(0, 2), (1, 2), (3, 2)]


def test_the_drawing_has_a_bar_for_every_activity_and_a_number_for_every_result(histories):
    figure = plot_timelines(histories, 12.0, 2)
    colours = [mpl.colors.to_hex(bar.get_facecolor()).upper() for bar in figure.axes[0].patches]
    assert {activity: colours.count(colour) for activity, colour in WORK.items()} == {
        "download": 6, "train": 6, "upload": 6,
    }  # fmt: skip
    assert [text.get_text() for text in figure.axes[0].texts] == ["0"] * 6
    numbers = sorted(int(text.get_text()) for text in figure.axes[1].texts)
    assert numbers == sorted(histories["async"].updates["staleness"])


def test_overview_plots_show_the_columns_of_the_history(histories):
    one = histories["async"]
    one.evaluations["test_accuracy"] = [0.1] * len(one.evaluations["version"])
    [axis] = plot_accuracy({"run": one}).axes
    assert axis.lines[0].get_xdata().tolist() == one.evaluations["seconds"]
    [axis] = plot_staleness(one).axes
    assert [bar.get_height() for bar in axis.patches] == np.bincount(one.updates["staleness"]).tolist()
