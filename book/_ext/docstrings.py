"""Make the API reference readable, and keep the strict build strict where that means something.

Absolute values such as |x| are no substitutions. A reference to a name of ours that exists but has no entry
of its own (a type alias, a private class) is printed without a link; one that does not exist is an error.
"""

from __future__ import annotations

import ast
import inspect
import pydoc
import re
import typing
from typing import Any

from pydantic import BaseModel
from sphinx.application import Sphinx
from sphinx.ext import autodoc
from sphinx.util.nodes import make_refnode

LONGEST = 80
"""Letters of a constant's value that are shown; a longer one is the source's, and ran off the page."""

CODE_OR_BAR = re.compile(r"(``.+?``|`[^`]+`)|(?<!\\)\|")


def keep_bars(app: Sphinx, what: str, name: str, obj: object, options: Any, lines: list[str]) -> None:
    """Escape vertical bars outside code and outside tables."""
    lines[:] = [
        line if line.lstrip().startswith("|") else CODE_OR_BAR.sub(lambda m: m[1] or r"\|", line) for line in lines
    ]


def whole(app: Sphinx, what: str, name: str, obj: object, options: Any, lines: list[str]) -> None:
    """Give the first line of a value's docstring back what Napoleon took for its type: what stood before a colon."""
    typed = [line for line in lines if line.startswith(":type: ")]
    if what in ("attribute", "data", "property") and typed:
        lines[:] = [line for line in lines if line not in typed]
        first = next(place for place, line in enumerate(lines) if line)
        lines[first] = f"{typed[0].removeprefix(':type: ')}: {lines[first]}"


def no_alias(app: Sphinx, what: str, name: str, obj: object, options: Any, lines: list[str]) -> None:
    """Take away what Python says of a field of a named tuple that nobody has described."""
    if lines and lines[0].startswith("Alias for field number"):
        lines.clear()


def short_value(describe: Any) -> Any:
    """Return `describe`, which gives the text of a value, such that autodoc shows none where that is long."""

    def described(value: object, **how: Any) -> str:
        text: str = describe(value, **how)
        if len(text) > LONGEST:
            raise ValueError(f"a value of {len(text)} letters")
        return text

    return described


def existing_name(app: Sphinx, env: Any, node: Any, contnode: Any) -> Any:
    """Lead a name of ours to its entry under its package; accept one without an entry that can be imported."""
    target = str(node.get("reftarget", ""))
    if node.get("refdomain") != "py" or not target.startswith("fl_core."):
        return None
    for package in re.findall(r"^fl_core\.\w+(?=\.)", target):  # documented as fl_core.runtime.Server, say
        for start in (match.start() for match in re.finditer(r"\.", target)):
            entry = env.domains["py"].objects.get(package + target[start:])
            if entry is not None:
                return make_refnode(app.builder, node["refdoc"], entry.docname, entry.node_id, contnode)
    known = hasattr(typing, target.rpartition(".")[2]) or pydoc.locate(target) is not None
    return contnode if known else None


def list_names(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Put a table of its functions and classes below the docstring of a module."""
    if what == "module":
        own = [n for n, o in vars(obj).items() if n[0] != "_" and getattr(o, "__module__", None) == name]
        names = [n for n in own if inspect.isroutine(getattr(obj, n)) or inspect.isclass(getattr(obj, n))]
        names = [n for n in names if getattr(obj, n).__doc__]
        if names:
            lines += ["", ".. autosummary::", "   :nosignatures:", "", *(f"   {n}" for n in names), ""]


def short_signature(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, signature: str | None, returned: str | None
) -> tuple[str, str | None] | None:
    """Show the fields of a validated model with their defaults: types are in the docstring. Shorten others."""
    if not inspect.isclass(obj) or not issubclass(obj, BaseModel) or not obj.model_fields:
        return (_brief(signature), returned) if signature else None
    fields = [n if f.is_required() else f"{n}={_default(f)}" for n, f in obj.model_fields.items()]
    return f"(*, {', '.join(fields)})", None


def _brief(signature: str) -> str:
    """Put `...` for a default that is no Python, with which types cannot be read either, or longer than a line."""
    text = re.sub(r"<factory>|<function \S*<lambda>>", "...", signature)
    text = re.sub(r"<function (?:\w+\.)*(\w+)>", r"\1", text)
    try:
        [function] = ast.parse(f"def f{text}: ...").body
    except SyntaxError:
        return text
    assert isinstance(function, ast.FunctionDef)
    for value in (*function.args.defaults, *function.args.kw_defaults):
        if value and len(source := f"def f{text}: ..."[value.col_offset : value.end_col_offset]) > LONGEST:
            return _brief(text.replace(source, "..."))
    return text


def _default(field: Any) -> str:
    value = field.get_default(call_default_factory=not field.default_factory_takes_validated_data)
    return (
        repr(value) if isinstance(value, str | int | float | None | tuple | list) else f"{type(value).__name__}(...)"
    )


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect all of it to the build."""
    autodoc.object_description = short_value(autodoc.object_description)
    app.connect("autodoc-process-docstring", no_alias)
    app.connect("autodoc-process-docstring", whole, priority=600)  # after Napoleon
    app.connect("autodoc-process-docstring", keep_bars)
    app.connect("autodoc-process-docstring", list_names)
    app.connect("autodoc-process-signature", short_signature)
    app.connect("missing-reference", existing_name)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
