"""One workload, done twice: by the simulator, and by plain PyTorch over the very same mini-batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fl_core.benchmarks.harness import K, Stopwatch, alternate, intraop_threads
from fl_core.datasets import Samples
from fl_core.errors import RunError
from fl_core.experiments.spec import RunSpec
from fl_core.models import FlatModel, build_network
from fl_core.runtime import History, Simulation
from fl_core.tasks import Classification, Task

EVALUATION_BATCH = 500


class Plain:
    """The loop that anyone would write for one machine: tensors in memory, one network, ``torch.optim.SGD``.

    No data loader, no federation, no clock; which samples make a mini-batch is known beforehand.
    """

    def __init__(self, task: Classification, lr: float) -> None:
        self.lr = lr
        self.network = build_network(task.model, task.train.shape, len(task.dataset.classes))
        self.optimiser = torch.optim.SGD(self.network.parameters(), lr=lr)

    def gather(self, split: Samples, index: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mini-batch of `index` ``[b]``."""
        return split.inputs.index_select(0, index), split.labels.index_select(0, index)

    def slice(self, split: Samples, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Return the samples `start`..`stop`."""
        return split.inputs[start:stop], split.labels[start:stop]

    def clear(self) -> None:
        """Forget the last gradient."""
        self.optimiser.zero_grad()

    def step(self) -> None:
        """Descend."""
        self.optimiser.step()


class Floor(Plain):
    """The same loop with the simulator's memory layout and its step: what is left above it is the runtime's."""

    def __init__(self, task: Classification, lr: float) -> None:
        super().__init__(task, lr)
        self.flat = FlatModel(self.network)

    def gather(self, split: Samples, index: Tensor) -> tuple[Tensor, Tensor]:
        return split.select(index)

    def slice(self, split: Samples, start: int, stop: int) -> tuple[Tensor, Tensor]:
        return split.slice(start, stop)

    def clear(self) -> None:
        self.flat.gradient.zero_()

    def step(self) -> None:
        self.flat.parameters.add_(self.flat.gradient, alpha=-self.lr)


class Gradients(Plain):
    """Gradients and nothing else: what a device computes, at a model that is copied in each time."""

    def __init__(self, task: Classification, lr: float) -> None:
        super().__init__(task, lr)
        self.models = [[each.detach().clone() for each in self.network.parameters()] for _ in range(2)]

    def clear(self) -> None:
        """Forget the last gradient, and take another model than before."""
        super().clear()
        self.models.reverse()
        with torch.no_grad():
            for parameter, given in zip(self.network.parameters(), self.models[0], strict=True):
                parameter.copy_(given)

    def step(self) -> None:
        """Keep the gradient: one vector, as it would be sent."""
        torch.cat([p.grad.view(-1) for p in self.network.parameters() if p.grad is not None])


Side = tuple[str, int | None] | type[Plain]
"""A simulation (executor, threads), or a loop."""


class Workload:
    """A run specification with everything that both sides need; `test_samples`: of so many test images, None: of all.

    `batches` are the indices ``[b]`` of every mini-batch that the run trains on, `samples` in all, in the order in
    which its results are used; `evaluations` is how often it measures the global model.
    """

    def __init__(self, spec: RunSpec, test_samples: int | None = None) -> None:
        self.spec, self.task, self.test_samples = spec, spec.task(), test_samples
        test = self.task.test
        self.task.test = replace(test, inputs=test.inputs[:test_samples], labels=test.labels[:test_samples])
        recorder = Recorder(self.task)
        history = self._simulation(recorder).run("sequential")
        self.batches = recorder.batches
        self.evaluations = len(history.evaluations["version"])
        self.samples = sum(len(batch) for batch in self.batches)

    def simulate(self, executor: str, threads: int | None = None) -> tuple[Stopwatch, History]:
        """Return the time of the simulation, evaluations included, and its history."""
        simulation = self._simulation(self.task)
        watch = Stopwatch()
        history = simulation.run(executor, threads)
        return watch.stop(), history

    def race(self, sides: Mapping[K, Side], times: int) -> dict[K, list[Stopwatch]]:
        """Return the times of all sides, in alternation.

        All histories have to be the same, bit for bit: a fast wrong answer is no answer.
        """
        histories: list[History] = []

        def once(side: Side) -> Stopwatch:
            if isinstance(side, type):
                return self.loop(side)
            watch, history = self.simulate(*side)
            histories.append(history)
            return watch

        found = alternate({name: partial(once, side) for name, side in sides.items()}, times)
        if any(history != histories[0] for history in histories):
            raise RunError("runs of one specification gave different histories; their times cannot be compared")
        self.history = histories[0]
        return found

    def simulate_steadily(self) -> Stopwatch:
        """Return the time of the simulation on one thread; laps: ``set-up``, to the first event, and ``run``."""
        simulation = self._simulation(self.task)
        watch = Stopwatch()

        def begin() -> None:
            watch.lap("set-up")
            simulation.watchdog.before_each_event(None)

        simulation.watchdog.before_each_event(begin)
        simulation.run("sequential")
        watch.lap("run")
        return watch.stop()

    def loop(self, kind: type[Plain] = Plain) -> Stopwatch:
        """Return the time of a loop on one thread over the same mini-batches, with as many evaluations.

        Its laps are ``gather``, ``forward``, ``backward``, ``step`` and ``evaluation``.
        """
        train, test = self.task.train, self.task.test
        loop = kind(self.task, self.spec.training.lr)
        period = -(-len(self.batches) // max(1, self.evaluations - 1))
        with intraop_threads(1):
            watch = Stopwatch()
            for number, index in enumerate(self.batches):
                if number % period == 0:
                    evaluate(loop, test)
                    watch.lap("evaluation")
                images, labels = loop.gather(train, index)
                watch.lap("gather")
                loop.clear()
                loss = F.cross_entropy(loop.network(images), labels)
                watch.lap("forward")
                loss.backward()
                watch.lap("backward")
                loop.step()
                watch.lap("step")
            evaluate(loop, test)
            watch.lap("evaluation")
            return watch.stop()

    def warm_up(self, threads: int) -> None:
        """Run both sides once, unmeasured and short."""
        short = Workload(self.spec.changed(**{"budget.updates": 1}), self.test_samples)
        short.simulate("threads", threads)
        short.loop()

    def _simulation(self, task: Task) -> Simulation:
        spec = self.spec
        chosen = {name: getattr(spec, name) for name in ("training", "budget", "evaluation", "seed")}
        return Simulation(task, spec.world, spec.algorithm, **chosen)


def evaluate(loop: Plain, split: Samples) -> tuple[float, float]:
    """Return accuracy in [0, 1] and mean loss on `split`, as plain PyTorch would compute them."""
    right, loss = 0, 0.0
    with torch.inference_mode():
        for start in range(0, len(split), EVALUATION_BATCH):
            images, labels = loop.slice(split, start, start + EVALUATION_BATCH)
            logits = loop.network(images)
            loss += float(F.cross_entropy(logits, labels, reduction="sum"))
            right += int((logits.argmax(1) == labels).sum())
    return right / len(split), loss / len(split)


class Recorder:
    """A task that writes down the mini-batches it is asked to train on, and its own workspace.

    Training takes no part in the timeline, so the run visits the same mini-batches as one that trains. Nothing is
    computed: there is one vector of zeros.
    """

    noisy = False

    def __init__(self, task: Classification) -> None:
        self.task, self.dimension = task, 1
        self.batches: list[Tensor] = []
        self.vector = self.parameters = self.gradient = torch.zeros(1)

    def initial_model(self, seed: int) -> Tensor:
        return torch.zeros(self.dimension)

    def num_samples(self, device: int) -> int:
        return self.task.num_samples(device)

    def workspace(self) -> Recorder:
        return self

    def load(self, model: Tensor) -> None:
        pass

    def snapshot(self) -> Tensor:
        return self.vector

    def backward(self, device: int, batch: np.ndarray, noise: torch.Generator | None = None) -> Tensor:
        """Write down the mini-batch."""
        self.batches.append(self.task.indices(device)[torch.from_numpy(batch)])
        return torch.zeros(())

    def loss(self, model: Tensor, device: int, samples: int | np.ndarray) -> float:
        return 0.0

    def evaluate(self, model: Tensor, train_samples: int, test_samples: int = 0) -> dict[str, float]:
        return {}
