"""The interactive figure says in plain HTML and JSON what the runs say; a browser test checks its script."""

from __future__ import annotations

import json

import pytest
from bs4 import BeautifulSoup

from fl_core.algorithms import FedAsync, FedAvg
from fl_core.errors import SpecError
from fl_core.report.interactive import interactive_timeline
from fl_core.report.timeline import arrivals, schedule_summary
from fl_core.runtime import Budget, History, Simulation
from fl_core.runtime.history import append
from fl_core.tasks import Quadratic
from fl_core.world import Network, TraceCompute, World


def history(algorithm, seconds=12.0):
    compute, network = TraceCompute(seconds_per_step=(1.0, 3.0)), Network(latency_seconds=0.5)
    world = World(devices=2, compute=compute, network=network)
    task = Quadratic([[1.0]] * 2, [[0.0]] * 2, [1.0])
    return Simulation(task, world, algorithm, budget=Budget(seconds=seconds), trace=True).run()


@pytest.fixture(scope="module")
def histories():
    return {"sync": history(FedAvg(clients_per_round=2)), "async <1>": history(FedAsync(concurrency=2))}


def page(figure):
    return BeautifulSoup(figure._repr_html_(), "html.parser")


def hand_made(spans, updates):
    """Return a history from (task, device, start, end, base) and (seconds, version, device, staleness)."""
    made = History()
    for task, device, start, end, base in spans:
        append(made.spans, task=task, device=device, activity="train", start=start, end=end, base_version=base)
    for seconds, version, device, staleness in updates:
        append(made.updates, seconds=seconds, version=version, device=device, staleness=staleness)
    return made


def test_the_data_of_the_page_are_the_spans_and_the_uses_of_the_runs(histories):
    figure = interactive_timeline(histories, 2)
    data = json.loads(page(figure).select_one("script.flt-data").string)
    assert data == json.loads(json.dumps(figure.data))
    for run, one in zip(data["runs"], histories.values(), strict=True):
        columns = (one.spans[c] for c in ("task", "device", "activity", "start", "end", "base_version"))
        begun = [span for span in zip(*columns, strict=True) if span[3] < 12.0]
        assert [tuple(span[:6]) for span in run["spans"]] == begun
        assert [use[2:5] for use in run["uses"]] == [
            list(row) for row in zip(*(one.updates[c] for c in ("seconds", "version", "staleness")), strict=True)
        ]
        base = {span[0]: span[5] for span in run["spans"]}
        assert all(base[task] == version - 1 - staleness for task, _, _, version, staleness, _ in run["uses"])


def test_the_checks_that_travel_with_the_figure_are_the_summary_and_true_moments(histories):
    figure = interactive_timeline(histories, 2, 12.0)
    summary = schedule_summary(histories, 12.0, 2)
    checks = [run["checks"] for run in figure.data["runs"]]
    assert [check["summary"] for check in checks] == summary.to_numpy().tolist()
    # rounds of 4 s: at 1 s both devices work, at 3 s only the slow one
    moments = {time: rest for time, *rest in checks[0]["moments"]}
    assert moments[0.5] == [0, 2]
    assert moments[2.5] == [0, 1]
    assert moments[4.0] == [1, 2]


def test_a_reader_without_scripts_gets_tables(histories):
    soup = page(interactive_timeline(histories, 2, 12.0))
    tables = soup.select("details table")
    assert len(tables) == 3
    assert soup.select_one("details.flt-tables").has_attr("open")
    assert soup.select_one(".flt-page").has_attr("hidden")
    assert [cell.text for cell in tables[0].select("tbody tr:first-child td")][:3] == ["sync", "3", "6"]
    assert [len(table.select("tbody tr")) for table in tables] == [2, 6, 9]


def test_a_page_with_the_figure_loads_nothing(histories):
    soup = page(interactive_timeline(histories, 2))
    assert soup.select("[src], [href], link, iframe") == []
    assert not any(word in soup.decode().replace("http://www.w3.org", "") for word in ("http:", "https:", "fetch("))


def test_names_are_text_and_not_markup(histories):
    soup = page(interactive_timeline(histories, 2))
    assert [tab.text for tab in soup.select("[data-run]")] == ["sync", "async <1>"]


def test_work_that_overlaps_on_one_device_gets_rows_of_its_own():
    run = hand_made([(1, 0, 0.0, 4.0, 0), (2, 0, 1.0, 2.0, 0), (3, 0, 2.0, 5.0, 0)], [])
    [data] = interactive_timeline({"run": run}, 1, 6.0).data["runs"]
    assert [span[6] for span in data["spans"]] == [0, 1, 1]
    assert data["rows"] == {0: 2}


def test_two_results_of_one_device_in_one_version_come_from_two_tasks():
    run = hand_made([(1, 0, 0.0, 1.0, 0), (2, 0, 1.0, 2.0, 0)], [(4.0, 1, 0, 0), (4.0, 1, 0, 0)])
    assert arrivals(run)["task"].tolist() == [1, 2]


def test_a_result_comes_from_the_task_that_began_with_its_base_version():
    run = hand_made([(1, 0, 0.0, 1.0, 0), (2, 0, 1.0, 2.0, 1)], [(3.0, 2, 0, 1)])
    assert arrivals(run)["task"].tolist() == [1]


def test_a_result_of_a_task_without_a_trace_has_no_task():
    run = hand_made([(1, 0, 0.0, 9.0, 0)], [(3.0, 1, 0, 0)])
    table = arrivals(run)
    assert table["task"].tolist() == [-1]
    assert table["arrived"].isna().all()


def test_faults_and_time_down_are_part_of_the_figure_but_no_work():
    run = hand_made([(1, 0, 0.0, 2.0, 0)], [])
    append(run.spans, task=-1, device=0, activity="down", start=2.0, end=3.0, base_version=-1)
    append(run.faults, seconds=2.0, device=0, task=1, fault="crash")
    figure = interactive_timeline({"run": run}, 1, 4.0)
    assert figure.data["runs"][0]["faults"] == [[2.0, 0, 1, "crash"]]
    assert schedule_summary({"run": run}, 4.0, 1)["idle"].item() == 0.5
    legend = page(figure).select_one(".flt-legend").text
    assert "down" in legend
    assert "fault" in legend


def test_the_axis_ends_at_the_last_version_when_nothing_else_is_said(histories):
    assert interactive_timeline(histories, 2).data["until"] == 12.0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"devices": 1}, "work of device 1"),
        ({"devices": 2, "until": 0.0}, "until must be a positive"),
        ({"devices": 2, "servers": {"a": [0], "b": [0, 1]}}, "once"),
        ({"devices": 2, "servers": {"a": [0]}}, "once"),
    ],
)
def test_impossible_figures_are_refused(histories, arguments, says):
    with pytest.raises(SpecError, match=says):
        interactive_timeline(histories, **arguments)


def test_a_run_without_a_trace_is_refused():
    with pytest.raises(SpecError, match="'run' was not traced"):
        interactive_timeline({"run": History()}, 1)
    with pytest.raises(SpecError, match="at least one run"):
        interactive_timeline({}, 1)
