"""The numbers that the FedLuck paper prints: Tables 1 and 2, and what its text quotes of Figures 1 to 3.

They lie beside this module as ``fedluck_printed.csv``: where a number stands (``source``), the task by its network,
the partition, the method, the quantity, the target accuracy if it has one, and the number. Accuracies, savings and
reductions are fractions, times are seconds since the first aggregation, a gigabyte is 2^30 bytes.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pandas as pd

FILE = Path(__file__).with_name("fedluck_printed.csv")
ROWS = {"frequency only": "Opt. CR", "compression only": "Opt. LF"}
"""Rows of Table 2 by what they optimise, as the text defines their names (E12)."""
SWAPPED = {"frequency only": "Opt. LF", "compression only": "Opt. CR"}
"""The other reading: the names mean what is optimised."""


@cache
def printed() -> pd.DataFrame:
    """Return all of them; `source`, `task`, `partition` and `method` are empty where they do not apply."""
    frame = pd.read_csv(FILE)
    text = ["source", "task", "partition", "method", "quantity"]
    return frame.assign(**frame[text].fillna(""))


def number(
    task: str, method: str, quantity: str, target: float | None = None, partition: str = "iid"
) -> float | None:
    """Return the number that is printed for a method on a task ("cnn", "vgg11s", "lstm"), or None."""
    rows = printed()
    chosen = (rows["task"] == task) & (rows["method"] == method) & (rows["quantity"] == quantity)
    chosen &= rows["partition"] == partition
    chosen &= rows["target"].isna() if target is None else rows["target"].sub(target).abs() < 1e-9
    found = rows.loc[chosen, "value"]
    return float(found.iloc[0]) if len(found) else None


def quoted(quantity: str) -> float:
    """Return a number that the text states over all tasks, such as ``"time reduction"``."""
    rows = printed()
    return float(rows.loc[(rows["quantity"] == quantity) & (rows["task"] == ""), "value"].iloc[0])
