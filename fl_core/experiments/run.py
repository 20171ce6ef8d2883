"""Execute one specification and keep what it takes to trust the result."""

from __future__ import annotations

import json
import platform
import re
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, partial
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import nn

from fl_core import CHECKOUT
from fl_core.datasets import all_surrogates, differs, load_dataset
from fl_core.errors import CallbackError, FlCoreError, SpecError
from fl_core.experiments.explain import in_one_line
from fl_core.experiments.identity import INEXACT, circumstances, own_parts
from fl_core.experiments.invariants import unique_names
from fl_core.experiments.spec import RunSpec, registered
from fl_core.models import MODELS
from fl_core.plugins import told
from fl_core.processes import usable_cores
from fl_core.runtime import Checkpoints, History, Simulation
from fl_core.runtime.executors import Together
from fl_core.runtime.history import Measurements
from fl_core.runtime.watchdog import GENERATORS
from fl_core.streams import stream, torch_stream
from fl_core.tasks import POOLED, Classification
from fl_core.tasks.classification import ClassificationWorkspace
from fl_core.world import Compute
from fl_core.world.availability import Availability
from fl_core.world.network import Spread

MODULES = ":(top)fl_core/*.py", ":(top)notebooks/*.py"
"""What git calls the modules of both packages."""
Callback = Callable[[dict[str, Any]], object]
"""Called with a copy of one row of a table of the history."""


@dataclass
class Result:
    """A finished run."""

    spec: RunSpec
    """With the name of the data set that was really used."""
    history: History
    provenance: dict[str, Any]
    """Commit, versions, machine, date, wall seconds, executor, and whether the data is real or surrogate."""


def run(
    spec: RunSpec, *, executor: str = "threads", threads: int | None = None, trace: bool = False,
    progress: Callable[[float], None] | None = None, checkpoints: Checkpoints | None = None,
    on_evaluation: Callback | None = None, on_commit: Callback | None = None, together: Together | None = None,
) -> Result:  # fmt: skip
    """Run `spec` and return its history with provenance, as :meth:`fl_core.runtime.Simulation.run` does it.

    `trace` records what every device does when. `on_evaluation` is called with each row of ``history.evaluations`` as
    soon as it is measured, `on_commit` with each row of ``history.updates``: one for every upload in a new version.
    Neither can change a number of the run; a run that goes on from a checkpoint does not repeat what was told before.
    """
    if not isinstance(spec, RunSpec):
        raise SpecError(f"run takes a RunSpec, not a {type(spec).__name__}: run(RunSpec(algorithm='fedasync'))")
    registered(spec.algorithm)
    spec = spec.resolved()
    code = {"commit": commit(), **circumstances(spec, executor)}  # that runs, not that is there when it has finished
    simulation = _simulation(spec, trace)
    if on_evaluation is not None:
        simulation.measurements = _Told(simulation, on_evaluation)
    if on_commit is not None:
        progress = _telling(simulation, on_commit, progress)
    started, busy = time.perf_counter(), time.process_time()
    with in_one_line():
        history = simulation.run(executor, threads, progress, checkpoints, together)
    seconds = simulation.wall_before + time.perf_counter() - started
    own = not (simulation.wall_before or together)  # the processor has worked for this run alone, and for all of it
    data = load_dataset(spec.dataset)
    provenance = {
        **({"resumed": True} if simulation.wall_before > 0 else {}),
        **code,
        "versions": {name: metadata.version(name) for name in ("fl-core", "torch", "numpy")},
        "python": platform.python_version(),
        "machine": _machine(executor),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "wall_seconds": round(seconds, 2),  # all parts of a resumed one
        **({"cpu_seconds": round(time.process_time() - busy, 2)} if own else {}),
        "executor": executor,
        **({"together": together.runs} if together else {}),
        "data": data.kind,
        **({"data_differs": differs(data.name)} if differs(data.name) else {}),
        **({"data_sha256": data.sha256} if data.sha256 else {}),
        **({"data_version": all_surrogates()[data.name].version} if data.kind == "surrogate" else {}),
    }
    return Result(spec, history, provenance)


