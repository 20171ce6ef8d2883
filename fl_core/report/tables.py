"""Data frames as tables for a page: rounded sensibly, with words instead of column names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, get_args

import numpy as np
import pandas as pd

from fl_core.datasets import described
from fl_core.experiments.claims import REDUCED, Judgement, Label, details, ledger

NOWRAP = ' style="white-space:nowrap"'
LONG, WIDE = 9, 9
"""Rows above which a table scrolls in a box of its own, and columns above which its letters are smaller."""


@dataclass(repr=False, eq=False)
class Table:
    """A table that a notebook shows as HTML and that prints as Markdown; NaN and None become a dash.

    `names` are headings by column, `digits` the decimals of floating-point numbers, `wrap` the columns that may break
    over lines and their least width in em; further lines of a text are small. The table is folded away under the line
    `fold`, and rows can be linked to by their `anchors`. A page numbers it and shows its `caption`.
    """

    frame: pd.DataFrame
    names: Mapping[str, str] = field(default_factory=dict)
    digits: int = 3
    wrap: Mapping[str, float] = field(default_factory=dict)
    fold: str = ""
    anchors: Sequence[str] = ()
    caption: str = ""

    def to_markdown(self) -> str:
        """Return a Markdown table."""
        head = [self._heading(column) for column in self.frame.columns]
        lines = [_row(head), _row(["---"] * len(head))]
        lines += [_row([cell.replace("|", "\\|").replace("\n", "; ") for cell in row]) for row in self._cells()]
        return "\n".join(lines)

    def to_text(self) -> str:
        """Return the table for a terminal, columns aligned."""
        cells = [[cell.replace("\n", "; ") for cell in row] for row in self._cells()]
        lines = [[self._heading(column) for column in self.frame.columns], *cells]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)

    def to_html(self) -> str:
        """Return an HTML table in a box that scrolls sideways on a narrow screen."""
        columns = [str(column) for column in self.frame.columns]
        head = "".join(f'<th scope="col">{escape(self._heading(column))}</th>' for column in columns)
        body = []
        for number, row in enumerate(self._cells()):
            pairs = zip(columns, row, strict=True)
            cells = [f"<td{self._style(column)}>{_lines(cell)}</td>" for column, cell in pairs]
            name = f' id="{escape(self.anchors[number])}"' if self.anchors else ""
            body.append(f"<tr{name}>{''.join(cells)}</tr>")
        kind = "table-box" + " long" * (len(body) > LONG) + " wide" * (len(columns) > WIDE)
        table = (
            f'<div class="{kind}" style="overflow-x:auto" tabindex="0"><table class="table">'
            f"{caption(self.caption)}<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
        )
        return f"<details><summary>{escape(self.fold)}</summary>{table}</details>" if self.fold else table

    def _style(self, column: str) -> str:
        return f' style="min-width:{self.wrap[column]:g}em"' if column in self.wrap else NOWRAP

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


def caption(text: str) -> str:
    """Return a caption in HTML, what is between backticks as code; nothing for no text."""
    said = re.sub("`(.*?)`", r"<code>\1</code>", escape(text))
    return f"<caption>{said}</caption>" if text else ""


def page_table(caption: str, head: Iterable[str], rows: Iterable[Iterable[object]], align: Sequence[str] = ()) -> str:
    """Return a table in the Markdown of a page, which numbers it; `align` is how Markdown says it, by column."""
    names = list(head)
    cells = [[str(cell).replace("|", "\\|") for cell in row] for row in rows]
    lines = map(_row, [names, list(align) or ["---"] * len(names), *cells])
    return "\n".join([f"```{{table}} {caption}", *lines, "```\n"])


def with_spread(frame: pd.DataFrame, columns: Iterable[str]) -> pd.DataFrame:
    """Return `frame` with each of `columns` joined with its ``…_std`` into one text, ``0.712 ± 0.004``."""
    joined = frame.copy()
    for column in columns:
        spread = joined.pop(f"{column}_std")
        joined[column] = [
            f"{mean:.3f}" + (f" ± {std:.3f}" if np.isfinite(std) else "")
            for mean, std in zip(joined[column], spread, strict=True)
        ]
    return joined


def claims_table(judgements: Iterable[Judgement]) -> Table:
    """Return the judged claims, one row each."""
    judged = list(judgements)
    frame = in_words(judged)
    papers = {judgement.claim.paper for judgement in judged}
    names = {"statement": "the paper says", "measured": "effect [interval]"}
    frame["rests on"] = [judgement.rests_on() for judgement in judged]
    below = {"claim": "kind", "statement": "endpoint", "label": "reason", "measured": "claimed"}
    frame["claimed"] = [
        f"{claimed}; {at}".strip("–; ") for claimed, at in zip(frame["claimed"], frame["part"], strict=True)
    ]
    for column, small in below.items():
        frame[column] = [f"{a}\n{b}".strip() for a, b in zip(frame[column], frame[small], strict=True)]
    wrap = {"statement": 14.0, "label": 8.0, "measured": 10.0, "rests on": 9.0}
    columns = [*below, "rests on"]
    if len(papers) == 1:
        names["claim"] = papers.pop()
        frame["claim"] = [name.partition("-")[2] for name in frame["claim"]]
    anchors = [anchor(judgement.claim.id) for judgement in judged]
    said = f"What became of {len(judged)} claims, and what that rests on"
    return Table(frame[columns], names, wrap=wrap, anchors=anchors, caption=said)


def anchor(name: str) -> str:
    """Return the name under which a page has the row of a claim."""
    return f"claim-{name.lower()}"


def in_words(judgements: list[Judgement]) -> pd.DataFrame:
    """Return the ledger with what was measured in the deciding part, and what is claimed and printed, as texts."""
    frame = ledger(judgements)
    words = [judgement.decisive.words() if judgement.decisive else ("–", "–", "–") for judgement in judgements]
    frame["measured"] = [
        effect if interval in ("–", "exact") else f"{effect} {interval}" for effect, interval, _ in words
    ]
    printed = [f"; printed {size:.3g}" if np.isfinite(size) else "" for size in frame["printed"]]
    frame["claimed"] = [claimed + size for (*_, claimed), size in zip(words, printed, strict=True)]
    frame["part"] = frame["decided_by"]
    return frame


def details_table(judgements: Iterable[Judgement]) -> Table:
    """Return every effect and check behind a ledger, folded away."""
    frame = details(judgements)
    return Table(frame, wrap={"part": 10, "effect": 8}, fold=f"All {len(frame)} effects and checks")


def verdicts_in_words(judgements: Iterable[Judgement]) -> str:
    """Return how many claims have which label, and which, and what they were judged on, as Markdown."""
    judged = list(judgements)
    groups = []
    for label in get_args(Label):
        names = [j.claim.id.partition("-")[2] for j in judged if j.label == label]
        if names:
            groups.append(f"**{len(names)} {label}** ({', '.join(names)})")
    measured = [j for j in judged if j.effects and j.claim.kind == "run"]
    runs = "all stored runs" if all(j.stored for j in judged) else "these runs alone"
    where = f" on {runs}, {described(measured[0].dataset, measured[0].data_kind)}" if measured else ""
    reduced = sum(j.group == REDUCED for j in measured)
    budget = f" {reduced} of the {len(measured)} about runs were judged at a reduced budget." if reduced else ""
    return f"Of {len(judged)} claims judged{where}: {'; '.join(groups)}.{budget}"


def _lines(cell: str) -> str:
    first, _, below = escape(cell).partition("\n")
    return f"{first}<br><small>{below}</small>" if below else first


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"
