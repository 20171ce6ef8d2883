"""``fl-core run``: from words on a command line to a specification, its run, and its result in the right places."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from fl_core.cli.app import Device, Force, Json, Scheduler, app, choose_device
from fl_core.errors import FlCoreError, SpecError, known, nearest

if TYPE_CHECKING:
    from fl_core.experiments.run import Result
    from fl_core.experiments.spec import RunSpec
    from fl_core.runtime import Checkpoints

EARLY = 3
"""Exit code of a run that ended, and was kept, before its budget was used up."""
SETTING = "Repeatable. A parameter of the algorithm, or a field of the run ('fl-core list fields')."
RUN = """\b
Examples:
  fl-core run --algorithm fedasync --set alpha=0.8
  fl-core run --algorithm fedasync --set weight="hinge(a=10, b=4)"
  fl-core run --algorithm fedavg --set world.devices=50 --set training.lr=0.1
  fl-core run --algorithm fedasync --set partition="dirichlet(alpha=0.3)"
  fl-core run --algorithm fedper --set compressor="topk(delta=0.1)"
  fl-core run -a sgd -s budget.updates=none -s budget.gradients=2000
  fl-core run --algorithm fedasync --print-spec > spec.json
  fl-core run spec.json --seed 1 --out result.json     or spec.yaml
  fl-core run spec.json --scheduler tcp://node1:8786 --pace 0.1   a testbed
"""


@app.command(epilog=RUN)
def run(
    spec: Annotated[Path | None, Argument(
        metavar="SPEC", help="JSON or YAML: what --print-spec writes, or a part of it.")] = None,
    algorithm: Annotated[str | None, Option(
        "--algorithm", "-a", metavar="NAME", help="Replaces the file's one ('fl-core list algorithms').")] = None,
    settings: Annotated[list[str] | None, Option("--set", "-s", metavar="NAME=VALUE", help=SETTING)] = None,
    seed: Annotated[int | None, Option(help="Determines every random number.")] = None,
    executor: Annotated[str | None, Option(
        help="threads, sequential, batched (on an accelerator; equal up to rounding) or debug.")] = None,
    threads: Annotated[int | None, Option(help="Worker threads; by default one per core.")] = None,
    device: Device = None,
    scheduler: Scheduler = None,
    pace: Annotated[float | None, Option(
        help="On a cluster: wall seconds that a second of the world lasts; without, nothing waits.")] = None,
    trace: Annotated[bool, Option("--trace", help="Record what every device does when.")] = False,
    checkpoint_every: Annotated[str | None, Option(
        metavar="DURATION", help="Keep the state of the run in data/cache so often: 60s, 5m, 1h.")] = None,
    resume: Annotated[bool, Option(
        "--resume", help="Go on from the last checkpoint, if there is one; implies 60s.")] = False,
    out: Annotated[Path | None, Option(
        metavar="FILE.json", help="Write specification, provenance and history here.")] = None,
    save_model: Annotated[Path | None, Option(
        metavar="FILE.safetensors", help="Write the last global model here.")] = None,
    force: Force = False,
    store: Annotated[bool, Option("--store/--no-store", help="Keep the result in data/cache.")] = True,
    print_spec: Annotated[bool, Option(
        "--print-spec", help="Print the specification as canonical JSON and stop.")] = False,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Run one specification and print its evaluations.

    Without a file, every field that is not set has its default. Values are numbers, JSON, 'none', or text such as
    hinge(a=10, b=4) for anything that has a kind. A run in which nothing usable arrives any more ends before its
    budget: it is kept, and the exit code is 3.

    With a scheduler the algorithm runs in wall-clock time on the workers of a Dask cluster, as a testbed. Such a run
    is not repeatable, and is not stored.
    """
    from fl_core.experiments.run import run as simulate
    from fl_core.experiments.store import check_writable, default_store, model_bytes, write_or_keep
    from fl_core.experiments.testbed import run_testbed
    from fl_core.runtime.executors import EXECUTORS, default_executor

    chosen = build_spec(spec, algorithm, settings or [], seed)
    if print_spec:
        typer.echo(chosen.to_json())
        return
    if scheduler is None and pace is not None:
        raise SpecError("a --pace is for a testbed: name its --scheduler")
    given = {"--executor": executor, "--threads": threads, "--device": device}
    given |= {"--checkpoint-every": checkpoint_every, "--resume": resume}
    if scheduler is not None and (odd := [name for name, value in given.items() if value not in (None, False)]):
        raise SpecError(f"{odd[0]} is for a simulation, not for a testbed with a --scheduler")
    store = store and scheduler is None
    kind = None if device is None else choose_device(device)
    executor, checkpoints = known("executor", executor or default_executor(), EXECUTORS), None
    if kind == "cuda" and executor != "batched":
        raise SpecError(f"executor {executor!r} computes on the processor; --device {device} takes batched, or none")
    if checkpoint_every is not None or resume:
        every = "60s" if checkpoint_every is None else checkpoint_every
        checkpoints = _checkpoints(chosen, every, resume, trace, executor, as_json)
    if store:
        check_writable(default_store().cache)
    check_out(out, force)
    check_out(save_model, force)
    if out is not None and save_model is not None and out.resolve() == save_model.resolve():
        raise SpecError(f"--out and --save-model both write {out}, and the model would replace the result")
    if scheduler is None:
        compute = partial(simulate, chosen, executor=executor, threads=threads, trace=trace, checkpoints=checkpoints)
    else:
        compute = partial(run_testbed, chosen, scheduler, pace=pace, trace=trace)
    result = _with_progress(chosen.algorithm.name, compute, checkpoints)
    if out is not None:
        write_or_keep(out, _as_json(result), f"{result.spec.hash}.json")
    if save_model is not None:
        write_or_keep(save_model, model_bytes(result), f"{result.spec.hash}.safetensors")
    if store:
        default_store().save(result)
    if checkpoints is not None:
        checkpoints.clear()
    if as_json:
        typer.echo(_as_json(result))
    else:
        _report(result)
    if files := [str(path) for path in (out, save_model) if path is not None]:
        typer.echo(f"written to {' and '.join(files)}", err=as_json)
    raise typer.Exit(EARLY if result.history.ended != "budget" else 0)


