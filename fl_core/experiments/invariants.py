"""What holds in every record, whoever wrote it: types, ranges, order, sums; and how much of a file is read at all."""

from __future__ import annotations

import json
import lzma
import math
import zlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fl_core.datasets.base import KINDS
from fl_core.experiments.spec import RunSpec
from fl_core.runtime import History
from fl_core.runtime.history import EVALUATION_COLUMNS, FAULT_COLUMNS, JOULES, SPAN_COLUMNS, UPDATE_COLUMNS

MOST_BYTES = 1 << 29
"""Of what a file may unpack to; the largest pack has 7 MB."""
ENDINGS = ("budget", "rejected", "lost")
ENDS = ("applied", "discarded", "rejected", "lost", "in_flight")
"""Of a dispatched task."""


@dataclass(frozen=True)
class Rule:
    """What the values of a column are."""

    low: float = -math.inf
    high: float = math.inf
    whole: bool = False
    rising: bool = False
    open: bool = False
    """Whether they may be NaN or infinite: what was not measured, or has diverged."""

    def broken(self, values: list[Any]) -> str:
        """Say what is wrong with a column, and where; empty: nothing."""
        for row, value in enumerate(values) if set(map(type, values)) - {int, float} else ():
            if type(value) not in (int, float):
                return f"{value!r} in row {row}, which is no number"
        array = np.array(values, dtype=float)
        wrong = (array < self.low) | (array > self.high) | (not self.open) & ~np.isfinite(array)
        wrong |= self.whole & (array != np.floor(array))
        if wrong.any():
            return f"{values[int(wrong.argmax())]!r} in row {wrong.argmax()}"
        if self.rising and (falls := np.diff(array) < 0).any():
            row = int(falls.argmax())
            return f"{values[row + 1]!r} in row {row + 1}, after {values[row]!r}"
        return ""


CLOCK, COUNT = Rule(0, rising=True), Rule(0, whole=True)
TOTAL, ANY = Rule(0, whole=True, rising=True), Rule(open=True)
RULES: dict[str, dict[str, Rule | None]] = {
    "evaluations": {
        **dict.fromkeys(EVALUATION_COLUMNS, TOTAL),
        **dict.fromkeys(("seconds", "bytes_down", "bytes_up"), CLOCK),  # compressed to parts of a byte
        "test_accuracy": Rule(0, 1),
        **dict.fromkeys(("test_loss", "train_loss"), ANY),
    },
    "updates": {
        **dict.fromkeys(UPDATE_COLUMNS, COUNT),
        **{"seconds": CLOCK, "version": TOTAL, "device": Rule(-1, whole=True)},
        **dict.fromkeys(("weight", "loss"), ANY),
    },
    "spans": {**dict.fromkeys(SPAN_COLUMNS, COUNT), **dict.fromkeys(("start", "end"), Rule(0)), "activity": None},
    "faults": {**dict.fromkeys(FAULT_COLUMNS, Rule(-1, whole=True)), "seconds": Rule(0), "fault": None},
}
"""By table and column; None: words."""


def impossible(history: History, provenance: Any) -> str:
    """Say what no run gives; empty: nothing."""
    return _tables(history) or _sums(history) or _provenance(provenance)


def _tables(history: History) -> str:
    for name, rules in RULES.items():
        table = getattr(history, name)
        if name == "evaluations" and table.keys() & set(JOULES):
            rules = {**rules, **dict.fromkeys(JOULES, CLOCK)}
        if table.keys() != rules.keys():
            odd = sorted(table.keys() ^ rules.keys())
            return f"{name} with the columns {', '.join(map(str, table))}: {odd[0]} is missing or unknown"
        if len(lengths := {len(values) for values in table.values()}) > 1:
            return f"columns of {name} have between {min(lengths)} and {max(lengths)} rows"
        for column, rule in rules.items():
            if rule is None:
                odd = [value for value in table[column] if not isinstance(value, str)]
                wrong = f"{odd[0]!r}, which is no text" if odd else ""
            else:
                wrong = rule.broken(table[column])
            if wrong:
                return f"{column} of the {name} is {wrong}"
    if not history.evaluations["seconds"]:
        return "no evaluation"
    if len({len(values) for values in history.learned.values()}) > 1:
        return "columns of what was learned have different lengths"
    return ""


def _sums(history: History) -> str:
    if history.ended not in ENDINGS:
        return f"an end by {history.ended!r} (valid: {', '.join(ENDINGS)})"
    outcomes = history.outcomes
    if not outcomes:
        return ""  # of before they were counted
    known = {"dispatched", "duplicates", *ENDS}
    if outcomes.keys() != known:
        return f"outcomes without or beyond {', '.join(sorted(outcomes.keys() ^ known))}"
    if odd := [value for value in outcomes.values() if type(value) is not int or value < 0]:
        return f"{odd[0]!r} as number of tasks"
    if (total := sum(map(outcomes.__getitem__, ENDS))) != outcomes["dispatched"]:
        return f"{outcomes['dispatched']} tasks were dispatched, but {total} have ended or are in flight"
    rows = len(history.updates["version"])
    if rows and rows != outcomes["applied"]:
        return f"{outcomes['applied']} uploads were applied, but there are {rows} updates"
    return ""


def _provenance(provenance: Any) -> str:
    if not isinstance(provenance, dict):
        return f"a provenance that is {type(provenance).__name__}"
    if provenance.get("data") not in KINDS:
        return f"data = {provenance.get('data')!r} (valid: {', '.join(KINDS)})"
    for name, default in (("wall_seconds", None), ("cpu_seconds", 0)):
        seconds = provenance.get(name, default)
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
            return f"{name} = {seconds!r}"
    for name in ("commit", "code", "model_sha256", "data_sha256", "executor", "machine", "date"):
        if not isinstance(provenance.get(name, ""), str):
            return f"{name} = {provenance[name]!r}, which is no text"
    return ""


def foreign(spec: RunSpec, provenance: Mapping[str, Any]) -> str:
    """Say whether the data that a record names is not that of its specification; empty: it is."""
    surrogate = spec.dataset.endswith("-surrogate")
    return f"{provenance['data']} data of {spec.dataset}" if surrogate != (provenance["data"] == "surrogate") else ""


def parsed(text: bytes) -> Any:
    """Read JSON as a record has it: without NaN, infinity and names that appear twice."""
    return json.loads(text, parse_constant=_no_constant, object_pairs_hook=unique_names)


def unpacked(path: Path) -> bytes:
    """Return what a gzip or xz file holds; more than :data:`MOST_BYTES` is a ValueError."""
    gz = path.suffix == ".gz"
    decoder: Any = zlib.decompressobj(wbits=31) if gz else lzma.LZMADecompressor(lzma.FORMAT_XZ)
    found = decoder.decompress(path.read_bytes(), MOST_BYTES)
    whole = decoder.eof and not decoder.unused_data
    rest = decoder.unconsumed_tail if gz else not decoder.needs_input and not decoder.eof
    if rest and not whole:
        raise ValueError(f"it unpacks to more than {MOST_BYTES >> 20} MiB")
    if not whole:
        raise EOFError("it is cut off, or something follows")
    return found


def unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object that JSON has read, if none of its names appears twice."""
    found = dict(pairs)
    if len(found) != len(pairs):
        [(twice, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"the name {twice!r} appears twice")
    return found


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no number")
