"""The script of the interactive timeline, in a browser without a network: its numbers are those of Python."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fl_core.algorithms import FedAsync, FedAvg
from fl_core.report.interactive import interactive_timeline
from fl_core.report.timeline import arrivals, schedule_summary, state_at
from fl_core.runtime import Budget, Simulation
from fl_core.tasks import Quadratic
from fl_core.world import Network, TraceCompute, World

DEVICES, UNTIL = 3, 14.0


def history(algorithm):
    compute, network = TraceCompute(seconds_per_step=(1.0, 1.7, 4.1)), Network(latency_seconds=0.25)
    world = World(devices=DEVICES, compute=compute, network=network)
    task = Quadratic([[1.0]] * DEVICES, [[0.0]] * DEVICES, [1.0])
    return Simulation(task, world, algorithm, budget=Budget(seconds=UNTIL), trace=True).run()


@pytest.fixture(scope="module")
def histories():
    return {"sync": history(FedAvg(clients_per_round=DEVICES)), "async": history(FedAsync(concurrency=DEVICES))}


@pytest.fixture
def two_figures(open_page, histories):
    """A page with the same figure twice; tests act on the first."""
    return open_page(interactive_timeline(histories, DEVICES, UNTIL)._repr_html_() * 2)


SHORTHANDS = """
  const root = document.querySelector('.fl-timeline'), all = (what) => [...root.querySelectorAll(what)];
  const says = () => root.querySelector('.flt-says').textContent;
  const edge = (name) => Number(root.querySelector('.flt-plot').style.getPropertyValue('--' + name));
  const click = (what, number = 0) => all(what)[number].click();
  const set = (time) => {
    root.querySelector('.flt-slider').value = time;
    root.querySelector('.flt-slider').dispatchEvent(new Event('input'));
  };
  const state = () => ['clock', 'version', 'flying', 'idle'].map((name) => Number(root.dataset[name]));
"""
WINDOW = "return [edge('from'), edge('to')]"
PLACES = """
  const left = root.querySelector('.flt-plot').getScreenCTM().e;
  const seconds = (x) => (x - left) / edge('px') + edge('from');
  return all('.flt-bar').map((bar) => bar.getBoundingClientRect()).map((b) => [seconds(b.left), seconds(b.right)]);
