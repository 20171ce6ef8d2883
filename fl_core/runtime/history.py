"""What a run leaves behind: columns of plain numbers, and on request the event trace."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

UPDATE_COLUMNS = ("seconds", "version", "device", "staleness", "weight", "steps", "loss")
COUNTERS = ("gradients", "models_sent", "models_received", "bytes_down", "bytes_up")
EVALUATION_COLUMNS = ("seconds", "version", *COUNTERS, "test_accuracy", "test_loss", "train_loss")
SPAN_COLUMNS = ("task", "device", "activity", "start", "end", "base_version")
FAULT_COLUMNS = ("seconds", "device", "task", "fault")
TABLES = ("evaluations", "updates", "spans", "faults")
OUTCOMES = ("dispatched", "applied", "discarded", "rejected", "lost", "duplicates")


@dataclass
class History:
    """The record of one run.

    Attributes
    ----------
    evaluations : dict of lists
        One row per evaluation of the global model. ``seconds``: virtual time; ``version``: global model versions so
        far (global epochs); ``gradients``: mini-batch gradients applied to the global model; ``models_sent``,
        ``models_received``: transfers from and to the server; ``bytes_down``, ``bytes_up``: their sizes;
        ``test_accuracy`` in [0, 1]; ``test_loss``, ``train_loss``: mean cross entropy (NaN if not measured).
    updates : dict of lists
        One row per upload that a version was made from. ``seconds``: virtual time of the commit; ``version``: the
        version made, counted over all servers; ``device``; ``staleness``: versions made between dispatch and use,
        by all servers (0: fresh); ``weight``: what the algorithm logged as its mixing weight (NaN if nothing);
        ``steps``: local mini-batch steps; ``loss``: mean local training loss.
    spans : dict of lists
        Event trace, filled when the run was asked to trace. ``task``: dispatch sequence number; ``activity``:
        ``"download"``, ``"train"``, ``"upload"`` (those that take time) or ``"down"`` (crashed or away in the middle
        of one); ``start``, ``end``: virtual seconds, the end after the run's own end for tasks still in flight;
        ``base_version``: version the task began with.
    faults : dict of lists
        One row per thing that went wrong, in the order in which it became certain. ``seconds``: virtual time at which
        it shows (a pause is certain when training begins, so later rows may be earlier); ``device``, ``task``: whom
        it struck (-1: the server); ``fault``: the kind of the declared fault, or ``"rejected: ..."`` with the reason.
    outcomes : dict of int
        How the ``dispatched`` tasks ended: ``applied`` in a version, ``discarded`` by the algorithm (too stale),
        ``rejected`` (not finite, or of the wrong shape), ``lost`` (crashed, lost on the way or at a server that was
        down), or still ``in_flight`` (on a device or waiting at the server). The five add up to the first.
        ``duplicates``: second copies that were recognised.
    ended : str
        Why the run ended: ``"budget"``, or ``"rejected"`` or ``"lost"`` when no usable upload arrived any more; the
        word says how the last task failed.
    model : Tensor or None
        ``[d]``, the last global model.
    """

    evaluations: dict[str, list[Any]] = field(default_factory=lambda: {c: [] for c in EVALUATION_COLUMNS})
    updates: dict[str, list[Any]] = field(default_factory=lambda: {c: [] for c in UPDATE_COLUMNS})
    spans: dict[str, list[Any]] = field(default_factory=lambda: {c: [] for c in SPAN_COLUMNS})
    model: Tensor | None = field(default=None, repr=False)
    faults: dict[str, list[Any]] = field(default_factory=lambda: {c: [] for c in FAULT_COLUMNS})
    outcomes: dict[str, int] = field(default_factory=dict)
    ended: str = "budget"

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
        return {**tables, "outcomes": dict(self.outcomes), "ended": self.ended}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> History:
        """Rebuild what :meth:`to_dict` returned; what an older record lacks is empty."""
        tables: dict[str, Any] = {
            name: {column: _full(values) for column, values in data[name].items()} for name in TABLES if name in data
        }
        return cls(**tables, outcomes=data.get("outcomes", {}), ended=data.get("ended", "budget"))

    def __eq__(self, other: object) -> bool:
        """Bit-for-bit equality of all columns and of the model (NaN equals NaN)."""
        if not isinstance(other, History):
            return NotImplemented
        if self.to_dict() != other.to_dict():
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


def _full(values: list[Any]) -> list[Any]:
    return [np.nan if v is None else float(v) if v in ("inf", "-inf") else v for v in values]
