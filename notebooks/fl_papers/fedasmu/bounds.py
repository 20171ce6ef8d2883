"""FedASMU's Theorem 1 as numbers, the bound that holds instead, and the drift on which both depend (D11, E13).

Source: Liu et al., "FedASMU" (AAAI 2024), Theorem 1 and its proof in the appendix; functions marked "derived" are
this book's. Symbols: L `smoothness`, G `gradient` (a bound on the norm of stochastic gradients), V^2 `deviation` (a
bound on the squared distance of a device's stochastic gradient from that of the mean loss), tau `staleness_bound`,
eta `lr`, l_min and l_max `epochs_min`, `epochs_max` (local steps: an epoch is one step in the proof).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fl_core.formulas.checks import require

EXPLICIT = (1.5, 1.0, 3.0, 2.0, 1.5)
"""What multiplies the five O-terms of the printed bound. The statement leaves it open; with these numbers, as with
others, the values of E13 come out: there the first and the fourth term have one form, and so have the two between."""


@dataclass(frozen=True)
class Problem:
    """The constants that the theorem assumes about the losses.

    Attributes
    ----------
    smoothness : float
        L > 0, a Lipschitz constant of the gradients.
    gradient : float
        G >= 0.
    deviation : float
        V^2 >= 0; it contains how much the devices' data differ.
    """

    smoothness: float
    gradient: float
    deviation: float

    def __post_init__(self) -> None:
        require(self.smoothness > 0, "smoothness", self.smoothness, "> 0")
        require(self.gradient >= 0, "gradient", self.gradient, ">= 0")
        require(self.deviation >= 0, "deviation", self.deviation, ">= 0")


def printed_bound(
    initial_gap: float,
    problem: Problem,
    *,
    alpha_min: float,
    staleness_bound: int,
    epochs_min: int,
    epochs_max: int,
    constants: Sequence[float] = EXPLICIT,
) -> float:
    """Return the right-hand side of Theorem 1, with T = l_min^6 rounds and eta = l_min^-3; it does not hold (E13).

    Parameters
    ----------
    initial_gap : float
        F(w_0) - F(w_T).
    problem : Problem
        L, G, V^2.
    alpha_min : float
        Smallest mixing weight, in (0, 1].
    staleness_bound : int
        tau >= 1.
    epochs_min, epochs_max : int
        1 <= l_min <= l_max.
    constants : sequence of float, optional
        What the five O-terms are multiplied by.

    Raises
    ------
    ValueError
        An argument is out of range.
    """
    require(0 < alpha_min <= 1, "alpha_min", alpha_min, "in (0, 1]")
    require(staleness_bound >= 1, "staleness_bound", staleness_bound, ">= 1")
    require(1 <= epochs_min <= epochs_max, "epochs_min", epochs_min, f"in 1..{epochs_max}")
    smoothness, square = problem.smoothness, problem.gradient**2
    cube, seventh = epochs_min**3, epochs_min**7
    terms = (
        smoothness * square * epochs_max / cube,
        problem.deviation * epochs_max / seventh,
        staleness_bound * square * epochs_max / seventh,
        square * epochs_max / cube,
        smoothness * staleness_bound**2 * square * epochs_max**2 / cube,
    )
    rest = sum(constant * term for constant, term in zip(constants, terms, strict=True))
    return 2 * initial_gap / (alpha_min * cube) + rest


def corrected_bound(
    initial_gap: float,
    problem: Problem,
    *,
    lr: float,
    weights: Sequence[float],
    epochs: Sequence[int],
    beta_max: float,
    drift: float,
) -> float:
    """Return a bound on the mean of |grad F|^2 where gradients are taken, each round weighted by alpha_t (derived).

    It does not vanish: what remains is V^2, the drift, and beta (2 + L eta) G^2. It needs convex losses, and
    0 <= alpha <= 1, 0 <= beta <= beta_max.

    Parameters
    ----------
    initial_gap : float
        F(w_0) - F(w_T).
    problem : Problem
        L, G, V^2.
    lr : float
        eta > 0.
    weights, epochs : sequence
        alpha_t and the local steps of each round.
    beta_max : float
        Largest weight of a fresh model.
    drift : float
        D_tau, the largest distance between two global models that are less than tau versions apart.

    Raises
    ------
    ValueError
        An argument is out of range.
    """
    require(lr > 0, "lr", lr, "> 0")
    require(0 <= beta_max <= 1, "beta_max", beta_max, "in [0, 1]")
    require(len(weights) > 0 and all(0 <= a <= 1 for a in weights), "weights", weights, "not empty, each in [0, 1]")
    require(sum(weights) > 0, "weights", weights, "not all 0")
    require(all(count >= 1 for count in epochs), "epochs", epochs, "each >= 1")
    require(drift >= 0, "drift", drift, ">= 0")
    mass = sum(alpha * count for alpha, count in zip(weights, epochs, strict=True))
    smoothness, g = problem.smoothness, problem.gradient
    moved = 2 * (1 + beta_max) / (lr * min(epochs)) * (g * drift + smoothness / 2 * drift**2)
    noise = problem.deviation + smoothness * lr * g**2
    return 2 * initial_gap / (lr * mass) + noise + moved + beta_max * (2 + smoothness * lr) * g**2


def drift_bound(
    problem: Problem, *, lr: float, alpha_max: float, beta_max: float, staleness_bound: int, epochs_max: int
) -> float:
    """Return a bound on D_tau: (tau - 1) alpha eta l_max G / (1 - kappa), kappa = (tau - 1) alpha (1 + beta).

    Derived. Infinite where kappa >= 1. For the ranges of the arguments see `corrected_bound`.

    Raises
    ------
    ValueError
        An argument is out of range.
    """
    require(lr > 0, "lr", lr, "> 0")
    require(0 <= alpha_max <= 1, "alpha_max", alpha_max, "in [0, 1]")
    require(0 <= beta_max <= 1, "beta_max", beta_max, "in [0, 1]")
    require(staleness_bound >= 1, "staleness_bound", staleness_bound, ">= 1")
    require(epochs_max >= 1, "epochs_max", epochs_max, ">= 1")
    reach = alpha_max * (staleness_bound - 1)
    kappa = reach * (1 + beta_max)
    return reach * lr * epochs_max * problem.gradient / (1 - kappa) if kappa < 1 else math.inf


def printed_drift(problem: Problem, *, lr: float, alpha: float, staleness: int, epochs: int) -> float:
    """Return s eta alpha l G, the printed bound on |w_o - w_t|: as if no upload were stale or held a merge (E13).

    Raises
    ------
    ValueError
        An argument is out of range.
    """
    require(lr > 0, "lr", lr, "> 0")
    require(0 <= alpha <= 1, "alpha", alpha, "in [0, 1]")
    require(staleness >= 1, "staleness", staleness, ">= 1 (a fresh upload has 1)")
    require(epochs >= 1, "epochs", epochs, ">= 1")
    return staleness * lr * alpha * epochs * problem.gradient
