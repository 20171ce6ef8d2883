"""FedASMU: the weights of uploads and of fresh models, the control parameters behind them, and when a device asks.

Source: Liu et al., "FedASMU: Efficient Asynchronous Federated Learning with Dynamic Staleness-aware Model Update"
(AAAI 2024); (n) are its equations; D-n, E-n, A-n and section numbers those of this project's specification.

Symbols, server: t `version` >= 0, s = t - o + 1 `staleness` (a fresh upload has 1), o `origin`, xi `weight_score`,
alpha `mixing_weight`, lambda, sigma, iota `Controls`, p version at which a device's previous upload was mixed in,
d_i its direction w_o'^i - w_p ``[p]``, g_i a device's mean gradient ``[p]``, eta_i `lr`, K `divisor` (local steps;
local epochs as printed, E08). Device: g `fresh_version` > o `origin_version`, phi `fresh_score`, beta `fresh_weight`,
gamma, upsilon `FreshControls`; slot k = 1 .. K_s `slots`, the number of local epochs after which it asks, R `reward`.
`sqrt_offset` is what is added to a version under the root: 1 counts rounds from 1, 0 is printed (E04).

Numbers, arrays, tensors and SymPy symbols may be given, except where a vector is named. Derivatives come in the form
that follows from the weight, ``"derived"``, and where the paper's differ also as ``"printed"``.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fl_core.formulas.checks import require

Form = Literal["derived", "printed"]
LEAST_PRINTED_SIGMA = 1e-6
"""Where sigma is cut off if its logarithm is taken."""

MOST_UPSILON = math.sqrt(2)
"""Above it phi is negative for a model that is one version newer (D10)."""

HIDDEN = 32
"""Size of the LSTM's state; its input has 2 entries: the previous decision, and k / K_s (A10)."""

ACTIONS = ("add", "stay", "minus")
"""What a device may do with its last slot; the paper prints "add" twice (E11)."""

SAME = 1e-9
"""Values that differ by no more are equally good: equal probabilities differ in their last bits."""

Rule = Literal["first", "middle", "last"]
HALF_EXPONENT = 15
"""Directions are scaled to below 2^15, so that a part of 2^-28 of the largest entry is still a normal float16."""


class Controls(NamedTuple):
    """Server control parameters of a device, or derivatives with respect to them, or their learning rates."""

    lambda_: Any
    sigma: Any
    iota: Any


class PastAggregation(NamedTuple):
    """What is remembered of an upload that was mixed in, beside the direction w_o'^i - w_p."""

    version: int
    """p, the version it was mixed into."""
    staleness: int
    """s_p."""
    controls: Controls
    """Those it was weighted with."""


def weight_score(version: Any, staleness: Any, controls: Controls, *, sqrt_offset: int = 1) -> Any:
    """Return xi = lambda / (sqrt(t + offset) s^sigma) + iota, Eq. 2; infinite at t = 0 with offset 0, as printed."""
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
    """Return mu x / (1 + mu x): alpha of xi (2), and beta of phi (8); it has a pole at x = -1 / mu (E14)."""
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
    """Return alpha, Eq. 2: the weight of an upload in (1 - alpha) w_t + alpha w_o^i."""
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


def inner_product(difference: Any, direction: Any, lr: float, divisor: float) -> float:
    """Return q = <g_i, d_i>, the only number about vectors that (3) needs; two passes over them with `difference`.

    `difference` is w_o - w_o^i, plus the jump w^a - w^b that a merge with a fresh model has made (E09); what it is
    divided by to be g_i divides one number here.
    """
    require(lr > 0, "lr", lr, "> 0")
    require(divisor > 0, "divisor", divisor, "> 0")
    return float(difference @ direction) / (lr * divisor)


def control_gradient(
    q: Any, previous: PastAggregation, mu_alpha: Any = 1.0, *, sqrt_offset: int = 1, form: Form = "derived"
) -> Controls:
    """Return the gradient of F_i(w_o) by the controls of the previous aggregation, for (3) (D2, section 2.2).

    `q` has the sign of a gradient also for ``form="printed"``. As printed, the signs for lambda and iota are wrong
    (E01), and the one for sigma has ln sigma in the place of lambda ln s (E02).
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

    `kept` is 1 - alpha of the aggregation into each version 0, 1, ...; p is `aggregated`.
    """
    require(0 <= aggregated < origin, "aggregated", aggregated, f"in 0..{origin - 1}, before the version asked about")
    require(origin <= len(kept), "origin", origin, f"at most {len(kept)}, the number of aggregations in `kept`")
    return math.prod(kept[aggregated + 1 : origin])


