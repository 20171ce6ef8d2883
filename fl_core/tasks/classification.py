"""Classification with a flat-vector network, mean cross entropy and top-1 accuracy."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from fl_core.convolution import ByProducts
from fl_core.datasets import Dataset, Preprocessing, Samples
from fl_core.errors import SpecError
from fl_core.models import FlatModel, build_network, initialise, named_dropouts
from fl_core.models.units import Units, hidden_units
from fl_core.processes import usable_cores
from fl_core.recorded import Steps
from fl_core.streams import torch_stream
from fl_core.tasks.base import POOLED, Contrast

EVALUATION_BATCH = 500


class Classification:
    """A data set divided among devices, and the network that learns it.

    `parts` are the training indices of each device (:mod:`fl_core.datasets.partitions`), `model` is as in
    :func:`fl_core.models.build_network`, `initialisation` one of :data:`fl_core.models.INITIALISATIONS`.
    """

    def __init__(
        self,
        dataset: Dataset,
        parts: Sequence[np.ndarray],
        model: str,
        preprocessing: Preprocessing | None = None,
        initialisation: str = "glorot",
    ) -> None:
        self.dataset, self.model, self.initialisation = dataset, model, initialisation
        self.preprocessing = preprocessing or Preprocessing()
        self.train, self.test = self.preprocessing.apply(dataset)
        self.parts = [torch.from_numpy(np.ascontiguousarray(part, dtype=np.int64)) for part in parts]
        self.pool = torch.cat(self.parts) if self.parts else torch.empty(0, dtype=torch.int64)
        space = self.workspace()
        self.dimension = space.vector.numel()
        self._try(space.network)

    def _try(self, network: nn.Module) -> None:
        """Refuse a network that does not give one number for each class."""
        inputs, _ = self.train.slice(0, 2)
        what, wanted = f"model {self.model!r}", [len(inputs), len(self.dataset.classes)]
        try:
            with torch.inference_mode():
                logits = network.eval()(inputs)
        except Exception as error:  # whatever somebody's network does
            raise SpecError(f"{what} cannot read inputs {list(inputs.shape)}: {error}") from error
        if list(getattr(logits, "shape", ())) != wanted:
            found = list(logits.shape) if isinstance(logits, Tensor) else f"a {type(logits).__name__}"
            raise SpecError(f"{what} gives {found} for inputs {list(inputs.shape)}; it should give logits {wanted}")

    def initial_model(self, seed: int) -> Tensor:
        """Return the initial model ``[d]`` of `seed` (stream ``initial-model``)."""
        space = self.workspace()
        initialise(space.network, torch_stream(seed, "initial-model"), self.initialisation)
        return space.snapshot()

    def num_samples(self, device: int) -> int:
        """Return the number of training samples of `device`."""
        return len(self.indices(device))

    def indices(self, device: int) -> Tensor:
        """Return the training indices ``[n]`` of `device`."""
        return self.pool if device == POOLED else self.parts[device]

    def workspace(self) -> ClassificationWorkspace:
        """Return a network with its own flat vector."""
        return ClassificationWorkspace(self, torch.device("cpu"))

    @property
    def kin(self) -> Hashable:
        """What a workspace depends on: all but the partition."""
        return self.model, id(self.dataset), self.preprocessing

    def locate(self, device: int, positions: np.ndarray) -> Tensor:
        """Return the data set's indices, of the shape of `positions`."""
        return self.indices(device)[torch.from_numpy(positions)]

    def batched_workspace(self, place: torch.device) -> BatchedClassificationWorkspace:
        """Return a network on `place`, and with it the data set."""
        return BatchedClassificationWorkspace(self, place)


