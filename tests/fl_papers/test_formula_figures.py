"""Figures and tables that need no runs."""

from __future__ import annotations

from dataclasses import replace

import freeze
import pytest

from fl_core.experiments.artifacts import artifacts, make_study
from fl_core.report.figures import draw
from fl_core.report.tables import Table

NAMES = [name for name, artifact in artifacts().items() if artifact.paper_setting is None]
EXPECTED = freeze.expected()
TRAINED = "wkafl-x8"
"""It trains a network for its table, whose last digits are the processor's."""


def test_every_paper_has_some() -> None:
    assert len(NAMES) > 30
    assert {name.partition("-")[0] for name in NAMES} == {"fedasync", "wkafl", "sdfeel", "fedasmu", "fedluck"}


@pytest.mark.parametrize("name", NAMES)
def test_they_are_drawn_from_the_numbers_that_they_had_and_say_so(name: str) -> None:
    """An intended change of their numbers is written by tests/frozen/freeze.py."""
    artifact, study = artifacts()[name], make_study(artifacts()[name], "laptop")
    table = artifact.reduce(study)
    if name != TRAINED or EXPECTED["processor"] == freeze.processor():
        assert freeze.digest_of(table) == EXPECTED["frames"][name]
    shown, caption = draw(replace(artifact, reduce=lambda study: table), study)
    assert "no runs" in caption
    assert len(shown.frame) if isinstance(shown, Table) else shown.axes