"""


def ask(chrome: Any, script: str, *arguments: Any) -> Any:
    """Run a script on the first figure of the page."""
    return chrome.execute_script(SHORTHANDS + script, *arguments)


def touch(chrome: Any, kind: str, *points: tuple[float, float]) -> None:
    fingers = [{"x": x, "y": y, "id": number} for number, (x, y) in enumerate(points)]
    chrome.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": kind, "touchPoints": fingers})


def test_figures_check_themselves_and_load_nothing(two_figures):
    checks = "return [...document.querySelectorAll('.fl-timeline')].map((root) => root.dataset.selfcheck)"
    assert two_figures.execute_script(checks) == ["ok", "ok"]
    assert [entry["message"] for entry in two_figures.get_log("browser")] == []
    sent = [json.loads(line["message"])["message"] for line in two_figures.get_log("performance")]
    urls = [m["params"]["request"]["url"] for m in sent if m["method"] == "Network.requestWillBeSent"]
    assert [url for url in urls if not url.startswith(("file:", "data:"))] == []


@pytest.mark.parametrize("run", [0, 1])
def test_the_clock_stops_at_every_event_and_counts_what_python_counts(two_figures, histories, run):
    name, one = list(histories.items())[run]
    script = """
      const seen = [];
      click('[data-run]', arguments[0]);
      set(0);
      while (seen.length < 500 && Number(root.dataset.clock) < arguments[1]) {
        click('[data-act=after]');
        seen.push(state());
      }
      return [seen, says()];"""
    at_events, says = ask(two_figures, script, run, UNTIL)
    events = {t for column in ("start", "end") for t in one.spans[column]} | set(one.updates["seconds"])
    assert [row[0] for row in at_events] == [*sorted(t for t in events if 0 < t < UNTIL), UNTIL]
    assert says.startswith("At 14.00 s:")
    times = [0.3 + k for k in range(int(UNTIL))]
    between = ask(two_figures, "return arguments[0].map((time) => { set(time); return state(); })", times)
    assert [row[0] for row in between] == times
    for time, version, flying, idle in at_events + between:
        assert (version, flying) == state_at(one, time)
        assert idle == pytest.approx(schedule_summary({name: one}, time, DEVICES)["idle"].item(), abs=1e-9)


@pytest.mark.parametrize("run", [0, 1])
def test_the_line_of_totals_is_the_summary(two_figures, histories, run):
    row = schedule_summary(histories, UNTIL, DEVICES).iloc[run]
    text = ask(two_figures, "click('[data-run]', arguments[0]); return all('.flt-totals')[0].textContent", run)
    for part in (
        f"{row['versions']:.0f} versions from {row['uploads']:.0f} uploads",
        f"{100 * row['idle']:.0f} % of device time idle",
        f"staleness {row['mean staleness']:.2f} on average, {row['max staleness']:.0f} at most",
    ):
        assert part in text


def test_as_many_versions_are_tinted_as_a_task_missed(two_figures, histories):
    used = arrivals(histories["async"])
    script = """
      const count = (kind) => all('.flt-version.flt-' + kind).length;
      click('[data-run]', 1);
      return all('.flt-bar.flt-train').map((bar) => {
        bar.focus();
        return [Number(says().match(/task ([0-9]+)/)[1]), count('base'), count('missed'), count('target'), says()];
      });"""
    rows = {task: rest for task, *rest in ask(two_figures, script)}
    for task, version, staleness, seconds in zip(
        *(used[column] for column in ("task", "version", "staleness", "used")), strict=True
    ):
        base, missed, target, says = rows[task]
        assert [base, missed, target] == [1, staleness, 1]
        assert f"went into version {version} at {seconds:.2f} s. Staleness {staleness}, weight 0.6" in says
    unused = [rest for task, rest in rows.items() if task not in set(used["task"])]
    assert unused
    assert all(rest[:3] == [1, 0, 0] and "not used within these 14 s" in rest[3] for rest in unused)


def test_bars_stand_at_their_times_before_and_after_zooming(two_figures, histories):
    spans = histories["sync"].spans
    expected = [pytest.approx(pair, abs=0.02) for pair in zip(spans["start"], spans["end"], strict=True)]
    begun = sum(start < UNTIL for start in spans["start"])
    before = ask(two_figures, PLACES)
    assert ask(two_figures, WINDOW) == [0, UNTIL]
    ask(two_figures, "click('[data-act=in]'); click('[data-act=in]'); click('[data-act=later]')")
    start, end = ask(two_figures, WINDOW)
    assert end - start == pytest.approx(UNTIL * 4 / 9)
    assert start > UNTIL / 4
    for places in (before, ask(two_figures, PLACES)):
        assert places == expected[:begun]
    ask(two_figures, "click('[data-act=all]')")
    assert ask(two_figures, WINDOW) == [0, UNTIL]


def test_dragging_and_a_wheel_with_ctrl_move_the_window_and_a_plain_wheel_does_not(two_figures):
    from selenium.webdriver import ActionChains

    turn = """
      const chart = root.querySelector('.flt-chart'), box = chart.getBoundingClientRect();
      const wheel = new WheelEvent('wheel', {clientX: box.left + box.width / 2, cancelable: true, ...arguments[0]});
      return [chart.dispatchEvent(wheel), edge('from'), edge('to')];"""
    assert ask(two_figures, turn, {"deltaY": -50}) == [True, 0, UNTIL]
    passed, start, end = ask(two_figures, turn, {"deltaY": -50, "ctrlKey": True})
    assert not passed
    assert 0 < start < end < UNTIL
    chart = two_figures.find_element("css selector", ".flt-chart")
    ActionChains(two_figures).click_and_hold(chart).move_by_offset(-60, 0).release().perform()
    moved = 60 / ask(two_figures, "return edge('px')")
    assert ask(two_figures, WINDOW) == [pytest.approx(start + moved), pytest.approx(end + moved)]


def test_the_keyboard_reaches_every_bar_and_leaves_the_other_figure_alone(two_figures):
    from selenium.webdriver import ActionChains, Keys

    other = "return document.querySelectorAll('.flt-page')[1].outerHTML"
    before = two_figures.execute_script(other)
    ask(two_figures, "root.querySelector('.flt-chart [tabindex=\"0\"]').focus()")

    def press(*keys: str) -> str:
        ActionChains(two_figures).send_keys(*keys).perform()
        return str(ask(two_figures, "return says()"))

    assert press(Keys.ARROW_RIGHT).startswith("Version 1, made at")
    assert press(Keys.HOME).startswith("Version 0, the initial model")
    assert press(Keys.ARROW_DOWN).startswith("Device 0, task 1: downloads from 0.00 s")
    assert press(Keys.ARROW_DOWN, Keys.ARROW_RIGHT).startswith("Device 1, task 2: trains from 0.25 s to 1.95 s")
    assert press("+", Keys.END).startswith("Device 1, task")
    assert ask(two_figures, "return edge('from')") > 0
    assert press(Keys.ESCAPE).startswith("Point at a bar")
    assert ask(two_figures, "return all('.flt-bar').every((bar) => bar.hasAttribute('tabindex') && bar.ariaLabel)")
    assert two_figures.execute_script(other) == before


def test_the_clock_plays_and_pauses(two_figures):
    from selenium.webdriver.support.ui import WebDriverWait

    ask(two_figures, "click('[data-act=play]')")
    WebDriverWait(two_figures, 20).until(lambda _: 0 < ask(two_figures, "return state()[0]") < UNTIL)
    ask(two_figures, "click('[data-act=play]')")
    assert ask(two_figures, "return root.querySelector('.flt-play').textContent") == "Play"


def test_a_figure_that_disagrees_with_python_is_not_drawn(open_page, histories):
    figure = interactive_timeline(histories, DEVICES, UNTIL)
    figure.data["runs"][1]["spans"][4][4] += 0.5
    chrome = open_page(figure._repr_html_())
    assert ask(chrome, "return root.dataset.selfcheck") == "failed"
    assert "disagrees with the Python code" in ask(chrome, "return root.innerText")
    assert ask(chrome, "return [all('.flt-chart *').length, root.querySelector('.flt-tables').open]") == [0, True]


def test_a_phone_shows_the_whole_figure_and_fingers_pick_and_zoom(open_page, histories):
    chrome = open_page(interactive_timeline(histories, DEVICES, UNTIL)._repr_html_(), width=360)
    assert chrome.execute_script("return [innerWidth, document.documentElement.scrollWidth]") == [360, 360]
    right = "Math.max(...all('.flt-page *:not(.flt-chart *)').map((e) => e.getBoundingClientRect().right))"
    assert ask(chrome, f"return {right}") <= 360
    assert ask(chrome, "return Math.min(...all('.flt-page button').map((b) => b.offsetHeight))") >= 24
    place = """
      const bar = all('.flt-bar.flt-train').find((bar) => bar.ariaLabel.startsWith('Device 2, task 3'));
      const box = bar.getBoundingClientRect();
      return [box.left + box.width / 2, box.top + box.height / 2];"""
    x, y = ask(chrome, place)
    touch(chrome, "touchStart", (x, y))
    touch(chrome, "touchEnd")
    assert ask(chrome, "return says()").startswith("Device 2, task 3: trains")
    touch(chrome, "touchStart", (180, y), (220, y))
    touch(chrome, "touchMove", (160, y), (220, y))
    touch(chrome, "touchMove", (160, y), (240, y))
    touch(chrome, "touchEnd")
    start, end = ask(chrome, WINDOW)
    assert end - start == pytest.approx(UNTIL / 2)
