"""The plan of the house: which room may know which, how large each may be, and that a paper is a folder.

``python tests/test_house.py`` prints what the rooms measure now.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from fl_core.algorithms import ALGORITHMS
from fl_core.cli.doctor import CORE, core_lines
from fl_core.experiments.artifacts import artifacts, make_study
from fl_core.experiments.claims import judge
from fl_core.experiments.store import Store
from fl_core.experiments.study import load_study
from fl_core.report.figures import draw

ROOT = Path(__file__).resolve().parent.parent
PAPERS = ROOT / "notebooks" / "fl_papers"

ROOMS = {
    # room or rooms: lines and files that it may have today; those of its budget, below which the first never fall
    "runtime": (4396, 12, 3500, 12),
    "world": (1787, 9, 1450, 9),
    "models tasks": (1564, 10, 1450, 10),
    "formulas": (2700, 10, 2700, 10),
    "algorithms": (2800, 24, 2800, 24),
    "datasets": (3819, 22, 3600, 22),
    "experiments": (6409, 24, 2400, 12),
    "report bookbuild cli": (5634, 29, 4000, 26),
    "benchmarks": (1614, 5, 1200, 6),
    "fl_core": (31243, 152, 21500, 135),
    "fl_papers": (13564, 42, 11000, 35),
    "tests": (28959, 1000, 20000, 1000),
}
"""A ratchet: whoever makes a room smaller lowers its numbers, and raises them only with a reason in the commit."""

CORE_LINES = (7316, 6500)
"""Lines of code of what a user needs who writes, simulates and compares methods: today's, and the budget."""

FLOORS = {
    "formulas": 0, "models": 0, "tasks": 0, "datasets": 0, "world": 0, "runtime": 1, "algorithms": 2,
    "experiments": 3, "report": 4, "bookbuild": 5, "cli": 5, "benchmarks": 5,
}  # fmt: skip
"""Single modules beside the rooms (errors, streams, ...) are for all; they import no room."""


def sources(room: str) -> list[Path]:
    """Return the modules of a room, of several, or of a package."""
    folders = {"fl_core": [ROOT / "fl_core"], "fl_papers": [PAPERS], "tests": [ROOT / "tests"]}
    return [
        path
        for folder in folders.get(room, [ROOT / "fl_core" / name for name in room.split()])
        for path in sorted(folder.rglob("*.py"))
    ]


def measured(room: str) -> tuple[int, int]:
    """Return lines and files."""
    paths = sources(room)
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths), len(paths)


