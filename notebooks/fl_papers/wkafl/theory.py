"""WKAFL's theory: the law of staleness, both theorems as numbers, and problems on which its arguments become numbers.

Source: Zhou et al., "Towards Efficient and Stable K-Asynchronous Federated Learning ..." (IEEE TPDS, 2022), Sections
4 to 6 and Figure 4. Indices and conditions of the theorems are corrected (E12 to E14, E16); derivations are this
book's (D1 to D14). A-n, E-n and D-n are the paper's readings, errata and derivations (chapter "readings"). No network
is trained.

Symbols: P `num_clients`, K `num_aggregated`, J `num_iterations`; lambda `decay`; eta_j `lrs` ``[J]``; alpha
`momentum_alpha` in [0, 1); L `smoothness`; sigma_c^2 / m `noise`; M_c / m `noise_slope`; G^2 `dissimilarity_sq`;
sigma_g^2 `est_error_sq`; sigma_e^2 and M_e `spread_var` and `spread_slope`; B `stage2_clip_factor`; `gap` = F(w_1) -
F*. Arrays with an entry for each update begin with j = 1.

`staleness` of a gradient that is used: updates missed since its device received the model (fresh = 0). `age` of any
device at any update: the same, whether it is used or not. Without memory means: durations independent and
exponential with one mean, so that each update uses a uniform draw of K of the P devices.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from fl_core.algorithms import KAsync
from fl_core.formulas import wkafl as formulas
from fl_core.formulas.checks import require, require_range
from fl_core.formulas.wkafl import DECAY, accumulate_momentum, estimate, estimation_weights
from fl_core.runtime import Budget, Evaluation, LocalTraining, Simulation
from fl_core.tasks import Quadratic
from fl_core.world import World

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

DECAYS = (0.02, 0.03, 0.04, 0.06, 0.1, 0.2, DECAY, 0.5, 1.0)
"""lambda of weights e^(-lambda tau) in the sweep behind Figure 2 (b); (e / 2)^(-tau) is among them."""
THEOREM_51 = (
    ("noise and non-IID data", 0.25, 0.3, 0.1, 0.1293),
    ("neither", 0.0, 0.0, 0.1, 0.1293),
    ("much noise", 1.0, 0.0, 0.1, 0.1293),
    ("much momentum", 0.25, 0.3, 0.5, 0.053),
)
"""Name, sigma_c^2 / m, spread of the offsets, alpha and eta of the runs on T1."""
THEOREM_53 = (
    ("small errors", 0.05, 0.02, 0.1),
    ("no errors", 0.0, 0.0, 0.1),
    ("errors tenfold", 0.5, 0.2, 0.1),
    ("much momentum", 0.05, 0.02, 0.4),
)
"""Name, standard deviations of the two errors, and alpha of the paths of T2."""
STAGE1: dict[str, Any] = {
    "momentum_alpha": 0.1, "smoothness": 1.0, "noise": 0.25, "dissimilarity_sq": 0.3, "max_staleness": 3, "gap": 1.0,
}  # fmt: skip
"""Constants of (13) at which its right side is varied."""
STAGE2: dict[str, Any] = {
    "momentum_alpha": 0.1, "smoothness": 1.0, "stage2_clip_factor": 2.0, "est_error_sq": 0.4, "spread_var": 0.01,
    "spread_slope": 0.0, "gap": 1.0,
}  # fmt: skip
"""Constants of (14)."""


# The law of staleness: identities, the law without memory (q = K / P), and schedules


def mean_staleness(num_clients: int, num_aggregated: int) -> float:
    """Return P / K - 1: the mean staleness of the gradients used, of every schedule without endless gaps (D7 i)."""
    _require_sizes(num_clients, num_aggregated)
    return num_clients / num_aggregated - 1


def min_mean_age(num_clients: int, num_aggregated: int) -> float:
    """Return (P / K - 1) / 2, about P / (2 K): the least mean age, reached in turn alone, if K divides P (D7 ii)."""
    return mean_staleness(num_clients, num_aggregated) / 2


def mean_age_of_gaps(gaps: Sequence[float]) -> float:
    """Return sum T (T - 1) / 2 over sum T, the mean age of devices whose uses are T updates apart (D7 ii)."""
    lengths = np.asarray(gaps, float)
    require(lengths.size > 0, "gaps", gaps, "at least one number")
    require_range(">= 1", gaps=gaps)
    return float((lengths * (lengths - 1)).sum() / (2 * lengths.sum()))


def staleness_probability(staleness: int, num_clients: int, num_aggregated: int) -> float:
    """Return q (1 - q)^n with q = K / P, the chance of staleness n without memory (D7 iii)."""
    require_range(">= 0", staleness=staleness)
    q = _share(num_clients, num_aggregated)
    return q * (1 - q) ** staleness


def expected_run_staleness(num_clients: int, num_aggregated: int, num_iterations: int) -> float:
    """Return the mean staleness of all K J gradients of a run without memory, which begins with fresh ones (D7).

    It is P / K (1 - A / J) - 1, A the mean age of the clients after J updates, sum of (1 - q)^n over n = 1 .. J.
    """
    require_range(">= 1", num_iterations=num_iterations)
    q = _share(num_clients, num_aggregated)
    age = (1 - q) * (1 - (1 - q) ** num_iterations) / q
    return (1 - age / num_iterations) / q - 1


def expected_min_staleness(num_clients: int, num_aggregated: int) -> float:
    """Return E tau_min = (1 - q)^K / (1 - (1 - q)^K), of K independent draws of the geometric law (D7 iii)."""
    all_stale = (1 - _share(num_clients, num_aggregated)) ** num_aggregated
    return all_stale / (1 - all_stale)


def expected_staleness_weight(num_clients: int, num_aggregated: int) -> float:
    """Return E (e / 2)^(-tau) = q / (1 - (1 - q) 2 / e): TWAFL's total weight as printed (D7, D14)."""
    q = _share(num_clients, num_aggregated)
    return q / (1 - (1 - q) * 2 / math.e)


