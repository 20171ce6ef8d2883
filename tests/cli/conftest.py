"""A place of their own for commands that write."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep results out of the checkout; commands are called in an empty folder beside them."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("FL_CORE_RESULTS", str(tmp_path / "results"))
    return tmp_path / "results"


@pytest.fixture
def small_study(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give FedAsync's smoke profile a few updates of a linear model, on a tenth of the images."""
    from fl_papers.fedasync import experiment

    scale = experiment.Scale(4, 2, 2, 100, (0,), (0.6,), (), (0.1,), (1,), (0.5,))
    monkeypatch.setattr(experiment, "SAMPLES", 50)
    monkeypatch.setattr(experiment, "BATCH", 5)
    monkeypatch.setitem(experiment.PROFILES, "smoke", scale)
    monkeypatch.setitem(experiment.SETUPS, "fashion-mnist", experiment.Setup("linear", "linear", {}))
