"""The pages of the book: executed notebooks, and a reference that is written by the code it describes.

A notebook becomes a page by hiding the machinery and saying how to rerun it. The reference has one page a package,
with what the package offers (``__all__``), or the public names of its modules where it offers nothing by itself.
"""

from __future__ import annotations

import ast
import csv
import hashlib
import importlib
import json
import math
import os
import platform
import re
import shlex
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import pandas as pd

from fl_core.bookbuild import dossiers, equations
from fl_core.bookbuild.chapters import BookError, Parameter, chapter_name, tool
from fl_core.bookbuild.dossiers import Errata
from fl_core.bookbuild.execute import joined
from fl_core.experiments.experiment import PROFILES
from fl_core.experiments.run import commit
from fl_core.experiments.store import Store, default_store
from fl_core.experiments.verify import VERIFIED, published_records
from fl_core.report.style import vectors
from fl_core.report.tables import caption, page_table

CHECKED = "Checked when this page was made: show code and result"
TITLE_ENDS = r"\. (?!\()"  # not after "et al."
MOST = 200_000
"""Characters of a picture that is part of its page; a larger one is kept as a file, mostly a photograph."""
SHOWN = ("torch", "numpy", "scipy", "pandas", "matplotlib", "papermill", "jupyter-book")


def dress(nb: Any, name: str, parameters: Mapping[str, Parameter], given: Mapping[str, Any]) -> None:
    """Change an executed notebook in place so that it can be published under its path in the repository."""
    nb.metadata.pop("papermill", None)
    folded = name.endswith(("/derivation.ipynb", "/replication.ipynb"))
    for cell in nb.cells:
        cell.metadata.pop("papermill", None)
        cell.metadata.pop("execution", None)
        if "injected-parameters" in cell.metadata.get("tags", []):
            cell.metadata["tags"] = ["injected-parameters", "remove-cell"]
        if cell.get("outputs"):  # a piece of nothing but blanks would be an empty block on the page
            cell.outputs = [out for out in joined(cell.outputs) if out.output_type != "stream" or out.text.strip()]
            _caption_tables(cell)
        if folded and cell.cell_type == "code":
            _fold(cell)
    nb.cells = [part for cell in nb.cells for part in _figures(cell, chapter_name(name))]
    markdown_cell = tool("nbformat").v4.new_markdown_cell
    title = _title(nb, name)
    said, see, contents = nb.cells[title].source.partition("You will see\n")
    if see and "front(" in nb.cells[title + 1].source:  # what was found comes before what there is to find
        nb.cells[title].source = said
        nb.cells.insert(title + 2, markdown_cell(see + contents, id="contents"))
    behind = (n for n, cell in enumerate(nb.cells) if n > title and cell.cell_type == "markdown")
    box = markdown_cell(run_box(name, parameters, given), id="run-this-page")
    nb.cells.insert(next(behind, title + 1), box)


def run_box(name: str, parameters: Mapping[str, Parameter], given: Mapping[str, Any]) -> str:
    """Return the Markdown of the box "Run this page": exact commands, all parameters with defaults."""
    values = {p.name: p.default for p in parameters.values() if p.literal}
    if "PROFILE" in values:
        values["PROFILE"] = "laptop"
    papermill = " \\\n    ".join([f"papermill {name} out.ipynb", *(_option(k, v) for k, v in values.items())])
    regenerate = f"fl-core regenerate {chapter_name(name)}" + (" -p PROFILE=laptop" if "PROFILE" in values else "")
    lines = [
        "````{admonition} Run this page",
        ":class: tip dropdown run-this-page",
        "",
        "In the repository, with its environment active (`. .venv/bin/activate`):",
        "",
        *_fenced("bash", papermill),
        "The short form checks the names and leaves out what stays at its default:",
        "",
        *_fenced("bash", regenerate),
    ]
    if parameters:
        made = ", ".join(f"`{k} = {v!r}`" for k, v in given.items()) or "the defaults"
        rows = [
            (f"`{p.name}`", f"`{repr(p.default) if p.literal else p.default}`", p.help) for p in parameters.values()
        ]
        lines += [page_table("Parameters", ["parameter", "default", "meaning"], rows)]
        lines += [f"This page was made with {made}."]
    return "\n".join([*lines, "````", ""])