def expected_inverse_staleness(num_clients: int, num_aggregated: int) -> float:
    """Return E 1 / (tau + 1) = -q ln q / (1 - q): SASGD's total weight (D7, D14); 1 for K = P."""
    q = _share(num_clients, num_aggregated)
    return 1.0 if q == 1 else float(-q * np.log(q) / (1 - q))


def expected_live_versions(num_clients: int, num_aggregated: int) -> float:
    """Return P / K times the K-th harmonic number: about the versions in use, without memory where K << P (2.2)."""
    _require_sizes(num_clients, num_aggregated)
    return float(num_clients / num_aggregated * (1 / np.arange(1, num_aggregated + 1)).sum())


def conflict_slope(num_clients: int, num_aggregated: int, mu: float) -> float:
    """Return P / (K^2 ln mu): how average staleness grows with the average number, weights e^(-lambda tau) (D9)."""
    _require_sizes(num_clients, num_aggregated)
    require_range("> 1", mu=mu)
    return float(num_clients / (num_aggregated**2 * np.log(mu)))


def average_staleness(weights: Floats, staleness: Floats) -> float:
    """Return tau_ave, the mean over updates of sum_i p_i tau_i, W-f; both arguments are ``[J, K]``."""
    return float((np.asarray(weights) * np.asarray(staleness)).sum(axis=1).mean())


def average_num_gradients(weights: Floats, mu: float = 10.0) -> float:
    """Return N_ave, the mean number of gradients that weigh at least 1 / mu of the largest, W-g (A13)."""
    require_range("> 0", mu=mu)
    p = np.asarray(weights)
    return float((p >= p.max(axis=1, keepdims=True) / mu).sum(axis=1).mean())


def predominated(weights: Floats, threshold: float = 0.1) -> Ints:
    """Return how many gradients of each update weigh more than `threshold` (2.8): ``[J]`` from p ``[J, K]``."""
    return (np.asarray(weights) > threshold).sum(axis=1)


def stability(accuracies: Sequence[float], last: int = 10) -> float:
    """Return the standard deviation of the natural logarithm of the `last` accuracies: small is stable (2.8, A9)."""
    require(len(accuracies) >= last >= 2, "len(accuracies)", len(accuracies), f">= last = {last}, which is >= 2")
    values = np.asarray(accuracies[-last:], float)
    require_range("> 0", accuracies=values)
    return float(np.log(values).std())


class Schedule(NamedTuple):
    """A K-asynchronous schedule without any training."""

    clients: Ints  # Who was used in each update, in order of arrival, ``[J, K]``.
    staleness: Ints  # Of each gradient used, ``[J, K]``.
    mean_age: Floats  # Mean age of all P clients at each update, ``[J]``.
    seconds: Floats  # Virtual time of each update, ``[J]``; its number where there is no clock.


def k_asynchronous(
    duration: Callable[[int, int], float], num_clients: int, num_aggregated: int, num_iterations: int
) -> Schedule:
    """Return the schedule of section 2.2: the first K arrivals make an update, then their clients go on.

    `duration` gives the seconds of a client's job with that number (from 0). Ties go by client, unlike the kernel's.
    """
    _require_sizes(num_clients, num_aggregated)
    jobs = [0] * num_clients
    running = [(duration(client, 0), client) for client in range(num_clients)]
    heapq.heapify(running)
    used, seconds, clock = [], [], 0.0
    for _ in range(num_iterations):
        arrived = [heapq.heappop(running) for _ in range(num_aggregated)]
        clock = max(clock, arrived[-1][0])
        used.append([client for _, client in arrived])
        seconds.append(clock)
        for _, client in arrived:
            jobs[client] += 1
            heapq.heappush(running, (clock + duration(client, jobs[client]), client))
    return _schedule(np.array(used), num_clients, np.array(seconds))


def uniform_draws(num_clients: int, num_aggregated: int, num_iterations: int, rng: np.random.Generator) -> Schedule:
    """Return the schedule of the authors' programs: each update uses a uniform draw of K of the P clients (A1)."""
    _require_sizes(num_clients, num_aggregated)
    draws = [rng.choice(num_clients, num_aggregated, replace=False) for _ in range(num_iterations)]
    return _schedule(np.array(draws), num_clients, np.arange(1.0, num_iterations + 1))


def round_robin(num_clients: int, num_aggregated: int, num_iterations: int) -> Schedule:
    """Return the schedule that uses the clients in turn."""
    _require_sizes(num_clients, num_aggregated)
    turns = np.arange(num_iterations * num_aggregated) % num_clients
    return _schedule(turns.reshape(-1, num_aggregated), num_clients, np.arange(1.0, num_iterations + 1))


def k_synchronous_seconds(durations: Floats, num_aggregated: int) -> float:
    """Return the mean time of the K-th arrival where all clients begin anew at each update (D8); ``[J, P]``."""
    _require_sizes(durations.shape[1], num_aggregated)
    return float(np.partition(durations, num_aggregated - 1, axis=1)[:, num_aggregated - 1].mean())


