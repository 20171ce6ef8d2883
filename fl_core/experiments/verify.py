"""Whose numbers are these? Replay stored runs: does this code give the same bits?

A record is *verified by this code* if this code made it, if it was replayed with the same bits, or if a sample of the
records that the same algorithm and code made was: :data:`TABLE` says which. Everything else is unverified.

A processor with other instructions rounds otherwise, and cannot replay. There the code of before, which is verified,
and this code run the same specifications side by side (:func:`beside`): what gives the same bits on one processor
because its operations are the same gives the same bits on the other.
"""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import zip_longest
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pandas as pd
from filelock import FileLock

from fl_core.datasets import kind_of
from fl_core.errors import DataError, RunError
from fl_core.experiments.identity import EXACT, code_digest, instructions
from fl_core.experiments.run import Result, commit, core_seconds
from fl_core.experiments.spec import essential
from fl_core.experiments.store import Store, default_store, write_atomically
from fl_core.runtime import History

TABLE = "verified.json"
"""Beside the published records: which other code was shown to give the same bits, on which sample."""
VERIFIED = OWN, REPLAYED, SAMPLED, BESIDE = "made by this code", "replayed", "equal by sample", "equal side by side"
EARLIER, UNVERIFIED = "equal to earlier code", "unverified"
STANDINGS = *VERIFIED, EARLIER, UNVERIFIED
"""What a record's code is to this one. Earlier code was like it, and has changed."""
WATTS_PER_CORE = 10.0
"""Of a busy server core with its share of memory, fans and power supply: an estimate, nothing was measured."""


@dataclass(frozen=True)
class Replay:
    """What replaying one record has shown."""

    hash: str
    algorithm: str
    recorded: str
    """What :func:`made_by` says."""
    current: str
    part: float
    """Of the run's budget that was replayed."""
    difference: str
    """What differs first, and where; empty: nothing."""
    beside: str = ""
    """As of an :class:`Equivalence`."""

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
    sample: dict[str, float]
    """By hash how much of each run was replayed."""
    instructions: str
    commit: str
    beside: str = ""
    """The verified code beside which `current` ran, if not the record itself was replayed."""


def made_by(provenance: Mapping[str, Any], current: str = "") -> str:
    """Return the digest of the code that made a record, or that is `current`, and what made it inexact.

    Of an older record it is the commit.
    """
    code = current or provenance.get("code") or f"commit {provenance.get('commit', 'unknown')}"
    return f"{code}{'' if is_exact(provenance) else ' rounded'}"


def is_exact(provenance: Mapping[str, Any]) -> bool:
    """Return whether a record was computed by an executor whose numbers do not depend on it."""
    return bool(provenance.get("numbers", EXACT) == EXACT)


def replay(stored: Result, part: float = 1.0) -> Replay:
    """Run the specification of `stored` again, up to a part of its budget, and compare bit for bit.

    It goes on until something is compared that the algorithm has done: the evaluation of the initial model is not.
    """
    spec = stored.spec
    again = rerun(stored, part)
    found = difference(stored.history, again.history, part >= 1)
    if part >= 1 and not found and stored.provenance.get("model_sha256", again.model) != again.model:
        found = f"the final model: SHA-256 {stored.provenance['model_sha256']} stored, {again.model} now"
    if found and not is_exact(stored.provenance):
        found += f"; made up to rounding, on {stored.provenance.get('machine', 'an unknown machine')}"
    elif found and (made := stored.provenance.get("instructions", "others than are known")) != instructions():
        found += f"; made with instructions {made}, replayed with {instructions()}, which round otherwise"
    recorded, current = made_by(stored.provenance), made_by(stored.provenance, code_digest(spec))
    return Replay(spec.hash, spec.algorithm.name, recorded, current, again.reached, found)


@dataclass(frozen=True)
class Rerun:
    """What running a record's specification, or its beginning, has given."""

    code: str
    """As :func:`made_by` says it."""
    history: History
    model: str
    """SHA-256 of the last global model."""
    reached: float
    """Of the run's budget."""


def rerun(stored: Result, part: float, run: Callable[..., Any] | None = None) -> Rerun:
    """Run the specification of `stored` up to a part of its budget, here or as `run` does it."""
    executor = "sequential" if is_exact(stored.provenance) else "batched"
    least = ("updates", 0) if any(stored.history.updates.values()) else ("evaluations", 1)
    code, history, *rest = (run or _rerun)(json.dumps(essential(stored.spec)), executor, least, part)
    return Rerun(made_by(stored.provenance, code), History.from_dict(history), *rest)


def _rerun(text: str, executor: str, least: tuple[str, int], part: float) -> tuple[str, dict[str, Any], str, float]:
    """Do it with whatever fl_core there is: another copy's interpreter is given the source of this function."""
    import hashlib

    from fl_core.experiments.identity import code_digest
    from fl_core.experiments.spec import RunSpec
    from fl_core.runtime.simulation import StopRun

    spec, reached, (table, rows) = RunSpec.from_json(text), 1.0, least
    simulation = spec.simulation()

    def stop(used: float) -> None:
        nonlocal reached
        if part < 1 and used >= part and len(getattr(simulation.history, table)["version"]) > rows:
            reached = used
            raise StopRun

    history = simulation.run(executor, None, stop)
    assert history.model is not None
    model = hashlib.sha256(history.model.numpy().tobytes()).hexdigest()
    return code_digest(spec), history.to_dict(), model, reached


