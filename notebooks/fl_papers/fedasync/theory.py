"""FedAsync's theorems: formulas, bounds, problems whose constants are known, the proof in numbers, counter-examples.

Source: Xie, Koyejo & Gupta, "Asynchronous Federated Optimization" (2019), Theorems 1 and 2; functions marked
"derived" are this book's. FA-n are this book's equation numbers.

Symbols: gamma `lr`, L smoothness, mu strong or weak convexity, rho `prox_rho`, H_min `min_local_steps`,
V1 `grad_deviation_bound`, V2 `grad_second_moment_bound`, T `num_updates`, Delta_0 = F(x_0) - F_* `initial_gap`,
q contraction of one local task, K `max_staleness` = largest t - tau (staleness <= K - 1),
kappa `age` = staleness + 1, x_tau `anchor` or `x_base`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import pandas as pd
import scipy
from numpy.typing import NDArray

from fl_core.formulas.checks import inequalities, require, require_range, violations
from fl_core.formulas.fedasync import M, R, alpha_t, mix
from fl_core.formulas.staleness import Constant, Exponential, Hinge, Linear, Polynomial, StalenessWeight, constant

Array = NDArray[np.float64]

# Formulas of the chapters that no algorithm needs


def unrolled_weights(alphas: Sequence[float]) -> list[float]:
    """Return how much x_0 and each of the T arriving models count in x_T: FA-2 unrolled.

    Entry 0 is prod_t (1 - alpha_t), entry t is alpha_t prod_{r > t} (1 - alpha_r); they add up to 1.
    """
    weights: list[float] = [1]
    for alpha in alphas:
        require_range("in [0, 1]", alpha=alpha)
        weights = [(1 - alpha) * w for w in weights] + [alpha]
    return weights


def prox_gradient(grad: M, x: M, anchor: M, rho: float) -> M:
    """Return grad f(x; z) + rho (x - x_tau): the gradient of the regularised local loss, FA-5."""
    require_range(">= 0", rho=rho)
    return grad + rho * (x - anchor)


def proximal_step(x: M, grad: M, anchor: M, lr: float, rho: float = 0.0) -> M:
    """Return x - gamma [grad f(x; z) + rho (x - x_tau)]: one step of a device, FA-4 and FA-5."""
    require_range("> 0", lr=lr)
    return x - lr * prox_gradient(grad, x, anchor, rho)


def local_factor(curvature: R, lr: float, steps: int, rho: float = 0.0) -> R:
    """Return (x_{tau,H} - c) / (x_tau - c) for the local loss a/2 (x - c)^2 and exact gradients.

    The closed form of H steps FA-5, [rho + a (1 - gamma (a + rho))^H] / (a + rho), derived in this book. For
    gamma < 2 / (a + rho) it tends to the proximal point's rho / (a + rho); otherwise it does not settle.
    """
    require_range("> 0", curvature=curvature, lr=lr)
    require_range(">= 0", steps=steps, rho=rho)
    return (rho + curvature * (1 - lr * (curvature + rho)) ** steps) / (curvature + rho)


def local_solution(x_base: R, centre: R, curvature: R, lr: float, steps: int, rho: float = 0.0) -> R:
    """Return x_{tau,H} for the local loss a/2 (x - c)^2: c + (x_tau - c) `local_factor`."""
    return centre + (x_base - centre) * local_factor(curvature, lr, steps, rho)


def max_stable_lr(smoothness: float, rho: float = 0.0) -> float:
    """Return 2 / (L + rho): local steps FA-5 converge on every convex L-smooth quadratic iff gamma is smaller.

    The paper's Theorem 2 allows larger ones (erratum E8).
    """
    require_range("> 0", smoothness=smoothness)
    require_range(">= 0", rho=rho)
    return 2 / (smoothness + rho)


# What staleness and alpha really do: exact results on quadratics, and a conservation law


def mixing_characteristic(alpha: float, q: float, age: int) -> list[float]:
    """Return the coefficients of lambda^K - (1 - alpha) lambda^(K-1) - alpha q, highest power first. Derived.

    Its roots govern x_t = (1 - alpha) x_{t-1} + alpha q x_{t-K}: model mixing of arrivals K versions old.
    """
    return _characteristic(alpha, q, age, previous=1 - alpha, stale=alpha * q)


def delta_characteristic(alpha: float, q: float, age: int) -> list[float]:
    """Return the coefficients of lambda^K - lambda^(K-1) + alpha (1 - q), highest power first. Derived.

    Its roots govern x_t = x_{t-1} + alpha (q - 1) x_{t-K}: adding the stale device's difference instead.
    """
    return _characteristic(alpha, q, age, previous=1.0, stale=-alpha * (1 - q))


def spectral_radius(coefficients: list[float]) -> float:
    """Return the largest modulus of a polynomial's roots: below 1 means that the recursion is stable."""
    return float(np.abs(np.roots(coefficients)).max())


