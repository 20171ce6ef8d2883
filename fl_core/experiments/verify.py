"""Replay stored runs: does this code give the same bits?"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from fl_core.experiments.identity import code_digest
from fl_core.experiments.run import Result, commit
from fl_core.experiments.store import write_atomically
from fl_core.runtime import History
from fl_core.runtime.simulation import StopRun

TABLE = "verified.json"
"""Beside the published records: which other code was shown to give the same bits, on which sample."""
BEFORE = "none recorded"
"""Stands for the code of records that were made before records carried a digest."""


@dataclass(frozen=True)
class Replay:
    """What replaying one record has shown."""

    hash: str
    algorithm: str
    recorded: str
    """Digest of the code that the record names, or :data:`BEFORE`."""
    current: str
    part: float
    """Of the run's budget that was replayed."""
    difference: str
    """What differs first, and where; empty: nothing."""

    @property
    def same(self) -> bool:
        """Whether all compared bits are equal."""
        return not self.difference


@dataclass(frozen=True)
class Equivalence:
    """A row of :data:`TABLE`: `current` gave the same bits as `recorded` on the runs of `sample`."""

    algorithm: str
    recorded: str
    current: str
    sample: tuple[str, ...]
    part: float
    commit: str


def replay(stored: Result, part: float = 1.0) -> Replay:
    """Run the specification of `stored` again, sequentially, up to a part of its budget, and compare bit for bit."""
    spec = stored.spec
    simulation = spec.simulation()
    whole = part >= 1

    def stop(used: float) -> None:
        if not whole and used >= part:
            raise StopRun

    history = simulation.run("sequential", None, stop)
    found = difference(stored.history, history, whole)
    recorded = stored.provenance.get("code", BEFORE)
    return Replay(spec.hash, spec.algorithm.name, recorded, code_digest(spec), min(part, 1.0), found)


def difference(old: History, new: History, whole: bool = True) -> str:
    """Return in words the first place where two histories differ, NaN being equal to NaN; empty if they do not.

    Unless `whole`, the new one was stopped early and its last evaluation is of that moment. A table that the old one
    was stored without is not compared.
    """
    for name in ("evaluations", "updates", "faults"):
        before, after = getattr(old, name), getattr(new, name)
        if name == "updates" and not any(before.values()):
            continue
        rows = [len(next(iter(table.values()))) for table in (before, after)]
        shared = min(rows[0], rows[1] - (name == "evaluations" and not whole))
        for row in range(shared):
            for column in before.keys() & after.keys():
                was, now = before[column][row], after[column][row]
                if was != now and not (_nan(was) and _nan(now)):
                    return f"{column} in row {row} of the {name}{_where(before, row)}: {was!r} stored, {now!r} now"
        if whole and rows[0] != rows[1]:
            return f"{rows[0]} {name} stored, {rows[1]} now"
    if whole and old.outcomes and old.outcomes != new.outcomes:
        return f"outcomes: {old.outcomes} stored, {new.outcomes} now"
    return ""


def _where(table: dict[str, list[Any]], row: int) -> str:
    places = [f"{column} {table[column][row]}" for column in ("version", "seconds") if column in table]
    return f" ({', '.join(places)})"


def _nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


class Verified:
    """The committed table of code that was shown to give the same bits as the code that made a record."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / TABLE
        rows = json.loads(self.path.read_text()) if self.path.is_file() else []
        self.rows = [Equivalence(**{**row, "sample": tuple(row["sample"])}) for row in rows]

    def standing(self, result: Result) -> str:
        """Return ``"this code"``, ``"shown equal"`` or ``"other code"``: by which code `result` was made."""
        recorded, current = result.provenance.get("code", BEFORE), code_digest(result.spec)
        if recorded == current:
            return "this code"
        name = result.spec.algorithm.name
        shown = any((row.algorithm, row.recorded, row.current) == (name, recorded, current) for row in self.rows)
        return "shown equal" if shown else "other code"

    def enter(self, replays: Iterable[Replay]) -> None:
        """Add what the replays have shown: per algorithm and code, if all of them gave the same bits."""
        groups: dict[tuple[str, str, str], list[Replay]] = {}
        for each in replays:
            groups.setdefault((each.algorithm, each.recorded, each.current), []).append(each)
        for key, found in groups.items():
            self.rows = [row for row in self.rows if (row.algorithm, row.recorded, row.current) != key]
            if all(each.same for each in found) and key[1] != key[2]:
                sample = tuple(sorted(each.hash for each in found))
                self.rows.append(Equivalence(*key, sample, min(each.part for each in found), commit()))
        rows = [asdict(row) for row in sorted(self.rows, key=lambda row: (row.algorithm, row.recorded, row.current))]
        write_atomically(self.path, (json.dumps(rows, indent=1) + "\n").encode())


def sample(results: Sequence[Result], number: int) -> list[Result]:
    """Return up to `number` results, spread over algorithms and codes, those that take least time first."""
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in sorted(results, key=lambda each: (each.provenance.get("wall_seconds", 0.0), each.spec.hash)):
        groups.setdefault((result.spec.algorithm.name, result.provenance.get("code", BEFORE)), []).append(result)
    turns = zip_longest(*groups.values())
    return [result for turn in turns for result in turn if result is not None][:number]
