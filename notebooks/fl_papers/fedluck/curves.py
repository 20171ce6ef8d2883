"""What FedLuck's figures and claims measure on the runs: accuracy over time, and time and traffic to a target.

All methods are read at the same virtual times, every two periods T~ (A16). Time in the paper's tables starts at a
method's first aggregation (A17), and gigabytes count what has been uploaded by then, at the paper's model size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fl_core.algorithms import FedLuck, FedPer
from fl_core.errors import DataError
from fl_core.experiments.run import Result
from fl_core.experiments.study import Entry, Study
from fl_core.formulas.compression import TopK
from fl_core.formulas.fedluck import job_seconds, rounds_per_job
from fl_core.models import num_parameters
from fl_core.world import TraceCompute
from fl_papers.fedluck.accounting import BYTES_PER_GB, BYTES_PER_PARAMETER
from fl_papers.fedluck.grid import CLASSES, METHODS
from fl_papers.fedluck.scales import PERIODS_PER_EVALUATION
from fl_papers.fedluck.setups import setup_of

Array = NDArray[np.float64]

SLACK = 1e-9
"""Seconds by which rounding may move a time."""


@dataclass(frozen=True)
class Reached:
    """When a run first has a target accuracy.

    Attributes
    ----------
    seconds : float
        Virtual time since the run's first aggregation; if the target is not reached, of the run's end.
    since_start : float
        Since the start of the run.
    gigabytes : float
        Uploaded by then.
    reached : bool
        If not, the numbers are lower bounds.
    """

    seconds: float
    since_start: float
    gigabytes: float
    reached: bool


def curve(entry: Entry, result: Result) -> pd.DataFrame:
    """Return what is measured periodically, read every two periods T~ up to the end of the run.

    Returns
    -------
    DataFrame
        ``seconds``, ``test_accuracy``, ``gigabytes``; the first row is the initial model.
    """
    return pd.DataFrame(dict(zip(("seconds", "test_accuracy", "gigabytes"), _readings(entry, result), strict=True)))


def reach(entry: Entry, result: Result, target: float) -> Reached:
    """Return when a run first has the accuracy `target`."""
    seconds, accuracy, gigabytes = _readings(entry, result)
    at = np.flatnonzero(accuracy >= target)
    row = at[0] if len(at) else -1
    since_first = max(0.0, float(seconds[row]) - first_aggregation(result))
    return Reached(since_first, float(seconds[row]), float(gigabytes[row]), bool(len(at)))


def first_aggregation(result: Result) -> float:
    """Return the virtual time of the first version that was made from an upload; 0 if nothing has arrived.

    Raises
    ------
    DataError
        If the record was stored without its table of updates, so that the time is not known.
    """
    times = result.history.updates["seconds"]
    if not times and result.history.evaluations["models_received"][-1]:
        raise DataError(f"run {result.spec.hash} was stored without its table of updates, which FedLuck's times need")
    return float(times[0]) if times else 0.0


def size_factor(entry: Entry) -> float:
    """Return how many times larger the paper's model is than the one that the run has."""
    setup = setup_of(entry.spec.dataset)
    return setup.parameters / num_parameters(entry.spec.model, setup.shape, CLASSES)


def horizon(study: Study) -> float:
    """Return the virtual time at which Figure 2 ends: that of FedLuck's runs; NaN without any."""
    found = [e.spec.budget.seconds for e in study.entries if e.labels["role"] == "comparison"]
    return min((seconds for seconds in found if seconds), default=float("nan"))


def final_accuracy(study: Study, entry: Entry, result: Result) -> float:
    """Return the accuracy of a run at the horizon, on all test images."""
    times = np.array(result.history.evaluations["seconds"])
    last = np.flatnonzero(times <= horizon(study) + SLACK)[-1]
    return float(result.history.evaluations["test_accuracy"][last])


def compared(study: Study, method: str, partition: str) -> dict[int, tuple[Entry, Result]]:
    """Return the runs of a method of Figures 2 and 3 and of the tables, by seed."""
    found = study.select(role="comparison", method=method, partition=partition)
    return {entry.labels["seed"]: (entry, result) for entry, result in found}


def accuracy_curves(study: Study, partition: str, methods: Sequence[str] = METHODS) -> pd.DataFrame:
    """Return mean, standard deviation and number over seeds of each method's accuracy, up to the horizon.

    Returns
    -------
    DataFrame
        ``method``, ``x`` (virtual seconds), ``n``, ``test_accuracy``, ``test_accuracy_std``, ``parameter`` (NaN).
    """
    found = []
    for method in methods:
        runs = compared(study, method, partition).values()
        if not runs:
            continue
        joined = pd.concat([curve(entry, result) for entry, result in runs])
        joined = joined[joined["seconds"] <= horizon(study) + SLACK]
        grouped = joined.groupby("seconds")["test_accuracy"]
        table = grouped.agg(test_accuracy="mean", test_accuracy_std="std", n="size")
        found.append(table.rename_axis("x").reset_index().assign(method=method, parameter=np.nan))
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame()


def planned_rounds(entry: Entry) -> list[int]:
    """Return rounds per job c_i of each device of a periodic run, from what it is told to do (Eq. 5)."""
    spec, algorithm = entry.spec, entry.spec.algorithm
    compute, network = spec.world.compute, spec.world.network
    assert isinstance(compute, TraceCompute)
    bits = np.array(network.up_bits_per_second)
    alpha = np.array(compute.seconds_per_step)
    beta = 8 * BYTES_PER_PARAMETER * num_parameters(spec.model, setup_of(spec.dataset).shape, CLASSES) / bits
    if isinstance(algorithm, FedLuck):
        made = algorithm.plan(alpha, beta)
        jobs = job_seconds(made.local_steps, made.compression_rate, alpha, beta)
    else:
        assert isinstance(algorithm, FedPer)
        assert isinstance(algorithm.compressor, TopK)
        jobs = job_seconds(algorithm.steps, algorithm.compressor.delta, alpha, beta)
    return rounds_per_job(jobs, algorithm.period_seconds).tolist()


def _readings(entry: Entry, result: Result) -> tuple[Array, Array, Array]:
    """Return seconds, accuracy and gigabytes of :func:`curve`.

    If periodic evaluations are on fewer images, those at further times and at the end are left out; the first stays.
    """
    spec, table = entry.spec, result.history.evaluations
    times, accuracy, sent = (np.array(table[name], dtype=float) for name in ("seconds", "test_accuracy", "bytes_up"))
    kept = np.ones(len(times), dtype=bool)
    if spec.evaluation.test_samples:
        kept[1:] = ~np.isin(times[1:], spec.evaluation.at_seconds)
        kept[-1] = False
    step, end = PERIODS_PER_EVALUATION * setup_of(spec.dataset).period_seconds, spec.budget.seconds or times[-1]
    seconds = np.arange(0.0, end + SLACK, step)
    latest = np.flatnonzero(kept)[np.searchsorted(times[kept], seconds + SLACK, side="right") - 1]
    return seconds, accuracy[latest], sent[latest] * size_factor(entry) / BYTES_PER_GB
