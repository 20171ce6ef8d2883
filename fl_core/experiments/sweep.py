"""Experiments of one's own: a grid of runs as one frame, its methods compared by the rules of the book's judge."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

import pandas as pd

from fl_core.algorithms import Algorithm
from fl_core.errors import SpecError, known, unknown
from fl_core.experiments.evidence import LEVEL, POINTS, RATIO, Effect, holm, moderated
from fl_core.experiments.grid import execute
from fl_core.experiments.measures import BySeed, final_accuracy, guessing, passages
from fl_core.experiments.run import Callback, Result, tell
from fl_core.experiments.spec import RunSpec, registered
from fl_core.experiments.store import Store
from fl_core.experiments.study import Entry, Study

AXES = ("seconds", "version", "gradients", "bytes_up", "bytes_down")
"""What it can take to reach an accuracy."""


@dataclass(frozen=True)
class Sweep(Study):
    """A grid that has run; `frame` has a row for each run, `curves` one for each evaluation."""

    @cached_property
    def frame(self) -> pd.DataFrame:
        """What is varied, ``seed``, accuracy (the last tenth of evaluations), final counters, how it ended, hash."""
        rows = []
        for entry in self.entries:
            result = self.results[entry.key]
            last = result.history.evaluation_frame().iloc[-1].drop("test_accuracy").to_dict()
            end = {"ended": result.history.ended, "run": entry.key}
            rows.append(entry.labels | {"accuracy": final_accuracy(result)} | last | end)
        return pd.DataFrame(rows)

    @cached_property
    def curves(self) -> pd.DataFrame:
        """What is varied, ``seed``, and all columns of an evaluation."""
        frames = [self.results[e.key].history.evaluation_frame().assign(**e.labels) for e in self.entries]
        names = list(self.entries[0].labels)
        found = pd.concat(frames, ignore_index=True)
        return found[names + [column for column in found if column not in names]]

    def _repr_html_(self) -> str:
        return self.frame.to_html(max_rows=60)


def sweep(
    spec: RunSpec, grid: Mapping[str, Sequence[Any]], seeds: Iterable[int] = range(3), *, jobs: int | None = None,
    store: Store | None = None, progress: bool = True, pool: Executor | None = None, executor: str = "sequential",
    on_evaluation: Callback | None = None, on_commit: Callback | None = None,
) -> Sweep:  # fmt: skip
    """Run `spec` with every combination of a grid's values and every seed, and return all runs.

    A grid maps fields of the specification, dotted names too, to their values: ``{"algorithm": ["fedasync", {"name":
    "fedbuff", "buffer": 5}], "world.devices": [50, 100]}``. Two values of a field are told apart by what they are
    as text, of an algorithm by its name and parameters. What is stored already is not run again; see
    :func:`fl_core.experiments.grid.execute` for the rest. Callbacks get what is varied and ``seed`` in each row, too.
    """
    _be("spec", spec, RunSpec)
    _be("grid", grid, Mapping)
    _be("store", store, Store | None)
    registered(spec.algorithm)
    seeds, entries = list(seeds) if isinstance(seeds, Iterable) else [seeds], []
    if not seeds or len(set(seeds)) < len(seeds) or not all(hasattr(seed, "__index__") for seed in seeds):
        raise SpecError(f"seeds = {seeds} must be different whole numbers, at least one")
    if empty := [
        name for name, each in grid.items() if isinstance(each, str) or not getattr(each, "__len__", bool)()
    ]:
        raise SpecError(f"the grid has no list of values for {empty[0]!r}")
    if "seed" in grid:
        raise SpecError("the grid has a list for 'seed'; give it as seeds")
    for values in product(*grid.values()):
        settings = dict(zip(grid, map(_plain, values), strict=True))
        labels = {name: label(value) for name, value in settings.items()}
        for seed in seeds:
            entries.append(Entry(spec.changed(**settings, seed=seed), {**labels, "seed": seed}))
    labels_of: dict[str, dict[str, Any]] = {}
    for entry in entries:
        if labels_of.setdefault(entry.key, entry.labels) is not entry.labels:
            raise SpecError(f"the grid has one run twice, as {entry} and as {Entry(spec, labels_of[entry.key])}")

    def labelled(callback: Callback) -> Callback:
        return lambda row: tell(callback, {**labels_of[row["run"]], **row})

    given = {"on_evaluation": on_evaluation, "on_commit": on_commit}
    where: dict[str, Any] = {"jobs": jobs, "store": store, "pool": pool, "executor": executor}
    where |= {name: labelled(callback) for name, callback in given.items() if callback is not None}
    results = execute([entry.spec for entry in entries], progress=progress, **where)
    return Sweep("own", spec.dataset, tuple(entries), results)


def label(value: Any) -> Any:
    """Return what stands for a value in a frame: itself, or its name with what is set, ``"fedasync(alpha=0.9)"``."""
    if not isinstance(value, dict):
        return value if isinstance(value, bool | int | float | str | None) else str(value)
    name = str(value.get("name", value.get("kind", "")))
    inside = ", ".join(f"{key}={label(each)}" for key, each in value.items() if key not in ("name", "kind"))
    return f"{name}({inside})" if inside or not name else name


def _plain(value: Any) -> Any:
    """Return an object of a specification as the dictionary of what differs from its defaults."""
    if not hasattr(value, "model_dump"):
        return value
    kind = {"name": registered(value).name} if isinstance(value, Algorithm) else {}
    return kind | value.model_dump(mode="json", exclude_defaults=True)


def compare(
    runs: Sweep, by: str, against: Any, *, target: float | None = None, axis: str = "seconds"
) -> pd.DataFrame:
    """Return, for each value of `by` and each setting of all else, how it does `against` another value of it.

    Compared, seed by seed, is the accuracy of the last tenth of evaluations, as a difference in points, or with a
    `target` what it takes of `axis` to that accuracy, as a ratio. The rules are those of the claims of the book:
    a moderated t-test at the planned looks of 3, 5, 10 and 20 seeds, bounds where the target is not reached, Holm's
    correction over the rows, and no verdict on a method that only guesses. ``verdict`` is ``"more"``, ``"less"``,
    ``"equal"`` (within half a point, or 5 %) or ``"open"``; ``seeds_needed`` would decide it at the spread seen (NA:
    more than 20, or no spread is seen, as neither reaches the target).
    """
    _be("runs", runs, Sweep)
    names = [name for name in runs.entries[0].labels if name != "seed"]
    known("name of the grid", by, names)
    known("axis", axis, AXES)
    if target is not None and not 0 < target <= 1:
        raise SpecError(f"target = {target} is not valid: it should be an accuracy in (0, 1]")
    values = list(dict.fromkeys(entry.labels[by] for entry in runs.entries))
    reference = label(_plain(against))
    if reference not in values:
        raise unknown(f"value of {by}", reference, map(str, values))
    if values == [reference]:
        raise SpecError(f"{by} has no other value than {reference}")
    scale, measure = (POINTS, _accuracy) if target is None else (RATIO, _time_to(target, axis))
    others = [name for name in names if name != by]
    settings = list(dict.fromkeys(tuple(entry.labels[name] for name in others) for entry in runs.entries))
    rows, effects = [], []
    for setting, value in product(settings, [value for value in values if value != reference]):
        rest = dict(zip(others, setting, strict=True))
        left, right = (measure(runs.select(**{by: each}, **rest)) for each in (value, reference))
        effect = Effect("", left, right, scale)
        effects.append(replace(effect, excluded="not trained" if guessing(runs, effect) else ""))
        rows.append({**rest, by: value, "against": reference})
    effects = moderated(effects)
    adjusted = holm([min(e.p.values()) if e.direction == "open" else e.p[e.direction] for e in effects])
    for row, effect, p in zip(rows, effects, adjusted, strict=True):
        row |= {"effect": effect.estimate, "low": effect.interval[0], "high": effect.interval[1]}
        direction = {"holds": "more", "opposite": "less"}.get(effect.direction, effect.direction)
        verdict = effect.excluded or (direction if p <= LEVEL else "open")
        row |= {"unit": scale.unit, "seeds": effect.look or len(effect.seeds), "p": p, "verdict": verdict}
        asked = not (p <= LEVEL or effect.excluded or math.isnan(effect.estimate))
        row |= {"seeds_needed": effect.seeds_needed(LEVEL / len(effects)) if asked else None}
    return pd.DataFrame(rows).astype({"seeds_needed": "Int64"})


def _be(name: str, given: Any, wanted: Any) -> None:
    """Refuse an argument of another type."""
    if not isinstance(given, wanted):
        kind = getattr(wanted, "__name__", wanted)
        raise SpecError(f"{name} is of type {type(given).__name__}; it should be of type {kind}")


Runs = list[tuple[Entry, Result]]


def _accuracy(runs: Runs) -> BySeed:
    return BySeed.of(runs, lambda _, result: final_accuracy(result))


def _time_to(target: float, axis: str) -> Callable[[Runs], Mapping[int, float]]:
    def read(result: Result) -> tuple[list[float], list[float]]:
        return result.history.evaluations[axis], result.history.evaluations["test_accuracy"]

    return lambda runs: passages(runs, read, target)
