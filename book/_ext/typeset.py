"""Set what programs print as a book sets it: minus signs, powers of ten, indices and exponents of single letters."""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

PARTS = re.compile(
    r"(<(?P<tag>code|pre|script|style|svg|button|select)\b.*?</(?P=tag)>"
    r'|<(?P<box>span|div) class="[^"]*\bmath\b.*?</(?P=box)>|<[^>]+>)',
    re.DOTALL,
)
INDEX = r"(?:[_^](?:\{[^{}]*\}|\([^()]*\)|[A-Za-z0-9Α-Ωα-ω]+))+"
LETTER = re.compile(rf"(?<![\w.&\\])(sim|[A-Za-zΑ-Ωα-ω][\u0302\u0304]?)({INDEX})")
MARK = re.compile(r"([_^])(\{[^{}]*\}|\([^()]*\)|[^_^]+)")
RULES = [
    (re.compile(r"(?<![\w.)\]}-])-(?=[\d.∞])|(?<=\S )-(?= \S)"), "−"),
    (re.compile(r"\b0e[+-]\d+\b"), "0"),
    (re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)e([+-])0*(\d+)\b"), lambda m: _power(*m.groups())),
    (re.compile(r"\b(Delta|tau|sum)(?=-bar_|_[a-z]\b)"), lambda m: {"Delta": "Δ", "tau": "τ", "sum": "Σ"}[m[1]]),
    (re.compile(r"(?<=\b[a-zτ])-(bar|hat)(?![a-z])"), lambda m: "\u0304" if m[1] == "bar" else "\u0302"),
    (LETTER, lambda m: m[1] + MARK.sub(_raised, m[2])),
    (re.compile(r"(?<=\d) ?%(?!\w)"), "\u00a0%"),
    (re.compile(r"(?<=[\s(\[−–])\.(?=\d)"), "0."),
    (re.compile(r"^\s*inf\s*$"), "∞"),
]


def _power(digits: str, sign: str, exponent: str) -> str:
    ten = f"10<sup>{'−' * (sign == '-')}{exponent}</sup>"
    return ten if float(digits) == 1 else f"{digits}·{ten}"


def _raised(found: re.Match[str]) -> str:
    name, said = "sub" if found[1] == "_" else "sup", found[2]
    if said[0] == "{" or (said[0] == "(" and len(said) > 3):  # y^(d) is the model of server d and keeps its brackets
        said = said[1:-1]
    return f"<{name}>{said}</{name}>"


def typeset(app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any) -> None:
    """Do it with all text of a page that is no code and no formula."""
    if doctree is not None and "/api/" not in pagename:
        pieces, rest = list[str](), 0
        for found in [*PARTS.finditer(context["body"]), None]:
            text = context["body"][rest : found.start() if found else None]
            for rule, how in RULES if text.strip() else ():
                text = rule.sub(how, text)
            pieces += [text, found[0] if found else ""]
            rest = found.end() if found else 0
        context["body"] = "".join(pieces)


def setup(app: Sphinx) -> dict[str, Any]:
    """Do it once the page is written, and before its tables get their numbers."""
    app.connect("html-page-context", typeset, priority=700)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
