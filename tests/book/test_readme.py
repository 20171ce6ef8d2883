"""The example in README.md runs as it is printed, only shorter; its commands are accepted and its links lead on."""

from __future__ import annotations

import re
import shlex
from contextlib import redirect_stdout
from io import StringIO

import pytest
from commands import call

from fl_core.algorithms import ALGORITHMS
from fl_core.bookbuild.chapters import ROOT

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
RUNS = re.findall(r"^    fl-core (run .*)$", TEXT, re.MULTILINE)


@pytest.mark.usefixtures("few_images")
def test_the_example_algorithm_runs(request: pytest.FixtureRequest):
    request.addfinalizer(lambda: ALGORITHMS.pop("halving", None))
    (example,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    shorter = example.replace('"updates": 50', '"updates": 2')
    assert shorter != example
    printed = StringIO()
    with redirect_stdout(printed):
        exec(compile(shorter, "README.md", "exec", dont_inherit=True), {"__name__": "__main__"})
    assert 0 <= float(printed.getvalue()) <= 1


@pytest.mark.parametrize("words", RUNS)
def test_every_run_is_accepted(words):
    call(*shlex.split(words, comments=True), "--print-spec")


def test_links_lead_to_files():
    links = re.findall(r"\]\(([^)#]+)\)", TEXT)
    assert links
    assert [link for link in links if not (ROOT / link).is_file()] == []
