"""Explain the glossary's terms where they are used, and lead from a paper's pages to what goes with them.

The first time that a chapter uses a term, it becomes a link to its entry; the words of all entries go into one
script, from which ``book.js`` shows them beside the link. The glossary is the only place where they are written.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from sphinx.addnodes import nodes
from sphinx.application import Sphinx

GLOSSARY = "book/glossary"
ORDINARY = {"arrival", "claim", "device", "history", "outcome", "owner", "run", "store", "trigger", "turn", "version"}
"""Terms that are ordinary words, too: explained only where a page says ``{term}``."""
MOST = 240
"""Characters of an explanation, in whole sentences; its first sentence may be longer."""
COMPANIONS = {
    "lecture": "{paper}/lecture", "derivation (audit)": "{paper}/derivation", "replication": "{paper}/replication",
    "readings": "{paper}/readings", "dossier": "book/dossiers/{name}", "slides": "book/slides/{name}",
}  # fmt: skip


def collect(app: Sphinx, env: Any) -> None:
    """Read terms and explanations from the glossary, and write them for the browser."""
    app.terms = {}
    if GLOSSARY not in env.found_docs or app.builder.format != "html":
        return
    said = {}
    for item in env.get_doctree(GLOSSARY).findall(nodes.definition_list_item):
        [term, *_] = item.findall(nodes.term)
        first = next(item.findall(nodes.paragraph)).deepcopy()
        for formula in list(first.findall(nodes.math)):
            formula.replace_self(nodes.Text(f"\\({formula.astext()}\\)"))
        sentences = re.split(r"(?<=[.)])\s+(?=[A-Z])", " ".join(first.astext().split()))
        while len(sentences) > 1 and len(" ".join(sentences)) > MOST:
            sentences.pop()
        app.terms[term.astext()], said[term["ids"][0]] = term["ids"][0], " ".join(sentences)
    target = Path(app.outdir, "_static", "glossary.js")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(f"const GLOSSARY = {json.dumps(said, indent=0, ensure_ascii=False)};\n", encoding="utf-8")


def link(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Make the first use of each term a link, and put the line of companions below the title."""
    if not docname.startswith("notebooks/") or docname == app.config.root_doc:
        return
    left = {term.lower(): anchor for term, anchor in app.terms.items() if term not in ORDINARY}
    words = "|".join(map(re.escape, sorted(left, key=len, reverse=True)))
    for text in list(doctree.findall(nodes.Text)) if left else ():
        inside = text.parent if isinstance(text.parent, nodes.paragraph) else text.parent.parent
        marked = isinstance(text.parent, nodes.paragraph | nodes.emphasis | nodes.strong)
        if not (marked and isinstance(inside, nodes.paragraph)):
            continue
        pieces: list[nodes.Node] = []
        rest = 0
        for match in re.finditer(rf"(?<![\w-])({words})(?=s?\b(?!-))", text, re.IGNORECASE):
            if anchor := left.pop(match[1].lower(), None):
                place = f"{app.builder.get_relative_uri(docname, GLOSSARY)}#{anchor}"
                found = nodes.reference("", "", nodes.Text(match[0]), internal=True, refuri=place, classes=["term"])
                pieces += [nodes.Text(text[rest : match.start()]), found]
                rest = match.end()
        if pieces:
            text.parent.replace(text, [*pieces, nodes.Text(text[rest:])])
    section = next(doctree.findall(nodes.section))
    section.insert(1, _companions(app, docname))


def _companions(app: Sphinx, docname: str) -> nodes.paragraph:
    paper = docname.rpartition("/")[0]
    name, places = paper.rpartition("/")[2], {}
    if f"{paper}/lecture" in app.env.found_docs:
        places = {words: where.format(paper=paper, name=name) for words, where in COMPANIONS.items()}
    places |= {"notation": "book/notation", "glossary": GLOSSARY}
    line = nodes.paragraph(classes=["companions"])
    for words, where in places.items():
        if where in app.env.found_docs or words == "slides":
            uri = app.builder.get_relative_uri(docname, where)
            link = nodes.reference("", "", nodes.Text(words), internal=True, refuri=uri)
            line += [nodes.Text(" · ")] if line.children else []
            line += nodes.strong("", words) if where == docname else link
    return line


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect both; the script is asked for on every page."""
    app.add_js_file("glossary.js")
    app.connect("env-check-consistency", collect)
    app.connect("doctree-resolved", link)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
