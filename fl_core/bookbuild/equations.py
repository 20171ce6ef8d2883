"""The equation index: which function computes an equation, which place derives it, which tests name the function.

Which equations there are stands once, in ``equations.csv`` of each paper's folder, and in the book's for the methods
that all papers compare with (BL-n). Which function computes one is read in the docstrings, in their own words:
``FA-2``, ``Eq. 5``, ``Eqs. 7 and 8``, ``(12)``, ``(L-b)``, ``Lemma 1``. A bare number belongs to the paper of the
module, or to the one named before it ("FedLuck's Eq. 6").
"""

from __future__ import annotations

import ast
import csv
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fl_core.report.tables import page_table

PREFIXED = re.compile(r"\b[A-Z]{1,2}-(?:\d+(?:\.\d+)?[a-d]?|[a-h])\b")
LISTED = re.compile(
    r"(?:(?P<paper>[\w-]+?)(?:'s|,)? )?"
    r"(?:(?P<kind>Eq|Theorem|Lemma|Corollary)s?\.? (?P<list>\d+(?:(?:, | and | to )\d+)*)"
    r"|(?<![\w)\]^])\((?P<bare>(?:\d{1,2}|C\d)(?:, (?:\d{1,2}|C\d))*)\))"
)
ROOMS = ("formulas", "algorithms", "theory")
"""Where the function that a reader looks for more probably is comes first."""
ROLES = {"eq": "{eq}", "sec": "{ref}", "thm": "{prf:ref}", "alg": "{prf:ref}"}
SHOWN = 3
Function = tuple[int, bool, int, str, str]
"""Room, whether inside a class, how many equations its docstring cites; module and name: the first is meant most."""


@dataclass
class Equation:
    """A row of a list, with the equation's place in the derivation or why it has no function; and what is found."""

    number: str
    what: str
    place: str
    no_function: str
    functions: list[str] = field(default_factory=list)
    cells: list[str] = field(default_factory=list)
    tests: list[str] = field(default_factory=list)


def index(root: Path) -> dict[str, list[Equation]]:
    """Return what is found about each equation, by paper; the book's own list is that of the baselines."""
    lists = {path.parent.name: path for path in sorted(root.glob("notebooks/*/*/equations.csv"))}
    cited, tests = _cited(root, set(lists)), _tests(root / "tests")
    found = {}
    lists |= {path.parent.name: path for path in root.glob("book/equations.csv")}
    for paper, path in lists.items():
        cells = _cells(path.with_name("derivation.ipynb"))
        with path.open(encoding="utf-8", newline="") as file:
            found[paper] = [Equation(a, b, c, d) for a, b, c, d in list(csv.reader(file))[1:]]
        for row in found[paper]:
            number = row.number if PREFIXED.fullmatch(row.number) else f"{paper} {row.number}"
            functions = [] if row.no_function else sorted(cited[number])
            row.functions = [f"{module}.{name}" for *_, module, name in functions]
            heads = [(f"{module}.", name.partition(".")[0]) for *_, module, name in functions]
            row.cells = [cell for cell, words in cells if {head for _, head in heads} & words]
            named = [t for module, head in heads for origin, t in tests[head] if module.startswith(f"{origin}.")]
            row.tests = list(dict.fromkeys(named))
    return found


def markdown(root: Path) -> str:
    """Return the index as Markdown, a section for each paper."""
    text = []
    for paper, rows in index(root).items():
        page = next(root.glob(f"notebooks/*/{paper}/readings.md"), None)
        title = re.search(r"^# (.*?)(?::|$)", page.read_text(encoding="utf-8"), re.MULTILINE) if page else None
        name = title[1] if title else "What all papers compare with"
        cells = []
        for row in rows:
            place = [f"{ROLES[re.split('[:-]', row.place)[0]]}`{row.place}`"] if row.place else []
            functions = [f"`{name.partition('.')[2]}`" for name in row.functions[:SHOWN]] or [row.no_function]
            derivation = place + [f"`{cell}`" for cell in row.cells[:SHOWN]]
            columns = functions, derivation, [f"`{test}`" for test in row.tests[:SHOWN]]
            cells.append((row.number, row.what, *map("<br>".join, columns)))
        head = ["number", "what", "function", "derivation", "test"]
        text += [f"## {name}", "", page_table(f"Equations of {name}" if title else "Other equations", head, cells)]
    return "\n".join(text)


