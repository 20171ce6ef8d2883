"""Run what is missing of a grid, in parallel processes, and say beforehand what that will cost."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import re
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, as_completed, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from math import ceil
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
from tqdm import tqdm

from fl_core.algorithms import ALGORITHMS
from fl_core.config import Family
from fl_core.datasets import OWN, STEPS, sizes
from fl_core.errors import CallbackError, RunError, SpecError
from fl_core.experiments.run import Callback, Result, core_seconds, run, tell
from fl_core.experiments.spec import RunSpec
from fl_core.experiments.store import Store, check_writable, default_store
from fl_core.models import MODELS
from fl_core.plugins import import_own, named, papers, told
from fl_core.processes import begin_worker, pool, usable_cores
from fl_core.runtime.executors import MOST_THREADS, make_executor
from fl_core.runtime.local import TrainJob
from fl_core.streams import stream
from fl_core.world import named_worlds
from fl_core.world.world import REGISTERED

EVALUATION_COST = 1 / 3
"""Of an image that is only classified, relative to one that is trained on (forward pass of three passes)."""
ONE_RUN = threading.Lock()
"""Held while a process computes a run: a Dask worker may have several threads."""
CONNECT_SECONDS = 10
"""So long a Dask scheduler has to answer."""
TOLD_SECONDS = 0.25
"""Between two looks at what worker processes have told for callbacks."""
FEWEST = 3
"""Stored runs of an algorithm that an estimate rests on; with fewer it rests on all runs of the model."""
JOBS = "FL_CORE_JOBS"
"""Environment variable: processes at a time where nobody says how many (what executes several notebooks sets it)."""
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's mallopt, in bytes: free memory at the end of the heap, and single blocks, that go back."""


@dataclass(frozen=True)
class Plan:
    """What a grid needs: how many different runs, and the estimated time of one core for those that are missing."""

    total: int
    stored: int
    missing: int
    core_seconds: float
    likely: tuple[float, float]
    """Between what the estimate would be at the speeds of the fastest and of the slowest tenth of stored runs."""
    jobs: int
    """Processes that would share it."""
    basis: str
    """What the estimate rests on."""

    @property
    def seconds(self) -> float:
        """Estimated duration with `jobs` processes."""
        return self.core_seconds / self._at_once

    @property
    def _at_once(self) -> int:
        return max(1, min(self.jobs, self.missing))

    def table(self) -> str:
        """Return the plan as text, one line per number."""
        lines = [f"runs       {self.total}", f"in store   {self.stored}", f"missing    {self.missing}"]
        if self.missing:
            processes = f"{self.jobs} process{'es' if self.jobs > 1 else ''}"
            fast, slow = (in_words(each / self._at_once) for each in self.likely)
            between = f", likely {fast} to {slow}," if fast != slow else ""
            lines.append(f"estimate   {in_words(self.seconds)}{between} with {processes} ({self.basis})")
        return "\n".join(lines)


def plan(specs: Iterable[RunSpec], store: Store | None = None, *, jobs: int | None = None) -> Plan:
    """Return how many different runs `specs` need, how many are stored, and what the others are estimated to cost."""
    store = store or default_store()
    wanted = {spec.hash: spec for spec in specs}
    found = {key: store.get(spec) for key, spec in wanted.items()}
    missing = [spec for key, spec in wanted.items() if found[key] is None]
    costs, rested, measured = _costs(missing, store, _measured)
    basis = [f"from {rested} stored runs, perhaps of another machine"] * bool(rested)
    basis += ["from a short measurement, without what it may vary by"] * bool(measured)
    typical, fast, slow = map(float, sum(costs.values(), np.zeros(3)))
    counts = len(wanted), len(wanted) - len(missing), len(missing)
    return Plan(*counts, typical, (fast, slow), _processes(jobs), " and ".join(basis) or "nothing to do")


def seconds(specs: Iterable[RunSpec], store: Store, *, measure: bool = False) -> dict[str, float]:
    """Return what each of `specs` is expected to take on one core, by hash, at the speeds of stored runs.

    Where the store knows no run of a network, 1 ms for an image is as good as anything, unless it is to be measured.
    """
    found, _, _ = _costs(list(specs), store, _measured if measure else lambda _: 1e-3)
    return {key: float(typical) for key, (typical, _, _) in found.items()}


