"""Make a page of the book out of an executed notebook: hide the machinery, say how to rerun it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from fl_core.bookbuild.chapters import BookError, Parameter, tool


def dress(nb: Any, name: str, parameters: Mapping[str, Parameter], given: Mapping[str, Any]) -> None:
    """Change an executed notebook in place so that it can be published.

    Parameters
    ----------
    nb
        The notebook node.
    name
        Its path in the repository, ``notebooks/…/x.ipynb``.
    parameters
        What its ``parameters`` cell offers.
    given
        The values it was executed with.

    Raises
    ------
    BookError
        It has no title.
    """
    nb.metadata.pop("papermill", None)
    for cell in nb.cells:
        cell.metadata.pop("papermill", None)
        cell.metadata.pop("execution", None)
        if "injected-parameters" in cell.metadata.get("tags", []):
            cell.metadata["tags"] = ["injected-parameters", "remove-cell"]
        if cell.get("outputs"):
            cell.outputs = _joined(cell.outputs)
    nb.cells = [part for cell in nb.cells for part in _only_the_figure(cell)]
    nb.cells.insert(_behind_title(nb, name), _cell(run_box(name, parameters, given)))


def run_box(name: str, parameters: Mapping[str, Parameter], given: Mapping[str, Any]) -> str:
    """Return the Markdown of the box "Run this page": exact commands, all parameters with defaults."""
    stem = name.rpartition("/")[2].removesuffix(".ipynb")
    values = {p.name: p.default for p in parameters.values() if p.literal}
    if "PROFILE" in values:
        values["PROFILE"] = "laptop"
    papermill = " \\\n    ".join([f"papermill {name} out.ipynb", *(_option(k, v) for k, v in values.items())])
    regenerate = f"fl-core regenerate {stem}" + (" -p PROFILE=laptop" if "PROFILE" in values else "")
    lines = [
        "````{admonition} Run this page",
        ":class: tip dropdown run-this-page",
        "",
        "In the repository, with its environment active (`. .venv/bin/activate`):",
        "",
        "```bash",
        papermill,
        "```",
        "",
        "The short form checks the names and leaves out what stays at its default:",
        "",
        "```bash",
        regenerate,
        "```",
    ]
    if parameters:
        made = ", ".join(f"`{k} = {v!r}`" for k, v in given.items())
        lines += ["", "| parameter | default | meaning |", "| --- | --- | --- |"]
        lines += [f"| `{p.name}` | `{_shown(p)}` | {_escape(p.help)} |" for p in parameters.values()]
        lines += ["", f"This page was made with {made}." if made else "This page was made with the defaults."]
    return "\n".join([*lines, "````", ""])


def _option(name: str, value: object) -> str:
    """Write one papermill option; containers go through YAML, which ``-p`` does not read."""
    if isinstance(value, list | tuple | dict | set):
        listed = sorted(value) if isinstance(value, set) else value
        text = tool("yaml").safe_dump(_plain(listed), default_flow_style=True, width=10_000).strip()
        return f"-y {shlex.quote(f'{name}: {text}')}"
    return f"-p {name} {shlex.quote(str(value))}"


def _plain(value: object) -> object:
    return [_plain(v) for v in value] if isinstance(value, list | tuple) else value


def _shown(parameter: Parameter) -> str:
    return _escape(repr(parameter.default) if parameter.literal else parameter.default)


def _escape(text: str) -> str:
    return text.replace("|", "\\|")


def _joined(outputs: list[Any]) -> list[Any]:
    """Join what a cell printed in several goes; a piece of nothing but blanks would be an empty block on the page."""
    found: list[Any] = []
    for out in outputs:
        before = found[-1] if found else None
        if before is not None and out.output_type == before.output_type == "stream" and out.name == before.name:
            before.text += out.text
        else:
            found.append(out)
    return [out for out in found if out.output_type != "stream" or out.text.strip()]


def _only_the_figure(cell: Any) -> list[Any]:
    """Move what a figure's cell shows besides its picture, such as a line on its data, below the figure.

    Otherwise each of its outputs would become a figure of the same name.
    """
    outputs = cell.get("outputs", [])
    pictures = [out for out in outputs if any(kind.startswith("image/") for kind in out.get("data", {}))]
    if not cell.metadata.get("mystnb", {}).get("figure") or len(pictures) != 1 or len(outputs) == 1:
        return [cell]
    rest = tool("nbformat").from_dict(cell)
    rest.id, rest.metadata = f"{cell.id}-rest", {"tags": ["remove-input"]}
    rest.outputs = [out for out in outputs if out is not pictures[0]]
    cell.outputs = pictures
    return [cell, rest]


def _cell(source: str) -> Any:
    nbformat = tool("nbformat")
    cell = nbformat.v4.new_markdown_cell(source)
    cell["id"] = "run-this-page"
    return cell


def _behind_title(nb: Any, name: str) -> int:
    for number, cell in enumerate(nb.cells):
        if cell.cell_type == "markdown" and any(line.startswith("# ") for line in cell.source.splitlines()):
            return number + 1
    raise BookError(f"{name} has no title: its first Markdown cell must begin with '# '")
