"""Jobs computed together give what they give alone, or a warning that says why they were not."""

from __future__ import annotations

import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from local_work import noise, results
from runs import simulate, simulation
from small_networks import SHAPES
from torch import nn

from fl_core.algorithms import FedAsync
from fl_core.datasets import Preprocessing
from fl_core.models import MODELS
from fl_core.runtime import executors, make_executor
from fl_core.runtime.executors import Captured, Together, batch_sizes, compute_together
from fl_core.runtime.local import EvaluateJob, GradientJob, LossJob, TrainJob, batches
from fl_core.streams import stream
from fl_core.tasks import POOLED, Classification, Proximal, Quadratic
from fl_core.world import World


def classification(model="linear", sizes=(23, 23, 23, 20), shape=(1, 28, 28)):
    parts = np.split(np.random.default_rng(0).permutation(120)[: sum(sizes)], np.cumsum(sizes)[:-1])
    return Classification(noise(120, 20, shape), parts, model)


def training(task, device, *, lr=0.1, decay=0.0, objective=None, steps=5, size=8, start=None, trigger=0):
    start = task.initial_model(device) if start is None else start
    key = (0, "batches", device, trigger, 1)
    return TrainJob(start, device, task.num_samples(device), steps, size, lr, decay, objective, key)


def gradient(task, device, *, decay=0.0, objective=None):
    key = (0, "batches", device, 0, 1)
    return GradientJob(task.initial_model(device), device, task.num_samples(device), 8, decay, objective, key)


