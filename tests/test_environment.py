"""pyproject.toml, environment.yml, constraints.txt and what is installed say the same."""

from __future__ import annotations

import ast
import json
import re
import shlex
import sys
import tomllib
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

import fl_core

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LISTED = [
    *PROJECT["dependencies"],
    *(pin for pins in PROJECT["optional-dependencies"].values() for pin in pins),
]
PINS = [Requirement(line) for line in LISTED]
CONSTRAINTS = {
    canonicalize_name(pin.name): pin
    for pin in map(
        Requirement,
        (line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and line[0] != "#"),
    )
}
MODULES = {"beautifulsoup4": "bs4", "Pygments": "pygments", "pillow": "PIL", "PyYAML": "yaml", "ipython": "IPython"}
"""Where the name of the module is not that of the package."""
USED_OTHERWISE = {
    "ipykernel": "papermill and nbval execute cells in it",
    "jupyter-book": "called as a program",
    "jupyterlab": "called as a program",
    "sphinx-book-theme": "an extension in book/_config.yml",
    "sphinx-exercise": "an extension in book/_config.yml",
    "sphinx-proof": "an extension in book/_config.yml",
    "sphinx-mathjax-offline": "its files are served",
    "mypy": "called as a program",
    "ruff": "called as a program",
    "cryptography": "makes certificates for distributed",
    "nbval": "a plugin of pytest",
    "pytest-xdist": "a plugin of pytest",
    "pandas-stubs": "read by mypy",
    "types-tqdm": "read by mypy",
}
CONDA = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]


def exact(pin: Requirement) -> Version:
    (specifier,) = pin.specifier
    assert specifier.operator == "==", pin
    return Version(specifier.version)


@cache
def imported(*folders: str) -> frozenset[str]:
    """Return the modules, by first name, that the code and the notebooks of some folders import."""
    found: set[str] = set()
    for path in (path for folder in folders for path in (ROOT / folder).rglob("*")):
        if path.suffix == ".py":
            sources = [path.read_text(encoding="utf-8")]
        elif path.suffix == ".ipynb":
            cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
            sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        else:
            continue
        for node in (node for source in sources for node in ast.walk(ast.parse(source))):
            match node:
                case ast.Import(names=names):
                    found |= {name.name.partition(".")[0] for name in names}
                case ast.ImportFrom(module=str(module)):
                    found.add(module.partition(".")[0])
                case ast.Call(func=ast.Name(id="tool"), args=[ast.Constant(value=str(module))]):  # of the extra book
                    found.add(module)
    return frozenset(found)


def of(extra: str) -> dict[str, str]:
    """Return the packages of an extra, or the necessary ones, with their modules."""
    pins = PROJECT["optional-dependencies"][extra] if extra else PROJECT["dependencies"]
    return {(name := Requirement(pin).name): MODULES.get(name, name.replace("-", "_")) for pin in pins}


def test_every_listed_package_is_used_where_its_list_says():
    core = imported("fl_core")
    rest = core | imported("notebooks", "book") | imported("tests")
    assert {name for name, module in of("").items() if module not in core} == set()
    for extra in ("book", "dev", "cluster"):
        assert {name for name, module in of(extra).items() if module not in rest} <= USED_OTHERWISE.keys()
    assert USED_OTHERWISE.keys() <= of("book").keys() | of("dev").keys()


def test_what_is_imported_is_listed():
    folders = ("book/_ext", "tests/frozen", "tests/support")
    ours = {"fl_core", "fl_papers", *(path.stem for folder in folders for path in (ROOT / folder).glob("*.py"))}
    known = {*sys.stdlib_module_names, *ours, *of("").values(), "pydantic_core"}  # the last is part of pydantic
    # What the library needs for pages or clusters only is imported when a page is made or a cluster is used.
    later = {"IPython", "distributed", "jupyter_book", "nbformat", "papermill", "sphinx", "yaml"}
    assert imported("fl_core") - known <= later
    book = {*known, *of("book").values()}
    assert imported("notebooks", "book") - book <= {*of("cluster").values()}
    assert imported("tests") - book - {*of("dev").values(), *of("cluster").values()} == set()


def test_conda_gives_pip_the_same_list():
    (pip,) = [entry["pip"] for entry in CONDA if isinstance(entry, dict)]
    assert [line for line in pip if not line.startswith("-")] == LISTED
    assert [line for line in pip if line.startswith("-")] == ["--constraint constraints.txt", "--editable ."]


def test_conda_itself_brings_only_a_valid_python_and_pip():
    names = [entry for entry in CONDA if isinstance(entry, str)]
    assert [name.split("=")[0] for name in names] == ["python", "pip"]
    assert Version(names[0].split("=")[1]) in SpecifierSet(PROJECT["requires-python"])


def test_no_package_is_listed_twice():
    names = [canonicalize_name(pin.name) for pin in PINS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("pin", PINS, ids=lambda pin: pin.name)
def test_every_pin_is_exact_or_a_range_from_what_is_tested_to_the_next_major_version(pin: Requirement):
    tested = exact(CONSTRAINTS[canonicalize_name(pin.name)])
    first = Version(".".join(map(str, tested.release[:2])))
    pinned, ranged = SpecifierSet(f"=={tested}"), SpecifierSet(f">={first},<{tested.major + 1}")
    users = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["cluster"]]
    assert pin.specifier == (ranged if str(pin) in map(str, map(Requirement, users)) else pinned)


def test_every_listed_package_is_installed():
    installed = {canonicalize_name(dist.name) for dist in metadata.distributions()}
    assert {canonicalize_name(pin.name) for pin in PINS} <= installed


def test_what_is_installed_is_what_is_constrained():
    """Compare public versions (the CPU build of torch calls itself 2.13.0+cpu) of what this system needs."""
    installed = {canonicalize_name(dist.name): Version(dist.version).public for dist in metadata.distributions()}
    expected = {name: exact(pin).public for name, pin in CONSTRAINTS.items() if name in installed}
    assert {name: installed[name] for name in expected} == expected


def test_one_version_is_named_everywhere():
    released = re.findall(r"^## (\d.*)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["version"]
    assert {PROJECT["version"], cited, released[0]} == {fl_core.__version__}
    assert sorted(released, key=Version, reverse=True) == released


def test_this_python_is_supported():
    assert Version(".".join(map(str, sys.version_info[:3]))) in SpecifierSet(PROJECT["requires-python"])


def test_constraints_name_the_reference_versions_of_torch():
    assert str(exact(CONSTRAINTS["torch"])) == "2.13.0"
    assert str(exact(CONSTRAINTS["torchvision"])) == "0.28.0"


def test_make_lab_shows_all_chapters():
    """Without a root JupyterLab takes the folder of the file that it opens, above which nothing can be opened."""
    server = pytest.importorskip("jupyter_server.serverapp").ServerApp()
    [words] = re.findall(r"jupyter lab (.*)", (ROOT / "Makefile").read_text())
    server.parse_command_line(shlex.split(words.replace("$(CURDIR)", str(ROOT))))
    assert server.root_dir == str(ROOT)
