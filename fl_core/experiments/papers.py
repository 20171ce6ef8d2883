"""Which papers there are: the folders of every package that is declared as one of papers."""

from __future__ import annotations

import pkgutil
from importlib.metadata import entry_points

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
