"""Equations use only what the pages carry: for other commands MathJax would wait for ever without a network."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[2]
LOADED_ON_DEMAND = re.compile(
    r"\\(?:bbox|boldsymbol|bra|ket|braket|set|Set|bcancel|cancel|xcancel|cancelto|ce|pu|colorbox|fcolorbox|textcolor|color"
    r"|definecolor|enclose|href|class|style|cssId|unicode|verb|mathtip|texttip|toggle|mathclap|coloneqq|upalpha)\b"
)
"""Commands of the extensions that MathJax loads at their first use."""


def prose() -> dict[str, str]:
    found = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "book").glob("*.md")}
    for path in (ROOT / "notebooks").rglob("*.ipynb"):
        cells = nbformat.read(path, as_version=4).cells
        found[path.name] = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    return found


@pytest.mark.parametrize(("name", "text"), prose().items(), ids=list(prose()))
def test_no_equation_needs_an_extension_that_is_not_there(name: str, text: str):
    assert LOADED_ON_DEMAND.findall(text) == []
