"""The numbers that the SD-FEEL paper prints, and those that follow from them: its setting and its latency model.

They lie beside this module as ``sdfeel_printed.csv``: the table, the gap H, the cluster, the method and the reading
of the step cost where they matter, the quantity, its value, its unit, and where it is from (``origin``): ``printed``;
``derived`` from what is printed; ``resolved``, our choice; or ``not stated``. The paper has no table of results.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pandas as pd

FILE = Path(__file__).with_name("sdfeel_printed.csv")


@cache
def printed() -> pd.DataFrame:
    """Return all of them as text; a field is empty where it does not apply."""
    return pd.read_csv(FILE, dtype=str, keep_default_na=False)


def number(quantity: str, gap: float | None = None, cluster: int | None = None, step_cost: str = "") -> float | None:
    """Return one number of the table ``latency``, or None."""
    rows = printed()
    wanted = {
        "table": "latency",
        "quantity": quantity,
        "gap": "" if gap is None else f"{gap:g}",
        "cluster": "" if cluster is None else str(cluster),
        "step_cost": step_cost,
    }
    for column, value in wanted.items():
        rows = rows[rows[column] == value]
    return float(rows["value"].iloc[0]) if len(rows) else None
