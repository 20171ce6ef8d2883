"""Glossary terms say what they mean when a reader points at them: the definition's first sentence as a title."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes

GLOSSARY = "book/glossary"


def explain(app: Any, tree: nodes.document, name: str) -> None:
    """Give each link to a term its definition."""
    if GLOSSARY not in app.env.found_docs:
        return
    links = [node for node in tree.findall(nodes.reference) if "#term-" in str(node.get("refuri", ""))]
    if links and not hasattr(app.env, "explained_terms"):
        found = {}
        for item in app.env.get_doctree(GLOSSARY).findall(nodes.definition_list_item):
            said = " ".join(next(iter(item.findall(nodes.definition))).astext().split())
            for term in item.findall(nodes.term):
                found |= dict.fromkeys(term["ids"], re.split(r"(?<=\w)[.;:] ", said)[0])
        app.env.explained_terms = found
    for node in links:
        node["reftitle"] = app.env.explained_terms.get(node["refuri"].partition("#")[2], "")


def setup(app: Any) -> dict[str, bool]:
    """Register it."""
    app.connect("doctree-resolved", explain)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