def _costs(
    specs: Sequence[RunSpec], store: Store, measured: Callable[[RunSpec], float]
) -> tuple[dict[str, np.ndarray], int, int]:
    """Return each run's seconds (typical, fast, slow), and how many stored runs and measurements they rest on."""
    known = _speeds(store, store.stamp()) if specs else {}
    costs: dict[str, np.ndarray] = {}
    rested = unknown = 0
    for model, name in sorted({(spec.model, spec.algorithm.name) for spec in specs}):
        group = [spec for spec in specs if (spec.model, spec.algorithm.name) == (model, name)]
        alike = known.get((model, name), [])
        alike = alike if len(alike) >= FEWEST else known.get((model, ""), [])
        unknown, rested = unknown + (not alike), rested + len(alike)
        per_image = np.quantile(alike or [measured(group[0])], [0.5, 0.1, 0.9])
        costs |= {spec.hash: per_image * work(spec) for spec in group}
    return costs, rested, unknown


def execute(
    specs: Iterable[RunSpec], *, jobs: int | None = None, store: Store | None = None, progress: bool = True,
    recompute: bool = False, published: bool = False, pool: Executor | None = None, executor: str = "sequential",
    on_evaluation: Callback | None = None, on_commit: Callback | None = None,
) -> dict[str, Result]:  # fmt: skip
    """Return the results of `specs` by hash, running those that the store lacks, or with `recompute` all.

    Every result is stored as soon as its run has finished, so an interrupted call loses only the runs in progress,
    and the next call continues. One process computes in this process; more are spawned, by default one per usable
    core (call this from below ``if __name__ == "__main__":`` in a script). A `pool` takes their place: any executor
    whose workers see the folders of the store, such as :func:`dask_pool`. Parts of one's own, of a notebook too, are
    sent to them. A run computes its local jobs in `executor`. If runs fail, a RunError names them after all others
    have been finished and stored.

    `on_evaluation` and `on_commit` are those of :func:`fl_core.experiments.run.run`, and ``run`` in each row is the
    hash of its run. They are called in this process, wherever the runs are, and for none that is stored already; one
    that fails ends the grid.
    """
    store = store or default_store()
    jobs = _processes(jobs)
    wanted = {spec.hash: spec for spec in specs}
    stored = {} if recompute else {key: store.get(spec) for key, spec in wanted.items()}
    results = {key: result for key, result in stored.items() if result is not None}
    missing = sorted((spec for key, spec in wanted.items() if key not in results), key=work, reverse=True)
    if not missing:
        return results
    check_writable(store.published if published else store.cache)
    failed: list[str] = []
    alone = pool is None and min(jobs, len(missing)) == 1
    task = partial(_work, store=store, published=published, parts=b"" if alone else pack(), executor=executor)
    given = {"on_evaluation": on_evaluation, "on_commit": on_commit}
    callbacks = {name: each for name, each in given.items() if each is not None}
    if alone:
        outcomes = _compute_here(missing, partial(task, callbacks=partial(_with_run, callbacks)))
    else:
        outcomes = _compute_elsewhere(jobs, pool, missing, task, callbacks, store.cache)
    with tqdm(total=len(missing), desc="runs", unit="run", disable=None if progress else True) as bar:
        for spec, failure in outcomes:
            if failure is not None:
                failed.append(f"{brief(spec)}: {type(failure).__name__}: {failure}")
            elif (found := store.get(spec)) is not None:
                results[spec.hash] = found
            else:
                failed.append(f"{brief(spec)}: the store does not give its result back")
            bar.update()
    if failed:
        raise RunError(f"{len(failed)} of {len(missing)} runs failed (the others are stored): " + "; ".join(failed))
    return {key: results[key] for key in wanted}


@contextmanager
def dask_pool(scheduler: str, **submit: Any) -> Iterator[Executor]:
    """Yield the workers of a Dask cluster as a pool for :func:`execute`; `submit` is for Dask, ``resources`` say."""
    with client_of(scheduler) as client:
        yield client.get_executor(**submit)


