"""Statistics of one effect: what the seeds of a comparison say about its direction and its size.

An effect compares two quantities that every seed gives once, so they are paired by seed: positive quantities by the
logarithm of their ratio, accuracies by their difference. Seeds are looked at when there are 3, 5, 10 and 20 of them
and never in between; each look has a level of its own, and together they are 5 %. A time that is only known to be
"at least" so long stays in the comparison as a bound. Beside the t-test, which with few seeds needs a normal
distribution, stands what needs none: how often labels that mean nothing agree with all claimed signs (`luck`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, TypeVar

import numpy as np
import scipy

from fl_core.errors import SpecError

LEVEL = 0.05
LOOKS = {3: 0.013, 5: 0.011, 10: 0.015, 20: 0.011}
"""Two-sided level of the look at so many seeds. They add up to `LEVEL`, so that an error at any of the looks has at
most that probability, also after Holm's correction, however the looks depend on each other."""
OUTCOMES: tuple[Outcome, ...] = ("equal", "holds", "opposite")
"""In the order in which they are looked for."""
TIE = 1e-9
"""Less than any difference of counts."""
POWER = 0.8
ALIKE = 8, (4.0, 12.0)
"""Different effects in a group, and prior degrees of freedom, from which on its variances are shared (Smyth 2004),
and the most that are believed: effects that share a side look more alike than they are."""

T = TypeVar("T")
Direction = Literal["holds", "opposite", "equal", "open"]
Outcome = Literal["holds", "opposite", "equal"]
"""A direction that can be found."""
Size = Literal["as printed", "smaller", "larger", "open", "not printed"]
Relation = Literal["more", "less", "equal"]


@dataclass(frozen=True)
class Scale:
    """On what scale two values are compared, and which differences are practically none there."""

    unit: str
    delta: float
    """Practically equal: on the scale of :meth:`compare`."""
    logarithmic: bool = False
    factor: float = 1.0
    """From differences to the unit."""

    def compare(self, left: float, right: float) -> float:
        """Return the effect of one seed: log-ratio or difference."""
        if not self.logarithmic:
            return left - right
        if left < 0 or right < 0:
            raise SpecError(f"a ratio of {left:g} and {right:g}: both must be positive")
        return float(np.log(left) - np.log(right)) if left and right else float("nan")

    def inner(self, shown: float) -> float:
        """Return a ratio or a difference as :meth:`compare` gives it."""
        return float(np.log(shown)) if self.logarithmic else shown

    def outer(self, inner: float) -> float:
        """Return a ratio or a difference of values: the inverse of :meth:`inner`."""
        return float(np.exp(inner)) if self.logarithmic else inner

    def shown(self, inner: float) -> float:
        """Return the ratio, or the difference in the unit."""
        return float(np.exp(inner)) if self.logarithmic else self.factor * inner


RATIO = Scale("ratio", float(np.log(1.05)), logarithmic=True)
"""Times, losses, bytes, stabilities: left over right; practically equal within 5 %."""
POINTS = Scale("points", 0.005, factor=100.0)
"""Accuracies in [0, 1], in percentage points: left minus right; practically equal within half a point."""
PLAIN = Scale("difference", 0.0)
"""Correlations, shares, counts; what is practically equal must be declared with the effect."""
SCALES = RATIO, POINTS, PLAIN
"""All of them."""


class Censored(dict[int, float]):
    """Times by seed of which some (`at_least`) are only lower bounds: the target was not reached."""

    def __init__(self, values: Mapping[int, float], at_least: Iterable[int] = (), runs: Iterable[str] = ()) -> None:
        super().__init__(values)
        self.at_least, self.runs = frozenset(at_least), frozenset(runs)


