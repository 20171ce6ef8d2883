"""Short runs of these tests that name no executor are sanitized: the algorithms keep the rules.

The sanitizer makes a run up to ten times as slow, and a rule that a program breaks it breaks in its first versions.
"""

from __future__ import annotations

from typing import Any

import pytest

from fl_core.runtime import History, Simulation

SHORT = 80
"""Versions of the longest run that is sanitized."""


@pytest.fixture(autouse=True)
def sanitized(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Simulation.run

    def debug(self: Simulation, executor: str = "sequential", *rest: Any, **named: Any) -> History:
        short = (self.budget.updates or 0) <= SHORT
        return run(self, "debug" if executor == "sequential" and short else executor, *rest, **named)

    monkeypatch.setattr(Simulation, "run", debug)
