"""What a run leaves behind: columns of plain numbers, and on request the event trace; and how they are measured."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from torch import Tensor

from fl_core.errors import RunError
from fl_core.runtime.executors import Ticket
from fl_core.runtime.kernel import StopRun
from fl_core.runtime.local import EvaluateJob

if TYPE_CHECKING:
    from fl_core.runtime.simulation import Simulation

UPDATE_COLUMNS = ("seconds", "version", "device", "staleness", "weight", "steps", "loss")
JOULES = ("joules_compute", "joules_transfer")
"""Further counters of a world that declares what devices draw."""
COUNTERS = ("gradients", "models_sent", "models_received", "bytes_down", "bytes_up")
EVALUATION_COLUMNS = ("seconds", "version", *COUNTERS, "test_accuracy", "test_loss", "train_loss")
SPAN_COLUMNS = ("task", "device", "activity", "start", "end", "base_version")
FAULT_COLUMNS = ("seconds", "device", "task", "fault")
TABLES = ("evaluations", "updates", "spans", "faults", "learned")
OUTCOMES = ("dispatched", "applied", "discarded", "rejected", "lost", "duplicates")


@dataclass
class History:
    """The record of one run."""

    evaluations: dict[str, list[Any]] = field(default_factory=lambda: {c: [] for c in EVALUATION_COLUMNS})
    """One row per evaluation of the global model. ``seconds``: virtual time; ``version``: global model versions so
    far (global epochs); ``gradients``: mini-batch gradients applied to the global model; ``models_sent``,
    ``models_received``: transfers from and to the server; ``bytes_down``, ``bytes_up``: their sizes;
    ``test_accuracy`` in [0, 1]; ``test_loss``, ``train_loss``: mean cross entropy (NaN if not measured). In a world
    with `power` also ``joules_compute`` and ``joules_transfer``: what devices have drawn for work that is over."""
    updates: dict[str, list[Any]] = field(default_factory=lambda: {c: [] for c in UPDATE_COLUMNS})
    """One row per upload that a version was made from. ``seconds``: virtual time of the commit; ``version``: the
    version made, counted over all servers; ``device``; ``staleness``: versions made between dispatch and use, by all
    servers (0: fresh); ``weight``: what the algorithm logged as its mixing weight (NaN if nothing); ``steps``: local
    mini-batch steps; ``loss``: mean local training loss."""
    spans: dict[str, list[Any]] = field(default_factory=lambda: {c: [] for c in SPAN_COLUMNS})
    """Event trace, filled when the run was asked to trace. ``task``: dispatch sequence number; ``activity``:
    ``"download"``, ``"train"``, ``"upload"`` (those that take time) or ``"down"`` (crashed or away in the middle of
    one); ``start``, ``end``: virtual seconds, the end after the run's own end for tasks still in flight;
    ``base_version``: version the task began with."""
    model: Tensor | None = field(default=None, repr=False)
    """``[d]``, the last global model."""
    faults: dict[str, list[Any]] = field(default_factory=lambda: {c: [] for c in FAULT_COLUMNS})
    """One row per thing that went wrong, in the order in which it became certain. ``seconds``: virtual time at which
    it shows (a pause is certain when training begins, so later rows may be earlier); ``device``, ``task``: whom it
    struck (-1: the server); ``fault``: the kind of the declared fault, or ``"rejected: ..."`` with the reason."""
    learned: dict[str, list[Any]] = field(default_factory=dict)
    """What the algorithm logged of itself (:meth:`ServerHandle.log`): ``seconds``, ``version``, and columns of its
    own, for example the control parameters of ``device``. Empty for most; a record has six digits of it."""
    outcomes: dict[str, int] = field(default_factory=dict)
    """How the ``dispatched`` tasks ended: ``applied`` in a version, ``discarded`` by the algorithm (too stale),
    ``rejected`` (not finite, or of the wrong shape), ``lost`` (crashed, lost on the way or at a server that was
    down), or still ``in_flight`` (on a device or waiting at the server). The five add up to the first.
    ``duplicates``: second copies that were recognised."""
    ended: str = "budget"
    """Why the run ended: ``"budget"``, or ``"rejected"`` or ``"lost"`` when no usable upload arrived any more; the
    word says how the last task failed."""

    def evaluation_frame(self) -> pd.DataFrame:
        """Return the evaluations as a frame, with the derived column ``communications`` (sent + received)."""
        frame = pd.DataFrame(self.evaluations)
        frame["communications"] = frame["models_sent"] + frame["models_received"]
        return frame

    def update_frame(self) -> pd.DataFrame:
        """Return the updates as a frame."""
        return pd.DataFrame(self.updates)

    def span_frame(self) -> pd.DataFrame:
        """Return the event trace as a frame."""
        return pd.DataFrame(self.spans)

    def fault_frame(self) -> pd.DataFrame:
        """Return the faults as a frame."""
        return pd.DataFrame(self.faults)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON; the model is left out, NaN becomes None and infinity a string."""
        tables = {name: {c: _plain(v) for c, v in getattr(self, name).items()} for name in TABLES}
        if learned := tables.pop("learned"):
            tables["learned"] = {column: _rounded(values) for column, values in learned.items()}
        return {**tables, "outcomes": dict(self.outcomes), "ended": self.ended}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> History:
        """Rebuild what :meth:`to_dict` returned; what an older record lacks is empty."""
        tables: dict[str, Any] = {
            name: {column: _full(values) for column, values in data[name].items()} for name in TABLES if name in data
        }
        return cls(**tables, outcomes=data.get("outcomes", {}), ended=data.get("ended", "budget"))

    def __eq__(self, other: object) -> bool:
        """Bit-for-bit equality of what happened and of the model (NaN equals NaN); not of `learned`."""
        if not isinstance(other, History):
            return NotImplemented
        if self.to_dict() | {"learned": None} != other.to_dict() | {"learned": None}:
            return False
        mine, theirs = self.model, other.model
        if mine is None or theirs is None:
            return mine is theirs
        return mine.numpy().tobytes() == theirs.numpy().tobytes()

    __hash__ = None  # type: ignore[assignment]  # mutable


