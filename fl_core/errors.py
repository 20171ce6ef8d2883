"""The errors that a user of the package can meet; each is one sentence that says what would be valid."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable


class FlCoreError(Exception):
    """Base of every error that is the input's fault, not the program's."""


class SpecError(FlCoreError, ValueError):
    """A run specification, a parameter or a command-line value is not valid."""


class DataError(FlCoreError):
    """A data file is missing or damaged."""


class RunError(FlCoreError):
    """A coroutine of a running simulation failed; names the process, the virtual time and the cause."""


class CallbackError(RunError):
    """A callback of the user's failed; names it and the version."""


def nearest(name: str, choices: Iterable[str], cutoff: float = 0.5) -> str:
    """Return ``"; did you mean 'x'?"`` for the choice most like `name`, or "" if none is so by `cutoff` of 1."""
    found = difflib.get_close_matches(str(name), list(map(str, choices)), n=1, cutoff=cutoff)
    return f"; did you mean {found[0]!r}?" if found else ""


def unknown(kind: str, name: str, choices: Iterable[str]) -> SpecError:
    """Build the error for a name that is not registered: what was given, the nearest, all valid ones."""
    valid = sorted(choices)
    return SpecError(f"unknown {kind} {name!r}{nearest(name, valid)} (valid: {', '.join(valid)})")


def known(kind: str, name: str, choices: Collection[str]) -> str:
    """Return `name` if it is one of the choices; otherwise raise :func:`unknown`."""
    if name not in choices:
        raise unknown(kind, name, choices)
    return name