@dataclass(frozen=True)
class Effect:
    """A part of a claim: `left` is claimed to be more (less) than `bound` and `right`, or equal to it.

    Left and right are values by seed, right may be a number for every seed; seeds that only one side has are not
    used.
    """

    name: str
    left: Mapping[int, float]
    right: Mapping[int, float] | float
    scale: Scale = RATIO
    claimed: Relation = "more"
    bound: float | None = None
    """The null: a ratio (1) or a difference (0); the claim is about what lies beyond it."""
    printed: float | None = None
    """The effect that the paper prints: a ratio, or a difference of values."""
    delta: float | None = None
    """Practically equal, instead of the scale's: a ratio above 1, or a difference."""
    discrete: bool = False
    """A count: judged by the sign of each seed, a tie with the bound is on the claimed side."""
    resolution: float = 0.0
    """Step of the measured effect (one test image is 1/10,000); no spread is taken to be less than rounding makes."""
    chaos: float = 0.0
    """Standard deviation that rounding alone gives the effect, where measured; no spread is taken to be less."""
    excluded: str = ""
    """Why the part is shown but not judged: a method that is not trained."""
    of_settings: bool = False
    """Whether it compares settings of a method, of which some may leave it untrained: that is no reason then."""
    prior: tuple[float, float] | None = field(default=None, repr=False)
    """Degrees of freedom and variance that the effects of a group share."""

    def __post_init__(self) -> None:
        if self.claimed == "equal" and not self.margin:
            raise SpecError(f"{self.name}: a claim that two sides are equal needs delta, what is practically equal")

    @property
    def seeds(self) -> list[int]:
        """Seeds that both sides have."""
        return sorted(set(self.left) & set(self.right) if isinstance(self.right, Mapping) else self.left)

    @property
    def runs(self) -> frozenset[str]:
        """Hashes of the runs that it rests on, as far as its sides know them."""
        return frozenset().union(*(getattr(side, "runs", ()) for side in (self.left, self.right)))

    @property
    def look(self) -> int:
        """Number of seeds of the last planned look; 0 if there are fewer than three."""
        return max((n for n in LOOKS if n <= len(self.seeds)), default=0)

    @cached_property
    def null(self) -> float:
        """The bound on the scale of the comparison."""
        neutral = 1.0 if self.scale.logarithmic else 0.0
        return self.scale.inner(neutral if self.bound is None else self.bound)

    @cached_property
    def margin(self) -> float:
        """What is practically equal to the null; 0 for a bound that is not "no effect"."""
        if self.delta is not None:
            return abs(self.scale.inner(self.delta))
        return self.scale.delta if self.bound is None or self.claimed == "equal" else 0.0

    @cached_property
    def sides(self) -> tuple[np.ndarray, np.ndarray]:
        """Smallest and largest possible effect by seed, less the null; they differ where a value is censored."""
        low, high = [], []
        for seed in self.seeds[: self.look or None]:
            right = self.right[seed] if isinstance(self.right, Mapping) else self.right
            value = self.scale.compare(self.left[seed], right) - self.null
            low.append(-np.inf if seed in getattr(self.right, "at_least", ()) else value)
            high.append(np.inf if seed in getattr(self.left, "at_least", ()) else value)
        return np.array(low), np.array(high)

    @property
    def values(self) -> np.ndarray:
        """The effect of each seed of the look, with bounds where it is censored, less the null."""
        low, high = self.sides
        return np.where(np.isfinite(low), low, high)

    @property
    def estimate(self) -> float:
        """Mean effect as it is shown; NaN without seeds."""
        values = self.values[np.isfinite(self.values)]
        return self.scale.shown(float(values.mean()) + self.null) if len(values) else float("nan")

    def _error(self, values: np.ndarray) -> tuple[float, float]:
        """Return standard error and degrees of freedom of a mean."""
        freedom = len(values) - 1.0
        variance = float(values.var(ddof=1))
        if self.prior:
            extra, shared = self.prior
            variance, freedom = (extra * shared + freedom * variance) / (extra + freedom), freedom + extra
        return float(np.sqrt(max(variance, self.step**2 / 12, self.chaos**2) / len(values))), freedom

    def _chance(self, values: np.ndarray) -> float:
        """Return the one-sided p-value of a mean above 0; with values of -inf, and of counts, of a median above 0."""
        if np.isnan(values).any():
            return 1.0
        if self.discrete or np.isinf(values).any():
            return float(scipy.stats.binomtest(int((values > 0).sum()), len(values), alternative="greater").pvalue)
        error, freedom = self._error(values)
        return float(scipy.stats.t.sf(values.mean() / error, freedom)) if error else 1.0

    @property
    def step(self) -> float:
        """Step of the measured effect; 1 of a count."""
        return self.resolution or float(self.discrete and not self.scale.logarithmic)

    @property
    def too_coarse(self) -> bool:
        """Whether all seeds have the same effect, so that an interval would have no width."""
        if not self.look:
            return False
        values = self.values
        alike = np.isfinite(values).all() and np.ptp(values) <= 1e-9 * max(1.0, float(np.abs(values).max()))
        return bool(alike and not self.step and not self.prior)

    @cached_property
    def interval(self) -> tuple[float, float]:
        """Interval of the effect as it is shown, at the level of the look; infinite ends where it is censored."""
        if not self.look or self.too_coarse or np.isnan(self.values).any():
            return float("nan"), float("nan")
        ends = []
        for values, sign in zip(self.sides, (-1, 1), strict=True):
            if np.isinf(values).any():
                ends.append(sign * np.inf)
                continue
            error, freedom = self._error(values)
            ends.append(values.mean() + sign * scipy.stats.t.ppf(1 - LOOKS[self.look] / 2, freedom) * error)
        low, high = (self.scale.shown(end + self.null) for end in ends)
        return low, high

    @cached_property
    def p(self) -> dict[Outcome, float]:
        """Two-sided p-value of each outcome, over all looks: compare them with `LEVEL`."""
        share = LOOKS[self.look] if self.look else LEVEL
        return {outcome: min(1.0, 2 * chance * LEVEL / share) for outcome, chance in self.chances.items()}

    @cached_property
    def chances(self) -> dict[Outcome, float]:
        """One-sided p-value of each outcome at this look: it tells apart what has a `p` of 1."""
        if not self.look or self.excluded or self.too_coarse:
            return {"holds": 1.0, "opposite": 1.0, "equal": 1.0}
        return {
            outcome: min([1.0, *(max(map(self._chance, each)) for each in ways)])
            for outcome, ways in self._ways.items()
        }

    @property
    def _ways(self) -> dict[Outcome, list[list[np.ndarray]]]:
        """The ways in which each outcome may be shown: values by seed, each of which has to be above 0 on average."""
        low, high = self.sides
        inside = [[low + self.margin, self.margin - high]] if self.margin else []
        if self.claimed == "equal":
            return {"holds": inside, "opposite": [[low - self.margin], [-high - self.margin]], "equal": []}
        worst, best = (low, high) if self.claimed == "more" else (-high, -low)
        tie = TIE * self.discrete  # a count at its bound is on the claimed side
        return {"equal": inside, "holds": [[worst + tie]], "opposite": [[-best - tie]]}

    @property
    def too_short(self) -> int:
        """In how many seeds a run ended before it could tell on which side of the null the effect is."""
        low, high = self.sides
        return int((np.isinf(high - low) & (low < 0) & (high > 0)).sum())

    @property
    def direction(self) -> Direction:
        """What the seeds say of this effect alone; practically equal goes before "holds"."""
        for outcome in OUTCOMES:
            if self.p[outcome] <= LEVEL:
                return outcome
        return "open"

    @property
    def printed_shown(self) -> float:
        """The printed effect as effects are shown; NaN without one."""
        return float("nan") if self.printed is None else self.printed * self.scale.factor

    @property
    def size(self) -> Size:
        """How the interval lies to the printed effect, measured from the null in the claimed direction."""
        if self.printed is None or self.claimed == "equal":
            return "not printed"
        low, high = (end / self.scale.factor for end in self.interval)
        if not self.look or self.excluded or np.isnan(low):
            return "open"
        if low <= self.printed <= high:
            ends = np.array([low, high])
            if not np.isfinite(ends).all() or (self.scale.logarithmic and low <= 0):
                return "open"
            width = self.scale.inner(high) - self.scale.inner(low)
            printed = abs(self.scale.inner(self.printed) - self.null)
            return "as printed" if width <= max(printed, 2 * self.scale.delta) else "open"
        beyond = low > self.printed
        return "larger" if beyond == (self.claimed != "less") else "smaller"

    @property
    def p_smaller(self) -> float:
        """Two-sided p-value, over all looks, of an effect that is smaller than the printed one."""
        if self.printed is None or self.size != "smaller":
            return 1.0
        low, high = self.sides
        printed = self.scale.inner(self.printed) - self.null
        one_sided = self._chance(low - printed) if self.claimed == "less" else self._chance(printed - high)
        return min(1.0, 2 * one_sided * LEVEL / LOOKS[self.look])

    def power(self, count: int, alone: float = LEVEL, outcomes: Iterable[Outcome] = OUTCOMES) -> float:
        """Return the chance that the look at `count` seeds, if it is still to come, shows one of `outcomes`.

        At the effect and spread that are seen, at level `alone` of all looks instead of 5 %.
        """
        values, ways = self.values[np.isfinite(self.values)], [way for each in outcomes for way in self._ways[each]]
        if count <= len(self.seeds) or np.isnan(self.values).any() or not ways:  # no value: more do not help
            return 0.0
        spread = max(float(values.std(ddof=1)) if len(values) > 1 else 0.0, self.step / np.sqrt(12), self.chaos)
        level = LOOKS[count] * alone / LEVEL / 2

        def chance(values: np.ndarray) -> float:
            if self.discrete or np.isinf(values).any():  # a test of signs, with these shares
                most = scipy.stats.binom.isf(level, count, 0.5)
                return float(scipy.stats.binom.sf(most, count, (values > 0).mean()))
            mean = float(values.mean())
            if mean <= 0 or not spread:
                return float(mean > 0)
            needed, shift = scipy.stats.t.ppf(1 - level, count - 1), mean * np.sqrt(count) / spread
            return float(scipy.stats.nct.sf(needed, count - 1, shift))

        return max(min(chance(each) for each in way) for way in ways)

    def seeds_needed(self, alone: float = LEVEL) -> int | None:
        """Return the seeds of the first planned look that would decide with a power of 80 %, if any; at first 3."""
        if len(self.seeds) < min(LOOKS) and not np.isnan(self.values).any():
            return min(LOOKS)
        return next((count for count in LOOKS if self.power(count, alone) >= POWER), None)

    def words(self) -> tuple[str, str, str]:
        """Return effect, interval and what is claimed as text."""
        low, high = self.interval
        known = not (np.isnan(low) or np.isnan(high))
        bound = self.scale.shown(self.null)
        spread = f"[{_text(low, bound)}, {_text(high, bound)}]" if known else "–"
        if self.claimed == "equal":
            delta = self.scale.shown(self.margin)
            claimed = f"within a factor of {delta:.3g}" if self.scale.logarithmic else f"{bound:g} ± {delta:g}"
        else:
            claimed = f"{('≥≤' if self.discrete else '><')[self.claimed == 'less']} {bound:g}"
        below, above = (bool(np.isinf(side).any()) for side in self.sides)
        mark = {(True, False): "≤ ", (False, True): "≥ ", (True, True): "≈ "}.get((below, above), "")
        effect = self.estimate
        return (mark + _text(effect) if np.isfinite(effect) else "–"), spread, claimed