def delta_stability_threshold(age: int) -> float:
    """Return 2 sin(pi / (2 (2 K - 1))): the delta form is stable iff 0 < alpha (1 - q) is below it. Derived."""
    require_range(">= 1 (staleness + 1)", age=age)
    return 2 * math.sin(math.pi / (2 * (2 * age - 1)))


def stationary_error(alpha: float, curvature: float, p: float, variance: float, max_staleness: int = 1) -> float:
    """Return lim E[F(x_t) - F_*] on a scalar quadratic with scattered minimisers and ages uniform on 1..K. Derived.

    For fresh models (K = 1) this is a/2 alpha^2 (1 - p)^2 Var(c) / (1 - (1 - alpha (1 - p))^2): less for less alpha.
    """
    require_range("in (0, 1]", alpha=alpha)
    require_range("> 0", curvature=curvature)
    require_range("in (-1, 1)", p=p)
    require_range(">= 0", variance=variance)
    require_range(">= 1", max_staleness=max_staleness)
    pull = alpha * (1 - p)
    if max_staleness == 1:
        return curvature / 2 * pull**2 * variance / (1 - (1 - pull) ** 2)
    return curvature / 2 * _stationary_covariance(alpha, p, pull**2 * variance, max_staleness)


def total_staleness(concurrency: int, num_updates: int) -> int:
    """Return (M - 1) N: staleness of all completed tasks and of those in flight, whatever the speeds. Derived.

    Each update ages the other M - 1 in flight by one: with durations between positive bounds the mean tends to M - 1.
    """
    require_range(">= 1", concurrency=concurrency)
    require_range(">= 0", num_updates=num_updates)
    return (concurrency - 1) * num_updates


def _characteristic(alpha: float, q: float, age: int, *, previous: float, stale: float) -> list[float]:
    require_range("> 0", alpha=alpha)
    require_range("in [-1, 1]", q=q)
    require_range(">= 1 (staleness + 1)", age=age)
    coefficients = [1.0] + [0.0] * age
    coefficients[1] -= previous
    coefficients[age] -= stale
    return coefficients


def _stationary_covariance(alpha: float, p: float, noise: float, ages: int) -> float:
    """Return C_0 of x_t = (1 - alpha) x_{t-1} + alpha p x_{t-age} + noise, age uniform on 1..K.

    C_k = E x_t x_{t-k} solves C_k = (1 - alpha) C_{k-1} + alpha p mean_age C_{|k - age|} for k >= 1, and
    C_0 = [(1 - alpha)^2 + (alpha p)^2] C_0 + 2 alpha (1 - alpha) p mean_age C_{age - 1} + noise.
    """
    system, right = np.eye(ages), np.zeros(ages)
    right[0] = noise
    system[0, 0] -= (1 - alpha) ** 2 + (alpha * p) ** 2
    for age in range(1, ages + 1):
        system[0, age - 1] -= 2 * alpha * (1 - alpha) * p / ages
        for k in range(1, ages):
            system[k, abs(k - age)] -= alpha * p / ages
    for k in range(1, ages):
        system[k, k - 1] -= 1 - alpha
    return float(np.linalg.solve(system, right)[0])


# The two theorems: contraction factors, printed bounds and the repaired one (FA-8 to FA-12)

Number = TypeVar("Number", float, NDArray[Any])
"""A number or an array; where the first argument is an array, the others may be arrays that broadcast with it."""


def q_option1(lr: Number, strong_convexity: Number | float, min_local_steps: Number | int) -> Number:
    """Return q = (1 - gamma mu)^H_min, what one plain local task leaves of the error (in FA-8)."""
    require_range("> 0", lr=lr, strong_convexity=strong_convexity)
    require(lr * strong_convexity < 1, "lr * strong_convexity", lr * strong_convexity, "< 1")
    require_range(">= 1", min_local_steps=min_local_steps)
    return (1 - lr * strong_convexity) ** min_local_steps


