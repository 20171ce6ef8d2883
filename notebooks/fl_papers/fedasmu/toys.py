"""Convex test problems for FedASMU's theorem: what a run does, with all that the bounds speak of."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fl_papers.fedasmu.bounds import Problem

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Quadratics:
    """F_i(w) = sum_j a_ij (w_j - c_ij)^2 / 2 on each device, and their mean F.

    Attributes
    ----------
    curvature, centre : ndarray
        a and c, ``[m, d]``.
    """

    curvature: Vector
    centre: Vector

    def gradient(self, device: int, w: Vector) -> Vector:
        """Return that of F_i, ``[d]``."""
        return self.curvature[device] * (w - self.centre[device])

    def mean_gradient(self, w: Vector) -> Vector:
        """Return that of F, ``[d]``."""
        return (self.curvature * (w - self.centre)).mean(0)

    def mean_loss(self, w: Vector) -> float:
        """Return F(w)."""
        return float((0.5 * self.curvature * (w - self.centre) ** 2).sum(1).mean())


@dataclass
class Trace:
    """What a run has done.

    Attributes
    ----------
    models : list of ndarray
        w_0, w_1, ..., each ``[d]``.
    points : list of list of ndarray
        For each round the points ``[d]`` at which the device took gradients.
    devices : list of int
    origins : list of int
        o of each round.
    weights, merges : list of float
        alpha_t, and beta of each round (0 without a merge).
    """

    models: list[Vector]
    points: list[list[Vector]] = field(default_factory=list)
    devices: list[int] = field(default_factory=list)
    origins: list[int] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)
    merges: list[float] = field(default_factory=list)

    def drift(self, staleness_bound: int) -> float:
        """Return D_tau, the largest distance of models that are at most tau - 1 versions apart."""
        models = np.array(self.models)
        gaps = range(1, min(staleness_bound, len(models)))
        return max((float(np.linalg.norm(models[gap:] - models[:-gap], axis=1).max()) for gap in gaps), default=0.0)

    def squared_gradients(self, losses: Quadratics) -> list[float]:
        """Return for each round the sum S_t of |grad F|^2 at its points."""
        return [
            sum(float(losses.mean_gradient(w) @ losses.mean_gradient(w)) for w in points) for points in self.points
        ]

    def problem(self, losses: Quadratics) -> Problem:
        """Return L, and the G and V^2 that hold at all points of this run."""
        pairs = [(d, w) for d, points in zip(self.devices, self.points, strict=True) for w in points]
        own = [losses.gradient(d, w) for d, w in pairs]
        means = [losses.mean_gradient(w) for w in [*(w for _, w in pairs), *self.models]]
        norms = [float(np.linalg.norm(g)) for g in [*own, *means]]
        apart = [float(((g - losses.mean_gradient(w)) ** 2).sum()) for g, (_, w) in zip(own, pairs, strict=True)]
        return Problem(float(losses.curvature.max()), max(norms), max(apart))


def random_run(
    losses: Quadratics,
    start: Vector,
    rng: np.random.Generator,
    *,
    rounds: int,
    staleness_bound: int,
    epochs: int,
    lr: float,
    alpha: tuple[float, float],
    beta_max: float,
) -> Trace:
    """Return a run in which device, origin, weights, slot and fresh version of each round are drawn at random.

    Parameters
    ----------
    losses : Quadratics
    start : ndarray
        w_0, ``[d]``.
    rng : numpy.random.Generator
    rounds : int
        T.
    staleness_bound : int
        tau: t - o + 1 is uniform in 1 .. tau.
    epochs : int
        Local steps E >= 2, one gradient each.
    lr : float
        eta.
    alpha : tuple of float
        Range of the mixing weights.
    beta_max : float
        The weight of a fresh model is uniform in [0, beta_max].
    """
    trace = Trace([start])
    for t in range(rounds):
        device, origin = int(rng.integers(len(losses.centre))), max(0, t - int(rng.integers(staleness_bound)))
        w, points, beta = trace.models[origin], [], 0.0
        slot = int(rng.integers(1, epochs))
        for step in range(epochs):
            if step == slot and origin < t:
                beta = beta_max * rng.random()
                w = (1 - beta) * w + beta * trace.models[int(rng.integers(origin + 1, t + 1))]
            points.append(w)
            w = w - lr * losses.gradient(device, w)
        weight = rng.uniform(*alpha)
        trace.models.append((1 - weight) * trace.models[-1] + weight * w)
        trace.points.append(points)
        trace.devices.append(device)
        trace.origins.append(origin)
        trace.weights.append(weight)
        trace.merges.append(beta)
    return trace
