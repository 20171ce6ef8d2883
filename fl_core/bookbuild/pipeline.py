"""From the checkout to HTML: stage, execute, build strictly, and only then replace the previous book."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from fl_core.bookbuild import chapters as book
from fl_core.bookbuild.chapters import ROOT, BookError, chapter_name, tool
from fl_core.bookbuild.dossiers import print_all
from fl_core.bookbuild.execute import Job, kernel_environment, run_all, run_notebook
from fl_core.bookbuild.pages import dress, write_reference
from fl_core.errors import known
from fl_core.experiments.experiment import PROFILES
from fl_core.experiments.store import check_writable
from fl_core.processes import usable_cores
from fl_core.runtime.executors import MOST_THREADS

SPHINX = """import json, sys
from fl_core.processes import end_with_parent
end_with_parent()
from jupyter_book.sphinx import build_sphinx
sys.exit(build_sphinx(**json.loads(sys.argv[1])) != 0)
"""


SETTING = "FL_CORE_REPOSITORY"
ADDRESS = re.compile(r"(https://(github|gitlab)\.com/[\w.-]+/([\w.-]+?))(?:\.git)?/?(?:(?:/-)?/tree/([\w./-]+))?")


def repository(root: Path = ROOT) -> re.Match[str] | None:
    """Return address, host, name and branch of the repository that pages lead to; None: they lead to none.

    ``FL_CORE_REPOSITORY`` in the environment says it, or else ``Repository`` in the ``project.urls`` of
    pyproject.toml: ``https://github.com/owner/name``, or a branch of it.
    """
    name, given, project = SETTING, os.environ.get(SETTING), root / "pyproject.toml"
    if not given and project.is_file():
        urls = tomllib.loads(project.read_text(encoding="utf-8"))["project"].get("urls", {})
        name, given = "Repository in pyproject.toml", urls.get("Repository")
    found = ADDRESS.fullmatch(given or "")
    if given and found is None:
        raise BookError(f"{name} = {given!r} is not valid: write https://github.com/owner/name, or …/tree/branch")
    return found


def build_book(
    profile: str,
    *,
    jobs: int | None = None,
    html: bool = True,
    echo: Callable[[str], object] = print,
    root: Path = ROOT,
    build: Path | None = None,
) -> Path:
    """Execute every notebook of the book at one profile and build the HTML from the results.

    The committed notebooks stay as they are. Everything is made in a temporary folder that replaces
    ``_build/<profile>`` at the end; after a failure the previous book is still there. With `html` false only the
    executed notebooks are kept.
    """
    known("profile", profile, PROFILES)
    if jobs is not None and not 1 <= jobs <= MOST_THREADS:
        raise BookError(f"jobs = {jobs} must be between 1 and {MOST_THREADS}")
    repository(root)
    names = book.chapters(root)
    final = (build or root / "_build") / profile
    final.parent.mkdir(parents=True, exist_ok=True)
    check_writable(final.parent, "the book")
    with _alone(final), tempfile.TemporaryDirectory(prefix=f".{profile}-", dir=final.parent) as folder:
        work = Path(folder, "new")
        src = work / "src"
        shutil.copytree(root / "book", src / "book", ignore=shutil.ignore_patterns("__pycache__", "_build"))
        with kernel_environment():
            os.environ["TMPDIR"] = folder  # what a kernel leaves that is killed goes with it
            seconds = _execute(names, src, profile, root, jobs, echo)
        for page in book.written_pages(root):
            (src / page).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(root / page, src / page)
        write_reference(src / "book", root / "fl_core", profile, seconds)
        record = {"profile": profile, "seconds": {name: round(value, 2) for name, value in seconds.items()}}
        (work / "timings.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        if html:
            echo("building HTML")
            _sphinx(work, src, root, jobs or usable_cores())
            print_all(work / "html")
        if final.exists():
            final.rename(Path(folder, "old"))
        work.rename(final)
    made = final / ("html" if html else "src")
    echo(f"the book is at {_shown(made / 'index.html' if html else made)}")
    return made


@contextmanager
def _alone(final: Path) -> Iterator[None]:
    """Refuse two builds of the same pages at a time, and clear away what a killed one has left."""
    lock = FileLock(final.with_name(f".{final.name}.lock"))
    try:
        lock.acquire(blocking=False)
    except Timeout:
        raise BookError(f"another process builds {_shown(final)}; wait until it has finished") from None
    with lock:
        for left in final.parent.glob(f".{final.name}-*"):
            shutil.rmtree(left, ignore_errors=True)
        try:
            yield
        finally:
            Path(lock.lock_file).unlink(missing_ok=True)


def regenerate(
    notebook: str,
    parameters: Mapping[str, Any] | None = None,
    output: Path | None = None,
    *,
    echo: Callable[[str], object] = print,
    root: Path = ROOT,
) -> Path:
    """Execute one notebook with other parameters; write `output`, or a file that is named by them.

    The result is written in one step: after a failure the previous one is still there.
    """
    source = book.find_notebook(notebook, root)
    values = dict(parameters or {})
    book.check_parameters(source, values)
    page = chapter_name(source.relative_to(root).as_posix()) if source.is_relative_to(root) else source.stem
    target = (output or root / "_build" / "pages" / f"{book.file_name(page, values)}.ipynb").absolute()
    if target.suffix != ".ipynb":
        raise BookError(f"the output must be a notebook (.ipynb), got {str(output)!r}")
    if target.resolve() == source:
        raise BookError(f"{_shown(source)} is the source itself; give another output")
    if target.exists() and not target.is_file():
        raise BookError(f"{target} is no regular file and is not replaced; give another output")
    check_writable(target.parent, target.name)
    shown = _shown(source)
    seconds = run_notebook(Job(shown, source, target, values), root)
    echo(f"{shown} took {seconds:.1f} s; the result is at {_shown(target)}")
    return target


def _execute(
    names: list[str], src: Path, profile: str, root: Path, jobs: int | None, echo: Callable[[str], object]
) -> dict[str, float]:
    nbformat = tool("nbformat")
    offered = {name: book.parameters_of(root / name) for name in names}
    given = {name: {"PROFILE": profile} if "PROFILE" in offered[name] else {} for name in names}
    work = [Job(name, root / name, src / name, given[name]) for name in longest_first(names, root, profile)]
    seconds = run_all(work, root, jobs, echo)
    for name in names:
        nb = nbformat.read(src / name, 4)
        dress(nb, name, offered[name], given[name])
        nbformat.write(nb, src / name)
    return {name: seconds[name] for name in names}


def longest_first(names: list[str], root: Path, profile: str) -> list[str]:
    """Return notebooks in the order in which to begin them: by what they took last time, else by their size."""
    record = root / "_build" / profile / "timings.json"
    took = json.loads(record.read_text(encoding="utf-8"))["seconds"] if record.is_file() else {}
    return sorted(names, key=lambda name: (took.get(name, 0.0), (root / name).stat().st_size), reverse=True)


def _sphinx(work: Path, src: Path, root: Path, jobs: int) -> None:
    """Have jupyter-book build with Sphinx's own parallelism, any warning being an error; keep the pages in ``html``.

    Its command line knows no number of processes; the function behind it does.
    """
    toc = str(src / "book/_toc.yml")
    options = {
        **{"sourcedir": str(src), "outputdir": str(work / "html"), "doctreedir": str(work / "doctrees")},
        "path_config": str(src / "book/_config.yml"),
        "confoverrides": {"external_toc_path": toc, "nitpicky": True, "latex_individualpages": False},
        **{"noconfig": True, "warningiserror": True, "keep_going": True, "jobs": jobs},
    }
    command = [sys.executable, "-c", SPHINX, json.dumps(options)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "NO_COLOR": "1"})
    if done.returncode != 0:
        raise BookError("the strict HTML build failed:\n" + _complaints(done.stdout + done.stderr, src, root))
    shutil.rmtree(work / "doctrees")


def _complaints(log: str, *folders: Path) -> str:
    plain = re.sub(r"\x1b\[[0-9;]*m", "", log)
    for folder in folders:
        plain = plain.replace(f"{folder}{os.sep}", "")
    lines = [line for line in plain.splitlines() if re.search(r"WARNING|ERROR|[Ee]rror:|Exception", line)]
    return "\n".join(dict.fromkeys(lines)) or plain[-2000:]


def _shown(path: Path) -> str:
    """Return `path` relative to the current folder where it lies inside it."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