class ClassificationWorkspace(FlatModel):
    """One thread's network, over the task's shared, read-only data; both are on `place`."""

    def __init__(self, task: Classification, place: torch.device) -> None:
        super().__init__(build_network(task.model, task.train.shape, len(task.dataset.classes)).to(place))
        self.task, self.place = task, place
        self.train, self.test = task.train.to(place), task.test.to(place)
        self.dropouts = named_dropouts(self.network)
        self.noisy = bool(self.dropouts) or self.train.augmentation is not None
        self._differentiate: Callable[..., Tensor] = self._backward
        if place.type == "cpu":
            weights = list(self.network.parameters())
            gradients = [each.grad for each in weights if each.grad is not None]
            self._differentiate = Steps(self._backward, [self.gradient, *weights, *gradients])

    def backward(
        self, device: int, batch: np.ndarray, noise: torch.Generator | None = None, contrast: Contrast | None = None
    ) -> Tensor:
        """Fill `gradient` with that of the mean cross entropy over `batch`, plus `contrast`; return the loss."""
        window = None
        if noise is not None:
            window, masks = self.draw(len(batch), noise)
            for name, mask in masks.items():
                self.dropouts[name].mask = mask.to(self.place)
        inputs, labels = self.train.select(self._index(device, batch), window)
        if contrast is None:
            return self._differentiate(inputs, labels)
        self.gradient.zero_()
        logits, ours, theirs = self._represented(inputs, contrast.references)
        loss = F.cross_entropy(logits, labels) + contrast.loss(ours, theirs)
        loss.backward()
        return loss.detach()

    def _backward(self, inputs: Tensor, labels: Tensor) -> Tensor:
        self.gradient.zero_()
        loss = F.cross_entropy(self._logits(inputs), labels)
        loss.backward()
        return loss.detach()

    def hidden_units(self) -> tuple[Units, ...]:
        """Return the units of the network that a smaller one can do without, by layer."""
        return hidden_units(self.network, self.slots)

    def draw(self, count: int, noise: torch.Generator) -> tuple[Tensor | None, dict[str, Tensor]]:
        """Return what chance decides in a mini-batch of `count`: the augmentation, and each dropout's mask."""
        augmentation = self.train.augmentation
        window = None if augmentation is None else augmentation.draw(count, noise)
        return window, {name: dropout.draw(count, noise) for name, dropout in self.dropouts.items()}

    def loss(self, model: Tensor, device: int, samples: int | np.ndarray) -> float:
        """Return the mean cross entropy of `model` on the first `samples` training samples of `device`, or on all.

        Instead of their number, positions among the device's samples may be given.
        """
        self.load(model)
        index = self.task.indices(device)
        index = (index[:samples] if isinstance(samples, int) else index[torch.from_numpy(samples)]).to(self.place)
        return self._measure(self.train.select(part) for part in index.split(EVALUATION_BATCH))[1]

    def evaluate(self, model: Tensor, train_samples: int, test_samples: int = 0) -> dict[str, float]:
        """Return test accuracy in [0, 1], test loss, and the loss on the first `train_samples` training samples.

        Accuracy and loss are those on `test_samples` test samples, spread evenly, or (0) on all. The training loss is
        NaN when `train_samples` is 0.
        """
        self.load(model)
        accuracy, test_loss = self._measure(_spread(self.test, test_samples or len(self.test)))
        _, train_loss = self._measure(_slices(self.train, min(train_samples, len(self.train))))
        return {"test_accuracy": accuracy, "test_loss": test_loss, "train_loss": train_loss}

    def _represented(self, inputs: Tensor, references: Sequence[Tensor]) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Return logits, and what the last dense layer reads ``[n, k]``: in training, and under each of `references`.

        These are evaluated without gradient, and leave no trace in the network.
        """
        dense = [module for module in self.network.modules() if isinstance(module, nn.Linear)]
        if not dense:
            raise SpecError(f"model {self.task.model!r} has no dense layer, so its representations are not known")
        seen: list[Tensor] = []
        hook = dense[-1].register_forward_pre_hook(lambda _, given: seen.append(given[0].flatten(1)))
        try:
            logits = self._logits(inputs)
            self.network.eval()
            with torch.no_grad():
                for model in references:
                    named = {slot.name: model[slot.start : slot.stop].view(slot.shape).clone() for slot in self.slots}
                    functional_call(self.network, named, (inputs,))
        finally:
            hook.remove()
            self.network.train()
        return logits, seen[0], seen[1:]

    def _logits(self, inputs: Tensor) -> Tensor:
        return self.network(inputs)

    def _index(self, device: int, batch: np.ndarray) -> Tensor:
        return self.task.locate(device, batch)

    def _measure(self, batches: Iterator[tuple[Tensor, Tensor]]) -> tuple[float, float]:
        """Return accuracy and mean loss of the loaded model; NaN on no samples."""
        self.network.eval()
        count, right, loss = 0, 0, 0.0
        with torch.inference_mode():
            for inputs, labels in batches:
                logits = self._logits(inputs)
                loss += float(F.cross_entropy(logits, labels, reduction="sum"))
                right += int((logits.argmax(1) == labels).sum())
                count += len(labels)
        self.network.train()
        return (right / count, loss / count) if count else (float("nan"), float("nan"))


class BatchedClassificationWorkspace(ClassificationWorkspace):
    """A network on any place, and the same network vectorised over models."""

    def __init__(self, task: Classification, place: torch.device) -> None:
        super().__init__(task, place)
        self._counters = {name: b for name, b in self.network.named_buffers() if not b.is_floating_point()}
        self._vectorised = vmap(grad_and_value(self._loss))
        self._helpers = ThreadPoolExecutor(usable_cores())
        self.separate, self.sample_bytes = self._look()

    def gradients(
        self, models: Tensor, samples: Tensor, weights: Tensor, noise: Sequence[tuple[torch.Generator, int]] = ()
    ) -> tuple[Tensor, Tensor]:
        """Return gradients ``[g, p]`` and cross entropies ``[g]``; batch-norm statistics change in `models`."""
        count = len(models)
        views = {slot.name: models[:, slot.start : slot.stop].view(count, *slot.shape) for slot in self.slots}
        counters = {name: counter.expand(count, *counter.shape) for name, counter in self._counters.items()}
        # Copies: the network changes its buffers in place, and kernels want what begins at multiples of 16 bytes.
        buffers = {
            name: view.clone(memory_format=torch.contiguous_format) for name, view in (views | counters).items()
        }
        parameters = {slot.name: buffers.pop(slot.name) for slot in self.slots if slot.trainable}
        windows = None
        if noise:
            drawn = list(self._helpers.map(partial(self._keep, length=samples.shape[1]), *zip(*noise, strict=True)))
            stacked = [torch.stack(each).to(self.place, non_blocking=True) for each in zip(*drawn, strict=True)]
            if self.train.augmentation is not None:
                windows = stacked.pop(0).flatten(0, 1)
            for (name, dropout), kept in zip(self.dropouts.items(), stacked, strict=True):
                buffers[f"{name}.mask"] = dropout.scale(kept)
        inputs, labels = self.train.select(samples.flatten(), windows)
        with ByProducts():
            gradients, losses = self._vectorised(
                parameters, buffers, inputs.unflatten(0, samples.shape), labels.view(samples.shape), weights
            )
        for name in views.keys() & buffers.keys():
            views[name].copy_(buffers[name])
        return torch.cat([gradients[name].flatten(1) for name in parameters], 1), losses

    def _keep(self, generator: torch.Generator, count: int, length: int) -> list[Tensor]:
        """Return what :meth:`draw` draws, as it is sent to an accelerator: unscaled, each filled up to `length`."""
        augmentation = self.train.augmentation
        drawn = [] if augmentation is None else [augmentation.draw(count, generator)]
        drawn += [dropout.keep(count, generator) for dropout in self.dropouts.values()]
        return [F.pad(each, (0, 0) * (each.dim() - 1) + (0, length - count)) for each in drawn]

    def _loss(
        self,
        parameters: dict[str, Tensor],
        buffers: dict[str, Tensor],
        inputs: Tensor,
        labels: Tensor,
        weights: Tensor,
    ) -> Tensor:
        logits = functional_call(self.network, parameters | buffers, (inputs,))
        return F.cross_entropy(logits, labels, reduction="none") @ weights

    def _look(self) -> tuple[bool, int]:
        """Return whether the network sees each sample alone, and how many bytes a step needs for one."""
        inputs, _ = self.train.select(torch.arange(min(3, len(self.train)), device=self.place))
        kept: list[dict[int, int]] = []

        def keep(tensor: Tensor) -> Tensor:
            kept[-1][tensor.data_ptr()] = tensor.nbytes
            return tensor

        def logits(count: int) -> Tensor:
            kept.append({})
            return self._logits(inputs[:count])

        with ByProducts(), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            three, two = logits(3), logits(2)
        more, less = (sum(each.values()) for each in kept)
        return bool(torch.allclose(three[:2], two, rtol=1e-3, atol=1e-5)), max(1, more - less)

    def _logits(self, inputs: Tensor) -> Tensor:
        """Return what the network gives, from copies, as in :meth:`gradients`."""
        named = [*self.network.named_parameters(), *self.network.named_buffers()]
        copies = {name: tensor.clone() for name, tensor in named}
        logits = functional_call(self.network, copies, (inputs,))
        if self.network.training:
            for name, buffer in self.network.named_buffers():
                buffer.copy_(copies[name])
        return logits

    def _index(self, device: int, batch: np.ndarray) -> Tensor:
        return super()._index(device, batch).to(self.place)


def _spread(samples: Samples, count: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield `count` samples at equal distances in batches, the same at every call: a set may be ordered by class."""
    if count >= len(samples):
        return _slices(samples, len(samples))
    chosen = torch.arange(count) * len(samples) // count
    return (samples.select(part.to(samples.labels.device)) for part in chosen.split(EVALUATION_BATCH))


def _slices(samples: Samples, count: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the first `count` samples in batches."""
    for start in range(0, count, EVALUATION_BATCH):
        yield samples.slice(start, min(start + EVALUATION_BATCH, count))
