"""FedASMU on the server: the weight of an upload, its partial derivatives, and the control parameters behind it.

Source: Liu et al., "FedASMU: Efficient Asynchronous Federated Learning with Dynamic Staleness-aware Model Update"
(AAAI 2024); (n) are its equations; D-n, E-n and A-n those of this project's specification. What a device does with a
fresh model is in `fedasmu_fresh`, when it asks for one in `fedasmu_slots`; how past directions are kept in
`fedasmu_directions`; the theorem in `fedasmu_theory`.

Symbols: t `version`, s = t - o + 1 `staleness` (a fresh upload has 1), o `origin`, xi `weight_score`, alpha
`mixing_weight`, lambda, sigma, iota `Controls`, p version at which a device's previous upload was mixed in. Numbers,
arrays, tensors and SymPy symbols may be given, except where a vector is named. Derivatives come in the form that
follows from the weight, ``"derived"``, and where the paper's differ also as ``"printed"``.
"""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from scipy.optimize import brentq

from fl_core.formulas.checks import require
from fl_core.formulas.elementary import log, sqrt

Form = Literal["derived", "printed"]

LEAST_PRINTED_SIGMA = 1e-6
"""Where sigma is cut off if its logarithm is taken."""


class Controls(NamedTuple):
    """Server control parameters of a device, or derivatives with respect to them, or their learning rates."""

    lambda_: Any
    sigma: Any
    iota: Any


class Aggregation(NamedTuple):
    """What is remembered of an upload that was mixed in, beside the direction w_o'^i - w_p."""

    version: int
    """p, the version it was mixed into."""
    staleness: int
    """s_p."""
    controls: Controls
    """Those it was weighted with."""


def weight_score(version: Any, staleness: Any, controls: Controls, *, sqrt_offset: int = 1) -> Any:
    """Return xi = lambda / (sqrt(t + offset) s^sigma) + iota, Eq. 2.

    Parameters
    ----------
    version : int or array
        t >= 0, of the model that an upload is mixed into.
    staleness : int or array
        s = t - o + 1 >= 1.
    controls : Controls
        lambda, sigma, iota.
    sqrt_offset : {1, 0}
        What is added to t under the root: 1 counts rounds from 1; 0 is printed, and infinite at t = 0 (E04).

    Raises
    ------
    ValueError
        An argument is out of range.
    """
    require(version >= 0, "version", version, ">= 0")
    require(staleness >= 1, "staleness", staleness, ">= 1 (a fresh upload has 1)")
    require(sqrt_offset in (0, 1), "sqrt_offset", sqrt_offset, "0 or 1")
    lambda_, sigma, iota = controls
    if np.ndim(version) == 0:
        if version + sqrt_offset == 0:
            return math.inf if lambda_ > 0 else iota
    else:
        require(version + sqrt_offset > 0, "version", version, ">= 1 in an array with sqrt_offset = 0")
    return lambda_ * _power(staleness, sigma) / sqrt(version + sqrt_offset) + iota


def squash(score: Any, mu: Any = 1.0) -> Any:
    """Return mu x / (1 + mu x): alpha of xi (2), and beta of phi (8).

    Raises
    ------
    ValueError
        mu <= 0, or x <= -1 / mu, where the weight has a pole (E14).
    """
    require(mu > 0, "mu", mu, "> 0")
    require(1 + mu * score > 0, "score", score, f"> -1 / mu = {-1 / mu}: there the weight has a pole")
    if isinstance(score, float) and score == math.inf:
        return 1.0
    return mu * score / (1 + mu * score)


def squash_slope(score: Any, mu: Any = 1.0) -> Any:
    """Return mu / (1 + mu x)^2 = mu (1 - alpha)^2, the derivative of `squash` (D1), for the same arguments."""
    require(mu > 0, "mu", mu, "> 0")
    require(1 + mu * score > 0, "score", score, f"> -1 / mu = {-1 / mu}: there the weight has a pole")
    return mu / (1 + mu * score) / (1 + mu * score)  # a square could overflow