def client_of(scheduler: str, **options: Any) -> Any:
    """Return a client of a Dask cluster; for ``tls://`` Dask's own configuration says where certificates are."""
    try:
        from distributed import Client, Security
    except ModuleNotFoundError:
        raise SpecError("a Dask cluster takes the package distributed: install fl-core[cluster]") from None
    if not re.fullmatch(r"(tcp|tls)://\S+:\d+", scheduler):
        raise SpecError(f"scheduler = {scheduler!r} is not valid: write tcp://host:port or tls://host:port")
    if scheduler.startswith("tls") and Security().get_connection_args("client")["ssl_context"] is None:
        names = "CA_FILE, CLIENT__CERT and CLIENT__KEY"
        raise SpecError(f"{scheduler} takes certificates: set Dask's DASK_DISTRIBUTED__COMM__TLS__… {names}")
    try:
        return Client(scheduler, timeout=CONNECT_SECONDS, set_as_default=False, **options)
    except (OSError, ValueError, TypeError, RuntimeError) as error:
        raise SpecError(f"scheduler = {scheduler!r} does not answer: {' '.join(str(error).split())}") from None


def brief(spec: RunSpec) -> str:
    """Return a few words that tell `spec` from its neighbours in a grid."""
    fields = type(spec.algorithm).model_fields
    defaults = {name: field.get_default(call_default_factory=True) for name, field in fields.items()}
    parameters = ", ".join(f"{name}={value}" for name, value in spec.algorithm if value != defaults[name])
    return f"run {spec.hash} ({spec.algorithm.name}({parameters}), lr {spec.training.lr:g}, seed {spec.seed})"