def _fenced(kind: str, *lines: str) -> list[str]:
    """Return the lines of a block of code, or of another language than Markdown, and the empty one behind it."""
    return [f"```{kind}", *lines, "```", ""]


def _option(name: str, value: object) -> str:
    """Write one papermill option; containers go through YAML, which ``-p`` does not read."""
    if isinstance(value, list | tuple | dict):
        text = tool("yaml").safe_dump(_plain(value), default_flow_style=True, width=10_000).strip()
        return f"-y {shlex.quote(f'{name}: {text}')}"
    return f"-p {name} {shlex.quote(str(value))}"


def _plain(value: object) -> object:
    return [_plain(v) for v in value] if isinstance(value, list | tuple) else value


def _fold(cell: Any) -> None:
    """Show the code of a long page on a click, and with it what it only prints: the outcome of a check."""
    tags = cell.metadata.get("tags", [])
    if {"hide-cell", "remove-input", "remove-cell"} & {*tags}:
        return
    printed = cell.outputs and all(out.output_type == "stream" for out in cell.outputs)
    cell.metadata["tags"] = [*tags, "hide-cell" if printed else "hide-input"]
    if printed and "assert" in cell.source:
        cell.metadata["mystnb"] = {"code_prompt_show": CHECKED, **cell.metadata.get("mystnb", {})}


def _figures(cell: Any, page: str) -> list[Any]:
    """Give each picture of a cell a cell of its own, since all that a cell shows becomes figures of one name.

    A drawing becomes part of the page. Where the cell has no caption, what is said below a picture is its caption.
    """
    parts: list[list[Any]] = []
    for out in cell.get("outputs", []):
        if not parts or _picture(out) or _picture(parts[-1][-1]):
            parts.append([])
        parts[-1].append(out)
    made: list[Any] = []
    if not any(_picture(part[0]) for part in parts):
        if not any("text/html" in out.get("data", {}) for out in cell.get("outputs", [])):
            cell.metadata.get("mystnb", {}).pop("figure", None)  # there was nothing to draw
        return [cell]
    while parts:
        outputs, part = parts.pop(0), tool("nbformat").from_dict(cell)
        look = part.metadata.setdefault("mystnb", {})
        if made:
            hidden = ["hide-output"] * ("hide-cell" in cell.metadata.get("tags", []))
            part.id, part.metadata["tags"] = f"{cell.id}-{len(made)}", ["remove-input", *hidden]
        if not _picture(outputs[0]):
            look.pop("figure", None)
        elif "figure" not in look and parts and "text/markdown" in parts[0][0].get("data", {}):
            said = parts[0].pop(0).data["text/markdown"]
            look["figure"] = {"caption": said, "name": f"fig:{page}-{part.id}".replace("/", "-")}
            look["code_prompt_show"] = f"Show: {re.split(TITLE_ENDS, said)[0]}"
            parts = parts if parts[0] else parts[1:]
        svg = outputs[0].get("data", {}).get("image/svg+xml", "")
        said = look.get("image", {}).get("alt") or look.get("figure", {}).get("caption", page)
        if svg and len(drawn := vectors(svg, said)) <= MOST:
            outputs[0].data = {"text/html": drawn}
        part.outputs = outputs
        made.append(part)
    return made


def _caption_tables(cell: Any) -> None:
    """Give the tables that a cell shows the captions in its metadata, one each."""
    captions = iter(cell.metadata.get("mystnb", {}).pop("tables", ()))
    for shown in (out.data for out in cell.outputs if "text/html" in out.get("data", {})):
        shown["text/html"] = re.sub(
            r"<table\b[^>]*>", lambda table: table[0] + caption(next(captions, "")), shown["text/html"]
        )


def _picture(output: Any) -> bool:
    return any(kind.startswith("image/") for kind in output.get("data", {}))


def _title(nb: Any, name: str) -> int:
    for number, cell in enumerate(nb.cells):
        if cell.cell_type == "markdown" and any(line.startswith("# ") for line in cell.source.splitlines()):
            return number
    raise BookError(f"{name} has no title: its first Markdown cell must begin with '# '")


