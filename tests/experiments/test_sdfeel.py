"""SD-FEEL's replication: its clock, the printed numbers, what is read off runs, and verdicts on made-up curves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from fl_core.errors import RunError, SpecError
from fl_core.experiments.artifacts import artifacts, find_artifact, find_artifacts, make_study, stored_seeds
from fl_core.experiments.claims import CLAIMS, judge
from fl_core.experiments.grid import execute
from fl_core.experiments.run import Result
from fl_core.experiments.store import Store
from fl_core.experiments.study import Entry, Study, load_study
from fl_core.report.figures import draw
from fl_core.report.tables import Table
from fl_core.runtime import History
from fl_papers.sdfeel import grid as sdfeel_grid
from fl_papers.sdfeel.clock import latency_table, paper_clock, run_clock, timeline
from fl_papers.sdfeel.curves import gaps, runs, time_to, value_at, value_near
from fl_papers.sdfeel.grid import ASYNC, CLOUD, SETUPS, SYNC, Setup, parameters_of
from fl_papers.sdfeel.printed import number, printed
from fl_papers.sdfeel.tables import differences, paper_setting
from fl_papers.sdfeel.theory import bound, inconsistency

FORMULAS = ["sdfeel-alg1", "sdfeel-fig1", "sdfeel-setup", "sdfeel-latency", *(f"sdfeel-x{n}" for n in range(1, 7))]
RUNS = ["sdfeel-fig2a", "sdfeel-fig2b", *(f"sdfeel-x{n}" for n in range(7, 13))]


def verdicts(study: Study, *numbers: int) -> dict[str, str]:
    return {j.claim.id[-3:]: j.verdict for j in judge([f"SDFEEL-C{n:02d}" for n in numbers], study)}


def test_every_figure_and_every_claim_is_registered() -> None:
    assert {name for name in artifacts() if name.startswith("sdfeel")} == {*FORMULAS, *RUNS}
    carried = {claim for artifact in find_artifacts(["sdfeel-*"]) for claim in artifact.claims}
    assert carried == {f"SDFEEL-C{n:02d}" for n in range(1, 18)}
    assert carried == {name for name in CLAIMS if name.startswith("SDFEEL-")}


# The clock and the printed numbers


def test_the_clock_gives_every_time_that_the_paper_prints_or_implies() -> None:
    """O1, O3, and the iteration times of the specification's draw of speeds."""
    clock = paper_clock(5)
    transfers = (number("T_comm_ct_sr"), number("T_comm_sr_sr"))
    assert (clock.upload, clock.exchange) == pytest.approx(transfers, rel=1e-12)
    assert clock.upload + clock.exchange + 5567 == pytest.approx(5674.2700352)
    for gap in (5, 10, 30):
        clock = paper_clock(gap)
        assert 55.67 / clock.seconds.max() == pytest.approx(number("slowest_client_speed", gap), rel=1e-9)
        assert clock.periods == pytest.approx([number("T_iter", gap, d) for d in range(6)], abs=6e-4)
        assert clock.round_seconds == pytest.approx(number("T_round", gap), abs=1e-6)
        assert (clock.local_steps.min(), clock.local_steps.max()) == (number("tau_min", gap), number("tau_max", gap))
    table = latency_table(Study("smoke", "fashion-mnist", (), {}))
    assert (table["the paper's setting"] == table["the simulator's clock"]).all()


def test_printed_numbers_say_where_they_are_from() -> None:
    table = printed()
    assert len(table) == 68
    assert set(table["origin"]) == {"printed", "derived", "resolved", "not stated"}
    assert number("T_iter", 7) is None
    assert number("communication_share_of_iteration", step_cost="flop_consistent") == 0.161570345713


def test_the_setting_at_profile_paper_is_the_papers() -> None:
    table = paper_setting("paper").set_index("setting")
    here = table["here, profile paper"]
    for row in ("devices; clusters; graph", "local steps of the slowest device", "heterogeneity gap H"):
        assert here[row] == table.loc[row, "the paper"]
    assert table.loc["network", "the paper"] == f"ResNet-18, {parameters_of('resnet18', 'cifar10'):,} parameters"
    assert here["batch; rate"] == "10; 0.001, constant"
    laptop = paper_setting("laptop")["here, profile laptop"]
    assert "10; 0.001/0.1 = 0.01, constant" in set(laptop)


