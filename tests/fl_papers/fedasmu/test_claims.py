"""FedASMU's printed numbers, claims and tables, on made-up runs with a known answer."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from fl_core.experiments.artifacts import artifacts
from fl_core.experiments.claims import judge
from fl_core.experiments.run import Result
from fl_core.experiments.study import Entry, Study
from fl_core.runtime import History
from fl_core.runtime.history import append
from fl_papers.fedasmu import tables
from fl_papers.fedasmu.artifacts import GRIDS
from fl_papers.fedasmu.claims import CLAIMS as OWN
from fl_papers.fedasmu.experiment import ABLATIONS, BASELINES, COLUMNS, EXTRA, HEURISTICS, METHODS, SYNCHRONOUS
from fl_papers.fedasmu.figures import Setting, reached, savings, settings, times
from fl_papers.fedasmu.tables import IMPLIED, PRINTED, band, deviations, gain, number, tables_band

artifacts()  # makes the claims known

NAMES = {f"FEDASMU-C{n:02d}" for n in range(1, 45)}
COMPUTED = {"FEDASMU-C34", "FEDASMU-C40", "FEDASMU-C41", "FEDASMU-C42", "FEDASMU-C43"}
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
    "FedASMU-DA": 0.87, "FedASMU-FA": 0.868, "FedASMU-0": 0.862, "H1": 0.85, "H2": 0.865, "slot 3": 0.87, "H3": 0.86,
}  # fmt: skip
SECONDS = {"FedASMU": 100.0, "FedASMU-DA": 150.0, "FedASMU-FA": 160.0, "FedASMU-0": 200.0, "FedDelay": 300.0}
SECONDS |= dict.fromkeys(SYNCHRONOUS, 800.0)


def fabricate(entry: Entry, level: dict[str, float], seconds: dict[str, float]) -> Result:
    """Make up a run whose accuracy rises in a line to its level, and stays."""
    method, varied, value = (entry.labels[name] for name in ("method", "varied", "value"))
    rng = np.random.default_rng([entry.labels["seed"], sum(map(ord, method)), sum(map(ord, f"{varied} {value}"))])
    end, full = level[method] + 0.0005 * rng.standard_normal(), seconds.get(method, 220.0)
    if varied == "bandwidth":  # FedASMU suffers more; at 100 advantages lie further apart
        far = {"FedAvg": 4.0, "FedAsync": 1.45}.get(method, 2.0)
        full *= 2.6 if method == "FedASMU" else far if value == 100 else 2.0
        end += {"FedAvg": -0.05, "FedAsync": 0.01}.get(method, 0.0) if value == 100 else 0.0
    if varied == "heterogeneity" and method in SYNCHRONOUS:
        full *= value / 50
    full *= 1 + 0.01 * rng.random()
    history = History()
    for step in range(101):
        append(
            history.evaluations, seconds=full * step / 50, version=10 * step, test_accuracy=end * min(1.0, step / 50),
            models_received=step, bytes_up=100 * step,
            bytes_down=step * (190 if method == "FedASMU" else 100),
        )  # fmt: skip
    return Result(entry.spec, history, {"data": "real"})


def study_of(
    *grids: str, level: dict[str, float] | None = None, seconds: dict[str, float] | None = None, **chosen: Any
) -> Study:
    entries = {}
    for grid in grids:
        for entry in GRIDS[grid]("laptop", chosen.get("dataset", "fashion-mnist"), (0, 1, 2)):
            entries.setdefault(entry.key + repr(entry.labels), entry)
    results = {
        e.key: fabricate(e, {**LEVEL, **(level or {})}, {**SECONDS, **(seconds or {})}) for e in entries.values()
    }
    return Study("laptop", chosen.get("dataset", "fashion-mnist"), tuple(entries.values()), results)


def verdicts(study: Study, names: Any) -> dict[str, str]:
    return {found.claim.id: found.verdict for found in judge(names, study)}


@pytest.fixture(scope="module")
def whole() -> Study:
    return study_of("comparison", "others", "ablations", "heuristics", "sensitivity", "conditions")


def test_every_claim_of_the_specification_is_there() -> None:
    assert [claim.id for claim in OWN] == sorted(NAMES)
    assert {claim.id for claim in OWN if claim.computed} == COMPUTED


def test_they_hold_on_runs_that_were_made_to_hold(whole: Study) -> None:
    assert verdicts(whole, NAMES - COMPUTED) == dict.fromkeys(sorted(NAMES - COMPUTED), "reproduced")


@pytest.mark.parametrize(
    ("grids", "changed", "fails"),
    [
        ("comparison", {"level": {"FedBuff": 0.9}}, {1, 3, 21}),
        ("comparison", {"level": {"FedAvg": 0.5}}, {3}),
        ("comparison", {"seconds": {"PORT": 60.0}}, {2, 4, 10}),
        ("comparison", {"seconds": dict.fromkeys(SYNCHRONOUS, 120.0)}, {23}),
        ("ablations", {"level": {"FedASMU-DA": 0.89}}, {28}),
        ("ablations", {"level": {"FedASMU-FA": 0.89}}, {30}),
        ("ablations", {"seconds": {"FedASMU-FA": 60.0}}, {30}),
        ("ablations", {"level": {"FedASMU-0": 0.875}}, {29, 31}),
        ("ablations", {"level": {"FedAvg": 0.873}}, {32, 33}),
        ("ablations", {"seconds": {"FedAvg": 300.0}}, {33}),
        ("others", {"level": {"SyncDrop": 0.9}}, {36}),
        ("others", {"seconds": {"AsyncPart": 50.0}}, {37}),
        ("heuristics", {"level": {"H3": 0.9}}, {38, 44}),
        ("heuristics", {"level": {"slot 3": 0.9}}, set()),
    ],
)  # fmt: skip
def test_they_fail_where_the_runs_say_otherwise(grids: str, changed: dict, fails: set[int]) -> None:
    found = verdicts(study_of(grids, **changed), NAMES - COMPUTED)
    wrong = {name for name, verdict in found.items() if verdict == "not reproduced"}
    assert wrong == {f"FEDASMU-C{number:02d}" for number in fails}


def test_a_study_without_runs_decides_nothing() -> None:
    empty = Study("laptop", "fashion-mnist", tuple(GRIDS["conditions"]("laptop", "fashion-mnist", (0,))), {})
    assert set(verdicts(empty, NAMES - COMPUTED).values()) == {"inconclusive"}


def test_what_needs_no_runs_is_judged_without_any() -> None:
    empty = Study("laptop", "fashion-mnist", (), {})
    assert verdicts(empty, COMPUTED) == {
        "FEDASMU-C34": "reproduced", "FEDASMU-C40": "reproduced", "FEDASMU-C41": "not reproduced",
        "FEDASMU-C42": "not reproduced", "FEDASMU-C43": "not reproduced",
    }  # fmt: skip
    parts = {
        part.name: part.verdict for found in judge(["FEDASMU-C41", "FEDASMU-C42"], empty) for part in found.parts
    }
    assert parts == {
        "the corrected bound, to a neighbourhood": "reproduced", "with derived gradients": "reproduced",
        "the printed bound, to a critical point": "not reproduced",
        "with the gradients that are printed": "not reproduced",
    }  # fmt: skip


# What is measured


def one_run(accuracy: list[float], seconds: list[float], method: str) -> tuple[Entry, Result]:
    entries = GRIDS["comparison"]("laptop", "fashion-mnist", (0,))
    entry = next(e for e in entries if e.labels["method"] == method)
    history = History()
    for value, at in zip(accuracy, seconds, strict=True):
        append(history.evaluations, seconds=at, test_accuracy=value)
    return entry, Result(entry.spec, history, {"data": "real"})


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ((0.8, 50.0), (0.8, 80.0), (50.0, 80.0)),
        ((0.8, 50.0), (0.6, 80.0), (50.0, 80.0)),  # it needs at least 80 s
        ((0.8, 90.0), (0.6, 80.0), None),  # it may need less or more
        ((0.6, 90.0), (0.8, 80.0), (90.0, 80.0)),
        ((0.6, 70.0), (0.8, 80.0), None),
        ((0.6, 70.0), (0.6, 80.0), None),
    ],
)
def test_times_are_compared_where_enough_is_known(ours, theirs, expected) -> None:
    runs = [
        one_run([0.1, accuracy], [0.0, end], method)
        for (accuracy, end), method in ((ours, "FedASMU"), (theirs, "FedAvg"))
    ]
    study = Study("laptop", "fashion-mnist", tuple(e for e, _ in runs), {e.key: result for e, result in runs})
    found = times(study, "FedASMU", "FedAvg", AT)
    assert found == (({0: expected[0]}, {0: expected[1]}) if expected else ({}, {}))
    saved = savings(study, "FedASMU", "FedAvg", AT)
    assert saved == ({0: 1 - expected[0] / expected[1]} if expected else {})


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
    assert row["reached"] == "3 of 3"
    assert float(row["ratio"]) == pytest.approx(800 / 0.8 / (100 / 0.88), rel=0.05)
    assert float(row["printed ratio"]) == pytest.approx(
        number("lenet-fmnist", "FedAvg", "time") / number("lenet-fmnist", "FedASMU", "time"), abs=0.006
    )


def test_all_columns_are_there_whether_they_were_run_or_not(whole: Study) -> None:
    second = tables.all_columns([whole], 2).set_index("method")
    assert second.loc["FedBuff", "LeNet, FMNIST"].endswith("]")
    assert second.loc["data", "LeNet, FMNIST"] == "real, laptop, 3 seeds"
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
    end, fedavg = (np.mean([found.at for found in reached(here, m, AT).values()]) for m in ("FedASMU", "FedAvg"))
    assert column["FedAvg"][1] == f"< {fedavg / end:.2f}"


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


@pytest.mark.parametrize("table", [5, 6])
def test_hyper_parameters_are_those_that_are_printed_but_for_the_rounds(table: int) -> None:
    found = tables.hyperparameters(table).set_index("parameter")
    assert found.shape == (12, {5: 7, 6: 5}[table])
    assert set(found.loc["T"]) == {"5000 (printed 500)"}  # E20
    assert not any("printed" in cell for cell in found.drop("T").to_numpy().ravel())


def test_table_3_counts_the_parameters_of_the_cnn() -> None:
    found = tables.cnn_layers()
    assert list(found.loc[found["layer"] == "all", "parameters"]) == [297_066, 2_889_156]
    assert list(found["layer"])[:3] == [
        "convolution, 64 kernels 2×2",
        "convolution, 32 kernels 2×2",
        "dense, 10 units",
    ]