def work(spec: RunSpec) -> float:
    """Return the size of a run, in images trained on (an image that is only evaluated counts a third).

    A run that virtual time ends counts as its algorithm says, or as if its devices did nothing but train.
    """
    train, test = sizes(spec.dataset)
    batch, algorithm, budget, evaluation = spec.training.batch_size, spec.algorithm, spec.budget, spec.evaluation
    share = spec.partition.mean_size(train, spec.world.devices)
    steps = spec.training.steps or spec.training.epochs * ceil(share / batch)
    steps = getattr(algorithm, "block", steps * getattr(algorithm, "clients_per_round", 1))
    steps = getattr(algorithm, "num_aggregated", steps)  # K single gradients
    gradients: float = budget.gradients or 1000 * steps
    if budget.seconds is not None:
        known = algorithm.mini_batches(spec.world.realise(spec.seed), budget.seconds)
        gradients = _mini_batches(spec, share) if known is None else known
    updates = budget.updates or budget.uploads or gradients / steps
    evaluations = 2 + (updates // evaluation.every_updates if evaluation.every_updates else 0)
    if evaluation.every_seconds and budget.seconds:
        evaluations += ceil(budget.seconds / evaluation.every_seconds) - 1  # the last one is that of the end
    images = min(evaluation.test_samples or test, test) + min(evaluation.train_samples, train)
    return updates * steps * min(batch, share) + evaluations * images * EVALUATION_COST


def _mini_batches(spec: RunSpec, share: float) -> float:
    """Return how many mini-batches devices get through that do nothing but train until the virtual time is over."""
    assert spec.budget.seconds is not None
    devices = spec.world.devices
    unit = spec.world.compute.draw(devices, stream(spec.seed, "estimate")) * spec.world.compute.mean_factor()
    per_step = unit / (ceil(share / spec.training.batch_size) if spec.world.compute.per == "epoch" else 1)
    at_work = min(spec.algorithm.most_in_flight() or devices, devices)
    return float(at_work * spec.budget.seconds * (1 / per_step).mean())


def in_words(seconds: float) -> str:
    """Return a duration as a reader would say it: ``"40 s"``, ``"12 min"``, ``"3.5 h"``."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


Outcomes = Iterator[tuple[RunSpec, Exception | None]]
"""What became of each run: None if its result is stored."""


def _compute_here(specs: list[RunSpec], task: Callable[[str], None]) -> Outcomes:
    for spec in specs:
        try:
            task(spec.to_json())
            yield spec, None
        except CallbackError:
            raise
        except Exception as error:
            yield spec, error


def _compute_elsewhere(
    jobs: int, given: Executor | None, specs: list[RunSpec], task: partial[None], callbacks: Mapping[str, Callback],
    near: Path,
) -> Outcomes:  # fmt: skip
    """Compute in a pool; what is to be called here, workers tell in files of a folder `near` the store."""
    telling: _Told | None = None
    with ExitStack() as stack:
        if callbacks:
            near.mkdir(parents=True, exist_ok=True)
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=".told-", dir=near)))
            task = partial(task, callbacks=partial(_into_file, folder, [*callbacks]))
            telling = _Told(folder, callbacks)
        workers = stack.enter_context(pool(min(jobs, len(specs)), begin_worker)) if given is None else given
        futures: dict[Future[None], RunSpec] = {workers.submit(_in_worker, task, s.to_json()): s for s in specs}
        try:
            for future in telling.ended(futures) if telling else as_completed(futures):
                try:
                    yield futures[future], future.result()
                except BrokenExecutor:
                    why = "killed, out of memory, or begun from a script without `if __name__ == '__main__':`"
                    raise RunError(f"a worker process ended ({why}); call again to continue") from None
                except Exception as error:
                    yield futures[future], error
        finally:
            for future in futures:  # a pool that was given does more after this grid
                future.cancel()


class _Told:
    """What workers have written for the callbacks of a grid: a file for each attempt at a run, a line for a row."""

    def __init__(self, folder: Path, callbacks: Mapping[str, Callback]) -> None:
        self.folder, self.callbacks = folder, callbacks
        self.sizes: dict[str, int] = {}
        """Of the files as they were read last."""
        self.rows: Counter[str] = Counter()
        """Already told, by run; one that a worker was lost with begins again, with the same rows."""

    def ended(self, futures: Iterable[Future[None]]) -> Iterator[Future[None]]:
        """Yield futures as they end, and call the callbacks meanwhile."""
        left = set(futures)
        while left:
            done, left = wait(left, TOLD_SECONDS, FIRST_COMPLETED)
            self.tell()
            yield from done

    def tell(self) -> None:
        """Call the callbacks with the rows that are new."""
        for path in sorted(self.folder.iterdir()):
            if (size := path.stat().st_size) == self.sizes.get(path.name):
                continue
            self.sizes[path.name], run = size, path.name.partition("-")[0]
            whole, _, _ = path.read_bytes().rpartition(b"\n")
            for text in whole.splitlines()[self.rows[run] :]:
                self.rows[run] += 1
                name, row = json.loads(text)
                tell(self.callbacks[name], {"run": run, **row})


def _with_run(callbacks: Mapping[str, Callback], run: str) -> dict[str, Callback]:
    def named(callback: Callback) -> Callback:
        return lambda row: tell(callback, {"run": run, **row})

    return {name: named(callback) for name, callback in callbacks.items()}


def _into_file(folder: Path, names: Sequence[str], run: str) -> dict[str, Callback]:
    def write(name: str, row: dict[str, Any]) -> None:
        with path.open("a") as file:
            file.write(json.dumps([name, row]) + "\n")

    path = folder / f"{run}-{uuid.uuid4().hex}"
    return {name: partial(write, name) for name in names}


def _in_worker(task: Callable[[str], None], specification: str) -> None:
    _keep_freed_memory()
    task(specification)


@cache
def _keep_freed_memory() -> None:
    """Have glibc keep what is freed for the next tensor.

    It would give large blocks back to the system, which clears each page that it lends again: up to two fifths of a
    run's time.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        for parameter in (M_MMAP_THRESHOLD, M_TRIM_THRESHOLD):
            mallopt(parameter, 2**31 - 1)


def _work(
    specification: str, store: Store, published: bool, parts: bytes, executor: str,
    callbacks: Callable[[str], dict[str, Any]] = lambda run: {},
) -> None:  # fmt: skip
    """Run one specification, with somebody's own packed parts, and store the result (in a worker process)."""
    with ONE_RUN, freed():
        unpack(parts)
        spec = RunSpec.from_json(specification)
        store.save(run(spec, executor=executor, **callbacks(spec.hash)), published=published)


@contextmanager
def freed(alone: bool = True) -> Iterator[None]:
    """Give a run's memory back at its end: a simulation and its data refer to each other, and would wait for chance.

    What was there before is not looked through, which takes a quarter of a second; unless other runs go on beside.
    """
    if alone:
        gc.freeze()
    try:
        yield
    finally:
        gc.collect()
        gc.unfreeze()


def _processes(jobs: int | None) -> int:
    name, given = (JOBS, os.environ.get(JOBS, "")) if jobs is None else ("jobs", str(jobs))
    if not given:
        return usable_cores()
    if not given.isdecimal() or not 1 <= int(given) <= MOST_THREADS:
        raise SpecError(f"{name} = {given} must be between 1 and {MOST_THREADS}")
    return int(given)


@lru_cache(maxsize=4)
def _speeds(store: Store, stamp: Hashable) -> dict[tuple[str, str], list[float]]:
    """Return seconds per image trained on of all stored runs, by model and algorithm; by model alone under ``""``."""
    found: dict[tuple[str, str], list[float]] = {}
    for result in store.outlines():
        per_image = core_seconds(result.provenance) / work(result.spec)
        for name in (result.spec.algorithm.name, ""):
            found.setdefault((result.spec.model, name), []).append(per_image)
    return found


def _measured(sample: RunSpec) -> float:
    """Return seconds per image trained on, measured once for each network on each kind of data."""
    if (kind := (sample.model, sample.dataset)) not in _MEASURED:
        _MEASURED[kind] = _measure(sample)
    return _MEASURED[kind]


_MEASURED: dict[tuple[str, str], float] = {}


def _measure(sample: RunSpec) -> float:
    """Return seconds per image trained on, measured for half a second, or for one step if that takes longer."""
    task = sample.task()
    samples, size = task.num_samples(0), sample.training.batch_size
    model, steps = task.initial_model(0), 1
    with make_executor("sequential", task) as executor:
        while True:
            job = TrainJob(model, 0, samples, steps, size, 0.01, 0.0, None, (0, "calibration", 0, 0, 0))
            started = time.perf_counter()
            executor.result(executor.submit(job, 0.0))
            if (seconds := time.perf_counter() - started) > 0.5:
                return seconds / (steps * min(size, samples))
            steps *= 4


# Parts of one's own: what a notebook or a script defines is sent to other processes as it is.


def pack() -> bytes:
    """Return all parts of one's own that are known here, for :func:`unpack` in another process; b"": there are none.

    What is defined in ``__main__`` or by a script goes as a whole, what is installed by its name.
    """
    found = [
        (table, name, part)
        for table, parts in tables().items()
        for name, part in parts.items()
        if not _module(part).startswith(("fl_core.", *papers()))
    ]
    if not found:
        return b""
    imported = {import_own(name).__name__ for name in named() if name.endswith(".py")}  # by name nobody finds these
    scripts = {sys.modules[_module(part)] for *_, part in found if _module(part) in imported}
    for script in scripts:
        cloudpickle.register_pickle_by_value(script)
    try:
        return bytes(cloudpickle.dumps(found))
    except Exception as error:
        names = ", ".join(name for _, name, _ in found)
        text = f"what is defined here ({names}) cannot be sent to another process: {told(error)}"
        raise SpecError(f"{text}; use one process (jobs=1)") from error
    finally:
        for script in scripts:
            cloudpickle.unregister_pickle_by_value(script)


@cache
def unpack(content: bytes) -> None:
    """Make the parts that another process has packed known here."""
    if content:
        known = tables()
        for table, name, part in cloudpickle.loads(content):
            known[table][name] = part


def tables() -> dict[str, dict[str, Any]]:
    """Return every table of parts by name."""
    named_worlds()  # loads those of the papers
    kinds: dict[str, dict[str, Any]] = {f"{each.__module__}.{each.__qualname__}": each.kinds
                                         for each in Family.__subclasses__()}  # fmt: skip
    named: dict[str, Any] = {
        "algorithm": ALGORITHMS,
        "model": MODELS,
        "dataset": OWN,
        "preprocessing": STEPS,
        "world": REGISTERED,
    }
    return kinds | named


def _module(part: Any) -> str:
    return str(getattr(getattr(part, "load", part), "__module__", ""))