def _schedule(clients: Ints, num_clients: int, seconds: Floats) -> Schedule:
    stamps, total = np.ones(num_clients, np.int64), num_clients
    staleness, ages = np.empty_like(clients), np.empty(len(clients))
    for j, used in enumerate(clients, 1):
        staleness[j - 1] = j - stamps[used]
        ages[j - 1] = j - total / num_clients
        total += (j + 1) * len(used) - int(stamps[used].sum())
        stamps[used] = j + 1
    return Schedule(clients, staleness, ages, seconds)


def _share(num_clients: int, num_aggregated: int) -> float:
    _require_sizes(num_clients, num_aggregated)
    return num_aggregated / num_clients


def _require_sizes(num_clients: int, num_aggregated: int) -> None:
    require(1 <= num_aggregated <= num_clients, "num_aggregated", num_aggregated, f"in 1..{num_clients}")


# Both theorems: (13) and (14), their conditions and their rates


def momentum_mass(num_iterations: int, momentum_alpha: float) -> Floats:
    """Return s_j = sum_{k <= j} alpha^(j - k) for j = 1 .. J; it tends to 1 / (1 - alpha)."""
    require_range(">= 1", num_iterations=num_iterations)
    require_range("in [0, 1)", momentum_alpha=momentum_alpha)
    return np.cumsum(float(momentum_alpha) ** np.arange(num_iterations))


def weighted_gradient_mean(lrs: ArrayLike, momentum_alpha: float, gradient_norms_sq: ArrayLike) -> float:
    """Return the left side of (13), 1/J sum_j eta_j s_j / 2 E ‖grad F(w_j)‖²; both arrays are ``[J]``."""
    eta = np.asarray(lrs, float)
    return float((eta * momentum_mass(len(eta), momentum_alpha) / 2 * np.asarray(gradient_norms_sq)).mean())


def noise_constants(
    momentum_alpha: float, smoothness: float, noise: float, sum_sq_weights: ArrayLike
) -> tuple[Floats, Floats]:
    """Return A_j and B_j of (13), ``[J]`` each; `sum_sq_weights` is E sum_i p_{j,i}^2, 1 / K for equal weights.

    A_j = L / 2 (sigma_c^2 / m) s_j sum_{l <= j} alpha^(j-l) E sum_i p_{l,i}^2, and B_j = 2 L A_j.
    """
    p2 = np.asarray(sum_sq_weights, float)
    s = momentum_mass(len(p2), momentum_alpha)
    require_range("> 0", smoothness=smoothness)
    require_range(">= 0", noise=noise)
    a = smoothness / 2 * noise * s * (_decays(len(p2), momentum_alpha) @ p2)
    return a, 2 * smoothness * a


def theorem51_bound(
    lrs: ArrayLike, sum_sq_weights: ArrayLike, *, momentum_alpha: float, smoothness: float, noise: float,
    dissimilarity_sq: float, max_staleness: int, gap: float,
) -> float:  # fmt: skip
    """Return the right side of (13), with the sums over l ending at j (E14).

    It bounds `weighted_gradient_mean` under (C1), (C2), and weights that do not depend on the noise (E15).
    """
    eta = np.asarray(lrs, float)
    require_range(">= 0", max_staleness=max_staleness, dissimilarity_sq=dissimilarity_sq, gap=gap)
    a, b = noise_constants(momentum_alpha, smoothness, noise, sum_sq_weights)
    s, count = momentum_mass(len(eta), momentum_alpha), len(eta)
    j, first = np.arange(1, count + 1), np.maximum(1, np.arange(1, count + 1) - max_staleness)
    moved = np.concatenate([[0.0], np.cumsum(eta**2 * b)])  # of the updates before the index
    drift = (moved[j - 1][:, None] - moved[first - 1]) * (j[:, None] - first) * _decays(count, momentum_alpha)
    return float((a * eta**2 + eta * s * dissimilarity_sq + eta * drift.sum(1)).mean() + gap / count)


def lr_limit_noise(num_iterations: int, momentum_alpha: float, smoothness: float, noise_slope: float = 0.0) -> float:
    """Return the largest constant learning rate with (C1), eta_j <= 1 / (2 L s_j (1 + M_c / m)); print lacks s_j."""
    require_range("> 0", smoothness=smoothness)
    require_range(">= 0", noise_slope=noise_slope)
    mass = float(momentum_mass(num_iterations, momentum_alpha)[-1])
    return 1 / (2 * smoothness * mass * (1 + noise_slope))


def lr_limit_staleness(
    num_iterations: int, momentum_alpha: float, max_staleness: int, smoothness: float = 1.0, noise_slope: float = 0.0
) -> float:
    """Return the largest constant learning rate with (C2); it hardly depends on J once J is above tau_max.

    For all k: L^2 (1 + M_c / m) sum_{j > k} eta_j sum_{l <= j} alpha^(j-l) (j - tau_l)
    sum_{t = max(tau_l, k)}^{j-1} eta_t^2 s_t alpha^(t-k) <= 1/4 sum_{j >= k} eta_j alpha^(j-k).
    """
    require_range("> 0", smoothness=smoothness)
    require_range(">= 0", noise_slope=noise_slope, max_staleness=max_staleness)
    s, count = momentum_mass(num_iterations, momentum_alpha), num_iterations
    j = np.arange(1, count + 1)
    first = np.maximum(1, j - max_staleness)
    spread = np.where(j[:, None] >= j, j[:, None] - first, 0) * _decays(count, momentum_alpha)
    limits = []
    for k in range(1, count):
        pulled = np.where(j >= k, s * float(momentum_alpha) ** np.maximum(j - k, 0), 0.0)
        sums = np.concatenate([[0.0], np.cumsum(pulled)])
        inner = np.maximum(sums[j - 1][:, None] - sums[np.maximum(first, k) - 1], 0.0)
        left = (spread * inner)[k:].sum()
        right = (float(momentum_alpha) ** np.arange(count - k + 1)).sum() / 4
        limits.append(np.sqrt(right / left) if left else np.inf)
    return float(min(limits, default=np.inf) / (smoothness * np.sqrt(1 + noise_slope)))


