"""Claims: statements of a paper as functions of results, judged with a confidence interval over seeds.

An empirical claim is one or more inequalities ``left <= bound * right`` between quantities that every seed gives
once, so left and right are paired by seed. The margin ``left - bound * right`` gets a two-sided 95 % t-interval. If
it lies on the claimed side the inequality is *reproduced*, if it lies on the other side it is *not reproduced*, and
if it contains zero, or there are fewer than two seeds, it is *inconclusive*. A claim is reproduced if all its
inequalities are, and not reproduced if one of them is not. An exact claim (equal bits, equal counts) needs no seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from scipy import stats

from fl_core.errors import unknown
from fl_core.experiments.study import Study
from fl_core.plugins import paper_modules

Verdict = Literal["reproduced", "not reproduced", "inconclusive"]
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Comparison:
    """One inequality, ``left <= bound * right`` or with `above` ``left >= bound * right``; `name` says which.

    Left and right are values by seed; right may be a number for every seed, and seeds that only one side has are not
    used.
    """

    name: str
    left: Mapping[int, float]
    right: Mapping[int, float] | float = 1.0
    bound: float = 1.0
    above: bool = False

    @property
    def seeds(self) -> list[int]:
        """Seeds that both sides have."""
        return sorted(set(self.left) & set(self.right) if isinstance(self.right, Mapping) else self.left)

    @property
    def ratio(self) -> float:
        """Effect size: mean of the left side over mean of the right side; NaN without data."""
        left, right = self._pairs()
        return float(left.mean() / right.mean()) if len(left) and right.mean() else float("nan")

    @property
    def interval(self) -> tuple[float, float]:
        """Confidence interval of the margin, shifted and scaled to the ratio: it contains `bound` if undecided."""
        left, right = self._pairs()
        if len(left) < 2 or not right.mean():
            return float("nan"), float("nan")
        margin = left - self.bound * right
        half = stats.t.ppf((1 + CONFIDENCE) / 2, len(margin) - 1) * margin.std(ddof=1) / np.sqrt(len(margin))
        ends = self.bound + (margin.mean() + np.array([-half, half])) / right.mean()
        return float(ends[0]), float(ends[1])

    @property
    def verdict(self) -> Verdict:
        """What the interval says."""
        low, high = self.interval
        if not np.isfinite([low, high]).all() or low <= self.bound <= high:
            return "inconclusive"
        return "reproduced" if (low > self.bound) == self.above else "not reproduced"

    @property
    def slack(self) -> float:
        """How far the ratio is on the claimed side; the smallest one decides."""
        return (self.ratio - self.bound) * (1 if self.above else -1)

    def words(self) -> tuple[str, str, str]:
        """Return effect, interval and bound as text."""
        low, high = self.interval
        effect = f"{self.ratio:.3f}" if np.isfinite(self.ratio) else "–"
        spread = f"[{low:.3f}, {high:.3f}]" if np.isfinite(low) else "–"
        relation = (">" if self.above else "<") if self.bound == 1 else ("≥" if self.above else "≤")
        return effect, spread, f"{relation} {self.bound:g}"

    def _pairs(self) -> tuple[np.ndarray, np.ndarray]:
        right = self.right if isinstance(self.right, Mapping) else dict.fromkeys(self.left, self.right)
        return np.array([self.left[s] for s in self.seeds]), np.array([right[s] for s in self.seeds])


@dataclass(frozen=True)
class Check:
    """One exact statement; `holds` is None if there is nothing to check it on, `detail` says what was compared."""

    name: str
    holds: bool | None
    detail: str

    @property
    def seeds(self) -> list[int]:
        """None are needed."""
        return []

    @property
    def verdict(self) -> Verdict:
        """Reproduced or not, inconclusive without anything to check."""
        return "inconclusive" if self.holds is None else "reproduced" if self.holds else "not reproduced"

    @property
    def slack(self) -> float:
        """Negative if it fails."""
        return 0.0 if self.holds else -1.0

    def words(self) -> tuple[str, str, str]:
        """Return what was compared; an exact statement has no interval."""
        return self.detail, "exact", "equal"


@dataclass(frozen=True)
class Claim:
    """A statement of a paper."""

    id: str
    """E.g. ``"FEDASYNC-C03"``."""
    statement: str
    """What the paper says, in our words; `source`: where."""
    source: str
    test: str
    """The inequality, in words."""
    judge: Callable[[Study], Sequence[Comparison | Check]]
    """None are returned if the study lacks the runs."""
    fragile: bool = False
    """Expected to depend on the size of the experiment: reported, never a gate."""
    exact: bool = False
    """Needs equality, not statistics."""
    computed: bool = False
    """About the theory or the system: judged on formulas, toys and small simulations, whatever the data set."""


@dataclass(frozen=True)
class Judgement:
    """A claim, and what one study says about it."""

    claim: Claim
    parts: tuple[Comparison | Check, ...]
    dataset: str
    data_kind: str
    profile: str

    @property
    def verdict(self) -> Verdict:
        """The weakest of the parts."""
        verdicts = {part.verdict for part in self.parts}
        weakest: tuple[Verdict, ...] = ("not reproduced", "inconclusive")
        for verdict in weakest:
            if verdict in verdicts:
                return verdict
        return "reproduced" if verdicts else "inconclusive"

    @property
    def decisive(self) -> Comparison | Check | None:
        """The part that the verdict hangs on: of those with this verdict, the one with least to spare."""
        parts = [part for part in self.parts if part.verdict == self.verdict]
        return min(parts, key=lambda part: (not np.isfinite(part.slack), part.slack)) if parts else None


CLAIMS: dict[str, Claim] = {}


def make_claim(
    paper: str,
    number: str,
    source: str,
    statement: str,
    test: str,
    judge: Callable[[Study], Sequence[Comparison | Check]],
    fragile: bool = False,
    exact: bool = False,
    computed: bool = False,
) -> Claim:
    """Return a claim of `paper`, e.g. ``"FEDASYNC"``, in the order in which a list of claims is read."""
    return Claim(f"{paper}-{number}", statement, source, test, judge, fragile, exact, computed)


def find_claim(name: str) -> Claim:
    """Return the claim with id `name`.

    Raises
    ------
    SpecError
        If there is none.
    """
    if name not in CLAIMS and name not in claims():
        raise unknown("claim", name, CLAIMS)
    return CLAIMS[name]


def claims() -> dict[str, Claim]:
    """Return the claims of all papers by id."""
    for module in paper_modules("claims"):
        found = getattr(module, "CLAIMS", [])
        CLAIMS.update({each.id: each for each in found if isinstance(found, list)})
    return dict(CLAIMS)


def judge(names: Iterable[str], study: Study) -> list[Judgement]:
    """Judge the claims called `names` on `study`, each once, in order of their ids."""
    found = []
    for name in sorted(set(names)):
        claim = find_claim(name)
        parts = tuple(claim.judge(study))
        found.append(Judgement(claim, parts, study.dataset, study.data_kind, study.profile))
    return found


def ledger(judgements: Iterable[Judgement]) -> pd.DataFrame:
    """Return the judgements as a frame, one row per claim, text that is ready to be shown."""
    return pd.DataFrame([_row(judgement) for judgement in judgements])


def details(judgements: Iterable[Judgement]) -> pd.DataFrame:
    """Return every single inequality and check of the judgements as a frame."""
    rows = []
    for judgement in judgements:
        for part in judgement.parts:
            effect, interval, bound = part.words()
            rows.append(
                {
                    "claim": judgement.claim.id,
                    "part": part.name,
                    "effect": effect,
                    "95 % interval": interval,
                    "claimed": bound,
                    "verdict": part.verdict,
                    "seeds": len(part.seeds) or "–",
                }
            )
    return pd.DataFrame(rows)


def _row(judgement: Judgement) -> dict[str, object]:
    claim, part = judgement.claim, judgement.decisive
    effect, interval, bound = part.words() if part else ("–", "–", "–")
    return {
        "claim": claim.id + ("†" if claim.fragile else ""),
        "the paper says": claim.statement,
        "verdict": judgement.verdict,
        "effect": effect,
        "95 % interval": interval,
        "claimed": bound,
        "at": part.name if part else "no runs to judge it on",
        "test": claim.test,
        "seeds": max((len(p.seeds) for p in judgement.parts), default=0) or "–",
        "data": "none" if claim.computed else f"{judgement.dataset} ({judgement.data_kind})",
        "profile": judgement.profile,
    }
