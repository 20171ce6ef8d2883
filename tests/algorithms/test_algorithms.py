"""Algorithms as plug-ins: registration, validation, and what holds for all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from freeze import ALGORITHMS as DECLARED
from freeze import NEED_CLUSTERS
from pydantic import ValidationError
from runs import simulate
from torch import Tensor

from fl_core.algorithms import ALGORITHMS, Algorithm, make_algorithm, register
from fl_core.errors import SpecError
from fl_core.experiments.spec import RunSpec
from fl_core.formulas.fedasmu import Controls, PastAggregation
from fl_core.formulas.fedasync import mix
from fl_core.tasks import Quadratic
from fl_core.world import World

OTHERWISE = {"asofed": {"concurrency": 4}, "syncdrop": {"concurrency": 4}}
"""A device's own model, and units that are never drawn, are not where others' optimum is."""


@pytest.mark.parametrize("name", DECLARED)
def test_where_devices_agree_on_the_optimum_it_is_found(name):
    rng = np.random.default_rng(0)
    agreed = np.tile([3.0, -1.0, 2.0], (8, 1))
    task = Quadratic(rng.uniform(0.5, 2, (8, 3)), agreed, [0.0] * 3, samples=range(1, 9))
    world = World(devices=8, clusters={"servers": 3} if name in NEED_CLUSTERS else None)
    work = {"epochs": 3} if name.startswith("fedasmu") else {"steps": 2}
    algorithm = make_algorithm(name, **OTHERWISE.get(name, DECLARED[name]))
    run = simulate(algorithm, world, task, updates=200, every_updates=None, lr=0.1, **work)
    assert task.loss(run.global_model()) < 1e-2 * task.loss(task.start)


MODEL, UPLOADED = torch.tensor([1.0, 1.0]), torch.tensor([3.0, -1.0])
DELTA = MODEL - UPLOADED
PAST = PastAggregation(0, 1, Controls(2.0, 0.5, 0.0))


@pytest.mark.parametrize(
    ("algorithm", "arguments", "expected"),
    [
        ("fedasync", (MODEL, UPLOADED, 1, 0), [2.2, -0.2]),
        ("asyncpart", (MODEL, UPLOADED, 1.0, 0.5, 0.5), [2.2, -0.2]),
        ("fedsa", (MODEL, UPLOADED, 0, 0), [2.2, -0.2]),
        ("asofed", (MODEL, DELTA, 0.25, [(2,)]), [1.5, 0.5]),
        ("fedbuff", (MODEL, [DELTA, -DELTA], [0, 3]), [1.5, 0.5]),
        ("feddelay", (MODEL, DELTA, 20), [2.0, 0.0]),
        ("port", (MODEL, [DELTA, -DELTA], [3.0, 1.0]), [2.0, 0.0]),
        ("fedper", (MODEL, [DELTA, DELTA], [1, 3]), [2.4, -0.4]),
        ("fedavg_topk", (MODEL, [DELTA, -DELTA], [3, 1]), [2.0, 0.0]),
        ("fedavg", (torch.stack([MODEL, UPLOADED]), [1, 3]), [2.0, 0.0]),
        ("feddyn", (MODEL, torch.stack([MODEL, UPLOADED]), 0.0, 2, 2), [3.0, -1.0]),
        ("syncdrop", (MODEL, UPLOADED, torch.tensor([True, False])), [2.0, 1.0]),
        ("kasync", (torch.stack([DELTA, -3 * DELTA]), [0, 5], [1, 1]), [2.0, -2.0]),
        ("sasgd_softsync", (torch.stack([DELTA, DELTA]), [1, 4], [1, 1]), [-1.25, 1.25]),
        ("gsgm", (torch.stack([DELTA]), DELTA, 0 * DELTA, 2), [-2.2, 2.2]),
        ("wkafl", (torch.stack([DELTA]), torch.zeros(1), None, 1), [-2.0, 2.0]),
        ("async_sdfeel", (0, {0: MODEL, 1: UPLOADED}, {0: 0, 1: 0}), [2.0, 0.0]),
        ("fedasmu_da", (MODEL, UPLOADED, 5, 1, PAST.controls), [2.2, -0.2]),
        ("fedasmu", (MODEL, UPLOADED, 0, 1, Controls(1.0, 0.5, 0.0)), [2.0, 0.0]),
        ("fedasmu", (MODEL, UPLOADED, 0, 1, Controls(0.9999875, 0.5, -0.0000125), PAST, -1.125), [2.0, 0.0]),
    ],
)
def test_what_a_server_computes_in_one_step_needs_no_run(algorithm, arguments, expected):
    vectors = [value for value in arguments if isinstance(value, Tensor)]
    before = [vector.clone() for vector in vectors]
    made = make_algorithm(algorithm).combine(*arguments)
    torch.testing.assert_close(made if isinstance(made, Tensor) else made[0], torch.tensor(expected))
    assert all(
        torch.equal(a, b) for a, b in zip(before, (v for v in arguments if isinstance(v, Tensor)), strict=True)
    )


WRONG: dict[str, list[dict[str, Any]]] = {
    "fedasync": [{"alpha": 0}, {"alpha": 1.01}, {"alpha": float("nan")}, {"rho": -1}, {"concurrency": 0},
                 {"alfa": 0.5}],
    "fedasmu": [{"staleness_bound": 0}, {"lambda_0": -1}, {"upsilon_0": 1.5}, {"mu_alpha": 0}, {"epsilon": 1.1},
                {"sqrt_offset_server": 2}, {"server_weight": "static"}, {"slot": "random"}, {"directions": "tape"}],
    "fedluck": [{"k_min": 0}, {"k_min": 61}, {"delta_min": 0}, {"delta_max": 1.1}, {"fixed_steps": 0},
                {"fixed_compression": 0}, {"period_seconds": 0}, {"global_lr": 0}, {"solver": "newton"}],
    "port": [{"min_uploads": 11}, {"staleness_bound": 0}, {"staleness_factor": 0}, {"similarity_factor": -1}],
    "asofed": [{"beta": 1.1}, {"start": "mine"}],
    "fedsa": [{"alpha_initial": 0}, {"min_epochs": 0}, {"convergence_epochs": 0}],
    "feddelay": [{"mode": "skip"}, {"threshold": 0}],
    "syncdrop": [{"keep": 0}, {"assignment": "fair"}, {"ranks": 0}],
    "asyncpart": [{"pseudo_uploads": 0}, {"alpha": 0}],
    "fedprox": [{"mu": -1}, {"deadline_seconds": 0}],
    "feddyn": [{"alpha": 0}, {"weighting": "samples"}],
    "moon": [{"temperature": 0}, {"mu": -0.1}],
    "wkafl": [{"momentum_alpha": 1.0}, {"sim_min": 1.1}, {"clip_bound": 0}, {"lr": 0}, {"lr_staleness_factor": 1.0},
              {"without": "momentum"}, {"stage2_clip_factor": 0}, {"client_snapshot": "shared"},
              {"stage_loss_window": 3, "stage_rule": "iteration"}],
    "twafl": [{"weighting": "none"}],
    "gsgm": [{"restart": "never"}],
    "kasync": [{"num_aggregated": 0}],
    "zenopp": [{"validation_batch": 101}, {"num_aggregated": 2}, {"rho": -1}, {"epsilon": -1}, {"score_gamma": 0}],
}  # fmt: skip


@pytest.mark.parametrize(("name", "wrong"), [(name, wrong) for name, rows in WRONG.items() for wrong in rows])
def test_a_parameter_out_of_range_is_refused(name, wrong):
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        ALGORITHMS[name](**wrong)


def test_an_algorithm_of_ones_own_takes_one_class_and_works_in_a_specification():
    @register
    class HalfAndHalf(Algorithm):
        """Keep half of the old model."""

        concurrency: int = 4

        async def scheduler(self, server):
            await server.keep_busy(self.concurrency)

        async def updater(self, server):
            while True:
                [upload] = await server.receive()
                server.commit(mix(server.model, upload.model, 0.5), weight=0.5)

    try:
        spec = RunSpec(algorithm="halfandhalf", model="linear", budget={"updates": 30}, training={"lr": 0.1})
        assert RunSpec.from_json(spec.to_json()) == spec
        assert spec.simulation().run().evaluations["test_accuracy"][-1] > 0.7
    finally:
        del ALGORITHMS["halfandhalf"]
    with pytest.raises(SpecError, match="unknown algorithm 'halfandhalf'"):
        make_algorithm("halfandhalf")