def printed_condition(
    num_iterations: int, momentum_alpha: float, max_staleness: int, lr: float | Floats, smoothness: float = 1.0
) -> float:
    """Return the left side of Theorem 5.1's second condition as printed, for M_c = 0, which should be below 1/4.

    L^2 sum_{t >= l} (J - tau_t) alpha^(-t) sum_{k = l}^t eta_k^2 s_k alpha^k, at the worst l = 1. It grows like
    alpha^(-J): the longer a run, the smaller the learning rate that it allows, and Remark 5.2 is empty (E13).
    """
    require_range("> 0", smoothness=smoothness)
    require_range("in (0, 1)", momentum_alpha=momentum_alpha)
    t = np.arange(1, num_iterations + 1)
    s = momentum_mass(num_iterations, momentum_alpha)
    pulled = np.cumsum(lr**2 * s * momentum_alpha**t)
    behind = num_iterations - np.maximum(1, t - max_staleness)
    return float(smoothness**2 * (behind * momentum_alpha**-t * pulled).sum())


def squared_delay_sum(momentum_alpha: Any, max_staleness: Any) -> Any:
    """Return sum_{r >= 0} alpha^r (r + tau)^2: staleness and momentum in Remark 5.2 (D11); also symbolic."""
    a, tau = momentum_alpha, max_staleness
    return tau**2 / (1 - a) + 2 * tau * a / (1 - a) ** 2 + a * (1 + a) / (1 - a) ** 3


class RateTerms(NamedTuple):
    """Bound on the mean of E ‖grad F(w_j)‖² for a constant learning rate and equal weights 1 / K (D11)."""

    progress: Any  # 2 gap / (eta J).
    noise: Any  # Falls with K.
    drift: Any  # Of stale models, quadratic in eta; falls with K.
    floor: Any  # Of non-IID data; no learning rate and no K removes it.

    @property
    def total(self) -> Any:
        """The bound."""
        return self.progress + self.noise + self.drift + self.floor


def remark52_terms(
    lr: Any, num_aggregated: Any, num_iterations: Any, *, momentum_alpha: Any, smoothness: Any, noise: Any,
    dissimilarity_sq: Any, max_staleness: Any, gap: Any,
) -> RateTerms:  # fmt: skip
    """Return Theorem 5.1 divided by eta / 2; with eta = sqrt(K / J) it is O(1/sqrt(K J) + 1/J + G^2).

    Remark 5.2, with the sums bounded by `squared_delay_sum` and s_j by 1 / (1 - alpha); takes numbers or symbols.
    """
    share = 1 - momentum_alpha
    each = noise / (num_aggregated * share**2)
    return RateTerms(
        2 * gap / (lr * num_iterations),
        lr * smoothness * each,
        2 * lr**2 * smoothness**2 * each * squared_delay_sum(momentum_alpha, max_staleness),
        2 * dissimilarity_sq / share,
    )


def estimate_constant(est_error_sq: Any, spread_var: Any, spread_slope: Any) -> Any:
    """Return C = sigma_g^2 + 2 M_e sigma_g^2 + sigma_e^2 of (14); sigma_g, not the clients' variance (E16)."""
    return est_error_sq + 2 * spread_slope * est_error_sq + spread_var


def drift_factor(
    later: int, earlier: int, between: int, *, momentum_alpha: float, smoothness: float, stage2_clip_factor: float
) -> float:
    """Return I_{l,k,t} = 3 L^2 B^2 s_t alpha^(l-k) (l - k) of (14), for l = `later`, k = `earlier`, t = `between`."""
    s = float(momentum_mass(between, momentum_alpha)[-1])
    return 3 * smoothness**2 * stage2_clip_factor**2 * s * momentum_alpha ** (later - earlier) * (later - earlier)


class Theorem53(NamedTuple):
    """(14): 1/J sum_j V_j ‖grad F(w_j)‖² is at most `bound` if all V_j >= 0 and eta_j <= 1 / (L s_j)."""

    coefficients: Floats  # V_j, ``[J]``; none is below 0 only if M_e is at most about (1 - alpha) / 6 (E17).
    bound: float


