"""What every executor promises: same numbers, errors raised where results are taken, bounded work ahead."""

from __future__ import annotations

import sys
import threading
import time

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from local_work import noise

from fl_core.errors import SpecError
from fl_core.runtime.executors import EXECUTORS, SWITCH_SECONDS, Threads, default_executor, make_executor
from fl_core.runtime.local import EvaluateJob, GradientJob, LossJob, TrainJob, batches, batches_of
from fl_core.streams import stream
from fl_core.tasks import POOLED, Classification, Proximal, Quadratic


@pytest.fixture(scope="module")
def task():
    parts = np.split(np.random.default_rng(0).permutation(60), [20, 43])
    return Classification(noise(60, 20), parts, "linear")


def plain(task, model, device, index):
    """Return gradient and loss of mean cross entropy with PyTorch alone."""
    images, labels = task.train.inputs[index], task.train.labels[index]
    weights, bias = (model[:-3].view(3, -1).clone().requires_grad_(), model[-3:].clone().requires_grad_())
    loss = F.cross_entropy(F.linear(images.flatten(1), weights, bias), labels)
    loss.backward()
    return torch.cat([weights.grad.flatten(), bias.grad]), float(loss.detach())


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_gradient_is_that_of_the_first_mini_batch_with_what_the_objective_adds(executor, task):
    start, key = task.initial_model(1), (0, "batches", 1, 0, 1)
    index = task.indices(1)[torch.from_numpy(next(batches(23, 8, 1, stream(*key))))]
    expected, loss = plain(task, start, 1, index)

    class Pull:
        def gradient(self, parameters, start):
            return parameters - 2 * start

    jobs = [GradientJob(start, 1, 23, 8, 0.0, None, key), GradientJob(start, 1, 23, 8, 0.25, Pull(), key)]
    with make_executor(executor, task) as ex:
        bare, pulled = (ex.result(ex.submit(job, 0.0)) for job in jobs)
    torch.testing.assert_close(bare.gradient, expected)
    torch.testing.assert_close(pulled.gradient, expected - start + 0.25 * start)
    assert bare.loss == pytest.approx(loss)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_the_loss_is_the_mean_over_the_first_samples_of_the_device(executor, task):
    model = task.initial_model(1)
    with make_executor(executor, task) as ex:
        losses = [ex.result(ex.submit(LossJob(model, *what), 0.0)) for what in ((2, 5), (2, 999), (POOLED, 30))]
        assert np.isnan(ex.result(ex.submit(LossJob(model, 0, 0), 0.0)))
    chosen = (task.indices(2)[:5], task.indices(2), task.pool[:30])
    assert losses == pytest.approx([plain(task, model, 0, index)[1] for index in chosen])


def test_the_loss_of_a_quadratic_is_its_value():
    task = Quadratic([[2.0], [4.0]], [[0.0], [1.0]], [3.0])
    space = task.workspace()
    assert [space.loss(task.start, device, 1) for device in (0, 1, POOLED)] == [9.0, 8.0, 8.5]


def test_training_is_what_plain_pytorch_does(task):
    start, key = task.initial_model(0), (0, "batches", 1, 0, 1)
    job = TrainJob(start, 1, 23, 7, 8, 0.1, 0.01, Proximal(0.5), key)
    model, losses = start.clone(), []
    for positions in batches(23, 8, 7, stream(*key)):
        gradient, loss = plain(task, model, 1, task.indices(1)[torch.from_numpy(positions)])
        model -= 0.1 * (gradient + 0.5 * (model - start) + 0.01 * model)
        losses.append(loss)
    with make_executor("sequential", task) as ex:
        trained = ex.result(ex.submit(job, 0.0))
    torch.testing.assert_close(trained.model, model)
    assert trained.loss == pytest.approx(np.mean(losses))
    assert trained.steps == 7


@pytest.mark.parametrize("executor", EXECUTORS)
def test_momentum_goes_on_from_task_to_task_as_in_pytorch(executor, task):
    start = task.initial_model(0)
    expected = start.clone().requires_grad_()
    optimiser = torch.optim.SGD([expected], lr=0.1, momentum=0.9, weight_decay=0.01)
    model, velocity = start, None
    with make_executor(executor, task) as ex:
        for trigger in range(2):
            key = (0, "batches", 1, trigger, 1)
            job = TrainJob(model, 1, 23, 4, 8, 0.1, 0.01, None, key, 0.9, velocity)
            for positions in batches(23, 8, 4, stream(*key)):
                index = task.indices(1)[torch.from_numpy(positions)]
                expected.grad = plain(task, expected.detach(), 1, index)[0]
                optimiser.step()
            kept = None if velocity is None else velocity.clone()
            trained = ex.result(ex.submit(job, 0.0))
            assert velocity is None or torch.equal(velocity, kept)  # a job changes nothing that it was given
            model, velocity = trained.model, trained.velocity
    torch.testing.assert_close(model, expected.detach())
    torch.testing.assert_close(velocity, optimiser.state[expected]["momentum_buffer"])


