"""A lecture is short: words, code cells, equations and exercises within limits."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from fl_core.algorithms import ALGORITHMS
from fl_core.bookbuild.chapters import ROOT

LECTURES = sorted((ROOT / "notebooks/fl_papers").glob("*/lecture.ipynb"))


@pytest.mark.parametrize("path", LECTURES, ids=lambda path: path.parent.name)
def test_a_lecture_is_short_and_has_its_parts(path: Path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    figures = [cell["metadata"]["mystnb"]["figure"] for cell in code if "mystnb" in cell["metadata"]]
    assert "parameters" in code[1]["metadata"]["tags"]
    assert 500 <= len(re.findall(r"[A-Za-z]{2,}", re.sub(r"\$\$?.*?\$\$?", "", text, flags=re.S))) <= 1400
    assert len(code) <= 16
    assert 3 <= len(re.findall(r"^\*\*\d\. ", text, re.M)) <= 5, "equations, each with its proof and its code"
    assert text.count("· proof:") == len(re.findall(r"^\*\*\d\. ", text, re.M))
    assert len(figures) == 2
    assert all(figure["caption"] for figure in figures)
    exercises = re.findall(r"^:label: (ex-\S+)$", text, re.M)
    assert 3 <= len(exercises) <= 4
    assert re.findall(r"\{solution-start\} (\S+)\n:class: dropdown", text) == exercises
    assert any("lesson(" in "".join(cell["source"]) for cell in code), "the verdict is computed"


def test_a_notebook_that_defines_algorithms_runs_them_sanitized():
    bases = "|".join({"Algorithm", *(cls.__name__ for cls in ALGORITHMS.values())})
    found = []
    for path in (ROOT / "notebooks").rglob("*.ipynb"):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
        if re.search(rf"^class \w+\(({bases})\):", code, re.M):
            found.append(path)
            assert re.search(r'run\(.*"debug"\)', code), path
    assert set(LECTURES) < set(found)
