"""Figures and tables that need no runs."""

from __future__ import annotations

import pytest

from fl_core.experiments.artifacts import artifacts, make_study
from fl_core.report.figures import draw
from fl_core.report.tables import Table

NAMES = [name for name, artifact in artifacts().items() if artifact.paper_setting is None]


def test_every_paper_has_some() -> None:
    assert len(NAMES) > 30
    assert {name.partition("-")[0] for name in NAMES} == {"fedasync", "wkafl", "sdfeel", "fedasmu", "fedluck"}


@pytest.mark.parametrize("name", NAMES)
def test_they_are_drawn_and_say_so(name: str) -> None:
    shown, caption = draw(artifacts()[name], make_study(artifacts()[name], "smoke"))
    assert "no runs" in caption
    assert len(shown.frame) if isinstance(shown, Table) else shown.axes
