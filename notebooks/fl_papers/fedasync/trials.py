"""FedAsync's theorems on problems whose constants are known: toys Q and W and a logistic regression.

No network is trained; every number follows from :mod:`fl_core.formulas`. Claims C26 to C29 count the violations, the
derivation chapter shows them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial

import numpy as np
import pandas as pd

from fl_core.formulas.checks import inequalities, violations
from fl_core.formulas.staleness import Constant, Exponential, Hinge, Linear, Polynomial, StalenessWeight
from fl_papers.fedasync.bounds import (
    adaptive_rate,
    beta,
    contraction_root,
    derived_bound,
    printed_bound,
    q_option1,
    q_option2,
    residual,
    residual_tight,
    theorem2_constants,
)
from fl_papers.fedasync.chains import theorem2_chains
from fl_papers.fedasync.logistic import ToyLogistic
from fl_papers.fedasync.stability import mixing_characteristic, spectral_radius
from fl_papers.fedasync.toys import ToyQ, ToyW, iterate, oldest_versions, sampled_versions

WEIGHTS: tuple[StalenessWeight, ...] = (
    Constant(),
    Linear(a=0.5),
    Polynomial(a=0.5),
    Exponential(a=0.3),
    Hinge(a=10, b=4),
)
WAVES = tuple(itertools.product((1.0, 2.0, 3.0), ((1, 0.9, 5), (4, 0.6, 10), (16, 0.9, 3))))
"""Starting points and (K, alpha, H) of the runs on toy W."""


def theorem1_on_toy_q(updates: int = 300, adaptive: bool = False) -> pd.DataFrame:
    """Count how often FA-9 (printed, tight, one update) and FA-10 (whole, one update) fail on toy Q; no sampling.

    Parameters
    ----------
    updates : int
        T.
    adaptive : bool
        False: 108 configurations with constant alpha. True: 270 with the five staleness functions, to which FA-9
        does not apply.

    Returns
    -------
    DataFrame
        One row per configuration, with the number of updates at which a bound fails.
    """
    toy, t = ToyQ(), np.arange(updates + 1)
    mu, v1 = toy.strong_convexity, toy.grad_deviation_bound
    settings = (
        itertools.product(WEIGHTS, (1, 4, 16), (0.2, 0.6, 0.9), (1, 5), ("sampled",), range(3))
        if adaptive
        else itertools.product(WEIGHTS[:1], (1, 4, 16), (0.2, 0.6, 0.9), (1, 5, 10), ("oldest", "sampled"), range(2))
    )
    rows = []
    for weight, K, alpha, H, schedule, seed in settings:
        rng = np.random.default_rng([seed, K, H])
        versions = oldest_versions(updates, K) if schedule == "oldest" else sampled_versions(updates, K, rng)
        errors, norms, alphas = toy.run(alpha, versions, H, weight)
        q, v2 = q_option1(toy.lr, mu, H), v1 + norms.max()
        excess = np.maximum(errors - v1 / (2 * mu), 0)
        repaired = (1 - alphas) * excess[:-1] + alphas * q * excess[versions]
        bound = derived_bound(t, errors[0], adaptive_rate(alpha, q, K, weight), mu, v1)
        row = {"function": str(weight), "K": K, "α": alpha, "H": H, "schedule": schedule, "seed": seed}
        if not adaptive:
            b = beta(alpha, q)
            printed = printed_bound(t, errors[0], b, residual(toy.lr, mu, v1, v2))
            tight = printed_bound(t, errors[0], b, residual_tight(q, mu, v1, v2))
            one = b * errors[:-1] + alpha * (v1 + q * v2) / (2 * mu)
            row |= {"FA-9": _above(errors, printed), "tight": _above(errors, tight), "step": _above(errors[1:], one)}
        rows.append(row | {"FA-10": _above(errors, bound), "FA-10 step": _above(excess[1:], repaired)})
    return pd.DataFrame(rows)


def theorem1_on_logistic(runs: int = 40, updates: int = 100) -> pd.DataFrame:
    """Compare both bounds with the mean error of `runs` runs of logistic regression, in four configurations."""
    toy, t, rows = ToyLogistic(), np.arange(updates + 1), []
    for K, alpha, H in ((1, 0.6, 5), (4, 0.6, 5), (16, 0.6, 5), (4, 0.9, 1)):
        errors, v1, v2 = toy.run([alpha] * updates, oldest_versions(updates, K), H, runs)
        mu, start = toy.strong_convexity, errors[0]
        q = q_option1(toy.lr, mu, H)
        printed = printed_bound(t, start, beta(alpha, q), residual(toy.lr, mu, v1, v2))
        repaired = derived_bound(t, start, contraction_root(alpha, q, K), mu, v1)
        row = {"K": K, "α": alpha, "H": H, "start": start, "true": errors[-1]}
        row |= {"printed": printed[-1], "repaired": repaired[-1]}
        rows.append(row | {"FA-9": _above(errors, printed), "FA-10": _above(errors, repaired)})
    return pd.DataFrame(rows)


def vacuity(draws: int = 200_000) -> tuple[int, int]:
    """Count how often a theorem's bound is below the error at the start, for constants that it admits (E4).

    Constants are drawn over several orders of magnitude, and the error at the start between zero and the largest that
    the assumptions allow, V2 / (2 mu) or V2 / (2 (rho - mu)). Returns the counts for Theorems 1 and 2.
    """
    rng = np.random.default_rng(5)
    mu, v1, v2 = 10 ** rng.uniform([[-2], [-3], [-3]], [[1], [2], [2]], (3, draws))
    alpha, share = rng.uniform(0.01, 1, draws), rng.uniform(0, 1, draws)
    H, T = rng.integers(1, 50, draws), rng.integers(0, 500, draws)

    lr, gap = rng.uniform(0.001, 0.999, draws) / mu, share * v2 / (2 * mu)
    one = printed_bound(T, gap, beta(alpha, q_option1(lr, mu, H)), residual(lr, mu, v1, v2))
    first = np.count_nonzero(one < gap * (1 - 1e-12))

    r = 10 ** rng.uniform(-2, 1, draws)
    lr, rho, gap = rng.uniform(0.001, 1.999, draws) / r, mu + r, share * v2 / (2 * r)
    two = printed_bound(
        T, gap, beta(alpha, q_option2(lr, rho, mu, H)), theorem2_constants(lr, rho, mu, v1, v2).residual
    )
    return int(first), int(np.count_nonzero(two < gap * (1 - 1e-12)))


def theorem2_on_toy_w(updates: int = 200) -> pd.DataFrame:
    """Evaluate every inequality of Theorem 2's proof on every local and server step of nine runs on toy W.

    Returns
    -------
    DataFrame
        One row per run: how many inequalities, how many violated, where it ends, and R = 2 C2 / (gamma r).
    """
    toy, rows = ToyW(), []
    for x0, (K, alpha, H) in WAVES:
        versions = oldest_versions(updates, K)
        chains = theorem2_chains(toy, x0, alpha, versions, H)
        end = iterate(x0, [alpha] * updates, versions, partial(toy.local_model, steps=H))[-1]
        row = {"x_0": x0, "K": K, "α": alpha, "H": H, "inequalities": inequalities(chains)}
        v2 = 2 * (toy.prox_rho - toy.weak_convexity) * float(chains["8 staleness"][-1])
        end_of_bound = theorem2_constants(toy.lr, toy.prox_rho, toy.weak_convexity, 0.0, v2).residual
        rows.append(row | {"violated": violations(chains), "end": end, "F": toy.loss(end), "R": end_of_bound})
    return pd.DataFrame(rows)


def theorem2_with_clients(runs: int = 400, updates: int = 40) -> int:
    """Count the updates at which the mean of `runs` runs on toy W with four unlike clients exceeds FA-12."""
    toy, alpha, H = ToyW(), 0.6, 5
    offsets = np.random.default_rng(4).choice(toy.gradient_offsets, size=(updates, runs))
    models, visited = [np.full(runs, 2.0)], []
    for offset, tau in zip(offsets, oldest_versions(updates, 4), strict=True):
        path = [toy.local_model(models[tau], h, offset) for h in range(H + 1)]
        visited.append(np.array(path))
        models.append((1 - alpha) * models[-1] + alpha * path[-1])
    largest = max(map(abs, toy.gradient_offsets))
    v2 = toy.grad_second_moment_bound(np.append(visited, models), largest)
    end = theorem2_constants(toy.lr, toy.prox_rho, toy.weak_convexity, largest**2, v2).residual
    errors = toy.loss(np.array(models)).mean(axis=1)
    b = beta(alpha, q_option2(toy.lr, toy.prox_rho, toy.weak_convexity, H))
    return _above(errors, printed_bound(np.arange(updates + 1), errors[0], b, end))


def largest_mixing_root(ages: Sequence[int] = (1, 2, 4, 8, 16)) -> pd.Series:
    """Return by staleness function the largest root of mixing over 550 settings; every upload has the same age."""
    grid = list(itertools.product(ages, np.linspace(0.05, 0.95, 10), np.linspace(-0.95, 0.95, 11)))
    return pd.Series(
        {
            str(weight): max(
                spectral_radius(mixing_characteristic(alpha * weight(age - 1), q, age)) for age, alpha, q in grid
            )
            for weight in WEIGHTS
        }
    )


def _above(errors: np.ndarray, bound: np.ndarray) -> int:
    return int(np.count_nonzero(errors > bound * (1 + 1e-12)))