def q_option2(
    lr: Number, prox_rho: Number | float, weak_convexity: Number | float, min_local_steps: Number | int
) -> Number:
    """Return q = [1 - gamma (rho - mu) / 2]^H_min, Theorem 2's factor (in FA-11).

    Not a rate at which anything converges: it falls with rho where the true factor rises (erratum E7).
    """
    r = _prox_modulus(lr, prox_rho, weak_convexity)
    require_range(">= 1", min_local_steps=min_local_steps)
    return (1 - lr * r / 2) ** min_local_steps


def beta(alpha: Number, q: Number | float) -> Number:
    """Return beta = 1 - alpha + alpha q: FA-8 with `q_option1`, FA-11 with `q_option2`."""
    require_range("in (0, 1]", alpha=alpha)
    require_range("in [0, 1)", q=q)
    return 1 - alpha + alpha * q


def residual(
    lr: Number, strong_convexity: Number | float, grad_deviation_bound: Number | float,
    grad_second_moment_bound: Number | float,
) -> Number:  # fmt: skip
    """Return R = (V1 + V2) / (2 gamma mu^2), the constant that Theorem 1 hides in O(V1 + V2) (FA-9)."""
    require_range("> 0", lr=lr)
    _require_mu_v(strong_convexity, grad_deviation_bound, grad_second_moment_bound)
    return (grad_deviation_bound + grad_second_moment_bound) / (2 * lr * strong_convexity**2)


def residual_tight(
    q: float, strong_convexity: float, grad_deviation_bound: float, grad_second_moment_bound: float
) -> float:
    """Return ((1 - q) V1 + q V2) / (2 mu (1 - q)): steps 5, 11 and 12 of the chain without their last estimates.

    Valid when every task makes H_min steps, q = (1 - gamma mu)^H_min. Derived.
    """
    require_range("in [0, 1)", q=q)
    _require_mu_v(strong_convexity, grad_deviation_bound, grad_second_moment_bound)
    noise = (1 - q) * grad_deviation_bound + q * grad_second_moment_bound
    return noise / (2 * strong_convexity * (1 - q))


def printed_bound(
    num_updates: Number, initial_gap: Number | float, beta: Number | float, residual: Number | float
) -> Number:
    """Return beta^T Delta_0 + (1 - beta^T) R: both theorems' bound on E[F(x_T) - F_*], FA-9 and FA-12.

    It never falls below Delta_0 when R >= Delta_0, which the theorems' own assumptions force (erratum E4).
    """
    require_range(">= 0", num_updates=num_updates, initial_gap=initial_gap)
    return beta**num_updates * initial_gap + (1 - beta**num_updates) * residual


def contraction_root(alpha: float, q: float, age: int) -> float:
    """Return lambda(alpha, q, kappa): the root in (0, 1) of lambda^k = (1 - alpha) lambda^(k-1) + alpha q.

    What one update leaves of the error when every arrival is kappa versions old (FA-10, derived); it lies between
    beta and beta^(1/kappa).
    """
    low = beta(alpha, q)
    require_range(">= 1 (staleness + 1)", age=age)
    high = low ** (1 / age)
    if age == 1 or low == high:
        return low

    def excess(x: float) -> float:
        return x ** (age - 1) * (x - (1 - alpha)) - alpha * q

    if excess(high) <= 0 or excess(low) >= 0:  # the root is an end of the interval up to rounding
        return low if abs(excess(low)) <= abs(excess(high)) else high
    return float(scipy.optimize.brentq(excess, low, high, xtol=1e-15, rtol=4 * np.finfo(float).eps))


def adaptive_rate(alpha: float, q: float, max_staleness: int, weight: Callable[[float], float] = constant) -> float:
    """Return lambda_* = max over staleness d < K of lambda(alpha s(d), q, d + 1), the rate in FA-10. Derived."""
    require_range(">= 1", max_staleness=max_staleness)
    return max(contraction_root(alpha * weight(d), q, d + 1) for d in range(max_staleness))


