"""How often the judge errs: made-up claims whose truth is known."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fl_core.experiments.claims import Claim, Judgement, settled
from fl_core.experiments.evidence import LOOKS, PLAIN, RATIO, Censored, Direction, Effect

Draw = Callable[[float, np.random.Generator], Effect]
"""Makes up an effect of the most seeds that are looked at, whose truth is so many standard deviations of a seed."""
SEEDS = max(LOOKS)


def _normal(truth: float, rng: np.random.Generator) -> Effect:
    return Effect("", dict(enumerate(rng.normal(truth, 1, SEEDS))), 0.0, PLAIN)


def lopsided(truth: float, rng: np.random.Generator) -> Effect:
    """Differences that are skewed themselves (2), which no t-test on few seeds stands: one side has no spread."""
    return Effect("", dict(enumerate(truth + 1 - rng.exponential(1, SEEDS))), 0.0, PLAIN)


def _skewed(truth: float, rng: np.random.Generator) -> Effect:
    """Times of two methods, each with now and then a very slow run."""
    left, right = np.exp(rng.exponential(1 / np.sqrt(2), (2, SEEDS)))
    return Effect("", dict(enumerate(left * np.exp(truth))), dict(enumerate(right)), RATIO, delta=1.0 + 1e-9)


def _quantised(truth: float, rng: np.random.Generator) -> Effect:
    """Accuracies on so few test images that their step is as large as the spread over seeds."""
    left, right = np.round(_two_sides(truth, rng))
    return Effect("", dict(enumerate(left)), dict(enumerate(right)), PLAIN, resolution=1.0)


def _censored(truth: float, rng: np.random.Generator) -> Effect:
    """Times of which every fourth ends with the run."""
    times, end = np.exp(_two_sides(truth, rng)), float(np.exp(0.5))
    late = (np.flatnonzero(row > end).tolist() for row in times)
    left, right = (Censored(dict(enumerate(np.minimum(t, end))), over) for t, over in zip(times, late, strict=True))
    return Effect("", left, right, RATIO, delta=1.0 + 1e-9)


def _two_sides(truth: float, rng: np.random.Generator) -> np.ndarray:
    """Return the values of two methods, whose difference has standard deviation 1."""
    return np.array([[truth], [0.0]]) + rng.normal(0, np.sqrt(0.5), (2, SEEDS))


DRAWS: dict[str, Draw] = {"normal": _normal, "skewed": _skewed, "quantised": _quantised, "censored": _censored}


class Course(NamedTuple):
    """What becomes of a claim over the planned looks."""

    direction: Direction
    look: int
    """At which it was decided; 0: never."""
    covered: dict[int, bool]
    """Whether the interval of each look holds the truth."""


def course(effects: Iterable[Effect], truth: float = float("nan")) -> Course:
    """Return how a claim with these parts is decided, look by look, until it is."""
    parts, covered = list(effects), {}
    claim = Claim("SIMULATED-C01", "run", "", "", "", lambda study: [])
    for look in LOOKS:
        seen = [replace(part, left=_first(part.left, look)) for part in parts]
        judgement = Judgement(claim, tuple(seen), "", "real", "")
        [judgement] = settled([replace(judgement, p=judgement.own_p)])
        low, high = seen[0].interval
        covered[look] = bool(low <= seen[0].scale.shown(truth) <= high)
        if judgement.direction != "open":
            return Course(judgement.direction, look, covered)
    return Course("open", 0, covered)


def _first(side: object, seeds: int) -> Censored:
    assert isinstance(side, dict)
    return Censored({s: v for s, v in side.items() if s < seeds}, getattr(side, "at_least", ()))


def error_rates(repetitions: int, seed: int = 0, parts: int = 1, draws: Mapping[str, Draw] = DRAWS) -> pd.DataFrame:
    """Return how often a claim without an effect is decided, either way at any look, and intervals hold the truth."""
    rows = []
    for name, draw in draws.items():
        rng = np.random.default_rng(seed)
        found = [course([draw(0.0, rng) for _ in range(parts)], 0.0) for _ in range(repetitions)]
        row: dict[str, Any] = {"effects are": name}
        row["error"] = float(np.mean([one.direction in ("holds", "opposite") for one in found]))
        for look in LOOKS:
            row[f"coverage, {look} seeds"] = float(np.mean([c.covered[look] for c in found if look in c.covered]))
        rows.append(row)
    return pd.DataFrame(rows)


def power(truths: Iterable[float], repetitions: int, seed: int = 0, draw: Draw = _normal) -> pd.DataFrame:
    """Return how often a claim is found to hold by each look, by the true effect in standard deviations of a seed."""
    rows = []
    for truth in truths:
        rng = np.random.default_rng(seed)
        found = [course([draw(truth, rng)], truth) for _ in range(repetitions)]
        held = [c.look for c in found if c.direction == "holds"]
        row = {"effect": truth} | {f"{n} seeds": sum(look <= n for look in held) / repetitions for n in LOOKS}
        rows.append(row | {"wrong direction": np.mean([c.direction == "opposite" for c in found])})
    return pd.DataFrame(rows)
