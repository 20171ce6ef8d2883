"""The lab grades: as it is handed out nothing is done, its own solutions are, and wrong ones are not, in seconds."""

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


def test_what_is_right_up_to_single_precision_is_right_and_what_knows_three_exponents_by_heart_is_not():
    single = "def weight(tau, a=0.5):\n    return torch.tensor(tau + 1.0) ** -a"
    by_heart = "def weight(tau, a=0.5):\n    return (tau + 1) ** -a if a in (0.3, 0.5, 2.0) else 1.0"
    assert [graded([answer])[0] for answer in (single, by_heart)] == ["done", "not yet"]


@pytest.mark.parametrize("body", ["[upload] = await server.receive()", "server.commit(server.model)", "pass"])
def test_an_updater_without_a_wait_or_a_commit_is_told_so_and_does_not_go_on_for_minutes(body):
    updater = f"async def updater(self, server):\n    {body}\n\n\nMine.updater = updater"
    assert re.fullmatch(r"AssertionError: [01] versions were made, not 40", graded([updater])[2])
