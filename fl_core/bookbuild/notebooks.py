"""Keep the committed notebooks small, current and easy to compare.

    python -m fl_core.bookbuild.notebooks refresh [FILE ...]     execute and rewrite
    python -m fl_core.bookbuild.notebooks check [FILE ...]       say which are not in normal form

Without files: every notebook of the repository. Normal form: no metadata but ``tags`` and ``mystnb``; cells
numbered in reading order; outputs only of cells tagged ``nbval-check-output``, and of those only text (all
text forms: nbval fails on a missing one as on a wrong one). Their execution counts are the reading order,
because nbval rejects an output whose cell has none.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

from fl_core.bookbuild.chapters import ROOT, BookError, committed, tool
from fl_core.bookbuild.execute import Job, joined, run_notebook

KEPT = "nbval-check-output"
KERNEL = {"name": "python3", "display_name": "Python 3", "language": "python"}


def normalise(nb: Any) -> Any:
    """Strip from a notebook node, in place, everything that a reviewer should not see change."""
    node = tool("nbformat").from_dict
    nb.metadata = node({"kernelspec": KERNEL, "language_info": {"name": "python"}})
    nb.nbformat, nb.nbformat_minor = 4, 5
    nb.cells = [cell for cell in nb.cells if "injected-parameters" not in cell.metadata.get("tags", [])]
    count = 0
    for number, cell in enumerate(nb.cells):
        cell.id = f"c{number:02d}"
        cell.metadata = node({k: cell.metadata[k] for k in ("tags", "mystnb") if cell.metadata.get(k)})
        if cell.cell_type != "code":
            cell.pop("attachments", None)
            continue
        count += 1
        keep = KEPT in cell.metadata.get("tags", [])
        cell.outputs = joined(_text(out, count) for out in cell.outputs if keep and _is_text(out))
        cell.execution_count = count if keep else None
    return nb


def normal_text(notebook: Path) -> str:
    """Return what the file would hold in normal form."""
    nbformat = tool("nbformat")
    try:
        nb = nbformat.read(notebook, 4)
    except Exception as error:
        raise BookError(f"{notebook} is not a readable notebook: {' '.join(str(error).split())[:200]}") from None
    return str(nbformat.writes(normalise(nb), indent=1)) + "\n"


def refresh(notebook: Path, root: Path = ROOT) -> bool:
    """Execute a notebook with its own parameters, rewrite it in normal form; return whether it changed.

    A failing cell leaves the file as it is.
    """
    with tempfile.TemporaryDirectory(prefix="fl-core-") as folder:
        executed = Path(folder, notebook.name)
        run_notebook(Job(str(notebook), notebook, executed), root)
        after = normal_text(executed)
    changed = after != notebook.read_text(encoding="utf-8")
    if changed:
        notebook.write_text(after, encoding="utf-8")
    return changed


def main(arguments: list[str] | None = None) -> int:
    """Run the command line of this module; return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m fl_core.bookbuild.notebooks", description=__doc__.split("\n")[0])
    parser.add_argument("action", choices=["refresh", "check"])
    parser.add_argument("files", nargs="*", type=Path, help="notebooks; all of the repository when left out")
    args = parser.parse_args(arguments)
    abnormal = 0
    try:
        for path in args.files or committed():
            if args.action == "refresh":
                print(f"{'rewrote' if refresh(path) else 'unchanged'} {path}", flush=True)
            elif normal_text(path) != path.read_text(encoding="utf-8"):
                print(f"not in normal form: {path}")
                abnormal += 1
    except (BookError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if abnormal:
        print("`python -m fl_core.bookbuild.notebooks refresh` rewrites them")
    return 1 if abnormal else 0


def _is_text(out: Any) -> bool:
    return (out.output_type == "stream" and out.name == "stdout") or any(
        k.startswith("text/") for k in out.get("data", {})
    )


def _text(out: Any, count: int) -> Any:
    if "data" in out:
        node = tool("nbformat").from_dict
        out.data = node({k: v for k, v in out.data.items() if k.startswith("text/")})
        out.metadata = node({})
    if "execution_count" in out:
        out.execution_count = count
    return out


if __name__ == "__main__":
    sys.exit(main())
