"""Measurements of speed and memory, each a named part with targets: ``fl-core bench`` and the page *Performance*."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from fl_core.benchmarks import harness
from fl_core.benchmarks.harness import Effort, Part, Report, circumstances, part_text, published
from fl_core.benchmarks.runtime import clusters, data, formulas, kasync, kernel, memory
from fl_core.benchmarks.throughput import batched, blocks, limit, overhead, reference, scaling, small, synchronous
from fl_core.errors import known

__all__ = ["PARTS", "Effort", "Part", "circumstances", "find_parts", "measure", "part_text", "published"]

PARTS: dict[str, Part] = {
    part.name: part
    for part in (
        *(reference, synchronous, overhead, small, kernel, memory, kasync, clusters),
        *(scaling, batched, blocks, limit, data, formulas),
    )
}


def find_parts(names: Iterable[str]) -> list[Part]:
    """Return the parts called `names`, each once and in this order; all of them if there is no name."""
    wanted = dict.fromkeys(names) or PARTS
    return [PARTS[known("part", name, PARTS)] for name in wanted]


def measure(
    names: Iterable[str] = (), effort: Effort | None = None, echo: Callable[[str], object] = lambda text: None
) -> Report:
    """Measure the parts called `names` (all if there is none) and return the report, plain data for JSON.

    `echo` receives the table of each part when it is done.
    """
    effort, parts = effort or Effort(), find_parts(names)
    report = harness.new_report()
    report["effort"] = {"quick": effort.quick, "repetitions": effort.repetitions, "threads": effort.threads}
    for part in parts:
        load, started = harness.load_average(), time.perf_counter()
        outcome = part.measure(effort)
        where = {"load": load, "seconds": round(time.perf_counter() - started, 1)}
        report["parts"][part.name] = part.report(outcome, **where)
        echo(part_text(report["parts"][part.name]))
    return report
