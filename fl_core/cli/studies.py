"""The commands on artifacts, claims and their records: from what the papers' figures cost to pages and verdicts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import nullcontext
from functools import partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer import Argument, Option

from fl_core import CHECKOUT
from fl_core.cli.app import (
    Artifacts,
    Dataset,
    Device,
    Jobs,
    Json,
    OpenProfile,
    Paper,
    Profile,
    Scheduler,
    Seeds,
    app,
    as_text,
    choose_device,
)
from fl_core.errors import FlCoreError, RunError, SpecError, unknown

if TYPE_CHECKING:
    import pandas as pd

    from fl_core.experiments.artifacts import Artifact
    from fl_core.experiments.claims import Judgement
    from fl_core.experiments.run import Result
    from fl_core.experiments.store import Store
    from fl_core.experiments.worker import Tally

Undecided = Annotated[bool, Option(
    "--undecided", help="Only what open claims need, up to the look that may well decide them.")]  # fmt: skip
Only = Annotated[list[str] | None, Option(
    "--only", metavar="CLAIM", help="Repeatable. Only what this claim needs, for example FEDLUCK-C06.")]  # fmt: skip
HEAVY = "Only runs at the paper's budget that take a core over two hours, on all data that is here."
Heavy = Annotated[bool, Option("--heavy", help=HEAVY)]

TableForm = Literal["latex", "parquet"]
TABLES: dict[TableForm, tuple[str, str]] = {"latex": ("tex", "Jinja2"), "parquet": ("parquet", "pyarrow")}
"""Endings, and the packages that pandas takes to write them."""

PLAN = """\b
Examples:
  fl-core plan                                all artifacts, profile laptop
  fl-core plan fedasync-fig2 --profile paper
  fl-core plan 'fedasync-*' --seeds 0,1
  fl-core plan --undecided --paper wkafl      what open claims need, its cost
  fl-core plan --heavy                        what waits for an accelerator
