"""FedASMU's choice of a slot on a device whose best slot is known: the reward in closed form, and both learners."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fl_core.formulas.fedasmu import blend
from fl_core.formulas.fedasmu_fresh import FreshControls, fresh_weight
from fl_core.formulas.fedasmu_slots import (
    epsilon_greedy,
    initial_meta,
    log_probabilities,
    meta_logits,
    moving_baseline,
    next_slot,
    q_update,
    reinforce,
    reward,
)

Vector = NDArray[np.float64]

START = FreshControls(29.66013673, 1.0)
"""gamma_0 and upsilon_0 of a run of 5,000 versions with ten devices in flight (A04)."""


@dataclass(frozen=True)
class SlotToy:
    """A device on F(w) = w^2 / 2 that starts at 1, while the global model gets better faster than it does.

    Attributes
    ----------
    epochs : int
        E; the slots are 1 .. E - 1.
    local, fleet : float
        What an epoch leaves of the device's own w, and of the global model meanwhile.
    origin, versions : int
        o, and how many versions are made per epoch.
    controls : FreshControls
        gamma and upsilon.
    noise : float
        Standard deviation of a reward, as mini-batches differ.
    """

    epochs: int = 5
    local: float = 0.9
    fleet: float = 0.4
    origin: int = 100
    versions: int = 2
    controls: FreshControls = START
    noise: float = 0.02

    @property
    def slots(self) -> int:
        """K_s."""
        return self.epochs - 1

    def merged(self, slot: int) -> float:
        """Return w^a after a merge in `slot`; in slot 0 there is nothing newer to merge."""
        weight = 0.0 if slot == 0 else fresh_weight(self.origin + self.versions * slot, self.origin, self.controls)
        return float(blend(self.local**slot, self.fleet**slot, weight))

    def rewards(self) -> Vector:
        """Return R of each slot without noise, ``[K_s]``."""
        found = [reward(self.local ** (2 * k) / 2, self.merged(k) ** 2 / 2) for k in range(1, self.epochs)]
        return np.array(found)

    def uploads(self) -> Vector:
        """Return the uploaded w of each slot, ``[K_s]``."""
        return np.array([self.merged(k) * self.local ** (self.epochs - k) for k in range(1, self.epochs)])

    def draw(self, slot: int, rng: np.random.Generator) -> float:
        """Return a reward of `slot` with noise."""
        return float(self.rewards()[slot - 1] + self.noise * rng.normal())


def table_slots(
    toy: SlotToy, tasks: int, epsilon: float, seed: int, *, first: int = 1, shift: float = 0.0
) -> list[int]:
    """Return the slots of so many tasks of one device that learns by its Q-table (6), with `shift` taken from R."""
    rng, table, slot, used = np.random.default_rng(seed), np.zeros((toy.slots, 3)), first, []
    for _ in range(tasks):
        action = epsilon_greedy(table[slot - 1], epsilon, rng)
        new = next_slot(slot, action, toy.slots)
        table = q_update(table, slot, action, new, toy.draw(new, rng) - shift)
        slot = new
        used.append(slot)
    return used


def meta_probabilities(toy: SlotToy, devices: int, lr: float, seed: int, *, sampled: bool) -> Vector:
    """Return the meta-model's probabilities of the slots before and after each device's first merge.

    Parameters
    ----------
    toy : SlotToy
    devices : int
        Each draws one slot, and brings one reward (5).
    lr : float
        eta_RL.
    seed : int
    sampled : bool
        Draw slots with their probabilities, as the identity of REINFORCE asks for; else epsilon-greedily, as printed.

    Returns
    -------
    ndarray
        ``[devices + 1, K_s]``.
    """
    rng = np.random.default_rng(seed)
    theta, baseline, found = initial_meta(rng), 0.0, []
    for _ in range(devices):
        logs = log_probabilities(meta_logits(theta, toy.slots)).numpy()
        found.append(np.exp(logs))
        slot = 1 + (int(rng.choice(toy.slots, p=found[-1])) if sampled else epsilon_greedy(logs, 0.1, rng))
        brought = toy.draw(slot, rng)
        baseline = moving_baseline(baseline, brought)
        theta = reinforce(theta, slot, toy.slots, brought - baseline, lr)
    found.append(log_probabilities(meta_logits(theta, toy.slots)).exp().numpy())
    return np.array(found)