def write_reference(folder: Path, package: Path, profile: str, seconds: Mapping[str, float]) -> None:
    """Write into `folder` the pages ``api/<package>.md``, and what the pages on equations, commands, build have."""
    root, published = package.parent, published_records(default_store())
    listed = listed_errata(root)
    texts = {
        "generated/cli.md": cli(),
        "generated/build.md": build_record(profile, seconds) + citation(root),
        "generated/provenance.json": json.dumps(provenance(profile, published)),
        "generated/equations.md": equations.markdown(root),
        "generated/errata.md": errata(listed),
        "generated/records.md": records(published),
        "generated/promises.md": promises(root),
    }
    texts |= {f"api/{key}.md": text for key, text in api(package).items()}
    texts |= {f"dossiers/{key}.md": text for key, text in dossiers.made(root, listed, published).items()}
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def modules(package: Path) -> dict[str, list[str]]:
    """Return the public modules under the folder of a package, without the command line, by the room they are in."""
    rooms: dict[str, list[str]] = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        if parts[0] == "cli" or any(part.startswith("_") and part != "__init__" for part in parts):
            continue
        names = [part for part in parts if part != "__init__"]
        rooms.setdefault(names[0] if len(parts) > 1 else "", []).append(".".join([package.name, *names]))
    return rooms


def api(package: Path) -> dict[str, str]:
    """Return one page of Markdown for each room of a package: its own names, or those of its modules."""
    pages = {}
    for room, inside in modules(package).items():
        name = f"{package.name}.{room}".rstrip(".")
        offered = bool(room) and hasattr(importlib.import_module(name), "__all__")
        options = ["   :members:", "   :exclude-members: model_config"]
        options += [] if offered else ["   :ignore-module-all:"]
        text = [f"# {name}", ""]
        for module in [name] if offered else inside:
            text += [f"## {module}", ""] if module != name else []
            text += _fenced("{eval-rst}", f".. automodule:: {module}", *options)
        pages[room or package.name] = "\n".join(text)
    return pages


def cli() -> str:
    """Return the Markdown with the help text of ``fl-core`` and each of its commands."""
    from typer.main import get_command

    from fl_core.cli import app

    text = []
    for name, shown in _help(get_command(app), ["fl-core"], None):
        text += [f"## {name}", "", *_fenced("text", shown.rstrip())]
    return "\n".join(text)


def records(found: pd.DataFrame) -> str:
    """Return the Markdown table of published records: how many of them this code is known to give, without zeros."""
    found = found.loc[:, (found != 0).any()]
    align = [":---", ":---", *["---:"] * (len(found.columns) - 2)]
    return page_table(
        "Published records by paper, their standing and their cost", found.columns, found.to_numpy(), align
    )


def errata(listed: Errata) -> str:
    """Return the errata of all papers as Markdown: each with a link to where it is cited by."""
    text = []
    for title, entries in listed.values():
        text += [f"## {title}", "", f"{len(entries)} of them.", ""]
        text += [f"- {{ref}}`{number} <{label}>` {words}" for label, number, words in entries]
        text.append("")
    return "\n".join(text)


def listed_errata(root: Path) -> Errata:
    """Return the errata of the papers' readings."""
    found = {}
    for page in sorted(root.glob("notebooks/*/*/readings.md")):
        title, _, rest = page.read_text(encoding="utf-8").partition("# ")[2].partition("\n")
        listed = re.split(r"^## ", rest.partition("## Errata\n")[2], flags=re.MULTILINE)[0]
        entry = r"^\((\S+)\)=\n\*\*(\S+)\*\* (.*?)(?=^\(\S+\)=$|^#|\Z)"
        entries = re.findall(entry, listed, re.MULTILINE | re.DOTALL)
        said = [(label, number, " ".join(words.split())) for label, number, words in entries]
        found[page.parent.name] = title.partition(":")[0], said
    return found


def promises(root: Path) -> str:
    """Return ``book/promises.csv`` as Markdown: promises, tests that would fail without them, their figures."""
    rows = []
    for row in listed_promises(root):
        tests = "<br>".join(f"`{name.removeprefix('tests/')}`" for name in row["tests"].split())
        figures = (each.partition(" ") for each in row["figures"].split("; ") if each)
        shown = "<br>".join(f"{figure(root, place)} {words}" for place, _, words in figures)
        rows.append((row["promise"], tests, shown))
    return page_table("Each promise, its tests, and how often they try", ["promise", "tests", "figures"], rows)


