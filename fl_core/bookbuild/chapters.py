"""Which notebooks there are, and which parameters each of them has."""

from __future__ import annotations

import ast
import hashlib
import importlib
import io
import json
import re
import tokenize
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import fl_core
from fl_core.errors import FlCoreError, nearest

ROOT = Path(fl_core.__path__[0]).resolve().parent


class BookError(FlCoreError, ValueError):
    """A notebook or the book cannot be made; the message is one line that says why."""


@dataclass(frozen=True)
class Parameter:
    """One assignment of a notebook's ``parameters`` cell."""

    name: str
    default: Any  # the value, or the source text when that is not a literal
    literal: bool
    help: str  # the comment behind the assignment


def tool(name: str) -> ModuleType:
    """Import a module of the extra ``book``, or say how to get it."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as missing:
        raise BookError(
            f"{missing.name} is not installed; `make book` or `pip install -e '.[book]'` brings it"
        ) from missing


def chapters(root: Path = ROOT) -> list[str]:
    """Return the notebooks named in ``book/_toc.yml``, in reading order, as paths relative to `root`."""
    return [name for name in _listed(root) if name.endswith(".ipynb")]


def written_pages(root: Path = ROOT) -> list[str]:
    """Return the Markdown pages beside the notebooks that ``book/_toc.yml`` names, as paths relative to `root`."""
    return [name for name in _listed(root) if name.endswith(".md")]


def _listed(root: Path) -> list[str]:
    toc = root / "book" / "_toc.yml"
    if not toc.is_file():
        raise BookError(f"{toc} does not exist: the book is built from a checkout, installed with `pip install -e`")
    named = re.findall(r"^[\s-]*(?:file|root): (notebooks/\S+)$", toc.read_text(encoding="utf-8"), re.MULTILINE)
    found = [f"{name}.md" if (root / f"{name}.md").is_file() else f"{name}.ipynb" for name in named]
    for name in found:
        if not (root / name).is_file():
            raise BookError(f"book/_toc.yml names {name}, which does not exist")
    return found


def committed(root: Path = ROOT) -> dict[Path, str]:
    """Return every notebook of the repository, and what it is called."""
    found = (p for p in sorted((root / "notebooks").rglob("*.ipynb")) if ".ipynb_checkpoints" not in p.parts)
    return {path: chapter_name(path.relative_to(root).as_posix()) for path in found}


def chapter_name(path: str) -> str:
    """Return what ``notebooks/…/x.ipynb`` is called on the command line: ``x``, or ``paper/x``."""
    _, *folders, file = path.removesuffix(".ipynb").split("/")
    return "/".join([*folders[1:], file])


def matching(name: str, root: Path = ROOT) -> list[Path]:
    """Return the notebooks that may be meant by `name`: with or without folders and ``.ipynb``, ``paper_chapter``."""
    wanted = name.removesuffix(".ipynb").removeprefix("notebooks/")
    home = root / "notebooks"
    return [
        path
        for path, short in committed(root).items()
        if wanted in (short, short.replace("/", "_"), path.stem, path.relative_to(home).with_suffix("").as_posix())
    ]


def find_notebook(name: str, root: Path = ROOT) -> Path:
    """Return the notebook called `name`: its file name with or without folders and ``.ipynb``, or a path."""
    given = Path(name)
    if given.suffix == ".ipynb" and given.is_file():
        return given.resolve()
    matches = matching(name, root)
    if len(matches) == 1:
        return matches[0]
    home = root / "notebooks"
    wanted = name.removesuffix(".ipynb").removeprefix("notebooks/")
    choices = sorted(p.relative_to(home).with_suffix("").as_posix() for p in matches) or sorted(
        committed(root).values()
    )
    what = "ambiguous" if matches else "unknown"
    raise BookError(f"{what} notebook {name!r}{nearest(wanted, choices)} (valid: {', '.join(choices) or 'none'})")


def parameters_of(notebook: Path) -> dict[str, Parameter]:
    """Return the parameters of a notebook by name, empty when it has no ``parameters`` cell.

    Read with Python's own parser: papermill's overlooks values that contain ``=``.
    """
    try:
        cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
        source = next(("".join(c["source"]) for c in cells if "parameters" in c["metadata"].get("tags", [])), "")
        body = ast.parse(source).body
    except (ValueError, KeyError, TypeError, SyntaxError) as error:
        raise BookError(f"the parameters of {notebook.name} cannot be read: {error}") from None
    lines = io.StringIO(source).readline
    comments = {t.start[0]: t.string for t in tokenize.generate_tokens(lines) if t.type == tokenize.COMMENT}
    found = {}
    for node in body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        value = getattr(node, "value", None)
        if isinstance(target, ast.Name) and value is not None:
            default, literal = _literal(ast.unparse(value))
            note = comments.get(node.end_lineno or 0, "").lstrip("# ").strip()
            found[target.id] = Parameter(target.id, default, literal, note)
    return found


def parse_assignments(pairs: Iterable[str]) -> dict[str, Any]:
    """Read ``["PROFILE=laptop", "SEEDS=[0, 1]"]``: a Python literal where it is one, else a string."""
    values: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name.strip():
            raise BookError(f"{pair!r} is no parameter; write NAME=VALUE, for example PROFILE=laptop")
        if name.strip().upper() in map(str.upper, values):
            raise BookError(f"parameter {name.strip()!r} is given twice")
        values[name.strip()] = _literal(text.strip())[0]
    return values


def file_name(name: str, values: Mapping[str, Any]) -> str:
    """Return what a file made with these parameters is called, so that others go to other files.

    The end is a digest, as names are cut and cleaned.
    """
    if not values:
        return name
    text = json.dumps({key.lower(): value for key, value in values.items()}, sort_keys=True, default=repr)
    shown = re.sub(r"[^\w.]+", "-", text).strip("-")
    return f"{name}_{shown[:60].strip('-')}_{hashlib.sha256(text.encode()).hexdigest()[:6]}"


def check_parameters(notebook: Path, given: Mapping[str, Any]) -> None:
    """Check names and kinds of `given` against the notebook's ``parameters`` cell."""
    valid = parameters_of(notebook)
    for name, value in given.items():
        if name not in valid:
            names = ", ".join(valid) or f"none, {notebook.name} has no parameters"
            raise BookError(f"unknown parameter {name!r}{nearest(name, valid)} (valid: {names})")
        default = valid[name].default
        if not valid[name].literal or default is None or value is None or isinstance(value, type(default)):
            continue
        if isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
            continue
        if isinstance(default, list | tuple) and isinstance(value, list | tuple):
            continue
        kind = type(default).__name__
        raise BookError(f"parameter {name} takes a value like {default!r} ({kind}), got {value!r}")


def _literal(text: str) -> tuple[Any, bool]:
    """Return the value of a Python literal and True, or the text itself and False."""
    try:
        return ast.literal_eval(text), True
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return text, False