def theorem53(
    lrs: ArrayLike, *, momentum_alpha: float, smoothness: float, stage2_clip_factor: float, est_error_sq: float,
    spread_var: float, spread_slope: float, gap: float,
) -> Theorem53:  # fmt: skip
    """Return V_j and the right side of (14). No staleness appears: (12) assumes it away (E19)."""
    eta = np.asarray(lrs, float)
    count = len(eta)
    s = momentum_mass(count, momentum_alpha)
    require_range("> 0", smoothness=smoothness, stage2_clip_factor=stage2_clip_factor)
    require_range(">= 0", est_error_sq=est_error_sq, spread_var=spread_var, spread_slope=spread_slope, gap=gap)
    factor = 3 * smoothness**2 * stage2_clip_factor**2
    j = np.arange(1, count + 1)
    delays = np.concatenate([[0.0], np.cumsum(j * float(momentum_alpha) ** j)])  # sum of d alpha^d below the index
    # reach[l, t] = sum_{k <= t} alpha^(l-k) (l - k) for t < l: what moved in update t is felt in update l.
    reach = np.where(j[:, None] > j, delays[j - 1][:, None] - delays[np.maximum(j[:, None] - j - 1, 0)], 0.0)
    backward = _decays(count, momentum_alpha).T
    felt = eta**2 * s * (eta @ reach)
    v = eta * s / 2 - 3 * spread_slope * (backward @ eta) - factor * (backward @ felt)
    c = estimate_constant(est_error_sq, spread_var, spread_slope)
    drift = factor * est_error_sq * eta * (reach @ (eta**2 * s**2))
    return Theorem53(v, float((1.5 * eta * s * c + drift).mean() + gap / count))


def lr_limit_estimate(num_iterations: int, momentum_alpha: float, smoothness: float) -> float:
    """Return 1 / (L s_J), the largest constant learning rate of Theorem 5.3's first condition."""
    require_range("> 0", smoothness=smoothness)
    return 1 / (smoothness * float(momentum_mass(num_iterations, momentum_alpha)[-1]))


def lr_limit_positive(num_iterations: int, **constants: Any) -> float:
    """Return the largest constant learning rate with min_j V_j >= 0, for the keyword arguments of `theorem53`.

    0 if even the smallest has a negative V_j: M_e is too large (E17).
    """

    def lowest(lr: float) -> float:
        return float(theorem53(np.full(num_iterations, lr), **constants).coefficients.min() / lr)

    high = lr_limit_estimate(num_iterations, constants["momentum_alpha"], constants["smoothness"])
    if lowest(high) >= 0:
        return high
    low = 1e-9 * high
    return float(scipy.optimize.brentq(lowest, low, high)) if lowest(low) > 0 else 0.0


def _decays(count: int, momentum_alpha: float) -> Floats:
    """Return alpha^(j - l) for l <= j and 0 above, ``[J, J]``."""
    power = np.subtract.outer(np.arange(count), np.arange(count))
    return np.where(power >= 0, float(momentum_alpha) ** np.maximum(power, 0), 0.0)


# Problems with known constants, and what the programs do


def official_momentum(grads: Tensor, previous: Tensor, momentum_alpha: float) -> Tensor:
    """Return 2 g_i + alpha * previous: what the authors' ByClass and CelebA programs do in place of Eq. 4 (E10)."""
    return grads + accumulate_momentum(grads, previous, momentum_alpha)


def zeno_cosine_threshold(
    validation_norm: float, rho: float = 0.2, epsilon: float = 0.1, score_gamma: float = 1.0
) -> float:
    """Return rho / gamma - epsilon / ‖v‖^2, the least cosine with v that Zeno++ accepts (BL-3.21)."""
    require_range("> 0", validation_norm=validation_norm, score_gamma=score_gamma)
    return rho / score_gamma - epsilon / validation_norm**2


class Clouds(NamedTuple):
    """Stale gradients around a true one, and what is estimated from them (Figure 4)."""

    gradients: Tensor
    """``[K, p]``, with staleness 0 .. K - 1."""
    estimate: Tensor
    """Eq. 5 without clipping."""
    clipped_estimate: Tensor
    """Eq. 5 after clipping (W-b)."""


def stale_cloud(
    truth: Tensor, count: int, clip_bound: float, rng: np.random.Generator, spread: tuple[float, float] = (0.3, 0.5)
) -> Clouds:
    """Return gradients that get noisier and longer with staleness: (1 + 2 tau) (truth + noise (0.3 + 0.5 tau)).

    `spread` is the noise's standard deviation in each entry: of a fresh gradient, and what each missed update adds.
    """
    require_range(">= 1", count=count)
    staleness = torch.arange(count, dtype=truth.dtype)
    noise = torch.from_numpy(rng.standard_normal((count, len(truth)))).to(truth.dtype)
    grads = (1 + 2 * staleness[:, None]) * (truth + (spread[0] + spread[1] * staleness[:, None]) * noise)
    weights = estimation_weights(staleness)
    return Clouds(grads, estimate(grads, weights), estimate(formulas.clip(grads, clip_bound), weights))


def relative_non_iid_variance(variance: Any, num_previous: Any, momentum_alpha: Any) -> Any:
    """Return (v + alpha^2 v / n) / (1 + alpha)^2, the variance of the non-IID error relative to the signal (D2).

    Momentum is the mean of n gradients with independent errors of variance v; takes numbers or symbols.
    """
    return (variance + momentum_alpha**2 * variance / num_previous) / (1 + momentum_alpha) ** 2


# What chapters, figures and claims show


def schedules(num_clients: int, num_aggregated: int, num_iterations: int, seed: int = 0) -> dict[str, Schedule]:
    """Return K-asynchronous schedules under five laws of arrival, mean duration 1 where there is a clock (D7)."""
    rng, sizes = np.random.default_rng(seed), (num_clients, num_aggregated, num_iterations)
    speeds = rng.uniform(0.4, 1.6, num_clients)
    return {
        "round robin": round_robin(*sizes),
        "uniform draws": uniform_draws(*sizes, rng),
        "exponential": k_asynchronous(lambda client, job: rng.exponential(), *sizes),
        "0.5 + exponential / 2": k_asynchronous(lambda client, job: 0.5 + 0.5 * rng.exponential(), *sizes),
        "constant, unequal": k_asynchronous(lambda client, job: float(speeds[client]), *sizes),
    }