def core_seconds(provenance: Mapping[str, Any]) -> float:
    """Return the processor time of a run; where it was not recorded, that on the clock of all cores that it had."""
    cores = re.search(r"(\d+) cores", provenance.get("machine", ""))
    several = int(cores[1]) if cores and provenance.get("executor") == "threads" else 1
    return float(provenance.get("cpu_seconds", provenance.get("wall_seconds", 0.0) * several))


def _machine(executor: str) -> str:
    accelerator = f", {torch.cuda.get_device_name()}" if executor in INEXACT and torch.cuda.is_available() else ""
    return f"{platform.machine()}, {usable_cores()} cores{accelerator}"


def read_spec(path: Path | str, **replaced: Any) -> RunSpec:
    """Read a specification, a hand-written part of one, or that of a whole result: YAML by its name, else JSON.

    `replaced` fields win over those of the file, in which no name may stand twice.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")  # once: it may be a pipe
        found = _read_yaml(text) if path.suffix in (".yaml", ".yml") else _read_json(text)
        is_result = isinstance(found, dict) and {"spec", "history"} <= {*found}
        return RunSpec.from_json(json.dumps(found["spec"] if is_result else found, default=str), **replaced)
    except OSError as error:
        raise SpecError(f"cannot read the specification {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SpecError(f"cannot read the specification {path}: it is not UTF-8 text") from None
    except (ValueError, TypeError, RecursionError) as error:  # a SpecError is a ValueError
        raise SpecError(f"{path}: {error}") from None


def _read_json(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=unique_names)
    except (ValueError, RecursionError) as error:
        raise SpecError(f"not valid JSON: {error}") from None


def _read_yaml(text: str) -> Any:
    try:
        import yaml
    except ModuleNotFoundError:
        raise SpecError("to read YAML takes the package PyYAML; JSON is read without it") from None

    class Loader(yaml.SafeLoader):
        """Reads numbers as JSON and newer YAML do (1e-3; 010 is no octal, 1:30 none at all), and no name twice."""

        yaml_implicit_resolvers: ClassVar = {
            first: [kind for kind in kinds if kind[0].rpartition(":")[2] not in ("int", "float")]
            for first, kinds in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Any:
            unique_names([(str(name.value), value) for name, value in node.value])
            return super().construct_mapping(node, deep)

    decimal = r"[-+]?((\d+\.?\d*|\.\d+)([eE][-+]?\d+)?|\.inf)$|\.nan$"
    for kind, form in ("int", r"[-+]?(0|[1-9]\d*)$"), ("float", decimal):
        Loader.add_implicit_resolver(f"tag:yaml.org,2002:{kind}", re.compile(form), [*"-+.0123456789"])
    try:
        return yaml.load(text, Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise SpecError(f"not valid YAML: {' '.join(str(error).split())}") from None


def _simulation(spec: RunSpec, trace: bool) -> Simulation:
    """Build the simulation of a run; refuse what of one's own would make its numbers wrong, or not repeatable."""
    own = own_parts(spec)
    if type(spec.partition) in own:
        _check_partition(spec)
    if any(isinstance(part, type) and issubclass(part, Compute | Availability | Spread) for part in own):
        _check_world(spec)
    stored = load_dataset(spec.dataset).train.inputs[:2]  # on which a network is tried, which may change them
    before = stored.clone()
    simulation = spec.simulation(trace)
    if MODELS[spec.model.partition("(")[0]] in own:
        stored.copy_(before)
        _check_network(cast(Classification, simulation.task), spec.seed)
    return simulation


def _drawn(what: str, draw: Callable[[], list[np.ndarray]]) -> list[np.ndarray]:
    """Return what is drawn, and refuse draws that no seed of a specification decides."""
    try:
        once, again = draw(), draw()
        same = all(np.array_equal(*each, equal_nan=True) for each in zip(once, again, strict=True))
    except FlCoreError:
        raise
    except Exception as error:  # whatever somebody's code does
        raise SpecError(f"the {what} cannot be drawn: {told(error)}") from error
    if not same:
        raise SpecError(f"the {what} is another one each time; draw from the generator that it is given")
    return once


