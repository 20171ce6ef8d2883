"""WKAFL and what it is compared with, on simulated runs: a second implementation, oracles, faults, aliased models."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pytest
import runs
import torch
from baseline_runs import TOY_B
from fedluck_runs import rounds as updates

from fl_core.algorithms import GSGM, SASGD, TWAFL, WKAFL, Algorithm, KAsync, SoftsyncSASGD, ZenoPP
from fl_core.errors import SpecError
from fl_core.experiments.spec import RunSpec
from fl_core.runtime import Simulation
from fl_core.tasks import Quadratic
from fl_core.world import World

TOY_B_WORLD = runs.fixed(2.0, 3.0, 5.0)
"""A gradient takes as long as a task of section 1.5 of the baselines' specification."""

DEVICES = 40


def simulate(
    algorithm: Algorithm, task: Quadratic, world: World, updates: int | None = None, **settings: Any
) -> Simulation:
    settings = {"updates": updates, "every_updates": 10, "batch_size": 50, "seed": 1, **settings}
    return runs.simulate(algorithm, world, task, **settings)


def random_task(agree: bool = False, devices: int = DEVICES, size: int = 6) -> Quadratic:
    rng = np.random.default_rng(0)
    centre = rng.standard_normal((devices, size))
    if agree:
        centre = centre[:1].repeat(devices, 0)
    return Quadratic(rng.uniform(0.5, 2, (devices, size)), centre, [3.0] * size)


def world(devices: int = DEVICES, **fields: Any) -> World:
    return World.named("wkafl", devices=devices, **fields)


# A second implementation: Algorithms 1 to 3 line by line, one gradient at a time


def replay(run: Simulation, options: WKAFL) -> np.ndarray:
    """Do what `run` did, knowing only which device was used when and how old its model was."""
    task, models, seen = run.task, [run.task.start.numpy()], set()
    momentum, stage = np.zeros(task.dimension), 1
    for used in updates(run):
        grads, losses = [], []
        for device, staleness in used:
            base = models[-1 - staleness]
            if options.client_snapshot == "aliased" and device in seen:
                base = models[-1]
            offset = base - task.centre[device].numpy()
            grads.append(task.curvature[device].numpy() * offset)
            losses.append(0.5 * grads[-1] @ offset)
        seen |= {device for device, _ in used}
        alpha = 0 if options.without == "non_iidness" else options.momentum_alpha
        grads = [g + alpha * momentum for g in grads]
        reduced = sum(losses) / (len(losses) if options.stage_rule == "mean_loss" else 1)
        if options.stage_rule == "iteration":
            reduced = -len(models)
        threshold = options.stage_threshold
        if threshold is not None and reduced <= (-threshold if options.stage_rule == "iteration" else threshold):
            stage = 2
        bound = math.inf if options.clip_bound is None else options.clip_bound
        grads = [g * min(1, bound / np.linalg.norm(g)) for g in grads]
        decayed = [1 if options.without == "staleness" else (math.e / 2) ** -tau for _, tau in used]
        estimate = sum(a * g for a, g in zip(decayed, grads, strict=True)) / sum(decayed)
        sims = [g @ estimate / np.linalg.norm(g) / np.linalg.norm(estimate) for g in grads]
        scores = [math.exp(options.sim_beta * sim) if sim >= options.sim_min else 0 for sim in sims]
        if options.selection_score != "similarity":
            scores = [score * a for score, a in zip(scores, decayed, strict=True)]
        if stage == 2 and options.without != "selection":
            longest = options.stage2_clip_factor * np.linalg.norm(estimate)
            grads = [g * min(1, longest / np.linalg.norm(g)) for g in grads]
        aggregated = estimate
        if options.without != "selection" and sum(scores):
            aggregated = sum(p * g for p, g in zip(scores, grads, strict=True)) / sum(scores)
        lr = options.lr
        if options.without != "staleness":
            lr /= 1 + options.lr_staleness_factor * (min(tau for _, tau in used) + options.staleness_offset)
        momentum = estimate if options.momentum_source == "estimated" else aggregated
        models.append(models[-1] - lr * aggregated)
    return models[-1]


OPTIONS = [
    {},
    {"momentum_source": "aggregated", "momentum_alpha": 0.5},
    {"stage_threshold": 4.0, "stage2_clip_factor": 0.5},
    {"stage_rule": "sum_loss", "stage_threshold": 30.0, "stage2_clip_factor": 0.5},
    {"stage_rule": "iteration", "stage_threshold": 12, "stage2_clip_factor": 0.3},
    {"selection_score": "similarity_times_staleness", "staleness_offset": 1},
    {"clip_bound": None, "sim_min": 0.9},
    {"without": "selection", "stage_threshold": 4.0},
    {"without": "staleness", "stage_threshold": 4.0, "stage2_clip_factor": 0.5},
    {"without": "non_iidness"},
    {"client_snapshot": "aliased"},
    {"client_snapshot": "aliased", "stage_threshold": 4.0, "stage2_clip_factor": 0.5},
]