def decay_weights(staleness: NDArray[np.int64], decay: float) -> Floats:
    """Return e^(-lambda tau), normalised, for every update: ``[J, K]`` from ``[J, K]`` (Eq. 5 with another base)."""
    return estimation_weights(torch.from_numpy(np.asarray(staleness, float)).T, decay).T.numpy()


def conflict(schedule: Schedule, mu: float = 10.0, decays: Sequence[float] = DECAYS) -> pd.DataFrame:
    """Return how many gradients count (W-g) and how stale they are (W-f), a row for each lambda (D9)."""
    rows = []
    for decay in decays:
        weights = decay_weights(schedule.staleness, decay)
        number = average_num_gradients(weights, mu)
        rows.append((decay, number, average_staleness(weights, np.asarray(schedule.staleness, float))))
    return pd.DataFrame(rows, columns=["decay", "gradients", "staleness"])


def error_parts(
    decays: Sequence[float], num_clients: int, num_aggregated: int, *, lr: float, spread: float, seed: int = 0
) -> pd.DataFrame:
    """Return the mean squares of the two errors of a weighted mean of K gradients, over lambda (Section 4.3.1).

    F_i(w) = w'Aw / 2 + c_i'w with sum c_i = 0, on the path of gradient descent, with uniform draws of K of the P
    clients: the error sum_i p_i g_i - grad F(w_j) is sum_i p_i A (w_{j - tau_i} - w_j), of staleness, plus
    sum_i p_i c_i, of non-IID data; all relative to the mean of ‖grad F(w_j)‖².
    """
    rng = np.random.default_rng(seed)
    curvatures, count = np.linspace(0.05, 1, 20), 20 * num_clients // num_aggregated
    offsets = spread * rng.standard_normal((num_clients, len(curvatures)))
    offsets -= offsets.mean(0)
    start = rng.standard_normal(len(curvatures))
    gradients = curvatures * start * (1 - lr * curvatures) ** np.arange(count)[:, None]
    drawn = uniform_draws(num_clients, num_aggregated, count, rng)
    behind = np.arange(count)[:, None] - drawn.staleness
    size, rows = (gradients**2).sum(1).mean(), []
    for decay in decays:
        weights = decay_weights(drawn.staleness, decay)[:, :, None]
        stale = (weights * (gradients[behind] - gradients[:, None])).sum(1)
        foreign = (weights * offsets[drawn.clients]).sum(1)
        parts = [(part**2).sum(1).mean() / size for part in (stale, foreign, stale + foreign)]
        rows.append((decay, *parts))
    return pd.DataFrame(rows, columns=["decay", "staleness", "non_iid", "total"])


def clipping(bounds: Sequence[float], draws: int, *, size: int = 50, count: int = 5, seed: int = 0) -> pd.DataFrame:
    """Return the mean cosine of Figure 4's estimate with the true gradient before and after clipping, over CB.

    The noise of a gradient has the root mean square *length* 0.3 + 0.5 tau, in `size` dimensions; ``improved`` is the
    share of draws in which clipping brings the estimate closer.
    """
    truth, rows = torch.zeros(size, dtype=torch.float64), []
    truth[0] = 1
    spread = 0.3 / np.sqrt(size), 0.5 / np.sqrt(size)
    for bound in bounds:
        rng = np.random.default_rng(seed)
        clouds = [stale_cloud(truth, count, bound, rng, spread) for _ in range(draws)]
        before, after = (
            np.array([_cosine(getattr(cloud, name), truth) for cloud in clouds])
            for name in ("estimate", "clipped_estimate")
        )
        rows.append((bound, before.mean(), after.mean(), float((after > before).mean())))
    return pd.DataFrame(rows, columns=["bound", "before", "after", "improved"])


def turning(
    speeds: Sequence[float], draws: int, *, num_aggregated: int = 10, mean_staleness: float = 9.0, noise: float = 0.5,
    sim_beta: float = 10.0, sim_min: float = 0.3, seed: int = 0,
) -> pd.DataFrame:  # fmt: skip
    """Return the mean cosine with the true gradient of four ways to use K gradients that turn with staleness.

    A gradient of staleness tau has turned by omega tau radians (`speeds`), in a direction of its own, and each client
    adds an error of length `noise`: cos(omega tau) u + sin(omega tau) v_i + noise. Staleness is geometric; the draws
    are the same for every omega. ``estimate`` is Eq. 5, ``selection`` Eqs. 6 to 8.
    """
    size, rows = 50, []
    truth = torch.zeros(size, dtype=torch.float64)
    truth[0] = 1
    for omega in speeds:
        rng, found = np.random.default_rng(seed), []
        for _ in range(draws):
            staleness = rng.geometric(1 / (1 + mean_staleness), num_aggregated) - 1.0
            sideways = rng.standard_normal((num_aggregated, size))
            sideways[:, 0] = 0
            sideways /= np.linalg.norm(sideways, axis=1, keepdims=True)
            errors = noise / np.sqrt(size) * rng.standard_normal(sideways.shape)
            angle = omega * staleness[:, None]
            turned = np.cos(angle) * truth.numpy() + np.sin(angle) * sideways
            grads, tau = torch.from_numpy(turned + errors), torch.from_numpy(staleness)
            weights = estimation_weights(tau)
            made = formulas.aggregate(grads, weights, sim_beta=sim_beta, sim_min=sim_min)
            four = grads.mean(0), grads[int(tau.argmin())], estimate(grads, weights), made.gradient
            found.append([*(_cosine(vector, truth) for vector in four), int((made.similarities >= sim_min).sum())])
        rows.append(np.mean(found, axis=0))
    columns = ["mean", "freshest", "estimate", "selection", "selected"]
    return pd.DataFrame(rows, pd.Index(speeds, name="omega"), columns)


