"""Measure several parts, keep the report in a file, and show it as text or as a frame."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from fl_core.benchmarks.part import Effort
from fl_core.benchmarks.registry import find_parts
from fl_core.benchmarks.timing import load_average, machine
from fl_core.datasets import data_folder
from fl_core.errors import DataError
from fl_core.experiments.run import commit

FORMAT = 1
"""Of a report; a file with another number is not read."""

Report = dict[str, Any]


def measure(
    names: Iterable[str] = (), effort: Effort | None = None, echo: Callable[[str], object] = lambda text: None
) -> Report:
    """Measure the parts called `names` (all of them if there is none) and return the report, plain data for JSON.

    Parameters
    ----------
    names : iterable of str
    effort : Effort, optional
    echo : callable
        Receives the table of each part when it is done.

    Raises
    ------
    SpecError
        If there is no such part.
    """
    effort = effort or Effort()
    parts = find_parts(names)
    report: Report = {
        "format": FORMAT,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "machine": machine(),
        "effort": {"quick": effort.quick, "repetitions": effort.repetitions, "threads": effort.threads},
        "parts": {},
    }
    for part in parts:
        load, started = load_average(), time.perf_counter()
        outcome = part.measure(effort)
        circumstances = {"load": load, "seconds": round(time.perf_counter() - started, 1)}
        report["parts"][part.name] = part.report(outcome, **circumstances)
        echo(part_text(report["parts"][part.name]))
    return report


def read_report(path: Path) -> Report:
    """Read what ``fl-core bench --out`` wrote.

    Raises
    ------
    DataError
        If the file cannot be read, is damaged, or has another format.
    """
    try:
        report: Report = json.loads(path.read_text(encoding="utf-8"))
        form = report["format"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"benchmark record {path} cannot be read ({type(error).__name__}: {error})") from None
    if form != FORMAT:
        raise DataError(f"benchmark record {path} has format {form!r}; this version reads format {FORMAT}")
    return report


def published() -> dict[str, Report]:
    """Return the records in ``data/benchmarks`` by file name, in alphabetical order."""
    return {path.stem: read_report(path) for path in sorted((data_folder() / "benchmarks").glob("*.json"))}


def compare(name: str, reports: Mapping[str, Report]) -> pd.DataFrame:
    """Return the rows of part `name`, one text column with median and range for each report that has it.

    Columns: ``quantity`` with its size, ``unit``, ``target``, then the keys of `reports`. A quantity that a report
    lacks is None.
    """
    found = {key: report["parts"][name] for key, report in reports.items() if name in report["parts"]}
    rows: dict[tuple[str, int | None], dict[str, Any]] = {}
    for key, part in found.items():
        for row in part["rows"]:
            head = {"quantity": _label(row, part["sizes"]), "unit": row["unit"], "target": row["target"]}
            rows.setdefault((row["quantity"], row["size"]), head)[key] = _median_and_range(row)
    order = sorted(rows, key=lambda row: [quantity for quantity, _ in rows].index(row[0]))
    frame = pd.DataFrame([rows[row] for row in order], columns=["quantity", "unit", "target", *found])
    return frame if frame["target"].notna().any() else frame.drop(columns="target")


def part_text(part: Mapping[str, Any]) -> str:
    """Return the table of one part as text."""
    cells = [("", "median", "range", "unit", "target", "")]
    for row in part["rows"]:
        spread = f"{number(row['low'])} to {number(row['high'])}" if len(row["values"]) > 1 else ""
        verdict = "" if row["reached"] is None else "reached" if row["reached"] else "missed"
        label = _label(row, part["sizes"])
        cells.append((label, number(row["median"]), spread, row["unit"], row["target"] or "", verdict))
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [f"{part['name']}: {part['sentence']}"]
    for first, *middle, last in cells if part["rows"] else ():
        padded = [f"{text:>{width}}" for text, width in zip(middle, widths[1:], strict=False)]
        lines.append("  ".join(["", f"{first:<{widths[0]}}", *padded, last]).rstrip())
    if part["note"]:
        lines.append(f"  {part['note']}")
    load = "" if part["load"] is None else f", load average {part['load']} when it began"
    return "\n".join([*lines, f"  measured in {part['seconds']:.0f} s{load}", ""])


def circumstances(report: Report) -> str:
    """Return machine, versions, commit and date in one line."""
    here = report["machine"]
    loads = [part["load"] for part in report["parts"].values() if part["load"] is not None]
    pieces = [
        f"{here['processor']}, {here['cores']} cores, {here['memory_gib']:g} GiB",
        here["accelerator"] or "no accelerator",
        f"{here['system']}, Python {here['python']}",
        ", ".join(f"{name} {version}" for name, version in here["versions"].items()),
        f"commit {report['commit']}, {report['date']}",
        f"load average {min(loads):g} to {max(loads):g}" if loads else "load unknown",
    ]
    return "; ".join(pieces)


def number(value: float) -> str:
    """Return `value` with three significant digits, or all digits before the point."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 1 else f"{value:.{2 if abs(value) < 10 else 1}f}"


def _label(row: Mapping[str, Any], sizes: str) -> str:
    return row["quantity"] if row["size"] is None else f"{row['quantity']}, {sizes} = {row['size']:,}"


def _median_and_range(row: Mapping[str, Any]) -> str:
    text = number(row["median"])
    return f"{text} ({number(row['low'])} to {number(row['high'])})" if len(row["values"]) > 1 else text
