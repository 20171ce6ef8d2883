"""Which papers there are: the folders of every package that is declared as one of papers."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from importlib.metadata import entry_points
from importlib.util import find_spec
from types import ModuleType

GROUP = "fl_core.papers"
"""Entry points that name a package with a folder for each paper; this project's is ``fl_papers``."""


def papers() -> dict[str, str]:
    """Return the packages of all papers by module name: ``{"fl_papers.sdfeel": "sdfeel"}``."""
    found = {}
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.value):
        package = point.load()
        for module in pkgutil.iter_modules(package.__path__):
            if module.ispkg:
                found[f"{package.__name__}.{module.name}"] = module.name
    return found


def paper_modules(name: str) -> Iterator[ModuleType]:
    """Import and yield the module called `name` of each paper that has one."""
    for package in papers():
        if find_spec(f"{package}.{name}") is not None:
            yield importlib.import_module(f"{package}.{name}")
