"""SGD, FedAvg, FedProx, FedDyn and MOON on simulated runs: oracles, reductions, optima, time and memory."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from baseline_runs import TOY_B, TOY_B_WORLD, close, pictures, simulate

from fl_core.algorithms import MOON, SGD, Algorithm, FedAvg, FedDyn, FedProx
from fl_core.algorithms.moon import contrastive_loss
from fl_core.tasks import Quadratic
from fl_core.world import Network

UNWEIGHTED_MINIMUM = (-0.285714285714, 0.111111111111)
WEIGHTED_MINIMUM = (-0.461538461538, -0.0588235294118)


simulate, pictures = partial(simulate, updates=3), partial(pictures, (10, 30))


def model_after(updates: int, algorithm: Algorithm, **options: Any) -> torch.Tensor:
    return simulate(algorithm, updates=updates, **options).server.model


class Chosen(FedAvg):
    """The first and the third device, always."""

    async def scheduler(self, server):
        await server.new_version()
        server.dispatch([0, 2])


# SGD and FedAvg


def test_sgd_gives_oracles_1_and_2():
    a, c, w = TOY_B.curvature, TOY_B.centre, TOY_B.start
    pooled = Quadratic(a[[0, 1, 1, 2, 2, 2]], c[[0, 1, 1, 2, 2, 2]], w)  # a function for every ten samples
    close(model_after(3, SGD(block=1), task=pooled), (0.220131655093, 0.294557002315))
    for device in range(3):
        w = model_after(1, SGD(block=1), task=Quadratic(a[[device]], c[[device]], w))
    close(w, (0.228, 0.326))


def test_fedavg_gives_oracles_1_and_2():
    weighted, uniform = FedAvg(clients_per_round=3, weighting="samples"), FedAvg(clients_per_round=3)
    close(model_after(1, weighted), (0.311458333333, 0.356875))
    close(model_after(3, weighted), (0.0401625540726, 0.173326107964))
    close(model_after(1, uniform), (0.335416666667, 0.39625))
    close(model_after(1, Chosen(clients_per_round=2, weighting="samples")), (0.4871875, 0.1428125))


def test_a_round_lasts_as_long_as_its_slowest_device_takes_to_receive_to_train_and_to_send():
    network = Network(down_bits_per_second=128.0, up_bits_per_second=(128.0, 32.0, 128.0))
    world = TOY_B_WORLD.model_copy(update={"network": network})
    table = simulate(FedAvg(clients_per_round=3), world=world, updates=2).history.evaluations
    assert table["seconds"] == [0.0, 8.0, 16.0]  # 1 + 3 + 4 for the second device, 1 + 5 + 1 for the third
    assert table["bytes_up"] == table["bytes_down"] == [0, 48, 96]


# FedProx


def test_fedprox_gives_oracle_1_and_not_the_unsquared_pull_of_oracle_3():
    fedprox = FedProx(clients_per_round=3, mu=0.5)
    close(model_after(1, fedprox), (0.316666666667, 0.360833333333))
    close(model_after(3, fedprox), (0.05027875, 0.1799131875))
    assert abs(float(model_after(1, fedprox)[0]) - 0.318428897353) > 1e-3


def test_what_a_slow_device_can_do_before_the_deadline_is_used_which_is_oracle_2():
    run = simulate(FedProx(clients_per_round=3, mu=0.5, deadline_seconds=3.0), updates=1)
    assert run.history.updates["steps"] == [2, 2, 1]
    close(run.server.model, (0.327916666667, 0.450833333333))
    assert run.history.evaluations["seconds"][-1] == 3.0  # instead of 5
    late = simulate(FedProx(clients_per_round=3, deadline_seconds=0.1), updates=1)
    assert late.history.updates["steps"] == [1, 1, 1]


@pytest.mark.parametrize("algorithm", [FedProx, MOON])
@pytest.mark.parametrize("task", [TOY_B, pictures()], ids=["quadratic", "lenet5"])
def test_without_their_term_fedprox_and_moon_are_fedavg_bit_for_bit(algorithm, task):
    settings = {"clients_per_round": 2, "weighting": "samples"}
    one, other = (
        simulate(each, task, updates=6, batch_size=8, momentum=0.5).history
        for each in (FedAvg(**settings), algorithm(mu=0.0, **settings))
    )
    assert one == other
    assert one != simulate(algorithm(mu=0.5, **settings), task, updates=6, batch_size=8, momentum=0.5).history


def test_devices_drawn_by_share_take_part_as_often_as_they_have_samples():
    algorithm = FedProx(clients_per_round=1, sampling="by_share", weighting="uniform")
    drawn = np.bincount(simulate(algorithm, updates=600).history.updates["device"])
    np.testing.assert_allclose(drawn / 600, (1 / 6, 1 / 3, 1 / 2), atol=0.06)


# FedDyn


def test_feddyn_with_exact_minimisation_is_oracle_1():
    first, last = (simulate(FedDyn(clients_per_round=3, alpha=0.5), updates=n, steps=100, lr=0.45) for n in (1, 3))
    close(first.server.model, (-0.244444444444, 0.15))
    states = [first.server.state["h"], *(first.device_state[device]["correction"] for device in range(3))]
    close(torch.stack(states), [(0.186111111111, 0.0875), (-0.166666666667, 0.2), (0.6, -0.5), (0.125, 0.5625)])
    close(last.server.model, (-0.217766803841, 0.150782407407))


def test_feddyn_with_two_gradient_steps_is_oracle_3():
    feddyn = FedDyn(clients_per_round=3, alpha=0.5)
    close(model_after(1, feddyn), (0.18, 0.298333333333))
    close(model_after(3, feddyn), (-0.38737334375, 0.00769615856481))


@pytest.mark.parametrize(("clients", "updates"), [(3, 90), (2, 150)])
def test_the_state_of_the_server_is_the_mean_of_the_corrections_and_the_optimum_is_unweighted(clients, updates):
    run = simulate(FedDyn(clients_per_round=clients, alpha=0.5), updates=updates, steps=50, lr=0.45)
    corrections = torch.stack([run.device_state[device]["correction"] for device in range(3)])
    close(run.server.state["h"], corrections.mean(0))
    close(run.server.model, UNWEIGHTED_MINIMUM, rtol=1e-7)
    assert abs(float(corrections.sum())) < 1e-8 < float(corrections.abs().max())


def test_with_alpha_scaled_by_share_the_optimum_is_that_of_the_weighted_mean():
    feddyn = FedDyn(clients_per_round=3, alpha=0.5, scale_alpha_by_share=True)
    close(model_after(100, feddyn, steps=50, lr=0.45), WEIGHTED_MINIMUM, rtol=1e-7)
    equal = Quadratic(TOY_B.curvature, TOY_B.centre, TOY_B.start)
    one, other = (
        model_after(20, FedDyn(clients_per_round=3, alpha=0.5, scale_alpha_by_share=scale), task=equal)
        for scale in (False, True)
    )
    close(one, other, rtol=1e-12)


def test_a_device_that_diverges_is_rejected_and_keeps_its_correction():
    task = Quadratic(np.ones((3, 2)), [[0, 0], [0, np.inf], [1, 1]], [1.0, 1.0])
    run = simulate(FedDyn(clients_per_round=3, alpha=0.1), task, updates=4)
    assert run.outcomes()["rejected"] == 4
    assert "correction" not in run.device_state[1]
    assert bool(torch.isfinite(run.server.model).all())


# MOON


def test_moon_trains_as_fedavg_until_it_has_a_model_of_its_own_which_is_the_one_it_uploaded_last():
    task = pictures()
    first, moon = (
        simulate(algorithm, task, updates=1, batch_size=8)
        for algorithm in (FedAvg(clients_per_round=2, weighting="samples"), MOON(clients_per_round=2))
    )
    assert torch.equal(first.server.model, moon.server.model)

    class Watched(MOON):
        async def device(self, device):
            before = device.state.get("previous")
            upload = device.upload

            async def sending(**payload):
                uploaded[device.id] = payload["model"].clone()
                await upload(**payload)

            device.upload = sending
            known.append(before is None or torch.equal(before, uploaded[device.id]))
            await super().device(device)

    uploaded: dict[int, torch.Tensor] = {}
    known: list[bool] = []
    run = simulate(Watched(clients_per_round=2), task, updates=5, batch_size=8)
    assert all(known)
    assert len(known) == 10
    kept = [state["previous"] for state in run.device_state.values() if "previous" in state]
    assert {len(model) for model in kept} == {task.dimension}
    assert len(kept) == len(uploaded) <= 3


def test_the_contrast_draws_to_the_received_model_and_away_from_the_devices_own():
    ours, received, previous = (torch.tensor(rows) for rows in ([[1.0, 0.2]], [[0.9, 0.1]], [[-1.0, 0.5]]))
    moon = MOON(mu=3.0, temperature=0.2)
    assert moon.contrast(ours, (received, previous)) == 3 * contrastive_loss(ours, received, previous, 0.2)
    assert moon.contrast(ours, (received, previous)) < 1e-3 < moon.contrast(ours, (previous, received))


def test_the_two_further_passes_cost_time_only_if_that_is_wanted():
    for cost, third in ((1.0, 15.0), (5 / 3, 5.0 + 25 / 3 * 2)):
        run = simulate(MOON(clients_per_round=3, step_cost=cost))
        assert run.history.evaluations["seconds"][-1] == pytest.approx(third)
