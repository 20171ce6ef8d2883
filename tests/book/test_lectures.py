"""A lecture is short: words, code cells, equations and exercises within limits; and chapters fit so many screens."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from fl_core.algorithms import ALGORITHMS
from fl_core.bookbuild.chapters import ROOT

LECTURES = sorted((ROOT / "notebooks/fl_papers").glob("*/lecture.ipynb"))
SCREEN, SCREENS, MOST_BYTES = 900, {"lecture": 8, "derivation": 35, "replication": 25}, 1_500_000
READY = "const done = arguments[0]; MathJax.startup.promise.then(() => setTimeout(done, 500))"


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


@pytest.mark.thorough
def test_no_chapter_of_a_paper_is_longer_than_its_kind_may_be(html, start_chrome):
    chrome = start_chrome(1280)
    chrome.set_script_timeout(240)
    try:
        for path in LECTURES:
            for kind, most in SCREENS.items():
                page = html / path.relative_to(ROOT).with_name(f"{kind}.html")
                assert page.stat().st_size <= MOST_BYTES, f"{path.parent.name} {kind}"
                chrome.get(page.as_uri())
                chrome.execute_async_script(READY)
                height = chrome.execute_script("return document.querySelector('article.bd-article').offsetHeight")
                assert height <= most * SCREEN, f"{path.parent.name} {kind}: {height / SCREEN:.1f} screens"
    finally:
        chrome.quit()
