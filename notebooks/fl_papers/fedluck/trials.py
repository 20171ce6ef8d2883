"""FedLuck's theorem and its repair on random problems whose constants are known: nothing is trained.

Claim FEDLUCK-C01 counts violations, the derivation chapter shows them. The problems are log-cosh losses (E15).
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from fl_core.formulas.checks import inequalities, violations
from fl_papers.fedluck.chains import Trial, rescaled_chains, theorem1_chains
from fl_papers.fedluck.toys import LogCosh, timeline

INSIDE, SMALL = (0.6, 1.4), (0.005, 0.3)
"""Ranges of eta_l k: inside the window of Theorem 1, and small steps, for (L-b)."""


def theorem1_trials(count: int = 40, rounds: int = 60) -> pd.DataFrame:
    """Return, for random problems with eta_l k inside Theorem 1's window, what the theorem bounds and its bound.

    Returns
    -------
    DataFrame
        One row per problem: ``a`` (eta_l k), ``k``, ``delta``, ``tau`` (largest, Eq. 7); ``measured`` mean of
        ‖grad F‖² and its ``bound``; ``limit`` G^2; ``inequalities`` of the proof and how many are ``violated``.
    """
    return _trials(count, rounds, INSIDE, rescaled=False)


def rescaled_trials(count: int = 40, rounds: int = 60) -> pd.DataFrame:
    """Return the same for the bound (L-b), with small steps."""
    return _trials(count, rounds, SMALL, rescaled=True)


def random_trial(rng: np.random.Generator, steps: tuple[float, float], rounds: int) -> Trial:
    """Return Algorithm 1 on a random log-cosh problem with six devices; eta_l k is in `steps`, eta_l L <= 1."""
    k, rate, a = int(rng.integers(1, 8)), float(rng.choice([0.1, 0.25, 0.5, 1])), float(rng.uniform(*steps))
    spread = 10 ** rng.uniform(-1.5, 0.5)  # of the devices' minima
    return Trial(
        LogCosh(rng.normal(scale=spread, size=(6, 12)), smoothness=float(rng.uniform(0.3, 1)) * min(1, k / a)),
        start=rng.normal(scale=3, size=12),
        rounds=timeline(rng.uniform(0.1, 5, size=6).tolist(), 1.0, rounds),
        local_lr=a / k,
        global_lr=float(rng.uniform(0.3, 1)),
        local_steps=k,
        compression_rate=rate,
    )


def _trials(count: int, rounds: int, steps: tuple[float, float], rescaled: bool) -> pd.DataFrame:
    rng, rows = np.random.default_rng(int(rescaled)), []
    for _ in range(count):
        trial = random_trial(rng, steps, rounds)
        chains = rescaled_chains(trial) if rescaled else theorem1_chains(trial)
        rows.append(
            {
                "a": trial.local_lr * trial.local_steps,
                "k": trial.local_steps,
                "delta": trial.compression_rate,
                "tau": trial.max_staleness,
                "measured": trial.measured,
                "bound": trial.rescaled if rescaled else trial.theorem1,
                "limit": trial.problem.gradient_bound,
                "inequalities": inequalities(chains),
                "violated": violations(chains),
            }
        )
    return pd.DataFrame(rows)