def descend_controls(controls: Controls, gradient: Controls, rates: Controls) -> Controls:
    """Return the controls after one step of gradient descent, Eq. 3."""
    return Controls(*(x - rate * slope for x, slope, rate in zip(controls, gradient, rates, strict=True)))


def project_controls(controls: Controls, form: Form = "derived") -> Controls:
    """Return the nearest controls >= 0, for which 0 <= alpha < 1 (E14, A08); the printed form needs sigma > 0."""
    lambda_, sigma, iota = controls
    return Controls(max(0.0, lambda_), max(0.0 if form == "derived" else LEAST_PRINTED_SIGMA, sigma), max(0.0, iota))


def blend(model: Any, other: Any, weight: float) -> Any:
    """Return (1 - weight) model + weight other, Eqs. 1 and 7; without projection a weight may be negative."""
    require(-math.inf < weight <= 1, "weight", weight, "finite and at most 1")
    if isinstance(model, torch.Tensor):
        return torch.lerp(model, other, weight)
    return (1 - weight) * model + weight * other


def matched_lambda(
    rounds: int, staleness: float, *, alpha: float = 0.6, a: float = 0.5, sigma: float = 0.5, mu_alpha: float = 1.0
) -> float:
    """Return lambda_0 with which the mean weight over all rounds is FedAsync+Poly's alpha s^-a (A02; ours).

    The rounds are the versions 0 .. T - 1; the staleness s at which the means are compared is about the number of
    devices in flight. The root has offset 1 and iota is 0.
    """
    from scipy.optimize import brentq  # 25 MB and 0.3 s, which no run needs

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


class FreshControls(NamedTuple):
    """Control parameters on a device, or derivatives with respect to them, or their learning rates."""

    gamma: Any
    upsilon: Any


def fresh_score(fresh_version: Any, origin_version: Any, controls: FreshControls, *, sqrt_offset: int = 0) -> Any:
    """Return phi = gamma / sqrt(g + offset) (1 - upsilon / sqrt(g - o + 1)), Eq. 8."""
    require(origin_version >= 0, "origin_version", origin_version, ">= 0")
    require(fresh_version > origin_version, "fresh_version", fresh_version, "> origin_version")
    require(sqrt_offset in (0, 1), "sqrt_offset", sqrt_offset, "0 or 1")
    gap = sqrt(fresh_version - origin_version + 1)
    return controls.gamma / sqrt(fresh_version + sqrt_offset) * (1 - controls.upsilon / gap)


def fresh_weight(
    fresh_version: Any, origin_version: Any, controls: FreshControls, mu_beta: Any = 1.0, *, sqrt_offset: int = 0
) -> Any:
    """Return beta, Eq. 8: the weight of the fresh model in (1 - beta) w^b + beta w_g."""
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
    """Return q_beta = <G, w_g - w^b>, the derivative of the loss by beta; G is its gradient at the merged model w^a.

    The appendix has w_g - w^a; with the letters of (7) that is the model after the merge, and wrong (E07).
    """
    require(form in ("derived", "printed"), "form", form, "'derived' or 'printed'")
    return float(gradient @ (fresh - (before if form == "derived" else after)))


def fresh_descend(
    controls: FreshControls, gradient: FreshControls, rates: FreshControls, slope: float = 1.0
) -> FreshControls:
    """Return the device's controls after one step of (9); `gradient` is that of beta, `slope` q_beta."""
    return FreshControls(*(x - rate * slope * g for x, g, rate in zip(controls, gradient, rates, strict=True)))


def fresh_project(controls: FreshControls) -> FreshControls:
    """Return the nearest controls with gamma >= 0 and 0 <= upsilon <= sqrt 2, for which 0 <= beta < 1 (A08)."""
    return FreshControls(max(0.0, controls.gamma), min(max(0.0, controls.upsilon), MOST_UPSILON))


def log_probabilities(logits: Tensor) -> Tensor:
    """Return ln P(l* = k), ``[K_s]``, from the logits ``[K_s - 1]`` of asking after epoch k if not before.

    The last epoch needs no logit, as exactly one request is made. Logits 0 give the uniform distribution.
    """
    left = torch.arange(len(logits), 0, -1, dtype=logits.dtype)  # K_s - k
    shifted = logits - left.log()
    waiting = torch.cat([logits.new_zeros(1), F.logsigmoid(-shifted).cumsum(0)])
    return waiting + torch.cat([F.logsigmoid(shifted), logits.new_zeros(1)])