def mixing_weight(
    version: Any, staleness: Any, controls: Controls, mu_alpha: Any = 1.0, *, sqrt_offset: int = 1
) -> Any:
    """Return alpha, Eq. 2: the weight of an upload in (1 - alpha) w_t + alpha w_o^i. Arguments of `weight_score`."""
    return squash(weight_score(version, staleness, controls, sqrt_offset=sqrt_offset), mu_alpha)


def mixing_weight_gradient(
    version: Any, staleness: Any, controls: Controls, mu_alpha: Any = 1.0, *, sqrt_offset: int = 1
) -> Controls:
    """Return the partial derivatives of `mixing_weight` by lambda, sigma and iota (D1)."""
    score = weight_score(version, staleness, controls, sqrt_offset=sqrt_offset)
    slope = squash_slope(score, mu_alpha)
    if np.ndim(version) == 0 and version + sqrt_offset == 0:  # the limit: the weight is 1 whatever the controls
        return Controls(0.0, 0.0, slope)
    part = slope * _power(staleness, controls.sigma) / sqrt(version + sqrt_offset)
    return Controls(part, -part * controls.lambda_ * log(staleness), slope)


def grad_estimate(start: Any, uploaded: Any, lr: float, divisor: float, jump: Any = 0.0) -> Any:
    """Return g_i = (w_o - w_o^i + jump) / (eta_i K), the mean gradient along the local path (D3).

    The paper prints the opposite sign, which turns the descent of (3) into an ascent (E01).

    Parameters
    ----------
    start, uploaded : ndarray or Tensor
        w_o and w_o^i, ``[p]``.
    lr : float
        eta_i > 0.
    divisor : float
        Local steps K > 0; local epochs as printed (E08).
    jump : ndarray or Tensor, optional
        w^a - w^b, what the merge with a fresh model added to the upload (E09).

    Raises
    ------
    ValueError
        `lr` or `divisor` is not positive.
    """
    require(lr > 0, "lr", lr, "> 0")
    require(divisor > 0, "divisor", divisor, "> 0")
    return (start - uploaded + jump) / (lr * divisor)


def inner_product(difference: Any, direction: Any, lr: float, divisor: float) -> float:
    """Return q = <g_i, d_i>, the only number about vectors that (3) needs; two passes over them with `difference`.

    Parameters
    ----------
    difference : ndarray or Tensor
        w_o - w_o^i (with the jump of `grad_estimate`), ``[p]``.
    direction : ndarray or Tensor
        d_i = w_o'^i - w_p of the device's previous aggregated upload, ``[p]``.
    lr, divisor : float
        As in `grad_estimate`, which divides the vector; here their product divides one number.
    """
    require(lr > 0, "lr", lr, "> 0")
    require(divisor > 0, "divisor", divisor, "> 0")
    return float(difference @ direction) / (lr * divisor)


def control_gradient(
    q: Any, previous: Aggregation, mu_alpha: Any = 1.0, *, sqrt_offset: int = 1, form: Form = "derived"
) -> Controls:
    """Return the gradient of F_i(w_o) by the controls of the previous aggregation, for (3) (D2, section 2.2).

    Parameters
    ----------
    q : float
        <g_i, d_i> of `inner_product`, with the sign of a gradient also for ``form="printed"``.
    previous : Aggregation
        When and how the direction d_i was mixed in.
    mu_alpha : float, optional
        Scale > 0.
    sqrt_offset : {1, 0}, optional
        As in `weight_score`.
    form : {"derived", "printed"}, optional
        As printed, the signs for lambda and iota are wrong (E01), and the one for sigma has ln sigma in the place of
        lambda ln s (E02).

    Raises
    ------
    ValueError
        The form is unknown, or printed with sigma <= 0.
    """
    slopes = mixing_weight_gradient(*previous, mu_alpha, sqrt_offset=sqrt_offset)
    if form == "derived":
        return Controls(*(q * slope for slope in slopes))
    require(form == "printed", "form", form, "'derived' or 'printed'")
    sigma = previous.controls.sigma
    require(sigma > 0, "sigma", sigma, "> 0 in the printed form, which takes its logarithm")
    return Controls(-q * slopes.lambda_, q * slopes.lambda_ * log(sigma), -q * slopes.iota)


