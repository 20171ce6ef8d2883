"""What an algorithm may change about local training: contrasts, corrections, costs, parts of models, questions."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import runs
import torch
import torch.nn.functional as F
from local_work import noise, results
from torch import nn

from fl_core.algorithms import Algorithm, FedAsync
from fl_core.algorithms.moon import contrastive_loss
from fl_core.errors import RunError
from fl_core.models import FlatModel, build_network
from fl_core.runtime import LocalTraining, Simulation
from fl_core.runtime.local import TrainJob
from fl_core.streams import stream
from fl_core.tasks import Classification, Contrast, Quadratic
from fl_core.world import Network, World

NETWORK = "fedasync_cnn(width=0.0625)"
"""Small, with statistics, and with dropout, from which a reference has to be free."""


def pictures(model: str = NETWORK) -> Classification:
    return Classification(noise(30, 6, (1, 8, 8)), np.split(np.arange(30), 3), model)


def job(task: Any, device: int = 0, steps: int = 3, **fields: Any) -> TrainJob:
    start, samples = task.initial_model(device), task.num_samples(device)
    made = TrainJob(start, device, samples, steps, 10, 0.1, 0.0, None, (0, "batches", device, 0, 1))
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def loss(ours: torch.Tensor, theirs: Any) -> torch.Tensor:
    return 2.0 * contrastive_loss(ours, theirs[0], theirs[1], 0.5)


def first_batch(task: Classification) -> tuple[torch.Tensor, torch.Tensor]:
    """The samples of the first mini-batch of device 0."""
    return task.train.select(torch.from_numpy(stream(0, "batches", 0, 0, 1).permutation(10)))


def test_a_step_with_a_contrast_is_that_of_autograd_through_the_whole_network():
    task = pictures("resnet20(width=0.25)")
    references = tuple(task.initial_model(seed) for seed in (7, 8))
    [trained] = results("sequential", task, [job(task, steps=1, contrast=Contrast(loss, references))])
    space = FlatModel(build_network(task.model, (1, 8, 8), 3))
    inputs, labels = first_batch(task)

    def represented(model: torch.Tensor) -> torch.Tensor:
        space.load(model)
        network = space.network
        return network.blocks(F.relu(network.norm(network.conv(inputs)))).mean((2, 3))

    space.network.eval()
    with torch.no_grad():
        theirs = [represented(model) for model in references]
    space.network.train()
    ours = represented(task.initial_model(0))
    space.gradient.zero_()
    value = F.cross_entropy(space.network.fc(ours), labels) + loss(ours, theirs)
    value.backward()
    space.parameters.add_(space.gradient, alpha=-0.1)
    torch.testing.assert_close(trained.model, space.vector, rtol=1e-4, atol=1e-6)
    assert trained.loss == pytest.approx(float(value.detach()), rel=1e-5)


def test_references_are_evaluated_without_dropout_and_leave_no_trace_in_the_network():
    seen: list[list[torch.Tensor]] = []

    def watched(ours: torch.Tensor, theirs: Any) -> torch.Tensor:
        seen.append(theirs)
        return 0.0 * loss(ours, theirs)

    task = pictures()
    references = tuple(task.initial_model(seed) for seed in (7, 8))
    jobs = [job(task), job(task, contrast=Contrast(watched, references))]
    plain, trained = results("sequential", task, jobs)
    torch.testing.assert_close(plain.model, trained.model)  # its statistics, too
    space = FlatModel(build_network(task.model, (1, 8, 8), 3))
    space.network.eval()
    for model, found in zip(references, seen[0], strict=True):
        space.load(model)
        expected = nn.Sequential(*list(space.network)[:-1])(first_batch(task)[0])
        torch.testing.assert_close(found, expected)
        assert not found.requires_grad


def test_a_model_without_hidden_layers_represents_its_inputs_by_themselves():
    task = pictures("linear")
    references = tuple(task.initial_model(seed) for seed in (7, 8))
    plain, trained = results("sequential", task, [job(task), job(task, contrast=Contrast(loss, references))])
    assert torch.equal(plain.model, trained.model)
    assert trained.loss == pytest.approx(plain.loss + 2 * np.log(2))


def test_on_a_quadratic_the_vector_is_its_own_representation():
    task = Quadratic([[1.0, 2.0]], [[1.0, 0.0]], [0.5, 0.5])
    references = (torch.tensor([1.0, 2.0], dtype=torch.float64), torch.tensor([-1.0, 0.3], dtype=torch.float64))
    [trained] = results("sequential", task, [job(task, steps=1, contrast=Contrast(loss, references))])
    x = task.start.clone().requires_grad_()
    value = (0.5 * task.curvature * (x - task.centre) ** 2).sum() + loss(x[None], [r[None] for r in references])
    value.backward()
    torch.testing.assert_close(trained.model, task.start - 0.1 * x.grad)
    assert trained.loss == pytest.approx(float(value.detach()))


def test_every_executor_computes_contrasts():
    task = pictures()
    references = tuple(task.initial_model(seed) for seed in (7, 8))
    jobs = [job(task, device, contrast=Contrast(loss, references)) for device in range(3)]
    expected = results("sequential", task, jobs)
    for executor in ("threads", "batched"):
        for one, other in zip(expected, results(executor, task, jobs), strict=True):
            assert torch.equal(one.model, other.model)


@dataclass(frozen=True, eq=False)
class Momentum:
    """What a correction is for, in the simplest case."""

    part: float
    kept: tuple[torch.Tensor, ...] = ()

    def begin(self, parameters):
        return tuple(v.clone() for v in self.kept) or (torch.zeros_like(parameters),)

    def correct(self, gradient, memory):
        memory[0].mul_(self.part).add_(gradient)
        gradient.copy_(memory[0])


def test_a_correction_has_the_last_word_and_its_memory_goes_on():
    task = pictures("linear")
    jobs = [job(task, momentum=0.5), job(task, correction=Momentum(0.5))]
    whole, first = results("sequential", task, jobs)
    torch.testing.assert_close(whole.model, first.model)
    torch.testing.assert_close(whole.velocity, first.memory[0])
    goes_on = {"momentum": 0.5, "start": whole.model, "velocity": whole.velocity}
    jobs = [job(task, **goes_on), job(task, start=first.model, correction=Momentum(0.5, first.memory))]
    again, other = results("sequential", task, jobs)
    torch.testing.assert_close(again.model, other.model)


def test_jobs_with_corrections_are_computed_together_and_agree():
    task = pictures("linear")
    kept = (torch.randn(task.dimension, generator=torch.Generator().manual_seed(1)),)
    jobs = [job(task, device, correction=Momentum(0.3 + 0.1 * device, kept)) for device in range(3)]
    jobs.append(job(task, 0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        together = results("batched", task, jobs)
    for one, other in zip(results("sequential", task, jobs), together, strict=True):
        torch.testing.assert_close(one.model, other.model)
        assert len(one.memory) == len(other.memory)
        for mine, theirs in zip(one.memory, other.memory, strict=True):
            torch.testing.assert_close(mine, theirs)


# What a device program may say


class InParts(Algorithm):
    """Trains in several calls."""

    parts: tuple[int, ...] = (4,)
    cost: float = 1.0

    async def scheduler(self, server):
        await server.keep_busy(1)

    async def updater(self, server):
        [upload] = await server.receive()
        server.commit(upload.model)

    async def device(self, device):
        snapshot = await device.download()
        model = snapshot.model
        for steps in self.parts:
            model = (await device.train(model, steps=steps, cost=self.cost)).model
        await device.upload(model=model, based_on=snapshot)


def simulate(algorithm: Algorithm, **training: Any) -> Simulation:
    task = Quadratic([[1.0, 2.0]], [[1.0, 0.0]], [0.5, 0.5])
    return runs.simulate(algorithm, runs.fixed(1.0), task, updates=3, **{"lr": 0.1, **training})


class Told(InParts):
    """Trains once, with these arguments."""

    given: Any

    async def device(self, device):
        snapshot = await device.download()
        trained = await device.train(snapshot.model, **self.given)
        await device.upload(model=trained.model, based_on=snapshot)


def term(gradient: Any) -> Any:
    return SimpleNamespace(gradient=gradient)


@pytest.mark.parametrize("executor", ["sequential", "batched"])
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"steps": 1.5}, "cannot train for 1.5 steps"),
        ({"steps": 2, "epochs": 1}, "is told steps = 2 and epochs = 1"),
        ({"lr": -1.0}, "cannot train with lr = -1.0"),
        (
            {"objective": term(lambda w, start: (w - start).square().sum())},
            "gradient is .1?.; it",
        ),
        (
            {"objective": SimpleNamespace(gradient=lambda w, start: torch.zeros(3))},
            "is .*3.; it should have the shape .*2",
        ),
    ],
)
def test_local_training_that_would_be_another_one_is_refused(given, said, executor):
    task = Quadratic([[1.0, 1.0]] * 2, [[0.0, 0.0]] * 2, [1.0, 1.0])
    with pytest.raises(RunError, match=said):
        runs.simulate(Told(given=given), runs.fixed(1.0, 2.5), task, executor=executor, updates=2, steps=1)


@pytest.mark.parametrize("reset", [True, False])
def test_training_in_two_calls_is_training_in_one(reset):
    settings = {"momentum": 0.7, "momentum_reset": reset}
    one, two, three = (simulate(InParts(parts=parts), **settings).history for parts in ((4,), (1, 3), (2, 2)))
    torch.testing.assert_close(one.model, two.model)
    torch.testing.assert_close(one.model, three.model)
    assert one.updates["steps"] == two.updates["steps"] == [4] * 3
    np.testing.assert_allclose(one.updates["loss"], two.updates["loss"])


def test_a_step_may_cost_more_or_less_time():
    assert simulate(InParts(parts=(4, 2), cost=0.5)).history.updates["seconds"] == [3.0, 6.0, 9.0]


def test_the_step_size_lasts_for_so_many_versions():
    training = LocalTraining(lr=0.5, lr_decay=0.9, lr_decay_versions=10)
    assert [training.lr_at(version) for version in (0, 9, 10, 25)] == [0.5, 0.5, 0.45, pytest.approx(0.405)]


class Partial(FedAsync):
    """Gets half a model and the answer to a question."""

    async def device(self, device):
        answer = await device.ask(device.id)
        snapshot = await device.download(bytes_down=8)
        trained = await device.train(snapshot.model)
        await device.upload(model=trained.model, bytes_up=4, based_on=snapshot, told=answer)

    def answer(self, server, device, question):
        return question, server.version


@pytest.mark.parametrize("sampled", [None, 2])
def test_a_part_of_a_model_is_counted_as_a_part(sampled):
    task = Quadratic(np.ones((2, 2)), np.zeros((2, 2)), [1.0, 1.0])
    network = Network(down_bits_per_second=64.0, up_bits_per_second=32.0)
    world = World(devices=2, compute={"kind": "constant"}, network=network, max_staleness=sampled)
    run = runs.simulate(Partial(concurrency=2), world, task, updates=6, steps=2)
    table = run.history.evaluations
    assert table["bytes_down"][-1] == 8 * table["models_sent"][-1]
    assert table["bytes_up"][-1] == 4 * table["models_received"][-1]
    if sampled is None:
        assert run.history.updates["seconds"] == [4.0, 4.0, 8.0, 8.0, 12.0, 12.0]
