"""A deck of slides for each paper, cut from its lecture and its dossier as they were built: nothing is written here.

A deck is one file without requests, for screen (arrow keys) and paper (a slide a page). Its equations are typeset
when it is made, if a browser is at hand; else the book's own MathJax does it.
"""

from __future__ import annotations

import base64
import copy
import html
import mimetypes
import posixpath
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bs4 import BeautifulSoup, Tag
from sphinx.application import Sphinx

from fl_core.bookbuild.dossiers import browser

ROWS = 7
"""Rows of a table on one slide."""
LATER = 'type="later"'
"""Keeps a figure's script from running while equations are typeset."""
MATHJAX = '<script id="typeset" src="../../_static/mathjax/tex-mml-svg.js"></script>'
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}: slides</title><style>{style}</style></head>
<body class="mathjax_process"><main>{slides}</main>
<script>{script}</script>{mathjax}</body></html>
"""


def decks(app: Sphinx, exception: Exception | None) -> None:
    """Write a deck for each lecture that has a dossier."""
    if exception is not None or app.builder.format != "html":
        return
    out, static = Path(app.outdir), Path(__file__).parents[1] / "slides"
    for lecture in sorted(out.glob("notebooks/fl_papers/*/lecture.html")):
        dossier = out / "book" / "dossiers" / f"{lecture.parent.name}.html"
        if dossier.is_file():
            deck = out / "book" / "slides" / dossier.name
            deck.parent.mkdir(parents=True, exist_ok=True)
            found = [*_lecture(_article(lecture, out)), *_dossier(_article(dossier, out))]
            title = found[0].find("h1").get_text()
            style, script = ((static / f"slides.{kind}").read_text(encoding="utf-8") for kind in ("css", "js"))
            text = "\n".join(map(str, found)).replace("<script>", f"<script {LATER}>")
            said = {"title": html.escape(title.partition(":")[0]), "style": style, "script": script}
            deck.write_text(PAGE.format(slides=text, mathjax=MATHJAX, **said), encoding="utf-8")
            deck.write_text(_typeset(deck).replace(f"<script {LATER}>", "<script>"), encoding="utf-8")


def _typeset(deck: Path) -> str:
    """Return a page as it is once its equations are set."""
    if browser() is None:
        return deck.read_text(encoding="utf-8")
    with TemporaryDirectory() as profile:
        flags = "headless", "no-sandbox", "disable-gpu", "virtual-time-budget=20000", "dump-dom"
        command = [str(browser()), *(f"--{flag}" for flag in flags), f"--user-data-dir={profile}", deck.as_uri()]
        text = subprocess.run(command, capture_output=True, text=True, timeout=180, check=True).stdout
    return text.replace(MATHJAX, "") if "mjx-container" in text else deck.read_text(encoding="utf-8")


def _article(page: Path, out: Path) -> Tag:
    """Return what a page says, without its code; links lead from the deck's place, pictures are inside."""
    article = BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser").find("article")
    assert isinstance(article, Tag)
    unwanted = ".headerlink, .run-this-page, .companions, .cell_input, details.hide, .solution, .stream, .dossier"
    for part in article.select(unwanted):
        part.decompose()
    for part in article.select("[href], img[src]"):
        name = "href" if part.has_attr("href") else "src"
        place = posixpath.join(page.parent.relative_to(out).as_posix(), str(part[name]))
        if name == "src":
            picture = out / posixpath.normpath(place)
            kind = mimetypes.guess_type(picture.name)[0]
            part["src"] = f"data:{kind};base64,{base64.b64encode(picture.read_bytes()).decode()}"
        elif str(part["href"]).startswith("#"):
            part["href"] = posixpath.relpath(page.relative_to(out).as_posix(), "book/slides") + str(part["href"])
        elif "://" not in str(part["href"]):
            part["href"] = posixpath.relpath(posixpath.normpath(place), "book/slides")
    return article


def _lecture(article: Tag) -> Iterator[Tag]:
    """Yield the title; a slide for each figure, numbered equation and exercise; the rest of a section together."""
    first = article.find("section")
    assert isinstance(first, Tag)
    yield _slide(first.find("h1"), *first.find_all("p", recursive=False))
    for section in first.find_all("section", recursive=False):
        head, parts = section.find("h2"), []
        for part in section.find_all(True, recursive=False):
            alone = bool(part.find("figure")) or "exercise" in (part.get("class") or [])
            numbered = part.name == "p" and re.match(r"\d\. ", part.get_text())
            if (alone or numbered) and parts:
                yield _slide(head, *parts)
                parts = []
            if alone:
                yield _slide(head, part)
            elif part is not head and part.get_text(strip=True):
                parts.append(part)
        if parts:
            yield _slide(head, *parts)


def _dossier(article: Tag) -> Iterator[Tag]:
    """Yield what was found, the errata, and what it rests on; a long table or list goes over several slides."""
    for section in article.select("section[id^=what-was-found], section#errata, section#cost-and-provenance"):
        rows = section.select("tbody > tr, ul > li")
        for start in range(0, len(rows) or 1, ROWS):
            part = copy.copy(section)
            for place, row in enumerate(part.select("tbody > tr, ul > li")):
                if not start <= place < start + ROWS:
                    row.decompose()
            yield _slide(*part.find_all(True, recursive=False))


def _slide(head: Any, *parts: Tag) -> Tag:
    slide = BeautifulSoup("<section class='slide'></section>", "html.parser").section
    assert slide is not None
    for part in (head, *parts):
        slide.append(copy.copy(part))
    for number in slide.select("h1 .section-number, h2 .section-number"):
        number.decompose()
    for table in slide.select("table[id]"):  # one that goes over several slides would have its name on each
        del table["id"]
    return slide


def setup(app: Sphinx) -> dict[str, Any]:
    """Make them when the pages are there."""
    app.connect("build-finished", decks)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