@contextmanager
def _running(checkout: Path) -> Iterator[Callable[..., Any]]:
    """Give a function that does what :func:`_rerun` does, in a process whose fl_core is that of `checkout`."""
    loop = "import json, sys\nfor line in sys.stdin: print('\\n' + json.dumps(_rerun(*json.loads(line))), flush=True)"
    source = f"from __future__ import annotations\n{inspect.getsource(_rerun)}\n{loop}"
    words = [sys.executable, "-P", "-c", source]  # -P: not the folder that we are in
    env = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (checkout, checkout / "notebooks")))}
    with subprocess.Popen(words, stdin=PIPE, stdout=PIPE, env=env, text=True, bufsize=1) as process:
        asked, told = process.stdin, process.stdout
        assert asked is not None
        assert told is not None

        def run(*given: Any) -> Any:
            asked.write(json.dumps(given) + "\n")
            for line in told:
                if line.startswith("["):
                    return json.loads(line)
            raise RunError(f"the code of {checkout} has failed")

        yield run
        asked.close()


def beside(records: Iterable[tuple[Result, float]], checkout: Path) -> Iterator[Replay]:
    """Run parts of records' specifications with the code of `checkout` and with this one, and compare bit for bit.

    Nothing is shown if the code of `checkout` is not itself verified, by the table of the published results here.
    """
    verified = Verified(default_store().published)
    with _running(checkout) as there_too:
        for stored, part in records:
            there, here = rerun(stored, part, there_too), rerun(stored, part)
            recorded, algorithm = made_by(stored.provenance), stored.spec.algorithm.name
            found = difference(there.history, here.history, said=("there", "here"))
            if not found and there.model != here.model:
                found = f"the model: SHA-256 {there.model} in {checkout}, {here.model} here"
            known = verified.shown(algorithm, recorded)
            if there.code != recorded and not any(there.code in (row.current, row.beside) for row in known):
                found = f"the code of {checkout}, {there.code}, is not verified for what {recorded} made"
            yield Replay(stored.spec.hash, algorithm, recorded, here.code, here.reached, found, there.code)


def difference(old: History, new: History, whole: bool = True, said: tuple[str, str] = ("stored", "now")) -> str:
    """Return in words the first place where two histories differ, NaN being equal to NaN; empty if they do not.

    Unless `whole`, the new one was stopped early and its last evaluation is of that moment. A table that the old one
    was stored without is not compared. `said` is what stands behind the values of either.
    """
    first, second = said
    for name in ("evaluations", "updates", "faults"):
        before, after = getattr(old, name), getattr(new, name)
        if name == "updates" and not any(before.values()):
            continue
        rows = [len(next(iter(table.values()))) for table in (before, after)]
        shared = min(rows[0], rows[1] - (name == "evaluations" and not whole))
        for row in range(shared):
            for column in before.keys() & after.keys():
                was, now = before[column][row], after[column][row]
                if was != now and (was == was or now == now):
                    places = [f"{place} {before[place][row]}" for place in ("version", "seconds") if place in before]
                    where = f"row {row} of the {name} ({', '.join(places)})"
                    return f"{column} in {where}: {was!r} {first}, {now!r} {second}"
        if whole and rows[0] != rows[1]:
            return f"{rows[0]} {name} {first}, {rows[1]} {second}"
    if whole and old.outcomes and old.outcomes != new.outcomes:
        return f"outcomes: {old.outcomes} {first}, {new.outcomes} {second}"
    return ""


