"""WKAFL's server step: momentum, clipping, estimate of the global gradient, selection, learning rate (Eqs. 4 to 10).

Source: Zhou, Li, Ren & Yang, "Towards Efficient and Stable K-Asynchronous Federated Learning with Unbounded Stale
Gradients on Non-IID Data" (IEEE TPDS, 2022). (W-x), D-n, E-n and A-n are those of the project's specification.

Symbols: K gradients per update, one a row of a matrix ``[K, p]``; tau_i `staleness` (updates missed, fresh = 0);
alpha `momentum_alpha`; CB `clip_bound`; B `stage2_clip_factor`; beta `sim_beta`; eta_0 `lr`; gamma
`lr_staleness_factor`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fl_core.formulas.checks import add_up, require

DECAY = 1 - math.log(2)
"""ln(e / 2): one missed update multiplies the weight of a gradient by 2 / e."""

StageRule = Literal["mean_loss", "sum_loss"]
U = TypeVar("U", float, NDArray[np.float64], Tensor)


class Aggregation(NamedTuple):
    """What Algorithms 2 and 3 make of K gradients."""

    gradient: Tensor
    """g(w_j), ``[p]``, which the model descends along."""
    estimate: Tensor
    """Estimated global gradient, Eq. 5, ``[p]``."""
    similarities: Tensor
    """Eq. 6, ``[K]``."""
    weights: Tensor
    """p_{j,i}, ``[K]``; those of the estimate where no gradient is consistent with it."""


def aggregate(
    clipped: Tensor,
    estimation_weights: Tensor,
    *,
    sim_beta: float,
    sim_min: float,
    stage2_clip_factor: float | None = None,
    log_prior: Tensor | None = None,
) -> Aggregation:
    """Estimate the global gradient, select the gradients that agree with it, and average them: Eqs. 5 to 9 and W-c.

    `clipped` are the gradients after momentum (Eq. 4) and clipping (W-b); the first stage has no
    `stage2_clip_factor`. Without a consistent gradient the estimate itself is used (A7), where Eq. 8 is 0 / 0 (E11).
    """
    mean = estimate(clipped, estimation_weights)
    sims = similarities(clipped, mean)
    weights = selection_weights(sims, sim_beta, sim_min, log_prior)
    if not weights.any() or not mean.any():
        return Aggregation(mean, mean, sims, estimation_weights)
    if stage2_clip_factor is not None:
        clipped = stage2_clip(clipped, mean, stage2_clip_factor)
    return Aggregation(weights.to(clipped.dtype) @ clipped, mean, sims, weights)


def accumulate_momentum(grads: Tensor, previous: Tensor | None, momentum_alpha: float) -> Tensor:
    """Return g_i + alpha * previous for every row, Eq. 4.

    `previous` ``[p]`` is the estimate (printed) or the aggregated gradient (Section 5, E2) of the last update.
    """
    require(momentum_alpha >= 0, "momentum_alpha", momentum_alpha, ">= 0")
    if previous is None or not momentum_alpha:
        return grads
    return torch.add(grads, previous, alpha=momentum_alpha)


def clip(grads: Tensor, bound: float | Tensor) -> Tensor:
    """Return every row shortened to at most `bound`, the norm taken over all parameters together, W-b."""
    require(bound >= 0, "bound", bound, ">= 0")
    norms = torch.linalg.vector_norm(grads, dim=1, keepdim=True)
    long = norms > bound
    return torch.where(long, bound / norms, 1.0) * grads if long.any() else grads


def stage2_clip(clipped: Tensor, estimate: Tensor, stage2_clip_factor: float) -> Tensor:
    """Return every row projected on the ball of radius B times the norm of the estimate, Eq. 9.

    Directions stay, so that Eq. 6 gives the same before and after (D6).
    """
    require(stage2_clip_factor > 0, "stage2_clip_factor", stage2_clip_factor, "> 0")
    return clip(clipped, stage2_clip_factor * torch.linalg.vector_norm(estimate))


def temporal_weight(staleness: U) -> U:
    """Return a = (e / 2)^(-tau), in Eq. 5 before it is normalised, and in TWAFL (W-d)."""
    require(staleness >= 0, "staleness", staleness, ">= 0 (missed updates)")
    return (2 / math.e) ** staleness


def estimation_weights(staleness: Tensor, decay: float = DECAY) -> Tensor:
    """Return a_i / sum a, the weights ``[K]`` of Eq. 5; the same if all gradients are equally much staler (D3).

    They are e^(-decay tau); `decay` 0 makes them equal ("No Staleness", 2.6).
    """
    require(staleness >= 0, "staleness", staleness, ">= 0 (missed updates)")
    require(decay >= 0, "decay", decay, ">= 0")
    return torch.softmax(-decay * staleness, 0)  # subtracts the largest exponent: 0 / 0 is impossible


def estimate(clipped: Tensor, weights: Tensor) -> Tensor:
    """Return the estimated global gradient ``[p]``, the mean of the rows of `clipped` with these weights, Eq. 5."""
    return weights.to(clipped.dtype) @ clipped


def similarities(clipped: Tensor, estimate: Tensor) -> Tensor:
    """Return the cosine ``[K]`` of every row with the estimate, Eq. 6: 1 for a row of 0, 0 if the estimate is."""
    norms, length = torch.linalg.vector_norm(clipped, dim=1), torch.linalg.vector_norm(estimate)
    if not length:
        return torch.zeros_like(norms)
    return torch.where(norms > 0, clipped @ (estimate / length) / norms, 1.0)


def selection_weights(sims: Tensor, sim_beta: float, sim_min: float, log_prior: Tensor | None = None) -> Tensor:
    """Return p_i, a softmax over the consistent gradients, Eqs. 7 and 8; all 0 if there is none.

    A similarity equal to `sim_min` is consistent. `log_prior` ``[K]`` are logarithms of factors of the scores: the
    authors' EMNIST MNIST and CIFAR10 programs multiply them by the weights of Eq. 5 (E33), ``-DECAY * staleness``.
    """
    require(sim_beta >= 0, "sim_beta", sim_beta, ">= 0")
    require(0 <= sim_min <= 1, "sim_min", sim_min, "in [0, 1]")
    consistent = sims >= sim_min
    if not consistent.any():
        return torch.zeros_like(sims)
    scores = sim_beta * sims if log_prior is None else sim_beta * sims + log_prior
    return torch.softmax(torch.where(consistent, scores, -math.inf), 0)


def learning_rate(lr: float, min_staleness: float, lr_staleness_factor: float, staleness_offset: int = 0) -> float:
    """Return eta_j = eta_0 / (1 + gamma tau_min), Eq. 10.

    With `staleness_offset` 1 a fresh gradient counts as one update old, as in the authors' programs (E7).
    """
    require(lr > 0, "lr", lr, "> 0")
    require(min_staleness >= 0, "min_staleness", min_staleness, ">= 0 (missed updates)")
    require(0 <= lr_staleness_factor < 1, "lr_staleness_factor", lr_staleness_factor, "in [0, 1)")
    return lr / (1 + lr_staleness_factor * (min_staleness + staleness_offset))


def stage_loss(losses: Sequence[float], rule: StageRule = "mean_loss") -> float:
    """Return what is compared with epsilon: the mean of the losses (text) or their sum (Algorithm 2, line 10; E4)."""
    require(rule in ("mean_loss", "sum_loss"), "rule", rule, "'mean_loss' or 'sum_loss'")
    require(len(losses) > 0, "losses", losses, "at least one number")
    return add_up(losses) / (len(losses) if rule == "mean_loss" else 1)


def enters_stage2(recent: Sequence[float], threshold: float) -> bool:
    """Return whether the mean of the `recent` values of `stage_loss` is at most epsilon (printed: of one, A4)."""
    return add_up(recent) / len(recent) <= threshold
