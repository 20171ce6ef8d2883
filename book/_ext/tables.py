"""Number the tables of a page, and give each a caption: its own, the line that it is folded under, or its heading."""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

PARTS = re.compile(
    r"<(?P<tag>h[1-6]|summary)\b[^>]*>(?P<text>.*?)</(?P=tag)>|(?P<fold></?(?:details|figure)\b)"
    r"|(?P<table><table\b[^>]*>)\s*(?:<caption>(?P<caption>.*?)</caption>)?",
    re.DOTALL,
)
NOISE = re.compile(
    r'<span class="(?:section|caption)-number">.*?</span>|<a class="headerlink".*?</a>|</?p>', re.DOTALL
)


def number(app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any) -> None:
    """Write the captions, numbered as figures are; the table that stands for a figure has that one's."""
    if doctree is None or "/api/" in pagename or "<table" not in context.get("body", ""):
        return
    chapter = "".join(f"{part}." for part in app.env.toc_secnumbers.get(pagename, {}).get("", ()))
    heading, folds, told = "", list[str](), list[str]()

    def part(found: re.Match[str]) -> str:
        nonlocal heading
        if found["fold"]:
            folds.append(found["fold"]) if found["fold"][1] != "/" else folds.pop()
        elif found["tag"] == "summary":
            folds[-1] = NOISE.sub("", found["text"])
        elif found["tag"]:
            heading = NOISE.sub("", found["text"])
        elif "<figure" not in folds:
            fold = next((text for text in reversed(folds) if text[0] != "<" and "<" not in text), "")
            said = NOISE.sub("", found["caption"] or "").strip() or fold or heading
            told.append(said)
            count = f'<span class="caption-number">Table {chapter}{len(told)} </span>'
            said = said if "caption-text" in said else f'<span class="caption-text">{said}</span>'
            return f'{found["table"]}<caption><span class="told">{count}{said}</span></caption>'
        return found[0]

    context["body"] = PARTS.sub(part, context["body"])


def setup(app: Sphinx) -> dict[str, Any]:
    """Do it when the page is otherwise done."""
    app.connect("html-page-context", number, priority=800)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