def test_samples_in_a_fixed_order_go_on_where_the_last_task_ended(task):
    start, key = task.initial_model(0), (0, "batches", 1, 0, 1)
    tasks = [
        TrainJob(start, 1, 23, steps, 8, 0.1, 0.0, None, key, cursor=cursor) for cursor, steps in ((0, 5), (5, 3))
    ]
    tasks.append(GradientJob(start, 1, 23, 8, 0.0, None, key, cursor=8))
    done = [positions.tolist() for job in tasks for positions in batches_of(job)]
    assert done == [[*range(8)], [*range(8, 16)], [*range(16, 23)]] * 3


def test_threads_give_every_kind_of_job_the_same_bits_as_sequential(task):
    start = task.initial_model(0)

    def run(name):
        with make_executor(name, task, 3) as ex:
            jobs = [TrainJob(start, d, 17, 6, 8, 0.1, 0.01, Proximal(0.1), (0, "a", d, 0, 0)) for d in range(3)]
            jobs += [GradientJob(start, d, 17, 8, 0.01, None, (0, "a", d, 0, 0)) for d in range(3)]
            jobs += [LossJob(start, 1, 9), EvaluateJob(start, 50)]
            for d, cursor in ((0, None), (1, 0), (2, 4)):
                jobs.append(TrainJob(start, d, 17, 6, 8, 0.1, 0.0, None, (0, "a", d, 0, 0), 0.9, None, cursor))
            tickets = [ex.submit(job, -float(place)) for place, job in enumerate(jobs)]
            return [ex.result(ticket) for ticket in tickets]

    for one, other in zip(run("sequential"), run("threads"), strict=True):
        for name in ("model", "gradient", "loss", "velocity"):
            if getattr(one, name, None) is not None:
                assert torch.equal(torch.as_tensor(getattr(one, name)), torch.as_tensor(getattr(other, name)))
        assert hasattr(one, "loss") or one == other


class Note:
    """A job that writes its name down, after `gate` has opened."""

    def __init__(self, name, log, gate=None):
        self.name, self.log, self.gate = name, log, gate

    def run(self, workspace):
        if self.gate is not None:
            assert self.gate.wait(10)
        self.log.append(self.name)
        return self.name


def wait_until(condition):
    deadline = time.monotonic() + 10
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.001)


def test_a_worker_takes_the_earliest_due_first():
    log, gate = [], threading.Event()
    with make_executor("threads", Quadratic([[1.0]], [[0.0]], [1.0]), 1) as ex:
        first = ex.submit(Note("first", log, gate), 0.0)
        wait_until(lambda: first.started)
        tickets = [ex.submit(Note(due, log), float(due)) for due in (5, 2, 9, 1, 7)]
        gate.set()
        wait_until(lambda: all(ticket.done for ticket in tickets))
        assert [ex.result(ticket) for ticket in (first, *tickets)] == ["first", 5, 2, 9, 1, 7]
    assert log == ["first", 1, 2, 5, 7, 9]


def test_a_job_that_is_wanted_at_once_overtakes_those_that_are_due_before():
    log, gate = [], threading.Event()
    with make_executor("threads", Quadratic([[1.0]], [[0.0]], [1.0]), 1) as ex:
        first = ex.submit(Note("first", log, gate), 0.0)
        wait_until(lambda: first.started)
        tickets = [ex.submit(Note(due, log), float(due)) for due in range(1, 4)]
        threading.Timer(0.05, gate.set).start()
        assert ex.result(tickets[2]) == 3
        assert [ex.result(ticket) for ticket in (first, *tickets[:2])] == ["first", 1, 2]
    assert log == ["first", 3, 1, 2]


def test_a_full_window_still_lets_the_job_through_that_is_wanted():
    log = []
    executor = Threads(Quadratic([[1.0]], [[0.0]], [1.0]), 2)
    executor._window = 1
    with executor as ex:
        tickets = [ex.submit(Note(due, log), float(due)) for due in range(20)]
        assert [ex.result(ticket) for ticket in reversed(tickets)] == list(reversed(range(20)))


@pytest.mark.parametrize("name", EXECUTORS)
def test_the_error_of_a_job_is_raised_where_its_result_is_taken(name, task):
    class Failing:
        def run(self, workspace):
            raise OSError("no data")

    with make_executor(name, task) as ex:
        bad, good = ex.submit(Failing(), 0.0), ex.submit(LossJob(task.initial_model(0), 0, 3), 1.0)
        assert ex.result(good) > 0
        with pytest.raises(OSError, match="no data"):
            ex.result(bad)


@pytest.mark.parametrize("name", EXECUTORS)
def test_settings_of_the_process_are_put_back(name, task):
    before = torch.get_num_threads(), sys.getswitchinterval(), torch.backends.cudnn.allow_tf32
    with make_executor(name, task, 2) as ex:
        assert torch.get_num_threads() == 1
        if name == "threads":
            assert sys.getswitchinterval() == pytest.approx(SWITCH_SECONDS)
        ex.submit(LossJob(task.initial_model(0), 0, 3), 0.0)  # nobody takes it: leaving does not hang
    assert (torch.get_num_threads(), sys.getswitchinterval(), torch.backends.cudnn.allow_tf32) == before


def test_the_default_executor_fits_the_machine(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert default_executor() == "batched"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert default_executor() == "threads"


def test_an_unknown_executor_is_named_with_the_valid_ones(task):
    with pytest.raises(
        SpecError, match=r"unknown executor 'batch'; did you mean 'batched'\? \(valid: batched, debug"
    ):
        make_executor("batch", task)