def derived_bound(
    num_updates: Number, initial_gap: float, rate: float, strong_convexity: float, grad_deviation_bound: float
) -> Number:
    """Return V1/(2 mu) + rate^T max(0, Delta_0 - V1/(2 mu)): Theorem 1 repaired, without V2, FA-10. Derived."""
    require_range(">= 0", num_updates=num_updates, initial_gap=initial_gap)
    require_range("in [0, 1)", rate=rate)
    _require_mu_v(strong_convexity, grad_deviation_bound, 0.0)
    floor = grad_deviation_bound / (2 * strong_convexity)
    return floor + rate**num_updates * max(0.0, initial_gap - floor)


class Theorem2(NamedTuple, Generic[Number]):
    """Constants of Theorem 2 (FA-12)."""

    c1: Number  # C1 = gamma V1 + 6 gamma rho^2 V2 / r^2, what one local step adds; r = rho - mu.
    c2: Number  # C2 = 2 C1 / (gamma r) + 2 rho V2 / r^2 + V2 / (2 r); one update adds alpha C2.
    residual: Number  # 2 C2 / (gamma r), where the bound ends.


def theorem2_constants(
    lr: Number,
    prox_rho: Number | float,
    weak_convexity: Number | float,
    grad_deviation_bound: Number | float,
    grad_second_moment_bound: Number | float,
) -> Theorem2[Number]:
    """Return C1, C2 and the residual 2 C2 / (gamma (rho - mu)) of Theorem 2, FA-12."""
    r = _prox_modulus(lr, prox_rho, weak_convexity)
    _require_mu_v(r, grad_deviation_bound, grad_second_moment_bound)
    v1, v2 = grad_deviation_bound, grad_second_moment_bound
    c1 = lr * v1 + 6 * lr * prox_rho**2 * v2 / r**2
    c2 = 2 * c1 / (lr * r) + 2 * prox_rho * v2 / r**2 + v2 / (2 * r)
    return Theorem2(c1, c2, 2 * c2 / (lr * r))


def _prox_modulus(lr: Any, prox_rho: Any, weak_convexity: Any) -> Any:
    """Return r = rho - mu, the strong convexity of the regularised loss."""
    require_range("> 0", lr=lr)
    require_range(">= 0", weak_convexity=weak_convexity)
    r = prox_rho - weak_convexity
    require(r > 0, "prox_rho", prox_rho, f"> weak_convexity = {weak_convexity}")
    require(lr * r < 2, "lr", lr, "< 2 / (prox_rho - weak_convexity)")
    return r


def _require_mu_v(mu: Any, v1: Any, v2: Any) -> None:
    require_range("> 0", strong_convexity=mu)
    require_range(">= 0", grad_deviation_bound=v1, grad_second_moment_bound=v2)


# Problems whose constants are known: a strongly convex quadratic (Theorem 1), a weakly convex function (Theorem 2)


def oldest_versions(num_updates: int, max_staleness: int) -> list[int]:
    """Return tau_t = max(0, t - K) for t = 1..T: every arrival as stale as allowed."""
    require_range(">= 0", num_updates=num_updates)
    require_range(">= 1", max_staleness=max_staleness)
    return [max(0, t - max_staleness) for t in range(1, num_updates + 1)]


def sampled_versions(num_updates: int, max_staleness: int, rng: np.random.Generator) -> list[int]:
    """Return tau_t uniform on max(0, t - K) .. t - 1 for t = 1..T: the sampled staleness of the experiments."""
    require_range(">= 0", num_updates=num_updates)
    require_range(">= 1", max_staleness=max_staleness)
    return [int(rng.integers(max(0, t - max_staleness), t)) for t in range(1, num_updates + 1)]


def iterate(x0: M, alphas: Sequence[float], base_versions: Sequence[int], local: Callable[[M], M]) -> list[M]:
    """Return x_0 .. x_T of Algorithm 1: x_t = mix(x_{t-1}, local(x_tau), alpha_t)."""
    require_run(alphas, base_versions)
    models = [x0]
    for alpha, tau in zip(alphas, base_versions, strict=True):
        models.append(mix(models[-1], local(models[tau]), alpha))
    return models


class ToyRun(NamedTuple):
    """What the theorems speak about, for one run; expectations are exact."""

    errors: NDArray[np.float64]  # E[F(x_t) - F_*] for t = 0..T.
    grad_norms: NDArray[np.float64]  # E ‖grad F(x_t)‖² for t = 0..T.
    alphas: NDArray[np.float64]  # alpha_1 .. alpha_T.


