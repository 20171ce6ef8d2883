"""What the FedASMU paper does not show: staleness and weights of every upload, variants, and baselines' values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd

from fl_core.algorithms import FedASMU
from fl_core.experiments.study import Study
from fl_papers.fedasmu.curves import final_accuracy, readings
from fl_papers.fedasmu.measures import Setting, final, reached, settings
from fl_papers.fedasmu.methods import METHODS, TUNED, VARIANTS
from fl_papers.fedasmu.tables import interval


def staleness_table(study: Study) -> pd.DataFrame:
    """Return every upload that FedASMU has mixed in, and FedASMU-0, whose weights are FedAsync's.

    Returns
    -------
    DataFrame
        ``method``, ``seed``, ``version`` (that it made), ``staleness`` (t - o + 1), ``weight``, ``bound`` (tau).
    """
    found = []
    for method in ("FedASMU", "FedASMU-0"):
        for entry, result in study.select(method=method, varied=None):
            table = result.history.update_frame()[["version", "staleness", "weight"]]
            algorithm = entry.spec.algorithm
            assert isinstance(algorithm, FedASMU)
            found.append(
                table.assign(
                    staleness=table["staleness"] + 1,  # the paper's counts from 1
                    method=method,
                    seed=entry.labels["seed"],
                    bound=algorithm.staleness_bound,
                )
            )
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame()


def equal_time_table(study: Study) -> pd.DataFrame:
    """Return each method's accuracy after all of its uploads, and at the virtual time when FedASMU has finished."""
    rows: list[dict[str, Any]] = []
    for at in settings(study):
        ours = {e.labels["seed"]: readings(r)[0][-1] for e, r in study.select(method="FedASMU", **at._asdict())}
        for method in METHODS if ours else ():
            found = {e.labels["seed"]: r for e, r in study.select(method=method, **at._asdict())}
            early = {seed: final_accuracy(r, ours[seed]) for seed, r in found.items() if seed in ours}
            if early:
                accuracy = interval(final(study, method, at))
                rows.append(
                    {"column": str(at), "method": method, "after all uploads": accuracy,
                     "when FedASMU has finished": interval(early), "seeds": len(early)}
                )  # fmt: skip
    return pd.DataFrame(rows)


def variants_table(study: Study) -> pd.DataFrame:
    """Return accuracy and time to the target of FedASMU's variants, as text."""
    changes = [(None, None), *(("variant", name) for name in VARIANTS)]
    return _rows(study, (("FedASMU", *change) for change in changes))


def tuning_table(study: Study) -> pd.DataFrame:
    """Return accuracy and time to the target of the baselines with other values, as text."""
    cells = [
        (method, *change)
        for method, (what, values) in TUNED.items()
        for change in [(None, None), *((what, value) for value in values)]
    ]
    return _rows(study, cells)


def _rows(study: Study, cells: Iterable[tuple[str, str | None, object]]) -> pd.DataFrame:
    rows = []
    for method, varied, value in cells:
        for column in dict.fromkeys(at.column for at in settings(study, method)):
            at = Setting(column, varied, value)
            if accuracy := final(study, method, at):
                found = {seed: one for seed, one in reached(study, method, at).items() if one.reached}
                changed = (
                    "as in the tables"
                    if varied is None
                    else value
                    if varied == "variant"
                    else f"{varied} = {value:g}"
                )
                seconds = interval({seed: one.seconds for seed, one in found.items()}, 0)
                rows.append(
                    {
                        "method": method,
                        "changed": changed,
                        "accuracy": interval(accuracy),
                        "seconds to the target": seconds or "not reached",
                        "seeds": len(accuracy),
                    }
                )
    return pd.DataFrame(rows)
