"""Measurements of speed and memory, each a named part with targets: ``fl-core bench`` and the page *Performance*."""

from __future__ import annotations

from fl_core.benchmarks.part import Effort, Part
from fl_core.benchmarks.record import circumstances, compare, measure, part_text, published, read_report
from fl_core.benchmarks.registry import PARTS, find_parts

__all__ = [
    "PARTS",
    "Effort",
    "Part",
    "circumstances",
    "compare",
    "find_parts",
    "measure",
    "part_text",
    "published",
    "read_report",
]