def test_two_settings_differ_where_the_larger_network_makes_runs_shorter() -> None:
    first, second = (
        make_study(find_artifact("sdfeel-fig2a"), "laptop", dataset)
        for dataset in ("fashion-mnist", "cifar10-surrogate")
    )
    table = differences(first, second).set_index("setting")
    assert list(table.columns) == ["the paper", "fashion-mnist", "cifar10-surrogate"]
    assert set(table.index) == {
        "data", "network", "batch; rate", "local steps of the slowest device", "upload; server to server",
        "Sync.: local steps, exchanges", "horizon", "measured",
    }  # fmt: skip
    here = table["cifar10-surrogate"]
    assert here["local steps of the slowest device"] == "3"
    assert here["batch; rate"] == "10; 0.001/0.03 = 0.0333333, constant"
    assert here["measured"] == "30 times; on 2,000 training images and 2,000 test images"
    assert here["data"] == "cifar10-surrogate (surrogate)"
    assert differences(first, first).empty


def test_figure_1_shows_what_the_clock_says() -> None:
    frame = timeline(make_study(find_artifact("sdfeel-fig1"), "smoke"))
    events = frame[frame["activity"] == "event"]
    assert list(events["k"]) == list(range(len(events)))
    assert set(events["method"]) == {"asynchronous"}
    steps = frame[(frame["activity"] == "step") & (frame["start"] < 2.05)]
    first = steps[(steps["cluster"] == 0)].groupby(["method", "device"]).size()
    assert list(first["asynchronous"]) == [6, 4, 3]
    assert list(first["synchronous"]) == [3, 3, 3]
    idle = frame[frame["activity"] == "idle"].assign(length=lambda f: f["end"] - f["start"])
    waits = idle.groupby("method")["length"].sum()
    assert waits["synchronous"] > 5 * waits["asynchronous"]


def test_what_is_minimised_on_quadratics_is_what_theory_predicts() -> None:
    found = inconsistency()
    optimum = found["optimum of F"][0]
    for name in ("Eq. 5", "data-weighted mixing"):
        prediction = found[f"{name}: prediction"][0]
        assert abs(found[name][-300:].mean() - prediction) < 0.1 * abs(prediction - optimum)


def test_the_bound_has_the_values_of_the_specification() -> None:
    for name, expected in {
        "gap": ((1, 2.1877), (2, 4.3459), (5, 10.821), (10, 21.614)),
        "delta_max": ((0, 2.1877), (1, 2.1922), (5, 2.2995), (10, 2.6351)),
        "dissimilarity": ((0, 2.1583), (0.3, 2.1877), (1, 2.2562)),
    }.items():
        for value, total in expected:
            assert bound("derived", **{name: value}).total == pytest.approx(total, rel=3e-5)


def test_claims_about_formulas_hold() -> None:
    study = make_study(find_artifact("sdfeel-x1"), "smoke")
    numbers = (7, 9, 10, 11, 12, 13, 14, 15)
    assert verdicts(study, *numbers) == {f"C{n:02d}": "reproduced" for n in numbers}


@pytest.mark.parametrize("name", FORMULAS)
def test_figures_and_tables_from_formulas_are_drawn(name: str) -> None:
    shown, caption = draw(find_artifact(name), make_study(find_artifact(name), "smoke"))
    assert "no runs" in caption
    assert len(shown.frame) if isinstance(shown, Table) else shown.axes


# Verdicts on made-up curves


def made_up(entry: Entry, speed: float, best: float) -> Result:
    """A result whose loss falls from 2.3 towards 1 - `best` and whose accuracy rises to `best`, at a `speed`."""
    horizon = entry.spec.budget.seconds
    history = History()
    for seconds in np.linspace(0, horizon, 31):
        rest = np.exp(-10 * speed * seconds / horizon)
        row = {"seconds": seconds, "test_accuracy": best - (best - 0.1) * rest, "train_loss": 1 - best + 1.3 * rest}
        for name, column in history.evaluations.items():
            column.append(float(row.get(name, 0)))
    return Result(entry.spec, history, {"data": "real"})


def made_up_study(
    asynchronous: Callable[[float], float], synchronous: Callable[[float], float], uneven: float, late: float
) -> Study:
    """All grids at profile laptop: speeds by gap, factor of speed with fewer classes, Async.'s best in the end."""
    study = make_study(find_artifacts(RUNS), "laptop")
    results = {}
    for entry in study.entries:
        labels = entry.labels
        speed = (synchronous if labels["method"] in (SYNC, CLOUD) else asynchronous)(labels["gap"])
        speed *= 1 + 0.03 * labels["seed"]
        best = 0.9
        if labels["role"] == "non-IID":
            speed, best = speed * uneven, best * uneven
        if labels["role"] == "long":
            speed, best = 2.0, late if labels["method"] == ASYNC else best
        results[entry.key] = made_up(entry, speed, best - 0.002 * labels["seed"])
    return study.with_results(results)


JUDGED = (1, 2, 3, 4, 5, 6, 16, 17)


