"""Real claims on labels that mean nothing: how often the judge finds that they hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.stats import binom

from fl_core.experiments.claims import Claim, Judgement, Part, lucky, parts_of, settled
from fl_core.experiments.evidence import LEVEL, TIE, Censored, Effect, luck
from fl_core.experiments.run import Result
from fl_core.experiments.study import Study

CHECKED = 5
"""Permutations on which it is checked that a claim compares seed by seed."""
CERTAIN = 1e-4
"""How improbable so few hits have to be for a claim that holds as often as the judge may err."""


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
    """Return how often a claim holds on permuted labels, of so many or as soon as it is certainly seldom enough.

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
    for tried, choice in enumerate(choices):
        if binom.cdf(held, tried, LEVEL) < CERTAIN:
            return held / tried
        found = _chosen(parts, choice) if apart else measure(choice)
        if any(_against(part) for part in found if isinstance(part, Effect) and not part.excluded):
            continue
        nulls = tuple(on_null(part) if isinstance(part, Effect) else part for part in found)
        judgement = Judgement(claim, nulls, study.dataset, study.data_kind, study.profile)
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
