"""One training step of LeNet-5 in many ways: forward and backward pass, and the step of SGD."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call, grad_and_value
from torch.utils import cpp_extension

from fl_core.benchmarks.harness import seconds_of
from fl_core.models import FlatModel
from fl_core.tasks import Classification

LR = 0.03
aten = torch.ops.aten


class Ours:
    """What the executors compute: autograd, images channels last, one flat vector."""

    def __init__(self, task: Classification, batch: int) -> None:
        self.flat: FlatModel = task.workspace()
        self.flat.load(task.initial_model(0))
        self.network, self.gradient = self.flat.network, self.flat.gradient
        self.images, self.labels = task.train.select(torch.arange(batch))

    def logits(self) -> Tensor:
        """Return the network's output."""
        return self.network(self.images)

    def backward(self) -> None:
        """Fill the gradient with that of the mean loss."""
        self.gradient.zero_()
        F.cross_entropy(self.logits(), self.labels).backward()

    def step(self) -> None:
        """Descend once."""
        self.backward()
        self.flat.parameters.add_(self.gradient, alpha=-LR)

    def difference(self, other: Ours) -> float | None:
        """Return the largest difference between a gradient of this and of `other`, at the same model."""
        self.backward()
        other.backward()
        found = torch.cat([p.grad.reshape(-1) for p in self.network.parameters() if p.grad is not None])
        return float((found - other.gradient).abs().max())


class Plain(Ours):
    """The loop that anyone would write: images in the order of PyTorch, torch.optim.SGD."""

    def __init__(self, task: Classification, batch: int) -> None:
        super().__init__(task, batch)
        self.images = torch.empty(self.images.shape).copy_(self.images)
        for parameter in self.network.parameters():
            parameter.data, parameter.grad = parameter.detach().clone(), None
        self.optimiser = torch.optim.SGD(self.network.parameters(), lr=LR)

    def backward(self) -> None:
        self.optimiser.zero_grad()
        F.cross_entropy(self.logits(), self.labels).backward()

    def step(self) -> None:
        self.backward()
        self.optimiser.step()


