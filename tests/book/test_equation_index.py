"""Every equation that a paper or this book numbers has a function, a test, and a place that exists."""

from __future__ import annotations

import ast
import re

import pytest

from fl_core.bookbuild import equations
from fl_core.bookbuild.chapters import ROOT
from fl_core.bookbuild.equations import PREFIXED, Equation, citations, index, markdown
from fl_core.bookbuild.pages import errata, listed_errata
from fl_core.plugins import papers


@pytest.fixture(scope="module")
def found() -> dict[str, list[Equation]]:
    return index(ROOT)


def test_every_paper_and_the_baselines_list_their_equations_once(found):
    assert set(found) == {*papers().values(), "book"}
    for rows in found.values():
        assert len({row.number for row in rows}) == len(rows) > 0


def test_every_equation_has_a_function_that_a_test_uses_or_a_word_why_not(found):
    rows = [(paper, row) for paper, listed in found.items() for row in listed]
    missing = [(paper, row.number) for paper, row in rows if not (row.no_function or (row.functions and row.tests))]
    assert missing == []


def test_places_are_in_the_derivation(found):
    for paper, rows in found.items():
        pages = [path.read_text(encoding="utf-8") for path in ROOT.glob(f"notebooks/*/{paper}/derivation.ipynb")]
        for place in {row.place for row in rows} - {""}:
            assert re.search(rf"\({place}\)|:label: {place}\b", pages[0]), (paper, place)


def test_no_docstring_cites_an_equation_with_a_prefix_that_no_list_has(found):
    listed = {row.number for rows in found.values() for row in rows}
    prefixes = {number.partition("-")[0] for number in listed if PREFIXED.fullmatch(number)}
    stems = {re.sub(r"[a-d]$", "", number) for number in listed if re.search(r"\d[a-d]$", number)}
    for path in [*ROOT.glob("fl_core/**/*.py"), *ROOT.glob("notebooks/*/*/*.py")]:
        docs = [node.value for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
                if isinstance(node, ast.Constant) and isinstance(node.value, str)]  # fmt: skip
        cited = {number for doc in docs for number in PREFIXED.findall(doc) if number.partition("-")[0] in prefixes}
        assert cited - listed - stems == set(), path


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("Return phi, Eq. 14: half of (L-e), BL-4.2.", {"fedluck 14", "L-e", "BL-4.2"}),
        ("Eqs. 5 to 7 and W-c, Theorems 1 and 2 (12, 13)", {"W-c", "fedluck Theorem 1", "fedluck Theorem 2"}
         | {f"fedluck {n}" for n in (5, 6, 7, 12, 13)}),
        ("the step of SD-FEEL's Eq. 6", {"sdfeel 6"}),
        ("s(0) = 1, 2^(3), tau = (2.5), (0.5) and A5", set()),
    ],
)  # fmt: skip
def test_citations_are_read_as_the_code_writes_them(text, numbers):
    assert set(citations(text, "fedluck", {"fedluck", "sdfeel"})) == numbers


def test_the_page_has_a_row_for_each_equation(found, monkeypatch):
    monkeypatch.setattr(equations, "index", lambda root: found)  # which reads all tests
    rows = [line.split(" | ")[0] for line in markdown(ROOT).splitlines() if line.startswith("| ")]
    for number in (row.number for listed in found.values() for row in listed):
        assert f"| {number}" in rows


def test_the_page_of_errata_has_every_erratum_of_every_paper_whole():
    page = errata(listed_errata(ROOT))
    for readings in ROOT.glob("notebooks/fl_papers/*/readings.md"):
        text = readings.read_text()
        labels = re.findall(r"^\((\w+-e-?\d+)\)=$", text, re.MULTILINE)
        assert len(labels) > 15
        assert [label for label in labels if f"<{label}>`" not in page] == []
        section = re.split(r"^#+ ", text.partition("## Errata")[2], flags=re.MULTILINE)[0]
        listed = re.split(r"^\(\S+\)=$", section, flags=re.MULTILINE)[1:]
        assert [word for entry in listed for word in entry.split()[1:] if word not in page] == []
