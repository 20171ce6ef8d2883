"""Claims: the statistics by hand, and FedAsync's claims on made-up results with a known answer."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fl_core.errors import SpecError
from fl_core.experiments.artifacts import find_artifacts, make_study
from fl_core.experiments.claims import Check, Claim, Comparison, Judgement, details, judge, ledger
from fl_core.experiments.run import Result
from fl_core.experiments.study import Entry, Study
from fl_core.runtime import History
from fl_core.runtime.history import append

CURVES = [f"fedasync-fig{n}" for n in range(2, 8)]
SWEEPS = [f"fedasync-fig{n}" for n in range(8, 11)]
EMPIRICAL = [f"FEDASYNC-C{n:02d}" for n in (1, 2, 3, 4, 5, 6, 8, 9, 10, 16, 17)]

FINAL = [f"FEDASYNC-C{n}" for n in (11, 12, 13, 14, 15, 18)]


def by_seed(*values: float) -> dict[int, float]:
    return dict(enumerate(values))


def test_the_interval_is_the_paired_t_interval_of_the_margin() -> None:
    left, right = np.array([1.0, 1.2, 0.9]), np.array([1.1, 1.25, 1.05])
    found = Comparison("", by_seed(*left), by_seed(*right), bound=1.1)
    margin = left - 1.1 * right
    reference = stats.ttest_1samp(margin, 0).confidence_interval(0.95)
    np.testing.assert_allclose(found.interval, 1.1 + np.array(reference) / right.mean())
    assert found.ratio == pytest.approx(left.mean() / right.mean())


@pytest.mark.parametrize(
    ("left", "right", "bound", "above", "verdict"),
    [
        ((0.80, 0.81, 0.79), (1.0, 1.0, 1.0), 1.0, False, "reproduced"),
        ((1.20, 1.21, 1.19), (1.0, 1.0, 1.0), 1.0, False, "not reproduced"),
        ((1.20, 1.21, 1.19), (1.0, 1.0, 1.0), 1.0, True, "reproduced"),
        ((1.05, 1.06, 1.04), (1.0, 1.0, 1.0), 1.1, False, "reproduced"),
        ((0.90, 1.20, 0.80), (1.0, 1.0, 1.0), 1.0, False, "inconclusive"),
        ((0.50,), (1.0,), 1.0, False, "inconclusive"),  # one seed says nothing about spread
        ((float("nan"), 0.5), (1.0, 1.0), 1.0, False, "inconclusive"),  # a run diverged
        ((), (), 1.0, False, "inconclusive"),
        ((0.5, 0.5), (1.0, 1.0), 1.0, False, "reproduced"),  # no spread at all
    ],
)
def test_verdicts(left: tuple, right: tuple, bound: float, above: bool, verdict: str) -> None:
    assert Comparison("", by_seed(*left), by_seed(*right), bound, above).verdict == verdict


def test_a_number_on_the_right_stands_for_every_seed() -> None:
    left = by_seed(0.80, 0.81, 0.79)
    against, ones = Comparison("", left, bound=0.7, above=True), Comparison("", left, by_seed(1, 1, 1), 0.7, True)
    assert (against.words(), against.verdict, against.seeds) == (ones.words(), "reproduced", [0, 1, 2])


def test_pairing_removes_what_seeds_share() -> None:
    shared = np.array([0.0, 5.0, 10.0])
    assert Comparison("", by_seed(*(1 + shared)), by_seed(*(1.1 + shared))).verdict == "reproduced"


def test_only_common_seeds_are_compared() -> None:
    found = Comparison("", {0: 1.0, 1: 1.0, 2: 99.0}, {0: 2.0, 1: 2.0, 3: 0.0})
    assert found.seeds == [0, 1]
    assert found.verdict == "reproduced"


def test_a_claim_is_as_strong_as_its_weakest_part() -> None:
    good = Comparison("good", by_seed(0.5, 0.51), by_seed(1.0, 1.0))
    tight = Comparison("tight", by_seed(0.9, 0.901), by_seed(1.0, 1.0))
    bad = Comparison("bad", by_seed(2.0, 2.01), by_seed(1.0, 1.0))
    unclear = Comparison("unclear", by_seed(0.5), by_seed(1.0))
    claim = Claim("X-C01", "", "", "", lambda study: [])

    def verdict(*parts: Comparison | Check) -> tuple[str, str]:
        judgement = Judgement(claim, parts, "d", "real", "smoke")
        return judgement.verdict, judgement.decisive.name if judgement.decisive else ""

    assert verdict(good, tight) == ("reproduced", "tight")
    assert verdict(good, unclear) == ("inconclusive", "unclear")
    assert verdict(good, bad, unclear) == ("not reproduced", "bad")
    assert verdict() == ("inconclusive", "")
    assert verdict(Check("bits", True, "")) == ("reproduced", "bits")
    assert verdict(Check("bits", True, ""), Check("counts", False, "")) == ("not reproduced", "counts")
    assert verdict(Check("bits", None, "")) == ("inconclusive", "bits")


def fabricate(entry: Entry, slowness: dict[str, float], shake: dict[str, float]) -> Result:
    """Make up a run whose loss falls as exp(-gradients / slowness) with a little noise from its seed."""
    labels, spec, history = entry.labels, entry.spec, History()
    method, alpha, bound = labels["method"], labels["alpha"] or 0.0, labels["max_staleness"] or 0
    hinge_is_plain = "Hinge" in method or "hinge" in method
    key = "FedAsync" if hinge_is_plain and bound == 4 else method
    tau = slowness[key.split("+")[0]] * (1 + slowness["staleness"] * (bound > 4)) * (1 - slowness["alpha"] * alpha)
    rng = np.random.default_rng([labels["seed"], sum(map(ord, key)), int(100 * alpha), bound])
    tau *= 1 + 0.01 * rng.standard_normal()
    per_epoch, transfers = (100, 20) if method == "FedAvg" else (10, 2)
    assert spec.budget.updates is not None
    assert spec.evaluation.every_updates is not None
    for version in range(0, spec.budget.updates + 1, spec.evaluation.every_updates):
        row = dict.fromkeys(("models_sent", "models_received"), transfers // 2 * version)
        loss = float(np.exp(-per_epoch * version / tau))
        wobble = shake.get(key, 0.0) * alpha * (1 + 0.05 * rng.random()) * (-1) ** version
        wobble = wobble * (version // spec.evaluation.every_updates % 2)
        append(history.evaluations, version=version, gradients=per_epoch * version, **row,
               train_loss=loss, test_accuracy=0.5 + wobble)  # fmt: skip
    return Result(spec, history, {"data": "real", "wall_seconds": 1.0, "model_sha256": key})


def fabricated_study(slowness: dict[str, float] | None = None, shake: dict[str, float] | None = None) -> Study:
    """A laptop study in which everything is as the paper says, unless changed."""
    taus = {"SGD": 1000.0, "FedAsync": 1350.0, "FedAvg": 3000.0, "staleness": 0.3, "alpha": 0.2} | (slowness or {})
    shakes = {"FedAsync": 0.2, "FedAsync+Poly": 0.05, "FedAsync+Hinge": 0.05} | (shake or {})
    study = make_study(find_artifacts(CURVES), "laptop")
    results = {entry.spec.hash: fabricate(entry, taus, shakes) for entry in study.entries}
    return dataclasses.replace(study, results=results)


def verdicts(study: Study) -> dict[str, str]:
    return {j.claim.id[-3:]: j.verdict for j in judge([*EMPIRICAL, "FEDASYNC-C22", "FEDASYNC-C23"], study)}


def test_a_world_like_the_papers_reproduces_every_claim() -> None:
    assert set(verdicts(fabricated_study()).values()) == {"reproduced"}


@pytest.mark.parametrize(
    ("slowness", "shake", "fail"),
    [
        ({"FedAsync": 4000.0}, {}, {"C01", "C02", "C04", "C09", "C10", "C16"}),  # slower than FedAvg
        ({"staleness": -0.3}, {}, {"C03", "C17"}),  # staleness helps
        ({"alpha": -0.5}, {}, {"C01"}),  # so slow that no alpha keeps up with SGD
        ({"FedAvg": 40_000.0}, {}, {"C08"}),  # rounds are worth little
        ({}, {"FedAsync+Poly": 0.5}, {"C06"}),  # adaptivity makes it worse
        ({"SGD": 2500.0}, {}, {"C16"}),  # faster than SGD: not between
    ],
)
def test_other_worlds_do_not(slowness: dict, shake: dict, fail: set[str]) -> None:
    found = verdicts(fabricated_study(slowness, shake))
    assert fail <= {name for name, verdict in found.items() if verdict == "not reproduced"}
    assert found["C22"] == found["C23"] == "reproduced"


def test_oscillation_that_does_not_grow_with_alpha_refutes_c05() -> None:
    study = fabricated_study()
    for entry, result in study.select(role="claim"):
        result.history.evaluations["test_accuracy"] = [
            0.5 + 0.4 * (i % 2) for i in range(len(result.history.evaluations["version"]))
        ]
        assert entry.labels["alpha"] == 0.2
    assert verdicts(study)["C05"] == "not reproduced"


def test_one_seed_proves_nothing_but_exact_claims() -> None:
    study = fabricated_study()
    one = dataclasses.replace(study, entries=tuple(e for e in study.entries if e.labels["seed"] == 0))
    found = verdicts(one)
    assert {found.pop("C22"), found.pop("C23")} == {"reproduced"}
    assert set(found.values()) == {"inconclusive"}


def test_missing_runs_are_inconclusive_not_an_error() -> None:
    empty = make_study(find_artifacts(CURVES + SWEEPS), "smoke")
    assert set(verdicts(empty).values()) == {"inconclusive"}
    assert set(ledger(judge(EMPIRICAL, empty))["at"]) == {"no runs to judge it on"}
    assert details(judge(["FEDASYNC-C01"], empty)).empty


def swept_study(accuracy: Callable[[dict[str, Any]], float], loss: Callable[[dict[str, Any]], float]) -> Study:
    """A laptop study of Figures 8 to 10 whose runs end about where two functions of their labels say."""
    study = make_study(find_artifacts(SWEEPS), "laptop")
    results = {}
    for entry in study.entries:
        history, noise = History(), 1e-4 * np.random.default_rng(entry.labels["seed"]).normal()
        end = {"train_loss": loss(entry.labels) + noise, "test_accuracy": accuracy(entry.labels) + noise}
        append(history.evaluations, version=400, gradients=4000, **end)
        results[entry.spec.hash] = Result(entry.spec, history, {"data": "real"})
    return dataclasses.replace(study, results=results)


def slope(labels: dict[str, Any]) -> int:
    """What the paper says of the large staleness: adaptive weights like a large alpha, the plain method does not."""
    return (-1 if labels["method"] == "FedAsync" else 1) if labels["max_staleness"] == 16 else 0


def bonus(labels: dict[str, Any]) -> float:
    return {"FedAsync": 0.0, "FedAsync+Hinge": 0.003, "FedAsync+Poly": 0.006}[labels["method"]]


def test_a_world_like_the_papers_reproduces_every_claim_about_final_values() -> None:
    study = swept_study(
        lambda run: 0.8 + bonus(run) + 0.01 * slope(run) * run["alpha"],
        lambda run: 0.5 + 0.01 * run["max_staleness"] - bonus(run),
    )
    assert [j.verdict for j in judge(FINAL, study)] == ["reproduced"] * len(FINAL)
    assert {len(j.parts) for j in judge(FINAL, study)} == {1, 2, 3, 6, 10}


@pytest.mark.parametrize(
    ("accuracy", "loss", "fail"),
    [
        (lambda run: 0.8, lambda run: 0.5 - 0.01 * run["max_staleness"], {"C11"}),  # staleness helps
        (lambda run: 0.8 if run["max_staleness"] < 16 else 0.6, lambda run: 0.5, {"C11"}),  # a catastrophe
        (lambda run: 0.8, lambda run: 0.5 + bonus(run), {"C12"}),
        (lambda run: 0.8 + 0.1 * run["alpha"], lambda run: 0.5, {"C13", "C15"}),  # a range of 0.07
        (lambda run: 0.8 - 10 * bonus(run), lambda run: 0.5, {"C14", "C18"}),  # adaptivity costs 0.06
        (lambda run: 0.8 + 10 * bonus(run), lambda run: 0.5, {"C14"}),  # or brings that much
    ],
)
def test_other_final_values_do_not(accuracy: Callable, loss: Callable, fail: set[str]) -> None:
    found = {j.claim.id[-3:]: j.verdict for j in judge(FINAL, swept_study(accuracy, loss))}
    assert fail <= {name for name, verdict in found.items() if verdict == "not reproduced"}


def test_a_miscounted_epoch_refutes_the_counters() -> None:
    study = fabricated_study()
    _, result = study.select(method="FedAsync")[0]
    result.history.evaluations["gradients"][3] += 1
    result.history.evaluations["models_sent"][3] += 1
    found = verdicts(study)
    assert (found["C22"], found["C23"]) == ("not reproduced", "not reproduced")


def test_hinge_must_be_equal_bit_for_bit() -> None:
    study = fabricated_study()
    assert [j.verdict for j in judge(["FEDASYNC-C07"], study)] == ["reproduced"]
    entry, result = study.select(method="FedAsync+Hinge", max_staleness=4)[0]
    result.history.evaluations["train_loss"][-1] *= 1 + 1e-15
    assert [j.verdict for j in judge(["FEDASYNC-C07"], study)] == ["not reproduced"]
    result.history.evaluations["train_loss"] = list(
        study.select(method="FedAsync", **{k: entry.labels[k] for k in ("alpha", "max_staleness", "seed")})[0][
            1
        ].history.evaluations["train_loss"]
    )
    result.provenance["model_sha256"] = "another"
    assert [j.verdict for j in judge(["FEDASYNC-C07"], study)] == ["not reproduced"]


def test_the_ledger_says_where_a_verdict_comes_from() -> None:
    frame = ledger(judge(["FEDASYNC-C05", "FEDASYNC-C04", "FEDASYNC-C04"], fabricated_study()))
    assert list(frame["claim"]) == ["FEDASYNC-C04", "FEDASYNC-C05†"]
    row = frame.iloc[0]
    assert (row["verdict"], row["seeds"], row["profile"]) == ("reproduced", 3, "laptop")
    assert row["data"] == "fashion-mnist (real)"
    assert row["at"].startswith("K = 16")
    assert row["claimed"] == "≤ 1.1"
    with pytest.raises(SpecError, match="unknown claim"):
        judge(["FEDASYNC-C99"], fabricated_study())
