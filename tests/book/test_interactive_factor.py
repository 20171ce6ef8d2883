"""The interactive map of FedLuck's factor, in a browser without a network: its minima are the planner's."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from refusals import refuses

from fl_core.errors import SpecError
from fl_core.formulas.fedluck import job_seconds, key_convergence_factor, plan_devices, rounds_per_job
from fl_papers.fedluck.figures import RANGES, interactive_factor, plans

DEVICES = {"slow link": (0.4, 9.0), "fast <link>": (0.1, 3.6)}
SHORTHANDS = """
  const root = document.querySelector('.fl-factor'), all = (what) => [...root.querySelectorAll(what)];
  const text = (name) => root.querySelector('.flf-' + name).textContent;
  const found = () => ['k', 'delta', 'factor', 'here'].map((name) => Number(root.dataset[name]));
  const set = (what, value) => {
    const input = root.querySelector(what);
    input.value = value;
    input.dispatchEvent(new Event(input.tagName === 'SELECT' ? 'change' : 'input', {bubbles: true}));
  };
"""


def ask(chrome: Any, script: str, *arguments: Any) -> Any:
    return chrome.execute_script(SHORTHANDS + script, *arguments)


@pytest.fixture
def page(open_page):
    """A page with the figure twice; tests act on the first."""
    return open_page(interactive_factor(DEVICES, 1.5)._repr_html_() * 2)


def test_the_figure_checks_itself_and_loads_nothing(page):
    checks = "return [...document.querySelectorAll('.fl-factor')].map((root) => root.dataset.selfcheck)"
    assert page.execute_script(checks) == ["ok", "ok"]
    assert [entry["message"] for entry in page.get_log("browser")] == []
    sent = [json.loads(line["message"])["message"] for line in page.get_log("performance")]
    urls = [m["params"]["request"]["url"] for m in sent if m["method"] == "Network.requestWillBeSent"]
    assert [url for url in urls if not url.startswith(("file:", "data:"))] == []


def test_the_minimum_is_the_planners_wherever_the_sliders_stand(open_page):
    chrome = open_page(interactive_factor(DEVICES, 1.5)._repr_html_())
    rng = np.random.default_rng(0)
    places = rng.uniform(size=(30, 3)).round(3)
    seen = ask(
        chrome,
        "return arguments[0].map((place) => {"
        "['alpha', 'beta', 'period'].forEach((name, i) => set(`[data-set=${name}]`, place[i]));"
        "return [['alpha', 'beta', 'period'].map((name) => Number(root.querySelector(`[data-set=${name}]`).value)),"
        "found(), root.querySelector('.flf-device').value]; })",
        places.tolist(),
    )
    ends = np.log(list(RANGES.values()))
    for stood, (k, delta, factor, _), chosen in seen:
        alpha, beta, period = np.exp(ends[:, 0] + np.array(stood) * (ends[:, 1] - ends[:, 0]))
        best = plan_devices(alpha, beta, period, solver="exact")
        assert chosen == ""
        assert (k, factor) == (best.local_steps[0], pytest.approx(best.factor[0], rel=1e-9))
        assert delta == pytest.approx(best.compression_rate[0], rel=1e-6)


def test_a_device_is_chosen_by_its_name_and_its_plan_is_told(page):
    ask(page, "set('.flf-device', 1)")
    k, delta, factor, here = ask(page, "return found()")
    assert (k, delta, factor) == (39, 1, pytest.approx(2 / 3))
    assert here == factor
    said = ask(page, "return text('result')")
    assert said.startswith(
        "Smallest in the box: k = 39, δ = 1, φ = 0.6667; a job takes 7.5 s, 5 rounds, staleness 5."
    )
    assert "β/T̃ = 2.4 is below 3.113: without bounds on k, do not compress." in said
    ask(page, "set('.flf-device', 0)")
    assert "k = 3, δ = 0.07294, φ = 4.877" in ask(page, "return text('result')")


def test_the_cross_hair_follows_keys_and_clicks_and_returns(page):
    from selenium.webdriver import ActionChains, Keys

    ask(page, "root.querySelector('[data-probe=k]').focus()")
    ActionChains(page).send_keys(*[Keys.ARROW_RIGHT] * 7).perform()
    here = key_convergence_factor(10, ask(page, "return found()[1]"), 0.4, 9.0, 1.5)
    assert ask(page, "return found()[3]") == pytest.approx(here)
    assert ask(page, "return text('here')").startswith("At k = 10, δ = 0.07294: φ = ")
    ask(page, "root.querySelector('[data-probe=delta]').focus()")
    ActionChains(page).send_keys(Keys.END).perform()
    job = job_seconds(10, 1, 0.4, 9.0)
    told = f"a job takes {job:g} s, {job / 1.5:.4g} rounds, staleness {rounds_per_job(job, 1.5)}."
    assert ask(page, "return text('here')").endswith(told)
    chart = page.find_element("css selector", ".flf-map svg")
    ActionChains(page).move_to_element(chart).click().perform()
    middle = ask(page, "return ['k', 'delta'].map((name) => root.querySelector(`[data-probe=${name}]`).value)")
    assert 2 < float(middle[0]) < 60
    assert 0.3 < float(middle[1]) < 0.7
    ask(page, "root.querySelector('[data-act=best]').click()")
    assert "the smallest" in ask(page, "return text('here')")


def test_the_map_is_bright_at_the_minimum_and_darker_away_from_it(page):
    script = """
      const canvas = root.querySelector('canvas'), pen = canvas.getContext('2d');
      const [k, delta] = arguments;
      const x = Math.log(k / 2) / Math.log(60 / 2) * canvas.width;
      const y = (1 - Math.log(delta / 0.01) / Math.log(100)) * canvas.height;
      return [...pen.getImageData(Math.min(x, canvas.width - 1), Math.min(y, canvas.height - 1), 1, 1).data];"""
    assert ask(page, script, 3, 0.073) == [0xFD, 0xE7, 0x25, 255]
    assert ask(page, script, 59, 0.0101) == [0x2D, 0x0B, 0x45, 255]


def test_a_figure_that_disagrees_with_python_is_not_drawn(open_page):
    figure = interactive_factor(DEVICES, 1.5)
    figure.data["checks"][5][4] *= 1.001
    chrome = open_page(figure._repr_html_())
    assert ask(chrome, "return root.dataset.selfcheck") == "failed"
    assert "disagrees with the Python code" in ask(chrome, "return root.innerText")
    assert ask(chrome, "return [all('.flf-map svg *').length, root.querySelector('.flf-tables').open]") == [0, True]


def test_a_phone_shows_the_whole_figure(open_page):
    chrome = open_page(interactive_factor(DEVICES, 1.5)._repr_html_(), width=360)
    assert chrome.execute_script("return [innerWidth, document.documentElement.scrollWidth]") == [360, 360]
    assert ask(chrome, "return Math.max(...all('.flf-page *').map((e) => e.getBoundingClientRect().right))") <= 360
    assert (
        ask(chrome, "return Math.min(...all('.flf-page :is(button, input, select)').map((e) => e.offsetHeight))")
        >= 24
    )
    assert ask(chrome, "return root.querySelector('.flf-map').clientWidth") > 300


def test_without_a_script_the_plans_are_a_table():
    text = interactive_factor(DEVICES, 1.5)._repr_html_()
    assert "<details" in text
    assert "<td>0.07294</td>" in text
    assert "fast &lt;link&gt;" in text
    frame = plans(DEVICES, 1.5)
    assert frame["k"].tolist() == [3, 39]
    assert frame["τ"].tolist() == [2, 5]


test_what_cannot_be_shown_is_refused = refuses(
    SpecError,
    (({}, 1.5), "needs at least one device"),
    (({"one": (3.0, 1.0)}, 1.5), r"alpha of one must lie in \[0.005, 2\] s, got 3.0"),
    ((DEVICES, 0.01), "period of the round"),
    by=lambda arguments: interactive_factor(*arguments),
)
