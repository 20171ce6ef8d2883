"""FedASMU's printed numbers, claims and tables, on made-up runs with a known answer."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from made_up import measured

from fl_core.experiments import ledger
from fl_core.experiments.claims import Judgement, judge
from fl_core.experiments.evidence import Censored
from fl_core.experiments.run import Result
from fl_core.experiments.spec import RunSpec
from fl_core.experiments.store import Store
from fl_core.experiments.study import Entry, Study
from fl_core.report.tables import claims_table
from fl_papers.fedasmu import errata, tables
from fl_papers.fedasmu.artifacts import GRIDS
from fl_papers.fedasmu.claims import CLAIMS as OWN
from fl_papers.fedasmu.claims import middle, product
from fl_papers.fedasmu.experiment import ABLATIONS, BASELINES, COLUMNS, EXTRA, HEURISTICS, METHODS, SYNCHRONOUS
from fl_papers.fedasmu.figures import Setting, passed, savings, settings, times
from fl_papers.fedasmu.tables import IMPLIED, PRINTED, band, deviations, gain, number, tables_band

EXACT = {"FEDASMU-C39", *(claim.id for claim in errata.CLAIMS)}
RUNS = [claim.id for claim in OWN if claim.id not in EXACT]
AT = Setting("lenet-fmnist")
ABLATED = ("FedASMU", *ABLATIONS, "FedAvg")


# The printed numbers


def test_fedasmu_is_best_and_fastest_in_all_twelve_printed_columns() -> None:
    assert len(COLUMNS) == 12
    for column in COLUMNS:
        ours, others = (
            {what: [number(column, m, what) for m in methods] for what in ("accuracy", "time")}
            for methods in (("FedASMU",), BASELINES)
        )
        assert None not in (*others["accuracy"], *others["time"])
        assert ours["accuracy"][0] > max(others["accuracy"])
        assert ours["time"][0] < min(others["time"])


def test_e19_the_ranges_of_the_text_that_the_tables_do_not_give() -> None:
    found = deviations()
    assert set(zip(found["against"], found["quantity"], found["end"], strict=True)) == {
        ("FedAvg", "time saved", "least"), ("FedAvg", "time saved", "most"), ("FedProx", "time saved", "least"),
        ("MOON", "accuracy gain", "most"), ("FedDyn", "time saved", "least"), ("FedDyn", "accuracy gain", "most"),
        ("ASO-Fed", "time saved", "least"), ("ASO-Fed", "time saved", "most"), ("ASO-Fed", "accuracy gain", "least"),
        ("FedSA", "accuracy gain", "least"), ("FedSA", "accuracy gain", "most"),
    }  # fmt: skip
    assert tables_band("accuracy gain", "FedSA") == pytest.approx((0.017, 0.27))
    assert tables_band("time saved", "FedAvg") == pytest.approx((0.5821, 0.9299), abs=5e-5)


def test_other_printed_numbers() -> None:
    assert (band("accuracy gain", "all"), band("time saved", "all")) == ((0.006, 0.239), (0.0354, 0.9798))
    assert band("time saved", "all", setting="bandwidth 50") == (0.2121, 0.6217)
    assert band("accuracy gain", "FedAvg", method="FedASMU-DA and FedASMU-FA") == (0.0073, 0.0375)
    assert (gain("accuracy gain", "H2"), gain("time saved", "AsyncPart")) == (0.022, 0.759)
    assert number("lenet-cifar10", "FedDyn", "time") == math.inf
    assert number("cnn-cifar10", "FedASMU-0", "accuracy", IMPLIED) == 0.5551
    assert number("lenet-fmnist", "FedASMU-0", "accuracy") is None
    assert (PRINTED.frame["source"].value_counts()[["table1", "table2"]] == 126).all()


# Made-up runs

LEVEL = {
    "FedASMU": 0.88, "FedAvg": 0.80, "FedProx": 0.805, "MOON": 0.81, "FedDyn": 0.79, "FedAsync": 0.86, "PORT": 0.84,
    "ASO-Fed": 0.83, "FedBuff": 0.85, "FedSA": 0.845, "FedDelay": 0.82, "SyncDrop": 0.78, "AsyncPart": 0.83,
    "FedASMU-DA": 0.87, "FedASMU-FA": 0.87, "FedASMU-0": 0.86, "H1": 0.84, "H2": 0.865, "slot 3": 0.87, "H3": 0.85,
}  # fmt: skip
SECONDS = {"FedASMU": 100.0, "FedASMU-DA": 150.0, "FedASMU-FA": 160.0, "FedASMU-0": 200.0, "FedDelay": 300.0}
SECONDS |= dict.fromkeys(SYNCHRONOUS, 800.0)


def fabricate(entry: Entry, level: dict[str, float], seconds: dict[str, float]) -> Result:
    """Make up a run whose accuracy rises in a line to its level, and stays; "method, condition" is a level, too."""
    method, varied, value = (entry.labels[name] for name in ("method", "varied", "value"))
    rng = np.random.default_rng([entry.labels["seed"], sum(map(ord, method)), sum(map(ord, f"{varied} {value}"))])
    end = level.get(f"{method}, {varied}", level[method]) + 0.0005 * rng.standard_normal()
    full = seconds.get(f"{method}, {varied}", seconds.get(method, 220.0))
    if varied == "bandwidth":  # FedASMU suffers more; at 100 advantages are larger
        far = {"FedAvg": 4.0, "FedAsync": 1.45}.get(method, 2.0)
        full *= 2.6 if method == "FedASMU" else far if value == 100 else 2.0
        end -= 0.15 if (method, value) == ("FedAvg", 100) else 0.0
    if varied == "heterogeneity" and method in SYNCHRONOUS:
        full, end = full * value / 50, end - value / 5000
    full *= 1 + 0.01 * rng.random()
    step = np.arange(101)
    return measured(
        entry.spec, seconds=full * step / 50, version=10 * step, test_accuracy=end * np.minimum(1.0, step / 50),
        models_received=step, bytes_up=100 * step, bytes_down=step * (190 if method == "FedASMU" else 100),
    )  # fmt: skip


def study_of(
    *grids: str,
    level: dict[str, float] | None = None,
    seconds: dict[str, float] | None = None,
    seeds: int = 5,
    profile: str = "laptop",
    dataset: str = "fashion-mnist",
) -> Study:
    entries = {}
    for grid in grids:
        for entry in GRIDS[grid](profile, dataset, range(seeds)):
            entries.setdefault(entry.key + repr(entry.labels), entry)
    results = {
        e.key: fabricate(e, {**LEVEL, **(level or {})}, {**SECONDS, **(seconds or {})}) for e in entries.values()
    }
    return Study(profile, dataset, tuple(entries.values()), results)


GRID_NAMES = ("comparison", "others", "ablations", "heuristics", "sensitivity", "conditions")


@pytest.fixture(scope="module")
def whole() -> Study:
    return study_of(*GRID_NAMES)


@pytest.fixture(scope="module")
def judged(whole: Study) -> dict[str, Judgement]:
    return {found.claim.id[8:]: found for found in judge(RUNS, whole)}


# The claims


def test_they_hold_on_runs_that_were_made_to_hold(judged: dict[str, Judgement]) -> None:
    assert {name: judged[name[8:]].direction for name in RUNS} == dict.fromkeys(RUNS, "holds")


@pytest.mark.parametrize(
    ("grids", "changed", "fails"),
    [
        ("comparison", {"level": {"FedBuff": 0.9}}, {1, 21}),
        ("comparison", {"seconds": {"PORT": 60.0}}, {2, 10}),
        ("comparison", {"seconds": dict.fromkeys(SYNCHRONOUS, 120.0)}, {23}),
        ("ablations", {"level": {"FedASMU-DA": 0.89}}, {28}),
        ("ablations", {"level": {"FedASMU-FA": 0.89}}, {30}),
        ("ablations", {"seconds": {"FedASMU-FA": 60.0}}, {30}),
        ("ablations", {"level": {"FedASMU-0": 0.89}}, {29, 31}),
        ("ablations", {"level": {"FedAvg": 0.879}}, {32, 33}),
        ("others", {"level": {"SyncDrop": 0.9}}, {36}),
        ("others", {"seconds": {"FedDelay": 50.0}}, {37}),
        ("heuristics", {"level": {"H3": 0.9}}, {38, 44}),
        ("sensitivity", {"level": {"FedASMU, trigger_period": 0.8}}, {35}),
        ("conditions", {"level": {"FedAvg, devices": 0.9}}, {27}),
        ("conditions", {"seconds": {"FedASMU, heterogeneity": 9000.0}}, {26}),
        ("conditions", {"seconds": {"FedASMU, bandwidth": 30.0}}, {24}),
        ("conditions", {"seconds": {"FedASMU, bandwidth": 300.0}}, {24, 25}),
    ],
)  # fmt: skip
def test_they_are_contradicted_where_the_runs_say_otherwise(grids: str, changed: dict, fails: set[int]) -> None:
    found = {j.claim.id for j in judge(RUNS, study_of(grids, **changed)) if j.label == "contradicted"}
    assert found == {f"FEDASMU-C{number:02d}" for number in fails}


def test_what_is_practically_equal_and_what_is_weaker_than_printed() -> None:
    same = study_of("ablations", "comparison", level={"FedASMU-DA": 0.88, "FedProx": 0.8799})
    found = {j.claim.id[8:]: j for j in judge(["FEDASMU-C28", "FEDASMU-C15", "FEDASMU-C14"], same)}
    assert [found[name].label for name in ("C28", "C15")] == ["no difference"] * 2
    assert (found["C14"].label, found["C14"].size) == ("weaker than printed", "smaller")  # 8 points, printed 12.3


def test_the_size_that_is_printed_of_a_column(judged: dict[str, Judgement]) -> None:
    """An interval that excluded what the paper prints used to be called inconclusive, and nothing more."""
    assert judged["C05"].effects[0].printed == pytest.approx(8250 / 65000)
    assert judged["C14"].effects[0].printed == pytest.approx(0.829 - 0.706)
    assert judged["C37"].effects[0].printed == pytest.approx(1 - 0.692)
    assert [e.printed for e in judged["C36"].parts] == [None, 0.112, 0.067]  # 0.063 % is a misprint
    assert {e.printed for e in judged["C24"].effects[:2]} == {0.0504, 1 - 0.2121}
    assert judged["C23"].effects[0].printed == pytest.approx(65000 / np.median([12371, 75716, 41100, 27179, 8553]))
    assert "&gt; 0; printed 12.3" in claims_table([judged["C14"]]).to_html()
    implied = study_of("ablations", dataset="cifar10-surrogate")
    [(lenet, cnn)] = [j.effects for j in judge(["FEDASMU-C28"], implied)]
    assert (lenet.printed, cnn.printed) == (pytest.approx(0.0432), pytest.approx(0.0138))
    assert judged["C28"].effects[0].printed is None  # Figure 2 is of CIFAR-10


def test_what_is_not_reached_is_a_bound_and_no_pair_is_dropped() -> None:
    """Pairs of which too little was known, and columns whose target a baseline misses, used to be left out."""
    slow = study_of("comparison", level={"PORT": 0.6})
    [port] = judge(["FEDASMU-C10"], slow)
    assert port.effects[0].right.at_least == frozenset(range(5))
    assert (port.direction, port.effects[0].interval[0]) == ("holds", 0)
    neither = study_of("comparison", level={"PORT": 0.6, "FedASMU": 0.6})
    [port] = judge(["FEDASMU-C10"], neither)
    assert (len(port.effects), port.label) == (1, "undecided")


def test_what_is_not_trained_or_reconstructed_is_shown_and_not_judged(judged: dict[str, Judgement]) -> None:
    """A baseline at chance used to be one that FedASMU beats."""
    guess = study_of("comparison", level={"ASO-Fed": 0.1})
    highest, aso = judge(["FEDASMU-C01", "FEDASMU-C20"], guess)
    assert [part.excluded for part in highest.parts if part.excluded] == [
        "ASO-Fed is not trained", "FedSA is reconstructed without a source"
    ]  # fmt: skip
    assert (highest.direction, aso.label, aso.counted) == ("holds", "undecided", False)
    assert len(judged["C36"].effects) == 2 < len(judged["C36"].parts)


def test_a_median_and_a_product_of_times_know_what_is_a_bound() -> None:
    times = [Censored({0: 1.0, 1: 5.0}), Censored({0: 2.0, 1: 2.0}), Censored({0: 9.0, 1: 3.0}, [0, 1])]
    assert (middle(times), middle(times).at_least) == ({0: 2.0, 1: 3.0}, {1})
    assert (product(times, 0.5), product(times[:2]).at_least) == (
        {0: pytest.approx(18**0.5), 1: pytest.approx(30**0.5)}, frozenset()
    )  # fmt: skip
    assert product([]) == {}


class Made(Store):
    """A store that has the runs of two studies."""

    made: dict[str, Result] = {}

    def get(self, spec: RunSpec) -> Result | None:
        return self.made.get(spec.hash)

    def stamp(self) -> tuple[tuple[str, int], ...]:
        return tuple((key, 0) for key in sorted(self.made))

    def state(self, keys: Iterable[str]) -> dict[str, str]:
        return {key: "made" * (key in self.made) for key in keys}


def test_the_ledger_is_judged_at_the_papers_budget_where_three_seeds_are_stored(tmp_path: Path) -> None:
    """It used to be judged at 600 uploads although runs of 5,000 were stored."""
    store = Made(tmp_path, tmp_path)
    reduced = study_of("comparison", "others", level={"FedDyn": 0.9})
    for seeds, budget in ((2, "laptop"), (3, "paper")):
        full = study_of("comparison", seeds=seeds, profile="paper")
        store.made.clear()
        store.made.update(reduced.results | full.results)
        found = {j.claim.id[8:]: j for j in ledger.judged(paper="FEDASMU", store=store)}
        assert {found[name].budget for name in ("C01", "C05", "C13", "C17", "C23")} == {budget}
        assert (found["C36"].budget, found["C24"].label) == ("laptop", "undecided")
        assert found["C01"].direction == ("opposite" if budget == "laptop" else "holds")


# What is measured


def one_run(accuracy: list[float], seconds: list[float], method: str) -> tuple[Entry, Result]:
    entries = GRIDS["comparison"]("laptop", "fashion-mnist", (0,))
    entry = next(e for e in entries if e.labels["method"] == method)
    return entry, measured(entry.spec, seconds=seconds, test_accuracy=accuracy)


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ((0.8, 60.0), (0.8, 90.0), (50.0, 80.0)),
        ((0.8, 60.0), (0.6, 90.0), (50.0, 90.0)),  # it needs at least 90 s
        ((0.8, 99.0), (0.6, 80.0), None),  # it may need less or more
        ((0.6, 90.0), (0.8, 80.0), (90.0, 70.0)),
        ((0.6, 70.0), (0.8, 99.0), None),
        ((0.6, 70.0), (0.6, 80.0), None),
    ],
)
def test_tables_show_times_where_enough_is_known(ours, theirs, expected) -> None:
    """A run stands at 0.5 and then at its end's accuracy, of which a window of five is full 10 s before the end."""
    runs = [
        one_run([0.5] * 5 + [accuracy] * 5, [*np.linspace(0, end - 26, 5), *np.linspace(end - 20, end, 5)], method)
        for (accuracy, end), method in ((ours, "FedASMU"), (theirs, "FedAvg"))
    ]
    study = Study("laptop", "fashion-mnist", tuple(e for e, _ in runs), {e.key: result for e, result in runs})
    found = times(study, "FedASMU", "FedAvg", AT)
    assert [bool(side) for side in found] == [expected is not None] * 2
    if expected:
        assert [side[0] for side in found] == [pytest.approx(at, abs=20) for at in expected]
        assert savings(study, "FedASMU", "FedAvg", AT)[0] == pytest.approx(1 - found[0][0] / found[1][0])