def meta_logits(parameters: Tensor, slots: int, hidden: int = HIDDEN) -> Tensor:
    """Return the LSTM's logits ``[slots - 1]``; no request has been made before any of them.

    `parameters` are theta, in the order of ``torch.nn.LSTM(2, hidden)`` and ``torch.nn.Linear(hidden, 1)``.
    """
    require(slots >= 1, "slots", slots, ">= 1")
    require(parameters.shape == (meta_size(hidden),), "len(parameters)", len(parameters), str(meta_size(hidden)))
    w_input, w_state, b_input, b_state, w_out, b_out = parameters.split(_sizes(hidden))
    w_input, w_state = w_input.view(4 * hidden, 2), w_state.view(4 * hidden, hidden)
    state = cell = parameters.new_zeros(hidden)
    logits = [parameters.new_zeros(0)]
    for k in range(1, slots):
        inputs = parameters.new_tensor([0.0, k / slots])
        gates = w_input @ inputs + b_input + w_state @ state + b_state
        enter, forget, candidate, leave = gates.chunk(4)
        cell = forget.sigmoid() * cell + enter.sigmoid() * candidate.tanh()
        state = leave.sigmoid() * cell.tanh()
        logits.append((w_out @ state)[None] + b_out)
    return torch.cat(logits)


def meta_size(hidden: int = HIDDEN) -> int:
    """Return the number of parameters of the meta-model: 4,641 with 32."""
    return sum(_sizes(hidden))


def initial_meta(rng: np.random.Generator, hidden: int = HIDDEN) -> Tensor:
    """Return theta_0: the LSTM uniform within 1 / sqrt(hidden), the linear layer 0: all slots equally likely."""
    lstm = rng.uniform(-(hidden**-0.5), hidden**-0.5, sum(_sizes(hidden)[:4]))
    return torch.from_numpy(np.concatenate([lstm, np.zeros(hidden + 1)]))


def reinforce(parameters: Tensor, slot: int, slots: int, advantage: float, lr: float) -> Tensor:
    """Return theta + eta_RL (R - b) grad ln P(slot), Eq. 5."""
    require(1 <= slot <= slots, "slot", slot, f"in 1..{slots}")
    theta = parameters.detach().requires_grad_()
    chosen = log_probabilities(meta_logits(theta, slots))[slot - 1]
    if slots == 1:  # nothing to choose
        return parameters
    (gradient,) = torch.autograd.grad(chosen, theta)
    return parameters + lr * advantage * gradient


def pretrain_meta(
    parameters: Tensor, records: Sequence[tuple[int, float]], slots: int, epochs: int = 200, lr: float = 0.01
) -> Tensor:
    """Return theta after maximising the sum of (R - mean R) P(k) over `records` (k, R) with Adam (A10).

    Where the slots k were drawn uniformly, the sum estimates the expected reward but for a constant factor and a
    constant. With ln P for P, as A10 has it, it would have no maximum: the slots below the mean are driven to
    probability zero, whichever slot gains by that.
    """
    require(len(records) > 0, "records", records, "a list of (slot, reward)")
    for slot, _ in records:
        require(1 <= slot <= slots, "slot", slot, f"in 1..{slots}")
    theta = parameters.clone().requires_grad_()
    places = torch.tensor([slot - 1 for slot, _ in records])
    rewards = torch.tensor([reward for _, reward in records], dtype=theta.dtype)
    advantages = rewards - rewards.mean()
    adam = torch.optim.Adam([theta], lr=lr, maximize=True)
    for _ in range(epochs if slots > 1 else 0):
        adam.zero_grad()
        (advantages * log_probabilities(meta_logits(theta, slots)).exp()[places]).sum().backward()
        adam.step()
    return theta.detach()


def epsilon_greedy(values: Any, epsilon: float, rng: np.random.Generator) -> int:
    """Return the place of the largest of `values`, ties broken uniformly; with probability epsilon any place."""
    require(0 <= epsilon <= 1, "epsilon", epsilon, "in [0, 1]")
    values = np.asarray(values)
    require(len(values) > 0 and not np.isnan(values).any(), "values", values, "not empty, and numbers")
    if rng.random() < epsilon:
        return int(rng.integers(len(values)))
    return int(rng.choice(np.flatnonzero(values >= values.max() - SAME)))


