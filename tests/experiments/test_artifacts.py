"""FedAsync's artifacts: their grids, and one tiny grid really run, reduced, drawn and judged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tiny_grids import really_run

from fl_core.errors import RunError, SpecError
from fl_core.experiments.artifacts import artifacts, find_artifact, find_artifacts, larger_stored, make_study
from fl_core.experiments.claims import judge
from fl_core.experiments.experiment import PROFILES, Interval, OrNone, check_parameters
from fl_core.experiments.store import Store
from fl_core.experiments.study import Study, listed
from fl_core.report.figures import draw
from fl_core.report.tables import Table, claims_table, details_table, with_spread
from fl_papers.fedasync import experiment
from fl_papers.fedasync.figures import area, curves, final_metrics, seed_curve

FIGURES = [f"fedasync-fig{number}" for number in range(2, 8)]
SWEEPS = [f"fedasync-fig{number}" for number in range(8, 11)]
TINY = experiment.Scale(10, 4, 2, 200, (0, 1), (0.6, 0.9), (0.2,), (0.05, 0.1), (1, 4, 16), (0.2, 0.9))
LINEAR = experiment.Setup("linear", "linear", {})


def test_every_figure_and_table_of_the_paper_is_registered() -> None:
    names = {name for name in artifacts() if name.startswith("fedasync")}
    assert names >= {"fedasync-fig1", "fedasync-tab1", "fedasync-tab2", *FIGURES, *SWEEPS}
    assert find_artifacts(["fedasync-*"]) == [artifacts()[name] for name in artifacts() if name in names]
    for name in ("fedasync-fig22", "fedsync-*"):
        with pytest.raises(SpecError, match=r"unknown artifact.*did you mean 'fedasync-"):
            find_artifacts([name])


def test_profiles_have_one_list() -> None:
    assert tuple(PROFILES) == tuple(experiment.PROFILES)


def test_readers_can_change_the_grid() -> None:
    study = make_study(
        find_artifact("fedasync-fig3"), "smoke", seeds=[5], alphas=[0.3], max_staleness=[2, 8], rho=0.0, lrs=[0.02]
    )
    async_specs = [e.spec for e in study.entries if e.spec.algorithm.name == "fedasync"]
    assert {s.world.max_staleness for s in async_specs} == {8}
    assert {(s.algorithm.alpha, s.algorithm.rho, s.seed) for s in async_specs} == {(0.3, 0.0, 5)}
    assert {e.labels["lr"] for e in study.entries if e.labels["method"] == "SGD"} == {0.02}
    command = study.command("n.ipynb")
    assert command.startswith("papermill n.ipynb out.ipynb -p PROFILE smoke ")
    assert "-y 'ALPHAS: [0.3]'" in command
    assert "-p RHO 0.0" in command
    assert "-y 'SEEDS: [5]'" in command


def test_the_setting_shows_the_paper_beside_ours() -> None:
    frame = find_artifact("fedasync-fig2").paper_setting("laptop").set_index("setting")
    assert list(frame.columns) == ["the paper", "here, profile laptop"]
    assert list(frame.loc["global epochs T"]) == ["2,000", "400"]
    assert list(frame.loc["repetitions"]) == ["10", "3"]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Study, Store]]:
    """The whole grid with a linear model, two seeds and ten epochs, really run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(experiment.SETUPS, "fashion-mnist", LINEAR)
        patch.setitem(experiment.PROFILES, "smoke", TINY)
        yield really_run(make_study(find_artifacts(FIGURES + SWEEPS), "smoke"), tmp_path_factory.mktemp("results"))


def test_counters_are_exact(tiny: tuple[Study, Store]) -> None:
    study, _ = tiny
    for entry, result in study.select():
        last = result.history.evaluation_frame().iloc[-1]
        updates = entry.spec.budget.updates
        per_epoch = {"SGD": 10, "FedAvg": 100}.get(entry.labels["method"], 10)
        assert last["version"] == updates
        assert last["gradients"] == per_epoch * updates
        if entry.labels["method"] != "SGD":
            assert last["communications"] == (20 if entry.labels["method"] == "FedAvg" else 2) * updates


