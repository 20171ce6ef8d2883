"""``fl-core doctor`` and ``fl-core bench``: what is here, what is missing, how large and how fast it is."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from fl_core import CHECKOUT
from fl_core.cli.app import Force, Json, app, as_text
from fl_core.errors import DataError
from fl_core.processes import usable_cores

ROOT = Path(__file__).resolve().parents[2]
PYTHONS = ((3, 11), (3, 15))
"""First version that works, first that has not been tried."""
EXTRAS = {
    "": "the library",
    "book": "the book (fl-core book, fl-core regenerate NOTEBOOK)",
    "dev": "the tests (make test)",
    "cluster": "grids on a Dask cluster",
}
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
MEMORY = 2 * 2**30
"""Bytes that a run on Fashion-MNIST and its test suite are comfortable with."""


@dataclass(frozen=True)
class Check:
    """One line of the report."""

    name: str
    found: str  # what is there, or what is not
    remedy: str = ""  # what to do about it; empty if all is well
    necessary: bool = False  # whether nothing works without it

    @property
    def state(self) -> str:
        """In a word."""
        return "MISSING" if self.remedy and self.necessary else "missing" if self.remedy else "ok"

    def __str__(self) -> str:
        return f"{self.state:<9}{self.name:<17}{self.found}" + (f"\n{'':<26}-> {self.remedy}" if self.remedy else "")


@app.command()
def doctor(
    size: Annotated[bool, Option("--size", help="Print lines and files of the package instead.")] = False,
    as_json: Json = False,
) -> None:
    """Say what is here, what is missing, and how to get it.

    Looks at Python, packages and their versions, data sets (real or surrogate, checksums), stored results, processor,
    memory, git and the browser. The exit code is 1 if something is missing without which nothing works.
    """
    if size:
        typer.echo(as_text({"core": core_lines(), "rooms": sizes()}) if as_json else rooms())
        return
    checks = list(examine()) if as_json else examine()
    if as_json:
        typer.echo(as_text([{"state": check.state, **vars(check)} for check in checks]))
    raise typer.Exit(0 if healthy(checks, show=not as_json) else 1)


def examine() -> Iterator[Check]:
    """Yield all checks, one after the other."""
    yield python()
    yield from map(packages, EXTRAS)
    yield constraints()
    yield from datasets()
    yield results()
    yield cores()
    yield memory()
    if CHECKOUT:
        yield git()
        yield browser()


def healthy(checks: Iterable[Check], show: bool = True) -> bool:
    """Show every check as soon as it is made, and return whether everything that is necessary is there."""
    fit = True
    for check in checks:
        if show:
            typer.echo(str(check))
        fit &= not (check.remedy and check.necessary)
    return fit


def python() -> Check:
    """Check the version of Python."""
    low, high = PYTHONS
    remedy = "" if low <= sys.version_info[:2] < high else "install Python 3.11 to 3.14, and the package there"
    return Check("Python", platform.python_version(), remedy, necessary=True)


def packages(extra: str) -> Check:
    """Compare what is installed with the exact versions that the package, or one extra, asks for."""
    name = f"extra [{extra}]" if extra else "packages"
    what, wanted = ("-c constraints.txt -e '." if CHECKOUT else "'fl-core"), f"[{extra}]" if extra else ""
    install = f"pip install {what}{wanted}'"
    try:
        asked = metadata.requires("fl-core") or []
    except metadata.PackageNotFoundError:
        return Check(name, "fl-core itself is not installed", install, necessary=not extra)
    extras = [(re.search(r"extra\s*==\s*['\"]([\w-]+)['\"]", line), line) for line in asked]
    lines = [line for found, line in extras if (found[1] if found else "") == extra]
    pins, installed = _pins(lines), _installed()
    names = {_normal(re.split(r"[^\w.-]", line.strip())[0]): line.partition(";")[0].strip() for line in lines}
    if missing := [line.replace("==", " ") for name, line in names.items() if name not in installed]:
        return Check(name, f"not installed: {', '.join(missing)}; for {EXTRAS[extra]}", install, necessary=not extra)
    if other := _other(pins, installed):
        return Check(name, f"other versions than pinned: {other}", install)
    return Check(name, f"{len(names)} installed, for {EXTRAS[extra]}")


def constraints(path: Path = ROOT / "constraints.txt") -> Check:
    """Compare everything that is installed with the list of exact versions in the checkout."""
    if not path.is_file():
        return Check("constraints", "no constraints.txt here: this is not a checkout")
    pins, installed = _pins(path.read_text().splitlines()), _installed()
    if other := _other(pins, installed):
        return Check("constraints", other, "pip install -c constraints.txt -e '.[book,dev]'")
    return Check("constraints", f"{len(pins.keys() & installed.keys())} packages at the versions of constraints.txt")


def _pins(lines: Iterable[str]) -> dict[str, str]:
    """Return the versions in lines such as ``"name==version ; marker"``; one without a version is a comment."""
    pairs = (line.partition("#")[0].partition(";")[0].partition("==") for line in lines)
    return {_normal(name): version.strip() for name, _, version in pairs if version.strip()}


@cache
def _installed() -> dict[str, str]:
    # torch's CPU build calls itself 2.13.0+cpu
    return {_normal(dist.name): dist.version.partition("+")[0] for dist in metadata.distributions()}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


def _other(pins: dict[str, str], installed: dict[str, str]) -> str:
    here = sorted(name for name in pins.keys() & installed.keys() if installed[name] != pins[name])
    return ", ".join(f"{name} {installed[name]} instead of {pins[name]}" for name in here)


def datasets() -> Iterator[Check]:
    """Load the embedded data set, which verifies its checksums; say of the others what is there."""
    try:
        from fl_core.datasets import load_dataset, registry
    except ImportError as error:
        yield Check("data", f"cannot be looked at ({error})", "install the packages first", necessary=True)
        return
    others: dict[str, list[str]] = {}
    for source in registry.all_sources().values():
        if not source.embedded or not (CHECKOUT or registry.place(source)):  # it is fetched when it is needed
            others.setdefault(registry.state(source), []).append(source.name)
            continue
        try:
            data = load_dataset(source.name)
        except DataError as error:
            found, _, remedy = str(error).partition("; ")
            yield Check(source.name, found, remedy or "restore the data folder", necessary=True)
        else:
            size = f"{len(data.train):,} + {len(data.test):,} samples"
            where = registry.source_folder(source)
            yield Check(source.name, f"REAL data, {size}, checksums right, in {where}")
    found = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in others.items())
    yield Check("other data", f"{found} (see 'fl-core data')")


def results() -> Check:
    """Count the published results, reading each."""
    try:
        from fl_core.experiments.store import Store, default_store
    except ImportError as error:
        return Check("results", f"cannot be read ({error})", "install the packages first")
    store = default_store()
    with warnings.catch_warnings(record=True) as complaints:
        warnings.simplefilter("always")
        readable = [result.spec.hash for result in store]
        published = sum(map(bool, Store(store.published, store.published).state(readable).values()))
    if complaints:
        how = f"restore it with 'git checkout -- {store.published.name}' in {store.published.parent}, or "
        remedy = f"{how if CHECKOUT else ''}delete it"
        return Check("results", f"{len(complaints)} damaged: {complaints[0].message}", remedy)
    return Check("results", f"{published} published in {store.published}, {len(readable) - published} in the cache")


def cores() -> Check:
    """Say how many processor cores may be used, and how busy they are."""
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    return Check("processor", f"{platform.machine()}, {usable_cores()} cores{load}")


def memory() -> Check:
    """Say how much memory is free."""
    try:
        import psutil
    except ImportError:
        return Check("memory", "unknown: psutil is not installed", "install the packages first")
    free, total = psutil.virtual_memory().available, psutil.virtual_memory().total
    found = f"{free / 2**30:.1f} of {total / 2**30:.1f} GiB free"
    return Check("memory", found, "" if free >= MEMORY else "close other programs: 2 GiB are comfortable")


def git() -> Check:
    """Check that git is there: results record the commit that they come from."""
    if shutil.which("git") is None:
        return Check("git", "not installed: results cannot say which commit made them", "install git")
    from fl_core.experiments.run import commit

    return Check("git", "installed; no checkout here" if commit() == "unknown" else f"at commit {commit()}")


def browser(which: Callable[[str], str | None] = shutil.which) -> Check:
    """Check for the browser that tests of the built book open its pages in."""
    found = next((name for name in BROWSERS if which(name)), None)
    lacking = [name for name, there in (("chromium", found), ("chromedriver", which("chromedriver"))) if not there]
    if lacking:
        text = f"{' and '.join(lacking)} not installed: the browser tests of the book are skipped"
        return Check("browser", text, "apt-get install chromium chromium-driver")
    return Check("browser", f"{found} with chromedriver, for the browser tests of the book")


CORE = ("runtime", "world", "models", "tasks", "formulas", "algorithms")
"""The rooms that somebody needs who writes, simulates and compares methods."""


def sizes() -> dict[str, dict[str, int]]:
    """Return files, lines and lines of code of each room, those of the core first."""
    package = ROOT / "fl_core"
    names, found = sorted(path.name for path in package.iterdir() if (path / "__init__.py").is_file()), {}
    for room in dict.fromkeys([*CORE, *names]):
        sources = [path.read_text(encoding="utf-8") for path in (package / room).rglob("*.py")]
        lines, code = sum(len(text.splitlines()) for text in sources), sum(map(code_lines, sources))
        found[room] = {"files": len(sources), "lines": lines, "code": code}
    return found


def rooms() -> str:
    """Return :func:`sizes`, and that of the core, as text."""
    rows = [f"{'room':<14}{'files':>6}{'lines':>9}{'of code':>9}"]
    rows += [f"{room:<14}{n['files']:>6}{n['lines']:>9,}{n['code']:>9,}" for room, n in sizes().items()]
    core = f"{core_lines():,} lines of code, without docstrings, comments, blank lines and imports"
    return "\n".join([*rows, "", f"{', '.join(CORE[:-1])} and {CORE[-1]}: {core}"])


def core_lines() -> int:
    """Return the lines of code of the core."""
    paths = (path for room in CORE for path in (ROOT / "fl_core" / room).rglob("*.py"))
    return sum(code_lines(path.read_text(encoding="utf-8")) for path in paths)


def code_lines(source: str) -> int:
    """Return the lines of `source` that hold code: no docstrings, comments, blank lines and imports."""
    from fl_core.experiments.identity import essence

    imports = r"^ *(?:from \S+ )?import (?:\([^)]*\)|.*)\n?"
    return len(re.sub(imports, "", essence(source), flags=re.MULTILINE).splitlines())


PARTS = (
    *("reference", "synchronous", "overhead", "small", "kernel"),
    *("memory", "kasync", "clusters", "scaling", "batched", "blocks", "limit", "data", "formulas"),
)
"""What ``fl-core bench`` can measure; :mod:`fl_core.benchmarks` has the same."""
BENCH = """\b
Examples:
  fl-core bench                   everything, about fifteen minutes
  fl-core bench reference kernel  only these
  fl-core bench --quick           does it run?
  fl-core bench --out data/benchmarks/laptop.json
