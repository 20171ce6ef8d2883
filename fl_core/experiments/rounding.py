"""Luck by rounding: the same runs from initial models that differ in their last bits, and how fast they part."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from fl_core.experiments.artifacts import Curves, Panel
from fl_core.experiments.run import Result
from fl_core.experiments.spec import RunSpec
from fl_core.experiments.study import Entry, Study

SIZES = (1e-7, 2e-7)
"""Perturbations of every weight, as parts of it; half the spacing of float32 is 3e-8 to 6e-8 of a number."""
_DISTANCE = Panel("distance", "distance, as a part of the way from the initial model", log=True)
PARTING = Curves("update", (_DISTANCE,), parameter="parameter")
LAST = 10
"""Evaluations whose mean is a final accuracy."""
_LOSS = Panel("loss", "difference of the test losses, as a part of them", log=True)
_ACCURACY = Panel("accuracy", "difference of the test accuracies")
VIEW = Curves("part of the run, as a power of ten", (_LOSS, _ACCURACY), parameter="parameter")


def perturbed(entries: Iterable[Entry], sizes: Sequence[float] = SIZES) -> Iterator[Entry]:
    """Yield each run as it is, and again from a perturbed initial model; label ``perturbation`` says which."""
    for entry in entries:
        for size in (0.0, *sizes):
            spec = entry.spec.changed(**{"warmup.perturbation": size}) if size else entry.spec
            yield Entry(spec, {**entry.labels, "role": "luck", "perturbation": size})


def distances(spec: RunSpec, size: float = SIZES[0]) -> pd.DataFrame:
    """Return how far a perturbed run is from its own after each update, relative to the way that this has gone."""
    own, other = trajectory(spec), trajectory(spec.changed(**{"warmup.perturbation": size}))
    found = [float((b - a).norm() / (a - own[0]).norm()) for a, b in zip(own[1:], other[1:], strict=False)]
    columns = {"x": range(1, len(found) + 1), "distance": found, "distance_std": np.nan, "parameter": np.nan}
    table = pd.DataFrame(columns)
    return table[np.isfinite(table["distance"])]  # the first updates may change nothing


def trajectory(spec: RunSpec) -> list[Tensor]:
    """Run `spec` and return the model ``[d]`` of every version, in double precision."""
    simulation = spec.simulation()
    models = [simulation.task.initial_model(spec.seed).double()]
    simulation.run(progress=lambda _: models.append(simulation.server.model.double()))
    return models


def pairs(study: Study) -> pd.DataFrame:
    """Return every perturbed run beside its own, by ``part`` of the run: accuracies, and the differences of both.

    That of ``loss`` is relative.
    """
    found = []
    for labels, *results in _perturbed(study):
        tables = (pd.DataFrame(one.history.evaluations) for one in results)
        here, there = (table.drop_duplicates("version", keep="last") for table in tables)
        both = here.merge(there, on="version", suffixes=("", "_own")).iloc[1:]
        found.append(
            pd.DataFrame(
                {"method": labels["method"], "seed": labels["seed"], "perturbation": labels["perturbation"],
                 "part": both["version"] / both["version"].max(), "own": both["test_accuracy_own"],
                 "perturbed": both["test_accuracy"],
                 "loss": (both["test_loss"] / both["test_loss_own"] - 1).abs(),
                 "accuracy": (both["test_accuracy"] - both["test_accuracy_own"]).abs()}
            )
        )  # fmt: skip
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame()


def _perturbed(study: Study, **labels: str) -> Iterator[tuple[dict[str, Any], Result, Result]]:
    """Yield the labels and the result of each perturbed run, with the result of its own."""
    runs = [(repr({**e.labels, "perturbation": 0.0}), e.labels, r) for e, r in study.select(role="luck", **labels)]
    own = {name: result for name, its, result in runs if not its["perturbation"]}
    yield from ((its, result, own[name]) for name, its, result in runs if its["perturbation"] and name in own)


def parting(study: Study) -> pd.DataFrame:
    """Return how far perturbed runs are from their own over the run: geometric mean of losses, mean of accuracies."""
    table = pairs(study)
    if table.empty:
        return table
    table["x"] = np.log10(table["part"]).round(6)
    table["loss"] = np.log10(table["loss"].clip(lower=1e-9))
    grouped = table.groupby(["method", "x"])
    found = grouped.agg(loss=("loss", "mean"), accuracy=("accuracy", "mean"), n=("loss", "size")).reset_index()
    return found.assign(loss=10.0 ** found["loss"], loss_std=np.nan, accuracy_std=np.nan, parameter=np.nan)


def luck(study: Study, method: str, measure: Callable[[Result], float]) -> float:
    """Return the standard deviation that rounding alone gives `measure` of a method; 0 where it was not tried.

    A run and its perturbed one are two draws, so their difference has twice the variance of one.
    """
    gaps = [measure(result) - measure(own) for _, result, own in _perturbed(study, method=method)]
    return float(np.sqrt(np.mean(np.square(gaps)) / 2)) if gaps else 0.0


def moved(study: Study) -> pd.DataFrame:
    """Return, by method, what perturbations move the final accuracy by, beside its spread over seeds."""
    table, rows = pairs(study), []
    for method, runs in table.groupby("method", sort=False) if len(table) else ():
        last = runs.groupby(["seed", "perturbation"]).tail(LAST)
        ends = last.groupby(["seed", "perturbation"])[["own", "perturbed"]].mean()
        moves, own = (ends["perturbed"] - ends["own"]).abs(), ends["own"].groupby("seed").first()
        rows.append(
            {"method": method, "perturbed runs": len(moves), "mean accuracy": own.mean(),
             "moved by, mean": moves.mean(), "moved by, most": moves.max(),
             "standard deviation over seeds": own.std(), "seeds": len(own)}
        )  # fmt: skip
    return pd.DataFrame(rows)