def propagation(kept: list[float], aggregated: int, origin: int) -> float:
    """Return the product of 1 - alpha_v, v = p+1 .. o-1: how much of a change of w_{p+1} is left in w_o (D4, E06).

    Parameters
    ----------
    kept : list of float
        1 - alpha of the aggregation into each version 0, 1, ...
    aggregated, origin : int
        0 <= p < o <= len(kept).

    Raises
    ------
    ValueError
        p or o is out of range.
    """
    require(0 <= aggregated < origin, "aggregated", aggregated, f"in 0..{origin - 1}, before the version asked about")
    require(origin <= len(kept), "origin", origin, f"at most {len(kept)}, the number of aggregations in `kept`")
    return math.prod(kept[aggregated + 1 : origin])


def descend(controls: Controls, gradient: Controls, rates: Controls) -> Controls:
    """Return the controls after one step of gradient descent, Eq. 3."""
    return Controls(*(x - rate * slope for x, slope, rate in zip(controls, gradient, rates, strict=True)))


def project(controls: Controls, form: Form = "derived") -> Controls:
    """Return the nearest controls >= 0, for which 0 <= alpha < 1 (E14, A08); the printed form needs sigma > 0."""
    lambda_, sigma, iota = controls
    return Controls(max(0.0, lambda_), max(0.0 if form == "derived" else LEAST_PRINTED_SIGMA, sigma), max(0.0, iota))


def blend(model: Any, other: Any, weight: float) -> Any:
    """Return (1 - weight) model + weight other, Eqs. 1 and 7, ``[d]``; without projection a weight may be negative.

    Raises
    ------
    ValueError
        The weight is above 1 or not finite.
    """
    require(-math.inf < weight <= 1, "weight", weight, "finite and at most 1")
    if isinstance(model, torch.Tensor):
        return torch.lerp(model, other, weight)
    return (1 - weight) * model + weight * other


def matched_lambda(
    rounds: int, staleness: float, *, alpha: float = 0.6, a: float = 0.5, sigma: float = 0.5, mu_alpha: float = 1.0
) -> float:
    """Return lambda_0 with which the mean weight over all rounds is FedAsync+Poly's alpha s^-a (A02; ours).

    Parameters
    ----------
    rounds : int
        T >= 1, the versions 0 .. T - 1; the root has offset 1 and iota is 0.
    staleness : float
        The staleness s >= 1 at which the means are compared: about the number of devices in flight.
    alpha, a : float, optional
        FedAsync's mixing weight in (0, 1), and its exponent.
    sigma, mu_alpha : float, optional
        sigma_0 and the scale.

    Raises
    ------
    ValueError
        An argument is out of range.
    """
    require(rounds >= 1, "rounds", rounds, ">= 1")
    require(staleness >= 1, "staleness", staleness, ">= 1 (a fresh upload has 1)")
    wanted = alpha * staleness**-a
    require(0 < wanted < 1, "alpha", alpha, "in (0, 1)")
    versions = np.arange(rounds)

    def excess(lambda_: float) -> float:
        return float(np.mean(mixing_weight(versions, staleness, Controls(lambda_, sigma, 0.0), mu_alpha))) - wanted

    largest = 1.0
    while excess(largest) < 0:
        largest *= 2
    return float(brentq(excess, 0.0, largest, xtol=1e-13, rtol=1e-14))


def _power(staleness: Any, sigma: Any) -> Any:
    """Return s^-sigma, which overflows only if sigma is far below 0."""
    try:
        return (1 / staleness) ** sigma
    except OverflowError:
        raise ValueError(
            f"sigma = {sigma!r}; sigma must be so large that s^-sigma is a number at s = {staleness} "
            "(projected control parameters are >= 0)"
        ) from None
