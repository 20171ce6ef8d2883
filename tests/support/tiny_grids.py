"""A paper's grids, made small, really run, and its figures drawn from them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from matplotlib.figure import Figure

from fl_core.experiments.artifacts import find_artifact
from fl_core.experiments.grid import execute
from fl_core.experiments.store import Store
from fl_core.experiments.study import Study, load_study
from fl_core.report.figures import draw
from fl_core.report.tables import Table


def really_run(study: Study, folder: Path) -> tuple[Study, Store]:
    """Return the study with what its runs give, and the store in `folder` that has them."""
    store = Store(folder, folder)
    execute(study.specs, jobs=1, store=store, progress=False)
    return load_study(study, store), store


def drawn(names: Iterable[str], study: Study) -> dict[str, Figure | Table]:
    """Return figures and tables by name, each with a caption that says what was run and how to make it again."""
    shown: dict[str, Figure | Table] = {}
    for name in names:
        shown[name], caption = draw(find_artifact(name), study)
        assert "fashion-mnist (real data), profile smoke, seed 0" in caption
        assert f"papermill notebooks/fl_papers/{name.partition('-')[0]}/replication.ipynb" in caption
    return shown


def without_gaps(shown: Iterable[Figure | Table]) -> None:
    """Check that no table shows a missing number as one."""
    for table in shown:
        assert not isinstance(table, Table) or "nan" not in table.to_markdown().lower()
