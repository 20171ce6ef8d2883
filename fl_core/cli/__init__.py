"""Floor 5: the command line."""

from __future__ import annotations

from fl_core.cli.app import app, main

__all__ = ["app", "main"]