def test_exact_claims_hold_on_runs(tiny: tuple[Study, Store]) -> None:
    study, _ = tiny
    for judgement in judge(["FEDASYNC-C07", "FEDASYNC-C22", "FEDASYNC-C23"], study):
        assert judgement.label == "by construction", judgement
    [identity] = judge(["FEDASYNC-C07"], study)
    assert {part.name for part in identity.parts} == {
        *(f"a = {a}, {c}, α = 0.6, seed 0" for a in (4, 10) for c in ("paper", "missed updates")),
        *(f"a = 10, missed updates, α = {alpha}, seed {seed}" for alpha in TINY.alphas for seed in TINY.seeds),
    }


def test_the_start_of_fedavg_is_the_start_of_the_whole_run(tiny: tuple[Study, Store]) -> None:
    study, _ = tiny
    for seed in study.seeds:
        both = study.select(method="FedAvg", seed=seed, lr=0.1)
        whole, start = (next(r for e, r in both if e.labels["part"] == part) for part in ("whole", "start"))
        assert start.history.updates["loss"] == whole.history.updates["loss"][: len(start.history.updates["loss"])]
        joined = seed_curve(both)
        assert joined["version"].is_monotonic_increasing
        assert joined["version"].is_unique


def test_curves_and_areas_by_hand(tiny: tuple[Study, Store]) -> None:
    study, _ = tiny
    frame = curves(study, "gradients", 0)
    curve = frame[(frame["alpha"] == 0.6) & (frame["method"] == "FedAsync")]
    found = [r.history.evaluations for _, r in study.select(method="FedAsync", alpha=0.6, max_staleness=4)]
    assert list(curve["x"]) == [0, 20, 40, 60, 80, 100]
    assert list(curve["n"]) == [2] * 6
    np.testing.assert_allclose(curve["train_loss"], np.mean([e["train_loss"] for e in found], axis=0))
    np.testing.assert_allclose(curve["train_loss_std"], np.std([e["train_loss"] for e in found], axis=0, ddof=1))
    areas = area(study, "gradients", "FedAsync", alpha=0.6, max_staleness=4)
    np.testing.assert_allclose([areas[0], areas[1]], [np.mean(e["train_loss"]) for e in found])
    assert frame.loc[frame["method"] == "FedAvg", "x"].max() == 100
    last = final_metrics(study).set_index("method").loc["FedAvg"]
    assert (last["version"], last["gradients"], last["communications"], last["n"]) == (10, 1000, 200, 2)


def test_every_figure_is_drawn_with_a_true_caption(tiny: tuple[Study, Store]) -> None:
    study, _ = tiny
    for name in FIGURES:
        figure, caption = draw(find_artifact(name), study)
        assert len(figure.axes) == 2
        assert all(len(axis.lines) == 6 + (name[-1] in "23") + 1 for axis in figure.axes)
        assert f"Figure {name[-1]} of" in caption
        for part in ("fashion-mnist (real data)", "profile smoke", "seeds 0 and 1", "papermill"):
            assert part in caption


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("fedasync-fig2", "mean and standard deviation over"),
        ("fedasmu-fig2", "mean and standard deviation over"),
        ("fedasmu-tab2", "mean and 95 % t-interval over"),
        ("fedasmu-fig7", "mean over"),
        ("fedasmu-x1", "all uploads of"),
        ("fedluck-savings", "mean and interval over"),
        ("sdfeel-x12", "each run of"),
    ],
)
def test_a_caption_says_what_of_several_seeds_is_shown(name: str, words: str) -> None:
    artifact = find_artifact(name)
    assert f"{words} seeds 0 and 1" in artifact.caption(make_study(artifact, "smoke", seeds=[0, 1]))


