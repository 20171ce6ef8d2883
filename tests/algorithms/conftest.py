"""Every run of these tests that names no executor is sanitized: the algorithms keep the rules."""

from __future__ import annotations

from typing import Any

import pytest

from fl_core.runtime import History, Simulation


@pytest.fixture(autouse=True)
def sanitized(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Simulation.run

    def debug(self: Simulation, executor: str = "debug", *rest: Any, **named: Any) -> History:
        return run(self, "debug" if executor == "sequential" else executor, *rest, **named)

    monkeypatch.setattr(Simulation, "run", debug)
