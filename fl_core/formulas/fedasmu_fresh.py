"""FedASMU on the device: the weight of a fresh model in mid-training, and the two control parameters behind it.

Source and notation as in `fl_core.formulas.fedasmu`; further g `fresh_version`, o `origin_version`, phi
`fresh_score`, beta `fresh_weight`, gamma, upsilon `FreshControls`. When a device asks is in `fedasmu_slots`.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from fl_core.formulas.checks import require
from fl_core.formulas.elementary import sqrt
from fl_core.formulas.fedasmu import Form, squash, squash_slope

MOST_UPSILON = math.sqrt(2)
"""Above it phi is negative for a model that is one version newer (D10)."""


class FreshControls(NamedTuple):
    """Control parameters on a device, or derivatives with respect to them, or their learning rates."""

    gamma: Any
    upsilon: Any


def fresh_score(fresh_version: Any, origin_version: Any, controls: FreshControls, *, sqrt_offset: int = 0) -> Any:
    """Return phi = gamma / sqrt(g + offset) (1 - upsilon / sqrt(g - o + 1)), Eq. 8.

    Parameters
    ----------
    fresh_version, origin_version : int or array
        g > o >= 0.
    controls : FreshControls
        gamma, upsilon.
    sqrt_offset : {0, 1}, optional
        What is added to g under the root; 0 as printed (E04).

    Raises
    ------
    ValueError
        An argument is out of range.
    """
    require(origin_version >= 0, "origin_version", origin_version, ">= 0")
    require(fresh_version > origin_version, "fresh_version", fresh_version, "> origin_version")
    require(sqrt_offset in (0, 1), "sqrt_offset", sqrt_offset, "0 or 1")
    gap = sqrt(fresh_version - origin_version + 1)
    return controls.gamma / sqrt(fresh_version + sqrt_offset) * (1 - controls.upsilon / gap)


def fresh_weight(
    fresh_version: Any, origin_version: Any, controls: FreshControls, mu_beta: Any = 1.0, *, sqrt_offset: int = 0
) -> Any:
    """Return beta, Eq. 8: the weight of the fresh model in (1 - beta) w^b + beta w_g. Arguments of `fresh_score`."""
    return squash(fresh_score(fresh_version, origin_version, controls, sqrt_offset=sqrt_offset), mu_beta)


def fresh_weight_gradient(
    fresh_version: Any, origin_version: Any, controls: FreshControls, mu_beta: Any = 1.0, *, sqrt_offset: int = 0
) -> FreshControls:
    """Return the partial derivatives of `fresh_weight` by gamma and upsilon (D6)."""
    score = fresh_score(fresh_version, origin_version, controls, sqrt_offset=sqrt_offset)
    part = squash_slope(score, mu_beta) / sqrt(fresh_version + sqrt_offset)
    gap = sqrt(fresh_version - origin_version + 1)
    return FreshControls(part * (1 - controls.upsilon / gap), -part * controls.gamma / gap)


def fresh_slope(gradient: Any, fresh: Any, before: Any, after: Any, *, form: Form = "derived") -> float:
    """Return q_beta = <G, w_g - w^b>, the derivative of the loss by beta.

    Parameters
    ----------
    gradient : ndarray or Tensor
        G, that of the loss at the merged model w^a, ``[p]``.
    fresh, before, after : ndarray or Tensor
        w_g, w^b and w^a, ``[p]``.
    form : {"derived", "printed"}, optional
        The appendix has w_g - w^a; with the letters of (7) that is the model after the merge, and wrong (E07).

    Raises
    ------
    ValueError
        The form is unknown.
    """
    require(form in ("derived", "printed"), "form", form, "'derived' or 'printed'")
    return float(gradient @ (fresh - (before if form == "derived" else after)))


def fresh_descend(
    controls: FreshControls, gradient: FreshControls, rates: FreshControls, slope: float = 1.0
) -> FreshControls:
    """Return the device's controls after one step of (9).

    Parameters
    ----------
    controls, rates : FreshControls
        gamma, upsilon, and their learning rates.
    gradient : FreshControls
        That of beta, from `fresh_weight_gradient`.
    slope : float, optional
        q_beta of `fresh_slope`, by which it becomes that of the loss.
    """
    return FreshControls(*(x - rate * slope * g for x, g, rate in zip(controls, gradient, rates, strict=True)))


def fresh_project(controls: FreshControls) -> FreshControls:
    """Return the nearest controls with gamma >= 0 and 0 <= upsilon <= sqrt 2, for which 0 <= beta < 1 (A08)."""
    return FreshControls(max(0.0, controls.gamma), min(max(0.0, controls.upsilon), MOST_UPSILON))