def _text(value: float, apart: float = np.nan) -> str:
    """Return a number with three digits, or as many as it takes to tell it from another one."""
    if not np.isfinite(value):
        return "∞" if value > 0 else "−∞"
    texts = (f"{value:.{digits}g}" for digits in range(3, 18))
    same, apart = np.isclose(value, apart, rtol=1e-12, atol=0), float(f"{apart:.12g}")
    return next(text for text in texts if same or float(text) != apart)


def moderated(effects: Sequence[Effect]) -> list[Effect]:
    """Return the effects with the variance they share, if enough different ones are of one kind and theirs are alike.

    Degrees of freedom and variance of the prior are those of Smyth (2004), section 6.2, for variances of equal
    degrees of freedom.
    """
    found, groups = list(effects), dict[tuple[Scale, int], list[int]]()
    for i, e in enumerate(found):
        if e.look and not e.discrete and not e.excluded and np.isfinite(e.sides).all():
            groups.setdefault((e.scale, e.look), []).append(i)
    for (_, look), group in groups.items():
        seen = {float(f"{found[i].values.var(ddof=1):.9g}") for i in group}  # one comparison may stand in many claims
        variances = np.array(sorted(seen))
        enough = len(variances) >= ALIKE[0] and (variances > 0).all()
        if enough and (prior := _prior(variances, look - 1)):
            for i in group:
                found[i] = replace(found[i], prior=prior)
    return found


