"""Staging, executing and dressing pages, tried on small notebooks in a checkout of their own."""

from __future__ import annotations

import os
import shutil
from contextlib import nullcontext
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from fl_core.bookbuild import (
    BookError,
    Parameter,
    build_book,
    find_notebook,
    parameters_of,
    parse_assignments,
    regenerate,
)
from fl_core.bookbuild.chapters import ROOT, check_parameters, file_name
from fl_core.bookbuild.execute import STARTS, Job, run_notebook
from fl_core.bookbuild.notebooks import normalise
from fl_core.bookbuild.pages import dress, modules, run_box
from fl_core.bookbuild.pipeline import longest_first
from fl_core.errors import SpecError

PARAMETERS = """PROFILE = "smoke"  # smoke, laptop or paper
SEEDS = [0, 1]  # one run each
ALPHA = 0.6
RECOMPUTE = False"""
TOC = """format: jb-book
root: book/intro
chapters:
  - file: notebooks/1_part/good
  - file: notebooks/1_part/other
  - file: notebooks/1_part/text
"""


def write(path: Path, *code: str, parameters: str | None = PARAMETERS) -> None:
    cells = [new_markdown_cell("# A page\n\nText.")]
    if parameters:
        cells.append(new_code_cell(parameters, metadata={"tags": ["parameters"]}))
    cells += [new_code_cell(source) for source in code]
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(normalise(new_notebook(cells=cells)), path)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "book").mkdir()
    (tmp_path / "book/_toc.yml").write_text(TOC)
    write(tmp_path / "notebooks/1_part/good.ipynb", "print(PROFILE, ALPHA)")
    write(tmp_path / "notebooks/1_part/other.ipynb", "print('no parameters')", parameters=None)
    (tmp_path / "notebooks/1_part/text.md").write_text("# Text\n")
    shutil.copytree(ROOT / "fl_core/formulas", tmp_path / "fl_core/formulas")
    return tmp_path


def printed(path: Path) -> str:
    cells = nbformat.read(path, 4).cells
    return "".join(out.get("text", "") for cell in cells for out in cell.get("outputs", []))


def left_behind(root: Path) -> list[str]:
    return [p.relative_to(root).as_posix() for p in sorted(root.rglob("*")) if p.is_file()]


# Names and parameters


@pytest.mark.parametrize("name", ["good", "good.ipynb", "1_part/good", "notebooks/1_part/good.ipynb"])
def test_a_notebook_is_found_by_any_of_its_names(checkout: Path, name: str):
    assert find_notebook(name, checkout) == checkout / "notebooks/1_part/good.ipynb"


def test_a_misspelt_notebook_is_answered_with_the_nearest(checkout: Path):
    with pytest.raises(BookError, match=r"unknown notebook 'goood'; did you mean 'good'\? \(valid: good, other\)"):
        find_notebook("goood", checkout)


def test_an_ambiguous_notebook_is_answered_with_full_names(checkout: Path):
    write(checkout / "notebooks/2_part/good.ipynb")
    with pytest.raises(BookError, match=r"ambiguous notebook 'good'.*1_part/good.*2_part/good"):
        find_notebook("good", checkout)


def test_parameters_have_values_and_meanings(checkout: Path):
    found = parameters_of(find_notebook("good", checkout))
    assert found["PROFILE"] == Parameter("PROFILE", "smoke", True, "smoke, laptop or paper")
    defaults = {name: parameter.default for name, parameter in found.items()}
    assert defaults == {"PROFILE": "smoke", "SEEDS": [0, 1], "ALPHA": 0.6, "RECOMPUTE": False}
    assert parameters_of(find_notebook("other", checkout)) == {}


def test_parameters_are_read_as_python_reads_them(tmp_path: Path):
    cell = 'WEIGHT = "polynomial(a=0.5)"  # a # sign\nSIZES: list = [\n    1,  # small\n    2,\n]  # both\nN = 2 * 3'
    write(tmp_path / "x.ipynb", parameters=cell)
    assert list(parameters_of(tmp_path / "x.ipynb").values()) == [
        Parameter("WEIGHT", "polynomial(a=0.5)", True, "a # sign"),
        Parameter("SIZES", [1, 2], True, "both"),
        Parameter("N", "2 * 3", False, ""),
    ]
    write(tmp_path / "x.ipynb", parameters="N = ")
    with pytest.raises(BookError, match="cannot be read"):
        parameters_of(tmp_path / "x.ipynb")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"PROFLE": "smoke"}, r"unknown parameter 'PROFLE'; did you mean 'PROFILE'\? \(valid: PROFILE, SEEDS"),
        ({"PROFILE": 3}, r"parameter PROFILE takes a value like 'smoke' \(str\), got 3"),
        ({"ALPHA": "high"}, r"parameter ALPHA takes a value like 0.6 \(float\), got 'high'"),
        ({"ALPHA": True}, "parameter ALPHA"),
        ({"SEEDS": 3}, r"parameter SEEDS takes a value like \[0, 1\] \(list\), got 3"),
    ],
)
def test_a_wrong_parameter_is_one_clear_line(checkout: Path, given: dict[str, object], message: str):
    before = left_behind(checkout)
    with pytest.raises(BookError, match=message) as error:
        regenerate("good", given, root=checkout)
    assert "\n" not in str(error.value)
    assert left_behind(checkout) == before


