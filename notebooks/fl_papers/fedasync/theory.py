"""FedAsync's theory: the claims C26 to C29 and the figures x1 to x4, all computed from formulas and toy problems."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from fl_core.experiments.claims import Check, Claim, register
from fl_core.experiments.study import Entry, Study
from fl_core.formulas.staleness import Exponential, Hinge, Linear, Polynomial, StalenessWeight
from fl_papers.fedasync.bounds import (
    adaptive_rate,
    beta,
    contraction_root,
    derived_bound,
    printed_bound,
    q_option1,
    residual,
    residual_tight,
)
from fl_papers.fedasync.extra_formulas import local_factor
from fl_papers.fedasync.grid import Options
from fl_papers.fedasync.stability import (
    delta_characteristic,
    mixing_characteristic,
    spectral_radius,
    stationary_error,
)
from fl_papers.fedasync.toys import ToyQ, ToyW, oldest_versions
from fl_papers.fedasync.trials import (
    WEIGHTS,
    largest_mixing_root,
    theorem1_on_logistic,
    theorem1_on_toy_q,
    theorem2_on_toy_w,
    theorem2_with_clients,
    vacuity,
)

CURVATURE, LR, STEPS = 1.0, 0.1, 5
"""The quadratic of the figures on stability and remaining error, and the steps of a local task in all figures."""


# Figures


def staleness_functions(weights: Sequence[StalenessWeight], u: Sequence[float] | np.ndarray) -> pd.DataFrame:
    """Return s(u) of each of `weights` (FA-7), a curve each, as every figure's frame: see :func:`_curve`."""
    return pd.concat([_curve(str(weight), u, "weight", weight(np.asarray(u, float))) for weight in weights])


def bounds(alpha: float, max_staleness: int, steps: int, updates: int) -> pd.DataFrame:
    """Return the true error on toy Q, every upload as stale as allowed, and what three bounds say (D5, D7, E4)."""
    toy, t = ToyQ(), np.arange(updates + 1)
    mu, v1, q = toy.strong_convexity, toy.grad_deviation_bound, q_option1(toy.lr, toy.strong_convexity, steps)
    errors, norms, _ = toy.run(alpha, oldest_versions(updates, max_staleness), steps)
    v2, start, b = v1 + norms.max(), errors[0], beta(alpha, q)
    found = {
        "true error": errors,
        "theorem, printed": printed_bound(t, start, b, residual(toy.lr, mu, v1, v2)),
        "theorem, best constant": printed_bound(t, start, b, residual_tight(q, mu, v1, v2)),
        "repaired theorem": derived_bound(t, start, contraction_root(alpha, q, max_staleness), mu, v1),
    }
    return pd.concat([_curve(name, t, "error", values, alpha) for name, values in found.items()])


def stability(alphas: Sequence[float], ages: Sequence[int], steps: int = STEPS) -> pd.DataFrame:
    """Return the largest root of mixing models and of adding updates on a quadratic, by age (D2)."""
    q, forms = local_factor(CURVATURE, LR, steps), (mixing_characteristic, delta_characteristic)
    return pd.concat(
        [
            _curve(name, ages, "root", [spectral_radius(form(alpha, q, age)) for age in ages], alpha)
            for name, form in zip(("mixing models", "adding updates"), forms, strict=True)
            for alpha in alphas
        ]
    )


def remaining_error(alphas: Sequence[float] | np.ndarray, max_staleness: int, steps: int = 2 * STEPS) -> pd.DataFrame:
    """Return the exact error that remains when two devices disagree, by alpha, beside the bounds' floor (D9)."""
    p = local_factor(CURVATURE, LR, steps)
    found = {
        "fresh uploads": [stationary_error(alpha, CURVATURE, p, 1.0) for alpha in alphas],
        f"ages 1 to {max_staleness}": [stationary_error(alpha, CURVATURE, p, 1.0, max_staleness) for alpha in alphas],
        "floor of the bounds": [CURVATURE / 2 for _ in alphas],  # V1 / (2 mu), V1 = a^2 Var(c)
    }
    return pd.concat([_curve(name, alphas, "error", values) for name, values in found.items()])


def no_runs(profile: str, dataset: str, seeds: Sequence[int] | None, **overrides: Any) -> list[Entry]:
    """Return the grid of these figures, which is empty, after checking the overrides."""
    Options.of(**overrides)
    return []


def reduce_staleness_functions(study: Study) -> pd.DataFrame:
    """FEDASYNC-X1: the paper's functions with the study's parameters."""
    chosen = _options(study)
    hinges = {Hinge(a=a, b=chosen.hinge_b): None for a in (chosen.hinge_a, chosen.sweep_hinge_a)}
    weights: tuple[StalenessWeight, ...] = (Linear(a=0.5), Polynomial(a=chosen.poly_a), Exponential(a=0.3), *hinges)
    return staleness_functions(weights, range(21))


def reduce_bounds(study: Study) -> pd.DataFrame:
    """FEDASYNC-X2: true error and bounds on toy Q."""
    chosen = _options(study)
    return pd.concat([bounds(alpha, chosen.max_staleness[0], STEPS, 60) for alpha in chosen.alphas or (0.6,)])


def reduce_stability(study: Study) -> pd.DataFrame:
    """FEDASYNC-X3: mixing against adding, over age."""
    return stability(_options(study).alphas or (0.2, 0.6, 0.9), range(1, 33))