def _prior(variances: np.ndarray, freedom: int) -> tuple[float, float] | None:
    half = freedom / 2
    logs = np.log(variances) - scipy.special.digamma(half) + np.log(half)
    excess = float(logs.var(ddof=1) - scipy.special.polygamma(1, half))
    least, most = (float(scipy.special.polygamma(1, extra / 2)) for extra in reversed(ALIKE[1]))
    if excess > most:
        return None
    spread = scipy.optimize.brentq(lambda x: float(scipy.special.polygamma(1, x)) - max(excess, least), 1.0, 1e3)
    return 2 * spread, float(np.exp(logs.mean() + scipy.special.digamma(spread) - np.log(spread)))


def luck(effects: Iterable[Effect], ordered: bool = True) -> float:
    """Return at most how often labels that mean nothing would agree with all claims of one seed.

    Effects that share a side hang together; sides that rest on the same runs (two targets of one curve) are one.
    Without an effect any order of the m sides that hang together is as likely as any other, and at most one in m has
    all claimed relations (a side that is added leaves at most (m - 1)/m of the orders). Where equality is claimed
    (not `ordered`), or the other side is a number, it is one in two.
    """
    found = [(e, [_origin(side) for side in (e.left, e.right) if isinstance(side, Mapping)]) for e in effects]
    sides = _merged(origin for _, origins in found for origin in origins)
    places = [{i for i, side in enumerate(sides) for origin in origins if side & origin} for _, origins in found]
    chance = 1.0
    for group in _merged(places):
        own = (e for (e, _), where in zip(found, places, strict=True) if where & group)
        strict = ordered and all(e.claimed != "equal" for e in own)
        chance /= max(2, len(group) if strict else 2)
    return chance


