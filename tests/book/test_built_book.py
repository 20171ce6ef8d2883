"""The built pages, read as files and opened in a browser without a network.

The build itself is strict: a broken reference or any other warning fails it, and so every test here.
"""

from __future__ import annotations

import json
import math
import os
import re
import runpy
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import axe_core_python
import pytest
from bs4 import BeautifulSoup

from fl_core.bookbuild.chapters import ROOT, chapters

LOADS = {"link": "href", **dict.fromkeys(("script", "img", "iframe", "source", "video", "audio"), "src")}
MOST_BYTES = {"a page": 1_500_000, "the site": 45_000_000}
EMPTY = "py-modindex.html"
MOST_TIMES = {"there": 7.5, "typeset": 30}
"""How many times as long as EMPTY, a list of names in the book's theme, a page may take until it is there, and until
the last of its equations is set: seconds would be the machine's."""
MOST_HEIGHT = {"lecture": 8 * 900, "derivation": 35 * 900, "replication": 25 * 900}
"""Of a paper's chapters at 1280 px, in pixels: so many screens of 900."""
REMOTE = ("http:", "https:", "//")
VIEWS = [
    pytest.param((1280, False), id="desktop"),
    pytest.param((360, False), id="phone"),
    pytest.param((1280, True), id="dark"),
]
PROBE = """
const all = (selector) => [...document.querySelectorAll(selector)];
const images = all('article img'), width = document.documentElement.clientWidth;
return {
  equations: all('span.math, div.math').length,
  typeset: all('mjx-container').length,
  wrong: all('mjx-merror, [data-mml-node="merror"]').length,
  broken: images.filter(i => !i.complete || !i.naturalWidth).map(i => i.getAttribute('src')),
  overflow: document.documentElement.scrollWidth - width, height: all('article.bd-article')[0]?.offsetHeight,
  sticking_out: all('article *').filter(e => e.getBoundingClientRect().right > width + 1 &&
    !e.closest('pre, table, mjx-container, .pst-scrollable-table-container, .highlight, .cell_output'))
    .slice(0, 5).map(e => e.tagName + '.' + e.className),
  small_letters: all('article svg.themed text').filter(t => Math.hypot(t.getScreenCTM().a, t.getScreenCTM().b) *
    Math.max(...(t.children.length ? [...t.children] : [t]).map(e => parseFloat(getComputedStyle(e).fontSize))) < 6.5)
    .slice(0, 5).map(t => t.closest('svg').ariaLabel.slice(0, 60) + ': ' + t.textContent),
  wide_tables: width < 1200 ? [] : all('article table').map(t => [t, t.closest(
    '.pst-scrollable-table-container, .table-box, .flx-scroll, .cell_output, section, article')]).filter(([t, box]) =>
    box.clientWidth && t.scrollWidth > box.clientWidth + 1).map(([t]) => t.innerText.slice(0, 60)),
};
"""
LISTED = "broken", "sticking_out", "small_letters", "wide_tables"
AXE = """
const [view, done] = arguments, tags = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'best-practice'];
const kinds = new Map();
const ground = (one) => {
  const { backgroundColor, backgroundImage, opacity } = getComputedStyle(one);
  const own = [backgroundColor, backgroundImage, opacity].join().replace('rgba(0, 0, 0, 0),none,1', '');
  return own + (one.parentElement ? ground(one.parentElement) : '');
};
for (const one of document.body.querySelectorAll('*')) {
  if (!one.checkVisibility() || ![...one.childNodes].some(part => part.nodeType == 3 && part.data.trim())) continue;
  const { color, fontSize, fontWeight, textShadow, visibility } = getComputedStyle(one);
  const where = [one, one.parentElement].map(each => each.tagName + each.getAttribute('class'));
  const kind = [color, fontSize, fontWeight, textShadow, visibility, ground(one), ...where].join();
  kinds.set(kinds.has(kind) ? kind + ' again' : kind, one);
}
const only = (rule) => ({ runOnly: { type: 'rule', values: [rule] } });
const form = { runOnly: tags, rules: { 'color-contrast': { enabled: false } } };
const asked = [[document, view === 'dark' ? only('link-in-text-block') : form]];
if (kinds.size) asked.push([{ include: [...kinds.values()] }, only('color-contrast')]);
(async () => {
  const faults = [];
  for (const [where, what] of asked)
    faults.push(...(await axe.run(where, { resultTypes: ['violations'], ...what })).violations);
  done(faults.map(fault => [fault.id, fault.nodes.length, fault.nodes[0].html.slice(0, 150)]));
})();
"""
"""What a view can have of its own, by night colours. Contrasts would be most of the work: of each kind of text (its
colour, what it lies on, its size, its weight, what it and its parent are) a page's first and last are asked."""
BARE = """
document.querySelectorAll('article details').forEach(one => { one.open = true; });
document.querySelectorAll('.toggle-hidden > .admonition-title').forEach(one => one.click());
const all = (selector) => [...document.querySelectorAll(`mjx-container > ${selector}`)];
const plain = (one) => !one.querySelector('a, [href], [tabindex], [role], [aria-label]');
const drawn = all('svg[aria-hidden=true]').filter(one => plain(one) && !one.textContent.trim());
const ids = drawn.flatMap(one => [...one.querySelectorAll('[id]')].map(part => part.id));
drawn.forEach(one => one.replaceChildren());
all('mjx-assistive-mml').filter(one => plain(one) && !one.querySelector('[id]')).forEach(
  one => one.replaceChildren(one.textContent));
return ids.length - new Set(ids).size;
"""
"""Unfolds what is folded, as axe says nothing of what is not seen, and leaves of equations what it can say something
on: of outlines, which have neither words nor links, their space, of what is read aloud the words. Half of a
derivation's elements go, and with them half of the time. Returns how many ids of outlines are there twice."""
SETTLE = """
const still = () => Promise.allSettled(document.getAnimations().map(one => one.finished));
const done = () => setTimeout(() => still().then(() => arguments[0]()), 100);
const wait = () => (window.MathJax && MathJax.startup && MathJax.startup.promise)
  ? MathJax.startup.promise.then(done)
  : (document.querySelector('script[src*=mathjax]') ? setTimeout(wait, 50) : done());
wait();
"""


