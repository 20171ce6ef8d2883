"""Timelines that a reader can move in the page itself: zoom, pick a task, switch the run, play the clock.

The figure is one piece of HTML: the data as JSON, a small script and style sheet of our own, and tables that say the
same without a script. It needs no kernel and makes no request. The script derives its numbers from the data alone
and refuses to draw when they are not those of :func:`~fl_core.report.timeline.schedule_summary`.
"""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Any

import pandas as pd

from fl_core.errors import SpecError
from fl_core.report.style import GREEN, VERMILION
from fl_core.report.timeline import COLOURS, arrivals, schedule_summary, state_at
from fl_core.runtime import History

MOMENTS = 12
"""At how many times of each run the page compares version and tasks in flight with Python."""


@dataclass(frozen=True)
class InteractiveTimeline:
    """A figure for notebooks and the book; see :func:`interactive_timeline`."""

    data: dict[str, Any]  # what the script gets, plain values for JSON
    tables: Mapping[str, pd.DataFrame] = field(repr=False)  # the text alternative, by title

    def _repr_html_(self) -> str:
        names = [html.escape(run["name"]) for run in self.data["runs"]]
        tabs = [f'<button type="button" data-run="{i}">{name}</button>' for i, name in enumerate(names)]
        first, *rest = (html_table(title, frame, "flt-scroll") for title, frame in self.tables.items())
        colours = {**COLOURS, "base": GREEN, "target": VERMILION}
        return Template(asset("timeline.html")).substitute(
            title="Timelines: " + ", ".join(names),
            colours=";".join(f"--flt-{name}:{colour}" for name, colour in colours.items()),
            alone="hidden" if len(names) == 1 else "",
            tabs="".join(tabs),
            legend=self._legend(),
            until=self.data["until"],
            tables=first + "".join(f"<details>{table}</details>" for table in rest),
            data=as_json(self.data),
            style=asset("timeline.css"),
            script=asset("timeline.js"),
        )

    def __repr__(self) -> str:
        runs = ", ".join(run["name"] for run in self.data["runs"])
        return f"interactive timelines of {self.data['devices']} devices over {self.data['until']:g} s: {runs}"

    def _legend(self) -> str:
        seen = {span[2] for run in self.data["runs"] for span in run["spans"]}
        keys = [(activity, activity) for activity in COLOURS if activity in seen]
        keys += [("idle", "idle"), ("commit", "new version"), ("use", "result used; the number is its staleness")]
        faults = "<span>× fault</span>" if any(run["faults"] for run in self.data["runs"]) else ""
        return "".join(f'<span><i class="flt-{key}"></i>{text}</span>' for key, text in keys) + faults


def interactive_timeline(
    histories: Mapping[str, History],
    devices: int,
    until: float | None = None,
    servers: Mapping[str, Sequence[int]] | None = None,
) -> InteractiveTimeline:
    """Make a figure of traced runs: one lane a device, one run at a time, all on the same time axis.

    The axis ends at `until` virtual seconds, by default at the last version or evaluation of any run; `servers` name
    each device once and group the lanes.
    """
    if not histories:
        raise SpecError("an interactive timeline needs at least one run")
    for name, history in histories.items():
        _check(name, history, devices)
    if until is None:
        until = max(max(h.updates["seconds"] + h.evaluations["seconds"], default=0.0) for h in histories.values())
    if not 0 < until < float("inf"):
        raise SpecError(f"until must be a positive number of seconds, got {until!r}")
    groups: dict[str | None, list[int]] = {None: list(range(devices))}
    if servers is not None:
        groups = {str(server): [int(device) for device in members] for server, members in servers.items()}
        if sorted(device for members in groups.values() for device in members) != list(range(devices)):
            raise SpecError(f"servers must name each of the devices 0..{devices - 1} once, got {dict(servers)}")
    summary = schedule_summary(histories, until, devices).to_dict("index")
    data = {
        "until": float(until),
        "devices": int(devices),
        "groups": [{"server": server, "members": members} for server, members in groups.items()],
        "runs": [_run(name, history, until, list(summary[name].values())) for name, history in histories.items()],
    }
    tables = {"The same in numbers": pd.DataFrame([{"run": name, **row} for name, row in summary.items()])}
    tables |= {f"{name}: results used": _used(history, until) for name, history in histories.items()}
    return InteractiveTimeline(data, tables)


