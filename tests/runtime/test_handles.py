"""What handles can do besides the usual: old versions handed out, gradients at the newest model, the server's own."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from runs import fixed, simulate

from fl_core.algorithms import Algorithm
from fl_core.errors import SpecError
from fl_core.experiments.spec import RunSpec
from fl_core.runtime import Budget, Simulation
from fl_core.tasks import Quadratic
from fl_core.world import World
from fl_core.world.triggers import Contributors

pytestmark = pytest.mark.usefixtures("few_images")

TASK = Quadratic([[1.0], [1.0]], [[0.0], [0.0]], [1.0])
"""The gradient is the model itself, so that an upload says where it was taken."""


class Gradients(Algorithm):
    """Devices upload gradients; every one makes a version, with half of the model."""

    newest: bool = False

    async def scheduler(self, server):
        await Contributors().turn(server)

    async def updater(self, server):
        [upload] = await server.receive()
        seen = server.state.setdefault("seen", [])
        seen.append((server.now, upload.device, upload.staleness, float(upload.gradient)))
        server.commit(server.model / 2)

    async def device(self, device):
        snapshot = await device.download()
        found = await device.gradient(None if self.newest else snapshot.model)
        await device.upload(gradient=found.gradient, based_on=snapshot)


def run(algorithm: Algorithm, updates: int, executor: str = "sequential", **world) -> Simulation:
    return simulate(algorithm, fixed(1.0, 2.5, **world), TASK, executor=executor, updates=updates, every_updates=None)


@pytest.mark.parametrize("executor", ["sequential", "threads", "batched"])
def test_a_gradient_is_taken_at_the_model_received_or_at_the_newest_when_the_step_ends(executor):
    when = [(1.0, 0, 0), (2.0, 0, 0), (2.5, 1, 2), (3.0, 0, 1), (4.0, 0, 0), (5.0, 1, 2), (5.0, 0, 1)]
    received = run(Gradients(), 7, executor).server.state["seen"]
    newest = run(Gradients(newest=True), 7, executor).server.state["seen"]
    assert [row[:3] for row in received] == [row[:3] for row in newest] == when
    assert [row[3] for row in received] == [1, 1 / 2, 1, 1 / 4, 1 / 16, 1 / 8, 1 / 32]
    # Both end their step at 5 s, before either has arrived.
    assert [row[3] for row in newest] == [1, 1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 32]


def test_after_a_pause_the_newest_model_is_that_of_the_delayed_end():
    pause = {"kind": "unavailable", "probability": 1.0, "devices": [1], "mean_seconds": 5.0}
    simulation = run(Gradients(newest=True), 40, faults=[pause])
    rows = [row for row in simulation.server.state["seen"] if row[1] == 1]
    assert rows
    for seconds, _, _, gradient in rows:
        assert seconds > 2.5
        before = [s for s in simulation.history.updates["seconds"] if s < seconds]
        assert gradient == 0.5 ** len(before)


def test_a_crash_still_strikes_a_gradient_at_the_newest_model():
    crash = {"kind": "crash", "probability": 1.0, "devices": [1]}
    simulation = run(Gradients(newest=True), 10, faults=[crash])
    assert {row[1] for row in simulation.server.state["seen"]} == {0}
    assert simulation.outcomes()["lost"] > 0


def test_a_version_that_was_kept_is_handed_out_again():
    class Old(Gradients):
        async def scheduler(self, server):
            released = await server.released()
            kept = server.state.setdefault("kept", server.snapshot)
            server.dispatch(released, snapshot=kept)

    simulation = run(Old(), 6)
    seen = simulation.server.state["seen"]
    assert [row[2] for row in seen] == [0, 1, 2, 3, 4, 5]
    assert {row[3] for row in seen} == {1.0}
    assert float(simulation.server.model) == 0.5**6


def test_the_server_differentiates_at_the_present_model_and_the_same_mini_batch_twice_alike():
    found = []

    class Asking(Algorithm):
        async def scheduler(self, server):
            await server.keep_busy(3)

        async def updater(self, server):
            [upload] = await server.receive()
            batch = np.arange(7) * 11
            found.append((server.now, *(server.gradient(batch) for _ in range(2)), server.now))
            server.commit(upload.model)

    spec = RunSpec(
        algorithm="kasync", model="lenet5", world={"devices": 10}, training={"steps": 1, "lr": 0.1},
        budget={"updates": 3}, evaluation={"every_updates": None},
    )  # fmt: skip
    task = spec.task()
    simulation = Simulation(task, spec.world, Asking(), budget=spec.budget, training=spec.training)
    simulation.run()
    space = task.workspace()
    assert len(found) == 3
    for before, one, two, after in found:
        assert before == after
        assert torch.equal(one.gradient, two.gradient)
        assert one.samples == 7
    space.load(task.initial_model(0))
    space.backward(-1, np.arange(7) * 11)
    torch.testing.assert_close(found[0][1].gradient, space.gradient)
    assert not torch.equal(found[1][1].gradient, found[0][1].gradient)


class Unlayered(Quadratic):
    """A problem whose workspace only trains."""

    def workspace(self):
        space = super().workspace()
        names = (name for name in dir(space) if name[0] != "_" and name != "hidden_units")
        return SimpleNamespace(**{name: getattr(space, name) for name in names})


def test_a_task_that_knows_no_hidden_units_says_so():
    def units(task):
        return Simulation(task, World(devices=2), Gradients(), budget=Budget(updates=1)).hidden_units

    assert len(units(TASK)) == 1
    with pytest.raises(SpecError, match="Unlayered does not say which hidden units its models have"):
        units(Unlayered([[1.0]], [[0.0]], [1.0]))