def _check_partition(spec: RunSpec) -> None:
    """Refuse what is no list of sample numbers for each device: a mask would be taken for the numbers 0 and 1."""
    train, devices, what = load_dataset(spec.dataset).train, spec.world.devices, f"partition {spec.partition.kind!r}"
    labels, owners = train.labels.numpy(), None if train.owners is None else train.owners.numpy()
    parts = _drawn(what, lambda: spec.partition.split(labels, devices, stream(spec.seed, "partition"), owners))
    if len(parts) != devices:
        raise SpecError(f"{what} gives {len(parts)} lists of samples; the world has devices = {devices}")
    for device, part in enumerate(parts):
        if part.size and (part.ndim != 1 or part.dtype.kind not in "iu" or part[0] < 0 or part[-1] >= len(train)):
            found = f"{part.dtype} {list(part.shape)} with {part.min()} to {part.max()}"
            need = f"it should be a list of sample numbers, whole ones from 0 to {len(train) - 1}"
            raise SpecError(f"{what} gives device {device} {found}; {need}")


def _check_world(spec: RunSpec) -> None:
    """Refuse speeds with which time would stand still, run backwards, or not be counted."""

    def draw() -> list[np.ndarray]:
        """Return what each device has: seconds of a step or epoch, bits per second, when it is there; 1 for none."""
        devices, rows = spec.world.realise(spec.seed), []
        for device in range(spec.world.devices):
            profile = devices.profile(device, -1)  # a trial, with draws of its own
            speeds = (profile.down_bits_per_second, profile.up_bits_per_second)
            given = [1.0 if each is None else each for each in speeds]
            rows.append(np.array([profile.train_seconds(1, 1), *given, devices.resume_at(device, 0.0)]))
        return rows

    says = ("takes {} s for a step or an epoch", "receives {} bits per second", "sends {} bits per second")
    for device, row in enumerate(_drawn("world", draw)):
        for found, number, least in zip((*says, "comes at {} s"), row, (0, 1e-300, 1e-300, 0), strict=True):
            if not least <= number:
                need = "a number > 0" if least else "a number >= 0"
                raise SpecError(f"device {device} of the world {found.format(number)}; it should be {need}")