def imports(path: Path, types: bool = True) -> Iterator[str]:
    """Yield the modules that a file imports anywhere; without `types` not those that only type checkers read."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    guarded = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if not types and id(node) in guarded:
            continue
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            yield node.module or ""
            yield from (f"{node.module}.{name.name}" for name in node.names)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_keeps_to_its_budget_or_shrinks_towards_it(room: str):
    lines, files, budget_lines, budget_files = ROOMS[room]
    found_lines, found_files = measured(room)
    assert found_lines <= max(lines, budget_lines), f"{room} has {found_lines} lines (budget {budget_lines})"
    assert found_files <= max(files, budget_files), f"{room} has {found_files} files (budget {budget_files})"


def test_what_a_user_needs_is_small():
    assert core_lines() <= max(CORE_LINES), f"{', '.join(CORE)}: {core_lines()} lines of code"


def test_no_file_of_the_core_knows_the_papers():
    for path in sources("fl_core"):
        assert not [name for name in imports(path) if name.split(".")[0] == "fl_papers"], path


def test_papers_know_the_core_and_themselves_only():
    """So that a folder can be deleted, and the rest still stands."""
    for path in sources("fl_papers"):
        own = path.relative_to(PAPERS).parts[0]
        others = [name for name in imports(path) if name.startswith("fl_papers.") and name.split(".")[1] != own]
        assert not others, f"{path} imports {others[0]}"


def test_imports_go_down_only():
    assert FLOORS.keys() == {path.parent.name for path in (ROOT / "fl_core").glob("*/__init__.py")}
    for path in sources("fl_core"):
        place = path.relative_to(ROOT / "fl_core").parts
        floor = FLOORS[place[0]] if len(place) > 1 else -1
        for name in imports(path, types=False):
            room = name.split(".")[1] if name.startswith("fl_core.") else ""
            assert FLOORS.get(room, -1) <= floor, f"{path} imports {name}"


def test_formulas_know_nobody():
    for path in sources("formulas"):
        rooms = {name.split(".")[1] for name in imports(path) if name.startswith("fl_core.")}
        assert not rooms & (FLOORS.keys() - {"formulas"}), path


def test_algorithms_see_the_public_face_of_the_runtime_and_never_the_event_queue():
    kernel = vars(importlib.import_module("fl_core.runtime.kernel"))
    inner = {name for name, value in kernel.items() if getattr(value, "__module__", "") == "fl_core.runtime.kernel"}
    of_tuples = {"_asdict", "_fields", "_replace"}
    for path in sources("algorithms"):
        for name in imports(path):
            room, _, what = name.removeprefix("fl_core.").partition(".")
            module = what if room == "runtime" else ""
            assert module not in inner, f"{path} imports {name}"
            assert not (ROOT / "fl_core/runtime" / f"{module}.py").is_file(), f"{path} imports {name}"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) not in ("self", "cls"):
                private = node.attr.startswith("_") and not node.attr.startswith("__") and node.attr not in of_tuples
                assert not private, f"{path}: {ast.unparse(node)} is private"
                assert node.attr not in ("kernel", "timers"), f"{path}: {ast.unparse(node)}"


def test_the_runtime_names_no_algorithm():
    names = {name for name, kind in ALGORITHMS.items() if kind.__module__.startswith("fl_core.")}
    classes = {ALGORITHMS[name].__name__ for name in names}
    for path in sources("runtime"):
        assert not [name for name in imports(path, types=False) if name.startswith("fl_core.algorithms")], path
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant):
                assert node.value not in names | classes, f"{path}: {node.value!r}"
            elif isinstance(node, ast.Name | ast.Attribute):
                assert (node.id if isinstance(node, ast.Name) else node.attr) not in classes, f"{path}: {node}"


TINY = {
    "__init__.py": '"""Papers of somebody else."""',
    "tiny/__init__.py": '"""A paper: two learning rates on one federation."""',
    "tiny/artifacts.py": '''
"""Its figure."""
from fl_core.experiments.artifacts import Artifact, Columns
from fl_core.experiments.spec import RunSpec
from fl_core.experiments.study import Entry
import pandas as pd

def grid(profile, dataset, seeds):
    spec = RunSpec(
        dataset=dataset, model="linear", algorithm={"name": "fedasync", "concurrency": 2},
        world={"devices": 4}, partition="iid(samples_per_device=40)", training={"steps": 1, "batch_size": 20},
        budget={"updates": 3}, evaluation={"every_updates": None, "test_samples": 100},
    )
    return [
        Entry(spec.changed(**{"training.lr": lr, "seed": seed}), {"lr": lr, "seed": seed})
        for lr in (0.01, 0.1) for seed in seeds or (0, 1)
    ]

def frame(study):
    return pd.DataFrame(
        {**entry.labels, "versions": result.history.evaluations["version"][-1]} for entry, result in study.select()
    )

ARTIFACTS = [Artifact(
    id="tiny-tab1", title="Versions", reference="Table 1", description="All make three.", notebook="tiny.ipynb",
    reduce=frame, view=Columns({"lr": "learning rate"}), make_grid=grid, claims=("TINY-C01",),
)]
''',
    "tiny/claims.py": '''
"""What it says."""
from fl_core.experiments.claims import Check, make_claim

def three(study):
    versions = [result.history.evaluations["version"][-1] for _, result in study.select()]
    return [Check("versions", versions == [3] * len(versions) if versions else None, f"{versions}")]

CLAIMS = [make_claim("TINY", "C01", "Section 1", "Every run makes three versions.", "versions", three, "system")]
''',
}


def test_a_new_paper_is_a_new_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Its package is named by an entry point; nothing else knows of it."""
    from fl_core.experiments.claims import CLAIMS
    from fl_core.experiments.grid import execute

    for name, text in TINY.items():
        path = tmp_path / "more_papers" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    declared = tmp_path / "more_papers-1.0.dist-info"
    declared.mkdir()
    (declared / "METADATA").write_text("Metadata-Version: 2.1\nName: more-papers\nVersion: 1.0\n")
    (declared / "entry_points.txt").write_text("[fl_core.papers]\nmore_papers = more_papers\n")
    before, registered = artifacts(), importlib.import_module("fl_core.experiments.artifacts").ARTIFACTS
    monkeypatch.syspath_prepend(tmp_path)
    try:
        assert artifacts().keys() - before.keys() == {"tiny-tab1"}
        study, store = (
            make_study(artifacts()["tiny-tab1"], "smoke"),
            Store(tmp_path / "results", tmp_path / "results"),
        )
        execute(study.specs, jobs=1, store=store, progress=False)
        study = load_study(study, store)
        table, caption = draw(artifacts()["tiny-tab1"], study)
        assert list(table.frame["versions"]) == [3] * 4
        assert "Table 1, Versions. fashion-mnist (real data), profile smoke" in caption
        [judgement] = judge(["TINY-C01"], study)
        assert judgement.label == "reproduced"
    finally:
        registered.pop("tiny-tab1", None)
        CLAIMS.pop("TINY-C01", None)


if __name__ == "__main__":
    for room, (lines, files, *budget) in ROOMS.items():
        print(f"{room:<22} {measured(room)} of at most {(lines, files)}, budget {tuple(budget)}")
    print(f"core: {core_lines()} lines of code of at most {CORE_LINES[0]}, budget {CORE_LINES[1]}")