def test_valid_parameters_pass(checkout: Path):
    check_parameters(find_notebook("good", checkout), {"ALPHA": 1, "SEEDS": (3,), "RECOMPUTE": True})
    with pytest.raises(BookError, match="has no parameters"):
        check_parameters(find_notebook("other", checkout), {"PROFILE": "smoke"})


def test_assignments_are_read_as_literals_where_they_are():
    pairs = ["PROFILE=laptop", "SEEDS=[0, 1]", "A = 0.5", "B=True", "C=a=b"]
    assert parse_assignments(pairs) == {"PROFILE": "laptop", "SEEDS": [0, 1], "A": 0.5, "B": True, "C": "a=b"}
    for wrong in ("PROFILE", "=3"):
        with pytest.raises(BookError, match="NAME=VALUE"):
            parse_assignments([wrong])


# One notebook


def test_a_chapter_of_a_paper_is_called_by_its_folder_and_made_there(checkout: Path):
    for paper in ("one", "two"):
        write(checkout / f"notebooks/fl_papers/{paper}/replication.ipynb", f"print('{paper}')", parameters=None)
    for name in ("two/replication", "two_replication", "fl_papers/two/replication.ipynb"):
        made = regenerate(name, root=checkout, echo=lambda line: None)
        assert made == checkout / "_build/pages/two/replication.ipynb"
    assert printed(made) == "two\n"
    with pytest.raises(BookError, match=r"ambiguous notebook 'replication'.*one/replication, .*two/replication"):
        find_notebook("replication", checkout)
    assert "fl-core regenerate two/replication\n" in run_box("notebooks/fl_papers/two/replication.ipynb", {}, {})


def test_regenerate_runs_with_the_parameters(checkout: Path):
    source = (checkout / "notebooks/1_part/good.ipynb").read_bytes()
    made = regenerate("good", {"PROFILE": "laptop", "ALPHA": 1}, root=checkout, echo=lambda line: None)
    assert printed(made) == "laptop 1\n"
    assert made.name.startswith("good_alpha-1-profile-laptop_")
    assert made.name != f"{file_name('good', {'PROFILE': 'laptop', 'ALPHA': 2})}.ipynb"
    assert (checkout / "notebooks/1_part/good.ipynb").read_bytes() == source


def test_a_failing_cell_is_named_and_nothing_is_written(checkout: Path):
    write(checkout / "notebooks/1_part/good.ipynb", "x = 1", "def f():\n    return 1 / 0\nf()")
    output = checkout / "out.ipynb"
    output.write_text("the previous result")
    before = left_behind(checkout)
    message = r"notebooks/1_part/good.ipynb, code cell 3: ZeroDivisionError: division by zero$"
    with pytest.raises(BookError, match=message):
        regenerate("good", {"ALPHA": 0.1}, output, root=checkout)
    assert output.read_text() == "the previous result"
    assert left_behind(checkout) == before


def test_the_source_is_never_overwritten(checkout: Path):
    source = find_notebook("good", checkout)
    with pytest.raises(BookError, match="is the source itself"):
        regenerate("good", {}, source, root=checkout)
    with pytest.raises(BookError, match="must be a notebook"):
        regenerate("good", {}, checkout / "out.html", root=checkout)


