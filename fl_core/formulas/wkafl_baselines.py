"""What WKAFL is compared with: plain K-asynchronous SGD, TWAFL, SASGD, GSGM and Zeno++, in its authors' forms (2.5).

Source: Zhou et al., "Towards Efficient and Stable K-Asynchronous Federated Learning ..." (IEEE TPDS, 2022), Eq. 2
and Section 6; Zeno++ as in its supplement, after Xie, Koyejo & Gupta (ICML 2020). (W-x) and E-n are those of the
project's specification of WKAFL, (BL-x) those of its specification of baselines.

All work on gradients; what is returned is a direction u ``[p]`` for w <- w - eta u, or weights ``[K]`` of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from fl_core.formulas.checks import require
from fl_core.formulas.wkafl import staleness_weight

TWAFLWeighting = Literal["normalised", "printed"]


def kasync_weights(count: int) -> Tensor:
    """Return 1 / K for each of `count` gradients: plain K-asynchronous SGD, Eq. 2.

    Raises
    ------
    ValueError
        There is no gradient.
    """
    require(count >= 1, "count", count, ">= 1")
    return torch.full((count,), 1 / count, dtype=torch.float64)


def twafl_weights(
    staleness: Sequence[float],
    batch_sizes: Sequence[float],
    weighting: TWAFLWeighting = "normalised",
    staleness_offset: int = 0,
) -> Tensor:
    """Return TWAFL's weights (m_i / m) (e / 2)^(-tau_i), W-d (BL-3.14).

    As printed they add up to less than 1 unless all gradients are fresh: the step shrinks with staleness (E8).

    Parameters
    ----------
    staleness : sequence of float
        tau_i >= 0, fresh = 0.
    batch_sizes : sequence of float
        m_i > 0, the samples behind each gradient.
    weighting : {"normalised", "printed"}, optional
        Whether the weights are divided by their sum, as the authors' programs do.
    staleness_offset : int, optional
        Added to the staleness; of no effect on normalised weights.

    Raises
    ------
    ValueError
        An argument is out of range.
    """
    require(weighting in ("normalised", "printed"), "weighting", weighting, "'normalised' or 'printed'")
    sizes = torch.as_tensor(batch_sizes, dtype=torch.float64)
    require(sizes > 0, "batch_sizes", batch_sizes, "> 0")
    tau = torch.as_tensor(staleness, dtype=torch.float64) + staleness_offset
    if weighting == "normalised":
        tau = tau - tau.min()
    weights = sizes / sizes.sum() * staleness_weight(tau)
    return weights / weights.sum() if weighting == "normalised" else weights


def sasgd_weights(staleness: Sequence[float], divide: bool = True) -> Tensor:
    """Return SASGD's weights 1 / (K (tau_i + 1)), W-e (BL-3.16); the printed 1 / tau is infinite if fresh (E7).

    Parameters
    ----------
    staleness : sequence of float
        tau_i >= 0, fresh = 0.
    divide : bool, optional
        By K; three of the authors' four programs do not (E35).

    Raises
    ------
    ValueError
        A staleness is negative.
    """
    tau = torch.as_tensor(staleness, dtype=torch.float64)
    require(tau >= 0, "staleness", staleness, ">= 0 (missed updates)")
    return 1 / ((tau + 1) * (len(tau) if divide else 1))


def gsgm_direction(mean_grad: Tensor, round_momentum: Tensor, momentum_alpha: float) -> Tensor:
    """Return u = mean gradient + alpha M, GSGM's corrected gradient (BL-3.17).

    Raises
    ------
    ValueError
        alpha is negative.
    """
    require(momentum_alpha >= 0, "momentum_alpha", momentum_alpha, ">= 0")
    return mean_grad + momentum_alpha * round_momentum


def gsgm_accumulate(
    partial: Tensor, direction: Tensor, count: int, num_clients: int, *, by_commit: bool = False
) -> Tensor:
    """Return A + (K / P) u, which at the end of a round is the next M, the mean of the round's u (BL-3.18).

    Parameters
    ----------
    partial, direction : Tensor
        A and u, ``[p]``.
    count, num_clients : int
        Gradients behind u, and P.
    by_commit : bool, optional
        Add u / P, as the authors' programs do: M is then K times smaller (E9).

    Raises
    ------
    ValueError
        `count` is not in 1 .. P.
    """
    require(1 <= count <= num_clients, "count", count, f"in 1..{num_clients}")
    return partial + (1 if by_commit else count) / num_clients * direction


class Judgement(NamedTuple):
    """What Zeno++ thinks of a gradient."""

    candidate: Tensor
    """The gradient, as long as the validation gradient, ``[p]``."""
    score: float
    accepted: bool


def zeno_judge(
    grad: Tensor, validation_grad: Tensor, *, rho: float = 0.2, epsilon: float = 0.1, score_gamma: float = 1.0
) -> Judgement:
    """Rescale a gradient to the length of the validation gradient and judge it: Zeno++ (BL-3.19, BL-3.20).

    u = g ‖v‖ / ‖g‖ is accepted iff gamma <u, v> - rho ‖u‖^2 >= -gamma epsilon: its length never matters, as that is
    cos(g, v) >= rho / gamma - epsilon / ‖v‖^2 (BL-3.21). A gradient of zeros is rejected.

    Parameters
    ----------
    grad, validation_grad : Tensor
        g of the device and v of the server, ``[p]``.
    rho, epsilon : float, optional
        >= 0; those of the authors' program.
    score_gamma : float, optional
        gamma > 0; 1 in that program.

    Raises
    ------
    ValueError
        A parameter is out of range.
    """
    require(rho >= 0, "rho", rho, ">= 0")
    require(epsilon >= 0, "epsilon", epsilon, ">= 0")
    require(score_gamma > 0, "score_gamma", score_gamma, "> 0")
    norm, length = torch.linalg.vector_norm(grad), torch.linalg.vector_norm(validation_grad)
    if not norm:
        return Judgement(grad, 0.0, False)
    candidate = grad * (length / norm)
    score = float(score_gamma * (candidate @ validation_grad) - rho * (candidate @ candidate))
    return Judgement(candidate, score, score >= -score_gamma * epsilon)


def zeno_cosine_threshold(
    validation_norm: float, rho: float = 0.2, epsilon: float = 0.1, score_gamma: float = 1.0
) -> float:
    """Return rho / gamma - epsilon / ‖v‖^2, the least cosine with v that Zeno++ accepts (BL-3.21).

    Raises
    ------
    ValueError
        ‖v‖ or gamma is not positive.
    """
    require(validation_norm > 0, "validation_norm", validation_norm, "> 0")
    require(score_gamma > 0, "score_gamma", score_gamma, "> 0")
    return rho / score_gamma - epsilon / validation_norm**2