def test_settings_are_found_in_the_grid(whole: Study) -> None:
    assert settings(whole) == [AT]
    assert str(Setting("lenet-fmnist", "bandwidth", 50.0)) == "LeNet, FMNIST, bandwidth 50"
    assert {at.value for at in settings(whole, "FedAvg", "bandwidth")} == {50.0, 100.0}


# The tables


def test_the_comparison_shows_print_and_runs_side_by_side(whole: Study) -> None:
    table = tables.measured(whole, METHODS).set_index("method")
    assert list(table.index) == list(METHODS)
    row = table.loc["FedAvg"]
    assert (row["printed accuracy"], row["printed time"]) == ("0.706", "65,000")
    assert row["accuracy"].startswith(("0.79", "0.80"))
    assert row["reached"] == "5 of 5"
    assert float(row["ratio"]) == pytest.approx(800 / 0.8 / (100 / 0.88), rel=0.05)
    assert float(row["printed ratio"]) == pytest.approx(
        number("lenet-fmnist", "FedAvg", "time") / number("lenet-fmnist", "FedASMU", "time"), abs=0.006
    )


def test_all_columns_are_there_whether_they_were_run_or_not(whole: Study) -> None:
    second = tables.all_columns([whole], 2).set_index("method")
    assert second.loc["FedBuff", "LeNet, FMNIST"].endswith("]")
    assert second.loc["data", "LeNet, FMNIST"] == "real, laptop, 5 seeds"
    assert second.loc["data", "VGG, CIFAR-10"] == "not run"
    first = tables.all_columns([whole], 1, "time").set_index("method")
    assert first.loc["FedDyn", "LeNet, CIFAR-10"] == "not reached | –"
    assert first.loc["target", "CNN, CIFAR-10"] == "0.40 | –"
    assert tables.all_columns([whole], 2, "time").set_index("method").loc["target", "LeNet, FMNIST"] == "0.70 | 0.70"
    assert len(first.columns) == len(second.columns) == 6