def listed_promises(root: Path) -> list[dict[str, str]]:
    """Return the rows of ``book/promises.csv``; a test is ``file::function``, a figure ``file::NAME words``."""
    table = root / "book" / "promises.csv"
    return list(csv.DictReader(table.read_text(encoding="utf-8").splitlines())) if table.is_file() else []


def figure(root: Path, place: str) -> str:
    """Return a constant of a test's file, or how many rows a table there has."""
    path, name = place.split("::")
    given: dict[str, Any] = {}
    for node in ast.parse((root / path).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            given[ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)] = node.value
    if name not in given:
        raise LookupError(f"{path} has no {name}")
    return f"{given[name].value if isinstance(given[name], ast.Constant) else _rows(given[name], given):,}"


def _rows(table: Any, given: Mapping[str, Any]) -> int:
    """Return how many rows a display has, those counted that it takes from loops over others and from other names."""
    if isinstance(table, ast.Name):
        return _rows(given[table.id], given)
    if isinstance(table, ast.GeneratorExp):
        return math.prod(_rows(loop.iter, given) for loop in table.generators)
    rows = table.keys if isinstance(table, ast.Dict) else table.elts
    return sum(_rows(row.value, given) if isinstance(row, ast.Starred) else 1 for row in rows)


def build_record(profile: str, seconds: Mapping[str, float]) -> str:
    """Return the Markdown that says at which profile, with what and how long the pages were executed."""
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in SHOWN)
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores."
    python = f"Python {platform.python_version()}, {versions}."
    rows = [(name, f"{value:.1f}") for name, value in {**seconds, "**all**": sum(seconds.values())}.items()]
    table = page_table("Seconds that each notebook took", ["notebook", "seconds"], rows, ["---", "---:"])
    made = f"Version {metadata.version('fl_core')}, commit `{commit()}`, {datetime.now(UTC):%Y-%m-%d}."
    store = f"Published results: SHA-256 `{store_digest(default_store())}`."
    head = [f"Profile **{profile}**: {PROFILES[profile]}.", "", made, store, "", machine, python, ""]
    return "\n".join([*head, table])


def citation(root: Path) -> str:
    """Return the Markdown that says how to cite the book, from ``CITATION.cff``."""
    if not (root / "CITATION.cff").is_file():
        return ""
    given = tool("yaml").safe_load((root / "CITATION.cff").read_text(encoding="utf-8"))
    authors = " and ".join(f"{{{author['name']}}}" for author in given["authors"])
    entry = {"title": f"{{{given['title']}}}", "author": authors}
    entry |= {name: given[name] for name in ("version", "license")}
    said = ["", "## How to cite", "", f"{given['message']} Of this build, add the commit.", ""]
    fields = (f"  {key} = {{{value}}}," for key, value in entry.items())
    return "\n".join([*said, *_fenced("bibtex", "@software{fl_core,", *fields, "}")])


def store_digest(store: Store) -> str:
    """Return the SHA-256 of the published results, in the order of their files' names."""
    digest = hashlib.sha256()
    for path in sorted(store.published.glob("*")):
        digest.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def provenance(profile: str, published: pd.DataFrame) -> dict[str, str]:
    """Return what the foot of a page says of each paper and of all: records behind it, standing, and this build."""
    made = f"Page made at profile {profile} from commit {commit()}, {datetime.now(UTC):%Y-%m-%d}"
    store = f"store {store_digest(default_store())[:12]}"
    said = {}
    for paper, rows in published.groupby("paper"):
        records = rows.set_index("data")["records"]
        verified = rows[rows["data"] == "all"][list(VERIFIED)].to_numpy().sum()
        kept = (
            f"{records['all']} published records ({records['real']} of real data, {verified} verified by this code)"
        )
        said[str(paper)] = f"{kept}; {store}. {made}"
    return said


def _help(command: Any, path: list[str], parent: Any) -> Iterator[tuple[str, str]]:
    command.rich_markup_mode = None  # plain text: boxes do not fit a phone
    settings = {**command.context_settings, "terminal_width": 78}
    context = command.context_class(command, info_name=path[-1], parent=parent, **settings)
    yield " ".join(path), command.get_help(context)
    for name, sub in getattr(command, "commands", {}).items():
        if not sub.hidden:
            yield from _help(sub, [*path, name], context)