def pages(html: Path) -> dict[str, Path]:
    found = {p.relative_to(html).as_posix(): p for p in sorted(html.rglob("*.html"))}
    return {name: path for name, path in found.items() if not name.startswith(("_static/", "_modules/", "index."))}


@cache
def parsed(html: Path) -> dict[str, BeautifulSoup]:
    return {name: BeautifulSoup(page.read_text("utf-8"), "html.parser") for name, page in pages(html).items()}


def test_minus_signs_powers_and_indices_are_typeset_outside_code():
    page = {"body": "<td>β^T, w_o^i: -6.39 [-7, 1e-05] at 10 % and 5%, .3</td><code>x_t -1</code> fl_core CIFAR-10"}
    runpy.run_path(str(ROOT / "book/_ext/typeset.py"))["typeset"](None, "a", "", page, True)
    numbers = "−6.39 [−7, 10<sup>−5</sup>] at 10\u00a0% and 5\u00a0%, 0.3"
    shown = f"<td>β<sup>T</sup>, w<sub>o</sub><sup>i</sup>: {numbers}</td>"
    assert page["body"] == f"{shown}<code>x_t -1</code> fl_core CIFAR-10"


def test_every_chapter_is_a_page_with_a_run_box(html: Path):
    for name in chapters():
        text = parsed(html)[Path(name).with_suffix(".html").as_posix()].get_text()
        assert f"papermill {name} out.ipynb" in text, name


def test_pages_load_only_files_that_are_there(html: Path):
    faults = []
    for name, soup in parsed(html).items():
        for tag, attribute in LOADS.items():
            for element in soup.find_all(tag):
                url = str(element.get(attribute) or "")
                if "canonical" in (element.get("rel") or []):
                    continue
                file = (html / name).parent / re.split("[#?]", url)[0]
                if url.startswith(REMOTE) or (url and not url.startswith(("data:", "#")) and not file.exists()):
                    faults.append(f"{name}: <{tag}> {url}")
    assert faults == []


def test_links_between_pages_lead_somewhere(html: Path):
    faults = []
    for name, soup in parsed(html).items():
        urls = {str(link.get("href") or "") for link in soup.find_all("a")} - {""}
        inside = [url for url in urls if not url.startswith((*REMOTE, "#", "mailto:", "javascript:"))]
        faults += [f"{name}: {u}" for u in inside if not ((html / name).parent / re.split("[#?]", u)[0]).exists()]
    assert faults == []


def test_pictures_are_there_and_described(html: Path):
    """A strict build does not notice a figure without a picture."""
    faults = []
    for name, soup in parsed(html).items():
        article = soup.find("article")
        if article is None:
            continue
        unsaid = [i for i in article.find_all("img") if not str(i.get("alt") or "").strip()]
        faults += [f"{name}: no alt text: {i.get('src')}" for i in unsaid]
        faults += [f"{name}: no font has {letter!r}" for letter in re.findall("[\ue000-\uf8ff]", article.get_text())]
        drawn = article.select("img:not(.toggler), svg.themed")
        faults += [f"{name}: a picture is in no figure" for each in drawn if not each.find_parent("figure")]
        figures = article.find_all("figure")
        faults += [f"{name}: empty {f.get('id')}" for f in figures if not f.find(["img", "svg", "canvas", "table"])]
        faults += [f"{name}: {p.get_text()}" for p in article.select(".problematic, .system-message")]
    assert faults == []


