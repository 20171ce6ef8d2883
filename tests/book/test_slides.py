"""Slides: cut from lecture and dossier, one file each, moved by keys; each slide fits its frame."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from bs4 import BeautifulSoup

from fl_core.bookbuild.chapters import ROOT
from fl_core.bookbuild.dossiers import browser

PAPERS = sorted(path.parent.name for path in (ROOT / "notebooks/fl_papers").glob("*/lecture.ipynb"))

SHOWN = "const now = document.querySelector('.now'); return [now.scrollHeight - now.clientHeight, now.innerText]"


def deck(html: Path, paper: str) -> Path:
    return html / "book/slides" / f"{paper}.html"


@pytest.mark.parametrize("paper", PAPERS)
def test_a_deck_says_what_lecture_and_dossier_say_and_needs_no_other_file(html: Path, paper: str):
    made = BeautifulSoup(deck(html, paper).read_text(encoding="utf-8"), "html.parser")
    lecture = BeautifulSoup((html / f"notebooks/fl_papers/{paper}/lecture.html").read_text("utf-8"), "html.parser")
    dossier = BeautifulSoup((html / f"book/dossiers/{paper}.html").read_text("utf-8"), "html.parser")
    slides = [slide.get_text() for slide in made.select(".slide")]
    numbered = [p.get_text()[:25] for p in lecture.select("article p") if re.match(r"\d\. ", p.get_text())]
    assert all(any(start in slide for slide in slides) for start in numbered)
    assert len(made.select("figure")) == len(lecture.select("article figure"))
    assert len(made.select("tbody > tr")) >= len(dossier.select("section[id^=what-was-found] tbody > tr"))
    assert not made.select(".cell_input, link, iframe")
    assert all(str(image["src"]).startswith("data:") for image in made.select("img"))
    assert not made.select("script[src]") or browser() is None


def test_keys_move_it_and_everything_fits(html: Path, start_chrome):
    chrome = start_chrome(1280)
    try:
        for paper in PAPERS:
            chrome.get(deck(html, paper).as_uri())
            count = chrome.execute_script("return document.querySelectorAll('.slide').length")
            for number in range(1, count + 1):
                assert f"({number} of {count})" in chrome.title
                height, text = chrome.execute_script(SHOWN)
                assert height <= 1, f"{paper}, slide {number}: {text[:80]}"
                assert text.strip()
                chrome.find_element("tag name", "body").send_keys("\ue014")  # to the right
            assert [e for e in chrome.get_log("browser") if e["level"] == "SEVERE"] == []
    finally:
        chrome.quit()


def test_on_a_phone_all_slides_stand_in_a_column(html: Path, start_chrome):
    chrome = start_chrome(390)
    try:
        chrome.get(deck(html, PAPERS[0]).as_uri())
        hidden = "return [innerWidth, ...[...document.querySelectorAll('.slide')].filter(one => !one.offsetHeight)]"
        assert chrome.execute_script(hidden) == [390]
    finally:
        chrome.quit()
