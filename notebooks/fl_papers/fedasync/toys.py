"""Problems whose constants are known, to hold FedAsync's theory against exact numbers instead of noisy runs.

`iterate` is Algorithm 1 without a clock; `ToyQ` is a strongly convex quadratic with exact expectations
(Theorem 1), `ToyW` a weakly convex function with local minima (Theorem 2). All derived in this book. Their logistic
sibling is in `fedasync_logistic`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fl_core.formulas.checks import require
from fl_core.formulas.fedasync import M, R, alpha_t, mix
from fl_core.formulas.staleness import constant
from fl_papers.fedasync.extra_formulas import local_factor, proximal_step
from fl_papers.fedasync.stability import stationary_error


def oldest_versions(num_updates: int, max_staleness: int) -> list[int]:
    """Return tau_t = max(0, t - K) for t = 1..T: every arrival as stale as allowed.

    Raises
    ------
    ValueError
        `num_updates` < 0 or `max_staleness` < 1.
    """
    _require_schedule(num_updates, max_staleness)
    return [max(0, t - max_staleness) for t in range(1, num_updates + 1)]


def sampled_versions(num_updates: int, max_staleness: int, rng: np.random.Generator) -> list[int]:
    """Return tau_t uniform on max(0, t - K) .. t - 1 for t = 1..T: the sampled staleness of the experiments.

    Raises
    ------
    ValueError
        `num_updates` < 0 or `max_staleness` < 1.
    """
    _require_schedule(num_updates, max_staleness)
    return [int(rng.integers(max(0, t - max_staleness), t)) for t in range(1, num_updates + 1)]


def iterate(x0: M, alphas: Sequence[float], base_versions: Sequence[int], local: Callable[[M], M]) -> list[M]:
    """Return x_0 .. x_T of Algorithm 1: x_t = mix(x_{t-1}, local(x_tau), alpha_t).

    Parameters
    ----------
    x0 : float, ndarray or Tensor
        Initial model.
    alphas : sequence of float
        alpha_1 .. alpha_T.
    base_versions : sequence of int
        tau_1 .. tau_T with 0 <= tau_t < t.
    local : callable
        What a device makes of the model it received.

    Raises
    ------
    ValueError
        Lengths differ, or a model would be used before it exists.
    """
    require_run(alphas, base_versions)
    models = [x0]
    for alpha, tau in zip(alphas, base_versions, strict=True):
        models.append(mix(models[-1], local(models[tau]), alpha))
    return models


class ToyRun(NamedTuple):
    """What the theorems speak about, for one run; expectations are exact."""

    errors: NDArray[np.float64]
    """E[F(x_t) - F_*] for t = 0..T."""
    grad_norms: NDArray[np.float64]
    """E ‖grad F(x_t)‖² for t = 0..T."""
    alphas: NDArray[np.float64]
    """alpha_1 .. alpha_T."""


@dataclass(frozen=True)
class ToyQ:
    """Mean over clients i of 1/2 sum_j a_j (x_j - c_ij)^2: equal Hessians, different minimisers c_i.

    A client's stochastic gradient is A (x - c_i) - z with z ~ N(0, noise_variance I), A = diag(curvatures).
    Equal Hessians make the gradient deviation V1 one number for all x.
    """

    curvatures: tuple[float, ...] = (1.0, 5.0)
    centres: tuple[tuple[float, ...], ...] = ((1.0, 0.0), (-1.0, 0.5), (0.5, -0.5), (-0.5, 0.0))
    noise_variance: float = 0.04
    start: tuple[float, ...] = (3.0, -2.0)
    lr: float = 0.1

    @property
    def optimum(self) -> NDArray[np.float64]:
        """x_*: the mean of the clients' minimisers."""
        return np.mean(self.centres, axis=0)

    @property
    def strong_convexity(self) -> float:
        """mu: the smallest curvature."""
        return min(self.curvatures)

    @property
    def smoothness(self) -> float:
        """L: the largest curvature."""
        return max(self.curvatures)

    @property
    def grad_deviation_bound(self) -> float:
        """V1 = max_i ‖A (c_i - x_*)‖² + d noise_variance."""
        bias = np.asarray(self.curvatures) * (np.asarray(self.centres) - self.optimum)
        return float((bias**2).sum(axis=1).max() + len(self.curvatures) * self.noise_variance)

    def run(
        self,
        alpha: float,
        base_versions: Sequence[int],
        steps: int,
        weight: Callable[[float], float] = constant,
    ) -> ToyRun:
        """Return the exact course of FedAsync with weights alpha s(t - 1 - tau_t) and H = `steps` local steps.

        Raises
        ------
        ValueError
            An argument is out of range.
        """
        alphas = [alpha_t(alpha, t, t - 1 - tau, weight) for t, tau in enumerate(base_versions, start=1)]
        moments = self.second_moments(alphas, base_versions, steps)
        return ToyRun(self.errors(moments), self.grad_norms(moments), np.array(alphas))

    def stationary_error(self, alpha: float, steps: int, max_staleness: int = 1) -> float:
        """Return lim E[F(x_t) - F_*] with ages uniform on 1..K: `stationary_error` of every coordinate.

        Raises
        ------
        ValueError
            An argument is out of range.
        """
        keep = local_factor(np.asarray(self.curvatures), self.lr, steps)
        variance = self._scatter(steps) / (1 - keep) ** 2
        coordinates = zip(self.curvatures, keep, variance, strict=True)
        return sum(stationary_error(alpha, a, float(p), float(v), max_staleness) for a, p, v in coordinates)

    def errors(self, second_moments: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return E[F(x_t) - F_*] = 1/2 sum_j a_j S_j from `second_moments`, ``[T + 1]``."""
        return second_moments @ np.asarray(self.curvatures) / 2

    def grad_norms(self, second_moments: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return E ‖grad F(x_t)‖² = sum_j a_j^2 S_j from `second_moments`, ``[T + 1]``."""
        return second_moments @ np.asarray(self.curvatures) ** 2

    def second_moments(
        self, alphas: Sequence[float], base_versions: Sequence[int], steps: int
    ) -> NDArray[np.float64]:
        """Return S_j = E (x_tj - x_*j)^2 for t = 0..T and every coordinate j, exactly, ``[T + 1, d]``.

        Each update draws a client uniformly and lets it make `steps` steps of Option I. No Monte Carlo:
        the covariances of all pairs of iterates follow a linear recursion.

        Parameters
        ----------
        alphas : sequence of float
            alpha_1 .. alpha_T in [0, 1].
        base_versions : sequence of int
            tau_1 .. tau_T with 0 <= tau_t < t.
        steps : int
            H >= 1.

        Raises
        ------
        ValueError
            An argument is out of range.
        """
        require_run(alphas, base_versions)
        require(steps >= 1, "steps", steps, ">= 1")
        a = np.asarray(self.curvatures)
        keep, noise = local_factor(a, self.lr, steps), self._scatter(steps)
        size = len(alphas) + 1
        S = np.zeros((size, size, len(a)))  # S[t, s] = E (x_t - x_*)(x_s - x_*) per coordinate
        S[0, 0] = (np.asarray(self.start) - self.optimum) ** 2
        for t, (alpha, tau) in enumerate(zip(alphas, base_versions, strict=True), start=1):
            S[t, :t] = mix(S[t - 1, :t], keep * S[tau, :t], alpha)
            S[:t, t] = S[t, :t]
            S[t, t] = (
                (1 - alpha) ** 2 * S[t - 1, t - 1]
                + 2 * alpha * (1 - alpha) * keep * S[t - 1, tau]
                + alpha**2 * (keep**2 * S[tau, tau] + noise)
            )
        return np.einsum("ttj->tj", S)

    def _scatter(self, steps: int) -> NDArray[np.float64]:
        """Return nu_j: variance of a local task's result, from the drawn client and from its gradients, ``[d]``."""
        p = 1 - self.lr * np.asarray(self.curvatures)
        drawn = (1 - p**steps) ** 2 * np.var(self.centres, axis=0)
        return np.asarray(drawn + self.lr**2 * self.noise_variance * sum(p ** (2 * h) for h in range(steps)))


@dataclass(frozen=True)
class ToyW:
    """F(x) = x^2 / 2 + 3 sin(x)^2, weakly convex: F'' = 1 + 6 cos(2 x) lies in [-5, 7], F_* = 0 at x = 0."""

    weak_convexity: float = 5.0
    smoothness: float = 7.0
    prox_rho: float = 6.0
    lr: float = 0.1
    gradient_offsets: tuple[float, ...] = (0.8, -0.8, 0.3, -0.3)
    local_minimum: float = 2.6129817651566185  # F = 4.18 there; -2.61 is another
    local_maximum: float = 1.917504384345214  # the ridge between it and the global minimum

    def loss(self, x: R) -> R:
        """Return F(x)."""
        return x**2 / 2 + 3 * np.sin(x) ** 2

    def gradient(self, x: R) -> R:
        """Return F'(x) = x + 3 sin(2 x); a client adds its offset to it."""
        return x + 3 * np.sin(2 * x)

    def grad_second_moment_bound(self, visited: NDArray[np.float64], offset: float = 0.0) -> float:
        """Return V2: the largest squared gradient of F ± offset + rho/2 (x - x')^2, x and x' `visited` or x_* = 0.

        For given x it is largest at the smallest or the largest x'.
        """
        x = np.append(visited, 0.0)
        own = np.abs(self.gradient(x)[:, None] + self.prox_rho * (x[:, None] - [x.min(), x.max()]))
        return float((own.max() + abs(offset)) ** 2)

    def local_model(self, anchor: R, steps: int, offset: float = 0.0) -> R:
        """Return the model after `steps` steps of Option II from the received `anchor`."""
        x = anchor
        for _ in range(steps):
            x = proximal_step(x, self.gradient(x) + offset, anchor, self.lr, self.prox_rho)
        return x


def _require_schedule(num_updates: int, max_staleness: int) -> None:
    require(num_updates >= 0, "num_updates", num_updates, ">= 0")
    require(max_staleness >= 1, "max_staleness", max_staleness, ">= 1")


def require_run(alphas: Sequence[float], base_versions: Sequence[int]) -> None:
    """Refuse alphas and base versions that belong to no run.

    Raises
    ------
    ValueError
        Lengths differ, or a model would be used before it exists.
    """
    require(
        len(alphas) == len(base_versions),
        "len(alphas)",
        len(alphas),
        f"{len(base_versions)}, one per version",
    )
    for t, tau in enumerate(base_versions, start=1):
        require(0 <= tau < t, f"base_versions[{t - 1}]", tau, f"in 0..{t - 1}")