def assert_agree(task, jobs, **tolerance):
    """Both executors give the same, and ``batched`` without falling back."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        together = results("batched", task, jobs)
    for one, other in zip(results("sequential", task, jobs), together, strict=True):
        name = "model" if hasattr(one, "model") else "gradient"
        torch.testing.assert_close(getattr(one, name), getattr(other, name), **tolerance)
        assert one.loss == pytest.approx(other.loss, rel=tolerance["rtol"], abs=tolerance["atol"])


class Calls:
    """Counts what is computed together."""

    def __init__(self, monkeypatch):
        self.groups = []
        monkeypatch.setattr(executors, "compute_together", self)

    def __call__(self, jobs, *given):
        self.groups.append([job.device for job in jobs])
        return compute_together(jobs, *given)


def test_jobs_with_momentum_and_in_a_fixed_order_agree(monkeypatch):
    task = classification()
    velocity = 0.1 * torch.randn(task.dimension, generator=torch.Generator().manual_seed(1))
    settings = [(0, 0.9, None, 1), (1, 0.9, velocity, 4), (2, 0.9, None, 7), (0, 0.5, None, 1), (1, 0.9, None, 2)]
    jobs = [
        replace(training(task, device), momentum=momentum, velocity=start, cursor=cursor)
        for device, momentum, start, cursor in settings
    ]
    assert_agree(task, jobs, rtol=1e-4, atol=1e-6)
    calls = Calls(monkeypatch)
    for one, other in zip(results("sequential", task, jobs), results("batched", task, jobs), strict=True):
        torch.testing.assert_close(one.velocity, other.velocity, rtol=1e-4, atol=1e-6)
    assert calls.groups == [[0, 1, 2, 1], [0]]  # the last has another momentum


class Anchored:
    """An objective of one device alone: neither hashable nor equal to another."""

    __hash__ = None

    def __init__(self, target):
        self.target = target

    def gradient(self, parameters, start):
        return (parameters - self.target) * 0.3 + start * 0.01


@dataclass(frozen=True)
class Normed:
    """An objective whose gradient is written for one model ``[p]``."""

    def gradient(self, parameters, start):
        offset = parameters - start
        return offset / (1 + offset.norm())


@dataclass(frozen=True)
class Looking:
    """An objective that looks at the numbers, which vectorised code cannot."""

    def gradient(self, parameters, start):
        return parameters if float(parameters[0]) > 0 else start


OBJECTIVES = {
    "none": [{}] * 3,
    "proximal": [{"objective": Proximal(0.5)} for _ in range(3)],
    "both": [{"objective": Proximal(0.5), "decay": 0.05}] * 3,
    "different": [{"objective": Proximal(rho)} for rho in (0.1, 0.2, 0.3)],
    "per-device": [{"objective": Anchored(0.1 * i)} for i in range(3)],
    "row-by-row": [{"objective": Normed()}] * 3,
}
INPUTS = SHAPES | {
    "resnet18(width=0.0625)": (3, 8, 8), "resnet20(width=0.25)": (3, 8, 8), "celeba_cnn(width=0.3)": (3, 20, 20),
}  # fmt: skip
"""Small where computing takes long."""
FLOAT32 = {"rtol": 1e-4, "atol": 1e-5}
FLOAT64 = {"rtol": 1e-12, "atol": 1e-12}


def quadratic(devices=4):
    rng = np.random.default_rng(0)
    return Quadratic(rng.uniform(0.5, 2, (devices, 3)), rng.normal(size=(devices, 3)), np.ones(3), [3] * devices)


@pytest.fixture
def float64():
    """Everything in double precision.

    Batch normalisation turns the last digits of float32 into other sides of a ReLU, so only here do two orders of
    summation agree closely for every network.
    """
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def test_every_network_is_among_those_compared():
    assert {text.partition("(")[0] for text in SHAPES} == set(MODELS)


def test_losses_and_evaluations_are_the_ordinary_ones():
    task = classification("lenet5")
    jobs = [LossJob(task.initial_model(0), 1, 9), EvaluateJob(task.initial_model(0), 50)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert results("batched", task, jobs) == results("sequential", task, jobs)


@pytest.mark.parametrize("model", SHAPES)
@pytest.mark.filterwarnings("ignore:There is a performance drop")  # PyTorch loops over LSTMs, and says so
def test_every_network_trains_under_every_executor_and_all_agree(model, float64):
    task = classification(model, shape=INPUTS[model])
    jobs = [training(task, i, lr=0.01, steps=2, size=6, trigger=i) for i in range(3)]
    jobs.append(gradient(task, 3))
    alone, threaded, together = (results(name, task, jobs) for name in ("sequential", "threads", "batched"))
    for job, one, other, third in zip(jobs, alone, threaded, together, strict=True):
        name = "model" if hasattr(one, "model") else "gradient"
        assert torch.equal(getattr(one, name), getattr(other, name))
        torch.testing.assert_close(getattr(one, name), getattr(third, name), rtol=1e-7, atol=1e-9)
        assert name == "gradient" or not torch.equal(one.model, job.start)


def test_augmentation_and_dropout_belong_to_the_job_and_not_to_who_computes_it():
    data = noise(120, 20, (3, 24, 24))
    splits = [replace(s, inputs=(s.inputs * 60 + 128).clamp(0, 255).byte()) for s in (data.train, data.test)]
    data = replace(data, train=splits[0], test=splits[1], mean=(0.5,) * 3, std=(0.25,) * 3)
    parts = np.split(np.arange(120), [40, 80])
    noisy, plain = (
        Classification(data, parts, "alexnet(width=0.03)", Preprocessing(shift=s, flip=bool(s))) for s in (3, 0)
    )
    jobs = [training(noisy, i, lr=0.01, steps=3, size=6) for i in range(3)]
    alone, again, threaded = (results(name, noisy, jobs) for name in ("sequential", "sequential", "threads"))
    for one, other, third, fourth in zip(alone, again, threaded, results("batched", noisy, jobs), strict=True):
        assert torch.equal(one.model, other.model)
        assert torch.equal(one.model, third.model)
        torch.testing.assert_close(one.model, fourth.model, **FLOAT32)
    assert not torch.equal(alone[0].model, results("sequential", plain, jobs)[0].model)
    before = noisy.workspace().evaluate(alone[0].model, 50)
    assert before == noisy.workspace().evaluate(alone[0].model, 50)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("model", ["lenet5", "linear"])
def test_every_model_and_objective_agrees_with_sequential(model, objective):
    task = classification(model)
    settings = OBJECTIVES[objective]
    lrs = (0.01, 0.05, 0.02)
    assert_agree(task, [training(task, i, lr=lrs[i], **s) for i, s in enumerate(settings)], **FLOAT32)
    assert_agree(task, [gradient(task, i, **s) for i, s in enumerate(settings)], **FLOAT32)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_quadratics_agree_to_the_last_digits(objective):
    task = quadratic()
    settings = OBJECTIVES[objective]
    assert_agree(task, [training(task, i, lr=0.1 + 0.1 * i, **s) for i, s in enumerate(settings)], **FLOAT64)
    assert_agree(task, [gradient(task, i, **s) for i, s in enumerate(settings)], **FLOAT64)
    pooled = [training(task, device, steps=2, size=1, **settings[0]) for device in (POOLED, 0, POOLED)]
    assert_agree(task, pooled, **FLOAT64)


def test_start_vectors_are_left_alone_and_results_stand_alone():
    task = quadratic()
    start = task.initial_model(0)
    trained = results("batched", task, [training(task, i, start=start) for i in range(3)])
    assert torch.equal(start, torch.ones(3, dtype=torch.float64))
    assert all(t.model.untyped_storage().nbytes() == 3 * 8 for t in trained)  # not a view of the group's matrix


def unequal(task, **settings):
    """Tasks of four lengths, within an epoch and beyond it, on mini-batches of which some are not full."""
    return [training(task, i, lr=0.02, steps=steps, **settings) for i, steps in enumerate((3, 2, 4, 1))]


def test_unequal_mini_batches_and_tasks_are_padded_unless_samples_see_one_another(monkeypatch, float64):
    calls = Calls(monkeypatch)
    assert_agree(task := classification("lenet5", (23, 20, 23, 3)), unequal(task), rtol=1e-7, atol=1e-9)
    assert calls.groups == [[0, 1, 2], [3]]  # a device of three samples needs no row of eight
    calls.groups.clear()
    task = classification("resnet20(width=0.25)", (23, 20, 23, 7, 23), (3, 8, 8))
    results("batched", task, [training(task, i, steps=3) for i in range(5)])
    assert calls.groups == [[0, 2, 4], [1], [3]]


@pytest.mark.parametrize("model", SHAPES)
@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_a_result_depends_on_no_job_that_is_computed_with_it(model, float64, monkeypatch):
    """Whoever is in the group, in whatever order, with idle rows, too."""
    task = classification(model, (23, 20, 23, 17), INPUTS[model])
    jobs = unequal(task, decay=0.01, objective=Proximal(0.1))
    together, alone = results("batched", task, jobs), [results("batched", task, [job])[0] for job in jobs[::3]]
    monkeypatch.setattr(executors, "compute_together", lambda *given: compute_together(*given[:3], 5, *given[4:]))
    turned = results("batched", task, jobs[::-1])[::-1]
    for expected, found in ((together[::3], alone), (together, turned)):
        for one, other in zip(expected, found, strict=True):
            torch.testing.assert_close(one.model, other.model, rtol=1e-9, atol=1e-11)
            assert (one.loss, one.steps) == (pytest.approx(other.loss, rel=1e-9), other.steps)


def test_memory_bounds_a_step(monkeypatch):
    calls = Calls(monkeypatch)
    task = classification("lenet5", (20,) * 6)
    per_sample = task.batched_workspace(torch.device("cpu")).sample_bytes
    assert 100_000 < per_sample < 1_000_000  # the windows of both convolutions alone are 4 (25 * 784 + 150 * 100)
    monkeypatch.setattr(executors, "STEP_BYTES", 17 * per_sample)
    results("batched", task, [training(task, i) for i in range(6)])
    assert calls.groups == [[0, 1], [2, 3], [4, 5]]


@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 30))
def test_the_sizes_of_mini_batches_are_known_beforehand(samples, size, steps):
    drawn = [len(batch) for batch in batches(samples, size, steps, stream(0, "test"))]
    assert batch_sizes(samples, size, steps) == tuple(drawn)


def test_grouping_takes_the_earliest_due_of_equal_shape(monkeypatch):
    calls = Calls(monkeypatch)
    task = quadratic(8)
    monkeypatch.setattr(executors, "STEP_SAMPLES", 9)  # three jobs of one step with three samples
    jobs = [training(task, i, size=3, decay=0.1 * (i == 6)) for i in range(8)]
    results("batched", task, jobs, due=[5, 1, 9, 2, 8, 3, 0, 4])
    # job 0 is wanted first and takes 1 and 3 along; then 2 takes 5 and 7; 6 has another weight decay
    assert calls.groups == [[0, 1, 3], [2, 5, 7], [4], [6]]


def test_untaken_results_are_bounded(monkeypatch):
    calls = Calls(monkeypatch)
    task = quadratic(10)
    monkeypatch.setattr(executors, "RESULT_BYTES", 5 * 4 * task.dimension)
    with make_executor("batched", task) as ex:
        tickets = [ex.submit(training(task, i), float(i)) for i in range(10)]
        ex.result(tickets[0])
        assert calls.groups == [[0, 1, 2, 3, 4]]
        assert sum(ticket.done for ticket in tickets[1:]) == 4
        ex.result(tickets[9])  # four wait to be taken: there is room for this one alone
        assert calls.groups == [[0, 1, 2, 3, 4], [9]]
        for ticket in tickets[1:9]:
            ex.result(ticket)
    assert calls.groups == [[0, 1, 2, 3, 4], [9], [5, 6, 7, 8]]


class Plain:
    def __init__(self):
        task = quadratic()
        self.workspace, self.dimension = task.workspace, task.dimension


@pytest.mark.parametrize("alone", ["unbatched", "large"])
def test_results_that_were_taken_are_let_go_where_jobs_are_computed_alone(alone, monkeypatch):
    """Either the task has no vectorised training, or a mini-batch fills a step by itself."""
    monkeypatch.setattr(executors, "STEP_SAMPLES", 3)
    task, models = quadratic(), []
    with warnings.catch_warnings(), make_executor("batched", Plain() if alone == "unbatched" else task) as ex:
        warnings.simplefilter("ignore")
        for i in range(20):
            ticket = ex.submit(training(task, i % 4, size=3, trigger=i), float(i))
            models.append(weakref.ref(ex.result(ticket).model))
        kept = [ticket for pending in ex.together._pending.values() for _, _, ticket in pending]
    assert len(kept) <= 1
    assert ticket.result is None
    assert not any(model() is not None for model in models)


@pytest.mark.parametrize("model", ["looking", "random"])
def test_a_network_that_cannot_be_vectorised_is_trained_alone_with_one_warning(monkeypatch, model):
    class Looking(nn.Module):
        def __init__(self, shape, classes):
            super().__init__()
            self.layer = nn.Linear(28 * 28, classes)

        def forward(self, images):
            logits = self.layer(images.flatten(1))
            return logits if float(logits.detach().sum()) > 0 else 2 * logits

    class Random(nn.Sequential):
        def __init__(self, shape, classes):
            super().__init__(nn.Flatten(), nn.Dropout(1e-12), nn.Linear(28 * 28, classes))

    monkeypatch.setitem(MODELS, "looking", Looking)
    monkeypatch.setitem(MODELS, "random", Random)
    calls = Calls(monkeypatch)
    task = classification(model)
    jobs = [training(task, i % 3, trigger=i) for i in range(9)] + [gradient(task, i) for i in range(3)]
    jobs += [training(task, i, objective=Proximal(0.1)) for i in range(3)]
    with pytest.warns(UserWarning, match="computes jobs one by one: RuntimeError: vmap: ") as caught:
        together = results("batched", task, jobs)
    assert len(caught) == 1
    assert len(calls.groups) == 3  # one attempt for each kind of job
    for one, other in zip(results("sequential", task, jobs), together, strict=True):
        name = "model" if hasattr(one, "model") else "gradient"
        assert torch.equal(getattr(one, name), getattr(other, name))


def test_an_objective_that_cannot_be_vectorised_is_named_and_the_others_go_on(monkeypatch):
    calls = Calls(monkeypatch)
    task = classification()
    jobs = [training(task, i % 3, objective=Looking(), trigger=i) for i in range(6)]
    jobs += [training(task, i) for i in range(3)]
    with pytest.warns(
        UserWarning, match="one by one: RuntimeError: vmap: It looks like you're calling .item"
    ) as caught:
        together = results("batched", task, jobs)
    assert len(caught) == 1
    assert calls.groups == [[0, 1, 2, 0, 1, 2], [0, 1, 2]]
    for one, other in zip(results("sequential", task, jobs[:6]), together, strict=False):
        assert torch.equal(one.model, other.model)


def test_a_task_that_offers_no_vectorised_training_says_so_once():
    task = quadratic()
    jobs = [LossJob(torch.ones(3), 0, 1), *(training(task, i) for i in range(4))]
    with pytest.warns(UserWarning, match="jobs one by one: Plain has no batched_workspace$") as caught:
        loss, *together = results("batched", Plain(), jobs)
    assert len(caught) == 1
    assert loss == results("sequential", task, jobs[:1])[0]
    for one, other in zip(results("sequential", task, jobs[1:]), together, strict=True):
        assert torch.equal(one.model, other.model)


def test_an_error_in_a_job_is_raised_by_its_result_and_harms_no_other():
    task = quadratic()
    good = [training(task, i) for i in range(2)]
    wrong = [training(task, i, start=torch.zeros(7, dtype=torch.float64)) for i in range(2)]
    absent = [training(task, 0), training(task, 1)]
    absent[1].device = 99
    with warnings.catch_warnings(), make_executor("batched", task) as ex:
        warnings.simplefilter("error")
        tickets = [ex.submit(job, 0.0) for job in (*good, *wrong, *absent)]
        assert ex.result(tickets[0]).steps == 5
        for ticket in tickets[2:4]:
            with pytest.raises(RuntimeError, match="shape|size"):
                ex.result(ticket)
        assert ex.result(tickets[4]).steps == 5
        with pytest.raises(IndexError):
            ex.result(tickets[5])
        assert ex.result(tickets[1]).steps == 5


@pytest.mark.parametrize(
    "task", [classification("lenet5", sizes=(20,) * 6), quadratic(6)], ids=["lenet5", "quadratic"]
)
def test_a_whole_run_agrees_with_sequential_and_repeats_itself(task, monkeypatch):
    def run(executor):
        settings = {"updates": 20, "lr": 0.05, "batch_size": 8, "every_updates": 5, "train_samples": 50}
        algorithm = FedAsync(concurrency=4, rho=0.1)
        return simulate(algorithm, World(devices=6), task, executor=executor, **settings).history

    reference = run("sequential")
    calls = Calls(monkeypatch)
    vectorised = run("batched")
    assert max(map(len, calls.groups)) > 1
    tolerance = FLOAT64 if isinstance(task, Quadratic) else {"rtol": 1e-3, "atol": 1e-4}
    torch.testing.assert_close(vectorised.model, reference.model, **tolerance)
    assert vectorised.updates["device"] == reference.updates["device"]
    np.testing.assert_allclose(
        vectorised.evaluations["train_loss"], reference.evaluations["train_loss"], rtol=tolerance["rtol"]
    )
    assert run("batched") == vectorised


def lanes(tasks, together, **world):
    """Run FedAsync on each task in a thread of its own; return the histories."""

    def run(seed):
        try:
            settings = {"updates": 9, "batch_size": 8, "seed": seed}
            run = simulation(FedAsync(concurrency=3), World(devices=4), tasks[seed], **settings)
            return run.run("batched", together=together)
        finally:
            if together is not None:
                together.leave()

    with ThreadPoolExecutor(len(tasks)) as pool:
        return list(pool.map(run, range(len(tasks))))


def test_runs_are_trained_together_and_each_gives_what_it_gives_alone(monkeypatch, float64):
    """Other partitions of one data set are of one kin; each job is computed on its own run's samples."""
    data = noise(120, 20)
    parts = [np.split(np.random.default_rng(seed).permutation(120), [20, 50, 70]) for seed in range(3)]
    tasks = [Classification(data, part, "lenet5") for part in parts]
    alone = lanes(tasks, None)
    calls = Calls(monkeypatch)
    together = lanes(tasks, Together(3))
    assert max(map(len, calls.groups)) > 4  # more than the tasks of one run that are in flight, and the one awaited
    assert len(calls.groups) < sum(map(len, calls.groups)) / 3
    for one, other in zip(alone, together, strict=True):
        torch.testing.assert_close(one.model, other.model, rtol=1e-9, atol=1e-11)
        assert one.updates["seconds"] == other.updates["seconds"]


