"""How often the judge errs: made-up claims whose truth is known, and real ones on labels that mean nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fl_core.experiments.claims import Claim, Judgement, Part, lucky, parts_of, settled
from fl_core.experiments.evidence import LOOKS, PLAIN, RATIO, TIE, Censored, Direction, Effect, luck
from fl_core.experiments.run import Result
from fl_core.experiments.study import Study

Draw = Callable[[float, np.random.Generator], Effect]
"""Makes up an effect of the most seeds that are looked at, whose truth is so many standard deviations of a seed."""
SEEDS = max(LOOKS)
CHECKED = 5
"""Permutations on which it is checked that a claim compares seed by seed."""


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


def permuted(study: Study, rng: np.random.Generator) -> Study:
    """Return the study with the results of each seed exchanged among its entries: labels that mean nothing."""
    seeds: dict[int, dict[str, None]] = {}
    for entry in study.entries:
        if entry.key in study.results:
            seeds.setdefault(entry.labels["seed"], {})[entry.key] = None
    results: dict[str, Result] = {}
    for keys in seeds.values():
        exchanged = rng.permutation(list(keys))
        results |= {key: study.results[other] for key, other in zip(keys, exchanged, strict=True)}
    return study.with_results(results)


def reproduced_by_luck(claim: Claim, study: Study, permutations: int, seed: int = 0, measured: int = 100) -> float:
    """Return how often a claim holds on permuted labels.

    Seeds are permuted independently, so any choice of one of the `measured` permutations for each seed is one of the
    study. A claim that compares seed by seed is read off them; one of which that is not true is measured each time.
    So few seeds of so few sides that they can decide nothing never do. Labels are :func:`on_null`.
    """
    sides = [part for part in parts_of(claim, study) if isinstance(part, Effect)]
    if not lucky(luck(sides), max((effect.look for effect in sides), default=0)):
        return 0.0
    rng, seeds = np.random.default_rng(seed), study.seeds
    pool = [permuted(study, rng) for _ in range(min(measured, permutations))]
    choices = [dict(zip(seeds, row, strict=True)) for row in rng.integers(len(pool), size=(permutations, len(seeds)))]
    parts = [parts_of(claim, each) for each in pool]

    def measure(choice: dict[int, int]) -> list[Part]:
        keys = ((entry.key, choice[entry.labels["seed"]]) for entry in study.entries if entry.key in study.results)
        return parts_of(claim, study.with_results({key: pool[one].results[key] for key, one in keys}))

    apart = _alike(parts) and all(measure(choice) == _chosen(parts, choice) for choice in choices[:CHECKED])
    held = 0
    for choice in choices:
        found = _chosen(parts, choice) if apart else measure(choice)
        if any(_against(part) for part in found if isinstance(part, Effect) and not part.excluded):
            continue
        tried = tuple(on_null(part) if isinstance(part, Effect) else part for part in found)
        judgement = Judgement(claim, tried, study.dataset, study.data_kind, study.profile)
        [judgement] = settled([replace(judgement, p=judgement.own_p)])
        held += judgement.direction == "holds"
    return held / permutations


def on_null(effect: Effect) -> Effect:
    """Return what labels that mean nothing give, at the edge of what is claimed where no effect would lie inside."""
    inside = {"less": effect.null > 0, "more": effect.null < 0, "equal": True}[effect.claimed]
    edge = effect.null - effect.margin if effect.claimed == "equal" else 0.0
    return replace(effect, bound=effect.scale.outer(edge)) if inside else effect


def _alike(permutations: Sequence[Sequence[Part]]) -> bool:
    """Return whether the parts differ in nothing but the values of their seeds."""
    bare = [[isinstance(p, Effect) and replace(p, left={}, right={}) for p in parts] for parts in permutations]
    return all(bare[0]) and all(parts == bare[0] for parts in bare)


def _chosen(permutations: Sequence[Sequence[Part]], choice: Mapping[int, int]) -> list[Part]:
    """Return the parts with each seed's values from the permutation chosen for it."""

    def side(each: Sequence[Any]) -> Any:
        if not isinstance(each[0], Mapping):
            return each[0]
        values = {seed: each[one][seed] for seed, one in choice.items() if seed in each[one]}
        late = [seed for seed, one in choice.items() if seed in getattr(each[one], "at_least", ())]
        return Censored(values, late, getattr(each[0], "runs", ()))

    return [
        replace(alike[0], left=side([e.left for e in alike]), right=side([e.right for e in alike]))
        for alike in zip(*permutations, strict=True)
    ]


def _against(effect: Effect) -> bool:
    """Return whether an effect is on the wrong side, so that no test finds that it holds."""
    low, high = effect.sides
    worst = low if effect.claimed == "more" else -high
    if effect.claimed == "equal" or np.isnan(worst).any() or not effect.look:
        return False
    return bool(np.mean(worst > -TIE) <= 0.5 if effect.discrete or np.isinf(worst).any() else worst.mean() <= 0)
