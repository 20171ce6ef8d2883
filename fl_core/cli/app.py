"""The door: ``fl-core``. What all commands share; heavy modules are imported by those that are called."""

from __future__ import annotations

import atexit
import json
import os
import re
import signal
import sys
import warnings
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import typer
from typer import Argument, Option
from typer.core import TyperGroup

from fl_core import __version__
from fl_core.errors import FlCoreError, SpecError

KEPT = {
    "run": "nothing was written",
    "work": "runs that were finished are stored, and a run that was begun goes on from its checkpoint",
    "regenerate": "runs that were finished are stored, and the same command continues",
    "book": "the previous book is still there",
}
"""What an interruption leaves, by command."""
INTERRUPTED = 130
"""Exit code after Ctrl-C, SIGTERM or SIGHUP."""
RECEIVED: list[int] = []
"""The signals that have interrupted this process: a library may make another error of a KeyboardInterrupt."""

Artifacts = Annotated[list[str] | None, Argument(
    metavar="ARTIFACT", help="Ids, or a beginning with '*' ('fl-core list artifacts'); by default all.")]  # fmt: skip
Profile = Annotated[str, Option("--profile", "-P", help="smoke (seconds), laptop (published) or paper.")]
OpenProfile = Annotated[
    str | None, Option("--profile", "-P", help="By default laptop; with --undecided each claim's own budget.")
]
Dataset = Annotated[str, Option(help="Data set ('fl-core data').")]
Seeds = Annotated[str | None, Option(metavar="0,1,…", help="Instead of the profile's seeds.")]
Scheduler = Annotated[str | None, Option(
    metavar="ADDRESS", help="Use the workers of this Dask cluster, tcp://… or tls://…")]  # fmt: skip
Jobs = Annotated[int | None, Option("--jobs", "-j", help="Processes at a time; by default one per core.")]
Force = Annotated[bool, Option("--force", help="Let --out replace a file.")]
Json = Annotated[bool, Option("--json", help="Print JSON instead of text.")]
Device = Annotated[str | None, Option(
    help="cpu: exact; cuda, or cuda:1 for the second accelerator: what trains at a time together, up to rounding."
)]  # fmt: skip
VISIBLE = "CUDA_VISIBLE_DEVICES"
"""Environment variable: the accelerators that CUDA shows to this process and those it starts, separated by commas."""
Paper = Annotated[str | None, Option(help="Only figures or claims of a paper, for example FEDASYNC.")]


def choose_device(device: str) -> str:
    """Let PyTorch see no accelerator but this one from now on, and return its kind: ``"cpu"`` or ``"cuda"``."""
    found = re.fullmatch(r"cpu|cuda(?::(\d{1,3}))?", device)
    if found is None:
        raise SpecError(f"device = {device!r} is not valid: write cpu, cuda, or cuda:1 for the second accelerator")
    if device == "cpu":
        os.environ[VISIBLE] = ""
        return device
    import torch

    if found[1]:
        number, shown = int(found[1]), os.environ.get(VISIBLE)
        os.environ[VISIBLE] = f"{number}" if shown is None else "".join(shown.split(",")[number : number + 1])
    if not torch.cuda.is_available():
        raise SpecError(f"there is no {device} here that PyTorch can use; --device cpu computes the same runs")
    return "cuda"


def as_text(value: Any) -> str:
    """Return what a command prints for --json: of a frame its rows, of an object what it holds."""
    if hasattr(value, "to_json"):
        value = json.loads(value.to_json(orient="records", double_precision=15))
    return json.dumps(value, indent=1, default=vars, ensure_ascii=False)


class Door(TyperGroup):
    """Turns bad input into one line and exit code 2, and an interruption into a word about what is kept.

    What is to be imported may stand anywhere on the line.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the line, with ``--import FILE`` in front of the command."""
        end = args.index("--") if "--" in args else len(args)
        args = [part for word in args[:end] for part in re.split("(?<=^--import)=", word)] + args[end:]
        places = [place for place, word in enumerate(args) if word == "--import" and "--" not in args[:place]]
        named = [word for place in places for word in args[place : place + 2]]
        others = [word for place, word in enumerate(args) if place not in places and place - 1 not in places]
        return super().parse_args(ctx, named + others)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            try:
                return super().invoke(ctx)
            except (KeyboardInterrupt, Exception) as error:
                if isinstance(error, KeyboardInterrupt) or RECEIVED:
                    told = str(error) if isinstance(error, KeyboardInterrupt) else ""
                    kept = told or KEPT.get(ctx.invoked_subcommand or "", "nothing was changed")
                    typer.echo(f"\nfl-core: interrupted; {kept}", err=True)
                    raise typer.Exit(INTERRUPTED) from None
                is_input = isinstance(error, FlCoreError | OSError) and not isinstance(error, BrokenPipeError)
                if ctx.params.get("debug") or not is_input:
                    raise
                typer.echo(f"fl-core: error: {_brief(error)}", err=True)
                raise typer.Exit(2) from None


def _brief(error: Exception) -> str:
    """Return an error as one line; of the system, as when a disk is full, what it was about and why."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    if issubclass(category, UserWarning):
        typer.echo(f"fl-core: warning: {message}", err=True)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fl-core {__version__}")
        raise typer.Exit


START = """\b
First steps:
  fl-core doctor                     is everything here?
  fl-core list algorithms            what is there, with which parameters?
  fl-core run --algorithm fedasync   one asynchronous run, about ten seconds
  fl-core plan --profile laptop      what would the paper's figures cost?
  fl-core regenerate fedasync-fig2   one command, one figure
  fl-core book                       all chapters as HTML
"""

app = typer.Typer(
    name="fl-core",
    cls=Door,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=START,
)


@app.callback()
def door(
    debug: Annotated[bool, Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[bool, Option(
        "--version", callback=_version, is_eager=True, help="Print it and stop.")] = False,
    own: Annotated[
        list[str] | None,
        Option(
            "--import", metavar="FILE.py", help="Repeatable, anywhere. A script or module with parts of your own."
        ),
    ] = None,
) -> None:  # fmt: skip
    """Asynchronous federated learning in virtual time.

    Everything that can be named is shown by 'fl-core list'. Wrong input is answered with one line that says what
    would be valid, and exit code 2; nothing is left half-written.
    """
    if own:
        from fl_core.plugins import import_everywhere

        import_everywhere(own)


def main() -> None:
    """Run ``fl-core``; SIGTERM and SIGHUP end it as Ctrl-C does."""
    from fl_core.processes import end_on_signals

    signals = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
    end_on_signals()
    for each in signals:
        if callable(handler := signal.getsignal(each)):
            signal.signal(each, partial(_note, handler))
    try:
        app(prog_name="fl-core")
    except SystemExit as end:
        if end.code == INTERRUPTED:
            for each in signals:
                signal.signal(each, signal.SIG_IGN)  # a second one would break into what follows
            atexit._run_exitfuncs()  # temporary folders go; a thread in the middle of a long product is left behind,
            sys.stdout.flush()  # and the second that Python takes to give gigabytes back is saved
            os._exit(INTERRUPTED)
        raise


def _note(handler: Callable[[int, Any], Any], number: int, frame: Any) -> Any:
    RECEIVED.append(number)
    return handler(number, frame)