def test_a_target_that_only_a_baseline_reaches_is_not_called_unreached() -> None:
    here = study_of("comparison", level={"FedASMU": 0.6, "PORT": 0.6})
    column = tables.all_columns([here], 2, "time").set_index("method")["LeNet, FMNIST"].str.split(" | ", regex=False)
    assert column["FedASMU"][1] == column["PORT"][1] == "not reached"
    end, fedavg = (np.mean(list(passed(here, m, AT).values())) for m in ("FedASMU", "FedAvg"))
    assert column["FedAvg"][1] == f"< {fedavg / end:.2f}"


def test_what_two_budgets_agree_on() -> None:
    """The page used to say that the order of methods carries over, which its own runs refute."""
    reduced = study_of("comparison", seeds=1, seconds={"FedAsync": 60.0}, level={"PORT": 0.6})
    full = study_of("comparison", seeds=1, profile="paper", seconds={"FedAvg": 40.0})
    frame = tables.both_budgets([reduced], [full]).set_index("method")
    assert list(frame.loc["PORT", ["time, reduced", "time, full"]]) == [math.inf, pytest.approx(2.3, abs=0.1)]
    assert frame.loc["FedAvg", "time, printed"] == pytest.approx(65000 / 8250)
    said = tables.carried_over(frame.reset_index())
    assert "in accuracy the rank correlation of the 10 methods with both is 0.82" in said  # PORT falls by five places
    assert "of the 9 methods with both" in said
    assert said.endswith("2 of 9 change sides with FedASMU (FedAsync, FedAvg).")
    assert "FedASMU ends +5.1 points from its printed accuracy, 9 of the 9" in tables.above_print(frame.reset_index())
    assert tables.both_budgets([reduced], []).empty


