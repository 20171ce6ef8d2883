"""Every promise names tests that exist, and figures that can be read in them."""

from __future__ import annotations

import ast

import pytest

from fl_core.bookbuild.chapters import ROOT
from fl_core.bookbuild.pages import figure, listed_promises, promises

PROMISES = listed_promises(ROOT)


def test_every_test_that_a_promise_names_exists():
    assert len(PROMISES) >= 10
    for row in PROMISES:
        for test in row["tests"].split():
            path, name = test.split("::")
            functions = [node.name for node in ast.parse((ROOT / path).read_text()).body if hasattr(node, "name")]
            assert name in functions, test


@pytest.mark.parametrize("row", PROMISES, ids=lambda row: row["promise"][:40])
def test_figures_are_those_of_the_tests(row):
    for each in filter(None, row["figures"].split("; ")):
        place = each.partition(" ")[0]
        assert int(figure(ROOT, place).replace(",", "")) > 0, place


def test_a_promise_is_a_row():
    assert promises(ROOT).count("\n| ") == 2 + len(PROMISES)  # with the heading, and the line below it