@cache
def run_with(place: int) -> tuple[WKAFL, Simulation]:
    """Return the algorithm with `OPTIONS[place]` and its run."""
    algorithm = WKAFL(**{"num_aggregated": 5, "lr": 0.2, "clip_bound": 2.0, **OPTIONS[place]})
    return algorithm, simulate(algorithm, random_task(), world(), 40)


@pytest.mark.parametrize("place", range(len(OPTIONS)), ids=lambda place: str(OPTIONS[place]))
def test_a_run_is_the_listing_done_line_by_line(place):
    algorithm, run = run_with(place)
    np.testing.assert_allclose(run.server.model.numpy(), replay(run, algorithm), rtol=1e-9)
    began = run.server.state.get("stage2_from")
    assert (run.server.state["stage"] == 2) is (began is not None)
    if "stage_threshold" in OPTIONS[place]:
        assert began == 12 if algorithm.stage_rule == "iteration" else 1 < began < 40


def test_options_matter():
    """Otherwise the comparison above could not fail."""
    models = [run_with(place)[1].server.model for place in range(len(OPTIONS))]
    for place, model in enumerate(models):
        assert all(not torch.allclose(model, other) for other in models[place + 1 :])


# The schedule


def test_the_stage_loss_may_be_averaged_over_several_updates():
    began = [
        simulate(
            WKAFL(num_aggregated=2, lr=0.05, stage_threshold=8.0, stage_loss_window=w), random_task(), world(), 60
        ).server.state["stage2_from"]
        for w in (1, 12)
    ]
    assert began[0] < began[1]


def test_a_world_smaller_than_k_is_refused():
    with pytest.raises(SpecError, match="wkafl wants 10 devices in flight"):
        RunSpec(algorithm="wkafl", world={"devices": 9})


# Aliased models (E30)


@pytest.mark.parametrize("name", ["kasync", "gsgm"])
def test_aliased_devices_compute_on_the_newest_model_and_are_counted_as_stale_as_before(name):
    algorithm = {"kasync": KAsync, "gsgm": GSGM}[name](num_aggregated=5, lr=0.2)
    copied, aliased = (
        simulate(algorithm.model_copy(update={"client_snapshot": mode}), random_task(True), world(), 100)
        for mode in ("copy", "aliased")
    )
    assert updates(copied) == updates(aliased)
    losses = [np.array(run.history.updates["loss"]) for run in (copied, aliased)]
    first_pass = np.array(copied.history.updates["staleness"]) + 1 == copied.history.updates["version"]
    if name == "kasync":
        assert losses[0][-100:].mean() > losses[1][-100:].mean()  # the true staleness slows it down
        assert losses[1][first_pass].min() > losses[1][-100:].max()  # who was never used is frozen at the start
    counters = ("gradients", "models_sent", "bytes_up", "bytes_down")
    assert [copied.history.evaluations[c] for c in counters] == [aliased.history.evaluations[c] for c in counters]


@pytest.mark.parametrize(("name", "mode"), [("zenopp", "copy"), ("twafl", "copy"), ("wkafl", "aliased")])
def test_every_executor_gives_the_same_run(name, mode):
    spec = RunSpec(
        algorithm={"name": name, "client_snapshot": mode, "lr": 0.05, "num_aggregated": 1 if name == "zenopp" else 3},
        model="linear", world="wkafl(devices=12)", partition="wkafl(labels_per_device=2)", training={"batch_size": 4},
        budget={"updates": 10}, evaluation={"every_updates": 5},
    )  # fmt: skip
    one, two = (spec.simulation().run(executor) for executor in ("sequential", "threads"))
    assert one == two
    assert torch.equal(one.model, two.model)
    batched = spec.simulation().run("batched")
    torch.testing.assert_close(batched.model, one.model, rtol=1e-4, atol=1e-5)


# Baselines: oracles of their specification (Toy B, Trace H)


@pytest.mark.parametrize(
    ("algorithm", "batch", "expected"),
    [
        (TWAFL(num_aggregated=2, lr=0.1, weighting="printed"), 50, (0.213456144246, 0.456868269233)),
        (
            TWAFL(num_aggregated=2, lr=0.1, weighting="printed", staleness_offset=1),
            50,
            (0.283640138968, 0.468405064939),
        ),
        (TWAFL(num_aggregated=2, lr=0.1), 10, (0.318385749919, 0.389123916625)),
        (SASGD(num_aggregated=2, lr=0.2), 50, (0.25625, 0.3345)),
        (SoftsyncSASGD(num_aggregated=2, lr=0.2), 50, (0.12, 0.317)),
    ],
)
def test_trace_h(algorithm, batch, expected):
    run = simulate(algorithm, TOY_B, TOY_B_WORLD, 3, batch_size=batch)
    assert updates(run) == [[(0, 0), (1, 0)], [(2, 1), (0, 0)], [(1, 1), (0, 0)]]
    np.testing.assert_allclose(run.server.model, expected, rtol=1e-10)


# GSGM