def _origin(side: Mapping[int, float]) -> frozenset[Hashable]:
    """Return the runs that a side rests on, or its values, if it does not say."""
    return getattr(side, "runs", None) or frozenset([frozenset(side.items())])


def _merged(sets: Iterable[AbstractSet[T]]) -> list[set[T]]:
    """Return the sets, those that overlap as one."""
    found: list[set[T]] = []
    for each in sets:
        found = [s for s in found if not s & each] + [set(each).union(*(s for s in found if s & each))]
    return found


def holm(values: Sequence[float]) -> list[float]:
    """Return Holm's adjusted p-values of any number of tests."""
    order = np.argsort(values)
    steps = np.array(values)[order] * np.arange(len(values), 0, -1)
    adjusted: list[float] = np.minimum(np.maximum.accumulate(steps), 1.0)[np.argsort(order)].tolist()
    return adjusted


def untrained(accuracies: Mapping[int, float], classes: int, examples: int) -> bool:
    """Return whether half of a method's seeds or more are within two standard deviations of guessing a class.

    The deviation is that of guessing on so many test examples, so that more seeds do not make a method trained.
    """
    chance = 1 / classes
    most = chance + 2 * np.sqrt(chance * (1 - chance) / examples)
    return bool(accuracies) and 2 * sum(value <= most for value in accuracies.values()) >= len(accuracies)