def append(table: dict[str, list[Any]], **row: Any) -> None:
    """Append one row; columns that `row` lacks get NaN."""
    for column, values in table.items():
        values.append(row.get(column, np.nan))


def _plain(values: list[Any]) -> list[Any]:
    """Replace what JSON has no number for: NaN by None, infinities by their names."""
    return [None if v != v else repr(v) if v in (np.inf, -np.inf) else v for v in values]


def _rounded(values: list[Any]) -> list[Any]:
    return [float(f"{v:.6g}") if isinstance(v, float) else v for v in values]


def _full(values: list[Any]) -> list[Any]:
    return [np.nan if v is None else float(v) if v in ("inf", "-inf") else v for v in values]


class Measurements:
    """The evaluations of a run: computed beside it, and filled in when their results are wanted."""

    def __init__(self, run: Simulation) -> None:
        self._run = run
        self._tickets: list[tuple[int, Ticket]] = []

    def measure(self, test_samples: int = 0) -> None:
        """Measure the global model on `test_samples` test samples or on all, unless the last row says the same."""
        run = self._run
        table, row = run.history.evaluations, len(run.history.evaluations["version"])
        alike = row and test_samples == run.evaluation.test_samples
        if alike and table["version"][-1] == run.version and not run.evaluation.every_seconds:
            return
        counters = {name: sum(server.counters[name] for server in run.servers) for name in run.servers[0].counters}
        found = {"seconds": run.kernel.now, "version": run.version, **counters}
        if alike and all(table[name][-1] == value for name, value in found.items()):
            return
        append(table, **found)
        job = EvaluateJob(run.global_model(), run.evaluation.train_samples, test_samples)
        self._tickets.append((row, run.executor.submit(job, run.kernel.now)))
        if len(self._tickets) > 2:  # each holds a model, and a place among those that are computed ahead
            self.collect(1)

    def periodic(self) -> None:
        """Measure on the test samples of a periodic evaluation, and end the run if that is as good as asked for."""
        run = self._run
        self.measure(run.evaluation.test_samples)
        if run.budget.accuracy is not None:
            self.collect()
            if run.history.evaluations["test_accuracy"][-1] >= run.budget.accuracy:
                raise StopRun

    def collect(self, kept: int = 0) -> None:
        """Fill in the results of all evaluations but the newest `kept`."""
        run = self._run
        ready = len(self._tickets) - kept
        tickets, self._tickets = self._tickets[:ready], self._tickets[ready:]
        for row, ticket in tickets:
            try:
                metrics = run.executor.result(ticket)
            except Exception as error:
                version = run.history.evaluations["version"][row]
                raise RunError(f"evaluation of version {version} failed: {type(error).__name__}: {error}") from error
            for name, value in metrics.items():
                run.history.evaluations[name][row] = value
