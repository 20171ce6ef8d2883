"""Problems on which WKAFL's arguments become numbers: Figure 4, the error decomposition, and both theorems.

Source: Zhou et al., "Towards Efficient and Stable K-Asynchronous Federated Learning ..." (IEEE TPDS, 2022), Figure 4,
Section 4.3.1 and Section 5; the problems are this book's. D-n, T1 and T2 are those of the project's specification.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fl_core.formulas.checks import require
from fl_core.formulas.wkafl import accumulate_momentum, clip, estimate, estimation_weights, stage2_clip
from fl_papers.wkafl.staleness import Schedule

Floats = NDArray[np.float64]


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

    Parameters
    ----------
    truth : Tensor
        ``[p]``, float64.
    count : int
        K >= 1.
    clip_bound : float
        CB > 0.
    rng : numpy.random.Generator
        Of the noise, standard normal in each entry.
    spread : (float, float), optional
        Standard deviation of the noise of a fresh gradient, and what each missed update adds to it.

    Raises
    ------
    ValueError
        `count` is below 1.
    """
    require(count >= 1, "count", count, ">= 1")
    staleness = torch.arange(count, dtype=truth.dtype)
    noise = torch.from_numpy(rng.standard_normal((count, len(truth)))).to(truth.dtype)
    grads = (1 + 2 * staleness[:, None]) * (truth + (spread[0] + spread[1] * staleness[:, None]) * noise)
    weights = estimation_weights(staleness)
    return Clouds(grads, estimate(grads, weights), estimate(clip(grads, clip_bound), weights))


def relative_non_iid_variance(variance: Any, num_previous: Any, momentum_alpha: Any) -> Any:
    """Return (v + alpha^2 v / n) / (1 + alpha)^2, the variance of the non-IID error relative to the signal (D2).

    Momentum from the mean of n gradients with independent errors of variance v, at nearly the same model. Always
    below v for alpha > 0; takes numbers or symbols.
    """
    return (variance + momentum_alpha**2 * variance / num_previous) / (1 + momentum_alpha) ** 2


@dataclass(frozen=True, eq=False)
class StaleQuadratic:
    """F_i(w) = w'Aw / 2 + c_i'w with A diagonal and sum c_i = 0, so that F = w'Aw / 2 and F* = 0: problem T1 (D10).

    Attributes
    ----------
    curvatures : ndarray
        Diagonal of A, ``[d]``, > 0; the largest is L.
    offsets : ndarray
        c, ``[P, d]``, adding up to 0.
    start : ndarray
        w_1, ``[d]``.
    noise : float
        sigma_c^2 / m >= 0: the gradient noise is normal with this mean square.
    """

    curvatures: Floats
    offsets: Floats
    start: Floats
    noise: float = 0.0

    def __post_init__(self) -> None:
        require(np.abs(self.offsets.sum(0)) < 1e-9, "offsets", self.offsets, "centred: their sum is 0")

    @property
    def smoothness(self) -> float:
        """L."""
        return float(self.curvatures.max())

    @property
    def dissimilarity_sq(self) -> float:
        """G^2 = max_i ‖grad F_i - grad F‖², the same at every w."""
        return float((self.offsets**2).sum(1).max())

    @property
    def gap(self) -> float:
        """F(w_1) - F*."""
        return float((self.curvatures * self.start**2).sum() / 2)

    def run(
        self, schedule: Schedule, lr: float, momentum_alpha: float, runs: int, rng: np.random.Generator
    ) -> Floats:
        """Return the mean over `runs` of ‖grad F(w_j)‖², ``[J]``, with equal weights and aggregated momentum.

        Section 5's g_j = sum_{l <= j} alpha^(j-l) 1/K sum_i g_{l,i}: Eq. 4 with the aggregated gradient (E2).
        """
        models, momentum = [np.tile(self.start, (runs, 1))], np.zeros((runs, len(self.start)))
        scale = np.sqrt(self.noise / len(self.start))
        for clients, staleness in zip(schedule.clients, schedule.staleness, strict=True):
            total = np.zeros_like(momentum)
            for client, missed in zip(clients, staleness, strict=True):
                noise = scale * rng.standard_normal(momentum.shape)
                total += self.curvatures * models[-1 - missed] + self.offsets[client] + noise
            momentum = total / len(clients) + momentum_alpha * momentum
            models.append(models[-1] - lr * momentum)
        return np.array([((self.curvatures * w) ** 2).sum(1).mean() for w in models[:-1]])


class ClippedRun(NamedTuple):
    """A path of the second stage, and the smallest constants for which (11), with M_e = 0, and (12) hold on it."""

    gradient_norms_sq: Floats
    """‖grad F(w_j)‖², ``[J]``."""
    est_error_sq: float
    """sigma_g^2: the largest ‖estimate - gradient‖²."""
    spread_var: float
    """sigma_e^2: the largest weighted mean of ‖estimate - clipped gradient‖²."""


def clipped_path(
    curvatures: Floats,
    start: Floats,
    *,
    lr: float,
    momentum_alpha: float,
    stage2_clip_factor: float,
    num_aggregated: int,
    num_iterations: int,
    est_std: float,
    spread_std: float,
    rng: np.random.Generator,
) -> ClippedRun:
    """Return a path on F = w'Aw / 2 whose estimates and gradients have known errors: problem T2 (D12).

    The estimate is the gradient plus noise, a gradient is the estimate plus noise, clipped by Eq. 9; weights are
    drawn from a Dirichlet distribution. Momentum is the aggregated one.

    Parameters
    ----------
    curvatures, start : ndarray
        Diagonal of A and w_1, ``[d]``.
    lr, momentum_alpha, stage2_clip_factor : float
        eta, alpha and B.
    num_aggregated, num_iterations : int
        K and J.
    est_std, spread_std : float
        Standard deviations of the two errors, in each entry.
    rng : numpy.random.Generator
        Of everything.
    """
    w, momentum = start.copy(), torch.zeros(len(start), dtype=torch.float64)
    norms, errors, spreads = [], [], []
    for _ in range(num_iterations):
        gradient = curvatures * w
        mean = gradient + est_std * rng.standard_normal(len(w))
        grads = torch.from_numpy(mean + spread_std * rng.standard_normal((num_aggregated, len(w))))
        clipped = stage2_clip(grads, torch.from_numpy(mean), stage2_clip_factor)
        weights = rng.dirichlet(np.ones(num_aggregated))
        norms.append(gradient @ gradient)
        errors.append(((mean - gradient) ** 2).sum())
        spreads.append(weights @ ((mean - clipped.numpy()) ** 2).sum(1))
        momentum = accumulate_momentum(torch.from_numpy(weights) @ clipped, momentum, momentum_alpha)
        w = w - lr * momentum.numpy()
    return ClippedRun(np.array(norms), float(max(errors)), float(max(spreads)))