def test_tables_are_numbered_and_captioned(html: Path):
    faults = []
    chosen = (name for name in pages(html) if re.match("(notebooks|book)/", name))
    for name in (name for name in chosen if not re.search("/(api|slides)/", name)):
        tables = (table for table in parsed(html)[name].select("article table") if not table.find_parent("figure"))
        said = [table.caption.get_text() if table.caption else "" for table in tables]
        faults += [(name, w) for n, w in enumerate(said, 1) if not re.match(rf"Table ([\d.]+\.)?{n} \S", w)]
    assert faults == []


def test_no_page_tells_where_it_was_built(html: Path):
    home = str(Path.home())
    places = [place for place in (str(Path.cwd()), str(html.parent), home) if len(place) > 5]
    texts = {name: page.read_text(encoding="utf-8") for name, page in pages(html).items()}
    assert [(name, place) for name, text in texts.items() for place in places if place in text] == []


def test_pages_and_site_are_small(html: Path):
    assert [n for n, page in pages(html).items() if page.stat().st_size > MOST_BYTES["a page"]] == []
    assert sum(path.stat().st_size for path in html.rglob("*") if path.is_file()) <= MOST_BYTES["the site"]


def test_pages_of_papers_lead_to_what_goes_with_them(html: Path):
    for name, soup in parsed(html).items():
        if name.startswith("notebooks/fl_papers/"):
            line = soup.select_one("article p.companions")
            assert line is not None, name
            words = line.get_text().split(" · ")
            assert {"lecture", "replication", "dossier", "slides", "notation", "glossary"} <= {*words}, name


def test_every_page_says_what_it_rests_on_and_what_it_is_about(html: Path):
    """Records, their standing, digest of the store and commit at the foot; of a paper's page its own records."""
    kept = {}
    for name, soup in parsed(html).items():
        if name.startswith(("notebooks/", "book/")) and not name.startswith("book/slides/"):
            foot, about = soup.select_one("footer p.provenance"), soup.select_one("meta[name=description]")
            assert about is not None, name
            assert str(about["content"]).strip(), name
            assert foot is not None, name
            found = re.match(r"(\d+) published records .* store [0-9a-f]{12}\. .* commit \w+", foot.get_text())
            assert found, foot.get_text()
            kept[name] = int(found[1])
    papers = [kept[f"notebooks/fl_papers/{name}/replication.html"] for name in ("fedasmu", "fedasync", "fedluck")]
    assert len({*papers}) == 3
    assert max(papers) < kept["notebooks/0_start/welcome.html"]


def test_two_clicks_lead_from_a_claim_to_figure_runs_and_judge(html: Path):
    """A cell of the matrix leads to a row of a ledger, whose links lead there."""
    faults, led = [], {"fig": 0, "sec": 0, "the": 0, "line": 0}
    for cell in parsed(html)["notebooks/0_start/welcome.html"].select("a.claims-cell"):
        page, _, name = str(cell["href"]).partition("#")
        path = (html / "notebooks/0_start" / page).resolve()
        row = parsed(html)[path.relative_to(html.resolve()).as_posix()].find("tr", id=name)
        links = [str(link["href"]) for link in row.select("a")] if row else []
        for link in links:
            file, _, place = link.partition("#")
            other = (path.parent / file).resolve() if file else path
            if not other.is_file() or f'"{place}"' not in other.read_text(encoding="utf-8"):
                faults.append(f"{name}: {link}")
            led[place.split("-")[0]] += 1
        if not any("#line-" in link for link in links):
            faults.append(f"{name} has no judge")
    assert faults == []
    assert min(led["fig"], led["the"]) > 20, led


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


def complaints(chrome: Any, view: str) -> list[str]:
    """Return what axe says by WCAG 2.1, A and AA, and by best practices, of what differs from view to view."""
    found = ["ids in equations are there twice"] * chrome.execute_script(BARE)
    chrome.execute_async_script(SETTLE)  # what was unfolded fades in, and has no contrast before
    chrome.execute_script(Path(axe_core_python.__file__).with_name("axe.min.js").read_text(encoding="utf-8"))
    found += map(str, chrome.execute_async_script(AXE, view))
    requested(chrome), chrome.get_log("browser")  # what axe itself asks for and says is nobody's fault
    return found


