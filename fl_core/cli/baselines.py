"""What throughput is measured against: plain PyTorch over the same batches, and a task whose training is free."""

from __future__ import annotations

import time
from collections import Counter

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fl_core.algorithms import FedAsync
from fl_core.experiments.spec import RunSpec
from fl_core.models import build_network
from fl_core.runtime import Budget, Evaluation, Simulation
from fl_core.runtime.local import batches
from fl_core.streams import stream
from fl_core.tasks import Classification
from fl_core.tasks.classification import EVALUATION_BATCH
from fl_core.world import World

SAMPLES, STEPS = 600, 12
"""Images per device, and mini-batches of 50 that they make."""


class Stopwatch:
    """Wall time and processor time (of all threads of this process) since it was made, in seconds."""

    def __init__(self) -> None:
        self.wall, self.cpu = -time.perf_counter(), -time.process_time()

    def stop(self) -> Stopwatch:
        """Take the two times."""
        self.wall += time.perf_counter()
        self.cpu += time.process_time()
        return self


def bare(task: Classification, spec: RunSpec, order: list[Tensor]) -> Stopwatch:
    """Return the time of plain PyTorch over the mini-batches `order`, with as many evaluations."""
    train, test = task.dataset.train, task.dataset.test
    network = build_network(spec.model, task.dataset.shape, len(task.dataset.classes))
    optimiser = torch.optim.SGD(network.parameters(), lr=spec.training.lr)
    period = (spec.evaluation.every_updates or 1) * STEPS
    intraop = torch.get_num_threads()
    torch.set_num_threads(1)
    watch = Stopwatch()
    for number, index in enumerate(order):
        if number % period == 0:
            evaluate(network, test.images, test.labels)
        optimiser.zero_grad()
        loss = F.cross_entropy(network(train.images.index_select(0, index)), train.labels.index_select(0, index))
        loss.backward()
        optimiser.step()
    evaluate(network, test.images, test.labels)
    watch.stop()
    torch.set_num_threads(intraop)
    return watch


def evaluate(network: torch.nn.Module, images: Tensor, labels: Tensor) -> tuple[float, float]:
    """Return test accuracy and loss, as plain PyTorch would compute them."""
    right, loss = 0, 0.0
    with torch.inference_mode():
        for start in range(0, len(labels), EVALUATION_BATCH):
            logits, truth = (
                network(images[start : start + EVALUATION_BATCH]),
                labels[start : start + EVALUATION_BATCH],
            )
            loss += float(F.cross_entropy(logits, truth, reduction="sum"))
            right += int((logits.argmax(1) == truth).sum())
    return right / len(labels), loss / len(labels)


def visited(task: Classification, spec: RunSpec) -> list[Tensor]:
    """Return the indices of every mini-batch that the run trains on, in the order in which its uploads arrive.

    Training takes no part in the timeline, so a run of the same world without training tells the order.
    """
    history = Simulation(
        Nothing(SAMPLES), spec.world, spec.algorithm, training=spec.training, budget=spec.budget, seed=spec.seed
    ).run("sequential")
    triggers: Counter[int] = Counter()
    order = []
    for device in history.updates["device"]:
        rng = stream(spec.seed, "batches", device, triggers[device], 1)
        triggers[device] += 1
        for batch in batches(SAMPLES, spec.training.batch_size, STEPS, rng):
            order.append(task.indices(device)[torch.from_numpy(batch)])
    return order


class Nothing:
    """A task whose training costs nothing, so that only the runtime is left; also its own workspace."""

    def __init__(self, samples: int = 1) -> None:
        self.samples, self.dimension = samples, 1
        self.vector = self.parameters = self.gradient = torch.zeros(1)
        self._loss = torch.tensor(0.0)

    def initial_model(self, seed: int) -> Tensor:
        """Return a vector of one zero."""
        return torch.zeros(1)

    def num_samples(self, device: int) -> int:
        """Return the same number for every device."""
        return self.samples

    def workspace(self) -> Nothing:
        """Return the task itself."""
        return self

    def load(self, model: Tensor) -> None:
        """Do nothing."""

    def snapshot(self) -> Tensor:
        """Return the one vector there is."""
        return self.vector

    def backward(self, device: int, batch: np.ndarray) -> Tensor:
        """Return a loss of zero."""
        return self._loss

    def evaluate(self, model: Tensor, train_samples: int) -> dict[str, float]:
        """Measure nothing."""
        return {}


def overhead(updates: int = 5000) -> tuple[float, float]:
    """Return events per second and microseconds per update of the runtime alone: 1000 devices, 100 in flight."""
    simulation = Simulation(
        Nothing(),
        World(devices=1000),
        FedAsync(concurrency=100),
        budget=Budget(updates=updates),
        evaluation=Evaluation(every_updates=None),
    )
    watch = Stopwatch()
    simulation.run("sequential")
    watch.stop()
    return simulation.kernel.events / watch.wall, 1e6 * watch.wall / updates