def _cited(root: Path, papers: set[str]) -> defaultdict[str, list[Function]]:
    """Return the functions whose docstrings cite an equation; a bare number has its paper before it."""
    cited: defaultdict[str, list[Function]] = defaultdict(list)
    for path in [*root.glob("fl_core/**/*.py"), *root.glob("notebooks/*/*/*.py")]:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        own = {path.stem, path.parent.name} & papers
        if not own and path.parent.name in ROOMS:
            own = _papers_named(ast.get_docstring(tree) or "") & papers
        parts = [part for part in path.relative_to(root).with_suffix("").parts if part != "notebooks"]
        room = min((ROOMS.index(part) for part in parts if part in ROOMS), default=len(ROOMS))
        for name, doc in _docstrings(tree):
            numbers = set(citations(doc, min(own) if len(own) == 1 else "", papers))
            for number in numbers:
                cited[number].append((room, "." in name, len(numbers), ".".join(parts), name))
    return cited


def citations(text: str, own: str, papers: set[str]) -> Iterator[str]:
    """Yield the equations that a docstring cites: as they are with a prefix, else behind their paper, first `own`."""
    yield from PREFIXED.findall(text)
    for match in LISTED.finditer(text):
        paper = min(_papers_named(match["paper"] or "") & papers, default=own)
        kind = f"{match['kind']} " if match["kind"] not in (None, "Eq") else ""
        for part in re.split(r", | and ", match["list"] or match["bare"]):
            first, _, last = part.partition(" to ")
            yield from (f"{paper} {kind}{n}" for n in (range(int(first), int(last) + 1) if last else [first]))


def _papers_named(text: str) -> set[str]:
    return {word.replace("-", "").lower() for word in re.findall(r"[\w-]+", text)}


def _docstrings(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield name and docstring of public functions, classes, methods and fields."""
    body = getattr(tree, "body", [])
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            yield prefix + node.name, ast.get_docstring(node) or ""
            yield from _docstrings(node, f"{node.name}.") if isinstance(node, ast.ClassDef) else ()
        elif prefix and isinstance(node, ast.AnnAssign) and isinstance(after, ast.Expr):
            yield prefix + ast.unparse(node.target), ast.literal_eval(after.value)


def _cells(notebook: Path) -> list[tuple[str, set[str]]]:
    """Return the code cells of a notebook with the names that they use; to import a name is not to use it."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"] if notebook.is_file() else []
    code = [(cell["id"], ast.parse("".join(cell["source"]))) for cell in cells if cell["cell_type"] == "code"]
    return [(name, {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}) for name, tree in code]


def _tests(folder: Path) -> defaultdict[str, list[tuple[str, str]]]:
    """Return by name from where tests import it and which tests use it, those first that use least else."""
    tests = {test: used for path in sorted(folder.rglob("test_*.py")) for test, used in _tests_of(path, folder)}
    found: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    for test in sorted(tests, key=lambda test: len(tests[test])):
        for module, name in tests[test]:
            found[name].append((module, test))
    return found


def _tests_of(path: Path, folder: Path) -> Iterator[tuple[str, set[tuple[str, str]]]]:
    """Yield each test of a file with the modules and names that it uses, also through what else the file defines."""
    source = path.read_text(encoding="utf-8")
    tree, lines = ast.parse(source), source.splitlines()
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    imported = {name.asname or name.name: (node.module or "", name.name) for node in imports for name in node.names}
    words = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Assign):
            first = min(part.lineno for part in [node, *getattr(node, "decorator_list", ())])
            name = ast.unparse(node.targets[0]) if isinstance(node, ast.Assign) else node.name
            words[name] = set(re.findall(r"(\w+)(?:\.(\w+))?", "\n".join(lines[first - 1 : node.end_lineno])))
    for test in (name for name in words if name.startswith("test")):
        known: list[str] = [test]
        used: set[tuple[str, str]] = set()
        for name in known:  # which grows
            known += {head for head, _ in words[name]} & set(words) - set(known)
            for head, tail in words[name]:
                if head in imported:
                    used |= {imported[head], (".".join(imported[head]), tail)}
        yield f"{path.relative_to(folder)}::{test}", used
