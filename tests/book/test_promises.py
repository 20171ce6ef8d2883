"""Every promise names tests that exist, and figures that can be read in them."""

from __future__ import annotations

import pytest

from fl_core.bookbuild import promises
from fl_core.bookbuild.chapters import ROOT


def test_every_test_that_a_promise_names_exists():
    assert promises.missing(ROOT) == []


def test_a_test_that_does_not_exist_is_found_out(monkeypatch):
    wrong = promises.Promise("It flies.", ("tests/book/test_promises.py::test_it_flies", "tests/nowhere.py::test_it"))
    monkeypatch.setattr(promises, "PROMISES", (wrong,))
    assert promises.missing(ROOT) == list(wrong.tests)


@pytest.mark.parametrize("promise", promises.PROMISES, ids=lambda promise: promise.sentence[:40])
def test_figures_are_those_of_the_tests(promise):
    for _, place in promise.figures:
        assert promises.figure(ROOT, place).removeprefix("at least ").replace(",", "").isdigit(), place


def test_a_promise_is_a_row():
    assert promises.markdown(ROOT).count("\n| ") == len(promises.PROMISES) + 1