def build_spec(path: Path | None, algorithm: str | None, settings: Sequence[str], seed: int | None) -> RunSpec:
    """Return the specification of a file or a part of one, with another `algorithm` with its default parameters.

    Each of the `settings` is ``"name=value"``: a dotted field of the run, or a parameter of the algorithm.
    """
    from fl_core.algorithms import ALGORITHMS
    from fl_core.experiments.run import read_spec
    from fl_core.experiments.spec import RunSpec

    values = dict(map(read_setting, settings)) | ({} if seed is None else {"seed": seed})
    if algorithm is None:
        if path is None:
            valid = ", ".join(sorted(ALGORITHMS))
            raise SpecError(f"nothing to run: name an --algorithm (valid: {valid}) or a specification file")
        spec = read_spec(path)
        return spec.changed(**_placed(values, type(spec.algorithm)))
    chosen = ALGORITHMS[known("algorithm", algorithm, ALGORITHMS)]
    fits_every_world = {"algorithm": "sgd"}  # replaced together with the settings, so that they are judged together
    base = read_spec(path, **fits_every_world) if path else RunSpec(**fits_every_world)
    defaults = chosen.model_construct().model_dump(mode="json")
    return base.changed(algorithm={"name": algorithm, **defaults}, **_placed(values, chosen))


def read_setting(text: str) -> tuple[str, Any]:
    """Split ``"name=value"``; the value is JSON or a Python literal where it is one, else the text itself."""
    name, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not name:
        raise SpecError(f"{text!r} is no setting; write --set NAME=VALUE, for example --set alpha=0.8")
    if value.lower() in ("none", "null"):
        return name, None
    for read in (json.loads, ast.literal_eval):
        with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            return name, read(value)
    return name, value


def _placed(values: dict[str, Any], algorithm: type[Any]) -> dict[str, Any]:
    """Return the settings with bare parameters of `algorithm` moved to ``algorithm.…``."""
    from fl_core.experiments.explain import dotted_names
    from fl_core.experiments.spec import RunSpec

    placed = {}
    for name, value in values.items():
        head = name.partition(".")[0]
        if head in RunSpec.model_fields:
            placed[name] = value
        elif head in algorithm.model_fields:
            placed[f"algorithm.{name}"] = value
        else:
            raise _unknown_setting(name, algorithm, list(dotted_names(RunSpec)))
    return placed


def _unknown_setting(name: str, algorithm: type[Any], fields: list[str]) -> FlCoreError:
    from fl_core.experiments.explain import nearby

    parameters = list(algorithm.model_fields)
    inside = nearby(field for field in dict.fromkeys(fields) if field.endswith(f".{name}"))
    hint = f"; did you mean {' or '.join(map(repr, inside))}?" if inside else nearest(name, [*parameters, *fields])
    top = ", ".join(field for field in fields if "." not in field)
    return SpecError(
        f"unknown setting {name!r}{hint} (valid: {', '.join(parameters)} of {algorithm.name}; "
        f"{top} and what is inside them, see 'fl-core list fields')"
    )