"""


@app.command(epilog=PLAN)
def plan(
    artifacts: Artifacts = None,
    profile: OpenProfile = None,
    dataset: Dataset = "fashion-mnist",
    seeds: Seeds = None,
    jobs: Jobs = None,
    paper: Paper = None,
    undecided: Undecided = False,
    only: Only = None,
    heavy: Heavy = False,
    as_json: Json = False,
) -> None:
    """Count the runs that figures need and lack, and their cost.

    A run that several figures share is counted once in the sum.
    """
    import pandas as pd

    from fl_core.experiments import grid, worker
    from fl_core.experiments.artifacts import make_study
    from fl_core.experiments.ledger import REDUCED
    from fl_core.experiments.store import default_store
    from fl_core.experiments.verify import in_words, is_verified
    from fl_core.report.tables import Table

    if heavy and (undecided or only):
        raise SpecError("--heavy and --undecided count different runs: give one of them")
    store, wanted, chosen = default_store(), read_seeds(seeds), _chosen(artifacts, paper)
    rows: list[dict[str, Any]] = []
    if undecided or only:
        rests = worker.still_needed(chosen, profile, dataset, wanted, store, only or ())
        for rest in rests:
            cost, judgement = grid.plan(rest.missing, store), rest.judgement
            hours = [f"{seconds / 3600:.2g}" for seconds in (cost.core_seconds, *cost.likely)]
            row = {"claim": judgement.claim.id, "label": judgement.label, "budget": profile or judgement.budget}
            look = {"seeds": judgement.seeds, "look": rest.look, "chance": f"{rest.chance:.0%}"}
            work = {"missing": cost.missing, "core-hours": hours[0], "likely": " to ".join(hours[1:])}
            rows += [row | look | work] * bool(rest.missing)
        together = {spec.hash: spec for rest in rests for spec in rest.missing}
        after = [f"open as well, hardly decided by seeds: {len(rests) - len(rows)} ('fl-core claims --undecided')"]
        head = "all of them, each run counted once:"
    elif heavy:
        together = {spec.hash: spec for spec in worker.heavy(chosen, wanted, store)}
        head = "all of them, on one core:"
        costs = {key: each / 3600 for key, each in grid.seconds(together.values(), store, measure=True).items()}
        kinds: dict[tuple[str, str, int], list[float]] = {}
        for spec in together.values():
            kinds.setdefault((spec.dataset, spec.model, spec.seed), []).append(costs[spec.hash])
        for (data, network, seed), took in sorted(kinds.items()):
            sums = {"core-hours": round(sum(took), 1), "the quickest": round(min(took), 1)}
            rows.append({"data": data, "network": network, "seed": seed, "missing": len(took), **sums})
        after = ["'fl-core work --heavy --device cuda' computes them, lower seeds first, of a seed the quickest"]
    else:
        profile = profile or REDUCED
        grids = {each.id: make_study(each, profile, dataset, wanted).entries for each in chosen}
        together = {entry.key: entry.spec for entries in grids.values() for entry in entries}
        stored = {key: found for key, spec in together.items() if (found := store.get(spec))}
        unverified = {key for key, result in stored.items() if not is_verified(result)}
        for name, entries in grids.items():
            keys = {entry.key for entry in entries}
            have = stored.keys() & keys
            counts = {"in store": len(have), "unverified": len(unverified & keys), "missing": len(keys - have)}
            rows.append({"artifact": name, "runs": len(keys), **counts})
        after = [f"in store: {in_words(stored.values())}; see 'fl-core verify --help'"] * bool(stored)
        head = f"all of them at profile {profile}, each run counted once:"
    lines, cost = [Table(pd.DataFrame(rows)).to_text()] * bool(rows), grid.plan(together.values(), store, jobs=jobs)
    text = "\n".join([*lines, "", *after, "", head, cost.table()])
    typer.echo(as_text({"rows": rows, "all": cost}) if as_json else text)


def _chosen(names: Sequence[str] | None, paper: str | None) -> list[Artifact]:
    """Return the artifacts that are meant, with `paper` only those that carry claims of it."""
    from fl_core.experiments.artifacts import find_artifacts
    from fl_core.experiments.ledger import known_paper

    chosen = find_artifacts(names or ["*"])
    prefix = f"{known_paper(paper)}-" if paper is not None else ""
    return [each for each in chosen if not prefix or any(claim.startswith(prefix) for claim in each.claims)]


def read_seeds(text: str | None) -> list[int] | None:
    """Read ``"0,1,2"``."""
    if text is None:
        return None
    try:
        return [int(part) for part in text.strip("[] ").split(",")]
    except ValueError:
        raise SpecError(f"seeds {text!r} are not valid: write whole numbers with commas, for example 0,1,2") from None


WORK = """\b
Examples:
  fl-core work --minutes 60 --nice                     an hour of the published profile's missing runs
  fl-core work 'sdfeel-*' --seeds 3,4,5 --jobs 2
  fl-core work --paper fedluck --undecided --publish   the seeds that open claims need
  fl-core work --only FEDLUCK-C06 --only FEDASMU-C17   what two claims need
  fl-core work fedasmu-tab1 --profile paper --publish
  fl-core work --heavy --device cuda --minutes 9       what waits for an accelerator, as far as nine minutes go