def _check_network(task: Classification, seed: int) -> None:
    """Refuse a network whose numbers depend on more than a model, samples, and what the run draws for a task."""
    what, start, space = f"model {task.model!r}", task.initial_model(seed), task.workspace()
    for name, layer in space.network.named_modules():
        if isinstance(layer, nn.modules.dropout._DropoutNd):
            why = f"is torch.nn.{type(layer).__name__}, which draws from a stream that all devices share"
            raise SpecError(f"layer {name} of {what} {why}; take fl_core.models.Dropout(p, shape)")
    twin, batch = task.workspace(), np.arange(min(8, len(task.pool)))
    asked = space.network.named_modules() if task.initialisation == "pytorch" else ()
    own_values = tuple(f"{name}." if name else "" for name, module in asked if hasattr(module, "reset"))
    for slot, parameter in zip(space.slots, space.network.parameters(), strict=False):
        built, same, drawn = (each[slot.start : slot.stop] for each in (space.vector, twin.vector, start))
        if not parameter.requires_grad:
            why = "is frozen, but parameters are drawn anew, and decay; with register_buffer it keeps its values"
            raise SpecError(f"parameter {slot.name} of {what} {why}")
        scale = bool((drawn == 1).all())  # of whatever is called no bias, and has one dimension or none
        replaced = not torch.equal(built, drawn) and (scale or torch.equal(built, same))
        if replaced and not slot.name.startswith(own_values):
            why = f"is built with values that initialisation {task.initialisation!r} would replace"
            how = "set them in a method reset(generator) of its module, and take initialisation='pytorch'"
            raise SpecError(f"parameter {slot.name} of {what} {why}; {how}")
    inputs, _ = task.test.slice(0, 2)
    with torch.no_grad():
        space.network.eval()(given := inputs.clone())
    space.network.train()
    if not torch.equal(given, inputs):
        raise SpecError(f"{what} changes its inputs, which are the samples, in place; write x = x - 1, not x -= 1")

    def trial(space: ClassificationWorkspace) -> list[bytes]:
        space.load(start)
        noise = torch_stream(seed, "trial") if space.noisy else None
        try:
            loss = space.backward(POOLED, batch, noise)
        except Exception as error:  # whatever somebody's network does
            raise SpecError(f"{what} cannot be trained: {told(error)}") from error
        return [each.numpy().tobytes() for each in (loss, space.gradient, space.vector)]

    states = {name: state() for name, state in GENERATORS.items()}
    found = trial(space)
    if any(trial(space) != found for _ in range(2)):
        drawn_from = [name for name, state in GENERATORS.items() if state() != states[name]]
        why = (
            "it draws from the global random generator of {}; only fl_core.models.Dropout(p, shape) has its own draws"
        )
        kept = "it keeps what is no parameter or buffer of floats, such as a hidden state or BatchNorm's batch count"
        how = why.format(drawn_from[0]) if drawn_from else kept
        raise SpecError(f"{what} learns something else from the same samples the second time: {how}")
    if trial(twin) != found or not torch.equal(task.initial_model(seed), start):
        why = "is another one whenever it is built: besides parameters, it draws numbers at random"
        raise SpecError(f"{what} {why}; draw them from a generator of its own, torch.Generator().manual_seed(0)")


class _Told(Measurements):
    """Evaluations that are computed at once, and told."""

    def __init__(self, run: Simulation, callback: Callback) -> None:
        super().__init__(run)
        self._callback = callback

    def measure(self, test_samples: int = 0) -> None:
        """Measure the global model, and tell if that made a row."""
        table = self._run.history.evaluations
        rows = len(table["version"])
        super().measure(test_samples)
        if len(table["version"]) > rows:
            self.collect()
            tell(self._callback, _row(table, rows))


def _telling(
    run: Simulation, callback: Callback, progress: Callable[[float], None] | None
) -> Callable[[float], None]:
    """Return what is called after each commit: `progress`, and `callback` with the rows of the new version."""

    def committed(part: float) -> None:
        if progress is not None:
            progress(part)
        made = run.history.updates["version"]
        first = next((row for row in range(len(made), 0, -1) if made[row - 1] != run.version), 0)
        for row in range(first, len(made)):
            tell(callback, _row(run.history.updates, row))

    return committed


def tell(callback: Callback, row: dict[str, Any]) -> None:
    """Call `callback`; a CallbackError says what became of it."""
    version = row["version"]  # it may change the row
    try:
        callback(row)
    except CallbackError:  # of one that it hands the row on to
        raise
    except Exception as error:
        name, what = getattr(callback, "__name__", callback), f"{type(error).__name__}: {error}"
        raise CallbackError(f"the callback {name} failed at version {version}: {what}") from error


def _row(table: dict[str, list[Any]], row: int) -> dict[str, Any]:
    return {name: column[row] for name, column in table.items()}


@cache
def commit() -> str:
    """Return the short commit of the source, with ``-dirty`` for uncommitted changes, or ``"unknown"``.

    A module that was never committed is a change, e.g. of a new paper; results that wait to be committed are none.
    """
    if not CHECKOUT:  # that may lie in a repository of somebody else
        return "unknown"
    git = partial(subprocess.run, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=10)
    try:
        named = git(["git", "describe", "--always", "--abbrev=12"], check=True).stdout.strip()
        changed = git(["git", "diff", "--quiet", "HEAD", "--", ":/", ":(top,exclude)data/results"]).returncode
        added = git(["git", "ls-files", "--others", "--exclude-standard", "--", *MODULES]).stdout
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return f"{named}-dirty" if changed or added else named