@pytest.mark.parametrize(
    ("fields", "model", "momentum"),
    [
        ({}, (0.065, 0.055), (1.56666666667, 0.808333333333)),
        ({"momentum_scale": "code"}, (0.14, 0.04), (0.7, 0.866666666667)),
        ({"momentum_alpha": 0.0}, (0.23, 0.16), None),
    ],
)
def test_trace_g(fields, model, momentum):
    gsgm = GSGM(**{"num_aggregated": 2, "lr": 0.1, "momentum_alpha": 0.9, "restart": "round", **fields})
    run = simulate(gsgm, TOY_B, TOY_B_WORLD, 4)
    assert updates(run) == [[(0, 0), (1, 0)], [(2, 1)], [(0, 0), (1, 0)], [(2, 1)]]
    np.testing.assert_allclose(run.server.model, model, rtol=1e-10)
    if momentum:
        np.testing.assert_allclose(run.server.state["momentum"], momentum, rtol=1e-10)


@pytest.mark.parametrize(("restart", "share"), [("use", 1.0), ("round", 0.5)])
def test_every_device_is_used_once_a_round_and_staleness_is_that_of_its_model(restart, share):
    run = simulate(GSGM(num_aggregated=7, lr=0.01, restart=restart), random_task(), world(), 6 * 50)
    used = updates(run)
    assert [len(each) for each in used] == [7, 7, 7, 7, 7, 5] * 50
    for first in range(0, 300, 6):
        devices = sorted(device for each in used[first : first + 6] for device, _ in each)
        assert devices == list(range(DEVICES))
    staleness = np.array(run.history.updates["staleness"])[10 * DEVICES :]
    weights = np.repeat([7 * 6 / DEVICES / 7, 5 * 6 / DEVICES / 5], [35, 5])  # mean over updates, not over gradients
    assert weights.mean() == pytest.approx(6 / DEVICES)
    assert staleness.mean() == pytest.approx(share * (6 - 1), rel=0.1)


# Zeno++


class ZenoOfTheOracle(ZenoPP):
    """Its server's loss is that of section 3.9, 1/2 ‖x - (0, 0.2)‖²."""

    def validation_gradient(self, server):
        return server.model - torch.tensor([0.0, 0.2], dtype=torch.float64)


def test_zeno_gives_the_trace_of_the_baselines():
    zeno = ZenoOfTheOracle(lr=0.1, score_gamma=0.1, rho=0.02, epsilon=0.01, refresh_every=2)
    run = simulate(zeno, TOY_B, TOY_B_WORLD, seconds=6.5)
    assert run.outcomes()["discarded"] == 3
    assert runs.rows(run.history, "device", "staleness") == [(1, 0), (2, 1), (1, 1)]
    np.testing.assert_allclose(run.server.model, (0.395380587082, 0.491551706238), rtol=1e-10)


def test_zenos_server_draws_its_samples_once_and_a_part_of_them_at_each_refresh():
    batches = []

    class Watched(ZenoPP):
        """Notes what the server differentiates."""

        def validation_gradient(self, server):
            gradient = server.gradient

            def noting(batch):
                batches.append((server.version, sorted(batch)))
                return gradient(batch)

            server.gradient = noting
            try:
                return super().validation_gradient(server)
            finally:
                del server.gradient

    task = Quadratic(np.ones((4, 2)), np.ones((4, 2)), [3.0, 2.0], samples=[30] * 4)
    run = simulate(Watched(lr=0.05, server_samples=10, validation_batch=6, refresh_every=3), task, world(4), 9)
    assert [version for version, _ in batches] == [0, 3, 6]
    samples = set(run.server.state["samples"].tolist())
    assert len(samples) == 10
    assert max(samples) < 120
    assert all(len(set(batch)) == 6 and samples.issuperset(batch) for _, batch in batches)
    assert len({tuple(batch) for _, batch in batches}) > 1


def test_byzantine_uploads_ruin_the_mean_hold_wkafl_up_and_leave_zeno_alone():
    task = random_task(agree=True)
    byzantine = world(faults=[{"kind": "corrupted", "how": "scaled", "factor": -10, "probability": 0.1}])
    algorithms = {
        "kasync": KAsync(num_aggregated=10, lr=0.05),
        "wkafl": WKAFL(num_aggregated=10, lr=0.05, clip_bound=2.0),
        "zeno": ZenoPP(lr=0.05, epsilon=0.0),
    }
    clean, struck = (
        {name: simulate(algorithm, task, where, 120) for name, algorithm in algorithms.items()}
        for where in (world(), byzantine)
    )
    losses = {name: task.loss(run.server.model) / task.loss(task.start) for name, run in struck.items()}
    assert all(task.loss(run.server.model) < 1e-3 for run in clean.values())
    assert losses["kasync"] > 1
    assert 1e-3 < losses["wkafl"] < 0.05
    assert losses["zeno"] < 1e-3
    # Every upload that was turned round is discarded, and besides them only what is stale and wrong by now.
    assert clean["zeno"].outcomes()["discarded"] < struck["zeno"].outcomes()["discarded"]