def test_figures_survive_a_foreign_backend(checkout: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MPLBACKEND", "agg")
    code = "import matplotlib.pyplot as plt\nfig, ax = plt.subplots(figsize=(1, 1))\nplt.show()"
    write(checkout / "notebooks/1_part/other.ipynb", code, parameters=None)
    made = regenerate("other", {}, root=checkout, echo=lambda line: None)
    cells = nbformat.read(made, 4).cells
    drawn = [out.get("data", {}).get("image/svg+xml", "") for cell in cells for out in cell.get("outputs", [])]
    assert any("<text" in svg for svg in drawn)
    assert os.environ["MPLBACKEND"] == "agg"


# All of them


def test_staging_executes_dresses_and_records(checkout: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FL_CORE_RESULTS", str(checkout / "results"))  # not all published records
    lines: list[str] = []
    src = build_book("laptop", jobs=2, html=False, root=checkout, echo=lines.append)
    assert printed(src / "notebooks/1_part/good.ipynb") == "laptop 0.6\n"
    assert "Run this page" in (src / "notebooks/1_part/other.ipynb").read_text()
    assert (src / "notebooks/1_part/text.md").read_text() == "# Text\n"
    made = {f"{page}.md" for page in ("build", "cli", "equations", "errata", "promises", "records")}
    assert {p.name for p in (src / "book/generated").iterdir()} == made | {"provenance.json"}
    assert "fl_core.formulas.staleness" in (src / "book/api/formulas.md").read_text()
    assert [line[:5] for line in lines[:2]] == ["[1/2]", "[2/2]"]
    assert (src.parent / "timings.json").is_file()


def test_what_took_long_last_time_begins_first(checkout: Path):
    names = ["notebooks/1_part/good.ipynb", "notebooks/1_part/other.ipynb"]
    assert longest_first(names, checkout, "smoke") == names, "the larger file, as nothing else is known"
    record = checkout / "_build/smoke/timings.json"
    record.parent.mkdir(parents=True)
    record.write_text(f'{{"profile": "smoke", "seconds": {{"{names[0]}": 1.5, "{names[1]}": 20}}}}')
    assert longest_first(names, checkout, "smoke") == names[::-1]


@pytest.mark.parametrize("deaths", [2, 3])
def test_a_kernel_whose_port_was_taken_is_started_again(tmp_path: Path, monkeypatch, deaths: int):
    """Two kernels that started at the same time had chosen the same port: one died, and the book with it."""
    starts = []

    def execute(source: str, target: str, **_) -> None:
        starts.append(source)
        if len(starts) <= deaths:
            raise RuntimeError("Kernel died before replying to kernel_info")
        shutil.copy(source, target)

    monkeypatch.setattr("papermill.execute_notebook", execute)
    write(tmp_path / "a.ipynb", "1")
    with nullcontext() if deaths < STARTS else pytest.raises(BookError, match=r"a: RuntimeError: Kernel died before"):
        run_notebook(Job("a", tmp_path / "a.ipynb", tmp_path / "b.ipynb"), tmp_path)
    assert (tmp_path / "b.ipynb").exists() == (deaths < STARTS)
    assert len(starts) == STARTS


def test_a_failing_notebook_leaves_the_previous_book(checkout: Path):
    write(checkout / "notebooks/1_part/good.ipynb", "raise ValueError('alpha must lie in (0, 1),\\ngot 2')")
    previous = checkout / "_build/smoke/html/index.html"
    previous.parent.mkdir(parents=True)
    previous.write_text("previous")
    before = left_behind(checkout)
    message = r"good.ipynb, code cell 2: ValueError: alpha must lie in \(0, 1\), got 2$"
    with pytest.raises(BookError, match=message):
        build_book("smoke", jobs=1, html=False, root=checkout, echo=lambda line: None)
    assert left_behind(checkout) == before


def test_wrong_requests_are_refused_before_anything_runs(checkout: Path):
    with pytest.raises(SpecError, match=r"unknown profile 'smokey'; did you mean 'smoke'\?"):
        build_book("smokey", root=checkout)
    with pytest.raises(BookError, match="jobs = 0 must be between 1 and 1024"):
        build_book("smoke", jobs=0, root=checkout)
    (checkout / "notebooks/1_part/other.ipynb").unlink()
    with pytest.raises(BookError, match=r"names notebooks/1_part/other.ipynb, which does not exist"):
        build_book("smoke", root=checkout)
    assert not (checkout / "_build").exists()


# Pages


def test_the_run_box_lists_every_parameter_and_exact_commands(checkout: Path):
    notebook = find_notebook("good", checkout)
    box = run_box("notebooks/1_part/good.ipynb", parameters_of(notebook), {"PROFILE": "smoke"})
    assert "papermill notebooks/1_part/good.ipynb out.ipynb \\\n    -p PROFILE laptop \\\n" in box
    assert "-y 'SEEDS: [0, 1]'" in box
    assert "fl-core regenerate good -p PROFILE=laptop" in box
    for row in ("| `SEEDS` | `[0, 1]` | one run each |", "| `ALPHA` | `0.6` |  |", "made with `PROFILE = 'smoke'`"):
        assert row in box


def test_the_box_follows_the_title_and_machinery_is_hidden():
    injected = new_code_cell("PROFILE = 'paper'", metadata={"tags": ["injected-parameters"], "papermill": {}})
    nb = new_notebook(cells=[new_markdown_cell("(label)=\n# Title"), injected], metadata={"papermill": {}})
    dress(nb, "notebooks/x.ipynb", {}, {})
    assert nb.cells[1].source.startswith("````{admonition} Run this page")
    assert nb.cells[2].metadata == {"tags": ["injected-parameters", "remove-cell"]}
    assert "papermill" not in nb.metadata
    with pytest.raises(BookError, match="has no title"):
        dress(new_notebook(cells=[new_markdown_cell("Text")]), "notebooks/x.ipynb", {}, {})


def test_what_was_found_comes_before_box_and_contents():
    cells = [new_markdown_cell("# Title\n\nWhy. You will see\n\n- much."), new_code_cell('front("A", "a")')]
    nb = new_notebook(cells=[*cells, new_code_cell("PROFILE"), new_markdown_cell("## Next")])
    dress(nb, "notebooks/x.ipynb", {}, {})
    starts = [cell.source.split("\n")[0] for cell in nb.cells]
    box = "````{admonition} Run this page"
    assert starts == ["# Title", 'front("A", "a")', box, "You will see", "PROFILE", "## Next"]


def dressed(outputs: list[dict[str, str]], mystnb: dict[str, object] | None = None) -> list[nbformat.NotebookNode]:
    cell = new_code_cell("show()", metadata={"mystnb": mystnb or {}})
    cell.outputs = [new_output("display_data", data) for data in outputs]
    nb = new_notebook(cells=[new_markdown_cell("# Title"), cell])
    dress(nb, "notebooks/x.ipynb", {}, {})
    nbformat.validate(nb)
    return nb.cells[2:]


DRAWN = '<svg width="72pt"><path fill="#ffffff"/><text style="fill: #ffffff">a</text><path stroke="#000000"/></svg>'
SAID = {"text/markdown": "real data, seeds 0 and 1"}


def test_what_a_figure_cell_says_moves_below_the_figure():
    figure, below = dressed([{"image/svg+xml": DRAWN}, SAID], {"figure": {"name": "fig:one", "caption": "One."}})
    assert below.outputs[0].data == SAID
    assert (below.metadata.tags, "figure" in below.metadata.mystnb) == (["remove-input"], False)
    shown = figure.outputs[0].data["text/html"]
    assert 'aria-label="One."' in shown
    assert shown.count("currentColor") == 2  # the words, and what is black
    assert shown.count("#ffffff") == 1  # words on a dark ground


def test_each_picture_of_a_cell_is_a_figure_with_what_is_said_below_it():
    cells = dressed([{"text/html": "<table>"}, {"image/svg+xml": DRAWN}, SAID, {"image/svg+xml": DRAWN}, SAID])
    captions = [cell.metadata.mystnb.get("figure", {}).get("caption") for cell in cells]
    assert captions == [None, SAID["text/markdown"], SAID["text/markdown"]]
    assert cells[1].metadata.mystnb.code_prompt_show == f"Show: {SAID['text/markdown']}"


def test_a_table_has_the_caption_in_the_metadata_of_its_cell():
    [cell] = dressed([{"text/html": "<table border=1><tr></tr></table>"}], {"tables": ["Of `x` & y"]})
    assert "<table border=1><caption>Of <code>x</code> &amp; y</caption>" in cell.outputs[0].data["text/html"]


def test_what_was_printed_in_several_goes_is_one_block_and_nothing_is_none():
    def printed(text: str, name: str = "stdout") -> nbformat.NotebookNode:
        return new_output("stream", name=name, text=text)

    cell, blank = new_code_cell("print()"), new_code_cell("print()")
    table = new_output("display_data", {"text/plain": "a table"})
    cell.outputs = [
        printed("one\n"), printed("\n"), printed("two\n"), printed("care\n", "stderr"), printed("three\n"), table,
        printed("four\n"),
    ]  # fmt: skip
    blank.outputs = [printed(" \n"), printed("\n")]
    nb = new_notebook(cells=[new_markdown_cell("# Title"), cell, blank])
    dress(nb, "notebooks/x.ipynb", {}, {})
    shown, nothing = nb.cells[2:]
    texts = [(out.name, out.text) if out.output_type == "stream" else "a table" for out in shown.outputs]
    assert texts == [
        ("stdout", "one\n\ntwo\n"), ("stderr", "care\n"), ("stdout", "three\n"), "a table", ("stdout", "four\n"),
    ]  # fmt: skip
    assert nothing.outputs == []
    nbformat.validate(nb)


def test_the_reference_covers_every_public_module():
    rooms = modules(ROOT / "fl_core")
    found = {name for inside in rooms.values() for name in inside}
    assert {"fl_core", "fl_core.formulas.staleness", "fl_core.bookbuild.pipeline"} <= found
    assert not any("._" in name for name in found)
    assert "fl_core.runtime.simulation" in rooms["runtime"]
    assert "cli" not in rooms, "the commands have a page of their own"
