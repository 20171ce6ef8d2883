"""SD-FEEL's figures and tables from one tiny grid that is really run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fl_core.experiments.artifacts import find_artifact, find_artifacts, make_study, stored_seeds
from fl_core.experiments.claims import judge
from fl_core.experiments.grid import execute
from fl_core.experiments.store import Store
from fl_core.experiments.study import Study, load_study
from fl_core.report.figures import draw
from fl_core.report.tables import Table
from fl_papers.sdfeel import experiment
from fl_papers.sdfeel.experiment import ASYNC, SYNC, SDFeel, Setup, gaps, runs
from fl_papers.sdfeel.theory import run_clock

RUNS = ["sdfeel-fig2a", "sdfeel-fig2b", *(f"sdfeel-x{n}" for n in range(7, 13))]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Study, Store]]:
    """All grids with a linear model at two gaps, really run."""
    folder: Path = tmp_path_factory.mktemp("results")
    store = Store(folder, folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SDFeel.SETUPS, "fashion-mnist", Setup("linear", "linear", (1, 28, 28)))
        patch.setattr(experiment, "LONG_ROUNDS", 50)
        study = make_study(find_artifacts(RUNS), "smoke", gaps=(5.0, 30.0))
        execute(study.specs, jobs=1, store=store, progress=False)
        yield load_study(study, store), store


def test_every_figure_is_drawn_from_runs_with_a_true_caption(tiny: tuple[Study, Store]) -> None:
    study, _ = tiny
    for name in RUNS:
        shown, caption = draw(find_artifact(name), study)
        assert "fashion-mnist (real data), profile smoke, seed 0" in caption
        assert "papermill notebooks/fl_papers/sdfeel/replication.ipynb" in caption
        if isinstance(shown, Table):
            assert len(shown.frame) == {"sdfeel-x11": 4, "sdfeel-x12": 2}[name]
            assert "nan" not in shown.to_markdown().lower()


def test_runs_keep_the_clock_that_is_computed_for_them(tiny: tuple[Study, Store]) -> None:
    study, _ = tiny
    assert gaps(study) == [5.0, 30.0]
    for gap in gaps(study):
        for method in (ASYNC, SYNC):
            entry, result = runs(study, method, gap)[0]
            clock, table = run_clock(entry.spec), result.history.updates
            seconds, steps, owner = (
                np.array(table["seconds"]),
                np.array(table["steps"]),
                np.array(table["device"]) // 5,
            )
            periods = np.array(clock.periods)[owner] if method == ASYNC else clock.round_seconds
            assert np.allclose(seconds / periods, np.round(seconds / periods), atol=1e-6)
            expected = clock.local_steps[table["device"]] if method == ASYNC else 1
            assert (steps == expected).all()


def test_every_recorded_staleness_is_within_the_bound(tiny: tuple[Study, Store]) -> None:
    study, _ = tiny
    [found] = judge(["SDFEEL-C18"], study)
    assert found.parts[-1].name == "stored runs"
    assert found.label == "reproduced"
    for _, result in study.select(method=ASYNC, role="curve"):
        result.history.updates["staleness"][0] = 10**6
    [spoilt] = judge(["SDFEEL-C18"], study)
    assert spoilt.label == "contradicted"


def test_only_seeds_whose_runs_are_all_stored_are_shown(tiny: tuple[Study, Store], tmp_path: Path) -> None:
    _, store = tiny
    assert stored_seeds(find_artifacts(["sdfeel-fig2a"]), store, "smoke") is None
    assert stored_seeds(find_artifacts(["sdfeel-fig2a"]), Store(tmp_path, tmp_path), "smoke") is None
