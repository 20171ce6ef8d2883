"""What a measurement is, how it is made fairly, and its report: as a file, as text, as a table, as pictures."""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
import psutil
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from fl_core.datasets import data_folder
from fl_core.errors import DataError, SpecError
from fl_core.experiments.run import commit
from fl_core.processes import usable_cores
from fl_core.report.style import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, drawing
from fl_core.report.tables import Table


@dataclass(frozen=True)
class Effort:
    """How much to measure."""

    quick: bool = False  # sizes that show that everything works; their numbers mean little
    pairs: int | None = None  # repetitions (the longest parts stop at 3); None: 5, or 1 if quick
    threads: int = 2  # workers of the ``threads`` executor

    def __post_init__(self) -> None:
        for name, value in (("pairs", self.pairs), ("threads", self.threads)):
            if value is not None and value < 1:
                raise SpecError(f"{name} = {value} must be at least 1")

    @property
    def repetitions(self) -> int:
        """How often to repeat."""
        return self.pairs or self.pick(5, 1)

    @property
    def test_samples(self) -> int | None:
        """Test images per evaluation: all, or in a quick run as many as keep the share of evaluations the same."""
        return 800 if self.quick else None

    def pick(self, full: int, quick: int) -> int:
        """Return the one of two sizes that is meant."""
        return quick if self.quick else full


@dataclass(frozen=True)
class Target:
    """What one quantity should be on the reference machine, two free cores."""

    quantity: str
    sense: str  # ">=" or "<="
    bound: float  # in the unit of the quantity
    size: int | None = None  # that it holds for, if the part has several

    def met(self, value: float) -> bool:
        """Return whether `value` is good enough."""
        return value >= self.bound if self.sense == ">=" else value <= self.bound

    def __str__(self) -> str:
        return f"{'≥' if self.sense == '>=' else '≤'} {self.bound:,g}"


@dataclass(frozen=True)
class Row:
    """One measured quantity."""

    quantity: str
    unit: str
    values: Sequence[float]  # one per repetition
    size: int | None = None  # what it was measured at, counted in the part's `sizes`


@dataclass(frozen=True)
class Outcome:
    """What a measurement yields: rows, and a sentence that no number says."""

    rows: list[Row]
    note: str = ""


@dataclass(frozen=True)
class Part:
    """A named measurement."""

    name: str
    sentence: str  # what it measures
    measure: Callable[[Effort], Outcome]
    targets: tuple[Target, ...] = ()
    sizes: str = ""  # what the sizes of its rows count, e.g. "devices"

    def report(self, outcome: Outcome, **circumstances: Any) -> dict[str, Any]:
        """Return `outcome` as plain data, every row with its median, range and target."""
        rows = []
        for row in outcome.rows:
            median = statistics.median(row.values)
            target = next((t for t in self.targets if (t.quantity, t.size) == (row.quantity, row.size)), None)
            found = {"median": median, "low": min(row.values), "high": max(row.values)}
            rows.append(
                {"quantity": row.quantity, "size": row.size, "unit": row.unit}
                | {name: _rounded(value) for name, value in found.items()}
                | {"values": list(map(_rounded, row.values)), "target": str(target) if target else None}
                | {"reached": target.met(median) if target else None}
            )
        head = {"name": self.name, "sentence": self.sentence, "sizes": self.sizes}
        return {**head, **circumstances, "note": outcome.note, "rows": rows}


def part(*targets: Target, sizes: str = "") -> Callable[[Callable[[Effort], Outcome]], Part]:
    """Decorator: make a function the part of its name, which measures what its docstring says."""

    def make(measure: Callable[[Effort], Outcome]) -> Part:
        sentence = " ".join((measure.__doc__ or "").split()).removesuffix(".")
        return Part(measure.__name__, sentence, measure, targets, sizes)

    return make


def _rounded(value: float) -> float:
    """Return `value` with six significant digits: more would be noise in a record."""
    return float(f"{value:.6g}")


K = TypeVar("K")
T = TypeVar("T")