def _checkpoints(spec: RunSpec, every: str, resume: bool, trace: bool, executor: str, aside: bool) -> Checkpoints:
    """Return where the state of the run is kept."""
    from fl_core.experiments.store import default_store

    place = default_store().checkpoints(spec, trace, read_duration("--checkpoint-every", every), executor)
    found = any(place.folder.glob("*.safetensors"))
    if found and not resume:
        raise SpecError(
            f"there is a checkpoint of this run in {place.folder}; add --resume to go on from it, "
            "or delete that folder to begin again"
        )
    if resume:
        anew = "there is no checkpoint of this run: it begins anew"
        typer.echo(f"resuming from {place.folder}" if found else anew, err=aside)
    return place


def read_duration(option: str, text: str) -> float:
    """Read ``"90"``, ``"60s"``, ``"5m"`` or ``"1h"`` as seconds."""
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    number, unit = (text[:-1], units[text[-1]]) if text[-1:] in units else (text, 1.0)
    try:
        seconds = float(number) * unit
    except ValueError:
        seconds = float("nan")
    if not 0 <= seconds < float("inf"):
        raise SpecError(f"{option} {text!r} is not valid: write a duration such as 60s, 5m or 1h")
    return seconds


def check_out(out: Path | None, force: bool) -> None:
    """Refuse, before anything is computed, an output that could not be written afterwards."""
    from fl_core.experiments.store import check_writable

    if out is None:
        return
    folder = out.absolute().parent
    if out.is_dir():
        raise SpecError(f"{out} is a folder; give the name of a file")
    if out.exists() and not force:
        raise SpecError(f"{out} exists; give another name or add --force")
    if out.exists() and not out.is_file():
        raise SpecError(f"{out} is no regular file and is not replaced; give another name")
    if not folder.is_dir():
        raise SpecError(f"cannot write {out}: the folder {folder} does not exist")
    check_writable(folder, f"{out.name}")


def _with_progress(name: str, compute: Callable[..., Result], checkpoints: Checkpoints | None) -> Result:
    """Run with a progress bar on a terminal."""
    from tqdm import tqdm

    form = "{l_bar}{bar}| {elapsed}<{remaining}"
    with tqdm(total=1.0, desc=name, bar_format=form, disable=None, leave=False) as bar:

        def progress(part: float) -> None:
            bar.update(part - bar.n)

        try:
            return compute(progress=progress)
        except KeyboardInterrupt:
            if checkpoints is None or not any(checkpoints.folder.glob("*.safetensors")):
                raise
            raise KeyboardInterrupt("the same command with --resume goes on from the last checkpoint") from None


def _as_json(result: Result) -> bytes:
    history = result.history.to_dict()
    content = {"spec": result.spec.to_dict(), "provenance": result.provenance, "history": history}
    return json.dumps(content, allow_nan=False).encode()


def _report(result: Result) -> None:
    """Print the evaluations, what was run, and why it ended early if it did."""
    names = {"test_accuracy": "accuracy", "test_loss": "loss", "train_loss": "train loss"}
    frame = result.history.evaluation_frame().rename(columns=names)
    columns = ["seconds", "version", "gradients", "communications", *names.values()]
    if frame["train loss"].isna().all():
        columns.remove("train loss")
    digits: dict[Any, Any] = dict.fromkeys(names.values(), "{:.4f}".format) | {"seconds": "{:.1f}".format}
    typer.echo(frame[columns].to_string(index=False, formatters=digits))
    spec, wall = result.spec, result.provenance["wall_seconds"]
    data = f"{spec.dataset} ({result.provenance['data']} data)"
    typer.echo(f"\nrun {spec.hash}: {data}, seed {spec.seed}, {wall:.1f} s")
    if result.history.ended == "rejected":
        reason = result.history.faults["fault"][-1].removeprefix("rejected: ")
        hint = ", as when training diverges; try a smaller training.lr" * ("finite" in reason)
        typer.echo(f"ended before its budget: no upload could be used any more ({reason}){hint}")
    elif result.history.ended == "lost":
        hint = (
            "look at world.faults" if spec.world.faults else "its device program ends without 'await device.upload'"
        )
        typer.echo(f"ended before its budget: no upload arrived any more; {hint}")
    if not result.history.updates["version"]:
        typer.echo("no version was made: the model is the initial one")
