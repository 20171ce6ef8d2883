"""When a FedASMU device asks for a fresh model: meta-model, Q-table and fixed slots (Eqs. 5 and 6, section 2.5).

Source: Liu et al., "FedASMU" (AAAI 2024). A slot k = 1 .. K_s is the number of local epochs after which a device
asks; with E epochs there are K_s = E - 1. A device's first slot comes from the server's meta-model, an LSTM trained
by REINFORCE; the later ones from a table on the device, by Q-learning. Both learn from the `reward` of a merge.
Vectors are one flat float64 tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fl_core.formulas.checks import require

HIDDEN = 32
"""Size of the LSTM's state; its input has 2 entries: the previous decision, and k / K_s (A10)."""

ACTIONS = ("add", "stay", "minus")
"""What a device may do with its last slot; the paper prints "add" twice (E11)."""

SAME = 1e-9
"""Values that differ by no more are equally good: equal probabilities differ in their last bits."""

Rule = Literal["first", "middle", "last"]


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

    Parameters
    ----------
    parameters : Tensor
        theta, ``[meta_size()]``, in the order of ``torch.nn.LSTM(2, hidden)`` and ``torch.nn.Linear(hidden, 1)``.
    slots : int
        K_s >= 1.
    hidden : int, optional
        Size of the LSTM's state.

    Raises
    ------
    ValueError
        `slots` or the number of parameters is not valid.
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
    """Return theta + eta_RL (R - b) grad ln P(slot), Eq. 5.

    Parameters
    ----------
    parameters : Tensor
        theta.
    slot : int
        k in 1 .. K_s, the slot that was used.
    slots : int
        K_s.
    advantage : float
        R - b.
    lr : float
        eta_RL.

    Raises
    ------
    ValueError
        There is no such slot.
    """
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

    Raises
    ------
    ValueError
        There are no records, or one has no such slot.
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
    """Return the place of the largest of `values`, ties broken uniformly; with probability epsilon any place.

    Raises
    ------
    ValueError
        epsilon is no probability, or there is no largest value.
    """
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
    """Return the Q-table after one update, Eq. 6; not finite where rewards are so large that it overflows.

    Parameters
    ----------
    table : ndarray
        H^i, ``[K_s, 3]``: a row for each slot, a column for each of `ACTIONS`.
    slot, action, new_slot : int
        Where the device was, what it did, and where that led it.
    reward : float
        R.
    lr, discount : float, optional
        phi and psi of (6).

    Raises
    ------
    ValueError
        A slot is outside the table.
    """
    for name, value in (("slot", slot), ("new_slot", new_slot)):
        require(1 <= value <= len(table), name, value, f"in 1..{len(table)}")
    table = table.copy()
    old = table[slot - 1, action]
    with np.errstate(over="ignore", invalid="ignore"):
        table[slot - 1, action] = old + lr * (reward + discount * table[new_slot - 1].max() - old)
    return table


def fixed_slot(rule: Rule, epochs: int) -> int:
    """Return the slot of the heuristics H1 "first", H2 "middle" and H3 "last": 1, floor(E / 2), E - 1.

    Raises
    ------
    ValueError
        There are fewer than 2 epochs, or no such rule.
    """
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
