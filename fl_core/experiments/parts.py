"""Parts of one's own for other processes: what a notebook or a script defines is sent to them as it is."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

import cloudpickle

from fl_core.algorithms import ALGORITHMS
from fl_core.config import Family
from fl_core.datasets import OWN, STEPS
from fl_core.errors import SpecError
from fl_core.models import MODELS
from fl_core.plugins import import_own, named, papers, told
from fl_core.world import named_worlds
from fl_core.world.world import REGISTERED


def pack() -> bytes:
    """Return all parts of one's own that are known here, for :func:`unpack` in another process; b"": there are none.

    What is defined in ``__main__`` or by a script goes as a whole, what is installed by its name.
    """
    found = [
        (table, name, part)
        for table, parts in tables().items()
        for name, part in parts.items()
        if not _module(part).startswith(("fl_core.", *papers()))
    ]
    if not found:
        return b""
    scripts = {sys.modules[_module(part)] for *_, part in found if _module(part) in _scripts()}
    for script in scripts:
        cloudpickle.register_pickle_by_value(script)
    try:
        return bytes(cloudpickle.dumps(found))
    except Exception as error:
        names = ", ".join(name for _, name, _ in found)
        text = f"what is defined here ({names}) cannot be sent to another process: {told(error)}"
        raise SpecError(f"{text}; use one process (jobs=1)") from error
    finally:
        for script in scripts:
            cloudpickle.unregister_pickle_by_value(script)


@cache
def unpack(content: bytes) -> None:
    """Make the parts that another process has packed known here."""
    if content:
        known = tables()
        for table, name, part in cloudpickle.loads(content):
            known[table][name] = part


def tables() -> dict[str, dict[str, Any]]:
    """Return every table of parts by name."""
    named_worlds()  # loads those of the papers
    kinds: dict[str, dict[str, Any]] = {f"{each.__module__}.{each.__qualname__}": each.kinds
                                         for each in Family.__subclasses__()}  # fmt: skip
    return kinds | {
        "algorithm": ALGORITHMS,
        "model": MODELS,
        "dataset": OWN,
        "preprocessing": STEPS,
        "world": REGISTERED,
    }


def _module(part: Any) -> str:
    return str(getattr(getattr(part, "load", part), "__module__", ""))


def _scripts() -> set[str]:
    """Return the modules that were imported from scripts, which another process would not find."""
    return {import_own(name).__name__ for name in named() if name.endswith(".py")}