"""


@app.command(epilog=WORK)
def work(
    artifacts: Artifacts = None,
    profile: OpenProfile = None,
    dataset: Dataset = "fashion-mnist",
    seeds: Seeds = None,
    jobs: Annotated[int, Option("--jobs", "-j", help="Workers.")] = 1,
    minutes: Annotated[float | None, Option(help="Stop in time, in the middle of a run if need be.")] = None,
    nice: Annotated[bool, Option("--nice", help="Let everything else on the machine go first.")] = False,
    publish: Annotated[bool, Option(
        "--publish", help="Keep results in data/results, of whole figures also what the cache has.")] = False,
    paper: Paper = None,
    undecided: Undecided = False,
    only: Only = None,
    heavy: Heavy = False,
    device: Device = None,
    together: Annotated[int | None, Option(
        help="With --device cuda: runs at a time of each worker, those on the same data trained as one.",
        show_default="12")] = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Compute what figures lack, beside other workers.

    Runs that decide most claims per core-minute go first. Any number of workers share one store. Each can be killed
    anywhere: a run that was begun is continued from its checkpoint by whoever takes it next.
    """
    from fl_core.experiments import worker
    from fl_core.experiments.artifacts import make_study
    from fl_core.experiments.ledger import REDUCED
    from fl_core.experiments.store import check_writable, default_store
    from fl_core.processes import apart

    if jobs < 1 or jobs > 1024:
        raise SpecError(f"jobs = {jobs} must be between 1 and 1024")
    if minutes is not None and not 0 < minutes < 1e6:
        raise SpecError(f"minutes = {minutes:g} must be positive")
    kind = choose_device(device or "cpu")
    if together is not None and not (1 <= together <= 1024 and (together == 1 or kind == "cuda")):
        raise SpecError(f"together = {together} must be between 1 and 1024, and takes --device cuda")
    executor, together = worker.EXECUTORS[kind], together or worker.TOGETHER[kind]
    store = default_store()
    check_writable(store.published if publish else store.cache)
    chosen, numbers = _chosen(artifacts, paper), read_seeds(seeds)
    if heavy:
        specs = worker.heavy(chosen, numbers, store)
    else:
        specs = worker.queue(chosen, profile, dataset, numbers, store, undecided=undecided, only=only or ())
    if publish and not (heavy or undecided or only):
        entries = make_study(chosen, profile or REDUCED, dataset, numbers).entries
        if moved := store.publish(entry.spec for entry in entries):
            typer.echo(f"{moved} runs of the cache are published", err=as_json)
    typer.echo(f"{len(specs)} runs are missing" + ("" if specs else ": nothing to do"), err=as_json)
    jobs = jobs if specs else 0
    given = ([spec.to_json() for spec in specs], store, minutes, nice, publish, executor, together, as_json)
    answers = [_worker(*given)] if jobs == 1 else apart(jobs, _worker, given)
    tallies = [tally for tally in answers if tally is not None]
    done, failed = sum(tally.done for tally in tallies), [line for tally in tallies for line in tally.failed]
    left = min((tally.left for tally in tallies), default=len(specs))
    stopped = ", as the time is up" if any(tally.stopped for tally in tallies) else ""
    if as_json:
        typer.echo(as_text({"done": done, "left": left, "stopped": bool(stopped), "failed": failed}))
    elif specs:
        typer.echo(f"{done} runs finished, {left} left{stopped}")
    if failed:
        raise RunError(f"{len(failed)} runs failed: {'; '.join(failed)}")
    if len(tallies) < jobs:
        raise RunError(f"{jobs - len(tallies)} of {jobs} workers were killed; what they began goes on with the next")


def _worker(
    lines: list[str], store: Store, minutes: float | None, nice: bool, publish: bool, executor: str, together: int,
    aside: bool,
) -> Tally:  # fmt: skip
    from fl_core.experiments.spec import RunSpec
    from fl_core.experiments.worker import be_nice, take

    if nice:
        be_nice()
    specs = map(RunSpec.from_json, lines)
    echo = partial(typer.echo, err=aside)
    return take(specs, store, minutes=minutes, published=publish, echo=echo, executor=executor, together=together)


VERIFY = """\b
Examples:
  fl-core verify --sample 30                  thirty records, every bit
  fl-core verify 'wkafl-*' --prefix 0.1       the beginning of WKAFL's
  fl-core verify --paper fedluck --all        all of FedLuck's, every bit
  fl-core verify 0a7edd78bdf0                 one run
  fl-core verify --sample 200 --seconds 2 --enter   some of each algorithm and code, into the table
"""