def theorem51_on_quadratics(runs: int, num_iterations: int = 60) -> pd.DataFrame:
    """Return both sides of (13) on T1 (D10), round robin with P = 12 and K = 3; the left one is a mean over `runs`.

    F_i(w) = w'Aw / 2 + c_i'w with A diagonal, L = 1 and sum c_i = 0, so that F = w'Aw / 2, F* = 0, and G is the
    longest c_i. Weights are equal, momentum is the aggregated one of Section 5 (E2), gradient noise is normal.
    """
    curvatures, schedule, rows = np.linspace(0.2, 1, 4), round_robin(12, 3, num_iterations), []
    limits = {
        alpha: min(lr_limit_noise(num_iterations, alpha, 1.0), lr_limit_staleness(num_iterations, alpha, 3))
        for alpha in {row[3] for row in THEOREM_51}
    }
    for name, noise, spread, alpha, lr in THEOREM_51:
        rng = np.random.default_rng(0)
        offsets = spread * rng.standard_normal((12, 4))
        offsets -= offsets.mean(0)
        start, scale, rng = 2 * rng.standard_normal(4), np.sqrt(noise / 4), np.random.default_rng(1)
        models, momentum = [np.tile(start, (runs, 1))], np.zeros((runs, 4))
        for clients, staleness in zip(schedule.clients, schedule.staleness, strict=True):
            total = np.zeros_like(momentum)
            for client, missed in zip(clients, staleness, strict=True):
                disturbed = scale * rng.standard_normal(momentum.shape)
                total += curvatures * models[-1 - missed] + offsets[client] + disturbed
            momentum = total / len(clients) + alpha * momentum
            models.append(models[-1] - lr * momentum)
        norms = np.array([((curvatures * w) ** 2).sum(1).mean() for w in models[:-1]])
        eta = np.full(num_iterations, lr)
        right = theorem51_bound(
            eta, np.full(num_iterations, 1 / 3), momentum_alpha=alpha, smoothness=1.0, noise=noise, max_staleness=3,
            dissimilarity_sq=float((offsets**2).sum(1).max()), gap=float((curvatures * start**2).sum() / 2),
        )  # fmt: skip
        rows.append((name, alpha, lr, limits[alpha], weighted_gradient_mean(eta, alpha, norms), right))
    return pd.DataFrame(rows, columns=["problem", "alpha", "lr", "limit", "left", "right"])


def theorem53_on_paths(num_iterations: int = 80, lr: float = 0.02) -> pd.DataFrame:
    """Return both sides of (14) on T2 (D12): paths on F = w'Aw / 2, K = 4, B = 2, whose errors are known.

    The estimate is the gradient plus noise, a gradient is the estimate plus noise, clipped by Eq. 9; weights are
    Dirichlet. The constants of (11), with M_e = 0, and (12) are the smallest for which they hold on the path.
    """
    rows = []
    for name, est_std, spread_std, alpha in THEOREM_53:
        rng = np.random.default_rng(2)
        curvatures, start = np.linspace(0.2, 1, 5), 3 * rng.standard_normal(5)
        w, momentum = start, torch.zeros(5, dtype=torch.float64)
        norms, errors, spreads = [], [], []
        for _ in range(num_iterations):
            gradient = curvatures * w
            mean = gradient + est_std * rng.standard_normal(5)
            grads = torch.from_numpy(mean + spread_std * rng.standard_normal((4, 5)))
            clipped = formulas.stage2_clip(grads, torch.from_numpy(mean), 2.0)
            weights = rng.dirichlet(np.ones(4))
            norms.append(gradient @ gradient)
            errors.append(((mean - gradient) ** 2).sum())
            spreads.append(weights @ ((mean - clipped.numpy()) ** 2).sum(1))
            momentum = accumulate_momentum(torch.from_numpy(weights) @ clipped, momentum, alpha)
            w = w - lr * momentum.numpy()
        made = theorem53(
            np.full(num_iterations, lr), momentum_alpha=alpha, smoothness=1.0, stage2_clip_factor=2.0,
            est_error_sq=float(max(errors)), spread_var=float(max(spreads)), spread_slope=0.0,
            gap=float((curvatures * start**2).sum() / 2),
        )  # fmt: skip
        limit, left = lr_limit_estimate(num_iterations, alpha, 1.0), float((made.coefficients * norms).mean())
        rows.append((name, alpha, lr, limit, made.coefficients.min(), left, made.bound))
    return pd.DataFrame(rows, columns=["problem", "alpha", "lr", "limit", "smallest V", "left", "right"])


