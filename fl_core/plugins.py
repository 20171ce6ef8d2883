"""What is found by itself, or named by a user: papers, packages with parts of their own, scripts.

A part (algorithm, network, data set, world, or a kind of anything that has kinds) is known by name once the code that
defines it has run: in a notebook, in the module ``algorithm`` of a paper, in an installed package with an entry point
of the group ``fl_core.plugins``, or in a script or module that ``fl-core COMMAND --import`` or the environment
variable ``FL_CORE_IMPORT`` names.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from fl_core.errors import SpecError

PAPERS, PLUGINS = "fl_core.papers", "fl_core.plugins"
"""Groups of entry points: a package with a folder for each paper (this project's is ``fl_papers``), and a module that
defines parts."""
IMPORT = "FL_CORE_IMPORT"
"""Environment variable: scripts and modules to import, separated as in PATH; processes hand it on."""


def papers() -> dict[str, str]:
    """Return the packages of all papers by module name: ``{"fl_papers.sdfeel": "sdfeel"}``."""
    found = {}
    for point in sorted(entry_points(group=PAPERS), key=lambda point: point.value):
        package = point.load()
        for module in pkgutil.iter_modules(package.__path__):
            if module.ispkg:
                found[f"{package.__name__}.{module.name}"] = module.name
    return found


def paper_modules(name: str) -> Iterator[ModuleType]:
    """Import and yield the module called `name` of each paper that has one."""
    for module in (f"{package}.{name}" for package in papers()):
        if find_spec(module) is not None:
            try:
                yield importlib.import_module(module)
            except Exception as error:
                raise SpecError(f"the module {module!r} fails: {told(error)}") from error


@cache
def load_plugins() -> None:
    """Import the algorithms that papers bring, and what installed packages and the environment name, once."""
    list(paper_modules("algorithm"))
    for point in sorted(entry_points(group=PLUGINS), key=lambda point: point.value):
        try:
            point.load()
        except Exception as error:
            where = point.dist.name if point.dist else point.value
            raise SpecError(f"the plugin {point.value!r} of {where} fails: {told(error)}") from error
    for name in named():
        import_own(name)


@cache
def import_own(name: str) -> ModuleType:
    """Import a script, ``"my.py"``, or a module, ``"package.module"``; a SpecError says why that fails."""
    path = Path(name).absolute()
    try:
        if not name.endswith(".py"):
            return importlib.import_module(name)
        if not path.is_file():
            raise SpecError(f"cannot import {name!r}: there is no such file")
        alias = path.stem.replace(".", "_")  # what stands before a dot would be a package
        alias = alias if find_spec(alias) is None else f"own_{alias}"
        found = spec_from_file_location(alias, path)
        assert found is not None
        assert found.loader is not None
        module = sys.modules[alias] = module_from_spec(found)
        sys.path.append(str(path.parent))  # for what lies beside it
        found.loader.exec_module(module)
    except SpecError:
        raise
    except (Exception, SystemExit) as error:  # a script that ends itself would end the command, as if all were well
        raise SpecError(f"cannot import {name!r}: {told(error)}") from error
    return module


def import_everywhere(names: Sequence[str]) -> None:
    """Import scripts and modules here, and in every process that is started from here."""
    absolute = [str(Path(name).absolute()) if name.endswith(".py") else name for name in names]
    for name in absolute:
        import_own(name)
    os.environ[IMPORT] = os.pathsep.join([*named(), *absolute])


def named() -> list[str]:
    """Return the scripts and modules that the environment names."""
    return [name for name in os.environ.get(IMPORT, "").split(os.pathsep) if name]


def told(error: BaseException) -> str:
    """Return an exception as one line."""
    return f"{type(error).__name__}: {error}".splitlines()[0]
