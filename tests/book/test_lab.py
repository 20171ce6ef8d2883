"""The lab grades: as it is handed out nothing is done, its own solutions are, and a wrong one is not."""

from __future__ import annotations

import json
import re

import pytest

from fl_core.bookbuild.chapters import ROOT

LAB = ROOT / "notebooks/0_start/lab.ipynb"
WRONG = {"weight(tau": ("(tau + 1)", "tau"), "mixed(w": ("lerp(w, x", "lerp(x, w"), "updater(": (" + 1", " + 2")}


def graded(answers: list[str]) -> list[str]:
    """Return the states after the answers, each of which stands behind the cell that it replaces."""
    cells = [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(LAB.read_text("utf-8"))["cells"]]
    space: dict = {"__name__": "lab"}
    for kind, source in cells[:-1]:
        if kind == "code":
            exec(source, space)
    for answer in answers:
        exec(answer, space)
    exec(cells[-1][1], space)
    return list(space["grade"]()["state"])


@pytest.fixture(scope="module")
def solutions() -> list[str]:
    text = "\n".join("".join(cell["source"]) for cell in json.loads(LAB.read_text("utf-8"))["cells"])
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def test_what_is_handed_out_is_not_done():
    assert graded([]) == ["not yet"] * 3


def test_its_own_solutions_are_right_and_wrong_ones_are_not(solutions):
    assert graded(solutions) == ["done"] * 3
    wrong = [answer.replace(*next(change for key, change in WRONG.items() if key in answer)) for answer in solutions]
    assert [a != b for a, b in zip(wrong, solutions, strict=True)] == [True] * 3
    assert "done" not in graded(wrong)