def true_and_aliased(lr: float, num_updates: int, *, devices: int = 40, num_aggregated: int = 4) -> pd.DataFrame:
    """Return runs of plain K-asynchronous SGD with true and with aliased staleness (E30), a row for each gradient.

    Both have the same arrivals, and so the same ``counted`` staleness. All devices hold the same function: the loss
    that one reports is that of a version of the global model, and tells which, so the ``actual`` one.
    """
    curvature, centre = np.linspace(0.25, 1, 6), np.zeros(6)
    task = Quadratic(np.tile(curvature, (devices, 1)), np.tile(centre, (devices, 1)), [3.0] * 6)
    frames = []
    for mode in ("copy", "aliased"):
        run = Simulation(
            task, World.named("wkafl", devices=devices),
            KAsync(num_aggregated=num_aggregated, lr=lr, client_snapshot=mode),
            budget=Budget(updates=num_updates), evaluation=Evaluation(every_updates=1), seed=1,
            training=LocalTraining(batch_size=1),
        )  # fmt: skip
        history = run.run("sequential")
        losses, used = np.array(history.evaluations["train_loss"]), pd.DataFrame(history.updates)
        version = used["version"].to_numpy()
        away = np.abs(losses - used["loss"].to_numpy()[:, None]) / losses
        away[np.arange(len(losses)) >= version[:, None]] = np.inf  # a device cannot know a later model
        computed_on = away.argmin(1)
        columns = {"update": version, "counted": used["staleness"], "actual": version - 1 - computed_on}
        frames.append(pd.DataFrame({"mode": mode, **columns, "loss": losses[version]}))
    return pd.concat(frames, ignore_index=True)


def _cosine(vector: Tensor, other: Tensor) -> float:
    return float(torch.cosine_similarity(vector, other, dim=0))


@cache
def swept_decay() -> pd.DataFrame:
    """Return Figure 2 b: staleness and number of gradients over the decay of the weights, P = 1000, K = 10 (A13)."""
    drawn = uniform_draws(1000, 10, 3000, np.random.default_rng(5))
    return conflict(drawn._replace(staleness=drawn.staleness[1000:]))


@cache
def schedule_means(num_clients: int = 1000, num_aggregated: int = 10) -> pd.DataFrame:
    """Return mean staleness of used gradients, mean age of all clients and its bound, by law of arrival (D7)."""
    updates = 30 * num_clients // num_aggregated
    late = slice(updates // 4, None)
    rows = [
        (name, made.staleness[late].mean(), made.mean_age[late].mean())
        for name, made in schedules(num_clients, num_aggregated, updates).items()
    ]
    frame = pd.DataFrame(rows, columns=["schedule", "staleness", "age"])
    return frame.assign(**{"least age": min_mean_age(num_clients, num_aggregated)})


@cache
def waiting_times(num_clients: int = 100, num_aggregated: int = 10, updates: int = 2000) -> pd.DataFrame:
    """Return seconds per update of K-synchronous and K-asynchronous learning under three laws of mean 1 (D8)."""
    rng = np.random.default_rng(4)
    laws: dict[str, Callable[[Any], Any]] = {
        "exponential": lambda size: rng.exponential(size=size),
        "0.5 + exponential / 2": lambda size: 0.5 + 0.5 * rng.exponential(size=size),
        "uniform on (0, 2)": lambda size: 2 * rng.random(size),
    }

    def measured(law: Callable[[Any], Any]) -> tuple[float, float]:
        waiting = k_synchronous_seconds(law((updates, num_clients)), num_aggregated)
        made = k_asynchronous(lambda client, job: float(law(None)), num_clients, num_aggregated, updates)
        return waiting, made.seconds[-1] / updates

    rows = [(name, *measured(law)) for name, law in laws.items()]
    return pd.DataFrame(rows, columns=["durations", "K-synchronous", "K-asynchronous"])


@cache
def theorem_checks() -> pd.DataFrame:
    """Return both sides of both theorems on the problems T1 and T2, a row each."""
    first = theorem51_on_quadratics(100).assign(theorem="5.1")
    second = theorem53_on_paths().assign(theorem="5.3")
    columns = ["theorem", "problem", "alpha", "lr", "limit", "left", "right"]
    return pd.concat([first[columns], second[columns]], ignore_index=True)


def rates() -> pd.DataFrame:
    """Return how both bounds fall with the length J of a run (Remarks 5.2 and 5.4), over log10 J."""
    lengths, rows = np.logspace(2, 7, 26), []
    for count, apart, said in ((1, 0.0, "G = 0"), (10, 0.0, "G = 0"), (100, 0.0, "G = 0"), (10, 0.01, "G² = 0.01")):
        terms = remark52_terms(np.sqrt(count / lengths), count, lengths, **{**STAGE1, "dissimilarity_sq": apart})
        name = f"stage one, K = {count}, {said}"
        rows += [(name, x, y) for x, y in zip(np.log10(lengths), terms.total, strict=True)]
    for name, errors in (("stage two, C = 0", (0.0, 0.0)), ("stage two, C = 0.02", (0.01, 0.01))):
        for length in np.unique(np.logspace(2, 3.2, 7).astype(int)):
            rows.append((name, np.log10(length), bound53_by_length(int(length), *errors)))
    frame = pd.DataFrame(rows, columns=["method", "x", "bound"])
    return frame.assign(bound_std=np.nan, parameter=np.nan)


def bound53_by_length(length: int, est_error_sq: float, spread_var: float) -> float:
    """Return (14) divided by the least V_j, at eta = 1 / (4 sqrt(J)): a bound on the least squared gradient."""
    given = {**STAGE2, "est_error_sq": est_error_sq, "spread_var": spread_var}
    made = theorem53(np.full(length, length**-0.5 / 4), **given)
    return made.bound / float(made.coefficients.min())
