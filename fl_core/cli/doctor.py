"""What is here, what is missing, and how to get it: ``fl-core doctor``."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from fl_core.errors import DataError

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
    """One line of the report.

    Attributes
    ----------
    name : str
    found : str
        What is there, or what is not.
    remedy : str
        What to do about it; empty if all is well.
    necessary : bool
        Whether nothing works without it.
    """

    name: str
    found: str
    remedy: str = ""
    necessary: bool = False

    @property
    def ok(self) -> bool:
        """Whether nothing needs to be done."""
        return not self.remedy

    def __str__(self) -> str:
        state = "ok" if self.ok else "MISSING" if self.necessary else "missing"
        line = f"{state:<9}{self.name:<17}{self.found}"
        return line if self.ok else f"{line}\n{'':<26}-> {self.remedy}"


def examine() -> Iterator[Check]:
    """Yield all checks, one after the other."""
    yield python()
    for extra in EXTRAS:
        yield packages(extra)
    yield constraints()
    yield from datasets()
    yield results()
    yield cores()
    yield memory()
    yield git()
    yield browser()


def healthy(checks: Iterable[Check], echo: Callable[[str], object] = lambda line: None) -> bool:
    """Show every check as soon as it is made, and return whether everything that is necessary is there."""
    fit = True
    for check in checks:
        echo(str(check))
        fit &= check.ok or not check.necessary
    return fit


def python() -> Check:
    """Check the version of Python."""
    low, high = PYTHONS
    remedy = "" if low <= sys.version_info[:2] < high else "install Python 3.11 to 3.14, then run 'make setup'"
    return Check("Python", platform.python_version(), remedy, necessary=True)


def packages(extra: str) -> Check:
    """Compare what is installed with the exact versions that the package asks for."""
    name = f"extra [{extra}]" if extra else "packages"
    install = f"pip install -c constraints.txt -e '.{f'[{extra}]' if extra else ''}'"
    try:
        pins = list(_pins(extra))
    except metadata.PackageNotFoundError:
        return Check(name, "fl-core itself is not installed", install, necessary=not extra)
    missing, other = [], []
    for package, version in pins:
        try:
            installed = metadata.version(package)
        except metadata.PackageNotFoundError:
            missing.append(f"{package} {version}")
        else:
            if installed.partition("+")[0] != version:  # torch's CPU build calls itself 2.13.0+cpu
                other.append(f"{package} {installed} instead of {version}")
    if missing:
        return Check(name, f"not installed: {', '.join(missing)}; for {EXTRAS[extra]}", install, necessary=not extra)
    if other:
        return Check(name, f"other versions than pinned: {', '.join(other)}", install)
    return Check(name, f"{len(pins)} as pinned, for {EXTRAS[extra]}")


def constraints(path: Path = ROOT / "constraints.txt") -> Check:
    """Compare everything that is installed with the list of exact versions in the checkout."""
    if not path.is_file():
        return Check("constraints", "no constraints.txt here: this is not a checkout")
    pins = {_normal(name): version for name, version in map(_pin, path.read_text().splitlines()) if version}
    installed = {_normal(dist.name): dist.version.partition("+")[0] for dist in metadata.distributions()}
    here = pins.keys() & installed.keys()
    other = [
        f"{name} {installed[name]} instead of {pins[name]}" for name in sorted(here) if installed[name] != pins[name]
    ]
    if other:
        return Check("constraints", ", ".join(other), "pip install -c constraints.txt -e '.[book,dev]'")
    return Check("constraints", f"{len(here)} packages at the versions of constraints.txt")


def datasets() -> Iterator[Check]:
    """Load the embedded data set, which verifies its checksums; say of the others what is there."""
    try:
        from fl_core.cli.commands import state
        from fl_core.datasets import load_dataset, registry
    except ImportError as error:
        yield Check("data", f"cannot be looked at ({error})", "install the packages first", necessary=True)
        return
    others: dict[str, list[str]] = {}
    for source in registry.all_sources().values():
        if not source.embedded:
            others.setdefault(state(source), []).append(source.name)
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
    if others:
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
        published, cached = (sum(1 for _ in Store(folder, folder)) for folder in (store.published, store.cache))
    if complaints:
        remedy = f"restore it with 'git checkout -- {store.published.name}' in {store.published.parent}, or delete it"
        return Check("results", f"{len(complaints)} damaged: {complaints[0].message}", remedy)
    return Check("results", f"{published} published in {store.published}, {cached} in the cache")


def cores() -> Check:
    """Say how many processor cores may be used, and how busy they are."""
    number = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    return Check("processor", f"{platform.machine()}, {number} cores{load}")


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
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return Check("git", f"at commit {done.stdout.strip()}" if done.returncode == 0 else "installed; no checkout here")


def browser(which: Callable[[str], str | None] = shutil.which) -> Check:
    """Check for the browser that tests of the built book open its pages in."""
    found = next((name for name in BROWSERS if which(name)), None)
    lacking = [name for name, there in (("chromium", found), ("chromedriver", which("chromedriver"))) if not there]
    if lacking:
        text = f"{' and '.join(lacking)} not installed: the browser tests of the book are skipped"
        return Check("browser", text, "apt-get install chromium chromium-driver")
    return Check("browser", f"{found} with chromedriver, for the browser tests of the book")


def _pins(extra: str) -> Iterator[tuple[str, str]]:
    """Yield name and exact version of the requirements that fl-core declares, alone or for one extra."""
    for requirement in metadata.requires("fl-core") or []:
        asked = re.search(r"extra\s*==\s*['\"]([\w-]+)['\"]", requirement)
        if (asked[1] if asked else "") == extra:
            yield _pin(requirement)


def _pin(line: str) -> tuple[str, str]:
    """Split ``"name==version ; marker"``; without a version (a comment, an empty line) that is empty."""
    name, _, version = line.partition("#")[0].partition(";")[0].partition("==")
    return name.strip(), version.strip()


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
