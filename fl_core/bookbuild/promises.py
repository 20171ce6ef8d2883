"""What this project promises, which tests hold it to that, and their figures, read in the tests themselves."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

RUNTIME, CLI, WORK = "tests/runtime/", "tests/cli/", "tests/experiments/test_worker.py::"
HOSTILE = f"{RUNTIME}test_hostile_programs.py::"


@dataclass(frozen=True)
class Promise:
    """A sentence, the tests that would fail if it were not true, and what counts how often they try."""

    sentence: str
    tests: tuple[str, ...]
    """``file::function``."""
    figures: tuple[tuple[str, str], ...] = ()
    """Words, and ``file::NAME`` of a constant, or of a table whose rows are counted."""


PROMISES = (
    Promise(
        "The same specification gives the same bits, with any number of threads and in any process.",
        (f"{RUNTIME}test_simulation.py::test_same_seed_same_history_bit_for_bit_with_any_number_of_threads",
         f"{RUNTIME}test_simulation.py::test_same_seed_same_history_in_another_process"),
        (("specifications", f"{RUNTIME}test_simulation.py::SPECS"),),
    ),
    Promise(
        "A redesign changes no number: runs, grids and checkpoints of every algorithm are those of before.",
        ("tests/frozen/test_frozen.py::test_a_run_gives_the_numbers_that_it_gave",),
        (("algorithms", "tests/frozen/freeze.py::ALGORITHMS"),),
    ),
    Promise(
        "A run that is killed and resumed ends bit for bit as one that was left alone.",
        (f"{RUNTIME}test_checkpoint.py::test_a_run_may_be_killed_and_resumed_again_and_again_with_any_executor",
         f"{CLI}test_resume.py::test_killed_runs_end_bit_for_bit_as_runs_that_were_left_alone"),
    ),
    Promise(
        "Workers that share a queue finish each run once, whatever is killed when.",
        (f"{WORK}test_killed_workers_lose_no_run_and_change_no_bit",),
        (("kills", f"{WORK}KILLS"), ("runs", f"{WORK}RUNS"), ("workers", f"{WORK}WORKERS")),
    ),
    Promise(
        "A run that cannot reach its budget ends, with a line that says why.",
        (f"{HOSTILE}test_a_run_that_cannot_end_says_why",
         f"{HOSTILE}test_a_program_that_gets_on_slowly_is_left_alone"),
        (("programs", f"{HOSTILE}ENDLESS"),),
    ),
    Promise(
        "A program that fails is answered with one line that names it, the time and the cause.",
        (f"{HOSTILE}test_a_program_that_fails_is_answered_with_one_line",),
        (("programs", f"{HOSTILE}FAILING"),),
    ),
    Promise(
        "The executor `debug` names who breaks a rule, and changes no bit of a run that keeps them.",
        (f"{HOSTILE}test_a_program_that_breaks_a_rule_is_named_by_the_sanitizer",
         f"{HOSTILE}test_the_sanitizer_changes_no_bit"),
        (("forbidden", f"{HOSTILE}FORBIDDEN"), ("honest programs", f"{HOSTILE}HONEST")),
    ),
    Promise(
        "Ctrl-C, SIGTERM and SIGHUP end every command soon, with one line; no process outlives its parent.",
        (f"{CLI}test_interrupts.py::test_a_command_ends_soon_with_one_line_and_leaves_nobody_behind",),
        (("cases with real processes", f"{CLI}test_interrupts.py::ENDS"),),
    ),
    Promise(
        "What cannot be written is found before the run, and what is finished is not lost.",
        (f"{CLI}test_outputs.py::test_a_store_that_takes_nothing_is_found_before_the_run",
         f"{CLI}test_outputs.py::test_a_result_that_cannot_be_saved_is_kept_elsewhere_and_the_file_is_named"),
        (("commands", f"{CLI}test_outputs.py::COMMANDS"),),
    ),
    Promise(
        "An edited algorithm never gets an old number.",
        ("tests/experiments/test_identity.py::"
         "test_an_algorithm_of_ones_own_that_has_changed_loses_its_stored_results_and_its_checkpoint",),
    ),
)  # fmt: skip


def markdown(root: Path) -> str:
    """Return the table: promise, tests, figures."""
    text = ["| promise | tests | figures |", "| --- | --- | --- |"]
    for promise in PROMISES:
        tests = "<br>".join(f"`{name.removeprefix('tests/')}`" for name in promise.tests)
        figures = "<br>".join(f"{figure(root, place)} {words}" for words, place in promise.figures)
        text.append(f"| {promise.sentence} | {tests} | {figures} |")
    return "\n".join([*text, ""])


def figure(root: Path, place: str) -> str:
    """Return a constant of a test's file, or how many rows a table there has, whatever they are made of."""
    path, name = place.split("::")
    if not (root / path).is_file():
        return "?"
    for node in ast.parse((root / path).read_text(encoding="utf-8")).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        value = getattr(node, "value", None)
        if not any(isinstance(target, ast.Name) and target.id == name for target in targets):
            continue
        if isinstance(value, ast.Constant) and isinstance(value.value, int):
            return f"{value.value:,}"
        rows = value.keys if isinstance(value, ast.Dict) else getattr(value, "elts", [])
        at_least = "at least " if any(isinstance(row, ast.Starred) for row in rows) else ""
        return f"{at_least}{len(rows)}"
    raise LookupError(f"{path} has no {name}")


def missing(root: Path) -> list[str]:
    """Return the tests that a promise names and that do not exist."""
    wanted = [test for promise in PROMISES for test in promise.tests]
    return [test for test in wanted if not _exists(root, *test.split("::"))]


def _exists(root: Path, path: str, name: str) -> bool:
    if not (root / path).is_file():
        return False
    functions = [node.name for node in ast.parse((root / path).read_text(encoding="utf-8")).body
                 if isinstance(node, ast.FunctionDef)]  # fmt: skip
    return name in functions
