"""pyproject.toml, environment.yml, constraints.txt and what is installed say the same."""

from __future__ import annotations

import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

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
CONDA = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]


def exact(pin: Requirement) -> Version:
    (specifier,) = pin.specifier
    assert specifier.operator == "==", pin
    return Version(specifier.version)


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
def test_every_pin_is_exact_and_in_the_constraints(pin: Requirement):
    assert exact(pin) == exact(CONSTRAINTS[canonicalize_name(pin.name)])


def test_every_listed_package_is_installed():
    installed = {canonicalize_name(dist.name) for dist in metadata.distributions()}
    assert {canonicalize_name(pin.name) for pin in PINS} <= installed


def test_what_is_installed_is_what_is_constrained():
    """Compare public versions (the CPU build of torch calls itself 2.13.0+cpu) of what this system needs."""
    installed = {canonicalize_name(dist.name): Version(dist.version).public for dist in metadata.distributions()}
    expected = {name: exact(pin).public for name, pin in CONSTRAINTS.items() if name in installed}
    assert {name: installed[name] for name in expected} == expected


def test_this_python_is_supported():
    assert Version(".".join(map(str, sys.version_info[:3]))) in SpecifierSet(PROJECT["requires-python"])


def test_constraints_name_the_reference_versions_of_torch():
    assert str(exact(CONSTRAINTS["torch"])) == "2.13.0"
    assert str(exact(CONSTRAINTS["torchvision"])) == "0.28.0"