def test_what_one_network_cannot_do_and_holds_is_not_felt_by_the_next(monkeypatch):
    class Branches(nn.Linear):
        def __init__(self, shape, classes):
            super().__init__(28 * 28, classes)

        def forward(self, images):
            return super().forward(images.flatten(1)) if float(images.sum()) < 1e9 else None

    monkeypatch.setitem(MODELS, "branches", Branches)
    together = Together(1)
    with pytest.warns(UserWarning, match="computes jobs one by one"):
        lanes([classification("branches")], together)
    calls = Calls(monkeypatch)
    lanes([classification("linear")], together)
    assert max(map(len, calls.groups)) > 1
    assert len(together._spaces) == 1


def test_runs_that_are_no_kin_or_end_early_or_fail_do_not_hold_up_the_others(monkeypatch):
    together = Together(4)
    tasks = [quadratic(4), classification("linear"), quadratic(4), classification("linear")]

    def fail(*_):
        raise ZeroDivisionError

    tasks[2].initial_model = fail
    with pytest.raises(ZeroDivisionError):
        lanes(tasks, together)
    assert (together.left, together._waiting) == (0, {})
    assert not any(together._pending.values())


class Eager:
    """A graph as ``torch.cuda`` has them, for a processor: replayed by calling once more."""

    def __init__(self, *_):
        self.replayed = 0

    def replay(self):
        self.replayed += 1
        found = self.step(*self.held)
        for mine, new in zip(self.found, found, strict=True):
            mine.copy_(new)