def next_slot(slot: int, action: int, slots: int) -> int:
    """Return the slot that an action (a place in `ACTIONS`) leads to, within 1 .. K_s."""
    return min(max(slot + 1 - action, 1), slots)


def q_update(
    table: np.ndarray, slot: int, action: int, new_slot: int, reward: float, lr: float = 0.1, discount: float = 0.9
) -> np.ndarray:
    """Return the Q-table H^i ``[K_s, 3]`` after one update, Eq. 6; its columns are `ACTIONS`.

    It is not finite where rewards are so large that it overflows.
    """
    for name, value in (("slot", slot), ("new_slot", new_slot)):
        require(1 <= value <= len(table), name, value, f"in 1..{len(table)}")
    table = table.copy()
    old = table[slot - 1, action]
    with np.errstate(over="ignore", invalid="ignore"):
        table[slot - 1, action] = old + lr * (reward + discount * table[new_slot - 1].max() - old)
    return table


def fixed_slot(rule: Rule, epochs: int) -> int:
    """Return the slot of the heuristics H1 "first", H2 "middle" and H3 "last": 1, floor(E / 2), E - 1."""
    require(epochs >= 2, "epochs", epochs, ">= 2: with one there is no slot")
    slots = {"first": 1, "middle": epochs // 2, "last": epochs - 1}
    require(rule in slots, "rule", rule, f"one of {', '.join(slots)}")
    return slots[rule]


def reward(loss_before: float, loss_after: float) -> float:
    """Return R = loss^b - loss^a: how much the merge lowered the loss on one mini-batch."""
    return loss_before - loss_after


def moving_baseline(baseline: float, reward: float, rate: float = 0.1) -> float:
    """Return b <- (1 - rho) b + rho R; used after this update, R - b is (1 - rho) times what it was before (D8)."""
    require(0 <= rate <= 1, "rate", rate, "in [0, 1]")
    return (1 - rate) * baseline + rate * reward


def _sizes(hidden: int) -> list[int]:
    return [8 * hidden, 4 * hidden * hidden, 4 * hidden, 4 * hidden, hidden, 1]


class Half(NamedTuple):
    """A vector in half precision."""

    values: Tensor
    """``[p]``, float16."""
    unit: float
    """What they are multiplied by: a power of two, so that scaling costs no precision."""


def to_half(vector: Tensor) -> Half:
    """Return `vector` ``[p]`` in half precision, half of the memory of an exact direction (2.7)."""
    largest = float(vector.abs().max()) if len(vector) else 0.0
    unit = max(2.0 ** (math.frexp(largest)[1] - HALF_EXPONENT), torch.finfo(vector.dtype).tiny)
    return Half((vector / unit).half(), unit)


def half_product(vector: Tensor, kept: Half) -> float:
    """Return the inner product of `vector` ``[p]`` with a kept one."""
    return float(vector @ kept.values.to(vector.dtype)) * kept.unit


def sketch(vector: Tensor, size: int, seed: int) -> Tensor:
    """Return the sums ``[size]`` of the entries that fall into each place, each with a random sign (a count sketch).

    A linear map, the same for the same `seed`; products of sketches are unbiased estimates of products of vectors.
    """
    require(size >= 1, "size", size, ">= 1")
    sums = torch.bincount(_places(len(vector), size, seed), vector.double(), minlength=2 * size)
    return sums[:size] - sums[size:]


@lru_cache(maxsize=2)
def _places(length: int, size: int, seed: int) -> Tensor:
    """Return for each entry a place, below `size` for the sign +, above it for the sign -."""
    return torch.randint(2 * size, (length,), generator=torch.Generator().manual_seed(seed))


def sqrt(x: Any) -> Any:
    """Return the square root of `x`, of the kind of `x`."""
    return _elementary("sqrt", x)


def log(x: Any) -> Any:
    """Return the natural logarithm of `x`, of the kind of `x`."""
    return _elementary("log", x)


def _elementary(name: str, x: Any) -> Any:
    if isinstance(x, int | float):
        return getattr(math, name)(x)
    if isinstance(x, torch.Tensor):
        return getattr(torch, name)(x)
    if isinstance(x, np.ndarray | np.generic):
        return getattr(np, name)(x)
    return getattr(importlib.import_module("sympy"), name)(x)
