"""The page on the runtime says what the code does: its examples run, its tables are those of the code."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from commands import invoke

from fl_core.bookbuild.chapters import ROOT
from fl_core.runtime import EXECUTORS
from fl_core.runtime.history import EVALUATION_COLUMNS, FAULT_COLUMNS, OUTCOMES, SPAN_COLUMNS, UPDATE_COLUMNS
from fl_core.world import World, named_worlds
from fl_core.world.faults import FAULTS
from fl_core.world.triggers import TRIGGERS

PAGE = (ROOT / "book" / "runtime.md").read_text(encoding="utf-8")
COLUMNS = {
    "evaluations": EVALUATION_COLUMNS,
    "updates": UPDATE_COLUMNS,
    "spans": SPAN_COLUMNS,
    "faults": FAULT_COLUMNS,
}
COMMANDS = [line for block in re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]


def first_cells(text: str) -> list[str]:
    """Return the names between backticks in the first column of the first table in `text`, in order."""
    rows = re.search(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert rows
    return [name for row in rows[0].splitlines()[2:] for name in re.findall(r"`([\w-]+)", row.split("|")[1])]


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


@pytest.mark.parametrize("table", COLUMNS)
def test_the_page_has_exactly_the_columns_of_a_table(table):
    assert first_cells(PAGE.split(f"\n**`{table}`**")[1]) == list(COLUMNS[table])


@pytest.mark.parametrize(
    ("title", "names"),
    [
        ("Triggers", TRIGGERS),
        ("Faults", FAULTS),
        ("Worlds", set(World.model_fields) - {"devices", "max_staleness"}),
        ("Executors and determinism", EXECUTORS),
        ("What becomes of a task", {*OUTCOMES, "in_flight"} - {"dispatched", "duplicates"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_first_table_of_a_section_names_everything_there_is(title, names):
    assert sorted(first_cells(section(title))) == sorted(names)


def test_every_named_world_has_a_row_and_a_command():
    text = section("Worlds")
    assert first_cells(text.split("have names.")[1]) == list(named_worlds())
    shown = [re.search(r'world="([\w-]+)', command) for command in COMMANDS]
    assert [found[1] for found in shown if found] == list(named_worlds())


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_are_accepted(command):
    program, *words = shlex.split(command)
    assert program == "fl-core"
    done = invoke(*words, *["--print-spec"] * (words[0] == "run"))
    assert done.exit_code == 0, done.output


def test_the_examples_run(tmp_path: Path):
    program = tmp_path / "examples.py"
    program.write_text("\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)), encoding="utf-8")
    command = [sys.executable, "-W", "error", str(program)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "evaluations.csv").read_text().startswith("seconds,version,gradients,")
