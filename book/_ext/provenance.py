"""The foot of every page: what its results rest on and what made it; and what a link to it shows elsewhere.

What a claim's row names, figure, runs and the code that judges, becomes a link to each.
"""

from __future__ import annotations

import json
import re
from html import escape
from pathlib import Path
from typing import Any

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer
from sphinx.addnodes import nodes
from sphinx.application import Sphinx

from fl_core.bookbuild.chapters import ROOT

FOOT = (
    '<p class="provenance">{said}. <a href="{build}">This build</a> \u00b7 <a href="{records}">records</a> \u00b7 '
    '<a href="{build}#how-to-cite">how to cite</a> \u00b7 MIT licence</p>'
)
MOST = 200
"""Characters of a description."""


def tell(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Write both into the page: a paper's own records where it is about one, else those of all."""
    file = Path(app.srcdir, "book", "generated", "provenance.json")
    if file.is_file() and "book/build" in app.env.found_docs:
        known, links = json.loads(file.read_text(encoding="utf-8")), context["pathto"]
        said = next((known[part] for part in pagename.split("/") if part in known), known["all"])
        context["theme_extra_footer"] = FOOT.format(
            said=said, build=links("book/build").removesuffix("#"), records=links("book/records")
        )
    if doctree is not None:
        plain = (p for p in doctree.findall(nodes.paragraph) if "companions" not in p["classes"])
        words = " ".join(next(plain, nodes.Text("")).astext().split())
        short = escape(words if len(words) <= MOST else re.sub(r"\s\S*$", " \u2026", words[:MOST]))
        title = escape(re.sub("<.*?>", "", str(context.get("title", ""))))
        tags = f'<meta name="description" content="{short}"><meta name="twitter:card" content="summary">'
        graph = {"type": "article", "title": title, "description": short, "site_name": escape(app.config.project)}
        tags += "".join(f'<meta property="og:{key}" content="{value}">' for key, value in graph.items())
        context["metatags"] = context.get("metatags", "") + tags


def lead(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Make links of what the rows of claims rest on."""
    body = context.get("body", "")
    if '<tr id="claim-' not in body:
        return
    named: set[str] = set()
    places = set(re.findall(r'\bid="([^"]+)"', body))

    def figure(found: re.Match[str]) -> str:
        paper, _, own = found[0].partition("-")
        several = f"sec-{paper}-rep-beyond" if own.startswith("x") else f"sec-{paper}-rep-figures"
        where = [f"fig-{found[0]}", f"fig-{paper}-rep-{own}", several, several.replace("-rep", ""), several[:-1]]
        return next((f'<a href="#{place}">{found[0]}</a>' for place in where if place in places), found[0])

    def code(found: re.Match[str]) -> str:
        parts = found[1].split(".")
        kept = next(
            path for top in ("notebooks", ".") if (path := ROOT.joinpath(top, *parts).with_suffix(".py")).is_file()
        )
        page = Path("_modules", *parts).with_suffix(".html")
        if not (made := Path(app.outdir, page)).exists():  # one for all rows that name it
            _write_code(made, kept.read_text(encoding="utf-8"), found[1])
        up = "../" * pagename.count("/")
        return f'<a href="{up}{page.as_posix()}#line-{found[3]}" title="{found[1]}:{found[2]}">judge</a>'

    def row(found: re.Match[str]) -> str:
        head, _, cell = found[0].rpartition("<td")
        name = head.partition(">")[0]
        head = head.replace(name, "<tr", 1) if name in named else head  # another table of the same claim
        named.add(name)
        figures, _, rest = cell.partition("; ")
        names, runs, judge = re.sub(r"\b[a-z]+-[a-z0-9]+\b", figure, figures), *rest.split("; ", 1)
        runs = f'<a href="#the-runs">{runs}</a>' if "the-runs" in places and runs[0].isdigit() else runs
        return f"{head}<td{names}; {runs}; " + re.sub(r"([\w.]+):([\w.&;]+), line (\d+)", code, judge)

    context["body"] = re.sub(r'<tr id="claim-.*?</tr>', row, body, flags=re.DOTALL)


def _write_code(page: Path, text: str, title: str) -> None:
    page.parent.mkdir(parents=True, exist_ok=True)
    form: Any = HtmlFormatter(full=True, title=title, linenos="inline", lineanchors="line", style="friendly")
    page.write_text(highlight(text, PythonLexer(), form), encoding="utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect both to each page."""
    app.connect("html-page-context", tell)
    app.connect("html-page-context", lead)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