def test_claims_come_out_as_curves_that_obey_them_say() -> None:
    study = made_up_study(lambda gap: 2 - gap / 100, lambda gap: 5 / gap, uneven=0.8, late=0.89)
    assert verdicts(study, *JUDGED) == {f"C{n:02d}": "reproduced" for n in JUDGED}


def test_claims_come_out_as_curves_that_contradict_them_say() -> None:
    study = made_up_study(lambda gap: 0.3 + gap / 50, lambda gap: 0.5 + gap / 10, uneven=1.1, late=0.97)
    assert verdicts(study, *JUDGED) == {f"C{n:02d}": "not reproduced" for n in JUDGED}


def test_one_seed_decides_nothing() -> None:
    whole = made_up_study(lambda gap: 2 - gap / 100, lambda gap: 5 / gap, uneven=0.8, late=0.89)
    one = make_study(find_artifacts(RUNS), "laptop", seeds=[0]).with_results(whole.results)
    assert set(verdicts(one, *JUDGED).values()) == {"inconclusive"}


def test_curves_are_read_at_measurements_without_interpolation() -> None:
    study = made_up_study(lambda gap: 1.0, lambda gap: 1.0, uneven=1, late=0.9)
    [run] = runs(study, ASYNC, 5.0).values() if len(study.seeds) == 1 else [runs(study, ASYNC, 5.0)[0]]
    table, end = run[1].history.evaluations, run[0].spec.budget.seconds
    assert value_at(run, "train_loss", 0.25) == table["train_loss"][7]  # 7.5 of 30
    assert value_at(run, "train_loss", 0.5) == table["train_loss"][15]
    assert value_at(run, "train_loss", 1.0) == table["train_loss"][30]
    assert value_near(run, "test_accuracy", 0.26 * end) == table["test_accuracy"][8]
    assert time_to(run, table["train_loss"][4]) == table["seconds"][4]
    assert time_to(run, table["train_loss"][4] + 1e-9) == table["seconds"][4]
    assert time_to(run, 0.0) == float("inf")


def test_without_runs_every_claim_about_them_is_open_and_nothing_is_drawn() -> None:
    study = make_study(find_artifacts(RUNS), "smoke")
    assert set(verdicts(study, 8, *JUDGED).values()) == {"inconclusive"}
    for name in RUNS:
        with pytest.raises(RunError, match="none of its runs"):
            draw(find_artifact(name), study)


def test_figures_beyond_the_paper_stand_beside_the_runs_that_they_vary() -> None:
    labels = {
        name: {(e.labels["method"], e.labels["gap"], e.labels["role"]) for e in make_study(found, "laptop").entries}
        for name in ("sdfeel-x7", "sdfeel-x8", "sdfeel-x9")
        if (found := find_artifact(name))
    }
    assert labels["sdfeel-x7"] == {
        (method, gap, role) for method, role in ((SYNC, "curve"), (CLOUD, "reference")) for gap in (5, 10, 30)
    }
    assert {(gap, role) for _, gap, role in labels["sdfeel-x8"]} == {(10, "curve"), (10, "variant")}
    assert labels["sdfeel-x9"] == {(m, 10, role) for m in (ASYNC, SYNC) for role in ("curve", "non-IID")}


def test_a_wrong_override_is_one_clear_line() -> None:
    with pytest.raises(SpecError, match="unknown override 'gap'; did you mean 'gaps'"):
        make_study(find_artifact("sdfeel-fig2a"), "smoke", gap=5)


# One tiny grid, really run


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Study, Store]]:
    """All grids with a linear model at two gaps, really run."""
    folder: Path = tmp_path_factory.mktemp("results")
    store = Store(folder, folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SETUPS, "fashion-mnist", Setup("linear", "linear", (1, 28, 28)))
        patch.setattr(sdfeel_grid, "LONG_ROUNDS", 50)
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
    [found] = judge(["SDFEEL-C08"], study)
    assert [part.name for part in found.parts] == ["below the bound", "largest one, seed 0"]
    assert found.parts[0].holds
    for _, result in study.select(method=ASYNC, role="curve"):
        result.history.updates["staleness"][0] = 10**6
    [spoilt] = judge(["SDFEEL-C08"], study)
    assert spoilt.verdict == "not reproduced"


def test_only_seeds_whose_runs_are_all_stored_are_shown(tiny: tuple[Study, Store], tmp_path: Path) -> None:
    _, store = tiny
    assert stored_seeds(find_artifacts(["sdfeel-fig2a"]), store, "smoke") is None
    assert stored_seeds(find_artifacts(["sdfeel-fig2a"]), Store(tmp_path, tmp_path), "smoke") is None
