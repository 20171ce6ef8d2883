"""The numbers that the WKAFL paper prints: Tables 2 and 3.

They lie beside this module as ``wkafl_printed.csv``: the table (``source``), the task (``digits``: EMNIST MNIST;
``cifar10``), P, K and the labels per client of the cell, the method, the quantity, and the number. Accuracies are
fractions; stability is the spread of the logarithm of the last ten accuracies, whose base the paper does not give
(A9). Two numbers of Table 2 occur again in another cell of Table 3, and one experiment has two values (E24, E25).
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pandas as pd

FILE = Path(__file__).with_name("wkafl_printed.csv")


@cache
def printed() -> pd.DataFrame:
    """Return all of them, a row each."""
    return pd.read_csv(FILE)


def task_of(dataset: str) -> str | None:
    """Return the paper's task that a data set stands for, or None; Fashion-MNIST stands for EMNIST MNIST."""
    name = dataset.removesuffix("-surrogate")
    return {"fashion-mnist": "digits", "emnist-mnist": "digits", "cifar10": "cifar10"}.get(name)


def number(
    dataset: str, source: str, clients: int, aggregated: int, labels: int, method: str, quantity: str = "accuracy"
) -> float | None:
    """Return the number that is printed for a cell (P, K, labels per client) of "table2" or "table3", or None."""
    rows = printed()
    wanted = {"source": source, "task": task_of(dataset), "clients": clients, "aggregated": aggregated,
              "labels": labels, "method": method, "quantity": quantity}  # fmt: skip
    found = rows.loc[(rows[list(wanted)] == pd.Series(wanted)).all(axis=1), "value"]
    return float(found.iloc[0]) if len(found) else None
