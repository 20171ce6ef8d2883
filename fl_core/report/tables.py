"""Data frames as tables for a page: rounded sensibly, with words instead of column names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

import numpy as np
import pandas as pd

from fl_core.experiments.claims import Judgement, details, ledger

NOWRAP = ' style="white-space:nowrap"'


class Table:
    """A table that a notebook shows as HTML and that prints as Markdown.

    Parameters
    ----------
    frame : DataFrame
        Cells are text or numbers; NaN and None become a dash.
    names : mapping, optional
        Headings by column; columns that are not named keep their name.
    digits : int
        Decimals of floating-point numbers.
    wrap : iterable of str
        Columns with long text, which may break over lines; all others stay on one line.
    """

    def __init__(
        self, frame: pd.DataFrame, names: Mapping[str, str] | None = None, digits: int = 3, wrap: Iterable[str] = ()
    ) -> None:
        self.frame, self.digits, self.wrap = frame, digits, frozenset(wrap)
        self.names = dict(names or {})

    def to_markdown(self) -> str:
        """Return a Markdown table."""
        head = [self._heading(column) for column in self.frame.columns]
        lines = [_row(head), _row(["---"] * len(head))]
        lines += [_row([cell.replace("|", "\\|") for cell in row]) for row in self._cells()]
        return "\n".join(lines)

    def to_html(self) -> str:
        """Return an HTML table in a box that scrolls sideways on a narrow screen."""
        columns = [str(column) for column in self.frame.columns]
        head = "".join(f'<th scope="col">{escape(self._heading(column))}</th>' for column in columns)
        body = []
        for row in self._cells():
            pairs = zip(columns, row, strict=True)
            cells = [f"<td{'' if column in self.wrap else NOWRAP}>{escape(cell)}</td>" for column, cell in pairs]
            body.append(f"<tr>{''.join(cells)}</tr>")
        return (
            '<div style="overflow-x:auto" tabindex="0"><table class="table">'
            f"<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
        )

    def _heading(self, column: Any) -> str:
        return self.names.get(column, str(column))

    def _cells(self) -> list[list[str]]:
        return [[self._text(value) for value in row] for row in self.frame.itertuples(index=False, name=None)]

    def _text(self, value: Any) -> str:
        if value is None or value is pd.NA or (isinstance(value, float) and np.isnan(value)):
            return "–"
        if isinstance(value, bool | np.bool_):
            return "yes" if value else "no"
        if isinstance(value, float | np.floating):
            return f"{value:.{self.digits}f}"
        if isinstance(value, int | np.integer):
            return f"{value:,}"
        return str(value)

    def _repr_html_(self) -> str:
        return self.to_html()

    def __repr__(self) -> str:
        return self.to_markdown()


def with_spread(frame: pd.DataFrame, columns: Iterable[str], digits: int = 3) -> pd.DataFrame:
    """Return `frame` with each of `columns` joined with its ``…_std`` into one text, ``0.712 ± 0.004``."""
    joined = frame.copy()
    for column in columns:
        spread = joined.pop(f"{column}_std")
        joined[column] = [
            f"{mean:.{digits}f}" + (f" ± {std:.{digits}f}" if np.isfinite(std) else "")
            for mean, std in zip(joined[column], spread, strict=True)
        ]
    return joined


def claims_table(judgements: Iterable[Judgement]) -> Table:
    """Return the ledger of judged claims, one row each."""
    return Table(ledger(judgements), wrap=("the paper says", "test", "at", "effect"))


def details_table(judgements: Iterable[Judgement]) -> Table:
    """Return every inequality and check behind a ledger."""
    return Table(details(judgements), wrap=("part", "effect"))


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"