@dataclass(frozen=True)
class ToyQ:
    """Mean over clients i of 1/2 sum_j a_j (x_j - c_ij)^2: equal Hessians, so that V1 is one number for all x.

    A client's stochastic gradient is A (x - c_i) - z with z ~ N(0, noise_variance I), A = diag(curvatures).
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
        self, alpha: float, base_versions: Sequence[int], steps: int, weight: Callable[[float], float] = constant
    ) -> ToyRun:
        """Return the exact course of FedAsync with weights alpha s(t - 1 - tau_t) and H = `steps` local steps."""
        alphas = [alpha_t(alpha, t, t - 1 - tau, weight) for t, tau in enumerate(base_versions, start=1)]
        moments = self.second_moments(alphas, base_versions, steps)
        return ToyRun(self.errors(moments), self.grad_norms(moments), np.array(alphas))

    def stationary_error(self, alpha: float, steps: int, max_staleness: int = 1) -> float:
        """Return lim E[F(x_t) - F_*] with ages uniform on 1..K: `stationary_error` of every coordinate."""
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

    def second_moments(self, alphas: Sequence[float], base_versions: Sequence[int], steps: int) -> Array:
        """Return S_j = E (x_tj - x_*j)^2 for t = 0..T and every coordinate j, exactly, ``[T + 1, d]``.

        Each update draws a client uniformly, which makes `steps` steps of Option I; covariances of all pairs of
        iterates follow a linear recursion.
        """
        require_run(alphas, base_versions)
        require_range(">= 1", steps=steps)
        a = np.asarray(self.curvatures)
        keep, noise = local_factor(a, self.lr, steps), self._scatter(steps)
        size = len(alphas) + 1
        S = np.zeros((size, size, len(a)))  # S[t, s] = E (x_t - x_*)(x_s - x_*) per coordinate
        S[0, 0] = (np.asarray(self.start) - self.optimum) ** 2
        for t, (alpha, tau) in enumerate(zip(alphas, base_versions, strict=True), start=1):
            S[t, :t] = mix(S[t - 1, :t], keep * S[tau, :t], alpha)
            S[:t, t] = S[t, :t]
            both, own = 2 * alpha * (1 - alpha) * keep * S[t - 1, tau], alpha**2 * (keep**2 * S[tau, tau] + noise)
            S[t, t] = (1 - alpha) ** 2 * S[t - 1, t - 1] + both + own
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
        """Return V2: the largest squared gradient of F ± offset + rho/2 (x - x')^2, x and x' `visited` or x_* = 0."""
        x = np.append(visited, 0.0)  # for given x it is largest at the smallest or the largest x'
        own = np.abs(self.gradient(x)[:, None] + self.prox_rho * (x[:, None] - [x.min(), x.max()]))
        return float((own.max() + abs(offset)) ** 2)

    def local_model(self, anchor: R, steps: int, offset: float = 0.0) -> R:
        """Return the model after `steps` steps of Option II from the received `anchor`."""
        x = anchor
        for _ in range(steps):
            x = proximal_step(x, self.gradient(x) + offset, anchor, self.lr, self.prox_rho)
        return x


def require_run(alphas: Sequence[float], base_versions: Sequence[int]) -> None:
    """Refuse alphas and base versions that belong to no run."""
    require(len(alphas) == len(base_versions), "len(alphas)", len(alphas), f"{len(base_versions)}, one per version")
    for t, tau in enumerate(base_versions, start=1):
        require(0 <= tau < t, f"base_versions[{t - 1}]", tau, f"in 0..{t - 1}")


# Regularised logistic regression on a few unlike devices: Theorem 1 where nothing is quadratic. Losses and constants
# are exact, and so are expectations over the mini-batches drawn; only the mean over whole runs is a sample.


class LogisticRuns(NamedTuple):
    """What Theorem 1 speaks about, measured on several runs of one configuration."""

    errors: Array  # Mean over the runs of F(x_t) - F_* for t = 0..T.
    grad_deviation: float
    """V1: the largest E ‖grad f(x; z) - grad F(x)‖² of any client at any model that a run visited."""
    grad_second_moment: float  # V2: the largest E ‖grad f(x; z)‖² of any client there.


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
        """Return the mean of `runs` runs of FedAsync, Option I, from x_0 = (2, .., 2)."""
        require_run(alphas, base_versions)
        require_range(">= 1", steps=steps, runs=runs)
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
        """Return the largest deviation and second moment of a mini-batch gradient at `x`, and each sample's pull."""
        pull = 1 / (1 + np.exp(np.einsum("rd,nmd->rnm", x, self.features, optimize=True)))
        data = np.einsum("rnm,nmd->rnd", pull, self.features, optimize=True) / self.samples
        mean_square = (pull**2 * (self.features**2).sum(-1)).mean(-1)
        variance = (mean_square - (data**2).sum(-1)) / self.batch
        own = self.strong_convexity * x[:, None] - data
        deviation = ((own - own.mean(axis=1, keepdims=True)) ** 2).sum(-1) + variance
        return float(deviation.max()), float(((own**2).sum(-1) + variance).max()), np.asarray(pull)


# The proof of Theorem 2 with every constant written out (FA-12): each step is a chain of numbers that must not fall.
# One client and exact gradients, so that V1 = 0.


def theorem2_chains(
    toy: ToyW, start: float, alpha: float, base_versions: Sequence[int], steps: int
) -> dict[str, list[Array]]:
    """Return, for every step of the proof, the quantities that it orders from small to large.

    They are of all local steps ``[T, H]``, all updates ``[T]``, or (the last) all models; F_* = 0 at x_* = 0.
    """
    f, df, lr, rho, mu = toy.loss, toy.gradient, toy.lr, toy.prox_rho, toy.weak_convexity
    r = rho - mu

    def G(x: Array, anchor: Array | float) -> Array:
        return np.asarray(f(x) + rho / 2 * (x - anchor) ** 2)

    def dG(x: Array, anchor: Array | float) -> Array:
        return np.asarray(df(x) + rho * (x - anchor))

    run = np.array(iterate(start, [alpha] * len(base_versions), base_versions, lambda x: toy.local_model(x, steps)))
    base, previous, now = run[list(base_versions)], run[:-1], run[1:]
    path = np.stack([toy.local_model(base, h) for h in range(steps + 1)], axis=1)
    x, y, anchor, arrived = path[:, :-1], path[:, 1:], base[:, None], path[:, -1]
    g, v2 = dG(x, anchor), toy.grad_second_moment_bound(np.concatenate([path.ravel(), run]))
    c1, c2, residual = theorem2_constants(lr, rho, mu, 0.0, v2)
    q = q_option2(lr, rho, mu, steps)
    b = beta(alpha, q)
    last = printed_bound(np.arange(len(run)), f(start), b, residual)
    chains = {
        "1 descent": [
            f(y),
            f(x) - lr * df(x) * g + toy.smoothness * lr**2 / 2 * g**2,
            f(x) - lr / 2 * df(x) ** 2 + lr / 2 * (df(x) - g) ** 2,
        ],
        "2 split": [lr / 2 * (df(x) - g) ** 2, lr * rho**2 * (x - anchor) ** 2],
        "3 local drift": [(x - anchor) ** 2, ((g - dG(anchor, anchor)) / r) ** 2, 4 * v2 / r**2],
        "4 lemma": [
            f(x),
            G(x, 0) - G(np.zeros(1), 0),
            dG(x, 0) ** 2 / (2 * r),
            (df(x) ** 2 + rho**2 * x**2) / r,
            df(x) ** 2 / r + 4 * rho**2 * v2 / r**3,
        ],
        "5 one step": [f(y), (1 - lr * r / 2) * f(x) + c1],
        "6 one task": [f(arrived), q * f(base) + 2 * c1 / (lr * r)],
        "7 mixing": [
            f(now),
            G(now, previous),
            (1 - alpha) * G(previous, previous) + alpha * G(arrived, previous),
            (1 - alpha) * f(previous) + alpha * f(arrived) + 2 * alpha * rho * v2 / r**2,
        ],
        "7 server drift": [
            (arrived - previous) ** 2,
            ((dG(arrived, previous) - dG(previous, previous)) / r) ** 2,
            4 * v2 / r**2,
        ],
        "8 staleness": [f(base) - f(previous), f(base), dG(base, 0) ** 2 / (2 * r), v2 / (2 * r)],
        "9 one update": [f(now), b * f(previous) + alpha * c2],
        "9 whole run": [f(run), last],
    }
    return {name: [np.asarray(part) for part in parts] for name, parts in chains.items()}


# Both theorems tried on these problems: how often an inequality fails

WEIGHTS: tuple[StalenessWeight, ...] = (
    Constant(), Linear(a=0.5), Polynomial(a=0.5), Exponential(a=0.3), Hinge(a=10, b=4),
)  # fmt: skip
WAVES = tuple(itertools.product((1.0, 2.0, 3.0), ((1, 0.9, 5), (4, 0.6, 10), (16, 0.9, 3))))
"""Starting points and (K, alpha, H) of the runs on toy W."""


def theorem1_on_toy_q(updates: int = 300, adaptive: bool = False) -> pd.DataFrame:
    """Count at how many updates FA-9 (printed, tight, one update) and FA-10 (whole, one update) fail on toy Q.

    A row is a configuration; nothing is sampled.
    """
    toy, t = ToyQ(), np.arange(updates + 1)
    mu, v1 = toy.strong_convexity, toy.grad_deviation_bound
    settings = (
        itertools.product(WEIGHTS, (1, 4, 16), (0.2, 0.6, 0.9), (1, 5), ("sampled",), range(3))
        if adaptive
        else itertools.product(WEIGHTS[:1], (1, 4, 16), (0.2, 0.6, 0.9), (1, 5, 10), ("oldest", "sampled"), range(2))
    )
    rows = []
    for weight, K, alpha, H, schedule, seed in settings:
        rng = np.random.default_rng([seed, K, H])
        versions = oldest_versions(updates, K) if schedule == "oldest" else sampled_versions(updates, K, rng)
        errors, norms, alphas = toy.run(alpha, versions, H, weight)
        q, v2 = q_option1(toy.lr, mu, H), v1 + norms.max()
        excess = np.maximum(errors - v1 / (2 * mu), 0)
        repaired = (1 - alphas) * excess[:-1] + alphas * q * excess[versions]
        bound = derived_bound(t, errors[0], adaptive_rate(alpha, q, K, weight), mu, v1)
        row = {"function": str(weight), "K": K, "α": alpha, "H": H, "schedule": schedule, "seed": seed}
        if not adaptive:
            b = beta(alpha, q)
            printed = printed_bound(t, errors[0], b, residual(toy.lr, mu, v1, v2))
            tight = printed_bound(t, errors[0], b, residual_tight(q, mu, v1, v2))
            one = b * errors[:-1] + alpha * (v1 + q * v2) / (2 * mu)
            row |= {"FA-9": _above(errors, printed), "tight": _above(errors, tight), "step": _above(errors[1:], one)}
        rows.append(row | {"FA-10": _above(errors, bound), "FA-10 step": _above(excess[1:], repaired)})
    return pd.DataFrame(rows)


def theorem1_on_logistic(runs: int = 40, updates: int = 100) -> pd.DataFrame:
    """Compare both bounds with the mean error of `runs` runs of logistic regression, in four configurations."""
    toy, t, rows = ToyLogistic(), np.arange(updates + 1), []
    for K, alpha, H in ((1, 0.6, 5), (4, 0.6, 5), (16, 0.6, 5), (4, 0.9, 1)):
        errors, v1, v2 = toy.run([alpha] * updates, oldest_versions(updates, K), H, runs)
        mu, start = toy.strong_convexity, errors[0]
        q = q_option1(toy.lr, mu, H)
        printed = printed_bound(t, start, beta(alpha, q), residual(toy.lr, mu, v1, v2))
        repaired = derived_bound(t, start, contraction_root(alpha, q, K), mu, v1)
        row = {"K": K, "α": alpha, "H": H, "start": start, "true": errors[-1]}
        row |= {"printed": printed[-1], "repaired": repaired[-1]}
        rows.append(row | {"FA-9": _above(errors, printed), "FA-10": _above(errors, repaired)})
    return pd.DataFrame(rows)


def vacuity(draws: int = 200_000) -> tuple[int, int]:
    """Count how often the bounds of Theorems 1 and 2 are below the error at the start, for constants they admit (E4).

    These are drawn over several orders of magnitude, the error between zero and the largest that the assumptions
    allow, V2 / (2 mu) or V2 / (2 (rho - mu)).
    """
    rng = np.random.default_rng(5)
    mu, v1, v2 = 10 ** rng.uniform([[-2], [-3], [-3]], [[1], [2], [2]], (3, draws))
    alpha, share = rng.uniform(0.01, 1, draws), rng.uniform(0, 1, draws)
    H, T = rng.integers(1, 50, draws), rng.integers(0, 500, draws)

    lr, gap = rng.uniform(0.001, 0.999, draws) / mu, share * v2 / (2 * mu)
    one = printed_bound(T, gap, beta(alpha, q_option1(lr, mu, H)), residual(lr, mu, v1, v2))
    first = np.count_nonzero(one < gap * (1 - 1e-12))

    r = 10 ** rng.uniform(-2, 1, draws)
    lr, rho, gap = rng.uniform(0.001, 1.999, draws) / r, mu + r, share * v2 / (2 * r)
    q, end = q_option2(lr, rho, mu, H), theorem2_constants(lr, rho, mu, v1, v2).residual
    two = printed_bound(T, gap, beta(alpha, q), end)
    return int(first), int(np.count_nonzero(two < gap * (1 - 1e-12)))


def theorem2_on_toy_w(updates: int = 200) -> pd.DataFrame:
    """Evaluate every inequality of Theorem 2's proof on every local and server step of nine runs on toy W.

    ``end`` is where a run ends, ``R`` is 2 C2 / (gamma r).
    """
    toy, rows = ToyW(), []
    for x0, (K, alpha, H) in WAVES:
        versions = oldest_versions(updates, K)
        chains = theorem2_chains(toy, x0, alpha, versions, H)
        end = iterate(x0, [alpha] * updates, versions, partial(toy.local_model, steps=H))[-1]
        row = {"x_0": x0, "K": K, "α": alpha, "H": H, "inequalities": inequalities(chains)}
        v2 = 2 * (toy.prox_rho - toy.weak_convexity) * float(chains["8 staleness"][-1])
        end_of_bound = theorem2_constants(toy.lr, toy.prox_rho, toy.weak_convexity, 0.0, v2).residual
        rows.append(row | {"violated": violations(chains), "end": end, "F": toy.loss(end), "R": end_of_bound})
    return pd.DataFrame(rows)


def theorem2_with_clients(runs: int = 400, updates: int = 40) -> int:
    """Count the updates at which the mean of `runs` runs on toy W with four unlike clients exceeds FA-12."""
    toy, alpha, H = ToyW(), 0.6, 5
    offsets = np.random.default_rng(4).choice(toy.gradient_offsets, size=(updates, runs))
    models, visited = [np.full(runs, 2.0)], []
    for offset, tau in zip(offsets, oldest_versions(updates, 4), strict=True):
        path = [toy.local_model(models[tau], h, offset) for h in range(H + 1)]
        visited.append(np.array(path))
        models.append((1 - alpha) * models[-1] + alpha * path[-1])
    largest = max(map(abs, toy.gradient_offsets))
    v2 = toy.grad_second_moment_bound(np.append(visited, models), largest)
    end = theorem2_constants(toy.lr, toy.prox_rho, toy.weak_convexity, largest**2, v2).residual
    errors = toy.loss(np.array(models)).mean(axis=1)
    b = beta(alpha, q_option2(toy.lr, toy.prox_rho, toy.weak_convexity, H))
    return _above(errors, printed_bound(np.arange(updates + 1), errors[0], b, end))


def largest_mixing_root(ages: Sequence[int] = (1, 2, 4, 8, 16)) -> pd.Series:
    """Return by staleness function the largest root of mixing over 550 settings; every upload has the same age."""
    grid = list(itertools.product(ages, np.linspace(0.05, 0.95, 10), np.linspace(-0.95, 0.95, 11)))
    largest = dict.fromkeys(map(str, WEIGHTS), 0.0)
    for weight, (age, alpha, q) in itertools.product(WEIGHTS, grid):
        root = spectral_radius(mixing_characteristic(alpha * weight(age - 1), q, age))
        largest[str(weight)] = max(largest[str(weight)], root)
    return pd.Series(largest)


def _above(errors: np.ndarray, bound: np.ndarray) -> int:
    return int(np.count_nonzero(errors > bound * (1 + 1e-12)))
