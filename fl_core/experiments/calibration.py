"""Is a surrogate as hard as the real data set? The papers' reference networks, trained centrally, answer.

What is known, and how each network is trained, is :mod:`fl_core.datasets.surrogates.calibration`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from fl_core.algorithms import SGD
from fl_core.datasets import IID, sizes
from fl_core.datasets.surrogates.calibration import REAL, REFERENCES, Reference
from fl_core.errors import known
from fl_core.experiments.run import Result
from fl_core.experiments.spec import RunSpec
from fl_core.experiments.store import Store
from fl_core.experiments.study import Entry, Study, load_study
from fl_core.runtime import Budget, Evaluation, LocalTraining
from fl_core.world import World

NOISE = 0.2
REFERENCE, LINEAR, LESS, NOISY = "reference network", "linear model", "less data", "20 % wrong labels"


def entries(reference: Reference) -> list[Entry]:
    """Return the runs of one reference: at most four, all on the surrogate (for an embedded data set on the real)."""
    found = [_entry(reference, REFERENCE)]
    if not reference.controls:
        return found
    if reference.linear_lr:
        linear = _training(reference, reference.linear_lr)
        found.append(_entry(reference, LINEAR, model="linear", training=linear))
    less = IID(samples_per_device=int(reference.part * sizes(reference.used)[0]))
    found.append(_entry(reference, LESS, 0.5, partition=less))
    return [*found, _entry(reference, NOISY, 0.5, label_noise=NOISE)]


def _training(reference: Reference, lr: float) -> LocalTraining:
    momentum, decay = reference.momentum, reference.decay
    every = 1 if decay < 1 else LocalTraining().lr_decay_versions
    kept = LocalTraining(lr=lr, batch_size=reference.batch_size, momentum=momentum, momentum_reset=not momentum)
    return kept.model_copy(update={"lr_decay": decay, "lr_decay_versions": every})


def _entry(reference: Reference, variant: str, part: float = 1.0, **changed: Any) -> Entry:
    """Return one run of `part` of the steps."""
    steps = reference.epochs * sizes(reference.used)[0] / reference.batch_size
    fields: dict[str, Any] = {
        "dataset": reference.used, "model": reference.model, "initialisation": reference.initialisation,
        "algorithm": SGD(block=max(1, round(steps / reference.points))), "world": World(devices=1),
        "training": _training(reference, reference.lr), "evaluation": Evaluation(every_updates=1),
        "budget": Budget(updates=max(1, round(part * reference.points))),
    }  # fmt: skip
    if reference.preprocessing:
        fields["preprocessing"] = reference.preprocessing
    named = {"dataset": reference.dataset, "network": reference.model, "training": reference.training}
    return Entry(RunSpec(**(fields | changed)), named | {"variant": variant, "seed": 0})


def calibration(store: Store, datasets: Iterable[str] = (), references: Sequence[Reference] = REFERENCES) -> Study:
    """Return the runs of `datasets` (names of real ones; none: all), with what `store` has of their results."""
    every = list(dict.fromkeys(reference.dataset for reference in references))
    names = [known("data set with a reference", name, every) for name in datasets] or every
    runs = [entry for name in names for found in references if found.dataset == name for entry in entries(found)]
    return load_study(Study("laptop", "real data" if references is REAL else "surrogates", tuple(runs), {}), store)


calibration_on_real_data = partial(calibration, references=REAL)
"""The same, of the reference networks on the real data sets themselves."""


def table(study: Study, references: Sequence[Reference] | None = None) -> pd.DataFrame:
    """Return a row for each data set and network: known and measured accuracy, the difference, what the controls say.

    ``measured`` is a mean over the last evaluations; ``calibrated``: is it what is known? (None: nobody can say.)
    ``less data`` and ``wrong labels`` are differences to the reference network after the same number of steps.
    """
    rows = []
    for reference in references or REFERENCES:
        runs = {entry.labels["variant"]: result for entry, result in runs_of(study, reference)}
        curves = {name: result.history.evaluations["test_accuracy"] for name, result in runs.items()}
        if not any(entry.labels["dataset"] == reference.dataset for entry in study.entries):
            continue
        reached = _end(curves.get(REFERENCE), reference.tail)
        decided = reference.comparable and not math.isnan(reached)
        rows.append(
            {"data set": reference.dataset, "network": reference.model, "known": reference.known, "measured": reached,
             "difference": reached - reference.known, "calibrated": reference.reached(reached) if decided else None,
             "linear": _end(curves.get(LINEAR), reference.tail),
             "less data": _against_reference(curves, LESS, reference.tail),
             "wrong labels": _against_reference(curves, NOISY, reference.tail), "reported": reference.reported}
        )  # fmt: skip
    return pd.DataFrame(rows)


def runs_of(study: Study, reference: Reference) -> list[tuple[Entry, Result]]:
    """Return the finished runs of one reference."""
    return study.select(dataset=reference.dataset, network=reference.model, training=reference.training)


def _end(curve: list[float] | None, tail: int) -> float:
    """Return the mean of the last `tail` values, but never of the initial model's; NaN without a curve."""
    return float(np.mean(curve[1:][-tail:])) if curve else math.nan


def _against_reference(curves: dict[str, list[float]], variant: str, tail: int) -> float:
    """Return how much better (negative: worse) a variant ends than the reference network is after as many steps."""
    if variant not in curves or REFERENCE not in curves:
        return math.nan
    return _end(curves[variant], tail) - _end(curves[REFERENCE][: len(curves[variant])], tail)