@app.command(epilog=VERIFY)
def verify(
    names: Annotated[list[str] | None, Argument(
        metavar="ARTIFACT_OR_HASH", help="Whose records; by default all.")] = None,
    paper: Paper = None,
    sample: Annotated[int, Option(help="Replay so many, spread over algorithms, quick ones first.")] = 10,
    every: Annotated[bool, Option("--all", help="Replay all of them.")] = False,
    prefix: Annotated[float, Option(help="Part of each run that is replayed.")] = 1.0,
    seconds: Annotated[float | None, Option(help="Of each run no more than took about so long.")] = None,
    beside: Annotated[
        Path | None, Option(help="Compare with what the code of this checkout gives, not with the record.")
    ] = None,
    enter: Annotated[bool, Option("--enter", help="Write down which code gave the same bits.")] = False,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Run stored records again and compare every bit.

    Says what differs first, and where; the exit code is not 0 if anything does. Where a record's processor had other
    instructions than this one, --beside a checkout of verified code compares the code of both. Data has to be here.
    """
    from fl_core.experiments import verify
    from fl_core.experiments.grid import in_words
    from fl_core.experiments.ledger import known_paper
    from fl_core.experiments.run import core_seconds
    from fl_core.experiments.store import default_store

    if not 0 < prefix <= 1:
        raise SpecError(f"prefix = {prefix:g} must be above 0 and at most 1")
    if seconds is not None and not seconds > 0:
        raise SpecError(f"seconds = {seconds:g} must be positive")
    if beside is not None and not (beside / "fl_core").is_dir():
        raise SpecError(f"{beside} is no checkout: it has no folder fl_core")
    if sample < 1:
        raise SpecError(f"sample = {sample} must be at least 1")
    store = default_store()
    of_paper = [f"{known_paper(paper).lower()}-*"] if paper is not None else []
    records = _records([*(names or []), *of_paper], store)
    there = verify.at_hand(records)
    if left := len(records) - len(there):
        kinds = [{(each.spec.dataset, each.provenance["data"]) for each in some} for some in (records, there)]
        listed = "; ".join(sorted(map(", ".join, kinds[0] - kinds[1])))
        typer.echo(f"without {left} of {len(records)} records: their data is not here ({listed})", err=as_json)
    chosen = verify.sample(there, len(there) if every else sample)
    if not chosen:
        what = "no stored record" + " whose data is here" * bool(records)
        raise SpecError(f"{what} is meant by " + (", ".join(names or []) or "that"))
    took = {result.spec.hash: core_seconds(result.provenance) for result in chosen}
    parts = {key: min(prefix, (seconds or inf) / max(each, 1e-9)) for key, each in took.items()}
    share = f"{prefix:.0%}" if seconds is None else f"the beginnings, of {seconds:g} s each,"
    whole = in_words(sum(took[key] * part for key, part in parts.items()))
    typer.echo(f"replaying {share} of {len(chosen)} records, about {whole}", err=as_json)
    replays = []
    wanted = [(result, parts[result.spec.hash]) for result in chosen]
    pairs = verify.beside(wanted, beside.absolute()) if beside else (verify.replay(*each) for each in wanted)
    for found in pairs:
        replays.append(found)
        said = "same bits" if found.same else found.difference
        typer.echo(f"{found.hash} {found.algorithm:<20}{said}", err=as_json)
        if enter:  # at once, so that nothing is lost when it is cut off
            verify.enter(store.published, replays)
    if as_json:
        typer.echo(as_text(replays))
    different = [found.hash for found in replays if not found.same]
    if different:
        raise RunError(f"{len(different)} of {len(replays)} records differ: {', '.join(different)}")
    typer.echo(f"all {len(replays)} are the same, to the last bit", err=as_json)


def _records(names: Sequence[str], store: Store) -> list[Result]:
    """Return the stored records that names mean: hashes (or their beginnings) or artifacts; none given: all."""
    from fl_core.experiments.artifacts import find_artifacts, make_study
    from fl_core.experiments.experiment import PROFILES
    from fl_core.experiments.study import load_study

    if not names:
        return list(store)
    hashes = [name for name in names if set(name) <= set("0123456789abcdef") and len(name) >= 6]
    found = [result for result in store if result.spec.hash.startswith(tuple(hashes))] if hashes else []
    for artifact in find_artifacts([name for name in names if name not in hashes]):
        for profile in PROFILES:
            found += load_study(make_study(artifact, profile), store).results.values()
    return list({result.spec.hash: result for result in found}.values())


REPLAY = """\b
Examples:
  fl-core replay 0a7edd78bdf0 --at 120        where is everybody before event 120?
  fl-core replay spec.json --at 120 -i        the same, and a console
"""


@app.command(epilog=REPLAY)
def replay(
    run: Annotated[str, Argument(
        metavar="HASH_OR_SPEC", help="A stored record, or a specification's or result's file.")],
    at: Annotated[int, Option("--at", metavar="EVENT", help="Stop before this event, counted from 0.")],
    interactive: Annotated[bool, Option(
        "--interactive", "-i", help="Open a Python console with the run at hand.")] = False,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Run again up to an event, and show the state there."""
    import code

    from fl_core.experiments.run import read_spec
    from fl_core.experiments.store import default_store
    from fl_core.runtime.simulation import StopRun
    from fl_core.runtime.watchdog import describe

    if Path(run).is_file():
        specs = [read_spec(run)]
    elif "." in run or "/" in run:
        raise SpecError(f"there is no file {run}")
    else:
        specs = [result.spec for result in _records([run], default_store())]
    if len(specs) != 1:
        raise SpecError(f"{run!r} means {len(specs)} runs; give a file, or a longer beginning of one record's hash")
    if at < 0:
        raise SpecError(f"at = {at} must be at least 0")
    if interactive and as_json:
        raise SpecError("--interactive opens a console, and --json prints nothing but JSON: give one of them")
    simulation, said = specs[0].simulation(), ""

    def look() -> None:
        nonlocal said
        if simulation.kernel.events >= at:
            said = describe(simulation)
            if interactive:
                typer.echo(said)
                names = {"run": simulation, "servers": simulation.servers, "server": simulation.server}
                code.interact(banner="The run stands still; run, server and servers are at hand.", local=names)
            raise StopRun

    simulation.watchdog.before_each_event(look)
    simulation.run("sequential")
    said = said or f"the run ends after {simulation.kernel.events} events, before event {at}"
    if as_json:
        servers = [
            {"version": each.version, "at_work": each.in_flight, "idle": len(each.idle), "waiting": len(each.waiting)}
            for each in simulation.servers
        ]
        place = {"event": simulation.kernel.events, "seconds": simulation.kernel.now, "version": simulation.version}
        typer.echo(as_text({"run": specs[0].hash, **place, "servers": servers, "text": said}))
    elif not interactive or simulation.kernel.events < at:
        typer.echo(said)


CLAIMS = """\b
Examples:
  fl-core claims                        all, with a headline
  fl-core claims FEDASYNC-C03           one, with all parts
  fl-core claims --paper sdfeel --undecided
  fl-core claims --csv > claims.csv
"""


@app.command(epilog=CLAIMS)
def claims(
    names: Annotated[list[str] | None, Argument(metavar="CLAIM", help="Ids; one is shown with all parts.")] = None,
    paper: Paper = None,
    undecided: Annotated[bool, Option("--undecided", help="Only those that more runs could decide.")] = False,
    as_json: Json = False,
    as_csv: Annotated[bool, Option("--csv", help="One row a claim.")] = False,
    export: Annotated[bool, Option("--export", help="Write data/claims.csv, from published runs.")] = False,
) -> None:
    """Show the claims of the papers, judged on the stored runs.

    The pages of the book and the export say the same. Columns are explained in data/README.md.
    """
    from fl_core.datasets import data_folder
    from fl_core.experiments import ledger
    from fl_core.experiments.claims import details
    from fl_core.report.tables import Table, in_words

    if as_json and as_csv:
        raise SpecError("--json and --csv are two forms: give one of them")
    if export and (names or paper or undecided or as_csv):
        raise SpecError("--export writes all claims, to data/claims.csv: give nothing else but --json")
    if export:
        written = str(ledger.export(data_folder()))
        typer.echo(as_text({"written": [written]}) if as_json else f"written {written}")
        return
    found = [each for each in ledger.judged(names or None, paper) if each.open or not undecided]
    if as_json:
        typer.echo(as_text(ledger.frame(found)))
    elif as_csv:
        typer.echo(ledger.as_csv(found).rstrip())
    elif names and len(names) == len(found) == 1:
        [one] = found
        typer.echo(f"{one.sentence()}\n{one.claim.source}; {one.claim.endpoint}")
        typer.echo(f"null: {one.claim.null}\nrests on {one.rests_on()}\n")
        typer.echo(Table(details(found).drop(columns="claim", errors="ignore")).to_text())
    else:
        columns = ["claim", "label", "measured", "claimed", "seeds", "budget", "reason"]
        typer.echo(Table(in_words(found)[columns]).to_text())
        typer.echo(ledger.in_short(found))


REGENERATE = """\b
Examples:
  fl-core regenerate fedasync-fig2
  fl-core regenerate fedasync-fig3 -P laptop -p 'alphas=[0.6]' -p 'seeds=[0]'
  fl-core regenerate fedasync/replication --profile laptop
  fl-core regenerate start_here -p SEED=3 --output mine.ipynb
"""


@app.command(epilog=REGENERATE)
def regenerate(
    target: Annotated[str, Argument(metavar="ARTIFACT_OR_NOTEBOOK", help="An artifact's id or a chapter's name.")],
    profile: Annotated[str | None, Option(
        "--profile", "-P", help="smoke, laptop or paper; by default the published one, or the chapter's.")] = None,
    parameters: Annotated[list[str] | None, Option(
        "-p", "--parameter", metavar="NAME=VALUE", help="Repeatable; validated.")] = None,
    output: Annotated[Path | None, Option(
        "--output", "-o", help="A folder (artifact) or .ipynb file (chapter); by default below _build.")] = None,
    jobs: Jobs = None,
    scheduler: Scheduler = None,
    table: Annotated[TableForm | None, Option("--table", help="Write the numbers in this form, too.")] = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Make one figure or one chapter of the book again.

    A figure is written as png and svg, with its numbers (csv) and caption (txt); other parameters make other files.
    Without a profile it rests on the published records, where there are any, else on runs at profile smoke. Runs that
    the store lacks are computed first, with a progress bar; it can be interrupted and continued.
    """
    from fl_core import bookbuild
    from fl_core.bookbuild.chapters import committed, matching
    from fl_core.experiments.artifacts import artifacts

    values = bookbuild.parse_assignments(parameters or [])
    if profile is not None and any(name.lower() == "profile" for name in values):
        raise SpecError("the profile is given twice: use --profile or -p PROFILE=NAME")
    if target.endswith(".ipynb") or matching(target):
        chosen = values if profile is None else {"PROFILE": profile, **values}
        written = bookbuild.regenerate(target, chosen, output, echo=partial(typer.echo, err=as_json))
        made = {"chapter": target, "written": [written]}
    elif target in artifacts():
        made = _make_artifact(target, profile, values, output, jobs, scheduler, table, as_json)
    else:
        raise unknown("artifact or notebook", target, [*artifacts(), *committed().values()])
    if as_json:
        typer.echo(as_text({**made, "written": [str(path) for path in made["written"]]}))


def _make_artifact(
    name: str, profile: str | None, values: dict[str, Any], output: Path | None, jobs: int | None,
    scheduler: str | None, table: TableForm | None, aside: bool,
) -> dict[str, Any]:  # fmt: skip
    """Run what is missing of the artifact's grid, then write its figure, its table and its caption.

    Without a profile the published records are shown, as on the page, or a run at profile smoke where there are none.
    """
    import matplotlib
    import pandas as pd

    from fl_core.bookbuild.chapters import ROOT, file_name
    from fl_core.experiments import grid
    from fl_core.experiments.artifacts import find_artifact, make_study, stored_seeds
    from fl_core.experiments.claims import judge
    from fl_core.experiments.ledger import frame, judged, standard
    from fl_core.experiments.store import check_writable, default_store, write_atomically
    from fl_core.experiments.study import load_study
    from fl_core.report.figures import draw, files_of

    matplotlib.use("Agg")
    echo = partial(typer.echo, err=aside)
    artifact, store = find_artifact(name), default_store()
    options = {key.lower(): value for key, value in values.items()}
    seeds = options.pop("seeds", None)
    if seeds is not None and not (isinstance(seeds, list | tuple) and all(type(seed) is int for seed in seeds)):
        raise SpecError(f"seeds = {seeds!r} are not valid: write a list of whole numbers, for example seeds=[0,1]")
    dataset = options.pop("dataset", "fashion-mnist")
    profile = options.pop("profile", profile)
    empty = make_study(artifact, profile or "smoke", dataset, seeds, **options)
    if profile is None and empty.entries:
        empty = stored_seeds([artifact], store, "smoke", dataset, seeds, **options) or empty
        origin = "no larger one is stored" if empty.profile == "smoke" else "stored runs"
        echo(f"profile {empty.profile}: {origin}")
    folder = output or (ROOT if CHECKOUT else Path.cwd()) / "_build" / "artifacts" / empty.profile
    if folder.exists() and not folder.is_dir():
        raise SpecError(f"{folder} is a file; the output of an artifact is a folder")
    before = load_study(empty, store).results
    check_writable(folder, name)
    if table:
        _written(pd.DataFrame(), table)  # what that takes is here, or nothing is run
    with nullcontext() if scheduler is None else grid.dask_pool(scheduler) as pool:
        grid.execute([entry.spec for entry in empty.entries], jobs=jobs, store=store, pool=pool)
    study = load_study(empty, store)
    shown, caption = draw(artifact, study)
    if study.results:
        computed = [result for key, result in study.results.items() if key not in before]
        echo(f"from the store: {_commits(before.values())}; computed now: {_commits(computed)}")
        caption += f"\nRests on {_commits(study.results.values())}."
    numbers = artifact.reduce(study)
    contents = {"csv": numbers.to_csv(index=False).encode(), "txt": f"{caption}\n".encode()}
    contents |= files_of(shown, name) | ({TABLES[table][0]: _written(numbers, table)} if table else {})
    folder.mkdir(parents=True, exist_ok=True)
    stem = file_name(name, {key: value for key, value in values.items() if key.lower() != "profile"})
    paths = [folder / f"{stem}.{suffix}" for suffix in reversed(contents)]
    for path in paths:
        write_atomically(path, contents[path.suffix[1:]])
    echo(caption)
    judgements: Sequence[Judgement] = ()
    if artifact.claims:
        alone = not standard(dataset, empty.profile, seeds, options)
        echo("Judged on " + ("these runs alone:" if alone else "all stored runs, as by 'fl-core claims':"))
        judgements = judge(artifact.claims, study) if alone else judged(sorted(artifact.claims))
        for found in judgements:
            echo(found.sentence())
    echo("written: " + ", ".join(map(str, paths)))
    claims = json.loads(frame(judgements).to_json(orient="records"))
    return {"artifact": name, "profile": empty.profile, "caption": caption, "claims": claims, "written": paths}


def _written(numbers: pd.DataFrame, form: TableForm) -> bytes:
    """Return a table in a form for which pandas takes another package."""
    try:
        if form == "latex":
            return numbers.to_latex(index=False, float_format="%.4g", escape=True).encode()
        return numbers.to_parquet(index=False)
    except ImportError:
        raise SpecError(f"a table as {form} takes another package: pip install {TABLES[form][1]}") from None


def _commits(results: Collection[Result]) -> str:
    """Say how many runs were made by which commits: ``"18 runs (12 by 65f9108111d5, 6 by 372ff73d2bbc)"``."""
    commits = Counter(result.provenance.get("commit", "unknown") for result in results)
    listed = ", ".join(f"{number} by {commit}" for commit, number in commits.most_common())
    return f"{len(results)} run{'s' * (len(results) != 1)}" + (f" ({listed})" if listed else "")


@app.command()
def book(profile: Profile = "smoke", jobs: Jobs = None, as_json: Json = False) -> None:
    """Execute all chapters and build the HTML book.

    The pages are at _build/PROFILE/html; after a failure the previous ones are still there.
    """
    from fl_core.bookbuild import build_book

    made = build_book(profile, jobs=jobs, echo=partial(typer.echo, err=as_json))
    if as_json:
        typer.echo(as_text({"profile": profile, "written": [str(made / "index.html")]}))


results = typer.Typer(no_args_is_help=True, help="Pack published results, merge those of other folders.")
app.add_typer(results, name="results")


@results.command()
def pack(as_json: Json = False) -> None:
    """Move published runs from files of their own into one file for each figure, with those that are there."""
    from fl_core.datasets import data_folder
    from fl_core.experiments import ledger, store
    from fl_core.experiments.artifacts import artifacts
    from fl_core.experiments.calibration import calibration, calibration_on_real_data
    from fl_core.experiments.experiment import PROFILES
    from fl_core.report import heterogeneity

    published = store.default_store().published
    grids: dict[str, str] = {}
    alone = [result.spec for result in store.singles(published)]
    seeds = sorted({spec.seed for spec in alone})
    for dataset in sorted({spec.dataset for spec in alone}):
        for artifact in artifacts().values():
            for profile in PROFILES:
                try:
                    entries = artifact.grid(profile, dataset, seeds)
                except FlCoreError:
                    continue  # not on this data
                for entry in entries:
                    grids.setdefault(entry.key, artifact.id)
    kept = store.Store(published, published)
    for entry in (*calibration(kept).entries, *calibration_on_real_data(kept).entries):
        grids.setdefault(entry.key, "calibration")
    grids |= {entry.key: "start" for entry in heterogeneity.entries()}
    changed = store.pack(published, grids)
    if changed and published == data_folder() / "results":
        changed.append(ledger.export(data_folder()))
    written = [str(path) for path in changed]
    if as_json or written:
        typer.echo(as_text({"written": written}) if as_json else "\n".join(f"written {path}" for path in written))


@results.command()
def merge(
    folders: Annotated[list[Path], Argument(metavar="FOLDER", help="Folders of results of other workers.")],
    as_json: Json = False,
) -> None:
    """Copy the records of other folders that are missing here into the cache; equal runs must be equal."""
    from fl_core.experiments.store import Store, default_store

    store, copied, different = default_store(), 0, []
    for folder in folders:
        if not folder.is_dir():
            raise SpecError(f"{folder} is not a folder of results")
        for result in Store(folder, folder):
            own = store.get(result.spec)
            if own is None:
                store.save(result)
                copied += 1
            elif own.history.to_dict() != result.history.to_dict():
                different.append(result.spec.hash)
    typer.echo(as_text({"copied": copied, "different": different}) if as_json else f"{copied} records copied")
    if different:
        raise RunError(f"{len(different)} runs have another history there, nothing of them was copied: {different}")