def explicit(w: list[Tensor], g: list[Tensor], x: Tensor, y: Tensor) -> Tensor:
    """Fill the gradients `g` at the weights `w` by the operations that autograd would call; return the loss."""
    c1 = aten.convolution(x, w[0], w[1], [1, 1], [2, 2], [1, 1], False, [0, 0], 1)
    p1, i1 = aten.max_pool2d_with_indices(c1, [2, 2], [2, 2])
    r1 = aten.relu(p1)
    c2 = aten.convolution(r1, w[2], w[3], [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    p2, i2 = aten.max_pool2d_with_indices(c2, [2, 2], [2, 2])
    r2 = aten.relu(p2)
    flat = r2.flatten(1)
    h3 = aten.relu(aten.addmm(w[5], flat, w[4].t()))
    h4 = aten.relu(aten.addmm(w[7], h3, w[6].t()))
    logs = aten._log_softmax(aten.addmm(w[9], h4, w[8].t()), 1, False)
    loss, weight = aten.nll_loss_forward(logs, y, None, 1, -100)
    d = aten.nll_loss_backward(torch.ones(()), logs, y, None, 1, -100, weight)
    d = aten._log_softmax_backward_data(d, logs, 1, torch.float32)
    for layer, value in ((8, h4), (6, h3), (4, flat)):
        torch.mm(d.t(), value, out=g[layer])
        torch.sum(d, 0, out=g[layer + 1])
        d = aten.threshold_backward(d.mm(w[layer]), value, 0)
    d = aten.max_pool2d_with_indices_backward(d.view(r2.shape), c2, [2, 2], [2, 2], [0, 0], [1, 1], False, i2)
    d, *found = aten.convolution_backward(
        d, r1, w[2], [16], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True, True, True]
    )
    d = aten.threshold_backward(d, r1, 0)
    d = aten.max_pool2d_with_indices_backward(d, c1, [2, 2], [2, 2], [0, 0], [1, 1], False, i1)
    _, *first = aten.convolution_backward(
        d, x, w[0], [6], [1, 1], [2, 2], [1, 1], False, [0, 0], 1, [False, True, True]
    )
    for into, value in zip(g, first + found, strict=False):
        into.copy_(value)
    return loss


def cut(flat: FlatModel) -> tuple[list[Tensor], list[Tensor]]:
    """Return weights and gradients, layer by layer."""
    both = flat.vector, flat.gradient
    weights, gradients = ([v[s.start : s.stop].view(s.shape) for s in flat.slots] for v in both)
    return weights, gradients


class WithoutAutograd(Ours):
    """The operations that autograd calls, called from Python by hand."""

    def __init__(self, task: Classification, batch: int) -> None:
        super().__init__(task, batch)
        self.weights, self.gradients = cut(self.flat)

    def backward(self) -> None:
        with torch.no_grad():
            explicit(self.weights, self.gradients, self.images, self.labels)


@functools.cache
def library() -> Any:
    """Return ``step.cpp``, compiled; RuntimeError or OSError if this machine cannot."""
    source = Path(__file__).with_name("step.cpp")
    return cpp_extension.load("tried_step", [str(source)], extra_cflags=["-O2"])


class Cpp(Ours):
    """The same operations, called from C++."""

    def backward(self) -> None:
        library().gradient_of(self.flat.vector, self.gradient, self.images, self.labels)


def compiled(flat: FlatModel, **options: bool) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
    """Return what fills a gradient at a model for images and labels and returns the loss, by inductor."""

    def loss(model: Tensor, images: Tensor, labels: Tensor) -> Tensor:
        views = {slot.name: model[slot.start : slot.stop].view(slot.shape) for slot in flat.slots}
        return F.cross_entropy(functional_call(flat.network, views, (images,)), labels)

    def fill(model: Tensor, gradient: Tensor, images: Tensor, labels: Tensor) -> Tensor:
        found, value = grad_and_value(loss)(model, images, labels)
        gradient.copy_(found)
        return value

    return torch.compile(fill, dynamic=False, fullgraph=True, options=dict(options))


class Compiled(Ours):
    """Torch.compile (inductor): forward and backward pass as one graph."""

    options: dict[str, bool] = {}

    def __init__(self, task: Classification, batch: int) -> None:
        super().__init__(task, batch)
        torch.compiler.reset()
        self.fill = compiled(self.flat, **self.options)

    def backward(self) -> None:
        self.fill(self.flat.vector, self.gradient, self.images, self.labels)


class CompiledCpp(Compiled):
    """The same, its operations called from C++."""

    options = {"cpp_wrapper": True}


class Autotuned(Compiled):
    """The same, the fastest of inductor's own kernels and the library's."""

    options = {"max_autotune": True}


class Bfloat16(Ours):
    """Autocast; this processor may have no instructions for it."""

    def logits(self) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return self.network(self.images).float()


class ByLayer(Ours):
    """Ours layer by layer, so that some can be replaced."""

    def convolve(self, x: Tensor, layer: Any) -> Tensor:
        """Return the convolution of `layer`."""
        return layer(x)

    def pool(self, x: Tensor) -> Tensor:
        """Return the pooled and rectified `x`."""
        return F.relu(F.max_pool2d(x, 2))

    def logits(self) -> Tensor:
        net: Any = self.network
        x = self.pool(self.convolve(self.pool(self.convolve(self.images, net.conv1)), net.conv2)).flatten(1)
        return net.fc3(F.relu(net.fc2(F.relu(net.fc1(x)))))


class Unfolded(ByLayer):
    """Convolution as unfold and one matrix product."""

    def convolve(self, x: Tensor, layer: Any) -> Tensor:
        rows = F.unfold(x, layer.kernel_size, padding=layer.padding)
        side = x.shape[-1] + 2 * layer.padding[0] - layer.kernel_size[0] + 1
        product = layer.weight.flatten(1) @ rows + layer.bias[:, None]
        return product.unflatten(-1, (side, side))


class Maxima(torch.autograd.Function):
    """Pooling and ReLU as maxima of four views, the first of equal ones having the gradient as in PyTorch's."""

    corners = ((0, 0), (0, 1), (1, 0), (1, 1))

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        a, b, c, d = (x[..., i::2, j::2] for i, j in Maxima.corners)
        largest = torch.maximum(torch.maximum(a, b), torch.maximum(c, d)).relu_()
        ctx.save_for_backward(x, largest)
        return largest

    @staticmethod
    def backward(ctx: Any, d: Tensor) -> Tensor:
        x, largest = ctx.saved_tensors
        d = aten.threshold_backward(d, largest, 0)
        result, taken = torch.empty_like(x), torch.zeros_like(largest, dtype=torch.bool)
        for i, j in Maxima.corners:
            hit = (x[..., i::2, j::2] == largest) > taken
            torch.mul(d, hit, out=result[..., i::2, j::2])
            taken |= hit
        return result


class Fused(ByLayer):
    """Pooling and ReLU in one function of our own, as maxima of four views."""

    def pool(self, x: Tensor) -> Tensor:
        return Maxima.apply(x)


class Blocked(ByLayer):
    """Activations in oneDNN's blocked layout from the first convolution to the dense layers."""

    def convolve(self, x: Tensor, layer: Any) -> Tensor:
        x = x if x.is_mkldnn else x.to_mkldnn()
        return F.conv2d(x, layer.weight, layer.bias, padding=layer.padding)

    def pool(self, x: Tensor) -> Tensor:
        pooled = F.relu(aten.mkldnn_max_pool2d(x, [2, 2], [2, 2]))
        return pooled if x.shape[1] == 6 else pooled.to_dense()


class Products:
    """The bare matrix products of the same sizes (of a convolution: of unfolded images), the faster way round."""

    def __init__(self, task: Classification, batch: int) -> None:
        convolutions = [(6, 25, 784 * batch), (6, 784 * batch, 25)]
        convolutions += [(16, 150, 100 * batch), (16, 100 * batch, 150), (150, 16, 100 * batch)]
        dense = [(batch, 400, 120), (batch, 120, 84), (batch, 84, 10)]
        sizes = convolutions + [way for m, k, n in dense for way in ((m, k, n), (k, m, n), (m, n, k))]
        self.pairs = [self.faster(torch.randn(m, k), torch.randn(k, n)) for m, k, n in sizes]

    def faster(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return factors and room for a product, or for its transpose."""
        ways = [
            (a, b, torch.empty(len(a), b.shape[1])),
            (b.T.contiguous(), a.T.contiguous(), torch.empty(b.shape[1], len(a))),
        ]

        def seconds(way: tuple[Tensor, Tensor, Tensor]) -> float:
            return min(seconds_of(lambda: torch.mm(way[0], way[1], out=way[2])) for _ in range(9))

        return min(ways, key=seconds)

    def difference(self, other: Ours) -> float | None:
        """Return None: there is no gradient."""

    def step(self) -> None:
        """Multiply."""
        for a, b, into in self.pairs:
            torch.mm(a, b, out=into)