def html_table(title: str, frame: pd.DataFrame, scrolling: str) -> str:
    """Return a summary and a table of `frame`, to stand in a ``<details>``; `scrolling` is the class of its frame."""
    with pd.option_context("display.max_colwidth", None):
        table = frame.to_html(index=False, border=0, justify="unset", na_rep="", float_format="{:.4g}".format)
    title, table = html.escape(title), table.replace("<th>", '<th scope="col">')
    return (
        f'<summary>{title}</summary><div class="{scrolling}" tabindex="0" role="group" aria-label="{title}">'
        f"{table}</div>"
    )


def as_json(data: Any) -> str:
    """Return what a script of a page gets; nothing in it ends the element that holds it."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def asset(name: str, beside: str = __file__) -> str:
    """Return a script, style sheet or template that lies beside the module with this ``__file__``."""
    return Path(beside).with_name(name).read_text("utf-8")


def _check(name: str, history: History, devices: int) -> None:
    if not history.spans["task"]:
        raise SpecError(f"run {name!r} was not traced; simulate it with trace=True")
    strangers = set(history.spans["device"]) - set(range(devices))
    if strangers:
        raise SpecError(f"run {name!r} has work of device {min(strangers)}; the figure has devices 0..{devices - 1}")


def _run(name: str, history: History, until: float, summary: list[float]) -> dict[str, Any]:
    """Return one run as plain values; see ``understand`` in timeline.js for the columns."""
    spans = history.span_frame()
    begun = spans["start"].where(spans["activity"] == "down", spans.groupby("task")["start"].transform("min"))
    spans = spans[begun < until]  # whole tasks: one that goes on after the end is in flight until then
    place = _rows(spans[spans["activity"] != "down"])
    rows: dict[int, int] = {}
    for device, row in place.values():
        rows[device] = max(rows.get(device, 0), row + 1)
    used = arrivals(history)
    used = used[used["used"] <= until]
    faults = history.fault_frame()
    times = [until * (k + 0.5) / MOMENTS for k in range(MOMENTS // 2)]
    times += _spread([t for t in history.updates["seconds"] if t <= until], MOMENTS // 2)
    return {
        "name": name,
        "spans": [
            [*span, place.get(span[0], (0, 0))[1]]
            for span in _plain_rows(spans, "task", "device", "activity", "start", "end", "base_version")
        ],
        "uses": _plain_rows(used, "task", "device", "used", "version", "staleness", "weight"),
        "faults": _plain_rows(faults[faults["seconds"] <= until], "seconds", "device", "task", "fault"),
        "rows": rows,
        "checks": {
            "summary": [_plain(value) for value in summary],
            "moments": [[float(t), *state_at(history, t)] for t in times],
        },
    }


def _plain_rows(frame: pd.DataFrame, *columns: str) -> list[list[Any]]:
    return [[_plain(value) for value in row] for row in zip(*(frame[column] for column in columns), strict=True)]


def _rows(spans: pd.DataFrame) -> dict[int, tuple[int, int]]:
    """Return device and row of each task: tasks of one device that overlap in time get rows of their own."""
    tasks = spans.groupby("task").agg(device=("device", "first"), start=("start", "min"), end=("end", "max"))
    free: dict[int, list[float]] = {}
    place = {}
    tasks = tasks.sort_values("start", kind="stable")
    for task, device, start, end in zip(tasks.index, *(tasks[c] for c in tasks.columns), strict=True):
        ends = free.setdefault(device, [])
        row = next((row for row, before in enumerate(ends) if before <= start), len(ends))
        ends[row : row + 1] = [end]
        place[int(task)] = (int(device), row)
    return place


def _spread(values: list[float], count: int) -> list[float]:
    return values[:: max(1, len(values) // count)][:count]


def _used(history: History, until: float) -> pd.DataFrame:
    used = arrivals(history)
    used = used[used["used"] <= until]
    begun = history.span_frame().groupby("task").agg(start=("start", "min"), base=("base_version", "first"))
    return pd.DataFrame(
        {
            "version": used["version"],
            "made at (s)": used["used"],
            "device": used["device"],
            "began at (s)": used["task"].map(begun["start"]),
            "with version": used["task"].map(begun["base"]),
            "arrived at (s)": used["arrived"],
            "staleness": used["staleness"],
            "weight": used["weight"],
        }
    )


def _plain(value: Any) -> Any:
    """Return a Python value that JSON knows; NaN becomes None."""
    value = getattr(value, "item", lambda: value)()
    return None if value != value else value
