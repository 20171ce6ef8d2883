"""Results of runs that nobody made, whose measurements are chosen, for what is read off runs and judged on them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fl_core.experiments.run import Result
from fl_core.experiments.spec import RunSpec
from fl_core.runtime import History


def measured(spec: RunSpec, updates: Mapping[str, Any] | None = None, **evaluations: Any) -> Result:
    """Return a result on real data with these columns of its evaluations and `updates`; the others are zero."""
    history = History()
    for table, given in ((history.evaluations, evaluations), (history.updates, updates or {})):
        assert given.keys() <= table.keys()
        for name, column in table.items():
            column.extend(np.asarray(given.get(name, [0] * len(next(iter(given.values()), ())))).tolist())
    return Result(spec, history, {"data": "real"})
