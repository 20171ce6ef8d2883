"""Comparisons to examine: what Python computes, and that the page draws the same, without a script or with one."""

from __future__ import annotations

import json
import re

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fl_core.experiments.store import default_store
from fl_core.report import heterogeneity
from fl_core.report.explorable import POINTS, Comparison, Mark
from fl_core.report.interactive import asset

SEEDS = range(4)
SHOWN = "return [...document.querySelectorAll('.flc')].map((root) => root.dataset.state)"


def made(**changed: object) -> Comparison:
    """Return two methods, of which the second goes twice as far; the third knows no bytes."""
    x = np.arange(0.0, 301.0)
    runs = {
        name: {s: pd.DataFrame({"t": far * x, "bytes": sent * x, "acc": 1 - np.exp(-(s + 20) * x / rate)})
               for s in SEEDS}
        for name, far, sent, rate in (("FedAvg", 1, 2, 900), ("FedAsync", 2, 3, 700), ("SGD", 1, 0, 500))
    }  # fmt: skip
    given = {
        "title": "toy", "settings": {"one": runs, "alone": {"SGD": runs["SGD"]}}, "metrics": {"acc": "accuracy"},
        "axes": {"t": "time", "bytes": "bytes"}, "against": "FedAvg", "marks": [Mark("one", "SGD", 0.9, "t", 7)],
    }  # fmt: skip
    return Comparison(**(given | changed))


def test_differences_are_paired_where_all_runs_have_come_to():
    figure = made()
    assert list(figure.runs) == ["one"]
    assert (figure.end("one", "t"), figure.end("one", "bytes")) == (300, 600)
    assert figure.on("one", "bytes") == ["FedAvg", "FedAsync"]
    assert max(len(run["t"]) for run in figure.runs["one"]["SGD"].values()) == POINTS
    values = {
        name: np.array([run["acc"][-1] for run in figure.runs["one"][name].values()]) for name in ("FedAvg", "SGD")
    }
    apart = values["SGD"] - values["FedAvg"]
    low, high = stats.t.interval(0.95, len(SEEDS) - 1, apart.mean(), stats.sem(apart))
    mean, difference, half = figure.at_end("one", "t", "acc")["SGD"]
    assert np.allclose([mean, difference - half, difference + half], [values["SGD"].mean(), low, high])
    assert figure.at_end("one", "t", "acc")["FedAvg"][1:] == [0, 0]
    assert made(against="SGD").at_end("one", "bytes", "acc")["FedAvg"][1:] == [0, 0]  # SGD has come nowhere there
    idle = {name: {0: seeds[0].assign(bytes=0)} for name, seeds in figure.settings["one"].items()}
    assert "FedAsync: " in made(settings={"one": idle})._repr_html_()


def test_without_a_script_there_are_dots_with_intervals():
    still = re.search(r'<div class="flc-still">(.*?)</div>', made()._repr_html_(), re.S)
    assert still is not None
    assert still[1].count("<circle") == 3
    assert "FedAsync: " in still[1]


@pytest.mark.thorough
def test_the_page_draws_what_python_computed_and_nothing_else(open_page):
    good = made()._repr_html_()
    wrong = re.sub(
        r'("found":\{"FedAvg":\[0\.\d)', lambda m: m[1][:-1] + str((int(m[1][-1]) + 1) % 10), good, count=1
    )
    beside = f"<style>{asset('explorable.css')}</style>"  # of a figure with sliders on the same page
    page = open_page(good + wrong + beside, width=360)
    assert page.execute_script(SHOWN) == ["drawn", "refused"]
    assert page.execute_script("return document.documentElement.scrollWidth") <= 360
    count = "return document.querySelectorAll('.flc-curves path[stroke]:not(.flx-grid)').length"
    assert page.execute_script(count) == 4  # three curves and a mark
    letters = "return getComputedStyle(document.querySelector('.flc-curves text')).fontSize"
    assert page.execute_script(letters) == "13px"
    named = "return [...document.querySelectorAll('.flc-letter')].map(text => text.textContent).join('')"
    assert page.execute_script(named) == "abc"  # no curve is told by its colour alone
    page.execute_script("const box = document.querySelector('[name=on]'); box.click();")
    assert page.execute_script(count) == 3
    assert page.execute_script(named) == "bc"
    said = page.execute_script("return document.querySelector('.flc-dots').getAttribute('aria-label')")
    data = json.loads(re.search(r'application/json">(.*?)</script>', good, re.S)[1])
    assert f"{data['checks'][0]['found']['SGD'][0]:.3g}" in said


def test_what_start_here_says_of_slower_devices_is_of_stored_runs():
    """All of them are there, made by committed code; where devices are equal nobody is ahead by not waiting."""
    study = heterogeneity.stored(default_store())
    assert study.complete
    assert not [r for r in study.results.values() if "dirty" in r.provenance["commit"]]
    lines = heterogeneity.in_words(heterogeneity.comparison(study)).splitlines()
    assert len(lines) == len(heterogeneity.SLOWEST)
    assert "ahead" not in lines[0]
    fewer = study.with_results({key: run for key, run in study.results.items() if run.spec.seed < 4})
    assert heterogeneity.in_words(heterogeneity.comparison(fewer)).splitlines() != lines
