"""Dossiers: what ledger, store, readings and chapters say of a paper, on two to four printed pages.

No number and no verdict is written here. The sentences on what was easy and difficult are those of the chapter.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

from fl_core.bookbuild.chapters import BookError
from fl_core.experiments import ledger
from fl_core.experiments.artifacts import artifacts
from fl_core.experiments.claims import Judgement
from fl_core.experiments.experiment import PROFILES
from fl_core.experiments.run import commit
from fl_core.report.tables import anchor, in_words, page_table
from fl_core.report.verdicts import LOOKS, WORDS, sentence

BROWSERS = "chromium", "chromium-browser", "google-chrome"
STATEMENT, ERRATUM = 110, 150
"""Characters of a statement and of an erratum."""


Errata = Mapping[str, tuple[str, Sequence[tuple[str, str, str]]]]
"""By paper its name, and label, number and words of each."""


def made(root: Path, errata: Errata, published: pd.DataFrame) -> dict[str, str]:
    """Return the dossier of each paper that has claims, readings and a replication chapter, as Markdown."""
    known = {name.lower() for name in ledger.papers()}
    chapters = {path.parent.name: path for path in root.glob("notebooks/*/*/replication.ipynb")}
    found = {}
    for paper in [name for name in errata if name in known & chapters.keys()]:
        title, entries = errata[paper]
        found[paper] = _dossier(paper, title, entries, chapters[paper].relative_to(root), root, published)
    return found


def _dossier(
    paper: str, title: str, errata: Sequence[tuple[str, str, str]], chapter: Path, root: Path, published: pd.DataFrame
) -> str:
    judged = ledger.judged(paper=paper.upper())
    page = f"../../{chapter.with_suffix('.html').as_posix()}"
    listed = "".join(f"- {{ref}}`{number} <{label}>` {_short(words, ERRATUM)}\n" for label, number, words in errata)
    parts = {
        "Scope": _scope(judged),
        "Setting": _setting(paper),
        "What was found, in training and on the clock": _claims(judged, ("run", "system"), page),
        "What was found, in theory": _claims(judged, ("theory",), page),
        "Errata": listed or "None.\n",
        "Easy and difficult": _easy_and_difficult(root / chapter),
        "Cost and provenance": _cost(paper, published),
    }
    link = f'<a href="{paper}.pdf">this dossier as PDF</a>; ' if browser() else ""
    text = f'# Dossier: {title}\n\n<p class="dossier">{link}<a href="{page}">the chapter that it sums up</a></p>\n\n'
    text += f"{sentence(judged, title)}\n\n"
    return text + "\n".join(f"## {head}\n\n{body}" for head, body in parts.items())


def _scope(judged: Sequence[Judgement]) -> str:
    rows = []
    for kind, words in WORDS.items():
        own = [j for j in judged if j.claim.kind == kind and (j.counted or kind == "definition")]
        labels = [f"{n} {label}" for label in LOOKS if (n := sum(j.label == label for j in own))]
        rows.append((words, f"{len(own)}", ", ".join(labels) or "–"))
    apart = sum(not j.counted and j.claim.kind != "definition" for j in judged)
    runs = [j for j in judged if j.effects]
    data = sorted({f"{j.dataset} ({j.data_kind})" for j in runs})
    seeds = {j.seeds for j in runs if j.seeds} or {0}
    said = f"Data: {', '.join(data) or 'none'}; seeds of a claim: {min(seeds)} to {max(seeds)}; "
    budgets = [f"{sum(j.budget == name for j in runs)} at `{name}`" for name in PROFILES]
    table = page_table("How many claims have which label", ["claims about", "number", "labels"], rows)
    return f"{table}\n{said}{', '.join(budgets)}; {apart} listed apart.\n"


def _setting(paper: str) -> str:
    for artifact in artifacts().values():
        if artifact.id.startswith(f"{paper}-") and artifact.paper_setting is not None:
            frame = artifact.paper_setting(ledger.REDUCED, ledger.DATASET, None).fillna("–")
            frame.loc[frame["setting"] == "repetitions", frame.columns[-1]] = "as many seeds as claims have, above"
            return page_table(
                "What the paper trains, and what is trained here", [*frame.columns], frame.to_numpy().tolist()
            )
    return "–\n"


def _claims(judged: Sequence[Judgement], kinds: Sequence[str], page: str) -> str:
    own = [j for j in judged if j.claim.kind in kinds and j.counted]
    rows = []
    for judgement, row in zip(own, in_words(own).to_dict("records"), strict=True):
        number = judgement.claim.id.partition("-")[2]
        link = f'<a href="{page}#{anchor(judgement.claim.id)}">{number}</a>'
        label = f"{LOOKS[judgement.label][1]}&nbsp;{judgement.label}"
        rows.append((link, _short(row["statement"], STATEMENT), label, row["measured"], row["claimed"]))
    head, columns = ["claim", "the paper says", "label", "effect", "claimed"], 3 if kinds == ("theory",) else 5
    return page_table(
        f"{len(rows)} claims, each with what became of it", head[:columns], [row[:columns] for row in rows]
    )


def _easy_and_difficult(chapter: Path) -> str:
    cells = json.loads(chapter.read_text(encoding="utf-8"))["cells"]
    text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    found = re.findall(r"^\*\*What was (?:easy|difficult)\.\*\* .*?(?=\n\n|\Z)", text, re.MULTILINE | re.DOTALL)
    if len(found) != 2:
        raise BookError(f"{chapter.name} of {chapter.parent.name} does not say what was easy and what was difficult")
    return "\n\n".join(found) + "\n"


def _cost(paper: str, published: pd.DataFrame) -> str:
    rows = published[(published["paper"] == paper) & (published["data"] == "all")]
    columns = [column for column in rows.columns if column not in ("paper", "data")]
    cells = [[f"{value:g}" for value in row] for row in rows[columns].to_numpy()]
    table = page_table("Published records, how they are verified, and what they cost", columns, cells)
    return f"{table}\nCommit of this page: `{commit()}`.\n"


def _short(text: str, length: int) -> str:
    """Return the first sentence of a text, cut where it is long; what would be left open of code or formula goes."""
    first = re.split(r"(?<=[a-z)`$])(?<!Opt)\. (?=[A-Z*`$])", text)[0]
    if len(first) > length:
        first = textwrap.shorten(first, length, placeholder="")
        for mark in ("$", "`"):
            first = first if first.count(mark) % 2 == 0 else first[: first.rindex(mark)]
        first = first.rstrip(" ,;:({") + " …"
    return first


def browser() -> str | None:
    """Return the browser that prints, or None."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


def print_all(html: Path) -> None:
    """Write each dossier of the built book as PDF beside its page, if there is a browser."""
    for page in sorted((html / "book" / "dossiers").glob("*.html")) if browser() else ():
        target = page.with_suffix(".pdf")
        with TemporaryDirectory() as profile:
            flags = "headless", "no-sandbox", "disable-gpu", "no-pdf-header-footer", "virtual-time-budget=20000"
            own = f"user-data-dir={profile}", f"print-to-pdf={target}"
            command = [str(browser()), *(f"--{flag}" for flag in (*flags, *own)), page.as_uri()]
            done = subprocess.run(command, capture_output=True, text=True, timeout=180)
        if not target.is_file():
            raise BookError(f"{target.name} was not printed: {done.stderr[-300:]}")
