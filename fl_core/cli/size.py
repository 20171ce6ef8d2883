"""How large the rooms of the package are, and its core: ``fl-core doctor --size``."""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
CORE = ("runtime", "world", "models", "tasks", "formulas", "algorithms")
"""The rooms that somebody needs who writes, simulates and compares methods."""
SILENT = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
    tokenize.ENCODING,
}  # fmt: skip


def modules(room: str) -> list[Path]:
    """Return the modules of a room of the package."""
    return sorted((PACKAGE / room).rglob("*.py"))


def code_lines(source: str) -> int:
    """Return the lines of `source` that hold code: no docstrings, comments, blank lines and imports."""
    silent: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom) or (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        ):
            silent.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    spoken: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in SILENT:
            spoken.update(range(token.start[0], token.end[0] + 1))
    return len(spoken - silent)


def core_lines() -> int:
    """Return the lines of code of the core."""
    return sum(code_lines(path.read_text(encoding="utf-8")) for room in CORE for path in modules(room))


def table() -> str:
    """Return files, lines and lines of code of each room, and of the core, as text."""
    rooms = sorted(path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file())
    rows = [f"{'room':<14}{'files':>6}{'lines':>9}{'of code':>9}"]
    for room in [*CORE, *(room for room in rooms if room not in CORE)]:
        sources = [path.read_text(encoding="utf-8") for path in modules(room)]
        lines, code = sum(len(text.splitlines()) for text in sources), sum(map(code_lines, sources))
        rows.append(f"{room:<14}{len(sources):>6}{lines:>9,}{code:>9,}")
    core = f"{core_lines():,} lines of code, without docstrings, comments, blank lines and imports"
    return "\n".join([*rows, "", f"{', '.join(CORE[:-1])} and {CORE[-1]}: {core}"])