class Stopwatch:
    """Wall time and processor time of all threads in seconds, from when it was made to :meth:`stop`.

    `laps` is processor time of the calling thread by what it was spent on.
    """

    def __init__(self) -> None:
        self.wall, self.cpu = -time.perf_counter(), -time.process_time()
        self.laps: dict[str, float] = {}
        self._last = time.thread_time()

    def lap(self, what: str) -> None:
        """Book the time since the last lap on `what`."""
        now = time.thread_time()
        self.laps[what] = self.laps.get(what, 0.0) + now - self._last
        self._last = now

    def stop(self) -> Stopwatch:
        """Take the two times."""
        self.wall += time.perf_counter()
        self.cpu += time.process_time()
        return self


def seconds_of(work: Callable[[], object]) -> float:
    """Return the wall time of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def alternate(sides: dict[K, Callable[[], T]], times: int) -> dict[K, list[T]]:
    """Call all `sides` one right after the other, `times` times, every second time in reverse order.

    What else the machine does, and how warm it is, then meets all sides alike.
    """
    results: dict[K, list[T]] = {name: [] for name in sides}
    for number in range(times):
        for name in reversed(sides) if number % 2 else sides:
            results[name].append(sides[name]())
    return results


@contextmanager
def intraop_threads(count: int) -> Iterator[None]:
    """Let one PyTorch operation use `count` threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


STATUS = Path("/proc/self/status")
"""What Linux says of a process."""


