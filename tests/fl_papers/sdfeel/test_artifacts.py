"""SD-FEEL's figures and tables from one tiny grid that is really run."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from tiny_grids import drawn, really_run, without_gaps

from fl_core.experiments.artifacts import find_artifacts, make_study
from fl_core.experiments.claims import judge
from fl_core.experiments.store import Store
from fl_core.experiments.study import Study
from fl_core.report.tables import Table
from fl_papers.sdfeel import experiment
from fl_papers.sdfeel.experiment import ASYNC, SYNC, SDFeel, Setup, gaps, runs
from fl_papers.sdfeel.theory import run_clock

RUNS = ["sdfeel-fig2a", "sdfeel-fig2b", *(f"sdfeel-x{n}" for n in range(7, 13))]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Study, Store]]:
    """All grids with a linear model at two gaps, really run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SDFeel.SETUPS, "fashion-mnist", Setup("linear", "linear", (1, 28, 28)))
        patch.setattr(experiment, "LONG_ROUNDS", 50)
        study = make_study(find_artifacts(RUNS), "smoke", gaps=(5.0, 30.0))
        yield really_run(study, tmp_path_factory.mktemp("results"))


def test_every_figure_is_drawn_from_runs_with_a_true_caption(tiny: tuple[Study, Store]) -> None:
    study, _ = tiny
    shown = drawn(RUNS, study)
    without_gaps(shown.values())
    rows = {name: len(table.frame) for name, table in shown.items() if isinstance(table, Table)}
    assert rows == {"sdfeel-x11": 4, "sdfeel-x12": 2}


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
