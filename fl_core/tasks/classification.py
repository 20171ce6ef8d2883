"""Image classification with a flat-vector network, mean cross entropy and top-1 accuracy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fl_core.datasets import Dataset, Split
from fl_core.models import FlatModel, build_network, initialise
from fl_core.streams import torch_stream
from fl_core.tasks.base import POOLED

EVALUATION_BATCH = 500


class Classification:
    """A data set divided among devices, and the network that learns it.

    Parameters
    ----------
    dataset : Dataset
    parts : sequence of ndarray
        Training indices of each device (see :mod:`fl_core.datasets.partition`).
    model : str
        Name of the network.
    """

    def __init__(self, dataset: Dataset, parts: Sequence[np.ndarray], model: str) -> None:
        self.dataset, self.model = dataset, model
        self.parts = [torch.from_numpy(np.ascontiguousarray(part, dtype=np.int64)) for part in parts]
        self.pool = torch.cat(self.parts) if self.parts else torch.empty(0, dtype=torch.int64)
        self.dimension = self.workspace().vector.numel()

    def initial_model(self, seed: int) -> Tensor:
        """Return the initial model ``[d]`` of `seed` (stream ``initial-model``)."""
        space = self.workspace()
        initialise(space.network, torch_stream(seed, "initial-model"))
        return space.snapshot()

    def num_samples(self, device: int) -> int:
        """Return the number of training samples of `device`."""
        return len(self.indices(device))

    def indices(self, device: int) -> Tensor:
        """Return the training indices ``[n]`` of `device`."""
        return self.pool if device == POOLED else self.parts[device]

    def workspace(self) -> ClassificationWorkspace:
        """Return a network with its own flat vector."""
        return ClassificationWorkspace(self)


class ClassificationWorkspace(FlatModel):
    """One thread's network over the task's shared, read-only data."""

    def __init__(self, task: Classification) -> None:
        super().__init__(build_network(task.model, task.dataset.shape, len(task.dataset.classes)))
        self.task = task

    def backward(self, device: int, batch: np.ndarray) -> Tensor:
        """Fill `gradient` with that of the mean cross entropy over `batch`; return the loss."""
        index = self.task.indices(device)[torch.from_numpy(batch)]
        images, labels = self.task.dataset.train.select(index)
        self.gradient.zero_()
        loss = F.cross_entropy(self.network(images), labels)
        loss.backward()
        return loss.detach()

    def evaluate(self, model: Tensor, train_samples: int) -> dict[str, float]:
        """Return test accuracy in [0, 1], test loss, and the loss on the first `train_samples` training images.

        The training loss is NaN when `train_samples` is 0.
        """
        self.load(model)
        dataset = self.task.dataset
        accuracy, test_loss = self._measure(dataset.test, len(dataset.test))
        count = min(train_samples, len(dataset.train))
        train_loss = self._measure(dataset.train, count)[1] if count else float("nan")
        return {"test_accuracy": accuracy, "test_loss": test_loss, "train_loss": train_loss}

    def _measure(self, split: Split, count: int) -> tuple[float, float]:
        self.network.eval()
        right, loss = 0, 0.0
        with torch.inference_mode():
            for start in range(0, count, EVALUATION_BATCH):
                images, labels = split.slice(start, min(start + EVALUATION_BATCH, count))
                logits = self.network(images)
                loss += float(F.cross_entropy(logits, labels, reduction="sum"))
                right += int((logits.argmax(1) == labels).sum())
        self.network.train()
        return right / count, loss / count
