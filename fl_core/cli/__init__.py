# ruff: isort: skip_file
"""Floor 5: the command line."""

from __future__ import annotations

from fl_core.cli import runs, studies, data, catalogue, doctor  # noqa: F401 # in the order of the help text
from fl_core.cli.app import app, main

__all__ = ["app", "main"]