@pytest.mark.parametrize("model", ["lenet5", "resnet20(width=0.25)"])
def test_steps_from_a_recorded_graph_are_those_of_the_workspace(model, float64, monkeypatch):
    """All but the recording itself, which takes an accelerator: what goes in, what comes out, what stays behind."""
    graphs = []

    @contextmanager
    def record(graph, pool):
        graphs.append(graph)
        yield

    monkeypatch.setattr(executors, "CUDAGraph", Eager)
    monkeypatch.setattr(torch.cuda, "graph", record)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    task = classification(model, (23, 20, 23, 17), INPUTS[model])
    space = task.batched_workspace(torch.device("cpu"))
    captured, step = Captured(space), space.gradients

    def gradients(*given):
        found = step(*given)
        if graphs:
            graphs[-1].step, graphs[-1].held, graphs[-1].found = step, given, found
        return found

    monkeypatch.setattr(space, "gradients", gradients)
    jobs = [training(task, device, steps=4, size=5) for device in (0, 2)]
    shape = executors.shape_of(jobs[0], space.separate)
    other = task.batched_workspace(torch.device("cpu"))
    plain, found = (compute_together(jobs, shape, each, 2, [task] * 2) for each in (other, captured))
    assert [graph.replayed for graph in graphs] == [3]
    for one, other in zip(plain, found, strict=True):
        torch.testing.assert_close(one.model, other.model, rtol=1e-9, atol=1e-11)
        assert one.loss == pytest.approx(other.loss)