def test_leaders_of_the_columns() -> None:
    def row(**made: dict[str, float]) -> list[str]:
        return tables.leaders([study_of("comparison", **made)]).to_numpy().tolist()[0][2:]

    assert tables.leaders([study_of("comparison")]).iloc[0].tolist()[:2] == ["LeNet, FMNIST", "real"]
    assert row() == ["FedASMU", "1 of 10", "FedASMU", "1 of 10"]
    assert row(level={"FedDyn": 0.95, "PORT": 0.94}) == ["FedDyn", "3 of 10", "FedASMU", "1 of 10"]
    assert row(level={"FedASMU": 0.6})[2:] == ["FedAsync", "not reached"]
    assert row(level=dict.fromkeys(METHODS, 0.6))[2:] == ["none", "not reached"]
    assert tables.leaders([]).empty


def test_gains_ablations_and_what_the_text_reports(whole: Study) -> None:
    gains = tables.gains_table(whole).set_index("against")
    assert gains.loc["FedSA", "accuracy gain, text"] == "not printed"
    assert gains.loc["FedSA", "accuracy gain, tables"] == "0.017 to 0.27"
    assert gains.loc["FedAvg", "accuracy gain, here"].startswith("LeNet, FMNIST: 0.0")
    ablation = tables.measured(whole, ABLATED, IMPLIED)
    assert list(ablation["method"]) == ["FedASMU", "FedASMU-DA", "FedASMU-FA", "FedASMU-0", "FedAvg"]
    assert set(ablation["printed accuracy"]) == {None}  # Figure 2 has CIFAR-10 only
    assert list(tables.advantages(whole, EXTRA)["time saved, printed"]) == ["0.692", "0.194", "0.759"]
    assert list(tables.advantages(whole, HEURISTICS)["accuracy gain, printed"].fillna("–")) == [
        "0.024", "0.022", "–", "0.028",
    ]  # fmt: skip
    sensitivity = tables.sensitivity_table(whole)
    assert sensitivity["changed"].iloc[0] == "nothing"
    assert len(sensitivity) == 9
    traffic = tables.communication_table(whole).set_index("method")
    assert tuple(traffic.loc["FedASMU", ["models up per upload", "models down per upload"]]) == ("1.000", "1.900")


def test_the_ablation_on_cifar10_has_the_accuracies_that_the_text_implies() -> None:
    table = tables.measured(study_of("ablations", dataset="cifar10-surrogate"), ABLATED, IMPLIED)
    assert dict.fromkeys(table["column"]) == {"LeNet, CIFAR-10": None, "CNN, CIFAR-10": None}
    assert list(table["printed accuracy"])[:3] == ["0.4860", "0.4428", "0.4389"]