def reduce_remaining_error(study: Study) -> pd.DataFrame:
    """FEDASYNC-X4: what remains, over alpha."""
    chosen = _options(study)
    return remaining_error(chosen.sweep_alphas or np.geomspace(0.01, 1, 41), chosen.max_staleness[1])


def _options(study: Study) -> Options:
    return Options.of(**{name: value for name, value in study.options.items() if name != "seeds"})


def _curve(method: str, x: Any, column: str, values: Any, alpha: float = np.nan) -> pd.DataFrame:
    """Return one curve as :func:`fl_core.report.curves.plot_curves` reads it; exact, so without a deviation."""
    return pd.DataFrame({"method": method, "alpha": alpha, "x": x, column: values, f"{column}_std": np.nan, "n": 1})


# Claims


def first_theorem(study: Study) -> list[Check]:
    """FEDASYNC-C26: FA-9 on toy Q and logistic regression, and what it cannot say (E4)."""
    quadratic, logistic = theorem1_on_toy_q(), theorem1_on_logistic()
    failed = int(quadratic[["FA-9", "tight", "step"]].to_numpy().sum())
    below, _ = vacuity()
    return [
        Check("toy Q", failed == 0, f"{failed} violations in {len(quadratic)} configurations, exact expectations"),
        Check(
            "logistic regression",
            not logistic["FA-9"].any(),
            f"{int(logistic['FA-9'].sum())} violations in {len(logistic)} configurations, mean of 40 runs",
        ),
        Check("never below the error at the start (E4)", below == 0, f"{below} of 200,000 admissible constants"),
    ]


def second_theorem(study: Study) -> list[Check]:
    """FEDASYNC-C27: the proof of Theorem 2 step by step, FA-12 with unlike clients, and what it allows (E4, E9)."""
    waves, clients = theorem2_on_toy_w(), theorem2_with_clients()
    _, below = vacuity()
    failed, total = int(waves["violated"].sum()), int(waves["inequalities"].sum())
    stuck = waves["F"] > 4
    far = set(waves.loc[stuck, "x_0"])
    toy = ToyW()
    minimum = float(toy.loss(toy.local_minimum))
    return [
        Check("toy W, step by step", failed == 0, f"{failed} of {total:,} inequalities violated, 9 runs"),
        Check("toy W, four unlike clients", clients == 0, f"{clients} violations, mean of 400 runs"),
        Check("never below the error at the start (E4)", below == 0, f"{below} of 200,000 admissible constants"),
        Check(
            "not the global optimum (E9)",
            stuck.sum() == 6 and far == {2.0, 3.0} and bool((waves.loc[stuck, "R"] > 1e5 * minimum).all()),
            f"{stuck.sum()} of 9 runs end in a local minimum, F = {waves.loc[stuck, 'F'].min():.3f}; "
            f"R = {waves.loc[stuck, 'R'].min():.1e} and more",
        ),
    ]


def alpha_trades(study: Study) -> list[Check]:
    """FEDASYNC-C28: toy Q, K = 1."""
    toy, grid = ToyQ(), np.geomspace(0.01, 1, 41)
    rates = np.array([contraction_root(a, q_option1(toy.lr, toy.strong_convexity, STEPS), 1) for a in grid])
    errors = np.array([toy.stationary_error(a, STEPS) for a in grid])
    span = "α from 0.01 to 1: from {:.3g} to {:.3g}"
    return [
        Check("rate λ decreases in α", bool(np.all(np.diff(rates) < 0)), span.format(rates[0], rates[-1])),
        Check(
            "remaining error increases in α", bool(np.all(np.diff(errors) > 0)), span.format(errors[0], errors[-1])
        ),
    ]


def tolerance(study: Study) -> list[Check]:
    """FEDASYNC-C29: mixing is stable for every age and function (D2), and the repaired rate is below one (D7)."""
    roots = largest_mixing_root()
    rates = [adaptive_rate(a, q, 64, w) for w in WEIGHTS for a in (0.05, 0.5, 0.95) for q in (0.0, 0.5, 0.95)]
    return [
        Check("mixing is stable", bool(roots.max() < 1), f"largest root {roots.max():.5f}, ages 1 to 16"),
        Check("rate λ* < 1 for K ≤ 64", max(rates) < 1, f"1 − λ* ≥ {1 - max(rates):.1e}, five functions"),
    ]


register(
    Claim(
        "FEDASYNC-C26",
        "Theorem 1: with Option I the error falls like β^T to a neighbourhood.",
        "Theorem 1",
        "printed bound with its constant holds wherever it is tried; it never certifies progress",
        first_theorem,
        exact=True,
        computed=True,
    )
)
register(
    Claim(
        "FEDASYNC-C27",
        "Theorem 2: the same for weakly convex losses with Option II.",
        "Theorem 2",
        "every inequality of the proof on toy W; the bound never certifies progress, nor a global optimum",
        second_theorem,
        exact=True,
        computed=True,
    )
)
register(
    Claim(
        "FEDASYNC-C28",
        "α trades the speed of convergence against the error that remains.",
        "Remark 3",
        "toy Q, K = 1: λ decreases and the stationary error increases in α",
        alpha_trades,
        exact=True,
        computed=True,
    )
)
register(
    Claim(
        "FEDASYNC-C29",
        "FedAsync tolerates staleness.",
        "Introduction, conclusion",
        "largest root of mixing < 1 at every age; λ* < 1 for K ≤ 64",
        tolerance,
        exact=True,
        computed=True,
    )
)
