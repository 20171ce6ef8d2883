"""The built pages, read as files and opened in a browser without a network.

The build itself is strict: a broken reference or any other warning fails it, and so every test here.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bs4 import BeautifulSoup

from fl_core.bookbuild.chapters import chapters

LOADS = {
    "script": "src",
    "link": "href",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
}
REMOTE = ("http:", "https:", "//")
VIEWS = [
    pytest.param((1280, False), id="desktop"),
    pytest.param((360, False), id="phone"),
    pytest.param((1280, True), id="dark"),
]
PROBE = """
const all = (selector) => [...document.querySelectorAll(selector)];
const images = all('article img'), width = window.innerWidth;
return {
  equations: all('span.math, div.math').length,
  typeset: all('mjx-container').length,
  wrong: all('mjx-merror, [data-mml-node="merror"]').length,
  broken: images.filter(i => !i.complete || !i.naturalWidth).map(i => i.getAttribute('src')),
  overflow: document.documentElement.scrollWidth - width,
  sticking_out: all('article *').filter(e => e.getBoundingClientRect().right > width + 1 &&
    !e.closest('pre, table, mjx-container, .pst-scrollable-table-container, .highlight, .cell_output'))
    .slice(0, 5).map(e => e.tagName + '.' + e.className),
};
"""
SETTLE = """
const done = arguments[0];
const wait = () => (window.MathJax && MathJax.startup && MathJax.startup.promise)
  ? MathJax.startup.promise.then(() => setTimeout(done, 100))
  : (document.querySelector('script[src*=mathjax]') ? setTimeout(wait, 50) : setTimeout(done, 100));
wait();
"""


def pages(html: Path) -> dict[str, Path]:
    found = {p.relative_to(html).as_posix(): p for p in sorted(html.rglob("*.html"))}
    return {name: path for name, path in found.items() if not name.startswith(("_static/", "_modules/"))}


# Without a browser


def test_every_chapter_is_a_page_with_a_run_box(html: Path):
    for name in chapters():
        text = (html / name).with_suffix(".html").read_text(encoding="utf-8")
        assert f"papermill {name} out.ipynb" in BeautifulSoup(text, "html.parser").get_text(), name


def test_pages_load_only_files_that_are_there(html: Path):
    faults = []
    for name, page in pages(html).items():
        soup = BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser")
        for tag, attribute in LOADS.items():
            for element in soup.find_all(tag):
                url = str(element.get(attribute) or "")
                if "canonical" in (element.get("rel") or []):
                    continue
                file = page.parent / url.split("?")[0].split("#")[0]
                if url.startswith(REMOTE) or (url and not url.startswith(("data:", "#")) and not file.exists()):
                    faults.append(f"{name}: <{tag}> {url}")
    assert faults == []


def test_links_between_pages_lead_somewhere(html: Path):
    faults = []
    for name, page in pages(html).items():
        soup = BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser")
        urls = {str(link.get("href") or "") for link in soup.find_all("a")} - {""}
        inside = [url for url in urls if not url.startswith((*REMOTE, "#", "mailto:", "javascript:"))]
        faults += [f"{name}: {u}" for u in inside if not (page.parent / u.split("#")[0].split("?")[0]).exists()]
    assert faults == []


def test_pictures_are_there_and_described(html: Path):
    """A strict build does not notice a figure without a picture."""
    faults = []
    for name, page in pages(html).items():
        article = BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser").find("article")
        if article is None:
            continue
        faults += [
            f"{name}: no alt text: {i.get('src')}"
            for i in article.find_all("img")
            if not (i.get("alt") or "").strip()
        ]
        figures = article.find_all("figure")
        faults += [f"{name}: empty {f.get('id')}" for f in figures if not f.find(["img", "svg", "canvas", "table"])]
        faults += [f"{name}: {p.get_text()}" for p in article.select(".problematic, .system-message")]
    assert faults == []


def test_no_page_tells_where_it_was_built(html: Path):
    home = str(Path.home())
    places = [place for place in (str(Path.cwd()), str(html.parent), home) if len(place) > 5]
    texts = {name: page.read_text(encoding="utf-8") for name, page in pages(html).items()}
    assert [(name, place) for name, text in texts.items() for place in places if place in text] == []


# With a browser


@pytest.fixture
def browser(request: pytest.FixtureRequest, start_chrome: Callable[..., Any]) -> Iterator[Any]:
    """Chromium in the size and colours of ``request.param``."""
    chrome = start_chrome(*getattr(request, "param", (1280, False)))
    chrome.set_script_timeout(240)  # a long derivation has six hundred equations, and the machine may be busy
    yield chrome
    chrome.quit()


def requested(chrome: Any) -> list[str]:
    messages = [json.loads(line["message"])["message"] for line in chrome.get_log("performance")]
    return [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]


@pytest.mark.parametrize("browser", VIEWS, indirect=True)
def test_pages_in_a_browser_without_network(html: Path, browser: Any, request: pytest.FixtureRequest):
    """No foreign request, every equation typeset, no script error, pictures load, no sideways scrolling.

    With FL_BOOK_SHOTS=FOLDER a picture of each page is kept there.
    """
    faults, equations = [], 0
    shots = os.environ.get("FL_BOOK_SHOTS")
    for name, page in pages(html).items():
        browser.get(page.as_uri())
        browser.execute_async_script(SETTLE)
        seen = browser.execute_script(PROBE)
        equations += seen["typeset"]
        local = ("file://", "data:", "blob:", "chrome:")
        faults += [f"{name} loads {url}" for url in requested(browser) if not url.startswith(local)]
        log = browser.get_log("browser")
        faults += [f"{name} console: {entry['message']}" for entry in log if entry["level"] == "SEVERE"]
        faults += [f"{name}: {key} {seen[key]}" for key in ("broken", "sticking_out") if seen[key]]
        if seen["equations"] != seen["typeset"] or seen["wrong"]:
            faults.append(f"{name}: {seen['typeset']} of {seen['equations']} equations, {seen['wrong']} wrong")
        if seen["overflow"] > 0:
            faults.append(f"{name} scrolls sideways by {seen['overflow']} px")
        if shots:
            view = request.node.callspec.id
            browser.save_screenshot(str(Path(shots, f"{name.replace('/', '_')}-{view}.png")))
    assert faults == []
    assert equations > 0


def test_search_works_from_disk(html: Path, browser: Any):
    browser.get((html / "search.html").as_uri() + "?q=staleness")
    found = """
const done = arguments[0], from = Date.now();
const wait = () => { const hits = document.querySelectorAll('#search-results li').length;
  (hits || Date.now() - from > 20000) ? done(hits) : setTimeout(wait, 100); };
wait();
"""
    assert browser.execute_async_script(found) > 0
