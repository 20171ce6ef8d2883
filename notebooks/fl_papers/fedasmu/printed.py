"""The numbers that the FedASMU paper prints: Tables 1, 2, 5 and 6, and the gains that its text quotes.

They lie beside this module as ``fedasmu_printed.csv``: where a number stands (``source``), the column of the tables
by its name in :data:`fl_papers.fedasmu.columns.COLUMNS`, the setting if it is not the tables', the method,
what it is compared with, the quantity, and the number. Accuracies, gains and savings are fractions; times have no
unit in print, and one that is infinite is printed as "/": the target was not reached.
"""

from __future__ import annotations

from functools import cache
from math import nan
from pathlib import Path
from typing import Literal, get_args

import pandas as pd

FILE = Path(__file__).with_name("fedasmu_printed.csv")
IMPLIED = "implied"
"""Setting of the values of Figure 2 that the text's ranges fix (7.2); they are printed nowhere."""

ONE_DIGIT = 0.675
"""The one saving whose percentage has one decimal in print, not two."""

What = Literal["accuracy gain", "time saved"]


@cache
def printed() -> pd.DataFrame:
    """Return all of them; text columns are empty where they do not apply."""
    frame = pd.read_csv(FILE)
    text = ["source", "column", "setting", "method", "against", "quantity"]
    return frame.assign(**frame[text].fillna(""))


def number(column: str, method: str, quantity: str, setting: str = "") -> float | None:
    """Return "accuracy", "time" or a hyper-parameter (Tables 5, 6) in a column of the tables; None: not printed.

    With the setting :data:`IMPLIED` these are the values of Figure 2.
    """
    return _only(column=column, method=method, quantity=quantity, setting=setting)


def gain(what: What, against: str, method: str = "FedASMU") -> float | None:
    """Return what the text says that `method` gains over `against`, as one number; None: it does not."""
    return _only(quantity=what, against=against, method=method)


def band(what: What, against: str, method: str = "FedASMU", setting: str = "") -> tuple[float, float] | None:
    """Return the least and the most that the text says `method` gains over `against`; None: it does not.

    Parameters
    ----------
    what : str
    against : str
        A method, or "all".
    method : str, optional
        Also "FedASMU-DA and FedASMU-FA".
    setting : str, optional
        One of Figure 7: "bandwidth 50", "bandwidth 100", "heterogeneity 110 to 440", "devices 100 and 200".
    """
    ends = [
        _only(quantity=f"{what}, {end}", against=against, method=method, setting=setting) for end in ("least", "most")
    ]
    return None if ends[0] is None or ends[1] is None else (ends[0], ends[1])


def tables_band(what: What, against: str, columns: tuple[str, ...] = ()) -> tuple[float, float]:
    """Return what FedASMU gains over a method in Tables 1 and 2, least and most, over all columns or those given.

    A time is compared where both methods reach the target.
    """
    rows = printed()
    tables = rows[rows["source"].isin(["table1", "table2"]) & (rows["quantity"] == what.split()[0])]
    wide = tables.pivot(index="column", columns="method", values="value")
    wide = wide.loc[list(columns)] if columns else wide
    ours, theirs = wide["FedASMU"], wide[against]
    gains = ours - theirs if what == "accuracy gain" else (1 - ours / theirs)[theirs.abs() < float("inf")]
    return float(gains.min()), float(gains.max())


def deviations() -> pd.DataFrame:
    """Return the ends of the text's ranges that Tables 1 and 2 do not give (E19); the text cuts digits off.

    Returns
    -------
    DataFrame
        ``against``, ``quantity``, ``end``, ``text`` (NaN: not printed), ``tables``.
    """
    rows, whats = [], get_args(What)
    for against in dict.fromkeys(printed().query("source == 'sec5'")["against"]):
        for what in whats:
            text, found = band(what, against) or (nan, nan), tables_band(what, against)
            for end, said, given in zip(("least", "most"), text, found, strict=True):
                unit = 1e-3 if said == ONE_DIGIT else 1e-4
                if not -1e-9 < given - said < unit:
                    rows.append((against, what, end, said, given))
    return pd.DataFrame(rows, columns=["against", "quantity", "end", "text", "tables"])


def _only(**labels: str) -> float | None:
    rows = printed()
    for name, value in labels.items():
        rows = rows[rows[name] == value]
    return float(rows["value"].iloc[0]) if len(rows) else None
