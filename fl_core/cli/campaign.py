"""``fl-core work`` and ``fl-core verify``: long campaigns that may be killed, and records that prove themselves."""

from __future__ import annotations

import code
from collections.abc import Callable, Sequence
from pathlib import Path

from fl_core.errors import RunError, SpecError
from fl_core.experiments.artifacts import artifacts, find_artifacts, make_study
from fl_core.experiments.grid import in_words, work
from fl_core.experiments.ledger import known_paper
from fl_core.experiments.run import Result
from fl_core.experiments.spec import RunSpec
from fl_core.experiments.store import Store, check_writable, default_store
from fl_core.experiments.study import load_study
from fl_core.experiments.verify import enter as enter_in_table
from fl_core.experiments.verify import replay, sample
from fl_core.experiments.worker import Tally, be_nice, queue, take
from fl_core.processes import apart

Echo = Callable[[str], object]


def work_through(
    names: Sequence[str],
    profile: str,
    dataset: str,
    seeds: list[int] | None,
    jobs: int,
    minutes: float | None,
    nice: bool,
    publish: bool,
    paper: str | None,
    undecided: bool,
    echo: Echo,
) -> None:
    """Take missing runs of artifacts until none is left or the time is up; a run that failed is a RunError."""
    if jobs < 1 or jobs > 1024:
        raise SpecError(f"jobs = {jobs} must be between 1 and 1024")
    if minutes is not None and not 0 < minutes < 1e6:
        raise SpecError(f"minutes = {minutes:g} must be positive")
    store = default_store()
    check_writable(store.published if publish else store.cache)
    chosen = find_artifacts(names or list(artifacts()))
    if paper is not None:
        prefix = f"{known_paper(paper)}-"
        chosen = [artifact for artifact in chosen if any(claim.startswith(prefix) for claim in artifact.claims)]
    specs = queue(chosen, profile, dataset, seeds, store, undecided=undecided)
    echo(f"{len(specs)} runs are missing" + ("" if specs else ": nothing to do"))
    if not specs:
        return
    lines = [spec.to_json() for spec in specs]
    if jobs == 1:
        tallies = [_worker(lines, store, minutes, nice, publish, echo)]
    else:
        answers = apart(jobs, _worker, (lines, store, minutes, nice, publish, print))
        tallies = [tally for tally in answers if tally is not None]
    done, failed = sum(tally.done for tally in tallies), [line for tally in tallies for line in tally.failed]
    left = min((tally.left for tally in tallies), default=len(lines))
    echo(f"{done} runs finished, {left} left" + (", as the time is up" if any(t.stopped for t in tallies) else ""))
    if failed:
        raise RunError(f"{len(failed)} runs failed: {'; '.join(failed)}")
    if len(tallies) < jobs:
        raise RunError(f"{jobs - len(tallies)} of {jobs} workers were killed; what they began goes on with the next")


def _worker(lines: list[str], store: Store, minutes: float | None, nice: bool, publish: bool, echo: Echo) -> Tally:
    if nice:
        be_nice()
    return take(map(RunSpec.from_json, lines), store, minutes=minutes, published=publish, echo=echo)


def verify(names: Sequence[str], paper: str | None, number: int | None, part: float, enter: bool, echo: Echo) -> None:
    """Replay so many records, or all, and compare bits; a difference is a RunError.

    With `enter` it is written down at once what was shown equal, so that nothing is lost when it is cut off.
    """
    if not 0 < part <= 1:
        raise SpecError(f"prefix = {part:g} must be above 0 and at most 1")
    if number is not None and number < 1:
        raise SpecError(f"sample = {number} must be at least 1")
    store = default_store()
    of_paper = [f"{known_paper(paper).lower()}-*"] if paper is not None else []
    records = _records([*names, *of_paper], store)
    chosen = sample(records, len(records) if number is None else number)
    if not chosen:
        raise SpecError("no stored record is meant by " + (", ".join(names) or "that"))
    size = sum(work(result.spec) for result in chosen) * part
    seconds = sum(result.provenance.get("wall_seconds", 0.0) for result in chosen) * part
    echo(f"replaying {part:.0%} of {len(chosen)} records, {size:,.0f} images, about {in_words(seconds)}")
    replays = []
    for result in chosen:
        found = replay(result, part)
        replays.append(found)
        echo(f"{found.hash} {found.algorithm:<20}{'same bits' if found.same else found.difference}")
        if enter:
            enter_in_table(store.published, replays)
    different = [found.hash for found in replays if not found.same]
    if different:
        raise RunError(f"{len(different)} of {len(replays)} records differ: {', '.join(different)}")
    echo(f"all {len(replays)} are the same, to the last bit")


def stop_at(name: str, event: int, interactive: bool, echo: Echo) -> None:
    """Run a stored record, or a specification's file, again up to an event, and show the state of the run there."""
    from fl_core.runtime.sanitizer import describe
    from fl_core.runtime.simulation import StopRun

    path = Path(name)
    specs = (
        [RunSpec.from_file(path)] if path.is_file() else [result.spec for result in _records([name], default_store())]
    )
    if len(specs) != 1:
        raise SpecError(f"{name!r} means {len(specs)} runs; give a file, or a longer beginning of one record's hash")
    if event < 0:
        raise SpecError(f"at = {event} must be at least 0")
    simulation = specs[0].simulation()

    def look() -> None:
        if simulation.kernel.events >= event:
            echo(describe(simulation))
            if interactive:
                names = {"run": simulation, "servers": simulation.servers, "server": simulation.server}
                code.interact(banner="The run stands still; run, server and servers are at hand.", local=names)
            raise StopRun

    simulation.watchdog.before_each_event(look)
    simulation.run("sequential")
    if simulation.kernel.events < event:
        echo(f"the run ends after {simulation.kernel.events} events, before event {event}")


def _records(names: Sequence[str], store: Store) -> list[Result]:
    """Return the stored records that names mean: hashes (or their beginnings) or artifacts; none given: all."""
    if not names:
        return list(store)
    hashes = [name for name in names if set(name) <= set("0123456789abcdef") and len(name) >= 6]
    found = [result for result in store if result.spec.hash.startswith(tuple(hashes))] if hashes else []
    for artifact in find_artifacts([name for name in names if name not in hashes]):
        for profile in ("smoke", "laptop", "paper"):
            found += load_study(make_study(artifact, profile), store).results.values()
    return list({result.spec.hash: result for result in found}.values())


def merge(sources: Sequence[Path], echo: Echo) -> None:
    """Copy the records of other stores' folders that this one lacks into its cache; what differs is a RunError."""
    store, copied, different = default_store(), 0, []
    for folder in sources:
        if not folder.is_dir():
            raise SpecError(f"{folder} is not a folder of results")
        for result in Store(folder, folder):
            own = store.get(result.spec)
            if own is None:
                store.save(result)
                copied += 1
            elif own.history.to_dict() != result.history.to_dict():
                different.append(result.spec.hash)
    echo(f"{copied} records copied")
    if different:
        raise RunError(f"{len(different)} runs have another history there, nothing of them was copied: {different}")
