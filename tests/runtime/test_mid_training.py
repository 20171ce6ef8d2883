"""What a device may do in the middle of its training: ask for a newer model, look at a mini-batch, put a question."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import runs
import torch

from fl_core.algorithms import Algorithm, FedAsync
from fl_core.errors import RunError
from fl_core.experiments.spec import RunSpec
from fl_core.tasks import Quadratic
from fl_core.world import Network, World

pytestmark = pytest.mark.usefixtures("few_images")

TASK = Quadratic([[1.0], [2.0]], [[0.0], [1.0]], [4.0])


class Asking(Algorithm):
    """Device 0 asks for a newer model after each of its steps and keeps what it got, and when."""

    async def scheduler(self, server):
        server.dispatch([0, 1])

    async def updater(self, server):
        await server.receive()
        server.commit(server.model + 1)

    async def device(self, device):
        start = newest = await device.download()
        for _ in range(4 if device.id == 0 else 1):
            await device.train(start.model, steps=1)
            if device.id == 0:
                before = device.now
                newer = await device.download_newer(newest)
                newest = newer or newest
                got = (before, device.now, newer and newer.version)
                device.state.setdefault("got", []).append(got)
        await device.upload(model=start.model, based_on=start)


simulate = partial(runs.simulate, task=TASK, updates=2)


@pytest.mark.parametrize("trace", [False, True])
def test_a_newer_model_takes_a_transfer_and_a_no_takes_nothing(trace):
    network = Network(down_bits_per_second=64 / 0.25, latency_seconds=0.25)  # 0.5 s down, 0.25 s up
    run = simulate(Asking(), runs.fixed(1.0, 2.0, network=network), trace=trace)
    # Device 1's upload arrives at 2.75 and makes version 1; device 0 asks at 1.5, 2.5, 3.5 and, with that, 5.
    assert run.device_state[0]["got"] == [(1.5, 1.5, None), (2.5, 2.5, None), (3.5, 4.0, 1), (5.0, 5.0, None)]
    assert run.server.counters["models_sent"] == 3
    assert run.server.counters["bytes_down"] == 24


def test_a_question_for_a_newer_model_comes_after_the_arrivals_of_that_instant():
    run = simulate(Asking(), runs.fixed(1.0, 1.0))
    assert run.device_state[0]["got"][0] == (1.0, 1.0, 1)


def test_a_server_that_is_down_answers_when_it_is_up_again():
    restart = {"kind": "server_restart", "at_seconds": [1.5], "down_seconds": 2.0}
    run = simulate(Asking(), runs.fixed(1.0, 1.0, faults=[restart]))
    assert run.device_state[0]["got"][:2] == [(1.0, 1.0, 1), (2.0, 3.5, None)]


def test_where_staleness_is_drawn_the_question_is_refused():
    class Sampled(Asking):
        async def scheduler(self, server):
            await server.keep_busy(1)

    with pytest.raises(RunError, match="device 0 cannot ask for a newer model: this world draws staleness"):
        simulate(Sampled(), World(devices=1, max_staleness=1))


class Peeking(FedAsync):
    """Looks at the mini-batch before each training, or does not."""

    look: bool = True

    async def device(self, device):
        start = await device.download()
        first = await device.train(start.model, steps=2)
        if self.look:
            seen = await device.peek(first.model, others=(start.model,))
            device.state.setdefault("seen", []).append((seen.gradient, seen.losses))
        one = await device.train(first.model, steps=1)
        device.state.setdefault("step", []).append((first.model - one.model) / device.lr)
        device.state.setdefault("loss", []).append(one.loss)
        await device.upload(model=one.model, based_on=start)


def images(look: bool, shift: int = 0, executor: str = "sequential", order: str = "shuffled"):
    spec = RunSpec(
        algorithm=FedAsync(concurrency=2), model="linear", world={"devices": 4}, budget={"updates": 8},
        partition={"kind": "iid", "samples_per_device": 40}, preprocessing={"shift": shift},
        training={"batch_size": 8, "lr": 0.05, "order": order}, evaluation={"every_updates": None},
    )  # fmt: skip
    run = spec.simulation()
    run.algorithm = Peeking(look=look, concurrency=2)
    run.run(executor)
    return run


@pytest.mark.parametrize("order", ["shuffled", "cyclic"])
@pytest.mark.parametrize("shift", [0, 3])
def test_a_look_shows_the_gradient_of_the_very_next_step_and_changes_nothing(shift, order):
    looked, blind = images(True, shift, order=order), images(False, shift, order=order)
    assert torch.equal(looked.server.model, blind.server.model)
    assert looked.history.evaluations["seconds"] == blind.history.evaluations["seconds"]
    compared = 0
    for state in looked.device_state.values():
        for (gradient, losses), step, loss in zip(state["seen"], state.get("step", ()), state["loss"], strict=False):
            np.testing.assert_allclose(gradient, step, atol=2e-6 * float(gradient.abs().max()) + 2e-6)
            assert losses[0] != losses[1]
            # Augmentation is a part of training alone.
            assert (losses[0] == pytest.approx(loss, rel=1e-5)) == (shift == 0)
            compared += 1
    assert compared >= 8


def test_a_look_is_the_same_with_every_executor():
    runs = [images(True, executor=executor) for executor in ("sequential", "threads", "batched")]
    states = [run.device_state[min(run.device_state)]["seen"][0] for run in runs]
    for gradient, losses in states[1:]:
        np.testing.assert_allclose(gradient, states[0][0], rtol=1e-4, atol=1e-7)
        assert losses == pytest.approx(states[0][1], rel=1e-5)


class Questions(FedAsync):
    """Devices ask for the server's count of questions."""

    async def device(self, device):
        device.state["answer"] = await device.ask("how many?")
        await super().device(device)

    def answer(self, server, device, question):
        return (question, device.id, server.version)


def test_an_answer_comes_at_once_and_costs_nothing():
    network = Network(down_bits_per_second=64.0)
    plain, asked = (
        simulate(kind(concurrency=1), World(devices=2, network=network), updates=5) for kind in (FedAsync, Questions)
    )
    assert asked.history == plain.history
    assert [asked.device_state[d]["answer"][:2] for d in sorted(asked.device_state)] == [
        ("how many?", d) for d in sorted(asked.device_state)
    ]


class Silent(FedAsync):
    async def device(self, device):
        await device.ask("anybody?")


class Idle(Algorithm):
    pass


@pytest.mark.parametrize(
    ("algorithm", "error"),
    [
        (Silent(concurrency=1), r"device . failed at t = 0 s: algorithm Silent must define answer\(self"),
        (Idle(), r"the updater of .* failed at t = 0 s: algorithm Idle must define updater\(self, server\)"),
    ],
    ids=["answer", "updater"],
)
def test_an_algorithm_that_lacks_a_method_is_told_which(algorithm, error):
    with pytest.raises(RunError, match=error):
        simulate(algorithm, World(devices=2))
