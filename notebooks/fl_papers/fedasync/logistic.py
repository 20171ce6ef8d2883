"""Regularised logistic regression on a few unlike devices: FedAsync's Theorem 1 where nothing is quadratic.

Losses are known in closed form and so are the theorem's constants at every model that a run visits; expectations over
the mini-batches drawn are exact, only the mean over whole runs is a sample. Derived in this book.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fl_core.formulas.checks import require
from fl_core.formulas.fedasync import mix
from fl_papers.fedasync.extra_formulas import proximal_step
from fl_papers.fedasync.toys import require_run

Array = NDArray[np.float64]


class LogisticRuns(NamedTuple):
    """What Theorem 1 speaks about, measured on several runs of one configuration."""

    errors: Array
    """Mean over the runs of F(x_t) - F_* for t = 0..T."""
    grad_deviation: float
    """V1: the largest E ‖grad f(x; z) - grad F(x)‖² of any client at any model that a run visited."""
    grad_second_moment: float
    """V2: the largest E ‖grad f(x; z)‖² of any client there."""


@dataclass(frozen=True)
class ToyLogistic:
    """F(x) = mean over clients and samples of log(1 + exp(-y a·x)) + mu/2 ‖x‖², every client with labels of its own.

    A gradient step uses a mini-batch drawn with replacement from the client's samples.
    """

    clients: int = 5
    dimension: int = 6
    samples: int = 40
    batch: int = 10
    strong_convexity: float = 0.5
    lr: float = 0.3
    seed: int = 0

    @cached_property
    def features(self) -> Array:
        """Labelled features y a, ``[clients, samples, d]``: the loss needs only this product."""
        rng = np.random.default_rng(self.seed)
        a = rng.normal(size=(self.clients, self.samples, self.dimension))
        taste = rng.normal(size=(self.clients, self.dimension, 1))  # what a client takes for the right answer
        return np.asarray(a * np.sign(a @ taste + rng.normal(size=(self.clients, self.samples, 1))))

    @property
    def smoothness(self) -> float:
        """L = mu + largest eigenvalue of the features' second moment / 4."""
        rows = self.features.reshape(-1, self.dimension)
        return self.strong_convexity + float(np.linalg.eigvalsh(rows.T @ rows / len(rows)).max()) / 4

    @cached_property
    def optimum(self) -> Array:
        """x_*, by Newton's method, ``[d]``."""
        rows, x = self.features.reshape(-1, self.dimension), np.zeros(self.dimension)
        for _ in range(30):
            pull = 1 / (1 + np.exp(rows @ x))
            hessian = rows.T * (pull * (1 - pull)) @ rows / len(rows) + self.strong_convexity * np.eye(len(x))
            x = x - np.linalg.solve(hessian, self.gradient(x))
        return np.asarray(x)

    def loss(self, x: Array) -> Array:
        """Return F of each row of `x`, ``[..., d] -> [...]``."""
        rows = self.features.reshape(-1, self.dimension)
        return np.asarray(np.logaddexp(0, -x @ rows.T).mean(-1) + self.strong_convexity / 2 * (x**2).sum(-1))

    def gradient(self, x: Array) -> Array:
        """Return grad F of each row of `x`, ``[..., d] -> [..., d]``."""
        rows = self.features.reshape(-1, self.dimension)
        return np.asarray(-(1 / (1 + np.exp(x @ rows.T))) @ rows / len(rows) + self.strong_convexity * x)

    def run(
        self, alphas: Sequence[float], base_versions: Sequence[int], steps: int, runs: int, seed: int = 0
    ) -> LogisticRuns:
        """Return the mean of `runs` runs of FedAsync, Option I, from x_0 = (2, .., 2).

        Parameters
        ----------
        alphas : sequence of float
            alpha_1 .. alpha_T in [0, 1].
        base_versions : sequence of int
            tau_1 .. tau_T with 0 <= tau_t < t.
        steps : int
            H >= 1.
        runs : int
            Number of independent runs, >= 1.
        seed : int, optional
            Of clients and mini-batches.

        Raises
        ------
        ValueError
            An argument is out of range.
        """
        require_run(alphas, base_versions)
        require(steps >= 1, "steps", steps, ">= 1")
        require(runs >= 1, "runs", runs, ">= 1")
        rng = np.random.default_rng(seed)
        models = [np.full((runs, self.dimension), 2.0)]
        bounds = [self._moments(models[0])[:2]]
        for alpha, tau in zip(alphas, base_versions, strict=True):
            x = base = models[tau]
            client = rng.integers(self.clients, size=(runs, 1))
            for _ in range(steps):
                deviation, second, pull = self._moments(x)
                bounds.append((deviation, second))
                drawn = rng.integers(self.samples, size=(runs, self.batch))
                rows = self.features[client, drawn] * pull[np.arange(runs)[:, None], client, drawn, None]
                x = proximal_step(x, self.strong_convexity * x - rows.mean(axis=1), base, self.lr)
            models.append(mix(models[-1], x, alpha))
        bounds.append(self._moments(models[-1])[:2])
        errors = self.loss(np.array(models)).mean(axis=1) - self.loss(self.optimum)
        deviation, second = np.max(bounds, axis=0)
        return LogisticRuns(errors, float(deviation), float(second))

    def _moments(self, x: Array) -> tuple[float, float, Array]:
        """Return the largest deviation and second moment of a mini-batch gradient at `x`, and each sample's pull.

        A mini-batch of b has 1/b of the variance of one sample's gradient -pull y a + mu x.
        """
        pull = 1 / (1 + np.exp(np.einsum("rd,nmd->rnm", x, self.features, optimize=True)))
        data = np.einsum("rnm,nmd->rnd", pull, self.features, optimize=True) / self.samples
        mean_square = (pull**2 * (self.features**2).sum(-1)).mean(-1)
        variance = (mean_square - (data**2).sum(-1)) / self.batch
        own = self.strong_convexity * x[:, None] - data
        deviation = ((own - own.mean(axis=1, keepdims=True)) ** 2).sum(-1) + variance
        return float(deviation.max()), float(((own**2).sum(-1) + variance).max()), np.asarray(pull)
