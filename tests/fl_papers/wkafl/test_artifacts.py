"""WKAFL's replication: artifacts, the tables of made-up runs, and one tiny grid really run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from made_up import measured
from tiny_grids import drawn, really_run, without_gaps

from fl_core.errors import SpecError
from fl_core.experiments.artifacts import find_artifact, find_artifacts, make_study
from fl_core.experiments.study import Entry, Study
from fl_papers.wkafl.experiment import Scale, WKAFLExperiment

comparison = WKAFLExperiment.made(WKAFLExperiment.comparison)

RUNS = ["wkafl-fig2a", *(f"wkafl-fig{n}" for n in range(5, 11)), "wkafl-tab2", "wkafl-tab3", "wkafl-appA",
        "wkafl-x1", "wkafl-x3", *(f"wkafl-x{n}" for n in range(9, 14))]  # fmt: skip


# Made-up runs


def made_up(labels: dict[str, float], dataset: str = "fashion-mnist", aliased: float = 0.0) -> Study:
    """A comparison in which each method is at its accuracy from the start, and `aliased` higher where it is that."""
    entries, results = tuple(comparison("laptop", dataset, [0, 1, 2])), {}
    for entry in entries:
        rng = np.random.default_rng(entry.labels["seed"])
        level = labels[entry.labels["method"]] + aliased * (entry.labels.get("snapshot") == "aliased")
        level += 1e-4 * rng.standard_normal()
        accuracy = [0.1, *(level + 0.001 * (-1) ** step for step in range(1, 13))]
        results[entry.key] = measured(entry.spec, version=range(0, 325, 25), test_accuracy=accuracy)
    return Study("laptop", dataset, entries, results)


LEVELS = {"WKAFL": 0.8, "TWAFL": 0.7, "SASGD": 0.5, "GSGM": 0.6, "SGD": 0.65}


def test_tables_show_the_papers_numbers_beside_both_modes() -> None:
    study = made_up(LEVELS, aliased=0.1)
    table = find_artifact("wkafl-tab2").reduce(study)
    assert len(table) == 9
    first = table.iloc[0]
    assert (first["cell"], first["method"], first["accuracy, printed"]) == ("P/K = 100, 1 label", "WKAFL", "0.9734")
    assert (first["accuracy, true staleness"], first["accuracy, shared memory"]) == ("0.800 ± 0.000", "0.900 ± 0.000")
    skews = find_artifact("wkafl-tab3").reduce(study)
    assert list(skews["cell"].unique()) == [f"P/K = 300, {n}" for n in ("1 label", "5 labels", "10 labels")]
    assert skews.iloc[2]["stability, printed"] == "0.0032"
    assert set(skews["seeds"]) == {3}


def test_curves_have_a_panel_for_each_cell_and_both_modes_where_asked() -> None:
    study = made_up(LEVELS)
    frame = find_artifact("wkafl-fig7").reduce(study)
    assert list(frame["panel"].unique()) == [f"P/K = {n}, 1 label" for n in (100, 150, 300)]
    assert set(frame["mode"]) == {""}
    both = find_artifact("wkafl-x1").reduce(study)
    assert set(both["mode"]) == {"true staleness", "shared memory"}
    assert (both.groupby(["panel", "method", "mode"])["x"].max() == 300).all()
    assert (frame["n"] == 3).all()


def test_the_setting_names_what_only_the_programs_say() -> None:
    table = find_artifact("wkafl-tab2").paper_setting("laptop", "fashion-mnist", [0], lr_factors=(1.0, 0.3))
    rows = table.set_index("setting")
    assert rows.loc["P/K (P, K)"].tolist() == ["100 (1,000, 10); 150 (3,000, 20); 300 (3,000, 10)"] * 2
    assert rows.loc["updates J"].tolist() == ["5,000 (code)", "1,500"]
    assert rows.loc["learning rate η₀ of WKAFL"].tolist() == ["0.005 (code)", "0.005, times 1.0, 0.3"]
    assert rows.loc["mean staleness of a run"].tolist() == ["97; 145; 281", "92; 134; 240"]
    with pytest.raises(SpecError, match="unknown override"):
        find_artifact("wkafl-tab2").paper_setting("laptop", "fashion-mnist", [0], rate=3)


def test_a_study_of_true_staleness_alone_has_no_empty_columns_or_panels() -> None:
    study = made_up(LEVELS, "cifar10-surrogate")
    for name in ("wkafl-tab2", "wkafl-tab3"):
        table = find_artifact(name).reduce(study)
        assert len(table) >= 9
        assert not any("shared memory" in column for column in table.columns)


# One tiny grid, really run


def needed(entry: Entry) -> bool:
    labels = entry.labels
    curve = labels["role"] == "curve"
    return not curve or (labels["level"] == 3 and (labels["snapshot"] != "aliased" or labels["method"] == "WKAFL"))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Study]:
    """All grids with a linear model, few clients and few updates; of the comparison one cell, hardly any aliased."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(WKAFLExperiment.PROFILES, "smoke", Scale(4, 100, 2, (0,), 4))
        study = make_study(find_artifacts(RUNS), "smoke", labels=(1,))
        study = replace(study, entries=tuple(entry for entry in study.entries if needed(entry)))
        yield really_run(study, tmp_path_factory.mktemp("results"))[0]


def test_every_figure_is_drawn_from_runs_with_a_true_caption(tiny: Study) -> None:
    without_gaps(drawn(RUNS, tiny).values())


def test_methods_and_modes_of_one_cell_have_the_same_arrivals(tiny: Study) -> None:
    seen: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
    for entry, result in tiny.select(role="curve"):
        if entry.labels["method"] != "GSGM":
            cell = tuple(entry.labels[name] for name in ("clients", "aggregated", "labels"))
            seen.setdefault(cell, set()).add(tuple(result.history.updates["device"]))
    assert {cell: len(arrivals) for cell, arrivals in seen.items()} == {(30, 10, 1): 1}


def test_the_histogram_is_of_all_updates(tiny: Study) -> None:
    frame = find_artifact("wkafl-fig2a").reduce(tiny)
    assert isinstance(frame, pd.DataFrame)
    assert frame["share"].sum() == pytest.approx(1)
