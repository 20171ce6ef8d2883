"""FedAsync's labels: on made-up runs that obey or contradict the paper, on the clock, and on toys."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
from made_up import measured

from fl_core.algorithms import FedAsync
from fl_core.errors import SpecError
from fl_core.experiments.artifacts import find_artifacts, make_study
from fl_core.experiments.claims import judge
from fl_core.experiments.run import Result
from fl_core.experiments.study import Entry, Study
from fl_core.world import TraceCompute, World
from fl_papers.fedasync import exact
from fl_papers.fedasync.claims import AS_FAST, CLAIMS, with_its_own_rate
from fl_papers.fedasync.experiment import LOCAL_LR, FedAsyncExperiment
from fl_papers.fedasync.figures import chosen_lr, oscillation, over_rates, time_curves

event_grid = FedAsyncExperiment.made(FedAsyncExperiment.clocked)
EMPTY = Study("smoke", "fashion-mnist", (), {})
CURVES = [f"fedasync-fig{number}" for number in range(2, 11)]
EMPIRICAL = tuple(claim.id.partition("-")[2] for claim in CLAIMS if claim.kind == "run" and claim.id[-3:] != "C30")


def labels(names: tuple[str, ...] | list[str], study: Study = EMPTY) -> dict[str, str]:
    return {j.claim.id.partition("-")[2]: j.label for j in judge([f"FEDASYNC-{name}" for name in names], study)}


def failed(name: str) -> set[str]:
    """Names of the parts of an exact claim that do not hold."""
    [judgement] = judge([f"FEDASYNC-{name}"], EMPTY)
    return {part.name for part in judgement.checks if part.holds is False}


# What no training decides


def test_a_server_that_waits_for_everybody_refutes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    class Waiting(FedAsync):
        async def scheduler(self, server):
            await server.idle_changed()
            if not server.in_flight:
                server.dispatch(list(server.idle)[: self.concurrency])

    monkeypatch.setattr(exact, "FedAsync", Waiting)
    assert "constant concurrency, uniform durations" in failed("C20")
    assert failed("C21") == {"rate of updates"}
    assert len(failed("C25")) == 4


def test_a_server_without_parallel_work_refutes_c24(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "FedAsync", lambda concurrency: FedAsync(concurrency=1))
    assert failed("C24") == {"M = 2", "M = 4", "M = 8", "M = 16", "M = 32"}


def test_a_threshold_that_is_one_off_refutes_c19(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FedAsync, "drops", lambda self, u: self.drop_above is not None and u >= self.drop_above)
    assert len(failed("C19")) == 4


def test_staleness_in_flight_is_that_of_the_timeline_of_o14() -> None:
    world = World(devices=3, compute=TraceCompute(seconds_per_step=(3.0, 5.0, 7.0)))
    history = exact._simulate(FedAsync(concurrency=3), world, updates=12)
    assert sum(history.updates["staleness"]) == 19
    assert exact._in_flight(history) == 5


# Curves and final values

PAPERS = {"SGD": 1000.0, "FedAsync": 1060.0, "FedAvg": 3000.0, "K": 0.02, "α": -0.05, "shaky": 0.1, "calm": 0.02,
          "small α": 0.0, "adaptive": 0.01}  # fmt: skip
"""A world as the paper has it: gradients in which a loss falls to 1/e, and its factor by K and α; how much accuracy
swings, plain and adaptive; points by which Poly is ahead, and trends over α go."""


def made_up(entry: Entry, world: dict[str, float]) -> Result:
    """A run whose loss falls as exp(-gradients / slowness), with a little noise from its seed."""
    own, spec = entry.labels, entry.spec
    name, alpha, K = own["method"], own["alpha"] or 0.0, own["max_staleness"] or 0
    key = "FedAsync" if K == 4 and "Poly" not in name else name
    rng = np.random.default_rng([own["seed"], sum(map(ord, key)), int(100 * alpha), K])
    tau = world[key.split("+")[0]] * (1 + world["K"] * K) * (1 + world["α"] * alpha) * (1 + 0.004 * rng.normal())
    tau *= 0.97 if "+" in key and K > 4 else 1
    bent = world["adaptive"] * (K == 16) * ((-1 if key == "FedAsync" else 1) * 3 * alpha + ("Poly" in key))
    swing = world["shaky" if key == "FedAsync" else "calm"] * (1 - alpha if world["small α"] else alpha)
    swing *= 1 + 0.05 * rng.random()
    per_epoch, transfers = (100, 10) if name == "FedAvg" else (10, 1)
    version = np.arange(0, spec.budget.updates + 1, spec.evaluation.every_updates)
    loss = np.exp(-per_epoch * version / tau)
    down = np.arange(len(version)) % 2 * (version < spec.budget.updates)
    result = measured(
        spec, version=version, gradients=per_epoch * version, models_sent=transfers * version,
        models_received=transfers * version, train_loss=loss, test_accuracy=0.6 - 0.1 * loss + bent - swing * down,
    )  # fmt: skip
    return dataclasses.replace(result, provenance=result.provenance | {"model_sha256": key})


def made_up_study(**world: float) -> Study:
    """All figures at profile laptop with five seeds, as the paper says unless changed."""
    study = make_study(find_artifacts(CURVES), "laptop", seeds=list(range(5)))
    known = {entry.key: made_up(entry, PAPERS | world) for entry in study.entries}
    return study.with_results(known)


OBEYING = made_up_study()


def test_a_world_like_the_papers_reproduces_every_claim() -> None:
    assert labels(EMPIRICAL, OBEYING) == dict.fromkeys(EMPIRICAL, "reproduced")
    assert set(labels(("C07", "C22", "C23"), OBEYING).values()) == {"by construction"}


@pytest.mark.parametrize(("how", "label"), [({}, "contradicted"), ({"instructions": "others"}, "by construction")])
def test_bits_are_compared_where_equal_processors_made_them(how: dict[str, str], label: str) -> None:
    changed = {
        entry.key: dataclasses.replace(result, provenance=result.provenance | {"model_sha256": "moved"} | how)
        for entry, result in OBEYING.select(role="curve", method="FedAsync+Hinge", seed=1)
    }
    assert labels(("C07",), OBEYING.with_results(dict(OBEYING.results) | changed)) == {"C07": label}


@pytest.mark.parametrize(
    ("world", "fail"),
    [
        ({"FedAsync": 4000.0}, {"C01", "C02", "C04", "C16"}),  # slower than FedAvg
        ({"K": -0.02}, {"C03", "C11", "C17"}),  # staleness helps
        ({"FedAvg": 40_000.0}, {"C08"}),  # rounds are worth little
        ({"shaky": 0.02, "calm": 0.1}, {"C06"}),  # adaptivity makes it worse
        ({"small α": 1.0}, {"C05"}),  # a small α swings more
        ({"SGD": 2500.0}, {"C16"}),  # FedAsync is faster than SGD: not between
        ({"adaptive": -0.05}, {"C13", "C15", "C18"}),  # trends over α the other way, and large
    ],
)
def test_other_worlds_do_not(world: dict[str, float], fail: set[str]) -> None:
    found = labels(EMPIRICAL, made_up_study(**world))
    assert fail <= {name for name, label in found.items() if label == "contradicted"}


def test_equal_methods_are_not_between_one_another() -> None:
    """Tolerances of 5 and 10 % used to let a world without any difference pass: C16 was reproduced."""
    assert labels(("C16",), made_up_study(SGD=1060.0, FedAvg=1060.0, K=0.0, α=0.0)) == {"C16": "no difference"}


def test_a_rising_accuracy_does_not_oscillate() -> None:
    """The mean change between measurements was the measure: up to all of it was the trend."""
    calm = made_up_study(shaky=0.0, calm=0.0)
    values = oscillation(calm, "FedAsync", alpha=0.9, max_staleness=16)
    assert max(values.values()) == pytest.approx(0, abs=1e-12)
    [curve, *_] = calm.select(role="curve", method="FedAsync", alpha=0.9, max_staleness=16)
    assert np.abs(np.diff(curve[1].history.evaluations["test_accuracy"])).mean() > 1e-3
    assert labels(("C05", "C06"), calm) == {"C05": "no difference", "C06": "no difference"}


def test_a_learning_rate_is_not_chosen_on_the_seed_that_it_is_judged_on() -> None:
    study = made_up_study()
    for entry, result in study.select(method="FedAvg", part="whole", lr=0.2, seed=0):
        result.history.evaluations["test_accuracy"][-1] = 0.99  # luck in one seed only
        assert entry.labels["seed"] == 0
    assert chosen_lr(study, "FedAvg") == 0.2
    assert chosen_lr(study, "FedAvg", without=0) != 0.2
    lacking = [entry.key for entry, _ in study.select(method="FedAvg", seed=0) if entry.labels["lr"] != 0.2]
    rest = {key: result for key, result in study.results.items() if key not in lacking}
    assert chosen_lr(dataclasses.replace(study, results=rest), "FedAvg") != 0.2  # a seed that other rates lack


@pytest.mark.parametrize(
    ("slowness", "directions"), [(400.0, ["holds", "holds"]), (1500.0, ["opposite", "opposite"])]
)
def test_a_rate_of_its_own_may_be_what_fedasync_lacks(slowness: float, directions: list[str]) -> None:
    study = make_study(find_artifacts(["fedasync-x7"]), "laptop", seeds=list(range(5)))
    worlds = {True: PAPERS | {"FedAsync": 1200.0}, False: PAPERS | {"FedAsync": slowness}}
    at_the_authors = {entry.key: worlds[entry.labels["lr"] == LOCAL_LR] for entry in study.entries}
    found = study.with_results({entry.key: made_up(entry, at_the_authors[entry.key]) for entry in study.entries})
    assert [effect.direction for effect in with_its_own_rate(found)] == directions
    assert (over_rates(found).groupby("x")["ratio"].mean() < AS_FAST).sum() == 2 * (directions[0] == "holds")


# With a clock


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


def clocked(loss: Callable[[str, float, int], float]) -> Study:
    """A laptop study whose runs have the given loss by method, time and seed."""
    entries = event_grid("laptop", "fashion-mnist", list(range(5)), alphas=(0.6,))
    results = {}
    for entry in entries:
        budget, own = entry.spec.budget.seconds, entry.labels
        seconds = np.array([*np.linspace(0, budget, 21), budget])
        losses = [loss(own["method"], at, own["seed"]) for at in seconds]
        results[entry.key] = measured(
            entry.spec, seconds=seconds, version=seconds.astype(int), train_loss=losses, test_accuracy=[0.5] * 22
        )
    return Study("laptop", "fashion-mnist", tuple(entries), results)


@pytest.mark.parametrize(("rate", "label"), [(0.2, "reproduced"), (0.05, "contradicted")])
def test_who_reaches_the_common_loss_first_decides_c30(rate: float, label: str) -> None:
    rates = {"FedAsync": rate, "FedAvg": 0.1}
    luck = {"FedAsync": 0.01, "FedAvg": 0.0}
    made = clocked(lambda method, t, seed: float(np.exp(-rates[method] * (1 + luck[method] * seed) * t)))
    [judgement] = judge(["FEDASYNC-C30"], made)
    assert judgement.label == label
    [times] = judgement.effects
    assert isinstance(times.right, dict)
    first, slower = (times.left, times.right) if rate > 0.1 else (times.right, times.left)
    assert list(slower.values()) == pytest.approx(
        [57.0] * 5
    )  # the middle of the slower one's last three measurements
    assert all(25 < value < 32 for value in first.values())  # interpolated between measurements three seconds apart


def test_curves_over_virtual_time_are_means_over_seeds() -> None:
    found = time_curves(clocked(lambda method, t, seed: 2 - t / 60 - 0.5 * (method == "FedAsync") + 0.001 * seed))
    assert list(found["method"].unique()) == ["FedAvg", "FedAsync"]
    assert set(found.columns) == {
        "x", "method", "alpha", "max_staleness", "lr", "n", "test_accuracy", "train_loss", "test_accuracy_std",
        "train_loss_std",
    }  # fmt: skip
    one = found[found["method"] == "FedAsync"]
    assert len(one) == 21  # the repeated last evaluation counts once
    assert set(one["n"]) == {5}
    assert list(one["x"].iloc[[0, -1]]) == [0.0, 60.0]
    assert list(one["train_loss"].iloc[[0, -1]]) == pytest.approx([1.502, 0.502])
    assert set(one["train_loss_std"].round(6)) == {0.001581}
    assert set(one["alpha"]) == {0.6}
    assert time_curves(EMPTY).empty
