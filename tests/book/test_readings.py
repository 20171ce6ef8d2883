"""Every reading, erratum and derivation that code or chapters cite is on the readings page of its paper."""

from __future__ import annotations

import ast
import json
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from fl_core.bookbuild.chapters import ROOT
from fl_core.experiments.claims import claims

PAGES = sorted((ROOT / "notebooks" / "fl_papers").glob("*/readings.md"))
ITEM = re.compile(r"^\(([a-z]+)-([aed])(-?)(\d+[a-z]?)\)=\n\*\*([AED]-?\d+[a-z]?)\*\* ", re.MULTILINE)
NOT_PROSE = re.compile(r"```.*?```|\$\$.*?\$\$|\$[^$]*\$|`[^`\n]*`", re.DOTALL)

paper_pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)


CITED_TOO = {"wkafl": ["fl_core/algorithms/kasync.py", "fl_core/algorithms/zenopp.py"]}
"""Files of the core that cite a paper's numbers without having its name."""
NOTHING_TO_JUDGE = {
    "fedasync": "11 to 17, 19",
    "fedasmu": "03, 10, 16, 20 to 22",
    "fedluck": "11, 17 to 19",
    "sdfeel": "03, 18 to 20",
    "wkafl": "3, 5 to 10, 25, 27, 28, 30 to 39",
}
"""Errata of letters and references, of an experiment's setting, of other papers' methods and of programs; advice."""


def numbers(text: str, before: str = "") -> set[int]:
    return {
        number
        for first, last in re.findall(rf"\b{before}(\d+)(?: to {before}(\d+))?", text)
        for number in range(int(first), int(last or first) + 1)
    }


def items(page: Path) -> list[str]:
    return [found[4] for found in ITEM.findall(page.read_text(encoding="utf-8"))]


def sources(paper: str) -> list[Path]:
    """Code, tests and chapters that cite the numbers of this paper."""
    own = [*ROOT.glob(f"notebooks/fl_papers/{paper}/*.*"), *ROOT.glob(f"tests/fl_papers/{paper}/*.py")]
    core = [*ROOT.glob(f"fl_core/*/{paper}*.py"), *ROOT.glob(f"tests/*/test_{paper}*.py")]
    core += [ROOT / name for name in CITED_TOO.get(paper, [])]
    return [path for path in own + core if path.suffix in (".py", ".ipynb", ".md")]


def prose(path: Path) -> Iterator[str]:
    """Docstrings, comments and what strings have in brackets; of a chapter, its text and the same of its code."""
    if path.suffix == ".md":
        yield NOT_PROSE.sub(" ", path.read_text(encoding="utf-8"))
    elif path.suffix == ".py":
        yield from code_prose(path.read_text(encoding="utf-8"))
    else:
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            text = "".join(cell["source"])
            yield from code_prose(text) if cell["cell_type"] == "code" else [NOT_PROSE.sub(" ", text)]


def code_prose(source: str) -> Iterator[str]:
    lines = iter(source.splitlines(keepends=True))
    tokens = tokenize.generate_tokens(lambda: next(lines, ""))
    comments = (token.string for token in tokens if token.type == tokenize.COMMENT)
    yield from (comment.partition("noqa")[0] for comment in comments)
    tree = ast.parse(source)
    spoken = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from [node.value] if id(node) in spoken else re.findall(r"\(([^()]*)\)", node.value)


def cited(paper: str, style: str) -> dict[str, set[str]]:
    """Cited numbers, and the files that do; `style` is the regular expression of this paper's numbers."""
    found: dict[str, set[str]] = {}
    for path in sources(paper):
        for text in prose(path):
            for number in re.findall(style, text):
                found.setdefault(number, set()).add(path.relative_to(ROOT).as_posix())
    return found


@paper_pages
def test_numbers_that_are_cited_are_on_the_page(page):
    known = items(page)
    forms = {re.sub(r"\d+[a-z]?$", "", number) for number in known}
    style = rf"(?<![\w-])(?:{'|'.join(sorted(forms))})\d+[a-z]?(?![\w-])"
    assert {number: files for number, files in cited(page.parent.name, style).items() if number not in known} == {}


@paper_pages
def test_every_number_has_one_place_that_pages_can_refer_to(page):
    text = page.read_text(encoding="utf-8")
    targets = [f"{letter.upper()}{dash}{digits}" for _, letter, dash, digits, _ in ITEM.findall(text)]
    assert targets == items(page)
    assert len(set(targets)) == len(targets) == len(re.findall(r"^\*\*[AED]-?\d", text, re.MULTILINE))
    assert {paper for paper, *_ in ITEM.findall(text)} == {page.parent.name}


@paper_pages
def test_the_page_follows_the_papers_replication_in_the_book(page):
    toc = yaml.safe_load((ROOT / "book" / "_toc.yml").read_text(encoding="utf-8"))
    files = [chapter["file"] for part in toc["parts"] for chapter in part["chapters"]]
    folder = page.parent.relative_to(ROOT).as_posix()
    assert files.index(f"{folder}/readings") == files.index(f"{folder}/replication") + 1


@paper_pages
def test_every_erratum_of_a_statement_has_its_row_in_the_ledger(page):
    """Eq. 5, Lemmas 2 and 3 and Theorem 1 of SD-FEEL are refuted by the derivation and had none."""
    paper = page.parent.name
    own = [f"{claim.id.partition('-')[2].rstrip('c')} {claim.source}" for claim in claims().values()
           if claim.paper == paper.upper()]  # fmt: skip
    known = numbers(" ".join(item for item in items(page) if item[0] == "E"), "E-?")
    assert known - numbers(" ".join(own), "E-?") == numbers(NOTHING_TO_JUDGE[paper])