def high_water(status: str) -> int:
    """Return the largest resident memory of the process whose :data:`STATUS` this is; 0 if it is empty."""
    return next((1024 * int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")), 0)


def peak_bytes() -> int:
    """Return the largest resident memory that this process has had.

    Linux's ``ru_maxrss`` would not do: a new process inherits it from the one that started it.
    """
    if STATUS.is_file():
        return high_water(STATUS.read_text(encoding="utf-8"))
    info = psutil.Process().memory_info()
    if sys.platform == "win32":
        return int(info.peak_wset)
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def load_average() -> float | None:
    """Return how many processes wanted a core, averaged over the last minute; None where nobody counts."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def machine() -> dict[str, Any]:
    """Return the hardware and the versions that a timing depends on."""
    accelerator = torch.accelerator.current_accelerator()
    return {
        "processor": _processor(),
        "cores": usable_cores(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "accelerator": torch.cuda.get_device_name()
        if torch.cuda.is_available()
        else accelerator and accelerator.type,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": {name: metadata.version(name) for name in ("fl-core", "torch", "numpy")},
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8", errors="replace").splitlines() if info.is_file() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


FORMAT = 1
"""Of a report; a file with another number is not read."""

Report = dict[str, Any]


def new_report() -> Report:
    """Return a report without measurements."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {"format": FORMAT, "date": now, "commit": commit(), "machine": machine(), "parts": {}}


def read_report(path: Path) -> Report:
    """Read what ``fl-core bench --out`` wrote."""
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
            spread = f" ({number(row['low'])} to {number(row['high'])})" if len(row["values"]) > 1 else ""
            rows.setdefault((row["quantity"], row["size"]), head)[key] = number(row["median"]) + spread
    order = sorted(rows, key=lambda row: [quantity for quantity, _ in rows].index(row[0]))
    frame = pd.DataFrame([rows[row] for row in order], columns=["quantity", "unit", "target", *found])
    return frame if frame["target"].notna().any() else frame.drop(columns="target")


def part_text(part: Mapping[str, Any]) -> str:
    """Return the table of one part as text."""
    cells = []
    for row in part["rows"]:
        spread = f"{number(row['low'])} to {number(row['high'])}" if len(row["values"]) > 1 else ""
        verdict = "" if row["reached"] is None else "reached" if row["reached"] else "missed"
        label = _label(row, part["sizes"])
        cells.append((label, number(row["median"]), spread, row["unit"], row["target"] or "", verdict))
    lines = [f"{part['name']}: {part['sentence']}"]
    if cells:
        table = Table(pd.DataFrame(cells, columns=["", "median", "range", "unit", "target", " "]))
        lines += [f"  {line}" for line in table.to_text().splitlines()]
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


SHARES = {"forward": BLUE, "backward": SKY, "step": GREEN, "gather": ORANGE, "evaluation": GREY, "runtime": VERMILION}
"""What a thread's time goes to, in the order of the bars."""


def part_table(name: str, reports: Mapping[str, Report]) -> Table:
    """Return the rows of part `name`, a column for each report that measured it: median, and range in brackets."""
    return Table(compare(name, reports))


def peers_table(report: Report) -> Table:
    """Return what ``data/benchmarks/peers/run.py`` found: times of an update, medians of ratios within one turn."""

    def ratio(part: str, side: str, base: str) -> str | None:
        values = {row["quantity"]: row["values"] for row in _rows(report, part)}
        if not {side, base} <= values.keys():
            return None
        updates = report["peers"][base][part]["updates"] / report["peers"][side][part]["updates"]
        return number(statistics.median(updates * a / b for a, b in zip(values[side], values[base], strict=True)))

    whole = {row["quantity"]: row["median"] for row in _rows(report, "peers")}
    workloads = {"peers": "reference", "peers-small": "tiny tasks"}
    parts = sorted(workloads.keys() & report["parts"].keys())
    bases = {"plain loop": "plain loop", "ours, 2 threads": "ours"}
    cells = [
        {"simulator": f"{side} ({about['version']})"}
        | {f"{workloads[part]}: {bases[base]} = 1": ratio(part, side, base) for part in parts for base in bases}
        | {"before and after (s)": number(whole[f"{side}: process"] - whole[side]), "what decides it": about["note"]}
        for side, about in report["peers"].items()
    ]
    return Table(pd.DataFrame(cells), wrap={"what decides it": 16})


def tried_table(report: Report, part: str) -> Table:
    """Return medians of a part that ``data/benchmarks/tried/run.py`` measured, and what it says of each way."""
    cells: dict[str, dict[str, Any]] = {way: {"what was tried": way} for way in report["tried"][part]}
    for row in _rows(report, part):
        column = _label({**row, "quantity": row["unit"]}, report["parts"][part]["sizes"])
        cells.get(row["quantity"], {})[column] = number(row["median"])
    for way, about in report["tried"][part].items():
        cells[way] |= {said: number(value) if isinstance(value, float) else value for said, value in about.items()}
    return Table(pd.DataFrame(list(cells.values())), wrap={"what it is": 16})


def plot_shares(reports: Mapping[str, Report]) -> Figure:
    """Draw where the time of one thread goes: a bar for each report that measured part ``limit``."""
    measured = {label: _rows(report, "limit") for label, report in reports.items()}
    shown = {label: {row["quantity"]: row["median"] for row in rows} for label, rows in measured.items() if rows}
    with drawing((5.6, 1.5 + 0.45 * len(shown))) as (figure, axis):
        left = dict.fromkeys(shown, 0.0)
        for what, colour in SHARES.items():
            # A difference of two measurements can come out below zero: then there is nothing to see.
            widths = {label: max(0.0, float(medians[f"share: {what}"])) for label, medians in shown.items()}
            axis.barh(list(shown), list(widths.values()), 0.6, list(left.values()), color=colour, label=what)
            left = {label: left[label] + width for label, width in widths.items()}
        axis.invert_yaxis()
        axis.set_xlabel("share of one thread's time (%)")
        axis.grid(axis="y", visible=False)
        figure.legend(loc="outside lower center", ncols=3)
    return figure


def plot_memory(reports: Mapping[str, Report]) -> Figure:
    """Draw the peak memory of a process against the number of idle devices, one line for each report."""
    with drawing((5.6, 3.2)) as (figure, axis):
        looks = zip((BLUE, VERMILION, GREEN, PURPLE), "osD^", strict=True)
        measured = {label: rows for label, report in reports.items() if (rows := _rows(report, "memory"))}
        for (label, rows), (colour, marker) in zip(measured.items(), looks, strict=False):
            idle = [row for row in rows if row["quantity"] == "idle: peak memory"]
            points = ([row[key] for row in idle] for key in ("size", "median"))
            axis.plot(*points, color=colour, marker=marker, label=label)
        axis.set(xscale="log", xlabel="devices", ylabel="peak memory (MiB)")
        axis.set_ylim(0, 1.1 * axis.get_ylim()[1])
        axis.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
        axis.legend(loc="lower right")
    return figure


def _rows(report: Report, part: str) -> list[dict[str, Any]]:
    return report["parts"][part]["rows"] if part in report["parts"] else []