class Verified:
    """The committed table of code that was shown to give the same bits as the code that made a record."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / TABLE
        try:
            self.rows = [Equivalence(**row) for row in json.loads(self.path.read_text())]
        except FileNotFoundError:
            self.rows = []
        except (OSError, ValueError, TypeError, RecursionError) as error:
            raise DataError(f"{self.path} is damaged ({type(error).__name__}: {error})") from None
        self._shown: dict[tuple[str, str], list[Equivalence]] = {}
        for row in self.rows:
            self._shown.setdefault((row.algorithm, row.recorded), []).append(row)

    def shown(self, algorithm: str, recorded: str) -> list[Equivalence]:
        """Return what was shown about the code that made some records."""
        return self._shown.get((algorithm, recorded), [])

    def standing(self, result: Result) -> str:
        """Return which of :data:`STANDINGS` a record has."""
        recorded, current = made_by(result.provenance), made_by(result.provenance, code_digest(result.spec))
        if recorded == current:
            return OWN
        rows = self.shown(result.spec.algorithm.name, recorded)
        row = next((row for row in rows if row.current == current), None)
        if row is None:
            return EARLIER if rows else UNVERIFIED
        return BESIDE if row.beside else REPLAYED if result.spec.hash in row.sample else SAMPLED


def enter(folder: Path, replays: Iterable[Replay]) -> None:
    """Add to the table in `folder` what replays have shown: per algorithm and code, if none gave other bits.

    What was shown about the same algorithm and its code before it changed goes.
    """
    groups: dict[tuple[str, str], list[Replay]] = {}
    for each in replays:
        groups.setdefault((each.algorithm, each.recorded), []).append(each)
    with FileLock(folder / ".verifying.lock"):
        rows = {(row.algorithm, row.recorded): row for row in Verified(folder).rows}
        for key, found in groups.items():
            before, current, other = rows.pop(key, None), found[0].current, found[0].beside
            if all(each.same for each in found) and key[1] != current:
                if before is not None and before.current == current and other and not before.beside:
                    rows[key] = before  # to be replayed says more
                    continue
                known = before.sample if before and (before.current, before.beside) == (current, other) else {}
                shown = {each.hash: max(each.part, known.get(each.hash, 0.0)) for each in found}
                sample = dict(sorted((known | shown).items()))
                rows[key] = Equivalence(*key, current, sample, instructions(), commit(), other)
        lines = [json.dumps(asdict(rows[key])) for key in sorted(rows)]  # a line each, so that a diff can be read
        write_atomically(folder / TABLE, ("[\n" + ",\n".join(lines) + "\n]\n").encode())


@lru_cache(4)
def _verified(folder: Path, changed: int) -> Verified:
    return Verified(folder)


def standing(result: Result) -> str:
    """Return which of :data:`STANDINGS` a record has, by the table beside the published records."""
    folder = default_store().published
    table = folder / TABLE
    return _verified(folder, table.stat().st_mtime_ns if table.is_file() else 0).standing(result)


def is_verified(result: Result) -> bool:
    """Return whether this code gives the bits of a record, as far as is known."""
    return standing(result) in VERIFIED


def in_words(results: Iterable[Result]) -> str:
    """Return how many records are verified by this code: ``"12 of 30 runs verified by this code, 18 UNVERIFIED"``."""
    results = list(results)
    found = Counter(map(standing, results))
    rounded = sum(not is_exact(result.provenance) for result in results)
    verified = sum(found[each] for each in VERIFIED)
    words = [f"{verified} of {found.total()} runs verified by this code"]
    words += [f"{found[EARLIER]} UNVERIFIED since it has changed"] * bool(found[EARLIER])
    words += [f"{found[UNVERIFIED]} UNVERIFIED"] * bool(found[UNVERIFIED])
    return ", ".join(words + [f"{rounded} computed up to rounding, by the batched executor"] * bool(rounded))


def published_records(store: Store) -> pd.DataFrame:
    """Return, for each paper and all data or real data, how many published records have which standing.

    The last columns count those of uncommitted code, and what all have cost: core-hours, see
    :func:`~fl_core.experiments.run.core_seconds`, and megajoules by :data:`WATTS_PER_CORE`.
    """
    grids, rows = store.grids(), []
    papers: dict[str, list[tuple[str, Mapping[str, Any]]]] = {}
    for result in store.outlines():
        if (key := result.spec.hash) in grids:
            papers.setdefault(grids[key].partition("-")[0], []).append((standing(result), result.provenance))
    everything = [result for results in papers.values() for result in results]
    for name, results in [*sorted(papers.items()), ("all", everything)]:
        for data, kept in ("all", results), ("real", [each for each in results if each[1]["data"] == "real"]):
            found = Counter(each for each, _ in kept)
            dirty = sum("dirty" in provenance.get("commit", "") for _, provenance in kept)
            columns = {each: found[each] for each in STANDINGS} | {"uncommitted code": dirty}
            hours = sum(core_seconds(provenance) for _, provenance in kept) / 3600
            cost = {"core-hours": round(hours, 1), "MJ, estimated": round(hours * 3600 * WATTS_PER_CORE / 1e6, 2)}
            rows.append({"paper": name, "data": data, "records": len(kept), **columns, **cost})
    return pd.DataFrame(rows)


def at_hand(records: Iterable[Result]) -> list[Result]:
    """Return the records of runs on data that a run would get here, too."""
    every, here = list(records), dict[str, str]()
    for name in {record.spec.dataset for record in every}:
        with suppress(DataError):  # neither the data nor a surrogate
            here[name] = kind_of(name)
    return [record for record in every if here.get(record.spec.dataset) == record.provenance["data"]]


def sample(results: Sequence[Result], number: int) -> list[Result]:
    """Return up to `number` results, spread over algorithms and codes, those that take least time first."""
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in sorted(results, key=lambda each: (each.provenance.get("wall_seconds", 0.0), each.spec.hash)):
        groups.setdefault((result.spec.algorithm.name, made_by(result.provenance)), []).append(result)
    turns = zip_longest(*groups.values())
    return [result for turn in turns for result in turn if result is not None][:number]
