"""The door: ``fl-core``. Names, options and help of the commands; what they do is imported when one is called."""

from __future__ import annotations

import os
import sys
import threading
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from fl_core import __version__
from fl_core.cli import examples
from fl_core.errors import FlCoreError

KEPT = {
    "run": "nothing was written",
    "work": "runs that were finished are stored, and a run that was begun goes on from its checkpoint",
    "regenerate": "runs that were finished are stored, and the same command continues",
    "book": "the previous book is still there",
}
"""What an interruption leaves, by command."""
INTERRUPTED = 130
"""Exit code after Ctrl-C, SIGTERM or SIGHUP."""
EARLY = 3
"""Exit code of a run that ended, and was kept, before its budget was used up."""


SETTING = "Repeatable. A parameter of the algorithm, or a field of the run ('fl-core list fields')."


class Door(TyperGroup):
    """Turns bad input into one line and exit code 2, and an interruption into a word about what is kept."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            try:
                return super().invoke(ctx)
            except FlCoreError as error:
                if ctx.params.get("debug"):
                    raise
                typer.echo(f"fl-core: error: {error}", err=True)
                raise typer.Exit(2) from None
            except KeyboardInterrupt as interruption:
                kept = str(interruption) or KEPT.get(ctx.invoked_subcommand or "", "nothing was changed")
                typer.echo(f"\nfl-core: interrupted; {kept}", err=True)
                raise typer.Exit(INTERRUPTED) from None


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    if issubclass(category, UserWarning):
        typer.echo(f"fl-core: warning: {message}", err=True)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fl-core {__version__}")
        raise typer.Exit


app = typer.Typer(
    name="fl-core",
    cls=Door,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=examples.START,
)


@app.callback()
def door(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it and stop.")
    ] = False,
) -> None:
    """Asynchronous federated learning in virtual time.

    Everything that can be named is shown by 'fl-core list'. Wrong input is answered with one line that says what
    would be valid, and exit code 2; nothing is left half-written.
    """


@app.command(epilog=examples.RUN)
def run(
    spec: Annotated[
        Path | None,
        typer.Argument(metavar="SPEC.json", help="What --print-spec writes, or a part of it."),
    ] = None,
    algorithm: Annotated[
        str | None,
        typer.Option(
            "--algorithm", "-a", metavar="NAME", help="Replaces the file's one ('fl-core list algorithms')."
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", "-s", metavar="NAME=VALUE", help=SETTING),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Determines every random number.")] = None,
    executor: Annotated[
        str | None,
        typer.Option(help="threads, sequential, batched (on an accelerator; equal up to rounding) or debug."),
    ] = None,
    threads: Annotated[int | None, typer.Option(help="Worker threads; by default one per core.")] = None,
    trace: Annotated[bool, typer.Option("--trace", help="Record what every device does when.")] = False,
    checkpoint_every: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Keep the state of the run in data/cache so often: 60s, 5m, 1h."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the last checkpoint, if there is one; implies 60s.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE.json", help="Write specification, provenance and history here.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Let --out replace a file.")] = False,
    store: Annotated[bool, typer.Option("--store/--no-store", help="Keep the result in data/cache.")] = True,
    print_spec: Annotated[
        bool, typer.Option("--print-spec", help="Print the specification as canonical JSON and stop.")
    ] = False,
) -> None:
    """Run one specification and print its evaluations.

    Without a file, every field that is not set has its default. Values are numbers, JSON, 'none', or text such as
    hinge(a=10, b=4) for anything that has a kind. A run in which nothing usable arrives any more ends before its
    budget: it is kept, and the exit code is 3.
    """
    from fl_core.cli.commands import Keep, run_checkpoints, run_one
    from fl_core.cli.settings import build_spec

    chosen = build_spec(spec, algorithm, settings or [], seed)
    if print_spec:
        typer.echo(chosen.to_json())
    else:
        checkpoints = run_checkpoints(chosen, checkpoint_every, resume, trace, typer.echo)
        result = run_one(chosen, executor, threads, trace, Keep(store, out, force), typer.echo, checkpoints)
        raise typer.Exit(EARLY if result.history.ended != "budget" else 0)


@app.command(
    "list",
    epilog=examples.LIST,
)
def list_(
    kind: Annotated[
        str | None,
        typer.Argument(metavar="KIND", help=f"{', '.join(examples.KINDS)}; without it the names of all."),
    ] = None,
) -> None:
    """Show what there is to choose from, with meanings."""
    from fl_core.cli.catalogue import show

    typer.echo(show(kind))


data_app = typer.Typer(invoke_without_command=True, epilog=examples.DATA)
app.add_typer(data_app, name="data")


@data_app.callback()
def data(context: typer.Context) -> None:
    """Show all data sets, real or not; get or import them."""
    if context.invoked_subcommand is None:
        from fl_core.cli.commands import listing

        typer.echo(listing())


@data_app.command("get", epilog=examples.DATA)
def data_get(
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="Data sets, real ones or surrogates.")],
    again: Annotated[bool, typer.Option("--again", help="Discard what is there, and begin anew.")] = False,
    folder: Annotated[
        Path | None, typer.Option(help="Keep it there; runs find it if $FL_CORE_DATASETS names that folder.")
    ] = None,
) -> None:
    """Download, verify and decode a data set, or generate a surrogate; an interrupted download goes on."""
    import os

    from fl_core.cli.commands import obtain
    from fl_core.datasets import registry

    if folder is not None:
        os.environ[registry.FOLDER] = str(folder.resolve())
    obtain(names, again, typer.echo)


@data_app.command("import", epilog=examples.DATA)
def data_import(
    paths: Annotated[
        list[Path], typer.Argument(metavar="FILE", help="Archives, or folders with files of data sets.")
    ],
) -> None:
    """Take data sets from archives or unpacked copies that you have; their samples are verified, nothing is run."""
    from fl_core.cli.commands import take_in

    take_in(paths, typer.echo)


@data_app.command("calibrate", epilog=examples.DATA)
def data_calibrate(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Real data sets; by default all that have one.")
    ] = None,
    jobs: Annotated[int | None, typer.Option("--jobs", "-j", help="Processes at a time.")] = None,
) -> None:
    """Train the papers' reference networks on surrogates, and compare with what is known for the real data.

    Runs that are stored are not repeated. ResNet-20 on Tiny ImageNet takes nearly two hours on one core; all others
    together take less on one.
    """
    from fl_core.cli.commands import calibrate

    calibrate(names or [], jobs, typer.echo)


results_app = typer.Typer(no_args_is_help=True)
app.add_typer(results_app, name="results")


@results_app.callback()
def results() -> None:
    """Pack published results, merge those of other folders."""


@results_app.command("pack")
def results_pack() -> None:
    """Move published runs from files of their own into one file for each figure, with those that are there."""
    from fl_core.cli.commands import pack_results

    pack_results(typer.echo)


@results_app.command("merge")
def results_merge(
    folders: Annotated[list[Path], typer.Argument(metavar="FOLDER", help="Folders of results of other workers.")],
) -> None:
    """Copy the records of other folders that are missing here into the cache; equal runs must be equal."""
    from fl_core.cli.campaign import merge

    merge(folders, typer.echo)


Profile = Annotated[str, typer.Option("--profile", "-P", help="smoke (seconds), laptop (published) or paper.")]
Jobs = Annotated[int | None, typer.Option("--jobs", "-j", help="Processes at a time; by default one per core.")]


@app.command(epilog=examples.PLAN)
def plan(
    artifacts: Annotated[
        list[str] | None,
        typer.Argument(metavar="ARTIFACT", help="Ids, or a beginning with '*' ('fl-core list artifacts')."),
    ] = None,
    profile: Profile = "laptop",
    dataset: Annotated[str, typer.Option(help="Data set ('fl-core data').")] = "fashion-mnist",
    seeds: Annotated[str | None, typer.Option(metavar="0,1,…", help="Instead of the profile's seeds.")] = None,
    jobs: Jobs = None,
) -> None:
    """Count the runs that figures need and lack, and their cost.

    A run that several figures share is counted once in the sum.
    """
    from fl_core.cli.commands import plan_text
    from fl_core.cli.settings import read_seeds

    typer.echo(plan_text(artifacts or [], profile, dataset, read_seeds(seeds), jobs))


@app.command(name="work", epilog=examples.WORK)
def work_command(
    artifacts: Annotated[
        list[str] | None, typer.Argument(metavar="ARTIFACT", help="Ids, or a beginning with '*'; by default all.")
    ] = None,
    profile: Profile = "laptop",
    dataset: Annotated[str, typer.Option(help="Data set ('fl-core data').")] = "fashion-mnist",
    seeds: Annotated[str | None, typer.Option(metavar="0,1,…", help="Instead of the profile's seeds.")] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", help="Workers.")] = 1,
    minutes: Annotated[float | None, typer.Option(help="Stop in time, in the middle of a run if need be.")] = None,
    nice: Annotated[bool, typer.Option("--nice", help="Let everything else on the machine go first.")] = False,
    publish: Annotated[bool, typer.Option("--publish", help="Keep results in data/results.")] = False,
    paper: Annotated[str | None, typer.Option(help="Only figures with claims of a paper.")] = None,
    undecided: Annotated[
        bool, typer.Option("--undecided", help="Only what open claims need, up to the seeds that would decide them.")
    ] = False,
) -> None:
    """Compute what figures lack, beside other workers.

    Runs that decide most claims per image go first. Any number of workers share one store. Each can be killed
    anywhere: a run that was begun is continued from its checkpoint by whoever takes it next.
    """
    from fl_core.cli.campaign import work_through
    from fl_core.cli.settings import read_seeds

    chosen = read_seeds(seeds)
    work_through(
        artifacts or [], profile, dataset, chosen, jobs, minutes, nice, publish, paper, undecided, typer.echo
    )


@app.command(epilog=examples.VERIFY)
def verify(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="ARTIFACT_OR_HASH", help="Whose records; by default all.")
    ] = None,
    paper: Annotated[str | None, typer.Option(help="Only those of a paper's figures.")] = None,
    sample: Annotated[int, typer.Option(help="Replay so many, spread over algorithms, quick ones first.")] = 10,
    every: Annotated[bool, typer.Option("--all", help="Replay all of them.")] = False,
    prefix: Annotated[float, typer.Option(help="Part of each run that is replayed.")] = 1.0,
    enter: Annotated[bool, typer.Option("--enter", help="Write down which code gave the same bits.")] = False,
) -> None:
    """Run stored records again and compare every bit.

    Says what differs first, and where; the exit code is 1 if anything does.
    """
    from fl_core.cli.campaign import verify as replay

    replay(names or [], paper, None if every else sample, prefix, enter, typer.echo)


@app.command(epilog=examples.CLAIMS)
def claims(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="CLAIM", help="Ids; one is shown with all parts.")
    ] = None,
    paper: Annotated[str | None, typer.Option(help="Only those of a paper, for example FEDASYNC.")] = None,
    undecided: Annotated[bool, typer.Option("--undecided", help="Only those that more runs could decide.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One object a claim.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="One row a claim.")] = False,
    export: Annotated[bool, typer.Option("--export", help="Write data/claims.csv, from published runs.")] = False,
) -> None:
    """Show the claims of the papers, judged on the stored runs.

    The pages of the book and the export say the same. Columns are explained in data/README.md.
    """
    from fl_core.cli.commands import show_claims

    form = "json" if as_json else "csv" if as_csv else ""
    show_claims(names or [], paper, undecided, form, export, typer.echo)


@app.command(epilog=examples.REPLAY)
def replay(
    run: Annotated[str, typer.Argument(metavar="HASH_OR_SPEC.json", help="A stored record, or a specification.")],
    at: Annotated[int, typer.Option("--at", metavar="EVENT", help="Stop before this event, counted from 0.")],
    interactive: Annotated[
        bool, typer.Option("--interactive", "-i", help="Open a Python console with the run at hand.")
    ] = False,
) -> None:
    """Run again up to an event, and show the state there."""
    from fl_core.cli.campaign import stop_at

    stop_at(run, at, interactive, typer.echo)


@app.command(epilog=examples.REGENERATE)
def regenerate(
    target: Annotated[
        str, typer.Argument(metavar="ARTIFACT_OR_NOTEBOOK", help="An artifact's id or a chapter's name.")
    ],
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile", "-P", help="smoke, laptop or paper; by default the published one, or the chapter's."
        ),
    ] = None,
    parameters: Annotated[
        list[str] | None, typer.Option("-p", "--parameter", metavar="NAME=VALUE", help="Repeatable; validated.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="A folder (artifact) or .ipynb file (chapter); by default below _build."),
    ] = None,
    jobs: Jobs = None,
) -> None:
    """Make one figure or one chapter of the book again.

    A figure is written as png and svg, with its numbers (csv) and caption (txt); other parameters make other files.
    Without a profile it rests on the published records, where there are any, else on runs at profile smoke. Runs that
    the store lacks are computed first, with a progress bar; it can be interrupted and continued.
    """
    from fl_core.bookbuild import parse_assignments
    from fl_core.cli.commands import regenerate as make

    make(target, profile, parse_assignments(parameters or []), output, jobs, typer.echo)


@app.command()
def book(profile: Profile = "smoke", jobs: Jobs = None) -> None:
    """Execute all chapters and build the HTML book.

    The pages are at _build/PROFILE/html; after a failure the previous ones are still there.
    """
    from fl_core.bookbuild import build_book

    build_book(profile, jobs=jobs, echo=typer.echo)


@app.command()
def doctor(
    size: Annotated[bool, typer.Option("--size", help="Print lines and files of the package instead.")] = False,
) -> None:
    """Say what is here, what is missing, and how to get it.

    Looks at Python, packages and their versions, data sets (real or surrogate, checksums), stored results, processor,
    memory, git and the browser. The exit code is 1 if something is missing without which nothing works.
    """
    from fl_core.cli.doctor import examine, healthy
    from fl_core.cli.size import table

    if size:
        typer.echo(table())
        return
    raise typer.Exit(0 if healthy(examine(), typer.echo) else 1)


@app.command(epilog=examples.BENCH)
def bench(
    parts: Annotated[
        list[str] | None, typer.Argument(metavar="PART", help=f"{', '.join(examples.PARTS)}; by default all.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Small sizes: does it run? The numbers mean little.")
    ] = False,
    pairs: Annotated[
        int | None, typer.Option(help="Repetitions, sides alternating; by default 5, or 1 if quick.")
    ] = None,
    threads: Annotated[int, typer.Option(help="Worker threads of ours; the bare loop has one.")] = 2,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE.json", help="Keep the report, with machine, load, versions, commit and date."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Let --out replace a file.")] = False,
) -> None:
    """Measure speed and memory, and compare with targets.

    reference, synchronous and small race against a bare PyTorch loop on one thread over the same mini-batches. The
    others measure what the runtime adds to training (overhead), its events per second when training is free
    (kernel), memory against devices, throughput against threads (scaling), the batched executor, the distance to
    what the hardware could do (limit), and how long data takes to load, generate and divide (data). Other work on
    the machine distorts them all. Targets are for two free cores.
    """
    import json

    from fl_core.benchmarks import Effort, circumstances, measure
    from fl_core.cli.commands import Keep
    from fl_core.experiments.store import write_atomically

    Keep(store=False, out=out, force=force).check()
    report = measure(parts or [], Effort(quick, pairs, threads), lambda text: typer.echo(text, err=as_json))
    content = json.dumps(report, indent=1, allow_nan=False)
    if out is not None:
        write_atomically(out, f"{content}\n".encode())
    typer.echo(content if as_json else circumstances(report))


def main() -> None:
    """Run ``fl-core``; SIGTERM and SIGHUP end it as Ctrl-C does."""
    from fl_core.processes import WORKER, end_on_signals

    end_on_signals()
    try:
        app(prog_name="fl-core")
    except SystemExit as end:
        if end.code == INTERRUPTED and any(thread.name == WORKER for thread in threading.enumerate()):
            sys.stdout.flush()  # a thread in the middle of a long product cannot be stopped, only left behind
            os._exit(INTERRUPTED)
        raise
