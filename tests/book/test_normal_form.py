"""Committed notebooks are small, in reading order, and start at profile smoke."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from fl_core.bookbuild.chapters import ROOT, chapters, committed, parameters_of
from fl_core.bookbuild.notebooks import KEPT, main, normal_text, normalise

NOTEBOOKS = [pytest.param(path, id=path.stem) for path in committed()]


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_committed_notebook_is_in_normal_form(notebook: Path):
    """Otherwise: python -m fl_core.bookbuild.notebooks refresh."""
    assert notebook.read_text(encoding="utf-8") == normal_text(notebook)


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_committed_notebook_says_smoke(notebook: Path):
    parameters = parameters_of(notebook)
    assert "PROFILE" not in parameters or parameters["PROFILE"].default == "smoke"
    text = notebook.read_text(encoding="utf-8")  # claims rest on more runs than the figures show
    assert not any(f'{word} claims\\"' in text for word in ("and", "their", "its"))


def test_a_print_that_arrived_in_two_pieces_is_one_output():
    cell = new_code_cell("print()", metadata={"tags": [KEPT]})
    cell.outputs = [new_output("stream", name="stdout", text=text) for text in ("one\n", "two\n")]
    normalise(book := new_notebook(cells=[cell]))
    assert [out.text for out in book.cells[0].outputs] == ["one\ntwo\n"]


def test_every_committed_notebook_is_a_chapter():
    assert sorted(chapters()) == [path.relative_to(ROOT).as_posix() for path in committed()]


def executed():
    shown = new_output(
        "display_data", {"text/plain": "<Figure>", "image/png": "aGk="}, metadata={"image/png": {"width": 3}}
    )
    printed = new_output("stream", name="stdout", text="0.5\n")
    warned = new_output("stream", name="stderr", text="slow\n")
    tagged = new_code_cell("print(0.5)", metadata={"tags": [KEPT], "execution": {"begun": "now"}}, execution_count=9)
    tagged.outputs = [printed, warned, shown]
    plain = new_code_cell("print(1)", execution_count=8, metadata={"collapsed": True})
    plain.outputs = [printed]
    injected = new_code_cell("PROFILE = 'paper'", metadata={"tags": ["injected-parameters"]})
    return new_notebook(cells=[new_markdown_cell("# Title"), injected, plain, tagged], metadata={"authors": ["me"]})


def test_only_checked_text_is_kept():
    nb = normalise(executed())
    assert [cell.id for cell in nb.cells] == ["c00", "c01", "c02"]
    _, plain, tagged = nb.cells
    assert (plain.outputs, plain.execution_count, plain.metadata) == ([], None, {})
    assert tagged.execution_count == 2
    assert tagged.metadata == {"tags": [KEPT]}
    assert [out.get("text") or out.data for out in tagged.outputs] == ["0.5\n", {"text/plain": "<Figure>"}]
    assert set(nb.metadata) == {"kernelspec", "language_info"}
    nbformat.validate(nb)


def test_normal_form_is_a_fixed_point(tmp_path: Path):
    once = nbformat.writes(normalise(executed()), indent=1) + "\n"
    path = tmp_path / "x.ipynb"
    path.write_text(once, encoding="utf-8")
    assert normal_text(path) == once


def test_check_names_the_notebook_that_is_not_normal(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "x.ipynb"
    nbformat.write(executed(), path)
    assert main(["check", str(path)]) == 1
    assert str(path) in capsys.readouterr().out
    path.write_text("{}", encoding="utf-8")
    assert main(["check", str(path)]) == 1
    assert "not a readable notebook" in capsys.readouterr().err


def test_the_documented_command_says_nothing_but_what_it_finds(tmp_path: Path):
    """It began with Python's warning of "unpredictable behaviour", as its own package imported it first."""
    path = tmp_path / "x.ipynb"
    nbformat.write(normalise(executed()), path)
    command = [sys.executable, "-m", "fl_core.bookbuild.notebooks", "check", path]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stderr == ""


def test_refresh_executes_and_a_second_time_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "x.ipynb"
    cell = new_code_cell("print(6 * 7)", metadata={"tags": [KEPT]})
    nbformat.write(normalise(new_notebook(cells=[new_markdown_cell("# T"), cell])), path)
    assert main(["refresh", str(path)]) == 0
    after = path.read_text(encoding="utf-8")
    assert nbformat.reads(after, 4).cells[1].outputs[0].text == "42\n"
    assert main(["refresh", str(path)]) == 0
    assert path.read_text(encoding="utf-8") == after
    assert main(["check", str(path)]) == 0
    assert "unchanged" in capsys.readouterr().out
