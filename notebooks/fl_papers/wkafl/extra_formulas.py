"""Formulas that the chapters and claims use, and no algorithm."""

from __future__ import annotations

from torch import Tensor

from fl_core.formulas.checks import require
from fl_core.formulas.wkafl import accumulate_momentum


def official_momentum(grads: Tensor, previous: Tensor, momentum_alpha: float) -> Tensor:
    """Return 2 g_i + alpha * previous: what the authors' ByClass and CelebA programs do in place of Eq. 4 (E10)."""
    return grads + accumulate_momentum(grads, previous, momentum_alpha)


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