def test_figures_of_final_values_show_the_ends_of_runs(tiny: tuple[Study, Store]) -> None:
    study, _ = tiny
    frame = find_artifact("fedasync-fig8").reduce(study)
    assert list(frame.columns[:1]) == ["x"]
    assert frame.groupby("method")["x"].apply(list).to_dict() == {
        method: [1, 4, 16] for method in ("FedAsync", "FedAsync+Poly", "FedAsync+Hinge")
    }
    for which, (name, staleness) in enumerate(zip(SWEEPS[1:], (4, 16), strict=True)):
        artifact = find_artifact(name)
        frame = artifact.reduce(study).set_index(["method", "x"])
        found = study.select(role="alpha sweep", method="FedAsync+Poly", alpha=0.9, max_staleness=staleness)
        ends = [result.history.evaluations["test_accuracy"][-1] for _, result in found]
        assert [entry.labels["seed"] for entry, _ in found] == [0, 1]
        assert frame.loc[("FedAsync+Poly", 0.9), "test_accuracy"] == pytest.approx(np.mean(ends))
        assert frame.loc[("FedAsync+Poly", 0.9), "test_accuracy_std"] == pytest.approx(np.std(ends, ddof=1))
        figure, caption = draw(artifact, study)
        assert f"Figure {9 + which} of" in caption
        assert all(len(axis.lines) == 3 for axis in figure.axes)  # type: ignore[union-attr]


def test_tables_are_readable(tiny: tuple[Study, Store]) -> None:
    study, _ = tiny
    table = Table(with_spread(final_metrics(study), ["test_accuracy", "train_loss"]), {"n": "seeds"})
    html, text = table.to_html(), table.to_markdown()
    assert "seeds" in html
    assert "1,000" in text  # FedAvg's gradients
    assert "±" in text
    assert "nan" not in (html + text).lower()
    judged = judge(find_artifact("fedasync-fig2").claims, study)
    assert ">FEDASYNC</th>" in claims_table(judged).to_html()
    assert ">C07<br>" in claims_table(judged).to_html()
    assert details_table(judged).to_html().startswith("<details><summary>All ")
    assert "a = 4, paper, α = 0.6, seed 0" in details_table(judged).to_markdown()
    assert Table(with_spread(final_metrics(study), [])).to_html().count("<tr>") == 15


def test_only_a_complete_larger_profile_is_shown_instead(
    tiny: tuple[Study, Store], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, store = tiny
    chosen = find_artifacts(FIGURES + SWEEPS)
    monkeypatch.setitem(experiment.PROFILES, "laptop", TINY)  # the same runs, called by a larger profile's name
    monkeypatch.setitem(experiment.SETUPS, "fashion-mnist", LINEAR)
    larger = larger_stored(chosen, store, "smoke")
    assert larger is not None
    assert (larger.profile, larger.complete) == ("laptop", True)
    assert larger_stored(chosen, store, "laptop") is None
    assert larger_stored(chosen, store, "smoke", seeds=[7]) is None
    assert larger_stored(chosen, Store(tmp_path, tmp_path), "smoke") is None
    empty = make_study(chosen, "smoke")
    with pytest.raises(RunError, match="none of its runs"):
        draw(find_artifact("fedasync-fig2"), empty)
    monkeypatch.setitem(experiment.PROFILES, "laptop", replace(TINY, seeds=(0,)))
    for looks, given, shown in (((2, 3), None, [0, 1]), ((3,), None, [0]), ((2, 3), [0], [0])):
        monkeypatch.setattr("fl_core.experiments.artifacts.LOOKS", looks)
        found = larger_stored(chosen, store, "smoke", seeds=given)
        assert found is not None
        assert (found.seeds, found.complete, {entry.spec.seed for entry in found.entries}) == (shown, True, {*shown})


def test_a_parameter_may_be_left_to_the_profile() -> None:
    rule = OrNone([Interval(0, 1)])
    for value in (None, [0.5]):
        check_parameters({"ALPHAS": value}, ALPHAS=rule)
    with pytest.raises(SpecError, match=r"ALPHAS = 0.5 is not valid: it should be None, or a list, each a number"):
        check_parameters({"ALPHAS": 0.5}, ALPHAS=rule)


def test_lists_in_words() -> None:
    assert [listed(x) for x in ([0, 1], [0, 1, 2], [1, 4, 7])] == ["0 and 1", "0 to 2", "1, 4 and 7"]