"""


@app.command(epilog=BENCH)
def bench(
    parts: Annotated[list[str] | None, Argument(metavar="PART", help=f"{', '.join(PARTS)}; by default all.")] = None,
    quick: Annotated[bool, Option("--quick", help="Small sizes: does it run? The numbers mean little.")] = False,
    pairs: Annotated[int | None, Option(help="Repetitions, sides alternating; by default 5, or 1 if quick.")] = None,
    threads: Annotated[int, Option(help="Worker threads of ours; the bare loop has one.")] = 2,
    as_json: Json = False,
    out: Annotated[Path | None, Option(
        metavar="FILE.json", help="Keep the report, with machine, load, versions, commit and date.")] = None,
    force: Force = False,
) -> None:  # fmt: skip
    """Measure speed and memory, and compare with targets.

    reference, synchronous and small race against a bare PyTorch loop on one thread over the same mini-batches. The
    others measure what the runtime adds to training (overhead), its events per second when training is free
    (kernel), memory against devices, throughput against threads (scaling), the batched executor, the distance to
    what the hardware could do (limit), and how long data takes to load, generate and divide (data). Other work on
    the machine distorts them all. Targets are for two free cores.
    """
    from fl_core.benchmarks import Effort, circumstances, measure
    from fl_core.cli.runs import check_out
    from fl_core.experiments.store import write_atomically

    check_out(out, force)
    report = measure(parts or [], Effort(quick, pairs, threads), lambda text: typer.echo(text, err=as_json))
    content = json.dumps(report, indent=1, allow_nan=False)
    if out is not None:
        write_atomically(out, f"{content}\n".encode())
    typer.echo(content if as_json else circumstances(report))
