"""The figures that a reader moves, in a browser: drawn where they agree with the library, else not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fl_core.errors import SpecError
from fl_core.report.explorable import Explorable, Slider
from fl_papers.fedasmu.figures import explore_weights
from fl_papers.fedasync.figures import explore_staleness
from fl_papers.sdfeel.figures import explore_ring
from fl_papers.wkafl.figures import explore_selection

MADE = {"fedasync": explore_staleness, "sdfeel": explore_ring, "fedasmu": explore_weights,
        "wkafl": explore_selection}  # fmt: skip
STATE = "return [...document.querySelectorAll('.flx')].map((root) => root.dataset.state)"


@pytest.mark.thorough
def test_all_of_them_are_drawn_move_and_fit_a_phone(open_page):
    page = open_page("".join(make()._repr_html_() for make in MADE.values()), width=360)
    assert page.execute_script(STATE) == ["drawn"] * len(MADE)
    curves = "return [...document.querySelectorAll('.flx path')].map((path) => path.getAttribute('d'))"
    before = page.execute_script(curves)
    assert all(len(path) > 200 for path in before)
    page.execute_script(
        "document.querySelectorAll('.flx').forEach((root) => { const s = root.querySelector('input');"
        "s.value = s.max; s.dispatchEvent(new Event('input')); })"
    )
    after = page.execute_script(curves)
    assert sum(a != b for a, b in zip(before, after, strict=True)) >= len(MADE)
    right = """return Math.max(...[...document.querySelectorAll('.flx *:not(.flx-scroll *)')]
               .map((element) => element.getBoundingClientRect().right))"""
    assert page.execute_script(right) <= 360


@pytest.mark.thorough
def test_a_script_that_says_something_else_is_not_drawn(open_page):
    figure = explore_weights()
    page = open_page(replace(figure, script=figure.script.replace("v + 1)", "v + 1.01)"))._repr_html_())
    assert page.execute_script(STATE) == ["refused"]
    assert "disagree" in page.find_element("css selector", ".flx-refusal").text
    assert page.execute_script("return document.querySelectorAll('.flx path').length") == 0


@pytest.mark.parametrize("make", MADE.values(), ids=list(MADE))
def test_they_are_checked_at_every_corner_and_are_small(make):
    figure = make()
    assert len(figure.checks()) == 1 + 2 ** len(figure.sliders)
    assert len(figure._repr_html_()) < 300_000
    assert "http" not in figure._repr_html_().replace("http://www.w3.org/2000/svg", "")


def test_numbers_that_are_not_finite_are_refused():
    figure = Explorable(
        "broken", [Slider("a", "a", 0, 1, 0.5, 0.5)], lambda a: {"x": [0, 1], "y": [a, 1e999]}, "", "x"
    )
    with pytest.raises(SpecError, match="broken: not finite at"):
        figure.checks()
