"""From the checkout to HTML: stage, execute, build strictly, and only then replace the previous book."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fl_core.bookbuild.chapters import ROOT, BookError, chapters, check_parameters, find_notebook, parameters_of, tool
from fl_core.bookbuild.execute import Job, run_all, run_notebook
from fl_core.bookbuild.generated import timings, write_all
from fl_core.bookbuild.pages import dress
from fl_core.experiments.profiles import profile as known_profile

SPHINX = ("-W", "-n", "--keep-going")


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
    ``_build/<profile>`` at the end; after a failure the previous book is still there.

    Parameters
    ----------
    profile
        ``smoke``, ``laptop`` or ``paper``.
    jobs
        Notebooks executed at the same time; as many as there are cores when None.
    html
        Whether to build HTML; otherwise only the executed notebooks are kept.
    echo
        Receives each line of progress.
    root
        The checkout.
    build
        The folder that holds one book per profile; ``_build`` in `root` when None.

    Returns
    -------
    Path
        The folder of the HTML pages, or of the staged sources when `html` is false.

    Raises
    ------
    SpecError
        The profile is unknown.
    BookError
        A notebook failed, or the strict build gave a warning.
    """
    known_profile(profile)
    if jobs is not None and jobs < 1:
        raise BookError(f"jobs must be at least 1, got {jobs}")
    names = chapters(root)
    final = (build or root / "_build") / profile
    final.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{profile}-", dir=final.parent) as folder:
        work = Path(folder, "new")
        src = work / "src"
        shutil.copytree(root / "book", src / "book", ignore=shutil.ignore_patterns("__pycache__", "_build"))
        seconds = _execute(names, src, profile, root, jobs, echo)
        write_all(src / "book" / "generated", root / "fl_core", profile, seconds)
        (work / "timings.json").write_text(timings(profile, seconds), encoding="utf-8")
        if html:
            echo("building HTML")
            _sphinx(work, src, root)
        if final.exists():
            final.rename(Path(folder, "old"))
        work.rename(final)
    made = final / ("html" if html else "src")
    echo(f"the book is at {_shown(made / 'index.html' if html else made)}")
    return made


def regenerate(
    notebook: str,
    parameters: Mapping[str, Any] | None = None,
    output: Path | None = None,
    *,
    echo: Callable[[str], object] = print,
    root: Path = ROOT,
) -> Path:
    """Execute one notebook with other parameters.

    Parameters
    ----------
    notebook
        Its name (``fedasync/replication``) or path.
    parameters
        Values by name; the names are those of its ``parameters`` cell.
    output
        The file to write; ``_build/pages/<name>.ipynb`` when None.
    echo
        Receives each line of progress.
    root
        The checkout.

    Returns
    -------
    Path
        The executed notebook, written in one step: after a failure the previous one is still there.

    Raises
    ------
    BookError
        An unknown notebook or parameter, a value of the wrong kind, a failing cell.
    """
    source = find_notebook(notebook, root)
    values = dict(parameters or {})
    check_parameters(source, values)
    target = (output or root / "_build" / "pages" / source.name).absolute()
    if target.suffix != ".ipynb":
        raise BookError(f"the output must be a notebook (.ipynb), got {str(output)!r}")
    if target.resolve() == source:
        raise BookError(f"{_shown(source)} is the source itself; give another output")
    shown = _shown(source)
    seconds = run_notebook(Job(shown, source, target, values), root)
    echo(f"{shown} took {seconds:.1f} s; the result is at {_shown(target)}")
    return target


def _execute(
    names: list[str], src: Path, profile: str, root: Path, jobs: int | None, echo: Callable[[str], object]
) -> dict[str, float]:
    nbformat = tool("nbformat")
    offered = {name: parameters_of(root / name) for name in names}
    given = {name: {"PROFILE": profile} if "PROFILE" in offered[name] else {} for name in names}
    work = [Job(name, root / name, src / name, given[name]) for name in names]
    seconds = run_all(work, root, jobs, echo)
    for job in work:
        nb = nbformat.read(job.target, 4)
        dress(nb, job.name, offered[job.name], given[job.name])
        nbformat.write(nb, job.target)
    return seconds


def _sphinx(work: Path, src: Path, root: Path) -> None:
    """Run jupyter-book, any warning being an error, and keep only its pages, as ``work/html``."""
    command = [sys.executable, "-c", "from jupyter_book.cli.main import main; main()", "build", str(src)]
    command += ["--path-output", str(work), *SPHINX]
    command += ["--config", str(src / "book/_config.yml"), "--toc", str(src / "book/_toc.yml")]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "NO_COLOR": "1"})
    if done.returncode != 0:
        raise BookError("the strict HTML build failed:\n" + _complaints(done.stdout + done.stderr, src, root))
    (work / "_build" / "html").rename(work / "html")
    shutil.rmtree(work / "_build")


def _complaints(log: str, *folders: Path) -> str:
    plain = re.sub(r"\x1b\[[0-9;]*m", "", log)
    for folder in folders:
        plain = plain.replace(f"{folder}{os.sep}", "")
    lines = [line for line in plain.splitlines() if re.search(r"WARNING|ERROR|[Ee]rror:|Exception", line)]
    return "\n".join(dict.fromkeys(lines)) or plain[-2000:]


def _shown(path: Path) -> str:
    """Return `path` relative to the current folder where it lies inside it."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
