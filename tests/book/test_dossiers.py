"""Dossiers: nothing in them is typed, and they print on few pages."""

from __future__ import annotations

import re

import pytest

from fl_core.bookbuild import dossiers
from fl_core.bookbuild.chapters import ROOT, BookError
from fl_core.bookbuild.pages import listed_errata
from fl_core.experiments import ledger
from fl_core.experiments.store import default_store
from fl_core.experiments.verify import published_records
from fl_core.report.tables import anchor


def test_a_long_text_is_cut_to_its_first_sentence_with_no_code_or_formula_left_open():
    assert dossiers._short("One. Two.", 90) == "One"
    text = "A formula $a + b$ and a name `fl_core.formulas.fedasync.alpha_t` and so on for long"
    for length in range(12, len(text)):
        short = dossiers._short(text, length)
        assert short.count("$") % 2 == short.count("`") % 2 == 0
        assert len(short) <= length + 2


def test_a_chapter_that_does_not_say_what_was_easy_is_refused(tmp_path):
    path = tmp_path / "replication.ipynb"
    path.write_text('{"cells": [{"cell_type": "markdown", "source": ["**What was easy.** All."]}]}')
    with pytest.raises(BookError, match="what was difficult"):
        dossiers._easy_and_difficult(path)


@pytest.mark.thorough
def test_a_dossier_has_the_ledger_the_errata_and_the_cost():
    published, errata = published_records(default_store()), listed_errata(ROOT)
    made = dossiers.made(ROOT, errata, published)
    assert made.keys() == errata.keys()
    for paper, text in made.items():
        for judgement in (each for each in ledger.judged(paper=paper.upper()) if each.counted):
            row = next(line for line in text.splitlines() if f'#{anchor(judgement.claim.id)}"' in line)
            assert judgement.label in row
        assert "seeds as claims have" in text  # those of the profile are fewer
        assert all(f"<{label}>" in text for label, *_ in errata[paper][1])
        [records] = published[(published["paper"] == paper) & (published["data"] == "all")]["records"]
        assert re.search(rf"^\| {records} \|", text, re.MULTILINE)


@pytest.mark.thorough
def test_it_prints_on_few_pages(html):
    if dossiers.browser() is None:
        pytest.skip("needs a browser")
    for page in (html / "book/dossiers").glob("*.html"):
        pages = len(re.findall(rb"/Type /Page\b", page.with_suffix(".pdf").read_bytes()))
        assert 2 <= pages <= 4, f"{page.stem}: {pages} pages"
