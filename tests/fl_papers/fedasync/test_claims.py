"""FedAsync as a system: its exact claims hold, would fail for a system that waits, and its runs are what they say."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from fl_core.algorithms import FedAsync, FedAvg
from fl_core.errors import SpecError
from fl_core.experiments.claims import Comparison, find_claim, judge
from fl_core.experiments.run import Result
from fl_core.experiments.spec import RunSpec
from fl_core.experiments.study import Study
from fl_core.runtime import History
from fl_core.runtime.history import append
from fl_core.world import TraceCompute, World
from fl_papers.fedasync import claims
from fl_papers.fedasync.experiment import FedAsyncExperiment
from fl_papers.fedasync.figures import time_curves, time_to_loss

event_grid = FedAsyncExperiment.made(FedAsyncExperiment.clocked)
EMPTY = Study("smoke", "fashion-mnist", (), {})
EXACT = [f"FEDASYNC-{number}" for number in ("C19", "C20", "C24", "C25")]


def failed(name: str) -> set[str]:
    """Names of the parts of an exact claim that do not hold."""
    [judgement] = judge([f"FEDASYNC-{name}"], EMPTY)
    return {part.name for part in judgement.parts if part.verdict == "not reproduced"}


def test_the_exact_claims_hold() -> None:
    judgements = judge(EXACT, EMPTY)
    assert [judgement.verdict for judgement in judgements] == ["reproduced"] * len(EXACT)
    assert all(find_claim(name).exact for name in EXACT)
    assert all(part.name and part.words()[0] for judgement in judgements for part in judgement.parts)


def test_without_runs_only_the_exact_parts_of_c21_are_decided() -> None:
    [judgement] = judge(["FEDASYNC-C21"], EMPTY)
    assert [part.verdict for part in judgement.parts] == ["reproduced"] * 3 + ["inconclusive"]
    assert judgement.verdict == "inconclusive"


def test_a_server_that_waits_for_everybody_refutes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    class Waiting(FedAsync):
        async def scheduler(self, server):
            await server.idle_changed()
            if not server.in_flight:
                server.dispatch(list(server.idle)[: self.concurrency])

    monkeypatch.setattr(claims, "FedAsync", Waiting)
    assert "constant concurrency, uniform durations" in failed("C20")
    assert failed("C21") == {"rate of updates"}
    assert len(failed("C25")) == 4


def test_a_server_without_parallel_work_refutes_c24(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "FedAsync", lambda concurrency: FedAsync(concurrency=1))
    assert failed("C24") == {"M = 2", "M = 4", "M = 8", "M = 16", "M = 32"}


def test_a_threshold_that_is_one_off_refutes_c19(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FedAsync, "drops", lambda self, u: self.drop_above is not None and u >= self.drop_above)
    assert len(failed("C19")) == 4


def test_staleness_in_flight_is_that_of_the_timeline_of_o14() -> None:
    world = World(devices=3, compute=TraceCompute(seconds_per_step=(3.0, 5.0, 7.0)))
    history = claims._simulate(FedAsync(concurrency=3), world, updates=12)
    assert sum(history.updates["staleness"]) == 19
    assert claims._in_flight(history) == 5


# Runs on data


@pytest.mark.parametrize(("profile", "seeds", "alphas"), [("smoke", 1, 1), ("laptop", 3, 2), ("paper", 10, 2)])
def test_both_methods_have_the_same_world_local_work_and_budget(profile: str, seeds: int, alphas: int) -> None:
    entries = event_grid(profile, "fashion-mnist", None)
    assert len(entries) == seeds * (1 + alphas)
    assert len({entry.key for entry in entries}) == len(entries)
    for entry in entries:
        spec, first = entry.spec, entries[0].spec
        assert spec.changed(seed=0, algorithm=first.algorithm) == first
        assert RunSpec.from_json(spec.to_json()) == spec
        assert entry.labels["role"] == "event"
        assert spec.algorithm.most_in_flight() == 10
        assert isinstance(spec.algorithm, FedAvg if entry.labels["method"] == "FedAvg" else FedAsync)
    per_step = np.array(entries[0].spec.world.compute.seconds_per_step)
    assert len(per_step) == 100
    assert (per_step[:99] == 0.1).all()
    assert per_step[99] == 1.0


def test_readers_can_change_alpha_rho_and_seeds() -> None:
    entries = event_grid("smoke", "cifar10", [7], alphas=(0.3, 0.5), rho=0.0)
    assert [(e.labels["method"], e.labels["alpha"]) for e in entries] == [
        ("FedAvg", None), ("FedAsync", 0.3), ("FedAsync", 0.5),
    ]  # fmt: skip
    assert {e.spec.seed for e in entries} == {7}
    assert entries[1].spec.algorithm.rho == 0.0
    with pytest.raises(SpecError, match="unknown override 'alpha'"):
        event_grid("smoke", "cifar10", None, alpha=0.3)


def test_the_setting_says_what_the_runs_are() -> None:
    experiment = FedAsyncExperiment("laptop", "fashion-mnist", [0, 1], alphas=(0.3,), rho=0.0)
    table = experiment.clocked_setting().set_index("setting")
    ours = table["here, profile laptop"]
    assert ours["FedAsync"] == "10 tasks in flight, α = 0.3, ρ = 0, no decay of α"
    assert ours["a local task takes"] == "1 s; 10 s on one device; transfers take no time"
    assert ours["budget"] == "60 virtual seconds, measured every 3 s"
    assert ours["repetitions"] == "2"
    assert set(table["the paper"]) == {"no such experiment"}


@pytest.mark.parametrize(
    ("target", "seconds"), [(3.0, 0.0), (2.0, 0.0), (1.5, 1.0), (1.0, 2.0), (0.75, 5.0), (0.5, 6.0)]
)
def test_the_time_to_a_loss_is_that_of_its_first_crossing(target: float, seconds: float) -> None:
    curve = pd.DataFrame({"seconds": [0.0, 2.0, 4.0, 6.0], "train_loss": [2.0, 1.0, 1.0, 0.5]})
    assert time_to_loss(curve, target) == pytest.approx(seconds)
    assert np.isnan(time_to_loss(curve, 0.4))


def study(loss: Callable[[str, float], float]) -> Study:
    """A laptop study whose runs have the given loss by method and time, with a little of the seed in it."""
    entries = event_grid("laptop", "fashion-mnist", None, alphas=(0.6,))
    results = {}
    for entry in entries:
        history, budget = History(), entry.spec.budget.seconds
        for seconds in [*np.linspace(0, budget, 21), budget]:
            value = loss(entry.labels["method"], seconds) + 0.001 * entry.labels["seed"]
            append(history.evaluations, seconds=seconds, version=int(seconds), models_sent=0, models_received=0,
                   train_loss=value, test_accuracy=0.5)  # fmt: skip
        results[entry.key] = Result(entry.spec, history, {"data": "real"})
    return Study("laptop", "fashion-mnist", tuple(entries), results)


@pytest.mark.parametrize(("rate", "verdict"), [(0.2, "reproduced"), (0.05, "not reproduced")])
def test_who_reaches_the_common_loss_first_decides_c21(rate: float, verdict: str) -> None:
    rates = {"FedAsync": rate, "FedAvg": 0.1}
    made = study(lambda method, seconds: float(np.exp(-rates[method] * seconds)))
    [judgement] = judge(["FEDASYNC-C21"], made)
    assert judgement.verdict == verdict
    times = judgement.parts[-1]
    assert isinstance(times, Comparison)
    first, slower = (times.left, times.right) if rate > 0.1 else (times.right, times.left)
    assert set(slower.values()) == {60.0}  # the slower one's end is what both reach
    assert all(25 < value < 33 for value in first.values())  # interpolated between evaluations three seconds apart


def test_curves_over_virtual_time_are_means_over_seeds() -> None:
    found = time_curves(study(lambda method, seconds: 2.0 - seconds / 60 - 0.5 * (method == "FedAsync")))
    assert list(found["method"].unique()) == ["FedAvg", "FedAsync"]
    assert set(found.columns) == {
        "x", "method", "alpha", "max_staleness", "lr", "n", "test_accuracy", "train_loss", "test_accuracy_std",
        "train_loss_std",
    }  # fmt: skip
    one = found[found["method"] == "FedAsync"]
    assert len(one) == 21  # the repeated last evaluation counts once
    assert set(one["n"]) == {3}
    assert list(one["x"].iloc[[0, -1]]) == [0.0, 60.0]
    assert list(one["train_loss"].iloc[[0, -1]]) == pytest.approx([1.501, 0.501])
    assert set(one["train_loss_std"].round(6)) == {0.001}
    assert set(one["alpha"]) == {0.6}
    assert time_curves(EMPTY).empty