@pytest.mark.parametrize("browser", VIEWS, indirect=True)
def test_pages_in_a_browser_without_network(html: Path, browser: Any, request: pytest.FixtureRequest):
    """No foreign request, every equation typeset, no script error, pictures load, no sideways scrolling; axe silent.

    With FL_BOOK_SHOTS=FOLDER a picture of each page is kept there.
    """
    faults, equations, view = [], 0, request.node.callspec.id
    for name, page in pages(html).items():
        browser.get(page.as_uri())
        browser.execute_async_script(SETTLE)
        seen = browser.execute_script(PROBE)
        equations += seen["typeset"]
        local = "file:", "data:", "blob:", "chrome:"
        faults += [f"{name} loads {url}" for url in requested(browser) if not url.startswith(local)]
        log = browser.get_log("browser")
        faults += [f"{name} console: {entry['message']}" for entry in log if entry["level"] == "SEVERE"]
        faults += [f"{name}: {key} {seen[key]}" for key in LISTED if seen[key]]
        if seen["equations"] != seen["typeset"] or seen["wrong"]:
            faults.append(f"{name}: {seen['typeset']} of {seen['equations']} equations, {seen['wrong']} wrong")
        if view == "desktop" and "fl_papers" in name and seen["height"] > MOST_HEIGHT.get(page.stem, math.inf):
            faults.append(f"{name} is {seen['height'] / 900:.1f} screens long")
        if seen["overflow"] > 0:
            faults.append(f"{name} scrolls sideways by {seen['overflow']} px")
        if shots := os.environ.get("FL_BOOK_SHOTS"):
            browser.save_screenshot(str(Path(shots, f"{name.replace('/', '_')}-{view}.png")))
        faults += [f"{name}: {found}" for found in complaints(browser, view)]
    assert faults == []
    assert equations > 0


def test_the_front_answers_in_its_first_screen(html: Path, browser: Any):
    """A sentence on each paper, beside the figure; `index`, which is no page itself, leads there."""
    assert 'url=notebooks/0_start/welcome.html"' in (html / "index.html").read_text(encoding="utf-8")
    browser.get((html / "notebooks/0_start/welcome.html").as_uri())
    parts = "[...document.querySelectorAll('.tag_front :is(li, svg.themed)')]"
    found = browser.execute_script(f"return {parts}.map(part => part.getBoundingClientRect().bottom)")
    assert len(found) == 6
    assert max(found) <= 900


def test_search_works_from_disk(html: Path, browser: Any):
    browser.get((html / "search.html").as_uri() + "?q=staleness")
    found = """
const done = arguments[0], from = Date.now();
const wait = () => { const hits = document.querySelectorAll('#search-results li').length;
  (hits || Date.now() - from > 20000) ? done(hits) : setTimeout(wait, 100); };
wait();"""
    assert browser.execute_async_script(found) > 0


@pytest.mark.alone
@pytest.mark.parametrize("browser", VIEWS[:2], indirect=True)
def test_pages_are_there_soon(html: Path, browser: Any):
    """Each right after the empty one; a slow page is read again."""

    def took(name: str) -> dict[str, float]:
        browser.get((html / name).as_uri())
        there = browser.execute_script("return performance.getEntriesByType('navigation')[0].loadEventEnd")
        browser.execute_async_script(SETTLE)
        return {"there": there, "typeset": browser.execute_script("return performance.now()")}

    faults = []
    for name in pages(html):
        for _ in range(3):
            empty = took(EMPTY)["there"]
            times = {what: ms / empty for what, ms in took(name).items()}
            slow = [f"{name} {what}: {times[what]:.1f}" for what in times if times[what] > MOST_TIMES[what]]
            if not slow:
                break
        faults += slow
    assert faults == []


def test_a_term_is_explained_to_pointer_and_keyboard(html: Path, browser: Any):
    """In the words of the glossary; Escape takes them away."""
    browser.get((html / "notebooks/fl_papers/fedasync/lecture.html").as_uri())
    shown = "const tip = document.getElementById('term-tip'); return tip.hidden ? '' : tip.textContent;"
    browser.execute_script("document.querySelector('article a.term[href$=\"#term-staleness\"]').focus()")
    browser.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")  # focus scrolls
    [said] = re.findall(r"^staleness\n  (.*)$", (ROOT / "book/glossary.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert browser.execute_script(shown).replace("’", "'").startswith(said)
    browser.switch_to.active_element.send_keys("\ue00c")  # Escape
    assert browser.execute_script(shown) == ""
